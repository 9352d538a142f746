package plan_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// sited returns candidates, one at a site of each region; "" is a site without a region.
func sited(regions ...string) []plan.Candidate {
	list := make([]plan.Candidate, len(regions))
	for i, region := range regions {
		list[i].Key = fmt.Sprint("d", i)
		if region != "" {
			list[i].Site = map[string]string{"region": region}
		}
	}
	return list
}

// sizes returns the number of candidates in each wave.
func sizes(waves int, places []plan.Place) []int {
	counts := make([]int, waves)
	for _, p := range places {
		counts[p.Wave]++
	}
	return counts
}

// A wave takes its count, or its percentage of all candidates: rounded down, and at least
// one; never more than are left. The last one takes the rest.
func TestWavesHaveTheirSizes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		waves []spec.Wave
		n     int
		want  []int
	}{
		"nothing":                          {[]spec.Wave{{Count: 1}, {Percent: 10}, {}}, 0, []int{0, 0, 0}},
		"one wave":                         {[]spec.Wave{{}}, 5, []int{5}},
		"count":                            {[]spec.Wave{{Count: 2}, {}}, 5, []int{2, 3}},
		"the count is all":                 {[]spec.Wave{{Count: 5}, {}}, 5, []int{5, 0}},
		"more than all":                    {[]spec.Wave{{Count: 6}, {}}, 5, []int{5, 0}},
		"nothing is left for a percentage": {[]spec.Wave{{Count: 5}, {Percent: 50}, {}}, 5, []int{5, 0, 0}},
		"rounded down":                     {[]spec.Wave{{Percent: 50}, {}}, 5, []int{2, 3}},
		"at least one":                     {[]spec.Wave{{Percent: 1}, {}}, 5, []int{1, 4}},
		"a part of a percent":              {[]spec.Wave{{Percent: 0.5}, {}}, 400, []int{2, 398}},
		"of all, not of the rest":          {[]spec.Wave{{Percent: 50}, {Percent: 50}, {}}, 10, []int{5, 5, 0}},
		"all in percent":                   {[]spec.Wave{{Percent: 100}, {}}, 7, []int{7, 0}},
		"more than 100 percent in sum":     {[]spec.Wave{{Percent: 80}, {Percent: 80}, {}}, 10, []int{8, 2, 0}},
		"a count takes precedence":         {[]spec.Wave{{Count: 1, Percent: 50}, {}}, 10, []int{1, 9}},
	}
	for name, test := range tests {
		equalList(t, name, test.want, sizes(len(test.waves), plan.Assign(test.waves, sited(make([]string, test.n)...))))
	}
}

func equalList[T comparable](t testing.TB, name string, want, got []T) {
	t.Helper()
	if !slices.Equal(want, got) {
		t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

// A wave that is spread takes one candidate of each value in turn: values in their order,
// sites without the metadata last.
func TestSpreadTakesValuesInTurn(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		regions []string
		want    []string // regions of the first wave in the order of ranks
	}{
		"one value":             {[]string{"a", "a", "a", "a"}, []string{"a", "a", "a"}},
		"values in order":       {[]string{"c", "b", "a", "d"}, []string{"a", "b", "c"}},
		"in turn":               {[]string{"a", "a", "a", "b", "b"}, []string{"a", "b", "a"}},
		"a value is exhausted":  {[]string{"a", "b", "b", "b", "b"}, []string{"a", "b", "b"}},
		"without metadata last": {[]string{"", "", "", "z"}, []string{"z", "", ""}},
		"none has metadata":     {[]string{"", "", "", ""}, []string{"", "", ""}},
	}
	for name, test := range tests {
		candidates := sited(test.regions...)
		got := make([]string, 3)
		for i, p := range plan.Assign([]spec.Wave{{Count: 3, Spread: "region"}, {}}, candidates) {
			if p.Wave == 0 {
				got[p.Rank] = candidates[i].Site["region"]
			}
		}
		equalList(t, name, test.want, got)
	}
}

// Whatever the waves: each candidate has one place, ranks follow the order of waves without
// gaps, no wave is larger than it may be, and a spread wave is as even as the values allow.
func TestPlacesOfAnyWaves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		regions := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 0, 40).Draw(t, "regions")
		waves := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) spec.Wave {
			w := spec.Wave{Count: rapid.IntRange(0, 9).Draw(t, "count"), Spread: rapid.SampledFrom([]string{"", "region"}).Draw(t, "spread")}
			if w.Count == 0 {
				w.Percent = float64(rapid.IntRange(1, 100).Draw(t, "percent"))
			}
			return w
		}), 0, 4).Draw(t, "waves")
		waves = append(waves, spec.Wave{})
		candidates := sited(regions...)
		places := plan.Assign(waves, candidates)
		order := make([]int, len(places))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(places[a].Rank, places[b].Rank) })
		for rank, i := range order {
			if places[i].Rank != rank {
				t.Fatalf("rank %d is given to none, or to several: %v", rank, places)
			}
			if rank > 0 && places[i].Wave < places[order[rank-1]].Wave {
				t.Fatalf("rank %d is in an earlier wave than the one before it: %v", rank, places)
			}
		}
		left := len(places)
		available := map[string]int{}
		for _, region := range regions {
			available[region]++
		}
		for n, size := range sizes(len(waves), places) {
			want := left
			switch w := waves[n]; {
			case w.Count > 0:
				want = w.Count
			case w.Percent > 0:
				want = max(1, int(w.Percent)*len(places)/100)
			}
			want = min(want, left)
			if size != want {
				t.Fatalf("wave %d of %+v has %d of %d candidates, want %d", n, waves, size, len(places), want)
			}
			left -= size
			took := map[string]int{}
			for i, p := range places {
				if p.Wave == n {
					took[regions[i]]++
				}
			}
			for a := range available {
				for b := range available {
					if waves[n].Spread != "" && took[a] > took[b]+1 && took[b] < available[b] {
						t.Fatalf("wave %d takes %v of %v", n, took, available)
					}
				}
			}
			for region := range available {
				available[region] -= took[region]
			}
		}
	})
}

