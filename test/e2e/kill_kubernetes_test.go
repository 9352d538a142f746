package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A meta-scheduler is killed with kill -9 at random moments while deployments at a
// cluster are created, changed and deleted. At the end the cluster has exactly the
// objects of the deployments, and the inventories name exactly these.
func TestClusterIsConsistentAfterKillsOfMetaScheduler(t *testing.T) {
	t.Parallel()
	rounds := 6
	if _, ok := os.LookupEnv("TKO_SOAK_ROUNDS"); ok {
		rounds, _ = killPlan(t)
	}
	cluster := kube.Start(t, kube.Options{})
	address, kubeconfigs := freeAddress(t), t.TempDir()
	text, err := os.ReadFile(cluster.Kubeconfig)
	if err == nil {
		err = os.WriteFile(filepath.Join(kubeconfigs, "edge.yaml"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	common := []string{"--work-lease=2s", "--retry=100ms", "--retry-max=1s"}
	process.StartServer(t, append([]string{"--roles=data,preparer", "--store=" + anyStore(t), "--listen-grpc=" + address}, common...)...)
	start := func() *process.Server {
		return process.StartServer(t, append([]string{"--roles=meta-scheduler", "--data=" + address, "--kubeconfigs=" + kubeconfigs}, common...)...)
	}
	c, ctx := dial(t, address), t.Context()
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "empty"}); err != nil {
		t.Fatal(err)
	}
	site := parse(t, "{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c}, spec: {kubeconfig: {file: edge.yaml}, prune: {percent: 100}}}")
	if _, err := c.RegisterSite(ctx, tko.Site{ID: "edge", Package: site}); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	scheduler := start()
	took := 500 * time.Millisecond
	var before []tko.DeploymentID
	for round := range rounds {
		// In each round a deployment is created, the previous one changes, and the
		// one before that is deleted.
		began := time.Now()
		id, err := c.CreateDeployment(ctx, tko.NewDeployment{Template: "empty", Site: "edge", Merge: killPackage(t, round, round)})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(before); n > 0 {
			change(t, c, before[n-1], killPackage(t, round-1, round))
		}
		if n := len(before); n > 1 {
			if _, err := c.DeleteDeployment(ctx, before[n-2]); err != nil {
				t.Fatal(err)
			}
			before = before[1:]
		}
		before = append(before, id)
		if round > 0 { // the first round measures the duration
			for range 2 {
				time.Sleep(time.Duration(random.Int64N(int64(took)))) // the random moment
				scheduler.Kill()
				scheduler = start()
			}
		}
		want := desired(t, c)
		eventually.NoError(t, fmt.Sprintf("the objects of round %d", round), func() error {
			if diff := cmp.Diff([2][]string{want, want}, [2][]string{inCluster(t, cluster), inInventories(t, cluster)}); diff != "" {
				return fmt.Errorf("the cluster and its inventories, -want +got:\n%s", diff)
			}
			return nil
		})
		if round == 0 {
			took = time.Since(began)
		}
	}
}

// killPackage returns the package at round now of a deployment that was created in
// round.
func killPackage(t *testing.T, round, now int) krm.Package {
	t.Helper()
	var b strings.Builder
	for n := range 8 {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: d%d-%d}, data: {round: \"%d\"}}\n", round, n+now-round, now)
	}
	fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: d%d-last, annotations: {tko.nephio.org/order: \"1\"}}, data: {round: \"%d\"}}\n", round, now)
	fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: d%d-anew, annotations: {tko.nephio.org/recreate: \"true\"}}, immutable: true, data: {round: \"%d\"}}\n", round, now)
	return parse(t, b.String())
}

// change replaces the ConfigMaps of a deployment.
func change(t *testing.T, c *client.Client, id tko.DeploymentID, to krm.Package) {
	t.Helper()
	ctx := patient(t)
	eventually.NoError(t, "the change of the deployment", func() error {
		m, err := c.StartModification(ctx, id)
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(m.Package, func(r krm.Resource) bool { return r.GVK().Kind == "ConfigMap" })
		_, _, err = c.EndModification(ctx, m.Token, append(rest, to...))
		return err
	})
}

// desired returns the ConfigMaps of all deployments: "name=round of deployment".
func desired(t *testing.T, c *client.Client) []string {
	t.Helper()
	var all []string
	for d, err := range c.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Package {
			if r.GVK().Kind == "ConfigMap" {
				all = append(all, fmt.Sprintf("%s=%s of %s", r.Name(), r.Text("data", "round"), d.ID))
			}
		}
	}
	slices.Sort(all)
	return all
}

type configMaps struct {
	Items []struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
		Data map[string]string
	}
}

func listConfigMaps(t *testing.T, c *kube.Cluster, namespace, label string) (list configMaps) {
	t.Helper()
	text := c.Kubectl(t, "get", "configmaps", "-n", namespace, "-l", label, "-o", "json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func inCluster(t *testing.T, c *kube.Cluster) []string {
	t.Helper()
	var all []string
	for _, m := range listConfigMaps(t, c, "default", "tko.nephio.org/deployment").Items {
		all = append(all, fmt.Sprintf("%s=%s of %s", m.Metadata.Name, m.Data["round"], m.Metadata.Labels["tko.nephio.org/deployment"]))
	}
	slices.Sort(all)
	return all
}

// inInventories returns the ConfigMaps that the inventories name, with their content
// in the cluster.
func inInventories(t *testing.T, c *kube.Cluster) []string {
	t.Helper()
	rounds := map[string]string{}
	for _, m := range listConfigMaps(t, c, "default", "tko.nephio.org/deployment").Items {
		rounds[m.Metadata.Name] = m.Data["round"]
	}
	var all []string
	for _, m := range listConfigMaps(t, c, "tko-system", "tko.nephio.org/inventory").Items {
		for line := range strings.Lines(m.Data["objects"]) {
			var entry struct{ Name, Digest string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatal(err)
			}
			if entry.Digest == "" {
				entry.Name += ", which no inventory names"
			}
			all = append(all, fmt.Sprintf("%s=%s of %s", entry.Name, rounds[entry.Name], m.Data["deployment"]))
		}
	}
	slices.Sort(all)
	return all
}
