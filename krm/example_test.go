package krm_test

import (
	"fmt"

	"github.com/tko-orchestrator/tko/krm"
)

func ExampleDecode() {
	p, err := krm.Decode(krm.YAML, []byte(`
apiVersion: v1
kind: Namespace
metadata: {name: core}
---
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: settings}
  data: {port: 8080, verbose: yes}
`), krm.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range p {
		fmt.Println(r.Identity(), r["data"])
	}
	// Output:
	// v1 Namespace "core" <nil>
	// v1 ConfigMap "settings" map[port:8080 verbose:true]
}

func ExampleEncode() {
	r := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap"}
	r.Set("settings", "metadata", "name")
	r.Set("yes", "data", "verbose")
	r.Set([]string{"a", "b"}, "data", "list")
	r.Set("one\ntwo\n", "data", "text")
	data, err := krm.Encode(krm.YAML, krm.Package{r})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(string(data))
	// Output:
	// apiVersion: v1
	// data:
	//   list:
	//   - a
	//   - b
	//   text: |
	//     one
	//     two
	//   verbose: "yes"
	// kind: ConfigMap
	// metadata:
	//   name: settings
}

func ExampleMerge() {
	template := krm.Package{{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web"},
		"spec":     map[string]any{"replicas": int64(1), "paused": true},
	}}
	more := krm.Package{{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web"},
		"spec":     map[string]any{"replicas": int64(3)},
	}}
	replaced, err := krm.Merge(template, more)
	fmt.Println(replaced[0]["spec"], err)

	more[0].SetAnnotation(krm.AnnotationMerge, krm.Override)
	overridden, err := krm.Merge(template, more)
	fmt.Println(overridden[0]["spec"], err)
	// Output:
	// map[replicas:3] <nil>
	// map[paused:true replicas:3] <nil>
}

func ExamplePackage_Metadata() {
	p := krm.Package{{
		"apiVersion": "metadata.nephio.org/v1alpha1", "kind": "NetworkFunction",
		"spec": map[string]any{"variant": map[string]any{"version": "1.0"}, "zones": []any{"a", "b"}},
	}}
	metadata := p.Metadata()
	fmt.Println(metadata["NetworkFunction.variant.version"], metadata["NetworkFunction.zones"])
	// Output: 1.0 ["a","b"]
}

func ExamplePackage_Check() {
	ns := krm.Resource{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "core"}}
	fmt.Println(krm.Package{ns, ns, {"kind": "Service"}}.Check())
	// Output: resource 2 (v1 Namespace "core"): is in the package already, as resource 1; rename or remove one of them; resource 3 ( Service ""): apiVersion: is missing
}
