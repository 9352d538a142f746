package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

func TestStopOfNothingIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"stop --reason x":                     "--all",
		"stop":                                "--all",
		"stop --all":                          "--reason",
		"stop --site= --reason x":             "--site is empty",
		"stop --site-metadata= --reason x":    "--site-metadata",
		"stop --topology= --reason x":         "--topology is empty",
		"stop north --reason x":               "north",
		"resume":                              "STOP",
		"resume a b":                          "STOP",
		"resume a --only-undo --dry-run -o x": "x",
	} {
		f := &fake{}
		r := run(t, f, "", strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) || len(f.asked) > 0 {
			t.Errorf("%s: exit code %d, %s, asked %q", args, r.code, r.err, f.asked)
		}
	}
}

func TestStopAndResumeShowWhatIsInFlightAndWaits(t *testing.T) {
	t.Parallel()
	f := &fake{}
	r := run(t, f, "", "stop", "--site", "north/*", "--site", "a", "--reason", "storm")
	for _, want := range []string{"s-1", "sites north/*, a", "3 sites, 7 deployments", "scheduling of site lagos/1", "tko resume s-1"} {
		if r.code != exitOK || !strings.Contains(r.out+r.err, want) {
			t.Errorf("exit code %d, without %q: %s%s", r.code, want, r.out, r.err)
		}
	}
	if len(f.asked) != 1 || f.asked[0] != "stop sites north/*, a: storm" {
		t.Errorf("asked %q", f.asked)
	}
	r = run(t, f, "", "resume", "s-1", "--only-undo", "--dry-run")
	for _, want := range []string{"2 sites with changes to schedule, 1 deployment to prepare", "in progress: r", "In flight:  nothing", "nothing was released"} {
		if r.code != exitOK || !strings.Contains(r.out+r.err, want) {
			t.Errorf("exit code %d, without %q: %s%s", r.code, want, r.out, r.err)
		}
	}
	if len(f.asked) != 2 || f.asked[1] != "resume {ID:s-1 OnlyUndo:true DryRun:true}" {
		t.Errorf("asked %q", f.asked)
	}
}

func TestStatusNamesStopsFirst(t *testing.T) {
	t.Parallel()
	f := &fake{deployments: func() []tko.Deployment { return nil }, stops: []tko.StopStatus{{Stop: tko.Stop{ID: "s-1", All: true, Reason: "storm", By: tko.Author{Who: "ann"}, Created: time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)}}}}
	r := run(t, f, "", "status")
	if r.code != exitOK || !strings.HasPrefix(r.out, `STOPPED: "ann" stopped everything at 2026-11-24T08:00:00Z (storm), until tko resume s-1`) {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	r = run(t, f, "", "status", "-o", "json")
	if !strings.Contains(r.out, `"reason": "storm"`) {
		t.Errorf("%s", r.out)
	}
}
