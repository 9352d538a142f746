package dashboard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A terminal is a tmux of its own, without the user's settings.
type terminal struct {
	t      *testing.T
	socket string
	bytes  string // file with what the program has written
}

// openTerminal runs a shell command in a window of 80x24.
func openTerminal(t *testing.T, env []string, command string) *terminal {
	t.Helper()
	dir := t.TempDir()
	x := &terminal{t: t, socket: filepath.Join(dir, "tmux"), bytes: filepath.Join(dir, "bytes")}
	cmd := exec.CommandContext(t.Context(), "tmux", "-S", x.socket, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", command)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=screen-256color", "NO_COLOR="), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", x.socket, "kill-server").Run() })
	x.tmux("pipe-pane", "cat >> "+x.bytes)
	return x
}

func (x *terminal) tmux(args ...string) string {
	x.t.Helper()
	out, err := exec.CommandContext(x.t.Context(), "tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (x *terminal) screen() string { return x.tmux("capture-pane", "-p") }

// press sends keys by their names in tmux.
func (x *terminal) press(keys ...string) {
	x.t.Helper()
	x.tmux(append([]string{"send-keys"}, keys...)...)
}

// enter types a text, and Enter.
func (x *terminal) enter(text string) {
	x.t.Helper()
	x.tmux("send-keys", "-l", text)
	x.press("Enter")
}

// sees waits until the screen has all texts.
func (x *terminal) sees(texts ...string) {
	x.t.Helper()
	eventually.NoError(x.t, fmt.Sprintf("%q on the screen", texts), func() error {
		screen := x.screen()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return fmt.Errorf("%q is not on the screen:\n%s", text, screen)
			}
		}
		return nil
	})
}

func (x *terminal) lacks(text string) {
	x.t.Helper()
	eventually.NoError(x.t, fmt.Sprintf("no %q on the screen", text), func() error {
		if screen := x.screen(); strings.Contains(screen, text) {
			return fmt.Errorf("%q is on the screen:\n%s", text, screen)
		}
		return nil
	})
}

func (x *terminal) written() int64 {
	info, err := os.Stat(x.bytes)
	if err != nil {
		return 0
	}
	return info.Size()
}

func TestASuspendedDashboardLeavesTheShellAndReturns(t *testing.T) {
	s := process.StartServer(t, "--roles=data", "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"))
	x := openTerminal(t, s.Env(), "PS1='shell$ ' exec bash --norc --noprofile -i")
	x.sees("shell$")
	x.enter(process.Build(t, "tko") + " dashboard -t UTC -f 20")
	x.sees("[1 Deployments]")
	x.press("C-z")
	x.sees("Stopped")
	x.lacks("[1 Deployments]")
	x.enter("echo still $((40 + 2))")
	x.sees("still 42")
	if _, stderr, code := s.CLI("template", "register", "made:meanwhile"); code != 0 {
		t.Fatal(stderr)
	}
	x.enter("fg")
	x.sees("[1 Deployments]", "live")
	x.press("3")
	x.sees("made:meanwhile")
	x.press("q")
	x.lacks("made:meanwhile")
	x.sees("shell$")
}

