package planner_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/measure"
	"github.com/tko-orchestrator/tko/internal/rollout/measure/prometheustest"
)

// measuredUpgrade is an upgrade that the metric errors decides. URL is that of a server.
const measuredUpgrade = `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [{upgrade: {to: "t:v2"}, select: {templateIdPatterns: ["t:v1"]}}]
  waves: [{name: canary, count: 2}, {name: rest}]
  limits: {concurrent: 2}
  health:
    within: 15m
    metrics:
    - name: errors
      prometheus: {url: "URL", query: 'avg(errors{site=~"${site}"})'}
      compare: {to: unchanged, maxDifference: 0.01}
      every: 10s
`

// A measuredFleet is a fleet with a server of metrics: each site has errors, and those that
// have the new version have more.
type measuredFleet struct {
	*world
	ids    []tko.DeploymentID
	server *prometheustest.Server
	base   float64 // errors of all sites
	harm   float64 // more errors of sites with the new version
	none   bool    // there is no data
}

func newMeasuredFleet(t *testing.T, n int) *measuredFleet {
	t.Helper()
	w := newWorld(t)
	f := &measuredFleet{world: w, ids: w.fleet(n)}
	var sites []string
	of := map[string]tko.DeploymentID{}
	for i, id := range f.ids {
		sites = append(sites, fmt.Sprintf("s%02d", i))
		of[sites[i]] = id
	}
	f.server = prometheustest.New(t, sites, func(site string, _ time.Time) (float64, bool) {
		value := f.base
		if f.version(of[site]) == "v2" {
			value += f.harm
		}
		return value, !f.none
	})
	return f
}

func (f *measuredFleet) start(yaml string) {
	f.t.Helper()
	f.started("r", strings.ReplaceAll(yaml, "URL", f.server.URL))
}

// measure does what the controller does with measurements that are due.
func (f *measuredFleet) measure() (made int) {
	f.t.Helper()
	due, err := f.RolloutMeasurements(f.ctx, "r")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range due {
		if err := f.ReportRolloutMeasurement(f.ctx, measure.Prometheus{}.Measure(f.ctx, m)); err != nil {
			f.t.Fatal(err)
		}
	}
	return len(due)
}

// report reports a measurement as the controller would, however soon after the last one.
func (f *measuredFleet) report(m tko.RolloutMeasurement) {
	f.t.Helper()
	m.Asked = f.status("r").Now
	if err := f.ReportRolloutMeasurement(f.ctx, measure.Prometheus{}.Measure(f.ctx, m)); err != nil {
		f.t.Fatal(err)
	}
	f.advance("r")
}

func (f *measuredFleet) changed() (n int) {
	for _, id := range f.ids {
		if f.version(id) == "v2" {
			n++
		}
	}
	return n
}

