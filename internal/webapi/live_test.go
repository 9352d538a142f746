package webapi_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/webapi"
	"github.com/tko-orchestrator/tko/krm"
)

// A liveFake is a catalog with many sites, whose changes and actions are recorded.
type liveFake struct {
	rolloutFake

	sites   int
	read    int // sites
	changes []tko.Change
	failure error // of a watch, after the changes
	acted   []string
	confirm int
	author  tko.Author
	asOf    tko.AsOf // of the newest list
	command tko.RolloutCommand
	rows    tko.RolloutRows
	diff    tko.DiffRequest
}

func (f *liveFake) Sites(ctx context.Context, _ tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error] {
	f.asOf = tko.AsOfOf(ctx)
	return func(yield func(tko.Site, error) bool) {
		for i := range f.sites {
			id := siteName(i)
			if id <= o.Window.After {
				continue
			}
			f.read++
			s := tko.Site{ID: tko.SiteID(id), Metadata: map[string]string{"region": "north"}}
			if i%2 == 1 {
				s.Stamp.Conditions = []tko.Condition{{Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "Unreachable", Message: "no route"}}
			}
			if i == 3 || i == 11_501 {
				s.Stamp.Conditions[0].Reason = "Rare"
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

func siteName(i int) string {
	return "s" + string(rune('a'+i/676%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
}

func (f *liveFake) Template(context.Context, tko.TemplateID, int64) (tko.Template, error) {
	secret := krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"password": "hunter2"}}
	text := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{
		"manifest": "apiVersion: v1\nkind: Secret\nstringData: {p: hunter2}\n", "password": "hunter2",
	}}
	return tko.Template{ID: "t", Package: krm.Package{secret, text}}, nil
}

// BeforeNewest has positions that are a hundred apart.
func (f *liveFake) BeforeNewest(_ context.Context, n int) (int64, error) {
	if n < 0 {
		return 0, tko.Errorf(tko.ErrInvalid, "%d is no number of changes", n)
	}
	return max(0, 10_000-100*int64(n)), nil
}

func (f *liveFake) Watch(ctx context.Context, after int64, _ ...tko.Kind) iter.Seq2[tko.Change, error] {
	return func(yield func(tko.Change, error) bool) {
		for _, c := range f.changes {
			if c.Position <= after {
				continue
			}
			if !yield(c, nil) {
				return
			}
		}
		if f.failure != nil {
			yield(tko.Change{}, f.failure)
			return
		}
		<-ctx.Done()
		yield(tko.Change{}, ctx.Err())
	}
}

func (f *liveFake) Changes(context.Context, int64, ...tko.Kind) iter.Seq2[tko.Change, error] {
	return func(func(tko.Change, error) bool) {}
}

func (f *liveFake) HistoryOf(context.Context, tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error] {
	panic("not expected")
}

func (f *liveFake) PluginRuns(context.Context, tko.Kind, string) (tko.PluginRuns, error) {
	return tko.PluginRuns{}, f.failure
}

func (f *liveFake) Plugin(context.Context, string, string) (tko.Plugin, error) {
	return tko.Plugin{}, tko.ErrNotFound
}

func (f *liveFake) CanI(_ context.Context, verb access.Verb, _ tko.Kind, _ string) (bool, error) {
	return verb == access.Approve, nil
}

func (f *liveFake) act(ctx context.Context, what string, dryRun bool) {
	if dryRun {
		what += " dry run"
	}
	f.confirm, _ = tko.ConfirmationOf(ctx)
	f.author = tko.AuthorOf(ctx)
	f.acted = append(f.acted, what)
}

func (f *liveFake) ApproveDeployment(ctx context.Context, id tko.DeploymentID) (int, error) {
	f.act(ctx, "approve "+string(id), false)
	return 1, nil
}

func (f *liveFake) ApproveDeployments(ctx context.Context, _ tko.DeploymentSelect, dryRun bool) (int, error) {
	f.act(ctx, "approve selected", dryRun)
	return 3, nil
}

func (f *liveFake) PurgeDeployments(ctx context.Context, _ tko.DeploymentSelect, dryRun bool) (tko.Deleted, error) {
	f.act(ctx, "purge deployments", dryRun)
	return tko.Deleted{Count: 3, Descendants: 1}, nil
}

func (f *liveFake) PurgeSites(ctx context.Context, sel tko.SiteSelect, dryRun bool) (tko.Deleted, error) {
	f.act(ctx, "purge sites "+strings.Join(sel.IDs, " ")+sel.Metadata["region"], dryRun)
	return tko.Deleted{Count: 3, Orphaned: 2}, nil
}

func (f *liveFake) PurgeTemplates(ctx context.Context, _ tko.TemplateSelect, dryRun bool) (tko.Deleted, error) {
	f.act(ctx, "purge templates", dryRun)
	return tko.Deleted{Count: 3}, nil
}

func (f *liveFake) Remove(ctx context.Context, kind tko.Kind, ids []string, dryRun bool) (tko.Deleted, error) {
	f.act(ctx, "remove "+string(kind)+" "+strings.Join(ids, " "), dryRun)
	return tko.Deleted{Count: len(ids)}, nil
}

func liveHandler(f *liveFake) http.Handler {
	return webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f}, webapi.LiveOptions{})
}

func call(t *testing.T, h http.Handler, method, target, body string, into any) int {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Errorf("%s %s: %v in %s", method, target, err, w.Body)
		}
	}
	return w.Code
}

