package oci

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// maxCompared bounds the files whose contents are compared.
const maxCompared = tko.MaxSiteChanges

// Compare returns what Schedule would change in the artifact. It changes nothing there. There are
// no orphans: all of the artifact is TKO's.
func (t *Target) Compare(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Differences, error) {
	d, err := t.open(ctx, trigger, site, deployments, held)
	if err != nil {
		return report.Differences{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.options.Timeout, fmt.Errorf("the registry took longer than %s", t.options.Timeout))
	defer cancel()
	there, err := d.observed(ctx)
	if err != nil {
		return report.Differences{}, d.named(ctx, err)
	}
	return d.differences(there), nil
}

// observed plans the artifact, and returns the files that are there.
func (d *delivery) observed(ctx context.Context) (files, error) {
	was, err := d.registry.read(ctx, d.spec.Reference.Reference)
	if err != nil {
		return nil, err
	}
	if err := d.plan(ctx, was); err != nil || was.digest == "" {
		return nil, err
	}
	return d.registry.files(ctx, was)
}

// differences returns the differences between the files that are there and those that are to be.
func (d *delivery) differences(there files) (all report.Differences) {
	owners := map[string]tko.DeploymentID{} // by folder
	for id := range d.listed.Deployments {
		owners[layout.DeploymentFolder(id)] = id
	}
	for _, id := range d.removed {
		owners[layout.DeploymentFolder(id)] = id
		all.Changes = append(all.Changes, tko.SiteChange{Verb: tko.SiteRemove, Object: layout.DeploymentFolder(id), Deployment: id})
	}
	both, compared := maps.Clone(d.files), 0
	maps.Copy(both, there)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		folder, _, _ := strings.Cut(name, "/")
		id := owners[folder] // "" for what TKO didn't publish, which the artifact doesn't keep
		before, was := there[name]
		after, is := d.files[name]
		change := tko.SiteChange{Object: name, Deployment: id}
		switch {
		case slices.Contains(d.removed, id) || string(before) == string(after) && was == is:
			continue
		case !was:
			change.Verb = tko.SiteCreate
		case !is:
			change.Verb = tko.SiteRemove
		default:
			change.Verb = tko.SiteUpdate
			compared++
			if compared <= maxCompared {
				change.Details = layout.Differences(before, after)
			}
		}
		all.Changes = append(all.Changes, change)
	}
	return all
}
