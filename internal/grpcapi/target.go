package grpcapi

import (
	"context"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

func (d *data) GetTargetState(ctx context.Context, m *tkopb.GetTargetState) (*tkopb.TargetState, error) {
	return wire.Then(wire.NewTargetState)(d.backend.TargetState(ctx, tko.SiteID(m.GetSiteId()), m.GetName()))
}

func (d *data) SaveTargetState(ctx context.Context, m *tkopb.SaveTargetState) (*tkopb.SaveTargetStateResponse, error) {
	version, err := d.backend.SaveTargetState(ctx, wire.TargetState(m.GetState()), wire.Claim(m.GetClaim()))
	return &tkopb.SaveTargetStateResponse{Version: version}, err
}

// Older meta-schedulers, without getTargetState and saveTargetState, save the
// states of targets as sources with the names "site:SITE:NAME". A newer data
// controller still supports that.

// formerTarget splits a name of the form "site:SITE:NAME". A site's ID may contain
// colons, the name of a target may not.
func formerTarget(source string) (site tko.SiteID, name string, ok bool) {
	rest, ok := strings.CutPrefix(source, "site:")
	colon := strings.LastIndexByte(rest, ':')
	if !ok || colon < 0 {
		return "", "", false
	}
	return tko.SiteID(rest[:colon]), rest[colon+1:], true
}

// formerTargetSource reads the state of a target as a source. It returns
// notFound if the name isn't that of a state.
func (d *data) formerTargetSource(ctx context.Context, source string, notFound error) (tko.Source, error) {
	site, name, ok := formerTarget(source)
	if !ok {
		return tko.Source{}, notFound
	}
	state, err := d.backend.TargetState(ctx, site, name)
	return tko.Source{Name: source, State: state.State, Version: state.Version, Updated: state.Updated}, err
}

// saveFormerTargetSource saves a source as the state of a target.
func (d *data) saveFormerTargetSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (version int64, err error) {
	site, name, ok := formerTarget(s.Name)
	if !ok {
		return d.backend.SaveSource(ctx, s, claim)
	}
	return d.backend.SaveTargetState(ctx, tko.TargetState{Site: site, Name: name, State: s.State}, claim)
}
