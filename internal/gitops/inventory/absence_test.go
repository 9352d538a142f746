package inventory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/leash"
)

// Objects that are deleted and created between two pages move no other object out of a
// reading: not even if as many are created as deleted, so that the count stays.
func TestNetBoxSiteAtTheBorderOfAPageIsNotMissed(t *testing.T) {
	t.Parallel()
	b := newNetBox(t, 1234)
	requests := 0
	b.before = func(_ http.ResponseWriter, _ *http.Request) bool {
		requests++
		if requests > 2 { // after the first page, and after each following one
			created := map[string]any{}
			maps.Copy(created, b.objects[len(b.objects)-1])
			created["id"] = created["id"].(int) + 1
			created["slug"] = fmt.Sprintf("new-%d", requests)
			b.objects = append(b.objects[1:], created)
		}
		return false
	}
	i := open(t, b.settings(t))
	revision(t, i)
	sites, _ := i.Sites()
	has := map[string]bool{}
	for _, s := range sites {
		has[s.ID] = true
	}
	for _, o := range b.objects {
		if slug := o["slug"].(string); strings.HasPrefix(slug, "site-") && !has[slug] {
			t.Errorf("site %s, which NetBox had all the time, is missing", slug)
		}
	}
}

// A second reading confirms that sites are missing. So it reads everything anew, even where
// the server says that nothing has changed. Each kind of origin has a case.
func TestEachOriginIsRereadAnew(t *testing.T) {
	t.Parallel()
	var names []string // of the records that all stand-ins have now
	object := func(i int, name string) map[string]any {
		return map[string]any{"id": i + 1, "name": name, "last_updated": "2026-01-01T00:00:00Z", "metadata": map[string]any{"name": name}}
	}
	records := func() []any {
		all := []any{}
		for i, name := range names {
			all = append(all, object(i, name))
		}
		return all
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/api/dcim"):
			_ = json.NewEncoder(w).Encode(map[string]any{"count": len(names), "next": nil, "results": records()})
		case strings.HasPrefix(r.URL.Path, "/apis/") && r.URL.Query().Has("watch"): // no events
		case strings.HasPrefix(r.URL.Path, "/apis/"):
			_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": records()})
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("ETag", `"same"`)
			_ = json.NewEncoder(w).Encode(records())
		}
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	file, token := filepath.Join(dir, "sites.json"), filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	withToken := remote.Credentials{TokenFile: token}
	origins := map[string]inventory.OriginSettings{
		"File":       {File: file},
		"URL":        {URL: server.URL + "/sites.json"},
		"NetBox":     {NetBox: &inventory.NetBoxSettings{URL: server.URL}, Credentials: withToken},
		"O2IMS":      {O2IMS: &inventory.O2IMSSettings{URL: server.URL}, Credentials: withToken},
		"Kubernetes": {Kubernetes: &inventory.KubernetesSettings{URL: server.URL, Resource: "sites.v1.example.com"}, Credentials: withToken},
		"SQL":        {SQL: &inventory.SQLSettings{URL: "sqlite:" + filepath.Join(dir, "db"), Query: "SELECT 1"}},
	}
	fields := reflect.TypeFor[inventory.OriginSettings]()
	for f := range fields.Fields() {
		if f.Type.Kind() == reflect.Pointer && origins[f.Name].Map.ID == "" && reflect.ValueOf(origins[f.Name]).FieldByName(f.Name).IsNil() {
			t.Errorf("the origin %s has no case", f.Name)
		}
	}
	access := remote.Access{User: leash.Operator(), Databases: func(context.Context, remote.Query) ([]byte, error) { return json.Marshal(records()) }}
	for name, settings := range origins {
		set := func(to ...string) {
			names = to
			data, err := json.Marshal(records())
			if err == nil {
				err = os.WriteFile(file, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		set("a", "b")
		settings.Map.ID = "record.name"
		i, err := inventory.New(inventory.Settings{From: []inventory.OriginSettings{settings}}, access)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		revision(t, i)
		set("a", "c")
		if _, err := i.Reread(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		sites, _ := i.Sites()
		var got []string
		for _, s := range sites {
			got = append(got, s.ID)
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a", "c"}, got); diff != "" {
			t.Errorf("%s: a second reading sees an earlier one: %s", name, diff)
		}
	}
}
