package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
)

var auditPromises = []promise{
	{"each audited change has a record, in the transaction of the change", changesAreAudited},
	{"audit records of concurrent writers are one chain", auditIsOneChain},
	{"old audit records are removed, and the rest is still a chain", auditIsTrimmed},
	{"audit records since a time are found", auditSinceIsFound},
	{"the position of an audit sink is read as it was saved", auditSinkIsAsSaved},
	{"one server has the lease of the notifier, and only it saves states of subscriptions", oneServerNotifies},
}

func audited(subject string) func(*record.Write) {
	return func(w *record.Write) { w.Audit = &audit.Caller{Subject: subject, Source: "192.0.2.1:1"} }
}

// auditLog returns the records of the log, and checks the chain.
func (w *world) auditLog() []audit.Record {
	w.Helper()
	var records []audit.Record
	_, _, base, err := w.store.Audited(w.ctx(), 0, 1)
	w.ok(err)
	v := audit.NewVerifier(base)
	for {
		stored, head, _, err := w.store.Audited(w.ctx(), v.At().Seq, 7)
		w.ok(err)
		for _, s := range stored {
			w.ok(v.Next(s))
			r, err := s.Record()
			w.ok(err)
			records = append(records, r)
		}
		if len(stored) < 7 {
			w.ok(v.End(head))
			return records
		}
	}
}

func changesAreAudited(w *world) {
	w.commit(site("s", audited("cert:ada")), deployment("d1", at("s"), audited("cert:ada"), by("ada", "because")), deployment("d2", under("d1"), audited("cert:ada")))
	w.commit(site("silent"))
	status := record.Write{
		Op: tko.OpStatus, Expect: record.Any,
		Record: record.Record{Key: siteKey("s"), Conditions: []tko.Condition{{Type: "Scheduled", Status: "True"}}},
	}
	audited("tko:meta-scheduler")(&status)
	w.commit(status)
	gone := deleted(deploymentKey("d1"))
	audited("cert:bob")(&gone)
	w.commit(gone)
	conflict := site("s", audited("cert:eve"))
	w.refused(tko.ErrConflict, conflict)
	type short struct{ Subject, Op, Kind, ID, Status string }
	var got []short
	for _, r := range w.auditLog() {
		got = append(got, short{r.Subject, r.Op, r.Kind, r.ID, r.Status})
		if r.Time.IsZero() || r.Position == 0 || r.Decision != audit.Allow || r.Source != "192.0.2.1:1" {
			w.Errorf("record %+v: want time, position, decision and source", r)
		}
	}
	w.equal("records", got, []short{
		{"cert:ada", "written", "site", "s", ""},
		{"cert:ada", "written", "deployment", "d1", ""},
		{"cert:ada", "written", "deployment", "d2", ""},
		{"tko:meta-scheduler", "status", "site", "s", "Scheduled=True"},
		{"cert:bob", "deleted", "deployment", "d2", ""},
		{"cert:bob", "deleted", "deployment", "d1", ""},
	})
	first := w.auditLog()[1]
	w.equal("site", first.Site, "s")
	w.equal("why", first.Why, "because")
	w.equal("revision", first.Revision, int64(1))
	w.equal("digest", len(first.After), 64)
}

func auditIsOneChain(w *world) {
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for n := range 10 {
				id := fmt.Sprintf("s%d-%d", i, n)
				if n%3 == 2 {
					if err := w.store.Audit(w.ctx(), audit.Record{Caller: audit.Caller{Subject: id, Decision: audit.Refuse}, Kind: "site", ID: id}); err != nil {
						w.Error(err)
					}
					continue
				}
				if _, err := w.store.Commit(w.ctx(), record.Ungated(site(id, audited(id)))); err != nil {
					w.Error(err)
				}
				if n == 5 {
					version, err := w.store.AccessVersion(w.ctx())
					if err == nil {
						_, err = w.store.ChangeAccess(w.ctx(), version, nil, nil, audit.Record{Kind: "binding", ID: id})
					}
					if err != nil && !errors.Is(err, tko.ErrConflict) {
						w.Error(err)
					}
				}
			}
		})
	}
	writers.Wait()
	seen := map[string]int{}
	for _, r := range w.auditLog() {
		if r.Kind == "site" {
			seen[r.ID]++
		}
	}
	w.equal("records of sites", len(seen), 80)
	for id, n := range seen {
		w.equal("records of "+id, n, 1)
	}
	ended, end := context.WithCancel(w.ctx())
	end()
	if err := w.store.Audit(ended, audit.Record{}); err == nil {
		w.auditLog() // it may have been written; the chain holds in any case
	}
}

