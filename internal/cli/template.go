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

var templateView = view[tko.Template]{
	id:  func(t tko.Template) string { return string(t.ID) },
	row: func(t tko.Template) map[string]any { return entityRow(t, nil, t.Stamp) },
	columns: []column[tko.Template]{
		{name: "ID", text: func(t tko.Template) string { return string(t.ID) }},
		{name: "DEPLOYMENTS", text: func(t tko.Template) string { return strconv.Itoa(t.DeploymentCount) }},
		{name: "AGE", age: func(t tko.Template) time.Time { return t.Stamp.Created }},
		{name: "UPDATED", wide: true, age: func(t tko.Template) time.Time { return t.Stamp.Updated }},
		{name: "REVISION", wide: true, text: func(t tko.Template) string { return strconv.FormatInt(t.Stamp.Revision, 10) }},
		{name: "BY", wide: true, text: func(t tko.Template) string { return t.Stamp.String() }},
		{name: "METADATA", text: func(t tko.Template) string { return metadataText(t.Metadata) }},
	},
}

var templateKind = entityKind[tko.Template, tko.TemplateSelect]{
	kind: tko.KindTemplate, view: templateView,
	list: server.Templates,
	one: func(sel tko.TemplateSelect, id string) tko.TemplateSelect {
		sel.IDs = append(slices.Clone(sel.IDs), tko.LiteralPattern(id))
		return sel
	},
	purge: server.PurgeTemplates,
	delete: func(ctx context.Context, s *session, id string) (tko.Deleted, error) {
		return s.DeleteTemplate(ctx, tko.TemplateID(id))
	},
}

func (a *app) templateCommand() *cobra.Command {
	return group("template", "Templates, from which deployments are created",
		a.templateRegister(),
		asOfFlag(templateKind.getCommand(a, &cobra.Command{
			Short: "Print a template's package", Example: "  tko template get nf/upf:v1 > upf.yaml\n  tko template get nf/upf:v1 --revision 1 -o table",
		})),
		templateKind.deleteCommand(a, &cobra.Command{Short: "Delete a template; deployments made from it stay", Example: "  tko template delete nf/upf:v1"}),
		asOfFlag(templateKind.listCommand(a, &cobra.Command{
			Short: "List templates", Example: "  tko template list --id 'nf/**' -m type='up*'\n  tko template list -o bare",
		}, &templateFilter{})),
		a.templateEdit(), a.templateImpact(),
		templateKind.purgeCommand(a, &cobra.Command{
			Short: "Delete all matching templates, or --all", Example: "  tko template purge --id 'test/**' --dry-run\n  tko template purge --id 'test/**'",
		}, &templateFilter{}))
}

// A templateFilter holds the flags that select templates.
type templateFilter struct{ sel tko.TemplateSelect }

func (t *templateFilter) flags(a *app, cmd *cobra.Command) {
	filterFlags(a, cmd, tko.KindTemplate, filter.Templates, &t.sel)
}

func (t *templateFilter) selection() (tko.TemplateSelect, error) { return t.sel, nil }

func (a *app) templateRegister() *cobra.Command {
	var pkg packageFlag
	var metadata map[string]string
	cmd := &cobra.Command{
		Use:   "register ID",
		Short: "Create or replace a template",
		Long: `Create or replace a template. Without --url and --stdin, the command refuses to
remove the package of an existing template, unless --empty is given.`,
		Example: `  tko template register nf/upf:v1 --url ./upf -m type=nf
  tko template register nf/smf:v2 --url 'https://git.example.com/nf.git#main!/smf'
  kustomize build . | tko template register nf/amf:v1 --stdin`,
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeArgs(completeTemplates),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			ctx, content, err := pkg.content(ctx, a)
			if err != nil {
				return err
			}
			t := tko.Template{ID: tko.TemplateID(args[0]), Metadata: metadata, Package: content}
			revision, err := call(ctx, s, func(ctx context.Context) (int64, error) { return s.RegisterTemplate(ctx, t) })
			if err != nil {
				return err
			}
			a.notice("registered template %q, revision %d", t.ID, revision)
			outdated, err := countOutdated(ctx, s, t.ID, revision)
			if err != nil {
				return err
			}
			if outdated > 0 {
				a.notice("%s an earlier revision of it: to list them, use tko deployment list --outdated --template-id %s",
					count(outdated, "deployment keeps", "deployments keep"), t.ID)
			}
			result := map[string]any{"id": args[0], "revision": revision}
			if outdated > 0 {
				result["outdated"] = int64(outdated)
			}
			return a.printResult(result)
		}),
	}
	metadataFlag(cmd.Flags(), &metadata)
	pkg.flags(cmd.Flags())
	pkg.emptyFlag(cmd.Flags())
	return cmd
}

// countOutdated counts the deployments that keep an earlier revision of a
// template than the one that was registered.
func countOutdated(ctx context.Context, s *session, id tko.TemplateID, revision int64) (int, error) {
	if revision <= 1 {
		return 0, nil
	}
	yes, n := true, 0
	sel := tko.DeploymentSelect{Templates: []string{string(id)}, Outdated: &yes} // an ID is a pattern of itself
	err := s.eachDeployment(ctx, sel, tko.ListOptions{}, func(tko.Deployment) { n++ })
	return n, err
}
