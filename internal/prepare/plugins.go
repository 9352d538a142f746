package prepare

import (
	"context"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// pluginsTTL bounds how long a plugin that was registered after the newest change
// of a deployment may go unnoticed. It must be less than the time after which the
// data controller makes the work due because of the plugin.
const pluginsTTL = 100 * time.Millisecond

// A triggerMap maps kinds of resources to their prepare plugins, sorted by name.
type triggerMap map[krm.GVK][]tko.Plugin

// A pluginList caches the prepare plugins for all reconciliations. A reconciliation
// sees each plugin that was registered before the newest change of its deployment.
type pluginList struct {
	client Plugins
	seen   func(...tko.Plugin) // called with the plugins of each list

	lock     chan struct{} // holds one element while a goroutine reads or fetches
	triggers triggerMap
	position int64     // the list has all changes up to it
	fetched  time.Time // when fetching began
}

func newPluginList(client Plugins, seen func(...tko.Plugin)) *pluginList {
	return &pluginList{client: client, seen: seen, lock: make(chan struct{}, 1)}
}

// get returns the plugins, with all changes up to position. If the list is too old,
// it fetches the list, and concurrent callers wait.
func (l *pluginList) get(ctx context.Context, position int64) (triggerMap, error) {
	select { // no mutex: waiting for a slow data controller ends with the context
	case l.lock <- struct{}{}:
		defer func() { <-l.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.triggers != nil && position > 0 && position <= l.position && time.Since(l.fetched) < pluginsTTL {
		return l.triggers, nil
	}
	fetched := time.Now()
	about, err := l.client.About(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the newest position: %w", err)
	}
	typ := tko.PluginPrepare
	triggers := triggerMap{}
	for plugin, err := range l.client.Plugins(ctx, tko.PluginSelect{Type: &typ}, tko.ListOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("list the prepare plugins: %w", err)
		}
		l.seen(plugin)
		for _, gvk := range plugin.Triggers {
			triggers[gvk] = append(triggers[gvk], plugin)
		}
	}
	l.triggers, l.position, l.fetched = triggers, about.Position, fetched
	return triggers, nil
}
