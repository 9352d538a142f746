package merge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Version is the version of the merge rules. A plan records it, because packages
// merged by other rules may differ.
const Version = 1

// A Policy decides conflicts.
type Policy string

// The policies.
const (
	Fail       Policy = "Fail"       // the merge is blocked
	KeepTheirs Policy = "KeepTheirs" // the current value stays
	TakeEdit   Policy = "TakeEdit"   // the value of the edit replaces it
)

// Sides are the inputs of a merge. They aren't changed; a result shares unchanged parts
// with them.
type Sides struct {
	Base    krm.Package // what the current package was made from
	Edit    krm.Package // what Base has become
	Current krm.Package // what the package is now
}

// A Value is a value that may be missing. Missing and null are different.
type Value struct {
	V       any
	Present bool
}

// A Conflict is a field, list, or resource that the edit and the current package
// changed differently.
type Conflict struct {
	Resource krm.Identity // as in Current, else Edit, else Base
	// Path is the path in the resource: keys of maps, and elements of lists by their
	// keys ("[name=smf]"). It is empty for the whole resource. The order of a list has
	// the path of the list, and Order is true.
	Path                []string
	Order               bool
	Reason              string
	Base, Edit, Current Value
	Secret              bool // the values are confidential: Show and String hide them
}

// A Note is a remark for users about a merge that has no conflict in that place.
type Note struct {
	Resource krm.Identity
	Path     []string
	Text     string
}

// A Result is the outcome of a merge.
type Result struct {
	// Package has the edit applied. In conflicts it has the values that the policy
	// takes, and the current ones with Fail.
	Package   krm.Package
	Conflicts []Conflict // in the order of identities and paths
	Notes     []Note     // in the same order
	Blocked   bool       // there are conflicts and the policy is Fail
}

// Packages merges packages. Resources are matched by group, kind and name; the order
// is that of Current, with new ones after their predecessor in Edit. Types may be nil.
// An unknown policy, and a side that has two resources of one identity, is an
// [tko.ErrInvalid].
func Packages(s Sides, types Types, policy Policy) (Result, error) {
	if policy != Fail && policy != KeepTheirs && policy != TakeEdit {
		return Result{}, tko.Errorf(tko.ErrInvalid, "conflicts %q: use Fail, KeepTheirs or TakeEdit", policy)
	}
	m := merger{types: types, policy: policy}
	exact := map[name]bool{}
	for _, side := range []krm.Package{s.Base, s.Edit, s.Current} {
		noteVersions(side, exact)
	}
	base, err := index("base", s.Base, exact)
	if err != nil {
		return Result{}, err
	}
	edit, err := index("edit", s.Edit, exact)
	if err != nil {
		return Result{}, err
	}
	current, err := index("current", s.Current, exact)
	if err != nil {
		return Result{}, err
	}
	merged := map[name]krm.Resource{}
	for _, n := range allNames(base, edit, current) {
		if r, ok := m.resource(base.value(n), edit.value(n), current.value(n)); ok {
			merged[n] = r
		}
	}
	order, _ := arrange(base.order, edit.order, current.order, func(n name) bool { _, ok := merged[n]; return ok })
	result := Result{Package: make(krm.Package, 0, len(order)), Conflicts: m.conflicts, Notes: m.notes}
	for _, n := range order {
		result.Package = append(result.Package, merged[n])
	}
	result.Blocked = policy == Fail && len(m.conflicts) > 0
	return result, nil
}

// A name is the identity of a resource in a merge.
type name struct {
	group, kind, name string
	version           string // only if a side has several versions of the resource
}

func compareNames(a, b name) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version))
}

func nameOf(r krm.Resource) name {
	id := r.Identity()
	return name{group: id.Group, kind: id.Kind, name: id.Name}
}

// noteVersions adds the names that a package has more than once: their versions tell
// them apart.
func noteVersions(p krm.Package, exact map[name]bool) {
	seen := map[name]bool{}
	for _, r := range p {
		n := nameOf(r)
		if seen[n] {
			exact[n] = true
		}
		seen[n] = true
	}
}

type indexed struct {
	order  []name
	byName map[name]krm.Resource
}

