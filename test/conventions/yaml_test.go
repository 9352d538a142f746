package conventions_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// yamlReaders are the files that read YAML by a library, and why. All others use package
// yaml12, or krm for packages: readers of YAML 1.1 make false of NO, and 83 of 0123.
var yamlReaders = map[string]string{
	"internal/yaml12/yaml12.go": "the reader",

	"krm/decode_yaml.go": "packages, as kubectl reads them",
	"krm/secrettext.go":  "YAML within packages, to find secrets in it",
	"krm/setters.go":     "comments of packages",

	"internal/config/config.go":                       "settings, of which each stays as it is written until its flag parses it",
	"internal/gitops/sops/file.go":                    "encrypted files, as SOPS reads them: it authenticates the values",
	"internal/osm/bundle/descriptor.go":               "descriptors, as Open Source MANO reads them",
	"internal/osm/bundle/package.go":                  "descriptors, which are written back with their comments",
	"internal/osm/osmops/osmops.go":                   "nodes with their lines; values stay as they are written",
	"internal/osm/osmtest/packages.go":                "a stand-in for Open Source MANO",
	"internal/osm/osmtest/server.go":                  "a stand-in for Open Source MANO",
	"internal/prepare/tosca/files.go":                 "nodes, of which only the names of imports are read",
	"internal/schedule/kubernetes/helm/client.go":     "definitions of charts, as Helm applies them",
	"internal/schedule/kubernetes/helm/definition.go": "definitions of charts, as Helm applies them",
	"internal/schedule/kubernetes/helm/manifest.go":   "objects of a release, as Helm applies them",
	"internal/rollout/merge/gen/main.go":              "a generator, of a file of ours",
	"examples/plugins/inventory/main.go":              "a plugin, which can't use packages of the server",
	"examples/plugins/namespace/main.go":              "a plugin, which can't use packages of the server",
	"examples/plugins/pools/main.go":                  "a plugin, which can't use packages of the server",
}

var (
	yamlLibrary = regexp.MustCompile(`(^|/)(go)?-?yaml(\.v[0-9])?(/v[0-9])?(/goyaml\.v[0-9])?$`)
	reads       = []string{
		"Unmarshal", "UnmarshalStrict", "UnmarshalWithOptions", "UnmarshalContext", "NewDecoder", "NewYAMLOrJSONDecoder", "NewYAMLToJSONDecoder", "NewDocumentDecoder",
		"YAMLToJSON", "YAMLToJSONStrict", "ToJSON", "Parse", "MustParse", "FromJSON", "Load", "LoadAll",
	}
)

// readsYAML returns the first call in a file that reads YAML by a library; "" if there is none.
func readsYAML(t *testing.T, file string) (call string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if !yamlLibrary.MatchString(imported) {
			continue
		}
		name := "yaml"
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		library, ok := selector.X.(*ast.Ident)
		if ok && names[library.Name] != "" && slices.Contains(reads, selector.Sel.Name) && call == "" {
			call = path.Base(names[library.Name]) + "." + selector.Sel.Name
		}
		return true
	})
	return call
}

func TestOneReaderOfYAML(t *testing.T) {
	t.Parallel()
	const root = "../.."
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (slices.Contains([]string{"testdata", "node_modules", "tools", ".git", "bin"}, d.Name()) || path.Base(file) == "pgdata") {
			return fs.SkipDir
		}
		if filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		call := readsYAML(t, file)
		if call == "" {
			return nil
		}
		found[name] = true
		if yamlReaders[name] == "" {
			t.Errorf("%s reads YAML by %s: use internal/yaml12, or give a reason in the list of this test", name, call)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range yamlReaders {
		if !found[name] {
			t.Errorf("%s no longer reads YAML by a library: remove it from the list of this test", name)
		}
	}
}

func TestReadersOfYAMLAreRecognized(t *testing.T) {
	t.Parallel()
	for library, want := range map[string]bool{
		"sigs.k8s.io/yaml": true, "sigs.k8s.io/yaml/goyaml.v2": true, "go.yaml.in/yaml/v3": true, "gopkg.in/yaml.v3": true, "github.com/goccy/go-yaml": true,
		"k8s.io/apimachinery/pkg/util/yaml": true, "sigs.k8s.io/kustomize/kyaml/yaml": true, "sigs.k8s.io/kustomize/kyaml/kio": false,
		"github.com/tko-orchestrator/tko/internal/yaml12": false,
	} {
		if got := yamlLibrary.MatchString(library); got != want {
			t.Errorf("%s is a library of YAML: %v, want %v", library, got, want)
		}
	}
}
