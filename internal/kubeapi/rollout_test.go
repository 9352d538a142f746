package kubeapi_test

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

const rollout = `{"apiVersion":"tko.nephio.org/v1alpha1","kind":"Rollout","metadata":{"name":"smfv2","labels":{"team":"core"}},"spec":{
"edits":[{"upgrade":{"to":"nf/smf:v2"},"select":{"templateIdPatterns":["nf/smf:v1"]}},{"merge":[{"apiVersion":"v1","kind":"ConfigMap","name":"c"}],"select":{"siteIdPatterns":["x/*"]}}],
"waves":[{"name":"canary","count":1},{"name":"rest","approval":"Required"}],"limits":{"concurrent":3,"apart":["pair"]},"health":{"soak":"1m"},"onFailure":"Pause",
"package":{"resources":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}]}}}`

// A rollout is applied as its documentation writes it, read back as it was written, and
// reports its state.
func TestRolloutIsAppliedAndReadBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "rollouts", rollout)
	r, err := w.Rollout(t.Context(), "smfv2", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Package) != 2 || r.Metadata["team"] != "core" || r.State != "Draft" {
		t.Errorf("%+v", r)
	}
	got := w.must("GET", "rollouts/smfv2", nil)
	if got.text("status.state") != "Draft" || got.text("spec.rolloutId") != "smfv2" || got.text("spec.onFailure") != "Pause" {
		t.Errorf("%v", got)
	}
	if waves, _ := got.at("spec.waves").([]any); len(waves) != 2 {
		t.Errorf("%v", got["spec"])
	}
	if resources, _ := got.at("spec.package.resources").([]any); len(resources) != 1 {
		t.Errorf("%v", got["spec"])
	}
	// Writing it back changes nothing.
	w.must("PUT", "rollouts/smfv2", map[string]any(got))
	if again, err := w.Rollout(t.Context(), "smfv2", 0); err != nil || again.Stamp.Revision != r.Stamp.Revision {
		t.Errorf("revision %d, %v", again.Stamp.Revision, err)
	}
	w.fails(422, "select", "POST", "rollouts", strings.ReplaceAll(strings.ReplaceAll(rollout, `,"select":{"siteIdPatterns":["x/*"]}`, ""), "smfv2", "smfv3"))
	w.must("DELETE", "rollouts/smfv2", nil)
	if _, err := w.Rollout(t.Context(), tko.RolloutID("smfv2"), 0); err == nil {
		t.Error("it still exists")
	}
}

// A rollout is read and watched under the name that was written, such as smf-v2; its
// escaped name is the same rollout. The event of a deletion has the state Deleted.
func TestRolloutKeepsTheHyphensOfItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := w.watch("rollouts?watch=1&fieldSelector=metadata.name%3Dsmf-v2")
	text := strings.ReplaceAll(rollout, "smfv2", "smf-v2")
	if got := w.must("POST", "rollouts", text); got.text("metadata.name") != "smf-v2" || got.text("spec.rolloutId") != "smf-v2" {
		t.Errorf("created as %v", got)
	}
	if e := next(); e.Type != "ADDED" || e.Object.text("metadata.name") != "smf-v2" {
		t.Errorf("watched %+v", e)
	}
	for _, name := range []string{"smf-v2", "smf-002dv2"} {
		if got := w.must("GET", "rollouts/"+name, nil); got.text("metadata.name") != "smf-v2" {
			t.Errorf("%s is %v", name, got)
		}
	}
	w.fails(409, "already exists", "POST", "rollouts", strings.ReplaceAll(text, `"name":"smf-v2"`, `"name":"smf-002dv2"`))
	w.fails(404, "not found", "GET", "templates/smf-v2", nil) // templates have escaped names only
	w.must("DELETE", "rollouts/smf-v2", nil)
	if e := next(); e.Type != "DELETED" || e.Object.text("metadata.name") != "smf-v2" || e.Object.text("status.state") != "Deleted" {
		t.Errorf("watched %+v", e)
	}
}

// Each command about a rollout is a subresource, which is created: also by users whose tools
// only know Kubernetes.
func TestRolloutIsCommandedBySubresources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "rollouts", rollout)
	for _, verb := range tko.RolloutVerbs() {
		if response := w.fails(400, "can't be tried", "POST", "rollouts/smfv2/"+verb+"?dryRun=All", "{}"); response.text("reason") != "BadRequest" {
			t.Errorf("%s: %v", verb, response)
		}
		w.fails(404, "not found", "POST", "rollouts/nowhere/"+verb, "{}")
	}
	w.fails(405, "", "GET", "rollouts/smfv2/start", nil)
	w.fails(422, "hexadecimal", "POST", "rollouts/smfv2/start", `{"plan":"what"}`)
	w.fails(400, "unknown field", "POST", "rollouts/smfv2/start?fieldValidation=Strict", `{"plans":"what"}`)
	if got := w.must("POST", "rollouts/smfv2/plan", `{"reason":"a try"}`); got.text("kind") != "Rollout" || got.text("status.state") != "Planning" {
		t.Errorf("planning, it is %v", got)
	}
	if got := w.must("POST", "rollouts/smfv2/cancel", obj{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "RolloutCommand"}); got.text("status.state") != "Cancelled" {
		t.Errorf("cancelled, it is %v", got)
	}
}
