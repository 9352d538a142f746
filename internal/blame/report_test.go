package blame_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/blame"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// of returns a history of packages, each written by an author of its own.
func of(packages ...krm.Package) *past {
	p := &past{oldest: 1}
	for i, pkg := range packages {
		p.revisions = append(p.revisions, blame.Revision{
			Number: int64(i + 1), UID: "1", Package: pkg, Author: tko.Author{Who: "author " + strconv.Itoa(i+1)}, Content: [32]byte{byte(i), byte(i >> 8), 1},
		})
	}
	return p
}

func report(t *testing.T, p *past, request tko.BlameRequest) (tko.Blame, error) {
	t.Helper()
	request.Kind, request.ID = tko.KindDeployment, "d"
	return blame.Report(t.Context(), p, p.newest(), types, request)
}

func TestFieldsAreNamedByResourceAndPath(t *testing.T) {
	t.Parallel()
	v := values{"a/k1": "1", "a/k10": "2", "ab/k1": "3", "nf/e1": "4", "nf/e2": "5"}
	p := of(v.pkg())
	env := `apps/v1 Deployment "nf" spec.template.spec.containers[name=main].env`
	tests := map[string]struct {
		why   string
		field string
		want  []string
	}{
		"the whole package": {"no field is named", "", []string{"a/k1", "a/k10", "ab/k1", "nf/e1", "nf/e2"}},
		"a resource":        {"and not one whose name begins likewise", `v1 ConfigMap "a"`, []string{"a/k1", "a/k10"}},
		"a kind":            {"the beginning of a resource's name, up to a space", `v1 ConfigMap`, []string{"a/k1", "a/k10", "ab/k1"}},
		"a map":             {"all of its keys", `v1 ConfigMap "a" data`, []string{"a/k1", "a/k10"}},
		"a key":             {"and not one that begins likewise", `v1 ConfigMap "a" data.k1`, []string{"a/k1"}},
		"a list":            {"all of its elements", env, []string{"nf/e1", "nf/e2"}},
		"an element":        {"by its key", env + "[name=e2]", []string{"nf/e2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := report(t, p, tko.BlameRequest{Field: test.field})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range b.Fields {
				if !strings.HasPrefix(f.Resource+" "+f.Path, test.field) {
					t.Errorf("%s %s isn't named by %q", f.Resource, f.Path, test.field)
				}
				if field := fieldOf(f.Resource, f.Path); field != "" {
					got = append(got, field)
					if f.Value != strconv.Quote(v[field]) || f.Hidden {
						t.Errorf("%s is %s, hidden: %t", field, f.Value, f.Hidden)
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", test.why, diff)
			}
			if b.Kind != tko.KindDeployment || b.ID != "d" || b.Revision != 1 || len(b.Origins) != 1 {
				t.Errorf("the report is of %s %q at %d, with %d origins", b.Kind, b.ID, b.Revision, len(b.Origins))
			}
		})
	}
}

func TestFieldsThatAreNotThereAreNotFound(t *testing.T) {
	t.Parallel()
	p := of(values{"a/k1": "1", "b/k1": "1", "b/k2": "1"}.pkg())
	tests := map[string]struct {
		why   string
		field string
		whole []string // parts of the error about the fields
		past  error    // the kind of the error about a history
	}{
		"no such key":      {"the error names fields of the package", `v1 ConfigMap "a" data.k3`, []string{`'v1 ConfigMap "a"`}, tko.ErrNotFound},
		"without resource": {"the error names the fields that are probably meant", "data.k1", []string{path("a/k1"), path("b/k1")}, tko.ErrNotFound},
		"end of a path":    {"likewise", "k2", []string{path("b/k2")}, tko.ErrNotFound},
		"half a key":       {"a name is whole", `v1 ConfigMap "a" data.k`, []string{"there is no field"}, tko.ErrNotFound},
		"several fields":   {"a history is of one field; the error names some of them", `v1 ConfigMap "b" data`, nil, tko.ErrInvalid},
		"a long text":      {"the error is short", strings.Repeat("x", 5000), []string{"there is no field"}, tko.ErrNotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := report(t, p, tko.BlameRequest{Field: test.field})
			if test.whole == nil && err != nil {
				t.Errorf("%v: %s", err, test.why)
			}
			for _, part := range test.whole {
				if !errors.Is(err, tko.ErrNotFound) || !strings.Contains(err.Error(), part) {
					t.Errorf("%v, want a not found with %s: %s", err, part, test.why)
				}
			}
			b, err := report(t, p, tko.BlameRequest{Field: test.field, History: true})
			if !errors.Is(err, test.past) || len(b.Changes) > 0 || len(err.Error()) > 2000 {
				t.Errorf("the history: %v, want %v: %s", err, test.past, test.why)
			}
		})
	}
}

