package merge

import (
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko/krm"
)

// Patch returns the changes with which Patched makes b of a, and a of b: differences, and
// the order of lists to which they add elements.
func Patch(a, b krm.Package, types Types) []Change {
	patch := Differences(a, b, types)
	if !slices.ContainsFunc(patch, func(c Change) bool { return len(c.Path) > 0 && strings.HasPrefix(c.Path[len(c.Path)-1], "[") }) {
		return patch // no list has elements more
	}
	orders := map[string]*Change{}
	var keys []string
	note := func(left []Change, back bool) {
		for _, c := range left {
			if !c.Order {
				continue
			}
			key := c.Resource.String() + "\x00" + PathText(c.Path)
			one := orders[key]
			if one == nil {
				one = &Change{Resource: c.Resource, Path: c.Path, Order: true, Secret: c.Secret}
				orders[key], keys = one, append(keys, key)
			}
			if back {
				one.Before = c.After
			} else {
				one.After = c.After
			}
		}
	}
	note(Differences(Patched(a, patch, types, false), b, types), false)
	note(Differences(Patched(b, patch, types, true), a, types), true)
	for _, key := range keys {
		patch = append(patch, *orders[key])
	}
	return patch
}

// Patched returns a package with changes applied to it: each place has the value after,
// or before if back is true. Places that don't exist any more are ignored. The package
// isn't changed; the result shares unchanged parts with it.
func Patched(p krm.Package, changes []Change, types Types, back bool) krm.Package {
	out := slices.Clone(p)
	for _, c := range changes {
		v := c.After
		if back {
			v = c.Before
		}
		i := out.Index(c.Resource)
		switch {
		case c.Order && !v.Present: // this side adds nothing to the list
		case len(c.Path) == 0 && !v.Present:
			if i >= 0 {
				out = slices.Delete(out, i, i+1)
			}
		case len(c.Path) == 0 && i < 0:
			out = append(out, krm.Resource(asMap(v)))
		case len(c.Path) == 0:
			out[i] = krm.Resource(asMap(v))
		case i >= 0:
			if changed, ok := with(map[string]any(out[i]), typeOf(types, c.Resource.GVK), c.Path, v, c.Order).(map[string]any); ok {
				out[i] = changed
			}
		}
	}
	return out
}

// with returns a node with a value at a path.
func with(node any, t *Type, path []string, v Value, order bool) any {
	if len(path) == 0 {
		if list, ok := node.([]any); ok && order {
			return ordered(list, t, v)
		}
		return v.V
	}
	switch node := node.(type) {
	case map[string]any:
		inner, ok := node[path[0]]
		if !ok && (len(path) > 1 || !v.Present) {
			return node
		}
		out := maps.Clone(node)
		if len(path) == 1 && !v.Present {
			delete(out, path[0])
		} else {
			out[path[0]] = with(inner, t.field(path[0]), path[1:], v, order)
		}
		return out
	case []any:
		if !t.byKey() {
			return node
		}
		i := slices.IndexFunc(node, func(element any) bool { key, ok := t.keyOf(element); return ok && key == path[0] })
		switch {
		case i < 0 && len(path) == 1 && v.Present:
			return append(slices.Clone(node), v.V)
		case i < 0:
			return node
		case len(path) == 1 && !v.Present:
			return slices.Delete(slices.Clone(node), i, i+1)
		}
		out := slices.Clone(node)
		out[i] = with(node[i], t.items.resolve(), path[1:], v, order)
		return out
	}
	return node
}

// ordered returns a list with its elements in the order of another one; elements that
// the other one lacks stay at the end.
func ordered(list []any, t *Type, like Value) any {
	wanted, _ := like.V.([]any)
	keys, ok := t.keysOf(wanted)
	mine, okMine := t.keysOf(list)
	if !ok || !okMine {
		return list
	}
	rank := make(map[string]int, len(keys))
	for i, key := range keys {
		rank[key] = i
	}
	at := func(key string) int {
		if i, ok := rank[key]; ok {
			return i
		}
		return len(keys)
	}
	index := make([]int, len(list))
	for i := range index {
		index[i] = i
	}
	slices.SortStableFunc(index, func(a, b int) int { return at(mine[a]) - at(mine[b]) })
	out := make([]any, len(list))
	for i, from := range index {
		out[i] = list[from]
	}
	return out
}
