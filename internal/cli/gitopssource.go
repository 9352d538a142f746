package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

func (a *app) sourceCommand() *cobra.Command {
	cmd := group("source", "GitOps sources in the store", a.sourceRegister(), a.sourceList(), a.sourceGet(), a.sourceDelete())
	cmd.Long = `GitOps sources in the store: repositories, inventories and catalogs that all servers of
the role gitops read, in addition to those in their own settings. Each change needs the
right define, and is applied at once.`
	return cmd
}

func (a *app) sourceRegister() *cobra.Command {
	var files []string
	var at string
	var dryRun, takeOver bool
	cmd := &cobra.Command{
		Use:   "register -f FILE|- …",
		Short: "Register sources, or change them",
		Long: `Register sources, or change them: all of the manifests, or none if one of them is invalid.
They are of the kinds GitOpsSource, Inventory and Catalog; their fields are those of the
file of --gitops-sources, as tko explain GitOpsSource shows them. Files with credentials
and keys are named, and are those in the server's folder --gitops-secrets.

A source of the same name that is in the settings of the role gitops, or of Flux, is
refused. If it was removed there, --take-over takes over its entities.`,
		Example:           "  tko gitops source register -f sources.yaml --dry-run\n  tko gitops source register -u https://git.example.com/sources.git!/fleet.yaml",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			if at != "" {
				files = append(files, at)
			}
			definitions, err := readDeclared(ctx, a, files, tko.SourceDefinitionOf)
			if err != nil {
				return err
			}
			for i := range definitions {
				definitions[i].TakeOver = takeOver
			}
			results, err := s.registerSources(ctx, definitions, dryRun)
			if err != nil {
				return err
			}
			for _, r := range results {
				a.noticeRegistered("source", r.Name, r.Created, r.Changed, dryRun)
			}
			return nil
		}),
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "`file` of manifests, or - for stdin (may be repeated)")
	cmd.Flags().StringVarP(&at, "url", "u", "", "`location` of manifests: a file, a folder, a URL, a git repository, or LOCATION!/PATH within one")
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "take over the entities of a source of the same name that was removed from the settings of the role gitops")
	dryRunFlag(cmd.Flags(), &dryRun)
	complete(cmd, "filename", fileNames)
	return cmd
}

// registerSources registers definitions, or only checks them. The results are in their order.
func (s *session) registerSources(ctx context.Context, definitions []tko.SourceDefinition, dryRun bool) ([]tko.RegisteredSource, error) {
	return call(ctx, s, func(ctx context.Context) ([]tko.RegisteredSource, error) {
		return s.RegisterSources(ctx, definitions, dryRun)
	})
}

// A definedSource is a definition with the status of its source.
type definedSource struct {
	tko.SourceDefinition
	status tko.Source // Version 0: there is none
}

// message states why a definition isn't applied.
func (d definedSource) message() string {
	switch {
	case d.status.Version == 0:
		return "no server with the role gitops has applied it yet"
	case !d.status.Status.Registered && !d.TakeOver:
		return "not applied: the role gitops has another source of this name in its settings, or from Flux"
	}
	text := sourceMessage(d.status)
	if d.Undeclared {
		text = strings.TrimSuffix(fmt.Sprintf("no longer declared by source %q: %s", d.Parent, text), ": ")
	}
	if d.Ending != nil {
		text = strings.TrimSuffix("being deleted; "+text, "; ")
	}
	return text
}

var definedView = view[definedSource]{
	id: func(d definedSource) string { return d.Name },
	row: func(d definedSource) map[string]any {
		return map[string]any{
			"name": d.Name, "kind": d.Kind, "registeredBy": d.By.Who, "declaredBy": d.Parent, "created": d.Created.UTC().Format(time.RFC3339), "updated": d.Updated.UTC().Format(time.RFC3339),
			"ready": status(d.status.Status.Conditions, tko.ConditionReady), "entities": len(d.status.Status.Items), "deleting": d.Ending != nil, "message": d.message(),
		}
	},
	columns: []column[definedSource]{
		{name: "NAME", text: func(d definedSource) string { return d.Name }},
		{name: "KIND", text: func(d definedSource) string { return d.Kind }},
		{name: "READY", text: func(d definedSource) string { return status(d.status.Status.Conditions, tko.ConditionReady) }},
		{name: "OWNS", text: func(d definedSource) string { return strconv.Itoa(len(d.status.Status.Items)) }},
		{name: "UPDATED", age: func(d definedSource) time.Time { return d.Updated }},
		{name: "DECLARED BY", wide: true, text: func(d definedSource) string { return d.Parent }},
		{name: "BY", wide: true, text: func(d definedSource) string { return d.By.Who }},
		{name: "MESSAGE", text: definedSource.message},
	},
}

