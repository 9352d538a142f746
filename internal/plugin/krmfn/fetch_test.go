package krmfn_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
)

// engine is a stand-in for a container engine. It records its calls, and has an
// image after it has pulled it.
func engine(t *testing.T, name string) (path, calls string) {
	t.Helper()
	dir := t.TempDir()
	calls = filepath.Join(dir, "calls")
	text := `#!/bin/sh
echo "$*" >>'DIR/calls'
env >'DIR/env'
case "$1" in
image) test -e 'DIR/pulled' ;;
pull) sleep 0.1; case "$3" in *bad*) echo 'no such image' >&2; exit 1 ;; esac; touch 'DIR/pulled' ;;
run) if [ -e 'DIR/broken' ]; then echo 'no space' >&2; exit 125; fi; if [ -e 'DIR/slow' ]; then exec sleep 100; fi; cat ;;
esac
`
	return write(t, filepath.Join(dir, name), strings.ReplaceAll(text, "DIR", dir), 0o755), calls
}

func called(t *testing.T, calls string) []string {
	t.Helper()
	data, err := os.ReadFile(calls)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var verbs []string
	for line := range strings.Lines(string(data)) {
		verb, _, _ := strings.Cut(line, " ")
		verbs = append(verbs, verb)
	}
	return verbs
}

// An image is pulled once, as the pull policy requires.
func TestImageIsPulledAsThePolicyRequires(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///of/the/engine")
	t.Setenv("TKO_STORE", "postgres://secret")
	tests := map[string]struct {
		why   string
		image string
		pull  string
		want  string // calls of two runs
		err   string
	}{
		"missing": {"it is known after the first run", "registry.example/fn:v1", "", "image pull run run", ""},
		"always":  {"a tag may have moved", "registry.example/fn:v1", "always", "pull run pull run", ""},
		"never":   {"the image must be present", "registry.example/fn:v1", "never", "image image", "is not on this server, and its property _kpt.pull is never"},
		"bad":     {"the message has the error of the engine", "registry.example/bad:v1", "", "image pull image pull", `"registry.example/bad:v1" can't be pulled: no such image`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path, calls := engine(t, "docker")
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Engine: path}}))
			p := function(test.image)
			if test.pull != "" {
				p.Properties["_kpt.pull"] = test.pull
			}
			for range 2 {
				_, err := prepare(t, r, p, parse(t, trigger))
				if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
					t.Errorf("got %v, want %q: %s", err, test.err, test.why)
				}
			}
			if got := strings.Join(called(t, calls), " "); got != test.want {
				t.Errorf("got the engine calls %s, want %s: %s", got, test.want, test.why)
			}
			environment, err := os.ReadFile(filepath.Join(filepath.Dir(calls), "env"))
			if err != nil || !strings.Contains(string(environment), "DOCKER_HOST=unix:///of/the/engine") || strings.Contains(string(environment), "secret") {
				t.Errorf("the engine's environment: %s %v", environment, err)
			}
		})
	}
}

// Concurrent runs that need an image wait for one pull.
func TestConcurrentRunsPullOnce(t *testing.T) {
	t.Parallel()
	path, calls := engine(t, "podman")
	r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, MaxProcesses: 10, Functions: krmfn.Options{Engine: path}}))
	var running sync.WaitGroup
	for range 10 {
		running.Go(func() {
			if _, err := prepare(t, r, function("registry.example/fn:v1"), parse(t, trigger)); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if got := strings.Join(called(t, calls), " "); strings.Count(got, "pull") != 1 || strings.Count(got, "run") != 10 {
		t.Errorf("got the engine calls %s", got)
	}
}

// A container gets no privileges, network or files. A test with a real engine
// checks their effect.
func TestContainerOptionsGrantNothing(t *testing.T) {
	t.Parallel()
	common := []string{"--network=none", "--read-only ", "--cap-drop=all", "--security-opt=no-new-privileges", "--user=65534:65534", "--memory=1000000", "--memory-swap=1000000", "--cpus=0.5", "--pids-limit=", "--pull=never", "--rm", "-- registry.example/fn:v1"}
	tests := map[string]struct{ has, lacks []string }{
		"podman":  {has: []string{"--log-driver=none", "--read-only-tmpfs=false", "--timeout=40"}},
		"docker":  {has: []string{"--log-driver=none"}, lacks: []string{"--read-only-tmpfs", "--timeout"}},
		"nerdctl": {lacks: []string{"--log-driver", "--read-only-tmpfs", "--timeout"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, calls := engine(t, name)
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Engine: path, Memory: 1_000_000, CPUs: 0.5}}))
			var err error
			ran(t, func() error {
				_, err = prepare(t, r, function("registry.example/fn:v1"), parse(t, trigger))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(calls)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range append(common, test.has...) {
				want = strings.TrimPrefix(want, "-- ")
				if !strings.Contains(string(data), want) {
					t.Errorf("%s lacks %q:\n%s", name, want, data)
				}
			}
			for _, not := range test.lacks {
				if strings.Contains(string(data), not) {
					t.Errorf("%s has %q:\n%s", name, not, data)
				}
			}
		})
	}
}

