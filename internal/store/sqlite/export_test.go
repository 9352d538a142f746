package sqlite

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// OpenSmall opens a store whose file is limited to a number of pages: when they are
// used, the disk is full.
func OpenSmall(ctx context.Context, path string, pages int) (*relational.Store, error) {
	return Open(ctx, path, Options{maxPages: pages})
}

// SetClock sets how far the clock of all databases is ahead.
func SetClock(ahead time.Duration) { clockAhead.Store(int64(ahead)) }

// CreateMigrated creates a file as which stores in memory begin.
func CreateMigrated(ctx context.Context, path string) error { return migrated.create(ctx, path) }
