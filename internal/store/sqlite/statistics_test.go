package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

func TestStatisticsCountItemsAndCallsOfTheStore(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "tko.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	storetest.Statistics(t, s)
}
