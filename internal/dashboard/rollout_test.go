package dashboard

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

func TestARolloutIsStartedWithTheSeenPlanAndAReason(t *testing.T) {
	t.Parallel()
	f := sample()
	u := newUser(t, f, 80, 24)
	u.press("5", "R")
	u.enter("start")
	u.sees("This will change 12, create 0 and delete 1 deployments, in 2 waves.", "Type 13 and press enter")
	u.press("tab")
	u.enter("reviewed")
	if u.enter("12"); len(f.commands) > 0 {
		t.Errorf("a wrong count has started it: %v", f.commands)
	}
	u.press("backspace", "backspace")
	u.enter("13")
	if diff := cmp.Diff([]tko.RolloutCommand{{ID: "smf-v2", Verb: "start", Plan: "9f3c5d7e1a2b3c4d"}}, f.commands); diff != "" {
		t.Errorf("commanded (-want +got):\n%s", diff)
	}
	if f.authors[0].Why != "reviewed" {
		t.Errorf("the reason is %q", f.authors[0].Why)
	}
	u.sees("rollout smf-v2: start is done")
}

func TestACommandThatTheStateForbidsIsExplained(t *testing.T) {
	t.Parallel()
	f := sample()
	u := newUser(t, f, 80, 24)
	u.press("5", "enter", "R")
	u.enter("undo")
	u.sees("is Planned: its commands are plan, start, approve,")
	u.press("enter", "esc", "R")
	u.enter("explode")
	u.sees(`"explode" is no command of a rollout`)
	if len(f.commands) > 0 {
		t.Errorf("commanded: %v", f.commands)
	}
}

func TestAnApprovalOfARolloutIsOfItsNextWave(t *testing.T) {
	t.Parallel()
	f := sample()
	u := newUser(t, f, 80, 24)
	u.press("5", "A")
	u.sees("The wave rest may begin: 10 deployments will be changed.")
	u.enter("10")
	if len(f.commands) != 1 || f.commands[0].Verb != "approve" || f.commands[0].Plan == "" || f.commands[0].Wave != "rest" {
		t.Errorf("commanded: %v", f.commands)
	}
}

func TestADeletionHasAReason(t *testing.T) {
	t.Parallel()
	f := sample()
	u := newUser(t, f, 80, 24)
	u.press("D", "tab")
	u.enter("worn out")
	u.enter("yes")
	if len(f.removed) != 1 || f.authors[0].Why != "worn out" {
		t.Errorf("removed %q, because %v", f.removed, f.authors)
	}
}
