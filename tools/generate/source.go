package generate

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// module is the import path of the repository.
const module = "github.com/tko-orchestrator/tko"

// A Source knows the comments of types.
type Source struct {
	comments map[string]string // by PACKAGE.TYPE and PACKAGE.TYPE.FIELD
}

// folders are those of the packages whose types are described.
var folders = []string{".", "internal/webapi"} // relative to the root

// readSource parses the packages.
func readSource(root string) (*Source, error) {
	s := &Source{comments: map[string]string{}}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			s.read(path.Join(module, folder), parsed)
		}
	}
	return s, nil
}

func (s *Source) read(pkg string, file *ast.File) {
	for _, declaration := range file.Decls {
		types, ok := declaration.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		for _, spec := range types.Specs {
			t, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			s.comments[pkg+"."+t.Name.Name] = text(t.Doc, types.Doc)
			structure, ok := t.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, field := range structure.Fields.List {
				for _, name := range field.Names {
					s.comments[pkg+"."+t.Name.Name+"."+name.Name] = text(field.Doc, field.Comment)
				}
			}
		}
	}
}

// text returns the first of the comments that there is, as one line.
func text(groups ...*ast.CommentGroup) string {
	for _, group := range groups {
		if line := strings.Join(strings.Fields(group.Text()), " "); line != "" {
			return line
		}
	}
	return ""
}

// links are those to names in Go.
var links = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// Field returns the comment of a field of a type for readers who don't know its name in Go; ""
// if it has none.
func (s *Source) Field(of reflect.Type, name string) string {
	if f, ok := of.FieldByName(name); ok && len(f.Index) > 1 { // of an embedded type
		return s.Field(of.FieldByIndex(f.Index[:len(f.Index)-1]).Type, name)
	}
	typ, _, _ := strings.Cut(of.Name(), "[")
	comment := links.ReplaceAllString(s.comments[of.PkgPath()+"."+typ+"."+name], "$1")
	for _, verb := range []string{" is ", " are "} {
		if rest, ok := strings.CutPrefix(comment, name+verb); ok {
			return rest
		}
	}
	return comment
}

// formatted returns a file as its formatter writes it.
func formatted(name string, data []byte) ([]byte, error) {
	if strings.HasSuffix(name, ".go") {
		return format.Source(data)
	}
	return data, nil
}
