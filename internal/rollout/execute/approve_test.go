package execute_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// A second run of the same command, such as that of a script after a timeout, must not
// approve the next wave.
func TestSecondApprovalOfARolloutApprovesNothingMore(t *testing.T) {
	t.Parallel()
	// a rollout whose first wave has rows that wait or soak, and whose second one waits
	waves := func(approvals map[int]execute.Approval, waits, soaks int) (execute.Rollout, execute.Summary) {
		r := rollout()
		r.Spec.Waves[0].Approval, r.Spec.Waves[1].Approval, r.Approvals = true, true, approvals
		return r, execute.Summary{Waves: []execute.Count{
			{Rows: 2, By: map[execute.Progress]int{execute.Waiting: waits, execute.Soaking: soaks, execute.Healthy: 2 - waits - soaks}},
			{Rows: 5, By: map[execute.Progress]int{execute.Waiting: 5}},
		}}
	}
	first := map[int]execute.Approval{0: {Plan: plan.Digest{1}, Who: "a"}}
	other := map[int]execute.Approval{0: {Plan: plan.Digest{2}, Who: "a"}} // of another plan: doesn't count
	tests := map[string]struct {
		approved     map[int]execute.Approval
		waits, soaks int
		wave         string
		approves     int
		err          string
	}{
		"the first":                         {waits: 2},
		"the first, by name":                {waits: 2, wave: "canary"},
		"the first, of a new plan":          {approved: other, waits: 2},
		"the second in place of it":         {waits: 2, wave: "rest", err: `the next wave to approve is "canary", not "rest"`},
		"while the first waits":             {approved: first, waits: 2, err: `the wave "canary" is approved already, and in progress`},
		"while the first soaks":             {approved: first, soaks: 1, err: "tko rollout approve r --wave rest"},
		"the first again, by name":          {approved: first, soaks: 1, wave: "canary", err: `the next wave to approve is "rest", not "canary"`},
		"in advance, by name":               {approved: first, soaks: 1, wave: "rest", approves: 1},
		"after the first":                   {approved: first, approves: 1},
		"after both":                        {approved: map[int]execute.Approval{0: first[0], 1: first[0]}, err: "no wave waits for an approval"},
		"a wave that isn't in the rollout":  {waits: 2, wave: "x", err: `the next wave to approve is "canary", not "x"`},
		"with the first wave already empty": {approves: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := waves(test.approved, test.waits, test.soaks)
			got, number, err := execute.Approve(r, s, execute.Approving{Wave: test.wave, Who: "b", When: noon})
			switch {
			case test.err != "":
				if !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v, want %q", err, test.err)
				}
			case err != nil:
				t.Error(err)
			case number != test.approves || got.Approvals[test.approves].Who != "b" || len(got.Approvals) > 2 || r.Approvals[test.approves].Who == "b":
				t.Errorf("approvals: %+v", got.Approvals)
			}
		})
	}
}

// An emergency approves a wave in place of a ticket that isn't decided, for the plan only, and the
// ticket doesn't count any more. A denial stays one.
func TestEmergencyApprovesInPlaceOfATicket(t *testing.T) {
	t.Parallel()
	ticket := func(of plan.Digest, decision execute.Decision) []execute.Ticket {
		return []execute.Ticket{{Wave: 0, System: "board", Key: "k", ID: "CHG1", Plan: of, Round: 1, Decision: decision}}
	}
	tests := map[string]struct {
		external  string
		tickets   []execute.Ticket
		emergency bool
		err       string
		decision  execute.Decision // of the ticket then
	}{
		"a ticket waits":           {"board", ticket(plan.Digest{1}, ""), true, "", execute.TicketOverridden},
		"none was asked for yet":   {"board", nil, true, "", ""},
		"one has expired":          {"board", ticket(plan.Digest{1}, execute.TicketExpired), true, "", execute.TicketExpired},
		"one of another plan":      {"board", ticket(plan.Digest{2}, execute.TicketDenied), true, "", execute.TicketDenied},
		"it was denied":            {"board", ticket(plan.Digest{1}, execute.TicketDenied), true, "an emergency doesn't change that", execute.TicketDenied},
		"without an emergency":     {"board", ticket(plan.Digest{1}, ""), false, "a holder of the right emergency adds --emergency and --reason", ""},
		"a wave that needs a user": {"", nil, true, "waits for no ticket: approve it without --emergency", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rollout()
			r.State, r.Plan, r.Tickets = execute.Running, plan.Digest{1}, test.tickets
			r.Spec.Waves[0].Approval, r.Spec.Waves[0].External = true, test.external
			rs := rows(4)
			got, _, err := execute.Approve(r, execute.Summarize(rs), execute.Approving{Who: "ann", When: noon, Emergency: test.emergency})
			if test.err != "" {
				if !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Tickets) > 0 && got.Tickets[0].Decision != test.decision || len(r.Tickets) > 0 && test.decision == execute.TicketOverridden && r.Tickets[0].Decision != "" {
				t.Errorf("the ticket becomes %+v, and the former state has %+v", got.Tickets, r.Tickets)
			}
			if out := next(got, rs, execute.Observation{}, noon); len(out.Admit) == 0 {
				t.Errorf("nothing is admitted: %v", out.Blocks)
			}
			got.Plan = plan.Digest{3}
			if out := next(got, rs, execute.Observation{}, noon); len(out.Admit) > 0 {
				t.Error("the approval counts for another plan")
			}
		})
	}
}