func TestPagesAreBoundedAndContinue(t *testing.T) {
	t.Parallel()
	const sites = 250
	h := liveHandler(&liveFake{sites: sites})
	seen, after := 0, ""
	for range 10 {
		var page struct {
			Rows []struct{ ID, State string }
			Next string
		}
		if code := call(t, h, "GET", "/api/v1/site/list?after="+after, "", &page); code != http.StatusOK || len(page.Rows) > 100 {
			t.Fatalf("status %d with %d rows", code, len(page.Rows))
		}
		seen += len(page.Rows)
		after = page.Next
		if after == "" {
			break
		}
	}
	if seen != sites {
		t.Errorf("the pages have %d rows, want %d", seen, sites)
	}
}

// The first rows in a state come soon, however few others there are.
func TestPagesOfStateStopSoonAfterTheFirstRows(t *testing.T) {
	t.Parallel()
	f := &liveFake{sites: 12_000}
	h := liveHandler(f)
	after := ""
	for i, want := range []struct{ rows, read int }{{1, 1001}, {0, 10_001}, {1, 1000}} {
		f.read = 0
		var page struct {
			Rows []struct{ ID string }
			Next string
		}
		if code := call(t, h, "GET", "/api/v1/site/list?reason=Rare&after="+after, "", &page); code != http.StatusOK {
			t.Fatalf("status %d", code)
		}
		if len(page.Rows) != want.rows || f.read != want.read || (page.Next == "") != (i == 2) {
			t.Errorf("page %d has %d rows of %d that were read, and the next is after %q; want %d of %d", i, len(page.Rows), f.read, page.Next, want.rows, want.read)
		}
		after = page.Next
	}
}

func TestCountStopsAndContinues(t *testing.T) {
	t.Parallel()
	const sites = 12_000
	h := liveHandler(&liveFake{sites: sites})
	total, failing, after, requests := 0, 0, "", 0
	for {
		var count struct {
			Counted int
			Groups  []struct {
				Keys   []string
				Count  int
				States map[string]int
			}
			Next string
		}
		if code := call(t, h, "GET", "/api/v1/site/count?by=state,metadata.region&after="+after, "", &count); code != http.StatusOK || count.Counted > 10_000 {
			t.Fatalf("status %d, %d counted", code, count.Counted)
		}
		for _, g := range count.Groups {
			total += g.Count
			failing += g.States["failing"]
		}
		requests++
		after = count.Next
		if after == "" || requests > 5 {
			break
		}
	}
	if total != sites || failing != sites/2 || requests != 2 {
		t.Errorf("%d counted, %d of them failing, in %d requests; want %d, %d, 2", total, failing, requests, sites, sites/2)
	}
}

