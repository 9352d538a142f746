package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/krm"
)

var deploymentView = view[tko.Deployment]{
	id:  func(d tko.Deployment) string { return string(d.ID) },
	row: func(d tko.Deployment) map[string]any { return entityRow(d, d.Metadata, d.Stamp) },
	columns: []column[tko.Deployment]{
		{name: "ID", text: func(d tko.Deployment) string { return string(d.ID) }},
		{name: "PARENT", wide: true, text: func(d tko.Deployment) string { return string(d.Parent) }},
		{name: "TEMPLATE", text: func(d tko.Deployment) string { return string(d.Template) }},
		{name: "SITE", text: func(d tko.Deployment) string { return string(d.Site) }},
		{name: "PREPARED", text: preparedText},
		{name: "APPROVED", text: func(d tko.Deployment) string { return strconv.FormatBool(d.Approved) }},
		{name: "SCHEDULED", text: func(d tko.Deployment) string { return status(d.Stamp.Conditions, tko.ConditionScheduled) }},
		{name: "HEALTHY", text: func(d tko.Deployment) string { return status(d.Stamp.Conditions, tko.ConditionHealthy) }},
		{name: "AGE", age: func(d tko.Deployment) time.Time { return d.Stamp.Created }},
		{name: "UPDATED", wide: true, age: func(d tko.Deployment) time.Time { return d.Stamp.Updated }},
		{name: "REVISION", wide: true, text: func(d tko.Deployment) string { return strconv.FormatInt(d.Stamp.Revision, 10) }},
		{name: "SUSPENDED", wide: true, text: func(d tko.Deployment) string { return strconv.FormatBool(tko.Suspended(d.Metadata)) }},
		{name: "BY", wide: true, text: func(d tko.Deployment) string { return d.Stamp.String() }},
		{name: "CONDITIONS", wide: true, text: func(d tko.Deployment) string { return conditionsText(d.Stamp.Conditions) }},
		{name: "METADATA", wide: true, text: func(d tko.Deployment) string { return metadataText(d.Metadata) }},
	},
}

// preparedText returns true, or false with the reason.
func preparedText(d tko.Deployment) string {
	text := strconv.FormatBool(d.Prepared)
	if d.Prepared {
		return text
	}
	if _, reason, ok := strings.Cut(status(d.Stamp.Conditions, tko.ConditionPrepared), " "); ok {
		text += " " + reason
	}
	return text
}

var deploymentKind = entityKind[tko.Deployment, tko.DeploymentSelect]{
	kind: tko.KindDeployment, view: deploymentView,
	list: server.Deployments,
	one: func(sel tko.DeploymentSelect, id string) tko.DeploymentSelect {
		sel.IDs = append(slices.Clone(sel.IDs), tko.LiteralPattern(id))
		return sel
	},
	purge: server.PurgeDeployments,
}

func (a *app) deploymentCommand() *cobra.Command {
	return group("deployment", "Deployments: software at sites, and topologies",
		a.deploymentCreate(),
		asOfFlag(deploymentKind.getCommand(a, &cobra.Command{
			Short:   "Print a deployment's package, and why it isn't prepared",
			Example: "  tko deployment get 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf\n  tko deployment get 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf --revision 1",
		})),
		a.deploymentEdit(), asOfFlag(a.deploymentExplain()), a.deploymentDelete(), asOfFlag(a.deploymentList()),
		deploymentKind.purgeCommand(a, &cobra.Command{
			Short:   "Delete all matching deployments, or --all, and their descendants",
			Example: "  tko deployment purge --site-id 'test/*' --dry-run\n  tko deployment purge --site-id 'test/*'",
		}, &deploymentFilter{}),
		a.deploymentApprove(), a.deploymentUpgrade(),
		a.suspend(tko.KindDeployment, "Stop scheduling deployments, without removing anything", `Stop scheduling deployments: nothing of them is applied, removed or repaired at their sites,
until tko deployment resume. What runs there stays, also if the approval is withdrawn. The
packages can be changed and prepared meanwhile; the conditions Frozen and Scheduled report it.
A deployment that is deleted, or moved to another site, is removed from its site. Schedule
plugins don't run at the site meanwhile. The deployment has the metadata
`+tko.MetadataSuspend+`=true, which kubectl label and manifests set as well.`, `tko deployment suspend "$id" --reason 'incident 4711'`),
		a.resume(tko.KindDeployment, "Schedule suspended deployments again", `tko deployment resume "$id"`),
		a.modCommand())
}