func auditIsTrimmed(w *world) {
	for i := range 20 {
		w.commit(site(fmt.Sprintf("s%02d", i), audited("cert:ada")))
	}
	n, err := w.store.TrimAudit(w.ctx(), time.Now().Add(-time.Hour), 100)
	w.ok(err)
	w.equal("removed too early", n, 0)
	n, err = w.store.TrimAudit(w.ctx(), time.Now().Add(time.Hour), 15)
	w.ok(err)
	w.equal("removed", n, 15)
	w.equal("left", len(w.auditLog()), 5)
	n, err = w.store.TrimAudit(w.ctx(), time.Now().Add(time.Hour), 100)
	w.ok(err)
	w.equal("removed later", n, 4)
	w.commit(site("another", audited("cert:ada")))
	w.equal("left, and new", len(w.auditLog()), 2)
}

func auditSinceIsFound(w *world) {
	for i := range 10 {
		w.commit(site(fmt.Sprintf("s%02d", i), audited("cert:ada")))
	}
	log := w.auditLog()
	seq, err := w.store.AuditedSince(w.ctx(), log[6].Time)
	w.ok(err)
	if seq > 6 || seq < 0 || seq < 6 && !log[seq].Time.Equal(log[6].Time) {
		w.Errorf("the last record before %v is %d, want the one before those of that time", log[6].Time, seq)
	}
	seq, err = w.store.AuditedSince(w.ctx(), time.Now().Add(time.Hour))
	w.ok(err)
	w.equal("before the future", seq, int64(10))
	seq, err = w.store.AuditedSince(w.ctx(), time.Time{}.Add(time.Hour))
	w.ok(err)
	w.equal("before the past", seq, int64(0))
}

func auditSinkIsAsSaved(w *world) {
	for want := range int64(3) {
		seq, err := w.store.AuditSink(w.ctx(), "file")
		w.ok(err)
		w.equal("position", seq, want)
		w.ok(w.store.SaveAuditSink(w.ctx(), "file", want+1))
	}
	seq, err := w.store.AuditSink(w.ctx(), "another")
	w.ok(err)
	w.equal("position of another sink", seq, int64(0))
}

func oneServerNotifies(w *world) {
	held, err := w.store.HoldNotifier(w.ctx(), "a", time.Minute)
	w.ok(err)
	w.equal("the first server has the lease", held, true)
	held, err = w.store.HoldNotifier(w.ctx(), "b", time.Minute)
	w.ok(err)
	w.equal("another one has it meanwhile", held, false)
	state := record.SubscriptionState{Name: "ops", Doc: []byte(`{"n":1}`)}
	w.ok(w.store.SaveSubscription(w.ctx(), "a", state))
	state.Doc = []byte(`{"n":2}`)
	if err := w.store.SaveSubscription(w.ctx(), "b", state); !errors.Is(err, tko.ErrConflict) {
		w.Errorf("a save without the lease: %v, want a conflict", err)
	}
	w.equal("states", w.subscriptions(), `ops={"n":1}`)
	w.ok(w.store.SaveSubscription(w.ctx(), "a", state))
	w.equal("states", w.subscriptions(), `ops={"n":2}`)
	held, err = w.store.HoldNotifier(w.ctx(), "a", -time.Second) // it ends its lease
	w.ok(err)
	w.equal("it may extend its lease", held, true)
	if err := w.store.SaveSubscription(w.ctx(), "a", state); !errors.Is(err, tko.ErrConflict) {
		w.Errorf("a save after the lease ended: %v, want a conflict", err)
	}
	held, err = w.store.HoldNotifier(w.ctx(), "b", time.Minute)
	w.ok(err)
	w.equal("another one takes the lease that has ended", held, true)
	w.ok(w.store.SaveSubscription(w.ctx(), "b", record.SubscriptionState{Name: "ops"}))
	w.equal("states after the removal", w.subscriptions(), "")
}

func (w *world) subscriptions() string {
	states, err := w.store.Subscriptions(w.ctx())
	w.ok(err)
	var text strings.Builder
	for _, s := range states {
		fmt.Fprintf(&text, "%s=%s", s.Name, s.Doc)
	}
	return text.String()
}
