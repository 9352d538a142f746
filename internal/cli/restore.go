package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// A restoring holds the flags of tko restore.
type restoring struct {
	filter pastFilter
	bulk   bulkFlag
	asOf   string
	id     string // of the rollout
	bounds rolloutEdits
	start  bool
	wait   waitFlag
}

// ofRollouts are the flags that only restores of deployments have.
var ofRollouts = []string{"rollout", "wave", "limit", "health", "blind", "on-failure", "start", "wait", "wait-timeout"}

func (a *app) restoreCommand() *cobra.Command {
	var r restoring
	cmd := &cobra.Command{
		Use: "restore [KIND [ID]] --as-of MOMENT", Short: "Return deployments to what they were at a moment, by a rollout; or other entities",
		Long: `Return an entity, or those that match filters, to what they were at a moment: those that
were deleted since are created again with their IDs; those that match and were created since
are deleted. Afterwards, tko diff --from with the same arguments shows nothing.

Without KIND, filters select deployments. Deployments are restored by a rollout: this command
writes and plans it, and prints the plan. Nothing is changed until tko rollout start, or with
--start. The rollout has the waves and limits of the flags, and can be undone.

A deployment that was deleted since comes back with its descendants that were deleted, too. A
template that was deleted since comes back with the references of sites and deployments to it.

Sites, templates and plugins are written at once, without a rollout. --dry-run counts.
Restore the sites that deployments need before the deployments.`,
		Example: `  tko restore --site-id 'lagos/*' --as-of 'yesterday 14:00' --wave canary=3 --wave rest,approve
  tko restore deployment 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf --as-of 2h --start --wait
  tko restore site lagos/1 --as-of r1
  tko restore site --id 'lagos/*' --as-of 'yesterday 14:00' --dry-run`,
		Args: arguments(0, 3),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		sel, err := r.filter.read(args)
		if err != nil {
			return usageError(cmd, err)
		}
		if err := r.check(cmd, sel); err != nil {
			return usageError(cmd, err)
		}
		asOf, err := since(ctx, s, sel, "as-of", r.asOf)
		if err != nil {
			return err
		}
		if sel.Kind == tko.KindDeployment && !r.bulk.dryRun {
			return a.restoreByRollout(ctx, s, sel, asOf, &r)
		}
		return a.restoreAtOnce(ctx, s, sel, asOf, &r)
	})
	r.filter.flags(cmd)
	f := cmd.Flags()
	r.bulk.confirmFlag(f)
	dryRunFlag(f, &r.bulk.dryRun)
	f.StringVar(&r.asOf, "as-of", "", "`moment` to restore"+momentHelp+"; of one entity also a revision, rN")
	f.StringVar(&r.id, "rollout", "", "`ID` of the rollout that restores deployments (default: restore- and the time)")
	r.bounds.boundFlags(cmd)
	f.BoolVar(&r.start, "start", false, "start the rollout at once, unless something conflicts")
	r.wait.flags(f, "wait until all are restored and healthy (with --start)")
	return cmd
}

// check refuses flags that would have no effect.
func (r *restoring) check(cmd *cobra.Command, sel tko.PastSelect) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case err != nil:
		case slices.Contains(ofRollouts, f.Name) && (sel.Kind != tko.KindDeployment || r.bulk.dryRun):
			err = tko.Errorf(errUsage, "--%s is of the rollout that restores deployments: leave it out", f.Name)
		case f.Name == "confirm" && sel.Kind == tko.KindDeployment:
			err = tko.Errorf(errUsage, "--confirm isn't used for deployments: review the plan of the rollout, then start it")
		case f.Name == "confirm" && r.bulk.confirm < 1:
			err = r.bulk.checkCount(cmd, "entities")
		case f.Name == "wait" && !r.start:
			err = tko.Errorf(errUsage, "--wait is for --start: without it, nothing is changed")
		}
	})
	switch {
	case err != nil:
		return err
	case r.asOf == "":
		return tko.Errorf(errUsage, "name the moment to restore: --as-of MOMENT")
	case sel.IsAll():
		return tko.Errorf(errUsage, "nothing is selected: name one %s, or use filters (--template-id '**' selects the deployments of all templates)", sel.Kind)
	}
	return nil
}

