package krmfn_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// The same function has the same result in every runtime.
func TestFunctionHasTheSameResultInEveryRuntime(t *testing.T) {
	arguments := map[string]string{
		"exec":  "exec:" + must(t, program),
		"wasm":  "wasm:" + must(t, wasm),
		"image": container(t),
	}
	for name, argument := range arguments {
		t.Run(name, func(t *testing.T) {
			var lines eventually.Buffer
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Log: logger(&lines), Functions: krmfn.Options{Cache: cache(t)}}))
			pkg := input(t, "{do: label, from: here}", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  yes: 'yes'\n  n: '1'\n  long: |\n    two\n    lines\n")
			p := function(argument, "do=spec.do", "from=spec.from")
			out, err := prepare(t, r, p, pkg)
			if err != nil {
				t.Fatal(err)
			}
			want := pkg.Clone()
			want[0].Set("here", "metadata", "labels", "from")
			want[1].Set("here", "metadata", "labels", "from")
			want[0].SetPrepared()
			if diff := cmp.Diff(want, out); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, part := range []string{"level=WARN", "severity=warning", "result=labelled", "plugin=prepare|f", "deployment=d"} {
				if !strings.Contains(lines.String(), part) {
					t.Errorf("the log lacks %q:\n%s", part, &lines)
				}
			}
			again, err := prepare(t, r, p, out)
			if diff := cmp.Diff(out, again); diff != "" || err != nil {
				t.Errorf("the second run changed the package: %v\n%s", err, diff)
			}
			pkg[0].Set("refuse", "spec", "do")
			_, err = prepare(t, r, p, pkg)
			var e *plugin.Error
			if !errors.As(err, &e) || !e.Refused {
				t.Fatalf("%v, want the function's results", err)
			}
			for _, part := range []string{`plugin "prepare|f"`, target.String(), "too few", `apps/v1 Deployment "web" in namespace "core"`, "spec.replicas is 1, should be 2"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
}

// Functions are limited in time, output and memory, and access only the
// package. Programs, however, have their user's permissions.
func TestFunctionsAreContained(t *testing.T) {
	t.Setenv("TKO_TEST_SECRET", "TKO_TEST_SECRET")
	image, module := container(t), "wasm:"+must(t, wasm)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	secret := write(t, filepath.Join(t.TempDir(), "secret"), "secret", 0o644)
	tests := map[string]struct {
		why      string
		argument string
		do       string
		want     string // in the error; none if empty
	}{
		"exec hangs":        {"time is bounded", "exec:" + must(t, program), "hang", "did not end within 1s"},
		"exec floods":       {"output is bounded", "exec:" + must(t, program), "flood", "more than 1000000 bytes"},
		"exec eats memory":  {"memory is bounded", "exec:" + must(t, program), "memory", "exit code 2"},
		"wasm hangs":        {"time is bounded", module, "hang", "did not end within 1s"},
		"wasm sleeps":       {"its clock is not ours", module, "sleep", ""},
		"wasm floods":       {"output is bounded", module, "flood", "more than 1000000 bytes"},
		"wasm eats memory":  {"memory is bounded", module, "memory", "out of memory"},
		"wasm reaches out":  {"nothing is reachable", module, "reach", ""},
		"image hangs":       {"time is bounded", image, "hang", "did not end within 1s"},
		"image floods":      {"output is bounded", image, "flood", "more than 1000000 bytes"},
		"image eats memory": {"memory is bounded", image, "memory", "more than 67108864 bytes of memory"},
		"image reaches out": {"nothing is reachable", image, "reach", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			limit := time.Second
			if !strings.Contains(test.want, "did not end within") {
				limit = time.Minute
			}
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, PrepareTimeout: limit, MaxOutput: 1_000_000, Functions: krmfn.Options{Memory: 64 << 20, Cache: cache(t)}}))
			pkg := input(t, "{do: "+test.do+", secret: "+secret+", address: '"+listener.Addr().String()+"'}", "")
			began := time.Now()
			_, err := prepare(t, r, function(test.argument, "do=spec.do", "secret=spec.secret", "address=spec.address"), pkg)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q: %s", err, test.want, test.why)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
			if test.argument == image {
				out, err := exec.CommandContext(t.Context(), "podman", "ps", "--all", "--quiet").CombinedOutput()
				if err != nil || len(out) > 0 {
					t.Errorf("a container remains: %s %v", out, err)
				}
			}
		})
	}
}

// cache returns one directory for all tests, so that modules are compiled only
// once.
func cache(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(built, "cache")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