func (a *app) deploymentCreate() *cobra.Command {
	var pkg packageFlag
	var d tko.NewDeployment
	var wait waitFlag
	cmd := &cobra.Command{
		Use:   "create [TEMPLATE]",
		Short: "Create a deployment, and print its ID",
		Long: `Create a deployment of a template, and print its ID. The given package is merged
into the template's. Without a template, it is the deployment's package.`,
		Example: `  tko deployment create nf/upf:v1 --site lagos/1 --url ./changes.yaml
  id=$(tko deployment create topology/core:v1 --wait --wait-timeout 10m)
  tko deployment create --url ./package --parent "$id"`,
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeArgs(completeTemplates),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			if len(args) == 0 && !pkg.given() {
				return tko.Errorf(errUsage, "nothing to deploy: name a TEMPLATE, or a package with --url or --stdin")
			}
			var err error
			if d.Merge, err = pkg.read(ctx, a); err != nil {
				return err
			}
			if len(args) > 0 {
				d.Template = tko.TemplateID(args[0])
			}
			id, err := call(ctx, s, func(ctx context.Context) (tko.DeploymentID, error) { return s.CreateDeployment(ctx, d) })
			if err != nil {
				return err
			}
			if err := a.printScalar(string(id)); err != nil {
				return err
			}
			if !wait.wait {
				return nil
			}
			// Scripts can read the ID before the wait ends.
			if err := a.out.Flush(); err != nil {
				return err
			}
			return waitPrepared(ctx, s, id, wait.timeout)
		}),
	}
	f := cmd.Flags()
	metadataFlag(f, &d.Metadata)
	pkg.flags(f)
	f.StringVar(&pkg.url, "merge", "", "the same as --url")
	f.StringVar((*string)(&d.Parent), "parent", "", "`ID` of the parent deployment")
	f.StringVarP((*string)(&d.Site), "site", "s", "", "`ID` of the site to run at")
	f.BoolVar(&d.Prepared, "prepared", false, "the package is complete and needs no preparation")
	f.BoolVar(&d.Approved, "approved", false, "the deployment is approved")
	wait.flags(f, "wait until the deployment and all its descendants are prepared")
	cmd.MarkFlagsMutuallyExclusive("url", "merge")
	complete(cmd, "site", a.completion(completeSites))
	complete(cmd, "parent", a.completion(completeDeployments))
	return cmd
}

func (a *app) deploymentDelete() *cobra.Command {
	bulk := bulkFlag{unasked: 1}
	cmd := a.ofOne(tko.KindDeployment, &cobra.Command{
		Use:     "delete ID",
		Short:   "Delete a deployment and all its descendants",
		Example: "  tko deployment delete 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf",
	}, func(ctx context.Context, s *session, id string) error {
		return a.purge(ctx, s, &bulk, "deployment", "deployments", func(ctx context.Context, dryRun bool) (tko.Deleted, error) {
			if dryRun {
				return wouldDelete(ctx, s, tko.DeploymentID(id))
			}
			return s.DeleteDeployment(ctx, tko.DeploymentID(id))
		})
	})
	bulk.confirmFlag(cmd.Flags())
	dryRunFlag(cmd.Flags(), &bulk.dryRun)
	return cmd
}

// wouldDelete counts a deployment and its descendants.
func wouldDelete(ctx context.Context, s *session, id tko.DeploymentID) (tko.Deleted, error) {
	if _, err := s.Deployment(ctx, id, 0); err != nil {
		return tko.Deleted{}, err
	}
	d, err := s.PurgeDeployments(ctx, tko.DeploymentSelect{Parent: id}, true)
	return tko.Deleted{Count: d.Count + 1, Descendants: d.Count}, err
}

// deploymentFilter holds the flags that select deployments.
type deploymentFilter struct {
	sel        tko.DeploymentSelect
	conditions *conditionFlags // nil: deployments aren't selected by conditions
}

func (d *deploymentFilter) flags(a *app, cmd *cobra.Command) {
	filterFlags(a, cmd, tko.KindDeployment, filter.Deployments, &d.sel)
	d.conditions.flags(cmd)
}

func (d *deploymentFilter) selection() (sel tko.DeploymentSelect, err error) {
	sel = d.sel
	sel.Conditions, err = d.conditions.selects()
	return sel, err
}

func (a *app) deploymentList() *cobra.Command {
	var newer bool
	k := deploymentKind
	k.instead = func(ctx context.Context, s *session, sel tko.DeploymentSelect, w *windowFlag) (bool, error) {
		if !newer {
			return false, nil
		}
		return true, upgradableDeployments(ctx, s, sel, w)
	}
	cmd := k.listCommand(a, &cobra.Command{
		Short: "List deployments",
		Example: `  tko deployment list --prepared=false -o wide
  tko deployment list --site-metadata region=west --template-id 'nf/**'
  tko deployment list --outdated --template-id nf/upf:v1
  tko deployment list --upgradable --template-id 'nephio/**'
  tko deployment list --condition Healthy=False --condition Prepared=True
  tko deployment list --parent 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf -o json`,
	}, &deploymentFilter{conditions: &conditionFlags{}})
	cmd.Flags().BoolVar(&newer, "upgradable", false, "only deployments whose template has a newer version: another one with a higher version after the last colon of the ID")
	cmd.MarkFlagsMutuallyExclusive("upgradable", "watch")
	return cmd
}

