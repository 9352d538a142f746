package execute_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// ticketed returns a rollout whose second wave waits for a ticket.
func ticketed() execute.Rollout {
	r := rollout()
	r.State, r.Plan, r.Started = execute.Running, plan.Digest{1}, 7
	r.Spec.Waves[1].Approval, r.Spec.Waves[1].External = true, "board"
	r.Tickets = []execute.Ticket{{Key: "k", Wave: 1, System: "board", Plan: r.Plan, Round: 1, Since: noon, ID: "CHG1"}}
	return r
}

// The state of a rollout and the plan of the ticket decide what is done about it.
func TestTicketsAreAskedForReadAndToldByTheState(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*execute.Rollout)
		want   string // action and result
	}{
		"waits":                  {func(*execute.Rollout) {}, "read "},
		"not known yet":          {func(r *execute.Rollout) { r.Tickets[0].ID = "" }, "ask "},
		"paused":                 {func(r *execute.Rollout) { r.State = execute.Paused }, ""},
		"approved":               {func(r *execute.Rollout) { r.Tickets[0].Decision = execute.TicketApproved }, ""},
		"denied":                 {func(r *execute.Rollout) { r.Tickets[0].Decision = execute.TicketDenied }, ""},
		"of an older plan":       {func(r *execute.Rollout) { r.Plan = plan.Digest{2} }, "tell Superseded"},
		"of an older plan, told": {func(r *execute.Rollout) { r.Plan, r.Tickets[0].Told = plan.Digest{2}, "Superseded" }, ""},
		"used for an older plan": {func(r *execute.Rollout) { r.Plan, r.Tickets[0].Decision = plan.Digest{2}, execute.TicketApproved }, ""},
		"undoing":                {func(r *execute.Rollout) { r.State = execute.Undoing }, "tell Superseded"},
		"done":                   {func(r *execute.Rollout) { r.State = execute.Done }, "tell Done"},
		"done, told":             {func(r *execute.Rollout) { r.State, r.Tickets[0].Told = execute.Done, "Done" }, ""},
		"undone after done":      {func(r *execute.Rollout) { r.State, r.Tickets[0].Told = execute.Undone, "Done" }, "tell Undone"},
		"cancelled":              {func(r *execute.Rollout) { r.State = execute.Cancelled }, "tell Cancelled"},
		"never reached":          {func(r *execute.Rollout) { r.State, r.Tickets[0].Failures = execute.Done, 1000 }, ""},
		"asked now":              {func(r *execute.Rollout) { r.Tickets[0].Asked = noon }, ""},
		"asked 15 s ago":         {func(r *execute.Rollout) { r.Tickets[0].Asked = noon.Add(-15 * time.Second) }, "read "},
		"failed 4 s ago":         {func(r *execute.Rollout) { r.Tickets[0].Failures, r.Tickets[0].Asked = 1, noon.Add(-4*time.Second) }, ""},
		"failed 9 m ago":         {func(r *execute.Rollout) { r.Tickets[0].Failures, r.Tickets[0].Asked = 500, noon.Add(-9*time.Minute) }, ""},
		"failed 10 m ago":        {func(r *execute.Rollout) { r.Tickets[0].Failures, r.Tickets[0].Asked = 500, noon.Add(-10*time.Minute) }, "read "},
	}
	for name, test := range tests {
		r := ticketed()
		test.change(&r)
		var tasks []string
		for _, task := range execute.DueTickets(r, noon) {
			tasks = append(tasks, task.Action+" "+task.Result)
		}
		if got := strings.Join(tasks, ", "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// An approval that ends with its time is asked for again, with another key, and less and less
// often while the system gives expired ones.
func TestExpiredApprovalIsAskedForAgain(t *testing.T) {
	t.Parallel()
	r := ticketed()
	approved := execute.TicketReport{Key: "k", System: "board", Action: execute.TicketRead, ID: "CHG1", Plan: r.Plan.String(), Decision: execute.TicketApproved, Who: "ann", Until: noon.Add(time.Hour)}
	r, note, err := r.Report(approved, noon)
	if err != nil || note.Outcome != "Approved" || r.Approvals[1].Who != `ann, ticket CHG1 at "board"` || r.Approvals[1].Ticket != "CHG1" {
		t.Fatalf("%+v, %v, %+v", note, err, r.Approvals)
	}
	rows := []execute.Row{{Deployment: "a", Wave: 0, Progress: execute.Healthy, Since: noon}, {Deployment: "b", Wave: 1, Progress: execute.Waiting}}
	next := func(now time.Time) execute.Output {
		return execute.Next(execute.Input{Rollout: r, Rows: rows, Flight: execute.NewFlight(nil), Now: now})
	}
	if out := next(noon.Add(59 * time.Minute)); len(out.Admit) != 1 {
		t.Errorf("while it is valid: %v", out.Blocks)
	}
	out := next(noon.Add(time.Hour))
	if len(out.Admit) != 0 || len(out.Rollout.Tickets) != 2 || out.Rollout.Tickets[1].Round != 2 || out.Rollout.Tickets[1].Key == "k" {
		t.Fatalf("after its time: %v, %+v", out.Admit, out.Rollout.Tickets)
	}
	if again := execute.Next(execute.Input{Rollout: out.Rollout, Rows: rows, Flight: execute.NewFlight(nil), Now: noon.Add(time.Hour)}); len(again.Rollout.Tickets) != 2 {
		t.Errorf("a second evaluation asks again: %+v", again.Rollout.Tickets)
	}
	r = ticketed()
	approved.Until = noon
	r, note, err = r.Report(approved, noon)
	if err != nil || note.Outcome != "Refused" || len(r.Approvals) != 0 {
		t.Fatalf("%+v, %v, %+v", note, err, r.Approvals)
	}
	if out := next(noon.Add(59 * time.Second)); len(out.Rollout.Tickets) != 1 || !strings.Contains(out.Blocks[0].Text, "expired at") {
		t.Errorf("at once: %+v, %v", out.Rollout.Tickets, out.Blocks)
	}
	if out := next(noon.Add(time.Minute)); len(out.Rollout.Tickets) != 2 {
		t.Errorf("after a minute: %+v", out.Rollout.Tickets)
	}
}

// An approval by a user, such as one of an earlier version of the rollout, doesn't count for a
// wave that a ticket system approves.
func TestApprovalByAUserDoesNotCountForATicketSystem(t *testing.T) {
	t.Parallel()
	r := ticketed()
	r.Approvals = map[int]execute.Approval{1: {Plan: r.Plan, Who: "eve", When: noon}}
	rows := []execute.Row{{Deployment: "b", Wave: 1, Progress: execute.Waiting}}
	out := execute.Next(execute.Input{Rollout: r, Rows: rows, Flight: execute.NewFlight(nil), Now: noon})
	if len(out.Admit) != 0 || len(out.Blocks) == 0 || out.Blocks[0].Code != "Approval" {
		t.Errorf("%v, %v", out.Admit, out.Blocks)
	}
}
