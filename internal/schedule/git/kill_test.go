package git_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
	"github.com/tko-orchestrator/tko/krm"
)

const victimRepository = "TKO_TEST_VICTIM_REPOSITORY"

// TestMain runs the process that the test kills, which schedules without end.
func TestMain(m *testing.M) {
	if url := os.Getenv(victimRepository); url != "" {
		victim(url)
	}
	os.Exit(m.Run())
}

func victim(url string) {
	g := git.New(git.Options{Cache: os.Getenv("TKO_TEST_VICTIM_CACHE"), Secrets: os.Getenv("TKO_TEST_VICTIM_SECRETS")})
	for i := 0; ; i++ {
		if _, err := g.Schedule(context.Background(), victimTrigger(url), tko.Site{ID: "lagos"}, many("a", i, 150)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

func victimTrigger(url string) krm.Resource {
	spec := map[string]any{"url": url}
	if strings.HasPrefix(url, "http") {
		spec["credentials"] = map[string]any{"tokenFile": "token"}
	}
	return repository(spec)
}

// many returns a deployment with some resources that all contain a number.
func many(id tko.DeploymentID, number, resources int) []tko.Deployment {
	p := make(krm.Package, resources)
	for i := range p {
		p[i] = krm.Resource{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("c%d", i), "namespace": "ns"},
			"data": map[string]any{"number": strconv.Itoa(number)},
		}
	}
	return []tko.Deployment{{ID: id, Package: p, Stamp: tko.Stamp{Revision: int64(number)}}}
}

// A process that is killed at any moment leaves a branch with complete commits, on
// which the next process continues.
func TestRepositoryIsConsistentAfterAKill(t *testing.T) {
	t.Parallel()
	s := serve(t)
	local := filepath.Join(t.TempDir(), "local.git")
	for name, repo := range map[string]struct{ url, dir string }{"local": {local, local}, "over HTTP": {s.url, s.dir}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache := t.TempDir()
			for round := range 12 {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), victimRepository+"="+repo.url, "TKO_TEST_VICTIM_CACHE="+cache, "TKO_TEST_VICTIM_SECRETS="+s.secrets)
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if round > 0 { // once it is at work; in the first round it may not even have begun
					if _, err := out.Read(make([]byte, 1)); err != nil {
						t.Fatalf("round %d: the victim died before its time: %v", round, err)
					}
				}
				time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				lock := filepath.Join(repo.dir, "refs", "heads", "main.lock")
				if _, err := os.Stat(lock); err == nil { // it would be waited for
					old := time.Now().Add(-time.Hour)
					_ = os.Chtimes(lock, old, old)
				}
			}
			g := git.New(git.Options{Cache: cache, Secrets: s.secrets})
			want := []string{"lagos/.tko"}
			for _, name := range []string{"x", "y"} {
				want = append(want, "lagos/b/10-namespaced/ns/ConfigMap.v1_"+name+".yaml")
			}
			schedule(t, g, victimTrigger(repo.url), "lagos", deployment(t, "b", 1, configMap("x")+"\n---\n"+configMap("y")))
			if diff := cmp.Diff(want, files(t, repo.dir)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			commits(t, repo.dir)
		})
	}
}
