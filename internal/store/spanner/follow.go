package spanner

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	followInterval = time.Second
	followLease    = 10 * time.Second
)

// follow does regularly what follows commits: it numbers audit records, and adds up the numbers of entities. One of the stores on a
// database has the lease to do so. Readers don't depend on it, so its errors are theirs.
func (s *Store) follow(ctx context.Context) {
	holder := strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // distinct
	for pause.For(ctx, followInterval) == nil {
		if needed, err := s.behind(ctx); err != nil || !needed {
			continue
		}
		if held, err := s.lease(ctx, "follower", holder, followLease); err == nil && held {
			_ = s.seal(ctx)
			_ = s.addUp(ctx)
		}
	}
}

// behind reports whether there is something to do.
func (s *Store) behind(ctx context.Context) (bool, error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	end, err := readChainEnd(ctx, snapshot, auditHead)
	if err != nil {
		return false, err
	}
	records, err := readPending(ctx, snapshot, end.committed)
	if err != nil || len(records) > 0 {
		return true, err
	}
	numbers, err := readPendingTally(ctx, snapshot)
	return len(numbers) > 0, err
}
