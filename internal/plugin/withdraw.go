package plugin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	// maxWithdrawals is the number of attempts to end work in another system: one that is
	// gone for good must not keep its sites and deployments from their other work.
	maxWithdrawals = 6
	// rosterTime is how long a plugin is remembered after it was last registered.
	rosterTime = 24 * time.Hour
	maxRoster  = 1000 // plugins; of more, those that were seen first are forgotten
)

// Remember tells the Runner which plugins are registered, so that it can end the work of
// those that are changed or removed later: see Withdraw.
func (r *Runner) Remember(plugins ...tko.Plugin) { r.roster.add(plugins...) }

// Withdraw ends what plugins do for an entity in other systems, unless it is wanted. That
// includes plugins that are no longer registered, or were registered for another AWX, if
// the Runner has seen them before. After several failures it logs the error, and gives up.
func (r *Runner) Withdraw(ctx context.Context, w tko.Withdrawal) error {
	r.roster.add(w.Registered...)
	registered := map[string]bool{}
	for _, p := range w.Registered {
		registered[placeOf(p)] = true
	}
	last := w.Attempt+1 >= maxWithdrawals
	var failed []error
	for place, p := range r.roster.of(w.Type, w.Entity) {
		var wanted []string
		if registered[place] {
			if w.Removed {
				continue
			}
			for _, trigger := range w.Wanted[p.ID()] {
				wanted = append(wanted, trigger.String())
			}
		}
		err := r.awx.Cancel(ctx, p, w.Entity, wanted...)
		if err != nil {
			failed = append(failed, failure(p, krm.Identity{}, err, "its jobs for %q can't be canceled: %s", w.Entity, bounded(err.Error(), maxMessage)))
		}
		if !registered[place] && (err == nil || last && ctx.Err() == nil) {
			r.roster.ended(place, w.Entity)
		}
	}
	err := errors.Join(failed...)
	if err == nil || ctx.Err() != nil || !last {
		return err
	}
	r.options.Log.WarnContext(ctx, "can't cancel jobs that are no longer wanted, which may run on", "entity", w.Entity, "attempts", w.Attempt+1, "err", err)
	return nil
}

// A roster remembers the plugins that run as jobs of AWX. It is safe for concurrent use.
type roster struct {
	mu      sync.Mutex
	plugins map[string]seen // by place
}

type seen struct {
	plugin tko.Plugin
	at     time.Time
	ended  map[string]bool // entities without work of the plugin, since it was removed
}

// placeOf identifies the AWX of a plugin, and the labels of its jobs there.
func placeOf(p tko.Plugin) string {
	return p.ID() + "\x00" + p.Properties[tko.PropertyAWXHost] + "\x00" + p.Properties[tko.PropertyAWXLabel]
}

func (r *roster) add(plugins ...tko.Plugin) {
	plugins = slices.DeleteFunc(slices.Clone(plugins), func(p tko.Plugin) bool { return !p.UsesAWX() })
	if len(plugins) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plugins == nil {
		r.plugins = map[string]seen{}
	}
	now := time.Now()
	for _, p := range plugins {
		r.plugins[placeOf(p)] = seen{plugin: p, at: now}
	}
	maps.DeleteFunc(r.plugins, func(_ string, s seen) bool { return now.Sub(s.at) > rosterTime })
	for len(r.plugins) > maxRoster {
		oldest := ""
		for place, s := range r.plugins {
			if oldest == "" || s.at.Before(r.plugins[oldest].at) {
				oldest = place
			}
		}
		delete(r.plugins, oldest)
	}
}

// of returns the plugins of a type that may have work for an entity, by place.
func (r *roster) of(typ, entity string) map[string]tko.Plugin {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string]tko.Plugin{}
	for place, s := range r.plugins {
		if s.plugin.Type == typ && time.Since(s.at) <= rosterTime && !s.ended[entity] {
			found[place] = s.plugin
		}
	}
	return found
}

// ended records that a removed plugin has no work for an entity.
func (r *roster) ended(place, entity string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.plugins[place]
	if !ok {
		return
	}
	if s.ended == nil {
		s.ended = map[string]bool{}
	}
	s.ended[entity] = true
	r.plugins[place] = s
}
