package expression

import (
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Parameters evaluates the spec.parameters of a HelmChart resource with [Evaluate],
// with the resources of the chart's package. It doesn't interpret the dots of keys.
// The map belongs to the caller; its values may belong to the package. The error is
// tko.ErrInvalid and names every invalid parameter.
func Parameters(chart krm.Resource, p krm.Package) (map[string]any, error) {
	value, ok := chart.Get("spec", "parameters")
	if !ok || value == nil {
		return map[string]any{}, nil
	}
	parameters, ok := value.(map[string]any)
	if !ok {
		return nil, tko.Errorf(tko.ErrInvalid, "%s: spec.parameters must be a map", chart.Identity())
	}
	out := make(map[string]any, len(parameters))
	var wrong []string
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		result, err := Evaluate(parameters[key], p)
		if err != nil {
			wrong = append(wrong, "spec.parameters."+key+": "+err.Error())
			continue
		}
		out[key] = result
	}
	if len(wrong) > 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "%s: %s", chart.Identity(), strings.Join(wrong, "; "))
	}
	return out, nil
}
