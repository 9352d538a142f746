package cli

import (
	"errors"
	"testing"
)

func TestJSONPathIsThatOfKubectl(t *testing.T) {
	t.Parallel()
	value := map[string]any{"items": []any{
		map[string]any{"id": "a", "n": int64(1), "labels": map[string]any{"app.io/x": "y"}, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		map[string]any{"id": "b", "n": int64(2)},
	}}
	for path, want := range map[string]string{
		"{.items[*].id}": "a b", "{.items[0].n}": "1", "{.items[-1].id}": "b", "{.items[9].id}": "", "{.nothing.at.all}": "",
		"{.items[0].labels['app.io/x']}": "y", `{.items[0].labels.app\.io/x}`: "y", "{.items[0].labels.*}": "y",
		`{.items[?(@.id=="b")].n}`: "2", "{.items[?(@.id!='b')].n}": "1", `{.items[0].conditions[?(@.type=="Ready")].status}`: "True",
		`{range .items[*]}{.id}={.n}{"\n"}{end}`: "a=1\nb=2\n", "{.items[0].labels}": `{"app.io/x":"y"}`, "plain": "plain", `{"}"}`: "}",
		"{range .items[*]}{range .conditions[*]}{.type}{end};{end}": "Ready;;", "{$.items[0].id}": "a",
	} {
		p, err := parseJSONPath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got := p.execute(value); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"{", "{.a", "{.a[}", "{.a[x]}", "{a}", "{range .a}", "{end}", "{..a}", "{.a[?(@.b)]}", `{"x}`, "{.a.}"} {
		if p, err := parseJSONPath(path); !errors.Is(err, errUsage) {
			t.Errorf("%s: %v, error %v, want a usage error", path, p, err)
		}
	}
}
