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

// plans measures the plan of a rollout that upgrades deployments whose packages no plugin
// prepares.
func (r *run) plans(ctx context.Context) (err error) {
	n, own := r.Planned, r.scope("planned")
	id := tko.RolloutID(own.name + "/upgrade")
	undo := id + "-undo"
	old, err := own.template(ctx, "nf:v1", plannedPackage("nf:1"), nil)
	if err != nil {
		return err
	}
	next, err := own.template(ctx, "nf:v2", plannedPackage("nf:2"), nil)
	if err != nil {
		return err
	}
	defer func() {
		for _, rollout := range []tko.RolloutID{undo, id} {
			if deleted := r.client.DeleteRollout(ctx, rollout); !errors.Is(deleted, tko.ErrNotFound) {
				err = errors.Join(err, deleted)
			}
		}
		err = errors.Join(err, own.purge(ctx))
	}()
	if _, err := r.load(ctx, r.Clients, 0, n, func(ctx context.Context, p peer, _ int) error {
		_, err := p.CreateDeployment(ctx, tko.NewDeployment{Template: old, Prepared: true, Approved: true})
		return err
	}); err != nil {
		return err
	}
	plan, err := r.plan(ctx, id, n, plannedRollout(string(old), string(next)))
	if err != nil {
		return err
	}
	// The deployments have no sites, so that they are healthy at once.
	if err := r.carryOut(ctx, rowApply(n), n, tko.RolloutCommand{ID: id, Verb: "start", Plan: plan}, "Done", id); err != nil {
		return err
	}
	return r.carryOut(ctx, rowUndo(n), n, tko.RolloutCommand{ID: id, Verb: "undo"}, "Undone", undo, id)
}

// plan plans a rollout, and returns the digest of the plan.
func (r *run) plan(ctx context.Context, id tko.RolloutID, n int, pkg krm.Package) (digest string, err error) {
	var m measurement
	var status tko.RolloutStatus
	growth, err := r.memory(rowGrowth(rowPlan(n)), func() error {
		end := r.begin(ctx)
		_, err := r.client.RegisterRollout(ctx, tko.Rollout{ID: id, Package: pkg})
		if err == nil {
			status, err = r.until(ctx, id, "Planned", id)
		}
		m = end(n)
		return err
	})
	if err != nil {
		return "", err
	}
	if changes := status.Kinds["Change"]; changes != n {
		return "", fmt.Errorf("the plan changes %d deployments, want %d", changes, n)
	}
	samples, err := sample(ctx, r.Samples, func(ctx context.Context) error {
		_, err := r.client.RolloutStatus(ctx, id)
		return err
	})
	r.add(duration(rowPlan(n), m.took, 10*time.Second, m.String()), growth)
	if err == nil {
		r.add(latency(rowPlanStatus(n), samples, 100*time.Millisecond))
	}
	return status.Plan, err
}

// carryOut measures how long all rows of a planned rollout take until it is in a state.
func (r *run) carryOut(ctx context.Context, what string, n int, command tko.RolloutCommand, state string, advance ...tko.RolloutID) error {
	end := r.begin(ctx)
	_, err := r.client.RolloutDo(ctx, command)
	if err == nil {
		_, err = r.until(ctx, command.ID, state, advance...)
	}
	if err == nil {
		m := end(n)
		r.add(duration(what, m.took, time.Minute, m.String()))
	}
	return err
}

// until advances rollouts until one of them is in a state, and returns its status. The
// rollout controller advances them, too.
func (r *run) until(ctx context.Context, id tko.RolloutID, state string, advance ...tko.RolloutID) (tko.RolloutStatus, error) {
	for {
		for _, one := range advance {
			if _, err := r.client.AdvanceRollout(ctx, one); err != nil && !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrBusy) {
				return tko.RolloutStatus{}, err
			}
		}
		status, err := r.client.RolloutStatus(ctx, id)
		switch {
		case err != nil || status.State == state:
			return status, err
		case status.State == "Draft" && status.Reason != "":
			return status, errors.New(status.Reason)
		case status.State == "Paused" || status.State == "Cancelled":
			return status, fmt.Errorf("rollout %q is %s: %s", id, status.State, status.Reason)
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
