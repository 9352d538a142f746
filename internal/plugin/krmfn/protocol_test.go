package krmfn_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

const (
	trigger = "{apiVersion: x.plugin.nephio.org/v1, kind: X, metadata: {name: x}}"
	head    = "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\n"
)

func writing(text string) string { return "cat >/dev/null\ncat <<'EOF'\n" + text + "\nEOF" }

// The output of a function is checked completely.
func TestOutputOfFunctionsIsChecked(t *testing.T) {
	t.Parallel()
	huge := writing(head + "results:\n" + strings.Repeat("- {severity: error, message: "+strings.Repeat("m", 5000)+"}\n", 2000))
	tests := map[string]struct {
		why     string
		script  string
		want    string // in the error; none if empty
		refused bool
		items   string // the resulting package,
	}{
		"unchanged":             {why: "a function may change nothing", script: "cat", items: trigger},
		"v1beta1":               {why: "older versions are alike", script: writing("apiVersion: config.kubernetes.io/v1beta1\nkind: ResourceList\nitems: [" + trigger + "]"), items: trigger},
		"not a ResourceList":    {why: "a program that knows nothing of the protocol", script: writing("apiVersion: v1\nkind: List\nitems: []"), want: `it is "List" of "v1"`},
		"other version":         {why: "unknown versions are refused", script: writing("apiVersion: config.kubernetes.io/v9\nkind: ResourceList"), want: "config.kubernetes.io/v9"},
		"nothing":               {why: "no output is a failure", script: "cat >/dev/null", want: "no output"},
		"garbage":               {why: "bytes that are not YAML", script: `printf '\377\376{{{{\000'`, want: "malformed"},
		"a text":                {why: "a program that prints", script: "echo hello", want: "malformed"},
		"two":                   {why: "the output is ambiguous", script: writing(head + "---\n" + head), want: "2 documents"},
		"no items":              {why: "a function may delete everything", script: writing(head)},
		"items are a map":       {why: "malformed", script: writing(head + "items: {}"), want: "items is a map"},
		"an item is a text":     {why: "malformed", script: writing(head + "items: [a]"), want: "items[0] is a string"},
		"an item has no kind":   {why: "not KRM", script: writing(head + "items: [{apiVersion: v1}]"), want: "kind"},
		"twins":                 {why: "one would be lost", script: writing(head + "items: [" + trigger + ", " + trigger + "]"), want: `X "x"`},
		"too many":              {why: "bounded", script: writing(head + "items: [{}, {}, {}, {}, {}]"), want: "at most 4"},
		"renamed":               {why: "the triggering resource is removed", script: "sed 's/name: x/name: other/'", items: strings.ReplaceAll(trigger, "name: x", "name: other")},
		"exit code":             {why: "output of a failed function is ignored", script: "cat; echo broken wrench >&2; exit 3", want: "exit code 3, stderr: broken wrench"},
		"signal":                {why: "a signal is a failure", script: "cat; kill -9 $$", want: "signal 9"},
		"refused with exit 0":   {why: "results count", script: writing(head + "results: [{severity: error, message: too small}]"), want: "too small", refused: true},
		"refused with exit 1":   {why: "results explain more than the code", script: writing(head+"results: [{severity: error, message: too small}]") + "\nexit 1", want: "too small", refused: true},
		"warned with exit 1":    {why: "a warning doesn't explain it", script: writing(head+"results: [{severity: warning, message: hm}]") + "\nexit 1", want: "exit code 1"},
		"unknown severity":      {why: "it may be an error", script: writing(head + "results: [{severity: fatal, message: m}]"), want: `severity is "fatal"`},
		"results are a text":    {why: "malformed", script: writing(head + "results: all good"), want: "results is a string"},
		"a result is a text":    {why: "malformed", script: writing(head + "results: [good]"), want: "results[0] is a string"},
		"results with items":    {why: "the form of the first version", script: writing(head + "results: {name: n, items: [{severity: error, message: old}]}"), want: "old", refused: true},
		"huge results":          {why: "a message fits on a screen", script: huge, want: "and 1990 more", refused: true},
		"odd results":           {why: "all values have unexpected types", script: writing(head + "results: [{severity: error, message: {a: b}, resourceRef: [], field: {path: 5, currentValue: [1]}}]"), want: `{"a":"b"} (5 is [1])`, refused: true},
		"annotated by kyaml":    {why: "annotations of function libraries are removed", script: writing(head + "items: [{apiVersion: x.plugin.nephio.org/v1, kind: X, metadata: {name: x, annotations: {config.kubernetes.io/index: '0', internal.config.kubernetes.io/index: '0', internal.config.kubernetes.io/seqindent: compact}}}]"), items: trigger},
		"marks itself":          {why: "a function may mark resources as prepared", script: "sed 's/name: x/name: x\\n    annotations: {nephio.org\\/prepared: \"true\"}/'", items: trigger},
		"doesn't read":          {why: "a function may ignore its input", script: "exec <&-; " + strings.TrimPrefix(writing(head+"items: ["+trigger+"]"), "cat >/dev/null\n"), items: trigger},
		"an alias bomb":         {why: "small input, large result", script: writing(head + "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]"), want: "malformed"},
		"removes its folder":    {why: "its directory belongs to it", script: `rm -rf "$PWD"; cat`, items: trigger},
		"a child stays":         {why: "children are ended", script: "sleep 1000 & cat", items: trigger},
		"yes is text":           {why: "it is YAML 1.2", script: writing(head + "items: [{apiVersion: x.plugin.nephio.org/v1, kind: X, metadata: {name: x}, spec: {a: yes}}]"), items: "{apiVersion: x.plugin.nephio.org/v1, kind: X, metadata: {name: x}, spec: {a: 'yes'}}"},
		"writes where it may":   {why: "its directory is private and removed", script: "touch here; cat", items: trigger},
		"deployment left out":   {why: "the caller restores it", script: writing(head + "items: [" + trigger + "]"), items: trigger},
		"a resource was added":  {why: "functions may generate", script: writing(head + "items: [" + trigger + ", {apiVersion: v1, kind: ConfigMap, metadata: {name: new}}]"), items: trigger + "\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: new}}"},
		"functionConfig is odd": {why: "a function's functionConfig is ignored", script: writing(head + "functionConfig: 5\nitems: [" + trigger + "]"), items: trigger},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Limits: krm.Limits{Resources: 4}}))
			path := script(t, test.script)
			var out krm.Package
			var err error
			ran(t, func() error {
				out, err = prepare(t, r, function("exec:"+path), parse(t, trigger))
				return err
			})
			if test.want != "" {
				var e *plugin.Error
				if !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) || e.Refused != test.refused {
					t.Errorf("got %.5000v, want %q, refused %t: %s", err, test.want, test.refused, test.why)
				}
				if err != nil && len(err.Error()) > 8<<10 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, test.why)
			}
			want := parse(t, test.items)
			for _, r := range want {
				if r.Identity() == target {
					r.SetPrepared()
				}
			}
			if text(t, want) != text(t, out) {
				t.Errorf("%s: -want +got:\n%s", test.why, cmp.Diff(want, out))
			}
		})
	}
}

