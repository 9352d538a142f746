package gitops

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// managed has the objects of a management cluster: of Cluster API, of Open Cluster Management
// and of the Multicluster SIG, the kubeconfigs of two, and a reader without other rights.
const managed = `
apiVersion: v1
kind: Namespace
metadata: {name: managed}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: tko, namespace: managed}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tko-inventory}
rules:
- apiGroups: [cluster.x-k8s.io, cluster.open-cluster-management.io, multicluster.x-k8s.io]
  resources: [clusters, managedclusters, clusterprofiles]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tko-inventory}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tko-inventory}
subjects: [{kind: ServiceAccount, name: tko, namespace: managed}]
---
apiVersion: v1
kind: Secret
metadata: {name: edge-1-kubeconfig, namespace: managed, labels: {cluster.x-k8s.io/cluster-name: edge-1}}
type: cluster.x-k8s.io/secret
data: {value: KUBECONFIG}
---
apiVersion: v1
kind: Secret
metadata: {name: core-1, namespace: managed}
data: {Config: KUBECONFIG}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: edge-1, namespace: managed, labels: {region: west}}
spec: {controlPlaneEndpoint: {host: 192.0.2.1, port: 6443}}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: edge-2, namespace: managed, labels: {region: west}}
spec: {paused: false}
---
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: store-7, labels: {region: north}}
spec: {hubAcceptsClient: true}
---
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: store-8, labels: {region: north}}
spec: {hubAcceptsClient: true}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ClusterProfile
metadata: {name: core-1, namespace: managed}
spec: {displayName: Core, clusterManager: {name: ocm}}
`

// clusterAt returns the expression of a package with a reference to a kubeconfig.
func clusterAt(kubeconfig string) string {
	return `[{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": {"name": "cluster"}, "spec": {"kubeconfig": ` + kubeconfig + `}}]`
}

// A management is a management cluster with a source that makes sites of its clusters.
type management struct {
	*testing.T
	*kube.Cluster
	data       *client.Client
	controller *gitops.Controller
	lists      atomic.Int64 // requests for all objects of a kind
	watches    atomic.Int64
}

