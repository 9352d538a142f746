package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/tools/generate"
)

// A plainMethod is a method that reads its request, calls the catalog, and writes the result:
// its handler and its client follow from the types of the catalog's method.
type plainMethod struct {
	Service, RPC, Method string // Why, CompareSite, CompareSite
	Handler, Stub        string // the types that serve and call the service
	Request, Response    string // messages: tkopb.CompareSite
	List                 bool   // the response is a stream of rows, which the catalog returns at once
	Streams              bool   // the response is a stream of rows, as the catalog reads them
	Comment              []string
	Params               []param
	Result, ResultPair   string // a type of the vocabulary, and its pair
	Pair                 string // of a request that is a type of the vocabulary; "" if its fields are parameters
	Made                 []pair // those of its pairs that are generated, too
}

// A pair is a wire.Pair of a type of the vocabulary and a message.
type pair struct{ Name, Type, Message string }

// madePairs returns the pairs that plain methods need and package wire has none of.
func madePairs(s *generate.Source) (any, error) {
	methods, err := plainMethods(s)
	if err != nil {
		return nil, err
	}
	var all []pair
	for _, m := range methods {
		all = append(all, m.Made...)
	}
	slices.SortFunc(all, func(a, b pair) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(all), nil
}

// Returns returns what the method of the catalog, and that of the client, return.
func (m plainMethod) Returns() string {
	switch {
	case m.Streams:
		return "iter.Seq2[" + m.Result + ", error]"
	case m.List:
		return "([]" + m.Result + ", error)"
	}
	return "(" + m.Result + ", error)"
}

// A param is a parameter of a method: the whole request, or one of its fields.
type param struct{ Name, Type, Field, Read, Write string }

// handlers are the types of package grpcapi that serve the services.
var handlers = map[string]string{"Data": "data", "Access": "rights", "Rollouts": "rollouts", "Why": "why", "Past": "pastService", "Admin": "admin", "Logs": "logs"}

func plainData(s *generate.Source) (any, error) { return plainMethods(s) }

// plainMethods returns the plain methods, in the order of their full names.
func plainMethods(*generate.Source) ([]plainMethod, error) {
	pairs, err := pairsOfWire(sourceOf("internal/wire"))
	if err != nil {
		return nil, err
	}
	var files []string // of the catalog and its rooms
	for _, room := range []string{"changelog", "enrollment", "history", "hold", "rights", "rollout/service", "source", "workqueue", "catalog"} {
		files = append(files, sourceOf("internal/"+room)...)
	}
	comments, err := commentsOf(files)
	if err != nil {
		return nil, err
	}
	rights := grpcapi.Rights()
	var all []plainMethod
	for _, full := range slices.Sorted(maps.Keys(rights)) {
		if rights[full].Plain == "" {
			continue
		}
		m, err := newPlainMethod(full, rights[full].Plain, pairs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", full, err)
		}
		m.Comment = comments[m.Method]
		all = append(all, m)
	}
	return all, nil
}

func newPlainMethod(full, name string, pairs map[string]string) (plainMethod, error) {
	service, rpc, _ := strings.Cut(strings.TrimPrefix(full, "/tko."), "/")
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("tko." + service + "." + rpc))
	if err != nil {
		return plainMethod{}, err
	}
	described, _ := descriptor.(protoreflect.MethodDescriptor)
	method, ok := reflect.TypeFor[*catalog.Service]().MethodByName(name)
	if !ok {
		return plainMethod{}, fmt.Errorf("the catalog has no method %s", name)
	}
	in, out := described.Input(), described.Output()
	m := plainMethod{
		Service: service, RPC: strings.ToUpper(rpc[:1]) + rpc[1:], Method: name, Handler: handlers[service], Stub: strings.ToLower(service),
		Request: messageType(in), Response: messageType(out),
	}
	signature := method.Type // of the receiver, the context, and the parameters
	result := signature.Out(0)
	m.Streams = signature.NumOut() == 1 && result.Kind() == reflect.Func
	m.List = signature.NumOut() == 2 && result.Kind() == reflect.Slice
	if signature.NumOut() != 2 && !m.Streams || signature.IsVariadic() || described.IsStreamingServer() != (m.List || m.Streams) {
		return m, fmt.Errorf("%s doesn't return a result, or a list for a stream, and an error: write it by hand", name)
	}
	if m.Streams {
		result = result.In(0).In(0) // of the entries of an iter.Seq2
	}
	m.Result = strings.TrimPrefix(result.String(), "[]")
	m.ResultPair = m.pair(pairs, m.Result, m.Response)
	if signature.NumIn() == 3 && signature.In(2).Kind() == reflect.Struct {
		whole := signature.In(2).String()
		m.Pair = m.pair(pairs, whole, m.Request)
		m.Params = []param{{Name: "r", Type: whole, Read: "wire." + m.Pair + ".Read(m)"}}
		return m, nil
	}
	for i := range signature.NumIn() - 2 {
		one, err := newParam(signature.In(i+2), in.Fields(), i)
		if err != nil {
			return m, err
		}
		m.Params = append(m.Params, one)
	}
	return m, nil
}

