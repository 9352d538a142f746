package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

// sourced is a server whose sources go through states, one for each request.
type sourced struct {
	*fake
	states   map[string][]tko.Source
	enqueued []string
}

func (s *sourced) Source(ctx context.Context, name string) (tko.Source, error) {
	if err := s.got(ctx, "source %s", name); err != nil {
		return tko.Source{}, err
	}
	states := s.states[name]
	if len(states) == 0 {
		return tko.Source{}, tko.Errorf(tko.ErrNotFound, "source %q: not found", name)
	}
	if len(states) > 1 {
		s.states[name] = states[1:]
	}
	states[0].Name = name
	return states[0], nil
}

func (s *sourced) EnqueueSources(_ context.Context, names []string, _ bool, _ string) error {
	s.enqueued = append(s.enqueued, names...)
	return nil
}

func sourceAt(enqueued bool, ready, reason, message string) tko.Source {
	return tko.Source{Enqueued: enqueued, Status: tko.SourceStatus{Applied: "main@sha1:0123456789abcdef", Conditions: []tko.Condition{
		{Type: tko.ConditionReady, Status: ready, Reason: reason, Message: message},
	}}}
}

func (s *sourced) run(ctx context.Context, args ...string) result {
	return runServer(ctx, s.fake, s, "", args...)
}

func TestSyncWaitsUntilSourcesAreReconciled(t *testing.T) {
	t.Parallel()
	ready := sourceAt(false, tko.ConditionTrue, tko.SourceReasonSucceeded, "applied")
	old := sourceAt(true, tko.ConditionTrue, tko.SourceReasonSucceeded, "applied long ago")
	oldFailure := sourceAt(true, tko.ConditionFalse, tko.SourceReasonFailed, "long ago")
	under := sourceAt(false, tko.ConditionUnknown, tko.SourceReasonProgressing, "instance a is on its way")
	failed := sourceAt(false, tko.ConditionFalse, tko.SourceReasonInvalid, "a.yaml is wrong")
	failed.Status.Conditions = append(failed.Status.Conditions, tko.Condition{Type: tko.ConditionReconciling, Status: tko.ConditionTrue})
	partly := sourceAt(false, tko.ConditionFalse, tko.SourceReasonFailed, "instance a failed")
	partly.Status.Conditions = append(partly.Status.Conditions, tko.Condition{Type: tko.ConditionReconciling, Status: tko.ConditionTrue, Reason: tko.SourceReasonProgressing, Message: "instance b is on its way"})
	suspended := sourceAt(false, tko.ConditionUnknown, tko.SourceReasonSuspended, "the source is suspended")
	isReady := func(name string) string { return "source \"" + name + "\" is ready at main@sha1:0123456789ab\n" }
	tests := map[string]struct {
		why    string
		states map[string][]tko.Source
		args   []string
		code   int
		want   string // on stderr
	}{
		"without": {"without --wait, the command doesn't wait", map[string][]tko.Source{"a": {old}}, []string{"a"}, exitOK, ""},
		"ready":   {"there may be nothing to wait for", map[string][]tko.Source{"a": {ready}}, []string{"a", "--wait"}, exitOK, isReady("a")},
		"reconciled": {
			"the state before the reconciliation doesn't count", map[string][]tko.Source{"a": {old, oldFailure, oldFailure, ready}}, []string{"a", "--wait"}, exitOK, isReady("a"),
		},
		"under way": {"the command waits for operations that the reconciliation started", map[string][]tko.Source{"a": {old, old, under, under, ready}}, []string{"a", "--wait"}, exitOK, isReady("a")},
		"one failed, others under way": {
			"operations in flight count, although another instance has failed",
			map[string][]tko.Source{"a": {old, partly, partly, failed}},
			[]string{"a", "--wait"},
			exitOther,
			"tko: source \"a\" is not ready: BuildFailed: a.yaml is wrong\n",
		},
		"fails": {
			"one source that isn't ready makes the command fail",
			map[string][]tko.Source{"a": {failed}},
			[]string{"a", "--wait"},
			exitOther,
			"tko: source \"a\" is not ready: BuildFailed: a.yaml is wrong\n",
		},
		"some fail": {
			"the command waits for all sources and reports those that aren't ready",
			map[string][]tko.Source{"a": {old, failed}, "b": {old, old, ready}, "c": {suspended}},
			[]string{"a", "b", "c", "--wait"},
			exitOther,
			isReady("b") + "tko: source \"a\" is not ready: BuildFailed: a.yaml is wrong; source \"c\" is not ready: Suspended: the source is suspended\n",
		},
		"not reconciled": {
			"the wait is bounded",
			map[string][]tko.Source{"a": {ready, old}},
			[]string{"a", "--wait", "--wait-timeout=3s"},
			exitOther,
			"tko: source \"a\" is not settled after 3s without progress: it has not been reconciled since it was enqueued\nhint: reconciliation continues: see tko gitops status a\n",
		},
		"slow": {
			"the message has the current state",
			map[string][]tko.Source{"a": {under}},
			[]string{"a", "--wait", "--wait-timeout=3s"},
			exitOther,
			"tko: source \"a\" is not settled after 3s without progress: instance a is on its way\nhint: reconciliation continues: see tko gitops status a\n",
		},
		"slow, and one failed": {
			"the message has what is under way",
			map[string][]tko.Source{"a": {partly}},
			[]string{"a", "--wait", "--wait-timeout=3s"},
			exitOther,
			"tko: source \"a\" is not settled after 3s without progress: instance b is on its way\nhint: reconciliation continues: see tko gitops status a\n",
		},
		"unknown": {"the command enqueues nothing if a source is missing", nil, []string{"a", "--wait"}, exitNotFound, "tko: source \"a\": not found\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &sourced{fake: example(), states: test.states}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour) // fails instead of waiting forever
				defer stop()
				got := s.run(ctx, append([]string{"gitops", "sync"}, test.args...)...)
				if diff := cmp.Diff(result{"", test.want, test.code}, got, cmp.AllowUnexported(result{})); diff != "" {
					t.Errorf("%s:\n%s", test.why, diff)
				}
				if (len(s.enqueued) > 0) != (test.states != nil) {
					t.Errorf("the command enqueued %v, want only sources that exist", s.enqueued)
				}
			})
		})
	}
}

