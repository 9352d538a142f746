package compile_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/krm"
)

// types are the types of a service template whose node "it" is a Template with a
// property v for a ConfigMap.
const types = version + `
namespace: nephio
capability_types:
  Host: {properties: {tier: {type: string, default: edge}}}
relationship_types:
  Host: {properties: {distance: {type: integer, default: 7}}}
node_types:
  Template:
    properties: {template-id: {type: string, default: t, metadata: {nephio.target: templateId}}}
    requirements: [{host: {capability: Host, relationship: Host, occurrences: [0, UNBOUNDED]}}]
  Site:
    properties:
      site-id: {type: string, metadata: {nephio.target: siteId}}
      size: {type: integer, default: 1}
    attributes:
      seen: {type: string}
      state: {type: string, default: up}
    capabilities: {host: Host}
  Thing:
    derived_from: Template
    properties:
      v: {TYPE, required: false, metadata: {nephio.apiVersion: v1, nephio.kind: ConfigMap, nephio.target: v}}
      w: {type: map, entry_schema: string, default: {a: x, b: y}}
      l: {type: list, entry_schema: string, default: [p, q]}
  Other:
    properties: {p: {type: string, default: {get_artifact: [SELF, a]}}}
`

// doubling returns inputs, each of which is twice the one before.
var doubling = func() string {
	var lines []string
	for i := range 20 {
		lines = append(lines, fmt.Sprintf("    x%d: {type: list, entry_schema: string, default: [{get_input: x%d}, {get_input: x%d}]}", i+1, i, i))
	}
	return strings.Join(lines, "\n")
}()

// compiled compiles a service template whose node "it" has the value v of the type,
// and returns the result of v and the sites of "it".
func compiled(t *testing.T, typ, node string) (v any, sites []any, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.yaml")
	text := strings.Replace(types, "TYPE", typ, 1) + `
topology_template:
  inputs:
    name: {type: string, default: lagos}
    small: {type: integer, default: 3, constraints: [{less_than: 3}]}
    deep: {type: map, entry_schema: string, default: {a: b}}
    none: {type: string, required: false}
    x0: {type: list, entry_schema: integer, default: [1, 2, 3, 4]}
` + doubling + `
  node_templates:
    north: {type: Site, properties: {site-id: north, size: 5}}
    south: {type: Site, properties: {site-id: south}, capabilities: {host: {properties: {tier: core}}}}
    bystander: {type: Other}
    it:
      type: Thing
` + node
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pkg, err := preparer(false).Resources(t.Context(), file)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range pkg {
		if r.GVK().Kind == "ConfigMap" {
			v, _ = r.Get("spec", "v")
		}
		if r.GVK() == (krm.GVK{Group: "topology.nephio.org", Version: "v1alpha1", Kind: "Placement"}) {
			list, _ := r.Get("spec", "templates")
			sites, _ = list.([]any)[0].(map[string]any)["sites"].([]any)
		}
	}
	return v, sites, nil
}

const host = "      requirements: [{host: north}]\n"

func TestValuesAreEvaluatedOrRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		typ  string // string if empty
		v    string
		want any
		says string // the wanted error, if any
	}{
		"get_input":             {v: "{get_input: name}", want: "lagos"},
		"within an input":       {v: "{get_input: [deep, a]}", want: "b"},
		"not within it":         {v: "{get_input: [deep, z]}", says: `there is no "z" in it`},
		"an input without":      {why: "what isn't there is left out", v: "{get_input: none}", want: nil},
		"put together of it":    {v: "{concat: [a, {get_input: none}]}", says: "made of plain values"},
		"no such input":         {v: "{get_input: [some]}", says: `the input "some" has no value`},
		"an input that's wrong": {why: "its constraint is its own", typ: "type: integer", v: "{get_input: small}", says: `the input "small": 3 violates its constraint: less_than [3]`},
		"concat":                {v: "{concat: [a, 1, {get_input: name}]}", want: "a1lagos"},
		"concat of a map":       {why: "maps have no text", v: "{concat: [a, {get_property: [SELF, w]}]}", says: "made of plain values"},
		"join":                  {v: "{join: [[a, {get_input: name}], '-']}", want: "a-lagos"},
		"join without":          {v: "{join: [[a, b]]}", want: "ab"},
		"token":                 {v: "{token: ['10.1.2.3:80/x', ':/', 1]}", want: "80"},
		"no such token":         {v: "{token: ['a:b', ':', 2]}", says: `there is no part 2 of "a:b": they are 2`},
		"of itself":             {v: "{get_property: [SELF, template-id]}", want: "t"},
		"within a property":     {v: "{get_property: [SELF, w, b]}", want: "y"},
		"within a list":         {v: "{get_property: [SELF, l, 1]}", want: "q"},
		"of another":            {typ: "type: integer", v: "{get_property: [north, size]}", want: int64(5)},
		"of the host":           {v: "{get_property: [HOST, site-id]}", want: "north"},
		"of a requirement":      {why: "its relationship first", typ: "type: integer", v: "{get_property: [SELF, host, distance]}", want: int64(7)},
		"of its capability":     {why: "then the capability that it leads to", v: "{get_property: [SELF, host, tier]}", want: "edge"},
		"of its target":         {why: "then the node", v: "{get_property: [SELF, host, 0, site-id]}", want: "north"},
		"of a capability":       {v: "{get_property: [south, host, tier]}", want: "core"},
		"of a missing node":     {v: "{get_property: [missing, x]}", says: `no node template "missing"`},
		"nothing of itself":     {v: "{get_property: [SELF, nothing]}", says: `"it" has no property "nothing"`},
		"out of place":          {v: "{get_property: [SOURCE, x]}", says: "no SOURCE here"},
		"itself":                {why: "for ever", v: "{get_property: [SELF, v]}", says: "refers to itself"},
		"itself twice":          {why: "for ever, and twice as much each time", v: "{concat: [{get_property: [SELF, v]}, {get_property: [SELF, v]}]}", says: "refers to itself"},
		"a large list":          {why: "few bytes that become very many", typ: "type: list, entry_schema: integer", v: "{get_input: x20}", says: "more than 1000000 values"},
		"an attribute":          {v: "{get_attribute: [north, state]}", want: "up"},
		"as an attribute":       {why: "properties are attributes, too", v: "{get_attribute: [north, site-id]}", want: "north"},
		"none yet":              {why: "nothing runs", v: "{get_attribute: [north, seen]}", says: "no value before run time"},
		"nodes of a type":       {typ: "type: list, entry_schema: string", v: "{get_nodes_of_type: Site}", want: []any{"north", "south"}},
		"an operation":          {why: "nothing runs", v: "{get_operation_output: [SELF, a, b, c]}", says: "has a value only at run time"},

		"a size":         {why: "KRM has quantities as texts", typ: "type: scalar-unit.size", v: "4 GiB", want: "4 GiB"},
		"a time":         {typ: "type: scalar-unit.time", v: "100 ms", want: "100 ms"},
		"a version":      {typ: "type: version", v: "1.2.3", want: "1.2.3"},
		"a timestamp":    {typ: "type: timestamp", v: "'2026-01-02T03:04:05Z'", want: "2026-01-02T03:04:05Z"},
		"a range":        {typ: "type: range", v: "[1, 4]", want: []any{int64(1), int64(4)}},
		"without an end": {typ: "type: range", v: "[1, UNBOUNDED]", want: []any{int64(1), "UNBOUNDED"}},
		"sizes":          {typ: "type: list, entry_schema: scalar-unit.size", v: "[1 MB]", want: []any{"1 MB"}},

		"valid":            {typ: "type: string, constraints: [{valid_values: [a, b]}]", v: "b", want: "b"},
		"not valid":        {typ: "type: string, constraints: [{valid_values: [a, b]}]", v: "c", says: `node template "it": property "v": c violates its constraint: valid_values [a b]`},
		"evaluated":        {why: "the result of a function is checked", typ: "type: string, constraints: [{pattern: 'a.*'}]", v: "{get_input: name}", says: "pattern"},
		"a whole pattern":  {typ: "type: string, constraints: [{pattern: 'a|b'}]", v: "ab", says: "pattern"},
		"in range":         {typ: "type: integer, constraints: [{in_range: [1, 4]}]", v: "4", want: int64(4)},
		"out of range":     {typ: "type: integer, constraints: [{in_range: [1, 4]}]", v: "5", says: "in_range"},
		"equal":            {typ: "type: float, constraints: [{equal: 2.0}]", v: "2.5", says: "equal"},
		"sizes compared":   {why: "by what they are worth", typ: "type: scalar-unit.size, constraints: [{greater_than: 900 MB}]", v: "1 GB", want: "1 GB"},
		"too small":        {typ: "type: scalar-unit.size, constraints: [{greater_or_equal: 900 MB}]", v: "1 MB", says: "greater_or_equal [900 MB]"},
		"a new version":    {typ: "type: version, constraints: [{less_or_equal: '1.10.0'}]", v: "'1.9.0'", want: "1.9.0"},
		"long enough":      {typ: "type: string, constraints: [{min_length: 2}, {max_length: 3}]", v: "äöü", want: "äöü"},
		"too long":         {typ: "type: list, entry_schema: string, constraints: [{max_length: 1}]", v: "[a, b]", says: "max_length"},
		"an entry's":       {typ: "type: list, entry_schema: {type: integer, constraints: [{less_than: 3}]}", v: "[1, 5]", says: "[1]: 5 violates"},
		"a map's":          {typ: "type: map, entry_schema: {type: integer, constraints: [{less_than: 3}]}", v: "{a: 5}", says: "a: 5 violates"},
		"a pattern of its": {why: "RE2 has no look-ahead", typ: "type: string, constraints: [{pattern: '(?=a)b'}]", v: "b", says: "syntax of RE2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			typ := test.typ
			if typ == "" {
				typ = "type: string"
			}
			got, _, err := compiled(t, typ, "      properties: {v: "+test.v+"}\n"+host)
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%s: %v, %v", test.why, got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(test.want, got); diff != "" {
				text, _ := json.Marshal(got)
				t.Errorf("%s: %s: %s", test.why, text, diff)
			}
		})
	}
}

func TestRequirementsSelectSites(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why, node string
		want      []any
		says      string
	}{
		"by name":     {node: "[{host: north}, {host: south}]", want: []any{"north", "south"}},
		"by type":     {why: "there are two: the template must name one", node: "[{host: {node: Site}}]", says: `2 node templates fit ("north", "south")`},
		"by filter":   {node: "[{host: {node: Site, node_filter: {properties: [{size: {greater_than: 3}}]}}}]", want: []any{"north"}},
		"by what has": {node: "[{host: {node: Site, node_filter: {capabilities: [{host: {properties: [{tier: {equal: core}}]}}]}}}]", want: []any{"south"}},
		"by none":     {node: "[{host: {node: Site, node_filter: {properties: [{size: {greater_than: 9}}]}}}]", says: "no node template fits"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got, err := compiled(t, "type: string", "      requirements: "+test.node+"\n")
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%s: %v, %v", test.why, got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, _, err := compiled(t, "type: string", "      directives: [substitute]\n"+host); err == nil || !strings.Contains(err.Error(), `directive "substitute"`) {
		t.Error(err)
	}
}
