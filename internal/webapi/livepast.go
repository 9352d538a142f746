package webapi

import (
	"net/http"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// maxDiffGroups limits the groups of a difference.
const maxDiffGroups = 500

type pastGroupBody struct {
	What     string          `json:"what"` // created, changed or deleted
	Count    int             `json:"count"`
	Examples []string        `json:"examples"`
	Changes  []packageChange `json:"changes"`
	More     int             `json:"more,omitempty"`   // changes that are left out
	Coarse   bool            `json:"coarse,omitempty"` // the values differ
}

type diffBody struct {
	From   string          `json:"from"`
	To     string          `json:"to"` // "": now
	Groups []pastGroupBody `json:"groups"`
	Other  int             `json:"other"` // entities of the groups that are left out
}

// diff responds with what differs between two moments, in groups of entities with equal
// differences: ?kind=&from=, and &to=, &entity= for one ID, and filters.
func (l *live) diff(w http.ResponseWriter, r *http.Request) {
	request, err := diffRequest(r)
	if err != nil {
		l.fail(w, r, err)
		return
	}
	body := diffBody{From: request.From.String(), To: request.To.String(), Groups: []pastGroupBody{}}
	for g, err := range l.catalog.DiffPast(r.Context(), request) {
		if err != nil {
			l.fail(w, r, err)
			return
		}
		if len(body.Groups) == maxDiffGroups {
			body.Other += g.Count
			continue
		}
		body.Groups = append(body.Groups, pastGroupBody{What: g.What, Count: g.Count, Examples: orEmpty(g.Examples), Changes: changesOf(g.Changes), More: g.More, Coarse: g.Coarse})
	}
	writeJSON(w, http.StatusOK, body)
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
	if request.Select.ID = query.Get("entity"); request.Select.ID != "" && !f.IsEmpty() {
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
	OldestPosition int64 `json:"oldestPosition"`
	NewestPosition int64 `json:"newestPosition"`
	OldestTime     int64 `json:"oldestTimestamp,omitempty"` // Unix milliseconds
	NewestTime     int64 `json:"newestTimestamp,omitempty"` // Unix milliseconds
}

// retention responds with which part of the past can be read.
func (l *live) retention(w http.ResponseWriter, r *http.Request) {
	err := only(r.URL.Query())
	var kept tko.Retention
	if err == nil {
		kept, err = l.catalog.Retention(r.Context())
	}
	if err != nil {
		l.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, retentionBody{
		OldestPosition: kept.OldestPosition, NewestPosition: kept.NewestPosition, OldestTime: milliseconds(kept.OldestTime), NewestTime: milliseconds(kept.NewestTime),
	})
}

// liveBlame responds with where the values of a package come from.
func (l *live) liveBlame(w http.ResponseWriter, r *http.Request) {
	if err := only(r.URL.Query(), "kind", "id", "revision", "field", "history"); err != nil {
		l.fail(w, r, err)
		return
	}
	l.blame(w, r)
}
