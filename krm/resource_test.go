package krm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

func TestCheckReportsAllErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		yaml string
		want []string // parts of what is said, one for each
	}{
		"good":              {why: "nothing to say", yaml: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: {a: b}}}\n---\n{apiVersion: v1, kind: A, metadata: {name: b}}"},
		"name at root":      {why: "Kind's Cluster is named so", yaml: "{apiVersion: v1, kind: A, name: a}\n---\n{apiVersion: v1, kind: A, name: b}"},
		"no name":           {why: "some have none", yaml: "{apiVersion: v1, kind: A}\n---\n{apiVersion: v1, kind: B}"},
		"null metadata":     {why: "templates leave them", yaml: "{apiVersion: v1, kind: A, metadata: null}\n---\n{apiVersion: v1, kind: B, metadata: {annotations: null, name: null}}"},
		"other name":        {why: "at the root it may mean something else", yaml: "{apiVersion: v1, kind: A, name: {x: y}}"},
		"same name":         {why: "one would be lost", yaml: "{apiVersion: v1, kind: A, metadata: {name: a}}\n---\n{apiVersion: v1, kind: B}\n---\n{apiVersion: v1, kind: A, metadata: {name: a}}", want: []string{`resource 3 (v1 A "a"): is in the package already, as resource 1`}},
		"both unnamed":      {why: "no name is the same name", yaml: "{apiVersion: v1, kind: A}\n---\n{apiVersion: v1, kind: A}", want: []string{`resource 2 (v1 A ""): is in the package already`}},
		"same, name moved":  {why: "it is one name wherever it is", yaml: "{apiVersion: v1, kind: A, name: a}\n---\n{apiVersion: v1, kind: A, metadata: {name: a}}", want: []string{"resource 2"}},
		"empty":             {why: "all is said at once", yaml: "{}", want: []string{"apiVersion: is missing", "kind: is missing"}},
		"numbers":           {why: "an unquoted number is no version", yaml: "{apiVersion: 1, kind: 2}", want: []string{"resource 1: apiVersion: must be text, but is the number 1", "kind: must be text, but is the number 2"}},
		"empty texts":       {why: "nothing is no kind", yaml: "{apiVersion: '', kind: ''}", want: []string{"apiVersion: is empty", "kind: is empty"}},
		"two slashes":       {why: "there would be two groups", yaml: "{apiVersion: a/b/c, kind: A}", want: []string{`must be VERSION or GROUP/VERSION, but is "a/b/c"`}},
		"no group":          {why: "it would look like none, and not be equal", yaml: "{apiVersion: /v1, kind: A}", want: []string{"must be VERSION or GROUP/VERSION"}},
		"metadata":          {why: "there is no name to find", yaml: "{apiVersion: v1, kind: A, metadata: [1]}", want: []string{"metadata: must be a map, but is a list"}},
		"name is a number":  {why: "YAML made it one", yaml: "{apiVersion: v1, kind: A, metadata: {name: 5}}", want: []string{"metadata.name: must be text, but is the number 5; put it in quotes"}},
		"annotations":       {why: "there is nothing to find", yaml: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: x}}", want: []string{"metadata.annotations: must be a map, but is text"}},
		"annotation values": {why: "YAML made them other things", yaml: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: {b: yes, a: 1.5, c: null}}}", want: []string{"annotations.a: must be text, but is the number 1.5", "annotations.b: must be text, but is true", "annotations.c: must be text, but is null"}},
		"several":           {why: "all is said at once", yaml: "{apiVersion: v1}\n---\n{kind: A}", want: []string{"resource 1 (v1  \"\"): kind: is missing", "resource 2 ( A \"\"): apiVersion: is missing"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := parse(t, tt.yaml).Check()
			if len(tt.want) == 0 {
				if err != nil {
					t.Errorf("%v (%s)", err, tt.why)
				}
				return
			}
			errs, _ := errors.AsType[krm.Errors](err)
			if !errors.Is(err, krm.ErrInvalid) || len(errs) != len(tt.want) {
				t.Fatalf("error %v, want %q (%s)", err, tt.want, tt.why)
			}
			for i, want := range tt.want {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("error %v, want %q (%s)", errs[i], want, tt.why)
				}
			}
		})
	}
}

func TestCheckReportsAtMost50Errors(t *testing.T) {
	t.Parallel()
	err := make(krm.Package, 100_000).Check()
	if err == nil || len(err.Error()) > 10_000 {
		t.Errorf("%d bytes", len(err.Error()))
	}
}

