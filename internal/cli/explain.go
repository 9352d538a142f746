package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

// The bounds of a story.
const (
	storyRevisions = 50 // the newest ones, beside the first
	storyPending   = 10 // children that aren't prepared
)

func (a *app) deploymentExplain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Tell how a deployment was prepared, and what it waits for",
		Long: `Tell how a deployment was prepared, and what it waits for: which revision was made
by whom, what was prepared by which plugin, in which iteration and how long that
took, why it isn't prepared, when that is tried again, what its placements
propose, and how far its children are.`,
		Example: `  tko deployment explain 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf
  tko deployment explain 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf -o json`,
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeFirst(completeDeployments),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			if err := expectID("deployment ID", args[0]); err != nil {
				return err
			}
			told, err := tell(ctx, s, tko.DeploymentID(args[0]))
			if err != nil {
				return err
			}
			switch f := a.format(); f {
			case formatTable, formatWide, formatBare:
				return told.print(a)
			default:
				return a.encoder(f).value(a.out, told.value())
			}
		}),
	}
}

// A story is what is known about how a deployment came to be as it is.
type story struct {
	tko.Deployment
	revisions []tko.Stamp // in their order
	missing   int         // revisions that are left out or no longer kept

	children, prepared, approved int
	pending                      []tko.Deployment // the first children that aren't prepared
}

func tell(ctx context.Context, s *session, id tko.DeploymentID) (story, error) {
	d, err := call(ctx, s, func(ctx context.Context) (tko.Deployment, error) { return s.Deployment(ctx, id, 0) })
	if err != nil {
		return story{}, err
	}
	told := story{Deployment: d}
	for revision := int64(1); revision < d.Stamp.Revision; revision++ {
		if revision == 2 && d.Stamp.Revision > storyRevisions+1 {
			revision = d.Stamp.Revision - storyRevisions
			told.missing += int(revision) - 2
		}
		was, err := call(ctx, s, func(ctx context.Context) (tko.Deployment, error) { return s.Deployment(ctx, id, revision) })
		if errors.Is(err, tko.ErrNotFound) {
			told.missing++
			continue
		}
		if err != nil {
			return story{}, err
		}
		told.revisions = append(told.revisions, was.Stamp)
	}
	newest := d.Stamp
	if newest.Revision > 1 { // only answers to a request for a revision have its steps
		switch was, err := call(ctx, s, func(ctx context.Context) (tko.Deployment, error) { return s.Deployment(ctx, id, newest.Revision) }); {
		case err == nil:
			newest = was.Stamp
		case !errors.Is(err, tko.ErrNotFound):
			return story{}, err
		}
	}
	told.revisions = append(told.revisions, newest)
	children := func(ctx context.Context) iter.Seq2[tko.Deployment, error] {
		return s.Deployments(ctx, tko.DeploymentSelect{Parent: id}, tko.ListOptions{})
	}
	err = each(ctx, s, children, func(child tko.Deployment) error {
		told.children++
		if child.Approved {
			told.approved++
		}
		if child.Prepared {
			told.prepared++
		} else if len(told.pending) < storyPending {
			told.pending = append(told.pending, child)
		}
		return nil
	})
	return told, err
}

// took is how long it was from the creation until it was prepared.
func (t story) took() time.Duration {
	for _, c := range t.Stamp.Conditions {
		if c.Type == tko.ConditionPrepared && c.Status == tko.ConditionTrue {
			return max(c.LastTransition.Sub(t.Stamp.Created), 0)
		}
	}
	return 0
}

// lacks are the conditions that aren't true, and those that are needed and
// unknown.
func (t story) lacks() []tko.Condition {
	var lacks []tko.Condition
	for _, c := range t.Stamp.Conditions {
		if c.Status == tko.ConditionFalse {
			lacks = append(lacks, c)
		}
	}
	return lacks
}

// proposal is the condition that says what the placements of a deployment
// propose to change, if that waits for an approval.
func proposal(d tko.Deployment) (c tko.Condition, ok bool) {
	for _, c := range d.Stamp.Conditions {
		if c.Type == tko.ConditionPlaced && c.Reason == tko.ReasonChangeProposed {
			return c, true
		}
	}
	return tko.Condition{}, false
}

// value is the story for programs.
func (t story) value() map[string]any {
	row := deploymentView.row(t.Deployment)
	if t.Origin != "" {
		row["origin"] = t.Origin
	}
	if t.Prepared {
		row["preparedSeconds"] = t.took().Seconds()
	}
	history := make([]any, len(t.revisions))
	for i, r := range t.revisions {
		entry := map[string]any{"revision": r.Revision, "time": r.Updated.UTC().Format(time.RFC3339Nano), "who": r.Who, "why": r.Why}
		var steps []any
		for _, s := range r.Steps {
			step := map[string]any{
				"resource": s.Resource, "plugin": s.Plugin, "iteration": int64(s.Iteration), "seconds": s.Took.Seconds(),
			}
			if len(s.Notes) > 0 {
				notes := make([]any, len(s.Notes))
				for i, note := range s.Notes {
					notes[i] = note
				}
				step["notes"] = notes
			}
			if s.NotesLeftOut > 0 {
				step["notesLeftOut"] = int64(s.NotesLeftOut)
			}
			steps = append(steps, step)
		}
		if steps != nil {
			entry["steps"] = steps
		}
		history[i] = entry
	}
	row["history"] = history
	row["historyMissing"] = int64(t.missing)
	waits := []any{}
	for _, c := range t.lacks() {
		waits = append(waits, waitValue(c, ""))
	}
	for _, child := range t.pending {
		waits = append(waits, waitValue(preparedCondition(child), string(child.ID)))
	}
	row["waits"] = waits
	row["children"] = map[string]any{"total": int64(t.children), "prepared": int64(t.prepared), "approved": int64(t.approved)}
	return row
}

