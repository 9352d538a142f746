package conventions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko/api/tkopb"
)

// Fields of entities are written by hand in several languages. These tests find the form that
// lacks one. Their exceptions may only become fewer.

// jsonFields returns the names in JSON of the fields of the structs in a Go file, by struct.
func jsonFields(t *testing.T, file string) map[string][]string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string][]string{}
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		body, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range body.Fields.List {
			if f.Tag == nil {
				continue
			}
			tag, _ := strconv.Unquote(f.Tag.Value)
			if name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ","); name != "" {
				fields[spec.Name.Name] = append(fields[spec.Name.Name], name)
			}
		}
		return true
	})
	return fields
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// between returns the part of a text from a mark to the next end after it.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, from)
	part, _, ended := strings.Cut(rest, to)
	if !ok || !ended {
		t.Fatalf("the text has no %q up to %q", from, to)
	}
	return part
}

func TestKubernetesPageNamesEachFieldOfTheTypes(t *testing.T) {
	t.Parallel()
	types := jsonFields(t, filepath.Join("..", "..", "api", "v1alpha1", "types.go"))
	table := between(t, text(t, "docs/kubernetes-api.md"), "## Fields\n", "\n\n**")
	kinds := 0
	for name, fields := range types {
		kind, part := strings.TrimSuffix(name, "Spec"), 1
		if kind == name {
			kind, part = strings.TrimSuffix(name, "Status"), 2
		}
		if kind == name || types[kind] == nil {
			continue
		}
		kinds++
		row := regexp.MustCompile(`(?m)^\| \[?` + kind + `\b.*\|$`).FindString(table)
		if row == "" {
			t.Errorf("the table of docs/kubernetes-api.md lacks the kind %s", kind)
			continue
		}
		cell := strings.Split(strings.Trim(row, "|"), "|")[part]
		for _, field := range fields {
			if field == "package" {
				field = "package.resources"
			}
			if !strings.Contains(cell, "`"+field+"`") {
				t.Errorf("the table of docs/kubernetes-api.md lacks the field %s of %s", field, name)
			}
		}
	}
	if kinds < 9 {
		t.Errorf("%d specs and statuses were found, want at least 9", kinds)
	}
}

// notInPython are fields of messages that the results of the Python client lack, with the
// reason.
var notInPython = map[string]string{
	"Deployment.stamp":       "its parts that clients use are fields of the result",
	"ListedDeployment.stamp": "as above",
	"Site.stamp":             "as above",
	"ListedSite.stamp":       "as above",
	"Site.keepPackage":       "only of requests",
	"Template.stamp":         "as above",
	"ListedTemplate.stamp":   "as above",
	"Template.keepPackage":   "only of requests",
	"Site.details":           "its parts are fields of the result",
	"ListedSite.details":     "as above",
	"Template.details":       "as above",
	"ListedTemplate.details": "as above",
	"Plugin.stamp":           "plugins have no conditions that clients of the SDK use",
}

func TestPythonResultsHaveEachFieldOfTheirMessages(t *testing.T) {
	t.Parallel()
	python := text(t, "sdk/python/src/tko/client.py")
	common := between(t, python, "class _Packaged:", "\n@dataclass")
	unused := map[string]bool{}
	for name := range notInPython {
		unused[name] = true
	}
	for class, messages := range map[string][]proto.Message{
		"class Deployment(":      {&tkopb.Deployment{}, &tkopb.ListedDeployment{}},
		"class Site(":            {&tkopb.Site{}, &tkopb.ListedSite{}},
		"class Template(":        {&tkopb.Template{}, &tkopb.ListedTemplate{}},
		"class Condition:":       {&tkopb.Condition{}},
		"class RegisteredPlugin": {&tkopb.Plugin{}},
	} {
		body := between(t, python, class, "\n\n\n")
		if strings.HasSuffix(class, "(") {
			body += common
		}
		for _, m := range messages {
			fields := m.ProtoReflect().Descriptor().Fields()
			for i := range fields.Len() {
				name := string(m.ProtoReflect().Descriptor().Name()) + "." + string(fields.Get(i).Name())
				has := regexp.MustCompile(`(?m)^    ` + snake(string(fields.Get(i).Name())) + `: `).MatchString(body)
				_, excepted := notInPython[name]
				delete(unused, name)
				if has == excepted {
					t.Errorf("%s is in the results of sdk/python/src/tko/client.py: %t, an exception: %t", name, has, excepted)
				}
			}
		}
	}
	for name := range unused {
		t.Errorf("there is no field %s: remove the exception", name)
	}
}

func snake(name string) string {
	var b strings.Builder
	for _, c := range name {
		if unicode.IsUpper(c) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
