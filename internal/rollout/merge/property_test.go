package merge_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

func drawScalar(t *rapid.T) any {
	return rapid.SampledFrom([]any{nil, true, int64(0), int64(1), 1.0, "", "1", "x", "a\nb", "[name=a]"}).Draw(t, "scalar")
}

func drawValue(t *rapid.T, depth int) any {
	switch k := rapid.IntRange(0, 3).Draw(t, "kind"); {
	case depth == 0 || k < 2:
		return drawScalar(t)
	case k == 2:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	}
	return drawMap(t, depth-1)
}

func drawMap(t *rapid.T, depth int) map[string]any {
	m := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		m[rapid.SampledFrom([]string{"a", "b", "", "x.y", "name", "protocol"}).Draw(t, "key")] = drawValue(t, depth)
	}
	return m
}

// drawContainers returns containers with few names and ports, in any order, sometimes
// with keys that are missing or occur twice.
func drawContainers(t *rapid.T) []any {
	list := []any{}
	for range rapid.IntRange(0, 4).Draw(t, "n") {
		c := map[string]any{"name": rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")}
		if rapid.Bool().Draw(t, "image") {
			c["image"] = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")
		}
		if rapid.Bool().Draw(t, "ports") {
			ports := []any{}
			for range rapid.IntRange(0, 3).Draw(t, "n") {
				p := map[string]any{"containerPort": rapid.Int64Range(1, 2).Draw(t, "port")}
				if rapid.Bool().Draw(t, "hasProtocol") {
					p["protocol"] = rapid.SampledFrom([]any{"TCP", "UDP", nil}).Draw(t, "protocol")
				}
				ports = append(ports, p)
			}
			c["ports"] = ports
		}
		if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
			delete(c, "name")
		}
		list = append(list, c)
	}
	return list
}

func drawPackage(t *rapid.T) krm.Package {
	var p krm.Package
	seen := map[krm.Identity]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "resources") {
		var r krm.Resource
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			spec := map[string]any{"containers": drawContainers(t)}
			if rapid.Bool().Draw(t, "init") {
				spec["initContainers"] = drawContainers(t)
			}
			r = krm.Resource{"apiVersion": "v1", "kind": "Pod", "spec": spec}
		case 1:
			r = krm.Resource{"apiVersion": rapid.SampledFrom([]string{"x/v1", "x/v2"}).Draw(t, "version"), "kind": "U", "spec": drawValue(t, 3)}
		default:
			r = krm.Resource(drawMap(t, 2))
		}
		if rapid.IntRange(0, 9).Draw(t, "named") > 0 {
			r.Set(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"), "metadata", "name")
		}
		if !seen[r.Identity()] {
			seen[r.Identity()] = true
			p = append(p, r)
		}
	}
	return p
}

// drawEdit returns a package made from another by a few changes.
func drawEdit(t *rapid.T, p krm.Package) krm.Package {
	p = p.Clone()
	other := drawPackage(t)
	for i, r := range p {
		switch rapid.IntRange(0, 4).Draw(t, "change") {
		case 0:
			r["added"] = drawValue(t, 2)
		case 1:
			if r["kind"] == "Pod" {
				r.Set(any(drawContainers(t)), "spec", "containers")
			}
		case 2:
			if o := other.Find(r.Identity()); o != nil {
				p[i] = o
			}
		}
	}
	if len(p) > 0 && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
		i := rapid.IntRange(0, len(p)-1).Draw(t, "i")
		p = slices.Delete(p, i, i+1)
	}
	for _, r := range other {
		if p.Index(r.Identity()) < 0 && rapid.Bool().Draw(t, "add") {
			p = slices.Insert(p, rapid.IntRange(0, len(p)).Draw(t, "at"), r)
		}
	}
	return p
}

func apply(t *rapid.T, b, e, c krm.Package, policy merge.Policy) merge.Result {
	k, err := merge.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	r, err := merge.Packages(merge.Sides{Base: b, Edit: e, Current: c}, k, policy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func same(t *rapid.T, what string, want, got krm.Package) {
	if len(want) == 0 && len(got) == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s: %s", what, diff)
	}
}

func TestOneSideUnchangedGivesTheOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawPackage(t)
		e := drawEdit(t, b)
		for what, r := range map[string]merge.Result{"merge(b,b,e)": apply(t, b, b, e, merge.Fail), "merge(b,e,b)": apply(t, b, e, b, merge.Fail), "merge(b,e,e)": apply(t, b, e, e, merge.Fail)} {
			same(t, what, e, r.Package)
			if r.Blocked {
				t.Fatalf("%s: %v", what, r.Conflicts)
			}
		}
	})
}