// A field that was removed has a history, from the revision that removed it on.
func TestHistoryOfARemovedField(t *testing.T) {
	t.Parallel()
	p := of(values{"a/k1": "1", "b/k1": "1"}.pkg(), values{"a/k1": "1"}.pkg(), values{"a/k1": "2"}.pkg(), values{"a/k1": "2"}.pkg())
	for _, field := range []string{path("b/k1"), `v1 ConfigMap "b" data`} { // also if it names one field
		b, err := report(t, p, tko.BlameRequest{Field: field, History: true})
		if err != nil {
			t.Fatal(err)
		}
		want := []tko.FieldChange{
			{Resource: `v1 ConfigMap "b"`, Path: "data.k1", Before: `"1"`, Origin: tko.Origin{Source: tko.SourceEdit, Revision: 2, Author: tko.Author{Who: "author 2"}}},
			{Resource: `v1 ConfigMap "b"`, Path: "data.k1", After: `"1"`, Origin: tko.Origin{Source: tko.SourceCreation, Revision: 1, Author: tko.Author{Who: "author 1"}}},
		}
		if diff := cmp.Diff(want, b.Changes); diff != "" {
			t.Errorf("history of %s (-want +got)\n%s", field, diff)
		}
	}
	if _, err := report(t, p, tko.BlameRequest{Field: path("b/k1")}); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("the origin of a removed field: %v", err)
	}
}

func TestConfidentialValuesAreHidden(t *testing.T) {
	t.Parallel()
	const canary = "hunter2"
	tests := map[string]struct {
		why      string
		resource krm.Resource
		field    string
	}{
		"a Secret":           {"its data", krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "data": map[string]any{"k": canary}}, `v1 Secret "s" data.k`},
		"text of a Secret":   {"its data in the clear", krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"k": canary}}, `v1 Secret "s" stringData.k`},
		"a password":         {"the name says so", configMap("c", map[string]any{"password": canary}), `v1 ConfigMap "c" data.password`},
		"a Secret inside":    {"a kind of another group may hold one", krm.Resource{"apiVersion": "x/v1", "kind": "U", "metadata": map[string]any{"name": "u"}, "spec": map[string]any{"inner": map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"k": canary}}}}, `x/v1 U "u" spec.inner.data.k`},
		"a copy of a Secret": {"an annotation of kubectl apply", krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "annotations": map[string]any{"last": canary}}}, `v1 Secret "s" metadata.annotations.last`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := of(krm.Package{test.resource}, krm.Package{configMap("other", map[string]any{"k": "shown"})}, krm.Package{test.resource})
			whole, err := report(t, p, tko.BlameRequest{})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(whole.Fields, func(f tko.BlamedField) bool { return f.Resource+" "+f.Path == test.field })
			if i < 0 || !whole.Fields[i].Hidden || whole.Fields[i].Value != "" {
				t.Errorf("the field isn't hidden: %+v: %s", whole.Fields, test.why)
			}
			history, err := report(t, p, tko.BlameRequest{Field: test.field, History: true})
			if err != nil || len(history.Changes) != 3 {
				t.Fatalf("%d changes, %v", len(history.Changes), err)
			}
			for _, c := range history.Changes {
				if !c.Hidden || c.Before != "" || c.After != "" {
					t.Errorf("the change isn't hidden: %+v: %s", c, test.why)
				}
			}
			if text := fmt.Sprintf("%+v %+v", whole, history); strings.Contains(text, canary) {
				t.Errorf("the value is shown: %s: %s", text, test.why)
			}
			shown, err := report(t, of(krm.Package{test.resource, configMap("other", map[string]any{"k": "shown"})}), tko.BlameRequest{Field: `v1 ConfigMap "other" data.k`})
			if err != nil || len(shown.Fields) != 1 || shown.Fields[0].Hidden || shown.Fields[0].Value != `"shown"` {
				t.Errorf("a value that isn't confidential: %+v, %v", shown.Fields, err)
			}
		})
	}
}

