package sqlite

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// OpenSmall opens a store whose file has room for so many pages: beyond, the
// disk is full.
func OpenSmall(ctx context.Context, path string, pages int) (*relational.Store, error) {
	return Open(ctx, path, Options{maxPages: pages})
}

// SetClock sets the clock of all databases: it is so much ahead.
func SetClock(ahead time.Duration) { clockAhead.Store(int64(ahead)) }
