package execute

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// A Decision is what a ticket system decided about a ticket; "" if it hasn't.
type Decision string

// The decisions.
const (
	TicketApproved Decision = "Approved"
	TicketDenied   Decision = "Denied"
	// TicketOverridden is a ticket in place of which a user approved its wave.
	TicketOverridden Decision = "Overridden"
	TicketExpired    Decision = "Expired" // approved, for a time that was over already
)

// A Ticket is a request for the approval of a wave at a ticket system. It is recorded before
// the request is made, so that a request whose response is lost is repeated with the same
// key, and is never forgotten.
type Ticket struct {
	Key    string      `json:"key"`
	Wave   int         `json:"wave"`
	System string      `json:"system"`
	Plan   plan.Digest `json:"plan"`  // the only plan that an approval is valid for
	Round  int         `json:"round"` // counts the tickets of a wave and plan, from 1
	Since  time.Time   `json:"since"` // when the approval was needed

	ID       string    `json:"id,omitempty"`     // at the system; "": not known
	Number   string    `json:"number,omitempty"` // for people
	Asked    time.Time `json:"asked,omitzero"`   // when the system was asked last
	Failures int       `json:"failures,omitempty"`
	Text     string    `json:"text,omitempty"` // the state of the ticket, or why it isn't known
	Decision Decision  `json:"decision,omitempty"`
	Decided  time.Time `json:"decided,omitzero"`
	Told     string    `json:"told,omitempty"` // the newest result that the system knows
}

// Name returns the ticket for users.
func (t Ticket) Name() string {
	if name := cmp.Or(t.Number, t.ID); name != "" {
		return fmt.Sprintf("ticket %s at %q", name, t.System)
	}
	return fmt.Sprintf("a ticket at %q", t.System)
}

// The actions at ticket systems.
const (
	TicketAsk  = "ask"  // create the ticket, or find the one with its key
	TicketRead = "read" // read what was decided
	TicketTell = "tell" // tell the result
	// TicketCall is the report of a ticket system that calls by itself.
	TicketCall = "call"
)

// resultSuperseded is the result of a ticket that isn't needed any more.
const resultSuperseded = "Superseded"

// The times between two requests about a ticket.
const (
	minTicketEvery = 15 * time.Second
	maxTicketEvery = 5 * time.Minute
	firstRetry     = 5 * time.Second
	maxRetry       = 10 * time.Minute
	// maxTellings limits the attempts to tell a result: they last for about a week.
	maxTellings = 1000
	// minAgain and maxAgain are the times after which another ticket is asked for if an
	// approval had expired when it was given. The time doubles with each.
	minAgain = time.Minute
	maxAgain = time.Hour
)

