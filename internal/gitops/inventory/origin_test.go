package inventory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/test/soak"
)

// A netBox is a stand-in for NetBox: lists in pages by limit and offset or id__gte, with
// count and next, ordering and the token of its API.
type netBox struct {
	*httptest.Server
	objects  []map[string]any
	requests atomic.Int64
	before   func(w http.ResponseWriter, r *http.Request) (done bool) // nil for none
}

func newNetBox(t testing.TB, n int) *netBox {
	t.Helper()
	b := &netBox{}
	for i := range n {
		b.objects = append(b.objects, map[string]any{
			"id": i + 1, "slug": fmt.Sprintf("site-%05d", i), "status": map[string]any{"value": "active"}, "region": map[string]any{"slug": "west"},
			"tags": []any{map[string]any{"slug": "edge"}}, "custom_fields": map[string]any{"tier": i % 3}, "last_updated": fmt.Sprintf("2026-01-01T00:%02d:00Z", i%60),
		})
	}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	return b
}

func (b *netBox) serve(w http.ResponseWriter, r *http.Request) {
	b.requests.Add(1)
	if r.URL.Path != "/api/dcim/sites/" || r.Header.Get("Authorization") != "Token hush" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if b.before != nil && b.before(w, r) {
		return
	}
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	offset, _ := strconv.Atoi(q.Get("offset"))
	from, _ := strconv.Atoi(q.Get("id__gte"))
	var objects []map[string]any
	for _, o := range b.objects {
		if o["id"].(int) >= from {
			objects = append(objects, o)
		}
	}
	page := map[string]any{"count": len(objects), "next": nil, "previous": nil}
	if q.Get("ordering") == "-last_updated" {
		newest := map[string]any{}
		for _, o := range objects {
			if fmt.Sprint(o["last_updated"]) > fmt.Sprint(newest["last_updated"]) || len(newest) == 0 {
				newest = o
			}
		}
		objects = []map[string]any{newest}
	}
	end := min(offset+limit, len(objects))
	page["results"] = objects[min(offset, end):end]
	if q.Get("ordering") == "id" && end < len(objects) {
		next := url.Values{}
		maps.Copy(next, q)
		next.Set("offset", strconv.Itoa(end))
		page["next"] = "http://netbox.internal/api/dcim/sites/?" + next.Encode() // the name that NetBox has behind its proxy
	}
	_ = json.NewEncoder(w).Encode(page)
}

func (b *netBox) settings(t testing.TB) inventory.Settings {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return inventory.Settings{From: []inventory.OriginSettings{{
		NetBox:      &inventory.NetBoxSettings{URL: b.URL, Filter: map[string][]string{"tag": {"edge"}}},
		Credentials: remote.Credentials{TokenFile: token},
		Map: inventory.Mapping{
			When: `record.status.value == "active"`, ID: "record.slug", Template: `"edge:v1"`,
			Metadata: map[string]string{"region": "record.region.slug", "tier": "record.custom_fields.tier", "tags": `record.tags.map(t, t.slug).join(",")`},
		},
	}}}
}

