package schedule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestSitesAreComparedOnRequest(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "repo")
	unprepared := deployment("unprepared", "lagos")
	unprepared.Prepared = false
	same := deployment("d", "conflict")
	same.Package = deployment("c", "conflict").Package
	same.Package[0].Set("another", "data", "key")
	big := deployment("big", "many")
	for i := range 1200 {
		one := big.Package[0].Clone()
		one.Set(fmt.Sprintf("c%d", i), "metadata", "name")
		big.Package = append(big.Package, one)
	}
	r := world([]tko.Site{
		site("lagos", repository(repo), trigger("e")), site("many", repository(filepath.Join(t.TempDir(), "many"))), site("empty"), site("conflict", repository(filepath.Join(t.TempDir(), "conflict"))), site("bad", repository("ftp://x")),
	}, []tko.Deployment{deployment("a", "lagos"), unprepared, big, deployment("c", "conflict"), same}, plugin("p", edge))
	for _, id := range []string{"lagos", "gone", "empty", "bad", "many", "conflict"} {
		r.queue = append(r.queue, tko.WorkItem{Queue: tko.QueueCompare, Key: id, Claim: "claim of " + id})
	}
	s := schedule.New(r, &runner{}, schedule.Options{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	eventually.True(t, "all requests are finished", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.finished) == 6
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	got := map[tko.SiteID]tko.SiteComparison{}
	for _, saved := range r.saved {
		var c tko.SiteComparison
		if err := json.Unmarshal(saved.state.State, &c); err != nil {
			t.Fatal(err)
		}
		if saved.state.Name != tko.ComparisonState || saved.claim.Claim != "claim of "+string(saved.state.Site) || c.Site != saved.state.Site || c.Time.IsZero() {
			t.Errorf("saved %+v", saved)
		}
		got[saved.state.Site] = c
	}
	lagos := got["lagos"]
	if diff := cmp.Diff([]tko.SiteChange{{
		Target: `git.plugin.nephio.org/v1alpha1 Repository "repo"`, Verb: tko.SiteCreate, Object: "lagos/a/10-namespaced/y/ConfigMap.v1_a.yaml", Deployment: "a",
	}}, lagos.Changes); diff != "" {
		t.Error(diff)
	}
	for id, want := range map[tko.SiteID]string{"lagos": `plugin "schedule|p" for edge.plugin.nephio.org/v1 Edge "e": what is there can't be compared`, "empty": "no resource of the site's package", "bad": `git.plugin.nephio.org/v1alpha1 Repository "repo": spec.url`} {
		if problems := got[id].Problems; len(problems) != 1 || !strings.HasPrefix(problems[0], want) {
			t.Errorf("problems of %s: %q", id, problems)
		}
	}
	if many := got["many"]; len(many.Changes) == 0 || len(many.Changes) > tko.MaxSiteChanges || len(many.Changes)+many.More == 0 {
		t.Errorf("many: %d changes, %d more", len(many.Changes), many.More)
	}
	conflict := got["conflict"]
	if len(conflict.Problems) > 0 || len(conflict.Changes) != 2 || conflict.Changes[1].Verb != tko.SiteBlocked || conflict.Changes[1].Deployment != "d" || len(conflict.Changes[1].Details) != 1 {
		t.Errorf("conflict: %+v", conflict)
	}
	for id, w := range r.finished {
		if w.Outcome != tko.WorkDone {
			t.Errorf("%s: %s %s", id, w.Outcome, w.Error)
		}
	}
	if r.writes > 0 {
		t.Errorf("comparing wrote %d conditions", r.writes)
	}
}
