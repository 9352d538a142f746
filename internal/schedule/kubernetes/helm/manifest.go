package helm

import (
	"fmt"

	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

// objects returns the objects of a release without hooks, as Helm applies them. A
// namespaced object without a namespace is in the release's namespace.
func objects(r *release.Release) ([]map[string]any, error) {
	var all []map[string]any
	for _, text := range util.SplitManifests(r.Manifest) {
		var one map[string]any
		if err := yaml.Unmarshal([]byte(text), &one); err != nil {
			return nil, fmt.Errorf("read revision %d of release %q: %w", r.Version, r.Name, err)
		}
		if len(one) == 0 {
			continue
		}
		items, isList := one["items"].([]any)
		if _, named := one["metadata"]; !isList || named {
			items = []any{one}
		}
		for _, item := range items {
			if object, ok := item.(map[string]any); ok {
				all = append(all, marked(object, r))
			}
		}
	}
	return all, nil
}

// marked adds the labels and annotations that the library adds before it applies an
// object. Without them, applying the object again would remove them.
func marked(object map[string]any, r *release.Release) map[string]any {
	metadata := within(object, "metadata")
	within(metadata, "labels")["app.kubernetes.io/managed-by"] = "Helm"
	annotations := within(metadata, "annotations")
	annotations["meta.helm.sh/release-name"] = r.Name
	annotations["meta.helm.sh/release-namespace"] = r.Namespace
	whole, _ := wholeNumbers(object).(map[string]any)
	return whole
}

func within(m map[string]any, key string) map[string]any {
	inner, ok := m[key].(map[string]any)
	if !ok {
		inner = map[string]any{}
		m[key] = inner
	}
	return inner
}