func (a *app) deploymentApprove() *cobra.Command {
	var selected deploymentFilter
	var bulk bulkFlag
	cmd := &cobra.Command{
		Use:   "approve [ID]",
		Short: "Approve a deployment, or all matching prepared ones, or --all",
		Long: `Approve a deployment, or all matching prepared ones; with --all, all prepared ones.
With an ID, the changes that the placements of a topology propose are approved, too.
If a topology waits because it would create or delete very many deployments, --confirm consents to their number.`,
		Example: `  tko deployment approve 2Zq8LmV3xT6YbN9cWd4RkJ5HsGf
  tko deployment approve --site-metadata region=west --dry-run`,
		Args:              arguments(0, 1),
		ValidArgsFunction: a.completeArgs(completeDeployments),
	}
	selected.flags(a, cmd)
	bulk.flags(cmd.Flags(), "prepared deployments")
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		dryRun := bulk.dryRun
		sel, err := selected.selection()
		if err != nil {
			return err
		}
		if len(args) > 0 && (bulk.all || filtered(cmd)) {
			return usageError(cmd, tko.Errorf(errUsage, "an ID and filters can't be used together: use one"))
		}
		if len(args) > 0 {
			if err = bulk.checkCount(cmd, "deployments"); err == nil {
				ctx, err = settleConsent(ctx, s, &bulk, tko.DeploymentID(args[0]))
			}
			if err != nil {
				return err
			}
		}
		if len(args) == 0 {
			if err = bulk.check(cmd); err == nil {
				ctx, err = bulk.settle(ctx, s, "approve", "deployment", "deployments", func(ctx context.Context) (int, error) {
					return s.ApproveDeployments(ctx, sel, true)
				})
			}
			if err != nil {
				return err
			}
		}
		approved, err := callLong(ctx, s, func(ctx context.Context) (int, error) {
			switch {
			case len(args) == 0:
				return s.ApproveDeployments(ctx, sel, dryRun)
			case dryRun:
				return wouldApprove(ctx, s, tko.DeploymentID(args[0]))
			default:
				return s.ApproveDeployment(ctx, tko.DeploymentID(args[0]))
			}
		})
		if err != nil {
			return err
		}
		a.notice("%s %s", either(dryRun, "would approve", "approved"), count(approved, "deployment", "deployments"))
		return a.printResult(map[string]any{"approved": int64(approved), "dryRun": dryRun})
	})
	return cmd
}

// settleConsent returns a context with the number of changes that a user consents to, if
// the deployment waits for that: that of --confirm, or the one that a user at a terminal
// confirms.
func settleConsent(ctx context.Context, s *session, b *bulkFlag, id tko.DeploymentID) (context.Context, error) {
	if b.confirm > 0 {
		return tko.WithConfirmation(ctx, b.confirm), nil
	}
	if b.dryRun || !s.app.interactive {
		return ctx, nil
	}
	d, err := s.Deployment(ctx, id, 0)
	if err != nil {
		return ctx, nil //nolint:nilerr // the approval returns the error
	}
	waiting, ok := tko.WaitingOf(d.Stamp.Conditions)
	if !ok {
		return ctx, nil
	}
	if !s.app.ask("This will create %s and delete %s. Continue?", count(waiting.Create, "deployment", "deployments"), count(waiting.Remove, "deployment", "deployments")) {
		return nil, errNotConfirmed
	}
	return tko.WithConfirmation(ctx, waiting.Count()), nil
}

func wouldApprove(ctx context.Context, s *session, id tko.DeploymentID) (int, error) {
	if err := expectID("deployment ID", string(id)); err != nil {
		return 0, err
	}
	d, err := s.Deployment(ctx, id, 0)
	if err != nil {
		return 0, err
	}
	if waiting, ok := tko.WaitingOf(d.Stamp.Conditions); ok {
		s.app.notice("%s", waiting)
		return 1, nil
	}
	if c, ok := proposal(d); ok {
		s.app.notice("%s", c.Message)
		return 1, nil
	}
	if d.Approved {
		return 0, nil
	}
	return 1, nil
}

func (a *app) modCommand() *cobra.Command {
	return group("mod", "Modify a deployment: start, change its package, end", a.modStart(), a.modEnd(), a.modCancel(), a.modList(), a.modBreak())
}

