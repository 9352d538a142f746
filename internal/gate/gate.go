// Package gate is what all writes pass: it counts what each cause changes (a template, a source, an
// author), and refuses what is more than the limits allow without consent. See docs/gate.md.
package gate

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// Settings are the limits of what one cause, or one request, may change without consent.
type Settings struct {
	Reach ReachLimits
	// A request that removes more than ConfirmAbove entities, or more than ConfirmPercent of
	// a kind and more than tko.ReachFew, must confirm the count (see
	// [tko.WithConfirmation]). tko.DefaultConfirmAbove and
	// tko.DefaultConfirmPercent if zero; no limits if negative.
	ConfirmAbove   int
	ConfirmPercent int
	// TopologyDepth is the maximum number of levels of nested deployments;
	// tko.DefaultTopologyDepth if zero, and unlimited if negative.
	TopologyDepth int
}

// A Gate counts what each cause changes, and commits only what is within the limits. Its
// methods may be called concurrently.
type Gate struct {
	rights   *rights.Authorizer
	store    record.Store
	reader   record.Lookup
	settings Settings

	shares  *lru.Cache[string, cachedShares]   // by cause
	lineage *lru.Cache[string, cachedForebear] // by deployment
}

// New returns a gate to a store.
func New(store record.Store, settings Settings) *Gate {
	settings.Reach.setDefaults()
	setDefault(&settings.ConfirmAbove, tko.DefaultConfirmAbove)
	setDefault(&settings.ConfirmPercent, tko.DefaultConfirmPercent)
	setDefault(&settings.TopologyDepth, tko.DefaultTopologyDepth)
	return &Gate{
		store: store, reader: record.Lookup{Store: store}, settings: settings,
		shares: lru.New[string, cachedShares](maxForebears), lineage: lru.New[string, cachedForebear](maxForebears),
	}
}

// Limits returns the limits of what one cause may change, unless rules say otherwise.
func (s *Gate) Limits() ReachLimits { return s.settings.Reach }

// Ask sets who knows owners and the rules of access. It is called once, before any other method.
func (s *Gate) Ask(a *rights.Authorizer) { s.rights = a }

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