func TestUnknownFiltersOfPagesAreRefused(t *testing.T) {
	t.Parallel()
	h := liveHandler(&liveFake{sites: 1})
	for target, why := range map[string]string{
		"/api/v1/site/list?regoin=north":         "a typo must not select everything",
		"/api/v1/site/list?metadata=north":       "there is no key",
		"/api/v1/site/list?id=":                  "an empty filter would select everything",
		"/api/v1/site/list?limit=501":            "a page is bounded",
		"/api/v1/site/list?limit=0":              "a page has a row",
		"/api/v1/site/list?state=broken":         "there is no such state",
		"/api/v1/deployment/list?prepared=maybe": "it is no boolean",
		"/api/v1/site/count?by=a,b":              "there are no such keys",
		"/api/v1/site?id=a&x=1":                  "there is no such parameter",
		"/api/v1/stream?kind=cow":                "there is no such kind",
		"/api/v1/stream?newest=-1":               "it is no number of changes",
	} {
		var body struct{ Error string }
		if code := call(t, h, "GET", target, "", &body); code != http.StatusBadRequest || body.Error == "" {
			t.Errorf("%s: status %d, %q (%s)", target, code, body.Error, why)
		}
	}
}

func TestActionsNeedASelectionAndTheConfirmedCount(t *testing.T) {
	t.Parallel()
	for body, why := range map[string]string{
		`{"verb":"delete","kind":"site","confirm":1}`:                                              "neither ids nor filter",
		`{"verb":"delete","kind":"site","ids":["a"],"filter":"id=a","confirm":1}`:                  "both",
		`{"verb":"delete","kind":"site","ids":["a"]}`:                                              "no count",
		`{"verb":"delete","kind":"site","filter":"&","confirm":1}`:                                 "the filter is empty",
		`{"verb":"delete","kind":"site","filter":"state=failing","confirm":1}`:                     "the catalog can't select by state",
		`{"verb":"destroy","kind":"site","ids":["a"],"confirm":1}`:                                 "no such verb",
		`{"verb":"approve","kind":"site","ids":["a"],"confirm":1}`:                                 "sites are not approved",
		`{"verb":"delete","kind":"plugin","filter":"type=validate","confirm":1}`:                   "plugins are deleted by ID",
		`{"verb":"delete","kind":"site","ids":["a"],"confirm":1,"dryrunn":true}`:                   "a typo of dryRun must not delete",
		`{"verb":"delete","kind":"site","ids":["` + strings.Repeat(`","`, 500) + `"],"confirm":1}`: "too many IDs",
	} {
		f := &liveFake{}
		if code := call(t, liveHandler(f), "POST", "/api/v1/actions", body, nil); code != http.StatusBadRequest || len(f.acted) > 0 {
			t.Errorf("%.80s: status %d, acted %q (%s)", body, code, f.acted, why)
		}
	}
	f := &liveFake{}
	var result struct{ Count, Descendants, Orphaned int }
	if code := call(t, liveHandler(f), "POST", "/api/v1/actions", `{"verb":"delete","kind":"site","filter":"metadata=region=north","dryRun":true}`, &result); code != http.StatusOK || result.Count != 5 || result.Orphaned != 2 || f.acted[0] != "purge sites north dry run" {
		t.Errorf("dry run: status %d, %+v, %q", code, result, f.acted)
	}
	if code := call(t, liveHandler(f), "POST", "/api/v1/actions", `{"verb":"delete","kind":"site","ids":["a","b"],"reason":"broken","confirm":2}`, &result); code != http.StatusOK || f.acted[1] != "remove site a b" || f.confirm != 2 || f.author.Why != "broken" {
		t.Errorf("deletion: status %d, %q, confirmed %d, author %v", code, f.acted, f.confirm, f.author)
	}
}

