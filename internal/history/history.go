// Package history reads, compares and removes the past: what entities were, what changed them, and how two moments differ.
package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	threeway "github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// A History reads, compares and removes the past.
type History struct {
	rights *rights.Authorizer
	reader record.Lookup
	store  record.Store
	log    *slog.Logger
	differ Differ

	moments   *Moments
	retention atomic.Pointer[record.Retention] // in force; nil: all is retained
}

// A Differ returns what packages are compared by: types, and a key that masks confidential values.
type Differ func(ctx context.Context) (threeway.Types, []byte, error)

// Moments reads and compares entities as of moments of the past, with the rights of the callers that it
// is given.
type Moments struct {
	reader record.Lookup
	store  record.Store
}

// New returns the history of a store, and what others compare moments by.
func New(authorizer *rights.Authorizer, store record.Store, differ Differ, log *slog.Logger) (*History, *Moments) {
	m := &Moments{reader: record.Lookup{Store: store}, store: store}
	return &History{rights: authorizer, reader: m.reader, store: store, log: log, differ: differ, moments: m}, m
}

// PositionOf returns the position of a moment.
func (s *History) PositionOf(ctx context.Context, asOf tko.AsOf) (int64, error) {
	if _, _, err := s.rights.Enter(ctx, "", access.Read); err != nil {
		return 0, err
	}
	return s.reader.PositionOf(ctx, asOf)
}

// RecordAt returns the record of a key as of a position. It returns ErrNotFound if there
// was none, and ErrGone if the state is no longer retained.
func (s *History) RecordAt(ctx context.Context, fields record.Fields, key record.Key, position int64) (record.Record, error) {
	if err := record.CheckKey(key); err != nil {
		return record.Record{}, err
	}
	ctx, c, err := s.rights.Enter(ctx, key.Kind, access.Read)
	if err != nil {
		return record.Record{}, err
	}
	return s.rights.RecordAt(ctx, c, position, key, fields)
}

// HistoryOf returns the changes of the selected entities, newest first. An entity is
// selected by what it was after the change, or before it was deleted.
func (s *History) HistoryOf(ctx context.Context, request tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error] {
	return record.Stream(func(yield func(tko.HistoryEntry) bool) error { return s.history(ctx, request, yield) })
}

// historyPage is the number of changes that are read at once.
const historyPage = 200

func (s *History) history(ctx context.Context, request tko.HistoryRequest, yield func(tko.HistoryEntry) bool) error {
	query, err := QueryOf(request.Select)
	if err != nil {
		return err
	}
	ctx, c, err := s.rights.Enter(ctx, query.Kind, access.Read)
	if err != nil {
		return err
	}
	query.Scope = c.View()
	alone := request.Select.ID != ""
	first, last, err := s.moments.MomentsOf(ctx, query.Kind, alone, request.From, request.To)
	if err != nil {
		return err
	}
	if alone {
		if request.From.IsZero() {
			first = 0 // as far as its revisions are retained
		} else if _, err := s.store.GetAt(ctx, first, record.Fields{}, record.Key{Kind: query.Kind, ID: request.Select.ID}); err != nil {
			return err
		}
	}
	types, mask, err := s.differ(ctx)
	if err != nil {
		return err
	}
	sites := relation{store: s.store, caller: c, kind: tko.KindSite, metadata: query.SiteMetadata, known: map[string]relationSpan{}}
	templates := relation{store: s.store, caller: c, kind: tko.KindTemplate, metadata: query.TemplateMetadata, known: map[string]relationSpan{}}
	sent, next := 0, int64(-1) // the revision of the next change of a single entity; -1: any
	for before := last + 1; ; {
		changes, err := s.store.History(ctx, record.HistoryQuery{Kind: query.Kind, ID: request.Select.ID, After: first, Before: before, Limit: historyPage})
		if err != nil {
			return err
		}
		for _, change := range changes {
			before = change.Position
			if err := ctx.Err(); err != nil {
				return err
			}
			if alone {
				if next >= 0 && change.Revision != next {
					return nil // earlier ones are no longer retained, except for some
				}
				next = change.Revision
				if change.Op == tko.OpWritten {
					next--
				}
			}
			d, err := s.around(ctx, change)
			if err != nil {
				return err
			}
			r := d.After
			if r.Revision == 0 {
				r = d.Before
			}
			if r.Revision != 0 && (!c.Sees(r) || !query.Matches(r)) || r.Revision == 0 && !query.Scope.IsAll() {
				continue
			}
			related, err := sites.matches(ctx, r.Site, change.Position)
			if err == nil && related {
				related, err = templates.matches(ctx, r.Template, change.Position)
			}
			if err != nil {
				return err
			}
			if !related {
				continue
			}
			e := tko.HistoryEntry{Change: change, What: d.What()}
			if d.Before.Revision == 0 || c.Sees(d.Before) { // else its values are hidden
				e.Summary = summary(d, types, mask)
			}
			switch {
			case change.Op == tko.OpDeleted:
				e.What = tko.PastDeleted
			case alone && d.Before.Revision == 0 && change.Revision > 1 && !d.After.Created.Equal(change.Time):
				e.What, e.Summary = tko.PastChanged, "the revision before is no longer retained"
			}
			if !yield(e) {
				return nil
			}
			sent++
			if sent == request.Max {
				return nil
			}
		}
		if len(changes) < historyPage {
			return nil
		}
	}
}

