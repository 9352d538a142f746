package krmfn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// The test's program is also the process of built-in functions.
func TestMain(m *testing.M) {
	if code, is := krmfn.Child(os.Args, os.Stdin, os.Stdout, os.Stderr); is {
		os.Exit(code)
	}
	dir, err := os.MkdirTemp("", "krmfn-")
	if err != nil {
		panic(err)
	}
	built = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var built string // directory of the built programs

// program builds testdata/fn for this machine.
var program = sync.OnceValues(func() (string, error) { return build("fn", "./testdata/fn", "CGO_ENABLED=0") })

// wasm builds it as a WebAssembly module and compiles it into the cache.
var wasm = sync.OnceValues(func() (string, error) {
	module, err := build("fn.wasm", "./testdata/fn", "GOOS=wasip1", "GOARCH=wasm")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(built, "cache", "compiled")
	flags, err := sameVersion(dir)
	if err != nil {
		return "", err
	}
	compile, err := build("compile", "./testdata/compile", "CGO_ENABLED=0", "GOFLAGS="+flags)
	if err != nil {
		return "", err
	}
	return module, run(exec.Command(compile, module, dir))
})

// sameVersion returns the flags for a program that shares this program's cache:
// wazero names the cache's directory by its version, which is unknown in tests.
func sameVersion(dir string) (flags string, err error) {
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		return "", fmt.Errorf("%d folders: %w", len(entries), err)
	}
	version := strings.TrimPrefix(strings.TrimSuffix(entries[0].Name(), "-"+runtime.GOARCH+"-"+runtime.GOOS), "wazero-")
	return "-ldflags=-X=github.com/tetratelabs/wazero/internal/version.version=" + version, cache.Close(context.Background())
}

func build(name, folder string, environment ...string) (string, error) {
	path := filepath.Join(built, name)
	command := exec.Command("go", "build", "-trimpath", "-o", path, folder)
	command.Env = append(os.Environ(), environment...)
	return path, run(command)
}

func run(command *exec.Cmd) error {
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return nil
}

func must(t testing.TB, get func() (string, error)) string {
	t.Helper()
	process.Reads(t, "internal/plugin/krmfn/testdata")
	s, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// container builds an image of testdata/fn in a storage of its own.
func container(t testing.TB) (image string) {
	t.Helper()
	if _, err := exec.LookPath("podman"); err != nil {
		t.Fatal("install podman and runc: functions are tested in containers")
	}
	dir := t.TempDir()
	engine := "[engine]\ncgroup_manager = \"cgroupfs\"\n"
	if _, err := exec.LookPath("runc"); err == nil {
		engine += "runtime = \"runc\"\n" // others may not support the machine's cgroups
	}
	write(t, filepath.Join(dir, "containers.conf"), engine, 0o600)
	write(t, filepath.Join(dir, "storage.conf"), fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/root", dir+"/run"), 0o600)
	t.Setenv("CONTAINERS_CONF", dir+"/containers.conf")
	t.Setenv("CONTAINERS_STORAGE_CONF", dir+"/storage.conf")
	folder := filepath.Join(dir, "image")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(must(t, program))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "fn"), string(code), 0o755)
	write(t, filepath.Join(folder, "Dockerfile"), "FROM scratch\nCOPY fn /fn\nENTRYPOINT [\"/fn\"]\n", 0o600)
	image = "localhost/test/fn:v1"
	out, err := exec.CommandContext(t.Context(), "podman", "build", "--quiet", "--tag", image, folder).CombinedOutput()
	if err != nil {
		t.Fatalf("podman can't build an image on this machine: install podman and runc and let this user run them: %v\n%s", err, out)
	}
	return image
}

func write(t testing.TB, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// script creates an executable shell script.
func script(t *testing.T, text string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "function"), "#!/bin/sh\n"+text+"\n", 0o755)
}

var target = krm.Identity{GVK: krm.GVK{Group: "x.plugin.nephio.org", Version: "v1", Kind: "X"}, Name: "x"}

// input returns a package with a triggering resource that has a spec.
func input(t *testing.T, spec, rest string) krm.Package {
	t.Helper()
	return parse(t, "apiVersion: x.plugin.nephio.org/v1\nkind: X\nmetadata: {name: x}\nspec: "+spec+"\n---\n"+rest)
}

func parse(t *testing.T, text string) krm.Package {
	t.Helper()
	pkg, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

func function(argument string, properties ...string) tko.Plugin {
	p := tko.Plugin{Type: tko.PluginPrepare, Name: "f", Executor: tko.ExecutorKpt, Arguments: []string{argument}, Properties: map[string]string{}}
	for _, property := range properties {
		key, value, _ := strings.Cut(property, "=")
		p.Properties[key] = value
	}
	return p
}

// self makes the test's program the one that runs built-in functions.
func self(t *testing.T, o plugin.Options) plugin.Options {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Functions.Self = path
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	t.Cleanup(func() {
		if left, _ := os.ReadDir(o.Dir); len(left) > 0 {
			t.Errorf("%s was left behind", left[0].Name())
		}
	})
	return o
}

// prepare runs a function on a package, which must stay unchanged.
func prepare(t *testing.T, r *plugin.Runner, p tko.Plugin, pkg krm.Package) (krm.Package, error) {
	t.Helper()
	return prepareTarget(t, r, p, target, pkg)
}

// prepareFirst is prepare with the first resource as the trigger.
func prepareFirst(t *testing.T, r *plugin.Runner, p tko.Plugin, pkg krm.Package) (krm.Package, error) {
	t.Helper()
	return prepareTarget(t, r, p, pkg[0].Identity(), pkg)
}

func prepareTarget(t *testing.T, r *plugin.Runner, p tko.Plugin, target krm.Identity, pkg krm.Package) (krm.Package, error) {
	t.Helper()
	before := text(t, pkg)
	prepared, out, err := r.Prepare(t.Context(), p, target, "d", pkg)
	if text(t, pkg) != before {
		t.Error("the function changed its input package")
	}
	if err != nil {
		if _, ok := errors.AsType[*plugin.Error](err); !ok || prepared || out != nil {
			t.Errorf("got %v %v, want a *plugin.Error and nothing else: %v", prepared, out, err)
		}
		return nil, err
	}
	if !prepared {
		t.Error("a successful function did not prepare")
	}
	return out, nil
}

func text(t *testing.T, pkg krm.Package) string {
	t.Helper()
	data, err := krm.Encode(krm.YAML, pkg)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func logger(b *eventually.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