// pair returns the name of the pair of a type and a message: the one that is written by hand, or
// one that is made.
func (m *plainMethod) pair(pairs map[string]string, typ, message string) string {
	if name := pairs[typ+" "+message]; name != "" {
		return name
	}
	_, name, _ := strings.Cut(typ, ".")
	m.Made = append(m.Made, pair{name, typ, message})
	return name
}

// messageType returns the type of a message in Go.
func messageType(m protoreflect.MessageDescriptor) string {
	if m.FullName() == "google.protobuf.Empty" {
		return "emptypb.Empty"
	}
	return "tkopb." + string(m.Name())
}

// newParam returns the parameter that is a field of the request: the first parameter is the
// first field.
func newParam(typ reflect.Type, fields protoreflect.FieldDescriptors, n int) (param, error) {
	if n >= fields.Len() {
		return param{}, fmt.Errorf("the request has %d fields only", fields.Len())
	}
	f := fields.Get(n)
	name := string(f.Name())
	p := param{Name: name, Type: typ.String(), Field: strings.ToUpper(name[:1]) + name[1:]}
	if base, isID := strings.CutSuffix(name, "Id"); isID {
		p.Name = base + "ID"
	}
	p.Read, p.Write = "m.Get"+p.Field+"()", p.Name
	kinds := map[protoreflect.Kind]reflect.Kind{protoreflect.StringKind: reflect.String, protoreflect.BoolKind: reflect.Bool, protoreflect.Int64Kind: reflect.Int64}
	if kinds[f.Kind()] != typ.Kind() || f.IsList() {
		return p, fmt.Errorf("the field %s doesn't fit the parameter %s: write the method by hand", name, typ)
	}
	if typ.Kind() == reflect.String && typ.String() != "string" {
		p.Read, p.Write = typ.String()+"("+p.Read+")", "string("+p.Name+")"
	}
	return p, nil
}

// sourceOf returns the files of a package. Commands run in the root of the repository, and tests
// in their folder.
func sourceOf(folder string) []string {
	root := "."
	if _, err := os.Stat("tools"); err != nil {
		root = filepath.Join("..", "..")
	}
	files, _ := filepath.Glob(filepath.Join(root, folder, "*.go")) // the pattern is right
	return files
}

// parsed calls visit with the declarations of files without tests.
func parsed(files []string, visit func(ast.Decl)) error {
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "zz_generated_pairs.go" {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range tree.Decls {
			visit(d)
		}
	}
	return nil
}

// pairsOfWire returns the names of the pairs of package wire, by their types: "tko.Stop tkopb.Stop".
func pairsOfWire(files []string) (map[string]string, error) {
	pairs := map[string]string{}
	err := parsed(files, func(d ast.Decl) {
		variables, ok := d.(*ast.GenDecl)
		if !ok || variables.Tok != token.VAR {
			return
		}
		for _, spec := range variables.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || len(value.Values) != 1 || !value.Names[0].IsExported() {
				continue
			}
			call, ok := value.Values[0].(*ast.CallExpr)
			if !ok {
				continue
			}
			made, ok := call.Fun.(*ast.IndexListExpr)
			if !ok || len(made.Indices) != 2 {
				continue
			}
			vocabulary, isType := made.Indices[0].(*ast.SelectorExpr)
			message, isMessage := made.Indices[1].(*ast.SelectorExpr)
			if isType && isMessage {
				pairs["tko."+vocabulary.Sel.Name+" tkopb."+message.Sel.Name] = value.Names[0].Name
			}
		}
	})
	return pairs, err
}

// commentsOf returns the comments of methods, by their names.
func commentsOf(files []string) (map[string][]string, error) {
	comments := map[string][]string{}
	err := parsed(files, func(d ast.Decl) {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.IsExported() && f.Doc != nil {
			comments[f.Name.Name] = strings.Split(strings.TrimSpace(f.Doc.Text()), "\n")
		}
	})
	return comments, err
}
