package tkoserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/internal/webapi"
	"github.com/tko-orchestrator/tko/krm"
)

// parametersOf are the parameters of the routes of the HTTP API that need some, about what is of
// b. A route that responds with an error about parameters has no row, and fails the test.
func parametersOf(inB tko.DeploymentID) map[string][]string {
	about := func(kind, id string) string { return url.Values{"kind": {kind}, "id": {id}}.Encode() }
	both := []string{about("deployment", string(inB)), about("site", "b/1"), about("template", "b/t")}
	return map[string][]string{
		"/api/template": {"id=b/t"}, "/api/site": {"id=b/1"}, "/api/deployment": {"id=" + string(inB)}, "/api/rollout": {"id=of-b"}, "/api/rollout/status": {"id=of-b"},
		"/api/blame": both, "/api/site/explain": {"id=b/1&deployment=" + string(inB), "id=b/1&template=b/t"}, "/api/site/diff": {"id=b/1&from=1"}, "/api/template/impact": {"id=b/t"},
		"/api/v1/template": {"id=b/t"}, "/api/v1/site": {"id=b/1"}, "/api/v1/deployment": {"id=" + string(inB)}, "/api/v1/rollout": {"id=of-b"}, "/api/v1/plugin": {"id=validate|of-b"},
		"/api/v1/rollout/status": {"id=of-b"}, "/api/v1/rollout/plan": {"id=of-b"}, "/api/v1/rollout/rows": {"id=of-b"},
		"/api/v1/diff": {"kind=deployment&from=1", "kind=site&from=1", "kind=template&from=1"}, "/api/v1/history": both, "/api/v1/runs": both[:2], "/api/v1/blame": both, "/api/v1/stream": {"after=0"},
	}
}

