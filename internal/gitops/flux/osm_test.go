package flux_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/flux"
	"github.com/tko-orchestrator/tko/internal/gitops/fluxtest"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

// network returns the files of a repository of OSM Ops, with these files in addition.
func network(connection string, more map[string]string) map[string]string {
	all := map[string]string{
		"osm_ops_config.yaml":            "connectionFile: " + connection + "\n",
		"osm-pkgs/upf_knf/upf_vnfd.yaml": "vnfd:\n  id: upf_knf\n  product-name: upf\n  kdu:\n  - name: upf\n    helm-chart: ops/upf:1.0.0\n",
		"osm-pkgs/upf_ns/upf_nsd.yaml": "nsd:\n  nsd:\n  - id: upf_ns\n    name: upf\n    vnfd-id: [upf_knf]\n    df:\n    - id: default\n      vnf-profile:\n" +
			"      - {id: upf, vnfd-id: upf_knf}\n",
	}
	maps.Copy(all, more)
	return all
}

func service(name, replicas string) string {
	return fmt.Sprintf("kind: NsInstance\nname: %s\nnsdName: upf_ns\nvnfName: upf\nvimAccountName: vim\nkdu: {name: upf, params: {replicaCount: %q}}\n", name, replicas)
}

func connectionTo(s *osmtest.Server) string {
	_, host, _ := strings.Cut(s.URL, "://")
	return fmt.Sprintf("hostname: %s\nscheme: http\nuser: admin\npassword: admin\nproject: admin\n", host)
}

// replicas returns the current replicaCount of a network service; "" if there is none.
func replicas(s *osmtest.Server, name string) string {
	i, ok := s.Instance(name)
	if !ok {
		return ""
	}
	return fmt.Sprint(i.Releases["upf/upf"].Values["replicaCount"])
}

// Network services are created, changed and removed as their files in an artifact are,
// concurrently with an invalid artifact and a missing source.
func TestNetworkServicesFollowAnArtifact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flux.Options{})
	mano := osmtest.Start(t, osmtest.Options{Delay: 10 * time.Millisecond})
	source, forged := w.source("GitRepository", "services"), w.source("GitRepository", "forged")
	repository := fluxtest.NewRepositoryWith(t, network("/etc/osmops/nbi-connection.yaml", map[string]string{"sites/07.osmops.yaml": service("edge-upf-07", "2")}))
	w.Kubectl(t, "-n", w.namespace, "create", "secret", "generic", "nbi-connection", "--from-literal=nbi-connection.yaml="+connectionTo(mano))
	const osm = "osm: {connectionSecretRef: {name: nbi-connection}}"
	a := w.Retain(forged, "main@sha1:0007", repository.Archive(repository.Head()))
	a.Digest = "sha256:" + strings.Repeat("f", 64)
	w.SetCondition(t, forged, a)
	w.gitOps("forged", forged, osm)
	w.gitOps("away", w.source("GitRepository", "away"), osm)
	w.gitOps("services", source, osm)

	w.becomes("services", ".status.lastAppliedRevision", w.Publish(t, source, repository).Revision)
	if got := replicas(mano, "edge-upf-07"); got != "2" {
		t.Errorf("the service has %q replicas, want 2", got)
	}
	w.becomes("services", `.status.inventory.entries[?(@.kind=="NsInstance")].name`, "edge-upf-07")
	w.becomes("services", ".status.inventory.count", "3")
	repository.Commit(map[string]string{"sites/07.osmops.yaml": service("edge-upf-07", "3"), "sites/08.osmops.yaml": service("edge-upf-08", "1")})
	w.becomes("services", ".status.lastAppliedRevision", w.Publish(t, source, repository).Revision)
	if one, other := replicas(mano, "edge-upf-07"), replicas(mano, "edge-upf-08"); one != "3" || other != "1" {
		t.Errorf("the services have %q and %q replicas, want 3 and 1", one, other)
	}
	repository.Commit(map[string]string{"sites/07.osmops.yaml": ""})
	w.becomes("services", ".status.lastAppliedRevision", w.Publish(t, source, repository).Revision)
	if one, other := replicas(mano, "edge-upf-07"), replicas(mano, "edge-upf-08"); one != "" || other != "1" {
		t.Errorf("after the removal of one, the services have %q and %q replicas, want none and 1", one, other)
	}
	w.becomes("forged", readyReason, "ArtifactFailed")
	w.becomes("away", readyReason, "ArtifactFailed")
	w.Kubectl(t, "-n", w.namespace, "delete", "gitops", "services", "--timeout=3m")
	if all := mano.Instances(); len(all) > 0 {
		t.Errorf("after the deletion of the object, the instances are %+v, want none", all)
	}
}

