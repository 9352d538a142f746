package webapi

import (
	"encoding/json"
	"mime"
	"net/http"
	"time"

	"github.com/tko-orchestrator/tko"
)

// maxChangedPage limits the rows of a page that have their changes: each is computed
// from two packages.
const maxChangedPage = 20

// A rolloutStatusBody is how far a rollout is, and what can be done with it.
type rolloutStatusBody struct {
	statusBody

	Position Position      `json:"position"`
	Started  int64         `json:"started,omitempty"` // Unix milliseconds
	Until    int64         `json:"until,omitempty"`   // Unix milliseconds: estimated end
	Now      int64         `json:"now"`               // Unix milliseconds
	Examples []planRowBody `json:"examples"`          // deployments that need attention
	Commands []string      `json:"commands"`          // that the state allows
	Can      []string      `json:"can"`               // rights of the caller
}

func (l *live) newLiveStatus(r *http.Request, s tko.RolloutStatus) (*rolloutStatusBody, error) {
	body := &rolloutStatusBody{
		statusBody: newStatusBody(s), Position: Position(s.Position), Started: milliseconds(s.Started), Until: milliseconds(s.Until), Now: milliseconds(s.Now),
		Examples: []planRowBody{}, Commands: orEmpty(s.Commands),
	}
	for _, row := range s.Examples {
		body.Examples = append(body.Examples, newPlanRow(row))
	}
	var err error
	body.Can, err = l.can(r.Context(), tko.KindRollout, string(s.ID))
	return body, err
}

// milliseconds returns a time in Unix milliseconds; 0 if it isn't known.
func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// liveStatus responds with how far a rollout is: ?id=.
func (l *live) liveStatus(r *http.Request) (*rolloutStatusBody, error) {
	q := queryOf(r)
	id := q.rollout()
	if q.err != nil {
		return nil, q.err
	}
	status, err := l.catalog.RolloutStatus(r.Context(), id)
	return l.statusOf(r, status, err)
}

// statusOf returns the body of a status, unless reading the status has failed.
func (l *live) statusOf(r *http.Request, status tko.RolloutStatus, err error) (*rolloutStatusBody, error) {
	if err != nil {
		return nil, err
	}
	return l.newLiveStatus(r, status)
}

// rollout reads ?id=, and refuses other parameters than the named ones.
func (q *query) rollout(others ...string) tko.RolloutID {
	q.only(append([]string{"id"}, others...)...)
	return tko.RolloutID(q.id())
}

type rolloutPlanBody struct {
	ID     tko.RolloutID      `json:"id"`
	Digest string             `json:"digest"`
	State  string             `json:"state"`
	Kinds  map[string]int     `json:"kinds"`
	Waves  []tko.RolloutWave  `json:"waves"`
	Groups []tko.RolloutGroup `json:"groups"`

	Warnings   []string `json:"warnings"`   // what a reviewer should know
	Unreported int      `json:"unreported"` // deployments at sites that report no health

	Images []tko.RolloutImage `json:"images,omitempty"` // what is needed and not there yet, if the rollout stages
}

// rolloutPlan responds with the current plan of a rollout, in groups of equal changes: ?id=.
func (l *live) rolloutPlan(r *http.Request) (*rolloutPlanBody, error) {
	q := queryOf(r)
	id := q.rollout()
	if q.err != nil {
		return nil, q.err
	}
	plan, err := l.catalog.RolloutPlan(r.Context(), id)
	if err != nil {
		return nil, err
	}
	body := rolloutPlanBody{ID: plan.ID, Digest: plan.Digest, State: plan.State, Kinds: orEmptyMap(plan.Kinds), Waves: orEmpty(plan.Waves), Groups: orEmpty(plan.Groups), Warnings: orEmpty(plan.Warnings), Unreported: plan.Unreported, Images: plan.Images}
	for i := range body.Groups {
		g := &body.Groups[i]
		g.Examples, g.Changes = orEmpty(g.Examples), orEmpty(g.Changes)
	}
	return &body, nil
}

type planRowBody struct {
	Deployment tko.DeploymentID    `json:"deployment"`
	Site       tko.SiteID          `json:"site"`
	Kind       string              `json:"kind"`
	Wave       int                 `json:"wave"` // -1: it isn't applied
	Revision   int64               `json:"revision"`
	Group      int                 `json:"group"`
	Findings   []string            `json:"findings"`
	Unknown    []string            `json:"unknown"` // known after preparation
	Progress   string              `json:"progress"`
	Reason     string              `json:"reason"`
	Since      int64               `json:"since,omitempty"` // Unix milliseconds
	Applied    int64               `json:"applied,omitempty"`
	Staging    string              `json:"staging,omitempty"` // how far the pull of its images is
	Changes    []tko.RolloutChange `json:"changes,omitempty"`
}