func waitValue(c tko.Condition, child string) map[string]any {
	wait := map[string]any{"type": c.Type, "reason": c.Reason, "message": c.Message}
	if child != "" {
		wait["deployment"] = child
	}
	addAttempt(wait, c)
	return wait
}

// preparedCondition is what a deployment says about not being prepared: before
// anybody has looked at it, that.
func preparedCondition(d tko.Deployment) tko.Condition {
	for _, c := range d.Stamp.Conditions {
		if c.Type == tko.ConditionPrepared {
			return c
		}
	}
	return tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionUnknown, Reason: "New", Message: "no preparer has looked at it yet"}
}

// print tells the story to people.
func (t story) print(a *app) error {
	facts := []fact{{name: "Deployment", text: string(t.ID)}}
	for _, f := range []fact{
		{name: "Template", text: string(t.Template)},
		{name: "Site", text: string(t.Site)},
		{name: "Parent", text: string(t.Parent)},
		{name: "Origin", text: t.Origin},
		{name: "Replaces", text: t.replaces()},
	} {
		if f.text != "" {
			facts = append(facts, f)
		}
	}
	facts = append(facts, fact{name: "State", text: t.state()})
	if t.children > 0 {
		facts = append(facts, fact{name: "Children", text: fmt.Sprintf("%d, %d of them prepared and %d approved", t.children, t.prepared, t.approved)})
	}
	for _, f := range facts {
		fmt.Fprintf(a.out, "%-12s %s\n", f.name+":", printable(f.text))
	}
	fmt.Fprintln(a.out, "\nWhat happened:")
	for i, r := range t.revisions {
		if i == 1 && t.missing > 0 {
			fmt.Fprintf(a.out, "  %s left out\n", count(t.missing, "revision is", "revisions are"))
		}
		t.printRevision(a, r)
	}
	waits := t.lines(a.now())
	if len(waits) == 0 {
		_, err := fmt.Fprintln(a.out, "\nIt waits for nothing.")
		return err
	}
	fmt.Fprintln(a.out, "\nWhat it waits for:")
	for _, line := range waits {
		fmt.Fprintf(a.out, "  %s\n", printable(line))
	}
	return nil
}

// replaces names what the deployment takes the place of.
func (t story) replaces() string {
	if len(t.Replaces) == 0 {
		return ""
	}
	ids := make([]string, len(t.Replaces))
	for i, id := range t.Replaces {
		ids[i] = string(id)
	}
	return strings.Join(ids, ", ") + ", when it is prepared and approved"
}

func (t story) state() string {
	parts := []string{"not prepared"}
	if t.Prepared {
		parts[0] = "prepared"
		if took := t.took(); took > 0 {
			parts[0] += " within " + took.Round(time.Millisecond).String()
		}
	}
	approved := "not approved"
	if t.Approved {
		approved = "approved"
	}
	return strings.Join(append(parts, approved, "revision "+strconv.FormatInt(t.Stamp.Revision, 10)), ", ")
}

func (t story) printRevision(a *app, r tko.Stamp) {
	when := r.Updated.Local().Format(time.DateTime)
	if r.Revision > 1 {
		when = "+" + max(r.Updated.Sub(t.Stamp.Created), 0).Round(time.Millisecond).String()
	}
	who := r.Who
	if who == "" {
		who = "somebody"
	}
	what := r.Why
	switch {
	case what == "" && r.Revision == 1:
		what = "created it"
	case what == "":
		what = "changed it"
	}
	fmt.Fprintf(a.out, "  %-4d %-20s %s: %s\n", r.Revision, when, printable(who), printable(what))
	for _, s := range r.Steps {
		by := "TKO"
		if s.Plugin != "" {
			by = "plugin " + s.Plugin
		}
		fmt.Fprintf(a.out, "       %s by %s, iteration %d, took %s\n", printable(s.Resource), printable(by), s.Iteration, s.Took)
		for _, note := range s.Notes {
			fmt.Fprintf(a.out, "         %s\n", printable(note))
		}
		if s.NotesLeftOut > 0 {
			fmt.Fprintf(a.out, "         and %d more\n", s.NotesLeftOut)
		}
	}
}

// lines are what is waited for.
func (t story) lines(now time.Time) []string {
	var lines []string
	for _, c := range t.lacks() {
		line := waitText(c, now)
		switch {
		case c.Type == tko.ConditionPlaced && c.Reason == tko.ReasonChangeProposed, c.Type == tko.ConditionApproved && t.Prepared:
			line += fmt.Sprintf(": tko deployment approve %s", t.ID)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 && !t.Prepared {
		lines = append(lines, waitText(preparedCondition(t.Deployment), now))
	}
	for _, child := range t.pending {
		lines = append(lines, fmt.Sprintf("child %s (%s at %s): %s", child.ID, child.Template, child.Site, waitText(preparedCondition(child), now)))
	}
	if more := t.children - t.prepared - len(t.pending); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more children", more))
	}
	return lines
}

func waitText(c tko.Condition, now time.Time) string {
	text := strings.Trim(fmt.Sprintf("%s: %s: %s", c.Type, c.Reason, c.Message), ": ")
	if c.Attempt > 0 {
		text += " (tried " + count(c.Attempt, "time", "times")
		switch wait := c.NextTry.Sub(now).Round(time.Second); {
		case c.NextTry.IsZero():
		case wait > 0:
			text += fmt.Sprintf(", again in %s at the latest", wait)
		default:
			text += ", again now"
		}
		text += ")"
	}
	return text
}