// A GitRepository alone is enough, as with OSM Ops. A repository without OSM Ops costs
// one download of its artifact. A GitOps object for the same repository takes over the
// network services without creating them again.
func TestGitRepositoryOfOSMOpsIsASource(t *testing.T) {
	t.Parallel()
	w := worldWithout(t)
	mano := osmtest.Start(t, osmtest.Options{Delay: 10 * time.Millisecond})
	file := filepath.Join(t.TempDir(), "nbi-connection.yaml")
	if err := os.WriteFile(file, []byte(connectionTo(mano)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.connections = filepath.Dir(file)
	w.start(t, flux.Options{OSMOps: true})
	source, theirs := w.source("GitRepository", "services"), w.source("GitRepository", "theirs")
	repository := fluxtest.NewRepositoryWith(t, network(file, map[string]string{"07.osmops.yaml": service("edge-upf-07", "2"), "t.yaml": template("t", "1")}))
	w.Publish(t, theirs, fluxtest.NewRepositoryWith(t, map[string]string{"a.yaml": template("a", "1"), "b.yaml": "a: ["}))
	a := w.Publish(t, source, repository)
	ready := func(name string) (revision, reason string) {
		s, err := w.data.Source(t.Context(), name)
		if err != nil {
			return "", ""
		}
		if len(s.Status.Conditions) != 1 {
			return s.Status.Applied, ""
		}
		return s.Status.Applied, s.Status.Conditions[0].Type + s.Status.Conditions[0].Reason
	}
	ours := "gitrepository/" + w.namespace + "/services"
	w.eventually("the revision is applied", func() bool { revision, _ := ready(ours); return revision == a.Revision })
	if got := replicas(mano, "edge-upf-07"); got != "2" {
		t.Errorf("the service has %q replicas, want 2", got)
	}
	w.eventually("the repository without OSM Ops is skipped", func() bool {
		_, reason := ready("gitrepository/" + w.namespace + "/theirs")
		return reason == "ReadyNothingForUs"
	})
	if w.value("a")+w.value("t") != "" {
		t.Errorf("templates are applied: %q %q", w.value("a"), w.value("t"))
	}
	w.eventually("an event names the revision", func() bool {
		return strings.Contains(w.Kubectl(t, "-n", w.namespace, "get", "events", "--field-selector=involvedObject.kind=GitRepository,involvedObject.name=services"), a.Revision)
	})
	repository.Commit(map[string]string{"08.osmops.yaml": service("edge-upf-08", "1"), "07.osmops.yaml": ""})
	a = w.Publish(t, source, repository)
	w.eventually("the next revision is applied", func() bool { revision, _ := ready(ours); return revision == a.Revision })
	if one, other := replicas(mano, "edge-upf-07"), replicas(mano, "edge-upf-08"); one != "2" || other != "1" {
		t.Errorf("nothing may be removed; the services have %q and %q replicas, want 2 and 1", one, other)
	}
	before, _ := mano.Instance("edge-upf-08")

	w.gitOps("services", source)
	w.becomes("services", ".status.lastAppliedRevision", a.Revision)
	w.eventually("the source of the GitRepository alone is removed", func() bool {
		_, err := w.data.Source(t.Context(), ours)
		return errors.Is(err, tko.ErrNotFound)
	})
	if after, ok := mano.Instance("edge-upf-08"); !ok || after.ID != before.ID || len(mano.Instances()) != 2 {
		t.Errorf("the service was created again: it is %+v, and was %+v", after, before)
	}
	if got := w.value("t"); got != "1" {
		t.Errorf("the object's template is %q, want 1", got)
	}
	// A second request is possible if the artifact was published during the first reconciliation.
	if n := w.Requests(theirs); n < 1 || n > 2 {
		t.Errorf("the repository without OSM Ops was downloaded %d times, want 1 or 2", n)
	}
}
