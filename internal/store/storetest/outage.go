package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Outages interrupts the database during operations of all kinds. It checks that only
// lists under way fail, and that every acknowledged write was made once. Each outage
// begins while operations are under way.
func Outages(t *testing.T, store record.Store, outages ...func()) {
	t.Helper()
	w := &world{T: t, store: store}
	var many []record.Write
	for _, id := range ids("list-%04d", 3000) {
		many = append(many, deployment(id, withPackage("one")))
	}
	w.commit(many...)

	u := &users{world: w, stop: make(chan struct{})}
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() { u.until(func(n int) error { return u.write(fmt.Sprintf("writer%d-%05d", i, n), n) }) })
	}
	for _, use := range []func(int) error{u.read, u.list, u.listQuickly, u.modify, u.work, u.setConditions} {
		wait.Go(func() { u.until(use) })
	}
	wait.Go(u.follow)
	end := sync.OnceFunc(func() {
		close(u.stop)
		wait.Wait()
	})
	defer end()
	for i, outage := range outages {
		goal := u.done.Load() + 200
		eventually.True(w, fmt.Sprintf("operations succeed before outage %d", i+1), func() bool { return u.done.Load() > goal || t.Failed() })
		outage()
	}
	goal := u.done.Load() + 200
	eventually.True(w, "operations succeed after the last outage", func() bool { return u.done.Load() > goal || t.Failed() })
	end()

	u.expected.Range(func(id, revision any) bool {
		k := deploymentKey(id.(string)) //nolint:forcetypeassert,errcheck // only strings are stored
		if r := w.one(k); r.Revision != revision.(int64) {
			t.Errorf("%s is at revision %d, want the acknowledged %d", k.ID, r.Revision, revision)
		}
		return true
	})
	CheckConsistency(t, store)
}

// users run operations of all kinds concurrently.
type users struct {
	*world

	stop     chan struct{}
	done     atomic.Int64 // operations
	expected sync.Map     // revisions by ID; 0: deleted
}

// until repeats an operation until the test stops.
func (u *users) until(use func(n int) error) {
	for n := 0; ; n++ {
		select {
		case <-u.stop:
			return
		default:
		}
		if err := use(n); err != nil {
			u.Error(err)
			return
		}
		u.done.Add(1)
	}
}

func (u *users) write(id string, n int) error {
	_, err := u.store.Commit(u.ctx(), record.Ungated(deployment(id, metadata("n", strconv.Itoa(n%10)), origin(id)), deployment(id+"-child", under(id), ready, at("s"))))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	u.expected.Store(id, int64(1))
	if _, err = u.store.Commit(u.ctx(), record.Ungated(deployment(id, expect(1), metadata("n", "changed")))); err != nil {
		return fmt.Errorf("change: %w", err)
	}
	u.expected.Store(id, int64(2))
	if n%3 != 0 {
		return nil
	}
	outcomes, err := u.store.Commit(u.ctx(), record.Ungated(deleted(deploymentKey(id))))
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if outcomes[0].Deleted != 2 {
		u.Errorf("%d deployments were deleted, want 2", outcomes[0].Deleted)
	}
	u.expected.Store(id, int64(0))
	u.expected.Store(id+"-child", int64(0))
	return nil
}

func (u *users) read(n int) error {
	k := deploymentKey(fmt.Sprintf("list-%04d", n%3000))
	records, err := u.store.Get(u.ctx(), record.Fields{Package: true}, k)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	_, err = u.store.Revision(u.ctx(), k, records[0].Revision)
	if err == nil {
		_, err = u.store.Epoch(u.ctx())
	}
	return err
}

// list reads slowly, so that outages interrupt it.
func (u *users) list(int) error {
	last, count := "", 0
	for r, err := range u.store.List(u.ctx(), record.Query{Scope: access.ScopeAll, Kind: tko.KindDeployment, Limit: -1}) {
		switch {
		case err != nil && count > 0 && errors.Is(err, tko.ErrUnavailable) && strings.Contains(err.Error(), fmt.Sprintf("%q", last)):
			return nil
		case err != nil:
			return fmt.Errorf("list after %q: %w", last, err)
		case r.ID <= last:
			return fmt.Errorf("list: %q comes after %q", r.ID, last)
		}
		last = r.ID
		count++
		if count%100 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	if count < 3000 {
		return fmt.Errorf("the list has %d records", count)
	}
	return nil
}

func (u *users) listQuickly(n int) error {
	for _, err := range u.store.List(u.ctx(), record.Query{Scope: access.ScopeAll, Kind: tko.KindDeployment, Limit: 1, Metadata: values("n", strconv.Itoa(n%10))}) {
		if err != nil {
			return fmt.Errorf("list one: %w", err)
		}
	}
	return nil
}

func (u *users) modify(n int) error {
	id, token := fmt.Sprintf("list-%04d", n%3000), fmt.Sprint("token ", n)
	r, _, err := u.store.StartModification(u.ctx(), id, token, time.Minute)
	if err != nil {
		return fmt.Errorf("start a modification: %w", err)
	}
	if _, _, err := u.store.Modification(u.ctx(), token); err != nil {
		return fmt.Errorf("read a modification: %w", err)
	}
	if n%2 == 0 {
		if err := u.store.CancelModification(u.ctx(), token); err != nil {
			return fmt.Errorf("cancel a modification: %w", err)
		}
		return nil
	}
	w := deployment(id, expect(r.Revision))
	w.Token = token
	if _, err := u.store.Commit(u.ctx(), record.Ungated(w)); err != nil {
		return fmt.Errorf("end a modification: %w", err)
	}
	u.expected.Store(id, r.Revision+1)
	return nil
}

func (u *users) work(int) error {
	items, _, err := u.store.ClaimWork(u.ctx(), tko.ClaimWork{Queue: tko.QueuePrepare, Max: 5, Lease: time.Minute})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	renewed, err := u.store.RenewWork(u.ctx(), items, time.Minute)
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	if len(renewed) != len(items) {
		return fmt.Errorf("%d leases of %d were renewed", len(renewed), len(items))
	}
	var finished []tko.FinishedWork
	for _, item := range items {
		finished = append(finished, tko.FinishedWork{Item: item, Outcome: tko.WorkDone})
	}
	if err := u.store.FinishWork(u.ctx(), finished, nil); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}

func (u *users) setConditions(n int) error {
	_, err := u.store.Commit(u.ctx(), record.Ungated(status(deploymentKey(fmt.Sprintf("list-%04d", n%3000)), tko.Condition{Type: "Fine", Message: strconv.Itoa(n)})))
	if err != nil {
		return fmt.Errorf("set conditions: %w", err)
	}
	return nil
}

// follow reads the log while it grows.
func (u *users) follow() {
	ctx, cancel := context.WithCancel(u.ctx())
	defer cancel()
	for last := int64(0); ; {
		signal := u.store.Signal()
		changes, err := u.store.Changes(ctx, last, 100)
		if err != nil {
			u.Errorf("watch: %v", err)
			return
		}
		for _, c := range changes {
			if c.Position != last+1 {
				u.Errorf("watch: %d comes after %d", c.Position, last)
				return
			}
			last = c.Position
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-signal:
		case <-u.stop:
			return
		}
	}
}
