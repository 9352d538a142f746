package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

// A site is a site with a cluster, for an agent and for the meta-scheduler.
type site struct {
	t          *testing.T
	dir        string
	kubeconfig string
	signer     string // text of the public key
	write      func(revision int64, rows ...bundle.Row) string
	client     dynamic.Interface
	namespace  string
}

func newSite(t *testing.T) *site {
	t.Helper()
	cluster := kube.Shared(t, kube.Options{})
	client, err := dynamic.NewForConfig(kubetest.Config(cluster))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &site{t: t, dir: dir, kubeconfig: filepath.Join(dir, "admin.conf"), client: client, namespace: fmt.Sprintf("agent-%d", os.Getpid())}
	certificate, key := cluster.Administrator()
	encoded := base64.StdEncoding.EncodeToString
	s.file("admin.conf", fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], "+
		"users: [{name: u, user: {client-certificate-data: %s, client-key-data: %s}}], contexts: [{name: c, context: {cluster: c, user: u}}]}", cluster.URL(), encoded(cluster.CA()), encoded(certificate), encoded(key)))
	private, _, err := bundle.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s.signer = bundle.PublicText(private)
	s.file("pub", s.signer)
	s.write = func(serial int64, rows ...bundle.Row) string {
		var b bytes.Buffer
		all := append([]bundle.Row{{Site: &bundle.Site{ID: "ships/7", UID: "u", Content: s.content(1, s.cluster(map[string]any{"agent": map[string]any{}}))}}}, rows...)
		if _, err := bundle.Write(&b, bundle.Statement{Site: "ships/7", Serial: serial, Time: time.Now()}, bundle.Options{Type: bundle.TypeBundle, Key: private}, func(yield func(bundle.Row, error) bool) {
			for _, r := range all {
				if !yield(r, nil) {
					return
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		return s.file(fmt.Sprintf("%d.bundle", serial), b.String())
	}
	return s
}

func (s *site) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *site) content(revision int64, pkg ...krm.Resource) bundle.Content {
	s.t.Helper()
	c, err := bundle.NewContent(revision, pkg)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// cluster returns the Cluster of the site's package.
func (s *site) cluster(spec map[string]any) krm.Resource {
	spec["namespace"], spec["inventoryNamespace"] = s.namespace, s.namespace+"-tko"
	return krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "site"}, "spec": spec}
}

func (s *site) pkg(name, value string) krm.Package {
	return krm.Package{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": s.namespace}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"value": value}},
		{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}, "stringData": map[string]any{"password": value}},
	}
}

func (s *site) row(id string, revision int64, value string) bundle.Row {
	return bundle.Row{Deployment: &bundle.Deployment{ID: tko.DeploymentID(id), UID: "u", Content: s.content(revision, s.pkg(id, value)...)}}
}

// agent runs tko-agent with its folder.
func (s *site) agent(args ...string) (code int, out string) {
	s.t.Helper()
	var b bytes.Buffer
	code = run(s.t.Context(), append(args, "--state", filepath.Join(s.dir, "state")), &b, &b)
	return code, b.String()
}

func (s *site) apply(want string, args ...string) {
	s.t.Helper()
	args = append([]string{"apply"}, append(args, "--key", filepath.Join(s.dir, "pub"), "--kubeconfig", s.kubeconfig, "--wait", "1m")...)
	if code, out := s.agent(args...); code != 0 || !strings.Contains(out, want) {
		s.t.Fatalf("exit code %d, without %q: %s", code, want, out)
	}
}

// objects returns the objects of the site with their versions, and its inventories.
func (s *site) objects() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for _, kind := range []string{"configmaps", "secrets"} {
		for _, namespace := range []string{s.namespace, s.namespace + "-tko"} {
			list, err := s.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: kind}).Namespace(namespace).List(context.WithoutCancel(s.t.Context()), metav1.ListOptions{})
			if err != nil {
				s.t.Fatal(err)
			}
			for _, i := range list.Items {
				if i.GetName() == "kube-root-ca.crt" {
					continue
				}
				text, err := i.MarshalJSON()
				if err != nil {
					s.t.Fatal(err)
				}
				all[kind+" "+namespace+"/"+i.GetName()] = string(text)
			}
		}
	}
	return all
}