func TestSecretsAreRedactedInLiveResponses(t *testing.T) {
	t.Parallel()
	var body struct{ Package string }
	call(t, liveHandler(&liveFake{}), "GET", "/api/v1/template?id=t", "", &body)
	if strings.Contains(body.Package, "hunter2") || !strings.Contains(body.Package, krm.Redacted) {
		t.Errorf("the package is %s", body.Package)
	}
}

// events reads the events of a stream until it ends, or until last.
func events(t *testing.T, f *liveFake, from, last string) (names []string, data map[string]string) {
	t.Helper()
	server := httptest.NewServer(liveHandler(f))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/stream?"+from, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data = map[string]string{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			names = append(names, name)
		}
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			data[names[len(names)-1]] = text
			if names[len(names)-1] == last {
				break
			}
		}
	}
	return names, data
}

func TestStreamSendsTheNewestChangeOfEachEntity(t *testing.T) {
	t.Parallel()
	f := &liveFake{changes: []tko.Change{
		{Position: 2, Kind: tko.KindSite, ID: "a", Op: tko.OpWritten, Revision: 1},
		{Position: 3, Kind: tko.KindSite, ID: "a", Op: tko.OpWritten, Revision: 2},
	}}
	_, data := events(t, f, "after=1", "changes")
	if text := data["changes"]; !strings.Contains(text, `"revision":2`) || !strings.Contains(text, `"position":"3"`) {
		t.Errorf("changes: %s", text)
	}
}

// Positions are no counts: the server says where the newest changes begin.
func TestStreamBeginsWithTheNewestChanges(t *testing.T) {
	t.Parallel()
	f := &liveFake{}
	for n := range 100 {
		f.changes = append(f.changes, tko.Change{Position: 100 * int64(n+1), Kind: tko.KindSite, ID: strconv.Itoa(n), Op: tko.OpWritten, Revision: 1})
	}
	_, data := events(t, f, "newest=3", "changes")
	if text := data["changes"]; strings.Count(text, `"id"`) != 3 || !strings.Contains(text, `"position":"10000"`) {
		t.Errorf("changes: %s", text)
	}
}

func TestStreamOfManyChangesIsBounded(t *testing.T) {
	t.Parallel()
	f := &liveFake{}
	for i := range 5000 {
		f.changes = append(f.changes, tko.Change{Position: int64(i + 2), Kind: tko.KindSite, ID: siteName(i), Op: tko.OpWritten})
	}
	names, data := events(t, f, "after=1", "stale")
	if names[len(names)-1] != "stale" || len(data["stale"]) > 200 {
		t.Errorf("events %q, %s", names, data["stale"])
	}
}

func TestStreamOfAForgottenPositionAsksToReadAgain(t *testing.T) {
	t.Parallel()
	names, _ := events(t, &liveFake{failure: tko.Errorf(tko.ErrGone, "too old")}, "after=1", "reset")
	if names[len(names)-1] != "reset" {
		t.Errorf("events: %q", names)
	}
	names, _ = events(t, &liveFake{failure: errors.New("broken")}, "after=1", "bye")
	if names[len(names)-1] != "bye" {
		t.Errorf("events: %q", names)
	}
}

