package hostile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/process"
)

// newNap returns the sleep command of the plugins of a test. Its duration is unique,
// so that leftover processes can be found.
func newNap() string { return fmt.Sprintf("sleep %d%08d", napNumber.Add(1), os.Getpid()) }

var napNumber atomic.Int64

// A badPlugin is a failing plugin and its expected error.
type badPlugin struct {
	why     string
	script  string   // a shell script, or
	program []string // a program with arguments
	reason  string   // regular expression
}

func (b badPlugin) arguments() []string {
	if b.program != nil {
		return b.program
	}
	return []string{"/bin/sh", "-c", b.script}
}

// busy reports whether a plugin that should end otherwise reached the time limit,
// because the machine was busy. The test then runs it again: a time-out never
// passes for another limit.
func (b badPlugin) busy(message string) bool {
	return strings.Contains(message, "did not end within") && !b.explains(message)
}

// hangs reports whether a plugin ends by the time limit.
func (b badPlugin) hangs() bool { return strings.Contains(b.reason, "did not end within") }

const (
	hangLimit  = "2s" // the time limit for plugins that hang: others start within it also on a busy machine
	otherLimit = "2m" // the time limit for plugins that reach another limit long before
)

// byLimit runs check with the bad plugins that hang and a short time limit, and
// with the others and a long one.
func byLimit(t *testing.T, check func(t *testing.T, timeout, nap string, tests map[string]badPlugin)) {
	for timeout, hangs := range map[string]bool{hangLimit: true, otherLimit: false} {
		t.Run("time limit "+timeout, func(t *testing.T) {
			nap := newNap()
			tests := badPlugins(t, nap)
			maps.DeleteFunc(tests, func(_ string, b badPlugin) bool { return b.hangs() != hangs })
			check(t, timeout, nap, tests)
		})
	}
}

func (b badPlugin) explains(message string) bool {
	return regexp.MustCompile("(?s)" + b.reason).MatchString(message)
}

// badPlugins fail in the same way as plugins of each type.
func badPlugins(t *testing.T, nap string) map[string]badPlugin {
	bomb := textFile(t, "bomb.yaml", laughs())
	plain := textFile(t, "plain.sh", "#!/bin/sh\n")
	return map[string]badPlugin{
		"hangs":                  {why: "it never ends", script: "exec " + nap, reason: "did not end within " + hangLimit},
		"hangs in children":      {why: "its child processes must be ended too", script: nap + " & " + nap + " & wait", reason: "did not end within " + hangLimit},
		"won't stop":             {why: "it ignores signals", script: "trap '' TERM INT HUP; while :; do " + nap + "; done", reason: "did not end within " + hangLimit},
		"floods stdout":          {why: "memory is finite", script: "exec yes", reason: "more than 67108864 bytes to stdout"},
		"floods stderr":          {why: "only the end is retained", script: "exec yes the disk is full >&2", reason: "did not end within " + hangLimit + ", stderr: .*the disk is full"},
		"writes 10 GB":           {why: "the output is limited", script: "exec head -c 10000000000 /dev/zero", reason: "more than 67108864 bytes to stdout"},
		"logs without end":       {why: "most of it is dropped", script: `log=$(sed -n 's/^logFile: //p'); exec yes >"$log"`, reason: "did not end within " + hangLimit},
		"eats memory":            {why: "memory is shared with others", script: "head -c 10000000000 /dev/zero | tail >&2 || exit 1; " + nap, reason: "bytes of memory|memory exhausted"},
		"eats memory together":   {why: "the limit is for all its processes together", script: "for i in 1 2 3 4 5 6 7 8; do { head -c 50000000 /dev/zero; " + nap + "; } | tail & done; " + nap, reason: "more than 268435456 bytes of memory"},
		"forks and forks":        {why: "so many processes are no plugin", script: "i=0; while [ $i -lt 3000 ]; do setsid " + nap + " & i=$((i+1)); done; wait", reason: "more than 256 processes"},
		"leaves its session":     {why: "it must be ended nevertheless", script: "(setsid env -i " + nap + " &); setsid " + nap + " & exec " + nap, reason: "did not end within " + hangLimit},
		"kills its supervisor":   {why: "it can't reach it", script: "(setsid " + nap + " &); kill -9 $PPID; " + nap, reason: "did not end within " + hangLimit},
		"fails":                  {why: "the end of stderr says why", script: "echo no pool is free >&2; exit 1", reason: "exit code 1, stderr: no pool is free"},
		"fails after its output": {why: "the output of a failed plugin is ignored", script: "echo 'prepared: false'; exit 3", reason: "exit code 3"},
		"is killed":              {why: "such as when memory is out", script: "kill -9 $$", reason: `signal 9 \(killed\)`},
		"prints garbage":         {why: "usually debug output", script: "echo '}}} hello: {'", reason: "output is malformed"},
		"prints binary":          {why: "it is no text", script: `printf '\000\001\377\376'`, reason: "output is malformed"},
		"prints a bomb":          {why: "plugins send aliases, too", script: "cat " + bomb, reason: "output is malformed: .*aliasing"},
		"prints depth":           {why: "recursion must not end the process", script: "printf 'error: '; yes '[' | head -n 100000 | tr -d '\\n'", reason: "output is malformed: .*depth"},
		"prints nothing":         {why: "the output is missing", script: ":", reason: "no output"},
		"prints two documents":   {why: "it is ambiguous", script: `printf 'error: ""\n---\nerror: ""\n'`, reason: "2 documents"},
		"prints a list":          {why: "the output must be a map", script: "echo '- a'", reason: "a list, not a map"},
		"errs with a number":     {why: "an error is a text", script: "echo 'error: 5'", reason: "error is a number, not a string"},
		"refuses":                {why: "the user gets its error", script: `echo 'error: the pool "n6" is used up'`, reason: `the pool "n6" is used up`},
		"is missing":             {why: "it is not installed", program: []string{"/nowhere/plugin"}, reason: `"/nowhere/plugin" does not exist on this server`},
		"is no program":          {why: "the file is not executable", program: []string{plain}, reason: "not executable"},
	}
}

