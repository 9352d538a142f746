package kubernetes

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Watches request a reconciliation soon, but not for its own changes, and less often
// as long as objects keep changing.
func TestRequestsToReconcileAreDelayedAndSpaced(t *testing.T) {
	k := key{Kind: "ConfigMap", Name: "x"}
	other := key{Kind: "ConfigMap", Name: "of-others"}
	start := func() (s *siteWatch, count *atomic.Int64) {
		count = &atomic.Int64{}
		return &siteWatch{known: map[key]string{k: "1"}, changes: map[key]observedChange{}, enqueue: func(tko.SiteID) { count.Add(1) }}, count
	}
	expect := func(t *testing.T, what string, got, want int64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d requests, want %d", what, got, want)
		}
	}
	t.Run("news", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, count := start()
			s.observe(k, "1", false) // as it was observed
			s.observe(other, "7", false)
			time.Sleep(time.Minute)
			expect(t, "no news", count.Load(), 0)
			s.observe(k, "2", false)
			s.observe(k, "3", false)
			time.Sleep(time.Second)
			expect(t, "two changes", count.Load(), 1)
		})
	})
	t.Run("own changes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, count := start()
			began := time.Now()
			time.Sleep(time.Millisecond)
			s.observe(k, "2", false) // before the reconciliation that wrote it has reported that
			s.reconciled(began, map[key]string{k: "2"})
			time.Sleep(time.Minute)
			expect(t, "changes by the reconciliation itself", count.Load(), 0)
			s.observe(k, "3", false)
			time.Sleep(time.Millisecond)
			s.reconciled(time.Now(), map[key]string{k: "4"}) // it observed a newer version
			time.Sleep(time.Minute)
			expect(t, "changes that the reconciliation observed", count.Load(), 0)
		})
	})
	t.Run("a restless object", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, count := start()
			for n := range 3600 {
				s.observe(k, time.Duration(n+2).String(), false)
				time.Sleep(time.Second)
				if count.Load() > 0 {
					s.reconciled(time.Now(), s.known)
				}
			}
			if count.Load() < 50 || count.Load() > 80 {
				t.Errorf("%d requests in an hour", count.Load())
			}
			time.Sleep(10 * time.Minute)
			count.Store(0)
			s.observe(k, "later", true)
			time.Sleep(time.Second)
			expect(t, "after a rest", count.Load(), 1)
		})
	})
	t.Run("over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, count := start()
			w := &watches{sites: map[watched]*siteWatch{s.at: s}}
			s.stop = func() {}
			s.observe(k, "2", false)
			w.end(s)
			s.recordBreak()
			time.Sleep(time.Minute)
			expect(t, "when it is over", count.Load(), 0)
		})
	})
}
