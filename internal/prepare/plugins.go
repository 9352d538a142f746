package prepare

import (
	"context"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// pluginsTTL bounds how long a plugin that was registered later than the newest
// change of a deployment may go unnoticed. It must be less than the time after
// which the data controller stirs up the work because of the plugin.
const pluginsTTL = 100 * time.Millisecond

// A triggerMap holds the prepare plugins of each kind of resource, by name.
type triggerMap map[krm.GVK][]tko.Plugin

// A pluginList is a copy of the prepare plugins that all looks share. What it
// promises: a plugin that was registered before the newest change of a
// deployment is there when the deployment is looked at.
type pluginList struct {
	client Plugins

	turn     chan struct{} // holds one while somebody reads or fetches
	triggers triggerMap
	position int64     // the list has all changes up to it
	fetched  time.Time // when fetching began
}

func newPluginList(client Plugins) *pluginList {
	return &pluginList{client: client, turn: make(chan struct{}, 1)}
}

// get answers the plugins, with all changes up to a position. Who finds the
// list too old fetches it, and those who come meanwhile wait.
func (l *pluginList) get(ctx context.Context, position int64) (triggerMap, error) {
	select { // no mutex: who waits for a slow data controller may be stopped
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.triggers != nil && position > 0 && position <= l.position && time.Since(l.fetched) < pluginsTTL {
		return l.triggers, nil
	}
	fetched := time.Now()
	about, err := l.client.About(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the newest position: %w", err)
	}
	typ := tko.PluginPrepare
	triggers := triggerMap{}
	for plugin, err := range l.client.Plugins(ctx, tko.PluginSelect{Type: &typ}, tko.ListOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("list the prepare plugins: %w", err)
		}
		for _, gvk := range plugin.Triggers {
			triggers[gvk] = append(triggers[gvk], plugin)
		}
	}
	l.triggers, l.position, l.fetched = triggers, about.Position, fetched
	return triggers, nil
}