// A digest is named by 12 to 64 of its first hexadecimal digits, in any case, and by no
// others.
func TestDigestsAreNamedByTheirBeginning(t *testing.T) {
	t.Parallel()
	d := plan.Digest{0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8}
	full := d.String()
	for text, ok := range map[string]bool{
		full: true, full[:12]: true, full[:13]: true, strings.ToUpper(full): true, "sha256:" + full: true,
		"": false, full[:11]: false, "sha256:" + full[:11]: false, full + "0": false, full[:12] + "g": false, " " + full: false, "md5:" + full: false,
	} {
		named, err := plan.ParseDigest(text)
		if (err == nil) != ok || err != nil && !errors.Is(err, tko.ErrInvalid) || ok && !d.Matches(named) {
			t.Errorf("%q: %q, %v", text, named, err)
		}
		if other := (plan.Digest{0xab, 0xcd, 0xef, 1, 2, 4}); ok && other.Matches(named) {
			t.Errorf("%q names another digest, too", text)
		}
	}
}

// Texts of different lengths, lists and rows don't run together in the digest.
func TestDigestsTellListsApart(t *testing.T) {
	t.Parallel()
	seen := map[plan.Digest]string{}
	for what, row := range map[string]plan.Row{
		"none": {}, "ab": {Findings: []string{"ab"}}, "a, b": {Findings: []string{"a", "b"}}, "ab, empty": {Findings: []string{"ab", ""}},
		"unknown ab": {Unknown: []string{"ab"}}, "a, unknown b": {Findings: []string{"a"}, Unknown: []string{"b"}},
		"ID and UID": {Deployment: "ab", UID: "c"}, "ID and UID, cut otherwise": {Deployment: "a", UID: "bc"},
		"edit": {Edits: []uint8{0}}, "edits": {Edits: []uint8{0, 0}}, "root": {Root: "\x00"},
	} {
		p := &fleetPlan{Rows: []plan.Row{row}}
		if other, is := seen[p.Digest()]; is {
			t.Errorf("%s and %s have the same digest", what, other)
		}
		seen[p.Digest()] = what
	}
}

// The digest of a state covers all that is stored of it.
func TestStateDigestCoversTheState(t *testing.T) {
	t.Parallel()
	is := tko.Deployment{ID: "d", Template: "t", Site: "s", Parent: "p", TemplateRevision: 1, Metadata: map[string]string{"a": "1", "b": "2"}}
	content := [32]byte{1}
	want := plan.StateDigest(content, is)
	if again := is; plan.StateDigest(content, again) != want {
		t.Error("the digest isn't stable")
	}
	seen := map[plan.Digest]string{want: "the state itself", plan.StateDigest([32]byte{2}, is): "another content"}
	for what, change := range map[string]func(*tko.Deployment){
		"no template": func(d *tko.Deployment) { d.Template = "" }, "no site": func(d *tko.Deployment) { d.Site = "" }, "no parent": func(d *tko.Deployment) { d.Parent = "" },
		"template revision": func(d *tko.Deployment) { d.TemplateRevision++ }, "prepared": func(d *tko.Deployment) { d.Prepared = true }, "approved": func(d *tko.Deployment) { d.Approved = true },
		"both":     func(d *tko.Deployment) { d.Prepared, d.Approved = true, true },
		"value":    func(d *tko.Deployment) { d.Metadata = map[string]string{"a": "1", "b": "3"} },
		"key":      func(d *tko.Deployment) { d.Metadata = map[string]string{"a": "1", "c": "2"} },
		"fewer":    func(d *tko.Deployment) { d.Metadata = map[string]string{"a": "1"} },
		"swapped":  func(d *tko.Deployment) { d.Template, d.Site = d.Template+"s", "" },
		"exchange": func(d *tko.Deployment) { d.Metadata = map[string]string{"a": "2", "b": "1"} },
	} {
		d := is
		change(&d)
		digest := plan.StateDigest(content, d)
		if other, known := seen[digest]; known {
			t.Errorf("%s and %s have the same digest", what, other)
		}
		seen[digest] = what
	}
}

