package demo

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/krm"
)

// A RolloutReader reads rollouts.
type RolloutReader interface {
	RolloutPlan(ctx context.Context, id tko.RolloutID) (tko.RolloutPlan, error)
	RolloutStatus(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error)
}

// A RolloutWriter makes rollouts, and gives them commands.
type RolloutWriter interface {
	RegisterRollout(ctx context.Context, r tko.Rollout) (int64, error)
	DeleteRollout(ctx context.Context, id tko.RolloutID) error
	RolloutDo(ctx context.Context, c tko.RolloutCommand) (tko.RolloutStatus, error)
}

// Upgrader is the part of the client that Upgrade uses.
type Upgrader interface {
	RolloutReader
	RolloutWriter

	Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error)
	RegisterTemplate(ctx context.Context, t tko.Template) (int64, error)
	RolloutEvidence(ctx context.Context, s tko.RolloutEvidenceSelect) iter.Seq2[tko.RolloutEvidence, error]
}

// The upgrade of the demo: the SMF to another version, in two waves.
const (
	upgradeFrom    = "workload/smf:v1"
	upgradeTo      = "workload/smf:v2"
	upgradeRollout = tko.RolloutID("demo/smf-v2")
	upgradePackage = `
apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: smf-v2}
spec:
  edits: [{upgrade: {to: "` + upgradeTo + `"}, select: {templateIdPatterns: ["` + upgradeFrom + `"]}}]
  waves: [{name: canary, count: 1}, {name: rest}]
  limits: {concurrent: 10}
  health:
    within: 10m
    none: Accept
    metrics:
    - name: lost-sessions
      prometheus: {url: "%s", query: 'max(` + metricName + `{site=~"${site}"})'}
      compare: {to: value, max: 1}
      every: 10s
      for: 2m
`
)

// Upgrade upgrades the SMFs of the demo in two waves, and undoes the upgrade. The waves go on
// when a metric at the URL of a server such as [Metrics] is good. It reports each step, and
// what the metric has decided.
func Upgrade(ctx context.Context, c Upgrader, metrics string, report func(string)) error {
	t, err := c.Template(ctx, upgradeFrom, 0)
	if err != nil {
		return err
	}
	next := make(krm.Package, len(t.Package))
	for i, r := range t.Package {
		text, err := krm.Encode(krm.YAML, krm.Package{r})
		if err != nil {
			return err
		}
		changed, err := krm.Decode(krm.YAML, []byte(strings.ReplaceAll(string(text), "v1.4.0", "v1.5.0")), krm.Limits{})
		if err != nil || len(changed) != 1 {
			return fmt.Errorf("make template %q: %w", upgradeTo, err)
		}
		next[i] = changed[0]
	}
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: upgradeTo, Package: next}); err != nil {
		return err
	}
	for _, id := range []tko.RolloutID{upgradeRollout + "-undo", upgradeRollout} { // of an earlier run
		_ = c.DeleteRollout(ctx, id) // it may not exist; if it is in progress, the registration below fails
	}
	pkg, err := krm.Decode(krm.YAML, []byte(fmt.Sprintf(upgradePackage, metrics)), krm.Limits{})
	if err != nil {
		return err
	}
	if _, err := c.RegisterRollout(ctx, tko.Rollout{ID: upgradeRollout, Package: pkg}); err != nil {
		return err
	}
	report(fmt.Sprintf("rollout %s: upgrade %s to %s in two waves, one deployment first (the canary), then the rest", upgradeRollout, upgradeFrom, upgradeTo))
	report("  it goes on only while the SMFs that it has changed lose at most 1 % of their sessions; here, a stand-in for Prometheus says how many they lose")
	if _, err := Await(ctx, c, upgradeRollout, "Planned", func(string) {}); err != nil {
		return err
	}
	p, err := c.RolloutPlan(ctx, upgradeRollout)
	if err != nil {
		return err
	}
	for _, line := range planned(p) {
		report(line)
	}
	for _, step := range []struct{ command, end, result string }{
		{fmt.Sprintf("start %s --plan %.12s", upgradeRollout, p.Digest), "Done", "changed and healthy at their sites"},
		{"undo " + string(upgradeRollout), "Undone", "returned to what they were, the last wave first"},
	} {
		report("$ tko rollout " + step.command)
		verb, _, _ := strings.Cut(step.command, " ")
		if _, err := c.RolloutDo(ctx, tko.RolloutCommand{ID: upgradeRollout, Verb: verb, Plan: p.Digest}); err != nil {
			return err
		}
		last, err := Await(ctx, c, upgradeRollout, step.end, func(line string) { report("  " + line) })
		if err != nil {
			return err
		}
		healthy := 0
		for _, w := range last.Waves {
			healthy += w.Progress["Healthy"]
		}
		result := fmt.Sprintf("rollout %s is %s: %d of %d deployments are %s", upgradeRollout, step.end, healthy, p.Kinds["Change"], step.result)
		if healthy == 0 || healthy != p.Kinds["Change"] {
			return fmt.Errorf("%s: see tko rollout status %s", result, upgradeRollout)
		}
		report(result)
		if verb == "start" {
			if err := decided(ctx, c, report); err != nil {
				return err
			}
		}
	}
	return nil
}

