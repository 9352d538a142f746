package catalog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A deafStore doesn't signal changes while it is deaf, as one that lost its connection
// to the database.
type deafStore struct {
	record.Store

	deaf atomic.Bool
}

func (s *deafStore) Signal() <-chan struct{} {
	if s.deaf.Load() {
		return nil
	}
	return s.Store.Signal()
}

// The lag grows while watchers don't get a change that is in the log, and is 0 without
// watchers and without changes.
func TestFeedLagIsTheAgeOfWhatWatchersMiss(t *testing.T) {
	t.Parallel()
	store := &deafStore{Store: openStore(t)}
	w := &world{Service: catalog.New(store, &validator{}, catalog.Options{}), t: t, ctx: t.Context(), store: store}
	lag := func() (seconds float64) {
		t.Helper()
		d, err := w.FeedLag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d.Seconds()
	}
	w.site("first", "")
	if got := lag(); got != 0 {
		t.Errorf("without watchers the lag is %g", got)
	}
	store.deaf.Store(true)
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range w.Watch(watching, 0) {
		}
	}()
	// Until the watcher waits, it reads by itself.
	eventually.True(t, "the watcher misses a change", func() bool {
		w.site("second", "")
		return lag() > 0
	})
	first := lag()
	eventually.True(t, "the lag grows", func() bool { return lag() > first })
	stop()
	<-ended
	if got := lag(); got != 0 {
		t.Errorf("after the last watcher has gone the lag is %g", got)
	}
}

// A deadStore is one whose database was killed.
type deadStore struct {
	record.Store

	dead atomic.Bool
}

var errDead = errors.New("connection refused")

func (s *deadStore) Head(ctx context.Context) (int64, error) {
	if s.dead.Load() {
		return 0, errDead
	}
	return s.Store.Head(ctx)
}

func (s *deadStore) Changes(ctx context.Context, after int64, limit int) ([]tko.Change, error) {
	if s.dead.Load() {
		return nil, errDead
	}
	return s.Store.Changes(ctx, after, limit)
}

// Without the database the lag isn't known: it isn't 0, with watchers and without.
func TestFeedLagIsUnknownWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	store := &deadStore{Store: openStore(t)}
	w := &world{Service: catalog.New(store, &validator{}, catalog.Options{}), t: t, ctx: t.Context(), store: store}
	w.site("first", "")
	if got, err := w.FeedLag(t.Context()); err != nil || got != 0 {
		t.Errorf("got %s, %v", got, err)
	}
	store.dead.Store(true)
	if got, err := w.FeedLag(t.Context()); !errors.Is(err, errDead) {
		t.Errorf("without watchers: got %s, %v, want that it isn't known", got, err)
	}
}

// Refusals are counted also if they are not audited.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	var verb, kind, decision string
	count := 0
	s := catalog.New(openStore(t), &validator{}, catalog.Options{Access: rights.Enforce, Refused: func(v, k, d string) {
		verb, kind, decision = v, k, d
		count++
	}})
	ctx := identity.With(t.Context(), identity.Identity{Subject: "cert:ann"})
	if _, err := s.RegisterSite(ctx, tko.Site{ID: "lagos"}); err == nil {
		t.Fatal("ann may register sites")
	}
	if count != 1 || kind != "site" || decision != audit.Refuse || verb == "" {
		t.Errorf("counted %d refusals, the last %s %s %s", count, verb, kind, decision)
	}
}
