package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
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

// A moody origin has records, and fails as a test wants.
type moody struct {
	records []record
	version int
	fault   string
}

func (m *moody) read(_ context.Context, known string) ([]record, string, error) {
	tag := strconv.Itoa(m.version)
	switch {
	case m.fault == "away":
		return nil, "", errors.New("503")
	case m.fault == "empty":
		return nil, tag + " empty", nil
	case m.fault == "unmapped":
		return append(slices.Clone(m.records), record{"x": "1"}), tag + " unmapped", nil
	case m.fault == "twice":
		return slices.Concat(m.records, m.records), tag + " twice", nil
	case tag == known:
		return nil, tag, nil
	}
	return m.records, tag, nil
}

// Whatever origins do in whatever order (fail, become empty, have records without IDs or
// twice, have old data again), a revision is the merge of what all of them have now, or an
// error after which the sites are those of the last revision.
func TestRevisionIsOfAllOriginsNowOrNone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := []string{"a", "b", "c"}
		inventory := &Inventory{}
		var origins []*moody
		for n := range rapid.IntRange(1, 3).Draw(t, "origins") {
			settings := OriginSettings{Name: strconv.Itoa(n), Enrich: n > 0 && rapid.Bool().Draw(t, "enrich"), Map: Mapping{ID: "record.id", Metadata: map[string]string{"k": "record.?k"}}}
			m, err := newMapper(settings.Map)
			if err != nil {
				t.Fatal(err)
			}
			o := &moody{records: []record{{"id": "a", "k": "0"}}}
			origins = append(origins, o)
			inventory.parts = append(inventory.parts, &part{settings: settings, origin: o, mapper: m})
		}
		var last map[string]string // by ID; nil if there is none
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			o := rapid.SampledFrom(origins).Draw(t, "origin")
			switch what := rapid.SampledFrom([]string{"", "", "change", "away", "empty", "unmapped", "twice"}).Draw(t, "what"); what {
			case "change":
				o.version++
				o.fault, o.records = "", nil
				for _, id := range rapid.Permutation(ids).Draw(t, "order")[:rapid.IntRange(1, len(ids)).Draw(t, "sites")] {
					o.records = append(o.records, record{"id": id, "k": rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "value")})
				}
			default:
				o.fault = what
			}
			want, fails := map[string]string{}, false
			for n, o := range origins {
				fails = fails || o.fault == "away" || o.fault == "unmapped" || o.fault == "twice" || o.fault == "empty" && !inventory.parts[n].settings.Enrich
			}
			for n, o := range origins {
				for _, r := range o.records {
					if o.fault == "" && !inventory.parts[n].settings.Enrich {
						want[fmt.Sprint(r["id"])] = ""
					}
				}
			}
			for _, o := range origins {
				for _, r := range o.records {
					if id := fmt.Sprint(r["id"]); o.fault == "" && want[id] == "" {
						if _, made := want[id]; made {
							want[id] = fmt.Sprint(r["k"])
						}
					}
				}
			}
			revision, err := inventory.Revision(context.Background())
			if (err != nil) != fails {
				t.Fatalf("the error is %v: want one: %v", err, fails)
			}
			if !fails {
				last = want
			}
			got := map[string]string{}
			sites, _ := inventory.Sites()
			for _, s := range sites {
				got[s.ID] = s.Metadata["k"]
			}
			if last == nil {
				last = map[string]string{}
			}
			if !maps.Equal(got, last) {
				t.Fatalf("the sites are %v: want %v", got, last)
			}
			if fails {
				continue
			}
			found, _, err := inventory.Manifests(revision)
			if err != nil || len(found) != len(want) {
				t.Fatalf("revision %s has %d manifests: %v: want %d", revision, len(found), err, len(want))
			}
			for _, m := range found {
				if m.Put.Kind != tko.KindSite || m.Put.Metadata["k"] != want[m.Name] {
					t.Fatalf("the manifest of %q has %v: want %q", m.Name, m.Put.Metadata, want[m.Name])
				}
			}
		}
	})
}
