package blame_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/blame"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// types know that environment variables have names.
var types = derivation.TypesOf()

// A past is the history of one entity.
type past struct {
	revisions []blame.Revision // from 1
	oldest    int64            // that is retained
	templates map[string]krm.Package
	upstream  map[string]*past
	read      int
	err       error
}

func (p *past) Revision(_ context.Context, number int64) (blame.Revision, error) {
	p.read++
	if p.err != nil {
		return blame.Revision{}, p.err
	}
	if number < p.oldest || number < 1 || number > int64(len(p.revisions)) {
		return blame.Revision{}, tko.Errorf(tko.ErrNotFound, "revision %d isn't retained", number)
	}
	return p.revisions[number-1], nil
}

func (p *past) Template(_ context.Context, id tko.TemplateID, revision int64) (krm.Package, error) {
	if t, ok := p.templates[fmt.Sprint(id, "@", revision)]; ok {
		return t, nil
	}
	return nil, tko.Errorf(tko.ErrNotFound, "template %q isn't retained", id)
}

func (p *past) Upstream(_ context.Context, id tko.TemplateID, revision int64) (blame.History, blame.Revision, error) {
	up, ok := p.upstream[string(id)]
	if !ok {
		return nil, blame.Revision{}, nil
	}
	return up, up.revisions[revision-1], nil
}

func (p *past) newest() blame.Revision { return p.revisions[len(p.revisions)-1] }

// values are those of a package, by field: "a/k1" is a key of the ConfigMap "a", "nf/e1" a
// variable of a workload.
type values map[string]string

func configMap(name string, data map[string]any) krm.Resource {
	return krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data}
}

func (v values) pkg() krm.Package {
	data := map[string]map[string]any{}
	var env []any
	for _, field := range slices.Sorted(maps.Keys(v)) {
		name, key, _ := strings.Cut(field, "/")
		if name == "nf" {
			env = append(env, map[string]any{"name": key, "value": v[field]})
			continue
		}
		if data[name] == nil {
			data[name] = map[string]any{}
		}
		data[name][key] = v[field]
	}
	var p krm.Package
	for _, name := range slices.Sorted(maps.Keys(data)) {
		p = append(p, configMap(name, data[name]))
	}
	if len(env) > 0 {
		p = append(p, krm.Resource{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "nf"},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "env": env}}}}},
		})
	}
	return p
}

// path returns a field as users name it.
func path(field string) string {
	name, key, _ := strings.Cut(field, "/")
	if name == "nf" {
		return fmt.Sprintf(`apps/v1 Deployment "nf" spec.template.spec.containers[name=main].env[name=%s].value`, key)
	}
	return fmt.Sprintf(`v1 ConfigMap %q data.%s`, name, key)
}

// fieldOf is the reverse of path; "" for other places in packages.
func fieldOf(resource, path string) string {
	if name, ok := strings.CutPrefix(resource, "v1 ConfigMap "); ok {
		if key, ok := strings.CutPrefix(path, "data."); ok {
			return strings.Trim(name, `"`) + "/" + key
		}
	}
	if key, ok := strings.CutPrefix(path, "spec.template.spec.containers[name=main].env[name="); ok && strings.HasSuffix(key, "].value") {
		return "nf/" + strings.TrimSuffix(key, "].value")
	}
	return ""
}

// An origin is what the model expects of a field.
type origin struct {
	Source   string
	Revision int64
	Of       string // the author, the template or the plugin
	Restored string // by which undo, and at which revision
	Lost     bool
}

// A model is an entity that goes forward: it knows what each of its steps sets.
type model struct {
	t     *rapid.T
	past  *past
	uid   int
	now   values
	set   map[string]origin
	sets  []map[string]origin // by revision, from 1
	all   []values            // likewise
	from  []int64             // the revision that each one was made from; 0: none
	base  values              // of the template and merge
	templ values
	made  *derivation.Record
	plug  int64 // revision of the plugin
}

func (m *model) draw() values {
	v := values{"a/always": "x"}
	for _, field := range []string{"a/k1", "a/k2", "b/k1", "nf/e1", "nf/e2", "nf/e3"} {
		if n := rapid.IntRange(0, 3).Draw(m.t, field); n > 0 {
			v[field] = strconv.Itoa(n)
		}
	}
	return v
}

// edited returns the current values with some changes.
func (m *model) edited() values {
	v, other := maps.Clone(m.now), m.draw()
	for _, field := range []string{"a/k1", "a/k2", "b/k1", "nf/e1", "nf/e2", "nf/e3"} {
		if !rapid.Bool().Draw(m.t, "change "+field) {
			continue
		}
		if value, ok := other[field]; ok {
			v[field] = value
		} else {
			delete(v, field)
		}
	}
	return v
}

