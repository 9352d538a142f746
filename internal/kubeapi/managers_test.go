package kubeapi_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// managers returns the managers of an object, with operations and fields.
func (o obj) managers() []string {
	managers := []string{}
	entries, _ := o.at("metadata.managedFields").([]any)
	for _, e := range entries {
		m, _ := e.(map[string]any)
		managers = append(managers, obj(m).text("manager")+" "+obj(m).text("operation")+" "+obj(m).text("subresource"))
	}
	return managers
}

// conditions returns the types and reasons of an object's conditions.
func (o obj) conditions() string {
	var all []string
	conditions, _ := o.at("status.conditions").([]any)
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		all = append(all, obj(m).text("type")+"="+obj(m).text("reason"))
	}
	return strings.Join(all, " ")
}

func condition(typ, reason string) string {
	return fmt.Sprintf("{type: %s, status: 'True', reason: %s, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}", typ, reason)
}

func status(conditions ...string) string {
	return "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: s}\nstatus: {conditions: [" + strings.Join(conditions, ", ") + "]}\n"
}

// A condition that a manager no longer applies is removed, unless another one
// manages it.
func TestConditionsNoLongerAppliedAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	if err := w.SetConditions(t.Context(), tko.KindSite, "s", []tko.Condition{{Type: "Own", Status: tko.ConditionTrue, Reason: "TKO"}}); err != nil {
		t.Fatal(err)
	}
	applied := func(manager, want string, conditions ...string) obj {
		t.Helper()
		got := w.must("PATCH", "sites/s/status?fieldManager="+manager, status(conditions...), "Content-Type", apply)
		if got.conditions() != want {
			t.Fatalf("%s applied, and there are %s, want %s", manager, got.conditions(), want)
		}
		return got
	}
	applied("a", "A1=x A2=x Own=TKO", condition("A1", "x"), condition("A2", "x"))
	applied("b", "A1=x A2=x B=x Own=TKO", condition("B", "x"))
	got := applied("a", "A1=x B=x Own=TKO", condition("A1", "x"))
	if diff := cmp.Diff(got, w.must("GET", "sites/s", nil)); diff != "" {
		t.Errorf("the response differs from the read object: %s", diff)
	}
	version := w.appliedLongAgo("s", "A1")
	if again := applied("a", "A1=x B=x Own=TKO", condition("A1", "x")); again.text("metadata.resourceVersion") != version {
		t.Errorf("an apply without changes was written: %s, %s", version, again.text("metadata.resourceVersion"))
	}

	// A condition with two managers stays when one no longer applies it.
	shared := fmt.Sprintf("{type: A1, status: 'True', reason: x, message: '', lastTransitionTime: '%s'}", lastTransition(got, "A1"))
	got = applied("b", "A1=x B=x Own=TKO", condition("B", "x"), shared)
	if got.text("metadata.resourceVersion") == version {
		t.Error("the other manager of the condition was lost")
	}
	applied("a", "A1=x B=x Own=TKO")
	applied("b", "B=x Own=TKO", condition("B", "x"))

	// An update replaces all conditions except TKO's own, and has a manager, too.
	current := w.must("GET", "sites/s", nil)
	c := obj{"type": "C", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
	got = w.must("PUT", "sites/s/status?fieldManager=c&dryRun=All", current.set("status.conditions", []any{c}))
	if got.conditions() != "C=x Own=TKO" {
		t.Errorf("updating would leave %s", got.conditions())
	}
	got = w.must("PUT", "sites/s/status?fieldManager=c", current.set("status.conditions", []any{c}))
	if diff := cmp.Diff([]string{"c Update status"}, got.managers()); diff != "" || got.conditions() != "C=x Own=TKO" {
		t.Errorf("updated to %s: %s", got.conditions(), diff)
	}
	w.fails(409, `"c"`, "PATCH", "sites/s/status?fieldManager=a", status(condition("C", "z")), "Content-Type", apply)
	got = w.must("PATCH", "sites/s/status", `{"status":{"conditions":null},"metadata":{"managedFields":[{}]}}`, "Content-Type", merge)
	if got.conditions() != "Own=TKO" || len(got.managers()) != 0 {
		t.Errorf("got %s, %v, want no conditions of others", got.conditions(), got.managers())
	}

	// Strategic merge patches change conditions by type.
	strategic := func(condition string) string {
		t.Helper()
		return w.must("PATCH", "sites/s/status", `{"status":{"conditions":[`+condition+`]}}`, "Content-Type", "application/strategic-merge-patch+json").conditions()
	}
	for _, typ := range []string{"E", "F"} {
		strategic(`{"type":"` + typ + `","status":"True","reason":"x","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`)
	}
	if got := strategic(`{"type":"E","reason":"z"}`); got != "E=z F=x Own=TKO" {
		t.Errorf("patched to %s", got)
	}
	if got := strategic(`{"$patch":"delete","type":"E"},{"$patch":"delete","type":"F"}`); got != "Own=TKO" {
		t.Errorf("patched to %s", got)
	}

	// A condition that was written here can be removed when it has no manager.
	d := `{"status":{"conditions":[{"type":"D","status":"True","reason":"x","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]},"metadata":{"managedFields":[{}]}}`
	got = w.must("PATCH", "sites/s/status", d, "Content-Type", merge)
	if got.conditions() != "D=x Own=TKO" || len(got.managers()) != 0 {
		t.Errorf("%s, by %v", got.conditions(), got.managers())
	}
	got = w.must("PATCH", "sites/s/status", `{"status":{"conditions":[]}}`, "Content-Type", merge)
	if got.conditions() != "Own=TKO" {
		t.Errorf("got %s, want the condition without a manager to stay", got.conditions())
	}

	// A client that changes a condition of TKO manages it until TKO sets it
	// again.
	got = w.must("PATCH", "sites/s/status?fieldManager=a&force=true", status(condition("Own", "other")), "Content-Type", apply)
	if got.conditions() != "Own=other" || len(got.managers()) != 1 {
		t.Errorf("%s, by %v", got.conditions(), got.managers())
	}
	if err := w.SetConditions(t.Context(), tko.KindSite, "s", []tko.Condition{{Type: "Own", Status: tko.ConditionTrue, Reason: "TKO"}}); err != nil {
		t.Fatal(err)
	}
	if got := w.must("GET", "sites/s", nil); got.conditions() != "Own=TKO" || len(got.managers()) != 0 {
		t.Errorf("%s, by %v", got.conditions(), got.managers())
	}
	applied("a", "Own=TKO")

	// The object and its status have separate managers, and writing one preserves
	// the managers of the other.
	w.must("PATCH", "sites/s/status?fieldManager=a", status(condition("A", "x")), "Content-Type", apply)
	w.must("PATCH", "sites/s?fieldManager=r", "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: {name: s, labels: {a: b}}\n", "Content-Type", apply)
	got = w.must("PATCH", "sites/s", `{"metadata":{"annotations":{"a":"b"}}}`, "Content-Type", merge)
	if diff := cmp.Diff([]string{"r Apply ", "Go-http-client Update ", "a Apply status"}, got.managers()); diff != "" {
		t.Error(diff)
	}
	w.must("PATCH", "sites/s/status?fieldManager=a", status(), "Content-Type", apply)
	if got := w.must("GET", "sites/s", nil); got.conditions() != "Own=TKO" || len(got.managers()) != 2 {
		t.Errorf("%s, by %v", got.conditions(), got.managers())
	}
}