// A restore of a deployment that was deleted just before brings back its values with their
// origins; the restore didn't create them.
func TestRestoredDeploymentKeepsItsOrigins(t *testing.T) {
	t.Parallel()
	v := values{"a/k1": "1"}
	for deleted := int64(1); deleted <= 3; deleted++ { // revisions between the deletion and the restored one
		var packages []krm.Package
		for range deleted + 1 {
			packages = append(packages, v.pkg())
		}
		p := of(packages...)
		last := &p.revisions[deleted]
		last.UID, last.Rollout, last.Restores = "2", "undo", 1
		b, err := report(t, p, tko.BlameRequest{Field: path("a/k1")})
		if err != nil {
			t.Fatal(err)
		}
		want := []tko.Origin{{Source: tko.SourceCreation, Revision: 1, Author: tko.Author{Who: "author 1"}, RestoredBy: "undo", RestoredAt: deleted + 1}}
		if diff := cmp.Diff(want, b.Origins); diff != "" {
			t.Errorf("restored after %d revisions (-want +got)\n%s", deleted, diff)
		}
	}
}

// A walk reads a bounded number of revisions, and what lies before is unknown, not set by
// the last one that was read.
func TestWalksAreBounded(t *testing.T) {
	t.Parallel()
	v := values{"a/k1": "1"}
	var packages []krm.Package
	for range blame.MaxRevisions + 100 {
		packages = append(packages, v.pkg())
	}
	p := of(packages...)
	p.revisions[len(packages)-1].Package = values{"a/k1": "1", "a/k2": "2"}.pkg()
	fields, origins, err := blame.New(p, types).Walk(t.Context(), p.newest(), func(l merge.Leaf) bool { return l.Path[0] == "data" })
	if err != nil || len(fields) != 2 {
		t.Fatalf("%d fields, %v", len(fields), err)
	}
	if o := origins[fields[0].Origin]; o.Source != tko.SourceUnknown || !o.Collected || o.Revision != 100 {
		t.Errorf("the origin of a value that is older than all read revisions: %+v", o)
	}
	if o := origins[fields[1].Origin]; o.Source != tko.SourceEdit || o.Collected || o.Revision != int64(len(packages)) {
		t.Errorf("the origin of the newest value: %+v", o)
	}
	if p.read > blame.MaxRevisions {
		t.Errorf("%d revisions were read", p.read)
	}
	p.read = 0
	if _, err := report(t, p, tko.BlameRequest{Field: path("none/k"), History: true}); !errors.Is(err, tko.ErrNotFound) || p.read > blame.MaxRevisions {
		t.Errorf("a field that never was: %v, %d revisions were read", err, p.read)
	}
}

func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	data := map[string]any{}
	for i := range 2000 {
		data[strconv.Itoa(i)] = "v"
	}
	big := krm.Resource{"apiVersion": "x/v1", "kind": "U", "metadata": map[string]any{"name": "big"}, "spec": map[string]any{strings.Repeat("x", 2000): data}}
	p := of(krm.Package{big, configMap("small", map[string]any{"long": strings.Repeat("y", 10_000)})})
	if _, err := report(t, p, tko.BlameRequest{}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a response of more than 4 MiB: %v", err)
	}
	b, err := report(t, p, tko.BlameRequest{Field: `v1 ConfigMap "small"`})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range b.Fields {
		if len(f.Value) > 300 {
			t.Errorf("a value has %d bytes", len(f.Value))
		}
	}
	history, err := report(t, p, tko.BlameRequest{Field: `v1 ConfigMap "small" data.long`, History: true})
	if err != nil || len(history.Changes) != 1 || len(history.Changes[0].After) < 3000 || len(history.Changes[0].After) > 5000 {
		t.Errorf("a long value of a history: %d changes, %v", len(history.Changes), err)
	}
	var often []krm.Package
	for i := range 150 {
		often = append(often, values{"a/k1": strconv.Itoa(i)}.pkg())
	}
	many, err := report(t, of(often...), tko.BlameRequest{Field: path("a/k1"), History: true})
	if err != nil || len(many.Changes) != 100 || many.Changes[0].Origin.Revision != 150 {
		t.Errorf("a history of 150 changes: %d, %v", len(many.Changes), err)
	}
}