func (f *measuredFleet) evidence() (all []tko.RolloutEvidence) {
	f.t.Helper()
	for e, err := range f.RolloutEvidence(f.ctx, tko.RolloutEvidenceSelect{ID: "r"}) {
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func outcomes(all []tko.RolloutEvidence) string {
	var text []string
	for _, e := range all {
		text = append(text, e.Outcome)
	}
	return strings.Join(text, " ")
}

// The metric is the only sign of the harm: all deployments report that they are healthy. The
// canary stops the rollout, and the rest of the fleet is never changed.
func TestHarmAtChangedSitesStopsTheRollout(t *testing.T) {
	t.Parallel()
	f := newMeasuredFleet(t, 8)
	f.base, f.harm = 0.05, 0.02
	f.start(measuredUpgrade)
	if f.advance("r"); f.changed() != 0 || !strings.Contains(fmt.Sprint(f.status("r").Blocks), "not yet measured") {
		t.Fatalf("%d were changed before a measurement, %v", f.changed(), f.status("r").Blocks)
	}
	f.measure()
	f.advance("r")
	f.settle(f.ids...)
	f.advance("r")
	if f.changed() != 2 {
		t.Fatalf("%d were changed, want the canary", f.changed())
	}
	if s := f.status("r"); s.Waves[0].Progress["Healthy"] != 0 {
		t.Errorf("the canary is %v before it is measured", s.Waves[0].Progress)
	}
	f.report(f.measurement())
	s := f.status("r")
	if s.State != "Paused" || !strings.Contains(s.Reason, `the metric "errors" is bad: 0.07 at changed sites, 0.05 at unchanged sites: the difference is more than 0.01`) || f.changed() != 2 {
		t.Errorf("%s (%s), %d were changed", s.State, s.Reason, f.changed())
	}
	all := f.evidence()
	if outcomes(all) != "Good Bad" {
		t.Fatalf("evidence: %s", outcomes(all))
	}
	last := all[1]
	if last.Wave != "canary" || last.Changed.Count != 2 || last.Compared.Count != 6 || math.Abs(*last.Changed.Value-0.07) > 1e-9 || math.Abs(*last.Compared.Value-0.05) > 1e-9 || last.Number != 2 || last.Query != `avg(errors{site=~"${site}"})` || last.Plan != s.Plan || last.Time.IsZero() {
		t.Errorf("%+v", last)
	}
	f.do("r", "undo")
	f.advance("r")
	f.advance("r-undo")
	f.settle(f.ids...)
	f.advance("r-undo")
	f.advance("r")
	if s := f.status("r"); s.State != "Undone" || f.changed() != 0 {
		t.Errorf("%s, %d have the new version: an undo must not wait for metrics", s.State, f.changed())
	}
}

// measurement returns what is to be measured now, whenever it was measured last.
func (f *measuredFleet) measurement() tko.RolloutMeasurement {
	f.t.Helper()
	var changed, unchanged []string
	for i, id := range f.ids {
		site := fmt.Sprintf("s%02d", i)
		if f.version(id) == "v2" {
			changed = append(changed, site)
		} else {
			unchanged = append(unchanged, site)
		}
	}
	query := func(sites []string) tko.RolloutQuery {
		return tko.RolloutQuery{Query: fmt.Sprintf(`avg(errors{site=~%q})`, strings.Join(sites, "|")), Count: len(sites)}
	}
	s := f.status("r")
	wave := "rest"
	if len(changed) <= 2 {
		wave = "canary"
	}
	return tko.RolloutMeasurement{Rollout: "r", Metric: "errors", Plan: s.Plan, Wave: wave, URL: f.server.URL, Timeout: time.Second, Changed: query(changed), Compared: query(unchanged)}
}

// The same harm everywhere isn't the rollout's.
func TestHarmEverywhereDoesNotStopTheRollout(t *testing.T) {
	t.Parallel()
	f := newMeasuredFleet(t, 6)
	f.base = 0.01
	f.start(measuredUpgrade)
	f.measure()
	for range 20 {
		f.advance("r")
		f.settle(f.ids...)
		f.advance("r")
		f.base += 0.1 // a bad night
		if s := f.status("r"); s.State == "Done" {
			break
		} else if m := f.measurement(); m.Compared.Count > 0 {
			f.report(m)
		} else {
			m.Compared.Query = m.Changed.Query // there is nothing unchanged: see before the change
			f.report(m)
		}
	}
	if s := f.status("r"); s.State != "Done" || f.changed() != 6 {
		t.Errorf("%s (%s), %v: %d were changed", s.State, s.Reason, s.Blocks, f.changed())
	}
}

func TestUnmeasurableMetricChangesNothing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(f *measuredFleet)
		want   string
	}{
		"no data": {func(f *measuredFleet) { f.none = true }, "found no series"},
		"two series": {func(f *measuredFleet) {
			f.server.Respond = func(w http.ResponseWriter, _ *http.Request) { prometheustest.Vector(w, 1, 2) }
		}, "gives 2 series"},
		"no server": {func(f *measuredFleet) { f.server.URL = "http://127.0.0.1:1" }, "connection refused"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newMeasuredFleet(t, 3)
			test.change(f)
			f.start(measuredUpgrade)
			f.measure()
			f.advance("r")
			if s := f.status("r"); f.changed() != 0 || s.State != "Running" || !strings.Contains(fmt.Sprint(s.Blocks), test.want) {
				t.Errorf("%d were changed, %s, %v, want %q", f.changed(), s.State, s.Blocks, test.want)
			}
		})
	}
}

