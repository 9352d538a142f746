package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// framed is the beginning of a persistent plugin in shell: next() reads a
// request, and respond() writes a response to it.
const framed = `
respond() { printf 'tko-response %s %s\n%s' "$number" "${#1}" "$1"; }
next() { read -r word number size || exit 0; document=$(head -c "$size"); }
`

func persistent(typ, script string) tko.Plugin {
	p := shell(typ, framed+script)
	p.Properties = map[string]string{tko.PropertyPersistent: "true"}
	return p
}

// newRunner returns a runner; the test fails if files remain after it is
// closed.
func newRunner(t *testing.T, o plugin.Options) *plugin.Runner {
	t.Helper()
	o.Dir = t.TempDir()
	o.Programs = []string{"/"}
	r := plugin.New(o)
	t.Cleanup(func() {
		r.Close()
		if left, _ := os.ReadDir(o.Dir); len(left) > 0 {
			t.Errorf("%s was left behind", left[0].Name())
		}
	})
	return r
}

// refusal returns the message with which a plugin refuses.
func refusal(t *testing.T, r *plugin.Runner, p tko.Plugin) string {
	t.Helper()
	err := r.Validate(t.Context(), p, target, pkg, true)
	var e *plugin.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a *plugin.Error", err)
	}
	return e.Message
}

const respondPID = `while next; do respond "error: process $$"; done`

func TestPersistentServesManyRequests(t *testing.T) {
	t.Parallel()
	r := newRunner(t, plugin.Options{Programs: []string{"/"}, MaxRequests: 3})
	p := persistent("validate", `n=0; while next; do n=$((n+1)); respond "error: $n $number $TKO_PERSISTENT"; done`)
	var got []string
	for range 4 {
		got = append(got, refusal(t, r, p))
	}
	if diff := cmp.Diff([]string{"1 1 1", "2 2 1", "3 3 1", "1 1 1"}, got); diff != "" {
		t.Errorf("want three numbered requests for each process: -want +got:\n%s", diff)
	}
}

