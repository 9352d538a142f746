package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// The limits of a history.
const (
	historyRevisions = 50 // the newest ones, in addition to the first
	historyPending   = 10 // children that aren't prepared
)

func (a *app) deploymentExplain() *cobra.Command {
	var field string
	cmd := a.ofOne(tko.KindDeployment, &cobra.Command{
		Use:   "explain ID",
		Short: "Show how a deployment was prepared, and what it waits for",
		Long: `Show how a deployment was prepared, and what it waits for: the author of each
revision; the resources that were prepared, with plugin, iteration and duration;
why it isn't prepared, and the time of the next try; the changes that its
placements propose; and the progress of its children.

With --field, show all values that one field of its package has had, newest first: who
set each, when, and from where. The template's own history follows a value from a
template. A field is a resource and a path, as tko blame writes them.

With --as-of, show all of this as it was.`,
		Example: `  tko deployment explain 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf
  tko deployment explain 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf --field 'apps/v1 Deployment "smf" spec.replicas'
  tko deployment explain 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf -o json`,
	}, func(ctx context.Context, s *session, id string) error {
		if field != "" {
			request := tko.BlameRequest{Kind: tko.KindDeployment, ID: id, Field: field, History: true}
			if !tko.AsOfOf(ctx).IsZero() {
				d, err := s.deployment(ctx, tko.DeploymentID(id), 0)
				if err != nil {
					return err
				}
				request.Revision = d.Stamp.Revision
			}
			return a.explainField(tko.WithAsOf(ctx, tko.AsOf{}), s, request)
		}
		h, err := readHistory(ctx, s, tko.DeploymentID(id))
		if err != nil {
			return err
		}
		if f := a.format(); !isForPeople(f) {
			return a.encoder(f).value(a.out, h.value())
		}
		return h.print(a)
	})
	cmd.Flags().StringVar(&field, "field", "", "`FIELD` whose values to show: a resource and a path")
	return cmd
}

// A history is a deployment with its revisions and the progress of its children.
type history struct {
	tko.Deployment
	revisions []tko.Stamp // the oldest first
	missing   int         // revisions that are left out or no longer stored

	children, prepared, approved int
	pending                      []tko.Deployment // the first children that aren't prepared
}

// readHistory reads a deployment, its revisions and its children.
func readHistory(ctx context.Context, s *session, id tko.DeploymentID) (history, error) {
	d, err := s.deployment(ctx, id, 0)
	if err != nil {
		return history{}, err
	}
	h := history{Deployment: d}
	byRevision := tko.WithAsOf(ctx, tko.AsOf{})
	for revision := int64(1); revision < d.Stamp.Revision; revision++ {
		if revision == 2 && d.Stamp.Revision > historyRevisions+1 {
			revision = d.Stamp.Revision - historyRevisions
			h.missing += int(revision) - 2
		}
		was, err := s.deployment(byRevision, id, revision)
		if errors.Is(err, tko.ErrNotFound) {
			h.missing++
			continue
		}
		if err != nil {
			return history{}, err
		}
		h.revisions = append(h.revisions, was.Stamp)
	}
	newest := d.Stamp
	if newest.Revision > 1 { // only responses to requests for a revision have its steps
		switch was, err := s.deployment(byRevision, id, newest.Revision); {
		case err == nil:
			newest = was.Stamp
		case !errors.Is(err, tko.ErrNotFound):
			return history{}, err
		}
	}
	h.revisions = append(h.revisions, newest)
	err = s.eachDeployment(ctx, tko.DeploymentSelect{Parent: id}, tko.ListOptions{}, func(child tko.Deployment) {
		h.children++
		if child.Approved {
			h.approved++
		}
		if child.Prepared {
			h.prepared++
		} else if len(h.pending) < historyPending {
			h.pending = append(h.pending, child)
		}
	})
	return h, err
}

// took returns the time from the creation until the deployment was prepared; 0 if
// it isn't.
func (h history) took() time.Duration {
	if c := tko.FindCondition(h.Stamp.Conditions, tko.ConditionPrepared); c != nil && c.Status == tko.ConditionTrue {
		return max(c.LastTransition.Sub(h.Stamp.Created), 0)
	}
	return 0
}

// lacks returns the conditions that are False.
func (h history) lacks() []tko.Condition {
	return slices.DeleteFunc(slices.Clone(h.Stamp.Conditions), func(c tko.Condition) bool { return c.Status != tko.ConditionFalse })
}

// proposal returns the condition with the changes that the placements of a
// deployment propose, if they wait for an approval.
func proposal(d tko.Deployment) (c tko.Condition, ok bool) {
	if !tko.HasCondition(d.Stamp.Conditions, tko.ConditionPlaced, tko.ReasonChangeProposed) {
		return tko.Condition{}, false
	}
	return *tko.FindCondition(d.Stamp.Conditions, tko.ConditionPlaced), true
}

