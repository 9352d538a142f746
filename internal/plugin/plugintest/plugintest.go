package plugintest

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/krm"
)

// The flag may be another package's of the same test.
func init() {
	if flag.Lookup("update") == nil {
		flag.Bool("update", false, "rewrite the golden files with what the plugins answer")
	}
}

func updating() bool {
	f := flag.Lookup("update")
	on, err := strconv.ParseBool(f.Value.String())
	return err == nil && on
}

// Run runs a plugin (its program and arguments, paths relative to the test's
// folder) on every case of a folder: CASE/in.yaml is the document that the
// plugin reads, CASE/want.yaml the document that it must write, in which an
// error is enough. The type of the plugin follows from what is in in.yaml;
// grpc, logFile and logAddressPort need not be there.
//
// Every case is run twice, the second time on the package that came out of the
// first, and must say the same again: running twice is running once. With the
// flag -update, want.yaml is written and not compared.
func Run(t *testing.T, dir string, arguments ...string) {
	t.Helper()
	RunPlugin(t, dir, tko.Plugin{Name: filepath.Base(arguments[0]), Executor: tko.ExecutorCommand, Arguments: arguments})
}

// RunPlugin is Run of a plugin of any executor, such as a KRM function and the
// properties that its inputs come from. Its type follows from the cases.
func RunPlugin(t *testing.T, dir string, p tko.Plugin) {
	t.Helper()
	cases, err := filepath.Glob(filepath.Join(dir, "*", "in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatalf("there are no cases (CASE/in.yaml) in %s", dir)
	}
	for _, in := range cases {
		t.Run(filepath.Base(filepath.Dir(in)), func(t *testing.T) { runCase(t, in, p) })
	}
}

func runCase(t *testing.T, path string, p tko.Plugin) {
	in := read(t, path)
	runner := plugin.New(plugin.Options{Dir: t.TempDir()})
	got := run(t, runner, in, p)

	golden := filepath.Join(filepath.Dir(path), "want.yaml")
	if updating() {
		data, err := krm.Encode(krm.YAML, krm.Package{got})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, data, 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(read(t, golden), got); diff != "" {
		t.Errorf("the plugin's answer differs from %s (-want +got); -update writes it:\n%s", golden, diff)
	}

	if pkg, ok := got["package"]; ok {
		in["deploymentPackage"] = pkg
	}
	again := run(t, runner, in, p)
	if _, ok := again["package"]; !ok && again["error"] == nil {
		// that there is nothing to do any more is as good
		delete(got, "package")
		delete(got, "prepared")
		delete(again, "prepared")
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the plugin's second run, on the answer of the first, changes something (-first +second):\n%s", diff)
	}
}

func read(t *testing.T, path string) krm.Resource {
	t.Helper()
	data, err := os.ReadFile(path) //nolint:gosec // a file of the test
	if err != nil {
		t.Fatal(err)
	}
	documents, err := krm.Decode(krm.YAML, data, krm.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	switch len(documents) {
	case 0:
		return krm.Resource{}
	case 1:
		return documents[0]
	}
	t.Fatalf("%s has %d documents: it must have one", path, len(documents))
	return nil
}

// run runs the plugin on an input and makes its answer a document again.
func run(t *testing.T, runner *plugin.Runner, in krm.Resource, p tko.Plugin) krm.Resource {
	t.Helper()
	target := krm.Identity{
		GVK: krm.GVK{
			Group:   in.Text("targetResourceIdentifier", "group"),
			Version: in.Text("targetResourceIdentifier", "version"),
			Kind:    in.Text("targetResourceIdentifier", "kind"),
		},
		Name: in.Text("targetResourceIdentifier", "name"),
	}
	out := krm.Resource{}
	var err error
	switch {
	case in["sitePackage"] != nil:
		p.Type = tko.PluginSchedule
		deployments := map[tko.DeploymentID]krm.Package{}
		if all, ok := in["deployments"].(map[string]any); ok {
			for id, pkg := range all {
				deployments[tko.DeploymentID(id)] = packageOf(t, pkg)
			}
		}
		err = runner.Schedule(t.Context(), p, target, tko.SiteID(in.Text("siteId")), packageOf(t, in["sitePackage"]), deployments)
	case in["deploymentPackage"] != nil:
		p.Type = tko.PluginPrepare
		var prepared bool
		var pkg krm.Package
		prepared, pkg, err = runner.Prepare(t.Context(), p, target, tko.DeploymentID(in.Text("deploymentId")), packageOf(t, in["deploymentPackage"]))
		if err == nil {
			out["prepared"] = prepared
		}
		if prepared {
			resources := make([]any, len(pkg))
			for i, r := range pkg {
				resources[i] = map[string]any(r)
			}
			out["package"] = resources
		}
	default:
		p.Type = tko.PluginValidate
		complete, ok := in["complete"].(bool)
		err = runner.Validate(t.Context(), p, target, packageOf(t, in["package"]), complete && ok)
	}
	if err != nil {
		var e *plugin.Error
		if !errors.As(err, &e) || !e.Refused {
			t.Fatal(err)
		}
		out["error"] = e.Message
	}
	return out
}

func packageOf(t *testing.T, value any) krm.Package {
	t.Helper()
	list, ok := value.([]any)
	if !ok {
		t.Fatal("a package of the input is missing, or not a list")
	}
	p := make(krm.Package, len(list))
	for i, item := range list {
		r, ok := item.(map[string]any)
		if !ok {
			t.Fatalf("resource %d of a package of the input is not a map", i)
		}
		p[i] = r
	}
	return p
}
