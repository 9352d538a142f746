package schedule_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/krm"
)

// A tool reports what a test says, instead of a cluster.
type tool struct {
	schedule.Clusters

	mu    sync.Mutex
	said  puller.Report
	err   error
	asked []puller.Question
}

func (c *tool) Observe(_ context.Context, q puller.Question) (puller.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, q)
	said := c.said
	said.Objects = append([]puller.Found{}, said.Objects...)
	for range len(q.Objects) - len(said.Objects) {
		said.Objects = append(said.Objects, puller.Found{Listed: true, Synced: true, Known: true, Health: puller.Healthy})
	}
	return said, c.err
}

func (c *tool) Close() {}

// pulled is a Repository whose commits Flux pulls.
func pulled(dir string) krm.Resource {
	r := repository(dir)
	r.Set(map[string]any{"flux": map[string]any{"kubeconfig": map[string]any{"file": "hub"}}}, "spec", "status")
	return r
}

func TestHealthOfGitSitesIsWhatTheirToolReports(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sites.git")
	c := &tool{}
	empty := deployment("empty", "lagos")
	empty.Package = nil
	r := world([]tko.Site{site("lagos", pulled(dir))}, []tko.Deployment{deployment("a", "lagos"), deployment("b", "lagos"), empty})
	s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir(), Kubernetes: func(func(...tko.SiteID)) schedule.Clusters { return c }})
	check := func(why string, most time.Duration, want map[string]string) {
		t.Helper()
		got := s.Reconcile(t.Context(), "lagos")
		if got.Outcome != tko.WorkLater || got.Err != nil || got.Retry <= 0 || got.Retry > most {
			t.Errorf("%s: %+v, want later, within %s", why, got, most)
		}
		want["empty"] = "True Healthy @1"
		if diff := cmp.Diff(want, r.saidOf(tko.ConditionHealthy)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", why, diff)
		}
		if said := r.said()["a"]; said != "True Scheduled @1" {
			t.Errorf("%s: a was committed, and Scheduled is %s", why, said)
		}
	}
	tip := func() string { return "main@sha1:" + gittest.Run(t, dir, "rev-parse", "main") }

	c.said = puller.Report{Missing: true}
	check("the Kustomization doesn't exist", 3*time.Second, map[string]string{"lagos": "Unknown PullMissing @1", "a": "Unknown PullMissing @1", "b": "Unknown PullMissing @1"})
	first := tip()
	c.said = puller.Report{Applied: []string{first}, Attempted: []string{first}, Health: puller.Healthy}
	check("all is applied", 3*time.Second, map[string]string{"lagos": "True Healthy @1", "a": "True Healthy @1", "b": "True Healthy @1"})
	if q := c.asked[0]; q.Site != "lagos" || q.Spec.Name != "lagos" || len(q.Objects) != 2 || q.Objects[0] != (puller.Object{Version: "v1", Kind: "ConfigMap", Namespace: "y", Name: "a"}) {
		t.Errorf("asked %+v", q)
	}

	// One deployment is bad: only this one.
	c.said.Objects = []puller.Found{{Listed: true, Synced: true, Known: true, Health: puller.Unhealthy, Why: "crashes"}}
	check("an object of a fails", 3*time.Second, map[string]string{"lagos": "False Unhealthy @1", "a": "False Unhealthy @1", "b": "True Healthy @1"})
	c.said.Objects = nil

	// A new revision isn't healthy before it is applied, whatever the tool says of the old one.
	d := r.deployments["a"]
	d.Stamp.Revision, d.Package = 2, krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a2", "namespace": "y"}}}
	r.deployments["a"] = d
	again := func(why string, most time.Duration, want map[string]string) {
		t.Helper()
		if got := s.Reconcile(t.Context(), "lagos"); got.Outcome != tko.WorkLater || got.Retry > most {
			t.Errorf("%s: %+v", why, got)
		}
		want["empty"] = "True Healthy @1"
		if diff := cmp.Diff(want, r.saidOf(tko.ConditionHealthy)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", why, diff)
		}
	}
	again("a changed", 3*time.Second, map[string]string{"lagos": "False NotYetApplied @1", "a": "False NotYetApplied @2", "b": "True Healthy @1"})
	c.said.Unreachable, c.said.Problem = true, "time-out"
	again("the cluster is away", 3*time.Second, map[string]string{"lagos": "Unknown Unreachable @1", "a": "Unknown Unreachable @2", "b": "Unknown Unreachable @1"})
	c.said, c.err = puller.Report{}, errors.New("the program ended")
	again("the program that reads clusters ended", 3*time.Second, map[string]string{"lagos": "Unknown NotObserved @1", "a": "Unknown NotObserved @2", "b": "Unknown NotObserved @1"})
	second := tip()
	c.said, c.err = puller.Report{Applied: []string{second}, Attempted: []string{second}, Health: puller.Healthy, Watched: true}, nil
	again("it is applied, and watched", 23*time.Second, map[string]string{"lagos": "True Healthy @1", "a": "True Healthy @2", "b": "True Healthy @1"})
	writes := r.writes
	again("nothing changed", 11*time.Minute, map[string]string{"lagos": "True Healthy @1", "a": "True Healthy @2", "b": "True Healthy @1"})
	if r.writes != writes {
		t.Error("reconciling again wrote again")
	}
}