// Whatever rows are grouped: each is in the group that Add and Finish name, of its kind, the
// counts are those of the rows, and the examples are the first ones. Groups that delete,
// create or block come first, then the largest.
func TestGroupsOfAnyRows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		variety := rapid.SampledFrom([]int{1, 5, 49, 50, 51, 300}).Draw(t, "variety")
		n := rapid.IntRange(0, 2*variety).Draw(t, "rows")
		g := plan.NewGrouper(nil, []byte("key"))
		kinds := []plan.Kind{plan.Same, plan.Change, plan.Create, plan.Delete, plan.Conflict, plan.Invalid}
		rows, at := make([]plan.Row, n), make([]int, n)
		for i := range rows {
			content := rapid.IntRange(0, variety-1).Draw(t, "content")
			rows[i] = plan.Row{Deployment: tko.DeploymentID(fmt.Sprintf("d%04d", i)), Kind: kinds[content%len(kinds)]}
			at[i] = g.Add(rows[i], image("", "1"), image("", fmt.Sprint("v", content)), nil)
		}
		groups, index := g.Finish()
		counts := make([]int, len(groups))
		examples := make([][]tko.DeploymentID, len(groups))
		for i, row := range rows {
			to := index[at[i]]
			counts[to]++
			if len(examples[to]) < 3 {
				examples[to] = append(examples[to], row.Deployment)
			}
			if groups[to].Kind != row.Kind {
				t.Fatalf("row %d of the kind %s is in a group of the kind %s", i, row.Kind, groups[to].Kind)
			}
		}
		urgency := []plan.Kind{plan.Delete, plan.Create, plan.Conflict, plan.Invalid, plan.Change, plan.Same}
		for i, group := range groups {
			if group.Count != counts[i] || !slices.Equal(group.Examples, examples[i]) {
				t.Fatalf("group %d counts %d, with %v; want %d, with %v", i, group.Count, group.Examples, counts[i], examples[i])
			}
			if i == 0 {
				continue
			}
			before := groups[i-1]
			if d := slices.Index(urgency, before.Kind) - slices.Index(urgency, group.Kind); d > 0 || d == 0 && before.Count < group.Count {
				t.Fatalf("a group of %d %s comes before one of %d %s", before.Count, before.Kind, group.Count, group.Kind)
			}
		}
		if len(groups) > 200+len(kinds) {
			t.Fatalf("there are %d groups", len(groups))
		}
	})
}

// Up to 50 different changes are groups of their own, with what changes. With one more, the
// groups are coarse.
func TestFiftyDifferentChangesAreGroups(t *testing.T) {
	t.Parallel()
	for n, coarse := range map[int]bool{49: false, 50: false, 51: true} {
		g := plan.NewGrouper(nil, []byte("key"))
		for i := range n {
			g.Add(plan.Row{Deployment: tko.DeploymentID(strconv.Itoa(i)), Kind: plan.Change}, image("", "1"), image("", fmt.Sprint("v", i)), nil)
		}
		groups, _ := g.Finish()
		if want := map[bool]int{false: n, true: 1}[coarse]; len(groups) != want {
			t.Errorf("%d changes are %d groups, want %d", n, len(groups), want)
		}
		for _, group := range groups {
			if group.Coarse != coarse || len(group.Changes) != 1 || group.Kind != plan.Change {
				t.Errorf("%d changes: a group is %+v", n, group)
			}
		}
	}
}

// Beyond 200 coarse groups, the rows of each kind share one: deletions aren't among changes.
func TestFurtherRowsShareAGroupOfTheirKind(t *testing.T) {
	t.Parallel()
	g := plan.NewGrouper(nil, []byte("key"))
	var at []int
	kinds := []plan.Kind{plan.Change, plan.Delete, plan.Create}
	for i := range 300 {
		field := func(value string) krm.Package {
			return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{fmt.Sprint("k", i): value}}}
		}
		at = append(at, g.Add(plan.Row{Deployment: tko.DeploymentID(strconv.Itoa(i)), Kind: kinds[i%3]}, field("1"), field("2"), nil))
	}
	groups, index := g.Finish()
	if len(groups) < 200 || len(groups) > 203 {
		t.Errorf("there are %d groups", len(groups))
	}
	for i := range 300 {
		if kind := groups[index[at[i]]].Kind; kind != kinds[i%3] {
			t.Fatalf("row %d, a %s, is in a group of the kind %s", i, kinds[i%3], kind)
		}
	}
}
