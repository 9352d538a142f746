package kinds

import (
	"fmt"
	"maps"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// detailed are the kinds whose manifests have the fields of [tko.Details].
var detailed = []string{"tko.nephio.org/v1alpha1 Template", "tko.nephio.org/v1alpha1 Site"}

// Read returns the schemas of the specs of all kinds, by "GROUP/VERSION KIND", and the
// descriptions of their fields.
func Read() (specs map[string]map[string]any, descriptions map[string]map[string]string, err error) {
	specs = map[string]map[string]any{}
	for _, data := range [][]byte{Schemas, Entities, Sources, Subscriptions, Views} {
		var part map[string]map[string]any
		if err := yaml12.Unmarshal(data, &part); err != nil {
			return nil, nil, fmt.Errorf("read the kinds: %w", err)
		}
		maps.Copy(specs, part)
	}
	if err := yaml12.Unmarshal(Descriptions, &descriptions); err != nil {
		return nil, nil, fmt.Errorf("read the descriptions of the kinds: %w", err)
	}
	for _, kind := range detailed {
		properties, _ := specs[kind]["properties"].(map[string]any)
		for _, f := range tko.DetailFields() {
			properties[f.Name] = map[string]any{"type": "string"}
			descriptions[kind][f.Name] = strings.ToUpper(f.Help[:1]) + f.Help[1:] + "."
		}
	}
	return specs, descriptions, nil
}