// Sites without a status stay blind, and one whose status is wrong is not committed.
func TestSitesWithoutAStatusStayBlind(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sites.git")
	for status, want := range map[string]string{"": "Unknown HealthNotReported @1", "none": "Unknown HealthNotReported @1", "fluxx": ""} {
		repo := repository(dir)
		if status != "" {
			repo.Set(map[string]any{status: map[string]any{}}, "spec", "status")
		}
		c := &tool{}
		r := world([]tko.Site{site("lagos", repo)}, []tko.Deployment{deployment("a", "lagos")})
		s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir(), Kubernetes: func(func(...tko.SiteID)) schedule.Clusters { return c }})
		s.Reconcile(t.Context(), "lagos")
		if got := r.saidOf(tko.ConditionHealthy)["a"]; got != want {
			t.Errorf("status %q: %q, want %q", status, got, want)
		}
		if len(c.asked) > 0 {
			t.Errorf("status %q: a cluster was asked", status)
		}
		if got := r.said()["a"]; status == "fluxx" && got != "False Invalid @1" {
			t.Errorf("status %q: Scheduled is %s", status, got)
		}
	}
}

// The longer nothing changes, the rarer a site is read; a change makes it frequent again.
func TestSitesAreReadTheRarerTheLongerNothingChanges(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sites.git")
	c := &tool{}
	r := world([]tko.Site{site("lagos", pulled(dir))}, []tko.Deployment{deployment("a", "lagos")})
	s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir(), Interval: 5 * time.Minute, Kubernetes: func(func(...tko.SiteID)) schedule.Clusters { return c }})
	s.Reconcile(t.Context(), "lagos")
	tip := "main@sha1:" + gittest.Run(t, dir, "rev-parse", "main")
	c.said = puller.Report{Applied: []string{tip}, Attempted: []string{tip}, Health: puller.Healthy}
	s.Reconcile(t.Context(), "lagos")
	since := func(age time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		l, d := r.sites["lagos"], r.deployments["a"]
		for _, stamp := range []*tko.Stamp{&l.Stamp, &d.Stamp} {
			for i := range stamp.Conditions {
				stamp.Conditions[i].LastTransition = time.Now().Add(-age)
			}
		}
		r.sites["lagos"], r.deployments["a"] = l, d
	}
	for age, want := range map[time.Duration]time.Duration{0: 2 * time.Second, 4 * time.Minute: time.Minute, time.Hour: 5 * time.Minute} {
		since(age)
		if got := s.Reconcile(t.Context(), "lagos").Retry; got < want*9/10 || got > want*11/10+time.Second {
			t.Errorf("after %s it is read in %s, want about %s", age, got, want)
		}
	}
	since(4 * time.Hour)
	c.said.Watched, c.said.Elsewhere, c.said.Checks = true, true, true
	if got := s.Reconcile(t.Context(), "lagos").Retry; got < 27*time.Minute || got > 33*time.Minute {
		t.Errorf("at a watched hub it is read in %s", got)
	}
	c.said.Watched, c.said.Elsewhere, c.said.Checks = false, false, false
	since(time.Hour)
	c.said.Objects = []puller.Found{{Listed: true, Synced: true, Known: true, Health: puller.Unhealthy, Why: "crashes"}}
	if got := s.Reconcile(t.Context(), "lagos").Retry; got > 3*time.Second {
		t.Errorf("after a change it is read in %s", got)
	}
}