func TestErrorsOfHistoriesAreReturned(t *testing.T) {
	t.Parallel()
	broken := errors.New("the database is gone")
	v := values{"a/k1": "1"}
	requests := map[string]tko.BlameRequest{"fields": {}, "history": {Field: path("a/k1"), History: true}, "history of another": {Field: path("b/k1"), History: true}}
	for what, request := range requests {
		p := of(v.pkg(), v.pkg())
		p.err = broken
		if b, err := report(t, p, request); !errors.Is(err, broken) || len(b.Fields)+len(b.Changes) > 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := of(v.pkg(), v.pkg())
	if _, _, err := blame.New(p, types).Walk(ctx, p.newest(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a walk of a request that was cancelled: %v", err)
	}
}

// An origin in a template is followed into it, if the caller may read it.
func TestOriginsAreFollowedIntoTemplates(t *testing.T) {
	t.Parallel()
	template := of(values{"a/k1": "0"}.pkg(), values{"a/k1": "1"}.pkg(), values{"a/k1": "1", "a/k2": "1"}.pkg())
	p := of(values{"a/k1": "1", "a/k2": "1"}.pkg(), values{"a/k1": "5", "a/k2": "1"}.pkg())
	p.templates = map[string]krm.Package{"t@3": template.newest().Package}
	for i := range p.revisions {
		p.revisions[i].Made = &derivation.Record{Template: "t", Revision: 3}
	}
	for _, readable := range []bool{true, false} {
		want := [][]tko.Origin{nil, nil} // the edit has none
		p.upstream = nil
		if readable {
			p.upstream = map[string]*past{"t": template}
			want[1] = []tko.Origin{{Source: tko.SourceEdit, Revision: 2, Author: tko.Author{Who: "author 2"}}}
		}
		b, err := report(t, p, tko.BlameRequest{Field: path("a/k1"), History: true})
		if err != nil {
			t.Fatal(err)
		}
		var got [][]tko.Origin
		for _, c := range b.Changes {
			got = append(got, c.Upstream)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the template is readable: %t (-want +got)\n%s", readable, diff)
		}
		if o := b.Changes[1].Origin; o.Source != tko.SourceTemplate || o.Template != "t" || o.TemplateRevision != 3 {
			t.Errorf("the template is readable: %t: the origin is %+v", readable, o)
		}
	}
}

// A deployment keeps what was set, and a new template sets only what it changes; a site is
// made anew each time.
func TestTemplateSetsWhatItChanges(t *testing.T) {
	t.Parallel()
	made := func(revision int64) *derivation.Record { return &derivation.Record{Template: "t", Revision: revision} }
	tests := map[string]struct {
		why           string
		before, after *derivation.Record
		anew          bool
		want          string
	}{
		"the same template":                  {"the author set the template's value again", made(1), made(1), false, tko.SourceEdit},
		"a template with another value":      {"it set its value", made(2), made(1), false, tko.SourceTemplate},
		"a template with the same value":     {"it didn't change the value, the author set it", made(1), made(3), false, tko.SourceEdit},
		"a template, the former is gone":     {"what it changed isn't known: it has the value", made(9), made(1), false, tko.SourceTemplate},
		"a site, the same template":          {"the value is the template's again", made(1), made(1), true, tko.SourceTemplate},
		"a site, a template with that value": {"likewise", made(1), made(3), true, tko.SourceTemplate},
		"a site, another template":           {"the template has another value", made(1), made(2), true, tko.SourceEdit},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := values{"a/k1": "1"}.pkg()
			p := of(values{"a/k1": "edited"}.pkg(), set)
			p.templates = map[string]krm.Package{"t@1": set, "t@2": values{"a/k1": "2"}.pkg(), "t@3": set}
			for i, made := range []*derivation.Record{test.before, test.after} {
				p.revisions[i].Made, p.revisions[i].MadeKey, p.revisions[i].Anew = made, [32]byte{byte(made.Revision)}, test.anew
			}
			b, err := report(t, p, tko.BlameRequest{Field: path("a/k1")})
			if err != nil || len(b.Origins) != 1 || b.Origins[0].Source != test.want {
				t.Errorf("%+v, %v, want %s: %s", b.Origins, err, test.want, test.why)
			}
		})
	}
}