// A planFunc plans sources in tests.
type planFunc func(tree fs.FS, o PlanOptions) (SourcePlan, error)

type fakePlanner struct {
	Planner // nil: methods that no test expects
	plan    planFunc
}

func (f fakePlanner) PlanSource(_ context.Context, _ SourceClient, tree fs.FS, o PlanOptions) (SourcePlan, error) {
	return f.plan(tree, o)
}

// runPlan runs "tko gitops plan" with a planner.
func runPlan(t *testing.T, plan planFunc, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, func(target) (server, error) { return example(), nil })
	a.planner = fakePlanner{plan: plan}
	code := a.main(t.Context(), append([]string{"gitops", "plan"}, args...))
	return result{out.String(), errs.String(), code}
}

func TestPlanPrintsDetailsBelowTheRowOfTheirChange(t *testing.T) {
	t.Parallel()
	plan := planFunc(func(fs.FS, PlanOptions) (SourcePlan, error) {
		return SourcePlan{Changes: []PlannedChange{
			{Verb: "create", Kind: "template", Name: "new", File: "a.yaml"},
			{Verb: "update", Kind: "template", Name: "t", File: "a.yaml", Reason: "moved", Details: []string{`v1 C "x": a: "1" → "2\u001b[2J"`}},
			{Verb: "delete", Kind: "deployment", Name: "d", Descendants: 3},
			{Verb: "delete", Kind: "site", Name: "s", Descendants: 1, Held: true},
		}}, nil
	})
	for format, want := range map[string]string{
		"table": "VERB    KIND        NAME  FILE    REASON\n" +
			"create  template    new   a.yaml  -\n" +
			"update  template    t     a.yaml  moved\n" +
			"    v1 C \"x\": a: \"1\" → \"2\\u001b[2J\"\n" +
			"delete  deployment  d     -       and 3 below it\n" +
			"delete  site        s     -       waits for an approval\n",
		"bare": "create template new\nupdate template t\ndelete deployment d\ndelete site s\n",
		"yaml": "- file: a.yaml\n  kind: template\n  name: new\n  verb: create\n" +
			"- changes:\n  - 'v1 C \"x\": a: \"1\" → \"2\\u001b[2J\"'\n  file: a.yaml\n  kind: template\n  name: t\n  reason: moved\n  verb: update\n" +
			"- kind: deployment\n  name: d\n  reason: and 3 below it\n  verb: delete\n" +
			"- kind: site\n  name: s\n  reason: waits for an approval\n  verb: delete\n",
	} {
		if diff := cmp.Diff(result{out: want}, runPlan(t, plan, "-o", format), cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s: %s", format, diff)
		}
	}
}

