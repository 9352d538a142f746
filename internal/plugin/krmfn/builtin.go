package krmfn

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/annotations"
	"sigs.k8s.io/kustomize/api/filters/labels"
	"sigs.k8s.io/kustomize/api/filters/namespace"
	"sigs.k8s.io/kustomize/api/filters/replacement"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/kio"
	"sigs.k8s.io/kustomize/kyaml/resid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/yaml12"
	"github.com/tko-orchestrator/tko/krm"
)

// programmed are the functions whose config is a program, which can loop and
// use much memory. They run in a process of their own.
var programmed = map[string]bool{"apply-replacements": true, "starlark": true}

// builtins are the built-in functions. They may modify the list.
var builtins = map[string]func(context.Context, list) (list, error){
	"apply-replacements": applyReplacements,
	"apply-setters":      applySetters,
	"set-annotations":    setAnnotations,
	"set-labels":         setLabels,
	"set-namespace":      setNamespace,
	"starlark":           starlarkRun,
}

func runBuiltin(ctx context.Context, name string, l list) (out list, err error) {
	defer func() {
		if p := recover(); p != nil { // a panic in a library is a failure of the function
			err = fmt.Errorf("it failed on this package: %v", p)
		}
	}()
	function, ok := builtins[name]
	if !ok {
		return list{}, fmt.Errorf("built-in function %q: not found", name)
	}
	return function(ctx, l)
}

