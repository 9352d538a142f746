package planner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/rollout/ticket"
	"github.com/tko-orchestrator/tko/internal/rollout/ticket/tickettest"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/krm"
)

// ticketUpgrade is an upgrade whose second wave the ticket system SYSTEM approves.
const ticketUpgrade = `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [{upgrade: {to: "t:v2"}, select: {templateIdPatterns: ["t:v1"]}}]
  waves: [{name: canary, count: 1}, {name: rest, approval: {external: SYSTEM}}]
  limits: {concurrent: 10}
`

// A ticketFleet is a fleet with ticket systems.
type ticketFleet struct {
	*world
	ids     []tko.DeploymentID
	server  *tickettest.System
	systems *ticket.Systems
	name    string // of the system
}

// newTicketFleet returns a fleet whose rollout r waits for the approval of its second wave.
func newTicketFleet(t *testing.T, system string) *ticketFleet {
	t.Helper()
	t.Setenv("TICKETS_KEY", tickettest.Key)
	t.Setenv("SNOW_PASSWORD", "pa55")
	w := newWorld(t)
	f := &ticketFleet{world: w, ids: w.fleet(4), server: tickettest.New(t), name: system}
	systems, err := ticket.Read(f.server.File(t), remote.Access{Secrets: secret.Sources{Environment: []string{"TICKETS_KEY", "SNOW_PASSWORD"}}})
	if err != nil {
		t.Fatal(err)
	}
	f.systems = systems
	f.started("r", strings.ReplaceAll(ticketUpgrade, "SYSTEM", system))
	f.toTicket()
	return f
}

// toTicket advances the rollout to its second wave.
func (f *ticketFleet) toTicket() {
	f.t.Helper()
	for range 3 {
		f.advance("r")
		f.settle(f.ids...)
	}
	f.advance("r")
	if s := f.status("r"); !strings.Contains(fmt.Sprint(s.Blocks), "waits for") {
		f.t.Fatalf("%s (%s), %v", s.State, s.Reason, s.Blocks)
	}
}

// errands does what the controller does with tickets that are due.
func (f *ticketFleet) errands() (made int) {
	f.t.Helper()
	due, err := f.RolloutTickets(f.ctx, "r")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, t := range due {
		if err := f.ReportRolloutTicket(f.ctx, f.systems.Do(f.ctx, t)); err != nil && !errors.Is(err, tko.ErrConflict) {
			f.t.Fatal(err)
		}
	}
	f.advance("r")
	return len(due)
}

// task returns a task about the newest ticket, however soon after the last one.
func (f *ticketFleet) task(action string) tko.RolloutTicket {
	f.t.Helper()
	all := f.server.Tickets()
	if len(all) == 0 {
		f.t.Fatal("there is no ticket")
	}
	last := all[len(all)-1]
	document, err := json.Marshal(map[string]any{"key": last.Key, "ticket": last.ID})
	if err != nil {
		f.t.Fatal(err)
	}
	return tko.RolloutTicket{Rollout: "r", Key: last.Key, System: f.name, Action: action, Ticket: last.ID, Document: document}
}

// poll reads the newest ticket.
func (f *ticketFleet) poll() error {
	f.t.Helper()
	err := f.ReportRolloutTicket(f.ctx, f.systems.Do(f.ctx, f.task("read")))
	f.advance("r")
	return err
}

func (f *ticketFleet) changed() (n int) {
	for _, id := range f.ids {
		if f.version(id) == "v2" {
			n++
		}
	}
	return n
}

