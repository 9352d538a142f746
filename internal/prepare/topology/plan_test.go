package topology

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// All children of a site are created in one block, before those of the next block, so that they are prepared at about the
// same time; each entry has its children in the order of its sites, and no child is lost or doubled.
func TestChildrenOfASiteAreCreatedTogether(t *testing.T) {
	t.Parallel()
	names := func(from, to int) (sites []tko.SiteID) {
		for i := from; i < to; i++ {
			sites = append(sites, tko.SiteID(fmt.Sprintf("s%05d", i)))
		}
		return sites
	}
	for _, counts := range [][3]int{{1, 1200, 500}, {3, 1200, 166}, {50, 730, 100}, {7, 40, 100}, {0, 0, 500}} {
		n, sites, size := counts[0], counts[1], counts[2]
		var entries []placed
		for i := range n {
			at := names(0, sites)
			if i == 1 {
				at = append(names(50, sites+150), names(0, 3)...) // other ones, some of which come late
			}
			at = append(at, at[0]) // twice
			e := entry{merge: krm.Package{}}
			e.template.resource = krm.Identity{Name: fmt.Sprint("t", i)}
			entries = append(entries, placed{entry: e, id: tko.TemplateID(fmt.Sprint("t", i)), at: at})
		}
		batches, slots := planChildren(Deployment{ID: "d", Revision: 3}, krm.Identity{Name: "p"}, entries)
		got := map[string][]tko.SiteID{}
		first, last := map[tko.SiteID]int{}, map[tko.SiteID]int{}
		made := 0
		for _, b := range batches {
			if len(b.Children) == 0 || len(b.Children) > childrenPerCall || b.Parent != "d" || b.Revision != 3 {
				t.Fatalf("%v: a batch of %d children", counts, len(b.Children))
			}
			for _, c := range b.Children {
				got[string(c.Template)] = append(got[string(c.Template)], c.Site)
				if _, ok := first[c.Site]; !ok {
					first[c.Site] = made
				}
				last[c.Site] = made
				made++
			}
		}
		if len(slots) != made {
			t.Errorf("%v: %d children have %d origins", counts, made, len(slots))
		}
		for _, e := range entries {
			want := slices.Compact(slices.Sorted(slices.Values(e.at)))
			if have := got[string(e.id)]; !slices.Equal(slices.Sorted(slices.Values(have)), want) {
				t.Errorf("%v: %s has %d sites, want %d", counts, e.id, len(have), len(want))
			}
		}
		for site := range first {
			if span := last[site] - first[site]; span > size*n {
				t.Errorf("%v: the first and the last child of %s are %d children apart", counts, site, span)
			}
		}
	}
}
