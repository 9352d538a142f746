package changelog

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Records returns the records that match query, sorted by ID, as of position,
// which must not be newer than the newest change. So the pages of a list are
// consistent, also if different servers read them and records change between them.
// Of records that have changed since position, newer conditions are left out.
//
// It returns ErrGone if the state as of position is no longer retained.
func (s *ChangeLog) Records(ctx context.Context, query record.Query, position int64) iter.Seq2[record.Record, error] {
	return record.Stream(func(yield func(record.Record) bool) error {
		ctx, w, err := s.rights.Reads(ctx, query.Kind)
		if err != nil {
			return err
		}
		if err := criteria.CheckAfter(query.After); err != nil {
			return err
		}
		if err := criteria.CheckCount(len(query.IDs) + len(query.Templates) + len(query.Sites) + len(query.Metadata) + len(query.TemplateMetadata) + len(query.SiteMetadata) + len(query.Labels)); err != nil {
			return err
		}
		query.Scope, query.Offset, query.AsOf = w.Caller().View(), 0, position
		if position == 0 {
			return nil // there was nothing
		}
		return s.rights.Each(ctx, w, query, func(r record.Record) (bool, error) { return yield(r), nil })
	})
}

// restoreConditions takes the conditions that are older than a time, and the
// deployments, from the current record.
func restoreConditions(r *record.Record, now record.Record, before time.Time) {
	r.Conditions = slices.DeleteFunc(slices.Clone(now.Conditions), func(c tko.Condition) bool {
		return c.ObservedRevision > r.Revision || !c.LastTransition.Before(before)
	})
	r.Deployments, r.Count = now.Deployments, now.Count
	if r.Count == 0 {
		r.Count = len(r.Deployments)
	}
}

// An Event is a change together with the record after it.
type Event struct {
	tko.Change
	Record record.Record // after the change; of a deletion, the record before it
	New    bool          // the change created the record
}

// eventBatch is the maximum number of packages in memory at once.
const eventBatch = 100

// Events returns changes of a kind, regardless of rights: the transport shows a
// client only what its [Watcher] sees. It returns the changes after a position, in their order, and the position up to which they are complete. If there are none, wait is closed
// once there may be some. A change of conditions is left out if a later change
// of the record follows, whose event has the conditions; each other change has
// exactly one event. Errors as for CheckPosition. If the revision of an old
// change is no longer retained, its Record has only a Key and a Revision.
func (s *ChangeLog) Events(ctx context.Context, kind tko.Kind, after int64) (events []Event, upTo int64, wait <-chan struct{}, err error) {
	var mine []tko.Change
	for upTo = after; len(mine) == 0; {
		var changes []tko.Change
		changes, wait, err = s.changes.after(ctx, upTo)
		if err != nil {
			return nil, 0, nil, err
		}
		if len(changes) == 0 {
			return nil, upTo, wait, nil // wait covers all changes after upTo
		}
		for _, c := range changes {
			if c.Kind == kind {
				if len(mine) == eventBatch {
					break
				}
				mine = append(mine, c)
			}
			upTo = c.Position
		}
	}
	var keys []record.Key
	now := map[string]record.Record{}
	for _, c := range mine {
		if _, ok := now[c.ID]; !ok {
			now[c.ID] = record.Record{}
			keys = append(keys, record.Key{Kind: kind, ID: c.ID})
		}
	}
	records, err := s.store.Get(ctx, record.Fields{Package: true, Deployments: kind == tko.KindTemplate || kind == tko.KindSite, Scope: access.ScopeAll}, keys...)
	if err != nil {
		return nil, 0, nil, err
	}
	for _, r := range records {
		now[r.ID] = r
	}
	fresh := map[string]bool{} // UIDs of records that this batch created
	for _, c := range mine {
		event, ok, err := s.event(ctx, c, now[c.ID])
		if err != nil {
			return nil, 0, nil, err
		}
		if !ok {
			continue
		}
		if uid := event.Record.UID; event.New && fresh[uid] {
			event.New = false // created and changed in the same batch
		} else if event.New {
			fresh[uid] = true
		}
		events = append(events, event)
	}
	return events, upTo, wait, nil
}

// event returns the event of a change; ok is false if the log doesn't determine
// it.
func (s *ChangeLog) event(ctx context.Context, c tko.Change, now record.Record) (e Event, ok bool, err error) {
	event := Event{Change: c, Record: now}
	if now.Position != c.Position {
		if c.Op == tko.OpStatus {
			return event, false, nil
		}
		r, err := s.store.Revision(ctx, record.Key{Kind: c.Kind, ID: c.ID}, c.Revision)
		if errors.Is(err, tko.ErrNotFound) {
			r, err = record.Record{Key: record.Key{Kind: c.Kind, ID: c.ID}, Revision: c.Revision}, nil
		}
		if err != nil {
			return event, false, err
		}
		if now.UID == r.UID {
			restoreConditions(&r, now, c.Time.Add(time.Microsecond))
		}
		r.Position = c.Position
		event.Record = r
	}
	if c.Op == tko.OpDeleted && c.Kind == tko.KindRollout && len(event.Record.Conditions) == 0 { // the log doesn't have its last state
		event.Record.Conditions = []tko.Condition{{Type: tko.ConditionState, Status: tko.ConditionTrue, Reason: "Deleted", LastTransition: c.Time}}
	}
	event.New = c.Op == tko.OpWritten && (c.Revision == 1 || event.Record.Created.Equal(c.Time))
	return event, true, nil
}

// Before returns the record of an event as it was before the change; Revision 0
// if it didn't exist, or if its revision is no longer retained.
func (s *ChangeLog) Before(ctx context.Context, e Event) (record.Record, error) {
	switch {
	case e.New:
		return record.Record{}, nil
	case e.Op != tko.OpWritten:
		return e.Record, nil
	}
	r, err := s.store.Revision(ctx, record.Key{Kind: e.Kind, ID: e.ID}, e.Revision-1)
	if errors.Is(err, tko.ErrNotFound) || err == nil && r.UID != e.Record.UID {
		return record.Record{}, nil
	}
	return r, err
}