func TestPersistentInputIsTheSameDocument(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "in")
	r := newRunner(t, plugin.Options{Programs: []string{"/"}, GRPC: plugin.GRPCAddress{Address: "::1", Port: 50050}})
	p := persistent("prepare", `while next; do printf %s "$document" >'`+file+`'; respond '{"prepared": true, "package": []}'; done`)
	strange := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "n"}, "data": map[string]any{
		"int": int64(1 << 60), "float": 1.0, "large": 1e300, "null": nil, "text": "Grüße\n\u2028\"<&>", "yes": "yes", "list": []any{true, map[string]any{}},
	}}}
	if prepared, out, err := r.Prepare(t.Context(), p, target, "d", strange); err != nil || !prepared || len(out) != 0 {
		t.Fatalf("got %v %v %v", prepared, out, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := krm.DecodeYAML12(data, krm.Limits{})
	if err != nil || len(got) != 1 {
		t.Fatalf("%s: %v", data, err)
	}
	if diff := cmp.Diff([]any{map[string]any(strange[0])}, got[0]["deploymentPackage"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got[0].Text("deploymentId") != "d" || got[0].Text("grpc", "address") != "::1" || got[0].Text("targetResourceIdentifier", "kind") != "X" {
		t.Errorf("got %v", got[0])
	}
}

// Each failure of a process is reported, and the next request gets a new
// process.
func TestPersistentFailuresAreReportedAndReplaced(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		script  string // of the first process
		options plugin.Options
		want    string
	}{
		"hang":                   {why: "each request has a time limit", script: `next; sleep 1000`, options: plugin.Options{Programs: []string{"/"}, ValidateTimeout: 500 * time.Millisecond}, want: "did not end within 500ms"},
		"hang in the response":   {why: "also in the middle of a response", script: `next; printf 'tko-response 1 100\nhalf'; sleep 1000`, options: plugin.Options{Programs: []string{"/"}, ValidateTimeout: 500 * time.Millisecond}, want: "did not end within 500ms"},
		"hang in the header":     {why: "also in the middle of a header", script: `next; printf 'tko-resp'; sleep 1000`, options: plugin.Options{Programs: []string{"/"}, ValidateTimeout: 500 * time.Millisecond}, want: "did not end within 500ms"},
		"doesn't read":           {why: "the request is larger than a pipe", script: `sleep 1000`, options: plugin.Options{Programs: []string{"/"}, ValidateTimeout: 500 * time.Millisecond}, want: "did not end within 500ms"},
		"hang with children":     {why: "children hold the pipes", script: `next; sleep 1000 & sleep 1000 & wait`, options: plugin.Options{Programs: []string{"/"}, ValidateTimeout: 500 * time.Millisecond}, want: "did not end within 500ms"},
		"not framed":             {why: "a plugin that serves one request", script: `next; echo 'error: plain'`, want: `remove the property "_persistent"`},
		"garbage":                {why: "bytes that are not a frame", script: `next; printf '\377\376\000\001garbage garbage garbage garbage garbage garbage garbage garbage\n'`, want: "begins with"},
		"another number":         {why: "a response to a request that was not sent", script: `next; number=7; respond '{}'`, want: "responded to request 7 instead of request 1"},
		"no length":              {why: "the length must be a number of bytes", script: `next; echo 'tko-response 1 many'`, want: `the length "many"`},
		"negative length":        {why: "the length must be a number of bytes", script: `next; echo 'tko-response 1 -5'`, want: `the length "-5"`},
		"too long":               {why: "output is limited, also by the declared length", script: `next; echo 'tko-response 1 99999999999'; yes`, options: plugin.Options{Programs: []string{"/"}, MaxOutput: 1 << 20}, want: "more than 1048576 bytes"},
		"a long header":          {why: "the header is limited", script: `next; yes | tr -d '\n'`, want: "begins with"},
		"extra output":           {why: "output after the response belongs to no request", script: `next; printf 'tko-response 1 2\n{}and more'`, want: "more than the 2 bytes"},
		"exit":                   {why: "the end of the process is a failure", script: `next; echo the last words >&2; exit 3`, want: "exit code 3"},
		"exit at once":           {why: "before the first request", script: `exit 4`, want: "exit code 4"},
		"exit in the response":   {why: "an incomplete response is a failure", script: `next; printf 'tko-response 1 100\nhalf'`, want: "4 of the 100 bytes"},
		"signal":                 {why: "the end of the process is a failure", script: `next; kill -9 $$`, want: "signal 9"},
		"malformed response":     {why: "the frame is right, the document isn't", script: `next; respond '{{{'; next`, want: "malformed"},
		"closes stdout":          {why: "no response can follow", script: `next; exec >&-; sleep 1000`, want: "signal 9"},
		"two responses for one":  {why: "the second must not become the response of the next request", script: `next; printf 'tko-response 1 2\n{}tko-response 2 2\n{}'; next; sleep 1000`, want: "more than the 2 bytes"},
		"empty response":         {why: "no output is a failure", script: `next; respond ''; next`, want: "no output"},
		"a program that is gone": {why: "it can't start", script: `next; exec /no/such/program`, want: "exit code 127"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := newRunner(t, test.options)
			// The first process runs the script of the case, the others work.
			p := persistent("validate", `if mkdir '`+dir+`/first' 2>/dev/null; then `+test.script+"\nexit; fi\n"+respondPID)
			large := append(krm.Package{}, pkg...)
			large = append(large, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "large"}, "data": map[string]any{"x": strings.Repeat("x", 1<<20)}})
			began := time.Now()
			err := r.Validate(t.Context(), p, target, large, true)
			var e *plugin.Error
			if !errors.As(err, &e) || e.Refused || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q: %s", err, test.want, test.why)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s", took)
			}
			// In these cases the frame is correct, so the process stays in use.
			if name == "malformed response" || name == "empty response" {
				return
			}
			// On a busy machine a working process may also exceed the time limit.
			got := refusal(t, r, p)
			for began := time.Now(); strings.HasPrefix(got, "it did not end within") && time.Since(began) < time.Minute; {
				got = refusal(t, r, p)
			}
			if !strings.HasPrefix(got, "process ") {
				t.Errorf("the next request: got %q", got)
			}
		})
	}
}