func open(t testing.TB, s inventory.Settings) *inventory.Inventory {
	t.Helper()
	i, err := inventory.New(s, remote.Access{User: leash.Operator()})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func revision(t testing.TB, i *inventory.Inventory) string {
	t.Helper()
	r, err := i.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// NetBox is read by pages once, and an unchanged one by a single small request.
func TestNetBoxIsReadByPagesAndLookedAtByOneRequest(t *testing.T) {
	t.Parallel()
	b := newNetBox(t, 1234)
	i := open(t, b.settings(t))
	first := revision(t, i)
	sites, _ := i.Sites()
	if len(sites) != 1234 || b.requests.Load() != 4 {
		t.Fatalf("read %d sites by %d requests: want 1234 by 4", len(sites), b.requests.Load())
	}
	if s := sites[1]; s.ID != "site-00001" || s.Template != "edge:v1" || s.Metadata["tier"] != "1" || s.Metadata["tags"] != "edge" || s.Origins["metadata.tier"] != "netbox" {
		t.Errorf("the second site is %+v", s)
	}
	if again := revision(t, i); again != first || b.requests.Load() != 5 {
		t.Errorf("an unchanged NetBox is read by %d more requests as %s: want 1, as %s", b.requests.Load()-4, again, first)
	}
	if other := revision(t, open(t, b.settings(t))); other != first {
		t.Errorf("another process reads %s: want %s", other, first)
	}
	b.objects[7]["region"] = map[string]any{"slug": "east"}
	b.objects[7]["last_updated"] = "2026-02-01T00:00:00Z"
	if changed := revision(t, i); changed == first {
		t.Error("a change is not noticed")
	}
	b.objects = b.objects[1:]
	sites, _ = i.Sites()
	revision(t, i)
	if now, _ := i.Sites(); len(now) != len(sites)-1 {
		t.Errorf("a removal is not noticed: %d sites", len(now))
	}
}

// Pages that don't hold each object once, or that are refused, are no revision.
func TestIncompleteNetBoxIsNoRevision(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(b *netBox, w http.ResponseWriter, r *http.Request) bool
		want   string
	}{
		"an object vanishes while a page is read": {func(b *netBox, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("id__gte") != "1001" {
				return false
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"count": 234, "next": nil, "results": b.objects[1000:1233]})
			return true
		}, "holds 233 objects, and NetBox counts 234"},
		"a page has fewer objects than counted": {func(b *netBox, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("id__gte") != "501" {
				return false
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"count": 734, "next": nil, "results": b.objects[500:600]})
			return true
		}, "holds 100 objects, and NetBox counts 734"},
		"an empty page before the end": {func(_ *netBox, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("id__gte") != "501" {
				return false
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"count": 734, "next": "http://netbox.internal/api/dcim/sites/?id__gte=1001", "results": []any{}})
			return true
		}, "holds 0 objects, and NetBox counts 734"},
		"an ID that is no number": {func(_ *netBox, w http.ResponseWriter, _ *http.Request) bool {
			_ = json.NewEncoder(w).Encode(map[string]any{"count": 1, "next": nil, "results": []any{map[string]any{"id": "x", "last_updated": "2026"}}})
			return true
		}, "no number as its ID"},
		"a page twice": {func(b *netBox, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("id__gte") != "501" {
				return false
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"count": 1234, "next": nil, "results": b.objects[:500]})
			return true
		}, "ignores id__gte or ordering"},
		"another kind of response": {func(_ *netBox, w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(`{"detail": "maintenance"}`))
			return true
		}, "no page of NetBox"},
		"the second page is refused": {func(_ *netBox, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("id__gte") != "501" {
				return false
			}
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}, "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newNetBox(t, 1234)
			i := open(t, b.settings(t))
			b.before = func(w http.ResponseWriter, r *http.Request) bool { return c.before(b, w, r) }
			if _, err := i.Revision(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v: want one with %q", err, c.want)
			}
		})
	}
}

// A server that refuses requests for a moment gets them again.
func TestBusyNetBoxIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := newNetBox(t, 10)
	refused := 0
	b.before = func(w http.ResponseWriter, _ *http.Request) bool {
		refused++
		if refused > 3 {
			return false
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	revision(t, open(t, b.settings(t)))
}

// Credentials are sent to the configured server only, and never without TLS.
func TestCredentialsStayWithTheirServer(t *testing.T) {
	t.Parallel()
	var leaked atomic.Value
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { leaked.Store(r.Header.Get("Authorization")) }))
	t.Cleanup(other.Close)
	b := newNetBox(t, 10)
	b.before = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL, http.StatusFound)
		return true
	}
	if _, err := open(t, b.settings(t)).Revision(t.Context()); err == nil {
		t.Error("a redirect to another server is followed")
	}
	linked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "<"+other.URL+`>; rel="next"`)
		_, _ = w.Write([]byte(`[{"name": "a"}]`))
	}))
	t.Cleanup(linked.Close)
	i := open(t, inventory.Settings{From: []inventory.OriginSettings{{URL: linked.URL + "/sites.json", Map: inventory.Mapping{ID: "record.name"}}}})
	if _, err := i.Revision(t.Context()); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a link to another server: the error is %v, want %v", err, tko.ErrDenied)
	}
	if leaked.Load() != nil {
		t.Errorf("the other server was called with %q", leaked.Load())
	}
	s := b.settings(t)
	s.From[0].NetBox.URL = "http://netbox.example.com"
	if _, err := inventory.New(s, remote.Access{User: leash.Operator()}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("a token without TLS: the error is %v", err)
	}
}

