package catalog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
)

// attached writes what a client of the Kubernetes API attached to a site.
func (w *world) attached(id string, labels map[string]string, attached string) {
	w.t.Helper()
	_, _, err := w.PutRecord(w.ctx, catalog.Put{Key: record.Key{Kind: tko.KindSite, ID: id}, Labels: labels, Attached: []byte(attached)})
	w.is("attach", err, nil)
}

// marks returns the marks of sites that a caller sees, by ID.
func (w *world) marks(subject string) map[string]tko.EntityMarks {
	w.t.Helper()
	all, err := collect(w.Marks(w.as(subject), tko.KindSite))
	w.is("marks", err, nil)
	byID := map[string]tko.EntityMarks{}
	for _, m := range all {
		byID[m.ID] = m
	}
	return byID
}

func (w *world) putMarks(manager string, marks *tko.Marks) tko.PutResult {
	w.t.Helper()
	r, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindSite, ID: "emea/1", Manager: manager, Marks: marks})
	w.is("put", err, nil)
	return r
}

// What kubectl set stays whatever manifests name, and what a manifest set is removed when it, or
// one of the same manager, no longer names it.
func TestMarksOfOthersStayAndOwnOnesAreRemoved(t *testing.T) {
	t.Parallel()
	for _, manager := range []string{"", "apply"} {
		w := newGuarded(t, catalog.Options{})
		attached := `{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","theirs":"1","both":"2"},"ownerReferences":[{"uid":"u"}],"managedFields":[{"manager":"kubectl"}]}`
		w.attached("emea/1", map[string]string{"example.com/theirs": "1", "team_a": "x"}, attached)
		check := func(why string, labels, annotations map[string]string) {
			t.Helper()
			got := w.marks("cert:root")["emea/1"]
			if diff := cmp.Diff(tko.EntityMarks{ID: "emea/1", OwnerReferences: 1, Marks: tko.Marks{Labels: labels, Annotations: annotations}}, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("manager %q, %s: %s", manager, why, diff)
			}
		}
		type m = map[string]string
		check("of kubectl", m{"example.com/theirs": "1"}, m{"theirs": "1", "both": "2"})
		w.putMarks(manager, &tko.Marks{Labels: m{"example.com/team": "core"}, Annotations: m{"mine": "3", "both": "2"}})
		check("set", m{"example.com/theirs": "1", "example.com/team": "core"}, m{"theirs": "1", "both": "2", "mine": "3"})
		if r := w.putMarks(manager, &tko.Marks{Labels: m{"example.com/team": "core"}, Annotations: m{"mine": "3", "both": "2"}}); r.Changed {
			t.Errorf("manager %q: the same again is a change", manager)
		}
		w.putMarks(manager, nil)
		check("not stated", m{"example.com/theirs": "1", "example.com/team": "core"}, m{"theirs": "1", "both": "2", "mine": "3"})
		w.putMarks(manager, &tko.Marks{Annotations: m{"mine": "4"}})
		check("changed", m{"example.com/theirs": "1"}, m{"theirs": "1", "both": "2", "mine": "4"})
		w.putMarks(manager, new(tko.Marks))
		check("none", m{"example.com/theirs": "1"}, m{"theirs": "1", "both": "2"})
		r, err := w.Record(w.ctx, record.Fields{}, record.Key{Kind: tko.KindSite, ID: "emea/1"})
		w.is("record", err, nil)
		var is, was any
		if err := json.Unmarshal(r.Attached(), &is); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(attached), &was); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(was, is); diff != "" {
			t.Errorf("manager %q: what kubectl attached has changed: %s", manager, diff)
		}
	}
}

// A deployment keeps marks through changes of its package, and a source that no longer names one
// removes it with the next change.
func TestMarksOfADeploymentStayWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	type m = map[string]string
	p := tko.Put{Kind: tko.KindDeployment, Origin: "gitops/fleet/a", Marks: &tko.Marks{Labels: m{"example.com/team": "core"}, Annotations: m{"ticket": "1"}}}
	r, err := w.PutEntity(w.ctx, p)
	w.is("create", err, nil)
	check := func(why string, want tko.Marks) {
		t.Helper()
		all, err := collect(w.Marks(w.ctx, tko.KindDeployment))
		w.is(why, err, nil)
		var got tko.Marks
		for _, one := range all {
			got = one.Marks
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", why, diff)
		}
	}
	both := tko.Marks{Labels: m{"example.com/team": "core"}, Annotations: m{"ticket": "1"}}
	check("created", both)
	started, err := w.StartModification(w.ctx, tko.DeploymentID(r.ID))
	w.is("start", err, nil)
	_, _, err = w.EndModification(w.ctx, started.Token, append(started.Package, pkg(t, thing("new", ""))...))
	w.is("end", err, nil)
	check("modified", both)
	d, err := w.Deployment(w.ctx, tko.DeploymentID(r.ID), 0)
	w.is("read", err, nil)
	_, err = w.PutEntity(w.ctx, tko.Put{Kind: tko.KindDeployment, ID: r.ID, Package: d.Package, Marks: &tko.Marks{Annotations: m{"ticket": "2"}}})
	w.is("put", err, nil)
	check("put again", tko.Marks{Annotations: m{"ticket": "2"}})
}

func TestMarksAreThoseThatTheCallerMayRead(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	secret := `apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {k: Y2FuYXJ5}\n`
	attached := `{"annotations":{"copy":"` + secret + `"}}`
	for _, id := range []string{"emea/1", "apac/1"} {
		w.attached(id, nil, attached)
	}
	w.site("emea/2", "")
	w.bind("cert:ada", access.Viewer, emea)
	seen := w.marks("cert:ada")
	if len(seen) != 1 || strings.Contains(seen["emea/1"].Marks.Annotations["copy"], "Y2FuYXJ5") || seen["emea/1"].Marks.Annotations["copy"] == "" {
		t.Errorf("a viewer of emea sees %v, want the redacted mark of emea/1", seen)
	}
	w.bind("cert:eve", access.SecretRole, access.Scope{})
	if all := w.marks("cert:eve"); len(all) != 2 || !strings.Contains(all["apac/1"].Marks.Annotations["copy"], "Y2FuYXJ5") {
		t.Errorf("a caller that may read Secrets sees %v, want both marks", all)
	}
	_, err := collect(w.Marks(w.ctx, "planet"))
	w.is("an unknown kind", err, tko.ErrInvalid)
}

func TestMarksThatKubernetesCantHaveAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	type m = map[string]string
	for why, marks := range map[string]tko.Marks{
		"metadata":               {Labels: m{"region": "west"}},
		"a bad prefix":           {Labels: m{"Example.com/a": "x"}},
		"a long value":           {Labels: m{"example.com/a": strings.Repeat("x", 64)}},
		"a value with a space":   {Labels: m{"example.com/a": "x y"}},
		"a name without letters": {Annotations: m{"example.com/-": "x"}},
		"what kubectl keeps":     {Annotations: m{"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
		"what TKO reads":         {Annotations: m{"gitops.tko.nephio.org/adopt": "true"}},
		"what can't be stored":   {Annotations: m{"a": "\x00"}},
		"too much":               {Annotations: m{"a": strings.Repeat("x", 1<<20)}},
	} {
		_, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindSite, ID: "s", Marks: &marks})
		w.is(why, err, tko.ErrInvalid)
	}
}
