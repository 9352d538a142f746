package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// InventoryOptions select an inventory.
type InventoryOptions struct {
	File string // of sources, as for --gitops-sources
	Name string // of the source; the only inventory, or catalog, of the file if empty
	// Catalog selects a catalog in place of an inventory.
	Catalog bool
}

// An InventorySite is a site that records became.
type InventorySite struct {
	ID, Template string
	Metadata     map[string]string
	Package      krm.Package
	// Origins names the origin of each part: "template", "package", and the keys of
	// Metadata after "metadata.".
	Origins map[string]string
}

func (a *app) inventoryCommand() *cobra.Command {
	cmd := group("inventory", "Sites from inventories that others keep",
		a.inventoryTest(), a.inventoryPlan(false), a.inventoryStatus("inventory"), a.gitopsSync(), a.gitopsApprove())
	cmd.Long = `Sites from inventories that others keep: files, URLs, NetBox, O2 IMS and Kubernetes
clusters. An inventory is a source of the role gitops, in the file of
--gitops-sources. The commands test and plan read such a file here.`
	return cmd
}

func (a *app) catalogCommand() *cobra.Command {
	plan := a.inventoryPlan(true)
	plan.Short = "Show which templates a catalog would register now"
	plan.Long = `Read a catalog from here, and show which templates it would register. Nothing is changed.

With --exit-code the exit code is 7 if something would change, and 0 if not.`
	plan.Example = "  tko catalog plan --file sources.yaml --name nephio"
	list := a.inventoryStatus("catalog")
	list.Use, list.Short = "list", "Show catalogs and their status"
	list.Long = `Show catalogs: the number of their templates, problems, and for how long the templates
have been those of an earlier state. Show the details of one with tko gitops status
NAME.`
	list.Example = "  tko catalog list"
	cmd := group("catalog", "Templates from catalogs that others publish", list, plan, a.gitopsSync())
	cmd.Long = `Templates from catalogs that others publish: git repositories, OCI registries and Helm
repositories. A catalog is a source of the role gitops, in the file of
--gitops-sources. The command plan reads such a file here.`
	return cmd
}

func (o *InventoryOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.File, "file", "", "YAML `file` of sources, as for --gitops-sources of the server")
	cmd.Flags().StringVar(&o.Name, "name", "", "`name` of the source (default: the only inventory of the file)")
	_ = cmd.MarkFlagRequired("file")
}

var inventorySiteView = view[InventorySite]{
	id: func(s InventorySite) string { return s.ID },
	row: func(s InventorySite) map[string]any {
		row := map[string]any{"siteId": s.ID, "metadata": metadataValue(s.Metadata), "origins": metadataValue(s.Origins)}
		setText(row, "templateId", s.Template)
		if len(s.Package) > 0 {
			row["package"] = values(s.Package, plainResource)
		}
		return row
	},
	below: func(s InventorySite) []string {
		var lines []string
		for _, part := range slices.Sorted(maps.Keys(s.Origins)) {
			value := s.Template
			if key, ok := strings.CutPrefix(part, "metadata."); ok {
				value = s.Metadata[key]
			} else if part == "package" {
				value = count(len(s.Package), "resource", "resources")
			}
			lines = append(lines, fmt.Sprintf("%s: %q from %s", part, value, s.Origins[part]))
		}
		return lines
	},
	columns: []column[InventorySite]{
		{name: "SITE", text: func(s InventorySite) string { return s.ID }},
		{name: "TEMPLATE", text: func(s InventorySite) string { return s.Template }},
		{name: "RESOURCES", text: func(s InventorySite) string { return strconv.Itoa(len(s.Package)) }},
	},
}

func (a *app) inventoryTest() *cobra.Command {
	var o InventoryOptions
	var most int
	cmd := &cobra.Command{
		Use:   "test [SITE…]",
		Short: "Show which sites the records of an inventory become",
		Long: `Read an inventory from here, and show which sites its records become, with the origin
of each part. The server isn't called. With IDs, only these sites are shown.`,
		Example: "  tko inventory test --file sources.yaml\n  tko inventory test --file sources.yaml --name netbox lagos/1 -o yaml",
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			sites, notes, err := a.planner.ReadInventory(ctx, o)
			for _, note := range notes {
				a.notice("%s", note)
			}
			if err != nil {
				return err
			}
			total := len(sites)
			if len(args) > 0 {
				sites = slices.DeleteFunc(sites, func(site InventorySite) bool { return !slices.Contains(args, site.ID) })
				for _, id := range args {
					if !slices.ContainsFunc(sites, func(site InventorySite) bool { return site.ID == id }) {
						return tko.Errorf(tko.ErrNotFound, "site %q: no record of the inventory becomes it", id)
					}
				}
			} else if most > 0 && total > most {
				sites = sites[:most]
			}
			if err := listItems(ctx, s, inventorySiteView, sites); err != nil {
				return err
			}
			a.notice("%d of %s", len(sites), count(total, "site", "sites"))
			return nil
		}),
	}
	o.flags(cmd)
	cmd.Flags().IntVar(&most, "max-count", 20, "`number` of sites to show at most (0: all)")
	return cmd
}

// inventoryPlan returns the command that plans an inventory or a catalog.
func (a *app) inventoryPlan(catalog bool) *cobra.Command {
	var o InventoryOptions
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what an inventory would change now",
		Long: `Read an inventory from here, and show which sites it would create, update and delete.
Nothing is changed. Removals that exceed the budget, or of sites at which deployments
are, wait for an approval, and so do all other changes.

With --exit-code the exit code is 7 if something would change, and 0 if not.`,
		Example: "  tko inventory plan --file sources.yaml --name netbox\n  tko inventory plan --file sources.yaml --exit-code",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			o.Catalog = catalog
			plan, err := callLong(ctx, s, func(ctx context.Context) (SourcePlan, error) { return a.planner.PlanInventory(ctx, s, o) })
			if err != nil {
				return err
			}
			return a.printPlan(ctx, s, plan, exitCode)
		}),
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit code 7 if something would change")
	return cmd
}

// inventoryView is sourceView with the age of the last known state.
var inventoryView = view[tko.Source]{
	id: sourceView.id, row: sourceView.row,
	columns: []column[tko.Source]{
		{name: "NAME", text: func(s tko.Source) string { return s.Name }},
		{name: "READY", text: func(s tko.Source) string { return status(s.Status.Conditions, tko.ConditionReady) }},
		{name: "OWNS", text: func(s tko.Source) string { return strconv.Itoa(len(s.Status.Items)) }},
		{name: "STALE", age: func(s tko.Source) time.Time {
			if c := readiness(s); c.Status != tko.ConditionTrue {
				return c.LastTransition
			}
			return time.Time{}
		}},
		{name: "URL", wide: true, text: func(s tko.Source) string { return s.Status.URL }},
		{name: "MESSAGE", text: sourceMessage},
	},
}

// inventoryStatus returns the command that lists the sources of a kind.
func (a *app) inventoryStatus(kind string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the status of inventories",
		Long: `Show the status of inventories: the number of their sites, problems, and for how long
the sites have been those of an earlier state. Show the details of one with tko gitops
status NAME.`,
		Example: "  tko inventory status",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			sources, err := call(ctx, s, s.Sources)
			if err != nil {
				return err
			}
			sources = slices.DeleteFunc(sources, func(source tko.Source) bool { return source.Status.Kind != kind })
			return a.listSources(ctx, s, inventoryView, sources)
		}),
	}
}