// A container that doesn't end is removed, because killing the engine's client
// doesn't end it. After a failure of the engine, the image is looked up again.
func TestContainersThatDoNotEndAreRemoved(t *testing.T) {
	t.Parallel()
	path, calls := engine(t, "docker")
	r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, PrepareTimeout: 500 * time.Millisecond, Functions: krmfn.Options{Engine: path}}))
	state := func(name string) string { return filepath.Join(filepath.Dir(path), name) }
	write(t, state("pulled"), "", 0o600)
	write(t, state("slow"), "", 0o600)
	var err error
	ran(t, func() error {
		_, err = prepare(t, r, function("registry.example/fn:v1"), parse(t, trigger))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "did not end within") {
		t.Error(err)
	}
	if err := os.Rename(state("slow"), state("broken")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err = prepare(t, r, function("registry.example/fn:v1"), parse(t, trigger)); err == nil || !strings.Contains(err.Error(), "could not be run by docker, stderr: no space") {
			t.Error(err)
		}
	}
	if got := strings.Join(called(t, calls), " "); got != "image run rm run image run" {
		t.Errorf("got the engine calls %s", got)
	}
}

// Only images with an equal built-in function run built in.
func TestOnlyEqualCatalogImagesRunBuiltin(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{ // whether it runs built in
		"gcr.io/kpt-fn/set-labels:v0.1":                                   true,
		"gcr.io/kpt-fn/set-labels:v0.2.0":                                 true,
		"ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2":            true,
		"gcr.io/kpt-fn/set-labels:v0.3":                                   false, // a future version
		"gcr.io/kpt-fn/set-labels:v1.0":                                   false,
		"gcr.io/kpt-fn/set-labels:latest":                                 false,
		"gcr.io/kpt-fn/set-labels":                                        false,
		"gcr.io/kpt-fn/set-labels:v0.1@sha256:" + strings.Repeat("0", 64): false, // a digest
		"gcr.io/kpt-fn/set-labels@sha256:" + strings.Repeat("0", 64):      false,
		"registry.example/kpt-fn/set-labels:v0.1":                         false, // another registry
		"gcr.io/kpt-fn/set-labels/more:v0.1":                              false,
		"gcr.io/kpt-fn/search-replace:v0.2":                               false,
	}
	for image, want := range tests {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			for _, allowed := range []bool{true, false} {
				path, calls := engine(t, "podman")
				r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Engine: path, Builtin: allowed}}))
				ran(t, func() error {
					_, err := prepare(t, r, function(image, "a=spec.a"), input(t, "{a: b}", ""))
					return err
				})
				if got := len(called(t, calls)) == 0; got != (want && allowed) {
					t.Errorf("got built in %t, want %t (option Builtin: %t)", got, want, allowed)
				}
			}
		})
	}
}

// registry is a registry with one artifact, fn:v1.
func registry(t *testing.T, layers ...[2]string) (address string, gets *atomic.Int64) {
	t.Helper()
	digest := func(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }
	blobs := map[string]string{}
	var list []map[string]any
	for _, l := range layers {
		list = append(list, map[string]any{"mediaType": l[0], "digest": digest(l[1]), "size": len(l[1])})
		blobs[digest(l[1])] = l[1]
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": map[string]any{"mediaType": "application/vnd.wasm.config.v0+json", "digest": digest("{}"), "size": 2}, "layers": list,
	})
	if err != nil {
		t.Fatal(err)
	}
	gets = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/fn/manifests/v1"), strings.HasSuffix(r.URL.Path, "/fn/manifests/"+digest(string(manifest))):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", digest(string(manifest)))
			_, _ = w.Write(manifest)
		case strings.Contains(r.URL.Path, "/fn/blobs/") && blobs[filepath.Base(r.URL.Path)] != "":
			gets.Add(1)
			text := blobs[filepath.Base(r.URL.Path)]
			if strings.HasPrefix(text, "tampered") {
				text = strings.ToUpper(text)
			}
			_, _ = w.Write([]byte(text))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), gets
}

