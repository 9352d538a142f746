package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var tokenPromises = []promise{
	{"a token returns the deployment at the revision it was issued for", tokenReturnsRevision},
	{"only one of several concurrent tokens is valid", oneTokenIsValid},
	{"a deployment with a valid token is busy for other writers", tokenLocksDeployment},
	{"a write with a token ends the token", tokenEndsWithWrite},
	{"a token stays valid after a refused write", tokenSurvivesRefusedWrite},
	{"a token expires", tokenExpires},
	{"a cancelled token is unknown", cancelledTokenIsUnknown},
	{"a token is deleted with its deployment", tokenIsDeletedWithDeployment},
	{"valid tokens are listed without their secret", tokensAreListed},
	{"a token can be broken", tokenIsBroken},
	{"a modification that fails doesn't fail concurrent calls", failedModificationsDontSpread},
	{"a deployment that is written and modified concurrently has one winner", writersAndHoldersExclude},
}

// start stores a token for the deployment d, valid for ttl.
func (w *world) start(token string, ttl time.Duration) record.Record {
	w.Helper()
	r, _, err := w.store.StartModification(w.ctx(), "d", token, ttl)
	w.ok(err)
	return r
}

func tokenReturnsRevision(w *world) {
	w.commit(deployment("d", metadata("k", "v")))
	before := time.Now()
	r, expires, err := w.store.StartModification(w.ctx(), "d", "T", time.Hour)
	w.ok(err)
	w.equal("record", r, w.one(deploymentKey("d")))
	if expires.Before(before.Add(50*time.Minute)) || expires.After(before.Add(70*time.Minute)) {
		w.Errorf("the token expires at %v, want in about an hour", expires)
	}
	w.commit(status(deploymentKey("d"), tko.Condition{Type: "x"}))
	got, current, err := w.store.Modification(w.ctx(), "T")
	w.ok(err)
	r.Conditions, r.Position = nil, 0
	w.equal("modification", got, r)
	w.equal("current record", current, w.one(deploymentKey("d")))
	_, _, err = w.store.StartModification(w.ctx(), "none", "U", time.Hour)
	w.failed(err, tko.ErrNotFound)
	_, _, err = w.store.Modification(w.ctx(), "U")
	w.failed(err, tko.ErrNotFound)
}

func oneTokenIsValid(w *world) {
	w.commit(deployment("d"))
	for round := range 5 {
		var good atomic.Int32
		var winner atomic.Value
		var wait sync.WaitGroup
		for i := range 16 {
			wait.Go(func() {
				name := fmt.Sprintf("T%d-%d", round, i)
				_, _, err := w.store.StartModification(w.ctx(), "d", name, time.Hour)
				switch {
				case err == nil:
					good.Add(1)
					winner.Store(name)
				case !errors.Is(err, tko.ErrBusy):
					w.Error(err)
				}
			})
		}
		wait.Wait()
		if good.Load() != 1 {
			w.Fatalf("%d tokens are valid, want 1", good.Load())
		}
		w.ok(w.store.CancelModification(w.ctx(), winner.Load().(string))) //nolint:forcetypeassert,errcheck // stored above
	}
}

func tokenLocksDeployment(w *world) {
	w.commit(template("t"), deployment("d", of("t")), deployment("e"))
	w.start("T", time.Hour)
	w.refused(tko.ErrBusy, deployment("d", expect(1)))
	w.refused(tko.ErrNotFound, deployment("e", expect(1), token("T")))
	w.commit(deployment("e", expect(1)))
	w.commit(status(deploymentKey("d"), tko.Condition{}))
	// Deleting the template doesn't wait for the token's holder.
	w.commit(deleted(templateKey("t")))
	w.equal("dissociated", w.one(deploymentKey("d")).Template, "")
	got, _, err := w.store.Modification(w.ctx(), "T")
	w.ok(err)
	w.equal("template at that revision", got.Template, "t")
	w.commit(deployment("d", expect(record.Any), token("T")))
}

func tokenEndsWithWrite(w *world) {
	w.commit(deployment("d"))
	w.start("T", time.Hour)
	w.equal("revision", w.commit(deployment("d", expect(1), token("T")))[0].Revision, int64(2))
	w.refused(tko.ErrNotFound, deployment("d", expect(2), token("T")))
	_, _, err := w.store.Modification(w.ctx(), "T")
	w.failed(err, tko.ErrNotFound)
	w.failed(w.store.CancelModification(w.ctx(), "T"), tko.ErrNotFound)
	w.commit(deployment("d", expect(2)))
	w.start("U", time.Hour)
}

