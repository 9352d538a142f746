package krmfn

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/tko-orchestrator/tko/krm"
)

// toNodes returns the nodes that kustomize works on.
func toNodes(pkg krm.Package) ([]*kyaml.RNode, error) {
	nodes := make([]*kyaml.RNode, len(pkg))
	for i, r := range pkg {
		n, err := toNode(map[string]any(r))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Identity(), err)
		}
		nodes[i] = kyaml.NewRNode(n)
	}
	return nodes, nil
}

func toNode(value any) (*kyaml.Node, error) {
	scalar := func(tag, text string) (*kyaml.Node, error) {
		return &kyaml.Node{Kind: kyaml.ScalarNode, Tag: tag, Value: text}, nil
	}
	switch value := value.(type) {
	case nil:
		return scalar(kyaml.NodeTagNull, "null")
	case bool:
		return scalar(kyaml.NodeTagBool, strconv.FormatBool(value))
	case int64:
		return scalar(kyaml.NodeTagInt, strconv.FormatInt(value, 10))
	case float64:
		return scalar(kyaml.NodeTagFloat, strconv.FormatFloat(value, 'g', -1, 64))
	case string:
		return scalar(kyaml.NodeTagString, value)
	case []any:
		n := &kyaml.Node{Kind: kyaml.SequenceNode, Tag: kyaml.NodeTagSeq}
		for _, item := range value {
			child, err := toNode(item)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		return n, nil
	case map[string]any:
		n := &kyaml.Node{Kind: kyaml.MappingNode, Tag: kyaml.NodeTagMap}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			child, err := toNode(value[key])
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, &kyaml.Node{Kind: kyaml.ScalarNode, Tag: kyaml.NodeTagString, Value: key}, child)
		}
		return n, nil
	default:
		return nil, fmt.Errorf("a value is a %T", value)
	}
}

// fromNode returns the resource of a node.
func fromNode(n *kyaml.RNode) (krm.Resource, error) {
	value, err := fromYAML(n.YNode())
	if err != nil {
		return nil, err
	}
	m, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it became %s", TypeName(value))
	}
	return m, nil
}

func fromYAML(n *kyaml.Node) (any, error) {
	switch n.Kind {
	case kyaml.DocumentNode:
		return fromYAML(n.Content[0])
	case kyaml.AliasNode:
		return fromYAML(n.Alias)
	case kyaml.SequenceNode:
		l := make([]any, len(n.Content))
		for i, child := range n.Content {
			var err error
			if l[i], err = fromYAML(child); err != nil {
				return nil, err
			}
		}
		return l, nil
	case kyaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			value, err := fromYAML(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[n.Content[i].Value] = value
		}
		return m, nil
	default:
		return fromScalar(n)
	}
}

func fromScalar(n *kyaml.Node) (any, error) {
	switch n.ShortTag() {
	case kyaml.NodeTagNull:
		return nil, nil
	case kyaml.NodeTagBool:
		return strconv.ParseBool(n.Value)
	case kyaml.NodeTagInt:
		return strconv.ParseInt(n.Value, 0, 64)
	case kyaml.NodeTagFloat:
		return strconv.ParseFloat(n.Value, 64)
	default:
		return n.Value, nil
	}
}
