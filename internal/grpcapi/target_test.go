package grpcapi_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
)

// claimSite registers a site and claims its work.
func claimSite(t *testing.T, c *client.Client, id tko.SiteID) tko.WorkItem {
	t.Helper()
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: id}); err != nil {
		t.Fatal(err)
	}
	items, err := c.ClaimWork(t.Context(), tko.ClaimWork{Queue: tko.QueueSchedule, Worker: "me", Max: 1, Lease: time.Hour, Wait: time.Minute})
	if err != nil || len(items) != 1 || items[0].Key != string(id) {
		t.Fatalf("claimed %v %v, want the work of site %q", items, err, id)
	}
	return items[0]
}

func TestTargetStateIsReadAsItWasSaved(t *testing.T) {
	t.Parallel()
	c := grpctest.Start(t, client.Options{})
	claim := claimSite(t, c, "lagos")
	if _, err := c.TargetState(t.Context(), "lagos", "main"); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("before it is saved: error %v, want an ErrNotFound", err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 9<<20>>4) // larger than requests without a package may be
	for version := range int64(2) {
		got, err := c.SaveTargetState(t.Context(), tko.TargetState{Site: "lagos", Name: "main", State: want}, claim)
		if err != nil || got != version+1 {
			t.Fatalf("version %d %v, want %d", got, err, version+1)
		}
	}
	got, err := c.TargetState(t.Context(), "lagos", "main")
	if err != nil || got.Site != "lagos" || got.Name != "main" || !bytes.Equal(got.State, want) || got.Version != 2 || time.Since(got.Updated).Abs() > time.Minute {
		t.Errorf("site %q, name %q, %d bytes, version %d, updated %v, error %v: want what was saved", got.Site, got.Name, len(got.State), got.Version, got.Updated, err)
	}
	claim.Claim = "lost"
	if _, err := c.SaveTargetState(t.Context(), tko.TargetState{Site: "lagos", Name: "main"}, claim); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("with a claim that is lost: error %v, want an ErrConflict", err)
	}
}

// Meta-schedulers of before TargetState call Source and SaveSource with a name
// of their own.
func TestOlderMetaSchedulersReadAndSaveTargetStatesAsSources(t *testing.T) {
	t.Parallel()
	c := grpctest.Start(t, client.Options{})
	const site, source = "edge/cu:v1:site", "site:edge/cu:v1:site:main"
	claim := claimSite(t, c, site)
	for _, name := range []string{source, "site:", "site:main", "other"} {
		if _, err := c.Source(t.Context(), name); !errors.Is(err, tko.ErrNotFound) {
			t.Errorf("source %q before it is saved: error %v, want an ErrNotFound", name, err)
		}
	}
	if _, err := c.SaveTargetState(t.Context(), tko.TargetState{Site: site, Name: "main", State: []byte("newer")}, claim); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Source(t.Context(), source); err != nil || got.Name != source || string(got.State) != "newer" || got.Version != 1 {
		t.Errorf("source %+v %v, want the state newer, version 1", got, err)
	}
	if version, err := c.SaveSource(t.Context(), tko.Source{Name: source, State: []byte("older")}, claim); err != nil || version != 2 {
		t.Errorf("saved version %d %v, want 2", version, err)
	}
	if got, err := c.TargetState(t.Context(), site, "main"); err != nil || string(got.State) != "older" || got.Version != 2 {
		t.Errorf("state %+v %v, want older, version 2", got, err)
	}
	for _, name := range []string{"site:lagos:main", "other"} {
		if _, err := c.SaveSource(t.Context(), tko.Source{Name: name}, claim); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("source %q saved with the claim of another site: error %v, want an ErrInvalid", name, err)
		}
	}
	if all, err := c.Sources(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("sources %+v %v, want none", all, err)
	}
}
