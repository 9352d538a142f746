package krmfn

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// functionConfig returns the config of a function: a ConfigMap of the inputs
// that the plugin's properties map to fields of the triggering resource, or the
// map in that resource that is the whole config (it may be the whole resource);
// nil if there is neither.
func functionConfig(c Call) (krm.Resource, error) {
	resource := c.Package.Find(c.Target)
	if resource == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%s is not in the package", c.Target)
	}
	data := map[string]any{}
	for _, input := range slices.Sorted(maps.Keys(c.Properties)) {
		if strings.HasPrefix(input, "_") {
			continue
		}
		value, err := field(resource, input, c.Properties[input])
		if err != nil {
			return nil, err
		}
		if data[input], err = plain(value); err != nil {
			return nil, fmt.Errorf("input %q: %w", input, err)
		}
	}
	if path := c.Properties[tko.FunctionConfig]; path != "" {
		return wholeConfig(resource, path, data)
	}
	if len(data) == 0 {
		return nil, nil
	}
	return krm.Resource{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "function-config"}, "data": data,
	}, nil
}

func wholeConfig(resource krm.Resource, path string, data map[string]any) (krm.Resource, error) {
	if len(data) > 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the plugin has both inputs and %s: a function has one config, so use only one of them", tko.FunctionConfig)
	}
	var value any = map[string]any(resource)
	if path != tko.FunctionConfigSelf {
		var err error
		if value, err = field(resource, tko.FunctionConfig, path); err != nil {
			return nil, err
		}
	}
	m, ok := value.(map[string]any)
	config := krm.Resource(m).Clone()
	if !ok || config.Text("apiVersion") == "" || config.Text("kind") == "" {
		return nil, tko.Errorf(tko.ErrInvalid, "%s is not a function config: it must be a map with apiVersion and kind", path)
	}
	if _, ok := config["metadata"]; !ok {
		config["metadata"] = map[string]any{"name": "function-config"}
	}
	return config, nil
}

// field returns the value at the path that a property names.
func field(resource krm.Resource, property, path string) (any, error) {
	value, ok := resource.Get(strings.Split(path, ".")...)
	if !ok || value == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the resource lacks %s, which is the plugin's property %q: add it or correct the property", path, property)
	}
	return value, nil
}

// plain returns a value as text for a ConfigMap. Lists and maps are JSON, which
// is also YAML.
func plain(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		return strconv.FormatBool(value), nil
	case int64:
		return strconv.FormatInt(value, 10), nil
	default:
		data, err := json.Marshal(value)
		return string(data), err
	}
}

// compact is plain for messages: an error becomes text.
func compact(value any) string {
	s, err := plain(value)
	if err != nil {
		return err.Error()
	}
	return s
}
