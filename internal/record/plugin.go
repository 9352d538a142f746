package record

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A StoredPlugin is the encoding of plugins in records. Its JSON names are
// stored and must not change.
type StoredPlugin struct {
	Executor   string            `json:"executor"`
	Arguments  []string          `json:"arguments,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	Triggers   []StoredGVK       `json:"triggers,omitempty"`
}

// A StoredGVK is the encoding of a trigger of a plugin.
type StoredGVK struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// PluginOf returns the plugin of a record.
func PluginOf(r Record) (tko.Plugin, error) {
	var stored StoredPlugin
	if err := json.Unmarshal(r.Plugin, &stored); err != nil {
		return tko.Plugin{}, fmt.Errorf("read plugin %q: %w", r.ID, err)
	}
	p := tko.Plugin{Executor: stored.Executor, Arguments: stored.Arguments, Properties: stored.Properties, Stamp: r.Stamp()}
	p.Stamp.Conditions = slices.Clone(p.Stamp.Conditions)
	p.Type, p.Name, _ = tko.SplitPluginID(r.ID)
	for _, t := range stored.Triggers {
		p.Triggers = append(p.Triggers, krm.GVK(t))
	}
	return p, nil
}
