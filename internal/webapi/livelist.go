package webapi

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/krm"
)

// Limits of a response.
const (
	defaultPage = 100    // rows
	maxPage     = 500    // rows
	maxCounted  = 10_000 // entities that one request counts
	enoughRead  = 1000   // entities that a request for a state reads if it has found some
	maxGroups   = 400
)

type pageBody[R any] struct {
	Position Position `json:"position"` // of the newest change before the page was read
	Rows     []R      `json:"rows"`
	Next     string   `json:"next,omitempty"` // the next page begins after this ID
}

// list responds with a page of a list: ?after=ID&limit=N, filters, and groups of counts
// (&within=). With ?state=, &reason=, or a group that no filter selects, a page may be short,
// or empty, and still have a next one: one request reads at most 10,000 entities, and 1,000 if
// some of them match.
func list[R any](l *live, r *http.Request, kind tko.Kind) (*pageBody[R], error) {
	q := queryOf(r)
	values, groups := q.within(kind)
	f, err := filter.Parse(kind, values, "after", "limit", "state", "reason", "within", "asOf")
	q.check(err)
	ctx, state, limit := q.past(r.Context()), q.state(), q.limit(defaultPage, maxPage)
	if q.err != nil {
		return nil, q.err
	}
	about, err := l.catalog.About(r.Context())
	if err != nil {
		return nil, err
	}
	sites := joinOf(nil, groups)
	in := inGroups(groups, sites)
	body := &pageBody[R]{Position: Position(about.Position), Rows: make([]R, 0, limit)}
	reason, most := q.Get("reason"), limit+1
	if state != "" || reason != "" || len(groups) > 0 {
		most = maxCounted + 1
	}
	last, read := "", 0
	for row, err := range l.rows(ctx, f, sites, tko.Window{After: q.Get("after"), Max: &most}) {
		if err != nil {
			return nil, err
		}
		if len(body.Rows) == limit || read == maxCounted || most > maxCounted && read >= enoughRead && len(body.Rows) > 0 {
			body.Next = last
			break
		}
		read++
		last = row.id
		if (state == "" || row.summary.State == state) && (reason == "" || row.summary.Reason == reason) && in(row) {
			body.Rows = append(body.Rows, bodyOf[R](row))
		}
	}
	return body, nil
}

// state reads the state of entities; "" for all.
func (q *query) state() tko.State {
	state := tko.State(q.Get("state"))
	if state != "" && !slices.Contains(tko.States(), state) {
		q.wrong("state=%.40q is unknown: use failing, waiting, working, healthy or unknown", string(state))
	}
	return state
}

type groupBody struct {
	Keys   []string          `json:"keys"`
	Count  int               `json:"count"`
	States map[tko.State]int `json:"states"`
	Sample string            `json:"message,omitempty"` // of the first entity
}

type countBody struct {
	progressBody

	Counted int          `json:"counted"`
	Groups  []*groupBody `json:"groups"`         // the largest first
	Other   *groupBody   `json:"other"`          // the sum of all smaller groups
	Next    string       `json:"next,omitempty"` // not all were counted: go on after this ID
}

