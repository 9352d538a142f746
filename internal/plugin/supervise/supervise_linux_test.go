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
)

// naps numbers the ways of sleeping: for so long that nobody else does.
var naps atomic.Int64

// sleeping are the processes that sleep in a way.
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

// start starts a script, in which NAP sleeps, and answers where its output is.
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

// until polls until something is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

func TestHowItEnds(t *testing.T) {
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
			p.Kill() // does no harm
		}
	}
	p, err := Start(&exec.Cmd{Path: "/proc/self/environ", Args: []string{"x"}}, Limits{})
	if err == nil {
		err = p.Wait()
	}
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("what can't be run: got %v", err)
	}
}

// escapes are ways in which a program leaves others behind, which sleep.
var escapes = map[string]string{
	"a child":                "NAP & ",
	"a daemon":               "setsid NAP & ",
	"a daemon of a daemon":   "setsid sh -c 'setsid NAP & NAP' & ",
	"forked twice":           "(NAP &) ",
	"forked and forgotten":   "(setsid env -i PATH=\"$PATH\" NAP </dev/null >/dev/null 2>&1 &) ",
	"deaf":                   "(trap '' HUP INT TERM; setsid NAP &) ",
	"stopped":                "(setsid sh -c 'NAP & while [ \"$(head -c 5 /proc/$!/cmdline)\" != sleep ]; do :; done; kill -STOP $!; kill -STOP $$' &) ",
	"a hundred":              "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do setsid NAP & done; done; ",
	"beside its supervisor":  "python3 -c 'import os\nif os.fork() == 0: os.setsid(); os.execvp(\"sleep\", \"NAP\".split())' & ",
	"with its own adoptions": "python3 -c 'import ctypes, os, time\nctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\nif os.fork() == 0:\n  if os.fork() == 0: os.setsid(); os.execvp(\"sleep\", \"NAP\".split())\n  os._exit(0)\ntime.sleep(1000)' & ",
}

// Nothing is left when Wait returns, whether the program ended by itself or
// was killed.
func TestNothingIsLeft(t *testing.T) {
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
				until(t, "somebody sleeps", func() bool {
					select {
					case <-p.Exited():
						text, _ := os.ReadFile(output)
						t.Fatalf("it has ended: %v: %s", p.Wait(), text)
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

// Programs that never stop forking are stopped. They are bounded here in case
// they aren't.
func TestForkBombs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		end    bool // whether the bomb doesn't exceed anything, but we end it
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
				until(t, "it forks", func() bool {
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

// What is too much memory for one process, it doesn't get; what is too much for
// all of them ends them.
func TestMemory(t *testing.T) {
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

// A program can end its supervisor, or keep it from working. Then its processes
// are known by their environment.
func TestSupervisorIsAttacked(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"KILL", "STOP"} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			p, nap, _ := start(t, "setsid NAP & (NAP &); kill -"+signal+" $PPID; NAP", Limits{})
			if signal == "STOP" {
				until(t, "all sleep", func() bool { return len(sleeping(t, nap)) == 3 })
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

// What a program closes is closed, although a supervisor has it, too; and it
// has nothing of the supervisor's.
func TestFiles(t *testing.T) {
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
	if files := strings.Fields(text.String()); !slices.Equal(files, []string{"0", "1", "2", "3"}) { // 3 is the folder that ls reads
		t.Errorf("the program has the files %v: %v", files, err)
	}
}

// Both ways of finding descendants find the same.
func TestDescendants(t *testing.T) {
	p, nap, _ := start(t, "NAP & NAP & wait", Limits{})
	until(t, "both sleep", func() bool { return len(sleeping(t, nap)) == 2 })
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

// What it costs to be supervised.
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
