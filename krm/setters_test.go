package krm_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

// Setters are comments: decoding YAML saves them, and no other comments, in an annotation.
func TestSettersBecomeAnAnnotation(t *testing.T) {
	t.Parallel()
	p, err := krm.Decode(krm.YAML, []byte(`
apiVersion: v1
kind: A
metadata: {name: a}
spec:
  a/b: x # kpt-set: ${x}
  "q~": 'y' # kpt-set: a-${y}
  list: # kpt-set: ${list}
  - one
  flow: [one] # kpt-set: ${list}
  nested:
  - - deep # kpt-set: ${deep}
  plain: z # just a comment
  text: "# kpt-set: no comment"
---
null
---
- {apiVersion: v1, kind: B, metadata: {name: b}}
- apiVersion: v1
  kind: C
  metadata: {name: c} # kpt-set:
  spec: 1 # kpt-set: ${one}
---
apiVersion: v1
kind: D
name: without-metadata # kpt-set: ${name}
`), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]krm.Setter{}
	for _, r := range p {
		setters, err := r.Setters()
		if err != nil {
			t.Fatal(err)
		}
		got[r.GVK().Kind] = setters
	}
	want := map[string][]krm.Setter{
		"A": {
			{Field: "/spec/a~1b", Pattern: "${x}"},
			{Field: "/spec/q~0", Pattern: "a-${y}", Text: true},
			{Field: "/spec/list", Pattern: "${list}"},
			{Field: "/spec/flow", Pattern: "${list}"},
			{Field: "/spec/nested/0/0", Pattern: "${deep}"},
		},
		"B": nil,
		"C": {{Field: "/spec", Pattern: "${one}"}},
		"D": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p[3]["metadata"] != nil {
		t.Error("a resource without metadata got some")
	}
	// The setters are the same after encoding and decoding.
	text, err := krm.Encode(krm.YAML, p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := krm.Decode(krm.YAML, text, krm.Limits{})
	if diff := cmp.Diff(p, again); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, odd := range []string{"a: &a [*a] # kpt-set: ${x}", "a: *a # kpt-set: ${x}", strings.Repeat("[", 300) + " # kpt-set: ${x}", "# kpt-set: ${x}", "\x00# kpt-set: ${x}"} {
		_, _ = krm.Decode(krm.YAML, []byte(odd), krm.Limits{}) // must not panic
	}
}
