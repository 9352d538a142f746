// Command gen generates the schemas that package validate embeds, from the
// OpenAPI document and the enumerations in Kubernetes' source.
//
// Kubernetes' published document has no enumerations: they are a feature of the
// running API server. They are read from the generated Go file that the API
// server serves them from.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	version := flag.String("version", "", "version of the module k8s.io/kubernetes")
	out := flag.String("out", "", "output file")
	flag.Parse()
	if err := run(*version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(version, out string) error {
	dir, err := download(version)
	if err != nil {
		return err
	}
	published, err := readOpenAPI(filepath.Join(dir, "api", "openapi-spec", "swagger.json"))
	if err != nil {
		return err
	}
	enums, err := readEnums(filepath.Join(dir, "pkg", "generated", "openapi", "zz_generated.openapi.go"))
	if err != nil {
		return err
	}
	data, err := json.Marshal(convert(version, published, enums))
	if err != nil {
		return err
	}
	return write(out, append(data, '\n'))
}

// download returns the directory of the module's source, whose checksum the go
// command verifies.
func download(version string) (string, error) {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(version) {
		return "", fmt.Errorf("-version %q: use one like v1.37.1", version)
	}
	command := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@"+version) //nolint:gosec,noctx // the version is checked above; a person waits
	command.Stderr = os.Stderr
	response, err := command.Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(response, &module); jsonErr != nil {
		return "", errors.Join(err, jsonErr)
	}
	if module.Error != "" {
		return "", errors.New(module.Error)
	}
	return module.Dir, err
}

// A schema is the part of OpenAPI that Kubernetes' published types use. The
// result has the same form.
type schema struct {
	Ref        string             `json:"$ref,omitempty"`
	Type       string             `json:"type,omitempty"`
	Format     string             `json:"format,omitempty"`
	Enum       []string           `json:"enum,omitempty"`
	Items      *schema            `json:"items,omitempty"`
	Additional *schema            `json:"additionalProperties,omitempty"`
	Properties map[string]*schema `json:"properties,omitempty"`
	Required   []string           `json:"required,omitempty"`

	Kinds []kind `json:"x-kubernetes-group-version-kind,omitempty"`
}

type kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func readOpenAPI(path string) (map[string]*schema, error) {
	data, err := os.ReadFile(path) //nolint:gosec // a file of the module
	if err != nil {
		return nil, err
	}
	var document struct {
		Definitions map[string]*schema `json:"definitions"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	return document.Definitions, nil
}

// An enumeration belongs to a property (or to its items) of a type.
type property struct {
	function string // that returns the type's schema
	name     string
	items    bool
}

var errNoEnums = errors.New("the generated OpenAPI has no enumerations: its form may have changed")

// readEnums finds the enumerations in functions of this form:
//
//	func schema_k8sio_api_core_v1_Container(…) … { …
//		Properties: map[string]spec.Schema{
//			"imagePullPolicy": { … Enum: []interface{}{"Always", …} … }
func readEnums(path string) (map[property][]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	found := map[property][]string{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(f.Name.Name, "schema_") {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if pair, ok := n.(*ast.KeyValueExpr); ok && isName(pair.Key, "Properties") {
				properties, ok := pair.Value.(*ast.CompositeLit)
				if !ok {
					return true
				}
				for _, e := range properties.Elts {
					if p, ok := e.(*ast.KeyValueExpr); ok {
						collectEnums(found, property{function: f.Name.Name, name: text(p.Key)}, p.Value)
					}
				}
				return false
			}
			return true
		})
	}
	if len(found) == 0 {
		return nil, errNoEnums
	}
	return found, nil
}

func collectEnums(found map[property][]string, at property, value ast.Expr) {
	ast.Inspect(value, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		switch {
		case !ok:
			return true
		case isName(pair.Key, "Items"):
			at := at
			at.items = true
			collectEnums(found, at, pair.Value)
			return false
		case isName(pair.Key, "Enum"):
			if list, ok := pair.Value.(*ast.CompositeLit); ok {
				for _, v := range list.Elts {
					found[at] = append(found[at], text(v))
				}
			}
			return false
		default:
			return true
		}
	})
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func text(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok {
		if s, err := strconv.Unquote(literal.Value); err == nil {
			return s
		}
	}
	return ""
}

type result struct {
	Kubernetes  string             `json:"kubernetes"`
	Kinds       map[string]string  `json:"kinds"` // "apps/v1 Deployment": the name of its definition
	Definitions map[string]*schema `json:"definitions"`
}

// convert selects the definitions that kinds need, and the parts of them that
// validation needs.
func convert(version string, published map[string]*schema, enums map[property][]string) result {
	r := result{Kubernetes: version, Kinds: map[string]string{}, Definitions: map[string]*schema{}}
	for name, s := range published {
		if len(s.Kinds) != 1 { // DeleteOptions and WatchEvent are in every group: they are not resources
			continue
		}
		r.Kinds[gvk(s.Kinds[0])] = name
	}
	for _, name := range r.Kinds {
		collect(r.Definitions, published, enums, name)
	}
	return r
}

func gvk(k kind) string {
	if k.Group == "" {
		return k.Version + " " + k.Kind
	}
	return k.Group + "/" + k.Version + " " + k.Kind
}

func collect(selected, published map[string]*schema, enums map[property][]string, name string) {
	if selected[name] != nil {
		return
	}
	s := published[name]
	selected[name] = s
	function := "schema_k8sio_" + strings.NewReplacer(".", "_", "-", "_").Replace(strings.TrimPrefix(name, "io.k8s."))
	for key, p := range s.Properties {
		p.Enum = enums[property{function: function, name: key}]
		if p.Items != nil {
			p.Items.Enum = enums[property{function: function, name: key, items: true}]
		}
	}
	visit(s, func(s *schema) {
		s.Kinds = nil
		slices.Sort(s.Required)
		if s.Format != "date-time" && s.Format != "int-or-string" {
			s.Format = "" // widths of numbers, which Kubeconform doesn't check either
		}
		if name == "io.k8s.apimachinery.pkg.api.resource.Quantity" {
			s.Format = "quantity"
		}
		if s.Ref != "" {
			s.Ref = strings.TrimPrefix(s.Ref, "#/definitions/")
			collect(selected, published, enums, s.Ref)
		}
	})
}

func visit(s *schema, f func(*schema)) {
	if s == nil {
		return
	}
	f(s)
	visit(s.Items, f)
	visit(s.Additional, f)
	for _, p := range s.Properties {
		visit(p, f)
	}
}

// write does not change a file with the same content: compressed bytes may
// differ from one release of Go to the next.
func write(path string, data []byte) error {
	if same(path, data) {
		return nil
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644) //nolint:gosec // a source file, for all to read
}

func same(path string, data []byte) bool {
	f, err := os.Open(path) //nolint:gosec // the file to write
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	r, err := gzip.NewReader(f)
	if err != nil {
		return false
	}
	old, err := io.ReadAll(r)
	return err == nil && bytes.Equal(old, data)
}
