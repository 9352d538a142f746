// Package compile is the part of TOSCA that runs in a process of its own:
// Puccini, whose input comes from people whom nobody knows. It is not linked
// into the server. Start reading at [Main].
package compile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tliron/exturl"
	"github.com/tliron/go-ard"
	"github.com/tliron/kutil/terminal"
	"github.com/tliron/puccini/normal"
	"github.com/tliron/puccini/tosca/parser"

	"github.com/tko-orchestrator/tko/internal/prepare/tosca"
)

// Main reads a request, gives up all rights that the process has and doesn't
// need, compiles, and writes the response. The error is about the streams, or
// the rights.
func Main(in io.Reader, out io.Writer) error {
	var request tosca.Request
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if err := confine(); err != nil {
		return err
	}
	service, err := Compile(context.Background(), request)
	response := tosca.Response{Service: service}
	if err != nil {
		response.Problem = err.Error()
	}
	if err := json.NewEncoder(out).Encode(response); err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	return nil
}

// Compile compiles a service template. One process should do it once: files
// stay registered.
func Compile(ctx context.Context, request tosca.Request) (*tosca.Service, error) {
	for name, content := range request.Files {
		exturl.UpdateInternalURL(name, []byte(content))
	}
	urls := exturl.NewContext()
	for name := range request.Files {
		// What is imported by its whole address was fetched under that name.
		if scheme, rest, ok := strings.Cut(strings.TrimPrefix(name, "/"), "/"); ok {
			urls.Map(scheme+"://"+rest, "internal:"+name)
		}
	}
	c := parser.NewParser().NewContext()
	c.URL = urls.NewInternalURL(request.Root)
	c.Stylist = terminal.NewStylist(false)
	template, err := c.Parse(ctx)
	if err != nil {
		return nil, problems(c, err)
	}
	return service(template)
}

// problems says what Puccini found.
func problems(c *parser.Context, err error) error {
	if c.Root == nil {
		return err
	}
	found := c.GetProblems().Slice()
	var texts []string
	for i, p := range found {
		if i == 10 {
			texts = append(texts, fmt.Sprintf("and %d more", len(found)-i))
			break
		}
		text := p.Message
		if p.Item != "" {
			text = p.Item + ": " + text
		}
		if p.Row > 0 {
			text += fmt.Sprintf(" (line %d)", p.Row)
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return fmt.Errorf("%w: is it TOSCA, and does it say which by a tosca_definitions_version that is known?", err)
	}
	return fmt.Errorf("%s", strings.Join(texts, "; "))
}

func service(template *normal.ServiceTemplate) (*tosca.Service, error) {
	s := &tosca.Service{}
	r := reader{inputs: template.Inputs}
	for _, name := range slices.Sorted(maps.Keys(template.NodeTemplates)) {
		t := template.NodeTemplates[name]
		node := tosca.Node{Name: name, Types: slices.Sorted(maps.Keys(t.Types))}
		for _, name := range slices.Sorted(maps.Keys(t.Properties)) {
			property, err := r.property(name, t.Properties[name])
			if err != nil {
				return nil, fmt.Errorf("node template %q: property %q: %w", node.Name, name, err)
			}
			if property.Value != nil {
				node.Properties = append(node.Properties, property)
			}
		}
		for _, r := range t.Requirements {
			requirement := tosca.Requirement{Name: r.Name}
			if r.Relationship != nil {
				requirement.Relationship = slices.Sorted(maps.Keys(r.Relationship.Types))
			}
			if r.NodeTemplate != nil {
				requirement.Node = r.NodeTemplate.Name
			}
			if r.NodeTypeName != nil {
				requirement.NodeType = *r.NodeTypeName
			}
			node.Requirements = append(node.Requirements, requirement)
		}
		s.Nodes = append(s.Nodes, node)
	}
	return s, nil
}

func (r reader) property(name string, value normal.Value) (tosca.Property, error) {
	plain, err := r.plain(value, 0)
	property := tosca.Property{Name: name, Value: plain}
	if meta := metaOf(value); meta != nil {
		property.Metadata = map[string]string{}
		maps.Copy(property.Metadata, meta.Metadata)
		maps.Copy(property.Metadata, meta.LocalMetadata)
	}
	return property, err
}

func metaOf(value normal.Value) *normal.ValueMeta {
	switch v := value.(type) {
	case *normal.Primitive:
		return v.ValueMeta
	case *normal.List:
		return v.ValueMeta
	case *normal.Map:
		return v.ValueMeta
	case *normal.FunctionCall:
		return v.ValueMeta
	}
	return nil
}

const maxDepth = 100

// A reader reads values.
type reader struct{ inputs normal.Values }

func (r reader) plain(value normal.Value, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	switch v := value.(type) {
	case nil:
		return nil, nil //nolint:nilnil // no value is a value
	case *normal.Primitive:
		return plainValue(v.Primitive), nil
	case *normal.List:
		list := make([]any, 0, len(v.Entries))
		for _, entry := range v.Entries {
			plain, err := r.plain(entry, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, plain)
		}
		return list, nil
	case *normal.Map:
		m := map[string]any{}
		for _, entry := range v.Entries {
			key, err := keyOf(entry)
			if err != nil {
				return nil, err
			}
			if m[key], err = r.plain(entry, depth+1); err != nil {
				return nil, err
			}
		}
		return m, nil
	case *normal.FunctionCall:
		return r.call(v, depth)
	default:
		return nil, fmt.Errorf("a %T can't be read", value)
	}
}

// call evaluates the functions whose arguments are all there.
func (r reader) call(v *normal.FunctionCall, depth int) (any, error) {
	args := make([]any, len(v.FunctionCall.Arguments))
	for i, a := range v.FunctionCall.Arguments {
		value, ok := a.(normal.Value)
		if !ok {
			args[i] = plainValue(a)
			continue
		}
		var err error
		if args[i], err = r.plain(value, depth+1); err != nil {
			return nil, err
		}
	}
	name := v.FunctionCall.Name[strings.LastIndexAny(v.FunctionCall.Name, ".$")+1:]
	switch name {
	case "get_input":
		if len(args) == 1 {
			input, ok := r.inputs[fmt.Sprint(args[0])]
			if !ok {
				return nil, fmt.Errorf("the input %q has no value: give it a default", fmt.Sprint(args[0]))
			}
			return r.plain(input, depth+1)
		}
	case "concat":
		var text strings.Builder
		for _, a := range args {
			fmt.Fprint(&text, a)
		}
		return text.String(), nil
	}
	return nil, fmt.Errorf("the function %s can't be evaluated here: use get_input with one argument or concat, or write the value", name)
}

// plainValue makes JSON of what Puccini leaves as it was.
func plainValue(v ard.Value) any {
	switch v := v.(type) {
	case ard.Map:
		m := map[string]any{}
		for key, value := range v {
			m[fmt.Sprint(key)] = plainValue(value)
		}
		return m
	case ard.List:
		list := make([]any, len(v))
		for i, value := range v {
			list[i] = plainValue(value)
		}
		return list
	default:
		return v
	}
}

func keyOf(value normal.Value) (string, error) {
	var key normal.Value
	switch v := value.(type) {
	case *normal.Primitive:
		key = v.Key
	case *normal.List:
		key = v.Key
	case *normal.Map:
		key = v.Key
	case *normal.FunctionCall:
		key = v.Key
	}
	if p, ok := key.(*normal.Primitive); ok {
		return fmt.Sprint(p.Primitive), nil
	}
	return "", errors.New("a key that is no plain value can't be read")
}