func newPlanRow(r tko.RolloutRow) planRowBody {
	return planRowBody{
		Deployment: r.Deployment, Site: r.Site, Kind: r.Kind, Wave: r.Wave, Revision: r.Revision, Group: r.Group, Findings: orEmpty(r.Findings), Unknown: orEmpty(r.Unknown),
		Progress: r.Progress, Reason: r.Reason, Since: milliseconds(r.Since), Applied: r.Applied, Staging: r.Staging, Changes: r.Changes,
	}
}

type rolloutRowsBody struct {
	Rows []planRowBody    `json:"rows"`
	Next tko.DeploymentID `json:"next,omitempty"` // the next page begins after this ID
}

// rolloutRows responds with a page of the rows of a plan: ?id=, and &group=, &wave=, &kind=,
// &progress=, &site=, &deployment=, &after=, &limit=. With &changes=true rows have the
// changes of their packages, and a page has at most 20.
func (l *live) rolloutRows(r *http.Request) (*rolloutRowsBody, error) {
	q := queryOf(r)
	sel := tko.RolloutRows{
		ID:         q.rollout("group", "wave", "kind", "progress", "site", "deployment", "after", "limit", "changes"),
		Deployment: tko.DeploymentID(q.Get("deployment")), Site: q.Get("site"), Kinds: q.Values["kind"], Progress: q.Values["progress"],
		After: tko.DeploymentID(q.Get("after")),
	}
	most := int64(maxPage)
	if changes := q.flag("changes"); changes != nil && *changes {
		sel.Changes, most = true, maxChangedPage
	}
	limit := q.limit(min(defaultPage, most), most)
	if group := int(q.number("group", -1, 32)); q.Has("group") {
		sel.Group = &group
	}
	wave := int(q.number("wave", -1, 32))
	switch {
	case !q.Has("wave"):
		sel.Limit = limit + 1
	case sel.Changes:
		q.wrong("changes=true can't be read by wave: select a deployment or a site")
	case wave < 0:
		q.wrong("wave=%.40q is no wave: use the index of a wave of the status, from 0", q.Get("wave"))
	}
	if q.err != nil {
		return nil, q.err
	}
	body := rolloutRowsBody{Rows: []planRowBody{}}
	for row, err := range l.catalog.RolloutRows(r.Context(), sel) {
		if err != nil {
			return nil, err
		}
		if q.Has("wave") && row.Wave != wave {
			continue
		}
		if len(body.Rows) == limit {
			body.Next = body.Rows[limit-1].Deployment
			break
		}
		body.Rows = append(body.Rows, newPlanRow(row))
	}
	return &body, nil
}

// A commandBody is a command of a rollout.
type commandBody struct {
	ID          tko.RolloutID    `json:"id"`
	Command     string           `json:"command"`
	Plan        string           `json:"plan"`
	SkipBlocked bool             `json:"skipBlocked"`
	Blind       bool             `json:"blind"`
	Force       bool             `json:"force"`
	AnyTime     bool             `json:"anyTime"`
	Deployment  tko.DeploymentID `json:"deployment"`
	Wave        string           `json:"wave"`
	Metric      string           `json:"metric"`
	Reason      string           `json:"reason"`
}

// rolloutCommand does a command of a rollout, and responds with its status.
func (l *live) rolloutCommand(r *http.Request) (*rolloutStatusBody, error) {
	var c commandBody
	err := readJSON(r, &c)
	var status tko.RolloutStatus
	switch {
	case err != nil:
	case c.ID == "":
		err = tko.Errorf(tko.ErrInvalid, "there is no ID: add the id of a rollout")
	case len(c.Reason) > maxReason:
		err = tko.Errorf(tko.ErrInvalid, "the reason has %d bytes: use at most %d", len(c.Reason), maxReason)
	default:
		status, err = l.catalog.RolloutDo(withReason(r.Context(), c.Reason), tko.RolloutCommand{
			ID: c.ID, Verb: c.Command, Plan: c.Plan, SkipBlocked: c.SkipBlocked, Blind: c.Blind, Force: c.Force, AnyTime: c.AnyTime, Deployment: c.Deployment,
			Wave: c.Wave, Metric: c.Metric,
		})
	}
	return l.statusOf(r, status, err)
}

// readJSON reads the body of a request, whose fields must be known.
func readJSON(r *http.Request, body any) error {
	if typ, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || typ != "application/json" {
		return tko.Errorf(tko.ErrInvalid, "the content type is %.40q: send application/json", r.Header.Get("Content-Type"))
	}
	decoder := json.NewDecoder(r.Body) // which respond limits
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		return tko.Errorf(tko.ErrInvalid, "the request is not valid JSON of at most %d bytes: %v", maxAction, err)
	}
	return nil
}