func TestPlanPassesFlagsToThePlanner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		want PlanOptions
	}{
		"defaults": {nil, PlanOptions{Name: filepath.Base(dir), Prune: true}},
		"all": {
			[]string{"--name=fleet", "--path=sites", "--prune=false", "--adopt", "--connection=c", "--age-keys=a", "--pgp-keys=p"},
			PlanOptions{Name: "fleet", Path: "sites", Adopt: true, Connection: "c", AgeKeys: "a", PGPKeys: "p"},
		},
	}
	for name, test := range tests {
		var got PlanOptions
		var files []string
		r := runPlan(t, func(tree fs.FS, o PlanOptions) (SourcePlan, error) {
			got = o
			var err error
			files, err = fs.Glob(tree, "*")
			return SourcePlan{}, err
		}, append(test.args, "--dir", dir)...)
		if diff := cmp.Diff(test.want, got); diff != "" || r.code != exitOK || len(files) != 1 {
			t.Errorf("%s: exit code %d, %d files, want 1: %s\n%s", name, r.code, len(files), r.err, diff)
		}
	}
}

func TestPlanReportsWhatIsNotInTheTable(t *testing.T) {
	t.Parallel()
	invalid := tko.Errorf(tko.ErrInvalid, "a.yaml is wrong")
	tests := map[string]struct {
		plan SourcePlan
		err  error
		args []string
		want result
	}{
		"no changes": {want: result{err: "nothing would change\n"}},
		"a new source": {
			plan: SourcePlan{New: true},
			want: result{err: "source \"fleet\": not found: these are the changes of a new one (to plan an existing source, set --name)\nnothing would change\n"},
		},
		"notices": {
			plan: SourcePlan{Warnings: []string{"a warning"}, OSMSkipped: true, Messages: []string{"a message"}},
			want: result{err: "a warning\nnot compared: the network services of Open Source MANO; only removals of those that the source is known to have are shown: give --connection to compare them\na message\n"},
		},
		"refused": {
			plan: SourcePlan{Refused: []error{errors.New("x.yaml: refused")}},
			want: result{err: "nothing found\ntko: x.yaml: refused\n", code: exitUsage},
		},
		"exit code of what was not compared": {
			plan: SourcePlan{OSMSkipped: true, Changes: []PlannedChange{{Verb: "delete", Kind: "NsInstance", Name: "a", Held: true}}}, args: []string{"--exit-code"},
			want: result{
				out:  "VERB    KIND        NAME  FILE  REASON\ndelete  NsInstance  a     -     waits for an approval\n",
				err:  "not compared: the network services of Open Source MANO; only removals of those that the source is known to have are shown: give --connection to compare them\ntko: not everything could be compared: the network services, without --connection\n",
				code: exitIncomplete,
			},
		},
		"exit code of nothing, and what was not compared": {
			plan: SourcePlan{OSMSkipped: true}, args: []string{"--exit-code"},
			want: result{
				err:  "not compared: the network services of Open Source MANO; only removals of those that the source is known to have are shown: give --connection to compare them\ntko: not everything could be compared: the network services, without --connection\n",
				code: exitIncomplete,
			},
		},
		"exit code": {
			plan: SourcePlan{Changes: []PlannedChange{{Verb: "create", Kind: "site", Name: "a", File: "f"}}}, args: []string{"--exit-code"},
			want: result{out: "VERB    KIND  NAME  FILE  REASON\ncreate  site  a     f     -\n", code: exitChanges},
		},
		"an invalid tree": {err: invalid, want: result{err: "tko: a.yaml is wrong\n", code: exitUsage}},
		"an invalid tree of a new source": {
			plan: SourcePlan{New: true}, err: invalid,
			want: result{err: "tko: a.yaml is wrong\nhint: source \"fleet\": not found: to plan an existing source, set --name\n", code: exitUsage},
		},
		"missing keys": {
			plan: SourcePlan{New: true, KeysMissing: true}, err: tko.Errorf(tko.ErrDenied, "a.yaml is encrypted"),
			want: result{err: "tko: a.yaml is encrypted\nhint: give --age-keys or --pgp-keys\n", code: exitDenied},
		},
	}
	for name, test := range tests {
		got := runPlan(t, func(fs.FS, PlanOptions) (SourcePlan, error) { return test.plan, test.err }, append(test.args, "--name=fleet", "-o", "table")...)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The command prints each problem of a tree on a line, up to a limit, and then the
// number of the others.
func TestPlanPrintsEachProblemOfATree(t *testing.T) {
	t.Parallel()
	for n, last := range map[int]string{60: "problem 59", 1003: "and 3 more"} {
		var out, errs bytes.Buffer
		a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, nil)
		var all []error
		for i := range n {
			all = append(all, fmt.Errorf("problem %d", i))
		}
		err := a.wrongTree(errors.Join(all...), "fleet", SourcePlan{})
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		if len(lines) != min(n, 1001) || lines[len(lines)-1] != last || err.Error() != fmt.Sprintf("the tree has %d problems", n) {
			t.Errorf("%d problems: %d lines, the last is %q; %v", n, len(lines), lines[len(lines)-1], err)
		}
	}
}

func (s *sourced) Sources(context.Context) ([]tko.Source, error) {
	var all []tko.Source
	for name, states := range s.states {
		source := states[0]
		source.Name = name
		all = append(all, source)
	}
	return all, nil
}

// If no server takes up the work of sources, their statuses are old, and users see since
// when.
func TestStatusShowsThatNoServerTakesUpWork(t *testing.T) {
	t.Parallel()
	at := func(due time.Duration) []tko.Source {
		source := sourceAt(false, tko.ConditionTrue, tko.SourceReasonSucceeded, "applied")
		if due > 0 {
			source.Due = noon.Add(-due)
		}
		return []tko.Source{source}
	}
	for name, test := range map[string]struct {
		states map[string][]tko.Source
		want   string // "": nothing
	}{
		"all are overdue":      {map[string][]tko.Source{"a": at(time.Hour), "b": at(5 * time.Minute)}, "(5m0s ago)"},
		"one was taken up":     {map[string][]tko.Source{"a": at(time.Hour), "b": at(0)}, ""},
		"due for a moment":     {map[string][]tko.Source{"a": at(10 * time.Second)}, ""},
		"there are no sources": {nil, ""},
	} {
		got := (&sourced{fake: &fake{}, states: test.states}).run(t.Context(), "gitops", "status", "-o", "table")
		const notice = "no server with the role gitops has taken up work since "
		if got.code != 0 || test.want == "" && strings.Contains(got.err, notice) || test.want != "" && (!strings.Contains(got.err, notice) || !strings.Contains(got.err, test.want)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// In a pipe, the conditions of sources aren't lost among thousands of entities that they own.
func TestListsOfSourcesAreBriefWithoutATerminal(t *testing.T) {
	t.Parallel()
	source := tko.Source{Name: "netbox", Status: tko.SourceStatus{Kind: "inventory", Conditions: []tko.Condition{{Type: tko.ConditionReady, Status: tko.ConditionFalse, Reason: "ArtifactFailed"}}}}
	for i := range 2000 {
		source.Status.Items = append(source.Status.Items, tko.SourceItem{Kind: "site", Name: fmt.Sprintf("s/%d", i)})
	}
	catalog := source
	catalog.Name, catalog.Status.Kind = "nephio", "catalog"
	f := &sourced{fake: example(), states: map[string][]tko.Source{"netbox": {source}, "nephio": {catalog}}}
	for _, args := range []string{"gitops status", "inventory status", "catalog list"} {
		got := f.run(t.Context(), strings.Fields(args)...)
		if got.code != 0 || strings.Contains(got.out, "s/7") || !strings.Contains(got.out, "owns: 2000") || !strings.Contains(got.out, "ArtifactFailed") || strings.Count(got.out, "\n") > 60 {
			t.Errorf("tko %s prints %d lines: %.300s %s", args, strings.Count(got.out, "\n"), got.out, got.err)
		}
		if got := f.run(t.Context(), append(strings.Fields(args), "-o", "yaml")...); !strings.Contains(got.out, "s/7") {
			t.Errorf("tko %s -o yaml leaves the entities out", args)
		}
	}
}

// With a format for programs, sync prints the sources, also if one isn't ready.
func TestSyncPrintsSourcesForPrograms(t *testing.T) {
	t.Parallel()
	ready := sourceAt(false, tko.ConditionTrue, tko.SourceReasonSucceeded, "applied")
	failed := sourceAt(false, tko.ConditionFalse, tko.SourceReasonInvalid, "a.yaml is wrong")
	for args, want := range map[string]string{
		"sync a -o json":                 `"name":"a"`,
		"sync a --wait -o json":          `"ready":"True"`,
		"sync b --wait -o json":          `"reason":"BuildFailed"`,
		"sync a b --wait -o json":        `"message":"a.yaml is wrong"`,
		"sync a b --wait -o jsonpath={}": `main@sha1`,
	} {
		f := &sourced{fake: example(), states: map[string][]tko.Source{"a": {ready}, "b": {failed}}}
		got := f.run(t.Context(), append([]string{"gitops"}, strings.Fields(args)...)...)
		if !strings.Contains(strings.ReplaceAll(got.out, " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("tko gitops %s prints %q: want %s", args, got.out, want)
		}
	}
}