// restoreByRollout writes and plans the rollout that restores deployments.
func (a *app) restoreByRollout(ctx context.Context, s *session, sel tko.PastSelect, asOf tko.AsOf, r *restoring) error {
	id := cmp.Or(tko.RolloutID(r.id), newRolloutID("restore"))
	if err := s.replaceable(ctx, id); err != nil {
		return err
	}
	pkg, err := r.pkg(id, sel, asOf)
	if err != nil {
		return err
	}
	status, err := s.plan(ctx, tko.Rollout{ID: id, Package: pkg})
	if err != nil {
		return err
	}
	changed, blocked := changing(status.Kinds)
	if changed+status.Kinds["Conflict"] == 0 {
		if err := s.do(ctx, func(ctx context.Context) error { return s.DeleteRollout(ctx, id) }); err != nil {
			return err
		}
		a.notice("the deployments are as they were: nothing is to be restored")
		return nil
	}
	if !r.start || blocked > 0 {
		if err := a.printPlanOf(ctx, s, id, formatTable, false); err != nil {
			return err
		}
	}
	switch {
	case blocked > 0 && r.start:
		return tko.Errorf(tko.ErrConflict, "%s, nothing was changed: see tko rollout plan %s", count(blocked, "deployment can't be restored", "deployments can't be restored"), id)
	case !r.start:
		return nil
	}
	return s.start(ctx, status, r.bounds.blind, &r.wait)
}

// pkg returns the package of the rollout that restores.
func (r *restoring) pkg(id tko.RolloutID, sel tko.PastSelect, asOf tko.AsOf) (krm.Package, error) {
	selected := spec.SelectValue(tko.DeploymentSelect{
		Parent: sel.Parent, Metadata: sel.Metadata, Templates: sel.Templates, TemplateMetadata: sel.TemplateMetadata, Sites: sel.Sites, SiteMetadata: sel.SiteMetadata,
	})
	if sel.ID != "" {
		selected = map[string]any{"deploymentIds": []any{sel.ID}}
	}
	content := map[string]any{"restore": map[string]any{"asOf": asOf.String(), "select": selected}}
	if err := r.bounds.bounds(content); err != nil {
		return nil, err
	}
	return rolloutPackage(id, content), nil
}

// restoreAtOnce restores entities that rollouts don't change, or counts.
func (a *app) restoreAtOnce(ctx context.Context, s *session, sel tko.PastSelect, asOf tko.AsOf, r *restoring) error {
	request := tko.RestoreRequest{Select: sel, AsOf: asOf, DryRun: r.bulk.dryRun}
	dry := request
	dry.DryRun = true
	var err error
	if ctx, err = r.bulk.settle(ctx, s, "restore", string(sel.Kind), string(sel.Kind)+"s", func(ctx context.Context) (int, error) {
		would, err := s.RestorePast(ctx, dry)
		return would.Created + would.Changed + would.Deleted, err
	}); err != nil {
		return err
	}
	done, err := callLong(ctx, s, func(ctx context.Context) (tko.Restored, error) { return s.RestorePast(ctx, request) })
	if err != nil {
		return err
	}
	again := ""
	if done.Associated > 0 {
		again = fmt.Sprintf("; %s to restored templates again", count(done.Associated, "site or deployment refers", "sites and deployments refer"))
	}
	a.notice("%s %s as of position %d: %d created, %d changed, %d deleted; %d are the same%s", either(r.bulk.dryRun, "would restore", "restored"),
		count(done.Created+done.Changed+done.Deleted, string(sel.Kind), string(sel.Kind)+"s"), done.Position, done.Created, done.Changed, done.Deleted, done.Same, again)
	return a.printResult(map[string]any{
		"position": done.Position, "created": int64(done.Created), "changed": int64(done.Changed), "deleted": int64(done.Deleted), "same": int64(done.Same), "associated": int64(done.Associated), "dryRun": r.bulk.dryRun,
	})
}
