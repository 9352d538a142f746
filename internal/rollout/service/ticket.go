package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// Ticket systems approve waves. The catalog says which tickets are needed and which decisions
// count; the rollout controller only makes the requests, outside of the catalog's locks: a
// system that hangs delays a rollout, and nothing else.

// RolloutTickets returns what is to be done at ticket systems. Nothing is recorded: what
// isn't reported is to be done again.
func (s *RolloutRunner) RolloutTickets(ctx context.Context, id tko.RolloutID) ([]tko.RolloutTicket, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Advance)
	if err != nil {
		return nil, err
	}
	ctx = rights.WithAllRights(ctx, c)
	states, _, _, err := s.store.RolloutStates(ctx, string(id))
	if err != nil || len(states) == 0 || len(states[0].Tickets) == 0 {
		return nil, err
	}
	r, v, err := s.viewRollout(ctx, id, record.RowFilter{})
	if errors.Is(err, tko.ErrNotFound) {
		return nil, nil // it was deleted
	}
	if err != nil {
		return nil, err
	}
	pkg, err := s.plannedPackage(ctx, r, v.State)
	if err != nil {
		return nil, err
	}
	sp, err := spec.Parse(pkg)
	if err != nil {
		return nil, err
	}
	var all []tko.RolloutTicket
	for _, task := range execute.DueTickets(executionOf(v, sp), v.Now) {
		d := ticketDocumentOf(v, sp, task)
		if task.Action == execute.TicketAsk {
			if err := s.describe(ctx, &d, v, windowsOf(pkg)); err != nil {
				return nil, err
			}
			d.withWaves(sp, summaryOf(v.Counts))
		}
		document, err := json.Marshal(d)
		if err != nil {
			return nil, err
		}
		all = append(all, tko.RolloutTicket{
			Rollout: id, Key: task.Key, System: task.System, Action: task.Action, Ticket: task.ID, Number: task.Number, Document: document, Result: task.Result,
		})
	}
	return all, nil
}

// A ticketDocument is what a ticket system gets. Values of Secrets are not in it.
type ticketDocument struct {
	Type    string    `json:"type"` // approval, state or result
	Key     string    `json:"key"`
	Rollout string    `json:"rollout"`
	Plan    string    `json:"plan"` // digest
	Wave    string    `json:"wave"`
	Round   int       `json:"round"`
	Ticket  string    `json:"ticket,omitempty"`
	Since   time.Time `json:"since"`
	Text    string    `json:"text"` // for people
	// Result is Done, Undone, Cancelled or Superseded; Deployments of a result are those
	// that were changed.
	Result string `json:"result,omitempty"`

	Deployments int                `json:"deployments"` // of the wave
	Waves       []ticketWave       `json:"waves,omitempty"`
	Kinds       map[string]int     `json:"kinds,omitempty"`
	Progress    map[string]int     `json:"progress,omitempty"`
	Failures    int                `json:"failures"`
	Groups      []tko.RolloutGroup `json:"groups,omitempty"`
	MoreGroups  int                `json:"moreGroups,omitempty"`
	Warnings    []string           `json:"warnings,omitempty"`
	Windows     any                `json:"windows,omitempty"` // as the rollout has them; none: always
	OnFailure   string             `json:"onFailure,omitempty"`
	Unreachable string             `json:"unreachable,omitempty"`
	Undo        *ticketUndo        `json:"undo,omitempty"`
	Requester   *ticketPerson      `json:"requester,omitempty"`
}

type ticketWave struct {
	Name        string `json:"name"`
	Deployments int    `json:"deployments"`
}

// A ticketUndo is what an undo of the rollout would do.
type ticketUndo struct {
	Command  string       `json:"command"`
	Waves    []ticketWave `json:"waves"`    // in the order of an undo
	Restores int          `json:"restores"` // deployments that are returned to what they were
	Deletes  int          `json:"deletes"`  // those that the rollout creates
	Creates  int          `json:"creates"`  // those that it deletes
}

type ticketPerson struct {
	Who  string    `json:"who"`
	Why  string    `json:"why,omitempty"`
	Time time.Time `json:"time"`
}

