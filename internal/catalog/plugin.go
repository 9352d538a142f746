package catalog

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/record"
)

// RegisterPlugin creates or replaces a plugin and returns its revision. A
// plugin that doesn't meet the requirements of its executor is an ErrInvalid.
// If nothing would change, nothing is written.
func (s *Registry) RegisterPlugin(ctx context.Context, p tko.Plugin) (int64, error) {
	ctx, _, err := s.rights.Enter(ctx, tko.KindPlugin, access.Register)
	if err != nil {
		return 0, err
	}
	rec, err := pluginRecord(p)
	if err != nil {
		return 0, err
	}
	outcome, err := s.register(ctx, nil, rec, 0)
	return outcome.Revision, err
}

// maxPluginBytes is the maximum size of a stored plugin.
const maxPluginBytes = 1 << 20

// pluginRecord checks a plugin and returns its record.
func pluginRecord(p tko.Plugin) (record.Record, error) {
	if err := p.Check(); err != nil {
		return record.Record{}, err
	}
	if p.Executor == "" {
		p.Executor = tko.ExecutorCommand
	}
	encoded, err := encodePlugin(p)
	if err != nil {
		return record.Record{}, err
	}
	if len(encoded) > maxPluginBytes {
		return record.Record{}, tko.Errorf(tko.ErrInvalid, "plugin %q has %d bytes: use at most %d", p.ID(), len(encoded), maxPluginBytes)
	}
	return record.Record{Key: record.PluginKey(p.Type, p.Name), Plugin: encoded}, nil
}

// inspectPlugin adds to the record of a plugin, before it becomes a revision, the condition
// that it can't run on this server: its author learns that at once, and not only when
// a package needs the plugin.
func (s *Registry) inspectPlugin(r *record.Record, revision int64) {
	if r.Kind != tko.KindPlugin || s.inspect == nil {
		return
	}
	p, err := record.PluginOf(*r)
	if err != nil {
		return // it was encoded here
	}
	p.Stamp.Revision = revision
	if c, ok := s.inspect(p); ok {
		r.Conditions = condition.Merge(r.Conditions, []tko.Condition{c}, revision, time.Now())
	}
}

func encodePlugin(p tko.Plugin) ([]byte, error) {
	stored := record.StoredPlugin{Executor: p.Executor, Arguments: p.Arguments, Properties: p.Properties}
	for _, t := range p.Triggers {
		stored.Triggers = append(stored.Triggers, record.StoredGVK(t))
	}
	return json.Marshal(stored)
}
