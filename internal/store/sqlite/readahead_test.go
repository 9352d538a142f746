package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// manySites opens a store with so many sites that lists read them in several chunks.
func manySites(t *testing.T) *relational.Store {
	t.Helper()
	s, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	var writes []record.Write
	for i := range 5000 {
		writes = append(writes, record.Write{Op: tko.OpWritten, Expect: record.Absent, Record: record.Record{
			Key: record.Key{Kind: tko.KindSite, ID: fmt.Sprintf("s%05d", i)}, UID: strconv.Itoa(i), Metadata: &record.Metadata{},
		}})
	}
	if _, err := s.Commit(t.Context(), record.Ungated(writes...)); err != nil {
		t.Fatal(err)
	}
	return s
}

var allSites = record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: -1}

// While the caller reads rows, the next chunk is read, but not more.
func TestListReadsOneChunkAhead(t *testing.T) {
	t.Parallel()
	s := manySites(t)
	var read atomic.Int64
	ctx := relational.WithStatementHook(t.Context(), func(sqldb.Tx, sqldb.Statement) error {
		read.Add(1)
		return nil
	})
	// Numbers of chunks by their first row: each is four times the size of the one
	// before, up to 1,000.
	begins := map[int]int64{0: 1, 32: 2, 160: 3, 672: 4, 1672: 5, 2672: 6, 3672: 7, 4672: 8}
	n, chunk := 0, int64(0)
	for r, err := range s.List(ctx, allSites) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("s%05d", n); r.ID != want {
			t.Fatalf("row %d is %q, want %q", n, r.ID, want)
		}
		if begin, ok := begins[n]; ok {
			chunk = begin
			if chunk > 1 && chunk < 8 {
				eventually.True(t, fmt.Sprintf("at row %d, a chunk is read ahead", n), func() bool { return read.Load() >= chunk+1 })
			}
		}
		if ahead := read.Load() - chunk; ahead > 1 {
			t.Fatalf("at row %d, %d chunks were read ahead, want one at most", n, ahead)
		}
		n++
	}
	if n != 5000 {
		t.Errorf("the list has %d rows, want 5000", n)
	}
}

// A caller that stops early leaves no goroutine or connection behind. The test is not
// parallel, because it inspects the goroutines of the process.
func TestListsThatEndEarlyLeaveNoReader(t *testing.T) {
	s := manySites(t)
	for i := range 20 { // more than there are connections
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		for _, err := range s.List(ctx, allSites) {
			n++
			if n == 40+i {
				switch i % 3 {
				case 0:
					cancel() // and read on until the list notices
				case 1:
					func() { // a caller whose loop panics
						defer func() { _ = recover() }()
						for range s.List(ctx, allSites) {
							n++
							if n > 500 {
								panic("of the caller")
							}
						}
					}()
				}
			}
			if err != nil || n > 100 && i%3 != 0 {
				break
			}
		}
		if n >= 5000 {
			t.Errorf("a list that was ended early went on to row %d", n)
		}
		cancel()
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if bytes.Contains(stacks, []byte("relational.(*lister)")) {
		t.Errorf("a list still reads:\n%s", stacks)
	}
}
