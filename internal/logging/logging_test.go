package logging_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// The test's program is a program under systemd if this variable is set.
const journalVariable = "TKO_TEST_JOURNAL"

func TestMain(m *testing.M) {
	if os.Getenv(journalVariable) == "" {
		os.Exit(m.Run())
	}
	if err := underSystemd(); err != nil {
		_, _ = os.Stdout.WriteString("failed: " + err.Error())
		os.Exit(1)
	}
}

func newLog(t *testing.T, o logging.Options) *logging.Log {
	t.Helper()
	l, err := logging.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lines(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(text) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, fields)
	}
	return all
}

func TestEachComponentHasItsLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := newLog(t, logging.Options{Format: logging.JSON, Level: "warn,store=debug", To: &out})
	l.Info("of the server")
	l.With("component", logging.Catalog).Info("of the catalog")
	l.With("component", logging.Catalog).With("component", logging.Store, "a", 1).Debug("of the store")
	l.With("component", logging.Preparer).Warn("of the preparer")
	got := lines(t, out.String())
	if len(got) != 2 || got[0]["msg"] != "of the store" || got[0]["component"] != "store" || got[0]["a"] != 1.0 || got[1]["component"] != "preparer" {
		t.Errorf("got %v", got)
	}
	if strings.Count(out.String(), "component") != 2 {
		t.Errorf("a line names two components: %s", &out)
	}
}

func TestLevelsChangeWhileTheProgramRunsAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t, logging.Options{Format: logging.JSON, Level: "info,grpc=error", To: io.Discard})
		store := l.With("component", logging.Store)
		library := l.With("component", logging.GRPC)
		debug := func(log *slog.Logger) bool { return log.Enabled(t.Context(), slog.LevelDebug) }
		_, changed := l.Levels.Watch()
		if err := l.Levels.Set("store=debug", time.Hour); err != nil {
			t.Fatal(err)
		}
		<-changed
		if err := l.Levels.Set("grpc=debug", 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		if !debug(store) || !debug(library) || debug(l.Logger) {
			t.Error("the levels were not set, or others were, too")
		}
		for _, level := range l.Levels.All() {
			if (level.Component == logging.Store) != level.Until.Equal(time.Now().Add(time.Hour)) {
				t.Errorf("%+v", level)
			}
		}
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		if debug(store) || !debug(library) {
			t.Error("after an hour, the level that was set for an hour lasts, or the other one ended")
		}
		if err := l.Levels.Set("default", 0); err != nil {
			t.Fatal(err)
		}
		if debug(library) || library.Enabled(t.Context(), slog.LevelWarn) {
			t.Error("the level is not that of the start")
		}
		if err := l.Levels.Set("debug", 0); err != nil {
			t.Fatal(err)
		}
		if !debug(l.Logger) || debug(library) {
			t.Error("the general level replaced that of a component, or was not set")
		}
	})
}

func TestMistypedLevelsChangeNothing(t *testing.T) {
	t.Parallel()
	l := newLog(t, logging.Options{Format: logging.JSON, To: io.Discard})
	for spec, want := range map[string]string{
		"store=debug,stor=info":        "there is no component \"stor\": use api, catalog",
		"store=loud":                   "debug, info, warn, error, or default",
		"":                             "debug, info",
		"store=debug,store=info":       "another level for the same",
		"store=debug,":                 "debug, info",
		strings.Repeat("debug,", 1000): "bytes",
	} {
		err := l.Levels.Set(spec, 0)
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", spec, err, want)
		}
	}
	if err := l.Levels.Set("store=debug", -time.Second); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a negative duration: %v", err)
	}
	if l.With("component", logging.Store).Enabled(t.Context(), slog.LevelDebug) {
		t.Error("a refused change was applied")
	}
	if err := logging.CheckLevels("info,store=default"); err == nil {
		t.Error("the level default was accepted at the start")
	}
}

func TestLinesNameTheirRequestAndTrace(t *testing.T) {
	t.Parallel()
	for _, format := range []string{logging.JSON, logging.Text} {
		var out bytes.Buffer
		l := newLog(t, logging.Options{Format: format, To: &out})
		ctx := trail.WithNewTrace(trail.WithRequest(t.Context(), "r-1"))
		l.InfoContext(ctx, "message", "name", "a\nb=\x1b[31m")
		if !strings.Contains(out.String(), "r-1") || !strings.Contains(out.String(), trail.TraceID(ctx)) || strings.Count(out.String(), "\n") != 1 || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: %q", format, &out)
		}
	}
}