// A process that ended, or wrote output between two requests, is replaced, and
// the next request succeeds.
func TestPersistentProcessBrokenBetweenRequestsIsReplaced(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"exit":              `exit 5`,
		"an extra response": `number=2; respond '{"error": stale}'; touch DIR/done; sleep 1000`,
		"output":            `echo debug; touch DIR/done; sleep 1000`,
		"closes its pipe":   `exec >&- <&-; touch DIR/done; sleep 1000`,
	}
	for name, script := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := newRunner(t, plugin.Options{Programs: []string{"/"}})
			script = strings.ReplaceAll(script, "DIR", dir)
			p := persistent("validate", `echo $$ >>`+dir+`/pids
if mkdir '`+dir+`/first' 2>/dev/null; then next; respond 'error: first'; while ! [ -e '`+dir+`/go' ]; do sleep 0.01; done; `+script+"\nfi\n"+respondPID)
			if got := refusal(t, r, p); got != "first" {
				t.Fatal(got)
			}
			pids := func() []string {
				data, _ := os.ReadFile(dir + "/pids")
				return strings.Fields(string(data))
			}
			write(t, filepath.Join(dir, "go"), "", 0o644)
			eventually.True(t, "the process to be over", func() bool {
				if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
					return true
				}
				pid, err := strconv.Atoi(pids()[0])
				return err == nil && !alive(pid)
			})
			got := refusal(t, r, p)
			if want := "process " + pids()[len(pids())-1]; got != want || len(pids()) != 2 {
				t.Errorf("got %q, want %q, from the second of the processes %v", got, want, pids())
			}
		})
	}
}

// No child of a process outlives it.
func TestPersistentChildrenEndWithTheirProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	r := newRunner(t, plugin.Options{Programs: []string{"/"}})
	p := persistent("validate", `while next; do sleep 1000 & echo $! >>'`+file+`'; respond '{}'; done`)
	for range 3 {
		if err := r.Validate(t.Context(), p, target, pkg, true); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	children := strings.Fields(string(data))
	if len(children) != 3 {
		t.Fatalf("got %q", data)
	}
	for _, child := range children {
		pid, err := strconv.Atoi(child)
		if err != nil {
			t.Fatal(err)
		}
		if alive(pid) {
			t.Errorf("child %d still runs", pid)
		}
	}
}

func TestPersistentIdleProcessEnds(t *testing.T) {
	t.Parallel()
	r := newRunner(t, plugin.Options{Programs: []string{"/"}, IdleTime: 50 * time.Millisecond})
	text, _ := strings.CutPrefix(refusal(t, r, persistent("validate", respondPID)), "process ")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the idle process to end", func() bool { return !alive(pid) })
}

func TestCloseEndsIdleProcesses(t *testing.T) {
	t.Parallel()
	r := newRunner(t, plugin.Options{Programs: []string{"/"}})
	p := persistent("validate", respondPID)
	first := refusal(t, r, p)
	r.Close()
	text, _ := strings.CutPrefix(first, "process ")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("the process still runs")
	}
	if second, third := refusal(t, r, p), refusal(t, r, p); second == first || third == second {
		t.Errorf("processes were reused after Close: %q, %q, %q", first, second, third)
	}
}

// A changed plugin replaces its processes at once, for any kind of change.
func TestChangedPluginReplacesItsProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRunner(t, plugin.Options{Programs: []string{"/"}})
	script := filepath.Join(dir, "plugin.sh")
	write(t, script, framed+`while next; do respond "error: one $$"; done`, 0o644)
	p := tko.Plugin{Type: "validate", Name: "p", Arguments: []string{"sh", script}, Properties: map[string]string{tko.PropertyPersistent: "true"}}
	first := refusal(t, r, p)
	if again := refusal(t, r, p); again != first {
		t.Fatalf("got %q after %q from the same plugin", again, first)
	}
	write(t, script, framed+`while next; do respond "error: two $$ $KEY"; done`, 0o644)
	second := refusal(t, r, p)
	if !strings.HasPrefix(second, "two") {
		t.Errorf("got %q after the program changed", second)
	}
	p.Stamp.Revision = 2
	third := refusal(t, r, p)
	if third == second {
		t.Errorf("the process was reused after the plugin was registered again")
	}
	for _, old := range []string{first, second} {
		pid, err := strconv.Atoi(strings.Fields(old)[1])
		if err != nil {
			t.Fatal(err)
		}
		if alive(pid) {
			t.Errorf("the old process of %q still runs", old)
		}
	}
}

