package schedule_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/krm"
)

// A site whose artifact Flux or Argo CD pulls is scheduled when the registry has the artifact,
// and healthy when the tool has applied its content.
func TestHealthOfSitesWithArtifactsIsWhatTheirToolReports(t *testing.T) {
	t.Parallel()
	away := false
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	digest := func() string {
		r, err := http.Head(server.URL + "/v2/fleet/lagos/manifests/latest")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.Header.Get("Docker-Content-Digest")
	}
	artifact := krm.Resource{
		"apiVersion": "oci.plugin.nephio.org/v1alpha1", "kind": "Artifact", "metadata": map[string]any{"name": "main"},
		"spec": map[string]any{
			"url":    "oci://" + strings.TrimPrefix(server.URL, "http://") + "/fleet",
			"status": map[string]any{"flux": map[string]any{"kubeconfig": map[string]any{"file": "hub"}}},
		},
	}
	c := &tool{}
	r := world([]tko.Site{site("lagos", artifact)}, []tko.Deployment{deployment("a", "lagos"), deployment("b", "lagos")})
	s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir(), Kubernetes: func(func(...tko.SiteID)) schedule.Clusters { return c }})
	check := func(why string, scheduled string, want map[string]string) {
		t.Helper()
		s.Reconcile(t.Context(), "lagos")
		if diff := cmp.Diff(want, r.saidOf(tko.ConditionHealthy)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", why, diff)
		}
		if said := r.said()["a"]; said != scheduled {
			t.Errorf("%s: Scheduled is %s, want %s", why, said, scheduled)
		}
	}
	away = true
	check("the registry is away", "False Failed @1", map[string]string{})
	away = false
	c.said = puller.Report{Missing: true}
	check("the Kustomization doesn't exist", "True Scheduled @1", map[string]string{"lagos": "Unknown PullMissing @1", "a": "Unknown PullMissing @1", "b": "Unknown PullMissing @1"})
	first := digest()
	c.said = puller.Report{Applied: []string{"latest@" + first}, Attempted: []string{"latest@" + first}, Health: puller.Healthy}
	check("all is applied", "True Scheduled @1", map[string]string{"lagos": "True Healthy @1", "a": "True Healthy @1", "b": "True Healthy @1"})

	// A new revision isn't healthy before it is applied; what it leaves as it is stays healthy.
	d := r.deployments["a"]
	d.Stamp.Revision, d.Package = 2, krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a2", "namespace": "y"}}}
	r.deployments["a"] = d
	check("a changed", "True Scheduled @2", map[string]string{"lagos": "False NotYetApplied @1", "a": "False NotYetApplied @2", "b": "True Healthy @1"})
	if digest() == first {
		t.Error("the change was not published")
	}
	c.said = puller.Report{Applied: []string{digest()}, Health: puller.Healthy, Checks: true, At: time.Now()} // as Argo CD reports it
	check("it is applied", "True Scheduled @2", map[string]string{"lagos": "True Healthy @1", "a": "True Healthy @2", "b": "True Healthy @1"})
	writes := r.writes
	if check("nothing changed", "True Scheduled @2", map[string]string{"lagos": "True Healthy @1", "a": "True Healthy @2", "b": "True Healthy @1"}); r.writes != writes {
		t.Error("reconciling again wrote again")
	}
}