func tokenSurvivesRefusedWrite(w *world) {
	w.commit(deployment("d"))
	w.start("T", time.Hour)
	w.refused(tko.ErrConflict, deployment("d", expect(7), token("T")))
	w.refused(tko.ErrInvalid, deployment("d", expect(1), token("T"), requires(siteKey("none"))))
	w.commit(site("there"))
	w.refused(tko.ErrConflict, deployment("d", expect(1), token("T")), site("there"))
	_, _, err := w.store.Modification(w.ctx(), "T")
	w.ok(err)
	w.commit(deployment("d", expect(1), token("T")))
}

func tokenExpires(w *world) {
	w.commit(deployment("d"))
	w.start("T", 30*time.Millisecond)
	eventually.True(w, "the token expires", func() bool {
		_, _, err := w.store.Modification(w.ctx(), "T")
		return errors.Is(err, tko.ErrBusy)
	})
	w.refused(tko.ErrBusy, deployment("d", expect(1), token("T")))
	w.failed(w.store.CancelModification(w.ctx(), "T"), tko.ErrBusy)
	w.start("U", time.Hour)
	_, _, err := w.store.Modification(w.ctx(), "T")
	w.failed(err, tko.ErrBusy)
	w.refused(tko.ErrBusy, deployment("d", expect(1), token("T")))
	w.commit(deployment("d", expect(1), token("U")))
	w.start("V", time.Millisecond)
	eventually.True(w, "the deployment is free again", func() bool {
		_, err := w.store.Commit(w.ctx(), record.Ungated(deployment("d", expect(2))))
		return err == nil
	})
}

func cancelledTokenIsUnknown(w *world) {
	w.commit(deployment("d"))
	w.start("T", time.Hour)
	w.ok(w.store.CancelModification(w.ctx(), "T"))
	w.failed(w.store.CancelModification(w.ctx(), "T"), tko.ErrNotFound)
	_, _, err := w.store.Modification(w.ctx(), "T")
	w.failed(err, tko.ErrNotFound)
	w.refused(tko.ErrNotFound, deployment("d", expect(1), token("T")))
	w.commit(deployment("d", expect(1)))
}

func tokenIsDeletedWithDeployment(w *world) {
	w.commit(deployment("p"), deployment("d", under("p")))
	w.start("T", time.Hour)
	w.commit(deleted(deploymentKey("p")))
	_, _, err := w.store.Modification(w.ctx(), "T")
	w.failed(err, tko.ErrNotFound)
	w.failed(w.store.CancelModification(w.ctx(), "T"), tko.ErrNotFound)
	w.refused(tko.ErrNotFound, deployment("d", expect(record.Any), token("T")))
	w.commit(deployment("d"))
	_, _, err = w.store.Modification(w.ctx(), "T")
	w.failed(err, tko.ErrNotFound)
}

func tokensAreListed(w *world) {
	w.commit(deployment("d"), deployment("e"), deployment("f"))
	none, err := w.store.Modifications(w.ctx())
	w.ok(err)
	w.equal("none", len(none), 0)
	alice := tko.Author{Who: "alice", Why: "to scale"}
	before := time.Now()
	for token, deployment := range map[string]string{"T": "e", "U": "d"} {
		_, _, err = w.store.StartModification(tko.WithAuthor(w.ctx(), alice), deployment, token, time.Hour)
		w.ok(err)
	}
	_, _, err = w.store.StartModification(w.ctx(), "f", "V", time.Millisecond)
	w.ok(err)
	var open []tko.OpenModification
	eventually.True(w, "the short token expires", func() bool {
		open, err = w.store.Modifications(w.ctx())
		w.ok(err)
		return len(open) == 2
	})
	for i, id := range []tko.DeploymentID{"d", "e"} {
		m := open[i]
		if m.Deployment != id || m.Author != alice || m.Started.Before(before.Add(-time.Minute)) || m.Expires.Sub(m.Started).Round(time.Minute) != time.Hour {
			w.Errorf("got %+v, want the token of %s, by alice, for an hour", m, id)
		}
	}
}

