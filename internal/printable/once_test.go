package printable_test

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/printable"
)

func TestSubjectsAreNamedOnce(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`Repository "r": Repository "r": spec.url: it is missing`:        `Repository "r": spec.url: it is missing`,
		`site "a": Repository "r": Repository "r": Repository "r": x`:    `site "a": Repository "r": x`,
		`v1 ConfigMap "a: b": spec: v1 ConfigMap "a: b": spec: is wrong`: `v1 ConfigMap "a: b": spec: is wrong`,
		`Repository "r": Repository "s": x`:                              `Repository "r": Repository "s": x`,
		`file "a": line 3: file "b": line 3: x`:                          `file "a": line 3: file "b": line 3: x`,
		`x`:                                                              `x`, ``: ``, `a: `: `a: `, `a: a`: `a: a`, `a: a: `: `a: `, `ab: b: c`: `ab: b: c`,
	} {
		if got := printable.Once(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := printable.Once(strings.Repeat("a: ", 1000)); got != "a: " {
		t.Errorf("got %d bytes", len(got))
	}
	for _, text := range []string{"x", `r: x`} {
		if got := printable.Prefixed("r", text); got != "r: x" {
			t.Errorf("%q: got %q", text, got)
		}
	}
}