// responding returns a script that prints a text.
func responding(text string) string { return "cat >/dev/null; cat <<'EOF'\n" + text + "\nEOF" }

func kindOf(name string) string {
	return regexp.MustCompile("[^a-z]").ReplaceAllString(name, "")
}

func (w *world) registerPlugin(t *testing.T, typ, name string, arguments []string) {
	t.Helper()
	_, err := w.RegisterPlugin(patient(t), tko.Plugin{
		Type: typ, Name: kindOf(name), Arguments: arguments,
		Triggers: []krm.GVK{{Group: "hostile.example", Version: "v1", Kind: kindOf(name)}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// target returns the resource that triggers the plugin of a case.
func target(name string) string {
	return fmt.Sprintf("{apiVersion: hostile.example/v1, kind: %s, metadata: {name: target}}", kindOf(name))
}

// culprits checks that a message names the plugin, the resource and the reason.
func culprits(t *testing.T, message, typ, name string, b badPlugin) {
	t.Helper()
	names(t, message, "hostile.example/v1 "+kindOf(name)+` "target"`, kindOf(name)+`"`)
	if !b.explains(message) {
		t.Errorf("the error of the %s plugin lacks %q: %s\n%.2000s", typ, b.reason, b.why, message)
	}
	if len(message) > 9<<10 {
		t.Errorf("the message has %d bytes", len(message))
	}
}

// noneLeft checks that no process of a plugin is left.
func noneLeft(t *testing.T, nap string) {
	t.Helper()
	waitFor(t, "all processes of plugins are gone", func(context.Context) (bool, string) {
		left := naps(t, nap)
		return len(left) == 0, fmt.Sprintf("%d are left", len(left))
	})
}

// naps returns the processes that sleep as plugins do.
func naps(t *testing.T, nap string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err != nil || !strings.HasPrefix(strings.ReplaceAll(string(text), "\x00", " "), nap)
	})
}

// If a validate plugin fails, the package is rejected, because it may be invalid.
func TestFailingValidatePluginRejectsPackage(t *testing.T) {
	t.Parallel()
	byLimit(t, badValidatePlugins)
}

func badValidatePlugins(t *testing.T, timeout, nap string, tests map[string]badPlugin) {
	w := newWorld(t, "--roles=data", "--store=sqlite::memory:", "--plugin-timeout="+timeout, "--plugin-memory=268435456")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w.registerPlugin(t, tko.PluginValidate, name, test.arguments())
			pkg := parse(t, target(name))
			id := tko.TemplateID("validate/" + kindOf(name))
			w.harmless(t, func(ctx context.Context) {
				began := time.Now()
				_, err := w.RegisterTemplate(ctx, tko.Template{ID: id, Package: pkg})
				if took := time.Since(began); took > time.Minute {
					t.Errorf("it took %s", took)
				}
				for err != nil && test.busy(err.Error()) && ctx.Err() == nil {
					_, err = w.RegisterTemplate(ctx, tko.Template{ID: id, Package: pkg})
				}
				if !errors.Is(err, tko.ErrInvalid) {
					t.Fatalf("%v, want it to be invalid: %s", err, test.why)
				}
				culprits(t, err.Error(), tko.PluginValidate, name, test)
				if _, err := w.Template(ctx, id, 0); !errors.Is(err, tko.ErrNotFound) {
					t.Errorf("the template exists: %v", err)
				}
				if _, err := w.RegisterSite(ctx, tko.Site{ID: "kept", Package: pkg}); !errors.Is(err, tko.ErrInvalid) {
					t.Errorf("site: %v, want it to be invalid", err)
				}
			})
			w.registerPlugin(t, tko.PluginValidate, name, []string{"/bin/sh", "-c", `echo 'error: ""'`})
			waitFor(t, "valid once the plugin is repaired", func(ctx context.Context) (bool, string) {
				_, err := w.RegisterTemplate(ctx, tko.Template{ID: id, Package: pkg})
				return err == nil, fmt.Sprint(err)
			})
		})
	}
	noneLeft(t, nap)
	w.bounded(t)
}

