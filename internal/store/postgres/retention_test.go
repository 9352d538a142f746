package postgres_test

import (
	"testing"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

func TestCollectionKeepsContentWrittenMeanwhile(t *testing.T) {
	dsn := pgtest.DSN(t)
	storetest.CollectWhileWriting(t, func(t *testing.T) record.Store { return open(t, dsn) })
}
