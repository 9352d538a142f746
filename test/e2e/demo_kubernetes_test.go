package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// demoKubernetes returns the command of `make demo-kubernetes`, and a temporary
// folder that is on the command line of each of its processes.
func demoKubernetes(t *testing.T, args ...string) (demo *exec.Cmd, temporary string) {
	t.Helper()
	programs, err := exec.Command("../setup/kube.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"tko", "tko-server", "tko-kubernetes", "tko-agent", "tko-demo"} {
		if err := os.Symlink(process.Build(t, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", bin+"/", "github.com/tko-orchestrator/tko/examples/plugins/namespace")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	temporary = t.TempDir()
	demo = exec.Command(filepath.Join(bin, "tko-demo"), append([]string{
		"-kubernetes", strings.TrimSpace(string(programs)), "-bin", bin, "-dir", filepath.Join(temporary, "demo"), "-catalog", "../../examples/kubernetes",
	}, args...)...)
	demo.Env = append(os.Environ(), "TMPDIR="+temporary)
	return demo, temporary
}

// left returns the processes that name a folder, and the folder's content.
func left(t *testing.T, folder string) (all []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(folder)) {
			all = append(all, string(bytes.ReplaceAll(text, []byte{0}, []byte(" "))))
		}
	}
	for _, pattern := range []string{"tko-*", "demo/*"} {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	return all
}

// The demo with clusters checks itself, and cleans up. It ends with an image that never
// becomes ready: the rollout stops in the canary, and is undone.
func TestKubernetesDemoSucceedsAndCleansUp(t *testing.T) {
	demo, temporary := demoKubernetes(t, "-once", "-timeout=15m")
	out, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"tko site enroll north/edge-1 > edge-1.token", "Connected", // the server has no kubeconfig of this one
		"registry.example/5g/smf:v1.4.0", "registry.example/5g/smf:v1.5.0", "were never deleted",
		"ImagePullBackOff", "smf-v3: Paused (1 deployment of 2 failed", "canary       [!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!] 1 failed", "rest         [..............................] 1 waiting",
		"smf-v3: Undone", "Both sites run what they ran before",
	} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the output lacks %s:\n%s", want, out)
		}
	}
	if rest := left(t, temporary); len(rest) > 0 {
		t.Errorf("processes or files are left: %q", rest)
	}
}

// Ctrl-C ends the demo and its processes at any time.
func TestKubernetesDemoStopsAtAnyTime(t *testing.T) {
	for _, at := range []string{"Starting two", "catalog "} {
		t.Run(strings.TrimSpace(at), func(t *testing.T) {
			demo, temporary := demoKubernetes(t)
			said := &eventually.Buffer{}
			demo.Stdout, demo.Stderr = said, said
			demo.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := demo.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = demo.Process.Signal(os.Interrupt) })
			eventually.NoError(t, fmt.Sprintf("the output %q", at), func() error {
				if out := said.String(); !strings.Contains(out, at) {
					return fmt.Errorf("the output is\n%s", out)
				}
				return nil
			})
			_ = demo.Process.Signal(os.Interrupt)
			if err := demo.Wait(); err != nil {
				t.Errorf("%v\n%s", err, said)
			}
			if rest := left(t, temporary); len(rest) > 0 {
				t.Errorf("processes or files are left: %q", rest)
			}
		})
	}
}