// The global loggers of libraries are redirected, so this test isn't parallel.
func TestLibrariesWriteToTheLog(t *testing.T) {
	var out bytes.Buffer
	l := newLog(t, logging.Options{Format: logging.JSON, Level: "debug", To: &out})
	logging.Libraries(l.Logger)
	klog.Info("of klog")
	klog.Error("error of klog")
	grpclog.Component("core").Error("of grpc")
	otel.Handle(errors.New("of otel"))
	log.Print("of the log package")
	slog.Info("of slog") //nolint:sloglint // libraries use it
	want := map[string]string{
		"of klog": "kubernetes DEBUG", "error of klog": "kubernetes ERROR", "telemetry can't be exported": "opentelemetry WARN",
		"of the log package": "library INFO", "of slog": "library INFO", "[core] of grpc": "grpc WARN",
	}
	for _, line := range lines(t, out.String()) {
		message, _ := line["msg"].(string)
		component, _ := line["component"].(string)
		level, _ := line["level"].(string)
		if component+" "+level == want[message] {
			delete(want, message)
		}
	}
	if len(want) > 0 {
		t.Errorf("the log lacks %v:\n%s", want, &out)
	}
	out.Reset()
	if err := l.Levels.Set("kubernetes=error,library=error", 0); err != nil {
		t.Fatal(err)
	}
	klog.Info("hidden")
	log.Print("hidden")
	if out.Len() > 0 {
		t.Errorf("the level of a library was ignored: %s", &out)
	}
}

func TestFormatIsJSONUnlessItIsATerminalOrTheJournal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, to := range []io.Writer{file, new(bytes.Buffer)} {
		if l := newLog(t, logging.Options{To: to}); l.Format != logging.JSON {
			t.Errorf("%T: %s, want json", to, l.Format)
		}
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if l := newLog(t, logging.Options{To: terminal}); l.Format != logging.Text {
		t.Errorf("a terminal: %s, want text", l.Format)
	}
	if _, err := logging.New(logging.Options{Format: "xml", To: file}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("an unknown format: %v", err)
	}
}

// Under systemd, standard error is a socket of the journal, and JOURNAL_STREAM names
// it. The test runs its program in a file system of its own, with a socket in place
// of the journal's.
func TestJournalGetsFieldsAndPriorities(t *testing.T) {
	t.Parallel()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(own)
	cmd.Env = append(os.Environ(), journalVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		"PRIORITY=3\n", "MESSAGE=can't do it site=lagos component=store request_id=r-1\n", "TKO_SITE=lagos\n", "TKO_REQUEST_ID=r-1\n", "TKO_COMPONENT=store\n", "SYSLOG_IDENTIFIER=",
		"PRIORITY=7\n", `MESSAGE=details group.name=x group.forged="\nPRIORITY=0"`, "TKO_GROUP_NAME=x\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the journal lacks %q:\n%s", want, out)
		}
	}
	if field := "TKO_GROUP_FORGED\n\x0b\x00\x00\x00\x00\x00\x00\x00\nPRIORITY=0\n"; !strings.Contains(string(out), field) {
		t.Errorf("a value with a line feed is not of the binary form, and could forge a field:\n%q", out)
	}
}

// underSystemd is the program that logs to a journal, whose datagrams it writes to
// standard output.
func underSystemd() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := os.MkdirAll("/run/systemd/journal", 0o700); err != nil {
		return err
	}
	journal, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "/run/systemd/journal/socket"})
	if err != nil {
		return err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := syscall.Dup2(pair[0], 2); err != nil {
		return err
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(2, &stat); err != nil {
		return err
	}
	if err := os.Setenv("JOURNAL_STREAM", strconv.FormatUint(stat.Dev, 10)+":"+strconv.FormatUint(stat.Ino, 10)); err != nil {
		return err
	}
	l, err := logging.New(logging.Options{Level: "debug", To: os.Stderr})
	if err != nil {
		return err
	}
	if l.Format != logging.Journald {
		return errors.New("the format is " + l.Format)
	}
	ctx := trail.WithRequest(context.Background(), "r-1")
	l.With("component", logging.Store).ErrorContext(ctx, "can't do it", "site", "lagos")
	l.WithGroup("group").Debug("details", "name", "x", "forged", "\nPRIORITY=0")
	buffer := make([]byte, 1<<16)
	for range 2 {
		n, err := journal.Read(buffer)
		if err != nil {
			return err
		}
		_, _ = os.Stdout.Write(append(buffer[:n:n], '\n'))
	}
	return nil
}
