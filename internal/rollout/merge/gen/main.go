// Command gen generates the list types that package merge embeds: the merge keys
// of Kubernetes' lists, their defaults, and the maps that are replaced as a whole.
//
// It reads them from the schema of structured-merge-diff in the source of
// k8s.io/client-go, which server-side apply uses, too. Programs don't need to
// contain client-go for it. The names of kinds are those of the schemas of package
// validate.
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
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

func main() {
	kinds := flag.String("kinds", "", "File with the schemas of package validate")
	out := flag.String("out", "", "Output file")
	flag.Parse()
	if err := run(*kinds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(kindsFile, out string) error {
	text, err := readSchema()
	if err != nil {
		return err
	}
	var s schema.Schema
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	kinds, err := readKinds(kindsFile)
	if err != nil {
		return err
	}
	data, err := json.Marshal(convert(&s, kinds))
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(out, packed.Bytes(), 0o644) //nolint:gosec // a file of the source tree
}

// readSchema returns the constant schemaYAML of client-go.
func readSchema() (string, error) {
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go") //nolint:noctx // a person waits
	command.Stderr = os.Stderr
	dir, err := command.Output()
	if err != nil {
		return "", err
	}
	name := filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations", "internal", "internal.go")
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		return "", err
	}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, one := range g.Specs {
			v, ok := one.(*ast.ValueSpec)
			if !ok || v.Names[0].Name != "schemaYAML" || len(v.Values) != 1 {
				continue
			}
			call, ok := v.Values[0].(*ast.CallExpr) // typed.YAMLObject(`…`)
			if !ok {
				return "", errors.New("schemaYAML is not a conversion")
			}
			literal, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				return "", errors.New("schemaYAML is not a literal")
			}
			return strconv.Unquote(literal.Value)
		}
	}
	return "", fmt.Errorf("%s: schemaYAML not found", name)
}

func readKinds(name string) (map[string]string, error) {
	file, err := os.Open(name) //nolint:gosec // named on the command line
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	r, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var s struct {
		Kinds map[string]string `json:"kinds"`
	}
	return s.Kinds, json.Unmarshal(data, &s)
}

// The form of the embedded file, which package merge reads. A node without a
// field is one of which nothing needs to be known: maps are merged by key, lists
// are replaced.
type (
	document struct {
		Kinds map[string]string `json:"kinds"`
		Types map[string]*node  `json:"types"`
	}
	node struct {
		Ref      string           `json:"ref,omitempty"`
		Atomic   bool             `json:"atomic,omitempty"` // of a map
		Set      bool             `json:"set,omitempty"`
		Keys     []string         `json:"keys,omitempty"`
		Defaults map[string]any   `json:"defaults,omitempty"` // of keys
		Fields   map[string]*node `json:"fields,omitempty"`
		Values   *node            `json:"values,omitempty"` // of a map
		Items    *node            `json:"items,omitempty"`
	}
)

type converter struct {
	schema *schema.Schema
	named  map[string]schema.TypeDef
	useful map[string]bool
}

func convert(s *schema.Schema, kinds map[string]string) document {
	c := converter{schema: s, named: map[string]schema.TypeDef{}, useful: map[string]bool{}}
	for _, t := range s.Types {
		c.named[t.Name] = t
	}
	// A type is useful if it says something or refers to a useful one: repeat until
	// nothing changes, because types are recursive.
	for changed := true; changed; {
		changed = false
		for name, t := range c.named {
			if !c.useful[name] && c.atom(t.Atom) != nil {
				c.useful[name], changed = true, true
			}
		}
	}
	d := document{Kinds: map[string]string{}, Types: map[string]*node{}}
	for gvk, name := range kinds {
		if c.useful[name] {
			d.Kinds[gvk] = name
			c.reach(name, d.Types)
		}
	}
	return d
}

func (c converter) reach(name string, into map[string]*node) {
	if into[name] != nil {
		return
	}
	n := c.atom(c.named[name].Atom)
	into[name] = n
	var walk func(n *node)
	walk = func(n *node) {
		if n == nil {
			return
		}
		if n.Ref != "" {
			c.reach(n.Ref, into)
		}
		for _, f := range n.Fields {
			walk(f)
		}
		walk(n.Values)
		walk(n.Items)
	}
	walk(n)
}

func (c converter) ref(r schema.TypeRef) *node {
	if r.NamedType != nil {
		if !c.useful[*r.NamedType] {
			return nil
		}
		return &node{Ref: *r.NamedType, Atomic: r.ElementRelationship != nil && *r.ElementRelationship == schema.Atomic}
	}
	return c.atom(r.Inlined)
}

func (c converter) atom(a schema.Atom) *node {
	switch {
	case a.Map != nil:
		if a.Map.ElementRelationship == schema.Atomic {
			return &node{Atomic: true}
		}
		n := &node{}
		for _, f := range a.Fields {
			if inner := c.ref(f.Type); inner != nil {
				if n.Fields == nil {
					n.Fields = map[string]*node{}
				}
				n.Fields[f.Name] = inner
			}
		}
		n.Values = c.ref(a.Map.ElementType)
		if n.Fields == nil && n.Values == nil {
			return nil
		}
		return n
	case a.List != nil && a.List.ElementRelationship == schema.Associative:
		if len(a.Keys) == 0 {
			return &node{Set: true}
		}
		return &node{Keys: a.Keys, Defaults: c.defaults(a.List), Items: c.ref(a.List.ElementType)}
	}
	return nil
}

// defaults returns the defaults of the keys of a list. An empty string and 0 are no
// defaults: they are the zero values of the Go types of required keys.
func (c converter) defaults(l *schema.List) map[string]any {
	element, ok := c.schema.Resolve(l.ElementType)
	if !ok || element.Map == nil {
		return nil
	}
	var out map[string]any
	for _, key := range l.Keys {
		for _, f := range element.Fields {
			if f.Name == key && f.Default != nil && f.Default != "" && f.Default != 0 {
				if out == nil {
					out = map[string]any{}
				}
				out[key] = f.Default
			}
		}
	}
	return out
}
