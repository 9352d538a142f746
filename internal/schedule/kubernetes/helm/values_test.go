package helm_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
)

func TestTextsBecomeValuesAtTheirPaths(t *testing.T) {
	t.Parallel()
	values := map[string]any{"a": map[string]any{"b": int64(1), "c": int64(2)}, "text": "x"}
	for _, set := range [][2]string{
		{"a.b", "3"},
		{"yes", "true"},
		{"no", "false"},
		{"nothing", "null"},
		{"zero", "0"},
		{"octal", "007"},
		{"negative", "-5"},
		{"plus", "+5"},
		{"float", "1.5"},
		{"long", "12345678901234567890"},
		{"large", "9007199254740993"},
		{"commas", "a,b={c},d[0]=e"},
		{"quoted", `"5"`},
		{"single", "'true'"},
		{"empty", ""},
		{"quote", `"`},
		{"lines", "a\nb\n"},
		{`with\.dot`, "x"},
		{"list[1].x", "y"},
	} {
		if err := helm.SetValue(values, set[0], set[1]); err != nil {
			t.Errorf("%s: %v", set[0], err)
		}
	}
	want := map[string]any{
		"a": map[string]any{"b": int64(3), "c": int64(2)}, "text": "x", "yes": true, "no": false, "nothing": nil, "zero": int64(0), "octal": "007", "negative": int64(-5), "plus": "+5",
		"float": "1.5", "long": "12345678901234567890", "large": "9007199254740993", "commas": "a,b={c},d[0]=e", "quoted": "5", "single": "true", "empty": "", "quote": `"`, "lines": "a\nb\n",
		"with.dot": "x", "list": []any{nil, map[string]any{"x": "y"}},
	}
	if diff := cmp.Diff(want, helm.MergeValues(values, nil)); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{"text.x", "text[0]", "a[0]", "list.x", "list[1].x[2]"} {
		if err := helm.SetValue(values, path, "hunter2"); !errors.Is(err, tko.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v: %v", path, err, values)
		}
	}
}

func TestValuesAreMergedAndBounded(t *testing.T) {
	t.Parallel()
	read := func(text string) map[string]any {
		t.Helper()
		values, err := helm.ReadValues(text)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	under, over := read("a: {x: 1, l: [1, 2], z: {p: 1}}\nb: text\nagreed: yes\n"), read("a: {l: [3], z: {q: 1.0}}\nb: {c: null}\n")
	want := map[string]any{"a": map[string]any{"x": int64(1), "l": []any{int64(3)}, "z": map[string]any{"p": int64(1), "q": int64(1)}}, "b": map[string]any{"c": nil}, "agreed": true}
	if diff := cmp.Diff(want, helm.MergeValues(under, over)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{}, read("# nothing\n")); diff != "" {
		t.Error(diff)
	}
	for name, text := range map[string]string{
		"no map": "hunter2", "broken": "hunter2: [", "two documents": "a: 1\n---\nhunter2: 1", "twice": "hunter2: 1\nhunter2: 2",
		"long": "hunter2: " + strings.Repeat("x", helm.MaxValues), "a bomb": "a: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a, ", 1000) + "*a]",
		"deep": strings.Repeat("{a: ", 200) + "1" + strings.Repeat("}", 200),
	} {
		if _, err := helm.ReadValues(text); !errors.Is(err, tko.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
