package webapi

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// Limits of a throughput.
const (
	throughputTime = time.Hour
	throughputStep = time.Minute
	maxThroughput  = 20_000 // changes that one request counts
)

type throughputBody struct {
	Position Position      `json:"position"` // up to which changes were counted
	Complete bool          `json:"complete"` // false: earlier changes of the time were not counted
	Minutes  []*minuteBody `json:"minutes"`  // those with changes, in their order
}

// A minuteBody has the numbers of changes of deployments in a minute.
type minuteBody struct {
	Start     int64 `json:"start"`     // Unix milliseconds
	Prepared  int   `json:"prepared"`  // packages that preparers wrote
	Scheduled int   `json:"scheduled"` // conditions that schedulers wrote
	Others    int   `json:"others"`    // changes by others
}

// throughput responds with the numbers of changes of deployments that the caller sees, by
// minute: of the last hour, or ?after= a position. It counts the newest 20,000 changes at
// most, so that it ends early whatever the size.
func (l *live) throughput(r *http.Request) (*throughputBody, error) {
	q := queryOf(r)
	q.only("after")
	after := q.number("after", 0, 64)
	if q.err != nil {
		return nil, q.err
	}
	about, err := l.catalog.About(r.Context())
	if err != nil {
		return nil, err
	}
	kept, err := l.catalog.Retention(r.Context())
	if err != nil {
		return nil, err
	}
	body := throughputBody{Position: Position(about.Position), Minutes: []*minuteBody{}}
	begin := time.Now().Add(-throughputTime)
	newest, err := l.catalog.BeforeNewest(r.Context(), maxThroughput)
	if err != nil {
		return nil, err
	}
	first := max(after, kept.OldestPosition, newest)
	body.Complete = first == after || kept.OldestPosition <= 1 && first <= 1
	minutes := map[int64]*minuteBody{}
	for c, err := range l.catalog.Changes(r.Context(), first, tko.KindDeployment) {
		if errors.Is(err, tko.ErrGone) { // no longer retained, or the database was restored
			body.Complete = false
			break
		}
		if err != nil {
			return nil, err
		}
		body.Position = max(body.Position, Position(c.Position))
		if c.Time.Before(begin) {
			body.Complete = true
			continue
		}
		addChange(minutes, c)
	}
	body.Minutes = append(body.Minutes, slices.SortedFunc(maps.Values(minutes), func(a, b *minuteBody) int { return cmp.Compare(a.Start, b.Start) })...)
	return &body, nil
}

func addChange(minutes map[int64]*minuteBody, c tko.Change) {
	start := c.Time.Truncate(throughputStep).UnixMilli()
	m := minutes[start]
	if m == nil {
		m = &minuteBody{Start: start}
		minutes[start] = m
	}
	role := strings.TrimPrefix(c.Author.Who, identity.Own) // without rights, controllers have no more than their names
	switch {
	case role == identity.RolePreparer && c.Op == tko.OpWritten:
		m.Prepared++
	case role == identity.RoleScheduler && c.Op == tko.OpStatus:
		m.Scheduled++
	default:
		m.Others++
	}
}

// maxHistory limits the changes of one entity in a response.
const maxHistory = 200

type entityEventBody struct {
	Position Position `json:"position"`
	What     string   `json:"what"` // created, changed or deleted
	Summary  string   `json:"summary,omitempty"`
	Revision int64    `json:"revision"`
	Time     int64    `json:"time"` // Unix milliseconds
	Who      string   `json:"who,omitempty"`
	Why      string   `json:"why,omitempty"`
}

type historyBody struct {
	Events []entityEventBody `json:"events"` // the newest first
}

// history responds with the newest changes of an entity, newest first: ?kind=&id=, and
// &limit=.
func (l *live) history(r *http.Request) (*historyBody, error) {
	q := queryOf(r)
	q.only("kind", "id", "limit")
	limit := q.limit(defaultPage, maxHistory)
	if q.Get("id") == "" {
		q.wrong("there is no ID: add &id=ID")
	}
	if q.err != nil {
		return nil, q.err
	}
	body := &historyBody{Events: []entityEventBody{}}
	request := tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.Kind(q.Get("kind")), ID: q.Get("id")}, Max: limit}
	for e, err := range l.catalog.HistoryOf(r.Context(), request) {
		if err != nil {
			return nil, err
		}
		body.Events = append(body.Events, entityEventBody{Position: Position(e.Position), What: e.What, Summary: e.Summary, Revision: e.Revision, Time: e.Time.UnixMilli(), Who: e.Author.Who, Why: e.Author.Why})
	}
	return body, nil
}