// decided reports the evidence of the rollout. It fails if no metric was bad and then good,
// because the rollout didn't wait for one then.
func decided(ctx context.Context, c Upgrader, report func(string)) error {
	report(fmt.Sprintf("$ tko rollout evidence %s", upgradeRollout))
	held, passed := false, false
	for e, err := range c.RolloutEvidence(ctx, tko.RolloutEvidenceSelect{ID: upgradeRollout}) {
		if err != nil {
			return err
		}
		report(fmt.Sprintf("  wave %s, %s is %s: %s", e.Wave, e.Metric, e.Outcome, e.Text))
		held = held || e.Outcome == "Bad"
		passed = held && e.Outcome == "Good"
	}
	if !passed {
		return fmt.Errorf("rollout %s did not wait for its metric: see tko rollout evidence %s", upgradeRollout, upgradeRollout)
	}
	return nil
}

// planned returns what a plan changes, in lines.
func planned(p tko.RolloutPlan) []string {
	lines := []string{fmt.Sprintf("plan %.12s, nothing is changed yet:", p.Digest)}
	for _, g := range p.Groups {
		lines = append(lines, fmt.Sprintf("  %s of %d deployments:", g.Kind, g.Count))
		for _, c := range g.Changes {
			lines = append(lines, fmt.Sprintf("    %s %s: %s → %s", c.Resource, c.Path, c.Before, c.After))
		}
		if g.More > 0 {
			lines = append(lines, fmt.Sprintf("    and %d more changes", g.More))
		}
	}
	return lines
}

// Await waits until a rollout is in a state, and reports its progress, or that of the
// rollout that undoes it. It returns the last status that it reported.
func Await(ctx context.Context, c RolloutReader, id tko.RolloutID, state string, report func(string)) (tko.RolloutStatus, error) {
	last, held := "", ""
	for {
		s, err := c.RolloutStatus(ctx, id)
		if err != nil {
			return s, err
		}
		shown := s
		if s.UndoneBy != "" {
			if shown, err = c.RolloutStatus(ctx, s.UndoneBy); err != nil {
				return s, err
			}
		}
		if line := progressOf(shown); line != last {
			report(line)
			last = line
		}
		if line := heldBy(shown); line != held {
			held = line
			if held != "" {
				report(held)
			}
		}
		switch {
		case s.State == state:
			return shown, nil
		case slices.Contains([]string{"Paused", "Cancelled", "Done", "Undone"}, s.State), s.State == "Draft" && s.Reason != "":
			return s, fmt.Errorf("rollout %q is %s (%s), and not %s", id, s.State, s.Reason, state)
		case shown.State == "Paused": // an undo
			return s, fmt.Errorf("rollout %q is %s (%s)", shown.ID, shown.State, shown.Reason)
		}
		if err := pause.For(ctx, 200*time.Millisecond); err != nil {
			return s, err
		}
	}
}

// heldBy returns which metric keeps a rollout from going on, and why; "" if none does.
func heldBy(s tko.RolloutStatus) string {
	for _, block := range s.Blocks {
		if strings.Contains(block, "the metric ") {
			return fmt.Sprintf("%s holds: %s", s.ID, block)
		}
	}
	return ""
}

func progressOf(s tko.RolloutStatus) string {
	parts := make([]string, len(s.Waves))
	for i, w := range s.Waves {
		parts[i] = fmt.Sprintf("%s %d/%d healthy", w.Name, w.Progress["Healthy"], w.Rows)
		if n := w.Progress["Failed"]; n > 0 {
			parts[i] += fmt.Sprintf(" and %d failed", n)
		}
	}
	return fmt.Sprintf("%s %s: %s", s.ID, s.State, strings.Join(parts, ", "))
}