func TestDashboardInATerminal(t *testing.T) {
	s := process.StartServer(t, "--roles=data", "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"))
	tko := func(args ...string) {
		t.Helper()
		if _, stderr, code := s.CLI(args...); code != 0 {
			t.Fatalf("tko %q: exit code %d: %s", args, code, stderr)
		}
	}
	tko("template", "register", "nf/upf:v1")
	for _, site := range []string{"north/1", "north/2", "south/1"} {
		tko("site", "register", site, "-m", "region="+site[:5])
		tko("deployment", "create", "nf/upf:v1", "--site", site, "--prepared")
	}
	program := process.Build(t, "tko")
	x := openTerminal(t, s.Env(), program+" dashboard -t UTC -f 20; echo left with $?; exec sleep 1000")

	// Deployments: approve one.
	x.sees("[1 Deployments]", "nf/upf:v1", "north/1", "◐ 3 waiting")
	x.press("A")
	x.sees("This will approve 1 deployment.")
	x.enter("yes")
	x.sees("approved 1 deployment", "◔ working")

	// Sites: a filter, a change, and a deletion that asks.
	x.press("2", "/")
	x.enter("metadata=region=north")
	x.sees("/ metadata=region=north", "north/2", "$ tko site list --metadata region=north")
	x.lacks("south/1")
	tko("site", "register", "north/3", "-m", "region=north")
	x.sees("north/3")
	x.press("G", "D")
	x.sees("Delete site north/3", "Type yes")
	x.press("D", "Enter")
	x.sees("Type yes and press enter, or esc to cancel: D")
	x.press("Escape")
	x.lacks("Type yes")
	x.press("D")
	x.sees("Type yes")
	x.enter("yes")
	x.sees("deleted 1 site")

	// A change costs few bytes, and does not draw the screen anew. What was drawn before
	// it may still be on its way, so one of some changes must be cheap.
	x.press("1")
	x.sees("[1 Deployments]")
	cheapest := int64(1 << 30)
	for i := 0; i < 5 && cheapest > 1000; i++ {
		before, position := x.written(), x.position()
		tko("template", "register", fmt.Sprintf("other:v%d", i))
		eventually.True(t, "the position of the change", func() bool { return x.position() > position })
		cheapest = min(cheapest, x.written()-before)
	}
	if cheapest > 1000 {
		t.Errorf("a change elsewhere was drawn with %d bytes", cheapest)
	}

	// The mouse: a tab, and a row twice.
	x.tmux("send-keys", "-l", "\x1b[<0;20;2M\x1b[<0;20;2m")
	x.sees("[2 Sites]")
	x.tmux("send-keys", "-l", "\x1b[<0;5;7M\x1b[<0;5;7m")
	x.tmux("send-keys", "-l", "\x1b[<0;5;7M\x1b[<0;5;7m")
	x.sees("site north/2", "[why]")
	x.press("y")
	x.sees("[yaml]")

	// Sizes, also while a dialog is open.
	x.press("D")
	for _, size := range [][2]string{{"160", "50"}, {"20", "5"}, {"120", "40"}, {"80", "24"}} {
		x.tmux("resize-window", "-x", size[0], "-y", size[1])
		if size[0] == "20" {
			x.sees("make the window")
		} else {
			x.sees("Type yes")
		}
	}
	x.press("Escape")
	x.lacks("Type yes")
	x.press("Escape")
	x.lacks("[yaml]")
	x.press("?")
	x.sees("Keys", "only what is failing")
	x.press("x")

	// The terminal is restored.
	x.press("q")
	x.sees("left with 0")
	if on := strings.TrimSpace(x.tmux("display-message", "-p", "#{alternate_on}#{mouse_any_flag}")); on != "00" {
		t.Errorf("after the end, the alternate screen and the mouse are %s", on)
	}
}

var position = regexp.MustCompile(`position (\d+)`)

// position returns the position that the header shows.
func (x *terminal) position() int {
	match := position.FindStringSubmatch(x.screen())
	if match == nil {
		return 0
	}
	n, _ := strconv.Atoi(match[1])
	return n
}

func TestTerminalIsRestoredWhenTheDashboardIsEndedByASignal(t *testing.T) {
	s := process.StartServer(t, "--roles=data", "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"))
	file := filepath.Join(t.TempDir(), "pid")
	x := openTerminal(t, append(s.Env(), "NO_COLOR=1"), fmt.Sprintf("sh -c 'echo $$ > %s; exec %s dashboard'; echo left with $?; exec sleep 1000", file, process.Build(t, "tko")))
	x.sees("there is no deployment yet")
	if screen := x.tmux("capture-pane", "-p", "-e"); regexp.MustCompile(`\x1b\[[0-9;]*3[0-7]m`).MatchString(screen) {
		t.Errorf("the screen has colors in spite of NO_COLOR: %q", screen)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.sees("left with 130")
	if on := strings.TrimSpace(x.tmux("display-message", "-p", "#{alternate_on}#{mouse_any_flag}")); on != "00" {
		t.Errorf("after the signal, the alternate screen and the mouse are %s", on)
	}
}