func TestSourceDependsOnWhatTheRevisionWasMadeFrom(t *testing.T) {
	t.Parallel()
	id := krm.Identity{GVK: krm.ParseGVK("v1", "ConfigMap"), Name: "a"}
	set := values{"a/k1": "1"}.pkg()
	patched := derivation.Step{
		Triggers: []derivation.Trigger{{Resource: krm.Identity{GVK: krm.ParseGVK("x/v1", "One"), Name: "one"}, Plugin: "p", Revision: 4}},
		Patch:    []merge.Change{{Resource: id, Path: []string{"data"}, After: merge.Value{V: map[string]any{"k1": "1"}, Present: true}}},
	}
	two := patched
	two.Triggers = append(slices.Clone(two.Triggers), derivation.Trigger{Resource: two.Triggers[0].Resource, Plugin: "q", Revision: 9})
	other := patched
	other.Patch = []merge.Change{{Resource: id, Path: []string{"data", "k1"}, After: merge.Value{V: "7", Present: true}}}
	tests := map[string]struct {
		why    string
		change func(r *blame.Revision)
		want   tko.Origin
	}{
		"an edit":    {"its author set the value", func(*blame.Revision) {}, tko.Origin{Source: tko.SourceEdit}},
		"a rollout":  {"its edit set the value", func(r *blame.Revision) { r.Rollout = "r" }, tko.Origin{Source: tko.SourceRollout, Rollout: "r"}},
		"a plugin":   {"the step names it", func(r *blame.Revision) { r.Steps = []tko.PreparationStep{{Resource: "x", Plugin: "p"}} }, tko.Origin{Source: tko.SourcePreparation, Resource: "x", Plugin: "p"}},
		"TKO itself": {"a step without a plugin", func(r *blame.Revision) { r.Steps = []tko.PreparationStep{{Resource: "x"}} }, tko.Origin{Source: tko.SourcePreparation, Resource: "x"}},
		"own resource": {
			"of several steps, that of the resource itself without a plugin, if no plugin ran",
			func(r *blame.Revision) {
				r.Steps = []tko.PreparationStep{{Resource: id.String()}, {Resource: "x"}}
			},
			tko.Origin{Source: tko.SourcePreparation, Resource: id.String()},
		},
		"a plugin next to TKO": {
			"steps without a plugin change only the state of their own resource",
			func(r *blame.Revision) {
				r.Steps = []tko.PreparationStep{{Resource: "x", Plugin: "p"}, {Resource: id.String()}}
			},
			tko.Origin{Source: tko.SourcePreparation, Resource: "x", Plugin: "p"},
		},
		"a rollout that prepares": {
			"the record of the derivation says which plugin gave the value, at which revision",
			func(r *blame.Revision) {
				r.Rollout, r.Made = "r", &derivation.Record{Steps: []derivation.Step{patched, other}}
			},
			tko.Origin{Source: tko.SourcePreparation, Rollout: "r", Resource: `x/v1 One "one"`, Plugin: "p", PluginRevision: 4},
		},
		"two plugins at once": {
			"it isn't known which of them gave the value",
			func(r *blame.Revision) {
				r.Rollout, r.Made = "r", &derivation.Record{Steps: []derivation.Step{two}}
			},
			tko.Origin{Source: tko.SourcePreparation, Rollout: "r", Plugin: "p, q"},
		},
		"another value": {
			"a step that gave another value didn't give this one",
			func(r *blame.Revision) {
				r.Rollout, r.Made = "r", &derivation.Record{Steps: []derivation.Step{other}}
			},
			tko.Origin{Source: tko.SourceRollout, Rollout: "r"},
		},
		"a site's template": {
			"a site is made anew from its template by each revision",
			func(r *blame.Revision) {
				r.Made, r.Anew = &derivation.Record{Template: "t", Revision: 1, Whole: [32]byte{1}}, true
			},
			tko.Origin{Source: tko.SourceTemplate, Template: "t", TemplateRevision: 1},
		},
		"a template that is gone": {
			"it can't be compared, so that the author is named",
			func(r *blame.Revision) { r.Made, r.Anew = &derivation.Record{Template: "gone", Revision: 1}, true },
			tko.Origin{Source: tko.SourceEdit},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := of(values{"a/k1": "0"}.pkg(), set)
			p.templates = map[string]krm.Package{"t@1": set}
			test.change(&p.revisions[1])
			b, err := report(t, p, tko.BlameRequest{Field: path("a/k1")})
			if err != nil {
				t.Fatal(err)
			}
			test.want.Revision, test.want.Author, test.want.Time = 2, tko.Author{Who: "author 2"}, time.Time{}
			if diff := cmp.Diff([]tko.Origin{test.want}, b.Origins); diff != "" {
				t.Errorf("%s (-want +got)\n%s", test.why, diff)
			}
		})
	}
}
