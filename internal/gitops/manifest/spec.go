package manifest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko/krm"
)

// specOf returns the spec of a manifest, which may have the given fields only.
func specOf(r krm.Resource, fields ...string) (map[string]any, error) {
	for key := range r {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec", "status"}, key) {
			return nil, fmt.Errorf("unknown field %q: use metadata and spec", key)
		}
	}
	if metadata, ok := r["metadata"].(map[string]any); ok {
		if _, ok := metadata["namespace"]; ok {
			return nil, errors.New("metadata.namespace: TKO has no namespaces, leave it out")
		}
	}
	value, ok := r["spec"]
	if !ok || value == nil {
		return map[string]any{}, nil
	}
	spec, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("spec is not a map: give it fields, such as templateId: NAME")
	}
	for key, value := range spec {
		if r.GVK().Kind == "Deployment" && byKustomize(key, value) {
			continue
		}
		if !slices.Contains(fields, key) {
			return nil, fmt.Errorf("unknown field spec.%s: use %q", key, fields)
		}
	}
	return spec, nil
}

// byKustomize reports whether a field of a Deployment's spec has only what kustomize's
// commonLabels and commonAnnotations add to all objects of that kind's name, of whatever
// group: selector.matchLabels, and labels and annotations of template.metadata. They mean
// nothing here.
func byKustomize(key string, value any) bool {
	only := func(value any, names ...string) (map[string]any, bool) {
		m, ok := value.(map[string]any)
		for name := range m {
			ok = ok && slices.Contains(names, name)
		}
		return m, ok && len(m) > 0
	}
	switch key {
	case "selector":
		_, ok := only(value, "matchLabels")
		return ok
	case "template":
		m, ok := only(value, "metadata")
		if ok {
			_, ok = only(m["metadata"], "labels", "annotations")
		}
		return ok
	}
	return false
}

func text(spec map[string]any, field string) (string, error) {
	switch value := spec[field].(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	default:
		return "", fmt.Errorf("spec.%s is not a string: quote it", field)
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

func triggers(spec map[string]any) ([]krm.GVK, error) {
	items, err := list(spec, "triggers")
	if err != nil {
		return nil, err
	}
	var all []krm.GVK
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("spec.triggers[%d] is not a map: give it group, version and kind", i)
		}
		var gvk krm.GVK
		for key, value := range m {
			text, ok := value.(string)
			switch {
			case !ok:
				return nil, fmt.Errorf("spec.triggers[%d].%s is not a string: quote it", i, key)
			case key == "group":
				gvk.Group = text
			case key == "version":
				gvk.Version = text
			case key == "kind":
				gvk.Kind = text
			default:
				return nil, fmt.Errorf("unknown field spec.triggers[%d].%s: use group, version and kind", i, key)
			}
		}
		all = append(all, gvk)
	}
	return all, nil
}

// packageOf returns spec.package.resources.
func packageOf(spec map[string]any) (krm.Package, error) {
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
