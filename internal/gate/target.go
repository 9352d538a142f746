package gate

import (
	"context"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// A site whose target changes is touched as a whole: what runs there is applied at the new
// place, and perhaps removed at the old one.

// retargeted returns the sites that writes give another target and that have running
// deployments.
func (s *Gate) retargeted(ctx context.Context, writes []record.Write) ([]string, error) {
	var sites []string
	for i := range writes {
		w := &writes[i]
		if w.Op != tko.OpWritten || w.Record.Kind != tko.KindSite || w.Expect == record.Absent {
			continue
		}
		changes, err := s.ChangesTarget(ctx, w.Record)
		if err != nil {
			return nil, err
		}
		if changes {
			sites = append(sites, w.Record.ID)
		}
	}
	return sites, nil
}

// ChangesTarget reports whether a new revision of an existing site has another target than
// the current one, and deployments run there.
func (s *Gate) ChangesTarget(ctx context.Context, after record.Record) (bool, error) {
	before, err := s.reader.One(ctx, record.Fields{Package: true}, after.Key)
	if err != nil || before.Revision == 0 || before.Digest == after.Digest {
		return false, err
	}
	isTarget, err := s.targetKinds(ctx)
	if err != nil {
		return false, err
	}
	was, err := targetsOf(before, isTarget)
	if err != nil {
		return false, err
	}
	is, err := targetsOf(after, isTarget)
	if err != nil || was == is {
		return false, err
	}
	pattern, err := tko.ParsePattern(tko.LiteralPattern(after.ID))
	if err != nil {
		return false, err
	}
	for r, err := range s.store.List(ctx, record.Query{Kind: tko.KindDeployment, Sites: []tko.Pattern{pattern}, Scope: access.ScopeAll, Limit: -1}) {
		if err != nil || record.Placed(r) != "" {
			return err == nil, err
		}
	}
	return false, nil
}

// targetsOf returns the digest of the resources of a site that name its targets.
func targetsOf(site record.Record, isTarget func(krm.GVK) bool) ([32]byte, error) {
	pkg, err := record.PackageOf(site)
	if err != nil {
		return [32]byte{}, err
	}
	digest, _, err := krm.DigestOf(slices.DeleteFunc(slices.Clone(pkg), func(r krm.Resource) bool { return !isTarget(r.GVK()) }))
	return digest, err
}

// targetKinds returns whether resources of a kind name targets: those that are built in, and
// those of schedule plugins.
func (s *Gate) targetKinds(ctx context.Context) (func(krm.GVK) bool, error) {
	kinds := map[krm.GVK]bool{}
	for _, k := range place.All {
		kinds[k.GVK] = true
	}
	for r, err := range s.store.List(ctx, record.Query{Kind: tko.KindPlugin, Fields: record.Fields{Package: true}, Scope: access.ScopeAll, Limit: -1}) {
		if err != nil {
			return nil, err
		}
		if typ, _, _ := tko.SplitPluginID(r.ID); typ != tko.PluginSchedule {
			continue
		}
		p, err := record.PluginOf(r)
		if err != nil {
			return nil, err
		}
		for _, gvk := range p.Triggers {
			kinds[gvk] = true
		}
	}
	return func(k krm.GVK) bool { return kinds[k] }, nil
}