// add adds a revision. The values that it changes get the origin that of returns.
func (m *model) add(r blame.Revision, to values, of func(field string) origin) {
	r.Number = int64(len(m.past.revisions)) + 1
	r.UID, r.Package, r.Made = strconv.Itoa(m.uid), to.pkg(), m.made
	if m.made != nil {
		r.MadeKey = sha256.Sum256(fmt.Append(nil, m.made.Template, m.made.Revision, len(m.made.Steps)))
	}
	r.Content = sha256.Sum256(fmt.Append(nil, to))
	r.Time = time.Unix(r.Number, 0)
	from := r.Number - 1
	if r.Restores != 0 {
		from = r.Restores
	}
	if len(m.past.revisions) == 0 || m.past.newest().UID != r.UID && r.Restores == 0 {
		from = 0
	}
	set := map[string]origin{}
	for field, value := range to {
		if was, ok := m.now[field]; ok && was == value {
			set[field] = m.set[field]
			continue
		}
		o := of(field)
		o.Revision = r.Number
		set[field] = o
	}
	m.now, m.set = to, set
	m.past.revisions, m.sets, m.all, m.from = append(m.past.revisions, r), append(m.sets, set), append(m.all, to), append(m.from, from)
}

func (m *model) author() tko.Author {
	return tko.Author{Who: rapid.SampledFrom([]string{"ann", "bob"}).Draw(m.t, "author")}
}

// template registers a template, from which the entity is made, with a merge that only has
// the ConfigMap "m".
func (m *model) template() {
	m.templ = m.draw()
	merged := values{"m/k1": rapid.SampledFrom([]string{"1", "2"}).Draw(m.t, "merged")}
	if m.made != nil {
		merged = values{"m/k1": fmt.Sprint(m.made.Merge[0]["data"].(map[string]any)["k1"])}
	}
	revision := int64(len(m.past.templates) + 1)
	m.past.templates[fmt.Sprint("t@", revision)] = m.templ.pkg()
	m.made = &derivation.Record{Template: "t", Revision: revision, Merge: merged.pkg()}
	m.base = maps.Clone(m.templ)
	maps.Copy(m.base, merged)
}

// given returns the origin of a field that a template and a merge may have given.
func (m *model) given(field, value, otherwise, author string, before values) origin {
	switch was, had := before[field]; {
	case m.base[field] != value, had && was == value:
		return origin{Source: otherwise, Of: author}
	case m.templ[field] == value:
		return origin{Source: tko.SourceTemplate, Of: fmt.Sprint("t@", m.made.Revision)}
	}
	return origin{Source: tko.SourceMerge, Of: author}
}

func (m *model) create() {
	m.uid++
	m.now, m.set = nil, nil
	by := m.author()
	m.made = nil
	if rapid.Bool().Draw(m.t, "from a template") {
		m.template()
		to := maps.Clone(m.base)
		if rapid.Bool().Draw(m.t, "changed at once") {
			to["a/k1"] = "4"
		}
		m.add(blame.Revision{Author: by}, to, func(field string) origin { return m.given(field, to[field], tko.SourceCreation, by.Who, nil) })
		return
	}
	m.add(blame.Revision{Author: by}, m.draw(), func(string) origin { return origin{Source: tko.SourceCreation, Of: by.Who} })
}

func (m *model) edit() {
	by := m.author()
	m.add(blame.Revision{Author: by}, m.edited(), func(string) origin { return origin{Source: tko.SourceEdit, Of: by.Who} })
}

// touch writes a revision with the same package.
func (m *model) touch() { m.add(blame.Revision{Author: m.author()}, m.now, nil) }

func (m *model) rollout() {
	by := m.author()
	m.add(blame.Revision{Author: by, Rollout: "r"}, m.edited(), func(string) origin { return origin{Source: tko.SourceRollout, Of: by.Who} })
}

// upgrade changes the template by a rollout.
func (m *model) upgrade() {
	if m.made == nil {
		return
	}
	before, by := m.base, m.author()
	m.template()
	to := m.edited()
	for field, value := range m.base {
		if rapid.Bool().Draw(m.t, "upgraded") {
			to[field] = value
		}
	}
	m.add(blame.Revision{Author: by, Rollout: "u"}, to, func(field string) origin { return m.given(field, to[field], tko.SourceRollout, by.Who, before) })
}

