package main

import (
	"context"
	"net/url"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/cli"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
)

// inventorySettings reads the settings of an inventory.
func inventorySettings(o cli.InventoryOptions) (gitops.Settings, remote.Access, error) {
	all, err := gitops.ReadSettings(o.File)
	if err != nil {
		return gitops.Settings{}, remote.Access{}, err
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
		return gitops.Settings{}, remote.Access{}, tko.Errorf(tko.ErrInvalid, "%s has no source with %s", o.File, kind)
	case len(found) != 1:
		return gitops.Settings{}, remote.Access{}, tko.Errorf(tko.ErrInvalid, "%s has the %s %s: name one of them with --name", o.File, kinds, strings.Join(names, ", "))
	}
	// The file is the user's own, and so are the variables that it names.
	access := remote.Access{Databases: databases, User: leash.Operator()}
	var used []remote.Credentials
	switch s := found[0]; {
	case s.Inventory != nil:
		for _, from := range s.Inventory.From {
			used = append(used, from.Credentials)
		}
	case s.Catalog.OCI != nil:
		used = append(used, s.Catalog.OCI.Credentials)
	case s.Catalog.Helm != nil:
		used = append(used, s.Catalog.Helm.Credentials)
	}
	for _, c := range used {
		for _, reference := range []string{c.Token, c.Password} {
			if name, ok := strings.CutPrefix(reference, "env:"); ok {
				access.Secrets.Environment = append(access.Secrets.Environment, name)
			}
		}
	}
	return found[0], access, nil
}

// ReadInventory implements [cli.Planner].
func (planner) ReadInventory(ctx context.Context, o cli.InventoryOptions) ([]cli.InventorySite, []string, error) {
	settings, access, err := inventorySettings(o)
	if err != nil {
		return nil, nil, err
	}
	read, err := inventory.New(*settings.Inventory, access)
	if err != nil {
		return nil, nil, err
	}
	local := localNotes(settings)
	if _, err := read.Revision(ctx); err != nil {
		return nil, local, err
	}
	found, notes := read.Sites()
	notes = append(local, notes...)
	sites := make([]cli.InventorySite, len(found))
	for i, s := range found {
		sites[i] = cli.InventorySite{ID: s.ID, Template: s.Template, Metadata: s.Metadata, Package: s.Package, Origins: s.Origins}
	}
	return sites, notes, nil
}

// localNotes names the origins that a server refuses by default, although they can be read
// from here: those on the machine itself.
func localNotes(s gitops.Settings) (notes []string) {
	for _, from := range s.Inventory.From {
		u, err := url.Parse(from.Address())
		if err == nil && u.Host != "" && guard.IsLocal(u.Hostname()) {
			notes = append(notes, u.Host+" is on this machine: tko-server refuses such addresses, unless --remote-addresses allows them, such as --remote-addresses=127.0.0.0/8,::1")
		}
	}
	return notes
}

// PlanInventory implements [cli.Planner].
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
