package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// manySites opens a store with as many sites as are read in several parts.
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
	var writes []catalog.Write
	for i := range 5000 {
		writes = append(writes, catalog.Write{Op: tko.OpWritten, Expect: catalog.Absent, Record: catalog.Record{
			Key: catalog.Key{Kind: tko.KindSite, ID: fmt.Sprintf("s%05d", i)}, UID: strconv.Itoa(i), Metadata: &catalog.Metadata{},
		}})
	}
	if _, err := s.Commit(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	return s
}

var allSites = catalog.Query{Kind: tko.KindSite, Limit: -1}

// While rows are taken, the next ones are read, but no more than those.
func TestListsReadAhead(t *testing.T) {
	t.Parallel()
	s := manySites(t)
	var read atomic.Int64
	ctx := relational.WithStatementHook(t.Context(), func(relational.Tx, relational.Statement) error {
		read.Add(1)
		return nil
	})
	// Where the parts begin: each is four times the one before, up to 1,000.
	begins := map[int]int64{0: 1, 32: 2, 160: 3, 672: 4, 1672: 5, 2672: 6, 3672: 7, 4672: 8}
	n, part := 0, int64(0)
	for r, err := range s.List(ctx, allSites) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("s%05d", n); r.ID != want {
			t.Fatalf("row %d is %q, want %q", n, r.ID, want)
		}
		if begin, ok := begins[n]; ok {
			part = begin
			for deadline := time.Now().Add(time.Minute); part > 1 && part < 8 && read.Load() < part+1; {
				if time.Now().After(deadline) {
					t.Fatalf("at row %d, %d parts were read: none ahead", n, read.Load())
				}
				time.Sleep(time.Millisecond)
			}
		}
		if ahead := read.Load() - part; ahead > 1 {
			t.Fatalf("at row %d, %d parts were read ahead", n, ahead)
		}
		n++
	}
	if n != 5000 {
		t.Errorf("%d rows", n)
	}
}

// A caller who goes in the middle leaves nothing behind. This test is alone in
// its process while it runs, as tests are that don't call Parallel.
func TestListsThatEndEarlyLeaveNothing(t *testing.T) {
	s := manySites(t)
	for i := range 20 { // more than there are connections
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		for _, err := range s.List(ctx, allSites) {
			if n++; n == 40+i {
				switch i % 3 {
				case 0:
					cancel() // and take more, until it is noticed
				case 1:
					func() { // a caller whose loop fails
						defer func() { _ = recover() }()
						for range s.List(ctx, allSites) {
							if n++; n > 500 {
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
			t.Errorf("a list that was canceled went on to row %d", n)
		}
		cancel()
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if bytes.Contains(stacks, []byte("relational.(*lister)")) {
		t.Errorf("somebody still reads:\n%s", stacks)
	}
}
