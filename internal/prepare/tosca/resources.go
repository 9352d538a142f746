package tosca

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// The TOSCA types that TKO translates.
const (
	typeTemplate = "nephio::Template"
	typeSite     = "nephio::Site"
	typeSites    = "nephio::Sites"

	// TypeHost is the relationship type of requirements of templates for sites.
	TypeHost = "nephio::Host"
)

// The metadata of property definitions.
const (
	metaAPIVersion = "nephio.apiVersion"
	metaKind       = "nephio.kind"
	metaName       = "nephio.name"
	metaSuffix     = "nephio.suffix"
	metaTarget     = "nephio.target"
)

const topologyVersion = "topology.nephio.org/v1alpha1"

// PlacementName is the name of the resulting Placement.
const PlacementName = "placement"

// resources makes a topology of a service: the resources of its nodes, in the order
// of the nodes' names, and a Placement of them.
func resources(service *Service) (krm.Package, error) {
	t := translation{nodes: map[string]*node{}}
	for i := range service.Nodes {
		if err := t.node(&service.Nodes[i]); err != nil {
			return nil, err
		}
	}
	var pkg krm.Package
	var entries []any
	for _, name := range t.order {
		n := t.nodes[name]
		for _, r := range append(krm.Package{n.own}, n.others...) {
			switch same := pkg.Find(r.Identity()); {
			case same == nil:
				pkg = append(pkg, r)
			case !reflect.DeepEqual(same, r): // equal resources of several nodes are one
				return nil, tko.Errorf(tko.ErrInvalid, "node template %q has the resource %s, which another node template has with other properties: give it another name", n.Name, r.Identity())
			}
		}
		switch n.kind {
		case "Template":
			entry, err := t.entry(n)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry)
		case "Site":
			if len(n.others) > 0 {
				n.own.Set(references(n.others), "spec", "merge")
			}
		}
	}
	if len(entries) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the service template has no node template of a type that is derived from %s: there is nothing to place", typeTemplate)
	}
	pkg = append(pkg, krm.Resource{
		"apiVersion": topologyVersion, "kind": "Placement",
		"metadata": map[string]any{"name": PlacementName},
		"spec":     map[string]any{"templates": entries},
	})
	if err := pkg.Check(); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the resources of the node templates conflict: %w", err)
	}
	return pkg, nil
}

type translation struct {
	nodes map[string]*node
	order []string
}

// A node is a node template with its resources.
type node struct {
	*Node
	kind   string       // Template, Site, Sites
	own    krm.Resource // of that kind
	others krm.Package
}

func (t *translation) node(in *Node) error {
	if !in.Matters() {
		return nil // TKO ignores nodes of other types
	}
	n := &node{Node: in, kind: in.kind()}
	n.own = krm.Resource{"apiVersion": topologyVersion, "kind": n.kind, "metadata": map[string]any{"name": in.Name}, "spec": map[string]any{}}
	for _, p := range in.Properties {
		if err := n.property(p); err != nil {
			return tko.Errorf(tko.ErrInvalid, "node template %q: property %q: %w", in.Name, p.Name, err)
		}
	}
	t.nodes[in.Name], t.order = n, append(t.order, in.Name)
	return nil
}

// Matters reports whether a node has resources.
func (n *Node) Matters() bool { return n.kind() != "" }

// kind returns the kind of a node's topology resource, or "".
func (n *Node) kind() string {
	for _, k := range []struct{ typ, kind string }{{typeTemplate, "Template"}, {typeSite, "Site"}, {typeSites, "Sites"}} {
		if slices.Contains(n.Types, k.typ) {
			return k.kind
		}
	}
	return ""
}

