package clusters_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A rollout that stages changes nothing before the cluster has the new image, however the server is
// killed meanwhile; and an image that can't be pulled is never applied.
func TestRolloutsPullImagesBeforeTheyChangeSites(t *testing.T) {
	t.Parallel()
	cluster := kube.Start(t, kube.Options{Controllers: true})
	clientset, err := kubernetes.NewForConfig(kubetest.Config(cluster))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	text, err := os.ReadFile(cluster.Kubeconfig)
	if err := errors.Join(err, os.WriteFile(filepath.Join(folder, "edge.yaml"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	args := []string{"--roles=data,preparer,meta-scheduler,rollout", "--store=sqlite:" + filepath.Join(t.TempDir(), "tko.db"), "--kubeconfigs=" + folder, "--work-lease=3s"}
	server := process.StartServer(t, args...)
	dial := func() *client.Client {
		c, err := client.Dial(client.Options{Address: server.GRPC, WaitForReady: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c := dial()
	site := tko.Site{ID: "edge", Package: krm.Package{{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"}, "spec": map[string]any{"kubeconfig": map[string]any{"file": "edge.yaml"}},
	}}}
	if _, err := c.RegisterSite(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	for n, image := range map[int]string{1: "nf:1", 2: "nf:never-ready", 3: "nf:3"} {
		version := nfVersion(1, image) // the same workload in all versions
		version.ID = tko.TemplateID(fmt.Sprintf("nf:v%d", n))
		if _, err := c.RegisterTemplate(t.Context(), version); err != nil {
			t.Fatal(err)
		}
	}
	id, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Template: "nf:v1", Site: "edge"})
	if err != nil {
		t.Fatal(err)
	}
	running := func() string {
		d, err := clientset.AppsV1().Deployments("default").Get(t.Context(), "nf-v1", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return d.Spec.Template.Spec.Containers[0].Image
	}
	eventually.Within(t, timeLimit, "the first version is healthy", func() error {
		d, err := c.Deployment(t.Context(), id, 0)
		if h := tko.FindCondition(d.Stamp.Conditions, tko.ConditionHealthy); err == nil && (h == nil || h.Status != tko.ConditionTrue) {
			return fmt.Errorf("it is %+v", d.Stamp.Conditions)
		}
		return err
	})

	// Each Job that is made, and the image that runs then.
	var lock sync.Mutex
	var made []string
	follow, err := clientset.BatchV1().Jobs("tko-system").Watch(t.Context(), metav1.ListOptions{LabelSelector: "tko.nephio.org/stage"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(follow.Stop)
	go func() {
		for e := range follow.ResultChan() {
			if e.Type == watch.Added {
				lock.Lock()
				made = append(made, running())
				lock.Unlock()
			}
		}
	}()
	jobs := func() []string {
		lock.Lock()
		defer lock.Unlock()
		return slices.Clone(made)
	}
	start := func(name string, version int) {
		t.Helper()
		rollout := tko.Rollout{ID: tko.RolloutID(name), Package: krm.Package{{
			"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": name}, "spec": map[string]any{
				"edits": []any{map[string]any{"upgrade": map[string]any{"to": fmt.Sprintf("nf:v%d", version)}, "select": map[string]any{"siteIdPatterns": []any{"edge"}}}},
				"stage": map[string]any{"images": true, "within": "2m"}, "health": map[string]any{"within": "1h"},
			},
		}}}
		if _, err := c.RegisterRollout(t.Context(), rollout); err != nil {
			t.Fatal(err)
		}
		eventually.Within(t, timeLimit, name+" is planned", func() error {
			s, err := c.RolloutStatus(t.Context(), rollout.ID)
			if err != nil || s.State != "Planned" {
				return fmt.Errorf("%s (%s), %w", s.State, s.Reason, err)
			}
			_, err = c.RolloutDo(t.Context(), tko.RolloutCommand{ID: rollout.ID, Verb: "start", Plan: s.Plan})
			return err
		})
	}
	kill := func() {
		server.Kill()
		server = process.StartServer(t, args...)
		c = dial()
	}

	// An image that can't be pulled.
	start("bad", 2)
	problem := func() error {
		for row, err := range c.RolloutRows(t.Context(), tko.RolloutRows{ID: "bad"}) {
			if err != nil || !strings.Contains(row.Staging, "ImagePullBackOff") {
				return fmt.Errorf("the row says %q, %w", row.Staging, err)
			}
		}
		return nil
	}
	eventually.Within(t, timeLimit, "the row tells the problem", problem)
	kill()
	eventually.Within(t, timeLimit, "the row tells the problem after a kill", problem)
	if out, _, code := server.CLI("rollout", "plan", "bad"); code != 7 || !strings.Contains(out, "nf:never-ready") || !strings.Contains(out, "1 site") {
		t.Errorf("the plan, with code %d:\n%s", code, out)
	}
	if out, _, code := server.CLI("rollout", "status", "bad"); code != 0 || !strings.Contains(out, "staging") {
		t.Errorf("the status, with code %d:\n%s", code, out)
	}
	if got := running(); got != "nf:1" || len(jobs()) != 1 {
		t.Errorf("%s runs, and the Jobs are %v", got, jobs())
	}
	if _, err := c.RolloutDo(t.Context(), tko.RolloutCommand{ID: "bad", Verb: "cancel"}); err != nil {
		t.Fatal(err)
	}

	// One that can: the server is killed when the cluster has begun.
	start("good", 3)
	eventually.True(t, "the second Job", func() bool { return len(jobs()) >= 2 })
	kill()
	eventually.Within(t, timeLimit, "the rollout is done", func() error {
		s, err := c.RolloutStatus(t.Context(), "good")
		if err == nil && s.State != "Done" {
			err = fmt.Errorf("it is %s (%s): %v", s.State, s.Reason, s.Blocks)
		}
		return err
	})
	if got := running(); got != "nf:3" {
		t.Errorf("%s runs", got)
	}
	if all := jobs(); slices.ContainsFunc(all, func(image string) bool { return image != "nf:1" }) {
		t.Errorf("a Job was made after the change: while Jobs were made, %v ran", all)
	}
	eventually.Within(t, timeLimit, "no Job of the second rollout is left", func() error {
		list, err := clientset.BatchV1().Jobs("tko-system").List(t.Context(), metav1.ListOptions{LabelSelector: "tko.nephio.org/stage"})
		if err != nil {
			return err
		}
		for _, j := range list.Items {
			if j.Annotations["tko.nephio.org/rollout"] == "good" {
				return fmt.Errorf("there is %s", j.Name)
			}
		}
		return nil
	})
}
