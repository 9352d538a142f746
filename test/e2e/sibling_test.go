package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}, Timeout: 10 * time.Second}

func fetch(address string) (string, error) {
	response, err := insecure.Get(address)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}

// childrenOf returns the process IDs of the programs that a process started.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, child)
		}
	}
	return all
}

func startWithKubernetes(t *testing.T) (s *process.Server, child int) {
	t.Helper()
	s = process.StartServer(t, "--store=sqlite::memory:", "--kubernetes=localhost:0", "--kubernetes-trust-everybody", "--listen-health=localhost:0", "--listen-metrics=localhost:0")
	children := childrenOf(t, s.PID)
	if len(children) != 1 {
		t.Fatalf("the server has the child processes %v, want tko-kubernetes alone", children)
	}
	return s, children[0]
}

func TestKubernetesAPIContinuesAfterItsProgramIsKilled(t *testing.T) {
	s, child := startWithKubernetes(t)
	c, err := client.Dial(client.Options{Address: s.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.RegisterTemplate(t.Context(), tko.Template{ID: "kept"}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the health probe to report it", func() bool {
		_, err := fetch("http://" + s.Health + "/readyz")
		return err != nil && strings.Contains(err.Error(), "tko-kubernetes")
	})
	eventually.NoError(t, "the Kubernetes API", func() error {
		text, err := fetch("https://" + s.Kube + "/apis/tko.nephio.org/v1alpha1/templates")
		if err == nil && !strings.Contains(text, `"kept"`) {
			err = fmt.Errorf("the list is %s", text)
		}
		return err
	})
	eventually.NoError(t, "the health probe", func() error { _, err := fetch("http://" + s.Health + "/readyz"); return err })
	if !strings.Contains(s.Log(), "a program of this server does not run") {
		t.Error("the server did not log it")
	}
}

// One scrape has the metrics of both programs. Those of one that hangs are absent, and
// the rest is served.
func TestMetricsOfBothProgramsAreServed(t *testing.T) {
	s, child := startWithKubernetes(t)
	if _, err := fetch("https://" + s.Kube + "/apis/tko.nephio.org/v1alpha1/templates"); err != nil {
		t.Fatal(err)
	}
	const theirs, ours = `tko_api_requests_total{api="kubernetes",code="200",method="list templates"}`, `process_resident_memory_bytes{program="tko-server"}`
	scrape := func() string {
		text, err := fetch("http://" + s.Metrics + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text := scrape(); !strings.Contains(text, theirs) || !strings.Contains(text, `process_resident_memory_bytes{program="tko-kubernetes"}`) {
		t.Errorf("the metrics of tko-kubernetes are missing:\n%s", text)
	}
	if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Its threads stop one after the other.
	eventually.NoError(t, "metrics without those of a program that hangs", func() error {
		if text := scrape(); strings.Contains(text, theirs) || !strings.Contains(text, ours) {
			return fmt.Errorf("they are\n%s", text)
		}
		return nil
	})
	if err := syscall.Kill(child, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func TestKilledServerLeavesNoProgram(t *testing.T) {
	s, child := startWithKubernetes(t)
	s.Kill()
	eventually.True(t, "the end of tko-kubernetes", func() bool { return !runs(child) })
}

func TestStoppedServerStopsItsProgram(t *testing.T) {
	s, child := startWithKubernetes(t)
	s.Stop()
	if runs(child) {
		t.Errorf("tko-kubernetes, process %d, still runs", child)
	}
	if strings.Contains(s.Log(), "\"level\":\"ERROR\"") {
		t.Error("the server logged an error")
	}
}

// runs reports whether a process runs. One that has ended and that its parent has not
// waited for does not.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// aloneServer returns the path of a server without the other programs next to it.
func aloneServer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("cp", process.Build(t, "tko-server"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "tko-server")
}

func TestMissingKubernetesProgramIsNamedAtTheStart(t *testing.T) {
	server := aloneServer(t)
	cmd := exec.Command(server, "--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--kubernetes=localhost:0", "--kubernetes-trust-everybody")
	cmd.Env = append(process.Environment(), "PATH="+t.TempDir(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit code 1", err)
	}
	for _, part := range []string{"tko-kubernetes", server, "install it", "--kubernetes"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the output lacks %q:\n%s", part, out)
		}
	}
}

func TestMissingKubernetesProgramIsACondition(t *testing.T) {
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	cmd := exec.Command(aloneServer(t), "--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--ready-file="+ready)
	cmd.Env = append(process.Environment(), "PATH="+dir, "HOME="+dir)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var c *client.Client
	eventually.NoError(t, "the server", func() error {
		text, err := os.ReadFile(ready)
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(text), `"grpc":["`)
		address, _, _ := strings.Cut(rest, `"`)
		c, err = client.Dial(client.Options{Address: address})
		return err
	})
	defer func() { _ = c.Close() }()
	cluster := krm.Resource{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "cluster"},
		"spec": map[string]any{"kubeconfig": map[string]any{"file": "x.yaml"}},
	}
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: "edge", Package: krm.Package{cluster}}); err != nil {
		t.Fatal(err)
	}
	eventually.NoError(t, "the condition of the site", func() error {
		site, err := c.Site(t.Context(), "edge", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, condition := range site.Stamp.Conditions {
			if condition.Type == tko.ConditionScheduled && condition.Status == tko.ConditionFalse && strings.Contains(condition.Message, "tko-kubernetes is neither next to") {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", site.Stamp.Conditions)
	})
}
