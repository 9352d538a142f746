package kubernetes

import (
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tko-orchestrator/tko"
)

// Watches request a reconciliation soon, but not for its own changes, and less often
// as long as objects keep changing.
func TestRequestsToReconcileAreDelayedAndSpaced(t *testing.T) {
	k := key{Kind: "ConfigMap", Name: "x"}
	other := key{Kind: "ConfigMap", Name: "of-others"}
	start := func() (s *siteWatch, count *atomic.Int64) {
		count = &atomic.Int64{}
		return &siteWatch{known: map[key]observation{k: {version: "1", content: 1}}, changes: map[key]observedChange{}, paces: &paces{objects: map[key]pace{}}, enqueue: func(tko.SiteID) { count.Add(1) }}, count
	}
	at := func(version string) observation {
		return observationOf(&metav1.ObjectMeta{ResourceVersion: version})
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
			s.observe(k, at("1"), false) // as it was observed
			s.observe(other, at("7"), false)
			time.Sleep(time.Minute)
			expect(t, "no news", count.Load(), 0)
			s.observe(k, at("2"), false)
			s.observe(k, at("3"), false)
			time.Sleep(time.Second)
			expect(t, "two changes", count.Load(), 1)
		})
	})
	t.Run("own changes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, count := start()
			began := time.Now()
			time.Sleep(time.Millisecond)
			s.observe(k, at("2"), false) // before the reconciliation that wrote it has reported that
			s.reconciled(began, map[key]observation{k: at("2")})
			time.Sleep(time.Minute)
			expect(t, "changes by the reconciliation itself", count.Load(), 0)
			s.observe(k, at("3"), false)
			time.Sleep(time.Millisecond)
			s.reconciled(time.Now(), map[key]observation{k: at("4")}) // it observed a newer version
			time.Sleep(time.Minute)
			expect(t, "changes that the reconciliation observed", count.Load(), 0)
		})
	})
	t.Run("a restless object", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, count := start()
			for n := range 3600 {
				s.observe(k, at(time.Duration(n+2).String()), false)
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
			s.observe(k, at("later"), true)
			time.Sleep(time.Second)
			expect(t, "after a rest", count.Load(), 1)
		})
	})
	t.Run("over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, count := start()
			w := &watches{sites: map[watched]*siteWatch{s.at: s}}
			s.stop = func() {}
			s.observe(k, at("2"), false)
			w.end(s)
			s.recordBreak()
			time.Sleep(time.Minute)
			expect(t, "when it is over", count.Load(), 0)
		})
	})
}

// A repair does not wait for objects whose status keeps changing, nor for an object that another client keeps changing:
// each isolated change is reconciled within two seconds, and many within ten.
func TestBusySiteDoesNotDelayRepairs(t *testing.T) {
	status := func(version, generation int64) observation {
		return observationOf(&metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(version, 10), Generation: generation})
	}
	busy := map[string]func(n int64) observation{
		"status":         func(n int64) observation { return status(n+2, 1) },
		"another client": func(n int64) observation { return status(n+2, n+2) },
	}
	for name, next := range busy {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				restless := key{Group: "apps", Kind: "Deployment", Name: "restless"}
				known := map[key]observation{restless: status(1, 1)}
				const isolated = 400
				for i := range isolated {
					known[key{Kind: "ConfigMap", Name: strconv.Itoa(i)}] = observationOf(&metav1.ObjectMeta{ResourceVersion: "1"})
				}
				var requests []time.Time
				s := &siteWatch{known: known, changes: map[key]observedChange{}, paces: &paces{objects: map[key]pace{}}}
				s.enqueue = func(tko.SiteID) { // holds s.mu
					requests = append(requests, time.Now())
					clear(s.changes) // repaired at once
				}
				n := int64(0)
				during := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
						s.observe(restless, next(n), false)
						n++
					}
				}
				during(10 * time.Minute)
				s.mu.Lock()
				often := len(requests)
				s.mu.Unlock()
				if often > 30 {
					t.Errorf("%d reconciliations in ten minutes of changes", often)
				}
				for i := range isolated {
					deleted := time.Now()
					s.observe(key{Kind: "ConfigMap", Name: strconv.Itoa(i)}, observation{version: "9"}, true)
					if i%10 == 9 {
						during(2 * time.Second)
						s.mu.Lock()
						last := requests[len(requests)-1]
						s.mu.Unlock()
						if last.Before(deleted) {
							t.Fatalf("object %d was not repaired after two seconds", i)
						}
					}
				}
				s.mu.Lock()
				s.over = true
				s.mu.Unlock()
			})
		})
	}
}