func index(side string, p krm.Package, exact map[name]bool) (indexed, error) {
	x := indexed{byName: make(map[name]krm.Resource, len(p))}
	for _, r := range p {
		n := nameOf(r)
		if exact[n] {
			n.version = r.GVK().Version
		}
		if _, ok := x.byName[n]; ok {
			return indexed{}, tko.Errorf(tko.ErrInvalid, "merge: the %s package has two resources %s: remove one", side, r.Identity())
		}
		x.byName[n] = r
		x.order = append(x.order, n)
	}
	return x, nil
}

func (x indexed) value(n name) Value {
	r, ok := x.byName[n]
	return Value{V: map[string]any(r), Present: ok}
}

func allNames(sides ...indexed) []name {
	all := map[name]bool{}
	for _, s := range sides {
		for _, n := range s.order {
			all[n] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), compareNames)
}

// A merger collects the conflicts of one merge.
type merger struct {
	types     Types
	policy    Policy
	conflicts []Conflict
	notes     []Note

	at    krm.Identity
	sides []Value // of the resource
}

// resource merges a resource. It is false if the result doesn't have the resource.
func (m *merger) resource(b, e, c Value) (r krm.Resource, ok bool) {
	var versions []string
	m.sides = []Value{b, e, c}
	for _, v := range m.sides { // the last one that is present names the resource
		if v.Present {
			m.at = krm.Resource(asMap(v)).Identity()
			versions = append(versions, m.at.Version)
		}
	}
	var merged Value
	switch settled, v := trivial(b, e, c); {
	case settled:
		merged = v
	case !b.Present:
		merged = m.conflict(Conflict{Reason: "the edit and another change add different resources", Base: b, Edit: e, Current: c})
	case !e.Present:
		merged = m.conflict(Conflict{Reason: "the edit removes the resource, which was changed", Base: b, Edit: e, Current: c})
	case !c.Present:
		merged = m.conflict(Conflict{Reason: "the edit changes the resource, which was removed", Base: b, Edit: e, Current: c})
	case len(slices.Compact(versions)) > 1:
		merged = m.conflict(Conflict{Reason: "the version of the resource changes, and fields are not converted", Base: b, Edit: e, Current: c})
	default:
		merged = m.value(nil, typeOf(m.types, m.at.GVK), b, e, c)
	}
	if !merged.Present {
		return nil, false
	}
	return krm.Resource(asMap(merged)), true
}

func asMap(v Value) map[string]any {
	m, _ := v.V.(map[string]any)
	return m
}

// trivial merges values of which at most one side changed, or both equally.
func trivial(b, e, c Value) (settled bool, v Value) {
	switch {
	case Equal(c, b):
		return true, e
	case Equal(e, b), Equal(c, e):
		return true, c
	}
	return false, Value{}
}

// value merges the values at a path.
func (m *merger) value(path []string, t *Type, b, e, c Value) Value {
	if settled, v := trivial(b, e, c); settled {
		return v
	}
	if em, cm, ok := both[map[string]any](e, c); ok && (t == nil || !t.atomic) {
		if bm, ok := b.V.(map[string]any); ok || !b.Present {
			return m.fields(path, t, bm, em, cm)
		}
	}
	if el, cl, ok := both[[]any](e, c); ok && t.byKey() {
		if bl, ok := b.V.([]any); ok || !b.Present {
			if v, ok := m.list(path, t, bl, el, cl); ok {
				return v
			}
		}
	}
	return m.conflict(Conflict{Path: path, Reason: reason(b, e, c), Base: b, Edit: e, Current: c})
}

func both[T any](a, b Value) (x, y T, ok bool) {
	x, okX := a.V.(T)
	y, okY := b.V.(T)
	return x, y, okX && okY
}

func reason(b, e, c Value) string {
	switch {
	case !b.Present:
		return "the edit and another change add different values"
	case !e.Present:
		return "the edit removes the value, which was changed"
	case !c.Present:
		return "the edit changes the value, which was removed"
	}
	return "the edit and another change set different values"
}

