package cli

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

var siteView = view[tko.Site]{
	id: func(s tko.Site) string { return string(s.ID) },
	row: func(s tko.Site) map[string]any {
		row := map[string]any{
			"siteId": string(s.ID), "templateId": string(s.Template),
			"metadata": metadataValue(s.Metadata), "deploymentIds": listValue(s.Deployments),
		}
		suspendedRow(row, s.Metadata)
		stampRow(row, s.Stamp)
		return row
	},
	columns: []column[tko.Site]{
		{name: "ID", text: func(s tko.Site) string { return string(s.ID) }},
		{name: "TEMPLATE", text: func(s tko.Site) string { return string(s.Template) }},
		{name: "DEPLOYMENTS", text: func(s tko.Site) string { return strconv.Itoa(s.DeploymentCount) }},
		{name: "SCHEDULED", text: func(s tko.Site) string { return status(s.Stamp.Conditions, tko.ConditionScheduled) }},
		{name: "HEALTHY", text: func(s tko.Site) string { return status(s.Stamp.Conditions, tko.ConditionHealthy) }},
		{name: "AGE", age: func(s tko.Site) time.Time { return s.Stamp.Created }},
		{name: "UPDATED", wide: true, age: func(s tko.Site) time.Time { return s.Stamp.Updated }},
		{name: "REVISION", wide: true, text: func(s tko.Site) string { return strconv.FormatInt(s.Stamp.Revision, 10) }},
		{name: "SUSPENDED", wide: true, text: func(s tko.Site) string { return strconv.FormatBool(tko.Suspended(s.Metadata)) }},
		{name: "BY", wide: true, text: func(s tko.Site) string { return s.Stamp.String() }},
		{name: "CONDITIONS", wide: true, text: func(s tko.Site) string { return conditionsText(s.Stamp.Conditions) }},
		{name: "METADATA", text: func(s tko.Site) string { return metadataText(s.Metadata) }},
	},
}

func (a *app) siteCommand() *cobra.Command {
	return group("site", "Sites, where deployments run",
		a.siteRegister(), asOfFlag(a.siteGet()), a.siteDelete(), asOfFlag(a.siteList()), asOfFlag(a.siteExplain()), a.siteDiff(), a.sitePurge(), a.siteSuspend(), a.siteResume())
}

func (a *app) siteRegister() *cobra.Command {
	var pkg packageFlag
	var metadata map[string]string
	cmd := &cobra.Command{
		Use:   "register ID [TEMPLATE]",
		Short: "Create or replace a site",
		Long: `Create or replace a site. A site with a template starts from the template's
package and metadata; the given ones are merged into them. Without --url and
--stdin, the command refuses to remove the package of an existing site, unless
--empty is given.`,
		Example: `  tko site register lagos/1 --url ./lagos-1 -m region=west
  tko site register lagos/2 edge-site:v1 -m region=west`,
		Args:              arguments(1, 2),
		ValidArgsFunction: a.completeArgs(completeSites, completeTemplates),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			ctx, err := pkg.purpose(ctx)
			if err != nil {
				return err
			}
			content, err := pkg.read(ctx, a)
			if err != nil {
				return err
			}
			site := tko.Site{ID: tko.SiteID(args[0]), Metadata: metadata, Package: content}
			if len(args) > 1 {
				site.Template = tko.TemplateID(args[1])
			}
			revision, err := call(ctx, s, func(ctx context.Context) (int64, error) { return s.RegisterSite(ctx, site) })
			if err != nil {
				return err
			}
			a.notice("registered site %q, revision %d", site.ID, revision)
			return a.printResult(map[string]any{"id": args[0], "revision": revision})
		}),
	}
	metadataFlag(cmd.Flags(), &metadata)
	pkg.flags(cmd.Flags())
	pkg.emptyFlag(cmd.Flags())
	return cmd
}

