package spanner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/spanner"
	"github.com/tko-orchestrator/tko/internal/store/spanner/spannertest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/soak"
)

func TestMain(m *testing.M) { os.Exit(spannertest.Main(m)) }

func open(t *testing.T) record.Store {
	t.Helper()
	return openAt(t, spannertest.Database(t))
}

func openAt(t *testing.T, database string) *spanner.Store {
	t.Helper()
	s, err := spanner.Open(t.Context(), "spanner:"+database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStoreKeepsThePromisesOfItsPart(t *testing.T) {
	storetest.RunPart(t, open, slices.DeleteFunc(slices.Clone(promised), func(name string) bool { return slices.Contains(slow, name) }), slow...)
}

// make soak runs all of them.
func TestStoreKeepsItsSlowPromises(t *testing.T) {
	n := soak.Rounds(t, 2, len(slow))
	others := slices.DeleteFunc(slices.Clone(promised), func(name string) bool { return slices.Contains(slow[:n], name) })
	storetest.RunPart(t, open, slow[:n], others...)
}

func site(id string, expect int64) record.Write {
	return record.Write{Op: tko.OpWritten, Expect: expect, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: id}, UID: "uid of " + id}}
}

// acceptAll is a validator.
type acceptAll struct{}

func (acceptAll) Validate(context.Context, tko.Validation) error { return nil }

func TestRegisteredSiteIsListedAndWatched(t *testing.T) {
	t.Parallel()
	database := spannertest.Database(t)
	writer, reader := openAt(t, database), openAt(t, database)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	defer cancel()
	service := catalog.New(writer, acceptAll{}, catalog.Options{})
	other := catalog.New(reader, acceptAll{}, catalog.Options{})
	pkg, err := krm.Decode(krm.YAML, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan tko.Change, 10)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for c, err := range other.Watch(ctx, 0) {
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			changes <- c
		}
	}()
	if _, err := service.RegisterSite(ctx, tko.Site{ID: "lagos", Package: pkg, Metadata: map[string]string{"region": "west"}}); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-changes:
		if c.Kind != tko.KindSite || c.ID != "lagos" || c.Revision != 1 || c.Position <= 1<<53 {
			t.Errorf("the change is %+v, want revision 1 of the site lagos, at a position beyond 2^53", c)
		}
	case <-ctx.Done():
		t.Fatal("a watcher at another store didn't get the change")
	}
	var listed []tko.SiteID
	for s, err := range other.Sites(ctx, tko.SiteSelect{Metadata: map[string]string{"region": "w*"}}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, s.ID)
	}
	if !slices.Equal(listed, []tko.SiteID{"lagos"}) {
		t.Errorf("listed: %q", listed)
	}
	cancel()
	<-watched
}

func TestCommitSignalsReadersOfOtherStores(t *testing.T) {
	t.Parallel()
	database := spannertest.Database(t)
	writer, reader := openAt(t, database), openAt(t, database)
	signal := reader.Signal()
	if _, err := writer.Commit(t.Context(), record.Ungated(site("s", record.Absent))); err != nil {
		t.Fatal(err)
	}
	select {
	case <-signal:
	case <-time.After(eventually.Limit):
		t.Fatal("no signal")
	}
}

func TestSettingThatNamesNoDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"spanner:", "spanner:db", "projects/p/instances/i/databases/d", "spanner:projects/p/instances/i/databases/"} {
		if _, err := spanner.Open(t.Context(), setting); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%q: %v", setting, err)
		}
	}
}

func TestTwoStoresCreateTheSchemaAtOnce(t *testing.T) {
	t.Parallel()
	database := spannertest.Database(t)
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			s, err := spanner.Open(t.Context(), "spanner:"+database)
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// The emulator takes more mutations than Spanner does: the store counts them.
func TestCommitAtTheLimitOfMutations(t *testing.T) {
	t.Parallel()
	s := open(t)
	const each = 9 + 10 + 10 // columns of the tables change, entity and revision
	const once = 4           // of the number of changes
	most := (spanner.MaxMutations - once) / each
	writes := func(n int) []record.Write {
		list := make([]record.Write, n)
		for i := range list {
			list[i] = site(fmt.Sprintf("s%05d", i), record.Absent)
			list[i].Record.Kind = tko.KindTemplate // which causes no work
		}
		return list
	}
	if _, err := s.Commit(t.Context(), record.Ungated(writes(most+1)...)); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "mutations") {
		t.Errorf("one more than the limit: %v", err)
	}
	if head, err := s.Head(t.Context()); head != 0 || err != nil {
		t.Errorf("the refused commit wrote a change: %d, %v", head, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	outcomes, err := s.Commit(ctx, record.Ungated(writes(most)...))
	if err != nil || len(outcomes) != most {
		t.Fatalf("at the limit: %d outcomes, %v", len(outcomes), err)
	}
	for i := 1; i < most; i++ {
		if outcomes[i].Position <= outcomes[i-1].Position {
			t.Fatalf("position %d follows %d", outcomes[i].Position, outcomes[i-1].Position)
		}
	}
}
