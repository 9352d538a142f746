package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/tko-orchestrator/tko/internal/metrics"
)

func collect(c prometheus.Collector) int {
	to := make(chan prometheus.Metric, 100)
	c.Collect(to)
	return len(to)
}

// Gauges of the database are read by scrapes only, and at most once per interval,
// however many scrapes there are.
func TestScrapesShareSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := metrics.NewSampler(15*time.Second, []metrics.Gauge{{Name: "tko_x"}}, func(context.Context) ([]metrics.Value, error) {
			reads++
			return []metrics.Value{{Name: "tko_x", Value: 1}}, nil
		})
		time.Sleep(time.Hour)
		if reads != 0 {
			t.Errorf("there were %d reads without a scrape", reads)
		}
		for range 3 {
			var scrapes sync.WaitGroup
			for range 10 {
				scrapes.Go(func() {
					if collect(s) != 1 {
						t.Error("a scrape has no value")
					}
				})
			}
			scrapes.Wait()
			time.Sleep(5 * time.Second)
		}
		if reads != 1 {
			t.Errorf("30 scrapes in 15 s read %d times", reads)
		}
		if collect(s); reads != 2 {
			t.Errorf("the scrape after 15 s did not read")
		}
	})
}

// A database that does not respond delays a scrape for seconds only, and its metrics
// are absent, not old.
func TestFailedSamplesAreAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := false
		s := metrics.NewSampler(time.Second, []metrics.Gauge{{Name: "tko_x"}}, func(ctx context.Context) ([]metrics.Value, error) {
			if hangs {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []metrics.Value{{Name: "tko_x", Value: 1}}, nil
		})
		if collect(s) != 1 {
			t.Error("there is no value")
		}
		time.Sleep(time.Second)
		hangs = true
		began := time.Now()
		if n := collect(s); n != 0 || time.Since(began) > 5*time.Second {
			t.Errorf("there are %d values after %s", n, time.Since(began))
		}
	})
}

func read(t *testing.T, handler http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The metrics of the other program are in the same families. If it fails, or does not
// run, the rest is served.
func TestOtherProgramsAreServedToo(t *testing.T) {
	own, other := metrics.New("tko-server"), metrics.New("tko-kubernetes")
	own.API("grpc").Called("/tko.Data/GetSite", codes.OK, time.Millisecond)
	other.API("kubernetes").Requested("get sites", 200, time.Millisecond)
	const ours, theirs = `tko_api_requests_total{api="grpc",code="OK",method="tko.Data/GetSite"} 1`, `tko_api_requests_total{api="kubernetes",code="200",method="get sites"} 1`
	tests := map[string]struct {
		why    string
		encode func(context.Context) ([]byte, error)
		want   bool
	}{
		"runs":         {why: "one scrape has all", encode: func(context.Context) ([]byte, error) { return other.Encode() }, want: true},
		"fails":        {why: "a crash of it must not hide the server", encode: func(context.Context) ([]byte, error) { return nil, errors.New("it ended") }},
		"does not run": {why: "a scrape doesn't start it", encode: func(context.Context) ([]byte, error) { return nil, nil }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := read(t, own.Handler(slog.New(slog.DiscardHandler), test.encode))
			if !strings.Contains(text, ours) || strings.Contains(text, theirs) != test.want {
				t.Errorf("%s:\n%s", test.why, text)
			}
			if strings.Contains(text, `process_cpu_seconds_total{program="tko-kubernetes"}`) != test.want {
				t.Error("the process of the other program")
			}
		})
	}
}

// Callers can't make series: methods and plugins that are too many share one.
func TestSeriesAreBounded(t *testing.T) {
	m := metrics.New("tko-server")
	m.Server("v1", false)
	a := m.API("grpc")
	for i := range 1000 {
		a.Called(fmt.Sprint("/x/", i), codes.Code(i), time.Millisecond)
		m.Ran("prepare", fmt.Sprint("plugin", i), "ok", time.Second)
		m.Denied("read", fmt.Sprint("kind", i), "refuse")
	}
	text := read(t, m.Handler(slog.New(slog.DiscardHandler)))
	for name, most := range map[string]int{"tko_api_requests_total{": 250, "tko_plugin_runs_total{": 51, "tko_access_refusals_total{": 10} {
		if n := strings.Count(text, "\n"+name); n > most || n == 0 {
			t.Errorf("%s has %d series", name, n)
		}
	}
}

// Lines are counted by level, also those of loggers with attributes and groups.
func TestLinesOfTheLogAreCounted(t *testing.T) {
	m := metrics.New("tko-server")
	log := slog.New(m.CountLines(slog.NewTextHandler(new(strings.Builder), &slog.HandlerOptions{Level: slog.LevelInfo})))
	log.Debug("not logged")
	log.Info("a")
	log.With("b", 1).Warn("b")
	log.WithGroup("c").Error("c")
	log.Error("d")
	text := read(t, m.Handler(log))
	for level, n := range map[string]int{"debug": 0, "info": 1, "warn": 1, "error": 2} {
		if want := fmt.Sprintf(`tko_log_lines_total{level=%q,program="tko-server"} %d`, level, n); !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

// BenchmarkCalled is the cost of metrics of a call.
func BenchmarkCalled(b *testing.B) {
	a := metrics.New("tko-server").API("grpc")
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		a.Called("/tko.Data/GetDeployment", codes.OK, time.Since(began))
	}
}

// BenchmarkScrape is the cost of a scrape of a server with many series.
func BenchmarkScrape(b *testing.B) {
	m := metrics.New("tko-server")
	a := m.API("grpc")
	for i := range 50 {
		a.Called(fmt.Sprint("/tko.Data/Method", i), codes.OK, time.Millisecond)
	}
	handler := m.Handler(slog.New(slog.DiscardHandler))
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}
}
