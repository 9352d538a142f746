package blame

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// MaxRevisions is the maximum number of revisions that a walk reads.
const MaxRevisions = 1000

// A Revision is a revision of an entity with what was recorded about it.
type Revision struct {
	Number  int64
	UID     string // of the entity
	Time    time.Time
	Author  tko.Author
	Steps   []tko.PreparationStep
	Package krm.Package // as users see it, with the state of a deployment
	Content [32]byte    // digest of all that users see; equal if nothing that they see changed
	// Made is what the package was made from; nil if that isn't known. MadeKey is equal
	// if that is.
	Made    *derivation.Record
	MadeKey [32]byte
	// Anew is true if each revision is made from the template again, as those of sites
	// are.
	Anew bool
	// Rollout wrote the revision, if not "". Restores is the revision that an undo
	// restored; 0 if it isn't one.
	Rollout  tko.RolloutID
	Restores int64
}

// A History reads revisions of one entity, and of templates.
type History interface {
	// Revision returns a revision, or tko.ErrNotFound if it isn't retained or visible.
	Revision(ctx context.Context, number int64) (Revision, error)
	// Template returns the package of a template at a revision, or tko.ErrNotFound.
	Template(ctx context.Context, id tko.TemplateID, revision int64) (krm.Package, error)
	// Upstream returns the history of a template with the revision to begin with; nil if
	// the caller may not read it.
	Upstream(ctx context.Context, id tko.TemplateID, revision int64) (History, Revision, error)
}

// A Field is a leaf of the package with its origin.
type Field struct {
	merge.Leaf

	Origin int // index in the origins
}

// A Walker finds origins. It is for one request.
type Walker struct {
	history History
	types   merge.Types
	bases   map[string]*base
	read    int
}

// New returns a Walker.
func New(history History, types merge.Types) *Walker {
	return &Walker{history: history, types: types, bases: map[string]*base{}}
}

// An open leaf is one whose origin isn't found yet.
type open struct {
	field int // index in the fields
	leaf  merge.Leaf
}

// Walk returns the leaves of a revision that wanted accepts, with their origins, each
// once.
func (w *Walker) Walk(ctx context.Context, newest Revision, wanted func(merge.Leaf) bool) (fields []Field, origins []tko.Origin, err error) {
	var left []open
	for _, leaf := range merge.Leaves(newest.Package, w.types) {
		if wanted == nil || wanted(leaf) {
			left = append(left, open{len(fields), leaf})
			fields = append(fields, Field{Leaf: leaf})
		}
	}
	index := map[originKey]int{}
	settle := func(o open, origin tko.Origin) {
		key := keyOf(origin)
		i, ok := index[key]
		if !ok {
			i = len(origins)
			index[key] = i
			origins = append(origins, origin)
		}
		fields[o.field].Origin = i
	}
	var restored restoration
	for at := newest; len(left) > 0; {
		before, state, err := w.before(ctx, at, true)
		if err != nil {
			return nil, nil, err
		}
		next := left[:0]
		for _, o := range left {
			if state == found && (before.Content == at.Content || merge.Equal(w.at(before, o.leaf), merge.Value{V: o.leaf.Value, Present: true})) {
				next = append(next, o)
				continue
			}
			origin, err := w.origin(ctx, at, before, state, o.leaf)
			if err != nil {
				return nil, nil, err
			}
			settle(o, restored.mark(origin))
		}
		left = next
		if at.Restores != 0 && restored.by == "" {
			restored = restoration{at.Rollout, at.Number}
		}
		at = before
	}
	return fields, origins, nil
}

// A Change is a change of the value at one path.
type Change struct {
	Before, After merge.Value // without confidential values
	Hidden        bool        // there are confidential values
	Origin        tko.Origin
}