func TestIdentityIsGVKAndName(t *testing.T) {
	t.Parallel()
	p := parse(t, `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, name: other}
---
{apiVersion: kind.x-k8s.io/v1alpha4, kind: Cluster, name: here}
`)
	for i, want := range []string{`apps/v1 Deployment "web"`, `v1 Service "web"`, `kind.x-k8s.io/v1alpha4 Cluster "here"`} {
		id := p[i].Identity()
		if id.String() != want {
			t.Errorf("%s, want %s", id, want)
		}
		if p.Index(id) != i {
			t.Errorf("%s is at %d", id, p.Index(id))
		}
		p.Find(id)["found"] = true
		if p[i]["found"] != true {
			t.Errorf("%s: found a copy", id)
		}
	}
	if r := p.Find(krm.Identity{Name: "web"}); r != nil {
		t.Errorf("found %v", r)
	}
}

func TestGetAndSetFollowPaths(t *testing.T) {
	t.Parallel()
	r := parse(t, "{kind: A, spec: {list: [a, {b: c}], num: 5, nothing: null}}")[0]
	for path, want := range map[string]string{
		"kind": "A", "spec list 0": "a", "spec list 1 b": "c",
		"spec num": "", "spec list 2": "", "spec list -1": "", "spec list x": "", "spec num x": "", "nowhere": "",
	} {
		if got := r.Text(strings.Fields(path)...); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if v, ok := r.Get("spec", "nothing"); v != nil || !ok {
		t.Errorf("a null that is there: %v, %v", v, ok)
	}
	r.Set(7, "spec", "num", "deep")
	r.Set(map[string]string{"a": "b"}, "new", "map")
	r.Set([]string{"x"}, "new", "list")
	r.Set("ignored")
	want := krm.Resource{
		"kind": "A",
		"spec": map[string]any{"list": []any{"a", map[string]any{"b": "c"}}, "num": map[string]any{"deep": int64(7)}, "nothing": nil},
		"new":  map[string]any{"map": map[string]any{"a": "b"}, "list": []any{"x"}},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
}

func TestAnnotationsAreSetAndRemoved(t *testing.T) {
	t.Parallel()
	r := krm.Resource{}
	r.SetAnnotation("none", "")
	if len(r) != 0 {
		t.Errorf("removing a missing annotation left %v", r)
	}
	r.SetPrepared()
	r.SetAnnotation("a", "b")
	if !r.IsPrepared() || r.Annotation("a") != "b" || r.Annotation("b") != "" {
		t.Errorf("%v", r)
	}
	r.SetAnnotation("a", "")
	r.SetAnnotation(krm.AnnotationPrepared, "")
	if diff := cmp.Diff(krm.Resource{"metadata": map[string]any{}}, r); diff != "" {
		t.Error(diff)
	}
}

func TestClonesShareNothing(t *testing.T) {
	t.Parallel()
	p := parse(t, "{a: {b: [{c: 1}]}, d: [], e: {}}")
	c := p.Clone()
	if diff := cmp.Diff(p, c); diff != "" {
		t.Fatal(diff)
	}
	c[0].Set("changed", "e", "x")
	list, _ := c[0].Get("a", "b", "0")
	list.(map[string]any)["c"] = "changed"
	if diff := cmp.Diff(parse(t, "{a: {b: [{c: 1}]}, d: [], e: {}}"), p); diff != "" {
		t.Error(diff)
	}
	if krm.Package(nil).Clone() != nil || krm.Resource(nil).Clone() != nil {
		t.Error("a copy of nothing is something")
	}
}

func TestGroupsOfNephioAreOrchestration(t *testing.T) {
	t.Parallel()
	for group, want := range map[string]bool{
		"nephio.org": true, "topology.nephio.org": true, "free5gc.plugin.nephio.org": true,
		"": false, "apps": false, "notnephio.org": false, "nephio.org.example": false,
	} {
		if got := (krm.GVK{Group: group}).Orchestration(); got != want {
			t.Errorf("%q: %v", group, got)
		}
	}
}

func TestErrorsStateTheirPlace(t *testing.T) {
	t.Parallel()
	id := krm.Identity{GVK: krm.ParseGVK("v1", "A"), Name: "a"}
	for want, e := range map[string]*krm.Error{
		"bad": {Reason: "bad"},
		`document 2: resource 3 (v1 A "a"): spec.x: bad`: {Document: 2, Index: 3, Resource: id, Path: "spec.x", Reason: "bad"},
		`v1 A "a": bad`: {Resource: id, Reason: "bad"},
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e, want)
		}
		if wrapped := fmt.Errorf("package: %w", e); !errors.Is(wrapped, krm.ErrInvalid) {
			t.Errorf("%v is not invalid", wrapped)
		}
	}
}
