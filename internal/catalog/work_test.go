package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

func TestWaitingClaimWakesForNewWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	claim := tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "me", Max: 10, Lease: time.Minute}
	if items, err := w.ClaimWork(w.ctx, claim); err != nil || len(items) != 0 {
		t.Fatalf("%v, %v: want nothing, without waiting", items, err)
	}
	claim.Wait = time.Minute
	var ids []tko.DeploymentID
	var wg sync.WaitGroup
	wg.Go(func() { ids = append(ids, w.create(tko.NewDeployment{})) })
	began := time.Now()
	items, err := w.ClaimWork(w.ctx, claim)
	wg.Wait()
	if err != nil || len(items) != 1 || items[0].Key != string(ids[0]) {
		t.Fatalf("%v, %v: want the new deployment", items, err)
	}
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("it took %s: want to be woken", took)
	}
	renewed, err := w.RenewWork(w.ctx, items, time.Minute)
	if err != nil || len(renewed) != 1 {
		t.Errorf("%v, %v: want the lease extended", renewed, err)
	}
	later := []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkLater, Retry: 50 * time.Millisecond}}
	if err := w.FinishWork(w.ctx, later); err != nil {
		t.Fatal(err)
	}
	if items, err = w.ClaimWork(w.ctx, claim); err != nil || len(items) != 1 {
		t.Errorf("%v, %v: want it back when it is due, though nothing is committed", items, err)
	}
	if err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkFailed, Error: "bad \x00", Retry: time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	if items, err = w.ClaimWork(w.ctx, claim); err != nil || len(items) != 1 || items[0].Attempt != 1 || items[0].LastError != "bad \uFFFD" {
		t.Errorf("%v, %v: want it back with its error", items, err)
	}
	claim.Wait = 20 * time.Millisecond
	if items, err = w.ClaimWork(w.ctx, claim); err != nil || len(items) != 0 {
		t.Errorf("%v, %v: want nothing once the wait is over: it is claimed", items, err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	claim.Wait = time.Minute
	if _, err := w.ClaimWork(ctx, claim); !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want the end of the context to end the wait", err)
	}
}

func TestCancelledClaimReleasesItsItems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	id := w.create(tko.NewDeployment{})
	claim := tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "gone", Max: 10, Lease: time.Hour}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := w.ClaimWork(ctx, claim); !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want the end of the context", err)
	}
	items, err := w.ClaimWork(w.ctx, claim)
	if err != nil || len(items) != 1 || items[0].Key != string(id) || items[0].Attempt != 0 {
		t.Errorf("%v, %v: want the item of the cancelled claim", items, err)
	}
}

func TestInvalidWorkRequestsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	good := tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Minute}
	item := tko.WorkItem{Queue: tko.QueuePrepare, Key: "k", Claim: "c"}
	tests := map[string]func() error{
		"an unknown queue": func() error { c := good; c.Queue = "q"; _, err := w.ClaimWork(w.ctx, c); return err },
		"no items":         func() error { c := good; c.Max = 0; _, err := w.ClaimWork(w.ctx, c); return err },
		"no lease":         func() error { c := good; c.Lease = 0; _, err := w.ClaimWork(w.ctx, c); return err },
		"an endless lease": func() error { c := good; c.Lease = 1 << 60; _, err := w.ClaimWork(w.ctx, c); return err },
		"a renewal of none": func() error {
			_, err := w.RenewWork(w.ctx, []tko.WorkItem{item}, -1)
			return err
		},
		"an item of no queue": func() error {
			_, err := w.RenewWork(w.ctx, []tko.WorkItem{{Key: "k"}}, time.Minute)
			return err
		},
		"no outcome": func() error { return w.FinishWork(w.ctx, []tko.FinishedWork{{Item: item}}) },
		"a binary key": func() error {
			return w.FinishWork(w.ctx, []tko.FinishedWork{{Item: tko.WorkItem{Queue: tko.QueuePrepare, Key: "\xff"}, Outcome: tko.WorkDone}})
		},
		"negative retry": func() error {
			return w.FinishWork(w.ctx, []tko.FinishedWork{{Item: item, Outcome: tko.WorkLater, Retry: -1}})
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) { wantError(t, do(), tko.ErrInvalid) })
	}
	if err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: item, Outcome: tko.WorkDone}}); err != nil {
		t.Errorf("%v: want a claim that has ended to be ignored", err)
	}
}

func TestWatchStreamsChangesInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("before", "")
	ctx, cancel := context.WithCancel(tko.WithAuthor(w.ctx, tko.Author{Who: "ada", Why: "because"}))
	defer cancel()
	from := w.head()
	var wg sync.WaitGroup
	wg.Go(func() {
		w.template("unseen", "")
		for i := range 3 {
			if _, err := w.RegisterSite(ctx, tko.Site{ID: tko.SiteID(fmt.Sprintf("s%d", i))}); err != nil {
				t.Error(err)
			}
		}
	})
	var seen []string
	for c, err := range w.Watch(ctx, from, tko.KindSite) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			break
		}
		if c.Author != (tko.Author{Who: "ada", Why: "because"}) || c.Time.IsZero() {
			t.Errorf("%+v: want author, reason and time", c)
		}
		seen = append(seen, c.ID)
		if len(seen) == 3 {
			cancel()
		}
	}
	wg.Wait()
	if diff := cmp.Diff([]string{"s0", "s1", "s2"}, seen); diff != "" {
		t.Errorf("changes, of the kind, in their order (-want +got):\n%s", diff)
	}
	for _, err := range w.Watch(w.ctx, 0, "planet") {
		wantError(t, err, tko.ErrInvalid, "planet")
	}
}

func TestAboutDescribesTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{InstanceName: "n", Version: "v1", AddressPorts: func() []string { return []string{"[::1]:50050"} }})
	w.site("s", "")
	got, err := w.About(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := tko.About{
		InstanceName: "n", Version: "v1", Backend: w.store.Backend(), AddressPorts: []string{"[::1]:50050"},
		DefaultPackageFormat: krm.CBOR, Position: w.head(),
		Reach: tko.SourceReach{Known: true, Sites: 10, Created: 1000, Policy: `{"waves":[{"count":1,"name":"first"},{"name":"tenth","percent":10}]}`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Two services on one store, like two servers on one database, don't overwrite each
// other's changes.
func TestServicesOnOneStoreLoseNoWrites(t *testing.T) {
	t.Parallel()
	one := newWorld(t, catalog.Options{ModificationTime: time.Minute})
	services := []*catalog.Service{one.Service, catalog.New(one.store, &validator{}, catalog.Options{ModificationTime: time.Minute})}
	const rounds = 20
	parent := one.create(tko.NewDeployment{})
	id := one.create(tko.NewDeployment{})
	one.template("t", "")
	each := func(do func(i int, s *catalog.Service) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range rounds {
			for _, s := range services {
				wg.Go(func() {
					if err := do(i, s); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
	}

	each(func(i int, s *catalog.Service) error {
		_, err := s.RegisterSite(t.Context(), tko.Site{ID: "s", Metadata: map[string]string{"round": strconv.Itoa(i)}})
		if errors.Is(err, tko.ErrConflict) {
			return nil // too many others: the caller may try again
		}
		return err
	})
	if s, err := one.Site(t.Context(), "s", 0); err != nil || s.Stamp.Revision < 2 || s.Stamp.Revision > 2*rounds {
		t.Errorf("revision %d, %v: want every writer to have got through once", s.Stamp.Revision, err)
	}

	var mu sync.Mutex
	created, ids := 0, map[tko.DeploymentID]bool{}
	each(func(i int, s *catalog.Service) error {
		got, n, err := s.CreateChildren(t.Context(), tko.NewChildren{Parent: parent, Children: []tko.NewChild{
			{Origin: "shared", Template: "t", Site: "s"}, {Origin: strconv.Itoa(i), Template: "t", Site: "s"},
		}})
		mu.Lock()
		defer mu.Unlock()
		created += n
		for _, id := range got {
			ids[id] = true
		}
		return err
	})
	if children := all(t, one.Deployments(t.Context(), tko.DeploymentSelect{Parent: parent}, tko.ListOptions{})); len(children) != rounds+1 || created != rounds+1 || len(ids) != rounds+1 {
		t.Errorf("%d children, %d created, %d IDs: want each of %d exactly once", len(children), created, len(ids), rounds+1)
	}

	each(func(i int, s *catalog.Service) error {
		typ := fmt.Sprintf("C%d", i)
		return s.SetConditions(t.Context(), tko.KindDeployment, string(id), []tko.Condition{{Type: typ, Status: "True"}})
	})
	if d := one.deployment(id); len(d.Stamp.Conditions) != rounds {
		t.Errorf("%d conditions: want all %d, none lost", len(d.Stamp.Conditions), rounds)
	}

	modified := 0
	each(func(i int, s *catalog.Service) error {
		m, err := s.StartModification(t.Context(), id)
		if errors.Is(err, tko.ErrBusy) {
			return nil
		}
		if err != nil {
			return err
		}
		_, _, err = s.EndModification(t.Context(), m.Token, append(m.Package, krm.Resource{
			"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": m.Token},
		}))
		mu.Lock()
		defer mu.Unlock()
		modified++
		return err
	})
	d := one.deployment(id)
	if modified == 0 || len(d.Package) != modified+1 || d.Stamp.Revision != int64(modified)+1 {
		t.Errorf("%d modifications, %d resources, revision %d: want every one to have built on the one before", modified, len(d.Package)-1, d.Stamp.Revision)
	}
}

// A worker that waits for work of any queue gets it, also when it waits again.
func TestWorkersCanWaitForEachQueue(t *testing.T) {
	w := newWorld(t, catalog.Options{})
	for _, queue := range []string{tko.QueuePrepare, tko.QueueSchedule, tko.QueueGitOps, tko.QueueEvents} {
		items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: queue, Worker: "me", Max: 1, Lease: time.Minute, Wait: 30 * time.Millisecond})
		if err != nil || len(items) != 0 {
			t.Errorf("%s: %v, %v", queue, items, err)
		}
	}
}