// Results without errors are passed to the caller's notes, and logged.
func TestResultsBecomeNotes(t *testing.T) {
	t.Parallel()
	results := `results:
- {severity: info, message: done}
- {message: "5 resources"}
- {severity: warning, message: old, resourceRef: {apiVersion: v1, kind: Service, name: web}, field: {path: spec.type, currentValue: a, proposedValue: b}}
`
	many := head + "results:\n" + strings.Repeat("- {severity: warning, message: m}\n", 25)
	for name, test := range map[string]struct {
		why, results string
		want         []string
	}{
		"some": {why: "warnings first", results: results, want: []string{`warning: old (v1 Service "web", spec.type is a, should be b)`, "info: done", "info: 5 resources"}},
		"many": {why: "the number of notes is limited", results: strings.TrimPrefix(many, head), want: append(slices.Repeat([]string{"warning: m"}, 10), "and 15 more")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &eventually.Buffer{}
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}, Log: logger(l)}))
			path := script(t, writing(head+"items: ["+trigger+"]\n"+test.results))
			var got []string
			ran(t, func() error {
				_, _, err := r.Prepare(t.Context(), function("exec:"+path), target, "d", parse(t, trigger), func(note string) { got = append(got, note) })
				return err
			})
			if diff := cmp.Diff(test.want, got); diff != "" || !strings.Contains(l.String(), "severity=warning") {
				t.Errorf("%s: %s\n%s", test.why, diff, l)
			}
		})
	}
}

// ran repeats call while the new script is still open for writing in a process
// that another test forked.
func ran(t *testing.T, call func() error) {
	t.Helper()
	eventually.True(t, "the end of other processes that have the script open", func() bool {
		err := call()
		return err == nil || !strings.Contains(err.Error(), "text file busy")
	})
}