// counted returns the URL of a proxy that counts the requests to the cluster.
func (m *management) counted() string {
	m.Helper()
	at, err := url.Parse(m.URL())
	if err != nil {
		m.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(m.CA())
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			m.watches.Add(1)
		} else {
			m.lists.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	m.Cleanup(server.Close)
	return server.URL
}

func newManagement(t *testing.T) *management {
	t.Helper()
	m := &management{T: t, Cluster: kube.Shared(t, kube.Options{}), data: grpctest.Start(t, client.Options{Author: tko.Author{Who: "test"}})}
	files, err := filepath.Glob("testdata/clusters/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("the definitions are %q: %v", files, err)
	}
	var definitions []string
	wait := []string{"wait", "--for=condition=Established", "--timeout=4m"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definitions = append(definitions, string(text))
		wait = append(wait, "crd/"+strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	m.Apply(t, strings.Join(definitions, "---\n"))
	m.Kubectl(t, wait...)
	kubeconfig, err := os.ReadFile(m.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(t, strings.ReplaceAll(managed, "KUBECONFIG", base64.StdEncoding.EncodeToString(kubeconfig)))
	m.status("clusters.cluster.x-k8s.io/edge-1", `{"phase": "Provisioned", "infrastructureReady": true}`)
	m.status("clusters.cluster.x-k8s.io/edge-2", `{"phase": "Provisioning"}`)
	m.status("clusterprofiles/core-1", `{"properties": [{"name": "region", "value": "south"}]}`)

	dir := t.TempDir()
	c := remote.Credentials{TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca.crt")}
	for file, text := range map[string]string{c.CAFile: string(m.CA()), c.TokenFile: m.Kubectl(t, "create", "token", "tko", "-n", "managed")} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := m.counted()
	from := func(name, resource string, mapping inventory.Mapping) inventory.OriginSettings {
		return inventory.OriginSettings{Name: name, Credentials: c, Kubernetes: &inventory.KubernetesSettings{URL: at, Resource: resource}, Map: mapping}
	}
	spec, err := gitops.Settings{Name: "clusters", Interval: "1h", Budget: &gitops.BudgetSettings{Percent: 25, Entities: 20}, Inventory: &inventory.Settings{From: []inventory.OriginSettings{
		from("capi", "clusters.v1beta1.cluster.x-k8s.io", inventory.Mapping{
			When: `record.?status.phase.orValue("") == "Provisioned"`, ID: `"capi/" + record.metadata.name`, Metadata: map[string]string{"region": "record.metadata.labels.region"},
			Package: clusterAt(`{"clusterAPI": {"name": record.metadata.name, "namespace": record.metadata.namespace}}`),
		}),
		from("ocm", "managedclusters.v1.cluster.open-cluster-management.io", inventory.Mapping{
			When: "record.spec.hubAcceptsClient", ID: `"ocm/" + record.metadata.name`, Metadata: map[string]string{"region": "record.metadata.labels.region"},
		}),
		from("profiles", "clusterprofiles.v1alpha1.multicluster.x-k8s.io", inventory.Mapping{
			ID: `"profile/" + record.metadata.name`, Metadata: map[string]string{"region": `record.status.properties.filter(p, p.name == "region")[0].value`},
			Package: clusterAt(`{"secret": {"name": record.metadata.name, "namespace": record.metadata.namespace, "key": "Config"}}`),
		}),
	}}}.SpecWith(dir, remote.Access{})
	if err != nil {
		t.Fatal(err)
	}
	m.controller = gitops.New(m.data, gitops.Options{Worker: "test", Sources: []gitops.Spec{spec}, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.controller.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

// status sets the status of an object, as its controller does.
func (m *management) status(object, status string) {
	m.Helper()
	m.Kubectl(m.T, "patch", object, "-n", "managed", "--subresource=status", "--type=merge", "-p", `{"status": `+status+`}`)
}

// becomes has the source reconciled until it has these sites and this reason, and returns it.
func (m *management) becomes(what, reason string, want ...string) tko.Source {
	m.Helper()
	if err := m.controller.Enqueue(m.Context(), "clusters"); err != nil {
		m.Fatal(err)
	}
	var s tko.Source
	eventually.NoError(m.T, what, func() (err error) {
		if s, err = m.data.Source(m.Context(), "clusters"); err != nil {
			return err
		}
		is := slices.IndexFunc(s.Status.Conditions, func(c tko.Condition) bool { return c.Type == tko.ConditionReady && c.Reason == reason })
		if sites, err := m.sites(); err != nil || is < 0 || s.Enqueued || !slices.Equal(sites, want) {
			return fmt.Errorf("the sites are %q, the conditions %+v: %w", sites, s.Status.Conditions, err)
		}
		return nil
	})
	return s
}

// sites lists the sites with their regions and revisions.
func (m *management) sites() (all []string, err error) {
	for s, err := range m.data.Sites(m.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprintf("%s %s %d", s.ID, s.Metadata["region"], s.Stamp.Revision))
	}
	slices.Sort(all)
	return all, nil
}

// Sites follow the clusters of a management cluster, with no rights but to list and watch them. The
// Kubernetes target reaches those sites by the kubeconfigs that the cluster keeps.
func TestSitesFollowClustersOfAManagementCluster(t *testing.T) {
	m := newManagement(t)
	before := m.becomes("the clusters are sites", tko.SourceReasonSucceeded, "capi/edge-1 west 1", "ocm/store-7 north 1", "ocm/store-8 north 1", "profile/core-1 south 1")

	// Unchanged clusters are not listed again.
	lists, watches := m.lists.Load(), m.watches.Load()
	m.becomes("nothing has happened", tko.SourceReasonSucceeded, "capi/edge-1 west 1", "ocm/store-7 north 1", "ocm/store-8 north 1", "profile/core-1 south 1")
	if n := m.lists.Load() - lists; n > 0 || m.watches.Load() == watches {
		t.Errorf("unchanged clusters are listed by %d requests, after %d for their events: want none, after some", n, m.watches.Load()-watches)
	}
	// Heartbeats of controllers change resource versions, and no sites.
	m.status("managedclusters/store-7", `{"conditions": [{"type": "ManagedClusterConditionAvailable", "status": "True", "reason": "x", "message": "y", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}`)
	after := m.becomes("nothing has changed", tko.SourceReasonSucceeded, "capi/edge-1 west 1", "ocm/store-7 north 1", "ocm/store-8 north 1", "profile/core-1 south 1")
	if before.Status.Applied != after.Status.Applied {
		t.Errorf("a heartbeat makes the revision %s: want %s", after.Status.Applied, before.Status.Applied)
	}

	m.status("clusters.cluster.x-k8s.io/edge-2", `{"phase": "Provisioned"}`)
	m.status("clusterprofiles/core-1", `{"properties": [{"name": "region", "value": "east"}]}`)
	m.becomes("one is new, and one has changed", tko.SourceReasonSucceeded, "capi/edge-1 west 1", "capi/edge-2 west 1", "ocm/store-7 north 1", "ocm/store-8 north 1", "profile/core-1 east 2")

	target := kubernetes.New(kubernetes.Options{Kubeconfigs: t.TempDir(), Management: m.Kubeconfig})
	defer target.Close()
	deployment := krm.Resource{"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": map[string]any{"name": "deployment"}}
	for _, id := range []tko.SiteID{"capi/edge-1", "profile/core-1"} {
		site, err := m.data.Site(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ReplaceAll(string(id), "/", "-")
		resource := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "managed"}}
		if _, err := target.Schedule(t.Context(), site.Package[0], site, []tko.Deployment{{ID: tko.DeploymentID(name), Prepared: true, Approved: true, Package: krm.Package{deployment, resource}}}, nil); err != nil {
			t.Errorf("the Kubernetes target doesn't reach site %q: %v", id, err)
		}
		m.Eventually(t, name, "get", "configmap", name, "-n", "managed", "-o", "jsonpath={.metadata.name}")
	}

	// The budget allows one removal of five sites, and the second waits.
	m.Kubectl(t, "delete", "managedcluster", "store-8")
	m.becomes("one has left", tko.SourceReasonSucceeded, "capi/edge-1 west 1", "capi/edge-2 west 1", "ocm/store-7 north 1", "profile/core-1 east 2")
	m.Kubectl(t, "delete", "clusters.cluster.x-k8s.io", "edge-2", "-n", "managed")
	s := m.becomes("the second waits", tko.SourceReasonApproval, "capi/edge-1 west 1", "capi/edge-2 west 1", "ocm/store-7 north 1", "profile/core-1 east 2")
	if err := m.controller.Approve(t.Context(), "clusters", s.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	m.becomes("it was approved", tko.SourceReasonSucceeded, "capi/edge-1 west 1", "ocm/store-7 north 1", "profile/core-1 east 2")

	// Without the definition, as while it is replaced, all sites stay.
	m.Kubectl(t, "delete", "crd", "clusterprofiles.multicluster.x-k8s.io")
	m.becomes("all stay", tko.SourceReasonFetchFailed, "capi/edge-1 west 1", "ocm/store-7 north 1", "profile/core-1 east 2")
}
