package bundle

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
)

// envelopes are the keys that descriptors are wrapped in.
var envelopes = map[string]nbi.Kind{
	"vnfd": nbi.KindVNF, "etsi-nfv-vnfd:vnfd": nbi.KindVNF, "nsd": nbi.KindNS, "etsi-nfv-nsd:nsd": nbi.KindNS,
}

// parseDescriptor reads a descriptor in YAML or JSON, in its envelope. It returns also
// the descriptor's tree without the envelope, in the types of JSON. Errors are
// ErrInvalid, with the line of an error in YAML.
func parseDescriptor(data []byte) (nbi.Kind, nbi.Descriptor, map[string]any, error) {
	var tree map[string]any
	if json.Unmarshal(data, &tree) != nil { // not every JSON is YAML: tabs
		tree = nil
		if err := yaml.Unmarshal(data, &tree); err != nil {
			return "", nbi.Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
	}
	for name, kind := range envelopes {
		inner, ok := tree[name]
		if !ok {
			continue
		}
		if kind == nbi.KindNS { // nsd: {nsd: [ … ]}
			if m, ok := inner.(map[string]any); ok {
				if wrapped, ok := m["nsd"]; ok {
					inner = wrapped
				}
			}
			if l, ok := inner.([]any); ok {
				if len(l) != 1 {
					return "", nbi.Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "it holds %d NSDs: a package is one", len(l))
				}
				inner = l[0]
			}
		}
		whole, _ := jsonTree(inner).(map[string]any)
		var d nbi.Descriptor
		data, err := json.Marshal(whole)
		if err == nil {
			err = json.Unmarshal(data, &d)
		}
		if err != nil || d.ID == "" {
			return "", nbi.Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "the %s under %q has no id", kind.Descriptor(), name)
		}
		return kind, d, whole, nil
	}
	for name := range tree {
		if strings.HasSuffix(name, "-catalog") {
			return "", nbi.Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "it has the old form %q, which OSM no longer accepts: write vnfd or nsd", name)
		}
	}
	return "", nbi.Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "it is no descriptor: its root has neither vnfd nor nsd")
}

// jsonTree converts a tree of YAML to the types of JSON: keys of maps are texts.
func jsonTree(v any) any {
	switch t := v.(type) {
	case map[any]any:
		m := make(map[string]any, len(t))
		for k, e := range t {
			m[fmt.Sprint(k)] = jsonTree(e)
		}
		return m
	case map[string]any:
		for k, e := range t {
			t[k] = jsonTree(e)
		}
	case []any:
		for i, e := range t {
			t[i] = jsonTree(e)
		}
	}
	return v
}

// VersionOf returns the version at the end of a chart's name; empty if it has none.
func VersionOf(model string) string {
	slash := strings.LastIndexByte(model, '/')
	_, version, _ := strings.Cut(model[slash+1:], ":")
	return version
}

// Unversioned returns a chart's name without its version.
func Unversioned(model string) string {
	if v := VersionOf(model); v != "" {
		return strings.TrimSuffix(model, ":"+v)
	}
	return model
}