func (f *ticketFleet) evidence() (all []tko.RolloutEvidence) {
	f.t.Helper()
	for e, err := range f.RolloutEvidence(f.ctx, tko.RolloutEvidenceSelect{ID: "r"}) {
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func (f *ticketFleet) wants(changed int, state, text string) {
	f.t.Helper()
	s := f.status("r")
	if said := fmt.Sprint(s.Reason, s.Blocks); f.changed() != changed || s.State != state || !strings.Contains(said, text) {
		f.t.Errorf("%d were changed, %s, %s; want %d, %s, %q", f.changed(), s.State, said, changed, state, text)
	}
}

// A wave begins when the ticket system approves the plan, and not before; the ticket has what
// an approver must know, and gets the result.
func TestTicketApprovesAWave(t *testing.T) {
	for _, system := range []string{"board", "snow"} {
		t.Run(system, func(t *testing.T) {
			f := newTicketFleet(t, system)
			f.wants(1, "Running", `wave "rest" waits for a ticket at "`+system+`": it is being asked for, since 20`)
			if made := f.errands(); made != 1 {
				t.Fatalf("%d tasks were due", made)
			}
			all := f.server.Tickets()
			if len(all) != 1 || all[0].Plan != f.status("r").Plan {
				t.Fatalf("tickets: %+v", all)
			}
			f.wants(1, "Running", `waits for ticket `+map[string]string{"board": "CHG101", "snow": "Nabc1"}[system])
			if err := f.poll(); err != nil {
				t.Fatal(err)
			}
			f.wants(1, "Running", map[string]string{"board": "in the queue", "snow": "approval is requested"}[system])
			f.server.Decide(func(t *tickettest.Ticket) { t.Decision, t.Who = "approved", "ann" })
			if err := f.poll(); err != nil {
				t.Fatal(err)
			}
			s := f.status("r")
			if f.changed() != 4 || !strings.Contains(s.Waves[1].Approval, "by ann, ticket ") {
				t.Fatalf("%d were changed, %v, %q", f.changed(), s.Blocks, s.Waves[1].Approval)
			}
			f.settle(f.ids...)
			f.advance("r")
			f.wants(4, "Done", "")
			if again := f.wait("r"); again <= 0 {
				t.Errorf("the rollout isn't advanced again although the system lacks the result: %s", again)
			}
			f.errands()
			want := map[string]string{"board": "Done", "snow": "successful"}[system]
			if all := f.server.Tickets(); len(all) != 1 || fmt.Sprint(all[0].Results) != "["+want+"]" {
				t.Errorf("results: %v", all[0].Results)
			}
			if again := f.wait("r"); again >= 0 {
				t.Errorf("it is advanced again after the result was reported: %s", again)
			}
			var outcomes []string
			for _, e := range f.evidence() {
				outcomes = append(outcomes, e.Outcome)
				if e.Outcome == "Approved" && (e.Who != "ann" || e.Ticket == "" || e.System != system || e.Wave != "rest" || e.Plan != s.Plan) {
					t.Errorf("%+v", e)
				}
			}
			if got := strings.Join(outcomes, " "); !strings.HasPrefix(got, "Asked") || !strings.HasSuffix(got, "Approved Told") {
				t.Errorf("evidence: %s", got)
			}
		})
	}
}

// When the ticket system is dead, a person with the right approves the wave, with a reason, which
// the evidence has. What the system says later doesn't count, and it gets the result.
func TestEmergencyApprovesWhenTheTicketSystemIsDead(t *testing.T) {
	f := newTicketFleet(t, "board")
	f.errands()
	f.wants(1, "Running", "waits for ticket CHG101")
	approve := func(ctx context.Context, verb string) error {
		_, err := f.RolloutDo(ctx, tko.RolloutCommand{ID: "r", Verb: verb, Wave: "rest", Emergency: true})
		return err
	}
	if err := approve(f.ctx, "approve"); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "needs a reason") {
		t.Errorf("without a reason: %v", err)
	}
	ctx := tko.WithAuthor(f.ctx, tko.Author{Who: "ann", Why: "the change system burns, and calls fail"})
	if err := approve(ctx, "resume"); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "only approve can be an emergency") {
		t.Errorf("another command: %v", err)
	}
	f.wants(1, "Running", "waits for ticket CHG101")
	if err := approve(ctx, "approve"); err != nil {
		t.Fatal(err)
	}
	f.advance("r")
	f.wants(4, "Running", "")
	all := f.evidence()
	e := all[len(all)-1]
	if e.Outcome != "Emergency" || e.Who != "ann" || e.System != "board" || e.Ticket != "CHG101" || e.Wave != "rest" || e.Plan != f.status("r").Plan || !strings.Contains(e.Text, "the change system burns") {
		t.Errorf("evidence: %+v", e)
	}
	f.server.Decide(func(t *tickettest.Ticket) { t.Decision, t.Who = "denied", "bob" })
	if err := f.poll(); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("a later denial: %v, want that it doesn't count", err)
	}
	f.settle(f.ids...)
	f.advance("r")
	f.wants(4, "Done", "")
	f.errands()
	if all := f.server.Tickets(); len(all) != 1 || fmt.Sprint(all[0].Results) != "[Done]" {
		t.Errorf("tickets: %+v", all)
	}
}

