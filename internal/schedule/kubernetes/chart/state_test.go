package chart_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/krm"
)

// read returns the chart of a spec.
func read(t *testing.T, spec string) (*chart.Chart, error) {
	t.Helper()
	pkg, err := krm.Decode(krm.YAML, []byte("{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: web}, spec: "+spec+"}"), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return chart.Read(pkg[0], pkg)
}

func must(t *testing.T, spec string) *chart.Chart {
	t.Helper()
	c, err := read(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestUpgradesAreRolledBackIfTheyFailOrTakeTooLong(t *testing.T) {
	t.Parallel()
	const limit = 5 * time.Minute
	tests := map[string]struct {
		why              string
		state            chart.State
		healthy, failing bool
		after            time.Duration
		want             chart.State
		rollBack         bool
	}{
		"healthy":          {"it stays", chart.State{Revision: 2, Previous: 1}, true, false, time.Second, chart.State{Revision: 2, Previous: 1, Healthy: true}, false},
		"in progress":      {"it has time", chart.State{Revision: 2, Previous: 1}, false, false, limit, chart.State{Revision: 2, Previous: 1}, false},
		"late":             {"its time is over", chart.State{Revision: 2, Previous: 1}, false, false, limit + time.Second, chart.State{Revision: 2, Previous: 1, Failed: "why"}, true},
		"healthy late":     {"the limit is for what is not healthy", chart.State{Revision: 2, Previous: 1}, true, false, 2 * limit, chart.State{Revision: 2, Previous: 1, Healthy: true}, false},
		"failing":          {"at once", chart.State{Revision: 2, Previous: 1}, false, true, 0, chart.State{Revision: 2, Previous: 1, Failed: "why"}, true},
		"first, failing":   {"there is no revision to roll back to", chart.State{Revision: 1}, false, true, 2 * limit, chart.State{Revision: 1}, false},
		"interrupted":      {"the rollback goes on, for the first reason", chart.State{Revision: 2, Previous: 1, Failed: "first"}, false, true, 0, chart.State{Revision: 2, Previous: 1, Failed: "first"}, true},
		"interrupted, yet": {"its failure is recorded", chart.State{Revision: 2, Previous: 1, Failed: "first"}, true, false, 0, chart.State{Revision: 2, Previous: 1, Failed: "first"}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.state.Since = time.Now().Unix()
				test.want.Since = test.state.Since
				time.Sleep(test.after)
				got, rollBack := must(t, "{chart: c}").Assess(test.state, test.healthy, test.failing, "why", limit)
				if diff := cmp.Diff(test.want, got); diff != "" || rollBack != test.rollBack {
					t.Errorf("%s: rolls back: %v: -want +got:\n%s", test.why, rollBack, diff)
				}
			})
		})
	}
}

func TestAssessedReleasesAreThoseWithAKnownHealth(t *testing.T) {
	t.Parallel()
	for state, want := range map[chart.State]bool{{}: true, {Revision: 1}: false, {Revision: 1, Healthy: true}: true, {Revision: 2, Failed: "x"}: false} {
		if got := state.IsAssessed(); got != want {
			t.Errorf("%+v: %v", state, got)
		}
	}
}