// Changes returns the changes of the value at a path, newest first, at most limit of
// them.
func (w *Walker) Changes(ctx context.Context, newest Revision, id krm.Identity, path []string, limit int) ([]Change, error) {
	var out []Change
	leaf := merge.Leaf{Resource: id, Path: path}
	for at := newest; len(out) < limit; {
		before, state, err := w.before(ctx, at, false)
		if err != nil {
			return nil, err
		}
		now, then := w.at(at, leaf), merge.Value{}
		if state == found {
			then = w.at(before, leaf)
		}
		if merge.Equal(now, then) && (state == found || !now.Present) {
			if state != found {
				break
			}
			at = before
			continue
		}
		leaf.Value = now.V
		if !now.Present {
			leaf.Value = absent{}
		}
		c := Change{}
		if c.Origin, err = w.origin(ctx, at, before, state, leaf); err != nil {
			return nil, err
		}
		if at.Restores != 0 {
			c.Origin.RestoredBy, c.Origin.RestoredAt = at.Rollout, at.Number
		}
		var hidden [2]bool
		c.After, hidden[0] = Shown(now, redacted(at.Package.Find(id)), path, w.types)
		c.Before, hidden[1] = Shown(then, redacted(before.Package.Find(id)), path, w.types)
		c.Hidden = hidden[0] || hidden[1]
		out = append(out, c)
		if state != found {
			break
		}
		at = before
	}
	return out, nil
}

// Shown returns a value at a path of a resource for display. redacted is the resource
// without confidential values. hidden is true if the value is, or has, one; then the
// result is null.
func Shown(v merge.Value, redacted krm.Resource, path []string, types merge.Types) (shown merge.Value, hidden bool) {
	if !v.Present {
		return v, false
	}
	if krm.Confidential(v.V, krm.FieldName(path)) || merge.Confidential(redacted.Identity(), path) || !merge.Equal(merge.Lookup(redacted, path, types), v) {
		return merge.Value{Present: true}, true
	}
	return v, false
}

func redacted(r krm.Resource) krm.Resource { return krm.Package{r}.WithoutSecrets()[0] }

// A restoration is the newest undo on the way back.
type restoration struct {
	by tko.RolloutID
	at int64
}

func (r restoration) mark(o tko.Origin) tko.Origin {
	o.RestoredBy, o.RestoredAt = r.by, r.at
	return o
}

// An originKey is what makes origins differ.
type originKey struct {
	source           string
	revision         int64
	template         tko.TemplateID
	templateRevision int64
	resource, plugin string
	restoredAt       int64
	collected        bool
}

func keyOf(o tko.Origin) originKey {
	return originKey{o.Source, o.Revision, o.Template, o.TemplateRevision, o.Resource, o.Plugin, o.RestoredAt, o.Collected}
}

// A state says whether there is a revision before.
type state int

const (
	found state = iota
	first       // it is the first one of the entity
	lost        // it isn't retained, or not visible
)

// before returns the revision before another one; with restored, the revision that an
// undo restored.
func (w *Walker) before(ctx context.Context, at Revision, restored bool) (Revision, state, error) {
	number := at.Number - 1
	restored = restored && at.Restores != 0 && at.Restores < at.Number
	if restored {
		number = at.Restores
	}
	if number == 0 {
		return Revision{}, first, nil
	}
	w.read++
	if w.read > MaxRevisions {
		return Revision{}, lost, nil
	}
	if err := ctx.Err(); err != nil {
		return Revision{}, lost, err
	}
	before, err := w.history.Revision(ctx, number)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return Revision{}, lost, nil
	case err != nil:
		return Revision{}, lost, err
	case before.UID != at.UID && !restored: // an earlier entity of the same ID; an undo restores it
		return Revision{}, first, nil
	}
	return before, found, nil
}

func (w *Walker) at(r Revision, leaf merge.Leaf) merge.Value {
	return merge.Lookup(r.Package.Find(leaf.Resource), leaf.Path, w.types)
}

