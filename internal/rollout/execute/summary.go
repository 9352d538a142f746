package execute

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// A Summary counts rows.
type Summary struct {
	Waves    []Count // by wave
	Total    Count
	Failures int // rows that failed and weren't waived, also if they became healthy late
	Failing  int // rows that are unhealthy and didn't fail yet; only those that were observed
}

// A Count counts rows by progress.
type Count struct {
	Rows int
	By   map[Progress]int
}

// Summarize counts rows.
func Summarize(rows []Row) Summary {
	s := Summary{Total: Count{By: map[Progress]int{}}}
	equal := 0 // rows before the present one that are equal to it; most neighbours are
	for i := range rows {
		row := &rows[i]
		if row.Wave < 0 {
			continue
		}
		if row.Counted {
			s.Failures++
		}
		if row.Failing {
			s.Failing++
		}
		equal++
		if i+1 < len(rows) && rows[i+1].Wave == row.Wave && rows[i+1].Progress == row.Progress {
			continue
		}
		for len(s.Waves) <= row.Wave {
			s.Waves = append(s.Waves, Count{By: map[Progress]int{}})
		}
		for _, c := range []*Count{&s.Waves[row.Wave], &s.Total} {
			c.Rows += equal
			c.By[row.Progress] += equal
		}
		equal = 0
	}
	return s
}

// InFlight returns the number of rows that are changed and not yet healthy.
func (c Count) InFlight() int { return c.By[Applied] + c.By[Soaking] + c.By[Failed] }

// Applied returns the number of rows that were applied.
func (c Count) Applied() int { return c.Rows - c.By[Waiting] - c.By[Stale] - c.By[Skipped] }

// Without returns the summary as if there were no rows with a progress.
func (s Summary) Without(p Progress) Summary {
	drop := func(c Count) Count {
		c.Rows -= c.By[p]
		c.By = maps.Clone(c.By)
		delete(c.By, p)
		return c
	}
	s.Total, s.Waves = drop(s.Total), slices.Clone(s.Waves)
	for i := range s.Waves {
		s.Waves[i] = drop(s.Waves[i])
	}
	return s
}

func (c Count) ended() bool {
	for p, n := range c.By {
		if n > 0 && !p.Ended() {
			return false
		}
	}
	return true
}

// nothingHealthy reports whether all rows that were applied were unhealthy before, and
// still are.
func (c Count) nothingHealthy() bool {
	return c.By[AsBefore] > 0 && c.By[Healthy] == 0 && c.By[Failed] == 0 && c.By[Waived] == 0 && c.By[Superseded] == 0
}

// String returns, for example, "98 Healthy, 2 Failed".
func (c Count) String() string {
	parts := make([]string, 0, len(c.By))
	for _, p := range slices.SortedFunc(maps.Keys(c.By), func(a, b Progress) int {
		return cmp.Or(cmp.Compare(c.By[b], c.By[a]), cmp.Compare(a, b))
	}) {
		if c.By[p] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.By[p], p))
		}
	}
	if len(parts) == 0 {
		return "no deployments"
	}
	return strings.Join(parts, ", ")
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// first returns the entry of a map with the smallest key.
func first[K cmp.Ordered, V any](m map[K]V) (key K, value V, ok bool) {
	if len(m) == 0 {
		return key, value, false
	}
	key = slices.Min(slices.Collect(maps.Keys(m)))
	return key, m[key], true
}

// sortUndo sorts applied rows into the order in which they are undone.
func sortUndo(rows []Row) {
	flag := func(b bool) int { return map[bool]int{true: 1}[b] }
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(b.Wave, a.Wave),
			cmp.Compare(flag(a.Kind == plan.Create), flag(b.Kind == plan.Create)),
			cmp.Compare(flag(b.Progress == Failed), flag(a.Progress == Failed)),
			cmp.Compare(b.Rank, a.Rank),
		)
	})
}