// ticketTypes are the types of documents, by action.
var ticketTypes = map[string]string{execute.TicketAsk: "approval", execute.TicketRead: "state", execute.TicketTell: "result"}

// ticketDocumentOf returns what identifies a ticket, and the result if there is one.
func ticketDocumentOf(v record.RolloutView, sp spec.Rollout, task execute.TicketTask) ticketDocument {
	sum := summaryOf(v.Counts)
	d := ticketDocument{
		Type: ticketTypes[task.Action], Key: task.Key, Rollout: v.State.ID, Plan: task.Plan.String(), Wave: waveOf(sp, task.Wave), Round: task.Round, Ticket: task.ID, Since: task.Since.UTC(),
		Failures: sum.Failures,
	}
	if task.Wave < len(sum.Waves) {
		d.Deployments = sum.Waves[task.Wave].Rows
	}
	d.Result = task.Result
	if d.Result != "" {
		d.Progress = map[string]int{}
		for p, n := range sum.Total.By {
			d.Progress[string(p)] = n
		}
		d.Text = fmt.Sprintf("Rollout %s is %s, with the plan %.12s: %s.", d.Rollout, d.Result, v.State.Digest, sum.Total)
		if d.Result != string(v.State.State) {
			d.Text = fmt.Sprintf("Rollout %s needs this ticket no longer: another plan or ticket took its place, or it is undone.", d.Rollout)
		} else if v.State.Reason.Message != "" {
			d.Text += " " + printable.Kept(v.State.Reason.Message, maxReason)
		}
	}
	return d
}

func waveOf(sp spec.Rollout, n int) string {
	if n < 0 || n >= len(sp.Waves) {
		return ""
	}
	return sp.Waves[n].Name
}

// windowsOf returns the windows of a rollout as they are written; nil if it has none.
func windowsOf(pkg krm.Package) any {
	for _, r := range pkg {
		if m, ok := r["spec"].(map[string]any); ok && r.GVK() == spec.GVK {
			return m["windows"]
		}
	}
	return nil
}

const (
	maxTicketGroups  = 50 // of a plan, in a document
	maxTicketChanges = 20 // of each group
)

// describe adds what an approver must know: what changes, when, who asks, and what an undo
// would do.
func (s *RolloutRunner) describe(ctx context.Context, d *ticketDocument, v record.RolloutView, windows any) error {
	st := v.State
	d.Kinds, d.Windows, d.Warnings = st.Kinds, windows, st.Warnings
	d.Requester = &ticketPerson{Who: st.By.Who, Why: st.By.Why, Time: st.Time.UTC()}
	d.Undo = &ticketUndo{
		Command: "tko rollout undo " + st.ID, Restores: st.Kinds[plan.Change.String()], Deletes: st.Kinds[plan.Create.String()], Creates: st.Kinds[plan.Delete.String()],
	}
	doc, err := s.store.RolloutPlan(ctx, st.ID, st.Plan)
	if err != nil {
		return err
	}
	groups, err := groupsOf(st.ID, doc)
	if err != nil {
		return err
	}
	d.MoreGroups = max(0, len(groups)-maxTicketGroups)
	for _, g := range groups[:min(len(groups), maxTicketGroups)] {
		if n := len(g.Changes); n > maxTicketChanges {
			g.Changes, g.More = g.Changes[:maxTicketChanges], g.More+n-maxTicketChanges
		}
		d.Groups = append(d.Groups, g)
	}
	return nil
}

