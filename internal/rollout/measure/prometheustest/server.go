// Package prometheustest is a server with the part of the HTTP API of Prometheus that
// rollouts use, for tests: each site has a value, and a query gives the average of those that
// it selects. The queries themselves are tried with the engine of Prometheus in
// tools/monitoring.
package prometheustest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A Server serves queries. Its fields may be changed under Lock.
type Server struct {
	sync.Mutex

	URL   string
	Token string // that requests must have; "": none
	// Value returns the value of a site at a time; false if it has none then.
	Value func(site string, at time.Time) (value float64, ok bool)
	// Respond, if it isn't nil, is called in place of a query.
	Respond func(w http.ResponseWriter, r *http.Request)
	Sites   []string // that have series
	Queries []string // that were made
}

// New starts a server, which ends with the test.
func New(t testing.TB, sites []string, value func(site string, at time.Time) (float64, bool)) *Server {
	t.Helper()
	s := &Server{Value: value, Sites: sites}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.URL = h.URL
	return s
}

var matcher = regexp.MustCompile(`site=~("(?:[^"\\]|\\.)*")`)

// ServeHTTP serves /api/v1/query.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	respond, token := s.Respond, s.Token
	s.Unlock()
	switch {
	case respond != nil:
		respond(w, r)
		return
	case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	case r.URL.Path != "/api/v1/query" || r.Method != http.MethodPost:
		http.NotFound(w, r)
		return
	}
	query, at := r.PostFormValue("query"), time.Now()
	if text := r.PostFormValue("time"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			Fail(w, "invalid parameter \"time\"")
			return
		}
		at = time.UnixMilli(int64(seconds * 1000))
	}
	selected := matcher.FindStringSubmatch(query)
	if selected == nil {
		Fail(w, "1:1: parse error: no expression found in input")
		return
	}
	pattern, err := strconv.Unquote(selected[1])
	if err != nil {
		Fail(w, err.Error())
		return
	}
	all := regexp.MustCompile("^(?s:" + pattern + ")$")
	s.Lock()
	defer s.Unlock()
	s.Queries = append(s.Queries, query)
	sum, n := 0.0, 0
	for _, site := range s.Sites {
		if value, ok := s.Value(site, at); ok && all.MatchString(site) {
			sum, n = sum+value, n+1
		}
	}
	if n == 0 {
		Vector(w)
		return
	}
	Vector(w, sum/float64(n))
}

// Vector writes a response with a series for each value.
func Vector(w http.ResponseWriter, values ...float64) {
	result := make([]any, 0, len(values))
	for i, v := range values {
		result = append(result, map[string]any{"metric": map[string]string{"n": strconv.Itoa(i)}, "value": []any{1.5, strconv.FormatFloat(v, 'g', -1, 64)}})
	}
	write(w, http.StatusOK, map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}})
}

// Fail writes that a query is wrong.
func Fail(w http.ResponseWriter, reason string) {
	write(w, http.StatusBadRequest, map[string]any{"status": "error", "errorType": "bad_data", "error": reason})
}

func write(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		panic(fmt.Sprint("encode a response: ", err))
	}
}
