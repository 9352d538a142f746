package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// topology returns a server with a topology that is prepared and waits for an approval,
// with one child that fails and one that no preparer has processed.
func topology() *fake {
	created := noon.Add(-time.Hour)
	step := tko.PreparationStep{Resource: `a/v1 Addresses "core"`, Plugin: "network/addresses", Iteration: 1, Took: 312 * time.Millisecond, Notes: []string{"warning: old (v1 X \"y\", spec.z)"}, NotesLeftOut: 2}
	site := tko.PreparationStep{Resource: `topology.nephio.org/v1alpha1 Site "new"`, Iteration: 2, Took: 4 * time.Millisecond}
	stamp := tko.Stamp{
		Revision: 4, Created: created, Updated: created.Add(900 * time.Millisecond), Author: tko.Author{Who: "preparer", Why: "prepared 1 resource"},
		Conditions: []tko.Condition{
			{Type: tko.ConditionApproved, Status: tko.ConditionTrue},
			{Type: tko.ConditionPlaced, Status: tko.ConditionFalse, Reason: tko.ReasonChangeProposed, Message: "would create 1"},
			{Type: tko.ConditionPrepared, Status: tko.ConditionTrue, LastTransition: created.Add(900 * time.Millisecond)},
		},
	}
	failing := tko.Stamp{Conditions: []tko.Condition{{
		Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", Message: "boom", Attempt: 3, NextTry: noon.Add(12 * time.Second),
	}}}
	return &fake{
		deployments: func() []tko.Deployment {
			return []tko.Deployment{
				{ID: "D1", Template: "topology/cu:v1", Prepared: true, Approved: true, Stamp: stamp},
				{ID: "D2", Parent: "D1", Template: "nf/smf:v1", Site: "lagos/1", Stamp: failing},
				{ID: "D3", Parent: "D1", Template: "nf/smf:v1", Site: "lagos/2", Prepared: true, Approved: true},
				{ID: "D4", Parent: "D1", Template: "nf/smf:v1", Site: "lagos/3"},
			}
		},
		revisions: map[int64]tko.Stamp{
			4: withSteps(stamp, site),
			1: {Revision: 1, Updated: created, Author: tko.Author{Who: "ada@desk"}},
			3: {Revision: 3, Updated: created.Add(400 * time.Millisecond), Author: tko.Author{Who: "preparer", Why: "prepared 1 resource"}, Steps: []tko.PreparationStep{step}},
		},
	}
}

func withSteps(s tko.Stamp, steps ...tko.PreparationStep) tko.Stamp {
	s.Steps = steps
	return s
}

func TestExplainPrintsHistoryAndWaits(t *testing.T) {
	t.Parallel()
	r := run(t, topology(), "", "deployment", "explain", "D1", "-o", "table")
	want := `Deployment:  D1
Template:    topology/cu:v1
State:       prepared within 900ms, approved, revision 4
Children:    3, 1 of them prepared and 1 approved

What happened:
  1    TIME  ada@desk: created it
  1 revision is left out
  3    +400ms                    preparer: prepared 1 resource
       a/v1 Addresses "core" by plugin network/addresses, iteration 1, took 312ms
         warning: old (v1 X "y", spec.z)
         and 2 more
  4    +900ms                    preparer: prepared 1 resource
       topology.nephio.org/v1alpha1 Site "new" by TKO, iteration 2, took 4ms

What it waits for:
  Placed: WaitsForApproval: would create 1: tko deployment approve D1
  child D2 (nf/smf:v1 at lagos/1): Prepared: PluginFailed: boom (tried 3 times, again in 12s at the latest)
  child D4 (nf/smf:v1 at lagos/3): Prepared: New: no preparer has processed it yet
`
	got := strings.Replace(r.out, fmt.Sprintf("%-25s", noon.Add(-time.Hour).Local().Format(time.RFC3339)), "TIME ", 1)
	if diff := cmp.Diff(want, got); diff != "" || r.code != 0 || r.err != "" {
		t.Errorf("exit code %d, %q: %s", r.code, r.err, diff)
	}
}

