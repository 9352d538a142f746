package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var (
	target = krm.Identity{GVK: krm.GVK{Group: "x.plugin.nephio.org", Version: "v1", Kind: "X"}, Name: "x"}
	pkg    = krm.Package{{"apiVersion": "x.plugin.nephio.org/v1", "kind": "X", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{"whole": int64(1 << 60), "float": 1.0, "yes": "yes"}}}
)

// shell returns a plugin that is a shell script.
func shell(typ, script string) tko.Plugin {
	return tko.Plugin{Type: typ, Name: "p", Arguments: []string{"sh", "-c", script}}
}

func TestRefusalsAndFailuresBecomeErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		script  string
		options plugin.Options
		want    []string // in the error
		refused bool
	}{
		"refuses":            {why: "the plugin's own result", script: `cat >/dev/null; echo 'error: too small'`, want: []string{"too small"}, refused: true},
		"exit code":          {why: "output of a plugin that failed doesn't count", script: `echo '{}'; echo broken pipe wrench >&2; exit 1`, want: []string{"exit code 1", "broken pipe wrench"}},
		"signal":             {why: "a signal is a failure", script: `kill -9 $$`, want: []string{"signal 9"}},
		"no output":          {why: "no output is a failure", script: `cat >/dev/null`, want: []string{"no output"}},
		"blank output":       {why: "so are empty lines", script: `echo; echo`, want: []string{"no output"}},
		"empty document":     {why: "so is a document without content", script: `echo ---`, want: []string{"empty document"}},
		"two documents":      {why: "the output is ambiguous", script: `echo '{}'; echo ---; echo '{}'`, want: []string{"2 documents"}},
		"a scalar":           {why: "a plugin that prints to stdout", script: `echo hello`, want: []string{"malformed"}},
		"garbage":            {why: "bytes that are not YAML", script: `printf '\377\376{{{{\000'`, want: []string{"malformed"}},
		"a list":             {why: "the output must be a map", script: `printf -- '# output\n- error: ""\n'`, want: []string{"a list"}},
		"error is a map":     {why: "an error must be text", script: `echo 'error: {a: b}'`, want: []string{"error is a map"}},
		"flood":              {why: "output is limited", script: `while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done`, options: plugin.Options{Programs: []string{"/"}, MaxOutput: 100_000}, want: []string{"more than 100000 bytes"}},
		"hang":               {why: "time is limited", script: `sleep 1000`, options: plugin.Options{Programs: []string{"/"}, ValidateTimeout: 300 * time.Millisecond}, want: []string{"did not end within 300ms"}},
		"hang with children": {why: "children hold the pipes", script: `sleep 1000 & sleep 1000 & wait`, options: plugin.Options{Programs: []string{"/"}, ValidateTimeout: 300 * time.Millisecond}, want: []string{"did not end within 300ms"}},
		"huge stderr":        {why: "the end of stderr is in the message", script: `i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789 >&2; i=$((i+1)); done; echo the last words >&2; exit 3`, want: []string{"exit code 3", "the last words"}},
		"no memory":          {why: "a program can't know its limit, and its user neither", script: `echo 'MemoryError' >&2; exit 1`, options: plugin.Options{MaxMemory: 64 << 20}, want: []string{"it may use 64 MiB of memory", "_memory"}},
		"no memory, refused": {why: "the Python SDK catches it", script: `cat >/dev/null; echo 'error: MemoryError()'`, options: plugin.Options{MaxMemory: 64 << 20}, want: []string{"it may use 64 MiB of memory"}, refused: true},
		"Python below root":  {why: "bubblewrap names only the path", script: `echo "bwrap: Can't find source path /root/tko-python-env: Permission denied" >&2; exit 1`, want: []string{"can't enter a folder of /root/tko-python-env", "/opt"}},
		"alias bomb":         {why: "small input, large result", script: `echo 'a: &a [x,x,x,x,x,x,x,x,x]'; for l in b:a c:b d:c e:d f:e g:f h:g i:h; do k=${l%:*}; p=${l#*:}; echo "$k: &$k [*$p,*$p,*$p,*$p,*$p,*$p,*$p,*$p,*$p]"; done`, want: []string{"malformed"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.options.Dir = t.TempDir()
			began := time.Now()
			test.options.Programs = []string{"/"}
			err := plugin.New(test.options).Validate(t.Context(), shell(tko.PluginValidate, test.script), target, pkg, true)
			var e *plugin.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want a *plugin.Error: %s", err, test.why)
			}
			if e.Refused != test.refused {
				t.Errorf("got refused %v, want %v: %s", e.Refused, test.refused, test.why)
			}
			for _, want := range append(test.want, `plugin "validate|p"`, target.String()) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q: %s", err, want, test.why)
				}
			}
			if len(err.Error()) > 8<<10 {
				t.Errorf("the error has %d bytes, want at most 8 KiB", len(err.Error()))
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s", took)
			}
			if left, _ := os.ReadDir(test.options.Dir); len(left) > 0 {
				t.Errorf("%s was left behind", left[0].Name())
			}
		})
	}
}

func TestPluginsThatCannotRunAreErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		plugin tko.Plugin
		want   string
	}{
		"ansible":   {tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"job"}}, "_awx.host"},
		"kpt":       {tko.Plugin{Type: "schedule", Executor: "kpt", Arguments: []string{"builtin:set-labels"}}, "the kpt executor can't"},
		"playbook":  {tko.Plugin{Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"playbook:/no/such.yaml"}}, `"/no/such.yaml" does not exist`},
		"missing":   {tko.Plugin{Type: "validate", Arguments: []string{"/no/such/program"}}, `"/no/such/program" does not exist`},
		"not there": {tko.Plugin{Type: "validate", Arguments: []string{"no-such-program-anywhere"}}, "does not exist"},
		"a folder":  {tko.Plugin{Type: "validate", Arguments: []string{"/tmp"}}, "does not exist"},
		"no exec":   {tko.Plugin{Type: "validate", Arguments: []string{"./plugin.go"}}, "not executable"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := plugin.New(plugin.Options{Programs: []string{"/"}}).Validate(t.Context(), test.plugin, target, pkg, true)
			var e *plugin.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestInputHasTheKeysOfThePluginType(t *testing.T) {
	t.Parallel()
	r := plugin.New(plugin.Options{Programs: []string{"/"}, GRPC: plugin.GRPCAddress{Address: "::1", Port: 50050}, LogAddressPort: "[::1]:50055"})
	id := tko.DeploymentID("2abc")
	tests := map[string]struct {
		run  func(file string) error
		want krm.Resource
	}{
		"validate": {
			func(file string) error {
				return r.Validate(t.Context(), shell("validate", `cat >'`+file+`'; echo '{}'`), target, pkg, true)
			},
			krm.Resource{"complete": true, "package": []any{map[string]any(pkg[0])}},
		},
		"prepare": {
			func(file string) error {
				_, _, err := r.Prepare(t.Context(), shell("prepare", `cat >'`+file+`'; echo 'prepared: false'`), target, id, pkg)
				return err
			},
			krm.Resource{"deploymentId": "2abc", "deploymentPackage": []any{map[string]any(pkg[0])}},
		},
		"schedule": {
			func(file string) error {
				return r.Schedule(t.Context(), shell("schedule", `cat >'`+file+`'; echo 'error: ""'`), target, tko.Site{ID: "lagos", Package: pkg}, map[tko.DeploymentID]krm.Package{id: pkg})
			},
			krm.Resource{"siteId": "lagos", "sitePackage": []any{map[string]any(pkg[0])}, "deployments": map[string]any{"2abc": []any{map[string]any(pkg[0])}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "in")
			if err := test.run(file); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := krm.Decode(krm.YAML, data, krm.Limits{})
			if err != nil || len(got) != 1 {
				t.Fatalf("%d documents, %v", len(got), err)
			}
			if got[0].Text("logFile") == "" {
				t.Error("the input has no logFile")
			}
			delete(got[0], "logFile")
			test.want["grpc"] = map[string]any{"level2protocol": "tcp", "address": "::1", "port": int64(50050)}
			test.want["logAddressPort"] = "[::1]:50055"
			test.want["targetResourceIdentifier"] = map[string]any{"group": "x.plugin.nephio.org", "version": "v1", "kind": "X", "name": "x"}
			if diff := cmp.Diff(test.want, got[0]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPrepareReturnsThePackageOrWhyNot(t *testing.T) {
	t.Parallel()
	good := "{apiVersion: v1, kind: Namespace, metadata: {name: a}}"
	tests := map[string]struct {
		why      string
		output   string
		prepared bool
		want     krm.Package
		wantErr  string
	}{
		"prepared":          {why: "the output's package is returned", output: "{prepared: true, package: [" + good + "]}", prepared: true, want: krm.Package{{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "a"}}}},
		"emptied":           {why: "deleting everything is allowed", output: "{prepared: true, package: []}", prepared: true, want: krm.Package{}},
		"not yet":           {why: "the plugin runs again later; the package is not stored", output: "{prepared: false, package: [" + good + "]}"},
		"absent":            {why: "absent is false", output: "{}"},
		"error wins":        {why: "an error changes nothing", output: "{error: no, prepared: true, package: []}", wantErr: "no"},
		"no package":        {why: "a prepared output needs a package", output: "{prepared: true}", wantErr: "package is missing"},
		"package is a map":  {why: "malformed", output: "{prepared: true, package: " + good + "}", wantErr: "package is a map"},
		"resource no map":   {why: "malformed", output: "{prepared: true, package: [a]}", wantErr: "package[0] is a string"},
		"no kind":           {why: "not KRM", output: "{prepared: true, package: [{apiVersion: v1}]}", wantErr: "kind"},
		"twice":             {why: "not a package", output: "{prepared: true, package: [" + good + "," + good + "]}", wantErr: "Namespace"},
		"prepared is text":  {why: "malformed", output: `{prepared: "true", package: []}`, wantErr: "prepared is a string"},
		"too many at once":  {why: "bounded", output: "{prepared: true, package: [{}, {}, {}, {}]}", wantErr: "at most 3"},
		"text":              {why: "ruamel.yaml drops the quotes around it", output: "%YAML 1.2\n---\nprepared: true\npackage:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: n}, data: {y: yes}}\n...", prepared: true, want: krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "n"}, "data": map[string]any{"y": "yes"}}}},
		"not yet, as text":  {why: "users write booleans like this", output: "prepared: no"},
		"YAML 1.1 booleans": {why: "users write booleans like this", output: "{prepared: yes, package: []}", prepared: true, want: krm.Package{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := plugin.New(plugin.Options{Programs: []string{"/"}, Limits: krm.Limits{Resources: 3}})
			prepared, got, err := r.Prepare(t.Context(), shell("prepare", "cat >/dev/null; echo '"+test.output+"'"), target, "d", pkg)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) || prepared || got != nil {
					t.Errorf("got %v %v %v, want an error with %q: %s", prepared, got, err, test.wantErr, test.why)
				}
				return
			}
			if err != nil || prepared != test.prepared {
				t.Fatalf("got %v %v: %s", prepared, err, test.why)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", test.why, diff)
			}
		})
	}
}

func TestNoProcessIsLeftBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := map[string]string{
		"holds the pipes":  `sleep 1000 & echo $! >PID; echo '{}'`,
		"left the group":   `setsid sh -c 'echo $$ >PID; exec sleep 1000' & while ! [ -s PID ]; do sleep 0.01; done; echo '{}'`,
		"forked twice":     `(setsid sh -c 'echo $$ >PID; exec env -i sleep 1000' &); while ! [ -s PID ]; do sleep 0.01; done; echo '{}'`,
		"ignores signals":  `(trap '' HUP TERM INT; while :; do sleep 1; done) & echo $! >PID; echo '{}'`,
		"holds the log":    `log=$(sed -n 's/^logFile: //p'); (sleep 1000 >"$log") & echo $! >PID; echo '{}'`,
		"doesn't read":     `exec <&-; echo '{}'`,
		"floods its stdin": `exec 0>&-; echo '{}'`,
	}
	for name, script := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pidFile := filepath.Join(dir, strconv.Itoa(len(script)))
			began := time.Now()
			large := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "large"}, "data": map[string]any{"x": strings.Repeat("x", 1<<20)}}}
			err := plugin.New(plugin.Options{Programs: []string{"/"}}).Validate(t.Context(), shell("validate", strings.ReplaceAll(script, "PID", pidFile)), target, large, true)
			if err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s", took)
			}
			data, err := os.ReadFile(pidFile)
			if err != nil {
				return
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
			if err != nil {
				t.Fatal(err)
			}
			if alive(pid) {
				t.Error("the child still runs")
			}
		})
	}
}

