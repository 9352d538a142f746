package krm_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

// small limits make the fuzzers fast.
var small = krm.Limits{Bytes: 1 << 16, Depth: 50, Resources: 100, Values: 10_000}

// survives checks that a decoded package is encoded and decoded without a
// change.
func survives(t *testing.T, p krm.Package) {
	t.Helper()
	for _, format := range []krm.Format{krm.YAML, krm.CBOR} {
		data, err := krm.Encode(format, p)
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		got, err := krm.Decode(format, data, krm.Limits{})
		if err != nil {
			t.Fatalf("%s: %v\n%q", format, err, data)
		}
		if diff := cmp.Diff(p, got, equateEmpty); diff != "" {
			t.Fatalf("%s: %s\n%q", format, diff, data)
		}
	}
	if err := p.Check(); err != nil && !errors.Is(err, krm.ErrInvalid) {
		t.Fatal(err)
	}
	p.Metadata()
	krm.ForChild(p)
	p.WithDeployment("t", "s", true, true).WithoutDeploymentState()
}

func FuzzDecodeYAML(f *testing.F) {
	for _, seed := range []string{
		manifests, "", "---\n", "[]", "{a: &a [1, *a]}", "a: !!binary aGk=", "a: 1e400", "? |\n  x\n: >-\n  y\n",
		"x: &x {a: 1}\ny: {<<: *x, a: 2}", "{1: a, '1': b}", "a: 99999999999999999999", "%YAML 1.1\n---\na: \"\\x00\\ud800\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := krm.Decode(krm.YAML, data, small)
		if err != nil {
			if !errors.Is(err, krm.ErrInvalid) || len(err.Error()) > 4000 {
				t.Fatalf("%q", err)
			}
			return
		}
		survives(t, p)
	})
}

func FuzzDecodeCBOR(f *testing.F) {
	files, err := filepath.Glob("testdata/cbor/*.cbor")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	strict, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 1000, UTF8: cbor.UTF8RejectInvalid,
	}.DecMode()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := krm.Decode(krm.CBOR, data, small)
		if err != nil {
			if !errors.Is(err, krm.ErrInvalid) || len(err.Error()) > 4000 {
				t.Fatalf("%q", err)
			}
			return
		}
		// Accepted input must also be CBOR for another library.
		if err := strict.Wellformed(data); err != nil && len(data) > 0 {
			t.Fatalf("taken, but %v", err)
		}
		survives(t, p)
		canonical, err := krm.Encode(krm.CBOR, p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := krm.Decode(krm.CBOR, canonical, krm.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if data, err := krm.Encode(krm.CBOR, again); err != nil || !bytes.Equal(canonical, data) {
			t.Fatalf("not canonical: %v", err)
		}
	})
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(manifests), []byte(manifests))
	f.Add([]byte("{apiVersion: v1, kind: A, metadata: {name: a}, x: {y: 1}}"), []byte("{apiVersion: v1, kind: A, metadata: {name: b, annotations: {nephio.org/rename: a, nephio.org/merge: Override}}, x: {z: [1]}}"))
	f.Add([]byte("{metadata: 5, name: {}}"), []byte("{metadata: {annotations: [], name: 5}}"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		into, err := krm.Decode(krm.YAML, a, small)
		if err != nil {
			return
		}
		resources, err := krm.Decode(krm.YAML, b, small)
		if err != nil {
			return
		}
		intoWas, resourcesWas := into.Clone(), resources.Clone()
		got, err := krm.Merge(into, krm.ForChild(resources))
		if !cmp.Equal(intoWas, into) || !cmp.Equal(resourcesWas, resources) {
			t.Fatal("an input was changed")
		}
		if err != nil {
			if !errors.Is(err, krm.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if into.Check() == nil && resources.Check() == nil {
			if err := got.Check(); err != nil {
				t.Fatal(err)
			}
		}
		survives(t, got)
	})
}
