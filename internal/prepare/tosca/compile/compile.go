// Package compile compiles service templates with Puccini. It runs in a process of
// its own, because its input is untrusted, and is not linked into the server. Start
// reading at [Main].
package compile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tliron/exturl"
	puccini "github.com/tliron/kutil/problems"
	"github.com/tliron/kutil/terminal"
	"github.com/tliron/puccini/normal"
	"github.com/tliron/puccini/tosca/parser"

	"github.com/tko-orchestrator/tko/internal/prepare/tosca"
)

// Main reads a request, confines the process, compiles, and writes the response. It
// returns errors of the streams and of the confinement only.
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

// Compile compiles a service template. Call it once in a process: the files stay
// registered.
func Compile(ctx context.Context, request tosca.Request) (*tosca.Service, error) {
	for name, content := range request.Files {
		exturl.UpdateInternalURL(name, []byte(content))
	}
	urls := exturl.NewContext()
	for name := range request.Files {
		// A file that is imported by its URL has a name of scheme, host and path.
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

// problems returns the problems that Puccini found, as a tko.ErrInvalid.
func problems(c *parser.Context, err error) error {
	if c.Root == nil {
		return err
	}
	found := slices.Clone(c.GetProblems().Slice()) // unordered
	slices.SortFunc(found, func(a, b *puccini.Problem) int {
		return cmp.Or(cmp.Compare(a.Section, b.Section), cmp.Compare(a.Row, b.Row), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Item, b.Item), cmp.Compare(a.Message, b.Message))
	})
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
			text += fmt.Sprintf(" (line %d of %q)", p.Row, place(p.Section))
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return fmt.Errorf("%w: is it TOSCA, with a supported tosca_definitions_version?", err)
	}
	return fmt.Errorf("%s", strings.Join(texts, "; "))
}

func service(template *normal.ServiceTemplate) (*tosca.Service, error) {
	s := &tosca.Service{}
	r := &reader{template: template}
	for _, name := range slices.Sorted(maps.Keys(template.NodeTemplates)) {
		node, err := r.node(template.NodeTemplates[name])
		if err != nil {
			return nil, fmt.Errorf("node template %q: %w", name, err)
		}
		s.Nodes = append(s.Nodes, node)
	}
	return s, nil
}

// place returns the location of a file of a request for users.
func place(section string) string {
	name := strings.TrimPrefix(section, "internal:")
	kind, rest, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	switch kind {
	case "file":
		return "/" + rest
	case "archive":
		return rest
	case "http", "https":
		return kind + "://" + rest
	}
	return name
}

// node reads a node template. Of nodes that TKO ignores it reads the name and types
// only, so that their values needn't be supported.
func (r *reader) node(t *normal.NodeTemplate) (tosca.Node, error) {
	node := tosca.Node{Name: t.Name, Types: slices.Sorted(maps.Keys(t.Types))}
	if !node.Matters() {
		return node, nil
	}
	if i := slices.IndexFunc(t.Directives, func(d string) bool { return d == "substitute" || d == "select" }); i >= 0 {
		return node, fmt.Errorf("its directive %q is not supported: write the node templates that would replace it", t.Directives[i])
	}
	for _, name := range slices.Sorted(maps.Keys(t.Properties)) {
		property, err := r.property(scope{self: t}, name, t.Properties[name])
		if err != nil {
			return node, fmt.Errorf("property %q: %w", name, err)
		}
		if property.Value != nil {
			node.Properties = append(node.Properties, property)
		}
	}
	for _, requirement := range t.Requirements {
		read, err := r.requirement(requirement)
		if err != nil {
			return node, fmt.Errorf("requirement %q: %w", requirement.Name, err)
		}
		if read.Node == "" && requirement.Optional {
			continue
		}
		node.Requirements = append(node.Requirements, read)
	}
	return node, nil
}

func (r *reader) property(in scope, name string, value normal.Value) (tosca.Property, error) {
	read, err := r.value(in, value, 0)
	property := tosca.Property{Name: name, Value: plain(read)}
	if meta := metaOf(value); meta != nil {
		property.Metadata = map[string]string{}
		maps.Copy(property.Metadata, meta.Metadata)
		maps.Copy(property.Metadata, meta.LocalMetadata)
	}
	return property, err
}
