package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/krm"
)

// RegisterPlugin creates or replaces a plugin and returns its revision. A
// plugin that doesn't meet the requirements of its executor is an ErrInvalid.
// If nothing would change, nothing is written.
func (s *Registry) RegisterPlugin(ctx context.Context, p tko.Plugin) (int64, error) {
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

// pluginRecord checks a plugin and returns its record.
func pluginRecord(p tko.Plugin) (Record, error) {
	if err := p.Check(); err != nil {
		return Record{}, err
	}
	if p.Executor == "" {
		p.Executor = tko.ExecutorCommand
	}
	encoded, err := encodePlugin(p)
	if err != nil {
		return Record{}, err
	}
	if len(encoded) > maxPluginBytes {
		return Record{}, tko.Errorf(tko.ErrInvalid, "plugin %q has %d bytes: use at most %d", p.ID(), len(encoded), maxPluginBytes)
	}
	return Record{Key: pluginKey(p.Type, p.Name), Plugin: encoded}, nil
}

// inspectPlugin adds to the record of a plugin, before it becomes a revision, the condition
// that it can't run on this server: its author learns that at once, and not only when
// a package needs the plugin.
func (s *core) inspectPlugin(r *Record, revision int64) {
	if r.Kind != tko.KindPlugin || s.options.InspectPlugin == nil {
		return
	}
	p, err := pluginOf(*r)
	if err != nil {
		return // it was encoded here
	}
	p.Stamp.Revision = revision
	if c, ok := s.options.InspectPlugin(p); ok {
		r.Conditions = mergeConditions(r.Conditions, []tko.Condition{c}, revision, time.Now())
	}
}

// A storedPlugin is the encoding of plugins in records. Its JSON names are
// stored and must not change.
type storedPlugin struct {
	Executor   string            `json:"executor"`
	Arguments  []string          `json:"arguments,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	Triggers   []storedGVK       `json:"triggers,omitempty"`
}

type storedGVK struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func encodePlugin(p tko.Plugin) ([]byte, error) {
	stored := storedPlugin{Executor: p.Executor, Arguments: p.Arguments, Properties: p.Properties}
	for _, t := range p.Triggers {
		stored.Triggers = append(stored.Triggers, storedGVK(t))
	}
	return json.Marshal(stored)
}

// pluginOf returns the plugin of a record.
func pluginOf(r Record) (tko.Plugin, error) {
	var stored storedPlugin
	if err := json.Unmarshal(r.Plugin, &stored); err != nil {
		return tko.Plugin{}, fmt.Errorf("read plugin %q: %w", r.ID, err)
	}
	p := tko.Plugin{Executor: stored.Executor, Arguments: stored.Arguments, Properties: stored.Properties, Stamp: r.stamp()}
	p.Stamp.Conditions = slices.Clone(p.Stamp.Conditions)
	p.Type, p.Name, _ = tko.SplitPluginID(r.ID)
	for _, t := range stored.Triggers {
		p.Triggers = append(p.Triggers, krm.GVK(t))
	}
	return p, nil
}