func TestSessionsAuthenticateByCookieOnly(t *testing.T) {
	t.Parallel()
	sessions := webapi.NewSessions(true)
	inner := http.NewServeMux()
	inner.Handle("/auth/", sessions.Handler())
	inner.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		i, _ := identity.From(r.Context())
		_, _ = w.Write([]byte(i.Subject))
	})
	h := sessions.Wrap(webapi.WithIdentity(inner, tokens{}, webapi.ConnectionOf, webapi.IdentityOptions{}))
	do := func(method, path string, cookie *http.Cookie, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		if cookie != nil {
			r.AddCookie(cookie)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := do("POST", "/auth/session", nil); w.Code != http.StatusUnauthorized {
		t.Errorf("a session without a token: %d", w.Code)
	}
	w := do("POST", "/auth/session", nil, "Authorization", "Bearer token:ada")
	cookies := w.Result().Cookies()
	if w.Code != http.StatusOK || len(cookies) != 1 {
		t.Fatalf("login: %d, %v", w.Code, cookies)
	}
	c := cookies[0]
	if c.Name != "__Host-tko" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || strings.Contains(c.Value, "ada") {
		t.Errorf("the cookie is %v", c)
	}
	if got := do("GET", "/api/x", c); got.Body.String() != "token:ada" {
		t.Errorf("with the session: %d, %s", got.Code, got.Body)
	}
	if got := do("POST", "/api/x", c); got.Code != http.StatusForbidden {
		t.Errorf("a write with the session, and without an origin: %d, want it to be refused", got.Code)
	}
	if got := do("POST", "/api/x", c, "Origin", "https://evil.example"); got.Code != http.StatusForbidden {
		t.Errorf("a write from a page of another site: %d, want it to be refused", got.Code)
	}
	if got := do("POST", "/api/x", c, "Origin", "https://example.com"); got.Code != http.StatusOK {
		t.Errorf("a write from the server's own page: %d", got.Code)
	}
	if got := do("DELETE", "/auth/session", c, "Origin", "https://example.com"); got.Code != http.StatusOK {
		t.Errorf("logout: %d", got.Code)
	}
	if got := do("GET", "/api/x", c); got.Code != http.StatusUnauthorized || !strings.Contains(got.Header().Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("after the logout: %d, %v", got.Code, got.Header())
	}
}

func TestPagesOfTheDashboardHaveAStrictPolicy(t *testing.T) {
	t.Parallel()
	h, err := webapi.NewAssets(fstest.MapFS{"index.html": {Data: []byte("page")}, "assets/a.js": {Data: []byte("script")}})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/": 200, "/sites/a/b": 200, "/rollouts/a": 200, "/changes": 200, "/assets/a.js": 200, "/unknown": 404, "/assets/../index.html": 404} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
		if p := w.Header().Get("Content-Security-Policy"); want == 200 && (!strings.Contains(p, "default-src 'none'") || !strings.Contains(p, "frame-ancestors 'none'") || strings.Contains(p, "unsafe")) {
			t.Errorf("%s: the policy is %q", path, p)
		}
	}
}

func (f *liveFake) ViewKey(ctx context.Context) (string, error) {
	who, _ := identity.From(ctx)
	return who.Subject, nil
}

func TestFilesWithAHashInTheirNamesAreCachedAndAllAreSentCompressed(t *testing.T) {
	t.Parallel()
	script := strings.Repeat("script ", 1000)
	h, err := webapi.NewAssets(fstest.MapFS{"index.html": {Data: []byte("page")}, "assets/a-1234.js": {Data: []byte(script)}})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct{ text, cache, contentType string }{
		"/":                 {"page", "no-store", "text/html; charset=utf-8"},
		"/assets/a-1234.js": {script, "public, max-age=31536000, immutable", "text/javascript; charset=utf-8"},
	} {
		for _, encoding := range []string{"", "gzip, br"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Accept-Encoding", encoding)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			var body io.Reader = w.Body
			if compressed := w.Header().Get("Content-Encoding") == "gzip"; compressed != (encoding != "") {
				t.Errorf("%s for a client that accepts %q: compressed is %v", path, encoding, compressed)
			} else if compressed {
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			text, err := io.ReadAll(body)
			if err != nil || string(text) != want.text {
				t.Errorf("%s: %d bytes, %v", path, len(text), err)
			}
			if cache := w.Header().Get("Cache-Control"); cache != want.cache || w.Header().Get("Vary") != "Accept-Encoding" || w.Header().Get("Content-Type") != want.contentType {
				t.Errorf("%s: the headers are %v", path, w.Header())
			}
		}
	}
}

func TestLargeRequestsAreRefused(t *testing.T) {
	t.Parallel()
	h := webapi.NewLive(webapi.LiveCatalog{}, webapi.LiveOptions{})
	r := httptest.NewRequest(http.MethodPost, "/api/v1/actions", strings.NewReader(`{"verb": "`+strings.Repeat("x", 300<<10)+`"}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "is not valid JSON of at most") {
		t.Errorf("status %d: %.200s", w.Code, w.Body)
	}
}
