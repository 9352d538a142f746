package demo_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko/internal/demo"
)

// The stand-in for Prometheus gives a value that is bad for a while after the first query, and
// says which query it has none for.
func TestMetricIsBadForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := new(demo.Metrics)
		query := func(text string) (code int, body string) {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/query", strings.NewReader(url.Values{"query": {text}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			m.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		time.Sleep(time.Hour) // before the first query, no time counts
		for _, step := range []struct {
			after time.Duration
			value string
		}{{0, `"4"`}, {4 * time.Second, `"4"`}, {5 * time.Second, `"0.3"`}, {time.Hour, `"0.3"`}} {
			time.Sleep(step.after)
			if code, body := query(`max(smf_lost_sessions_percent{site=~"north/edge-1"})`); code != http.StatusOK || !strings.Contains(body, step.value) {
				t.Errorf("after %s more: %d %s, want %s", step.after, code, body, step.value)
			}
		}
		if code, body := query("up"); code != http.StatusBadRequest || !strings.Contains(body, "the demo has only the metric smf_lost_sessions_percent") {
			t.Errorf("another metric: %d %s", code, body)
		}
	})
}

func TestMetricsAreServedUntilTheyAreClosed(t *testing.T) {
	t.Parallel()
	m, err := demo.ServeMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(m.URL, "http://127.0.0.1:") {
		t.Errorf("the metrics are at %s, want this machine only", m.URL)
	}
	get := func() (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.URL+"/api/v1/query", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return response.StatusCode, err
	}
	if code, err := get(); code != http.StatusNotFound || err != nil {
		t.Errorf("a GET: %d, %v; want that it isn't found", code, err)
	}
	m.Close()
	if code, err := get(); err == nil {
		t.Errorf("it responds %d after its end", code)
	}
}
