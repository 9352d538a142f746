package selection

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// letters are the texts of random IDs: ends of the planes of Unicode are ends of ranges.
var letters = []string{"a", "b", "/", ":", "\x7f", "é", "\ud7ff", "\ue000", "\uffff", "\U0010ffff"}

func randomText(random *rand.Rand, most int) string {
	var b strings.Builder
	for range random.IntN(most + 1) {
		b.WriteString(letters[random.IntN(len(letters))])
	}
	return b.String()
}

// The texts that start with a prefix are exactly those from it to its end, in the order of
// the databases: that of bytes.
func TestRangeOfPrefixHasExactlyTheTextsThatStartWithIt(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		prefix, text := randomText(random, 3), randomText(random, 5)
		if random.IntN(2) == 0 {
			text = prefix + text
		}
		end := prefixEnd(prefix)
		within := text >= prefix && (end == "" || text < end)
		if within != strings.HasPrefix(text, prefix) || !utf8.ValidString(end) {
			t.Fatalf("%q is in the range of %q, which ends before %q: %t", text, prefix, end, within)
		}
	}
}

func (b bound) admits(id string, above bool) bool {
	switch {
	case !b.set:
		return true
	case id == b.id:
		return b.inclusive
	default:
		return (id > b.id) == above
	}
}

// Of two bounds, the narrower one limits to the IDs that both admit.
func TestNarrowerBoundAdmitsWhatBothAdmit(t *testing.T) {
	t.Parallel()
	var all []bound
	for _, set := range []bool{false, true} {
		for _, inclusive := range []bool{false, true} {
			for _, id := range []string{"", "b", "d"} {
				all = append(all, bound{id, inclusive, set})
			}
		}
	}
	for _, a := range all {
		for _, b := range all {
			for _, id := range []string{"", "a", "b", "c", "d", "e"} {
				if got, want := a.greater(b).admits(id, true), a.admits(id, true) && b.admits(id, true); got != want {
					t.Errorf("above %+v and %+v: %q is admitted: %t", a, b, id, got)
				}
				if got, want := a.less(b).admits(id, false), a.admits(id, false) && b.admits(id, false); got != want {
					t.Errorf("below %+v and %+v: %q is admitted: %t", a, b, id, got)
				}
			}
		}
	}
}

// The range that a list reads has all IDs that match all patterns. Where no pattern is
// left for the database to check, it has no other.
func TestRangeOfPatternsHasAllMatches(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	narrow, empty := 0, 0
	for range 20_000 {
		p := &Plan{query: &record.Query{Kind: tko.KindSite}}
		var patterns []tko.Pattern
		for range 1 + random.IntN(3) {
			text := randomText(random, 2) + []string{"", "*", "**", "*a", "?b"}[random.IntN(5)]
			pattern, err := tko.ParsePattern(text)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			patterns = append(patterns, pattern)
			p.matchID(pattern)
		}
		for range 4 {
			id := randomText(random, 3)
			if random.IntN(2) == 0 {
				id = patterns[0].Prefix() + id
			}
			matches := !slices.ContainsFunc(patterns, func(pattern tko.Pattern) bool { return !pattern.Match(id) })
			within := p.low.admits(id, true) && p.high.admits(id, false)
			switch {
			case matches && !within:
				t.Fatalf("%q matches %v, and is outside of %+v to %+v", id, patterns, p.low, p.high)
			case within && !matches && len(p.filters) == 0:
				t.Fatalf("%q is within %+v to %+v, and doesn't match %v", id, p.low, p.high, patterns)
			case !within:
				empty++
			case matches:
				narrow++
			}
		}
	}
	if narrow < 1000 || empty < 1000 {
		t.Errorf("%d matches and %d others were compared", narrow, empty)
	}
}

