package sqlite_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// Metadata whose values are all different, such as serial numbers: a pattern matches more of
// them than a list looks up at once. Lists have all records that match, and no others, as a
// comparison of all records finds them.
func TestListsByPatternsOfManyValuesAreComplete(t *testing.T) {
	t.Parallel()
	s, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	const sites, deployments = 12_000, 300
	var records []record.Record
	metadata := make([]map[string]string, sites)
	for i := range sites {
		metadata[i] = map[string]string{"serial": strconv.Itoa(random.IntN(100_000)), "half": strconv.Itoa(i % 2)}
		records = append(records, record.Record{
			Key: record.Key{Kind: tko.KindSite, ID: fmt.Sprintf("s%05d", i)}, UID: "s" + strconv.Itoa(i), Metadata: &record.Metadata{Effective: metadata[i]},
		})
	}
	at := make([]int, deployments)
	for i := range deployments {
		at[i] = random.IntN(sites)
		records = append(records, record.Record{
			Key: record.Key{Kind: tko.KindDeployment, ID: fmt.Sprintf("d%05d", i)}, UID: "d" + strconv.Itoa(i), Site: fmt.Sprintf("s%05d", at[i]), Metadata: &record.Metadata{Effective: map[string]string{}},
		})
	}
	for chunk := range slices.Chunk(records, 1000) {
		writes := make([]record.Write, len(chunk))
		for i, r := range chunk {
			writes[i] = record.Write{Op: tko.OpWritten, Expect: record.Absent, Record: r}
		}
		if _, err := s.Commit(t.Context(), record.Ungated(writes...)); err != nil {
			t.Fatal(err)
		}
	}
	patterns := func(texts ...string) map[string]tko.Pattern {
		m := map[string]tko.Pattern{}
		for i := 0; i < len(texts); i += 2 {
			p, err := tko.ParsePattern(texts[i+1])
			if err != nil {
				t.Fatal(err)
			}
			m[texts[i]] = p
		}
		return m
	}
	matches := func(values map[string]string, wanted map[string]tko.Pattern) bool {
		for key, p := range wanted {
			if !p.Match(values[key]) {
				return false
			}
		}
		return true
	}
	for name, wanted := range map[string]map[string]tko.Pattern{
		"a third":           patterns("serial", "*5*"),
		"a third of a half": patterns("serial", "*5*", "half", "1"),
		"few":               patterns("serial", "*55*5"),
		"none, of many":     patterns("serial", "*", "half", "2"),
	} {
		for _, id := range []string{"", "*77"} { // matches are few: other ways are looked for
			var ids []tko.Pattern
			if id != "" {
				ids = []tko.Pattern{patterns("", id)[""]}
			}
			admits := func(rec string) bool { return len(ids) == 0 || ids[0].Match(rec) }
			var wantSites, wantDeployments []string
			for i := range sites {
				if rec := fmt.Sprintf("s%05d", i); admits(rec) && matches(metadata[i], wanted) {
					wantSites = append(wantSites, rec)
				}
			}
			for i := range deployments {
				if rec := fmt.Sprintf("d%05d", i); admits(rec) && matches(metadata[at[i]], wanted) {
					wantDeployments = append(wantDeployments, rec)
				}
			}
			for _, test := range []struct {
				query record.Query
				want  []string
			}{
				{record.Query{Kind: tko.KindSite, IDs: ids, Metadata: wanted}, wantSites},
				{record.Query{Kind: tko.KindDeployment, IDs: ids, SiteMetadata: wanted}, wantDeployments},
			} {
				for _, page := range []struct{ skip, limit int }{{0, -1}, {len(test.want) / 2, 10}} {
					q := test.query
					q.Scope, q.Offset, q.Limit = access.ScopeAll, uint32(page.skip), page.limit
					want := test.want[page.skip:]
					if page.limit >= 0 {
						want = want[:min(len(want), page.limit)]
					}
					var got []string
					for r, err := range s.List(t.Context(), q) {
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, r.ID)
					}
					if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
						t.Errorf("%s (IDs %q), %ss from %d (-want +got):\n%s", name, id, q.Kind, page.skip, diff)
					}
				}
			}
		}
	}
}
