// Package prune limits removals: one that exceeds a budget needs an approval, by a key
// that identifies just this removal.
package prune

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/tko-orchestrator/tko"
)

// A Budget is the largest removal without an approval. The zero value allows none.
type Budget struct {
	Count   int
	Percent int // of all that TKO manages at the place; 100 is no limit
}

// The budgets where none is set.
var (
	// Default is for the entities of repositories, and for what is at sites.
	Default = Budget{Count: 20, Percent: 50}
	// Careful is for inventories that others keep.
	Careful = Budget{Count: 20, Percent: 5}
	// Instances is for the network services of repositories: each removal ends a service.
	Instances = Budget{Count: 10, Percent: 20}
)

// With returns the budget with other limits where they are set.
func (b Budget) With(count, percent *int) Budget {
	if count != nil {
		b.Count = *count
	}
	if percent != nil {
		b.Percent = *percent
	}
	return b
}

// Check returns an ErrInvalid if a limit is impossible. what is counted, such as objects.
func (b Budget) Check(what string) error {
	if b.Percent < 0 || b.Percent > 100 || b.Count < 0 {
		return tko.Errorf(tko.ErrInvalid, "use 0 to 100 percent, and 0 %s or more", what)
	}
	return nil
}

// Over reports whether the removal of n of total exceeds both limits.
func (b Budget) Over(n, total int) bool { return n > b.Count && b.overPercent(n, total) }

// OverEither reports whether the removal of n of total exceeds one of the limits.
func (b Budget) OverEither(n, total int) bool { return n > b.Count || b.overPercent(n, total) }

func (b Budget) overPercent(n, total int) bool { return n*100 > b.Percent*total }

// Text returns the limits of a budget for messages. what is counted, such as objects.
func (b Budget) Text(what string) string {
	return fmt.Sprintf("more than the budget allows (%d %%, %d %s)", b.Percent, b.Count, what)
}

// Key returns the key of an approval. It changes with each of the lines, which name what
// is removed, in a fixed order.
func Key(lines []string) string {
	digest := sha256.New()
	for _, line := range lines {
		fmt.Fprintln(digest, line)
	}
	return hex.EncodeToString(digest.Sum(nil)[:8])
}