// doubled returns a duration that doubles n times, up to a limit.
func doubled(d time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// dueAt returns when the system is to be asked again; the zero time: at once.
func (t Ticket) dueAt() time.Time {
	switch {
	case t.Asked.IsZero():
		return t.Asked
	case t.Failures > 0:
		return t.Asked.Add(doubled(firstRetry, t.Failures-1, maxRetry))
	}
	return t.Asked.Add(min(max(t.Asked.Sub(t.Since)/20, minTicketEvery), maxTicketEvery))
}

// newest returns the index of the newest ticket of a wave for the current plan, or -1.
func (r Rollout) newest(wave int) int {
	for i := len(r.Tickets) - 1; i >= 0; i-- {
		if t := &r.Tickets[i]; t.Wave == wave && t.Plan == r.Plan {
			return i
		}
	}
	return -1
}

// denied reports whether the newest ticket of a wave was denied.
func (r Rollout) denied(wave int) bool {
	i := r.newest(wave)
	return i >= 0 && r.Tickets[i].Decision == TicketDenied
}

// overridden returns the rollout after an approval in place of the ticket of a wave, whose
// decision doesn't count any more. Its system gets the result of the rollout all the same.
func (r Rollout) overridden(wave int, by Approving) Rollout {
	i := r.newest(wave)
	if i < 0 || r.Tickets[i].Decision != "" {
		return r
	}
	r.Tickets = slices.Clone(r.Tickets)
	t := &r.Tickets[i]
	t.Decision, t.Decided, t.Failures, t.Text = TicketOverridden, by.When, 0, cmp.Or(by.Who, "a user")+" approved the wave without it, in an emergency"
	return r
}

// TicketOf returns the name of the newest ticket of a wave; "" if it has none.
func (r Rollout) TicketOf(wave int) string {
	if i := r.newest(wave); i >= 0 {
		return cmp.Or(r.Tickets[i].Number, r.Tickets[i].ID)
	}
	return ""
}

// open reports whether a ticket waits for a decision that would count.
func (r Rollout) open(i int) bool {
	return r.Tickets[i].Decision == "" && r.newest(r.Tickets[i].Wave) == i && (r.State == Running || r.State == Paused)
}

// A TicketTask is what is to be done at a ticket system.
type TicketTask struct {
	Ticket

	Action string
	Result string // to tell: Done, Undone, Cancelled or Superseded
}

// dueAt returns when the task is due; the zero time: at once.
func (t TicketTask) dueAt() time.Time {
	if t.Action == TicketTell && t.Failures == 0 {
		return time.Time{}
	}
	return t.Ticket.dueAt()
}

// DueTickets returns what is to be done now at ticket systems.
func DueTickets(r Rollout, now time.Time) (due []TicketTask) {
	for i := range r.Tickets {
		if task := r.task(i); task.Action != "" && !now.Before(task.dueAt()) {
			due = append(due, task)
		}
	}
	return due
}

// ResultsDue returns when results are to be reported to ticket systems; not open if there are
// none.
func (r Rollout) ResultsDue() (at time.Time, open bool) {
	for i := range r.Tickets {
		task := r.task(i)
		if task.Action != TicketTell {
			continue
		}
		if due := task.dueAt(); !open || due.Before(at) {
			at, open = due, true
		}
	}
	return at, open
}

// task returns what a ticket needs, now or later.
func (r Rollout) task(i int) TicketTask {
	t := r.Tickets[i]
	task := TicketTask{Ticket: t}
	switch {
	case t.Told == resultSuperseded:
	case r.State == Done || r.State == Undone || r.State == Cancelled:
		task.Result = string(r.State)
	case t.Decision == "" && !r.open(i) && (r.State == Running || r.State == Undoing):
		task.Result = resultSuperseded
	case r.State == Running && r.open(i) && t.ID == "":
		task.Action = TicketAsk
	case r.State == Running && r.open(i):
		task.Action = TicketRead
	}
	if task.Result != "" && t.Told != task.Result && t.Failures < maxTellings {
		task.Action = TicketTell
	}
	return task
}

// external asks for the ticket of a wave, and returns what the wave waits for.
func (e *evaluation) external(n int, name string) Block {
	r := &e.out.Rollout
	block := Block{Code: "Approval", Key: name}
	i := r.newest(n)
	if i >= 0 && r.Tickets[i].Decision == TicketExpired {
		if again := r.Tickets[i].Decided.Add(doubled(minAgain, r.Tickets[i].Round-1, maxAgain)); e.in.Now.Before(again) {
			block.Text = fmt.Sprintf("wave %q needs another ticket at %q, because %s; it is asked for", name, r.Tickets[i].System, r.Tickets[i].Text)
			block.Until = again
			return block
		}
	}
	if i < 0 || r.Tickets[i].Decision != "" {
		t := Ticket{Wave: n, System: r.Spec.Waves[n].External, Plan: r.Plan, Round: 1, Since: e.in.Now}
		if i >= 0 {
			t.Round += r.Tickets[i].Round
		}
		t.Key = r.ticketKey(name, t.Round)
		r.Tickets = append(r.keptTickets(), t)
		i = len(r.Tickets) - 1
	}
	t := r.Tickets[i]
	if due := t.dueAt(); due.After(e.in.Now) {
		e.wake(due)
	}
	block.Text = fmt.Sprintf("wave %q waits for %s: %s, since %s", name, t.Name(), cmp.Or(t.Text, "it is being asked for"), t.Since.UTC().Format(time.RFC3339))
	return block
}

// ticketKey returns the key of a ticket: the same each time that the ticket is asked for, and
// no other ticket's.
func (r Rollout) ticketKey(wave string, round int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{strconv.Quote(r.ID), strconv.FormatInt(r.Started, 10), strconv.Quote(wave), r.Plan.String(), strconv.Itoa(round)}, " ")))
	return hex.EncodeToString(sum[:])
}