// A plugin may do anything to its directory and the log file: all of it is
// removed with the run, and other files stay untouched.
func TestPluginsAreConfinedToTheirFolder(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, filepath.Join(outside, "file"), "untouched", 0o644)
	tests := map[string]string{
		"links elsewhere":   `ln -s OUTSIDE link; ln -s OUTSIDE/file file; ln -s / root; ln -s .. up`,
		"is a link":         `cd "$(dirname "$TMPDIR")"; rm -r work; ln -s OUTSIDE work`,
		"its parent is one": `d=$(cd ..; pwd); mv "$d" "$d.moved"; ln -s OUTSIDE "$d"; mv "$d.moved" "$d/../moved" 2>/dev/null; rm -r "$d/../moved"`,
		"is locked":         `mkdir -p a/b/c; touch a/b/c/d; chmod 0 a/b/c a/b a; chmod 0 .`,
		"is gone":           `rm -r "$PWD"; rm -r "$TMPDIR/.."`,
		"has odd names": `touch -- '-rf' ' ' 'new
line' "$(printf '\377')" '*'`,
		"is deep":              `i=0; while [ $i -lt 300 ]; do mkdir deep && cd deep || break; i=$((i+1)); done`,
		"a log that is a link": `rm ../log*; ln -s OUTSIDE/file ../log; ln -s OUTSIDE/file ../log-2`,
		"a log that is a file": `rm ../log*; echo x >../log; echo x >../log-2`,
	}
	for name, games := range tests {
		for persist, script := range map[string]string{"": games + "\necho '{}'", "true": framed + "while next; do " + games + "\nrespond '{}'; done"} {
			t.Run(name+" "+persist, func(t *testing.T) {
				t.Parallel()
				r := newRunner(t, plugin.Options{Programs: []string{"/"}})
				p := shell("validate", strings.ReplaceAll(script, "OUTSIDE", outside))
				p.Properties = map[string]string{tko.PropertyPersistent: persist}
				for range 3 { // the plugin itself may fail
					if err := r.Validate(t.Context(), p, target, pkg, true); err != nil {
						t.Logf("it failed: %v", err)
					}
				}
				if err := r.Validate(t.Context(), shell("validate", "echo '{}'"), target, pkg, true); err != nil {
					t.Errorf("another plugin afterwards: %v", err)
				}
			})
		}
	}
	t.Cleanup(func() { // after the parallel subtests
		if data, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || string(data) != "untouched" {
			t.Errorf("a file outside of the directory is %q, %v", data, err)
		}
	})
}

// The plugin's property limits its memory, or else the runner's default.
func TestMemoryIsLimitedByPropertyOrDefault(t *testing.T) {
	t.Parallel()
	// It holds its memory for a while, because the limit may not apply in its
	// first moments.
	script := `{ head -c 100000000 /dev/zero; sleep 1; } | tail >/dev/null && `
	r := newRunner(t, plugin.Options{Programs: []string{"/"}, MaxMemory: 32 << 20})
	for memory, fits := range map[string]bool{"": false, "300000000": true, "1Gi": true, "64Mi": false} {
		for persist, p := range map[string]tko.Plugin{
			"": shell("validate", script+`echo '{}'`), "true": persistent("validate", "while next; do "+script+"respond '{}' || exit 1; done"),
		} {
			p.Properties = map[string]string{tko.PropertyPersistent: persist}
			if memory != "" {
				p.Properties[tko.PropertyMemory] = memory
			}
			if err := r.Validate(t.Context(), p, target, pkg, true); (err == nil) != fits {
				t.Errorf("with %q, persistent %q: got %v", memory, persist, err)
			}
		}
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestPluginsSeeOnlyAllowedVariables(t *testing.T) {
	t.Setenv("TKO_STORE", "postgresql://secret")
	t.Setenv("ALLOWED", "yes")
	dir := t.TempDir()
	out := filepath.Join(dir, "env")
	r := plugin.New(plugin.Options{Programs: []string{"/"}, Dir: dir, Environment: []string{"ALLOWED"}})
	if err := r.Validate(t.Context(), shell("validate", `env >'`+out+`'; pwd >>'`+out+`'; touch here; echo '{}'`), target, pkg, false); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "secret") {
		t.Error("the plugin saw the server's secret")
	}
	for _, want := range []string{"ALLOWED=yes", "PATH=", "TMPDIR=" + dir} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the environment lacks %q:\n%s", want, data)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("something was left behind: %v", entries)
	}
}

func TestPythonProgramsRunInTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	env := filepath.Join(dir, "env")
	write(t, filepath.Join(env, "bin", "python3"), "#!/bin/sh\necho 'error: ran '$(basename $1)' in '$VIRTUAL_ENV\n", 0o755)
	write(t, filepath.Join(dir, "plain.py"), "not run\n", 0o644)
	write(t, filepath.Join(dir, "exec.py"), "#!/usr/bin/env python3\n", 0o755)
	for _, name := range []string{"plain.py", "exec.py"} {
		// a file that was just written may still be open for writing in a process
		// that another test forked
		eventually.True(t, name+" to run in the environment", func() bool {
			p := tko.Plugin{Type: "validate", Name: "p", Arguments: []string{filepath.Join(dir, name), "arg"}}
			err := plugin.New(plugin.Options{Programs: []string{"/"}, PythonEnv: env}).Validate(t.Context(), p, target, pkg, false)
			return err != nil && strings.Contains(err.Error(), "ran "+name+" in "+env)
		})
	}
}

func TestDefaultPythonEnvPrefersTheVariable(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PYTHON_ENV", "")
	if got := plugin.DefaultPythonEnv(); got != "" {
		t.Errorf("got %q without an environment, want none", got)
	}
	env := filepath.Join(home, "tko-python-env")
	if err := os.Mkdir(env, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := plugin.DefaultPythonEnv(); got != env {
		t.Errorf("got %q, want %q", got, env)
	}
	t.Setenv("PYTHON_ENV", "/elsewhere")
	if got := plugin.DefaultPythonEnv(); got != "/elsewhere" {
		t.Errorf("got %q, want the directory in PYTHON_ENV", got)
	}
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestLogFileLinesAreLoggedAndBounded(t *testing.T) {
	t.Parallel()
	log := &eventually.Buffer{}
	r := plugin.New(plugin.Options{Programs: []string{"/"}, Log: slog.New(slog.NewTextHandler(log, nil))})
	script := `log=$(sed -n 's/^logFile: //p'); echo first >"$log"; echo second >"$log"; head -c 100000 /dev/zero | tr '\0' x >"$log"; printf '\nunended' >"$log"; echo '{}'`
	if err := r.Schedule(t.Context(), shell("schedule", script), target, tko.Site{ID: "lagos", Package: pkg}, nil); err != nil {
		t.Fatal(err)
	}
	got := log.String()
	for _, want := range []string{"line=first", "line=second", "line=unended", "site=lagos", "plugin=schedule|p", "resource="} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %q:\n%.500s", want, got)
		}
	}
	if len(got) > 40_000 {
		t.Errorf("the log has %d bytes, want lines to be cut", len(got))
	}
}

