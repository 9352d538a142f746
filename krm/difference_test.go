package krm_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChangesListFieldsAndHideSecrets(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why   string
		a, b  string
		lines []string
	}{
		"nothing": {
			"the order of keys has no meaning",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: '1', y: '2'}}",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {y: '2', x: '1'}}", nil,
		},
		"fields": {
			"each field is listed with its path, in order",
			"{apiVersion: v1, kind: C, metadata: {name: a}, spec: {list: [1, {b: <x>}], gone: true, same: 1, 'a.b/c': 1}}",
			"{apiVersion: v1, kind: C, metadata: {name: a}, spec: {list: [1, {b: <y>}], new: {a: 1}, same: 1, 'a.b/c': 2}}",
			[]string{
				`v1 C "a": spec["a.b/c"]: 1 → 2`, `v1 C "a": spec.gone: true → (none)`, `v1 C "a": spec.list[1].b: "<x>" → "<y>"`,
				`v1 C "a": spec.new: (none) → {"a":1}`,
			},
		},
		"lists": {
			"of different lengths, and values of different kinds, differ as a whole",
			"{apiVersion: v1, kind: C, metadata: {name: a}, a: [1], b: {c: 1}}",
			"{apiVersion: v1, kind: C, metadata: {name: a}, a: [1, 2], b: 1}",
			[]string{`v1 C "a": a: [1] → [1,2]`, `v1 C "a": b: {"c":1} → 1`},
		},
		"resources": {
			"added and removed resources are listed by name only",
			"{apiVersion: v1, kind: C, metadata: {name: a}, a: 1}",
			"{apiVersion: v1, kind: C, metadata: {name: b}, a: 1}",
			[]string{`v1 C "b": added`, `v1 C "a": removed`},
		},
		"long": {
			"values are cut",
			"{apiVersion: v1, kind: C, metadata: {name: a}, a: ''}",
			"{apiVersion: v1, kind: C, metadata: {name: a}, a: 123456789012345678901234567890123456789012345678901234567890end}",
			[]string{`v1 C "a": a: "" → "12345678901234567890123456789012345678901234567890123456789…`},
		},
		"secret": {
			"its values are hidden, and a copy in an annotation, too; other fields aren't",
			"{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {l: a}, annotations: {copy: hush}}, type: x1, data: {x: hush}}",
			"{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {l: b}, annotations: {copy: hush2}}, type: x2, data: {x: hush2}, stringData: {y: hush}}",
			[]string{
				`v1 Secret "a": data.x: hidden → hidden`, `v1 Secret "a": metadata.annotations.copy: hidden → hidden`, `v1 Secret "a": metadata.labels.l: "a" → "b"`,
				`v1 Secret "a": stringData: (none) → hidden`, `v1 Secret "a": type: "x1" → "x2"`,
			},
		},
		"secret inside": {
			"a resource can hold another",
			"{apiVersion: v1, kind: List, metadata: {name: a}, items: [{apiVersion: v1, kind: Secret, data: {x: hush}}]}",
			"{apiVersion: v1, kind: List, metadata: {name: a}, items: [{apiVersion: v1, kind: Secret, data: {x: hush2}}], more: [{apiVersion: v1, kind: Secret, data: {x: hush}}]}",
			[]string{
				`v1 List "a": items[0].data.x: hidden → hidden`,
				`v1 List "a": more: (none) → [{"apiVersion":"v1","data":"hidden","kind":"Secret"}]`,
			},
		},
		"no longer a secret": {
			"what it was is hidden all the same",
			"{apiVersion: v1, kind: C, metadata: {name: a}, s: {apiVersion: v1, kind: Secret, data: {x: hush}}}",
			"{apiVersion: v1, kind: C, metadata: {name: a}, s: {apiVersion: v1, kind: Other, data: {x: 1}}}",
			[]string{`v1 C "a": s.data.x: hidden → hidden`, `v1 C "a": s.kind: "Secret" → "Other"`},
		},
		"state": {
			"of a deployment isn't told",
			"{apiVersion: v1, kind: C, metadata: {name: a}}",
			"{apiVersion: v1, kind: C, metadata: {name: a}}\n---\n" +
				"{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment, annotations: {nephio.org/prepared: 'true'}}, spec: {siteId: s}}",
			nil,
		},
		"state goes": {
			"of a deployment isn't told",
			"{apiVersion: v1, kind: C, metadata: {name: a}}\n---\n" +
				"{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment}, spec: {siteId: s}}",
			"{apiVersion: v1, kind: C, metadata: {name: a}}",
			nil,
		},
		"more than the state": {
			"it is a resource like others",
			"{apiVersion: v1, kind: C, metadata: {name: a}}\n---\n" +
				"{apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment, annotations: {nephio.org/approve: Auto}}, spec: {siteId: s}}",
			"{apiVersion: v1, kind: C, metadata: {name: a}}\n---\n",
			[]string{`deployment.nephio.org/v1alpha1 Deployment "deployment": removed`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := parse(t, test.a), parse(t, test.b)
			if diff := cmp.Diff(test.lines, slices.Collect(a.Changes(b))); diff != "" {
				t.Errorf("%s:\n%s", test.why, diff)
			}
			for range a.Changes(b) { // the caller may stop
				break
			}
		})
	}
}
