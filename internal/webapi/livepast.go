package webapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// maxDiffGroups limits the groups of a difference.
const maxDiffGroups = 500

type diffBody struct {
	From   string          `json:"from"`
	To     string          `json:"to"` // "": now
	Groups []tko.PastGroup `json:"groups"`
	Other  int             `json:"other"` // entities of the groups that are left out
}

// diff responds with what differs between two moments, in groups of entities with equal
// differences: ?kind=&from=, and &to=, &entity= for one ID, and filters.
func (l *live) diff(r *http.Request) (*diffBody, error) {
	request, err := diffRequest(r)
	if err != nil {
		return nil, err
	}
	body := diffBody{From: request.From.String(), To: request.To.String(), Groups: []tko.PastGroup{}}
	for g, err := range l.catalog.DiffPast(r.Context(), request) {
		if err != nil {
			return nil, err
		}
		if len(body.Groups) == maxDiffGroups {
			body.Other += g.Count
			continue
		}
		g.Examples, g.Changes = orEmpty(g.Examples), orEmpty(g.Changes)
		body.Groups = append(body.Groups, g)
	}
	return &body, nil
}

func diffRequest(r *http.Request) (request tko.DiffRequest, err error) {
	query := r.URL.Query()
	kind := tko.Kind(query.Get("kind"))
	if filter.Words(kind) == nil || kind == tko.KindRollout {
		return request, tko.Errorf(tko.ErrInvalid, "kind=%.40q is unknown: use deployment, site, template or plugin", string(kind))
	}
	f, err := filter.Parse(kind, query, "kind", "entity", "from", "to")
	if err != nil {
		return request, err
	}
	if request.Select, err = f.Past(); err != nil {
		return request, err
	}
	request.Select.ID = query.Get("entity")
	if request.Select.ID != "" && !f.IsEmpty() {
		return request, tko.Errorf(tko.ErrInvalid, "entity names one %s: leave out the filters", kind)
	}
	if query.Get("from") == "" {
		return request, tko.Errorf(tko.ErrInvalid, "there is no moment to compare with: add from=, for example from=2h")
	}
	now := time.Now().UTC()
	if request.From, err = tko.ParseAsOf(query.Get("from"), now); err != nil {
		return request, err
	}
	if query.Get("to") != "" {
		request.To, err = tko.ParseAsOf(query.Get("to"), now)
	}
	return request, err
}

type retentionBody struct {
	OldestPosition Position `json:"oldestPosition"`
	NewestPosition Position `json:"newestPosition"`
	OldestTime     int64    `json:"oldestTimestamp,omitempty"` // Unix milliseconds
	NewestTime     int64    `json:"newestTimestamp,omitempty"` // Unix milliseconds
	Now            int64    `json:"now"`                       // Unix milliseconds
	Moment         int64    `json:"asOfTimestamp,omitempty"`   // Unix milliseconds: the time of ?asOf=, of a position that of its change; none if it isn't known
}

// retention responds with which part of the past can be read, and with the time that ?asOf=
// means.
func (l *live) retention(r *http.Request) (*retentionBody, error) {
	q := queryOf(r)
	q.only("asOf")
	moment := tko.AsOfOf(q.past(r.Context()))
	if q.err != nil {
		return nil, q.err
	}
	kept, err := l.catalog.Retention(r.Context())
	if err != nil {
		return nil, err
	}
	if kept.OldestTime.IsZero() { // nothing was removed yet
		if kept.OldestTime, err = l.firstTime(r.Context(), kept.OldestPosition); err != nil {
			return nil, err
		}
	}
	if moment.Position != 0 {
		if moment.Time, err = l.timeOf(r.Context(), moment.Position, kept); err != nil {
			return nil, err
		}
	}
	return &retentionBody{
		OldestPosition: Position(kept.OldestPosition), NewestPosition: Position(kept.NewestPosition), OldestTime: milliseconds(kept.OldestTime), NewestTime: milliseconds(kept.NewestTime),
		Now: time.Now().UnixMilli(), Moment: milliseconds(moment.Time),
	}, nil
}

// firstTime returns the time of the first change from a position on; zero if there is none that
// the caller may see.
func (l *live) firstTime(ctx context.Context, position int64) (time.Time, error) {
	for c, err := range l.catalog.Changes(ctx, max(0, position-1)) {
		if errors.Is(err, tko.ErrGone) { // it was removed since
			break
		}
		return c.Time, err
	}
	return time.Time{}, nil
}

// liveBlame responds with where the values of a package come from.
func (l *live) liveBlame(r *http.Request) (*blameBody, error) {
	q := queryOf(r)
	if q.only("kind", "id", "revision", "field", "history"); q.err != nil {
		return nil, q.err
	}
	return l.blame(r)
}
