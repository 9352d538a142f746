package catalog

import (
	"context"
	"time"
)

// FeedLag returns the age of the oldest change that this server has not read for its
// watchers; 0 if it has read all, or if there is no watcher. Watchers that have not
// reached the newest change since they began are not considered.
func (s *Service) FeedLag(ctx context.Context) (time.Duration, error) {
	if s.current.Load() == 0 {
		return 0, nil
	}
	read, err := s.changes.position(ctx)
	if err != nil {
		return 0, err
	}
	missing, err := s.store.Changes(ctx, read, 1)
	if err != nil || len(missing) == 0 {
		return 0, err
	}
	return max(0, time.Since(missing[0].Time)), nil
}

// position returns the position up to which changes were read.
func (r *changeCache) position(ctx context.Context) (int64, error) {
	select {
	case <-r.mutex:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { r.mutex <- struct{}{} }()
	return max(r.start, r.head), nil
}
