package inventory

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever several origins say of a site, each part is that of the first origin that has
// it, the site exists exactly if an origin that makes sites has it, and each
// contradiction has a note.
func TestMergeTakesEachPartFromTheFirstOrigin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c"}
		keys := []string{"x", "y"}
		var parts []*part
		for n := range rapid.IntRange(1, 4).Draw(t, "origins") {
			p := &part{settings: OriginSettings{Name: string(rune('0' + n)), Enrich: rapid.Bool().Draw(t, "enrich")}}
			for _, id := range names {
				if !rapid.Bool().Draw(t, "has site") {
					continue
				}
				s := Site{ID: id, Metadata: map[string]string{}, Template: rapid.SampledFrom([]string{"", "t1", "t2"}).Draw(t, "template")}
				for _, key := range keys {
					if rapid.Bool().Draw(t, "has key") {
						s.Metadata[key] = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")
					}
				}
				p.sites = append(p.sites, s)
			}
			parts = append(parts, p)
		}
		sites, notes := merge(parts)
		got := map[string]Site{}
		for i, s := range sites {
			if i > 0 && sites[i-1].ID >= s.ID {
				t.Fatalf("sites %q and %q are out of order", sites[i-1].ID, s.ID)
			}
			got[s.ID] = s
		}
		contradictions := 0
		for _, id := range names {
			made, want, from := false, map[string]string{}, map[string]string{}
			differ := 0
			for _, p := range parts {
				for _, s := range p.sites {
					if s.ID != id {
						continue
					}
					made = made || !p.settings.Enrich
					for name, value := range s.parts() {
						if was, taken := want[name]; !taken {
							want[name], from[name] = value, p.settings.Name
						} else if was != value {
							differ++
						}
					}
				}
			}
			s, ok := got[id]
			if ok != made {
				t.Fatalf("site %q exists: %v, want %v", id, ok, made)
			}
			if !made {
				continue
			}
			contradictions += differ
			have := s.parts()
			if len(have) != len(want) || len(s.Origins) != len(want) {
				t.Fatalf("site %q has %v from %v: want %v", id, have, s.Origins, want)
			}
			for name, value := range want {
				if have[name] != value || s.Origins[name] != from[name] {
					t.Fatalf("site %q: %s is %q from %s, want %q from %s", id, name, have[name], s.Origins[name], value, from[name])
				}
			}
		}
		if want := min(contradictions, maxNotes+1); len(notes) != want {
			t.Fatalf("%d notes for %d contradictions: want %d", len(notes), contradictions, want)
		}
	})
}
