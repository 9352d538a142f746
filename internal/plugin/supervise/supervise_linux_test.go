package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/eventually"
)

// naps numbers the sleeping times, so that each test can find its own
// processes.
var naps atomic.Int64

// sleeping returns the processes that sleep for a time.
func sleeping(t *testing.T, nap string) (pids []int) {
	t.Helper()
	for _, pid := range processes() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(strings.ReplaceAll(string(text), "\x00", " "), nap) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// start starts a script, in which NAP sleeps, and returns the path of its
// output.
func start(t *testing.T, script string, l Limits) (p *Process, nap, output string) {
	t.Helper()
	nap = fmt.Sprintf("sleep %d%08d", naps.Add(1), os.Getpid())
	dir := t.TempDir()
	out, err := os.Create(dir + "/output")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	p, err = Start(&exec.Cmd{
		Path: "/bin/sh", Args: []string{"sh", "-c", strings.ReplaceAll(script, "NAP", nap)}, Dir: dir,
		Env: []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}, Stdout: out, Stderr: out,
	}, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // if it lives, something is wrong
		for _, pid := range sleeping(t, nap) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return p, nap, out.Name()
}

func TestWaitReportsExitCodeOrSignal(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		want   *ExitError
	}{
		"well":      {"exit 0", nil},
		"exit code": {"exit 7", &ExitError{Code: 7}},
		"like ours": {"exit 255", &ExitError{Code: 255}},
		"signal":    {"kill -9 $$", &ExitError{Code: -1, Signal: syscall.SIGKILL}},
		"its group": {"kill -TERM 0", &ExitError{Code: -1, Signal: syscall.SIGTERM}},
	}
	for name, test := range tests {
		for _, l := range []Limits{{}, {Daemons: true}} {
			p, _, _ := start(t, test.script, l)
			err := p.Wait()
			got, _ := errors.AsType[*ExitError](err)
			if test.want == nil && err != nil || test.want != nil && (got == nil || *got != *test.want) {
				t.Errorf("%s, %+v: got %v, want %v", name, l, err, test.want)
			}
			p.Kill() // has no effect
		}
	}
	p, err := Start(&exec.Cmd{Path: "/proc/self/environ", Args: []string{"x"}}, Limits{})
	if err == nil {
		err = p.Wait()
	}
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("a file that is not executable: got %v", err)
	}
}

// escapes are scripts that leave sleeping processes behind.
var escapes = map[string]string{
	"a child":                "NAP & ",
	"a daemon":               "setsid NAP & ",
	"a daemon of a daemon":   "setsid sh -c 'setsid NAP & NAP' & ",
	"forked twice":           "(NAP &) ",
	"forked and forgotten":   "(setsid env -i PATH=\"$PATH\" NAP </dev/null >/dev/null 2>&1 &) ",
	"deaf":                   "(trap '' HUP INT TERM; setsid NAP &) ",
	"stopped":                "(setsid sh -c 'NAP & while [ \"$(head -c 5 /proc/$!/cmdline)\" != sleep ]; do :; done; kill -STOP $!; kill -STOP $$' &) ",
	"a hundred":              "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do setsid NAP & done; done; ",
	"in another session":     "python3 -c 'import os\nif os.fork() == 0: os.setsid(); os.execvp(\"sleep\", \"NAP\".split())' & ",
	"with its own adoptions": "python3 -c 'import ctypes, os, time\nctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\nif os.fork() == 0:\n  if os.fork() == 0: os.setsid(); os.execvp(\"sleep\", \"NAP\".split())\n  os._exit(0)\ntime.sleep(1000)' & ",
}

// No process is left when Wait returns, whether the program ended itself or was
// killed.
func TestNoDescendantIsLeft(t *testing.T) {
	t.Parallel()
	for name, script := range escapes {
		for end, after := range map[string]string{"ends": "while ! [ -e go ]; do sleep 0.01; done", "is killed": "NAP"} {
			t.Run(name+"/"+end, func(t *testing.T) {
				t.Parallel()
				p, nap, output := start(t, script+"\n"+after, Limits{})
				least := 1 // and the program itself
				if end == "is killed" {
					least = 2
				}
				eventually.True(t, "processes that sleep", func() bool {
					select {
					case <-p.Exited():
						text, _ := os.ReadFile(output)
						t.Fatalf("the program has ended: %v: %s", p.Wait(), text)
					default:
					}
					return len(sleeping(t, nap)) >= least
				})
				if end == "is killed" {
					p.Kill()
				} else if err := os.WriteFile(strings.TrimSuffix(output, "output")+"go", nil, 0o600); err != nil {
					t.Fatal(err)
				}
				err := p.Wait()
				if left := sleeping(t, nap); len(left) > 0 {
					t.Errorf("%d processes are left", len(left))
				}
				if (err != nil) != (end == "is killed") {
					text, _ := os.ReadFile(output)
					t.Errorf("got %v: %s", err, text)
				}
			})
		}
	}
}

