package topology_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/krm"
)

// A drawn placement selects the sites of several Sites resources.
type drawn []map[string]string

func (d drawn) pkg(t *testing.T) krm.Package {
	t.Helper()
	var text strings.Builder
	var names []string
	for n, sel := range d {
		names = append(names, fmt.Sprintf("s%d", n))
		var pairs []string
		for key, pattern := range sel {
			pairs = append(pairs, fmt.Sprintf("%s: %q", key, pattern))
		}
		fmt.Fprintf(&text, "{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: s%d}, spec: {select: {metadata: {%s}}}}\n---\n", n, strings.Join(pairs, ", "))
	}
	fmt.Fprintf(&text, `{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: t}, spec: {templateId: "t:v1"}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: p}, spec: {templates: [{template: t, sites: [%s]}]}}`, strings.Join(names, ", "))
	pkg, err := krm.Decode(krm.YAML, []byte(text.String()), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// selects reports whether a site is selected, as the selection of sites is documented.
func (d drawn) selects(metadata map[string]string) bool {
	for _, sel := range d {
		all := true
		for key, pattern := range sel {
			value, ok := metadata[key]
			switch pattern {
			case "*": // any value, but one
				all = all && ok
			case "n*":
				all = all && ok && strings.HasPrefix(value, "n")
			default:
				all = all && ok && value == pattern
			}
		}
		if all {
			return true
		}
	}
	return false
}

var (
	conditionKeys   = []string{"region", "tier", "vendor", "ring"}
	conditionValues = []string{"north", "new", "south"}
)

// fewest returns the smallest number of keys whose values must change so that a site is
// selected, by trying all.
func (d drawn) fewest(metadata map[string]string) int {
	best := len(conditionKeys) + 1
	for set := range 1 << len(conditionKeys) {
		var keys []string
		for n, key := range conditionKeys {
			if set>>n&1 == 1 {
				keys = append(keys, key)
			}
		}
		if len(keys) < best && d.selectable(metadata, keys) {
			best = len(keys)
		}
	}
	return best
}

func (d drawn) selectable(metadata map[string]string, keys []string) bool {
	if len(keys) == 0 {
		return d.selects(metadata)
	}
	for _, value := range conditionValues {
		changed := maps.Clone(metadata)
		changed[keys[0]] = value
		if d.selectable(changed, keys[1:]) {
			return true
		}
	}
	return false
}

func TestUnmetConditionsAreTheSmallestSet(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	selected := 0
	for range 500 {
		var d drawn
		for range 1 + random.IntN(3) {
			sel := map[string]string{}
			for len(sel) == 0 {
				for _, key := range conditionKeys {
					if random.IntN(2) == 0 {
						sel[key] = []string{"north", "new", "south", "n*", "*"}[random.IntN(5)]
					}
				}
			}
			d = append(d, sel)
		}
		metadata := map[string]string{}
		for _, key := range conditionKeys {
			if n := random.IntN(4); n < 3 {
				metadata[key] = conditionValues[n]
			}
		}
		got := topology.Explain(d.pkg(t), tko.Site{ID: "s", Metadata: metadata}, nil)
		if len(got) != 1 {
			t.Fatalf("%d explanations of one placement", len(got))
		}
		if want := d.fewest(metadata); got[0].Selected != (want == 0) || len(got[0].Unmet) != want {
			t.Fatalf("%v at %v: %+v, want %d unmet conditions", d, metadata, got[0], want)
		}
		if got[0].Selected {
			selected++
			continue
		}
		met := maps.Clone(metadata)
		for _, c := range got[0].Unmet {
			key := strings.TrimPrefix(c.Field, "metadata.")
			if value, ok := metadata[key]; ok != c.Present || value != c.Value {
				t.Errorf("the site's %s is %q, not %q", key, value, c.Value)
			}
			met[key] = strings.ReplaceAll(c.Wanted, "*", "")
		}
		if !d.selects(met) {
			t.Fatalf("%v at %v isn't selected although it meets %+v", d, met, got[0].Unmet)
		}
	}
	if selected < 20 || selected > 480 {
		t.Errorf("%d of 500 sites are selected: the test draws too few of one kind", selected)
	}
}

func TestExplainNamesTheConditionTheChildAndThePlacementThatDoesNotFollow(t *testing.T) {
	t.Parallel()
	pkg, err := krm.Decode(krm.YAML, []byte(`{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: north}, spec: {select: {metadata: {region: north}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: lab}, spec: {siteId: lab/1}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: later}, spec: {provisionIfNotFound: true}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: p, annotations: {nephio.org/prepared: "true"}}, spec: {templates: [{template: a, sites: [north]}, {template: b, sites: [lab]}, {template: c, sites: [later]}, {template: d, sites: [none]}]}}`), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got := topology.Explain(pkg, tko.Site{ID: "lagos/1", Metadata: map[string]string{"region": "south"}}, nil)
	const placement, sites = `topology.nephio.org/v1alpha1 Placement "p"`, "topology.nephio.org/v1alpha1 "
	want := []tko.PlacementExplanation{
		{Placement: placement, Template: "a", Sites: sites + `Sites "north"`, Unmet: []tko.UnmetCondition{{Field: "metadata.region", Present: true, Value: "south", Wanted: "north"}}},
		{Placement: placement, Template: "b", Sites: sites + `Site "lab"`, Unmet: []tko.UnmetCondition{{Field: "siteId", Present: true, Value: "lagos/1", Wanted: "lab/1"}}},
		{Placement: placement, Template: "c", Note: sites + `Site "later" isn't prepared yet: its site isn't known`},
		{Placement: placement, Template: "d", Note: "it names no Site or Sites resource of the package"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = topology.Explain(pkg, tko.Site{ID: "oslo/1", Metadata: map[string]string{"region": "north"}}, nil)
	if !got[0].Selected || !strings.Contains(got[0].Note, "evaluated once") {
		t.Errorf("a site that matches since the placement was evaluated: %+v", got[0])
	}
}

func TestUsesOfATemplateByNameAndByMetadata(t *testing.T) {
	t.Parallel()
	pkg, err := krm.Decode(krm.YAML, []byte(`{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: named}, spec: {templateId: "upf:v1"}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: selected}, spec: {select: {metadata: {nf: upf}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: other}, spec: {select: {metadata: {nf: smf}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: another}, spec: {templateId: "upf:v2", select: {metadata: {nf: upf}}}}`), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got := topology.Uses(pkg, tko.Template{ID: "upf:v1", Metadata: map[string]string{"nf": "upf"}})
	want := []tko.ImpactTopology{
		{Resource: `topology.nephio.org/v1alpha1 Template "named"`},
		{Resource: `topology.nephio.org/v1alpha1 Template "selected"`, Selects: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