// A relation selects changes of deployments by the metadata that their sites or templates
// had at the change.
type relation struct {
	store    record.Past
	caller   *rights.Caller
	kind     tko.Kind
	metadata map[string]tko.Pattern // none: all match
	known    map[string]relationSpan
}

// A relationSpan is a range of positions in which a record didn't change.
type relationSpan struct {
	from, to int64
	matches  bool
}

// matches reports whether a record matched as of a position. Calls with decreasing
// positions read each revision once.
func (l *relation) matches(ctx context.Context, id string, position int64) (bool, error) {
	if len(l.metadata) == 0 {
		return true, nil
	}
	if id == "" {
		return false, nil
	}
	if span, ok := l.known[id]; ok && span.from <= position && position <= span.to {
		return span.matches, nil
	}
	records, err := l.store.GetAt(ctx, position, record.Fields{}, record.Key{Kind: l.kind, ID: id})
	if err != nil {
		return false, err
	}
	r, span := records[0], relationSpan{from: position, to: position}
	if r.Revision != 0 {
		span.from = r.Position
		span.matches = l.caller.Sees(r) && (&record.Query{Kind: l.kind, Scope: l.caller.View(), Metadata: l.metadata}).Matches(r)
	}
	l.known[id] = span
	return span.matches, nil
}

// around returns a record before and after a change, as far as it is retained.
func (s *History) around(ctx context.Context, change tko.Change) (Difference, error) {
	key := record.Key{Kind: change.Kind, ID: change.ID}
	revision := func(n int64) (record.Record, error) {
		r, err := s.store.Revision(ctx, key, n)
		if n == 0 || errors.Is(err, tko.ErrNotFound) {
			return record.Record{Key: key}, nil
		}
		return r, err
	}
	if change.Op == tko.OpDeleted {
		r, err := revision(change.Revision)
		return Difference{Before: r, After: record.Record{Key: key}}, err
	}
	after, err := revision(change.Revision)
	if err != nil {
		return Difference{}, err
	}
	before, err := revision(change.Revision - 1)
	if before.UID != after.UID {
		before = record.Record{Key: key}
	}
	return Difference{before, after}, err
}

// summary returns what a change changed, in one line.
func summary(d Difference, types threeway.Types, mask []byte) string {
	switch d.What() {
	case tko.PastDeleted:
		return ""
	case tko.PastCreated:
		text := ""
		if d.After.Template != "" {
			text = fmt.Sprintf("from template %q", d.After.Template)
		}
		if d.After.Site != "" {
			text += fmt.Sprintf(" at site %q", d.After.Site)
		}
		return text
	}
	before, err := comparablePackage(d.Before)
	if err != nil {
		return err.Error()
	}
	after, err := comparablePackage(d.After)
	if err != nil {
		return err.Error()
	}
	lines := plan.Lines(before, after, types, mask)
	if len(lines) == 0 {
		return "nothing but its revision"
	}
	l := lines[0]
	text := l.Resource
	if l.Path != "" {
		text += " " + l.Path
	}
	text += ": " + short(l.Before) + " -> " + short(l.After)
	if more := len(lines) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// short returns the beginning of a value for a line.
func short(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// MomentsOf returns the positions of a range of moments; zero is the oldest one and now.
// Of a single entity of the kind (alone), moments before the oldest one are allowed: whether its
// state is retained is known when it is read.
func (s *Moments) MomentsOf(ctx context.Context, kind tko.Kind, alone bool, from, to tko.AsOf) (first, last int64, err error) {
	oldest, newest, err := s.store.Past(ctx)
	if err != nil {
		return 0, 0, err
	}
	first, last = oldest.Position, newest.Position
	if !from.IsZero() {
		if first, err = s.reader.PositionOf(ctx, from); err != nil {
			return 0, 0, err
		}
	}
	if !to.IsZero() {
		if last, err = s.reader.PositionOf(ctx, to); err != nil {
			return 0, 0, err
		}
	}
	switch {
	case first > newest.Position || last > newest.Position:
		err = tko.Errorf(tko.ErrInvalid, "the position %d is beyond the newest change, which is %d", max(first, last), newest.Position)
	case first > last:
		err = tko.Errorf(tko.ErrInvalid, "the position %d is after the position %d: swap them", first, last)
	case first < oldest.Position && !alone:
		err = s.reader.OrAlone(ctx, kind, tko.Errorf(tko.ErrGone, "changes after the position %d are no longer retained: the oldest position is %d, of %s", first, oldest.Position, oldest.Time.Format(time.RFC3339Nano)))
	}
	return first, last, err
}
