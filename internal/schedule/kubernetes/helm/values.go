package helm

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"helm.sh/helm/v4/pkg/strvals"

	"github.com/tko-orchestrator/tko"
)

// Values converts parameters to the values of a chart, as helm --set-json does: a dot
// in a key separates nested keys, [0] selects an entry of a list, and a backslash
// escapes both. Whole numbers stay integers. Keys are applied in sorted order, so
// that a nested value overrides a part of a value. The error is tko.ErrInvalid and
// names the parameter.
func Values(parameters map[string]any) (map[string]any, error) {
	values := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		text, err := json.Marshal(parameters[key])
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "spec.parameters.%s can't be written as JSON: %s", key, err)
		}
		if err := strvals.ParseJSON(key+"="+string(text), values); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "spec.parameters.%s is not a path to a value: %s", key, err)
		}
	}
	whole, _ := wholeNumbers(values).(map[string]any)
	return whole, nil
}

// maxWhole bounds the integers that a float64 represents exactly.
const maxWhole = 1 << 53

// wholeNumbers converts floats without a fraction to integers: a template would print
// 1000000.0 as 1e+06.
func wholeNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = wholeNumbers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = wholeNumbers(v[i])
		}
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= maxWhole {
			return int64(v)
		}
	}
	return value
}