// A failing prepare plugin is reported on the deployment, and other deployments
// continue. Once it is repaired, the deployment is prepared automatically.
func TestFailingPreparePluginIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	byLimit(t, badPreparePlugins)
}

func badPreparePlugins(t *testing.T, timeout, nap string, tests map[string]badPlugin) {
	resources := func(text string) string { return responding("prepared: true\npackage:\n" + text) }
	more := map[string]badPlugin{
		"returns maybe":           {why: "it is not a boolean", script: responding("prepared: maybe"), reason: "prepared is a string, not a boolean"},
		"returns no package":      {why: "nothing would be left", script: responding("prepared: true"), reason: "package is missing, not a list"},
		"returns a text":          {why: "it is not a resource", script: resources("- hello"), reason: `package\[0\] is a string, not a map`},
		"returns no kind":         {why: "it is not a resource", script: resources("- {apiVersion: v1, metadata: {name: a}}"), reason: "kind: is missing"},
		"returns twins":           {why: "one of them would be lost", script: resources("- " + keptPackage + "\n- " + keptPackage), reason: `ConfigMap "kept".*already`},
		"returns what is invalid": {why: "it must not be stored", script: resources("- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, datta: {}}"), reason: `ConfigMap "a".*datta`},
		"returns two Deployments": {
			why:    "it is ambiguous",
			script: resources("- &d {apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment}}\n- *d"),
			reason: `Deployment "deployment".*already`,
		},
		"returns another site": {
			why:    "there is none of that name",
			script: resources("- {apiVersion: deployment.nephio.org/v1alpha1, kind: Deployment, metadata: {name: deployment}, spec: {siteId: nowhere}}"),
			reason: `site "nowhere"`,
		},
	}
	if timeout != hangLimit {
		maps.Copy(tests, more)
	}
	// The first retry comes after ten minutes, so that everything before it has
	// another cause.
	w := newWorld(t, "--roles=data,preparer", "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"), "--plugin-timeout="+timeout, "--plugin-memory=268435456", "--retry=10m", "--retry-max=10m")
	ctx := patient(t)
	deployments := map[string]tko.DeploymentID{}
	for name, test := range tests {
		w.registerPlugin(t, tko.PluginPrepare, name, test.arguments())
		id, err := w.CreateDeployment(ctx, tko.NewDeployment{Template: "kept", Merge: parse(t, target(name))})
		if err != nil {
			t.Fatal(err)
		}
		deployments[name] = id
	}
	for i := range 10 {
		id, err := w.CreateDeployment(ctx, newDeployment("kept"))
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, fmt.Sprintf("other deployment %d is prepared", i), w.prepared(id))
	}
	for name, test := range tests { // all of them, before the list is read
		w.blamed(t, tko.KindDeployment, string(deployments[name]), tko.ConditionPrepared, tko.PluginPrepare, name, test)
	}
	listed := w.listed(t, "deployment")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			id := deployments[name]
			culprits(t, listed[string(id)][tko.ConditionPrepared], tko.PluginPrepare, name, test)
			condition := w.condition(t, tko.KindDeployment, string(id), tko.ConditionPrepared) //nolint:contextcheck // it has a deadline of its own
			culprits(t, condition.Message, tko.PluginPrepare, name, test)
			if condition.Reason != "PluginFailed" {
				t.Errorf("reason %s, want PluginFailed", condition.Reason)
			}
			d, err := w.Deployment(ctx, id, 0)
			if err != nil || d.Stamp.Revision != 1 || d.Prepared || len(d.Package) != 3 {
				t.Errorf("a part of it was stored: revision %d, prepared %t, %d resources, %v", d.Stamp.Revision, d.Prepared, len(d.Package), err)
			}
		})
	}
	mended := map[string]string{}
	for name := range tests {
		mended[name] = resources(fmt.Sprintf("- {apiVersion: hostile.example/v1, kind: %s, metadata: {name: target, annotations: {nephio.org/prepared: 'true'}}}", kindOf(name)))
	}
	w.mend(t, tko.PluginPrepare, mended, func(name string) func(context.Context) (bool, string) { return w.prepared(deployments[name]) })
	w.goesOn(t)
	noneLeft(t, nap)
	w.bounded(t)
}

