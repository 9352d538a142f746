package bundle

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestOnlyPartsRemovedFromADescriptorBreakInstances(t *testing.T) {
	t.Parallel()
	read := func(text string) (tree map[string]any) {
		if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
			t.Fatal(err)
		}
		return tree
	}
	for name, c := range map[string]struct{ why, there, next, want string }{
		"values":        {"they are merged", "{a: 1, m: {b: 1}, l: [{id: x, v: 1}]}", "{a: 2, m: {c: 1}, l: [{id: x, v: 2}]}", ""},
		"more":          {"who was made before doesn't use it", "{kdu: [{name: a}]}", "{kdu: [{name: b}, {name: a}]}", ""},
		"KDU":           {"upgrades name it", "{kdu: [{name: a}, {name: b}]}", "{kdu: [{name: a}]}", `KDU "b"`},
		"all KDUs":      {"the list has gone", "{kdu: [{name: a}]}", "{id: x}", `KDU "a"`},
		"member":        {"actions name it", "{df: [{id: d, vnf-profile: [{id: 1, vnfd-id: v}]}]}", "{df: [{id: d, vnf-profile: [{id: '2', vnfd-id: v}]}]}", `member "1" (VNFD "v")`},
		"another VNF":   {"it has other KDUs", "{df: [{id: d, vnf-profile: [{id: 1, vnfd-id: v}]}]}", "{df: [{id: d, vnf-profile: [{id: 1, vnfd-id: w}]}]}", `member "1" (VNFD "v")`},
		"number":        {"OSM keeps texts", "{df: [{id: d, vnf-profile: [{id: '1', vnfd-id: v}]}]}", "{df: [{id: d, vnf-profile: [{id: 1, vnfd-id: v}]}]}", ""},
		"in a map":      {"at any depth", "{k8s-cluster: {nets: [{id: mgmt}]}}", "{k8s-cluster: {}}", `nets "mgmt"`},
		"primitives":    {"they may change at any time", "{df: [{id: d, day1-2: [{id: v, config-primitive: [{name: touch}]}]}]}", "{df: [{id: d, day1-2: [{id: v}]}]}", ""},
		"OSM's own":     {"no descriptor has it", "{_admin: {l: [{id: x}]}}", "{}", ""},
		"without names": {"nothing tells them apart", "{l: [a, {v: 1}]}", "{l: []}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := lost(read(c.there), read(c.next)); got != c.want {
				t.Errorf("%s: got %q, want %q", c.why, got, c.want)
			}
		})
	}
}
