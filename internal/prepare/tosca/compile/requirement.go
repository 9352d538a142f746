package compile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tliron/puccini/normal"

	"github.com/tko-orchestrator/tko/internal/prepare/tosca"
)

const typeHost = tosca.TypeHost

func (r *reader) requirement(in *normal.Requirement) (tosca.Requirement, error) {
	out := tosca.Requirement{Name: in.Name}
	if in.Relationship == nil {
		return out, nil
	}
	out.Relationship = slices.Sorted(maps.Keys(in.Relationship.Types))
	if !slices.Contains(out.Relationship, typeHost) {
		return out, nil // its target doesn't matter
	}
	target, err := r.target(in)
	if target != nil {
		out.Node = target.Name
	}
	return out, err
}

// target returns the node template that a requirement names, or the only one that
// fits. Puccini would pick one of several; here that is an error, because a placement
// should be explicit.
func (r *reader) target(in *normal.Requirement) (*normal.NodeTemplate, error) {
	if in.NodeTemplate != nil {
		return in.NodeTemplate, nil
	}
	if in.NodeTypeName == nil && in.CapabilityTypeName == nil && len(in.NodeTemplatePropertyValidation) == 0 {
		return nil, nil //nolint:nilnil // it has no target
	}
	var found []*normal.NodeTemplate
	for _, name := range slices.Sorted(maps.Keys(r.template.NodeTemplates)) {
		if node := r.template.NodeTemplates[name]; r.fits(in, node) {
			found = append(found, node)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && in.Optional:
		return nil, nil //nolint:nilnil // it is optional
	case len(found) == 0:
		return nil, errors.New("no node template fits: name one, or change its node type or node_filter")
	}
	var names []string
	for _, node := range found[:min(len(found), 5)] {
		names = append(names, strconv.Quote(node.Name))
	}
	return nil, fmt.Errorf("%d node templates fit (%s): name one, or narrow its node_filter", len(found), strings.Join(names, ", "))
}

// fits reports whether a node fulfils a requirement.
func (r *reader) fits(in *normal.Requirement, node *normal.NodeTemplate) bool {
	if in.NodeTypeName != nil {
		if _, ok := node.Types[*in.NodeTypeName]; !ok {
			return false
		}
	}
	if !r.pass(in, node, node.Properties, in.NodeTemplatePropertyValidation) {
		return false
	}
	for name, capability := range node.Capabilities {
		if filter, ok := filterOf(in, name, capability); ok && !r.pass(in, node, capability.Properties, filter) {
			return false
		}
	}
	return in.CapabilityTypeName == nil && in.CapabilityName == nil || len(capabilitiesOf(in, node)) > 0
}

// filterOf returns a requirement's filter of a capability, by its name or one of its
// types.
func filterOf(in *normal.Requirement, name string, capability *normal.Capability) (normal.FunctionCallMap, bool) {
	if filter, ok := in.CapabilityPropertyValidation[name]; ok {
		return filter, true
	}
	for typ := range capability.Types {
		if filter, ok := in.CapabilityPropertyValidation[typ]; ok {
			return filter, true
		}
	}
	return nil, false
}

// pass reports whether properties fulfil a filter. A property that can't be evaluated
// doesn't.
func (r *reader) pass(in *normal.Requirement, node *normal.NodeTemplate, properties normal.Values, filter normal.FunctionCallMap) bool {
	for name, constraints := range filter {
		value, err := r.value(scope{self: node}, properties[name], 0)
		if err != nil || value == nil {
			return false
		}
		if err := r.meets(scope{self: in.SourceNodeTemplate}, value, constraints, 0); err != nil {
			return false
		}
	}
	return true
}

// capabilitiesOf returns the capabilities of a node that a requirement may have as
// its target, by name.
func capabilitiesOf(in *normal.Requirement, node *normal.NodeTemplate) []*normal.Capability {
	var found []*normal.Capability
	for _, name := range slices.Sorted(maps.Keys(node.Capabilities)) {
		capability := node.Capabilities[name]
		_, typed := capability.Types[deref(in.CapabilityTypeName)]
		if (in.CapabilityName == nil || *in.CapabilityName == name) && (in.CapabilityTypeName == nil || typed) {
			found = append(found, capability)
		}
	}
	return found
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// requirementOf returns a node's requirement of a name, and the rest of the path. A
// number at the beginning of the path selects one of several requirements.
func requirementOf(node *normal.NodeTemplate, name string, path []any) (*normal.Requirement, []any, bool) {
	n := 0
	if len(path) > 0 {
		if i, err := strconv.Atoi(fmt.Sprint(path[0])); err == nil {
			n, path = i, path[1:]
		}
	}
	for _, requirement := range node.Requirements {
		if requirement.Name != name {
			continue
		}
		if n == 0 {
			return requirement, path, true
		}
		n--
	}
	return nil, nil, false
}
