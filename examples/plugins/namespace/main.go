// Command namespace is an example of a prepare plugin in Go. For a resource
// workload.plugin.nephio.org/v1alpha1 Namespace it moves all namespaced resources of
// the package to the namespace of its spec, and adds the Namespace itself.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

type resource = map[string]any

type input struct {
	TargetResourceIdentifier struct{ Group, Version, Kind, Name string } `json:"targetResourceIdentifier"`
	DeploymentPackage        []resource                                  `json:"deploymentPackage"`
}

type output struct {
	Prepared bool       `json:"prepared"`
	Package  []resource `json:"package,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// Kinds of Kubernetes resources without a namespace.
var clusterScoped = []string{
	"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "IngressClass", "Namespace", "Node",
	"PersistentVolume", "PriorityClass", "RuntimeClass", "StorageClass",
}

func main() {
	data, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = answer(data, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answer(data []byte, to io.Writer) error {
	var in input
	if err := yaml.Unmarshal(data, &in); err != nil {
		return err
	}
	text, err := yaml.Marshal(prepare(in))
	if err != nil {
		return err
	}
	_, err = to.Write(text)
	return err
}

func prepare(in input) output {
	id := in.TargetResourceIdentifier
	i := slices.IndexFunc(in.DeploymentPackage, func(r resource) bool {
		return r["apiVersion"] == id.Group+"/"+id.Version && r["kind"] == id.Kind && meta(r)["name"] == id.Name
	})
	if i < 0 {
		return output{Error: fmt.Sprintf("%s %q is not in the package", id.Kind, id.Name)}
	}
	spec, _ := in.DeploymentPackage[i]["spec"].(map[string]any)
	namespace, _ := spec["namespace"].(string)
	if namespace == "" {
		return output{Error: fmt.Sprintf("%s %q: spec.namespace is empty: name the namespace", id.Kind, id.Name)}
	}
	there := false
	for _, r := range in.DeploymentPackage {
		if kind, _ := r["kind"].(string); slices.Contains(clusterScoped, kind) {
			there = there || kind == "Namespace" && r["apiVersion"] == "v1" && meta(r)["name"] == namespace
			continue
		}
		if !orchestration(r) {
			meta(r)["namespace"] = namespace
		}
	}
	if !there {
		in.DeploymentPackage = append(in.DeploymentPackage, resource{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
		})
	}
	annotations, _ := meta(in.DeploymentPackage[i])["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations["nephio.org/prepared"] = "true"
	meta(in.DeploymentPackage[i])["annotations"] = annotations
	return output{Prepared: true, Package: in.DeploymentPackage}
}

// orchestration returns whether a resource is for TKO, and not applied to clusters.
func orchestration(r resource) bool {
	version, _ := r["apiVersion"].(string)
	group, _, _ := strings.Cut(version, "/")
	return group == "nephio.org" || strings.HasSuffix(group, ".nephio.org")
}

func meta(r resource) map[string]any {
	m, ok := r["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
		r["metadata"] = m
	}
	return m
}
