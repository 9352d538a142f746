// Command pools is an example of a validate plugin in Go: the address pools of
// a core.tko.example/v1 UserPlane must be networks, and must not overlap.
package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

type input struct {
	Target   struct{ Group, Version, Kind, Name string } `json:"targetResourceIdentifier"`
	Complete bool                                        `json:"complete"`
	Package  []userPlane                                 `json:"package"`
}

type userPlane struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec any `json:"spec"`
}

func main() {
	data, err := io.ReadAll(os.Stdin)
	var in input
	if err == nil {
		err = yaml.Unmarshal(data, &in)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text, _ := yaml.Marshal(map[string]string{"error": strings.Join(check(in), "; ")})
	_, _ = os.Stdout.Write(text)
}

// check returns the problems of the target's pools. It ignores missing pools, because
// the schema requires them.
func check(in input) []string {
	var wrong []string
	for _, r := range in.Package {
		if r.APIVersion != in.Target.Group+"/"+in.Target.Version || r.Kind != in.Target.Kind || r.Metadata.Name != in.Target.Name {
			continue
		}
		spec, _ := r.Spec.(map[string]any)
		dnns, _ := spec["dnns"].([]any)
		pools := map[string]netip.Prefix{}
		for i, d := range dnns {
			dnn, _ := d.(map[string]any)
			pool, ok := dnn["pool"].(string)
			if !ok {
				continue
			}
			name := fmt.Sprintf("spec.dnns.%d.pool", i)
			prefix, err := netip.ParsePrefix(pool)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s is %q: use a network such as 10.60.0.0/16", name, pool))
				continue
			}
			for j := range i {
				other := fmt.Sprintf("spec.dnns.%d.pool", j)
				if p, ok := pools[other]; ok && p.Overlaps(prefix) {
					wrong = append(wrong, fmt.Sprintf("%s %s overlaps with %s %s", name, prefix, other, p))
				}
			}
			pools[name] = prefix
		}
	}
	return wrong
}