func tokenIsBroken(w *world) {
	w.commit(deployment("d"), deployment("e"))
	w.start("T", time.Hour)
	broken, err := w.store.BreakModification(w.ctx(), "d")
	w.ok(err)
	w.equal("deployment of the broken token", broken.Deployment, tko.DeploymentID("d"))
	_, err = w.store.BreakModification(w.ctx(), "d")
	w.failed(err, tko.ErrNotFound)
	_, err = w.store.BreakModification(w.ctx(), "e")
	w.failed(err, tko.ErrNotFound)
	_, _, err = w.store.Modification(w.ctx(), "T")
	w.failed(err, tko.ErrNotFound)
	w.refused(tko.ErrNotFound, deployment("d", expect(1), token("T")))
	w.start("U", time.Hour)
	w.commit(deployment("d", expect(1), token("U")))
}

// Concurrent calls may share a transaction: those that fail, or whose callers stop
// waiting, leave no trace and don't change the results of the others.
func failedModificationsDontSpread(w *world) {
	const rounds, each = 10, 4
	for round := range rounds {
		var wait sync.WaitGroup
		do := func(n int, call func(id string)) {
			id := fmt.Sprintf("d%d-%d", round, n)
			w.commit(deployment(id))
			wait.Go(func() { call(id) })
		}
		started := func(id string) error {
			_, _, err := w.store.StartModification(w.ctx(), id, "T"+id, time.Hour)
			return err
		}
		canceled, cancel := context.WithCancel(w.ctx())
		for i := range each {
			do(10*i, func(id string) {
				if err := started(id); err != nil {
					w.Error(err)
				} else if _, err := w.store.Commit(w.ctx(), record.Ungated(deployment(id, expect(1), token("T"+id)))); err != nil {
					w.Error(err)
				}
			})
			do(10*i+1, func(id string) {
				if err := started("no " + id); !errors.Is(err, tko.ErrNotFound) {
					w.Errorf("start for a missing deployment: error is %v, want the kind %q", err, tko.ErrNotFound)
				}
			})
			do(10*i+2, func(id string) {
				if err := w.store.CancelModification(w.ctx(), "no "+id); !errors.Is(err, tko.ErrNotFound) {
					w.Errorf("cancel an unknown token: error is %v, want the kind %q", err, tko.ErrNotFound)
				}
			})
			do(10*i+3, func(id string) {
				if outcomes, err := w.store.Commit(w.ctx(), record.Ungated(deleted(deploymentKey(id)))); err != nil || outcomes[0].Deleted != 1 {
					w.Errorf("delete: %+v, %v", outcomes, err)
				}
			})
			do(10*i+4, func(id string) {
				if _, err := w.store.Commit(w.ctx(), record.Ungated(deployment(id, expect(7)))); !errors.Is(err, tko.ErrConflict) {
					w.Errorf("write another revision: error is %v, want the kind %q", err, tko.ErrConflict)
				}
			})
			do(10*i+5, func(id string) {
				_, _, err := w.store.StartModification(canceled, id, "T"+id, time.Hour)
				_, _, unknown := w.store.Modification(w.ctx(), "T"+id) //nolint:contextcheck // the other one has ended
				if err == nil && unknown != nil || err != nil && !errors.Is(unknown, tko.ErrNotFound) {
					w.Errorf("start with error %v, then the token with error %v", err, unknown)
				}
			})
		}
		cancel()
		wait.Wait()
	}
	CheckConsistency(w.T, w.store)
}

func writersAndHoldersExclude(w *world) {
	const rounds = 20
	w.commit(deployment("d"))
	for round := range int64(rounds) {
		var wait sync.WaitGroup
		name := fmt.Sprintf("T%d", round)
		var start, write error
		wait.Go(func() { _, _, start = w.store.StartModification(w.ctx(), "d", name, time.Hour) })
		wait.Go(func() { _, write = w.store.Commit(w.ctx(), record.Ungated(deployment("d", expect(round+1)))) })
		wait.Wait()
		w.ok(start)
		revision := w.one(deploymentKey("d")).Revision
		_, current, err := w.store.Modification(w.ctx(), name)
		w.ok(err)
		switch {
		case write == nil: // before the token was issued
			w.equal("revision", []int64{revision, current.Revision}, []int64{round + 2, round + 2})
			w.ok(w.store.CancelModification(w.ctx(), name))
		case errors.Is(write, tko.ErrBusy):
			w.equal("revision", []int64{revision, current.Revision}, []int64{round + 1, round + 1})
			w.commit(deployment("d", expect(round+1), token(name)))
		default:
			w.Fatal(write)
		}
	}
}
