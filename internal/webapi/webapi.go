package webapi

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// A Catalog is the source of the served data.
type Catalog interface {
	About(ctx context.Context) (tko.About, error)
	Getter
	Lister
}

// A Getter returns single entities, with their packages; see
// [github.com/tko-orchestrator/tko/internal/catalog.Service].
type Getter interface {
	Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error)
	Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error)
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
}

// A Lister streams entities, sorted by ID.
type Lister interface {
	Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error]
	Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error]
	Deployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions) iter.Seq2[tko.Deployment, error]
	Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error]
}

// Rollouts are a source of rollouts, and of the freezes and stops that they wait for.
type Rollouts interface {
	Rollout(ctx context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error)
	Rollouts(ctx context.Context, sel tko.RolloutSelect, options tko.ListOptions) iter.Seq2[tko.Rollout, error]
	RolloutStatus(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error)
	Freezes(ctx context.Context) ([]tko.Freeze, error)
	Stops(ctx context.Context) ([]tko.StopStatus, error)
}

// Definitions are registered GitOps sources.
type Definitions interface {
	SourceDefinitions(ctx context.Context, known int64) (tko.SourceDefinitions, error)
}

// Queues are a source of the work that waits for controllers.
type Queues interface {
	Queues(ctx context.Context) ([]tko.QueueState, error)
}

// New makes the handler of all paths below /api/. It handles GET and HEAD.
// Lists are JSON arrays, streamed; an array without its closing bracket was cut
// short by an error. Errors are {"error": TEXT}. Faults of the server are
// logged, and clients don't see their causes. addresses returns the HTTP addresses of the
// server, HOST:PORT; none if it is nil.
func New(catalog Catalog, addresses func() []string, log *slog.Logger) http.Handler {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if addresses == nil {
		addresses = func() []string { return nil }
	}
	a := &api{catalog: catalog, addresses: addresses, log: log}
	mux := &routed{ServeMux: http.NewServeMux()}
	mux.HandleFunc("GET /api/about", respond(a, a.about))
	mux.HandleFunc("GET /api/template", pkg(a, catalog.Template, func(t tko.Template) krm.Package { return t.Package }))
	mux.HandleFunc("GET /api/site", pkg(a, catalog.Site, func(s tko.Site) krm.Package { return s.Package }))
	mux.HandleFunc("GET /api/deployment", pkg(a, catalog.Deployment, func(d tko.Deployment) krm.Package { return d.Package }))
	mux.HandleFunc("GET /api/template/list", all(a, catalog.Templates, templateRow))
	mux.HandleFunc("GET /api/site/list", all(a, catalog.Sites, siteRow))
	mux.HandleFunc("GET /api/deployment/list", a.deployments)
	mux.HandleFunc("GET /api/plugin/list", all(a, catalog.Plugins, listedPluginRow))
	if rollouts, ok := catalog.(Rollouts); ok {
		a.rollouts = rollouts
		mux.HandleFunc("GET /api/rollout", pkg(a, rollouts.Rollout, func(r tko.Rollout) krm.Package { return r.Package }))
		mux.HandleFunc("GET /api/rollout/list", all(a, rollouts.Rollouts, rolloutRow))
		mux.HandleFunc("GET /api/rollout/status", respond(a, a.rolloutStatus))
		mux.HandleFunc("GET /api/freeze/list", a.freezes)
		mux.HandleFunc("GET /api/stop/list", a.stops)
	}
	if definitions, ok := catalog.(Definitions); ok {
		mux.HandleFunc("GET /api/source/list", func(w http.ResponseWriter, r *http.Request) {
			stream(a, w, r, part(func(ctx context.Context) ([]tko.SourceDefinition, error) {
				found, err := definitions.SourceDefinitions(ctx, 0)
				return found.All, err
			}), sourceRow)
		})
	}
	if queues, ok := catalog.(Queues); ok {
		mux.HandleFunc("GET /api/queue/list", func(w http.ResponseWriter, r *http.Request) { stream(a, w, r, part(queues.Queues), queueRow) })
	}
	if reasons, ok := catalog.(Reasons); ok {
		a.reasons = reasons
		mux.HandleFunc("GET /api/blame", respond(a, a.blame))
		mux.HandleFunc("GET /api/site/explain", respond(a, a.siteExplain))
		mux.HandleFunc("GET /api/site/diff", respond(a, a.siteDiff))
		mux.HandleFunc("GET /api/template/impact", respond(a, a.templateImpact))
	}
	mux.HandleFunc("/api/", a.unknown)
	return mux
}