// The server's limits of hosts apply to inventories.
func TestInventoriesAreGuarded(t *testing.T) {
	t.Parallel()
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := newNetBox(t, 1)
	i, err := inventory.New(b.settings(t), remote.Access{User: leash.Operator(), Guard: g})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Revision(t.Context()); !errors.Is(err, tko.ErrDenied) || b.requests.Load() != 0 {
		t.Errorf("after %d requests the error is %v: want %v and none", b.requests.Load(), err, tko.ErrDenied)
	}
}

// O2 IMS and Kubernetes are read by their own pages.
func TestO2IMSAndKubernetesAreReadByPages(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/o2ims-infrastructureInventory/v1/deploymentManagers" && q.Get("nextpage_opaque_marker") == "":
			w.Header().Set("Link", `</o2ims-infrastructureInventory/v1/deploymentManagers?nextpage_opaque_marker=x>; rel="next"`)
			_, _ = w.Write([]byte(`[{"deploymentManagerId": "dm-1", "name": "one"}]`))
		case r.URL.Path == "/o2ims-infrastructureInventory/v1/deploymentManagers":
			_, _ = w.Write([]byte(`[{"deploymentManagerId": "dm-2", "name": "two"}]`))
		case r.URL.Path == "/apis/cluster.open-cluster-management.io/v1/managedclusters" && q.Get("continue") == "":
			_, _ = w.Write([]byte(`{"metadata": {"resourceVersion": "7", "continue": "x"}, "items": [{"metadata": {"name": "c1", "resourceVersion": "1", "labels": {"env": "lab"}}}]}`))
		case r.URL.Path == "/apis/cluster.open-cluster-management.io/v1/managedclusters":
			_, _ = w.Write([]byte(`{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "c2"}}]}`))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	i := open(t, inventory.Settings{From: []inventory.OriginSettings{
		{O2IMS: &inventory.O2IMSSettings{URL: server.URL}, Map: inventory.Mapping{ID: "record.deploymentManagerId", Metadata: map[string]string{"name": "record.name"}}},
		{
			Kubernetes: &inventory.KubernetesSettings{URL: server.URL, Resource: "managedclusters.v1.cluster.open-cluster-management.io"},
			Map:        inventory.Mapping{ID: "record.metadata.name", Metadata: map[string]string{"env": "record.metadata.?labels[?'env']"}},
		},
	}})
	revision(t, i)
	var got []string
	sites, _ := i.Sites()
	for _, s := range sites {
		got = append(got, fmt.Sprint(s.ID, s.Metadata))
	}
	if want := "c1map[env:lab] c2map[] dm-1map[name:one] dm-2map[name:two]"; strings.Join(got, " ") != want {
		t.Errorf("read %q: want %q", got, want)
	}
}

// A failure of one origin after another one was read is no revision, and the change
// of the other one isn't lost.
func TestChangeIsNotLostIfAnotherOriginFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	m := inventory.Mapping{ID: "record.name"}
	i := open(t, inventory.Settings{From: []inventory.OriginSettings{
		{Name: "a", File: write("a.csv", "name\na1\n"), Map: m}, {Name: "b", File: write("b.csv", "name\nb1\n"), Map: m},
	}})
	first := revision(t, i)
	write("a.csv", "name\na1\na2\n")
	write("b.csv", "name,x\nb1\n")
	if _, err := i.Revision(context.WithoutCancel(t.Context())); err == nil || !strings.Contains(err.Error(), "not complete CSV") {
		t.Fatalf("a row without all columns: the error is %v", err)
	}
	write("b.csv", "name\nb1\n")
	if revision(t, i) == first {
		t.Error("the change of the first origin is lost")
	}
}