// Unusual plugins that work correctly.
func TestUnusualPreparePluginWorks(t *testing.T) {
	t.Parallel()
	nap := newNap()
	good := func(name string) string {
		return fmt.Sprintf("prepared: true\npackage:\n- {apiVersion: hostile.example/v1, kind: %s, metadata: {name: target, annotations: {nephio.org/prepared: 'true'}}}", kindOf(name))
	}
	tests := map[string]struct{ why, before, after string }{
		"leaves a child":          {"which keeps stdout open, and goes", nap + " &", ""},
		"leaves a daemon":         {"which would escape", "setsid " + nap + " &", ""},
		"leaves an orphan":        {"which would be forgotten", "(setsid env -i " + nap + " &)", ""},
		"closes stdin":            {"it has no use for it", "exec <&-", ""},
		"talks on stderr":         {"stderr is ignored if it works", "yes | head -c 1000000 >&2", ""},
		"removes its folder":      {"it is its own", "rm -rf \"$PWD\" \"$TMPDIR\"", ""},
		"leaves out the resource": {"plugins may delete resources, also their own", "", "prepared: true\npackage:\n- " + keptPackage},
		"makes much":              {"a thousand resources are no bomb", "", ""},
	}
	w := newWorld(t, "--roles=data,preparer", "--store=sqlite::memory:", "--plugin-timeout=5s")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := test.after
			if text == "" {
				text = good(name)
			}
			if name == "makes much" {
				much := []byte(text)
				for i := range 1000 {
					much = fmt.Appendf(much, "\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: made-%d}}", i)
				}
				text = string(much)
			}
			w.registerPlugin(t, tko.PluginPrepare, name, []string{"/bin/sh", "-c", test.before + "\ncat <<'EOF'\n" + text + "\nEOF"})
			id, err := w.CreateDeployment(patient(t), tko.NewDeployment{Merge: parse(t, target(name))})
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, test.why, w.prepared(id))
		})
	}
	noneLeft(t, nap)
}

