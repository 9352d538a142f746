package webapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A dayFake has the numbers of a fleet that changes. Callers with an identity of their own read a
// part of it.
type dayFake struct {
	liveFake

	mu      sync.Mutex
	failing int
	atHand  bool
	broken  error
	asked   int
}

type aPart struct{}

func (f *dayFake) FleetAtHand(ctx context.Context) (tko.Fleet, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	part, _ := ctx.Value(aPart{}).(bool)
	return tko.Fleet{Deployments: tko.FleetCounts{Total: 100, Failing: f.failing, Healthy: 90 - f.failing, Unknown: 10}}, f.atHand && !part, f.broken
}

func (f *dayFake) reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *dayFake) set(failing int, atHand bool, broken error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing, f.atHand, f.broken = failing, atHand, broken
}

type dayGot struct {
	Begin, End, Step int64
	Points           []struct {
		Time                                 int64
		Failing, Working, Healthy, Reporting int
	}
}

// What the server hasn't counted is a gap, and not 0: before its start, and while the numbers
// were not at hand. The day is bounded, and only the server asks the store for it.
func TestTheNumbersOfTheLastDayHaveGapsWhereTheyAreNotKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &dayFake{atHand: true, failing: 1}
		day := webapi.NewFleetDay(f)
		h := webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f, Fleets: f, Day: day}, webapi.LiveOptions{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- day.Run(ctx) }()
		read := func() (got dayGot) {
			t.Helper()
			time.Sleep(time.Second)
			if code := call(t, h, "GET", "/api/v1/fleet/day", "", &got); code != http.StatusOK {
				t.Fatalf("status %d", code)
			}
			return got
		}
		if got := read(); len(got.Points) != 1 || got.Points[0].Failing != 1 || got.Points[0].Reporting != 90 || got.Points[0].Healthy != 89 || got.End-got.Begin != 24*3600_000 || got.Step != 300_000 {
			t.Errorf("at first: %+v", got)
		}
		f.set(2, true, nil)
		time.Sleep(5 * time.Minute)
		f.set(3, false, nil)
		time.Sleep(10 * time.Minute)
		f.set(4, true, errors.New("the database is away"))
		time.Sleep(5 * time.Minute)
		f.set(5, true, nil)
		time.Sleep(time.Minute)
		got := read()
		var numbers []int
		for _, p := range got.Points {
			numbers = append(numbers, p.Failing)
		}
		if len(numbers) != 3 || numbers[0] != 1 || numbers[1] != 2 || numbers[2] != 5 || got.Points[2].Time-got.Points[1].Time < 2*got.Step {
			t.Errorf("with gaps: %+v", got)
		}
		asked := f.reads()
		time.Sleep(time.Hour)
		if n := f.reads() - asked; n != 12 {
			t.Errorf("the numbers were read %d times in an hour, want 12", n)
		}
		time.Sleep(48 * time.Hour)
		if got := read(); len(got.Points) < 287 || len(got.Points) > 289 || got.Points[0].Time <= got.Begin {
			t.Errorf("after two days there are %d points from %d, begin %d", len(got.Points), got.Points[0].Time, got.Begin)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTheNumbersOfTheLastDayAreForThoseWhoReadEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &dayFake{atHand: true}
		day := webapi.NewFleetDay(f)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = day.Run(ctx) }()
		synctest.Wait()
		time.Sleep(time.Second)
		for name, test := range map[string]struct {
			why  string
			day  *webapi.FleetDay
			part bool
			want int
		}{
			"everything": {"the numbers are of all", day, false, 1},
			"a part":     {"others are in none of the numbers that a caller reads", day, true, 0},
			"none":       {"a server without the numbers has none", nil, false, 0},
		} {
			h := webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f, Fleets: f, Day: test.day}, webapi.LiveOptions{})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(context.WithValue(t.Context(), aPart{}, test.part), http.MethodGet, "/api/v1/fleet/day", nil))
			if n := strings.Count(w.Body.String(), `"failing":`); w.Code != http.StatusOK || n != test.want {
				t.Errorf("%s: %d %s, want %d points: %s", name, w.Code, w.Body, test.want, test.why)
			}
		}
	})
}
