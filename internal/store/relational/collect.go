package relational

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/retention"
)

// Collect removes the changes, contents and tokens that need not be retained.
func (s *Store) Collect(ctx context.Context, keep record.Retention) (record.Collected, error) {
	done, err := retention.Collect(ctx, retention.Store{
		Records: s, Dialect: &s.dialect, Run: s.run, Write: s.write,
		LockHead: func() Statement { return s.lockHead(new(head), new(time.Time)) },
	}, keep)
	return done, fault("remove expired history", err)
}
