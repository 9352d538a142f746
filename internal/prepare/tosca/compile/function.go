package compile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tliron/puccini/normal"
)

// functionOf returns the name of a function without Puccini's prefix.
func functionOf(name string) string { return name[strings.LastIndexAny(name, ".$")+1:] }

// call evaluates a function. It refuses functions whose values are known only at run
// time.
func (r *reader) call(in scope, v *normal.FunctionCall, depth int) (any, error) {
	name := functionOf(v.FunctionCall.Name)
	args, err := r.arguments(in, v.FunctionCall.Arguments, depth)
	if err != nil {
		return nil, err
	}
	var out any
	switch name {
	case "get_input":
		out, err = r.getInput(args, depth)
	case "get_property":
		out, err = r.getProperty(in, args, depth, false)
	case "get_attribute":
		out, err = r.getProperty(in, args, depth, true)
	case "get_nodes_of_type":
		out, err = r.getNodesOfType(args)
	case "concat":
		out, err = join(args, "")
	case "join":
		out, err = joinList(args)
	case "token":
		out, err = token(args)
	case "get_operation_output", "get_artifact":
		return nil, fmt.Errorf("the function %s has a value only at run time: write the value", name)
	default:
		return nil, fmt.Errorf("the function %s can't be evaluated here: use get_input, get_property, get_attribute, get_nodes_of_type, concat, join or token, or write the value", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

func (r *reader) arguments(in scope, args []any, depth int) ([]any, error) {
	out := make([]any, len(args))
	for i, a := range args {
		var err error
		if value, ok := a.(normal.Value); ok {
			out[i], err = r.value(in, value, depth+1)
		} else {
			out[i], err = r.primitive(in, a, depth+1)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *reader) getInput(args []any, depth int) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("it needs the name of an input")
	}
	name, err := textOf(args[0])
	if err != nil {
		return nil, err
	}
	input, ok := r.template.Inputs[name]
	if !ok {
		return nil, fmt.Errorf("the input %q has no value: give it a default", name)
	}
	value, err := r.value(scope{}, input, depth+1)
	if err != nil {
		return nil, fmt.Errorf("the input %q: %w", name, err)
	}
	return within(value, args[1:])
}

// getProperty returns a property or attribute of a node, of one of its capabilities,
// or of the relationship or target of one of its requirements.
func (r *reader) getProperty(in scope, args []any, depth int, attribute bool) (any, error) {
	if len(args) < 2 {
		return nil, errors.New("it needs a node and the name of a property or attribute")
	}
	node, err := r.entity(in, args[0])
	if err != nil {
		return nil, err
	}
	name, err := textOf(args[1])
	if err != nil {
		return nil, err
	}
	rest := args[2:]
	// In a longer path, a capability or requirement takes precedence over a property
	// of the same name.
	if capability, ok := node.Capabilities[name]; ok && len(rest) > 0 {
		return r.named(holder{scope{self: node}, capability.Properties, capability.Attributes}, rest, depth, attribute)
	}
	if requirement, rest, ok := requirementOf(node, name, rest); ok && len(rest) > 0 {
		return r.ofRequirement(requirement, rest, depth, attribute)
	}
	return r.named(holder{scope{self: node}, node.Properties, node.Attributes}, args[1:], depth, attribute)
}

// ofRequirement returns a property of a requirement's relationship, else of its target
// capability or node.
func (r *reader) ofRequirement(requirement *normal.Requirement, path []any, depth int, attribute bool) (any, error) {
	name := fmt.Sprint(path[0])
	if rel := requirement.Relationship; rel != nil && (rel.Properties[name] != nil || attribute && rel.Attributes[name] != nil) {
		return r.named(holder{scope{self: requirement.SourceNodeTemplate, requirement: requirement}, rel.Properties, rel.Attributes}, path, depth, attribute)
	}
	target, err := r.target(requirement)
	if err != nil {
		return nil, err
	}
	if target == nil {
		return nil, fmt.Errorf("the requirement %q leads to no node template", requirement.Name)
	}
	for _, capability := range capabilitiesOf(requirement, target) {
		if capability.Properties[name] != nil || attribute && capability.Attributes[name] != nil {
			return r.named(holder{scope{self: target}, capability.Properties, capability.Attributes}, path, depth, attribute)
		}
	}
	return r.named(holder{scope{self: target}, target.Properties, target.Attributes}, path, depth, attribute)
}

// A holder is what has properties and attributes: a node, a capability or a relationship.
type holder struct {
	in                     scope
	properties, attributes normal.Values
}

// named returns the value at a path of names. Every property is also an attribute of
// the same value.
func (r *reader) named(of holder, path []any, depth int, attribute bool) (any, error) {
	in := of.in
	name, err := textOf(path[0])
	if err != nil {
		return nil, err
	}
	value, ok := of.properties[name]
	what := "property"
	if attribute {
		what = "attribute"
		if a, there := of.attributes[name]; there {
			value, ok = a, true
		}
	}
	if !ok {
		return nil, fmt.Errorf("the node template %q has no %s %q there", in.self.Name, what, name)
	}
	read, err := r.value(in, value, depth+1)
	if err != nil {
		return nil, fmt.Errorf("the %s %q of %q: %w", what, name, in.self.Name, err)
	}
	if read == nil && attribute {
		return nil, fmt.Errorf("the attribute %q of %q has no value before run time: give it a default, or write the value", name, in.self.Name)
	}
	return within(read, path[1:])
}

// entity returns the node template that a function names.
func (r *reader) entity(in scope, arg any) (*normal.NodeTemplate, error) {
	name, err := textOf(arg)
	if err != nil {
		return nil, err
	}
	var node *normal.NodeTemplate
	switch name {
	case "SELF":
		if in.requirement == nil {
			node = in.self
		}
	case "SOURCE":
		if in.requirement != nil {
			node = in.requirement.SourceNodeTemplate
		}
	case "TARGET":
		if in.requirement != nil {
			node, err = r.target(in.requirement)
		}
	case "HOST":
		node, err = r.host(in.self)
	default:
		node = r.template.NodeTemplates[name]
		if node == nil {
			return nil, fmt.Errorf("there is no node template %q", name)
		}
	}
	if err == nil && node == nil {
		return nil, fmt.Errorf("there is no %s here", name)
	}
	return node, err
}

// host returns the node that a node is hosted on, or nil.
func (r *reader) host(node *normal.NodeTemplate) (*normal.NodeTemplate, error) {
	if node == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	for _, requirement := range node.Requirements {
		if requirement.Relationship == nil {
			continue
		}
		for name, typ := range requirement.Relationship.Types {
			if name == typeHost || typ.Metadata["role"] == "host" {
				return r.target(requirement)
			}
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

func (r *reader) getNodesOfType(args []any) (any, error) {
	if len(args) != 1 {
		return nil, errors.New("it needs a node type")
	}
	typ, err := textOf(args[0])
	if err != nil {
		return nil, err
	}
	names := []string{}
	for name, node := range r.template.NodeTemplates {
		for full := range node.Types {
			if full == typ || full[strings.LastIndex(full, ":")+1:] == typ {
				names = append(names, name)
				break
			}
		}
	}
	slices.Sort(names)
	out := make([]any, len(names))
	for i, name := range names {
		out[i] = name
	}
	return out, nil
}

func join(parts []any, delimiter string) (any, error) {
	var text strings.Builder
	for i, part := range parts {
		if i > 0 {
			text.WriteString(delimiter)
		}
		s, err := textOf(part)
		if err != nil {
			return nil, err
		}
		if text.Len()+len(s)+len(delimiter) > maxText {
			return nil, fmt.Errorf("the text is longer than %d bytes", maxText)
		}
		text.WriteString(s)
	}
	return text.String(), nil
}

func joinList(args []any) (any, error) {
	if len(args) < 1 || len(args) > 2 {
		return nil, errors.New("it needs a list, and may have a delimiter")
	}
	list, ok := args[0].([]any)
	if !ok {
		return nil, errors.New("it needs a list")
	}
	delimiter := ""
	if len(args) == 2 {
		var err error
		if delimiter, err = textOf(args[1]); err != nil {
			return nil, err
		}
	}
	return join(list, delimiter)
}

// token returns one of the parts of a text between separators, each one character.
func token(args []any) (any, error) {
	if len(args) != 3 {
		return nil, errors.New("it needs a text, the characters between its parts, and which part")
	}
	text, err := textOf(args[0])
	if err != nil {
		return nil, err
	}
	separators, err := textOf(args[1])
	if err != nil {
		return nil, err
	}
	var parts []string
	for at := 0; at >= 0; {
		part := text
		at = strings.IndexAny(text, separators)
		if at >= 0 {
			_, width := utf8.DecodeRuneInString(text[at:])
			part, text = text[:at], text[at+width:]
		}
		parts = append(parts, part)
	}
	i, err := strconv.Atoi(fmt.Sprint(args[2]))
	if err != nil || i < 0 || i >= len(parts) {
		return nil, fmt.Errorf("there is no part %v of %q: they are %d, from 0", args[2], shorten(args[0]), len(parts))
	}
	return parts[i], nil
}

// within returns the value at a path in maps and lists.
func within(value any, path []any) (any, error) {
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[fmt.Sprint(step)]
			if !ok {
				return nil, fmt.Errorf("there is no %q in it", fmt.Sprint(step))
			}
			value = next
		case []any:
			i, err := strconv.Atoi(fmt.Sprint(step))
			if err != nil || i < 0 || i >= len(v) {
				return nil, fmt.Errorf("there is no %v in it: it is a list of %d", step, len(v))
			}
			value = v[i]
		default:
			return nil, fmt.Errorf("there is no %v in it: it is a plain value", step)
		}
	}
	return value, nil
}
