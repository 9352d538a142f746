package sqlite_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

func TestCommitWithoutWorkDoesNotWakeWorkers(t *testing.T) {
	t.Parallel()
	store := memory(t)
	register := func(id string, untriggered bool) {
		t.Helper()
		_, err := store.Commit(t.Context(), record.Ungated(record.Write{
			Op: tko.OpWritten, Expect: record.Absent,
			Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: id}, UID: "uid of " + id, Untriggered: untriggered},
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		why         string
		untriggered bool
		want        bool
	}{
		{"nothing is scheduled at the site", true, false},
		{"something may be scheduled at it", false, true},
	}
	for _, test := range tests {
		workers, watchers, others := store.WorkSignal(tko.QueueSchedule), store.Signal(), store.WorkSignal(tko.QueueGitOps)
		register("site of "+test.why, test.untriggered)
		if !isClosed(watchers) {
			t.Errorf("%s: the commit didn't signal watchers", test.why)
		}
		if got := isClosed(workers); got != test.want {
			t.Errorf("%s: the workers of sites were woken: %t, want %t", test.why, got, test.want)
		}
		if isClosed(others) {
			t.Errorf("%s: the workers of another queue were woken", test.why)
		}
	}
}

func isClosed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}
