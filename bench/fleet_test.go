package bench

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

func TestFleetIsTheSameForTheSameSeed(t *testing.T) {
	t.Parallel()
	f := Fleet{Seed: 7, Sites: 300, Deployments: 5000}
	templates, err := f.Templates()
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Templates()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(templates, again); diff != "" {
		t.Errorf("templates differ:\n%s", diff)
	}
	// Known values: changing them makes the results of versions incomparable, so it
	// must be deliberate.
	if diff := cmp.Diff(tko.Site{
		ID: "fleet-7/br/region-19/site-000123",
		Metadata: map[string]string{
			"fleet": "fleet-7", "country": "br", "region": "region-19", "tier": "edge", "vendor": "acme", "channel": "stable",
		},
	}, f.Site(123)); diff != "" {
		t.Errorf("site 123 (-want +got):\n%s", diff)
	}
	want := tko.NewChild{Origin: "123/1", Template: "fleet-7/ausf/v3.4.0", Site: f.Site(123).ID}
	if diff := cmp.Diff(want, f.child(423)); diff != "" {
		t.Errorf("deployment 423 (-want +got):\n%s", diff)
	}
	other := Fleet{Seed: 8, Sites: 300, Deployments: 5000}
	same := 0
	for i := range 1000 {
		a, b := string(f.child(i).Template), string(other.child(i).Template)
		if strings.TrimPrefix(a, f.Name()) == strings.TrimPrefix(b, other.Name()) {
			same++
		}
	}
	if same > 500 {
		t.Errorf("%d of 1000 deployments are of the same function with another seed", same)
	}
}

func TestSharesAreExact(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why string
		n   int
	}{
		"a million":    {"the size of published results", 1_000_000},
		"a few":        {"small fleets have one of each at least", 1000},
		"an odd count": {"shares are rounded", 123_457},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := Fleet{Seed: 3, Sites: 1, Deployments: test.n}
			count := map[string]int{}
			for i := range test.n {
				count[f.channel("deployment", i, test.n)]++
			}
			rarer := 0
			for _, share := range Shares {
				want := max(1, int(math.Round(float64(test.n)*share.Part)))
				// Rarer shares have priority.
				if got := count[share.Channel]; got > want || got < want-rarer {
					t.Errorf("%s: %d are %s, want %d: %s", name, got, share.Channel, want, test.why)
				}
				rarer += want
			}
		})
	}
}

func TestFleetHasSkewedRegionsAndFunctions(t *testing.T) {
	t.Parallel()
	f := Fleet{Seed: 1, Sites: 20_000, Deployments: 100_000}
	tiers, regionsOf := map[string]int{}, map[string]int{}
	for i := range f.Sites {
		s := f.Site(i)
		tiers[s.Metadata["tier"]]++
		regionsOf[s.Metadata["region"]]++
		if !strings.HasPrefix(string(s.ID), f.Name()+"/"+s.Metadata["country"]+"/"+s.Metadata["region"]+"/") {
			t.Fatalf("site %s is in %s, %s", s.ID, s.Metadata["country"], s.Metadata["region"])
		}
	}
	if tiers["edge"] < 17_500 || tiers["central"] > 300 || tiers["central"] == 0 {
		t.Errorf("the tiers are %v: want nine tenths at the edge, and a hundredth central", tiers)
	}
	if len(regionsOf) != regions || regionsOf["region-00"] < 3*regionsOf["region-19"] {
		t.Errorf("the regions are %v: want the first much larger than the last", regionsOf)
	}
	known := map[tko.TemplateID]bool{}
	templates, err := f.Templates()
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range templates {
		known[template.ID] = true
	}
	upf := 0
	for i := range f.Deployments {
		c := f.child(i)
		if !known[c.Template] {
			t.Fatalf("deployment %d has the template %s, which isn't one", i, c.Template)
		}
		if strings.Contains(string(c.Template), "/upf/") {
			upf++
		}
	}
	if upf < 28_000 || upf > 32_000 {
		t.Errorf("%d of 100000 are user planes: want 30 %%", upf)
	}
}

func TestWavesHaveEveryDeploymentOnce(t *testing.T) {
	t.Parallel()
	f := Fleet{Seed: 2, Sites: 70, Deployments: 1500} // 21 rounds and a part
	seen := map[int]bool{}
	for _, w := range f.waves() {
		for _, i := range w.leaves {
			if seen[i] {
				t.Errorf("deployment %d is in two waves", i)
			}
			seen[i] = true
			if l := f.leaf(i); f.region(l.site) != w.region || l.round/rounds != w.number {
				t.Errorf("deployment %d (%+v) is in wave %d of region %d", i, l, w.number, w.region)
			}
		}
	}
	if len(seen) != f.Deployments {
		t.Errorf("%d deployments are in waves, want %d", len(seen), f.Deployments)
	}
}

func TestBatchesHaveMixedStates(t *testing.T) {
	t.Parallel()
	f := Fleet{Seed: 1, Sites: 10, Deployments: 10}
	prepared, approved, own := 0, 0, 0
	for i := range 2000 {
		p := f.merge(i)
		if r, err := p.Deployment(); err != nil {
			t.Fatal(err)
		} else if r != nil {
			prepared++
			if r.Annotation(krm.AnnotationApproved) == "true" {
				approved++
			}
			if len(p) == 2 {
				own++
			}
		}
	}
	if prepared < 1900 || prepared == 2000 || approved < 1650 || approved > 1850 || own < 60 || own > 140 {
		t.Errorf("of 2000 batches, %d are prepared, %d approved, %d with settings of their own: want 1960, 1760, 100", prepared, approved, own)
	}
}
