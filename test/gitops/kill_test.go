package gitops

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

const timeLimit = 5 * time.Minute

func TestMain(m *testing.M) {
	code := kube.Main(m)
	process.Clean()
	os.Exit(code)
}

var git = gittest.Run

// push commits the n-th revision: its templates name the revision, and half of its
// deployments differ from the previous one. It returns the revision and the expected
// deployments.
func push(t *testing.T, dir string, n int) (revision string, want []string) {
	t.Helper()
	const sites = 20
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: tko.nephio.org/v1alpha1\nkind: Template\nspec:\n  templateId: t\n  package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {number: %q}}]}\n", strconv.Itoa(n))
	for i := range sites {
		site := fmt.Sprintf("s%02d", i)
		name := site
		if i%2 == 0 {
			name = fmt.Sprintf("%s-%d", site, n)
		}
		fmt.Fprintf(&b, "---\napiVersion: tko.nephio.org/v1alpha1\nkind: Site\nspec: {siteId: %s}\n", site)
		fmt.Fprintf(&b, "---\napiVersion: tko.nephio.org/v1alpha1\nkind: Deployment\nmetadata: {name: %q}\nspec:\n  templateId: t\n  siteId: %s\n"+
			"  package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: own}, data: {name: %q, number: %q}}]}\n", name, site, name, strconv.Itoa(n))
		want = append(want, fmt.Sprintf("%s at %s: %d", name, site, n))
	}
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", strconv.Itoa(n))
	slices.Sort(want)
	return "main@sha1:" + git(t, dir, "rev-parse", "HEAD"), want
}

// deploymentsOf returns a line for each deployment of a test's revision: its name, site
// and number.
func deploymentsOf(ctx context.Context, c *client.Client) (got []string, err error) {
	for d, err := range c.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			return nil, err
		}
		for _, r := range d.Package {
			if r.Name() == "own" {
				got = append(got, fmt.Sprintf("%s at %s: %s", r.Text("data", "name"), d.Site, r.Text("data", "number")))
			}
		}
	}
	slices.Sort(got)
	return got, nil
}

// Two replicas of the role gitops and the data controller are killed with kill -9 at
// random moments while revisions are pushed. The result is the newest revision: each
// deployment exists once, and no other ones.
func TestReplicasApplyNewestRevisionAfterKills(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	git(t, root, "init", "-q", "-b", "main", "fleet")
	dir := filepath.Join(root, "fleet")
	push(t, dir, 0)

	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	start := map[string]func() *process.Server{
		"data": func() *process.Server {
			return process.StartServer(t, "--roles=data", "--store=sqlite:"+filepath.Join(root, "tko.db"), "--listen-grpc="+address, "--retry=20ms", "--retry-max=200ms")
		},
		"a": func() *process.Server {
			return process.StartServer(t, "--roles=gitops", "--data="+address, "--git=file://"+dir, "--git-interval=1s", "--work-lease=1s", "--git-budget-entities=1000")
		},
	}
	start["b"] = start["a"]
	running := map[string]*process.Server{}
	for _, name := range []string{"data", "a", "b"} {
		running[name] = start[name]()
	}
	c, err := client.Dial(client.Options{Address: address, WaitForReady: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	until := func(revision string, want []string) {
		t.Helper()
		var got []string
		eventually.Within(t, timeLimit, "revision "+revision, func() error {
			s, err := c.Source(ctx, "fleet")
			if err != nil || s.Status.Applied != revision {
				return fmt.Errorf("it is not applied: %+v, %w", s.Status, err)
			}
			if got, err = deploymentsOf(ctx, c); err != nil || !slices.Equal(got, want) {
				t.Fatalf("revision %s is applied, but there are %v, %v; want %v", revision, got, err, want)
			}
			return nil
		})
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var revision string
	var want []string
	victims := []string{"a", "b", "data", "a", "b"}
	for round, victim := range victims {
		revision, want = push(t, dir, round+1)
		time.Sleep(time.Duration(random.Int64N(int64(1500 * time.Millisecond)))) // the random moment
		running[victim].Kill()
		running[victim] = start[victim]()
		if round%2 == 0 { // otherwise the next revision arrives while the last one is applied
			until(revision, want)
		}
	}
	revision, want = push(t, dir, len(victims)+1)
	until(revision, want)
}