func (a *app) siteGet() *cobra.Command {
	var revision int64
	var watch watchFlag
	cmd := &cobra.Command{
		Use:               "get ID",
		Short:             "Print a site's package",
		Example:           "  tko site get lagos/1\n  tko site get lagos/1 -o json",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeFirst(completeSites),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			if err := expectID("site ID", args[0]); err != nil {
				return err
			}
			return watch.get(ctx, s, tko.KindSite, args[0], revision, func(ctx context.Context) (tko.Stamp, krm.Package, error) {
				site, err := call(ctx, s, func(ctx context.Context) (tko.Site, error) {
					return s.Site(ctx, tko.SiteID(args[0]), revision)
				})
				return site.Stamp, site.Package, err
			})
		}),
	}
	revisionFlag(cmd.Flags(), &revision)
	watch.flags(cmd)
	return cmd
}

func (a *app) siteDelete() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:               "delete ID",
		Short:             "Delete a site; deployments at it stay",
		Example:           "  tko site delete lagos/1",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeFirst(completeSites),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			if err := expectID("site ID", args[0]); err != nil {
				return err
			}
			d, err := callLong(ctx, s, func(ctx context.Context) (tko.Deleted, error) {
				if dryRun {
					return wouldDeleteOne(tko.KindSite, args[0], args[0], func() (tko.Deleted, error) {
						return s.PurgeSites(ctx, tko.SiteSelect{IDs: []string{tko.LiteralPattern(args[0])}}, true)
					})
				}
				return s.DeleteSite(ctx, tko.SiteID(args[0]))
			})
			if err != nil {
				return err
			}
			return a.deleted("site", "sites", d, dryRun)
		}),
	}
	dryRunFlag(cmd.Flags(), &dryRun)
	return cmd
}

func (a *app) siteFilters(cmd *cobra.Command, sel *tko.SiteSelect) {
	f := cmd.Flags()
	patterns(f, &sel.IDs, "id", "", "the ID")
	patterns(f, &sel.Templates, "template-id", "", "the template's ID")
	metadataPatterns(f, &sel.Metadata, "metadata", "m", "")
	complete(cmd, "id", a.completion(completeSites))
	complete(cmd, "template-id", a.completion(completeTemplates))
}

func (a *app) siteList() *cobra.Command {
	var sel tko.SiteSelect
	var conditions conditionFlags
	var window windowFlag
	var watch watchFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sites",
		Example: `  tko site list -m region=west -o wide
  tko site list --healthy=false
  tko site list --id 'lagos/*' --template-id 'edge-site:*'`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) (err error) {
			if sel.Conditions, err = conditions.selects(); err != nil {
				return err
			}
			ask := func(ctx context.Context) iter.Seq2[tko.Site, error] { return s.Sites(ctx, sel, window.options(a)) }
			if !watch.on {
				return list(ctx, s, siteView, &window, ask)
			}
			return watchList(ctx, s, &window, watched[tko.Site]{
				view: siteView, kind: tko.KindSite, all: ask,
				one: func(ctx context.Context, id string) iter.Seq2[tko.Site, error] {
					one := sel
					one.IDs = append(slices.Clone(sel.IDs), tko.LiteralPattern(id))
					return s.Sites(ctx, one, window.options(a))
				},
			})
		}),
	}
	a.siteFilters(cmd, &sel)
	conditions.flags(cmd)
	window.flags(cmd.Flags())
	watch.flags(cmd)
	return cmd
}

func (a *app) sitePurge() *cobra.Command {
	var sel tko.SiteSelect
	var bulk bulkFlag
	cmd := &cobra.Command{
		Use:               "purge",
		Short:             "Delete all matching sites, or --all",
		Example:           "  tko site purge --id 'provisioned/*' --dry-run\n  tko site purge --id 'provisioned/*'",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, _ []string) error {
		if err := bulk.check(cmd); err != nil {
			return err
		}
		return a.purge(ctx, s, &bulk, "site", "sites", func(ctx context.Context, dryRun bool) (tko.Deleted, error) {
			return s.PurgeSites(ctx, sel, dryRun)
		})
	})
	a.siteFilters(cmd, &sel)
	bulk.flags(cmd.Flags(), "sites")
	return cmd
}
