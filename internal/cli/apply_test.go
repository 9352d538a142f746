package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

func TestChangesAreMadeOnlyIfTheirNumberIsConfirmed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		changes, confirm, unasked int
		err                       error
	}{
		"few need none":            {changes: 50, unasked: 50},
		"many need the number":     {changes: 51, unasked: 50, err: errUsage},
		"the number":               {changes: 51, confirm: 51, unasked: 50},
		"a lower number":           {changes: 51, confirm: 50, unasked: 50, err: errUsage},
		"an upper bound":           {changes: 51, confirm: 60, unasked: 50},
		"a much higher number":     {changes: 51, confirm: 152, unasked: 50, err: errUsage},
		"another number of few":    {changes: 3, confirm: 2, unasked: 50, err: errUsage},
		"an import needs it":       {changes: 1, err: errUsage},
		"an import, with a number": {changes: 1, confirm: 1},
	} {
		var out bytes.Buffer
		a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &out}, nil)
		if err := a.confirmChanges(test.changes, test.confirm, test.unasked); !errors.Is(err, test.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A user who is asked has seen what would be changed, and nothing that controls the terminal.
func TestPlansAreShownBeforeTheQuestion(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newApp(Streams{In: strings.NewReader("y\n"), Out: &out, Err: &out}, nil)
	a.interactive = true
	n := a.showSteps([]step{{Manifest: Manifest{Name: "lagos\x1b[2J", Put: tko.Put{Kind: tko.KindSite}}, verb: "create"}, {}}, false)
	if err := a.confirmChanges(n, 0, 0); err != nil {
		t.Fatal(err)
	}
	if want := "create site lagos\uFFFD[2J\nThis will make 1 change. Continue? [y/N] "; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}

func TestPlansReportAllThatIsWrong(t *testing.T) {
	t.Parallel()
	manifests := []Manifest{
		{File: "a.yaml", Name: "edge:v1", Put: tko.Put{Kind: tko.KindTemplate, ID: "edge:v1"}},
		{File: "b.yaml", Name: "lagos", Put: tko.Put{Kind: tko.KindSite, ID: "lagos"}},
	}
	steps, err := planAll(manifests, func(m Manifest, coming map[string]bool) (step, error) {
		if !coming["template edge:v1"] || !coming["site lagos"] {
			t.Errorf("%s: only %v come", m.Name, coming)
		}
		return step{Manifest: m}, tko.Errorf(tko.ErrInvalid, "wrong")
	})
	if len(steps) != 2 || !errors.Is(err, tko.ErrInvalid) || strings.Count(err.Error(), "wrong") != 2 {
		t.Errorf("%d steps: %v", len(steps), err)
	}
}