// A routed handler knows its routes, which tests enumerate.
type routed struct {
	*http.ServeMux

	patterns []string
}

// HandleFunc registers a handler.
func (r *routed) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.HandleFunc(pattern, handler)
}

// Patterns returns the routes, such as "GET /api/site".
func (r *routed) Patterns() []string { return slices.Clone(r.patterns) }

type api struct {
	catalog   Catalog
	addresses func() []string
	rollouts  Rollouts // nil if the catalog has none
	reasons   Reasons  // nil if the catalog has none
	log       *slog.Logger
}

// respond returns a handler that responds with a value as JSON, or with an error. The body of
// a request is limited.
func respond[B any](a *api, read func(r *http.Request) (B, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxAction)
		body, err := read(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, body)
	}
}

func (a *api) unknown(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeJSON(w, http.StatusMethodNotAllowed, errorBody{"this API only reads: use GET; to write, use gRPC or the tko command"})
		return
	}
	a.fail(w, r, tko.Errorf(tko.ErrNotFound, "there is no %q in this API", r.URL.Path))
}

func (a *api) about(r *http.Request) (*aboutBody, error) {
	about, err := a.catalog.About(r.Context())
	if err != nil {
		return nil, err
	}
	return &aboutBody{
		InstanceName:        about.InstanceName,
		InstanceDescription: about.InstanceDescription,
		Version:             about.Version,
		Backend:             about.Backend,
		HTTP:                listenerBody{AddressPorts: orEmpty(a.addresses())},
		GRPC:                listenerBody{AddressPorts: orEmpty(about.AddressPorts), DefaultPackageFormat: about.DefaultPackageFormat},
		Position:            Position(about.Position),
	}, nil
}

// rolloutStatus responds with how far a rollout is: ?id=.
func (a *api) rolloutStatus(r *http.Request) (*statusBody, error) {
	q := queryOf(r)
	id := q.id()
	if q.err != nil {
		return nil, q.err
	}
	status, err := a.rollouts.RolloutStatus(r.Context(), tko.RolloutID(id))
	if err != nil {
		return nil, err
	}
	body := newStatusBody(status)
	return &body, nil
}

// freezes responds with the freezes that aren't over, those that end first at the
// beginning: a part of them with ?offset= and ?count=.
func (a *api) freezes(w http.ResponseWriter, r *http.Request) {
	stream(a, w, r, part(a.rollouts.Freezes), freezeRow)
}

// stops responds with what is stopped, the oldest first: a part of them with ?offset= and
// ?count=.
func (a *api) stops(w http.ResponseWriter, r *http.Request) {
	stream(a, w, r, part(a.rollouts.Stops), stopRow)
}

// part returns a list of the part of all that a request selects.
func part[T any](list func(ctx context.Context) ([]T, error)) func(context.Context, tko.ListOptions) iter.Seq2[T, error] {
	return func(ctx context.Context, options tko.ListOptions) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			all, err := list(ctx)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			all = all[min(int(options.Window.Offset), len(all)):]
			if n := *options.Window.Max; n >= 0 {
				all = all[:min(n, len(all))]
			}
			for _, one := range all {
				if !yield(one, nil) {
					return
				}
			}
		}
	}
}