func (m *merger) fields(path []string, t *Type, b, e, c map[string]any) Value {
	all := map[string]bool{}
	for _, side := range []map[string]any{b, e, c} {
		for key := range side {
			all[key] = true
		}
	}
	out := make(map[string]any, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if v := m.value(append(slices.Clip(path), key), t.field(key), at(b, key), at(e, key), at(c, key)); v.Present {
			out[key] = v.V
		}
	}
	return Value{V: out, Present: true}
}

func at(m map[string]any, key string) Value {
	v, ok := m[key]
	return Value{V: v, Present: ok}
}

// list merges lists by the keys of their elements. It is false if an element has no
// key, or a key occurs twice: the list is then merged as a whole.
func (m *merger) list(path []string, t *Type, b, e, c []any) (merged Value, ok bool) {
	var orders [3][]string
	var elements [3]map[string]any
	for i, side := range [][]any{b, e, c} {
		elements[i] = make(map[string]any, len(side))
		for _, element := range side {
			key, ok := t.keyOf(element)
			if !ok {
				m.note(path, "an element has no key, so the list is merged as a whole")
				return Value{}, false
			}
			if _, twice := elements[i][key]; twice {
				m.note(path, fmt.Sprintf("the key %s occurs twice, so the list is merged as a whole", key))
				return Value{}, false
			}
			elements[i][key] = element
			orders[i] = append(orders[i], key)
		}
	}
	all := map[string]bool{}
	for _, order := range orders {
		for _, key := range order {
			all[key] = true
		}
	}
	result := make(map[string]any, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		v := m.value(append(slices.Clip(path), key), t.items.resolve(), at(elements[0], key), at(elements[1], key), at(elements[2], key))
		if v.Present {
			result[key] = v.V
		}
	}
	present := func(key string) bool { _, ok := result[key]; return ok }
	order, clash := arrange(orders[0], orders[1], orders[2], present)
	if clash && len(path) > 0 && orderMatters[path[len(path)-1]] {
		m.conflict(Conflict{
			Path: path, Order: true, Reason: "the edit and another change order the list differently",
			Base: Value{b, b != nil}, Edit: Value{e, true}, Current: Value{c, true},
		})
		if m.policy == TakeEdit {
			order, _ = arrange(orders[2], orders[2], orders[1], present)
		}
	}
	out := make([]any, 0, len(order))
	for _, key := range order {
		out = append(out, result[key])
	}
	return Value{V: out, Present: true}, true
}

// orderMatters names the lists with keys whose order has a meaning: containers that
// run one after another, and variables that refer to earlier ones.
var orderMatters = map[string]bool{"initContainers": true, "env": true}

// arrange returns the order of the merged elements: that of current, or of the edit if
// only the edit changed the order of what the base has. New elements of the other side
// come after their predecessor there, at the end if no common one follows. clash
// reports that both changed the order, differently; the order is then current's.
func arrange[K comparable](base, edit, current []K, present func(K) bool) (order []K, clash bool) {
	edit, current = filter(edit, present), filter(current, present)
	inBase, inEdit, inCurrent := setOf(base), setOf(edit), setOf(current)
	common := func(list []K) []K {
		return filter(list, func(k K) bool { return inBase[k] && inEdit[k] && inCurrent[k] })
	}
	was, editOrder, currentOrder := common(base), common(edit), common(current)
	first, second := current, edit
	if !slices.Equal(was, editOrder) {
		switch {
		case slices.Equal(was, currentOrder):
			first, second = edit, current
		case !slices.Equal(editOrder, currentOrder):
			clash = true
		}
	}
	inFirst := setOf(first)
	lastCommon := -1
	for i, k := range second {
		if inFirst[k] {
			lastCommon = i
		}
	}
	after := map[K][]K{} // by predecessor in first
	var front, end []K
	var previous *K
	for i, k := range second {
		switch {
		case inFirst[k]:
			previous = &second[i]
		case i > lastCommon:
			end = append(end, k)
		case previous == nil:
			front = append(front, k)
		default:
			after[*previous] = append(after[*previous], k)
		}
	}
	order = make([]K, 0, len(first)+len(second))
	order = append(order, front...)
	for _, k := range first {
		order = append(append(order, k), after[k]...)
	}
	return append(order, end...), clash
}