// The plugins of a killed server end too.
func TestPluginsEndWithKilledServer(t *testing.T) {
	t.Parallel()
	nap := newNap()
	w := newWorld(t, "--roles=data,preparer", "--store=sqlite::memory:")
	for name, script := range map[string]string{"once": "(setsid " + nap + " &); exec " + nap, "kept": "setsid " + nap + " & exec " + nap} {
		_, err := w.RegisterPlugin(patient(t), tko.Plugin{
			Type: tko.PluginPrepare, Name: name, Arguments: []string{"/bin/sh", "-c", script},
			Properties: map[string]string{tko.PropertyPersistent: strconv.FormatBool(name == "kept")},
			Triggers:   []krm.GVK{{Group: "hostile.example", Version: "v1", Kind: name}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.CreateDeployment(patient(t), tko.NewDeployment{Merge: parse(t, target(name))}); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "all sleep", func(context.Context) (bool, string) {
		n := len(naps(t, nap))
		return n == 4, fmt.Sprintf("%d do", n)
	})
	w.server.Kill()
	noneLeft(t, nap)
}

// A plugin that runs as the server's user, who is not root, can't read the server's
// secrets.
func TestPluginsCannotReadServerSecrets(t *testing.T) {
	t.Parallel()
	const secret = "TKO_TEST_SECRET=open-sesame"
	// Isolated plugins don't even see the server's process.
	server := process.StartServerUnprivileged(t, []string{secret}, "--roles=data,preparer", "--store=sqlite::memory:", "--plugin-isolation=off")
	c := dial(t, server.GRPC)
	// To prove that it searches the right places, it must find its own environment.
	script := `
for p in /proc/[0-9]*; do
	if tr '\0' '\n' <$p/environ 2>/dev/null | grep -q ^TKO_TEST_SECRET=; then echo "$p/environ" >>found; fi
	if [ "$(cat $p/comm 2>/dev/null)" = tko-server ]; then
		echo $p >>servers
		for f in mem maps auxv; do [ -r $p/$f ] && head -c 1 $p/$f >/dev/null 2>&1 && echo $p/$f >>found; done
		ls $p/fd >/dev/null 2>&1 && echo $p/fd >>found
		ls -l $p/cwd >/dev/null 2>&1 && [ -n "$(readlink $p/cwd)" ] && echo $p/cwd >>found
	fi
done
tr '\0' '\n' </proc/$$/environ | grep -q ^TMPDIR= || echo 'nothing can be read' >>found
[ -s servers ] || echo 'there is no server' >>found
[ "$(id -u)" = 0 ] && echo 'I am root' >>found
printf 'error: "%s"' "found: $(cat found | tr '\n' ' ')"`
	if _, err := c.RegisterPlugin(patient(t), tko.Plugin{
		Type: tko.PluginValidate, Name: "spy", Arguments: []string{"/bin/sh", "-c", script}, Triggers: []krm.GVK{{Group: "hostile.example", Version: "v1", Kind: "spy"}},
	}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the search of the plugin", func(ctx context.Context) (bool, string) { // the search may take longer than a request
		_, err := c.RegisterTemplate(ctx, tko.Template{ID: "spied", Package: parse(t, target("spy"))})
		if err == nil || !strings.Contains(err.Error(), "found:") {
			return false, fmt.Sprint(err)
		}
		if !strings.HasSuffix(err.Error(), "found: ") {
			t.Errorf("the plugin read a secret of the server: %v", err)
		}
		return true, ""
	})
}

// A failing schedule plugin is reported on the site and its deployments, and other
// sites continue. Once it is repaired, it gets the deployments.
func TestFailingSchedulePluginIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	byLimit(t, badSchedulePlugins)
}

func badSchedulePlugins(t *testing.T, timeout, nap string, tests map[string]badPlugin) {
	w := newWorld(t, "--store=sqlite::memory:", "--plugin-schedule-timeout="+timeout, "--plugin-memory=268435456", "--retry=10m", "--retry-max=10m", "--git-cache="+t.TempDir())
	ctx := patient(t)
	good := `cat >/dev/null; echo 'error: ""'`
	create := func(name string) tko.DeploymentID {
		site := tko.SiteID("schedule/" + kindOf(name))
		if _, err := w.RegisterSite(ctx, tko.Site{ID: site, Package: parse(t, target(name))}); err != nil {
			t.Fatal(err)
		}
		id, err := w.CreateDeployment(ctx, tko.NewDeployment{Template: "kept", Site: site})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	deployments := map[string]tko.DeploymentID{}
	for name, test := range tests {
		w.registerPlugin(t, tko.PluginSchedule, name, test.arguments())
		deployments[name] = create(name)
	}
	other := create("good")
	w.mend(t, tko.PluginSchedule, map[string]string{"good": good}, func(string) func(context.Context) (bool, string) { return w.scheduled(other) })
	for name, test := range tests { // all of them, before the lists are read
		w.blamed(t, tko.KindDeployment, string(deployments[name]), tko.ConditionScheduled, tko.PluginSchedule, name, test)
		w.blamed(t, tko.KindSite, "schedule/"+kindOf(name), tko.ConditionScheduled, tko.PluginSchedule, name, test)
	}
	listed, listedSites := w.listed(t, "deployment"), w.listed(t, "site")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			id := string(deployments[name])
			site := "schedule/" + kindOf(name)
			culprits(t, listed[id][tko.ConditionScheduled], tko.PluginSchedule, name, test)
			culprits(t, listedSites[site][tko.ConditionScheduled], tko.PluginSchedule, name, test)
			culprits(t, w.condition(t, tko.KindDeployment, id, tko.ConditionScheduled).Message, tko.PluginSchedule, name, test)
			culprits(t, w.condition(t, tko.KindSite, site, tko.ConditionScheduled).Message, tko.PluginSchedule, name, test)
		})
	}
	mended := map[string]string{}
	for name := range tests {
		mended[name] = good
	}
	w.mend(t, tko.PluginSchedule, mended, func(name string) func(context.Context) (bool, string) { return w.scheduled(deployments[name]) })
	w.goesOn(t)
	noneLeft(t, nap)
	w.bounded(t)
}