// Each route of the HTTP API, with each method, is called by each role within a/**, about what is
// of b/**: nothing changes, and nothing of it is in the response.
func TestEachRouteStaysInTheScopeOfItsCaller(t *testing.T) {
	t.Parallel()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stopping := make(chan struct{})
	t.Cleanup(func() {
		close(stopping) // counts in the background end
		_ = store.Close()
	})
	validator, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := catalog.New(store, validator, catalog.Options{Access: rights.Enforce})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = rights.InitAccess(t.Context(), store, "cert:root", "test", time.Time{})
	check(err)
	root := identity.With(t.Context(), identity.Identity{Subject: "cert:root", Authenticator: "cert"})
	roles := []access.Role{access.Viewer, access.Editor, access.Approver, access.Operator, access.Admin}
	for _, role := range roles {
		for _, scope := range []access.Scope{{SiteID: "a/**"}, {TemplateID: "a/**", Kinds: []tko.Kind{tko.KindTemplate}}} {
			_, err := s.Bind(root, access.Binding{Subject: "cert:" + string(role), Role: role, Scope: scope})
			check(err)
		}
	}
	var inB tko.DeploymentID
	for _, tenant := range []string{"a", "b"} {
		marked := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "marked-" + tenant}}}
		_, err = s.RegisterTemplate(root, tko.Template{ID: tko.TemplateID(tenant + "/t"), Package: marked})
		check(err)
		_, err = s.RegisterSite(root, tko.Site{ID: tko.SiteID(tenant + "/1"), Package: marked, Metadata: map[string]string{"of": "marked-" + tenant}})
		check(err)
		inB, err = s.CreateDeployment(root, tko.NewDeployment{Template: tko.TemplateID(tenant + "/t"), Site: tko.SiteID(tenant + "/1"), Prepared: true})
		check(err)
	}
	mux := http.NewServeMux()
	old := webapi.New(s, nil, nil)
	mux.Handle("/api/", old)
	live := webapi.NewLive(webapi.LiveCatalog{Catalog: s, Watcher: s, Actor: actor{s}, LiveRollouts: s, Past: s, Reasons: s, SavedViews: s}, webapi.LiveOptions{Stopping: stopping})
	mux.Handle("/api/v1/", live)
	call := func(who, method, path, body string) (int, string) {
		ctx := identity.With(t.Context(), identity.Identity{Subject: "cert:" + who, Authenticator: "cert"})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if strings.HasPrefix(path, "/api/v1/stream") || strings.HasPrefix(path, "/api/site/diff") { // they wait: for changes, or for a meta-scheduler
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, 50*time.Millisecond)
			defer stop()
		}
		mux.ServeHTTP(w, r.WithContext(ctx))
		got, _ := io.ReadAll(w.Body)
		return w.Code, string(got)
	}

	routes := old.(interface{ Patterns() []string }).Patterns()
	_, text := call("root", "GET", "/api/v1/openapi.json", "")
	var described struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	check(json.Unmarshal([]byte(text), &described))
	for path, methods := range described.Paths { // TestEveryRouteIsDescribedAndNoOther
		for method := range methods {
			routes = append(routes, strings.ToUpper(method)+" "+path)
		}
	}
	if len(routes) < 40 {
		t.Fatalf("there are only %d routes", len(routes))
	}
	bodies := map[string][]string{
		"/api/v1/actions": {
			`{"verb":"delete","kind":"site","ids":["b/1"],"confirm":1}`, `{"verb":"delete","kind":"site","ids":["b/1"],"confirm":2}`, `{"verb":"delete","kind":"template","filter":"id=b/**","confirm":1}`,
			`{"verb":"approve","kind":"deployment","ids":["` + string(inB) + `"],"confirm":1}`, `{"verb":"delete","kind":"deployment","filter":"site-id=b/**","confirm":1}`,
		},
		"/api/v1/rollout/command": {`{"id":"of-b","command":"plan"}`, `{"id":"of-b","command":"start"}`},
	}
	parameters, used := parametersOf(inB), map[string]bool{}
	for _, route := range routes {
		served, path, ok := strings.Cut(route, " ")
		if !ok {
			continue // of what isn't a route
		}
		queries := parameters[path]
		used[path] = true
		if queries == nil {
			queries = []string{""}
		}
		for _, query := range queries {
			target := path
			if query != "" {
				target += "?" + query
			}
			if code, body := call("root", "GET", target, ""); strings.HasPrefix(route, "GET ") && code == http.StatusBadRequest {
				t.Errorf("GET %s: give the route its parameters, about what is of b: %.200s", target, body)
			}
			for _, who := range append([]string{"eve"}, words(roles)...) {
				for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
					if method != served && who != string(access.Admin) { // such a route exists for no caller
						continue
					}
					for _, body := range append(slices.Clone(bodies[path]), "") {
						before, err := s.Position(root)
						check(err)
						code, got := call(who, method, target, body)
						after, err := s.Position(root)
						check(err)
						if after != before {
							t.Errorf("%s %s as %s (%d): it has changed something of b: %.200s", method, target, who, code, got)
						}
						if strings.Contains(got, "marked-b") {
							t.Errorf("%s %s as %s (%d): the response shows what is of b: %.300s", method, target, who, code, got)
						}
					}
				}
			}
		}
	}
	for path := range parameters {
		if !used[path] {
			t.Errorf("there is no route %s: remove its parameters", path)
		}
	}
	if _, got := call("root", "GET", "/api/v1/site?id=b/1", ""); !strings.Contains(got, "marked-b") {
		t.Errorf("an administrator doesn't see what is of b, so the test shows nothing: %.200s", got)
	}
	before, _ := s.Position(root)
	if code, got := call("root", "POST", "/api/v1/actions", bodies["/api/v1/actions"][3]); code != http.StatusOK {
		t.Errorf("an administrator may not act, so the test shows nothing: %d %s", code, got)
	} else if after, _ := s.Position(root); after == before {
		t.Error("an action of an administrator changes nothing")
	}
}

func words(roles []access.Role) (all []string) {
	for _, role := range roles {
		all = append(all, string(role))
	}
	return all
}