// property sets the field of a resource that the property's definition names.
func (n *node) property(p Property) error {
	meta := p.Metadata
	target := meta[metaTarget]
	if target == "" {
		if p.Name != "metadata" || meta[metaKind] != "" {
			if meta[metaKind]+meta[metaAPIVersion] != "" {
				return fmt.Errorf("its definition has no metadata %s: where under spec does it go?", metaTarget)
			}
			return nil // it has no field
		}
		target = "select.metadata" // the default for topology resources
	}
	resource, err := n.resource(meta)
	if err != nil {
		return err
	}
	value, err := krmValue(p.Value)
	if err != nil {
		return err
	}
	path := strings.Split("spec."+target, ".")
	if slices.Contains(path, "") {
		return fmt.Errorf("%s is %q: write a dotted path", metaTarget, target)
	}
	if target == "select.metadata" {
		if value, err = texts(value); err != nil {
			return err
		}
	}
	resource.Set(value, path...)
	return nil
}

// resource returns the resource of a property.
func (n *node) resource(meta map[string]string) (krm.Resource, error) {
	apiVersion, kind := meta[metaAPIVersion], meta[metaKind]
	if (apiVersion == "") != (kind == "") {
		return nil, fmt.Errorf("its definition has one of %s and %s: give both, or neither", metaAPIVersion, metaKind)
	}
	name := n.Name + meta[metaSuffix]
	if meta[metaName] != "" {
		name = meta[metaName]
	}
	gvk := krm.ParseGVK(apiVersion, kind)
	if kind == "" || gvk == n.own.GVK() {
		if name != n.own.Name() && kind != "" {
			if n.own.Name() != n.Name {
				return nil, fmt.Errorf("its definition names the %s %q, and another property's %q: use one name", n.kind, name, n.own.Name())
			}
			n.own.Set(name, "metadata", "name")
		}
		return n.own, nil
	}
	id := krm.Identity{GVK: gvk, Name: name}
	if r := n.others.Find(id); r != nil {
		return r, nil
	}
	r := krm.Resource{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	if n.kind == "Template" && strings.HasSuffix(gvk.Group, ".plugin.nephio.org") {
		r.SetAnnotation(krm.AnnotationPrepare, krm.Postpone)
	}
	n.others = append(n.others, r)
	return r, nil
}

// entry returns a template's entry in the Placement.
func (t *translation) entry(n *node) (map[string]any, error) {
	var sites []any
	for _, r := range n.Requirements {
		if !slices.Contains(r.Relationship, TypeHost) {
			continue
		}
		if r.Node == "" {
			return nil, tko.Errorf(tko.ErrInvalid, "node template %q: its requirement %q names no node template: name a site", n.Name, r.Name)
		}
		target := t.nodes[r.Node]
		if target == nil || target.kind == "Template" {
			return nil, tko.Errorf(tko.ErrInvalid, "node template %q: its requirement %q is fulfilled by %q, which is derived from neither %s nor %s", n.Name, r.Name, r.Node, typeSite, typeSites)
		}
		sites = append(sites, target.own.Name())
	}
	if len(sites) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "node template %q is at no site: give it a requirement whose relationship is derived from %s", n.Name, TypeHost)
	}
	entry := map[string]any{"template": n.own.Name(), "sites": sites}
	if len(n.others) > 0 {
		entry["merge"] = references(n.others)
	}
	return entry, nil
}

func references(pkg krm.Package) []any {
	list := make([]any, len(pkg))
	for i, r := range pkg {
		list[i] = map[string]any{"apiVersion": r.GVK().APIVersion(), "kind": r.GVK().Kind, "name": r.Name()}
	}
	return list
}

// krmValue converts a JSON value to one of packages.
func krmValue(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		n, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("the number %s is too large", v)
		}
		return n, nil
	case map[string]any:
		m := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			value, err := krmValue(v[key])
			if err != nil {
				return nil, err
			}
			m[key] = value
		}
		return m, nil
	case []any:
		list := make([]any, len(v))
		for i := range v {
			value, err := krmValue(v[i])
			if err != nil {
				return nil, err
			}
			list[i] = value
		}
		return list, nil
	default:
		return v, nil
	}
}

// texts converts the values of a selector to patterns.
func texts(v any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("must be a map of patterns")
	}
	out := make(map[string]any, len(m))
	for key, value := range m {
		switch value.(type) {
		case map[string]any, []any, nil:
			return nil, fmt.Errorf("the pattern of %q must be a plain value", key)
		}
		out[key] = fmt.Sprint(value)
	}
	return out, nil
}
