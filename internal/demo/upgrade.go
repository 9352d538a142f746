package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Upgrader is the part of the client that Upgrade uses.
type Upgrader interface {
	Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error)
	RegisterTemplate(ctx context.Context, t tko.Template) (int64, error)
	RegisterRollout(ctx context.Context, r tko.Rollout) (int64, error)
	DeleteRollout(ctx context.Context, id tko.RolloutID) error
	RolloutDo(ctx context.Context, c tko.RolloutCommand) (tko.RolloutStatus, error)
	RolloutStatus(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error)
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
  health: {within: 10m}
`
)

// Upgrade upgrades the SMFs of the demo in two waves, and undoes the upgrade. It reports
// each step.
func Upgrade(ctx context.Context, c Upgrader, report func(string)) error {
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
	pkg, err := krm.Decode(krm.YAML, []byte(upgradePackage), krm.Limits{})
	if err != nil {
		return err
	}
	if _, err := c.RegisterRollout(ctx, tko.Rollout{ID: upgradeRollout, Package: pkg}); err != nil {
		return err
	}
	s, err := follow(ctx, c, upgradeRollout, report, "Planned")
	if err != nil {
		return err
	}
	report(fmt.Sprintf("plan %.12s: %d deployments of %s change", s.Plan, s.Kinds["Change"], upgradeFrom))
	for _, step := range []struct{ command, end string }{{"start", "Done"}, {"undo", "Undone"}} {
		if _, err := c.RolloutDo(ctx, tko.RolloutCommand{ID: upgradeRollout, Verb: step.command, Plan: s.Plan}); err != nil {
			return err
		}
		report("tko rollout " + step.command + " " + string(upgradeRollout))
		if _, err := follow(ctx, c, upgradeRollout, report, step.end); err != nil {
			return err
		}
	}
	return nil
}

// follow waits until a rollout is in a state, and reports its progress.
func follow(ctx context.Context, c Upgrader, id tko.RolloutID, report func(string), state string) (tko.RolloutStatus, error) {
	last := ""
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
		switch {
		case s.State == state:
			report(fmt.Sprintf("rollout %s is %s", id, state))
			return s, nil
		case slices.Contains([]string{"Paused", "Cancelled"}, s.State), s.State == "Draft" && s.Reason != "":
			return s, fmt.Errorf("rollout %q is %s: %s", id, s.State, s.Reason)
		}
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return s, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func progressOf(s tko.RolloutStatus) string {
	parts := []string{string(s.ID) + " " + s.State}
	for _, w := range s.Waves {
		parts = append(parts, fmt.Sprintf("%s %d/%d healthy", w.Name, w.Progress["Healthy"], w.Rows))
	}
	return strings.Join(parts, ", ")
}
