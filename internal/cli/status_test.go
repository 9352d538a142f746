package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

func TestStatusHasTwentyLinesAtMost(t *testing.T) {
	t.Parallel()
	for _, waits := range []int{0, 3, 8} {
		f := &fleet{failures: map[failureKey]*failure{}, problems: []string{"the disk is full"}}
		for i := range 40 {
			key := failureKey{tko.KindSite, tko.ConditionScheduled, fmt.Sprintf("Reason%d", i)}
			f.failures[key] = &failure{failureKey: key, count: 40 - i, example: "lagos"}
		}
		for i := range waits {
			f.waits = append(f.waits, fleetWait{count: i + 1, text: "waiting", how: "tko deployment list"})
		}
		var out bytes.Buffer
		a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &out}, nil)
		if err := f.print(a); err != nil {
			t.Fatal(err)
		}
		if err := a.out.Flush(); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if lines := strings.Count(text, "\n"); lines > 20 || !strings.Contains(text, "Reason2") || !strings.Contains(text, "failures for other reasons: see tko status -o json") || strings.Count(text, "waiting") != waits {
			t.Errorf("with %d waits, %d lines:\n%s", waits, lines, text)
		}
	}
}
