package rights

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Limits of the audit log of refusals: each is written at once up to this rate;
// further ones are folded by caller, verb and kind, and counted.
const (
	refusalsPerSecond = 10
	maxRefusalBurst   = 20
	maxFolded         = 1000 // different callers, verbs and kinds
	auditPage         = 1000
	trimBatch         = 5000
)

// An AuditTrail reads, exports and trims the audit log.
type AuditTrail struct{ rights *Authorizer }

// AuditTrail returns the part that reads the audit log.
func (s *Authorizer) AuditTrail() *AuditTrail { return &AuditTrail{s} }

// refusals write audit records of refused requests, at a limited rate, so that
// refusals can't fill the disk or slow down writers. They are safe for concurrent use.
type refusals struct {
	store   record.AuditLog
	enabled bool
	log     *slog.Logger
	refused func(verb, kind, decision string) // nil: not counted

	mutex  sync.Mutex
	tokens float64
	filled time.Time
	folded map[foldKey]*audit.Record
	lost   int // of more callers than can be folded
}

type foldKey struct{ subject, action, kind, decision string }

// add writes the record of a refusal, or folds it.
func (f *refusals) add(ctx context.Context, r audit.Record) {
	if f.refused != nil {
		f.refused(r.Action, r.Kind, r.Decision)
	}
	if !f.enabled {
		return
	}
	if !f.take() {
		f.fold(r)
		return
	}
	// The client may have gone; its refusal is recorded in any case.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := f.store.Audit(ctx, r); err != nil {
		f.fold(r)
		f.log.WarnContext(ctx, "can't write the audit record of a refusal yet", "err", err)
	}
}

// take reports whether a record may be written now.
func (f *refusals) take() bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	now := time.Now()
	if f.filled.IsZero() {
		f.tokens = maxRefusalBurst
	} else {
		f.tokens = min(maxRefusalBurst, f.tokens+now.Sub(f.filled).Seconds()*refusalsPerSecond)
	}
	f.filled = now
	if f.tokens < 1 {
		return false
	}
	f.tokens--
	return true
}

func (f *refusals) fold(r audit.Record) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	key := foldKey{r.Subject, r.Action, r.Kind, r.Decision}
	if known := f.folded[key]; known != nil {
		known.Count++
		return
	}
	if len(f.folded) >= maxFolded {
		f.lost++
		return
	}
	if f.folded == nil {
		f.folded = map[foldKey]*audit.Record{}
	}
	r.Count = 1
	f.folded[key] = &r
}

// flush writes the folded refusals.
func (f *refusals) flush(ctx context.Context) error {
	f.mutex.Lock()
	var records []audit.Record
	for _, r := range f.folded {
		records = append(records, *r)
	}
	if f.lost > 0 {
		records = append(records, audit.Record{Caller: audit.Caller{Decision: audit.Refuse}, Detail: "requests of further callers", Count: f.lost})
	}
	f.folded, f.lost = nil, 0
	f.mutex.Unlock()
	if len(records) == 0 {
		return nil
	}
	err := f.store.Audit(ctx, records...)
	if err != nil {
		for _, r := range records {
			n := r.Count
			f.fold(r)
			f.mutex.Lock()
			if known := f.folded[foldKey{r.Subject, r.Action, r.Kind, r.Decision}]; known != nil {
				known.Count += n - 1
			}
			f.mutex.Unlock()
		}
	}
	return err
}

// RecordRefusal audits a request that a transport refused because it could not
// authenticate the caller.
func (s *AuditTrail) RecordRefusal(ctx context.Context, source, detail string) {
	s.rights.refusals.add(ctx, audit.Record{Caller: audit.Caller{Source: source, Decision: audit.Refuse, Action: "login"}, Kind: "login", Detail: detail})
}

// KeepAudit writes folded refusals, passes the head of the audit log to checkpoint, if
// it isn't nil and the head has moved, and removes records that are older than keep (0:
// none), at intervals, until the context ends. It returns nil then.
func (s *AuditTrail) KeepAudit(ctx context.Context, keep, interval time.Duration, checkpoint func(audit.Head)) error {
	last := audit.Head{}
	trimmed := time.Now()
	for pause.For(ctx, interval) == nil {
		if err := s.rights.refusals.flush(ctx); err != nil && ctx.Err() == nil {
			s.rights.log.WarnContext(ctx, "can't write audit records of refusals yet", "err", err)
		}
		if _, head, _, err := s.rights.store.Audited(ctx, 1<<62, 1); err == nil && head != last && checkpoint != nil {
			checkpoint(head)
			last = head
		}
		if keep <= 0 || time.Since(trimmed) < 10*interval {
			continue
		}
		trimmed = time.Now()
		for n := trimBatch; n == trimBatch && ctx.Err() == nil; {
			var err error
			if n, err = s.rights.store.TrimAudit(ctx, time.Now().Add(-keep), trimBatch); err != nil && ctx.Err() == nil {
				s.rights.log.WarnContext(ctx, "can't remove old audit records, will try again", "err", err)
			}
		}
	}
	// What was folded until the end is written, too.
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.rights.refusals.flush(final); err != nil {
		s.rights.log.WarnContext(final, "audit records of refusals are lost", "err", err)
	}
	return nil
}