// count responds with the numbers of entities by up to two keys: state, reason, template,
// site, metadata.KEY, and for deployments site-metadata.KEY; with &within= only those of groups
// of another count. One request counts at most 10,000, so that it ends early whatever the
// size; next continues. With whole=true the server counts all in the background, and responds
// with the newest numbers that it has.
func (l *live) count(r *http.Request, kind tko.Kind) (*countBody, error) {
	q := queryOf(r)
	counted := q.count(kind)
	ctx := q.past(r.Context())
	if q.err != nil {
		return nil, q.err
	}
	about, err := l.catalog.About(r.Context())
	if err != nil {
		return nil, err
	}
	var body *countBody
	if q.Get("whole") == "true" {
		body, err = l.whole(ctx, counted, about.Position)
	} else {
		body, err = l.countPage(ctx, counted, about.Position, q.Get("after"))
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// count reads what is counted.
func (q *query) count(kind tko.Kind) countQuery {
	selected, groups := q.within(kind)
	f, err := filter.Parse(kind, selected, "after", "by", "state", "within", "asOf", "whole")
	q.check(err)
	by := strings.Split(cmp.Or(q.Get("by"), "state"), ",")
	if len(by) > 2 {
		q.wrong("by=%.80q has %d keys: use one or two", q.Get("by"), len(by))
	}
	for _, key := range by {
		if !filter.IsGrouping(kind, key) {
			q.wrong("by=%.80q is unknown: use %s", key, filter.Groupings(kind))
		}
	}
	whole := q.Get("whole")
	if whole != "" && whole != "true" && whole != "false" {
		q.wrong("whole=%.40q is no boolean: use true or false", whole)
	}
	if whole == "true" && q.Has("after") {
		q.wrong("whole=true counts everything: leave out after")
	}
	values := maps.Clone(q.Values)
	values.Del("asOf")
	return countQuery{filter: f, by: by, state: q.state(), groups: groups, values: values, asOf: q.Get("asOf")}
}

// countPage counts the entities after an ID.
func (l *live) countPage(ctx context.Context, q countQuery, position int64, after string) (*countBody, error) {
	sum := newCounting(q, maxCounted)
	most := maxCounted + 1
	last, next := "", ""
	for row, err := range l.rows(ctx, q.filter, sum.sites, tko.Window{After: after, Max: &most}) {
		if err != nil {
			return nil, err
		}
		if sum.read == maxCounted {
			next = last
			break
		}
		last = row.id
		sum.add(row)
	}
	body := sum.body()
	body.Position, body.Next = Position(position), next
	return &body, nil
}

// A counting is the numbers of entities in groups.
type counting struct {
	keys          []keyOf
	sites         join
	counts        func(liveRow) bool // whether an entity is counted
	most          int                // groups; others are counted together
	groups        map[string]*groupBody
	other         *groupBody
	read, counted int
}

// newCounting begins to count what a query selects. Its join must have the values of the sites
// of what is added.
func newCounting(q countQuery, most int) *counting {
	c := emptyCounting()
	c.sites, c.most = joinOf(q.by, q.groups), most
	c.keys = keysOf(q.by, c.sites)
	in := inGroups(q.groups, c.sites)
	c.counts = func(row liveRow) bool { return (q.state == "" || row.summary.State == q.state) && in(row) }
	return c
}

func emptyCounting() *counting {
	return &counting{groups: map[string]*groupBody{}, other: newGroup([]string{}, "")}
}

func newGroup(keys []string, sample string) *groupBody {
	return &groupBody{Keys: keys, States: map[tko.State]int{}, Sample: sample}
}

// body returns what was counted so far. It shares nothing with the counting.
func (c *counting) body() countBody {
	all := slices.SortedFunc(maps.Values(c.groups), func(a, b *groupBody) int {
		return cmp.Or(b.Count-a.Count, slices.Compare(a.Keys, b.Keys))
	})
	shown := min(len(all), maxGroups)
	body := countBody{Counted: c.counted, Groups: make([]*groupBody, 0, shown), Other: c.other.clone()}
	for _, g := range all[:shown] {
		body.Groups = append(body.Groups, g.clone())
	}
	for _, g := range all[shown:] {
		body.Other.Count += g.Count
		for s, n := range g.States {
			body.Other.States[s] += n
		}
	}
	return body
}

func (g *groupBody) clone() *groupBody {
	c := *g
	c.States = maps.Clone(g.States)
	return &c
}

// add counts an entity, if it is one of those that are counted.
func (c *counting) add(row liveRow) {
	c.read++
	if !c.counts(row) {
		return
	}
	c.counted++
	keys := make([]string, len(c.keys))
	for i, key := range c.keys {
		keys[i] = key(row)
	}
	name := strings.Join(keys, "\x00")
	g := c.groups[name]
	switch {
	case g != nil:
	case len(c.groups) == c.most:
		g = c.other
	default:
		g = newGroup(keys, row.summary.Message)
		c.groups[name] = g
	}
	g.Count++
	g.States[row.summary.State]++
}

type entityBody[R any] struct {
	Row      R        `json:"row"`
	Who      string   `json:"who"`
	Why      string   `json:"why"`
	Package  string   `json:"package"` // YAML
	Can      []string `json:"can"`
	Position Position `json:"position"`
}

// entity responds with an entity and its package: ?id=, and &revision= for an
// earlier revision.
func entity[R any](l *live, r *http.Request, kind tko.Kind) (*entityBody[R], error) {
	q := queryOf(r)
	q.only("id", "revision", "asOf")
	ctx, id, revision := q.past(r.Context()), q.id(), q.number("revision", 0, 64)
	if kind == tko.KindPlugin && revision != 0 {
		q.wrong("plugins have no earlier revisions here: leave out revision")
	}
	if q.err != nil {
		return nil, q.err
	}
	row, err := liveRows.Get(ctx, l.catalog, kind, id, revision)
	if err != nil {
		return nil, err
	}
	stamp, pkg := row.stamp, row.pkg
	body := &entityBody[R]{Row: bodyOf[R](row), Who: stamp.Who, Why: stamp.Why, Can: []string{}, Position: Position(stamp.Position)}
	if len(pkg) > 0 {
		text, err := krm.Encode(krm.YAML, pkg.ForDisplay())
		if err != nil {
			return nil, err
		}
		body.Package = string(text)
	}
	if tko.AsOfOf(ctx).IsZero() { // nothing can be done in the past
		body.Can, err = l.can(ctx, kind, id)
	}
	return body, err
}

// verbs are the actions of dashboards for each kind, and the rights that they need.
func verbs(kind tko.Kind) map[string]access.Verb {
	switch kind {
	case tko.KindDeployment:
		return map[string]access.Verb{"approve": access.Approve, "delete": access.Delete, "purge": access.Purge}
	case tko.KindPlugin:
		return map[string]access.Verb{"delete": access.Register}
	case tko.KindRollout:
		return map[string]access.Verb{"command": access.Update, "approve": access.Approve, "delete": access.Delete}
	case tko.KindSite, tko.KindTemplate, tko.KindSource, tko.KindSubscription:
	}
	return map[string]access.Verb{"delete": access.Delete, "purge": access.Purge}
}

func (l *live) can(ctx context.Context, kind tko.Kind, id string) ([]string, error) {
	can := []string{}
	for name, verb := range verbs(kind) {
		yes, err := l.catalog.CanI(ctx, verb, kind, id)
		if err != nil {
			return nil, err
		}
		if yes {
			can = append(can, name)
		}
	}
	slices.Sort(can)
	return can, nil
}

type meBody struct {
	Subject       string                `json:"subject"`
	Display       string                `json:"display,omitempty"`
	Authenticator string                `json:"authenticator"`
	Expires       time.Time             `json:"expires,omitzero"`
	Can           map[tko.Kind][]string `json:"can"`
	Logins        []string              `json:"logins"`
	Instance      string                `json:"instance"`
	Version       string                `json:"version"`
	Position      Position              `json:"position"`
	Now           int64                 `json:"now"` // Unix milliseconds, for ages

	Filters map[tko.Kind][]string `json:"filters"` // words of filters
	Flags   []string              `json:"flags"`   // those whose values are true or false
}

// me responds with the caller, and what they may do somewhere.
func (l *live) me(r *http.Request) (*meBody, error) {
	i, _ := identity.From(r.Context())
	about, err := l.catalog.About(r.Context())
	if err != nil {
		return nil, err
	}
	body := &meBody{
		Subject: i.Subject, Display: i.Display, Authenticator: i.Authenticator, Expires: i.Expires, Can: map[tko.Kind][]string{}, Logins: orEmpty(l.options.Logins),
		Instance: about.InstanceName, Version: about.Version, Position: Position(about.Position), Now: time.Now().UnixMilli(),
		Filters: map[tko.Kind][]string{}, Flags: filter.FlagWords(),
	}
	for _, kind := range kinds {
		can, err := l.can(r.Context(), kind, "")
		if err != nil && !errors.Is(err, tko.ErrDenied) {
			return nil, err
		}
		body.Can[kind] = orEmpty(can)
		body.Filters[kind] = filter.Words(kind)
	}
	return body, nil
}
