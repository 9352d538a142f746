package expression_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/expression"
	"github.com/tko-orchestrator/tko/krm"
)

// plain converts numbers of a result to json.Number.
func plain(t *testing.T, value any) any {
	t.Helper()
	switch value := value.(type) {
	case json.Number:
		var n any
		var err error
		if strings.ContainsAny(value.String(), ".eE") {
			n, err = value.Float64()
		} else {
			n, err = value.Int64()
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	case []any:
		for i := range value {
			value[i] = plain(t, value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = plain(t, value[key])
		}
	}
	return value
}

// The SDK of Python passes the same cases.
func TestEvaluatePassesSharedCases(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var cases struct {
		Package []any
		Cases   []struct {
			Why        string
			Expression any
			Before     string
			Repeat     string
			Times      int
			After      string
			Want       any
			Error      string
		}
	}
	decoder := json.NewDecoder(file)
	decoder.UseNumber()
	if err := decoder.Decode(&cases); err != nil {
		t.Fatal(err)
	}
	var pkg krm.Package
	for _, r := range cases.Package {
		pkg = append(pkg, plain(t, r).(map[string]any))
	}
	if len(cases.Cases) < 300 {
		t.Fatalf("there are only %d cases", len(cases.Cases))
	}
	for _, c := range cases.Cases {
		if c.Repeat != "" {
			c.Expression = c.Before + strings.Repeat(c.Repeat, c.Times) + c.After
		}
		got, err := expression.Evaluate(plain(t, c.Expression), pkg)
		if c.Error != "" {
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), c.Error) {
				t.Errorf("%.100v: got %v and the error %v, want an error with %q: %s", c.Expression, got, err, c.Error, c.Why)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.100v: %v: %s", c.Expression, err, c.Why)
			continue
		}
		if diff := cmp.Diff(plain(t, c.Want), got); diff != "" {
			t.Errorf("%.100v: %s: -want +got:\n%s", c.Expression, c.Why, diff)
		}
	}
}

func FuzzEvaluate(f *testing.F) {
	for _, seed := range []string{"get('', 'v1', 'Namespace').metadata.name", "('a' * 60000).split('a')", "1 // 0.3", "[1][0:]", "{'a': -1}.get('b', 2) % 3", "'x'.join(['a', 'b'])"} {
		f.Add(seed)
	}
	pkg := krm.Package{{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "core"}}}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := expression.Evaluate("{{"+text+"}}", pkg)
		if err != nil && !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
		if s, ok := got.(string); ok && len(s) > 64<<10 && len(s) > len(text)+4 {
			t.Errorf("%q became %d bytes", text, len(s))
		}
	})
}

func BenchmarkEvaluate(b *testing.B) {
	pkg := krm.Package{{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "core"}}}
	for b.Loop() {
		if _, err := expression.Evaluate("{{ get('', 'v1', 'Namespace').metadata.name }}", pkg); err != nil {
			b.Fatal(err)
		}
	}
}