func (m *model) prepare() {
	m.plug++
	to := m.edited()
	to["p/always"] = "x"
	const trigger = `x/v1 One "one"`
	if m.made != nil {
		again := *m.made
		again.Steps = append(slices.Clone(again.Steps), derivation.Step{Triggers: []derivation.Trigger{{
			Resource: krm.Identity{GVK: krm.ParseGVK("x/v1", "One"), Name: "one"}, Plugin: "p", Revision: m.plug,
		}}})
		m.made = &again
	}
	of := trigger + " p@0"
	if m.made != nil {
		of = fmt.Sprint(trigger, " p@", m.plug)
	}
	m.add(blame.Revision{Author: tko.Author{Who: "preparer"}, Steps: []tko.PreparationStep{{Resource: trigger, Plugin: "p"}}}, to, func(string) origin {
		return origin{Source: tko.SourcePreparation, Of: of}
	})
}

// undo restores a revision, also one of an earlier entity of the same ID, sometimes with a
// change.
func (m *model) undo() {
	n := rapid.Int64Range(1, int64(len(m.all))).Draw(m.t, "restores")
	restored := m.past.revisions[n-1]
	if restored.UID != strconv.Itoa(m.uid) || rapid.IntRange(0, 3).Draw(m.t, "deleted before") == 0 {
		m.uid++ // what was deleted is created again
	}
	m.made, m.now, m.set = restored.Made, m.all[n-1], map[string]origin{}
	m.base, m.templ = values{}, values{} // upgrades from here on are from what the record says
	if m.made != nil {
		m.templ = values{}
		for field := range allFields(m.past.templates[fmt.Sprint("t@", m.made.Revision)]) {
			m.templ[field] = allFields(m.past.templates[fmt.Sprint("t@", m.made.Revision)])[field]
		}
		m.base = maps.Clone(m.templ)
		maps.Copy(m.base, allFields(m.made.Merge))
	}
	id := tko.RolloutID("undo" + strconv.Itoa(len(m.all)))
	for field, o := range m.sets[n-1] {
		o.Restored = fmt.Sprint(id, "@", len(m.all)+1)
		m.set[field] = o
	}
	to, by := m.now, m.author()
	if rapid.IntRange(0, 3).Draw(m.t, "and more") == 0 {
		to = m.edited()
	}
	m.add(blame.Revision{Author: by, Rollout: id, Restores: n}, to, func(string) origin { return origin{Source: tko.SourceRollout, Of: by.Who} })
}

// allFields returns the values of a package.
func allFields(p krm.Package) values {
	v := values{}
	for _, l := range merge.Leaves(p, types) {
		if field := fieldOf(l.Resource.String(), merge.PathText(l.Path)); field != "" {
			v[field] = fmt.Sprint(l.Value)
		}
	}
	return v
}

// chain returns the revisions that the values of a revision come through, newest first. If
// the one before an entity's first isn't retained, it may be the same entity's.
func (m *model) chain(newest, oldest int64) []int64 {
	var list []int64
	for n := newest; n != 0; n = m.from[n-1] {
		list = append(list, n)
		if m.from[n-1] == 0 && n > 1 && n <= oldest {
			return append(list, n-1)
		}
	}
	return list
}

// expected returns the origins as of a revision, while older ones than oldest are gone.
func (m *model) expected(newest, oldest int64) map[string]origin {
	chain := m.chain(newest, oldest)
	last := slices.IndexFunc(chain, func(n int64) bool { return n != chain[0] && n < oldest })
	out := map[string]origin{}
	for field, o := range m.sets[newest-1] {
		out[field] = o
		if last < 0 || slices.Index(chain, o.Revision) < last-1 {
			continue
		}
		lost := origin{Source: tko.SourceUnknown, Revision: chain[last-1], Of: m.past.revisions[chain[last-1]-1].Author.Who, Lost: true}
		for _, n := range chain[:last-1] {
			if r := m.past.revisions[n-1]; r.Restores != 0 {
				lost.Restored = fmt.Sprint(r.Rollout, "@", n)
				break
			}
		}
		out[field] = lost
	}
	return out
}

func originOf(o tko.Origin) origin {
	of := o.Author.Who
	switch o.Source {
	case tko.SourceTemplate:
		of = fmt.Sprint(o.Template, "@", o.TemplateRevision)
	case tko.SourcePreparation:
		of = fmt.Sprint(o.Resource, " ", o.Plugin, "@", o.PluginRevision)
	}
	out := origin{Source: o.Source, Revision: o.Revision, Of: of, Lost: o.Collected}
	if o.RestoredBy != "" {
		out.Restored = fmt.Sprint(o.RestoredBy, "@", o.RestoredAt)
	}
	return out
}