func (w *world) wait(id tko.RolloutID) time.Duration {
	w.t.Helper()
	d, err := w.AdvanceRollout(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func TestTicketHasWhatAnApproverMustKnow(t *testing.T) {
	f := newTicketFleet(t, "board")
	f.errands()
	d := f.server.Tickets()[0].Document
	s := f.status("r")
	if d["type"] != "approval" || d["rollout"] != "r" || d["plan"] != s.Plan || d["wave"] != "rest" || d["deployments"] != 3.0 || fmt.Sprint(d["kinds"]) != "map[Change:4]" || fmt.Sprint(d["waves"]) != "[map[deployments:1 name:canary] map[deployments:3 name:rest]]" {
		t.Errorf("%v", d)
	}
	if groups, ok := d["groups"].([]any); !ok || len(groups) != 1 {
		t.Errorf("groups: %v", d["groups"])
	}
	if undo := fmt.Sprint(d["undo"]); !strings.Contains(undo, "command:tko rollout undo r") || !strings.Contains(undo, "restores:4") || !strings.Contains(undo, "waves:[map[deployments:3 name:rest] map[deployments:1 name:canary]]") {
		t.Errorf("undo: %s", undo)
	}
	if who := fmt.Sprint(d["requester"]); !strings.Contains(who, "who:") {
		t.Errorf("requester: %s", who)
	}
}

// What a ticket system says wrongly delays the rollout, and never approves.
func TestOnlyAnApprovalOfThisPlanCounts(t *testing.T) {
	tests := map[string]struct {
		change func(*tickettest.Ticket)
		want   string
	}{
		"of another plan":    {func(t *tickettest.Ticket) { t.SaysPlan = strings.Repeat("ab", 32) }, "says Approved of the plan abababababab and not of "},
		"without a plan":     {func(t *tickettest.Ticket) { t.SaysPlan = " " }, "without a digest"},
		"of a part of it":    {func(t *tickettest.Ticket) { t.SaysPlan = t.Plan[:12] }, "that doesn't count"},
		"of another ticket":  {func(t *tickettest.Ticket) { t.SaysID = "CHG999" }, "reports the ticket CHG999 in place of"},
		"of no ticket":       {func(t *tickettest.Ticket) { t.SaysID = "../admin" }, "no ID of a ticket"},
		"that is unreadable": {func(t *tickettest.Ticket) { t.Decision = "yes" }, `the decision "yes" is unknown`},
		"that has expired":   {func(t *tickettest.Ticket) { t.Until = "2020-01-01T00:00:00Z" }, "expired at 2020-01-01"},
		"until no time":      {func(t *tickettest.Ticket) { t.Until = "tomorrow" }, "must be a time"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newTicketFleet(t, "board")
			f.errands()
			f.server.Decide(func(t *tickettest.Ticket) { t.Decision, t.Who = "approved", "eve"; test.change(t) })
			_ = f.poll()
			f.wants(1, "Running", test.want)
			for _, e := range f.evidence() {
				if e.Outcome == "Approved" {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

// A ticket system that fails delays a rollout, which says why, and counts the time between
// requests up.
func TestFailingTicketSystemDelaysARollout(t *testing.T) {
	tests := map[string]struct {
		respond func(w http.ResponseWriter, r *http.Request)
		want    string
	}{
		"fails": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "responded 500"},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the end of the client isn't seen
			<-r.Context().Done()
		}, "did not respond within 1s"},
		"refuses":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "check the credentials"},
		"sends a page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>approved</html>")) }, "no JSON"},
		"says nothing": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"decision":"approved"}`)) }, "no ID of a ticket"},
		"another key":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"key":"x","id":"CHG1"}`)) }, "another ticket"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://example.net", http.StatusFound)
		}, "responded 302"},
		"sends a list":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`["approved"]`)) }, "can't be read"},
		"sends nothing": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "no ticket"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newTicketFleet(t, "board")
			f.server.Respond = func(w http.ResponseWriter, r *http.Request) bool { test.respond(w, r); return true }
			f.errands()
			f.wants(1, "Running", test.want)
			if made := f.errands(); made != 0 {
				t.Errorf("it is asked again at once")
			}
		})
	}
}