func TestTestsRunOnceForEachHealthyRevision(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why    string
		spec   string
		state  chart.State
		needs  bool
		want   string
		failed bool
	}{
		"not asked for": {"most charts", "{chart: c}", chart.State{Revision: 1, Healthy: true}, false, "", false},
		"not healthy":   {"its objects come first", "{chart: c, test: {enable: true}}", chart.State{Revision: 1}, false, "waits for its tests", false},
		"healthy":       {"now", "{chart: c, test: {enable: true}}", chart.State{Revision: 1, Healthy: true}, true, "waits for its tests", false},
		"upgraded":      {"those of the former revision don't count", "{chart: c, test: {enable: true}}", chart.State{Revision: 2, Healthy: true, Tested: 1, Fault: "x"}, true, "waits for its tests", false},
		"passed":        {"once", "{chart: c, test: {enable: true}}", chart.State{Revision: 1, Healthy: true, Tested: 1}, false, "", false},
		"failed":        {"once", "{chart: c, test: {enable: true}}", chart.State{Revision: 1, Healthy: true, Tested: 1, Fault: "x"}, false, "failed its test: x", true},
		"not deployed":  {"there is nothing to test", "{chart: c, test: {enable: true}}", chart.State{Healthy: true}, false, "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := must(t, test.spec)
			why, failed := c.Untested(test.state)
			if got := c.NeedsTest(test.state); got != test.needs || !strings.HasPrefix(why, test.want) || (why == "") != (test.want == "") || failed != test.failed {
				t.Errorf("%s: needs a test: %v, %q, failed: %v", test.why, got, why, failed)
			}
		})
	}
	var none *chart.Chart
	if why, failed := none.Untested(chart.State{Revision: 1}); why != "" || failed || none.Secrets() != nil {
		t.Errorf("an object that is no chart: %q", why)
	}
}

func TestWhatReleasesAreMadeFromHasOnlyFieldsThatAreSet(t *testing.T) {
	t.Parallel()
	none := map[string]any{"chart": "c", "repository": "", "version": "", "values": map[string]any{}}
	if diff := cmp.Diff(none, must(t, "{chart: c, crds: Create, test: {enable: true}}").Spec()); diff != "" {
		t.Errorf("releases would be upgraded without a reason: %s", diff)
	}
	all := must(t, "{chart: c, repository: r, version: v, crds: Skip, parameters: {a.b: 1}, valuesFrom: [{kind: Secret, name: x}]}")
	got := all.Spec()
	if diff := cmp.Diff(map[string]any{"a": map[string]any{"b": int64(1)}}, got["values"]); diff != "" || got["repository"] != "r" || got["version"] != "v" || got["crds"] != "Skip" || got["valuesFrom"] == nil {
		t.Errorf("%v %s", got, diff)
	}
	if diff := cmp.Diff([]chart.Source{{Kind: "Secret", Name: "x"}}, all.Sources()); diff != "" {
		t.Error(diff)
	}
}

func TestInvalidFieldsOfChartsAreNamed(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"{chart: c, crds: Never}":                                              `spec.crds: "Never" is none of Skip, Create and CreateReplace`,
		"{chart: c, test: {timeout: soon}}":                                    `spec.test.timeout: "soon" is not a duration, such as 90s`,
		"{chart: c, test: {timeout: -1s}}":                                     `spec.test.timeout: "-1s" is not a duration, such as 90s`,
		"{chart: c, valuesFrom: 1}":                                            "spec: json: ",
		"{chart: c, valuesFrom: [{kind: Pod, name: x}]}":                       `spec.valuesFrom[0].kind: "Pod" is neither ConfigMap nor Secret`,
		"{chart: c, valuesFrom: [{kind: Secret, name: A}]}":                    `spec.valuesFrom[0].name: "A" is not the name of a Secret`,
		"{chart: c, valuesFrom: [{kind: Secret, name: a, valuesKey: a/b}]}":    `spec.valuesFrom[0].valuesKey: "a/b" is not a key of a Secret`,
		"{chart: c, valuesFrom: [{kind: Secret, name: a, targetPath: 'a,b'}]}": `spec.valuesFrom[0].targetPath: "a,b" is not a path to a value`,
		"{chart: c, parameters: {a: '{{ nothing }}'}}":                         "spec.parameters.a: expression",
	} {
		if _, err := read(t, spec); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
	for name, want := range map[string]string{"web": "", "a.b-c": "", "Web": "not valid for a Helm release", strings.Repeat("x", 54): "at most 53"} {
		if err := chart.CheckName("n", name); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := chart.CheckName("N", "web"); err == nil || !strings.Contains(err.Error(), `has the namespace "N"`) {
		t.Error(err)
	}
}