// origin returns the origin of a leaf that the revision before doesn't have, or has with
// another value. A leaf with an absent value is one that the revision removed.
func (w *Walker) origin(ctx context.Context, at, before Revision, was state, leaf merge.Leaf) (tko.Origin, error) {
	o := tko.Origin{Source: tko.SourceEdit, Revision: at.Number, Time: at.Time, Author: at.Author, Rollout: at.Rollout}
	switch {
	case was == lost:
		o.Source, o.Collected = tko.SourceUnknown, true
		return o, nil
	case was == first:
		o.Source = tko.SourceCreation
	case at.Rollout != "":
		o.Source = tko.SourceRollout
	}
	if by, ok := stepOf(at, leaf, w.types); ok {
		o.Source, o.Resource, o.Plugin, o.PluginRevision = tko.SourcePreparation, by.resource, by.plugin, by.revision
		return o, nil
	}
	source, err := w.baseOf(ctx, at, before, was, leaf)
	if err != nil {
		return o, err
	}
	switch source {
	case tko.SourceTemplate:
		o.Source, o.Template, o.TemplateRevision = source, at.Made.Template, at.Made.Revision
	case tko.SourceMerge:
		o.Source = source
	}
	return o, nil
}

// A base is what a template and the creation's merge give.
type base struct {
	template krm.Package
	merged   krm.Package // nil if the package was made in another way
	missing  bool        // the template's revision isn't retained
}

// baseFor returns the base of a derivation, or nil if it isn't known.
func (w *Walker) baseFor(ctx context.Context, made *derivation.Record, key [32]byte) (*base, error) {
	if made == nil || made.Template == "" || made.Revision == 0 {
		return nil, nil //nolint:nilnil // it isn't known
	}
	name := fmt.Sprintf("%s %d %x", made.Template, made.Revision, key)
	if b, ok := w.bases[name]; ok {
		return b, nil
	}
	b := &base{}
	template, err := w.history.Template(ctx, made.Template, made.Revision)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		b.missing = true
	case err != nil:
		return nil, err
	default:
		b.template = template
		if made.Whole == ([32]byte{}) {
			if b.merged, err = krm.Merge(template, made.Merge); err != nil {
				b.missing = true
			}
		}
	}
	w.bases[name] = b
	return b, nil
}

// baseOf returns the source of a leaf in the base, or "" if the base didn't give the
// leaf at this revision.
func (w *Walker) baseOf(ctx context.Context, at, before Revision, was state, leaf merge.Leaf) (string, error) {
	if was == found && !at.Anew && sameBase(at, before) {
		return "", nil // the author of the revision set the value
	}
	b, err := w.baseFor(ctx, at.Made, at.MadeKey)
	if err != nil || b == nil || b.missing {
		return "", err
	}
	value := valueOf(leaf)
	if was == found && !at.Anew { // what an upgrade doesn't change it doesn't set
		old, err := w.baseFor(ctx, before.Made, before.MadeKey)
		if err != nil {
			return "", err
		}
		if old != nil && !old.missing && old.merged != nil && merge.Equal(lookup(old.merged, leaf, w.types), value) {
			return "", nil
		}
	}
	switch {
	case b.merged != nil && !merge.Equal(lookup(b.merged, leaf, w.types), value):
		return "", nil
	case merge.Equal(lookup(b.template, leaf, w.types), value):
		return tko.SourceTemplate, nil
	case b.merged != nil:
		return tko.SourceMerge, nil
	}
	return "", nil
}

func lookup(p krm.Package, leaf merge.Leaf, types merge.Types) merge.Value {
	return merge.Lookup(p.Find(leaf.Resource), leaf.Path, types)
}

// absent is the value of a leaf that was removed.
type absent struct{}

func valueOf(leaf merge.Leaf) merge.Value {
	if leaf.Value == any(absent{}) {
		return merge.Value{}
	}
	return merge.Value{V: leaf.Value, Present: true}
}