func TestExplainAsJSONHasStepsAndAttempts(t *testing.T) {
	t.Parallel()
	r := run(t, topology(), "", "deployment", "explain", "D1", "-o", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	history, _ := got["history"].([]any)
	if len(history) != 3 {
		t.Fatalf("the history is %v, want 3 entries", history)
	}
	entry, _ := history[1].(map[string]any)
	want := []any{map[string]any{"resource": `a/v1 Addresses "core"`, "plugin": "network/addresses", "iteration": 1.0, "seconds": 0.312, "notes": []any{`warning: old (v1 X "y", spec.z)`}, "notesLeftOut": 2.0}}
	if diff := cmp.Diff(want, entry["steps"]); diff != "" {
		t.Error(diff)
	}
	wait := map[string]any{"type": "Prepared", "reason": "PluginFailed", "message": "boom", "deployment": "D2", "attempt": 3.0, "nextTry": "2026-03-04T12:00:12Z"}
	waits, _ := got["waits"].([]any)
	if len(waits) != 3 || cmp.Diff(wait, waits[1]) != "" {
		t.Errorf("the waits are %v, want 3, with %v second", waits, wait)
	}
	if diff := cmp.Diff(map[string]any{"total": 3.0, "prepared": 1.0, "approved": 1.0}, got["children"]); diff != "" {
		t.Error(diff)
	}
	if got["preparedSeconds"] != 0.9 || got["historyMissing"] != 1.0 || got["templateId"] != "topology/cu:v1" {
		t.Errorf("the document is %v, want the preparation time, the missing revisions and the template", got)
	}
}

// Revisions and conditions of earlier versions of TKO have prose instead of the fields
// for steps and attempts. It is printed unchanged and never parsed.
func TestExplainPrintsProseOfEarlierVersionsUnchanged(t *testing.T) {
	t.Parallel()
	why := `prepared v1 ConfigMap "a" by plugin "network/addresses" (iteration 1, 312ms), saying "warning: old"`
	created := noon.Add(-time.Hour)
	f := &fake{
		deployments: func() []tko.Deployment {
			return []tko.Deployment{{ID: "D1", Stamp: tko.Stamp{Revision: 2, Created: created, Conditions: []tko.Condition{{
				Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", Message: "boom (attempt 3, next try 2026-03-04T12:00:12Z)",
			}}}}}
		},
		revisions: map[int64]tko.Stamp{
			0: {Revision: 2, Created: created, Conditions: []tko.Condition{{
				Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", Message: "boom (attempt 3, next try 2026-03-04T12:00:12Z)",
			}}},
			1: {Revision: 1, Updated: created, Author: tko.Author{Who: "ada@desk"}},
			2: {Revision: 2, Updated: created.Add(time.Second), Author: tko.Author{Who: "preparer", Why: why}},
		},
	}
	r := run(t, f, "", "deployment", "explain", "D1", "-o", "table")
	for _, want := range []string{
		"  2    +1s                       preparer: " + why + "\n",
		"  Prepared: PluginFailed: boom (attempt 3, next try 2026-03-04T12:00:12Z)\n",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is missing in:\n%s%s", want, r.out, r.err)
		}
	}
	r = run(t, f, "", "deployment", "explain", "D1", "-o", "json")
	if strings.Contains(r.out, `"steps"`) || strings.Contains(r.out, `"attempt"`) {
		t.Errorf("prose was parsed:\n%s", r.out)
	}
}

func TestExplainLimitsRevisionsAndChildren(t *testing.T) {
	t.Parallel()
	f := &fake{deployments: func() []tko.Deployment {
		return []tko.Deployment{{ID: "D1", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 5000}}}
	}}
	r := run(t, f, "", "deployment", "explain", "D1", "-o", "table")
	if len(f.asked) > 60 || !strings.Contains(r.out, "4948 revisions are left out") || !strings.Contains(r.out, "It waits for nothing.") {
		t.Errorf("explain made %d requests, want at most 60: %s%s", len(f.asked), r.out, r.err)
	}
	if r := run(t, f, "", "deployment", "explain", "none"); r.code != 3 {
		t.Errorf("explain of a missing deployment: exit code %d, want 3: %s", r.code, r.err)
	}
}

func TestGetPrintsWhyItIsNotPrepared(t *testing.T) {
	t.Parallel()
	r := run(t, example(), "", "deployment", "get", "D2")
	if want := "deployment \"D2\" is not prepared: PluginFailed: boom\n"; r.err != want || r.code != 0 {
		t.Errorf("exit code %d, %q; want 0, %q", r.code, r.err, want)
	}
	if r := run(t, example(), "", "deployment", "get", "D1"); r.err != "" {
		t.Errorf("get of a prepared deployment printed %q, want nothing", r.err)
	}
	if r := run(t, topology(), "", "deployment", "approve", "D1", "--dry-run"); r.err != "would create 1\nwould approve 1 deployment\n" {
		t.Errorf("the dry run of an approval printed %q", r.err)
	}
}

func TestExplainAsOfReadsRevisionsByNumber(t *testing.T) {
	t.Parallel()
	f := topology()
	out := run(t, f, "", "deployment", "explain", "D1", "--as-of", "7")
	if out.code != 0 || !strings.Contains(out.err, "conditions that have changed since then are left out") {
		t.Errorf("exit code %d, %q", out.code, out.err)
	}
	if len(f.asked) < 3 || f.asked[0] != "deployment D1 0 as of 7" || f.asked[1] != "deployment D1 1" || !strings.HasSuffix(f.asked[len(f.asked)-1], " as of 7") {
		t.Errorf("read were %q", f.asked)
	}
	if out := run(t, topology(), "", "site", "explain", "lagos/1", "--as-of", "7"); out.code != exitUsage || !strings.Contains(out.err, "--topology") {
		t.Errorf("a site without a topology: exit code %d, %q", out.code, out.err)
	}
}

func TestExplainKindShowsNothingThatControlsTheTerminal(t *testing.T) {
	t.Parallel()
	f := example()
	field := map[string]any{"type": "string\x1b[2J", "enum": []any{"a\x1b[3J"}}
	f.templates[0].Package = krm.Package{{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "upfs"},
		"spec": map[string]any{
			"group": "x.io", "names": map[string]any{"kind": "UPF"},
			"versions": []any{map[string]any{"name": "v1\x1b[4J", "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"properties": map[string]any{"spec": map[string]any{"properties": map[string]any{"capa\x1b[5Jcity": field}}},
			}}}},
		},
	}}
	got := run(t, f, "", "explain", "--template", "nf/smf:v1", "UPF", "-o", "table")
	if got.code != 0 || !strings.Contains(got.out, "capa\uFFFD[5Jcity") || strings.Contains(got.out, "\x1b") {
		t.Errorf("code %d, %q, %s", got.code, got.out, got.err)
	}
}