// inputs returns the inputs of a function: the data of a ConfigMap, or the map
// under key in a config of the function's own kind.
func inputs(config krm.Resource, kind, key string) (map[string]string, error) {
	path := []string{"data"}
	if config.Text("kind") == kind && key != "" {
		path = []string{key}
	}
	value, ok := config.Get(path...)
	m, isMap := value.(map[string]any)
	if !ok || !isMap || len(m) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "it has no inputs: map some with the plugin's properties, or give it a config of kind %s", kind)
	}
	values := make(map[string]string, len(m))
	for k, v := range m {
		var err error
		if values[k], err = plain(v); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// workload returns the resources of a package that are for clusters: not TKO's
// own resources, and only Kubernetes objects.
func workload(pkg krm.Package) krm.Package {
	var found krm.Package
	for _, r := range pkg {
		if _, ok := r["metadata"].(map[string]any); ok && !r.GVK().Orchestration() {
			found = append(found, r)
		}
	}
	return found
}

// filter runs a kustomize filter on resources and replaces the content of each
// by the filter's output.
func filter(resources krm.Package, f kio.Filter) error {
	nodes, err := toNodes(resources)
	if err != nil {
		return err
	}
	if nodes, err = f.Filter(nodes); err != nil {
		return err
	}
	if len(nodes) != len(resources) {
		return fmt.Errorf("%d resources became %d", len(resources), len(nodes))
	}
	for i, n := range nodes {
		changed, err := fromNode(n)
		if err != nil {
			return fmt.Errorf("%s: %w", resources[i].Identity(), err)
		}
		clear(resources[i])
		maps.Copy(resources[i], changed)
	}
	return nil
}

var namespaceFields = types.FsSlice{
	{Gvk: resid.Gvk{Kind: "Namespace"}, Path: "metadata/name", CreateIfNotPresent: true},
	{Gvk: resid.Gvk{Group: "apiregistration.k8s.io", Kind: "APIService"}, Path: "spec/service/namespace", CreateIfNotPresent: true},
	{Gvk: resid.Gvk{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, Path: "spec/conversion/webhook/clientConfig/service/namespace"},
}

// setNamespace puts all namespaced resources into a namespace.
func setNamespace(_ context.Context, l list) (list, error) {
	name := l.config.Text("data", "namespace")
	if l.config.Text("kind") == "SetNamespace" {
		name = l.config.Text("namespace")
	}
	if name == "" {
		return list{}, tko.Errorf(tko.ErrInvalid, "its input namespace is missing: give it as the property namespace=PATH")
	}
	cluster := map[string]bool{} // cluster-scoped kinds that the package itself defines
	for _, r := range l.items {
		if r.GVK().Kind == "CustomResourceDefinition" && r.Text("spec", "scope") == "Cluster" {
			cluster[r.Text("spec", "group")+"/"+r.Text("spec", "names", "kind")] = true
		}
	}
	var namespaced krm.Package
	for _, r := range workload(l.items) {
		if gvk := r.GVK(); !cluster[gvk.Group+"/"+gvk.Kind] {
			namespaced = append(namespaced, r)
		}
	}
	return l, filter(namespaced, namespace.Filter{Namespace: name, FsSlice: namespaceFields})
}

// labelFields are the fields of resources that hold labels. They include
// selectors and templates, so that selectors continue to match.
var labelFields = fields("metadata/labels", "!v1//Service spec/selector", "!v1//ReplicationController spec/selector",
	"!v1//ReplicationController spec/template/metadata/labels",
	"!/apps/Deployment spec/selector/matchLabels", "!/apps/Deployment spec/template/metadata/labels",
	"!/apps/ReplicaSet spec/selector/matchLabels", "!/apps/ReplicaSet spec/template/metadata/labels",
	"!/apps/DaemonSet spec/selector/matchLabels", "!/apps/DaemonSet spec/template/metadata/labels",
	"!/apps/StatefulSet spec/selector/matchLabels", "!/apps/StatefulSet spec/template/metadata/labels",
	"/apps/StatefulSet spec/volumeClaimTemplates[]/metadata/labels",
	"/batch/Job spec/selector/matchLabels", "!/batch/Job spec/template/metadata/labels",
	"/batch/CronJob spec/jobTemplate/spec/selector/matchLabels", "!/batch/CronJob spec/jobTemplate/metadata/labels",
	"!/batch/CronJob spec/jobTemplate/spec/template/metadata/labels",
	"/policy/PodDisruptionBudget spec/selector/matchLabels", "/networking.k8s.io/NetworkPolicy spec/podSelector/matchLabels",
	"/networking.k8s.io/NetworkPolicy spec/ingress/from/podSelector/matchLabels",
	"/networking.k8s.io/NetworkPolicy spec/egress/to/podSelector/matchLabels")

var annotationFields = fields("metadata/annotations", "!v1//ReplicationController spec/template/metadata/annotations",
	"!/apps/Deployment spec/template/metadata/annotations", "!/apps/ReplicaSet spec/template/metadata/annotations",
	"!/apps/DaemonSet spec/template/metadata/annotations", "!/apps/StatefulSet spec/template/metadata/annotations",
	"!/batch/Job spec/template/metadata/annotations", "!/batch/CronJob spec/jobTemplate/metadata/annotations",
	"!/batch/CronJob spec/jobTemplate/spec/template/metadata/annotations")

// fields parses lines "VERSION/GROUP/KIND PATH", in which all but the path may
// be empty. A field is created where it is missing if the line begins with "!"
// or has only a path (every kind).
func fields(lines ...string) types.FsSlice {
	var all types.FsSlice
	for _, line := range lines {
		kind, path, ok := strings.Cut(line, " ")
		if !ok {
			all = append(all, types.FieldSpec{Path: line, CreateIfNotPresent: true})
			continue
		}
		kind, create := strings.CutPrefix(kind, "!")
		version, kind, _ := strings.Cut(kind, "/")
		group, kind, _ := strings.Cut(kind, "/")
		all = append(all, types.FieldSpec{Gvk: resid.Gvk{Group: group, Version: version, Kind: kind}, Path: path, CreateIfNotPresent: create})
	}
	return all
}

// setLabels sets labels on resources, their selectors and their templates.
func setLabels(_ context.Context, l list) (list, error) {
	values, err := inputs(l.config, "SetLabels", "labels")
	if err != nil {
		return list{}, err
	}
	return l, filter(workload(l.items), labels.Filter{Labels: values, FsSlice: labelFields})
}

// setAnnotations sets annotations on resources and their templates.
func setAnnotations(_ context.Context, l list) (list, error) {
	values, err := inputs(l.config, "SetAnnotations", "annotations")
	if err != nil {
		return list{}, err
	}
	return l, filter(workload(l.items), annotations.Filter{Annotations: values, FsSlice: annotationFields})
}

// applyReplacements copies values from fields to fields, as kustomize does.
func applyReplacements(_ context.Context, l list) (list, error) {
	text := l.config.Text("data", "replacements")
	if l.config.Text("kind") == "ApplyReplacements" {
		value, _ := l.config.Get("replacements")
		var err error
		if text, err = plain(value); err != nil {
			return list{}, err
		}
	}
	var replacements []types.Replacement
	if err := yaml12.UnmarshalStrict([]byte(text), &replacements); err != nil {
		return list{}, tko.Errorf(tko.ErrInvalid, "its replacements are malformed: %s", short(err.Error()))
	}
	if len(replacements) == 0 {
		return list{}, tko.Errorf(tko.ErrInvalid, "it has no replacements: give it a config of kind ApplyReplacements with the property %s=PATH, or replacements=PATH", tko.FunctionConfig)
	}
	return l, filter(l.items, replacement.Filter{Replacements: replacements})
}