// sameBase reports whether two revisions were made from the same template and merge.
func sameBase(a, b Revision) bool {
	switch {
	case a.Made == nil || b.Made == nil:
		return a.Made == nil
	case a.MadeKey == b.MadeKey:
		return true
	}
	return a.Made.Template == b.Made.Template && a.Made.Revision == b.Made.Revision && a.Made.Whole == b.Made.Whole &&
		slices.EqualFunc(a.Made.Merge, b.Made.Merge, func(x, y krm.Resource) bool {
			return merge.Equal(merge.Value{V: map[string]any(x), Present: true}, merge.Value{V: map[string]any(y), Present: true})
		})
}

type step struct {
	resource, plugin string
	revision         int64
}

// stepOf returns the step of preparation that gave a leaf at a revision.
func stepOf(at Revision, leaf merge.Leaf, types merge.Types) (by step, ok bool) {
	if len(at.Steps) == 0 && at.Rollout == "" {
		return by, false
	}
	made := newestFirst(at)
	if len(at.Steps) == 0 {
		i := slices.IndexFunc(made, func(s derivation.Step) bool { return touches(s, leaf, types) })
		if i < 0 {
			return by, false
		}
		return ofTriggers(made[i].Triggers, leaf), true
	}
	by = ofSteps(at.Steps, leaf)
	for _, s := range made {
		for _, t := range s.Triggers {
			if by.plugin != "" && t.Plugin == by.plugin {
				by.revision = t.Revision
				return by, true
			}
		}
	}
	return by, true
}

// newestFirst returns the recorded steps of a revision.
func newestFirst(at Revision) []derivation.Step {
	if at.Made == nil {
		return nil
	}
	steps := slices.Clone(at.Made.Steps)
	slices.Reverse(steps)
	return steps
}

// touches reports whether a step gave a leaf its value.
func touches(s derivation.Step, leaf merge.Leaf, types merge.Types) bool {
	for _, c := range s.Patch {
		if c.Resource != leaf.Resource || c.Order || len(c.Path) > len(leaf.Path) || !slices.Equal(c.Path, leaf.Path[:len(c.Path)]) {
			continue
		}
		if merge.Equal(merge.LookupIn(c.After, leaf.Resource.GVK, c.Path, leaf.Path[len(c.Path):], types), valueOf(leaf)) {
			return true
		}
	}
	return false
}

// ofSteps returns which of the steps of a revision gave a leaf. At most one of them ran
// plugins; the others changed only the resource that they prepared.
func ofSteps(steps []tko.PreparationStep, leaf merge.Leaf) step {
	name := leaf.Resource.String()
	by := step{resource: steps[len(steps)-1].Resource}
	for _, s := range steps {
		if s.Plugin != "" {
			by = step{resource: s.Resource, plugin: s.Plugin}
		}
	}
	for _, s := range steps {
		if s.Plugin == "" && s.Resource == name && (by.plugin == "" || leaf.Path[0] == "status" || len(leaf.Path) == 3 && leaf.Path[2] == krm.AnnotationPrepared) {
			return step{resource: s.Resource}
		}
	}
	return by
}

func ofTriggers(triggers []derivation.Trigger, leaf merge.Leaf) step {
	var plugins []string
	var by step
	for _, t := range triggers {
		if t.Resource == leaf.Resource && t.Plugin == "" {
			return step{resource: t.Resource.String()}
		}
		if t.Plugin != "" && !slices.Contains(plugins, t.Plugin) {
			plugins = append(plugins, t.Plugin)
			by.resource, by.revision = t.Resource.String(), t.Revision
		}
	}
	if len(plugins) == 0 && len(triggers) > 0 {
		return step{resource: triggers[0].Resource.String()}
	}
	by.plugin = strings.Join(plugins, ", ")
	if len(plugins) != 1 || len(triggers) > 1 {
		by.resource = ""
	}
	if len(plugins) != 1 {
		by.revision = 0
	}
	return by
}
