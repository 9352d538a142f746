package merge

import (
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko/krm"
)

// A Leaf is a value that merges treat as a whole: a scalar, an empty map, or a list
// without keys.
type Leaf struct {
	Resource krm.Identity
	Path     []string // as in a Conflict
	Value    any
	Secret   bool // the value is confidential
}

// Leaves returns the leaves of a package, in the order of its resources and of paths;
// elements of lists in their order. Together they are the whole package, except for the
// order of lists with keys. Of several resources with one identity the last one counts.
func Leaves(p krm.Package, types Types) []Leaf {
	var out []Leaf
	for i, r := range p {
		id := r.Identity()
		if slices.ContainsFunc(p[i+1:], func(later krm.Resource) bool { return later.Identity() == id }) {
			continue
		}
		l := leaver{id: id, out: &out}
		l.value(nil, typeOf(types, id.GVK), map[string]any(r))
	}
	return out
}

type leaver struct {
	id  krm.Identity
	out *[]Leaf
}

func (l leaver) value(path []string, t *Type, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 || t != nil && t.atomic {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			l.value(append(slices.Clip(path), key), t.field(key), v[key])
		}
		return
	case []any:
		if len(v) == 0 || !t.byKey() {
			break
		}
		keys, ok := t.keysOf(v)
		if !ok {
			break
		}
		for i, key := range keys {
			l.value(append(slices.Clip(path), key), t.items.resolve(), v[i])
		}
		return
	}
	*l.out = append(*l.out, Leaf{Resource: l.id, Path: slices.Clone(path), Value: v, Secret: secretAt(l.id, path)})
}

// Lookup returns the value at a path of a resource.
func Lookup(r krm.Resource, path []string, types Types) Value {
	if r == nil {
		return Value{}
	}
	return lookupIn(map[string]any(r), typeOf(types, r.GVK()), path)
}

// LookupIn returns the value at a path inside of a value that is at another path of a
// resource of a kind.
func LookupIn(v Value, gvk krm.GVK, at, path []string, types Types) Value {
	if !v.Present {
		return v
	}
	t := typeOf(types, gvk)
	for _, step := range at {
		if t.byKey() {
			t = t.items.resolve()
		} else {
			t = t.field(step)
		}
	}
	return lookupIn(v.V, t, path)
}

func lookupIn(v any, t *Type, path []string) Value {
	for _, step := range path {
		switch node := v.(type) {
		case map[string]any:
			inner, ok := node[step]
			if !ok {
				return Value{}
			}
			v, t = inner, t.field(step)
		case []any:
			if !t.byKey() {
				return Value{}
			}
			keys, ok := t.keysOf(node)
			i := slices.Index(keys, step)
			if !ok || i < 0 {
				return Value{}
			}
			v, t = node[i], t.items.resolve()
		default:
			return Value{}
		}
	}
	return Value{V: v, Present: true}
}

// Confidential reports whether the values at a path of a resource are confidential.
func Confidential(id krm.Identity, path []string) bool { return secretAt(id, path) }
