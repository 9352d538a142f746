package e2e

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A server publishes a site in a registry, follows its changes, and, after a kill, continues
// without pushing what is there.
func TestSiteIsPublishedInARegistry(t *testing.T) {
	var pushes atomic.Int64
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
			pushes.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	defer hub.Close()
	arguments := []string{"--store=" + anyStore(t), "--remote-addresses=127.0.0.0/8"}
	s := process.StartServer(t, arguments...)
	dial := func() *client.Client {
		c, err := client.Dial(client.Options{Address: s.GRPC})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c := dial()
	configMap := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "upf", "namespace": "ran"}}
	artifact := krm.Resource{
		"apiVersion": "oci.plugin.nephio.org/v1alpha1", "kind": "Artifact", "metadata": map[string]any{"name": "artifact"},
		"spec": map[string]any{"url": "oci://" + strings.TrimPrefix(hub.URL, "http://") + "/fleet"},
	}
	_, err := c.RegisterTemplate(t.Context(), tko.Template{ID: "upf", Package: krm.Package{configMap}})
	if err == nil {
		_, err = c.RegisterSite(t.Context(), tko.Site{ID: "lagos/edge-1", Package: krm.Package{artifact}})
	}
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Template: "upf", Site: "lagos/edge-1", Prepared: true, Approved: true})
	if err != nil {
		t.Fatal(err)
	}
	scheduled := func() {
		t.Helper()
		eventually.NoError(t, "the deployment to be scheduled", func() error {
			now, err := c.Deployment(t.Context(), id, 0)
			if err != nil {
				return err
			}
			if s := tko.FindCondition(now.Stamp.Conditions, tko.ConditionScheduled); s == nil || s.Status != tko.ConditionTrue || s.ObservedRevision != now.Stamp.Revision {
				return fmt.Errorf("its conditions are %v", now.Stamp.Conditions)
			}
			return nil
		})
	}
	scheduled()
	digest := func() string {
		r, err := http.Head(hub.URL + "/v2/fleet/lagos/edge-1/manifests/latest")
		if err == nil && r.StatusCode != http.StatusOK {
			err = errors.New(r.Status)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.Header.Get("Docker-Content-Digest")
	}
	first := digest()
	s.Kill()
	s = process.StartServer(t, arguments...)
	c = dial()
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: "lagos/edge-1", Package: krm.Package{artifact, configMap}}); err != nil {
		t.Fatal(err)
	}
	eventually.NoError(t, "the site to be reconciled", func() error {
		site, err := c.Site(t.Context(), "lagos/edge-1", 0)
		if err == nil {
			if s := tko.FindCondition(site.Stamp.Conditions, tko.ConditionScheduled); s == nil || s.ObservedRevision != site.Stamp.Revision || s.Status != tko.ConditionTrue {
				err = fmt.Errorf("its conditions are %v", site.Stamp.Conditions)
			}
		}
		return err
	})
	if digest() != first || pushes.Load() != 1 {
		t.Errorf("after the kill, the tag has another artifact, or it was pushed again: %d pushes", pushes.Load())
	}
	if _, err := c.DeleteDeployment(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "an artifact without objects", func() bool { return digest() != first })
}
