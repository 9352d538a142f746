package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

func rowPlan(n int) string {
	return fmt.Sprintf("plan the upgrade of %s deployments", thousands(n))
}

func rowApply(n int) string {
	return fmt.Sprintf("apply the upgrade of %s deployments, without waiting for health", thousands(n))
}

func rowUndo(n int) string { return fmt.Sprintf("undo the upgrade of %s deployments", thousands(n)) }

func rowPlanStatus(n int) string { return rowPlan(n) + ": status" }

// The aims of plans.
const (
	aimPlan       = 10 * time.Second
	aimPlanStatus = 100 * time.Millisecond
	aimApply      = time.Minute
)

// plans measures the plan of a rollout that upgrades deployments whose packages no plugin
// prepares.
func (r *run) plans(ctx context.Context) error {
	name, n := r.name("planned"), r.Planned
	l, err := newLoad(ctx, r.Address, r.Clients)
	if err != nil {
		return err
	}
	defer l.close()
	old, next := tko.TemplateID(name+":v1"), tko.TemplateID(name+":v2")
	for image, id := range map[string]tko.TemplateID{"nf:1": old, "nf:2": next} {
		if _, err := r.client.RegisterTemplate(ctx, tko.Template{ID: id, Package: plannedPackage(image)}); err != nil {
			return err
		}
	}
	if _, err := l.run(ctx, n, func(ctx context.Context, client, _ int) error {
		_, err := l.clients[client].CreateDeployment(ctx, tko.NewDeployment{Template: old, Prepared: true, Approved: true})
		return err
	}); err != nil {
		return err
	}
	id := tko.RolloutID(name + "/upgrade")
	err = r.plan(ctx, id, n, plannedRollout(string(old), string(next)))
	undo := tko.RolloutID(string(id) + "-undo")
	if err == nil {
		err = r.apply(ctx, id, undo, n)
	}
	purged := purge(ctx, r.client.PurgeDeployments, tko.DeploymentSelect{Templates: []string{string(old)}})
	if undone := r.client.DeleteRollout(ctx, undo); !errors.Is(undone, tko.ErrNotFound) {
		err = errors.Join(err, undone)
	}
	err = errors.Join(err, r.client.DeleteRollout(ctx, id), purged)
	for _, template := range []tko.TemplateID{old, next} {
		_, deleted := r.client.DeleteTemplate(ctx, template)
		err = errors.Join(err, deleted)
	}
	return err
}

func (r *run) plan(ctx context.Context, id tko.RolloutID, n int, pkg krm.Package) error {
	idle := resident(r.PID)
	stopWatching := watchResident(r.PID)
	began, before := time.Now(), r.cost(ctx)
	_, err := r.client.RegisterRollout(ctx, tko.Rollout{ID: id, Package: pkg})
	var status tko.RolloutStatus
	for err == nil && status.State != "Planned" {
		if _, err = r.client.AdvanceRollout(ctx, id); errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrBusy) {
			err = nil // the rollout controller plans it, too
		}
		if err == nil {
			status, err = r.client.RolloutStatus(ctx, id)
		}
		if err == nil && status.State == "Draft" && status.Reason != "" {
			err = errors.New(status.Reason)
		}
	}
	took, used := time.Since(began), r.since(ctx, before, n)
	peak := stopWatching()
	if err != nil {
		return err
	}
	if changes := status.Kinds["Change"]; changes != n {
		return fmt.Errorf("the plan changes %d deployments, want %d", changes, n)
	}
	r.add(Row{What: rowPlan(n), Value: took.Seconds(), Unit: Seconds, Aim: aimPlan.Seconds(), Note: used.String()})
	if r.PID == 0 || idle == 0 {
		r.add(Row{What: rowGrowth(rowPlan(n)), Missing: "the server's process is not known: set -pid"})
	} else {
		r.add(Row{What: rowGrowth(rowPlan(n)), Value: float64(max(0, peak-idle)), Unit: Bytes, Aim: 64e6, Note: fmt.Sprintf("to %d MB at the most", peak/1e6)})
	}
	samples, err := sample(ctx, r.Samples, func(ctx context.Context) error {
		_, err := r.client.RolloutStatus(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	r.add(latency(rowPlanStatus(n), samples, aimPlanStatus))
	return nil
}

// apply measures how long all rows of a planned rollout take, and those of its undo. The
// deployments have no sites, so that they are healthy at once.
func (r *run) apply(ctx context.Context, id, undo tko.RolloutID, n int) error {
	status, err := r.client.RolloutStatus(ctx, id)
	if err != nil {
		return err
	}
	began, before := time.Now(), r.cost(ctx)
	if _, err := r.client.RolloutDo(ctx, tko.RolloutCommand{ID: id, Verb: "start", Plan: status.Plan}); err != nil {
		return err
	}
	if err := r.until(ctx, id, "Done", id); err != nil {
		return err
	}
	r.add(Row{What: rowApply(n), Value: time.Since(began).Seconds(), Unit: Seconds, Aim: aimApply.Seconds(), Note: r.since(ctx, before, n).String()})
	began, before = time.Now(), r.cost(ctx)
	if _, err := r.client.RolloutDo(ctx, tko.RolloutCommand{ID: id, Verb: "undo"}); err != nil {
		return err
	}
	if err := r.until(ctx, id, "Undone", undo, id); err != nil {
		return err
	}
	r.add(Row{What: rowUndo(n), Value: time.Since(began).Seconds(), Unit: Seconds, Aim: aimApply.Seconds(), Note: r.since(ctx, before, n).String()})
	return nil
}

// until advances rollouts until one of them is in a state. The rollout controller
// advances them, too.
func (r *run) until(ctx context.Context, id tko.RolloutID, state string, advance ...tko.RolloutID) error {
	for {
		for _, one := range advance {
			if _, err := r.client.AdvanceRollout(ctx, one); err != nil && !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrBusy) {
				return err
			}
		}
		status, err := r.client.RolloutStatus(ctx, id)
		if err != nil || status.State == state {
			return err
		}
		if status.State == "Paused" || status.State == "Cancelled" {
			return fmt.Errorf("rollout %q is %s: %s", id, status.State, status.Reason)
		}
	}
}

func plannedPackage(image string) krm.Package {
	var pkg krm.Package
	for i := range 3 {
		labels := map[string]any{"app": fmt.Sprintf("nf-%d", i)}
		pkg = append(pkg, krm.Resource{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": fmt.Sprintf("nf-%d", i)},
			"spec": map[string]any{
				"replicas": int64(2), "selector": map[string]any{"matchLabels": labels},
				"template": map[string]any{
					"metadata": map[string]any{"labels": labels},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": image}}},
				},
			},
		})
	}
	return pkg
}

func plannedRollout(from, to string) krm.Package {
	return krm.Package{{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "upgrade"},
		"spec": map[string]any{"edits": []any{map[string]any{
			"upgrade": map[string]any{"to": to}, "select": map[string]any{"templateIdPatterns": []any{from}},
		}}, "limits": map[string]any{"concurrent": int64(1_000_000)}},
	}}
}
