package webapi

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"reflect"
	"sync/atomic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/lru"
)

// A LiveCatalog is the source of the data of dashboards. Every method enforces
// the rights of the context's identity.
type LiveCatalog struct {
	Catalog
	Watcher
	Actor
	LiveRollouts
	Past
	Reasons
	Fleets               // nil: no numbers are at hand
	SavedViews           // nil: there are none
	Day        *FleetDay // nil: no numbers of the last day are kept
}

// LiveRollouts plan, start and observe rollouts.
type LiveRollouts interface {
	Rollouts
	RolloutDo(ctx context.Context, cmd tko.RolloutCommand) (tko.RolloutStatus, error)
	RolloutPlan(ctx context.Context, id tko.RolloutID) (tko.RolloutPlan, error)
	RolloutRows(ctx context.Context, sel tko.RolloutRows) iter.Seq2[tko.RolloutRow, error]
}

// A Past lists changes, and compares moments of the past.
type Past interface {
	DiffPast(ctx context.Context, r tko.DiffRequest) iter.Seq2[tko.PastGroup, error]
	HistoryOf(ctx context.Context, r tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error]
	Retention(ctx context.Context) (tko.Retention, error)
}

// A PluginReader returns plugins, and how they ran.
type PluginReader interface {
	Plugin(ctx context.Context, typ, name string) (tko.Plugin, error)
	// PluginRuns returns the newest runs of plugins in this process.
	PluginRuns(ctx context.Context, kind tko.Kind, id string) (tko.PluginRuns, error)
}

// A Watcher streams changes.
type Watcher interface {
	Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error]
	// Changes ends at the newest change.
	Changes(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error]
	// BeforeNewest returns the position after which there are the newest n changes.
	BeforeNewest(ctx context.Context, n int) (int64, error)
	PluginReader
	CanI(ctx context.Context, verb access.Verb, kind tko.Kind, id string) (bool, error)
	// ViewKey returns a text that is equal for callers who see the same.
	ViewKey(ctx context.Context) (string, error)
}

// An Actor changes entities.
type Actor interface {
	ApproveDeployment(ctx context.Context, id tko.DeploymentID) (approved int, err error)
	ApproveDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (approved int, err error)
	PurgeDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (tko.Deleted, error)
	PurgeSites(ctx context.Context, sel tko.SiteSelect, dryRun bool) (tko.Deleted, error)
	PurgeTemplates(ctx context.Context, sel tko.TemplateSelect, dryRun bool) (tko.Deleted, error)
	// Remove deletes entities by their IDs, and their descendants; with dryRun
	// it counts them.
	Remove(ctx context.Context, kind tko.Kind, ids []string, dryRun bool) (tko.Deleted, error)
}

// LiveOptions are the settings of [NewLive]. All are optional.
type LiveOptions struct {
	Log      *slog.Logger
	Stopping <-chan struct{} // closed when streams must end
	Logins   []string        // ways to log in that the dashboard offers: token, oidc
}

// NewLive makes the handler of all paths below /api/v1/: pages of lists, counts,
// single entities, a stream of changes, and actions, for dashboards and scripts.
// Values of Secrets are never in its responses, whatever the caller's rights.
func NewLive(catalog LiveCatalog, o LiveOptions) http.Handler {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &live{api: api{catalog: catalog.Catalog, reasons: catalog.Reasons, log: log}, catalog: catalog, options: o, streams: newStreams(), pictures: lru.New[pictureKey, picture](maxPictures)}
	slots := newSlots()
	l.counts, l.walls = newTallies[countBody](slots, o.Stopping), newTallies[seenFleet](slots, o.Stopping)
	mux := http.NewServeMux()
	for pattern, route := range l.routes() {
		mux.HandleFunc(pattern, route.handle)
	}
	mux.HandleFunc("/api/v1/", func(w http.ResponseWriter, r *http.Request) {
		l.fail(w, r, tko.Errorf(tko.ErrNotFound, "there is no %s %.200q in this API", r.Method, r.URL.Path))
	})
	return mux
}

// A route is one request of the API: what handles it, and the type of its responses, which
// the description shows.
type route struct {
	handle   http.HandlerFunc
	response reflect.Type // nil if it isn't a type of JSON: see [description]
}

// routeOf returns the route of a handler whose responses are JSON.
func routeOf[B any](l *live, read func(*http.Request) (*B, error)) route {
	return route{respond(&l.api, read), reflect.TypeFor[B]()}
}

// routes returns the requests of the API.
func (l *live) routes() map[string]route {
	routes := map[string]route{
		"GET /api/v1/stream": {handle: l.stream}, "GET /api/v1/openapi.json": {handle: l.openapi},
		"GET /api/v1/me": routeOf(l, l.me), "POST /api/v1/actions": routeOf(l, l.act),
		"GET /api/v1/rollout/status": routeOf(l, l.liveStatus), "GET /api/v1/rollout/plan": routeOf(l, l.rolloutPlan),
		"GET /api/v1/rollout/rows": routeOf(l, l.rolloutRows), "POST /api/v1/rollout/command": routeOf(l, l.rolloutCommand),
		"GET /api/v1/diff": routeOf(l, l.diff), "GET /api/v1/retention": routeOf(l, l.retention), "GET /api/v1/blame": routeOf(l, l.liveBlame),
		"GET /api/v1/history": routeOf(l, l.history), "GET /api/v1/throughput": routeOf(l, l.throughput), "GET /api/v1/runs": routeOf(l, l.runs),
		"GET /api/v1/wall": {l.wall, reflect.TypeFor[wallBody]()}, "GET /api/v1/fleet": routeOf(l, l.fleet), "GET /api/v1/fleet/day": routeOf(l, l.fleetDay),
		"GET /api/v1/views": routeOf(l, l.views), "POST /api/v1/views": routeOf(l, l.changeView),
	}
	addRows[deploymentRowBody](l, routes, tko.KindDeployment)
	addRows[siteRowBody](l, routes, tko.KindSite)
	addRows[templateRowBody](l, routes, tko.KindTemplate)
	addRows[pluginRowBody](l, routes, tko.KindPlugin)
	addRows[rolloutRowBody](l, routes, tko.KindRollout)
	return routes
}

// addRows adds the requests of a kind of entities, whose rows are of a type.
func addRows[R any](l *live, routes map[string]route, kind tko.Kind) {
	path := "GET /api/v1/" + string(kind)
	routes[path] = routeOf(l, func(r *http.Request) (*entityBody[R], error) { return entity[R](l, r, kind) })
	routes[path+"/list"] = routeOf(l, func(r *http.Request) (*pageBody[R], error) { return list[R](l, r, kind) })
	routes[path+"/count"] = routeOf(l, func(r *http.Request) (*countBody, error) { return l.count(r, kind) })
}

var kinds = []tko.Kind{tko.KindDeployment, tko.KindSite, tko.KindTemplate, tko.KindPlugin, tko.KindRollout}

type live struct {
	api

	catalog LiveCatalog
	options LiveOptions
	streams *streams
	counts  *tallies[countBody, *countBody]
	walls   *tallies[seenFleet, *seenFleet]

	pictures *lru.Cache[pictureKey, picture]
	pictured atomic.Int64 // counts for pictures
}
