package webapi_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A viewFake keeps views.
type viewFake struct {
	liveFake

	views []tko.View
}

func (f *viewFake) Views(context.Context) ([]tko.View, error) { return f.views, nil }

func (f *viewFake) RegisterViews(_ context.Context, all []tko.View, _ bool) ([]tko.RegisteredView, error) {
	f.views = append(f.views, all...)
	return nil, nil
}

func (f *viewFake) DeleteView(_ context.Context, name string) error {
	f.views = slices.DeleteFunc(f.views, func(v tko.View) bool { return v.Name == name })
	return nil
}

func TestViewsAreSavedAndDeletedByTheirNames(t *testing.T) {
	f := &viewFake{}
	h := webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f, SavedViews: f}, webapi.LiveOptions{})
	var got struct {
		Views []struct {
			Name, Address, SavedBy, Problem string
			Updated                         int64
		}
		Save bool
	}
	if code := call(t, h, "POST", "/api/v1/views", `{"name":"north","address":"https://tko.example.com/sites?metadata=region%3Dnorth","description":"x"}`, &got); code != http.StatusOK || len(got.Views) != 1 || got.Views[0].Address != "/sites?metadata=region%3Dnorth" || f.views[0].Description != "x" {
		t.Errorf("%d %+v", code, got)
	}
	for _, body := range []string{`{"name":"x","address":"//evil.example"}`, `{"name":"x","address":"javascript:alert(1)"}`, `{"name":"x","link":"/"}`} {
		if code := call(t, h, "POST", "/api/v1/views", body, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d", body, code)
		}
	}
	f.views[0].Problem, f.views[0].By, f.views[0].Updated = "a filter is unknown", tko.Author{Who: "ada"}, time.UnixMilli(7)
	if code := call(t, h, "GET", "/api/v1/views", "", &got); code != http.StatusOK || !strings.Contains(got.Views[0].Problem, "unknown") || got.Views[0].SavedBy != "ada" || got.Views[0].Updated != 7 {
		t.Errorf("%d %+v", code, got)
	}
	if code := call(t, h, "POST", "/api/v1/views", `{"name":"north","delete":true}`, &got); code != http.StatusOK || len(got.Views) != 0 {
		t.Errorf("%d %+v", code, got)
	}
}
