package hostile

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/process"
)

// startFails starts a server that can't start, and returns its output and exit code.
func startFails(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	args = append([]string{"--listen-grpc=localhost:0", "--listen-web=localhost:0"}, args...)
	cmd := exec.CommandContext(ctx, process.Build(t, "tko-server"), args...)
	cmd.Env = append(os.Environ(), process.Environment()...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("it started, or was not run: %v\n%s", err, out)
	}
	return string(out), exit.ExitCode()
}

// A server that can't start reports the reason, without passwords.
func TestFailedStartIsExplained(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := l.Addr().String()
	t.Cleanup(func() { _ = l.Close() })
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := nobody.Addr().String()
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	good := pgtest.DSN(t)
	_, host, _ := strings.Cut(good, "@")
	host, _, _ = strings.Cut(host, "/")
	folder := t.TempDir()
	garbage := textFile(t, "garbage.db", strings.Repeat("this is no database\n", 1000))

	tests := map[string]struct {
		why   string
		args  []string
		code  int
		names []string
	}{
		"refused":               {"the address is named", []string{"--store=postgres://tko:" + secret + "@" + free + "/tko"}, 1, []string{free, "refused"}},
		"another form":          {"key=value, the same", []string{"--store=host=127.0.0.1 port=1 user=tko password=" + secret + " dbname=tko"}, 1, []string{"127.0.0.1", "refused"}},
		"no such host":          {"the host is named", []string{"--store=postgres://tko:" + secret + "@nowhere.invalid/tko"}, 1, []string{"nowhere.invalid"}},
		"not PostgreSQL":        {"it listens, but says nothing", []string{"--store=postgres://tko:" + secret + "@" + taken + "/tko?connect_timeout=1"}, 1, []string{taken}},
		"no such database":      {"the database is named", []string{"--store=postgres://tko:" + secret + "@" + host + "/nothing?sslmode=disable"}, 1, []string{"nothing", "does not exist"}},
		"no such user":          {"the user is named", []string{"--store=postgres://stranger:" + secret + "@" + host + "/postgres?sslmode=disable"}, 1, []string{"stranger"}},
		"a malformed DSN":       {"the form is named", []string{"--store=postgres://tko:" + secret + "@[::1/tko"}, 1, []string{"DSN can't be read", "postgresql://"}},
		"a bad port":            {"the form is named", []string{"--store=postgres://tko:" + secret + "@localhost:port/tko"}, 1, []string{"DSN can't be read"}},
		"another database":      {"what there is is named", []string{"--store=mysql://tko:" + secret + "@localhost/tko"}, 2, []string{"--store", "sqlite:PATH", "PostgreSQL"}},
		"a missing folder":      {"the path is named", []string{"--store=sqlite:" + filepath.Join(folder, "nowhere", "tko.db")}, 1, []string{filepath.Join(folder, "nowhere")}},
		"a file that is none":   {"the path is named", []string{"--store=sqlite:" + garbage}, 1, []string{"garbage.db", "not a database"}},
		"an address in use":     {"the address is named", []string{"--store=sqlite::memory:", "--listen-grpc=" + taken}, 1, []string{taken, "--listen"}},
		"an unknown role":       {"the roles are named", []string{"--roles=data,cook"}, 2, []string{`"cook"`, "preparer"}},
		"no time for plugins":   {"the flag is named", []string{"--plugin-timeout=0s"}, 2, []string{"--plugin-timeout"}},
		"an unknown flag":       {"it is named", []string{"--frob"}, 2, []string{"--frob"}},
		"a missing config file": {"it is named", []string{"--config=/nowhere/tko.yaml"}, 2, []string{"/nowhere/tko.yaml"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			output, code := startFails(t, append(test.args, "--store-wait=3s")...)
			if code != test.code {
				t.Errorf("exit code %d, want %d: %s", code, test.code, test.why)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s to fail", took)
			}
			if strings.Contains(output, secret) {
				t.Errorf("the output contains the password:\n%s", output)
			}
			if !strings.Contains(output, "tko-server") {
				t.Error("the output lacks the name of the program")
			}
			t.Log(output)
			for _, text := range test.names {
				if !strings.Contains(output, text) {
					t.Errorf("the output lacks %q: %s\n%s", text, test.why, output)
				}
			}
		})
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) > 0 {
		t.Errorf("it left %v, %v", files, err)
	}
}