// withWaves adds the sizes of the waves, the undo's in its order, and the text for people.
func (d *ticketDocument) withWaves(sp spec.Rollout, sum execute.Summary) {
	for i, w := range sp.Waves {
		n := 0
		if i < len(sum.Waves) {
			n = sum.Waves[i].Rows
		}
		if n > 0 || !w.Implicit {
			d.Waves = append(d.Waves, ticketWave{w.Name, n})
		}
	}
	d.OnFailure, d.Unreachable = string(sp.OnFailure), string(sp.Unreachable)
	d.Undo.Waves = slices.Clone(d.Waves)
	slices.Reverse(d.Undo.Waves)
	always := "at any time"
	if d.Windows != nil {
		always = "in the windows of the rollout"
	}
	d.Text = fmt.Sprintf("Rollout %s asks for the approval of wave %q (%d deployments of %d), %s, for the plan %s only: %s. Asked by %s. Undo: %s returns %d deployments to what they were, deletes %d and creates %d again, the last wave first.",
		d.Rollout, d.Wave, d.Deployments, sum.Total.Rows, always, d.Plan, kindsText(d.Kinds), cmp.Or(d.Requester.Who, "a caller without a name"), d.Undo.Command, d.Undo.Restores, d.Undo.Deletes, d.Undo.Creates)
	if d.Requester.Why != "" {
		d.Text += " Reason: " + d.Requester.Why
	}
	d.Text = strings.TrimSpace(d.Text)
}

// ReportRolloutTicket decides what the response of a ticket system means, and records it as
// evidence, with who decided and which ticket in the audit log. The error is an ErrConflict if
// the decision doesn't count, an ErrNotFound if the rollout has no such ticket.
func (s *RolloutRunner) ReportRolloutTicket(ctx context.Context, t tko.RolloutTicket) error {
	ctx, c, err := s.rights.Enter(ctx, "", access.Advance)
	if err != nil {
		return err
	}
	ctx = rights.WithAllRights(ctx, c)
	decision := execute.Decision(t.Decision)
	if decision != "" && decision != execute.TicketApproved && decision != execute.TicketDenied {
		return tko.Errorf(tko.ErrInvalid, "rollout %q: the decision %.40q of a ticket is unknown: use Approved or Denied, or none", t.Rollout, t.Decision)
	}
	report := execute.TicketReport{
		Key: t.Key, Action: t.Action, System: t.System, ID: printable.Kept(t.Ticket, maxTicketName), Number: printable.Kept(t.Number, maxTicketName), Plan: printable.Kept(t.Plan, maxTicketName), Decision: decision,
		Who: printable.Kept(t.Who, maxTicketName), Until: t.Until, Text: printable.Kept(t.Text, maxReason), Failure: printable.Kept(t.Failure, maxReason), Result: printable.Kept(t.Result, maxTicketName),
	}
	var refused error
	err = record.Retry(ctx, func() error {
		refused = nil
		r, v, err := s.viewRollout(ctx, t.Rollout, record.RowFilter{})
		if err != nil {
			return record.Final(err)
		}
		sp, err := s.specOf(ctx, r, v.State)
		if err != nil {
			return err
		}
		to, note, err := executionOf(v, sp).Report(report, v.Now)
		if err != nil {
			return record.Final(err)
		}
		if note.Outcome == execute.OutcomeRefused {
			refused = tko.Errorf(tko.ErrConflict, "rollout %q: %s", t.Rollout, note.Text)
		}
		return s.saveTicket(ctx, r, v, to, waveOf(sp, note.Wave), note)
	})
	return cmp.Or(err, refused)
}

// maxTicketName limits the names of tickets and of who decides.
const maxTicketName = 200

// saveTicket commits what became of a ticket.
func (s *RolloutRunner) saveTicket(ctx context.Context, r record.Record, v record.RolloutView, to execute.Rollout, wave string, note execute.TicketNote) error {
	name := cmp.Or(note.Number, note.ID)
	if note.Outcome == "" {
		return s.saveRollout(ctx, r, v, stateWith(v.State, to), record.RolloutWrite{Wake: []string{r.ID}})
	}
	by := rights.Author(ctx)
	by.Why = printable.Kept(fmt.Sprintf("wave %q: %s: %s", wave, note.Outcome, note.Text), maxBlocksText)
	return s.saveEvidence(tko.WithAuthor(ctx, by), r, v, to, tko.RolloutEvidence{
		Time: v.Now, Plan: note.Plan.String(), Wave: wave, Outcome: note.Outcome, Text: printable.Kept(note.Text, maxReason), System: note.System, Ticket: name, Who: note.Who,
	})
}