// A plan's own matchers, for values that the database can't check, match as patterns do.
func TestMatchersMatchAsPatterns(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	matched := 0
	for range 20_000 {
		pattern, err := tko.ParsePattern(randomText(random, 2) + []string{"", "*", "**", "*a", "?", "**b"}[random.IntN(6)])
		if err != nil {
			t.Fatal(err)
		}
		text := randomText(random, 3) + []string{"", "\n", "b\n", "."}[random.IntN(4)]
		if random.IntN(2) == 0 {
			text = pattern.Prefix() + text
		}
		if got := matcher(pattern)(text); got != pattern.Match(text) {
			t.Fatalf("%q matches %q: %t", text, pattern, got)
		} else if got {
			matched++
		}
		if prefixOnly(pattern) && pattern.Match(text) != strings.HasPrefix(text, pattern.Prefix()) {
			t.Fatalf("%q is more than its prefix for %q", pattern, text)
		}
	}
	if matched < 1000 {
		t.Errorf("%d texts matched", matched)
	}
}

// The start of a value, by which the index of metadata is ordered, is a prefix of it and
// valid text, and as long as can be.
func TestStartOfValueIsItsLongestPrefix(t *testing.T) {
	t.Parallel()
	for n := range 9 {
		for _, letter := range []string{"a", "é", "€", "\U0010ffff"} {
			value := strings.Repeat("x", maxStart-4+n) + strings.Repeat(letter, 3)
			start := StartOf(value)
			if !strings.HasPrefix(value, start) || !utf8.ValidString(start) || len(start) > maxStart || len(start)+len(letter) <= min(maxStart, len(value)) {
				t.Errorf("the start of %d x and %q has %d bytes", maxStart-4+n, letter, len(start))
			}
		}
	}
	if got := StartOf("short"); got != "short" {
		t.Error(got)
	}
}

// A range that leads to the end is farther than others; of two such, the one with fewer
// IDs. Otherwise the one with the higher end.
func TestFartherRangeIsChosen(t *testing.T) {
	t.Parallel()
	far, near := idRange{end: bound{id: "m"}}, idRange{end: bound{id: "c"}}
	last, few, many := idRange{last: true}, idRange{last: true, listed: true, ids: []string{"a"}}, idRange{last: true, listed: true, ids: []string{"a", "b"}}
	order := []idRange{few, many, last, far, near} // farthest first
	for i, a := range order {
		for j, b := range order {
			if got := a.farther(&b); got != (i < j) {
				t.Errorf("%+v is farther than %+v: %t", a, b, got)
			}
		}
	}
}

// IDs that are merged from several access paths are those of all of them, in order, up to
// where all paths have been read: none is left out, and none comes twice.
func TestMergedPathsLeadToAllTheirIDsOnce(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	for round := range 500 {
		paths := &accessPaths{column: "site", texts: make([]string, 1+random.IntN(5))}
		on, all := make([][]string, paths.count()), []string{}
		for n := range random.IntN(200) {
			id := fmt.Sprintf("%04d", n)
			all = append(all, id)
			i := random.IntN(len(on))
			if random.IntN(3) == 0 {
				i = 0 // one path is longer
			}
			on[i] = append(on[i], id)
		}
		c := &Cursor{Plan: New(&sqldb.Dialect{}, &record.Query{Kind: tko.KindDeployment}, nil), size: 1 + random.IntN(30)}
		merged := &mergedPaths{paths: paths, read: make([]pathIDs, paths.count())}
		var got []string
		for rounds := 0; ; rounds++ {
			merged.probe(c, nil)
			for i := range merged.read { // as the statements of the probe do, in any order
				if k := &merged.read[i]; k.fresh {
					rest := slices.DeleteFunc(slices.Clone(on[i]), func(id string) bool { return !c.after.admits(id, true) })
					k.ids = rest[:min(len(rest), k.asked)]
					random.Shuffle(len(k.ids), func(a, b int) { k.ids[a], k.ids[b] = k.ids[b], k.ids[a] })
				}
			}
			r := merged.idRange()
			got = append(got, r.ids...)
			if r.last {
				break
			}
			if rounds > len(all) || r.end.id <= c.after.id {
				t.Fatalf("round %d: the range after %q ends at %q", round, c.after.id, r.end.id)
			}
			c.after = bound{id: r.end.id, set: true}
		}
		if !slices.Equal(got, all) {
			t.Fatalf("round %d: IDs %v, want %v", round, got, all)
		}
	}
}