func (a *app) sourceList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the sources in the store",
		Long: `List the sources in the store, and whether they are ready. tko gitops status shows all
sources of the role gitops, also those in its settings.`,
		Example: "  tko gitops source list", Args: arguments(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			definitions, err := s.definitions(ctx)
			if err != nil {
				return err
			}
			sources, err := call(ctx, s, s.Sources)
			if err != nil {
				return err
			}
			a.noticeSilence(sources)
			var all []definedSource
			for _, d := range definitions {
				of := definedSource{SourceDefinition: d}
				if i := slices.IndexFunc(sources, func(source tko.Source) bool { return source.Name == d.Name }); i >= 0 {
					of.status = sources[i]
				}
				all = append(all, of)
			}
			return listItems(ctx, s, definedView, all)
		}),
	}
}

// definitions returns the sources in the store.
func (s *session) definitions(ctx context.Context) ([]tko.SourceDefinition, error) {
	all, err := call(ctx, s, func(ctx context.Context) (tko.SourceDefinitions, error) { return s.SourceDefinitions(ctx, 0) })
	return all.All, err
}

func (a *app) sourceGet() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show the manifest of a source in the store",
		Example: "  tko gitops source get fleet > fleet.yaml", Args: arguments(1, 1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			definitions, err := s.definitions(ctx)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(definitions, func(d tko.SourceDefinition) bool { return d.Name == args[0] })
			if i < 0 {
				return tko.Errorf(tko.ErrNotFound, "source %q: not registered: tko gitops source list shows those that are", args[0])
			}
			manifest, err := definitions[i].Manifest()
			if err != nil {
				return err
			}
			d := definitions[i]
			return a.showManifest(manifest, registration{d.By, d.Parent, d.Created, d.Updated})
		}),
	}
}

func (a *app) sourceDelete() *cobra.Command {
	var keep bool
	var bulk bulkFlag
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a source in the store",
		Long: `Delete a source in the store. A source that owns entities is refused, unless --keep keeps
them, or --confirm COUNT confirms their number: then they are deleted with it. If their
descendants are more, or deployments are at removed sites, the removal waits for tko
gitops approve. The templates of catalogs are always kept.`,
		Example: "  tko gitops source delete fleet --keep\n  tko gitops source delete test --confirm 12", Args: arguments(1, 1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		if err := bulk.checkCount(cmd, "entities"); err != nil {
			return err
		}
		if keep && bulk.confirm > 0 {
			return usageError(cmd, tko.Errorf(errUsage, "--keep and --confirm can't be used together: use one"))
		}
		if !keep {
			var err error
			if ctx, err = bulk.settle(ctx, s, "delete the source and", "entity", "entities", func(ctx context.Context) (int, error) {
				source, err := s.Source(ctx, args[0])
				if errors.Is(err, tko.ErrNotFound) {
					return 0, nil
				}
				return len(source.Status.Items), err
			}); err != nil {
				return err
			}
		}
		err := s.do(ctx, func(ctx context.Context) error { return s.DeleteSource(ctx, args[0], keep) })
		if err == nil {
			a.notice("source %q is deleted: tko gitops source list shows it until the role gitops has done it", args[0])
		}
		return err
	})
	bulk.confirmFlag(cmd.Flags())
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the entities of the source")
	return cmd
}

// silence is the time after which work that no server took up is noticed.
const silence = time.Minute

// noticeSilence tells users if no server takes up the work of sources: their statuses are
// old.
func (a *app) noticeSilence(sources []tko.Source) {
	var last time.Time
	for _, source := range sources {
		if source.Due.IsZero() {
			return // it was taken up, or isn't due
		}
		if source.Due.After(last) {
			last = source.Due
		}
	}
	if age := a.now().Sub(last); len(sources) > 0 && age > silence {
		a.notice("no server with the role gitops has taken up work since %s (%s ago): start one (tko-server --roles=gitops), or read its log", last.UTC().Format(time.RFC3339), age.Round(time.Second))
	}
}
