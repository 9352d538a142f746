package tkoserver

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/webapi"
	"github.com/tko-orchestrator/tko/web"
)

// An actor is the catalog as the dashboard changes it.
type actor struct{ *catalog.Service }

// Remove deletes entities by their IDs, and their descendants.
func (a actor) Remove(ctx context.Context, kind tko.Kind, ids []string, dryRun bool) (tko.Deleted, error) {
	return a.RemoveRecords(ctx, kind, ids, record.Requirement{}, dryRun)
}

// webHandler returns the handler of the HTTP port: the API and the sessions, with the
// identities of their callers, and the files of the dashboard, which have no data.
// Streams end when stopping is closed.
func (s *server) webHandler(log *slog.Logger, stopping <-chan struct{}) (http.Handler, error) {
	sessions := webapi.NewSessions(s.security.certs != nil)
	files, err := web.Files()
	if err != nil {
		return nil, err
	}
	assets, err := webapi.NewAssets(files)
	if err != nil {
		return nil, err
	}
	logins := webapi.CodeLoginOptions{URL: s.config.Identity.WebURL, Logins: []string{"token"}, Log: log}
	if s.security.issuer != nil {
		logins.Issuer, logins.Logins = s.security.issuer, []string{"oidc", "token"}
	}
	codeLogin, err := sessions.CodeLogin(logins)
	if err != nil {
		return nil, err
	}
	s.day = webapi.NewFleetDay(s.service)
	inner := http.NewServeMux()
	inner.Handle("/api/", webapi.New(s.service, func() []string { return addresses(s.web) }, log))
	inner.Handle("/api/v1/", webapi.NewLive(webapi.LiveCatalog{
		Catalog: s.service, Watcher: s.service, Actor: actor{s.service}, LiveRollouts: s.service, Past: s.service, Reasons: s.service, Fleets: s.service, SavedViews: s.service, Day: s.day,
	}, webapi.LiveOptions{
		Log: log, Stopping: stopping, Logins: logins.Logins,
	}))
	inner.Handle("/auth/", sessions.Handler())
	identified := sessions.Wrap(s.security.identified(inner, log))
	shortened, err := webapi.WithCompression(identified)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/api/", shortened)
	mux.Handle("/api/v1/stream", identified)
	mux.Handle("/auth/", codeLogin) // for browsers that have no identity yet
	mux.Handle("/auth/session", identified)
	mux.Handle("/", assets)
	requests := webapi.WithRequests(webapi.WithWarnings(webapi.WithHosts(mux, s.allowedHosts(s.config.ListenWeb))), s.tracer)
	return webapi.WithObserver(requests, s.metrics.API("http").Requested), nil
}
