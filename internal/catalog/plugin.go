package catalog

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// RegisterPlugin creates or replaces a plugin and returns its revision. A
// plugin that doesn't meet the requirements of its executor is an ErrInvalid.
// If nothing would change, nothing is written.
func (s *Service) RegisterPlugin(ctx context.Context, p tko.Plugin) (int64, error) {
	ctx, _, err := s.enter(ctx, tko.KindPlugin, access.Register)
	if err != nil {
		return 0, err
	}
	record, err := pluginRecord(p)
	if err != nil {
		return 0, err
	}
	outcome, err := s.register(ctx, nil, record, 0)
	return outcome.Revision, err
}

// maxPluginBytes is the maximum size of a stored plugin.
const maxPluginBytes = 1 << 20

func pluginKey(typ, name string) Key { return Key{Kind: tko.KindPlugin, ID: tko.PluginID(typ, name)} }

// Plugin returns a plugin.
func (s *Service) Plugin(ctx context.Context, typ, name string) (tko.Plugin, error) {
	key := pluginKey(typ, name)
	ctx, c, err := s.enter(ctx, tko.KindPlugin, access.Read)
	if err != nil {
		return tko.Plugin{}, err
	}
	if err := CheckKey(key); err != nil {
		return tko.Plugin{}, err
	}
	var r Record
	if !tko.AsOfOf(ctx).IsZero() {
		r, err = s.past(ctx, c, key, Fields{})
	} else if r, err = s.get(ctx, Fields{}, key); err == nil {
		err = s.visible(c, r)
	}
	if err != nil {
		return tko.Plugin{}, err
	}
	return pluginOf(r)
}
