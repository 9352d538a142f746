package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/process"
)

// demoKubernetes is the command of `make demo-kubernetes`, and a folder that all
// its processes name.
func demoKubernetes(t *testing.T, args ...string) (demo *exec.Cmd, temporary string) {
	t.Helper()
	programs, err := exec.Command("../setup/kube.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"tko", "tko-server", "tko-demo"} {
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

// left are the processes that name a folder, and what is in it.
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

// The demo with clusters checks itself, and leaves nothing behind.
func TestDemoKubernetes(t *testing.T) {
	demo, temporary := demoKubernetes(t, "-once")
	out, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"registry.example/5g/smf:v1.4.0", "registry.example/5g/smf:v1.5.0", "were never away"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("it doesn't show %s:\n%s", want, out)
		}
	}
	if rest := left(t, temporary); len(rest) > 0 {
		t.Errorf("it left %q", rest)
	}
}

// Ctrl-C ends it at any time, and all that it started.
func TestDemoKubernetesStops(t *testing.T) {
	for _, at := range []string{"Starting two", "catalog "} {
		t.Run(strings.TrimSpace(at), func(t *testing.T) {
			demo, temporary := demoKubernetes(t)
			said := &text{}
			demo.Stdout, demo.Stderr = said, said
			demo.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := demo.Start(); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(patience); !strings.Contains(said.String(), at); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Errorf("it doesn't say %q", at)
					break
				}
			}
			_ = demo.Process.Signal(os.Interrupt)
			if err := demo.Wait(); err != nil {
				t.Errorf("%v\n%s", err, said)
			}
			if rest := left(t, temporary); len(rest) > 0 {
				t.Errorf("it left %q", rest)
			}
		})
	}
}

// A text is written and read at once.
type text struct {
	lock   sync.Mutex
	buffer bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.buffer.Write(p)
}

func (t *text) String() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.buffer.String()
}