// Denied: the rollout pauses, and says why. Who resumes asks for another ticket.
func TestDeniedTicketPausesARollout(t *testing.T) {
	f := newTicketFleet(t, "board")
	f.errands()
	f.server.Decide(func(t *tickettest.Ticket) { t.Decision, t.Who = "denied", "bob" })
	if err := f.poll(); err != nil {
		t.Fatal(err)
	}
	f.wants(1, "Paused", `ticket CHG101 at "board" was denied by bob: in the queue`)
	f.do("r", "resume")
	f.advance("r")
	f.errands()
	all := f.server.Tickets()
	if len(all) != 2 || all[0].Key == all[1].Key {
		t.Fatalf("tickets: %+v", all)
	}
	f.server.Decide(func(t *tickettest.Ticket) { t.Decision = "approved" })
	if err := f.poll(); err != nil {
		t.Fatal(err)
	}
	f.wants(4, "Running", "")
	if s := f.status("r"); !strings.Contains(s.Waves[1].Approval, "a person whom the system doesn't name, ticket CHG102") {
		t.Errorf("%q", s.Waves[1].Approval)
	}
}

// The first decision of a ticket is final: a system that says yes after no, or no after yes,
// changes nothing, also when the rollout was resumed meanwhile and waits for another ticket.
func TestFirstDecisionOfATicketIsFinal(t *testing.T) {
	f := newTicketFleet(t, "board")
	f.errands()
	yes := f.task("call")
	yes.Plan, yes.Decision, yes.Who = f.status("r").Plan, "Approved", "eve"
	no := yes
	no.Decision, no.Who = "Denied", "bob"
	report := func(r tko.RolloutTicket, after string, changed int, state, text string) {
		t.Helper()
		if err := f.ReportRolloutTicket(f.ctx, r); !errors.Is(err, tko.ErrConflict) {
			t.Errorf("%s %s: %v", r.Decision, after, err)
		}
		f.advance("r")
		f.wants(changed, state, text)
	}
	if err := f.ReportRolloutTicket(f.ctx, no); err != nil {
		t.Fatal(err)
	}
	f.advance("r")
	f.wants(1, "Paused", "was denied by bob")
	report(yes, "after a denial", 1, "Paused", "was denied by bob")
	report(no, "after a denial", 1, "Paused", "was denied by bob")
	f.do("r", "resume")
	f.advance("r")
	f.errands()
	report(yes, "after a denial and a resumption", 1, "Running", "waits for ticket CHG102")
	second := f.task("call")
	yes.Key, yes.Ticket, no.Key, no.Ticket = second.Key, second.Ticket, second.Key, second.Ticket
	if err := f.ReportRolloutTicket(f.ctx, yes); err != nil {
		t.Fatal(err)
	}
	f.advance("r")
	f.wants(4, "Running", "")
	report(no, "after an approval", 4, "Running", "")
	approved := 0
	for _, e := range f.evidence() {
		if e.Outcome == "Approved" {
			approved++
		}
	}
	if approved != 1 {
		t.Errorf("%d approvals are in the evidence, of one", approved)
	}
}

// An approval ends with its plan: after another plan is made of what is left, another ticket
// is needed, and the system learns that the old one isn't.
func TestApprovalOfAnOlderPlanDoesNotCount(t *testing.T) {
	f := newTicketFleet(t, "board")
	f.errands()
	older := f.task("call")
	older.Plan, older.Decision, older.Who = f.status("r").Plan, "Approved", "ann"
	f.do("r", "pause")
	d := f.deployment(f.ids[3])
	edited := d.Package.WithDeployment("t:v1", string(d.Site), true, true)
	edited = append(edited, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "mine"}})
	if _, err := f.CommitDeployment(f.ctx, tko.DeploymentCommit{ID: f.ids[3], Revision: d.Stamp.Revision, Package: edited}); err != nil {
		t.Fatal(err)
	}
	f.do("r", "plan")
	for range 3 {
		f.advance("r")
	}
	next := f.status("r").Plan
	if next == older.Plan {
		t.Fatal("the plan is the same")
	}
	if _, err := f.RolloutDo(f.ctx, tko.RolloutCommand{ID: "r", Verb: "resume", Plan: next}); err != nil {
		t.Fatal(err)
	}
	f.advance("r")
	if err := f.ReportRolloutTicket(f.ctx, older); !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), "doesn't count any more") {
		t.Errorf("an approval of the older plan: %v", err)
	}
	f.advance("r")
	f.errands()
	all := f.server.Tickets()
	if len(all) != 2 || fmt.Sprint(all[0].Results) != "[Superseded]" || all[1].Plan != next {
		t.Fatalf("tickets: %+v", all)
	}
	f.wants(1, "Running", "CHG102")
}