// An expression can't run for ever, and errors name the record and the expression.
func TestExpressionsAreBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sites.json")
	if err := os.WriteFile(path, []byte(`[{"name": "a", "list": [`+strings.Repeat("1,", 2000)+`1]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	i := open(t, inventory.Settings{From: []inventory.OriginSettings{{File: path, Map: inventory.Mapping{
		ID: "record.name", Metadata: map[string]string{"n": "record.list.map(a, record.list.map(b, record.list.map(c, a + b + c))).size()"},
	}}}})
	if _, err := i.Revision(t.Context()); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "record 1: map.metadata.n: operation cancelled: actual cost limit exceeded") {
		t.Errorf("the error is %v", err)
	}
}

// Settings that can't work are refused at the start.
func TestInvalidSettingsAreRefused(t *testing.T) {
	t.Parallel()
	id := inventory.Mapping{ID: "record.name"}
	for want, s := range map[string]inventory.Settings{
		"has 0 elements":         {},
		"set one of file":        {From: []inventory.OriginSettings{{Map: id}}},
		"both set":               {From: []inventory.OriginSettings{{File: "a.csv", URL: "https://x/a.csv", Map: id}}},
		"map.id is missing":      {From: []inventory.OriginSettings{{File: "a.csv"}}},
		"map.id: ERROR":          {From: []inventory.OriginSettings{{File: "a.csv", Map: inventory.Mapping{ID: "record."}}}},
		"the format is":          {From: []inventory.OriginSettings{{File: "a.txt", Map: id}}},
		"is no reference":        {From: []inventory.OriginSettings{{URL: "https://x/a.csv", Credentials: remote.Credentials{Token: "hush"}, Map: id}}},
		"contains credentials":   {From: []inventory.OriginSettings{{URL: "https://u:hush@x/a.csv", Map: id}}},
		"has the name":           {From: []inventory.OriginSettings{{File: "a.csv", Map: id}, {File: "b.csv", Map: id}}},
		"must make sites":        {From: []inventory.OriginSettings{{File: "a.csv", Enrich: true, Map: id}}},
		"which TKO sets":         {From: []inventory.OriginSettings{{NetBox: &inventory.NetBoxSettings{URL: "https://x", Filter: map[string][]string{"limit": {"1"}}}, Map: id}}},
		"RESOURCES.VERSION":      {From: []inventory.OriginSettings{{Kubernetes: &inventory.KubernetesSettings{URL: "https://x", Resource: "clusters"}, Map: id}}},
		"callbackURL is invalid": {From: []inventory.OriginSettings{{O2IMS: &inventory.O2IMSSettings{URL: "https://x", CallbackURL: "http://tko.example.com"}, Map: id}}},
		"deploymentManagers or":  {From: []inventory.OriginSettings{{O2IMS: &inventory.O2IMSSettings{URL: "https://x", Resource: "oClouds"}, Map: id}}},
	} {
		_, err := inventory.New(s, remote.Access{User: leash.Operator()})
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("the error is %v: want one with %q", err, want)
		}
	}
}

// BenchmarkNetBox reads 20,000 sites, and looks at them again without a change.
func BenchmarkNetBox(b *testing.B) {
	n := newNetBox(b, 20_000)
	settings := n.settings(b)
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			revision(b, open(b, settings))
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		i := open(b, settings)
		revision(b, i)
		for b.Loop() {
			revision(b, i)
		}
	})
}

// A change that NetBox doesn't record, as that of a region, is noticed after FullEvery.
func TestNetBoxIsReadCompletelyFromTimeToTime(t *testing.T) {
	t.Parallel()
	b := newNetBox(t, 10)
	settings := b.settings(t)
	settings.From[0].NetBox.FullEvery = "1ns"
	i := open(t, settings)
	first := revision(t, i)
	b.objects[7]["region"] = map[string]any{"slug": "east"}
	if revision(t, i) == first {
		t.Error("a change of what a record refers to is never noticed")
	}
}

// An origin with more records than maxRecords is refused by its count, before all of them
// are read. Records that the mapping leaves out make no sites.
func TestNetBoxIsBoundedAndFiltered(t *testing.T) {
	t.Parallel()
	b := newNetBox(t, 1234)
	settings := b.settings(t)
	settings.From[0].MaxRecords = 1000
	if _, err := open(t, settings).Revision(t.Context()); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "more than 1000 records") || b.requests.Load() != 2 {
		t.Errorf("after %d requests the error is %v: want one with the limit, after 2", b.requests.Load(), err)
	}
	settings = b.settings(t)
	settings.From[0].MaxBytes = 10_000
	if _, err := open(t, settings).Revision(t.Context()); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "more than 10000 bytes") {
		t.Errorf("more bytes than maxBytes: the error is %v", err)
	}
	b.objects[3]["status"] = map[string]any{"value": "retired"}
	i := open(t, b.settings(t))
	revision(t, i)
	if sites, _ := i.Sites(); len(sites) != 1233 || sites[3].ID != "site-00004" {
		t.Errorf("there are %d sites, the fourth is %q: want those that are active", len(sites), sites[3].ID)
	}
}

// A document at a URL that didn't change isn't sent again. Its ETag isn't used if it
// couldn't be mapped, and neither is that of the first of several pages.
func TestURLIsReadWithETags(t *testing.T) {
	t.Parallel()
	var body, tail, sent atomic.Value
	body.Store(`[{"title": "a"}]`)
	tail.Store("")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/second" {
			_, _ = w.Write([]byte(tail.Load().(string)))
			return
		}
		etag := fmt.Sprintf("%q", body.Load())
		w.Header().Set("ETag", etag)
		if tail.Load() != "" {
			w.Header().Set("Link", `</second>; rel="next"`)
		}
		sent.Store(r.Header.Get("If-None-Match"))
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write([]byte(body.Load().(string)))
	}))
	t.Cleanup(server.Close)
	i := open(t, inventory.Settings{From: []inventory.OriginSettings{{URL: server.URL + "/sites.json", Map: inventory.Mapping{ID: "record.name"}}}})
	for range 2 {
		if _, err := i.Revision(t.Context()); err == nil || !strings.Contains(err.Error(), "record 1: map.id") {
			t.Errorf("a record without a name: the error is %v", err)
		}
	}
	body.Store(`[{"name": "a"}]`)
	first := revision(t, i)
	if again := revision(t, i); again != first || sent.Load() != fmt.Sprintf("%q", body.Load()) {
		t.Errorf("an unchanged document is requested with the ETag %q as revision %s: want %s", sent.Load(), again, first)
	}
	body.Store(`[{"name": "b"}]`)
	tail.Store(`[{"name": "c"}]`)
	pages := revision(t, i)
	tail.Store(`[{"name": "d"}]`)
	if revision(t, i) == pages {
		t.Error("a change of the second page is not noticed")
	}
}

// A file with a record that can't be mapped is an error until the file is right.
func TestFileThatCantBeMappedStaysAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sites.csv")
	for _, content := range []string{"name,n\na,1\n", "title,n\na,1\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i := open(t, inventory.Settings{From: []inventory.OriginSettings{{File: path, Map: inventory.Mapping{ID: "record.name"}}}})
	for range 2 {
		if _, err := i.Revision(t.Context()); err == nil || !strings.Contains(err.Error(), "record 1: map.id") {
			t.Errorf("the error is %v: want one about the record", err)
		}
	}
}

// 20,000 sites are read by 40 pages, and unchanged ones by one small request.
func TestNetBoxWithManySitesIsReadByFewRequests(t *testing.T) {
	t.Parallel()
	n := soak.Rounds(t, 5000, 20_000)
	b := newNetBox(t, n)
	requests := int64(n/500 + 1)
	i := open(t, b.settings(t))
	first := revision(t, i)
	if sites, _ := i.Sites(); len(sites) != n || b.requests.Load() != requests {
		t.Errorf("read %d sites by %d requests: want %d by %d", len(sites), b.requests.Load(), n, requests)
	}
	if again := revision(t, i); again != first || b.requests.Load() != requests+1 {
		t.Errorf("%d more requests for an unchanged NetBox, and the revision %s: want 1, and %s", b.requests.Load()-requests, again, first)
	}
}

// YAML 1.1 makes false of NO, and 83 of 0123: sites would move to other regions.
func TestYAMLOfInventoriesKeepsCountriesAndLeadingZeros(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sites.yaml")
	if err := os.WriteFile(file, []byte("- {site: 0123, region: NO, n: on, racks: 7, share: 1.50}\n- {site: 0124, region: yes, n: y, racks: 0x10, share: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := open(t, inventory.Settings{From: []inventory.OriginSettings{{File: file, Map: inventory.Mapping{
		ID: "record.site", Metadata: map[string]string{"region": "record.region", "n": "record.n", "racks": "record.racks", "share": "record.share"},
	}}}})
	revision(t, i)
	sites, _ := i.Sites()
	if len(sites) != 2 {
		t.Fatalf("there are %d sites", len(sites))
	}
	for n, want := range []map[string]string{{"region": "NO", "n": "on", "racks": "7", "share": "1.5"}, {"region": "yes", "n": "y", "racks": "16", "share": "2"}} {
		if id := fmt.Sprintf("012%d", n+3); sites[n].ID != id || !maps.Equal(sites[n].Metadata, want) {
			t.Errorf("the site is %q with %v: want %q with %v", sites[n].ID, sites[n].Metadata, id, want)
		}
	}
}
