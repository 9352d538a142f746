package webapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A slowFake is a fleet whose list takes time.
type slowFake struct {
	liveFake

	mu       sync.Mutex
	size     int
	position int64
	lists    int
	every    time.Duration // between two sites of a list
	broken   error
}

func (f *slowFake) About(context.Context) (tko.About, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return tko.About{Position: f.position}, nil
}

func (f *slowFake) Sites(ctx context.Context, _ tko.SiteSelect, _ tko.ListOptions) iter.Seq2[tko.Site, error] {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	size, every, broken := f.size, f.every, f.broken
	return func(yield func(tko.Site, error) bool) {
		for range size {
			if every > 0 {
				select {
				case <-time.After(every):
				case <-ctx.Done():
					yield(tko.Site{}, ctx.Err())
					return
				}
			}
			if !yield(tko.Site{ID: "s"}, nil) {
				return
			}
		}
		if broken != nil {
			yield(tko.Site{}, broken)
		}
	}
}

func (f *slowFake) change(size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size, f.broken = size, nil
	f.position++
}

func (f *slowFake) handler(stopping <-chan struct{}) http.Handler {
	return webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f}, webapi.LiveOptions{Stopping: stopping})
}

func (f *slowFake) listed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

type wholeCount struct {
	Counted          int
	Counting, Behind bool
	Error            string
}

func countWhole(t *testing.T, h http.Handler, subject, query string) (status int, c wholeCount) {
	t.Helper()
	r := httptest.NewRequestWithContext(identity.With(t.Context(), identity.Identity{Subject: subject}), http.MethodGet, "/api/v1/site/count?whole=true"+query, http.NoBody)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	return w.Code, c
}

func TestWholeFleetIsCountedInTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const first, second = 30_000, 40_000
		f := &slowFake{size: first, every: time.Millisecond, position: 1} // a list takes 30 s
		h := f.handler(nil)
		if _, c := countWhole(t, h, "ann", ""); !c.Counting || !c.Behind || c.Counted != 0 {
			t.Errorf("at first: %+v, want nothing counted so far", c)
		}
		time.Sleep(25 * time.Second)
		if _, c := countWhole(t, h, "ann", ""); !c.Counting || !c.Behind || c.Counted != 20_000 {
			t.Errorf("after 25 s: %+v, want 20000 counted so far", c)
		}
		time.Sleep(10 * time.Second)
		if _, c := countWhole(t, h, "ann", ""); c.Counting || c.Behind || c.Counted != first {
			t.Errorf("after 35 s: %+v, want all of them", c)
		}

		f.change(second)
		if _, c := countWhole(t, h, "ann", ""); c.Counting || !c.Behind || c.Counted != first || f.listed() != 1 {
			t.Errorf("after a change: %+v and %d lists; want the old numbers, and a rest for the server", c, f.listed())
		}
		time.Sleep(11 * 30 * time.Second)
		if _, c := countWhole(t, h, "ann", ""); c.Counting || !c.Behind || c.Counted != first {
			t.Errorf("while it counts again: %+v, want the old numbers", c)
		}
		time.Sleep(time.Minute)
		if _, c := countWhole(t, h, "ann", ""); c.Behind || c.Counted != second || f.listed() != 2 {
			t.Errorf("at the end: %+v after %d lists, want the new numbers after 2", c, f.listed())
		}
	})
}

func TestSmallFleetIsCountedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowFake{size: 10, position: 1}
		h := f.handler(nil)
		for size := 10; size < 15; size++ {
			if _, c := countWhole(t, h, "ann", ""); c.Counted != size || c.Behind {
				t.Errorf("%+v, want %d", c, size)
			}
			f.change(size + 1)
		}
	})
}

func TestWholeCountIsSharedOnlyByCallersWhoSeeTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowFake{size: 10, position: 1}
		h := f.handler(nil)
		for _, subject := range []string{"ann", "ann", "ben", "ben"} {
			if _, c := countWhole(t, h, subject, ""); c.Counted != 10 {
				t.Errorf("%s: %+v, want 10", subject, c)
			}
		}
		if f.listed() != 2 {
			t.Errorf("%d lists, want one for each view", f.listed())
		}
		if _, c := countWhole(t, h, "ann", "&asOf=1"); c.Counted != 10 || f.listed() != 3 {
			t.Errorf("as of a moment: %+v after %d lists, want a count of its own", c, f.listed())
		}
		f.change(20)
		if _, c := countWhole(t, h, "ann", "&asOf=1"); c.Behind || f.listed() != 3 {
			t.Errorf("as of a moment after a change: %+v after %d lists; the past doesn't change", c, f.listed())
		}
	})
}

func TestFailedCountIsReportedAndRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowFake{size: 10, position: 1, broken: errors.New("the disk is full")}
		h := f.handler(nil)
		if status, c := countWhole(t, h, "ann", ""); status < http.StatusInternalServerError || c.Error == "" {
			t.Errorf("status %d, %+v; want an error", status, c)
		}
		f.change(11)
		if _, c := countWhole(t, h, "ann", ""); c.Counted != 11 || c.Behind {
			t.Errorf("after that: %+v, want 11", c)
		}
	})
}

func TestCountsEndWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine stays
		stopping := make(chan struct{})
		f := &slowFake{size: 1_000_000, every: time.Second, position: 1}
		countWhole(t, f.handler(stopping), "ann", "")
		close(stopping)
		synctest.Wait()
	})
}

// Counts of the past leave the present's alone, however many tabs look at it.
func TestCountOfThePastDoesNotDelayThePresent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(5 * time.Minute)                                  // counts that no client asks for have ended
		f := &slowFake{size: 30_000, every: time.Millisecond, position: 1} // a list takes 30 s
		h := f.handler(nil)
		for range 20 { // polls of a view of the past, whose moment moves
			for _, moment := range []string{"10m", "20m", "2h"} {
				if _, c := countWhole(t, h, "ann", "&asOf="+moment); !c.Counting {
					t.Errorf("%s: %+v, want a count that isn't complete", moment, c)
				}
			}
			time.Sleep(500 * time.Millisecond)
		}
		if n := f.listed(); n != 1 {
			t.Errorf("%d counts run for three moments, want one at a time, and none again", n)
		}
		countWhole(t, h, "ben", "")
		time.Sleep(31 * time.Second)
		if _, c := countWhole(t, h, "ben", ""); c.Counting || c.Counted != 30_000 {
			t.Errorf("the present: %+v, want all", c)
		}
		if _, c := countWhole(t, h, "ann", "&asOf=10m"); c.Counting || c.Counted != 30_000 {
			t.Errorf("the past: %+v, want all", c)
		}
	})
}

// A count ends when no client asks for it any more, and begins again when a client does.
func TestCountThatNoClientAsksForEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(5 * time.Minute)                                   // counts that no client asks for have ended
		f := &slowFake{size: 300_000, every: time.Millisecond, position: 1} // a list takes 300 s
		h := f.handler(nil)
		countWhole(t, h, "ann", "&asOf=1999-01-01T00:00:00Z")
		time.Sleep(90 * time.Second)
		if _, c := countWhole(t, h, "ben", "&asOf=1d"); !c.Counting {
			t.Errorf("%+v, want a count that isn't complete", c)
		}
		time.Sleep(time.Second)
		if n := f.listed(); n != 2 {
			t.Errorf("%d lists were read after 91 s, want the second one: no client asks for the first", n)
		}
		for range 400 {
			time.Sleep(time.Second)
			if _, c := countWhole(t, h, "ann", "&asOf=1999-01-01T00:00:00Z"); c.Error != "" {
				t.Fatalf("%+v", c)
			}
		}
		if _, c := countWhole(t, h, "ann", "&asOf=1999-01-01T00:00:00Z"); c.Counting || c.Counted != 300_000 {
			t.Errorf("%+v, want all", c)
		}
	})
}

// A fleetFake has the numbers of the whole fleet at hand for some callers.
type fleetFake struct {
	*slowFake

	atHand bool
}

func (f *fleetFake) FleetAtHand(context.Context) (tko.Fleet, bool, error) {
	fleet := tko.Fleet{Position: 7, Exact: true, Time: time.UnixMilli(5), Sites: tko.FleetCounts{Total: 5, Healthy: 2, Failing: 3}, Deployments: tko.FleetCounts{Total: 4, Waiting: 4}}
	fleet.Waits = []tko.FleetWait{{Kind: tko.KindDeployment, What: tko.WaitsApproval, Count: 2}, {Kind: tko.KindDeployment, What: tko.WaitsWithdrawn, Count: 1}}
	return fleet, f.atHand, nil
}

// The numbers of everything are those of the store, if the caller may read all of it: then no
// entity is read. Otherwise there are none.
func TestNumbersOfTheFleetAreAtHandOrAbsent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		why    string
		atHand bool
		query  string
		want   string
	}{
		"at hand":     {"the store has them", true, "", `{"exact":true,"position":"7","time":5,"sites":{"failing":3,"healthy":2},"deployments":{"waiting":4},"unapproved":3}`},
		"not at hand": {"0 is a number, and may be wrong", false, "", `{"exact":false,"sites":{},"deployments":{},"unapproved":0}`},
		"unknown":     {"a filter that is ignored makes wrong numbers", true, "?id=s*", `{"error":"the parameter \"id\" is unknown: use asOf"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fleetFake{slowFake: &slowFake{size: 1}, atHand: test.atHand}
			h := webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f, Fleets: f}, webapi.LiveOptions{})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/fleet"+test.query, nil))
			if got := strings.TrimSpace(w.Body.String()); got != test.want || f.lists > 0 {
				t.Errorf("%d lists, %s\nwant %s: %s", f.lists, got, test.want, test.why)
			}
		})
	}
}