// pkg returns a handler that responds with the package of an entity as YAML: ?id=, and
// &revision= or &asOf= for an earlier one.
func pkg[ID ~string, E any](a *api, get func(ctx context.Context, id ID, revision int64) (E, error), of func(E) krm.Package) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := queryOf(r)
		id, revision, ctx := q.id(), q.number("revision", 0, 64), q.past(r.Context())
		if q.err != nil {
			a.fail(w, r, q.err)
			return
		}
		entity, err := get(ctx, ID(id), revision)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		text, err := krm.Encode(krm.YAML, of(entity))
		if err != nil {
			a.fail(w, r, err)
			return
		}
		header(w, "application/yaml")
		_, _ = w.Write(text) // an error means that the client has disconnected
	}
}

// all returns a handler that responds with the list of all entities of a kind.
func all[S, T, R any](a *api, list func(context.Context, S, tko.ListOptions) iter.Seq2[T, error], row func(T) R) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stream(a, w, r, func(ctx context.Context, options tko.ListOptions) iter.Seq2[T, error] {
			var everything S
			return list(ctx, everything, options)
		}, row)
	}
}

// deployments responds with the list of deployments that the filters of the query select.
func (a *api) deployments(w http.ResponseWriter, r *http.Request) {
	var sel tko.DeploymentSelect
	if err := filter.Read(filter.Deployments, r.URL.Query(), &sel); err != nil {
		a.fail(w, r, err)
		return
	}
	stream(a, w, r, func(ctx context.Context, options tko.ListOptions) iter.Seq2[tko.Deployment, error] {
		return a.catalog.Deployments(ctx, sel, options)
	}, deploymentRow)
}

// stream responds with a list, now or ?asOf= a moment of the past: ?offset= and ?count= select a part of it; with
// ?deployments=count, templates and sites have the number of their deployments,
// not the IDs.
func stream[T, R any](a *api, w http.ResponseWriter, r *http.Request, list func(context.Context, tko.ListOptions) iter.Seq2[T, error], row func(T) R) {
	q := queryOf(r)
	ctx, options := q.past(r.Context()), q.listOptions()
	if q.err != nil {
		a.fail(w, r, q.err)
		return
	}
	encoder := json.NewEncoder(w)
	before := "["
	for entity, err := range list(ctx, options) {
		if err != nil {
			if before == "[" {
				a.fail(w, r, err)
			} else if ctx.Err() == nil {
				a.log.ErrorContext(ctx, "list cut short", "path", r.URL.Path, "err", err)
			}
			return
		}
		if before == "[" {
			header(w, "application/json")
		}
		if _, err := w.Write([]byte(before)); err != nil {
			return
		}
		if err := encoder.Encode(row(entity)); err != nil {
			return
		}
		before = ","
	}
	end := "]\n"
	if before == "[" {
		header(w, "application/json")
		end = "[]\n"
	}
	_, _ = w.Write([]byte(end)) // an error means that the client has disconnected
}

// statuses are the HTTP statuses of the kinds of errors.
var statuses = []struct {
	kind   error
	status int
}{
	{tko.ErrInvalid, http.StatusBadRequest},
	{tko.ErrNotFound, http.StatusNotFound},
	{tko.ErrConflict, http.StatusConflict},
	{tko.ErrBusy, http.StatusConflict},
	{tko.ErrDenied, http.StatusForbidden},
	{tko.ErrUnauthenticated, http.StatusUnauthorized},
	{tko.ErrGone, http.StatusGone},
	{tko.ErrUnavailable, http.StatusServiceUnavailable},
}

func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	for _, s := range statuses {
		if errors.Is(err, s.kind) {
			writeJSON(w, s.status, errorBody{printable.Once(err.Error())})
			return
		}
	}
	if r.Context().Err() == nil {
		a.log.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "err", err)
	}
	writeJSON(w, http.StatusInternalServerError, errorBody{"internal error, see the server's log"})
}

func header(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	header(w, "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has disconnected
}