// maxTickets limits the tickets that are kept: the oldest that need nothing more are
// forgotten.
const maxTickets = 300

func (r Rollout) keptTickets() []Ticket {
	kept := slices.Clone(r.Tickets)
	for len(kept) >= maxTickets {
		i := slices.IndexFunc(kept, func(t Ticket) bool { return t.Told == resultSuperseded || t.Decision != "" && t.Plan != r.Plan })
		if i < 0 {
			break
		}
		kept = slices.Delete(kept, i, i+1)
	}
	return kept
}

// A TicketReport is what became of a task, or what a ticket system reports by itself.
type TicketReport struct {
	Key, Action string
	System      string // that reports: it decides about its own tickets only
	ID, Number  string
	Plan        string // digest of the plan that the decision is about
	Decision    Decision
	Who         string
	Until       time.Time // until when an approval is valid; zero: for the plan
	Text        string    // state of the ticket
	Failure     string    // why the task failed; "": it didn't
	Result      string    // that was reported
}

// A TicketNote is what evidence and the audit log have of a report.
type TicketNote struct {
	Ticket

	Outcome string // Asked, Approved, Denied, Refused, Failed or Told; "": nothing new
	Who     string
	Text    string // in words
}

// The outcomes of reports.
const (
	OutcomeAsked   = "Asked"
	OutcomeRefused = "Refused" // what the ticket system says doesn't count
	OutcomeFailed  = "Failed"
	OutcomeTold    = "Told"
	// OutcomeEmergency is that a user approved a wave in place of its ticket.
	OutcomeEmergency = "Emergency"
)

// Report returns the rollout after a report. An approval counts only for the plan that the
// ticket was asked for, while that is the rollout's plan, and while the wave waits for it.
// The error says that the report is about nothing that is waited for.
func (r Rollout) Report(rep TicketReport, now time.Time) (Rollout, TicketNote, error) {
	i := slices.IndexFunc(r.Tickets, func(t Ticket) bool { return t.Key == rep.Key && t.System == rep.System })
	if i < 0 {
		return r, TicketNote{}, tko.Errorf(tko.ErrNotFound, "rollout %q has no ticket at %q with the key %.16s: it was asked for by another rollout, at another system, or for an older plan", r.ID, rep.System, rep.Key)
	}
	r.Tickets = slices.Clone(r.Tickets)
	t := &r.Tickets[i]
	was := *t
	if rep.Action != TicketCall {
		t.Asked = now
	}
	note := TicketNote{Who: rep.Who}
	if rep.Action == TicketTell {
		t.tell(rep, &note)
	} else {
		if !r.open(i) {
			return r, TicketNote{}, tko.Errorf(tko.ErrConflict, "rollout %q: %s doesn't count any more: it was decided, or another plan or ticket took its place", r.ID, t.Name())
		}
		r = r.decide(i, rep, now, &note)
	}
	t = &r.Tickets[i]
	note.Ticket = *t
	news := t.Decision != was.Decision || t.ID != was.ID || note.Outcome == OutcomeTold
	if note.Text == was.Text && !news && (note.Outcome != OutcomeRefused || rep.Action != TicketCall) {
		note.Outcome = "" // evidence has it
	}
	return r, note, nil
}

