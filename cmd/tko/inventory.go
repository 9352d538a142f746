package main

import (
	"context"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/cli"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
)

// inventorySettings reads the settings of an inventory.
func inventorySettings(o cli.InventoryOptions) (gitops.Settings, inventory.Access, error) {
	all, err := gitops.ReadSettings(o.File)
	if err != nil {
		return gitops.Settings{}, inventory.Access{}, err
	}
	var found []gitops.Settings
	var names []string
	kind, kinds := "inventory", "inventories"
	if o.Catalog {
		kind, kinds = "catalog", "catalogs"
	}
	for _, s := range all {
		if o.Catalog && s.Catalog != nil || !o.Catalog && s.Inventory != nil {
			names = append(names, s.Name)
			if o.Name == "" || s.Name == o.Name {
				found = append(found, s)
			}
		}
	}
	switch {
	case len(names) == 0:
		return gitops.Settings{}, inventory.Access{}, tko.Errorf(tko.ErrInvalid, "%s has no source with %s", o.File, kind)
	case len(found) != 1:
		return gitops.Settings{}, inventory.Access{}, tko.Errorf(tko.ErrInvalid, "%s has the %s %s: name one of them with --name", o.File, kinds, strings.Join(names, ", "))
	}
	// The file is the user's own, and so are the variables that it names.
	access := inventory.Access{}
	if o.Catalog {
		return found[0], access, nil
	}
	for _, from := range found[0].Inventory.From {
		for _, reference := range []string{from.Token, from.Password} {
			if name, ok := strings.CutPrefix(reference, "env:"); ok {
				access.Secrets.Environment = append(access.Secrets.Environment, name)
			}
		}
	}
	return found[0], access, nil
}

// ReadInventory implements [cli.InventoryReader].
func (planner) ReadInventory(ctx context.Context, o cli.InventoryOptions) ([]cli.InventorySite, []string, error) {
	settings, access, err := inventorySettings(o)
	if err != nil {
		return nil, nil, err
	}
	read, err := inventory.New(*settings.Inventory, access)
	if err != nil {
		return nil, nil, err
	}
	if _, err := read.Revision(ctx); err != nil {
		return nil, nil, err
	}
	found, notes := read.Sites()
	sites := make([]cli.InventorySite, len(found))
	for i, s := range found {
		sites[i] = cli.InventorySite{ID: s.ID, Template: s.Template, Metadata: s.Metadata, Package: s.Package, Origins: s.Origins}
	}
	return sites, notes, nil
}

// PlanInventory implements [cli.InventoryReader].
func (planner) PlanInventory(ctx context.Context, client cli.SourceClient, o cli.InventoryOptions) (cli.SourcePlan, error) {
	settings, access, err := inventorySettings(o)
	if err != nil {
		return cli.SourcePlan{}, err
	}
	spec, err := settings.SpecWith("", access)
	if err != nil {
		return cli.SourcePlan{}, err
	}
	preview, err := gitops.PreviewInventory(ctx, client, spec)
	if err != nil {
		return cli.SourcePlan{}, err
	}
	return sourcePlan(preview), nil
}
