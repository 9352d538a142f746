package cli

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

var siteView = view[tko.Site]{
	id:  func(s tko.Site) string { return string(s.ID) },
	row: func(s tko.Site) map[string]any { return entityRow(s, s.Metadata, s.Stamp) },
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

var siteKind = entityKind[tko.Site, tko.SiteSelect]{
	kind: tko.KindSite, view: siteView,
	list: server.Sites,
	one: func(sel tko.SiteSelect, id string) tko.SiteSelect {
		sel.IDs = append(slices.Clone(sel.IDs), tko.LiteralPattern(id))
		return sel
	},
	purge: server.PurgeSites,
	delete: func(ctx context.Context, s *session, id string) (tko.Deleted, error) {
		return s.DeleteSite(ctx, tko.SiteID(id))
	},
}

func (a *app) siteCommand() *cobra.Command {
	return group("site", "Sites, where deployments run",
		a.siteRegister(),
		asOfFlag(siteKind.getCommand(a, &cobra.Command{Short: "Print a site's package", Example: "  tko site get lagos/1\n  tko site get lagos/1 -o json"})),
		siteKind.deleteCommand(a, &cobra.Command{Short: "Delete a site; deployments at it stay", Example: "  tko site delete lagos/1"}),
		asOfFlag(siteKind.listCommand(a, &cobra.Command{
			Short: "List sites",
			Example: `  tko site list -m region=west -o wide
  tko site list --healthy=false
  tko site list --id 'lagos/*' --template-id 'edge-site:*'`,
		}, &siteFilter{conditions: &conditionFlags{}})),
		a.siteEdit(), asOfFlag(a.siteExplain()), a.siteDiff(), a.siteEnroll(), a.siteRevoke(), a.siteWaiting(), a.siteApprove(),
		siteKind.purgeCommand(a, &cobra.Command{
			Short: "Delete all matching sites, or --all", Example: "  tko site purge --id 'provisioned/*' --dry-run\n  tko site purge --id 'provisioned/*'",
		}, &siteFilter{}),
		a.suspend(tko.KindSite, "Stop scheduling at sites, without removing anything", `Stop scheduling at sites: nothing is applied there, removed from there, or repaired there, until
tko site resume. What runs there stays. Deployments can be changed meanwhile; the conditions of
the site and of the deployments report what waits. The site has the metadata
`+tko.MetadataSuspend+`=true, which kubectl label and manifests set as well. For many sites,
and with an end, use tko freeze.`, "tko site suspend lagos/1 --reason 'switch replacement'"),
		a.resume(tko.KindSite, "Schedule at suspended sites again", "tko site resume lagos/1"))
}

// A siteFilter holds the flags that select sites.
type siteFilter struct {
	sel        tko.SiteSelect
	conditions *conditionFlags // nil: sites aren't selected by conditions
}

func (f *siteFilter) flags(a *app, cmd *cobra.Command) {
	filterFlags(a, cmd, tko.KindSite, filter.Sites, &f.sel)
	f.conditions.flags(cmd)
}

func (f *siteFilter) selection() (sel tko.SiteSelect, err error) {
	sel = f.sel
	sel.Conditions, err = f.conditions.selects()
	return sel, err
}

func (a *app) siteRegister() *cobra.Command {
	var pkg packageFlag
	var site tko.Site
	var details detailFlags
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
			ctx, content, err := pkg.content(ctx, a)
			if err != nil {
				return err
			}
			site.ID, site.Package = tko.SiteID(args[0]), content
			ctx, site.Details = details.given(ctx)
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
	metadataFlag(cmd.Flags(), &site.Metadata)
	details.flags(cmd)
	pkg.flags(cmd.Flags())
	pkg.emptyFlag(cmd.Flags())
	return cmd
}