// A module is fetched from a registry, as the pull policy requires, and its
// digest is checked.
func TestModulesAreFetchedAsThePolicyRequires(t *testing.T) {
	module, err := os.ReadFile(must(t, wasm))
	if err != nil {
		t.Fatal(err)
	}
	address, gets := registry(t, [2]string{"text/plain", "about"}, [2]string{"application/wasm", string(module)})
	run := func(argument, pull string) error {
		r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Cache: cache(t)}}))
		p := function(argument, "do=spec.do", "from=spec.from")
		if pull != "" {
			p.Properties["_kpt.pull"] = pull
		}
		out, err := prepare(t, r, p, input(t, "{do: label, from: registry}", ""))
		if err == nil && out[0].Text("metadata", "labels", "from") != "registry" {
			t.Error("it did nothing")
		}
		return err
	}
	steps := []struct {
		argument, pull string
		gets           int64
		want           string // in the error
	}{
		{"wasm:oci://" + address + "/fn:v1", "never", 0, "is not on this server, and its property _kpt.pull is never"},
		{"wasm:oci://" + address + "/fn:v1", "", 1, ""},
		{"oci://" + address + "/fn:v1", "", 1, ""}, // also in another process, from the cache on disk
		{"oci://" + address + "/fn:v1", "never", 1, ""},
		{"oci://" + address + "/fn:v1", "always", 2, ""},
		{"oci://" + address + "/fn:v2", "", 2, "not found"},
		{"oci://localhost:1/fn:v2", "", 2, "can't be fetched"},
	}
	for _, step := range steps {
		err := run(step.argument, step.pull)
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("%s %s: got %v, want %q", step.argument, step.pull, err, step.want)
		}
		if gets.Load() != step.gets {
			t.Errorf("%s %s: the module was fetched %d times, want %d", step.argument, step.pull, gets.Load(), step.gets)
		}
	}
	for want, layers := range map[string][][2]string{
		"0 layers":          {{"text/plain", "about"}},
		"2 layers":          {{"application/wasm", "a"}, {"application/wasm", "b"}},
		"can't be fetched":  {{"application/wasm", "tampered"}},
		"can't be compiled": {{"application/wasm", "no module"}},
	} {
		address, _ := registry(t, layers...)
		if err := run("oci://"+address+"/fn:v1", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A module's file may be replaced: the next run uses the new one. A file that
// is not a module is an error.
func TestReplacedModuleFileIsUsedByTheNextRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "fn.wasm")
	module, err := os.ReadFile(must(t, wasm))
	if err != nil {
		t.Fatal(err)
	}
	// The smallest possible module, with an exit code.
	tiny := func(exit byte) string {
		return "\x00asm\x01\x00\x00\x00" + // type: (i32) -> (), () -> ()
			"\x01\x08\x02\x60\x01\x7f\x00\x60\x00\x00" +
			"\x02\x24\x01\x16wasi_snapshot_preview1\x09proc_exit\x00\x00" +
			"\x03\x02\x01\x01" + "\x05\x03\x01\x00\x01" +
			"\x07\x13\x02\x06memory\x02\x00\x06_start\x00\x01" +
			"\x0a\x08\x01\x06\x00\x41" + string([]byte{exit}) + "\x10\x00\x0b"
	}
	r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Cache: cache(t)}}))
	steps := []struct{ content, want string }{
		{tiny(7), "exit code 7"},
		{tiny(8), "exit code 8"}, // of the same size, a moment later
		{"hello", "can't be compiled"},
		{"", "can't be compiled"},
		{tiny(9)[:20], "can't be compiled"},
		{string(module), ""},
		{tiny(7), "exit code 7"},
	}
	for i, step := range steps {
		write(t, path, step.content, 0o600)
		_, err := prepare(t, r, function("wasm:"+path), parse(t, trigger))
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("step %d: got %v, want %q", i, err, step.want)
		}
	}
	for i := range 50 { // more than the cache holds
		write(t, path, tiny(byte(i+1)), 0o600)
		if _, err := prepare(t, r, function("wasm:"+path), parse(t, trigger)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("exit code %d", i+1)) {
			t.Errorf("%d: %v", i, err)
		}
	}
	for bad, want := range map[string]string{dir: "is not a file", dir + "/nothing": "does not exist on this server", "/dev/zero": "not allowed"} {
		if _, err := prepare(t, r, function("wasm:"+bad), parse(t, trigger)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", bad, err, want)
		}
	}
}

// Runs of one module may be concurrent.
func TestModuleRunsConcurrently(t *testing.T) {
	t.Parallel()
	r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Functions: krmfn.Options{Cache: cache(t)}}))
	var running sync.WaitGroup
	for i := range 16 {
		running.Go(func() {
			from := fmt.Sprintf("run-%d", i)
			out, err := prepare(t, r, function("wasm:"+must(t, wasm), "do=spec.do", "from=spec.from"), input(t, "{do: label, from: "+from+"}", ""))
			if err != nil || out[0].Text("metadata", "labels", "from") != from {
				t.Errorf("%s: %v %v", from, out, err)
			}
		})
	}
	running.Wait()
}
