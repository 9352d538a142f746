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

// Another package of the same test may have defined the flag.
func init() {
	if flag.Lookup("update") == nil {
		flag.Bool("update", false, "rewrite the golden files with the plugins' output")
	}
}

func updating() bool {
	f := flag.Lookup("update")
	on, err := strconv.ParseBool(f.Value.String())
	return err == nil && on
}

// Run runs a plugin (its program and arguments, paths relative to the test's
// directory) on every case of a directory. CASE/in.yaml is the plugin's input,
// CASE/want.yaml the output that it must write (only the key error if the
// plugin must refuse). The keys of in.yaml determine the plugin's type; grpc,
// logFile and logAddressPort may be absent.
//
// Every case runs twice, the second time on the package that the first run
// returned, and must have the same output: running twice equals running once.
// With the flag -update, want.yaml is written instead of compared.
func Run(t *testing.T, dir string, arguments ...string) {
	t.Helper()
	RunPlugin(t, dir, tko.Plugin{Name: filepath.Base(arguments[0]), Executor: tko.ExecutorCommand, Arguments: arguments})
}

// RunPlugin is Run for a plugin of any executor, such as a KRM function with
// its properties. The cases determine its type.
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
	runner := plugin.New(plugin.Options{Programs: []string{"/"}, Dir: t.TempDir()})
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
		t.Errorf("the plugin's output differs from %s (-want +got); -update rewrites it:\n%s", golden, diff)
	}

	if pkg, ok := got["package"]; ok {
		in["deploymentPackage"] = pkg
	}
	again := run(t, runner, in, p)
	if _, ok := again["package"]; !ok && again["error"] == nil {
		// a second run that finds nothing to do is also correct
		delete(got, "package")
		delete(got, "prepared")
		delete(again, "prepared")
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the plugin's second run, on the output of the first, changes the package (-first +second):\n%s", diff)
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

// run runs the plugin on an input and returns its output as a document.
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
		err = runner.Schedule(t.Context(), p, target, tko.Site{ID: tko.SiteID(in.Text("siteId")), Package: packageOf(t, in["sitePackage"])}, deployments)
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