// What is measured is the same for each controller, and is due again only after a while; a
// report that is late, of another plan, or of a metric that isn't in the rollout is of no effect.
func TestMeasurementsAreMadeOnceAndReportsAreChecked(t *testing.T) {
	t.Parallel()
	f := newMeasuredFleet(t, 3)
	if due, err := f.RolloutMeasurements(f.ctx, "r"); err != nil || len(due) != 0 {
		t.Errorf("of a rollout that doesn't exist: %v, %v", due, err)
	}
	f.start(measuredUpgrade)
	due, err := f.RolloutMeasurements(f.ctx, "r")
	if err != nil || len(due) != 1 || due[0].Compared.Query != `avg(errors{site=~"s00|s01|s02"})` || due[0].Changed.Query != "" || due[0].Timeout != 30*time.Second {
		t.Fatalf("%+v, %v", due, err)
	}
	for name, change := range map[string]func(m *tko.RolloutMeasurement){
		"another plan":    func(m *tko.RolloutMeasurement) { m.Plan = strings.Repeat("0", 64) },
		"another metric":  func(m *tko.RolloutMeasurement) { m.Metric = "other" },
		"another rollout": func(m *tko.RolloutMeasurement) { m.Rollout = "other" },
	} {
		m := measure.Prometheus{}.Measure(f.ctx, due[0])
		if change(&m); f.ReportRolloutMeasurement(f.ctx, m) != nil || len(f.evidence()) != 0 {
			t.Errorf("%s: it is recorded, or an error", name)
		}
	}
	if made := f.measure(); made != 1 {
		t.Errorf("%d were due", made)
	}
	if made := f.measure(); made != 0 || len(f.evidence()) != 1 {
		t.Errorf("%d were due at once again, with evidence %s", made, outcomes(f.evidence()))
	}
	if err := f.ReportRolloutMeasurement(f.ctx, measure.Prometheus{}.Measure(f.ctx, due[0])); err != nil || len(f.evidence()) != 1 {
		t.Errorf("a measurement that began before the last one: %v, %s", err, outcomes(f.evidence()))
	}
}

// An operator who knows better waives the metric, by name; evidence says who did.
func TestMetricIsWaivedByName(t *testing.T) {
	t.Parallel()
	f := newMeasuredFleet(t, 4)
	f.harm = 1
	f.start(measuredUpgrade)
	f.measure()
	f.advance("r")
	f.report(f.measurement())
	if s := f.status("r"); s.State != "Paused" {
		t.Fatalf("%s, %v", s.State, s.Blocks)
	}
	if _, err := f.RolloutDo(f.ctx, tko.RolloutCommand{ID: "r", Verb: "waive", Metric: "error"}); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("another metric: %v", err)
	}
	if _, err := f.RolloutDo(f.ctx, tko.RolloutCommand{ID: "r", Verb: "waive", Metric: "errors", Deployment: f.ids[0]}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a metric and a deployment: %v", err)
	}
	ctx := tko.WithAuthor(f.ctx, tko.Author{Who: "ann", Why: "known"})
	for range 2 { // a second time has no effect
		if _, err := f.RolloutDo(ctx, tko.RolloutCommand{ID: "r", Verb: "waive", Metric: "errors"}); err != nil {
			t.Fatal(err)
		}
	}
	f.do("r", "resume")
	for range 5 {
		f.advance("r")
		f.settle(f.ids...)
	}
	if s := f.status("r"); s.State != "Done" {
		t.Errorf("%s (%s), %v", s.State, s.Reason, s.Blocks)
	}
	all := f.evidence()
	if outcomes(all) != "Good Bad Waived" || !strings.Contains(all[2].Text, "ann decided") || !strings.Contains(all[2].Text, "known") {
		t.Errorf("%s, %q", outcomes(all), all[len(all)-1].Text)
	}
}

// A key of metadata in a query that no site has is refused; sites that lack it are counted.
func TestMetadataOfQueriesIsChecked(t *testing.T) {
	t.Parallel()
	f := newMeasuredFleet(t, 3)
	yaml := strings.ReplaceAll(measuredUpgrade, "${site}", "${metadata.KEY}")
	if s := f.create("typo", strings.ReplaceAll(strings.ReplaceAll(yaml, "KEY", "pare"), "URL", f.server.URL)); s.State == "Planned" || !strings.Contains(s.Reason, `"pare"`) || !strings.Contains(s.Reason, "pair") {
		t.Errorf("%s (%s)", s.State, s.Reason)
	}
	if _, err := f.RegisterSite(f.ctx, tko.Site{ID: "s02", Metadata: map[string]string{"other": "x"}}); err != nil {
		t.Fatal(err)
	}
	f.start(strings.ReplaceAll(yaml, "KEY", "pair"))
	p, err := f.RolloutPlan(f.ctx, "r")
	if err != nil || !slices.ContainsFunc(p.Warnings, func(text string) bool {
		return strings.Contains(text, "pair") && strings.Contains(text, `the metric "errors" doesn't count them`)
	}) {
		t.Errorf("warnings: %q, %v", p.Warnings, err)
	}
	due, err := f.RolloutMeasurements(f.ctx, "r")
	if err != nil || len(due) != 1 || due[0].Compared.Query != `avg(errors{site=~"0"})` || due[0].Compared.Count != 2 {
		t.Errorf("%+v, %v", due, err)
	}
}