// value returns the history for the formats for programs.
func (h history) value() map[string]any {
	row := deploymentView.row(h.Deployment)
	setText(row, "origin", h.Origin)
	if h.Prepared {
		row["preparedSeconds"] = h.took().Seconds()
	}
	row["history"] = values(h.revisions, func(r tko.Stamp) map[string]any {
		entry := map[string]any{"revision": r.Revision, "time": r.Updated.UTC().Format(time.RFC3339Nano), "who": r.Who, "why": r.Why}
		var steps []any
		for _, s := range r.Steps {
			step := map[string]any{
				"resource": s.Resource, "plugin": s.Plugin, "iteration": int64(s.Iteration), "seconds": s.Took.Seconds(),
			}
			if len(s.Notes) > 0 {
				step["notes"] = listValue(s.Notes)
			}
			if s.NotesLeftOut > 0 {
				step["notesLeftOut"] = int64(s.NotesLeftOut)
			}
			steps = append(steps, step)
		}
		if steps != nil {
			entry["steps"] = steps
		}
		return entry
	})
	row["historyMissing"] = int64(h.missing)
	waits := []any{}
	for _, c := range h.lacks() {
		waits = append(waits, waitValue(c, ""))
	}
	for _, child := range h.pending {
		waits = append(waits, waitValue(preparedCondition(child), string(child.ID)))
	}
	row["waits"] = waits
	row["children"] = map[string]any{"total": int64(h.children), "prepared": int64(h.prepared), "approved": int64(h.approved)}
	return row
}

func waitValue(c tko.Condition, child string) map[string]any {
	wait := map[string]any{"type": c.Type, "reason": c.Reason, "message": c.Message}
	setText(wait, "deployment", child)
	addAttempt(wait, c)
	return wait
}

// preparedCondition returns the Prepared condition of a deployment, or one that
// states that no preparer has processed it yet.
func preparedCondition(d tko.Deployment) tko.Condition {
	if c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionPrepared); c != nil {
		return *c
	}
	return tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionUnknown, Reason: "New", Message: "no preparer has processed it yet"}
}

// print writes the history for users.
func (h history) print(a *app) error {
	facts := []fact{{name: "Deployment", text: string(h.ID)}}
	for _, f := range []fact{
		{name: "Template", text: string(h.Template)},
		{name: "Site", text: string(h.Site)},
		{name: "Parent", text: string(h.Parent)},
		{name: "Origin", text: h.Origin},
		{name: "Replaces", text: h.replaces()},
		{name: "Replaced", text: strings.Join(idTexts(h.Replaced), ", ")},
	} {
		if f.text != "" {
			facts = append(facts, f)
		}
	}
	facts = append(facts, fact{name: "State", text: h.state()})
	if h.children > 0 {
		facts = append(facts, fact{name: "Children", text: fmt.Sprintf("%d, %d of them prepared and %d approved", h.children, h.prepared, h.approved)})
	}
	for _, f := range facts {
		fmt.Fprintf(a.out, "%-12s %s\n", f.name+":", printable.Text(f.text))
	}
	fmt.Fprintln(a.out, "\nWhat happened:")
	for i, r := range h.revisions {
		if i == 1 && h.missing > 0 {
			fmt.Fprintf(a.out, "  %s left out\n", count(h.missing, "revision is", "revisions are"))
		}
		h.printRevision(a, r)
	}
	waits := h.lines(a.now())
	if len(waits) == 0 {
		_, err := fmt.Fprintln(a.out, "\nIt waits for nothing.")
		return err
	}
	fmt.Fprintln(a.out, "\nWhat it waits for:")
	for _, line := range waits {
		fmt.Fprintf(a.out, "  %s\n", printable.Text(line))
	}
	return nil
}

// replaces names the deployments that this one replaces.
func (h history) replaces() string {
	if len(h.Replaces) == 0 {
		return ""
	}
	return strings.Join(idTexts(h.Replaces), ", ") + ", when it is prepared and approved"
}

func (h history) state() string {
	parts := []string{"not prepared"}
	if h.Prepared {
		parts[0] = "prepared"
		if took := h.took(); took > 0 {
			parts[0] += " within " + took.Round(time.Millisecond).String()
		}
	}
	return strings.Join(append(parts, either(h.Approved, "approved", "not approved"), "revision "+strconv.FormatInt(h.Stamp.Revision, 10)), ", ")
}

func (h history) printRevision(a *app, r tko.Stamp) {
	when := r.Updated.Local().Format(time.RFC3339)
	if r.Revision > 1 {
		when = "+" + max(r.Updated.Sub(h.Stamp.Created), 0).Round(time.Millisecond).String()
	}
	what := cmp.Or(r.Why, either(r.Revision == 1, "created it", "changed it"))
	fmt.Fprintf(a.out, "  %-4d %-25s %s: %s\n", r.Revision, when, printable.Text(cmp.Or(r.Who, "unknown")), printable.Text(what))
	for _, s := range r.Steps {
		by := "TKO"
		if s.Plugin != "" {
			by = "plugin " + s.Plugin
		}
		fmt.Fprintf(a.out, "       %s by %s, iteration %d, took %s\n", printable.Text(s.Resource), printable.Text(by), s.Iteration, s.Took)
		for _, note := range s.Notes {
			fmt.Fprintf(a.out, "         %s\n", printable.Text(note))
		}
		if s.NotesLeftOut > 0 {
			fmt.Fprintf(a.out, "         and %d more\n", s.NotesLeftOut)
		}
	}
}

// lines returns a line for each reason to wait.
func (h history) lines(now time.Time) []string {
	var lines []string
	for _, c := range h.lacks() {
		line := waitText(c, now)
		switch {
		case c.Type == tko.ConditionPlaced && c.Reason == tko.ReasonChangeProposed, c.Type == tko.ConditionApproved && h.Prepared:
			line += fmt.Sprintf(": tko deployment approve %s", h.ID)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 && !h.Prepared {
		lines = append(lines, waitText(preparedCondition(h.Deployment), now))
	}
	for _, child := range h.pending {
		lines = append(lines, fmt.Sprintf("child %s (%s at %s): %s", child.ID, child.Template, child.Site, waitText(preparedCondition(child), now)))
	}
	if more := h.children - h.prepared - len(h.pending); more > 0 {
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
