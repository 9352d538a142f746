package location_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/location"
	"github.com/tko-orchestrator/tko/krm"
)

func kptfileOf(name string) string {
	return "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: " + name + "\npipeline: {mutators: [{image: gcr.io/kpt-fn/set-namespace:v0.4.1, configPath: package-context.yaml}]}\n"
}

const (
	packageContext = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\n  annotations: {config.kubernetes.io/local-config: \"true\"}\ndata: {name: example}\n"
	setNamespace   = "apiVersion: fn.kpt.dev/v1alpha1\nkind: SetNamespace\nmetadata:\n  name: ns\n  annotations: {config.kubernetes.io/local-config: \"true\"}\nnamespace: core\n"
)

// network is a kpt package with packages in two levels of directories. Their resources
// for tools have the same names.
var network = map[string]string{
	"Kptfile":                         kptfileOf("network-function"),
	"package-context.yaml":            packageContext,
	"deployment.yaml":                 manifest("main"),
	"sub1/Kptfile":                    kptfileOf("network-function"),
	"sub1/package-context.yaml":       packageContext,
	"sub1/set-namespace.yaml":         setNamespace,
	"sub1/deployment.yaml":            manifest("sub1"),
	"sub1/sub1a/Kptfile":              kptfileOf("network-function"),
	"sub1/sub1a/package-context.yaml": packageContext,
	"sub1/sub1a/deployment.yaml":      manifest("sub1a"),
	"a/Kptfile":                       kptfileOf("other"),
	"a/set-namespace.yaml":            setNamespace,
	"a/package-context.yaml":          packageContext,
}

// Kptfiles, contexts and function configurations of kpt packages in several directories
// have the same names. The package holds all of them, with different names.
func TestKptResourcesOfSeveralDirectoriesAreRenamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	archives := map[string][]byte{"x.tar": tarOf(t, network), "x.zip": zipOf(t, network)}
	locations := []string{writeTree(t, filepath.Join(dir, "folder"), network)}
	for name, data := range archives {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		locations = append(locations, path)
	}
	want := "network-function other kptfile.kpt.dev.a ns main kptfile.kpt.dev network-function.sub1 sub1 kptfile.kpt.dev.sub1 ns.sub1" +
		" network-function.sub1.sub1a sub1a kptfile.kpt.dev.sub1.sub1a"
	for _, at := range locations {
		pkg, err := location.Read(t.Context(), at, location.Options{})
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		if diff := cmp.Diff(want, names(pkg)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", at, diff)
		}
		if err := pkg.Check(); err != nil {
			t.Error(err)
		}
		for _, r := range pkg {
			tool := r.GVK().Kind != "ConfigMap" || strings.HasPrefix(r.Name(), "kptfile.")
			if local := r.Annotation("config.kubernetes.io/local-config") == "true"; local != tool {
				t.Errorf("%s: local %t: a resource for tools must be local, also without the annotation, and others not", r.Identity(), local)
			}
		}
		if last := pkg[len(pkg)-1]; last.Annotation("tko.nephio.org/folder") != "sub1/sub1a" {
			t.Errorf("the annotations of the last resource are %v, want the directory sub1/sub1a", last)
		}
	}
}

// Resources for sites are never renamed: two with the same identity are an error that
// names both files.
func TestResourcesOfSitesKeepTheirNames(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, t.TempDir(), map[string]string{"a.yaml": manifest("same"), "sub/a.yaml": manifest("same"), "sub/Kptfile": kptfileOf("x")})
	_, err := location.Read(t.Context(), dir, location.Options{})
	if err == nil || !strings.Contains(err.Error(), `sub/a.yaml: v1 ConfigMap "same" is also in a.yaml`) {
		t.Errorf("the error is %v, want one that names both files", err)
	}
	// If one of two is for tools, it is renamed.
	dir = writeTree(t, t.TempDir(), map[string]string{
		"a.yaml": strings.Replace(packageContext, "kptfile.kpt.dev", "same", 1), "z/a.yaml": manifest("same"),
		"b/c/d.yaml": strings.Replace(packageContext, "kptfile.kpt.dev", "other", 1), "b/e.yaml": manifest("other"),
	})
	pkg, err := location.Read(t.Context(), dir, location.Options{})
	if err == nil || !strings.Contains(err.Error(), `"same" is also in a.yaml`) {
		t.Errorf("the names are %s, %v; want an error, as a resource in the root has no directory to be named after", names(pkg), err)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if pkg, err = location.Read(t.Context(), dir, location.Options{}); err != nil || names(pkg) != "other.b.c other same" {
		t.Errorf("the names are %s, %v; want other.b.c other same", names(pkg), err)
	}
}

// Setters of kpt are comments, and reading retains them.
func TestReadRetainsSettersOfKpt(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, t.TempDir(), map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  size: \"3\" # kpt-set: ${size}\n"})
	pkg, err := location.Read(t.Context(), dir, location.Options{})
	if err != nil {
		t.Fatal(err)
	}
	setters, err := pkg[0].Setters()
	if diff := cmp.Diff([]krm.Setter{{Field: "/data/size", Pattern: "${size}", Text: true}}, setters); err != nil || diff != "" {
		t.Errorf("the setters, %v (-want +got):\n%s", err, diff)
	}
}