// What clients keep about who wrote which field is no change of what is deployed: a write that changes
// only that has no revision. Each other change has one, with all that came with it.
func TestBookkeepingOfClientsMakesNoRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	for path, o := range map[string]obj{
		"templates/t": template("t", obj{"a": "b"}, configMap("m", nil)).set("metadata.name", "t"),
		"sites/s":     site("s", obj{"a": "b"}, configMap("m", nil)),
		"deployments/d": {
			"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Deployment", "metadata": obj{"name": "d", "labels": obj{"a": "b"}, "annotations": obj{"tko.nephio.org/name": "Keep"}},
			"spec": obj{"package": obj{"resources": []any{configMap("m", nil)}}},
		},
		"plugins/validate-007cp": {
			"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Plugin", "metadata": obj{"name": "validate-007cp", "labels": obj{"a": "b"}}, "spec": obj{"arguments": []any{"true"}},
		},
	} {
		with := obj{lastApplied: "{}"}
		if path == "deployments/d" {
			with["tko.nephio.org/name"] = "Keep"
		}
		resource, _, _ := strings.Cut(path, "/")
		created := w.must("POST", resource+"?fieldManager=kubectl-client-side-apply", o.set("metadata.annotations", with))
		version := created.text("metadata.resourceVersion")
		same := func(what string, got obj) {
			t.Helper()
			now := got.text("metadata.resourceVersion")
			if got.at("metadata.generation") != created.at("metadata.generation") || now == version {
				t.Errorf("%s of %s: revision %v at version %s after %s, want no revision, and another version", what, path, got.at("metadata.generation"), now, version)
			}
			if diff := cmp.Diff(got.at("metadata"), w.must("GET", path, nil).at("metadata")); diff != "" {
				t.Errorf("%s of %s: read: %s", what, path, diff)
			}
			version = now
		}
		same("apply", w.must("PATCH", path+"?fieldManager=kubectl&force=true", o, "Content-Type", apply))
		same("move of managed fields", w.must("PATCH", path, `[{"op":"replace","path":"/metadata/managedFields","value":[{"manager":"kubectl","operation":"Apply","apiVersion":"tko.nephio.org/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:a":{}}}}}]}]`, "Content-Type", "application/json-patch+json"))
		same("apply again", w.must("PATCH", path+"?fieldManager=kubectl&force=true", o, "Content-Type", apply))
		same("another configuration", w.must("PATCH", path, `{"metadata":{"annotations":{"`+lastApplied+`":"{\"x\":1}"}}}`, "Content-Type", merge))
		same("no configuration", w.must("PATCH", path, `{"metadata":{"annotations":{"`+lastApplied+`":null}}}`, "Content-Type", merge))
		same("another manager", w.must("PATCH", path+"?fieldManager=other&force=true", o, "Content-Type", apply))
		for i, patch := range []string{
			`{"metadata":{"annotations":{"team":"x"}}}`, `{"metadata":{"labels":{"a":"c"}}}`,
		} {
			before := created.at("metadata.generation").(float64)
			if got := w.must("PATCH", path, patch, "Content-Type", merge); got.at("metadata.generation") != before+float64(i)+1 {
				t.Errorf("%s of %s: revision %v, want one more than %v", patch, path, got.at("metadata.generation"), before+float64(i))
			}
		}
	}
}