// At most MaxProcesses processes are idle.
func TestIdleProcessesAreLimited(t *testing.T) {
	t.Parallel()
	r := newRunner(t, plugin.Options{Programs: []string{"/"}, MaxProcesses: 2})
	var pids []int
	for i := range 5 {
		p := persistent("validate", respondPID)
		p.Name = fmt.Sprint("p", i)
		text, _ := strings.CutPrefix(refusal(t, r, p), "process ")
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	for i, pid := range pids {
		if want := i >= 3; alive(pid) != want {
			t.Errorf("process %d is alive: %v", i, !want)
		}
	}
}

func TestPersistentRequestsRunConcurrently(t *testing.T) {
	t.Parallel()
	r := newRunner(t, plugin.Options{Programs: []string{"/"}, MaxProcesses: 3})
	p := persistent("prepare", `while next; do sleep 0.01; respond "{prepared: true, package: [{apiVersion: v1, kind: Echo, metadata: {name: $(printf %s "$document" | sed 's/.*"deploymentId":"\([^"]*\)".*/\1/')}}]}"; done`)
	var asking sync.WaitGroup
	for i := range 30 {
		asking.Go(func() {
			id := fmt.Sprint("d", i)
			_, out, err := r.Prepare(t.Context(), p, target, tko.DeploymentID(id), pkg)
			if err != nil || len(out) != 1 || out[0].Name() != id {
				t.Errorf("%s got %v, %v", id, out, err)
			}
		})
	}
	asking.Wait()
}

func TestCanceledPersistentRequestReturnsTheCause(t *testing.T) {
	t.Parallel()
	r := newRunner(t, plugin.Options{Programs: []string{"/"}})
	ctx, cancel := context.WithCancelCause(t.Context())
	stopping := errors.New("stopping")
	time.AfterFunc(200*time.Millisecond, func() { cancel(stopping) })
	if err := r.Validate(ctx, persistent("validate", `next; sleep 1000`), target, pkg, false); !errors.Is(err, stopping) {
		t.Errorf("got %v, want the reason of the context", err)
	}
}

// Lines are logged with the request that they belong to.
func TestPersistentLinesAreLoggedWithTheirRequest(t *testing.T) {
	t.Parallel()
	log := &eventually.Buffer{}
	r := newRunner(t, plugin.Options{Programs: []string{"/"}, Log: slog.New(slog.NewTextHandler(log, nil))})
	p := persistent("schedule", `while next; do log=$(printf %s "$document" | sed 's/.*"logFile":"\([^"]*\)".*/\1/'); echo "line $number" >"$log"; respond '{}'; done`)
	for _, site := range []tko.SiteID{"lagos", "accra"} {
		if err := r.Schedule(t.Context(), p, target, tko.Site{ID: site, Package: pkg}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{`line="line 1"`, `line="line 2"`} {
		site := map[bool]string{true: "site=lagos", false: "site=accra"}[strings.Contains(want, "1")]
		found := false
		for line := range strings.Lines(log.String()) {
			found = found || strings.Contains(line, want) && strings.Contains(line, site) && strings.Contains(line, "plugin=schedule|p") && strings.Contains(line, target.Name)
		}
		if !found {
			t.Errorf("the log lacks %s of %s:\n%s", want, site, log)
		}
	}
}

// A process that leaves its group is ended, too.
func TestPersistentEscapedChildrenAreEnded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	r := newRunner(t, plugin.Options{Programs: []string{"/"}})
	err := r.Validate(t.Context(), persistent("validate", `next; setsid sh -c 'echo $$ >"`+file+`"; exec sleep 1000' & while ! [ -s "`+file+`" ]; do sleep 0.01; done; exit 3`), target, pkg, true)
	if err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("got %v", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err != nil || alive(pid) {
		t.Errorf("process %q still runs, %v", data, err)
	}
}