// Programs that fork without end are ended. They are bounded here in case they
// are not.
func TestForkBombsAreEnded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		end    bool // whether the test ends the bomb, which exceeds no limit
	}{
		"wide": {script: "i=0; while [ $i -lt 3000 ]; do setsid NAP & i=$((i+1)); done; NAP"},
		"deep": {script: "b() { if [ $1 = 0 ]; then exec NAP; fi; b $(($1-1)) & b $(($1-1)) & wait; }; b 11"},
		"chains": {end: true, script: `exec python3 -c '
import os, time
end = time.time() + 60
for i in range(8):
    if os.fork() == 0:
        while time.time() < end:
            if os.fork() != 0: os._exit(0)
            if i % 2: os.setsid()
        os._exit(0)
open("forked", "w").close()
time.sleep(60)'`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			p, nap, output := start(t, test.script, Limits{})
			if test.end {
				eventually.True(t, "it forks", func() bool {
					_, err := os.Stat(strings.TrimSuffix(output, "output") + "forked")
					return err == nil
				})
				p.Kill()
			}
			err := p.Wait()
			exit, ok := errors.AsType[*ExitError](err)
			if !ok || test.end != (exit.Limit == "") || !test.end && !strings.Contains(exit.Limit, "256 processes") {
				t.Errorf("got %v", err)
			}
			if left := sleeping(t, nap); len(left) > 0 {
				t.Errorf("%d processes are left", len(left))
			}
			if took := time.Since(began); took > 45*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// A process can't allocate more than the limit, and the program is ended if all
// its processes together exceed the limit.
func TestMemoryLimitAppliesToEachAndAllProcesses(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	tests := map[string]struct {
		script string
		want   string
	}{
		"little":             {"head -c 10000000 /dev/zero | tail >/dev/null", ""},
		"one process":        {"head -c 500000000 /dev/zero | tail >/dev/null", "exit code 1|more than 67108864 bytes"},
		"one that escaped":   {"setsid sh -c 'head -c 500000000 /dev/zero | tail >/dev/null; echo $? >result' & while ! [ -s result ]; do sleep 0.01; done; exit $(cat result)", "exit code 1|more than 67108864 bytes"},
		"several":            {"for i in 1 2 3 4; do { head -c 30000000 /dev/zero; NAP; } | tail & done; wait", "more than 67108864 bytes of memory"},
		"shared is not more": {`exec python3 -c 'import os, time; x = b"x" * (40 << 20); [os.fork() or (time.sleep(0.5), os._exit(0)) for i in range(4)]; [os.wait() for i in range(4)]'`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _, output := start(t, test.script, Limits{Memory: limit})
			err := p.Wait()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !regexp.MustCompile(test.want).MatchString(err.Error())) {
				text, _ := os.ReadFile(output)
				t.Errorf("got %v, want %q: %.500s", err, test.want, text)
			}
		})
	}
}

// A program can kill or stop its supervisor. Then its processes are found by
// their environment.
func TestProcessesEndWithoutTheirSupervisor(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"KILL", "STOP"} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			p, nap, _ := start(t, "setsid NAP & (NAP &); kill -"+signal+" $PPID; NAP", Limits{})
			if signal == "STOP" {
				eventually.True(t, "all sleep", func() bool { return len(sleeping(t, nap)) == 3 })
				p.Kill()
			}
			if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "its supervisor was killed") {
				t.Errorf("got %v", err)
			}
			if left := sleeping(t, nap); len(left) > 0 {
				t.Errorf("%d processes are left", len(left))
			}
		})
	}
}

// A stream is closed as soon as the program closes it, although the supervisor
// inherits it, too; and the program inherits no other files.
func TestProgramHasOnlyItsOwnFiles(t *testing.T) {
	t.Parallel()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	dir := t.TempDir()
	p, err := Start(&exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "ls /proc/self/fd; exec >&-; exec sleep 1000"}, Dir: dir, Stdout: to}, Limits{})
	_ = to.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := from.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	buffer := make([]byte, 100)
	for err == nil {
		var n int
		n, err = from.Read(buffer)
		text.Write(buffer[:n])
	}
	if files := strings.Fields(text.String()); !slices.Equal(files, []string{"0", "1", "2", "3"}) { // 3 is the directory that ls reads
		t.Errorf("the program has the files %v: %v", files, err)
	}
}

// Both methods of finding descendants find the same.
func TestBothMethodsFindTheSameDescendants(t *testing.T) {
	p, nap, _ := start(t, "NAP & NAP & wait", Limits{})
	eventually.True(t, "both sleep", func() bool { return len(sleeping(t, nap)) == 2 })
	supervisor := p.command.Process.Pid
	shell := children(supervisor)
	if len(shell) != 1 || !slices.Equal(shell, childrenByParent()(supervisor)) {
		t.Fatalf("the supervisor has the children %v, or %v", shell, childrenByParent()(supervisor))
	}
	listed, asked := children(shell[0]), childrenByParent()(shell[0])
	slices.Sort(listed)
	slices.Sort(asked)
	if want := sleeping(t, nap); len(want) != 2 || !slices.Equal(listed, asked) {
		t.Errorf("the program has the children %v, or %v, want %v", listed, asked, want)
	}
	p.Kill()
	_ = p.Wait()
}

// BenchmarkStart measures the cost of supervision.
func BenchmarkStart(b *testing.B) {
	for name, l := range map[string]Limits{"supervised": {Memory: 1 << 30}, "alone": {Daemons: true}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p, err := Start(&exec.Cmd{Path: "/bin/true", Args: []string{"true"}}, l)
				if err == nil {
					err = p.Wait()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkExceeded(b *testing.B) {
	s := supervisor{memory: 1 << 30}
	for b.Loop() {
		_ = s.exceeded(descendants())
	}
}
