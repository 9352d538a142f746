package measure_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/rollout/measure"
	"github.com/tko-orchestrator/tko/internal/rollout/measure/prometheustest"
	"github.com/tko-orchestrator/tko/internal/secret"
)

func measurement(url string) tko.RolloutMeasurement {
	return tko.RolloutMeasurement{
		Rollout: "r", Metric: "errors", URL: url, Timeout: 5 * time.Second,
		Changed: tko.RolloutQuery{Query: `avg(errors{site=~"a|b"})`}, Compared: tko.RolloutQuery{Query: `avg(errors{site=~"c"})`},
	}
}

func server(t *testing.T) *prometheustest.Server {
	t.Helper()
	values := map[string]float64{"a": 1, "b": 2, "c": 8}
	return prometheustest.New(t, []string{"a", "b", "c"}, func(site string, at time.Time) (float64, bool) {
		return values[site], at.After(time.Now().Add(-time.Hour))
	})
}

func TestQueriesGiveValues(t *testing.T) {
	t.Parallel()
	m := measurement(server(t).URL + "/")
	got := measure.Prometheus{}.Measure(t.Context(), m)
	if got.Changed.Value == nil || *got.Changed.Value != 1.5 || got.Compared.Value == nil || *got.Compared.Value != 8 {
		t.Errorf("%+v, %+v", got.Changed, got.Compared)
	}
	m.Compared.At = time.Now().Add(-2 * time.Hour) // as of when there is no series
	got = (measure.Prometheus{}).Measure(t.Context(), m)
	if got.Compared.Value != nil || !strings.Contains(got.Compared.Reason, "found no series") {
		t.Errorf("%+v", got.Compared)
	}
	m.Changed.Query = ""
	got = (measure.Prometheus{}).Measure(t.Context(), m)
	if got.Changed.Value != nil || got.Changed.Reason != "" {
		t.Errorf("a query that isn't made: %+v", got.Changed)
	}
}

// What isn't exactly one number has a reason, and no value.
func TestOnlyOneNumberIsAValue(t *testing.T) {
	t.Parallel()
	text := func(code int, body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	tests := map[string]struct {
		respond func(http.ResponseWriter, *http.Request)
		want    string
	}{
		"no series":         {func(w http.ResponseWriter, _ *http.Request) { prometheustest.Vector(w) }, "found no series"},
		"two series":        {func(w http.ResponseWriter, _ *http.Request) { prometheustest.Vector(w, 1, 2) }, "gives 2 series: aggregate"},
		"a wrong query":     {func(w http.ResponseWriter, _ *http.Request) { prometheustest.Fail(w, "1:3: unexpected )") }, "refuses the query: bad_data: 1:3: unexpected )"},
		"a range":           {text(200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`), "gives a matrix"},
		"a histogram":       {text(200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}`), "gives a histogram"},
		"a partial result":  {text(200, `{"status":"success","warnings":["store 2 is down"],"data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}]}}`), "store 2 is down"},
		"a page":            {text(200, "<html>hello</html>"), "not one of the HTTP API of Prometheus"},
		"no status":         {text(200, "{}"), "not one of the HTTP API of Prometheus"},
		"no result":         {text(200, `{"status":"success","data":{"resultType":"vector"}}`), "not one of the HTTP API"},
		"a broken value":    {text(200, `{"status":"success","data":{"resultType":"scalar","result":[1,2]}}`), "not one of the HTTP API"},
		"a failing server":  {text(503, "down"), "responded 503"},
		"wrong credentials": {text(401, "who are you"), "check the credentials"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.example.net", http.StatusFound)
		}, "responded 302"},
		"too much": {text(200, `{"status":"success"`+strings.Repeat(" ", 2<<20)+"}"), "not one of the HTTP API"},
		"a server that hangs": {func(_ http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm() // else the end of the client isn't seen
			select {
			case <-hangs:
			case <-r.Context().Done():
			}
		}, "did not respond within"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			s.Respond = test.respond
			m := measurement(s.URL)
			m.Timeout = 300 * time.Millisecond
			got := measure.Prometheus{}.Measure(t.Context(), m)
			if got.Changed.Value != nil || !strings.Contains(got.Changed.Reason, test.want) || strings.Contains(got.Changed.Reason, "hello") || strings.Contains(got.Changed.Reason, "who are you") {
				t.Errorf("%v, %q, want %q", got.Changed.Value, got.Changed.Reason, test.want)
			}
		})
	}
}

// A rollout reaches only the hosts, and uses only the credentials, that the operator lets it.
func TestHostsAndCredentialsAreGuarded(t *testing.T) {
	s := server(t)
	s.Token = "t0ken"
	t.Setenv("PROM_TOKEN", "t0ken")
	declare := func(text string) *leash.Leash {
		t.Helper()
		file := filepath.Join(t.TempDir(), "credentials.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := leash.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	closed, err := guard.New(guard.Options{Hosts: []string{"prometheus.example.net"}})
	if err != nil {
		t.Fatal(err)
	}
	const declared = `credentials: [{name: "env:PROM_TOKEN", hosts: [%s], rollouts: [%q]}]`
	secrets := secret.Sources{Environment: []string{"PROM_TOKEN"}}
	tests := map[string]struct {
		access remote.Access
		token  string
		want   string // "": a value
	}{
		"declared":             {remote.Access{Secrets: secrets, Leash: declare(fmt.Sprintf(declared, "127.0.0.1", "r*"))}, "env:PROM_TOKEN", ""},
		"another host":         {remote.Access{Secrets: secrets, Leash: declare(fmt.Sprintf(declared, "prometheus.example.net", "r*"))}, "env:PROM_TOKEN", "declared, but not for this rollout and host"},
		"another rollout":      {remote.Access{Secrets: secrets, Leash: declare(fmt.Sprintf(declared, "127.0.0.1", "other"))}, "env:PROM_TOKEN", "declared, but not for this rollout and host"},
		"an unlisted variable": {remote.Access{Leash: declare(fmt.Sprintf(declared, "127.0.0.1", "r"))}, "env:PROM_TOKEN", "not one of --secret-environment"},
		"no credential":        {remote.Access{}, "", "check the credentials"},
		"a host not allowed":   {remote.Access{Guard: closed}, "", "127.0.0.1"},
	}
	for name, test := range tests {
		m := measurement(s.URL)
		m.Token = test.token
		got := measure.Prometheus{Access: test.access}.Measure(t.Context(), m).Changed
		if (got.Value != nil) != (test.want == "") || !strings.Contains(got.Reason, test.want) || strings.Contains(got.Reason, "t0ken") {
			t.Errorf("%s: %v, %q, want %q", name, got.Value, got.Reason, test.want)
		}
	}
}