func TestLogServerLogsLinesUntilItEnds(t *testing.T) {
	t.Parallel()
	log := &eventually.Buffer{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- (&plugin.LogServer{Log: slog.New(slog.NewTextHandler(log, nil))}).Serve(ctx, listener)
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(conn, "over TCP")
	eventually.True(t, "the line", func() bool { return strings.Contains(log.String(), `line="over TCP"`) })
	cancel() // with the connection still open
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Lines that a plugin sends over TCP with its token are logged as its own;
// others are not.
func TestLogServerAttributesLinesByToken(t *testing.T) {
	t.Parallel()
	log := &eventually.Buffer{}
	server := &plugin.LogServer{Log: slog.New(slog.NewTextHandler(log, nil))}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- server.Serve(ctx, listener) }()
	r := plugin.New(plugin.Options{Programs: []string{"/"}, Log: slog.New(slog.NewTextHandler(log, nil)), LogServer: server, LogAddressPort: listener.Addr().String()})
	script := `input=$(cat); token=$(printf %s "$input" | sed -n 's/^logToken: //p'); exec 3<>/dev/tcp/127.0.0.1/PORT; printf 'tko-log %s\nmine\nmine too\n' "$token" >&3
exec 4<>/dev/tcp/127.0.0.1/PORT; printf 'whose\ntko-log x\n' >&4; exec 5<>/dev/tcp/127.0.0.1/PORT; printf 'tko-log nonsense\nlost\n' >&5; echo '{prepared: false}'`
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	p := tko.Plugin{Type: "prepare", Name: "p", Arguments: []string{"bash", "-c", strings.ReplaceAll(script, "PORT", port)}}
	if _, _, err := r.Prepare(t.Context(), p, target, "d1", pkg); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the lines", func() bool { return strings.Count(log.String(), "\n") >= 5 })
	whose := regexp.MustCompile(`deployment=d1 plugin=prepare\|p resource=.* line=(.*)`)
	var mine []string
	for _, found := range whose.FindAllStringSubmatch(log.String(), -1) {
		mine = append(mine, found[1])
	}
	if diff := cmp.Diff([]string{"mine", `"mine too"`}, mine); diff != "" || strings.Contains(log.String(), "nonsense") || !strings.Contains(log.String(), `line="tko-log x"`) {
		t.Errorf("%s\n%s", diff, log)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Any process that reaches the port can send lines without a token: they are few, short
// and marked.
func TestLogServerLimitsLinesWithoutAToken(t *testing.T) {
	t.Parallel()
	log := &eventually.Buffer{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &plugin.LogServer{Log: slog.New(slog.NewTextHandler(log, nil))}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- server.Serve(ctx, listener) }()
	send := func(text string) {
		t.Helper()
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn) // until the server has read all
		_ = conn.Close()
	}
	send(strings.Repeat("x", 10_000) + "\n")
	for range 5 {
		send(strings.Repeat("line\n", 1000))
	}
	send("tko-log run-FORGED\nnot logged\n")
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	got := log.String()
	if lines := strings.Count(got, "attributed=false"); lines < 50 || lines > 1000 {
		t.Errorf("%d of 5,001 lines were logged, want about 100, and 10 each second", lines)
	}
	if strings.Contains(got, strings.Repeat("x", 2000)) || strings.Contains(got, "not logged") || strings.Contains(got, "FORGED") {
		t.Errorf("a long line, or one of a connection with a wrong token, was logged:\n%.3000s", got)
	}
}

// The lines and the input of a plugin name the request that it runs for.
func TestPluginsGetTheRequestTheyRunFor(t *testing.T) {
	t.Parallel()
	log := &eventually.Buffer{}
	r := plugin.New(plugin.Options{Programs: []string{"/"}, Log: slog.New(slog.NewTextHandler(log, nil))})
	ctx := trail.WithNewTrace(trail.WithRequest(t.Context(), "r-1"))
	script := `input=$(cat); file=$(printf %s "$input" | sed -n 's/^logFile: //p'); printf %s "$input" | grep -E '^(requestId|traceparent):' > "$file"; echo '{prepared: false}'`
	p := tko.Plugin{Type: "prepare", Name: "p", Arguments: []string{"sh", "-c", script}}
	if _, _, err := r.Prepare(ctx, p, target, "d1", pkg); err != nil {
		t.Fatal(err)
	}
	got := log.String()
	for _, want := range []string{"request_id=r-1", "trace_id=" + trail.TraceID(ctx), `line="requestId: r-1"`, trail.Traceparent(ctx)} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %q:\n%s", want, got)
		}
	}
}

func TestProgramChangesWithFilesAndSettings(t *testing.T) {
	t.Parallel()
	r := plugin.New(plugin.Options{Programs: []string{"/"}})
	file := filepath.Join(t.TempDir(), "p.sh")
	p := tko.Plugin{Type: "validate", Name: "p", Arguments: []string{"sh", file}}
	seen := map[string]string{}
	differs := func(why string, p tko.Plugin) {
		t.Helper()
		name := r.Program(p)
		if before, ok := seen[name]; ok {
			t.Errorf("the program %s has the same text as %s", why, before)
		}
		seen[name] = why
	}
	differs("without its file", p)
	for _, content := range []string{"true", "false"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		differs("with "+content, p)
	}
	if again := r.Program(p); seen[again] == "" {
		t.Error("the text changed though the plugin did not")
	}
	p.Properties = map[string]string{"a": "b"}
	differs("with a property", p)
	differs("without arguments", tko.Plugin{Type: "validate", Name: "p"})
}

func TestNoMoreThanMaxProcessesRunConcurrently(t *testing.T) {
	t.Parallel()
	r := plugin.New(plugin.Options{Programs: []string{"/"}, MaxProcesses: 1})
	dir := t.TempDir()
	// two concurrent runs would find the directory
	script := `mkdir '` + dir + `/alone' && sleep 0.05 && rmdir '` + dir + `/alone' && echo '{}'`
	var running sync.WaitGroup
	for range 5 {
		running.Go(func() {
			if err := r.Validate(t.Context(), shell("validate", script), target, pkg, false); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
}

func TestCanceledRunsReturnTheCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopping := errors.New("stopping")
	r := plugin.New(plugin.Options{Programs: []string{"/"}, MaxProcesses: 1})
	var running sync.WaitGroup
	for range 2 { // one runs, one waits for a slot
		running.Go(func() {
			if err := r.Validate(ctx, shell("validate", "sleep 1000"), target, pkg, false); !errors.Is(err, stopping) {
				t.Errorf("got %v, want the reason of the context", err)
			}
		})
	}
	time.AfterFunc(200*time.Millisecond, func() { cancel(stopping) })
	running.Wait()
}
