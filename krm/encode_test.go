package krm_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

// The style is that of Kubernetes manifests, with quotes only around text that some
// reader would read as another value.
func TestYAMLIsEncodedInTheStyleOfManifests(t *testing.T) {
	t.Parallel()
	got, err := krm.Encode(krm.YAML, krm.Package{
		{
			"nothing": nil, "truth": true, "number": int64(-5), "plain int": 5,
			"floats": []any{5.0, 0.1, 1e20, math.Copysign(0, -1)},
			"nested": map[string]any{"list": []any{[]any{int64(1), []any{}}, map[string]any{"b": int64(2), "a": int64(1)}}, "empty": map[string]any{}},
			"plain":  []any{"text with spaces", "nginx:1.25", "10.0.0.0/24", "1.2.3", "100m", "1Gi", "/bin/sh", "a-b_c", "don't", "http://x/?a=b"},
			"quoted": []any{"", "yes", "No", "null", "5", "1e3", "0x1f", "2024-01-02", "12:30", "1_000", "-c", "a: b", "a #b", "~", "*", "é", "a\u0000", " a", "a:", "'x'"},
			"lines":  []any{"a\nb\n", "a\nb", "a\n\n", " a\nb"},
			"5":      "key", "y": "key", "": "key",
		},
		{},
		{"kind": "A"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `"": key
"5": key
floats:
- 5.0
- 0.1
- 1.0e+20
- -0.0
lines:
- |
  a
  b
- |-
  a
  b
- |+
  a

- " a\nb"
nested:
  empty: {}
  list:
  - - 1
    - []
  - a: 1
    b: 2
nothing: null
number: -5
plain:
- text with spaces
- nginx:1.25
- 10.0.0.0/24
- 1.2.3
- 100m
- 1Gi
- /bin/sh
- a-b_c
- don't
- http://x/?a=b
plain int: 5
quoted:
- ""
- "yes"
- "No"
- "null"
- "5"
- "1e3"
- "0x1f"
- "2024-01-02"
- "12:30"
- "1_000"
- "-c"
- "a: b"
- "a #b"
- "~"
- "*"
- "é"
- "a\x00"
- " a"
- "a:"
- "'x'"
truth: true
"y": key
---
{}
---
kind: A
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestPackageWithoutResourcesIsEncoded(t *testing.T) {
	t.Parallel()
	for format, want := range map[krm.Format]string{krm.YAML: "", "": "", krm.CBOR: "\x80"} {
		got, err := krm.Encode(format, nil)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", format, got, err)
		}
		p, err := krm.Decode(format, got, krm.Limits{})
		if err != nil || len(p) != 0 {
			t.Errorf("%s: %v, %v", format, p, err)
		}
	}
}

func TestValuesOfOtherTypesAreNotEncoded(t *testing.T) {
	t.Parallel()
	circle := map[string]any{}
	circle["circle"] = []any{circle}
	tests := map[string]struct {
		why  string
		r    krm.Resource
		want string
	}{
		"NaN":          {why: "Decode refuses it too", r: krm.Resource{"kind": "A", "x": []any{map[string]any{"y": math.NaN()}}}, want: `resource 2 ( A ""): x[0].y: NaN`},
		"infinity":     {why: "Decode refuses it too", r: krm.Resource{"x": math.Inf(1)}, want: "x: +Inf"},
		"invalid text": {why: "Decode refuses it too", r: krm.Resource{"x": "\xff"}, want: "UTF-8"},
		"invalid key":  {why: "Decode refuses it too", r: krm.Resource{"\xff": "x"}, want: "UTF-8"},
		"a struct":     {why: "it would be read as something else", r: krm.Resource{"x": struct{}{}}, want: "x: has a value of Go type struct {}"},
		"a circle":     {why: "it would never end", r: circle, want: "nested deeper than 10000 levels"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, format := range []krm.Format{krm.YAML, krm.CBOR} {
				_, err := krm.Encode(format, krm.Package{{}, tt.r})
				if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: error %v, want %q (%s)", format, err, tt.want, tt.why)
				}
			}
		})
	}
}

func TestUnknownFormatIsRefused(t *testing.T) {
	t.Parallel()
	_, decodeErr := krm.Decode("json", []byte("{}"), krm.Limits{})
	_, encodeErr := krm.Encode("json", nil)
	_, nothingErr := krm.Decode("json", nil, krm.Limits{})
	for _, err := range []error{decodeErr, encodeErr, nothingErr} {
		if !errors.Is(err, krm.ErrInvalid) || !strings.Contains(err.Error(), `format "json" is not known; use "yaml" or "cbor"`) {
			t.Error(err)
		}
	}
}

// Keys that are too long for simple keys have a question mark.
func TestLongKeysAreEncodedAsComplexKeys(t *testing.T) {
	t.Parallel()
	for _, length := range []int{990, 998, 999, 1000, 1001, 1022, 1023, 1024, 1025, 70_000} {
		for _, char := range []string{"k", "5", "é", "\x00"} {
			key := strings.Repeat(char, length)
			p := krm.Package{{key: map[string]any{key: []any{map[string]any{key: "x\ny"}, map[string]any{key: []any{"x"}, "a": int64(1)}}}}}
			data, err := krm.Encode(krm.YAML, p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := krm.Decode(krm.YAML, data, krm.Limits{})
			if err != nil {
				t.Fatalf("%d of %q: %v", length, char, err)
			}
			if !cmp.Equal(p, got) {
				t.Errorf("%d of %q: not the same", length, char)
			}
		}
	}
}

// Real manifests are the same after encoding and decoding in both formats.
func TestExamplesSurviveBothFormats(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir("../examples", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "charts" { // Helm's templates are no YAML yet
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		seen++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		p, err := krm.Decode(krm.YAML, data, krm.Limits{})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		for _, format := range []krm.Format{krm.YAML, krm.CBOR} {
			encoded, err := krm.Encode(format, p)
			if err != nil {
				return err
			}
			got, err := krm.Decode(format, encoded, krm.Limits{})
			if err != nil {
				return err
			}
			if diff := cmp.Diff(p, got); diff != "" {
				t.Errorf("%s: %s: %s", path, format, diff)
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("%d files, %v", seen, err)
	}
}

func TestEncodedResourcesAreThoseOfThePackage(t *testing.T) {
	t.Parallel()
	pkg := krm.Package{
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"n": int64(-70000), "f": 1.5, "list": []any{nil, true, "x"}}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "b"}},
	}
	encoded, err := krm.Encode(krm.CBOR, pkg)
	if err != nil {
		t.Fatal(err)
	}
	parts, ok := krm.EncodedResources(encoded)
	if !ok || len(parts) != len(pkg) {
		t.Fatalf("%d resources, %t", len(parts), ok)
	}
	for i, part := range parts {
		got, err := krm.DecodeResource(part, krm.Limits{})
		if diff := cmp.Diff(pkg[i], got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
	for n := range encoded {
		if _, ok := krm.EncodedResources(encoded[:n]); ok {
			t.Errorf("the first %d bytes are a package", n)
		}
	}
	if _, ok := krm.EncodedResources(append(encoded, 0)); ok {
		t.Error("a package with more behind it is a package")
	}
}
