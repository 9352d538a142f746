package krm_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

// parse decodes the package of a test.
func parse(t testing.TB, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestResourcesAreMergedByIdentity(t *testing.T) {
	t.Parallel()
	const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec: {replicas: 1, list: [1, 2], selector: {matchLabels: {app: web}}}
`
	const deployment = `
apiVersion: deployment.nephio.org/v1alpha1
kind: Deployment
metadata: {name: deployment, annotations: {nephio.org/approve: Auto}}
spec: {templateId: t}
`
	tests := map[string]struct {
		why             string
		into, resources string
		want            string
		wantErr         string
	}{
		"nothing":        {why: "nothing changes", into: web, want: web},
		"into nothing":   {why: "without a template the merge package is the package", resources: web, want: web},
		"added":          {why: "at the end, in order", into: web, resources: "{apiVersion: v1, kind: B}\n---\n{apiVersion: v1, kind: A}", want: web + "---\n{apiVersion: v1, kind: B}\n---\n{apiVersion: v1, kind: A}"},
		"other version":  {why: "another version is another resource", into: "{apiVersion: a/v1, kind: A, name: x}", resources: "{apiVersion: a/v2, kind: A, name: x}", want: "{apiVersion: a/v1, kind: A, name: x}\n---\n{apiVersion: a/v2, kind: A, name: x}"},
		"replaced":       {why: "in its place, with nothing left", into: web + "---\n{apiVersion: v1, kind: B}", resources: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {x: 1}}", want: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {x: 1}}\n---\n{apiVersion: v1, kind: B}"},
		"Replace":        {why: "as is said", into: web, resources: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {nephio.org/merge: Replace}}}", want: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {nephio.org/merge: Replace}}}"},
		"overridden":     {why: "maps by key, lists and scalars replaced", into: web, resources: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {nephio.org/merge: Override}}, spec: {replicas: 2, list: [3], selector: {matchLabels: {tier: a}}}}", want: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {app: web}, annotations: {nephio.org/merge: Override}}, spec: {replicas: 2, list: [3], selector: {matchLabels: {app: web, tier: a}}}}"},
		"map by scalar":  {why: "values that aren't both maps are replaced", into: "{apiVersion: v1, kind: A, metadata: {name: a}, x: {y: 1}, z: 1}", resources: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: {nephio.org/merge: Override}}, x: null, z: {a: 1}}", want: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: {nephio.org/merge: Override}}, x: null, z: {a: 1}}"},
		"renamed":        {why: "matched under the new name, which stays with the annotations", into: "{apiVersion: v1, kind: A, metadata: {name: new}, x: 1}", resources: "{apiVersion: v1, kind: A, metadata: {name: old, annotations: {nephio.org/rename: new, nephio.org/merge: Override}}, y: 1}", want: "{apiVersion: v1, kind: A, metadata: {name: new, annotations: {nephio.org/rename: new, nephio.org/merge: Override}}, x: 1, y: 1}"},
		"renamed, added": {why: "a resource that has the old name keeps it", into: "{apiVersion: v1, kind: A, metadata: {name: old}}", resources: "{apiVersion: v1, kind: A, metadata: {name: old, annotations: {nephio.org/rename: new}}}", want: "{apiVersion: v1, kind: A, metadata: {name: old}}\n---\n{apiVersion: v1, kind: A, metadata: {name: new, annotations: {nephio.org/rename: new}}}"},
		"renamed twice":  {why: "the later is merged into the earlier", resources: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: {nephio.org/rename: other}}}\n---\n{apiVersion: v1, kind: A, x: 1, metadata: {name: b, annotations: {nephio.org/rename: other}}}", want: "{apiVersion: v1, kind: A, x: 1, metadata: {name: other, annotations: {nephio.org/rename: other}}}"},
		"named at root":  {why: "the name is changed where it is", resources: "{apiVersion: v1, kind: A, name: a, metadata: {annotations: {nephio.org/rename: other}}}", want: "{apiVersion: v1, kind: A, name: other, metadata: {annotations: {nephio.org/rename: other}}}"},
		"deployment":     {why: "always merged", into: web + "---" + deployment, resources: "{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment}, spec: {siteId: s}}", want: web + "---" + strings.Replace(deployment, "templateId: t", "templateId: t, siteId: s", 1)},
		"bad merge":      {why: "a typo must not replace", resources: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: {nephio.org/merge: override}}}", wantErr: `resource 1 (v1 A "a"): metadata.annotations.nephio.org/merge: must be one of Replace or Override, but is "override"`},
		"merge is true":  {why: "annotations are text", resources: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: {nephio.org/merge: yes}}}", wantErr: "must be text, but is true"},
		"rename is 5":    {why: "annotations are text", resources: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: {nephio.org/rename: 5}}}", wantErr: "nephio.org/rename: must be text, but is the number 5"},
		"empty rename":   {why: "that is no name", resources: "{apiVersion: v1, kind: A, metadata: {name: a, annotations: {nephio.org/rename: ''}}}", wantErr: "nephio.org/rename: must be a name, but is empty"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			into, resources := parse(t, tt.into), parse(t, tt.resources)
			intoWas, resourcesWas := into.Clone(), resources.Clone()
			got, err := krm.Merge(into, resources)
			if tt.wantErr != "" {
				if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %q (%s)", err, tt.wantErr, tt.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parse(t, tt.want).Clone(), got.Clone(), equateEmpty); diff != "" {
				t.Errorf("%s (%s)", diff, tt.why)
			}
			if !cmp.Equal(intoWas, into) || !cmp.Equal(resourcesWas, resources) {
				t.Errorf("an input was changed (%s)", tt.why)
			}
			again, err := krm.Merge(got, resources)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("merging again changed the result: %s", diff)
			}
		})
	}
}

var equateEmpty = cmp.Transformer("len0", func(p krm.Package) []krm.Resource {
	if len(p) == 0 {
		return nil
	}
	return p
})

func TestChildrenGetPostponedAnnotations(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why        string
		have, want string
	}{
		"absent":          {why: "stays absent, which is here in the child too", have: "{}", want: "{}"},
		"Postpone":        {why: "this is where it was postponed to", have: "{nephio.org/prepare: Postpone}", want: "{nephio.org/prepare: Here}"},
		"Here":            {why: "it was for the parent", have: "{nephio.org/prepare: Here}", want: "{nephio.org/prepare: Never}"},
		"Never":           {why: "never is never", have: "{nephio.org/prepare: Never}", want: "{nephio.org/prepare: Never}"},
		"metadata":        {why: "metadata is treated alike", have: "{nephio.org/metadata: Postpone, nephio.org/prepare: Here}", want: "{nephio.org/metadata: Here, nephio.org/prepare: Never}"},
		"other":           {why: "other annotations stay", have: "{nephio.org/merge: Override, x: Postpone}", want: "{nephio.org/merge: Override, x: Postpone}"},
		"none at all":     {why: "no annotations are made", have: "null", want: "null"},
		"unknown setting": {why: "validation reports it, not this function", have: "{nephio.org/prepare: x}", want: "{nephio.org/prepare: x}"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const text = "{apiVersion: v1, kind: A, metadata: {name: a, annotations: "
			have := parse(t, text+tt.have+"}}")
			was := have.Clone()
			got := krm.ForChild(have)
			if diff := cmp.Diff(parse(t, text+tt.want+"}}"), got); diff != "" {
				t.Errorf("%s (%s)", diff, tt.why)
			}
			if !cmp.Equal(was, have) {
				t.Error("the input was changed")
			}
		})
	}
}

func TestMetadataIsGatheredFromMetadataResources(t *testing.T) {
	t.Parallel()
	got := parse(t, `
apiVersion: metadata.nephio.org/v1alpha1
kind: NetworkFunction
metadata: {name: a}
spec:
  variant: {version: "1.0", empty: {}}
  flag: yes
  count: 5
  whole: 5.0
  ratio: 1.5
  nothing: null
  list: [1, "<a>", {b: 2}]
  none: []
  text: ""
---
{apiVersion: metadata.nephio.org/v9, kind: Here, metadata: {annotations: {nephio.org/metadata: Here}}, spec: {a: 1}}
---
{apiVersion: metadata.nephio.org/v1, kind: Postpone, metadata: {annotations: {nephio.org/metadata: Postpone}}, spec: {a: 1}}
---
{apiVersion: metadata.nephio.org/v1, kind: Never, metadata: {annotations: {nephio.org/metadata: Never}}, spec: {a: 1}}
---
{apiVersion: metadata.nephio.org/v1, kind: NoMap, spec: [1]}
---
{apiVersion: metadata.nephio.org/v1, kind: Here, metadata: {name: later}, spec: {a: 2}}
---
{apiVersion: other.nephio.org/v1, kind: Other, spec: {a: 1}}
`).Metadata()
	want := map[string]string{
		"NetworkFunction.variant.version": "1.0",
		"NetworkFunction.flag":            "true",
		"NetworkFunction.count":           "5",
		"NetworkFunction.whole":           "5",
		"NetworkFunction.ratio":           "1.5",
		"NetworkFunction.list":            `[1,"<a>",{"b":2}]`,
		"NetworkFunction.none":            "[]",
		"NetworkFunction.text":            "",
		"Here.a":                          "2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