type place struct {
	ID    krm.Identity
	Path  string
	Order bool
}

// places returns the places of conflicts. The version is left out: it is that of one
// side.
func places(r merge.Result) []place {
	out := []place{}
	for _, c := range r.Conflicts {
		c.Resource.Version = ""
		out = append(out, place{c.Resource, merge.PathText(c.Path), c.Order})
	}
	return out
}

func TestConflictsAreSymmetricAndPoliciesMirrored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawPackage(t)
		e, c := drawEdit(t, b), drawEdit(t, b)
		there, back := apply(t, b, e, c, merge.KeepTheirs), apply(t, b, c, e, merge.TakeEdit)
		if diff := cmp.Diff(places(there), places(back)); diff != "" {
			t.Fatal(diff)
		}
		for i, one := range there.Conflicts {
			other := back.Conflicts[i]
			if !merge.Equal(one.Edit, other.Current) || !merge.Equal(one.Current, other.Edit) || !merge.Equal(one.Base, other.Base) {
				t.Fatalf("%s\n%s", one, other)
			}
		}
		if len(there.Package) != len(back.Package) {
			t.Fatalf("%d and %d resources", len(there.Package), len(back.Package))
		}
		for _, r := range there.Package {
			if back.Package.Index(r.Identity()) < 0 {
				t.Fatalf("%s is in one of the results only", r.Identity())
			}
		}
		again := apply(t, b, e, c, merge.KeepTheirs)
		same(t, "second merge", there.Package, again.Package)
	})
}

// Edits of different fields commute, also inside elements of one list.
func TestDisjointEditsCommute(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := []any{}
		for _, n := range []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "n")] {
			names = append(names, map[string]any{"name": n, "image": "0", "tty": false})
		}
		b := krm.Package{{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"}, "spec": map[string]any{"containers": names}}}
		edits := [2]krm.Package{b.Clone(), b.Clone()}
		both := b.Clone()
		for i := range names {
			for j, field := range []string{"image", "tty"} {
				v := drawScalar(t)
				for _, p := range []krm.Package{edits[j], both} {
					list, _ := p[0].Get("spec", "containers")
					list.([]any)[i].(map[string]any)[field] = v
				}
			}
		}
		for what, r := range map[string]merge.Result{"one": apply(t, b, edits[0], edits[1], merge.Fail), "other": apply(t, b, edits[1], edits[0], merge.Fail)} {
			if r.Blocked {
				t.Fatalf("%s: %v", what, r.Conflicts)
			}
			same(t, what, both, r.Package)
		}
	})
}

// With TakeEdit, the second merge of the same edit changes nothing.
func TestMergingTwiceEqualsMergingOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawPackage(t)
		e, c := drawEdit(t, b), drawEdit(t, b)
		once := apply(t, b, e, c, merge.TakeEdit)
		same(t, "second", once.Package, apply(t, e, e, once.Package, merge.Fail).Package)
	})
}

func FuzzPackages(f *testing.F) {
	f.Add("a: 1\n", "a: [1]\n", "a: {b: 1}\n")
	f.Add(pod("containers: [{name: a}, {name: a}]"), pod("containers: [{name: [a]}]"), pod("containers: [1, null]"))
	f.Add("apiVersion: v1\nkind: [x]\nmetadata: 5\n", "metadata: {name: {}}\n", "{}\n")
	f.Fuzz(func(t *testing.T, b, e, c string) {
		var sides [3]krm.Package
		for i, text := range []string{b, e, c} {
			p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{Bytes: 1 << 16})
			if err != nil {
				return
			}
			sides[i] = p
		}
		r, err := merge.Packages(merge.Sides{Base: sides[0], Edit: sides[1], Current: sides[2]}, types(t), merge.KeepTheirs)
		if err != nil {
			return
		}
		for _, one := range r.Conflicts {
			_ = one.String()
		}
		for _, n := range r.Notes {
			_ = n.String()
		}
		merge.Custom(sides[:]...)
		merge.RestoreBookkeeping(r.Package, merge.WithoutBookkeeping(sides[2]))
	})
}
