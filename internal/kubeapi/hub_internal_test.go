package kubeapi

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/changelog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// A silent catalog has changes only when a test makes them. Its signal is a value instead of a
// closed channel, so that only one of those that wait for it receives it.
type silent struct {
	Catalog

	mu     sync.Mutex
	head   int64
	signal chan struct{}
	waits  int // number of calls that returned the signal
}

func (s *silent) Position(context.Context) (int64, error)            { return s.head, nil }
func (s *silent) CheckPosition(context.Context, int64) error         { return nil }
func (s *silent) Rights(context.Context) (rights.Rights, error)      { return allRights{}, nil }
func (s *silent) RevealsSecrets(context.Context, record.Record) bool { return true }

func (s *silent) Events(_ context.Context, kind tko.Kind, after int64) ([]changelog.Event, int64, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []changelog.Event
	for position := after + 1; position <= s.head; position++ {
		key := record.Key{Kind: kind, ID: "s"}
		events = append(events, changelog.Event{
			Change: tko.Change{Kind: kind, ID: key.ID, Op: tko.OpWritten, Position: position, Revision: position}, New: position == 2,
			Record: record.Record{Key: key, UID: "u", Revision: position, Position: position, Metadata: new(record.Metadata)},
		})
	}
	if len(events) == 0 {
		s.waits++
	}
	return events, s.head, s.signal, nil
}

// change makes changes.
func (s *silent) change(count int64) {
	s.mu.Lock()
	s.head += count
	s.mu.Unlock()
	s.signal <- struct{}{}
}

type allRights struct{}

func (allRights) Sees(record.Record) bool                      { return true }
func (allRights) All() bool                                    { return true }
func (allRights) Interval() (ticks <-chan time.Time, _ func()) { return nil, func() {} }
func (allRights) Still(context.Context) error                  { return nil }

// A change makes one watcher ready to run, which makes a few of the others ready, and so on: if all
// waited for the signal, a request would wait until thousands have run. Each watcher gets each
// change, also if those before it in the crowd stop.
func TestAChangeWakesOneWatcherWhichWakesTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const watchers = 500
		c := &silent{head: 1, signal: make(chan struct{})}
		kind := sites()
		s := &storage{kind: kind, catalog: c, hub: newHub(kind, c), bookmarks: time.Minute, stopping: make(chan struct{})}
		var all []watch.Interface
		defer func() {
			for _, w := range all {
				w.Stop()
			}
		}()
		for range watchers {
			w, err := s.Watch(t.Context(), &metainternalversion.ListOptions{ResourceVersion: "1", AllowWatchBookmarks: true})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
		synctest.Wait()
		for round, count := range []int64{1, 1, 3} {
			c.change(count)
			synctest.Wait()
			for i, w := range all {
				for range count {
					select {
					case e := <-w.ResultChan():
						if e.Type != watch.Added && e.Type != watch.Modified {
							t.Fatalf("round %d: watcher %d got %v", round, i, e)
						}
					default:
						t.Fatalf("round %d: watcher %d of %d got no event", round, i, len(all))
					}
				}
			}
			all[0].Stop() // the one that waits for the signal
			all = all[1:]
			synctest.Wait()
		}
		time.Sleep(90 * time.Second) // bookmarks don't end the wait for the signal
		synctest.Wait()
		before := c.waits
		for i, w := range all {
			if e := <-w.ResultChan(); e.Type != watch.Bookmark {
				t.Fatalf("watcher %d got %v, want a bookmark", i, e)
			}
		}
		if c.waits != before {
			t.Errorf("bookmarks made %d watchers read changes again", c.waits-before)
		}
	})
}

// A watcher whose signal is older than that of the crowd looks for changes instead of waiting: it
// might wait for the change after the one that it missed.
func TestWatchersDoNotJoinWithOldSignals(t *testing.T) {
	t.Parallel()
	c := &silent{head: 1, signal: make(chan struct{}, 1)}
	h := newHub(sites(), c)
	_, _, old, err := h.after(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c.change(1)
	c.signal = make(chan struct{}, 1)
	if _, _, _, err := h.after(t.Context(), 2); err != nil { // another watcher, which has seen the change
		t.Fatal(err)
	}
	if _, ok := h.join(old); ok {
		t.Error("a watcher waits, and there is a change that it hasn't seen")
	}
}