// A function's inputs are the fields that the properties name.
func TestInputsAreTheFieldsThatPropertiesName(t *testing.T) {
	t.Parallel()
	spec := "{text: 'a: b', number: 5, float: 1.5, truth: true, list: [1, {a: b}], nothing: null, config: {apiVersion: fn.kpt.dev/v1, kind: Own, list: [1]}, noConfig: {list: [1]}}"
	tests := map[string]struct {
		why        string
		properties []string
		want       string // functionConfig; none if empty
		wantErr    string
	}{
		"texts":          {why: "a ConfigMap holds text", properties: []string{"a=spec.text", "b=spec.number", "c=spec.float", "d=spec.truth", "e=metadata.name"}, want: "{apiVersion: v1, kind: ConfigMap, metadata: {name: function-config}, data: {a: 'a: b', b: '5', c: '1.5', d: 'true', e: x}}"},
		"a list":         {why: "JSON is YAML, which functions read", properties: []string{"a=spec.list", "b=spec.list.1.a"}, want: `{apiVersion: v1, kind: ConfigMap, metadata: {name: function-config}, data: {a: '[1,{"a":"b"}]', b: b}}`},
		"none":           {why: "no inputs, no config", want: ""},
		"of executor":    {why: "such properties configure the executor", properties: []string{"_other=spec.text"}, want: ""},
		"missing":        {why: "the resource is incomplete", properties: []string{"a=spec.not.there"}, wantErr: `lacks spec.not.there, which is the plugin's property "a"`},
		"null":           {why: "null is not text", properties: []string{"a=spec.nothing"}, wantErr: "lacks spec.nothing"},
		"own config":     {why: "not all functions take a ConfigMap", properties: []string{"_kpt.config=spec.config"}, want: "{apiVersion: fn.kpt.dev/v1, kind: Own, metadata: {name: function-config}, list: [1]}"},
		"no own config":  {why: "it needs a kind", properties: []string{"_kpt.config=spec.noConfig"}, wantErr: "spec.noConfig is not a function config"},
		"text as config": {why: "it needs a kind", properties: []string{"_kpt.config=spec.text"}, wantErr: "spec.text is not a function config"},
		"both":           {why: "a function has one config", properties: []string{"_kpt.config=spec.config", "a=spec.text"}, wantErr: "has both inputs and _kpt.config"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := filepath.Join(t.TempDir(), "seen")
			path := script(t, "tee '"+seen+"'")
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}}))
			var err error
			ran(t, func() error {
				_, err = prepare(t, r, function("exec:"+path, test.properties...), input(t, spec, ""))
				return err
			})
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %v, want %q: %s", err, test.wantErr, test.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(seen)
			if err != nil {
				t.Fatal(err)
			}
			got := parse(t, string(data))[0]
			want := krm.Resource{"apiVersion": "config.kubernetes.io/v1", "kind": "ResourceList", "items": []any{map[string]any(input(t, spec, "")[0])}}
			if test.want != "" {
				want["functionConfig"] = map[string]any(parse(t, test.want)[0])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", test.why, diff)
			}
		})
	}
}

// The program is exactly the named file: no shell interprets its name.
func TestExecNamesAreNotInterpretedByAShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := write(t, filepath.Join(dir, "a good; touch 'x' $(touch y)"), "#!/bin/sh\ncat\n", 0o755)
	write(t, filepath.Join(dir, "plain"), "no program", 0o644)
	for from, to := range map[string]string{"link": good, "loop": "loop", "dangling": "nowhere", "to-folder": dir} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]string{ // text in the error
		good: "", dir + "/link": "", dir + "/../" + filepath.Base(dir) + "/link": "",
		dir + "/loop": "does not exist", dir + "/dangling": "does not exist", dir + "/to-folder": "does not exist", dir: "does not exist",
		dir + "/plain": "not executable", "no-such-program": "does not exist", dir + "/link -x": "does not exist", "": "names no file", "a\x00b": "NUL",
	}
	for path, want := range tests {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			r := plugin.New(self(t, plugin.Options{Programs: []string{"/"}}))
			var err error
			ran(t, func() error {
				_, err = prepare(t, r, function("exec:"+path), parse(t, trigger))
				return err
			})
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 6 {
				t.Errorf("a shell interpreted the name: %v", entries)
			}
		})
	}
}

// A trigger that isn't in the package is an error.
func TestTriggerMustBeInThePackage(t *testing.T) {
	t.Parallel()
	_, err := prepare(t, plugin.New(self(t, plugin.Options{Programs: []string{"/"}})), function("builtin:set-labels", "a=spec.a"), krm.Package{})
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprint(target, " is not in the package")) {
		t.Errorf("got %v", err)
	}
}
