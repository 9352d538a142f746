package catalog

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
)

// maxBehind is how many changes a list may be behind: beyond, it would cost
// more to go back than to begin again.
const maxBehind = 100_000

// Records answers what a query selects, sorted by ID, as everything was at a
// position, which is no newer than the newest change: so the pages of a list
// belong together, whichever server answers them and whatever is written
// meanwhile. What the query says of a record's template and site (their
// metadata) must be empty. Of what changed since, conditions are left out that
// are newer, and deployments of templates and sites are those of now.
//
// ErrGone if what is needed is no longer kept, or very much has changed since.
func (s *Service) Records(ctx context.Context, query Query, position int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := s.recordsAt(ctx, query, position, yield); err != nil {
			yield(Record{}, err)
		}
	}
}

var errStop = errors.New("no more is wanted")

// recordsAt goes through what is there now, and puts what was there in place of
// what has changed since.
func (s *Service) recordsAt(ctx context.Context, query Query, position int64, yield func(Record, error) bool) error {
	if err := checkAfter(query.After); err != nil {
		return err
	}
	if err := checkPatternCount(len(query.IDs) + len(query.Templates) + len(query.Sites) + len(query.Metadata) + len(query.Labels)); err != nil {
		return err
	}
	if query.Limit == 0 {
		return nil
	}
	query.Offset = 0
	b := &back{service: s, query: query, position: position, seen: position, changed: map[string]tko.Change{}}
	b.take = func(r Record) error {
		if !yield(r, nil) {
			return errStop
		}
		if b.query.Limit--; b.query.Limit == 0 {
			return errStop
		}
		return nil
	}
	err := b.all(ctx)
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// back goes back to a position.
type back struct {
	service  *Service
	query    Query // what is still wanted
	position int64
	take     func(Record) error

	seen    int64                 // the position up to which changes were read
	read    int                   // how many
	changed map[string]tko.Change // the first change since, by ID
	ids     []string              // of what changed, sorted, that is still to come
}

// all lists what is still wanted, and again as long as so much of it is new
// that something is missing.
func (b *back) all(ctx context.Context) error {
	size := 0
	for more := true; more; {
		query := b.query
		if size = max(query.Limit, 2*size); query.Limit > 0 {
			query.Limit = size
		}
		listed := 0
		for r, err := range b.service.store.List(ctx, query) {
			if listed++; err == nil && listed == 1 { // now that what is listed is fixed
				err = b.load(ctx)
			}
			if err == nil {
				err = b.before(ctx, r.ID)
			}
			if err != nil {
				return err
			}
			b.query.After = r.ID
			if _, ok := b.changed[r.ID]; ok {
				continue // before has seen to it
			}
			if err := b.take(r); err != nil {
				return err
			}
		}
		if listed == 0 {
			if err := b.load(ctx); err != nil {
				return err
			}
		}
		more = query.Limit > 0 && listed == query.Limit
	}
	return b.before(ctx, "")
}

// load reads what has changed since.
func (b *back) load(ctx context.Context) error {
	for {
		changes, err := b.service.store.Changes(ctx, b.seen, watchBatch)
		if err != nil {
			return err
		}
		for _, c := range changes {
			b.seen = c.Position
			if _, ok := b.changed[c.ID]; ok || c.Kind != b.query.Kind || c.ID <= b.query.After {
				continue
			}
			b.changed[c.ID] = c
			b.ids = append(b.ids, c.ID)
		}
		if b.read += len(changes); b.read > maxBehind {
			return tko.Errorf(tko.ErrGone, "more than %d changes were made since this list began: list again", maxBehind)
		}
		if len(changes) < watchBatch {
			slices.Sort(b.ids)
			return nil
		}
	}
}

// before takes what was there then up to an ID, "" being the end.
func (b *back) before(ctx context.Context, id string) error {
	for len(b.ids) > 0 && (id == "" || b.ids[0] <= id) {
		change := b.changed[b.ids[0]]
		b.ids = b.ids[1:]
		r, err := b.service.recordBefore(ctx, change, b.query.Fields)
		if err != nil {
			return err
		}
		if r.Revision == 0 || !b.query.matches(r) {
			continue
		}
		if err := b.take(r); err != nil {
			return err
		}
	}
	return nil
}

// recordBefore answers a record as it was before a change of it; Revision 0 if
// it wasn't there.
func (s *Service) recordBefore(ctx context.Context, change tko.Change, fields Fields) (Record, error) {
	key := Key{Kind: change.Kind, ID: change.ID}
	revision, uid := change.Revision, ""
	if change.Op == tko.OpWritten {
		if revision == 1 {
			return Record{}, nil
		}
		r, err := s.revision(ctx, key, revision)
		if err != nil || r.Created.Equal(change.Time) {
			return Record{}, err
		}
		revision, uid = revision-1, r.UID
	}
	r, err := s.revision(ctx, key, revision)
	if err != nil || uid != "" && uid != r.UID {
		return Record{}, err // that one had gone
	}
	return s.asOf(ctx, r, change.Time, fields)
}

func (s *Service) revision(ctx context.Context, key Key, revision int64) (Record, error) {
	r, err := s.store.Revision(ctx, key, revision)
	if errors.Is(err, tko.ErrNotFound) {
		err = tko.Errorf(tko.ErrGone, "revision %d of %s %q is no longer kept: list again", revision, key.Kind, key.ID)
	}
	return r, err
}

// asOf gives a revision what revisions haven't: the conditions that were known
// before a time, and the deployments of now.
func (s *Service) asOf(ctx context.Context, r Record, before time.Time, fields Fields) (Record, error) {
	now, err := s.get(ctx, Fields{Deployments: fields.Deployments}, r.Key)
	if err != nil {
		return Record{}, err
	}
	if now.UID == r.UID {
		r.asThen(now, before)
	}
	if !fields.Package {
		r.Package = nil
	}
	return r, nil
}

// asThen takes from what a record is now what it was then, as far as that can
// be told.
func (r *Record) asThen(now Record, before time.Time) {
	r.Conditions = slices.DeleteFunc(slices.Clone(now.Conditions), func(c tko.Condition) bool {
		return c.ObservedRevision > r.Revision || !c.LastTransition.Before(before)
	})
	r.Deployments, r.Count = now.Deployments, now.Count
	if r.Count == 0 {
		r.Count = len(r.Deployments)
	}
}

// matches says whether a record that wasn't listed is one of a query's.
func (q *Query) matches(r Record) bool {
	match := func(patterns []tko.Pattern, text string) bool {
		return !slices.ContainsFunc(patterns, func(p tko.Pattern) bool { return !p.Match(text) })
	}
	if r.ID <= q.After || !match(q.IDs, r.ID) || !match(q.Templates, r.Template) || !match(q.Sites, r.Site) ||
		q.Parent != "" && q.Parent != r.Parent ||
		q.Prepared != nil && *q.Prepared != r.Prepared || q.Approved != nil && *q.Approved != r.Approved ||
		q.CRDs && !r.CRDs || q.Origin != "" && q.Origin != r.Origin {
		return false
	}
	for key, pattern := range q.Labels {
		if value, ok := r.labels()[key]; !ok || !pattern.Match(value) {
			return false
		}
	}
	for key, pattern := range q.Metadata {
		if value, ok := r.effective()[key]; !ok || !pattern.Match(value) {
			return false
		}
	}
	return true
}

// An Event is a change with what it made of its record.
type Event struct {
	tko.Change
	Record Record // as the change left it; of a deleted one, as it was before
	New    bool   // it wasn't there before
}

// eventBatch bounds how many packages are in memory at once.
const eventBatch = 100

// CheckPosition answers an ErrGone for a position after which not all changes
// can be told.
func (s *Service) CheckPosition(ctx context.Context, position int64) error {
	head, err := s.store.Head(ctx)
	if err != nil {
		return err
	}
	if position > head {
		return tko.Errorf(tko.ErrGone, "the position %d is beyond the newest change, which is %d: list again, and watch from there", position, head)
	}
	_, err = s.store.Changes(ctx, position, 1)
	return err
}

// Events answers changes of a kind after a position, in their order, and the
// position up to which that is all. If there are none, wait is closed once
// there may be some. A change of conditions that a later change follows is left
// out, because that tells them; everything else is there exactly once.
// ErrGone as from CheckPosition; of changes that are too old but still in the
// log, what is no longer kept is the record: it has only a Key then.
func (s *Service) Events(ctx context.Context, kind tko.Kind, after int64) (events []Event, upTo int64, wait <-chan struct{}, err error) {
	var mine []tko.Change
	for upTo = after; len(mine) == 0; {
		var changes []tko.Change
		changes, wait, err = s.recent.after(ctx, upTo)
		if err != nil {
			return nil, 0, nil, err
		}
		if len(changes) == 0 {
			return nil, upTo, wait, nil // only now does wait cover all that follows upTo
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
	var keys []Key
	now := map[string]Record{}
	for _, c := range mine {
		if _, ok := now[c.ID]; !ok {
			now[c.ID] = Record{}
			keys = append(keys, Key{Kind: kind, ID: c.ID})
		}
	}
	records, err := s.store.Get(ctx, Fields{Package: true, Deployments: kind == tko.KindTemplate || kind == tko.KindSite}, keys...)
	if err != nil {
		return nil, 0, nil, err
	}
	for _, r := range records {
		now[r.ID] = r
	}
	fresh := map[string]bool{} // UIDs of what this batch made
	for _, c := range mine {
		event, ok, err := s.event(ctx, c, now[c.ID])
		if err != nil {
			return nil, 0, nil, err
		}
		if !ok {
			continue
		}
		if uid := event.Record.UID; event.New && fresh[uid] {
			event.New = false // it came and was changed within a moment
		} else if event.New {
			fresh[uid] = true
		}
		events = append(events, event)
	}
	return events, upTo, wait, nil
}

// event answers what a change made of its record, if that can be told.
func (s *Service) event(ctx context.Context, c tko.Change, now Record) (Event, bool, error) {
	event := Event{Change: c, Record: now}
	if now.Position != c.Position {
		if c.Op == tko.OpStatus {
			return event, false, nil
		}
		r, err := s.store.Revision(ctx, Key{Kind: c.Kind, ID: c.ID}, c.Revision)
		if errors.Is(err, tko.ErrNotFound) {
			r, err = Record{Key: Key{Kind: c.Kind, ID: c.ID}, Revision: c.Revision}, nil
		}
		if err != nil {
			return event, false, err
		}
		if now.UID == r.UID {
			r.asThen(now, c.Time.Add(time.Microsecond))
		}
		r.Position = c.Position
		event.Record = r
	}
	event.New = c.Op == tko.OpWritten && (c.Revision == 1 || event.Record.Created.Equal(c.Time))
	return event, true, nil
}

// Before answers the record of an event as it was before it; Revision 0 if it
// wasn't there, or if that is no longer kept.
func (s *Service) Before(ctx context.Context, e Event) (Record, error) {
	switch {
	case e.New:
		return Record{}, nil
	case e.Op != tko.OpWritten:
		return e.Record, nil
	}
	r, err := s.store.Revision(ctx, Key{Kind: e.Kind, ID: e.ID}, e.Revision-1)
	if errors.Is(err, tko.ErrNotFound) || err == nil && r.UID != e.Record.UID {
		return Record{}, nil
	}
	return r, err
}
