package helm

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
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

// MaxValues bounds the text that the values of a chart are read from, in bytes.
const MaxValues = 1 << 20

// valuesLimits bound values with the references of YAML expanded.
var valuesLimits = krm.Limits{Bytes: MaxValues, Depth: 100, Resources: 1, Values: 100_000}

// ReadValues reads values from YAML. The error is tko.ErrInvalid. It doesn't have the
// text, which may be secret.
func ReadValues(text string) (map[string]any, error) {
	p, err := krm.Decode(krm.YAML, []byte(text), valuesLimits)
	switch {
	case err != nil:
		return nil, tko.Errorf(tko.ErrInvalid, "it is not a map in YAML of at most %d KiB, %d values and %d levels", MaxValues>>10, valuesLimits.Values, valuesLimits.Depth)
	case len(p) == 0:
		return map[string]any{}, nil
	}
	return p[0], nil
}

// SetValue sets the value at a path, as in [Values]. A text in quotes is a string without
// them. Other texts are true, false, null or integers if they look like these, and
// strings otherwise: no character separates several values. The error is tko.ErrInvalid,
// and doesn't have the text.
func SetValue(values map[string]any, path, text string) error {
	encoded, err := json.Marshal(scalar(text))
	if err == nil {
		err = strvals.ParseJSON(path+"="+string(encoded), values)
	}
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "its targetPath %q is not a path to a value", path)
	}
	return nil
}

func scalar(text string) any {
	for _, quote := range []string{`"`, "'"} {
		if len(text) > 1 && strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote) {
			return text[1 : len(text)-1]
		}
	}
	switch text {
	case "true":
		return true
	case "false":
		return false
	case "null":
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text || n > maxWhole || n < -maxWhole {
		return text
	}
	return n
}

// MergeValues returns values overridden by others: maps are merged, all else is replaced.
func MergeValues(values, by map[string]any) map[string]any {
	whole, _ := wholeNumbers(loader.MergeMaps(values, by)).(map[string]any)
	return whole
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