// tell notes that a result was reported, or why not.
func (t *Ticket) tell(rep TicketReport, note *TicketNote) {
	if rep.Failure != "" {
		t.Failures++
		t.Text = "the result could not be reported: " + rep.Failure
		note.Outcome, note.Text = OutcomeFailed, t.Text
		return
	}
	if rep.ID != "" && t.ID == "" {
		t.ID, t.Number = rep.ID, rep.Number
	}
	t.Failures, t.Told = 0, rep.Result
	t.Text = "its result was reported: " + rep.Result
	note.Outcome, note.Text = OutcomeTold, t.Text
}

// decide notes the state of a ticket, and what follows from a decision.
func (r Rollout) decide(i int, rep TicketReport, now time.Time, note *TicketNote) Rollout {
	t := &r.Tickets[i]
	say := func(outcome, text string) { note.Outcome, note.Text, t.Text = outcome, text, text }
	refuse := func(text string) {
		if rep.Action == TicketCall { // what a caller says changes nothing
			note.Outcome, note.Text = OutcomeRefused, text
			return
		}
		t.Failures++
		say(OutcomeRefused, text)
	}
	switch {
	case rep.Failure != "":
		t.Failures++
		say(OutcomeFailed, rep.Failure)
		return r
	case rep.ID != "" && t.ID != "" && rep.ID != t.ID:
		refuse(fmt.Sprintf("the system reports the ticket %s in place of %s, which doesn't count", rep.ID, t.ID))
		return r
	case rep.ID != "" && t.ID == "":
		t.ID, t.Number = rep.ID, rep.Number
		say(OutcomeAsked, cmp.Or(rep.Text, "asked for"))
	}
	switch who := cmp.Or(rep.Who, "a person whom the system doesn't name"); {
	case rep.Decision == "":
		t.Failures = 0
		t.Text = cmp.Or(rep.Text, "not decided")
		if note.Outcome == "" {
			note.Outcome, note.Text = OutcomeAsked, t.Text
		}
	case rep.Plan != t.Plan.String():
		refuse(fmt.Sprintf("%s says %s of the plan %s and not of %.12s: that doesn't count", t.System, rep.Decision, cmp.Or(printableDigest(rep.Plan), "without a digest"), t.Plan))
	case t.ID == "":
		refuse(fmt.Sprintf("%s says %s without a ticket: that doesn't count", t.System, rep.Decision))
	case rep.Decision == TicketDenied:
		t.Decision, t.Decided, t.Failures = TicketDenied, now, 0
		text := fmt.Sprintf("%s was denied by %s", t.Name(), who)
		if rep.Text != "" {
			text += ": " + rep.Text
		}
		say(string(TicketDenied), text)
		r.State, r.Reason = Paused, Reason{"TicketDenied", text + ": undo or cancel the rollout, or plan what is left; resume asks for another ticket"}
	case !rep.Until.IsZero() && !now.Before(rep.Until):
		t.Decision, t.Decided = TicketExpired, now
		say(OutcomeRefused, fmt.Sprintf("the approval of %s expired at %s", t.Name(), rep.Until.UTC().Format(time.RFC3339)))
	default:
		t.Decision, t.Decided, t.Failures = TicketApproved, now, 0
		say(string(TicketApproved), fmt.Sprintf("%s approves the plan %.12s, by %s", t.Name(), t.Plan, who))
		approvals := map[int]Approval{}
		maps.Copy(approvals, r.Approvals)
		approvals[t.Wave] = Approval{Plan: r.Plan, Who: fmt.Sprintf("%s, %s", who, t.Name()), When: now, Ticket: t.ID, Until: rep.Until}
		r.Approvals = approvals
	}
	return r
}

// printableDigest returns the beginning of a text if it looks like a digest.
func printableDigest(text string) string {
	if d, err := plan.ParseDigest(text); err == nil {
		return d[:12]
	}
	return ""
}