// Conditions in Kubernetes' form have no fields for attempts: the message has them,
// and a client that writes back what it read doesn't make them part of the stored
// message.
func TestMessagesReportAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	failing := tko.Condition{
		Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "Failed", Message: "boom", Attempt: 3, NextTry: time.Date(2026, 3, 4, 12, 0, 1, 0, time.UTC),
	}
	if err := w.SetConditions(t.Context(), tko.KindSite, "s", []tko.Condition{failing}); err != nil {
		t.Fatal(err)
	}
	current := w.must("GET", "sites/s", nil)
	conditions, _ := current.at("status.conditions").([]any)
	for _, c := range conditions { // Ready has the same message
		m, _ := c.(map[string]any)
		if got := obj(m).text("message"); got != "boom (attempt 3, next try 2026-03-04T12:00:01Z)" {
			t.Errorf("message of %v: %q", m["type"], got)
		}
	}
	other := obj{"type": "C", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
	w.must("PUT", "sites/s/status?fieldManager=c", current.set("status.conditions", append([]any{other}, conditions...)))
	same := fmt.Sprintf("{type: Scheduled, status: 'False', reason: Failed, message: '%s', lastTransitionTime: '%s', observedGeneration: 1}",
		"boom (attempt 3, next try 2026-03-04T12:00:01Z)", lastTransition(current, tko.ConditionScheduled))
	if got := w.must("PATCH", "sites/s/status?fieldManager=a", status(same), "Content-Type", apply); !slices.Contains(got.managers(), "a Apply status") {
		t.Errorf("managers: %q, want a", got.managers())
	}
	s, err := w.Site(t.Context(), "s", 0)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(s.Stamp.Conditions, func(c tko.Condition) bool { return c.Type == tko.ConditionScheduled })
	got := s.Stamp.Conditions[at]
	if got.Message != "boom" || got.Attempt != 3 || !got.NextTry.Equal(failing.NextTry) {
		t.Errorf("stored: %q, attempt %d, next try %s: want them as they were", got.Message, got.Attempt, got.NextTry)
	}
}

// appliedLongAgo sets the time of a condition's managed fields far back, and
// returns the resourceVersion.
func (w *world) appliedLongAgo(site, typ string) string {
	w.t.Helper()
	s, err := w.Site(w.t.Context(), tko.SiteID(site), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	at := slices.IndexFunc(s.Stamp.Conditions, func(c tko.Condition) bool { return c.Type == typ })
	c := s.Stamp.Conditions[at]
	before := c.Attached
	c.Attached = regexp.MustCompile(`"time":"[^"]*"`).ReplaceAllString(before, `"time":"2020-01-01T00:00:00Z"`)
	if c.Attached == before {
		w.t.Fatalf("it has no time: %s", before)
	}
	r, err := w.PutConditions(w.t.Context(), record.Key{Kind: tko.KindSite, ID: site}, []tko.Condition{c}, nil, record.Requirement{}, false)
	if err != nil {
		w.t.Fatal(err)
	}
	return strconv.FormatInt(r.Position, 10)
}

func lastTransition(o obj, typ string) string {
	conditions, _ := o.at("status.conditions").([]any)
	for _, c := range conditions {
		if m, _ := c.(map[string]any); m["type"] == typ {
			return obj(m).text("lastTransitionTime")
		}
	}
	return ""
}