func TestAgentHasTheSameResultAsTheMetaScheduler(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	target := kubernetes.New(kubernetes.Options{Kubeconfigs: s.dir})
	t.Cleanup(target.Close)
	dialled := s.cluster(map[string]any{"kubeconfig": map[string]any{"file": "admin.conf"}})
	at := tko.Site{ID: "ships/7", Package: krm.Package{dialled}, Stamp: tko.Stamp{UID: "u", Revision: 1}}
	of := func(id string, revision int64, value string) tko.Deployment {
		return tko.Deployment{ID: tko.DeploymentID(id), Site: "ships/7", Prepared: true, Approved: true, Package: s.pkg(id, value), Stamp: tko.Stamp{UID: "u", Revision: revision}}
	}
	if _, err := target.Schedule(t.Context(), dialled, at, []tko.Deployment{of("a", 1, "a1"), of("b", 1, "b1")}, nil); err != nil {
		t.Fatal(err)
	}
	before := s.objects()
	if len(before) < 5 {
		t.Fatalf("the site has only %d objects", len(before))
	}

	// The agent finds the same objects and inventories as its own, byte for byte: it writes none.
	if code, out := s.agent("init", "--site", "ships/7"); code != 0 {
		t.Fatal(out)
	}
	s.apply("2 of 2 deployments applied, 2 healthy", s.write(1, s.row("a", 1, "a1"), s.row("b", 1, "b1")))
	if diff := cmp.Diff(before, s.objects()); diff != "" {
		t.Fatalf("the agent has changed what the meta-scheduler applied: %s", diff)
	}

	// What it changes and removes is for the meta-scheduler what that itself would have done.
	s.apply("1 of 1 deployments applied, 1 healthy", s.write(2, s.row("a", 2, "a2")))
	after := s.objects()
	_, stays := after["configmaps "+s.namespace+"/b"]
	if stays || !strings.Contains(after["configmaps "+s.namespace+"/a"], `"value":"a2"`) {
		t.Fatalf("the site has %v", after)
	}
	if _, err := target.Schedule(t.Context(), dialled, at, []tko.Deployment{of("a", 2, "a2")}, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, s.objects()); diff != "" {
		t.Errorf("the meta-scheduler changes what the agent applied: %s", diff)
	}

	// Drift is corrected without a new bundle.
	maps := s.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(s.namespace)
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.apply("1 of 1 deployments applied, 1 healthy")
	if _, err := maps.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Errorf("a deleted object is not made again: %v", err)
	}
}

func TestIncompleteCommandsOfAgentsAreRefused(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	if code, out := s.agent("init", "--site", "ships/7"); code != 0 || !strings.Contains(out, "recipient: age1") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if code, out := s.agent("apply", "--in-cluster"); code != exitUsage || !strings.Contains(out, "--key") {
		t.Errorf("without a key: exit code %d: %s", code, out)
	}
	private, _, err := bundle.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	pub := s.file("pub", bundle.PublicText(private))
	if code, out := s.agent("apply", "--key", pub, "--in-cluster", "--repository", "r"); code != exitUsage || !strings.Contains(out, "one place") {
		t.Errorf("two places: exit code %d: %s", code, out)
	}
	if code, out := s.agent("apply", "--key", pub, "--in-cluster"); code != exitNotFound || !strings.Contains(out, "no bundle was applied yet") {
		t.Errorf("without a bundle: exit code %d: %s", code, out)
	}
	if code, out := s.agent("apply", "a", "b"); code != exitUsage {
		t.Errorf("two files: exit code %d: %s", code, out)
	}
}

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }
