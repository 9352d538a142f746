package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/krm"
)

// sourced is a server whose sources go through states, one for each question.
type sourced struct {
	*fake
	states map[string][]tko.Source
	called []string
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
	s.called = append(s.called, names...)
	return nil
}

func (s *sourced) PutEntity(_ context.Context, p tko.Put) (tko.PutResult, error) {
	return tko.PutResult{ID: p.ID, Changed: true}, nil
}

func sourceAt(called bool, ready, reason, message string) tko.Source {
	return tko.Source{Enqueued: called, Status: tko.SourceStatus{Applied: "main@sha1:0123456789abcdef", Conditions: []tko.Condition{
		{Type: tko.ConditionReady, Status: ready, Reason: reason, Message: message},
	}}}
}

func (s *sourced) run(ctx context.Context, args ...string) result {
	return runServer(ctx, s.fake, s, "", args...)
}

func TestSync(t *testing.T) {
	t.Parallel()
	ready := sourceAt(false, tko.ConditionTrue, gitops.ReasonSucceeded, "applied")
	old := sourceAt(true, tko.ConditionTrue, gitops.ReasonSucceeded, "applied long ago")
	oldFailure := sourceAt(true, tko.ConditionFalse, gitops.ReasonFailed, "long ago")
	under := sourceAt(false, tko.ConditionUnknown, gitops.ReasonProgressing, "instance a is on its way")
	failed := sourceAt(false, tko.ConditionFalse, gitops.ReasonInvalid, "a.yaml is wrong")
	failed.Status.Conditions = append(failed.Status.Conditions, tko.Condition{Type: tko.ConditionReconciling, Status: tko.ConditionTrue})
	suspended := sourceAt(false, tko.ConditionUnknown, gitops.ReasonSuspended, "the source is suspended")
	isReady := func(name string) string { return "source \"" + name + "\" is ready at main@sha1:0123456789ab\n" }
	tests := map[string]struct {
		why    string
		states map[string][]tko.Source
		args   []string
		code   int
		says   string
	}{
		"without": {"it doesn't wait", map[string][]tko.Source{"a": {old}}, []string{"a"}, exitOK, ""},
		"ready":   {"there may be nothing to wait for", map[string][]tko.Source{"a": {ready}}, []string{"a", "--wait"}, exitOK, isReady("a")},
		"looked at": {
			"what was known before the look doesn't count", map[string][]tko.Source{"a": {old, oldFailure, oldFailure, ready}}, []string{"a", "--wait"}, exitOK, isReady("a"),
		},
		"under way": {"what the look began is waited for", map[string][]tko.Source{"a": {old, old, under, under, ready}}, []string{"a", "--wait"}, exitOK, isReady("a")},
		"fails": {
			"one that isn't ready is enough",
			map[string][]tko.Source{"a": {failed}},
			[]string{"a", "--wait"},
			exitOther,
			"tko: source \"a\" is not ready: BuildFailed: a.yaml is wrong\n",
		},
		"some fail": {
			"all are waited for, and those that aren't ready are told",
			map[string][]tko.Source{"a": {old, failed}, "b": {old, old, ready}, "c": {suspended}},
			[]string{"a", "b", "c", "--wait"},
			exitOther,
			isReady("b") + "tko: source \"a\" is not ready: BuildFailed: a.yaml is wrong; source \"c\" is not ready: Suspended: the source is suspended\n",
		},
		"nobody looks": {
			"the wait has an end",
			map[string][]tko.Source{"a": {ready, old}},
			[]string{"a", "--wait", "--wait-timeout=3s"},
			exitOther,
			"tko: source \"a\" is not settled after 3s: nobody has looked at it since it was called for\nhint: it goes on by itself: see tko gitops status a\n",
		},
		"slow": {
			"the message says what goes on",
			map[string][]tko.Source{"a": {under}},
			[]string{"a", "--wait", "--wait-timeout=3s"},
			exitOther,
			"tko: source \"a\" is not settled after 3s: instance a is on its way\nhint: it goes on by itself: see tko gitops status a\n",
		},
		"unknown": {"nothing is called then", nil, []string{"a", "--wait"}, exitNotFound, "tko: source \"a\": not found\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &sourced{fake: example(), states: test.states}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour) // it doesn't wait for ever
				defer stop()
				got := s.run(ctx, append([]string{"gitops", "sync"}, test.args...)...)
				if diff := cmp.Diff(result{"", test.says, test.code}, got, cmp.AllowUnexported(result{})); diff != "" {
					t.Errorf("%s:\n%s", test.why, diff)
				}
				if (len(s.called) > 0) != (test.states != nil) {
					t.Errorf("called for %v", s.called)
				}
			})
		})
	}
}

// What changes is below its row, and a list for scripts.
func TestPlanShowsChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const manifests = "apiVersion: tko.nephio.org/v1alpha1\nkind: Template\nspec:\n  templateId: t\n  package: {resources: [{apiVersion: v1, kind: C, metadata: {name: x}, a: \"2\\e[2J\"}]}\n" +
		"---\napiVersion: tko.nephio.org/v1alpha1\nkind: Template\nspec: {templateId: new, package: {resources: []}}\n"
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{
		"table": "VERB    KIND      NAME  FILE    REASON\n" +
			"create  template  new   a.yaml  -\n" +
			"update  template  t     a.yaml  -\n" +
			"    v1 C \"x\": a: \"1\" → \"2\\u001b[2J\"\n",
		"bare": "create template new\nupdate template t\n",
		"yaml": "- file: a.yaml\n  kind: template\n  name: new\n  verb: create\n" +
			"- changes:\n  - 'v1 C \"x\": a: \"1\" → \"2\\u001b[2J\"'\n  file: a.yaml\n  kind: template\n  name: t\n  verb: update\n",
	} {
		f := &fake{templates: []tko.Template{{ID: "t", Package: krm.Package{{"apiVersion": "v1", "kind": "C", "metadata": map[string]any{"name": "x"}, "a": "1"}}}}}
		s := &sourced{fake: f, states: map[string][]tko.Source{"fleet": {{Status: tko.SourceStatus{Items: []tko.SourceItem{{Kind: "template", Name: "t", Revision: 1}}}}}}}
		got := s.run(t.Context(), "gitops", "plan", "--dir", dir, "--name", "fleet", "-o", format)
		if diff := cmp.Diff(want, got.out); diff != "" || got.code != exitOK {
			t.Errorf("%s: exit code %d, %s\n%s", format, got.code, strings.TrimSpace(got.err), diff)
		}
	}
}

// The command prints all that is wrong with a tree, each on a line, and says how many more there are beyond a bound.
func TestPlanTellsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	for n, last := range map[int]string{60: "problem 59", 1003: "and 3 more"} {
		var out, errs bytes.Buffer
		a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, nil)
		var all []error
		for i := range n {
			all = append(all, fmt.Errorf("problem %d", i))
		}
		err := a.wrongTree(errors.Join(all...), "fleet", nil)
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		if len(lines) != min(n, 1001) || lines[len(lines)-1] != last || err.Error() != fmt.Sprintf("%d things are wrong with the tree", n) {
			t.Errorf("%d problems: %d lines, the last is %q; %v", n, len(lines), lines[len(lines)-1], err)
		}
	}
}

// Of what would change in Open Source MANO, the paths of values are told.
func TestPlanShowsPathsOfOSM(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, nil)
	a.globals.format = formatTable
	preview := &gitops.Preview{Plan: &plan.Plan{}, OSM: &osm.Plan{Changes: []osm.Change{
		{Action: osm.ActionUpgrade, What: "instance", Name: "upf", Source: "upf.osmops.yaml", Paths: []string{"1/upf: replicaCount"}},
	}}}
	if err := a.printPreview(t.Context(), &session{app: a}, preview, false); err != nil {
		t.Fatal(err)
	}
	if err := a.out.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "VERB     KIND        NAME  FILE             REASON\nupgrade  NsInstance  upf   upf.osmops.yaml  -\n    1/upf: replicaCount\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