func (a *app) modStart() *cobra.Command {
	var to string
	var validity time.Duration
	var cmd *cobra.Command
	cmd = a.ofOne(tko.KindDeployment, &cobra.Command{
		Use:   "start ID",
		Short: "Start to modify a deployment, and print the token",
		Long: `Start to modify a deployment, and print the modification's token. No other client
can modify the deployment until the modification ends, is cancelled, or expires.
With --url the package is written to a file, or to package.yaml in a folder. At a
terminal the token is valid for a minute; otherwise for the time that the server sets,
10 seconds by default. To change a package by hand, tko deployment edit needs no token.`,
		Example: `  token=$(tko deployment mod start "$id" --url ./work --for 10m)
  sed -i 's/replicas: 1/replicas: 2/' work/package.yaml
  tko deployment mod end "$token" --url ./work`,
	}, func(ctx context.Context, s *session, id string) error {
		switch {
		case validity != 0 || cmd.Flags().Changed("for"):
			ctx = tko.WithModificationTime(ctx, validity)
		case a.interactive:
			ctx = tko.WithModificationTime(ctx, time.Minute)
		}
		m, err := call(ctx, s, func(ctx context.Context) (tko.Modification, error) {
			return s.StartModification(ctx, tko.DeploymentID(id))
		})
		if err != nil {
			return err
		}
		if to != "" {
			if err := writePackage(to, m.Package); err != nil {
				return errors.Join(err, s.do(ctx, func(ctx context.Context) error { return s.CancelModification(ctx, m.Token) }))
			}
		}
		if !m.Expires.IsZero() {
			a.notice("the modification must end by %s", m.Expires.Local().Format(time.RFC3339))
		}
		return a.printScalar(m.Token)
	})
	cmd.Flags().StringVarP(&to, "url", "u", "", "`file` (.yaml, .yml) or folder to write the package to")
	cmd.Flags().DurationVar(&validity, "for", 0, "`time` that the token is valid, 1s to 1h (default 1m at a terminal, else the server's)")
	return cmd
}

// writePackage writes a package to a YAML file, or to package.yaml in a folder,
// which it creates if there is none.
func writePackage(to string, pkg krm.Package) error {
	path := strings.TrimPrefix(strings.TrimPrefix(to, "file:"), "//")
	info, err := os.Stat(path)
	extension := filepath.Ext(path)
	if isDir := err == nil && info.IsDir(); isDir || err != nil && extension != ".yaml" && extension != ".yml" {
		if err := os.MkdirAll(path, 0o750); err != nil {
			return tko.Errorf(errUsage, "create the folder: %w", err)
		}
		path = filepath.Join(path, "package.yaml")
	}
	text, err := krm.Encode(krm.YAML, pkg)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return tko.Errorf(errUsage, "write the package: %w", err)
	}
	return nil
}

func (a *app) modEnd() *cobra.Command {
	var pkg packageFlag
	cmd := &cobra.Command{
		Use:     "end TOKEN",
		Short:   "End a modification with the deployment's new package",
		Example: `  tko deployment mod end "$token" --url ./changed`,
		Args:    arguments(1, 1),
	}
	pkg.flags(cmd.Flags())
	pkg.emptyFlag(cmd.Flags())
	var bulk bulkFlag
	bulk.confirmFlag(cmd.Flags())
	// Elsewhere -s is --site: earlier scripts have it for --stdin here.
	cmd.Flags().BoolVarP(&pkg.stdin, "earlier-stdin", "s", false, "the same as --stdin")
	cmd.Flags().Lookup("earlier-stdin").Hidden = true
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		if _, err := pkg.purpose(ctx); err != nil {
			return err
		}
		if err := bulk.checkCount(cmd, "sites"); err != nil {
			return err
		}
		if bulk.confirm > 0 {
			ctx = tko.WithConfirmation(ctx, bulk.confirm)
		}
		if !pkg.given() && !pkg.empty {
			return usageError(cmd, errNoSource)
		}
		content, err := pkg.read(ctx, a)
		if err != nil {
			return err
		}
		if len(content) == 0 && !pkg.empty {
			return tko.Errorf(errUsage, "the package has no resources: use --empty to remove all resources of the deployment")
		}
		type ended struct {
			id       tko.DeploymentID
			revision int64
		}
		e, err := call(ctx, s, func(ctx context.Context) (e ended, err error) {
			e.id, e.revision, err = s.EndModification(ctx, args[0], content)
			return e, err
		})
		if err != nil {
			return err
		}
		a.notice("modified deployment %q, revision %d", e.id, e.revision)
		return a.printResult(map[string]any{"id": string(e.id), "revision": e.revision})
	})
	return cmd
}

func (a *app) modCancel() *cobra.Command {
	return &cobra.Command{
		Use:     "cancel TOKEN",
		Short:   "Cancel a modification",
		Example: `  tko deployment mod cancel "$token"`,
		Args:    arguments(1, 1),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			err := s.do(ctx, func(ctx context.Context) error { return s.CancelModification(ctx, args[0]) })
			if err == nil {
				a.notice("cancelled the modification")
			}
			return err
		}),
	}
}
