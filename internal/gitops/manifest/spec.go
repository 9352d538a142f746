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
