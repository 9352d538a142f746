package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// Each API rejects a package of 100 MB, and names the limit.
func TestTooLargePackageIsRejected(t *testing.T) {
	t.Parallel()
	const size = 100 << 20
	large := []byte(resource + "data:\n")
	for i := 0; len(large) < size; i++ {
		large = fmt.Appendf(large, "  key-%d: %s\n", i, strings.Repeat("x", 1<<20))
	}
	file := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(file, large, 0o600); err != nil {
		t.Fatal(err)
	}
	one := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "bad"}, "data": map[string]any{"key": strings.Repeat("x", size)}}

	tests := map[string]struct {
		why   string
		limit string // the server's limit of messages, or "" for the default
		bad   func(ctx context.Context, w *world) (message string)
		names []string
	}{
		"client": {
			why:   "a program that makes packages",
			names: []string{"package", "bytes", "limit is 67108864"},
			bad: func(ctx context.Context, w *world) string {
				_, err := w.RegisterTemplate(ctx, tko.Template{ID: "kept", Package: krm.Package{one}})
				return refused(t, err)
			},
		},
		"raw": {
			why:   "another program, that sends YAML",
			names: []string{"package", "bytes", "limit is 67108864"},
			bad: func(ctx context.Context, w *world) string {
				_, err := w.data.RegisterTemplate(ctx, &tkopb.Template{TemplateId: "kept", PackageFormat: "yaml", Package: large})
				if status.Code(err) != codes.InvalidArgument {
					t.Errorf("%.300v, want InvalidArgument", err)
				}
				return status.Convert(err).Message()
			},
		},
		"client, beyond the largest message": {
			why:   "gRPC rejects it with its own error",
			limit: "--max-message=1048576",
			names: []string{"package is too large", "1048576"},
			bad: func(ctx context.Context, w *world) string {
				_, err := w.RegisterTemplate(ctx, tko.Template{ID: "kept", Package: krm.Package{one}})
				return refused(t, err)
			},
		},
		"command, file": {
			why:   "the user names the wrong file",
			names: []string{"large.yaml", "too large", "64 MiB"},
			bad: func(_ context.Context, w *world) string {
				_, stderr, code := w.server.CLI("template", "register", "kept", "--url", file)
				if code != 2 {
					t.Errorf("exit code %d, want 2", code)
				}
				return stderr
			},
		},
		"command, stdin": {
			why:   "the user pipes the wrong file",
			names: []string{"stdin", "too large", "64 MiB"},
			bad: func(ctx context.Context, w *world) string {
				_, stderr, code := w.tkoWith(ctx, t, large, "site", "register", "kept", "--stdin")
				if code != 2 {
					t.Errorf("exit code %d, want 2", code)
				}
				return stderr
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			args := []string{"--roles=data", "--store=sqlite::memory:"}
			if test.limit != "" {
				args = append(args, test.limit)
			}
			w := newWorld(t, args...)
			w.harmless(t, func(ctx context.Context) { names(t, test.bad(ctx, w), test.names...) })
			w.bounded(t)
		})
	}
}

// refused returns the text of an error, which must be an ErrInvalid.
func refused(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		t.Fatal("it was accepted")
	}
	if !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("%.300v is not an ErrInvalid", err)
	}
	return err.Error()
}

// The command reports invalid input with an error and an exit code.
func TestCommandReportsInvalidInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--roles=data", "--store=sqlite::memory:")
	tests := map[string]struct {
		why   string
		stdin []byte
		args  []string
		code  int
		names []string
	}{
		"malformed YAML":   {"the line is named", []byte("a: [1\nb: {"), []string{"template", "register", "kept", "--stdin"}, 2, []string{"stdin", "line"}},
		"a bomb":           {"it doesn't go off here either", []byte(laughs()), []string{"template", "register", "kept", "--stdin"}, 2, []string{"stdin", "aliasing"}},
		"no resource":      {"the resource is named", []byte("- a"), []string{"site", "register", "kept", "--stdin"}, 2, []string{"stdin", "must be a map"}},
		"invalid":          {"resource, path and reason", []byte(resource + "datta: {}"), []string{"site", "register", "kept", "--stdin"}, 2, []string{`ConfigMap "bad"`, "datta"}},
		"a missing file":   {"it is named", nil, []string{"site", "register", "kept", "--url", "/nowhere/at/all.yaml"}, 2, []string{"/nowhere/at/all.yaml"}},
		"not an archive":   {"it is named", nil, []string{"site", "register", "kept", "--url", textFile(t, "broken.zip", "PK\x03\x04garbage")}, 2, []string{"broken.zip"}},
		"a bad ID":         {"the alphabet is named", nil, []string{"template", "register", "a b"}, 2, []string{`"a b"`, "0-9 A-Z"}},
		"a bad pattern":    {"the pattern is named", nil, []string{"site", "purge", "--id", `kept\`}, 2, []string{`kept\\`}},
		"a bad offset":     {"the flag is named", nil, []string{"template", "list", "--offset", "-1"}, 2, []string{"--offset"}},
		"a bad format":     {"the formats are named", nil, []string{"template", "list", "-o", "doc"}, 2, []string{"doc", "yaml"}},
		"a bad trigger":    {"its form is named", nil, []string{"plugin", "register", "prepare", "p", "/bin/true", "-g", "v1"}, 2, []string{"v1", "group"}},
		"an unknown ID":    {"a code of its own", nil, []string{"site", "get", "nowhere"}, 3, []string{`site "nowhere"`, "not found"}},
		"an unknown token": {"a code of its own", nil, []string{"deployment", "mod", "cancel", "nothing"}, 3, []string{"token"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w.harmless(t, func(ctx context.Context) {
				stdout, stderr, code := w.tkoWith(ctx, t, test.stdin, test.args...)
				if code != test.code {
					t.Errorf("exit code %d, want %d: %s", code, test.code, test.why)
				}
				if stdout != "" {
					t.Errorf("it printed a result: %.200s", stdout)
				}
				if !strings.HasPrefix(stderr, "tko: ") {
					t.Errorf("stderr lacks the name of the command: %.200s", stderr)
				}
				names(t, stderr, test.names...)
			})
		})
	}
	if strings.Contains(w.server.Log(), "panic") {
		t.Error("the server panicked")
	}
}
