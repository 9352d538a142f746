package tkoserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/agents"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// scrape returns the metrics of a server as Prometheus reads them.
func scrape(t *testing.T, address string) (map[string]*dto.MetricFamily, error) {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("GET /metrics: %s %s", response.Status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}

// A listed metric is an entry of deploy/monitoring/metrics.json.
type listed struct {
	Type   string   `json:"type"`
	Labels []string `json:"labels"`
	Help   string   `json:"help"`
}

func listOf(families map[string]*dto.MetricFamily) map[string]listed {
	all := map[string]listed{}
	for name, f := range families {
		if !strings.HasPrefix(name, "tko_") && !slices.Contains(shown, name) {
			continue
		}
		labels := map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		all[name] = listed{Type: strings.ToLower(f.GetType().String()), Labels: append([]string{}, slices.Sorted(maps.Keys(labels))...), Help: f.GetHelp()}
	}
	return all
}

// shown are metrics of the process that dashboards show.
var shown = []string{"process_cpu_seconds_total", "process_resident_memory_bytes"}

const metricsList = "../../../deploy/monitoring/metrics.json"

// A real server that has done everything exports exactly the metrics, with the
// labels, that deploy/monitoring/metrics.json lists and docs/monitoring.md describes.
// The dashboards and alert rules are checked against that list in tools/monitoring.
// TKO_UPDATE=1 writes the list.
func TestMetricsAreThoseThatAreListedAndDocumented(t *testing.T) {
	address := busyServer(t)
	want := map[string]listed{}
	if os.Getenv("TKO_UPDATE") == "" {
		text, err := os.ReadFile(metricsList)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
	}
	var got map[string]listed
	compare := func() error {
		families, err := scrape(t, address)
		if err != nil {
			return err
		}
		got = listOf(families)
		var problems []error
		for name, l := range want {
			if g, ok := got[name]; !ok || g.Type != l.Type || g.Help != l.Help || !slices.Equal(g.Labels, l.Labels) {
				problems = append(problems, fmt.Errorf("%s is listed as %v, and exported as %v", name, l, g))
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok && len(want) > 0 {
				problems = append(problems, fmt.Errorf("%s is exported, and not in %s", name, metricsList))
			}
		}
		if _, ok := got["tko_plugin_runs_total"]; !ok {
			problems = append(problems, errors.New("no plugin has run"))
		}
		return errors.Join(problems...)
	}
	eventually.NoError(t, "all metrics", compare)
	if len(want) == 0 {
		text, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(metricsList, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	documented := documentedMetrics(t)
	for name, l := range got {
		if slices.Contains(shown, name) {
			continue
		}
		if labels, ok := documented[name]; !ok || !slices.Equal(labels, l.Labels) {
			t.Errorf("docs/monitoring.md describes %s with the labels %v, and the server exports %v", name, labels, l.Labels)
		}
	}
	for name := range documented {
		if _, ok := got[name]; !ok {
			t.Errorf("docs/monitoring.md describes %s, which the server doesn't export", name)
		}
	}
}

var documentedRow = regexp.MustCompile("(?m)^\\| `(tko_[a-z_]+)` \\| ([^|]*)\\|")

// documentedMetrics returns the labels of the metrics in the table of the docs.
func documentedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, row := range documentedRow.FindAllStringSubmatch(string(text), -1) {
		labels := []string{}
		for _, l := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[2], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		all[row[1]] = labels
	}
	return all
}

// No label of any metric has the ID of an entity, and the number of series is bounded.
func TestMetricsHaveNoIDsInLabels(t *testing.T) {
	families, err := scrape(t, busyServer(t))
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for name, f := range families {
		for _, m := range f.GetMetric() {
			series += 1 + len(m.GetHistogram().GetBucket())
			for _, l := range m.GetLabel() {
				if strings.Contains(l.GetValue(), "lagos") {
					t.Errorf("%s has the label %s", name, l)
				}
			}
		}
	}
	if series < 100 || series > 2000 {
		t.Errorf("there are %d series", series)
	}
}

// busyServer starts a server on which every metric has a value, and returns the
// address of its metrics.
func busyServer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	authority := certstest.New(t, "test")
	cert, key, _ := authority.Issue("server", certstest.Localhost)
	ca, caKey, err := agents.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"cert": cert, "key": key, "agents.crt": ca, "agents.key": caKey, "plugin.sh": []byte("#!/bin/sh\nexit 1\n")}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	served, _ := start(t, "--allow-root", "--store=sqlite:"+filepath.Join(dir, "tko.db"), "--listen-grpc=localhost:0", "--listen-web=localhost:0", "--listen-log=localhost:0", "--listen-metrics=localhost:0",
		"--git-cache="+filepath.Join(dir, "git"), "--git-local="+dir, "--plugin-programs="+dir, "--plugin-isolation=off", "--retry=10ms", "--retry-max=100ms", "--access=report", "--audit-export="+filepath.Join(dir, "audit.jsonl"), "--audit-interval=50ms",
		"--tls-cert="+filepath.Join(dir, "cert"), "--tls-key="+filepath.Join(dir, "key"),
		"--listen-agents=localhost:0", "--agents-ca="+filepath.Join(dir, "agents.crt"), "--agents-ca-key="+filepath.Join(dir, "agents.key"))
	c, err := client.Dial(client.Options{Address: served.GRPC[0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	watching, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() {
		for range c.Watch(watching, 0) {
		}
	}()
	if _, err := c.RegisterPlugin(t.Context(), tko.Plugin{
		Type: tko.PluginSchedule, Name: "fails", Executor: tko.ExecutorCommand, Arguments: []string{filepath.Join(dir, "plugin.sh")}, Triggers: []krm.GVK{{Group: "x.plugin.nephio.org", Version: "v1", Kind: "X"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: "lagos", Package: krm.Package{
		{"apiVersion": "x.plugin.nephio.org/v1", "kind": "X", "metadata": map[string]any{"name": "lagos"}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Site(t.Context(), "absent", 0); !errors.Is(err, tko.ErrNotFound) {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + served.Web[0] + "/api/about")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	startRollout(t, c)
	eventually.NoError(t, "a run of the plugin", func() error {
		families, err := scrape(t, served.Metrics[0])
		if err == nil && (families["tko_plugin_runs_total"] == nil || families["tko_target_apply_duration_seconds"] == nil || families["tko_work_duration_seconds"] == nil) {
			err = errors.New("no plugin has run")
		}
		return err
	})
	return served.Metrics[0]
}

// startRollout starts a rollout, which waits for an approval.
func startRollout(t *testing.T, c *client.Client) {
	t.Helper()
	if _, err := c.RegisterTemplate(t.Context(), tko.Template{ID: "smf", Package: krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "smf"}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Template: "smf"}); err != nil {
		t.Fatal(err)
	}
	merged := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "smf"}, "data": map[string]any{"a": "b"}}
	if _, err := c.RegisterRollout(t.Context(), tko.Rollout{ID: "waits", Package: krm.Package{
		{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "waits"}, "spec": map[string]any{
			"edits": []any{map[string]any{"merge": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "smf"}}, "select": map[string]any{"templateIdPatterns": []any{"smf"}}}},
			"waves": []any{map[string]any{"name": "all", "approval": "Required"}},
		}}, merged,
	}}); err != nil {
		t.Fatal(err)
	}
	eventually.NoError(t, "the rollout is started", func() error {
		s, err := c.RolloutStatus(t.Context(), "waits")
		if err == nil && s.State != "Running" {
			_, err = c.RolloutDo(t.Context(), tko.RolloutCommand{ID: "waits", Verb: "start", Plan: s.Plan})
		}
		return err
	})
}

// Metrics are served with the TLS and the identities of the other ports.
func TestMetricsNeedIdentitiesAsOtherPortsDo(t *testing.T) {
	dir := t.TempDir()
	authority := certstest.New(t, "test")
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key, _ := authority.Issue("server", certstest.Localhost)
	served, _ := start(t, "--allow-root", "--roles=data", "--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--listen-metrics=localhost:0",
		"--tls-cert="+write("cert", cert), "--tls-key="+write("key", key), "--tls-client-ca="+write("ca", authority.PEM()), "--tls-client-auth=require")
	get := func(scheme string, own ...tls.Certificate) error {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority.PEM())
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: own, MinVersion: tls.VersionTLS13}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get(scheme + "://" + served.Metrics[0] + "/metrics")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	}
	if get("http") == nil || get("https") == nil {
		t.Error("metrics are served without a client certificate, which is required")
	}
	cert, key, _ = authority.Issue("prometheus", nil)
	own, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := get("https", own); err != nil {
		t.Errorf("with a client certificate: %v", err)
	}
}

func TestMetricsHaveAllQueues(t *testing.T) {
	families, err := scrape(t, busyServer(t))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	queuesOf := func(name string) map[string]bool {
		all := map[string]bool{}
		for _, m := range families[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "queue" {
					all[l.GetValue()] = true
				}
			}
		}
		return all
	}
	items, lost := queuesOf("tko_work_items"), queuesOf("tko_leases_lost_total")
	for _, queue := range tko.Queues() {
		if !items[queue] {
			t.Errorf("tko_work_items doesn't have the queue %q", queue)
		}
		if !strings.Contains(string(text), "`"+queue+"` (") {
			t.Errorf("docs/monitoring.md doesn't describe the queue %q", queue)
		}
	}
	for _, queue := range []string{tko.QueuePrepare, tko.QueueSchedule, tko.QueueCompare, tko.QueueRollout} {
		if !lost[queue] {
			t.Errorf("tko_leases_lost_total doesn't have the queue %q", queue)
		}
	}
}

// An agent that must have been heard by now is silent at once, and its site is not ok: what the
// site has is not known.
func TestSitesOfSilentAgentsAreNotOK(t *testing.T) {
	t.Parallel()
	now := time.Now()
	scheduled := tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue}
	tests := map[string]struct {
		conditions   []tko.Condition
		agent, state string
	}{
		"dialled": {[]tko.Condition{scheduled}, "", siteOK},
		"heard":   {[]tko.Condition{scheduled, tko.HeardCondition(now, now.Add(time.Minute))}, agentHeard, siteOK},
		"overdue": {[]tko.Condition{scheduled, tko.HeardCondition(now.Add(-time.Hour), now.Add(-time.Second))}, agentSilent, siteUnreachable},
		"silent": {[]tko.Condition{
			scheduled, {Type: tko.ConditionConnected, Status: tko.ConditionFalse, Reason: tko.ReasonNotHeard}, {Type: tko.ConditionHealthy, Status: tko.ConditionUnknown, Reason: tko.ReasonNotHeard},
		}, agentSilent, siteUnreachable},
		"fenced":  {[]tko.Condition{scheduled, {Type: tko.ConditionConnected, Status: tko.ConditionFalse, Reason: tko.ReasonFenced}}, agentFenced, siteUnreachable},
		"revoked": {[]tko.Condition{scheduled, {Type: tko.ConditionConnected, Status: tko.ConditionFalse, Reason: tko.ReasonRevoked}}, agentRevoked, siteUnreachable},
	}
	for name, test := range tests {
		if got := agentState(test.conditions, now); got != test.agent {
			t.Errorf("%s: the agent is %q, not %q", name, got, test.agent)
		}
		if got := siteState(test.conditions, now); got != test.state {
			t.Errorf("%s: the site is %q, not %q", name, got, test.state)
		}
	}
}
