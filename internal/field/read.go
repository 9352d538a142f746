package field

import (
	"errors"
	"fmt"

	"github.com/tko-orchestrator/tko/krm"
)

// Text returns a field of a spec that is a text; "" if it isn't there.
func Text(spec map[string]any, field string) (string, error) {
	switch value := spec[field].(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	default:
		return "", fmt.Errorf("spec.%s is not a string: quote it", field)
	}
}

func truth(spec map[string]any, field string) (bool, error) {
	switch value := spec[field].(type) {
	case nil:
		return false, nil
	case bool:
		return value, nil
	default:
		return false, fmt.Errorf("spec.%s is not a boolean: use true or false", field)
	}
}

func list(spec map[string]any, field string) ([]any, error) {
	value, ok := spec[field]
	if !ok || value == nil {
		return nil, nil
	}
	items, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("spec.%s is not a list: begin each element with -", field)
	}
	return items, nil
}

func texts(spec map[string]any, field string) ([]string, error) {
	items, err := list(spec, field)
	if err != nil {
		return nil, err
	}
	var all []string
	for i, item := range items {
		value, ok := item.(string)
		if !ok {
			return nil, fmt.Errorf("spec.%s[%d] is not a string: quote it", field, i)
		}
		all = append(all, value)
	}
	return all, nil
}

func pairs(spec map[string]any, field string) (map[string]string, error) {
	value, ok := spec[field]
	if !ok || value == nil {
		return nil, nil
	}
	m, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec.%s is not a map: write its keys and values below it", field)
	}
	all := make(map[string]string, len(m))
	for key, value := range m {
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("spec.%s.%s is not a string: quote it", field, key)
		}
		all[key] = text
	}
	return all, nil
}

func triggers(spec map[string]any, field string) ([]krm.GVK, error) {
	items, err := list(spec, field)
	if err != nil {
		return nil, err
	}
	var all []krm.GVK
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("spec.%s[%d] is not a map: give it group, version and kind", field, i)
		}
		var gvk krm.GVK
		for key, value := range m {
			text, ok := value.(string)
			switch {
			case !ok:
				return nil, fmt.Errorf("spec.%s[%d].%s is not a string: quote it", field, i, key)
			case key == "group":
				gvk.Group = text
			case key == "version":
				gvk.Version = text
			case key == "kind":
				gvk.Kind = text
			default:
				return nil, fmt.Errorf("unknown field spec.%s[%d].%s: use group, version and kind", field, i, key)
			}
		}
		all = append(all, gvk)
	}
	return all, nil
}

// PackageIn returns spec.package.resources.
func PackageIn(spec map[string]any) (krm.Package, error) {
	value, ok := spec["package"]
	if !ok || value == nil {
		return nil, nil
	}
	m, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("spec.package is not a map: give it resources: […]")
	}
	for key := range m {
		if key != "resources" {
			return nil, fmt.Errorf("unknown field spec.package.%s: use resources", key)
		}
	}
	items, err := list(m, "resources")
	if err != nil {
		return nil, errors.New("spec.package.resources is not a list: begin each resource with - ")
	}
	var p krm.Package
	for i, item := range items {
		r, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("spec.package.resources[%d] is not a map: write a resource, with apiVersion and kind", i)
		}
		p = append(p, krm.Resource(r))
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("spec.package: %w", err)
	}
	return p, nil
}