// mend registers working plugins, and waits until what needs them is done. On a very busy
// machine a plugin may reach the time limit: then it is registered again.
func (w *world) mend(t *testing.T, typ string, scripts map[string]string, done func(name string) func(context.Context) (bool, string)) {
	t.Helper()
	register := func(name string) {
		w.registerPlugin(t, typ, name, []string{"/bin/sh", "-c", scripts[name], time.Now().String()})
	}
	for name := range scripts {
		register(name)
	}
	for name := range scripts {
		mended := time.Now()
		waitFor(t, name+" is done with a plugin that works", func(ctx context.Context) (bool, string) {
			if time.Since(mended) > 15*time.Second {
				mended = time.Now()
				register(name)
			}
			return done(name)(ctx)
		})
	}
}

// blamed waits until a condition has the expected error of a bad plugin, not the time
// limit on a busy machine.
func (w *world) blamed(t *testing.T, kind tko.Kind, id, condition, typ, name string, b badPlugin) {
	t.Helper()
	registered := time.Now()
	waitFor(t, fmt.Sprintf("%s %s has %s False because of its plugin", kind, id, condition), func(ctx context.Context) (bool, string) {
		conditions, err := w.conditions(ctx, kind, id)
		for _, c := range conditions {
			if c.Type != condition || c.Status != tko.ConditionFalse || c.Message == "" {
				continue
			}
			if !b.busy(c.Message) {
				return true, ""
			}
			if time.Since(registered) > 15*time.Second {
				registered = time.Now()
				w.registerPlugin(t, typ, name, append(b.arguments(), time.Now().String())) //nolint:contextcheck // it has a deadline of its own
			}
		}
		return false, fmt.Sprint(conditions, err)
	})
}

func (w *world) prepared(id tko.DeploymentID) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		d, err := w.Deployment(ctx, id, 0)
		return err == nil && d.Prepared, fmt.Sprint(d.Stamp.Conditions, err)
	}
}

func (w *world) scheduled(id tko.DeploymentID) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		d, err := w.Deployment(ctx, id, 0)
		return err == nil && slices.ContainsFunc(d.Stamp.Conditions, func(c tko.Condition) bool {
			return c.Type == tko.ConditionScheduled && c.Status == tko.ConditionTrue
		}), fmt.Sprint(d.Stamp.Conditions, err)
	}
}

// listed returns the messages of the conditions that are not True, by entity and
// type, as the command lists them.
func (w *world) listed(t *testing.T, kind string) map[string]map[string]string {
	t.Helper()
	stdout, stderr, code := w.server.CLI(kind, "list", "-o", "yaml")
	if code != 0 {
		t.Fatal(stderr)
	}
	var rows []struct {
		SiteID       string
		DeploymentID string
		Conditions   []tko.Condition
	}
	if err := yaml.Unmarshal([]byte(stdout), &rows); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	messages := map[string]map[string]string{}
	for _, row := range rows {
		id := cmp.Or(row.DeploymentID, row.SiteID) // rows of deployments have both
		messages[id] = map[string]string{}
		for _, c := range row.Conditions {
			if c.Status != tko.ConditionTrue {
				messages[id][c.Type] = c.Message
			}
		}
	}
	return messages
}

// condition waits until a condition of an entity is False.
func (w *world) condition(t *testing.T, kind tko.Kind, id, typ string) (found tko.Condition) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s %s has %s False", kind, id, typ), func(ctx context.Context) (bool, string) {
		conditions, err := w.conditions(ctx, kind, id)
		for _, c := range conditions {
			if c.Type == typ && c.Status == tko.ConditionFalse {
				found = c
				return true, ""
			}
		}
		return false, fmt.Sprint(conditions, err)
	})
	return found
}

func (w *world) conditions(ctx context.Context, kind tko.Kind, id string) ([]tko.Condition, error) {
	if kind == tko.KindSite {
		s, err := w.Site(ctx, tko.SiteID(id), 0)
		return s.Stamp.Conditions, err
	}
	d, err := w.Deployment(ctx, tko.DeploymentID(id), 0)
	return d.Stamp.Conditions, err
}