// A report is refused if it is about another key or is repeated, and refused approvals leave a
// trace.
func TestReportsOfTicketSystemsAreChecked(t *testing.T) {
	f := newTicketFleet(t, "board")
	f.errands()
	good := f.task("call")
	good.Plan, good.Decision, good.Who = f.status("r").Plan, "Approved", "ann"
	for name, test := range map[string]struct {
		change func(*tko.RolloutTicket)
		kind   error
	}{
		"another key":     {func(t *tko.RolloutTicket) { t.Key = strings.Repeat("0", 64) }, tko.ErrNotFound},
		"another rollout": {func(t *tko.RolloutTicket) { t.Rollout = "other" }, tko.ErrNotFound},
		"another system":  {func(t *tko.RolloutTicket) { t.System = "snow" }, tko.ErrNotFound},
		"no system":       {func(t *tko.RolloutTicket) { t.System = "" }, tko.ErrNotFound},
		"another plan":    {func(t *tko.RolloutTicket) { t.Plan = strings.Repeat("0", 64) }, tko.ErrConflict},
		"no plan":         {func(t *tko.RolloutTicket) { t.Plan = "" }, tko.ErrConflict},
		"another ticket":  {func(t *tko.RolloutTicket) { t.Ticket = "CHG7" }, tko.ErrConflict},
		"no decision":     {func(t *tko.RolloutTicket) { t.Decision = "Maybe" }, tko.ErrInvalid},
	} {
		bad := good
		test.change(&bad)
		if err := f.ReportRolloutTicket(f.ctx, bad); !errors.Is(err, test.kind) {
			t.Errorf("%s: %v", name, err)
		}
		f.advance("r")
		f.wants(1, "Running", "waits for ticket CHG101")
	}
	if err := f.ReportRolloutTicket(f.ctx, good); err != nil {
		t.Fatal(err)
	}
	if err := f.ReportRolloutTicket(f.ctx, good); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("repeated: %v", err)
	}
	f.advance("r")
	f.wants(4, "Running", "")
}

// A person can't approve in place of the ticket system.
func TestUserCannotApproveForATicketSystem(t *testing.T) {
	f := newTicketFleet(t, "board")
	f.errands()
	_, err := f.RolloutDo(f.ctx, tko.RolloutCommand{ID: "r", Verb: "approve"})
	if !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), `is approved by ticket CHG101 at the ticket system "board"`) {
		t.Errorf("%v", err)
	}
	f.advance("r")
	f.wants(1, "Running", "CHG101")
	if commands := fmt.Sprint(f.status("r").Commands); strings.Contains(commands, "approve") {
		t.Errorf("commands: %s", commands)
	}
}

// A response that is lost, because the process ends before it is recorded, doubles no ticket:
// it is asked for again with the same key.
func TestLostResponsesDoubleNoTicket(t *testing.T) {
	for _, system := range []string{"board", "snow"} {
		t.Run(system, func(t *testing.T) {
			f := newTicketFleet(t, system)
			for range 3 {
				due, err := f.RolloutTickets(f.ctx, "r")
				if err != nil || len(due) != 1 {
					t.Fatalf("%d, %v", len(due), err)
				}
				f.systems.Do(f.ctx, due[0]) // and it isn't reported
			}
			f.errands()
			if all := f.server.Tickets(); len(all) != 1 {
				t.Fatalf("tickets: %+v", all)
			}
			f.do("r", "cancel")
			f.settle(f.ids...)
			for range 2 { // the first result is not recorded
				due, err := f.RolloutTickets(f.ctx, "r")
				if err != nil || len(due) != 1 || due[0].Action != "tell" || due[0].Result != "Cancelled" {
					t.Fatalf("%+v, %v", due, err)
				}
				f.systems.Do(f.ctx, due[0])
			}
			if all := f.server.Tickets(); len(all[0].Results) != 2 {
				t.Errorf("results: %v", all[0].Results)
			}
		})
	}
}

func TestUnknownTicketSystemIsNamed(t *testing.T) {
	f := newTicketFleet(t, "elsewhere")
	f.errands()
	f.wants(1, "Running", `this server has no ticket system "elsewhere"`)
	if all := f.server.Tickets(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
