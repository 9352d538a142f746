package merge

import (
	"maps"
	"reflect"
	"slices"

	"github.com/tko-orchestrator/tko/krm"
)

// A Change is a value that differs between two packages.
type Change struct {
	Resource krm.Identity // as in the second package, else as in the first
	Path     []string     // as in a Conflict; empty for a resource that is added or removed
	Before   Value
	After    Value
	Order    bool // only the order of the list at the path differs
	Secret   bool // the values are confidential
}

// Differences returns what differs between two packages, in the order of identities and
// paths. Lists with keys are compared by element, other lists as a whole. Resources are
// matched by group, kind, version and name; their order doesn't count. Of several
// resources with one identity the last one counts.
func Differences(a, b krm.Package, types Types) []Change {
	return NewDiffer(types).Differences(a, b)
}

// A Differ compares many packages that share resources: it compares equal pairs of them
// once. It isn't safe for concurrent use.
type Differ struct {
	types Types
	known map[[2]uintptr]pair // by their addresses
}

// A pair is two resources with what differs between them. It keeps them in memory, so that
// no others have their addresses.
type pair struct {
	before, after krm.Resource
	changes       []Change
}

// maxPairs limits the pairs that a Differ knows.
const maxPairs = 1000

// NewDiffer returns a Differ.
func NewDiffer(types Types) *Differ { return &Differ{types: types, known: map[[2]uintptr]pair{}} }

// Differences is the function of that name. The packages and the result must not be
// changed.
func (d *Differ) Differences(a, b krm.Package) []Change {
	before, after := byIdentity(a), byIdentity(b)
	all := maps.Clone(before)
	maps.Copy(all, after)
	var out []Change
	for _, id := range slices.SortedFunc(maps.Keys(all), compareIdentities) {
		x, y := before[id], after[id]
		at := [2]uintptr{reflect.ValueOf(x).Pointer(), reflect.ValueOf(y).Pointer()}
		if at[0] == at[1] {
			continue
		}
		p, ok := d.known[at]
		if !ok {
			p = pair{x, y, differencesOf(id, x, y, d.types)}
			if len(d.known) == maxPairs {
				clear(d.known)
			}
			d.known[at] = p
		}
		out = append(out, p.changes...)
	}
	return out
}

func compareIdentities(x, y krm.Identity) int {
	return compareNames(name{x.Group, x.Kind, x.Name, x.Version}, name{y.Group, y.Kind, y.Name, y.Version})
}

// differencesOf returns what differs between two resources; nil: there is none.
func differencesOf(id krm.Identity, x, y krm.Resource, types Types) []Change {
	var out []Change
	d := differ{id: id, out: &out}
	if (x == nil) != (y == nil) {
		d.add(nil, Value{map[string]any(x), x != nil}, Value{map[string]any(y), y != nil}, false)
	} else {
		d.value(nil, typeOf(types, id.GVK), Value{map[string]any(x), true}, Value{map[string]any(y), true})
	}
	return out
}

func byIdentity(p krm.Package) map[krm.Identity]krm.Resource {
	m := make(map[krm.Identity]krm.Resource, len(p))
	for _, r := range p {
		m[r.Identity()] = r
	}
	return m
}

type differ struct {
	id  krm.Identity
	out *[]Change
	// inner is the length of the path of a Secret inside of the resource; 0 outside of one.
	inner int
}

func (d differ) add(path []string, a, b Value, order bool) {
	*d.out = append(*d.out, Change{Resource: d.id, Path: slices.Clone(path), Before: a, After: b, Order: order, Secret: secretAt(d.id, path) || d.inner > 0 && krm.ConfidentialAt(path[d.inner:])})
}

func (d differ) value(path []string, t *Type, a, b Value) {
	if !Equal(a, b) {
		d.different(path, t, a, b)
	}
}

// different adds what differs between values that aren't equal.
func (d differ) different(path []string, t *Type, a, b Value) {
	if len(path) > 0 && d.inner == 0 && (krm.IsSecret(a.V) || krm.IsSecret(b.V)) {
		d.inner = len(path)
	}
	if am, bm, ok := both[map[string]any](a, b); ok && (t == nil || !t.atomic) {
		var different []string
		for key, v := range am {
			if w, ok := bm[key]; !ok || !equal(v, w) {
				different = append(different, key)
			}
		}
		for key := range bm {
			if _, ok := am[key]; !ok {
				different = append(different, key)
			}
		}
		slices.Sort(different)
		for _, key := range different {
			d.different(append(slices.Clip(path), key), t.field(key), at(am, key), at(bm, key))
		}
		return
	}
	if al, bl, ok := both[[]any](a, b); ok && t.byKey() {
		ak, okA := t.keysOf(al)
		bk, okB := t.keysOf(bl)
		if okA && okB {
			d.list(path, t, keyed{ak, al}, keyed{bk, bl})
			return
		}
	}
	d.add(path, a, b, false)
}

// A keyed is a list whose elements have keys.
type keyed struct {
	keys []string
	list []any
}

// byKey returns the elements by their keys.
func (k keyed) byKey() map[string]any {
	elements := make(map[string]any, len(k.keys))
	for i, key := range k.keys {
		elements[key] = k.list[i]
	}
	return elements
}

func (d differ) list(path []string, t *Type, a, b keyed) {
	before, after := a.byKey(), b.byKey()
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		d.value(append(slices.Clip(path), key), t.items.resolve(), at(before, key), at(after, key))
	}
	inBoth := func(key string) bool {
		_, inA := before[key]
		_, inB := after[key]
		return inA && inB
	}
	if !slices.Equal(filter(a.keys, inBoth), filter(b.keys, inBoth)) {
		d.add(path, Value{a.list, true}, Value{b.list, true}, true)
	}
}

// keysOf returns the keys of a list's elements, or false if one has none, or two are
// equal.
func (t *Type) keysOf(list []any) ([]string, bool) {
	keys := make([]string, 0, len(list))
	seen := make(map[string]bool, len(list))
	for _, element := range list {
		key, ok := t.keyOf(element)
		if !ok || seen[key] {
			return nil, false
		}
		seen[key] = true
		keys = append(keys, key)
	}
	return keys, true
}
