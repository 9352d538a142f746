package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// rolloutVerbs are the commands of rollouts.
var rolloutVerbs = []string{"plan", "start", "approve", "pause", "resume", "cancel", "undo", "skip", "waive"}

// foresee returns what a command of a rollout, or its deletion, will do: the number of
// deployments that it affects, and the plan that the user sees.
func (a action) foresee(ctx context.Context, s Server) (result tko.Deleted, what seen, err error) {
	status, err := s.RolloutStatus(ctx, tko.RolloutID(a.ids[0]))
	if err != nil {
		return result, what, err
	}
	if !slices.Contains(status.Commands, a.verb) {
		return result, what, tko.Errorf(tko.ErrConflict, "rollout %q is %s: its commands are %s", a.ids[0], status.State, strings.Join(status.Commands, ", "))
	}
	what.plan = status.Plan
	if w, ok := waitingWave(status); ok {
		what.wave = w.Name
	}
	count, text := effect(a.verb, status)
	what.text = text
	if n := status.Kinds["Conflict"] + status.Kinds["Invalid"]; n > 0 && a.verb == "start" {
		return result, what, tko.Errorf(tko.ErrConflict, "%s in conflict or invalid: resolve them, or leave them out with tko rollout start %s --skip-blocked", plural(n, "deployment is", "deployments are"), a.ids[0])
	}
	return tko.Deleted{Count: max(count, 1)}, what, nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// effect returns how many deployments a command affects, and what it does in words.
func effect(verb string, s tko.RolloutStatus) (count int, text string) {
	sum := func(progress ...string) (n int) {
		for _, w := range s.Waves {
			for _, p := range progress {
				n += w.Progress[p]
			}
		}
		return n
	}
	changed := sum("Applied", "Soaking", "Healthy", "Failed", "Waived", "AsBefore")
	of := func(n int) string { return plural(n, "deployment", "deployments") }
	switch verb {
	case "plan":
		return 1, "What the edits make is compared with what is deployed now. No deployment is changed."
	case "start":
		count = s.Kinds["Change"] + s.Kinds["Create"] + s.Kinds["Delete"]
		return count, fmt.Sprintf("This will change %d, create %d and delete %d deployments, in %s. The plan is %.12s.",
			s.Kinds["Change"], s.Kinds["Create"], s.Kinds["Delete"], plural(len(s.Waves), "wave", "waves"), s.Plan)
	case "approve":
		if w, ok := waitingWave(s); ok {
			return w.Rows, fmt.Sprintf("The wave %s may begin: %s will be changed. The plan is %.12s.", w.Name, of(w.Rows), s.Plan)
		}
		return 1, "No wave waits for an approval."
	case "pause":
		return 1, "Nothing more is changed; what was changed is observed on."
	case "resume":
		return sum("Waiting"), fmt.Sprintf("It goes on: %s wait to be changed.", of(sum("Waiting")))
	case "cancel":
		return sum("Waiting", "Stale"), fmt.Sprintf("%s that wait are skipped; %d that were changed stay, and can be undone.", of(sum("Waiting", "Stale")), changed)
	case "undo":
		return changed, of(changed) + " return to the packages that they had, the last wave first."
	case "skip":
		return sum("Stale"), of(sum("Stale")) + " that are no longer as planned are left out."
	case "waive":
		return s.Failures, of(s.Failures) + " that failed do not count any more."
	}
	return 1, "The rollout and its plan are deleted. What it has changed stays, and can't be undone any more."
}

// waitingWave returns the next wave that needs an approval.
func waitingWave(s tko.RolloutStatus) (w tko.RolloutWave, ok bool) {
	i := slices.IndexFunc(s.Waves, func(w tko.RolloutWave) bool { return w.Approval == "Required" })
	if i < 0 {
		return w, false
	}
	return s.Waves[i], true
}

// command does a command of a rollout, with the plan and the wave that the user has seen.
func (a action) command(ctx context.Context, s Server, what seen) (tko.Deleted, error) {
	id := tko.RolloutID(a.ids[0])
	if a.verb == "delete" {
		return tko.Deleted{Count: 1}, s.DeleteRollout(ctx, id)
	}
	c := tko.RolloutCommand{ID: id, Verb: a.verb}
	if slices.Contains([]string{"start", "approve", "resume"}, a.verb) {
		c.Plan = what.plan
	}
	if a.verb == "approve" {
		c.Wave = what.wave
	}
	_, err := s.RolloutDo(ctx, c)
	return tko.Deleted{Count: 1}, err
}

// Width of the bar of a wave, in characters.
const barWidth = 20

// bars are the signs of progress in a bar, in their order.
var bars = []struct {
	sign     string
	progress []string
}{{"#", []string{"Healthy"}}, {"=", []string{"Applied", "Soaking"}}, {"x", []string{"Failed"}}, {"-", []string{"Skipped", "Superseded", "Waived", "AsBefore", "Stale"}}}

func bar(w tko.RolloutWave) string {
	var text strings.Builder
	for _, b := range bars {
		n := 0
		for _, p := range b.progress {
			n += w.Progress[p]
		}
		if n > 0 && w.Rows > 0 {
			text.WriteString(strings.Repeat(b.sign, max(1, n*barWidth/w.Rows)))
		}
	}
	return fmt.Sprintf("[%s]", (text.String() + strings.Repeat(".", barWidth))[:barWidth])
}

// statusLines returns the waves of a rollout, and what blocks it.
func statusLines(ctx context.Context, s Getter, zone *time.Location, id string) ([]line, error) {
	status, err := s.RolloutStatus(ctx, tko.RolloutID(id))
	if err != nil {
		return nil, err
	}
	lines := []line{{text: printable.Text(strings.TrimSuffix(status.State+": "+status.Reason, ": ")), style: strong}}
	if status.Plan != "" {
		lines = append(lines, line{text: fmt.Sprintf("Plan %.12s: %s", status.Plan, kindsText(status.Kinds))})
	}
	for _, related := range []struct{ name, id string }{{"Undoes", string(status.Undoes)}, {"Undone by", string(status.UndoneBy)}} {
		if related.id != "" {
			lines = append(lines, line{text: printable.Text(related.name + ": " + related.id), kind: tko.KindRollout, id: related.id})
		}
	}
	if !status.Until.IsZero() {
		lines = append(lines, line{text: "Ends about " + stampText(status.Until, zone)})
	}
	lines = append(lines, line{text: "Commands: " + strings.Join(status.Commands, ", ")}, line{})
	for _, w := range status.Waves {
		text := fmt.Sprintf("%-16s %s %6d deployments  %s", w.Name, bar(w), w.Rows, kindsText(w.Progress))
		if w.Approval == "Required" {
			text += "  waits for an approver"
		} else if w.Approval != "" {
			text += "  approved " + w.Approval
		}
		lines = append(lines, line{text: printable.Text(text)})
	}
	if len(status.Blocks) > 0 {
		lines = append(lines, line{}, line{text: "What blocks it:", style: strong})
	}
	for _, block := range status.Blocks {
		lines = append(lines, line{text: printable.Text("  " + block), style: waiting})
	}
	for i, row := range status.Examples {
		if i == 0 {
			lines = append(lines, line{}, line{text: "Need attention:", style: strong})
		}
		lines = append(lines, line{text: printable.Text(fmt.Sprintf("  %s %s %s: %s", row.Progress, row.Deployment, row.Site, row.Why())), kind: tko.KindDeployment, id: string(row.Deployment)})
	}
	return lines, nil
}

// kindsText returns counts by name, sorted by name.
func kindsText(counts map[string]int) string {
	var parts []string
	for name, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// planLines returns the plan of a rollout in groups of equal changes.
func planLines(ctx context.Context, s Getter, id string) ([]line, error) {
	plan, err := s.RolloutPlan(ctx, tko.RolloutID(id))
	if err != nil {
		return nil, err
	}
	if plan.Digest == "" {
		return []line{{text: "It has no plan yet: R and plan make one.", style: faint}}, nil
	}
	lines := []line{{text: fmt.Sprintf("Plan %.12s: %s", plan.Digest, kindsText(plan.Kinds)), style: strong}}
	for _, w := range plan.Warnings {
		lines = append(lines, line{text: "Warning: " + w})
	}
	for _, g := range plan.Groups {
		lines = append(lines, line{}, line{text: fmt.Sprintf("%s %d", g.Kind, g.Count), style: strong})
		for _, templates := range g.Templates {
			lines = append(lines, line{text: printable.Text("  template " + templates)})
		}
		for _, c := range g.Changes {
			lines = append(lines, line{text: printable.Text("  " + c.Resource + " " + c.Path)})
			if c.Before != "" {
				lines = append(lines, line{text: printable.Text("  - " + c.Before), style: removed})
			}
			if c.After != "" {
				lines = append(lines, line{text: printable.Text("  + " + c.After), style: added})
			}
		}
		if g.More > 0 {
			lines = append(lines, line{text: "  and " + plural(g.More, "more field", "more fields"), style: faint})
		}
		for _, example := range g.Examples {
			lines = append(lines, line{text: printable.Text("  for example " + string(example)), kind: tko.KindDeployment, id: string(example)})
		}
	}
	return lines, nil
}
