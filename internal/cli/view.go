package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

func (a *app) viewCommand() *cobra.Command {
	cmd := group("view", "Saved views of the dashboards", a.viewSave(), a.viewRegister(), a.viewList(), a.viewGet(), a.viewDelete())
	cmd.Long = `Saved views of the dashboards: a name for a page with its filters, columns and moment. All who may
read anything see them, in Views and with Ctrl-K in the browser, and with :views in tko dashboard.
Changing them needs the right publish.`
	return cmd
}

func (a *app) viewSave() *cobra.Command {
	var description string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "save NAME ADDRESS",
		Short: "Save a view under a name, or change it",
		Long: `Save a view under a name, or change it. ADDRESS is the address of a page in the browser, or its
path and query. Only the path and the query are saved: the view opens at any server that has it.`,
		Example: "  tko view save failing-north '/deployments?state=failing&site-metadata=region%3Dnorth'\n" +
			"  tko view save tiers https://tko.example.com/matrix?rows=region --description 'Regions by tier'",
		Args:              arguments(2, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			v, err := tko.ViewAt(args[0], args[1])
			if err != nil {
				return err
			}
			v.Description = description
			return a.saveViews(ctx, s, []tko.View{v}, dryRun)
		}),
	}
	cmd.Flags().StringVar(&description, "description", "", "`text` for other readers")
	dryRunFlag(cmd.Flags(), &dryRun)
	return cmd
}

func (a *app) viewRegister() *cobra.Command {
	var files []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "register -f FILE|- …",
		Short: "Save views of manifests, or change them",
		Long: `Save views of manifests, or change them: all of them, or none if one is invalid. They are of the
kind View; tko explain View shows the fields.`,
		Example:           "  tko view register -f views.yaml --dry-run\n  tko view register -f views.yaml",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			all, err := readDeclared(ctx, a, files, tko.ViewOf)
			if err != nil {
				return err
			}
			return a.saveViews(ctx, s, all, dryRun)
		}),
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "`file` of manifests, or - for stdin (may be repeated)")
	dryRunFlag(cmd.Flags(), &dryRun)
	complete(cmd, "filename", fileNames)
	return cmd
}

func (a *app) saveViews(ctx context.Context, s *session, all []tko.View, dryRun bool) error {
	results, err := s.registerViews(ctx, all, dryRun)
	if err != nil {
		return err
	}
	for _, r := range results {
		a.noticeRegistered("view", r.Name, r.Created, r.Changed, dryRun)
	}
	return nil
}

// registerViews saves views, or only checks them. The results are in their order.
func (s *session) registerViews(ctx context.Context, all []tko.View, dryRun bool) ([]tko.RegisteredView, error) {
	return call(ctx, s, func(ctx context.Context) ([]tko.RegisteredView, error) { return s.RegisterViews(ctx, all, dryRun) })
}

var viewView = view[tko.View]{
	id: func(v tko.View) string { return v.Name },
	row: func(v tko.View) map[string]any {
		return map[string]any{
			"name": v.Name, "path": v.Path, "query": v.Query, "address": v.Address(), "description": v.Description, "savedBy": v.By.Who, "declaredBy": v.Parent,
			"created": v.Created.UTC().Format(time.RFC3339), "updated": v.Updated.UTC().Format(time.RFC3339), "problem": v.Problem,
		}
	},
	columns: []column[tko.View]{
		{name: "NAME", text: func(v tko.View) string { return v.Name }},
		{name: "SHOWS", text: tko.View.Address},
		{name: "BY", text: func(v tko.View) string { return v.By.Who }},
		{name: "UPDATED", wide: true, age: func(v tko.View) time.Time { return v.Updated }},
		{name: "DECLARED BY", wide: true, text: func(v tko.View) string { return v.Parent }},
		{name: "DESCRIPTION", wide: true, text: func(v tko.View) string { return v.Description }},
		{name: "PROBLEM", text: func(v tko.View) string { return v.Problem }},
	},
}

func (a *app) viewList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the saved views",
		Long:    `List the saved views. PROBLEM says why one no longer shows what it did, such as a filter that a later version doesn't have.`,
		Example: "  tko view list\n  tko view list -o json", Args: arguments(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			all, err := call(ctx, s, s.Views)
			if err != nil {
				return err
			}
			return listItems(ctx, s, viewView, all)
		}),
	}
}

func (a *app) viewGet() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show the manifest of a saved view",
		Long:    `Show the manifest of a saved view. YAML begins with who saved it and when, as a comment.`,
		Example: "  tko view get failing-north > view.yaml", Args: arguments(1, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			all, err := call(ctx, s, s.Views)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(all, func(v tko.View) bool { return v.Name == args[0] })
			if i < 0 {
				return tko.Errorf(tko.ErrNotFound, "view %q: not found: tko view list shows those that are saved", args[0])
			}
			manifest, err := all[i].Manifest()
			if err != nil {
				return err
			}
			return a.showManifest(manifest, registration{all[i].By, all[i].Parent, all[i].Created, all[i].Updated})
		}),
	}
}

func (a *app) viewDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a saved view",
		Example: "  tko view delete failing-north", Args: arguments(1, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			err := s.do(ctx, func(ctx context.Context) error { return s.DeleteView(ctx, args[0]) })
			if err == nil {
				a.notice("view %q is deleted", args[0])
			}
			return err
		}),
	}
}