func filter[K any](list []K, keep func(K) bool) []K {
	out := make([]K, 0, len(list))
	for _, k := range list {
		if keep(k) {
			out = append(out, k)
		}
	}
	return out
}

func setOf[K comparable](list []K) map[K]bool {
	set := make(map[K]bool, len(list))
	for _, k := range list {
		set[k] = true
	}
	return set
}

// conflict reports a conflict of the resource that is being merged, and returns the value that
// the policy takes.
func (m *merger) conflict(c Conflict) Value {
	c.Resource, c.Path, c.Secret = m.at, slices.Clone(c.Path), m.secretAt(c.Path)
	m.conflicts = append(m.conflicts, c)
	if m.policy == TakeEdit {
		return c.Edit
	}
	return c.Current
}

// secretAt reports whether the values at a path of the resource are confidential, also in
// a Secret inside of it.
func (m *merger) secretAt(path []string) bool {
	return secretAt(m.at, path) || slices.ContainsFunc(m.sides, func(r Value) bool { return inSecret(r, typeOf(m.types, m.at.GVK), path) })
}

func (m *merger) note(path []string, text string) {
	m.notes = append(m.notes, Note{Resource: m.at, Path: slices.Clone(path), Text: text})
}

// secretAt reports whether the values at a path of a resource are confidential, by the
// resource and by their name.
func secretAt(id krm.Identity, path []string) bool {
	if krm.NamesPassword(krm.FieldName(path)) {
		return true
	}
	return id.Group == "" && id.Kind == "Secret" && krm.ConfidentialAt(path)
}

// inSecret reports whether the values at a path of a resource are those of a Secret inside
// of it.
func inSecret(r Value, t *Type, path []string) bool {
	for n := 1; n < len(path); n++ {
		if inner := lookupIn(r.V, t, path[:n]); inner.Present && krm.IsSecret(inner.V) && krm.ConfidentialAt(path[n:]) {
			return true
		}
	}
	return false
}

// Equal reports whether two values are the same: of the same types, too.
func Equal(a, b Value) bool {
	return a.Present == b.Present && (!a.Present || equal(a.V, b.V))
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		if reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() { // packages share unchanged parts
			return true
		}
		for key, v := range a {
			if w, ok := b[key]; !ok || !equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if ok && len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] {
			return true
		}
		return ok && slices.EqualFunc(a, b, equal)
	case float64:
		b, ok := b.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

// String returns, for example, `apps/v1 Deployment "smf": spec.replicas: the edit and
// another change set different values (was 1, edit 2, current 3)`.
func (c Conflict) String() string {
	base, edit, current := c.Show()
	where := c.Resource.String()
	if len(c.Path) > 0 {
		where += ": " + PathText(c.Path)
	}
	return fmt.Sprintf("%s: %s (was %s, edit %s, current %s)", where, c.Reason, base, edit, current)
}

// Show returns the values for display: short JSON, "hidden" if they are confidential,
// "missing".
func (c Conflict) Show() (base, edit, current string) {
	return c.show(c.Base), c.show(c.Edit), c.show(c.Current)
}

func (c Conflict) show(v Value) string {
	switch {
	case !v.Present:
		return "missing"
	case c.Secret:
		return "hidden"
	case v.V == nil:
		return "null"
	}
	text, _ := krm.Difference{Path: c.Path, A: v.V}.Show("missing")
	return text
}

// String returns the note with its place.
func (n Note) String() string {
	return fmt.Sprintf("%s: %s: %s", n.Resource, PathText(n.Path), n.Text)
}

// PathText returns a path for display: `spec.containers[name=smf].image`.
func PathText(path []string) string {
	var text strings.Builder
	var keys []string
	flush := func() {
		if len(keys) > 0 {
			if text.Len() > 0 {
				text.WriteByte('.')
			}
			text.WriteString(krm.PathText(keys))
			keys = nil
		}
	}
	for _, step := range path {
		if strings.HasPrefix(step, "[") {
			flush()
			text.WriteString(step)
		} else {
			keys = append(keys, step)
		}
	}
	flush()
	return text.String()
}
