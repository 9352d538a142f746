package plugin_test

import (
	"context"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
)

// Each run is counted by its result: what the plugin decided, what failed, and what
// was killed for a limit.
func TestRunsAreCountedByResult(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why    string
		plugin tko.Plugin
		cancel bool
		want   string
	}{
		"ok":       {why: "it succeeded", plugin: shell(tko.PluginValidate, `cat >/dev/null; echo '{}'`), want: "ok"},
		"refused":  {why: "the package is wrong, not the plugin", plugin: shell(tko.PluginValidate, `cat >/dev/null; echo 'error: too small'`), want: "refused"},
		"failed":   {why: "an exit code is a failure", plugin: shell(tko.PluginValidate, `exit 1`), want: "failed"},
		"timeout":  {why: "it exceeded its time", plugin: shell(tko.PluginValidate, `sleep 1000`), want: "killed"},
		"signal":   {why: "as the kernel does without memory", plugin: shell(tko.PluginValidate, `kill -9 $$`), want: "killed"},
		"absent":   {why: "it can't be started", plugin: tko.Plugin{Type: tko.PluginValidate, Name: "p", Arguments: []string{"/nowhere/program"}}, want: "failed"},
		"canceled": {why: "the caller has gone", plugin: shell(tko.PluginValidate, `sleep 1000`), cancel: true, want: "canceled"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			r := plugin.New(plugin.Options{
				Programs: []string{"/"}, ValidateTimeout: 2 * time.Second,
				Ran: func(run plugin.Run) {
					if run.Took <= 0 {
						t.Errorf("it took %s", run.Took)
					}
					if (run.Err == nil) != (run.Result == "ok") {
						t.Errorf("the result is %s, and the error %v", run.Result, run.Err)
					}
					got = append(got, run.Type+" "+run.Name+" "+run.Result)
				},
			})
			t.Cleanup(r.Close)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.cancel {
				cancel()
			}
			_ = r.Validate(ctx, test.plugin, target, pkg, true) // its error has tests of its own
			if want := "validate p " + test.want; len(got) != 1 || got[0] != want {
				t.Errorf("counted %q, want %q: %s", got, want, test.why)
			}
		})
	}
}

// The last lines that a run has logged are part of it, also without a log; the others
// are counted.
func TestARunHasItsLastLines(t *testing.T) {
	t.Parallel()
	var runs []plugin.Run
	r := plugin.New(plugin.Options{
		Programs: []string{"/"}, Ran: func(run plugin.Run) { runs = append(runs, run) },
	})
	t.Cleanup(r.Close)
	// The input, in YAML, names the FIFO of the log.
	p := shell(tko.PluginPrepare, `log=$(sed -n 's/.*"\{0,1\}logFile"\{0,1\}: *"\{0,1\}\([^",]*\).*/\1/p' | head -1); i=0; while [ $i -lt 25 ]; do i=$((i+1)); echo "line $i"; done > "$log"; exit 1`)
	_, _, err := r.Prepare(t.Context(), p, target, "d", pkg)
	if err == nil || len(runs) != 1 {
		t.Fatalf("%d runs, and the error %v", len(runs), err)
	}
	run := runs[0]
	if run.Entity != "d" || run.Result != "failed" || run.Err == nil || len(run.Lines) != 20 || run.More != 5 || run.Lines[19] != "line 25" || run.Lines[0] != "line 6" {
		t.Errorf("the run is %+v", run)
	}
}
