package demo

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Metrics is a server with the part of the HTTP API of Prometheus that rollouts use. It plays
// the part of the metrics of the network, of which the demo runs no functions: an SMF that was
// changed loses sessions while it warms up, which the health of its objects doesn't show.
type Metrics struct {
	URL string

	server   *http.Server
	done     chan struct{}
	mutex    sync.Mutex
	warmedUp time.Time // zero before the first query
}

const (
	metricName = "smf_lost_sessions_percent"
	warmUp     = 5 * time.Second // less than the time between two measurements
	lostCold   = 4.0
	lostWarm   = 0.3
	maxQuery   = 1 << 20 // bytes of a request
)

// ServeMetrics starts a server at a free port of this machine. [Metrics.Close] ends it.
func ServeMetrics(ctx context.Context) (*Metrics, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Metrics{URL: "http://" + listener.Addr().String(), done: make(chan struct{})}
	m.server = &http.Server{Handler: m, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	go func() {
		defer close(m.done)
		_ = m.server.Serve(listener) // ends with Close
	}()
	return m, nil
}

// Close ends the server.
func (m *Metrics) Close() {
	_ = m.server.Close()
	<-m.done
}

// ServeHTTP serves /api/v1/query for the metric of the demo.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/api/v1/query" {
		http.NotFound(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxQuery)
	if query := r.PostFormValue("query"); !strings.Contains(query, metricName+`{site=~"`) {
		m.write(w, http.StatusBadRequest, map[string]any{"status": "error", "errorType": "bad_data", "error": "the demo has only the metric " + metricName + " of sites"})
		return
	}
	m.write(w, http.StatusOK, map[string]any{"status": "success", "data": map[string]any{
		"resultType": "vector", "result": []any{map[string]any{"metric": map[string]string{}, "value": []any{float64(time.Now().Unix()), strconv.FormatFloat(m.value(), 'g', -1, 64)}}},
	}})
}

// value returns the percentage of lost sessions: the warm-up begins with the first query.
func (m *Metrics) value() float64 {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.warmedUp.IsZero() {
		m.warmedUp = time.Now().Add(warmUp)
	}
	if time.Now().Before(m.warmedUp) {
		return lostCold
	}
	return lostWarm
}

func (m *Metrics) write(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // a client that left
}