// AuditRecords returns the selected audit records in their order, as they are stored.
func (s *AuditTrail) AuditRecords(ctx context.Context, sel audit.Select) iter.Seq2[audit.Stored, error] {
	return record.Stream(func(yield func(audit.Stored) bool) error {
		ctx, _, err := s.rights.Enter(ctx, "", access.Audit)
		if err != nil {
			return err
		}
		if err := s.rights.refusals.flush(ctx); err != nil { // the log has them then
			return err
		}
		after := sel.After
		if !sel.Since.IsZero() {
			since, err := s.rights.store.AuditedSince(ctx, sel.Since)
			if err != nil {
				return err
			}
			after = max(after, since)
		}
		for left := sel.Max; ; {
			stored, _, _, err := s.rights.store.Audited(ctx, after, auditPage)
			if err != nil {
				return err
			}
			for _, one := range stored {
				r, err := one.Record()
				if err != nil {
					return err
				}
				after = r.Seq
				if !sel.Match(r) {
					continue
				}
				left--
				if !yield(one) || left == 0 {
					return nil
				}
			}
			if len(stored) < auditPage {
				return nil
			}
		}
	})
}

// VerifyAudit checks the chain of the audit log, from its oldest record to its head,
// and returns the range. Records that checkpoints name must have their hashes. A
// broken chain is an ErrConflict with the first bad record.
func (s *AuditTrail) VerifyAudit(ctx context.Context, checkpoints ...audit.Head) (base, head audit.Head, err error) {
	ctx, _, err = s.rights.Enter(ctx, "", access.Audit)
	if err != nil {
		return base, head, err
	}
	stored, head, base, err := s.rights.store.Audited(ctx, 0, auditPage)
	if err != nil {
		return base, head, err
	}
	for _, c := range checkpoints {
		if c.Seq == base.Seq && c.Hash != base.Hash {
			return base, head, tko.Errorf(tko.ErrConflict, "audit record %d: the last removed record has another hash than its checkpoint", c.Seq)
		}
	}
	checkpoints = withoutOlder(checkpoints, base.Seq)
	v := audit.NewVerifier(base, checkpoints...)
	for {
		for _, r := range stored {
			if err := v.Next(r); err != nil {
				return base, head, tko.Errorf(tko.ErrConflict, "%w", err)
			}
		}
		if len(stored) < auditPage {
			break
		}
		if stored, head, _, err = s.rights.store.Audited(ctx, v.At().Seq, auditPage); err != nil {
			return base, head, err
		}
	}
	if err := v.End(head); err != nil {
		return base, head, tko.Errorf(tko.ErrConflict, "%w", err)
	}
	return base, head, nil
}

func withoutOlder(checkpoints []audit.Head, seq int64) []audit.Head {
	var newer []audit.Head
	for _, c := range checkpoints {
		if c.Seq > seq {
			newer = append(newer, c)
		}
	}
	return newer
}

// ExportAudit sends audit records to a sink in their order, each at least once, at
// intervals, until the context ends. It returns nil then. A sink that fails gets the same
// records again; requests never wait for it.
func (s *AuditTrail) ExportAudit(ctx context.Context, name string, interval time.Duration, send func(context.Context, []audit.Stored) error) error {
	failed := time.Time{}
	for pause.For(ctx, interval) == nil {
		behind, err := s.exportAll(ctx, name, send)
		switch {
		case err == nil:
			failed = time.Time{}
		case ctx.Err() == nil && time.Since(failed) > time.Minute:
			failed = time.Now()
			s.rights.log.WarnContext(ctx, "can't export audit records, will try again", "sink", name, "behind", behind, "err", err)
		}
	}
	return nil
}

// exportAll sends what the sink has not received, and returns how many records it is
// behind.
func (s *AuditTrail) exportAll(ctx context.Context, name string, send func(context.Context, []audit.Stored) error) (behind int64, err error) {
	after, err := s.rights.store.AuditSink(ctx, name)
	for err == nil {
		var records []audit.Stored
		var head audit.Head
		if records, head, _, err = s.rights.store.Audited(ctx, after, auditPage); err != nil || len(records) == 0 {
			return 0, err
		}
		behind = head.Seq - after
		if err = send(ctx, records); err == nil {
			after = records[len(records)-1].Seq
			err = s.rights.store.SaveAuditSink(ctx, name, after)
		}
	}
	return behind, err
}
