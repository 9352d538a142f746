package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/cli"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/sops"
	"github.com/tko-orchestrator/tko/internal/osm"
)

// A planner plans with the code of the GitOps controller.
type planner struct{}

// PlanSource implements [cli.Planner].
func (planner) PlanSource(ctx context.Context, client cli.SourceClient, tree fs.FS, o cli.PlanOptions) (cli.SourcePlan, error) {
	keys, err := sops.FileKeys(o.AgeKeys, o.PGPKeys)
	if err != nil {
		return cli.SourcePlan{}, err
	}
	options := gitops.PreviewOptions{Name: o.Name, Path: o.Path, Prune: o.Prune, Adopt: o.Adopt, Keys: keys}
	if o.Connection != "" {
		options.Connection = func() ([]byte, error) { return os.ReadFile(o.Connection) }
	}
	preview, err := gitops.PreviewFiles(ctx, client, tree, options)
	if err != nil {
		failed := cli.SourcePlan{KeysMissing: errors.Is(err, sops.ErrNoKey)}
		if preview != nil {
			failed.New = preview.New
		}
		return failed, err
	}
	return sourcePlan(preview), nil
}

// ReadManifests implements [cli.Planner].
func (planner) ReadManifests(tree fs.FS, sources bool) (manifests []cli.Manifest, err error) {
	var found []manifest.Manifest
	var declared []manifest.Source
	if sources {
		found, declared, err = manifest.ReadAll(tree, ".")
	} else {
		found, err = manifest.Read(tree, ".")
	}
	if err != nil {
		return nil, err
	}
	for _, m := range found {
		manifests = append(manifests, cli.Manifest{File: m.File, Name: m.Name, Put: m.Put})
	}
	for _, d := range declared {
		if d.IsView() {
			v, err := d.View()
			if err != nil {
				return nil, err
			}
			manifests = append(manifests, cli.Manifest{File: d.File, Name: d.Name, Put: tko.Put{Kind: cli.KindView}, View: &v})
			continue
		}
		if d.IsSubscription() {
			s := tko.Subscription{Name: d.Name, Spec: d.Spec}
			manifests = append(manifests, cli.Manifest{File: d.File, Name: d.Name, Put: tko.Put{Kind: tko.KindSubscription}, Subscription: &s})
			continue
		}
		manifests = append(manifests, cli.Manifest{File: d.File, Name: d.Name, Put: tko.Put{Kind: cli.KindSource}, Source: &d.SourceDefinition})
	}
	return manifests, nil
}

func sourcePlan(preview *gitops.Preview) cli.SourcePlan {
	p := cli.SourcePlan{New: preview.New, OSMSkipped: preview.Unasked, Messages: preview.Plan.Messages}
	for _, action := range preview.Plan.Actions {
		p.Changes = append(p.Changes, plannedChange(action))
	}
	for _, action := range preview.Plan.Held {
		held := plannedChange(action)
		held.Held, held.Details = true, nil
		p.Changes = append(p.Changes, held)
	}
	if preview.OSM == nil {
		return p
	}
	for _, change := range preview.OSM.Changes {
		p.Changes = append(p.Changes, cli.PlannedChange{
			Verb: change.Action, Kind: osm.KindOf(change.What), Name: change.Name, File: change.Source, Reason: change.Reason,
			Details: plan.Bounded(slices.Values(change.Paths)),
		})
	}
	if asks := preview.OSM.Approval; asks != nil {
		for _, name := range asks.Instances {
			p.Changes = append(p.Changes, cli.PlannedChange{Verb: osm.ActionDelete, Kind: osm.InstanceKind, Name: name, Held: true})
		}
		p.Messages = append(p.Messages, fmt.Sprintf("%d network services would be removed or recreated, which is more than the budget allows", len(asks.Instances)))
	}
	for _, problem := range preview.OSM.Refused {
		p.Refused = append(p.Refused, problemError(problem))
	}
	for _, problem := range preview.OSM.Warnings {
		p.Warnings = append(p.Warnings, problemError(problem).Error())
	}
	return p
}

func plannedChange(a plan.Action) cli.PlannedChange {
	return cli.PlannedChange{
		Verb: a.Verb, Kind: string(a.Kind), Name: a.Name, File: a.File, Reason: a.Reason, Descendants: a.With, Details: a.Changes,
	}
}

func problemError(p osm.Problem) error {
	return fmt.Errorf("%s: %s %q: %w", p.Source, osm.KindOf(p.What), p.Name, p.Err)
}