func newModel(t *rapid.T) *model {
	m := &model{t: t, past: &past{templates: map[string]krm.Package{}, oldest: 1}}
	m.create()
	steps := []func(){m.edit, m.edit, m.edit, m.touch, m.rollout, m.upgrade, m.prepare, m.undo, m.undo, m.create}
	for range rapid.IntRange(0, 12).Draw(t, "steps") {
		rapid.SampledFrom(steps).Draw(t, "step")()
	}
	return m
}

// TestOriginsAreThoseOfTheModel generates histories of edits, templates, preparation,
// rollouts, undos and deletions, and compares the origin of each field with that of a model
// which goes forward, with all of the past and with a part of it.
func TestOriginsAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		newest := rapid.Int64Range(1, int64(len(m.all))).Draw(t, "newest")
		m.past.oldest = rapid.Int64Range(1, newest).Draw(t, "oldest")
		if rapid.Bool().Draw(t, "all") {
			m.past.oldest = 1
		}
		at := m.past.revisions[newest-1]
		fields, origins, err := blame.New(m.past, types).Walk(t.Context(), at, nil)
		if err != nil {
			t.Fatal(err)
		}
		if leaves := merge.Leaves(at.Package, types); len(leaves) != len(fields) {
			t.Fatalf("%d fields of %d have an origin", len(fields), len(leaves))
		}
		got, used := map[string]origin{}, map[int]bool{}
		for _, f := range fields {
			used[f.Origin] = true
			if field := fieldOf(f.Resource.String(), merge.PathText(f.Path)); field != "" {
				got[field] = originOf(origins[f.Origin])
			}
		}
		if diff := cmp.Diff(m.expected(newest, m.past.oldest), got); diff != "" {
			t.Fatalf("origins as of %d, of what is retained since %d (-want +got)\n%s\n%s", newest, m.past.oldest, diff, m)
		}
		if len(used) != len(origins) {
			t.Fatalf("%d of %d origins are of a field", len(used), len(origins))
		}
		for i, o := range origins {
			if slices.Index(origins, o) != i {
				t.Fatalf("the origin %+v is there twice", o)
			}
		}
	})
}

// String returns the revisions, for a failure.
func (m *model) String() string {
	var text strings.Builder
	for i, r := range m.past.revisions {
		fmt.Fprintf(&text, "%d: uid %s by %s, rollout %q, restores %d, %d steps, %v\n", r.Number, r.UID, r.Author.Who, r.Rollout, r.Restores, len(r.Steps), m.all[i])
	}
	return text.String()
}

// A seen is a change of a field that a model expects.
type seen struct {
	Before, After string
	Revision      int64
	Lost          bool
	Restored      string
}

// TestChangesOfAFieldAreThoseOfTheModel compares the history of each field with its values
// in each revision: other than origins, it goes through all revisions of the entity.
func TestChangesOfAFieldAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		newest := int64(len(m.all))
		m.past.oldest = rapid.Int64Range(1, newest).Draw(t, "oldest")
		field := rapid.SampledFrom([]string{"a/k1", "b/k1", "nf/e1"}).Draw(t, "field")
		quoted := func(n int64) string {
			if n == 0 || m.all[n-1][field] == "" {
				return ""
			}
			return strconv.Quote(m.all[n-1][field])
		}
		var want []seen
		exists := false
		for n := newest; n > 0; n-- {
			r := m.past.revisions[n-1]
			first := n == 1 || m.past.revisions[n-2].UID != r.UID && n > m.past.oldest
			lost := !first && n <= m.past.oldest
			exists = exists || quoted(n) != ""
			before := n - 1
			if first || lost {
				before = 0
			}
			if quoted(n) != quoted(before) {
				s := seen{Before: quoted(before), After: quoted(n), Revision: n, Lost: lost}
				if r.Restores != 0 {
					s.Restored = fmt.Sprint(r.Rollout, "@", n)
				}
				want = append(want, s)
			}
			if before == 0 {
				break
			}
		}
		b, err := blame.Report(t.Context(), m.past, m.past.newest(), types, tko.BlameRequest{Kind: tko.KindDeployment, ID: "d", Field: path(field), History: true})
		if !exists {
			if !errors.Is(err, tko.ErrNotFound) {
				t.Fatalf("a field that no revision has: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []seen
		for _, c := range b.Changes {
			o := originOf(c.Origin)
			got = append(got, seen{c.Before, c.After, o.Revision, o.Lost, o.Restored})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("changes of %s, of what is retained since %d (-want +got)\n%s\n%s", field, m.past.oldest, diff, m)
		}
	})
}
