package helm

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"helm.sh/helm/v4/pkg/strvals"

	"github.com/tko-orchestrator/tko"
)

// Values are the values of a chart that parameters stand for, as in helm
// --set-json: the dots of a key lead to values within values, [0] to an entry of
// a list, and a backslash makes either plain. Whole numbers stay whole. Keys
// are taken in their order, so what is within a value wins over the value. The
// error is tko.ErrInvalid and names the parameter.
func Values(parameters map[string]any) (map[string]any, error) {
	values := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		text, err := json.Marshal(parameters[key])
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "spec.parameters.%s can't be written as JSON: %s", key, err)
		}
		if err := strvals.ParseJSON(key+"="+string(text), values); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "spec.parameters.%s is no way to a value: %s", key, err)
		}
	}
	whole, _ := wholeNumbers(values).(map[string]any)
	return whole, nil
}

// maxWhole is up to where a float64 tells all whole numbers apart.
const maxWhole = 1 << 53

// wholeNumbers makes whole numbers of what JSON's reader made floating: a
// template would show 1000000 as 1e+06.
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
