package kubernetes

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

// decided is a decision without pointers and without what is observed.
type decided struct {
	Action                    action
	Entry                     entry
	Live                      bool
	Problem, Drift, Corrected string
	Waits                     string
}

func plainDecision(d decision) map[string]decided {
	all := map[string]decided{}
	for k, s := range d.states {
		one := decided{Action: d.actions[k], Entry: s.entry, Live: s.live != nil, Drift: s.drift, Corrected: s.corrected, Waits: s.waits}
		if s.problem != nil {
			one.Problem = s.problem.message
		}
		all[k.Name] = one
	}
	return all
}

var decideOptions = cmp.AllowUnexported(key{})

// managed returns an observed object with fields that TKO owns, or that another client took.
func managed(at int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"managedFields": []any{map[string]any{
		"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:data": map[string]any{}},
		"time": map[int64]any{1: "2026-01-01T00:00:01Z", 2: "2026-01-01T00:00:02Z"}[at],
	}}}}}
}

func leaving(r *unstructured.Unstructured) *unstructured.Unstructured {
	r = r.DeepCopy()
	r.Object["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:03Z"
	return r
}

func TestDecisionOnOneObject(t *testing.T) {
	t.Parallel()
	live, changed := managed(1), managed(2)
	recorded := entry{Version: "v1", Digest: "new", Fields: fieldsOf(live)}
	old := recorded
	old.Digest = "old"
	found := entry{Version: "v1", Digest: "new", Found: true}
	over := recorded
	over.Completed = true
	fresh := entry{Version: "v1", Step: 3}
	applied := entry{Version: "v1", Step: 3, Fields: recorded.Fields}
	tests := map[string]struct {
		why        string
		entries    []entry // of several inventories
		live       *unstructured.Unstructured
		unreadable string
		drift      string
		want       decided
	}{
		"new":                 {why: "it is in no inventory", want: decided{Action: actionApply, Entry: fresh}},
		"as applied":          {why: "most objects", entries: []entry{recorded}, live: live, want: decided{Entry: recorded, Live: true}},
		"changed in package":  {why: "its digest differs", entries: []entry{old}, live: live, want: decided{Action: actionApply, Entry: applied, Live: true}},
		"changed by another":  {why: "its fields differ", entries: []entry{recorded}, live: changed, want: decided{Action: actionCompare, Entry: recorded, Live: true}},
		"ignored":             {why: "the policy", entries: []entry{recorded}, live: changed, drift: trigger.DriftIgnore, want: decided{Entry: recorded, Live: true}},
		"removed by another":  {why: "it is recorded", entries: []entry{recorded}, want: decided{Action: actionRestore, Entry: recorded}},
		"removed and ignored": {why: "the policy", entries: []entry{recorded}, drift: trigger.DriftIgnore, want: decided{Entry: recorded}},
		"used as it is":       {why: "its owner may change it", entries: []entry{found}, live: changed, want: decided{Entry: found, Live: true}},
		"expired":             {why: "a Job runs once", entries: []entry{over}, want: decided{Entry: over}},
		"expiring":            {why: "a Job runs once", entries: []entry{over}, live: leaving(live), want: decided{Entry: over, Live: true}},
		"being removed":       {why: "it is restored later", entries: []entry{recorded}, live: leaving(live), want: decided{Action: actionWait, Entry: recorded, Live: true, Waits: recreating}},
		"being removed, reported": {
			why: "it is not restored", entries: []entry{recorded}, live: leaving(live), drift: trigger.DriftReport, want: decided{Action: actionWait, Entry: recorded, Live: true},
		},
		"being replaced": {
			why: "its new content is applied later, whatever the policy", entries: []entry{old}, live: leaving(live), drift: trigger.DriftReport,
			want: decided{Action: actionWait, Entry: applied, Live: true, Waits: recreating},
		},
		"unreadable": {
			why: "it stays as it is", entries: []entry{old}, unreadable: "can't be read: forbidden",
			want: decided{Entry: old, Problem: "can't be read: forbidden"},
		},
		"unreadable and new": {why: "an entry without a digest", unreadable: "can't be read: forbidden", want: decided{Problem: "can't be read: forbidden"}},
		"moved":              {why: "inventories that differ know no digest", entries: []entry{recorded, old}, live: live, want: decided{Action: actionApply, Entry: applied, Live: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := key{Kind: "ConfigMap", Namespace: "n", Name: "x"}
			seen := snapshot{
				wanted: wanted{objects: map[key]*object{k: {key: k, version: "v1", step: 3, digest: "new", content: map[string]any{}}}}, drift: test.drift,
				recorded: inventories{mine: map[tko.DeploymentID]*inventory{}}, live: map[key]*unstructured.Unstructured{k: test.live}, unreadable: map[key]string{},
			}
			if seen.drift == "" {
				seen.drift = trigger.DriftCorrect
			}
			if test.unreadable != "" {
				seen.unreadable[k] = test.unreadable
			}
			for i, e := range test.entries {
				id := tko.DeploymentID(rune('a' + i))
				seen.recorded.mine[id] = &inventory{deployment: id, entries: map[key]entry{k: e}}
			}
			for range 2 { // it changes nothing that it is given
				d := decide(seen)
				if diff := cmp.Diff(map[string]decided{"x": test.want}, plainDecision(d), decideOptions); diff != "" || len(d.unread) > 0 {
					t.Errorf("%s: %v -want +got:\n%s", test.why, d.unread, diff)
				}
			}
		})
	}
}

func TestDecisionOnRelease(t *testing.T) {
	t.Parallel()
	web, part, other := chartKey("n", "web"), key{Kind: "ConfigMap", Namespace: "n", Name: "part"}, key{Kind: "ConfigMap", Namespace: "n", Name: "other"}
	live, changed := managed(1), managed(2)
	good := chart.State{Revision: 2, Previous: 1, Healthy: true}
	failed := good
	failed.Failed = "why"
	of := func(digest string, s chart.State) entry { return entry{Version: "v1alpha1", Digest: digest, Chart: s} }
	released := entry{Version: "v1", Fields: fieldsOf(live), Release: web}
	kept := good
	kept.Keep = true
	again := failed
	again.Failed = ""
	tests := map[string]struct {
		why     string
		chart   entry
		keep    bool
		live    map[key]*unstructured.Unstructured
		drift   string
		read    bool // whether the release was read, with the content of part
		missing bool // whether it does not exist
		unread  bool
		want    map[string]decided
	}{
		"as deployed": {
			why: "no request is needed", chart: of("d", good), live: map[key]*unstructured.Unstructured{web: live, part: live, other: live},
			want: map[string]decided{"web": {Entry: of("d", good), Live: true}, "part": {Entry: released, Live: true}, "other": {Entry: released, Live: true}},
		},
		"retained": {
			why: "the annotation may change without an upgrade", chart: of("d", good), keep: true, live: map[key]*unstructured.Unstructured{web: live, part: live, other: live},
			want: map[string]decided{"web": {Entry: of("d", kept), Live: true}, "part": {Entry: released, Live: true}, "other": {Entry: released, Live: true}},
		},
		"not deployed": {
			why: "it is recorded before it is deployed", chart: of("", chart.State{}), live: map[key]*unstructured.Unstructured{web: live, part: live, other: live},
			want: map[string]decided{"web": {Action: actionApply, Entry: entry{Version: "v1alpha1"}}, "part": {Entry: released, Live: true}, "other": {Entry: released, Live: true}},
		},
		"upgraded": {
			why: "Helm applies its objects, whatever others did", chart: of("old", failed), live: map[key]*unstructured.Unstructured{web: live, part: changed},
			want: map[string]decided{"web": {Action: actionApply, Entry: entry{Version: "v1alpha1", Chart: again}, Live: true}, "part": {Entry: released, Live: true}, "other": {Entry: released}},
		},
		"rolled back": {
			why: "the same upgrade is not tried again", chart: of("d", failed), live: map[key]*unstructured.Unstructured{web: live, part: live, other: live},
			want: map[string]decided{
				"web": {Entry: of("d", failed), Live: true, Problem: failed.RolledBack()}, "part": {Entry: released, Live: true}, "other": {Entry: released, Live: true},
			},
		},
		"changed, not read": {
			why: "the desired state is with Helm", chart: of("d", good), live: map[key]*unstructured.Unstructured{web: live, part: changed, other: live}, unread: true,
			want: map[string]decided{"web": {Entry: of("d", good), Live: true}, "part": {Entry: released, Live: true}, "other": {Entry: released, Live: true}},
		},
		"changed, read": {
			why: "what the release has is compared", chart: of("d", good), live: map[key]*unstructured.Unstructured{web: live, part: changed, other: changed}, read: true,
			want: map[string]decided{"web": {Entry: of("d", good), Live: true}, "part": {Action: actionCompare, Entry: released, Live: true}, "other": {Entry: released, Live: true}},
		},
		"being removed": {
			why: "it is restored later", chart: of("d", good), live: map[key]*unstructured.Unstructured{web: live, part: leaving(live), other: live},
			want: map[string]decided{
				"web": {Entry: of("d", good), Live: true}, "part": {Action: actionWait, Entry: released, Live: true, Waits: recreating}, "other": {Entry: released, Live: true},
			},
		},
		"uninstalled": {
			why: "it is installed again, whatever became of its last upgrade", chart: of("d", failed), live: map[key]*unstructured.Unstructured{web: live}, read: true, missing: true,
			want: map[string]decided{
				"web": {Action: actionApply, Entry: entry{Version: "v1alpha1", Chart: again}, Live: true, Corrected: "was uninstalled"}, "part": {Entry: released}, "other": {Entry: released},
			},
		},
		"uninstalled, reported": {
			why: "the policy", chart: of("d", good), live: map[key]*unstructured.Unstructured{web: live, other: changed}, drift: trigger.DriftReport, read: true, missing: true,
			want: map[string]decided{"web": {Entry: of("d", good), Live: true}, "part": {Entry: released, Drift: "is missing"}, "other": {Entry: released, Live: true}},
		},
		"ignored": {
			why: "the release is not even read", chart: of("d", good), live: map[key]*unstructured.Unstructured{web: live}, drift: trigger.DriftIgnore,
			want: map[string]decided{"web": {Entry: of("d", good), Live: true}, "part": {Entry: released}, "other": {Entry: released}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := map[key]*object{
				web:  {key: web, version: "v1alpha1", digest: "d", chart: &chart.Chart{}, keep: test.keep, content: map[string]any{}},
				part: {key: part, version: "v1", release: web}, other: {key: other, version: "v1", release: web},
			}
			seen := snapshot{
				wanted: wanted{objects: objects}, live: test.live, drift: test.drift,
				recorded: inventories{mine: map[tko.DeploymentID]*inventory{"a": {entries: map[key]entry{web: test.chart, part: released, other: released}}}},
			}
			if seen.drift == "" {
				seen.drift = trigger.DriftCorrect
			}
			if test.read {
				seen.missing = map[key]bool{web: test.missing}
			}
			if test.read && !test.missing {
				objects[part].content = map[string]any{}
			}
			before := maps.Clone(seen.recorded.mine["a"].entries)
			for range 2 { // it changes nothing that it is given
				d := decide(seen)
				if diff := cmp.Diff(test.want, plainDecision(d), decideOptions); diff != "" || (len(d.unread) > 0) != test.unread {
					t.Errorf("%s: to read: %v -want +got:\n%s", test.why, d.unread, diff)
				}
			}
			if !maps.Equal(before, seen.recorded.mine["a"].entries) {
				t.Error("it changes the inventories")
			}
		})
	}
}
