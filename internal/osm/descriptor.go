package osm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tko-orchestrator/tko"
)

// A Descriptor has the relevant parts of a VNFD or NSD.
type Descriptor struct {
	ID string `json:"id"`
	// of an NSD
	VNFDs []string  `json:"vnfd-id"` // ids of the VNFDs
	DF    []Flavour `json:"df"`
	// of a VNFD
	KDUs            []KDUDescriptor `json:"kdu"`
	SoftwareVersion string          `json:"software-version"`
}

// A Flavour is a deployment flavour of an NSD.
type Flavour struct {
	Members []Member `json:"vnf-profile"`
}

// A Member is a VNF in an NSD.
type Member struct {
	Index string `json:"id"`
	VNFD  string `json:"vnfd-id"`
}

// A KDUDescriptor is a KDU in a VNFD.
type KDUDescriptor struct {
	Name  string `json:"name"`
	Chart string `json:"helm-chart"`
}

// UnmarshalJSON reads a descriptor. Numbers are treated as texts: a member's index may
// be written as 1. Invalid parts are treated as missing: OSM reports them.
func (d *Descriptor) UnmarshalJSON(data []byte) error {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	*d = Descriptor{}
	for name, into := range map[string]any{"id": &d.ID, "vnfd-id": &d.VNFDs, "df": &d.DF, "kdu": &d.KDUs, "software-version": &d.SoftwareVersion} {
		if part, ok := parts[name]; ok {
			_ = json.Unmarshal(texts(part), into)
		}
	}
	return nil
}

// texts returns JSON with texts in place of numbers.
func texts(data []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return data
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch t := v.(type) {
		case json.Number:
			return t.String()
		case []any:
			for i := range t {
				t[i] = walk(t[i])
			}
		case map[string]any:
			for k := range t {
				t[k] = walk(t[k])
			}
		}
		return v
	}
	out, err := json.Marshal(walk(v))
	if err != nil {
		return data
	}
	return out
}

// References returns the ids of all VNFDs that an NSD refers to, sorted.
func (d Descriptor) References() []string {
	all := slices.Clone(d.VNFDs)
	for _, m := range d.members() {
		all = append(all, m.VNFD)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(id string) bool { return id == "" })
}

func (d Descriptor) members() []Member {
	var all []Member
	for _, f := range d.DF {
		all = append(all, f.Members...)
	}
	return all
}

// envelopes are the keys that descriptors are wrapped in.
var envelopes = map[string]Kind{
	"vnfd": KindVNF, "etsi-nfv-vnfd:vnfd": KindVNF, "nsd": KindNS, "etsi-nfv-nsd:nsd": KindNS,
}

// parseDescriptor reads a descriptor in YAML or JSON, in its envelope. It returns also
// the descriptor's tree without the envelope, in the types of JSON. Errors are
// ErrInvalid, with the line of an error in YAML.
func parseDescriptor(data []byte) (Kind, Descriptor, map[string]any, error) {
	var tree map[string]any
	if json.Unmarshal(data, &tree) != nil { // not every JSON is YAML: tabs
		tree = nil
		if err := yaml.Unmarshal(data, &tree); err != nil {
			return "", Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
	}
	for name, kind := range envelopes {
		inner, ok := tree[name]
		if !ok {
			continue
		}
		if kind == KindNS { // nsd: {nsd: [ … ]}
			if m, ok := inner.(map[string]any); ok {
				if wrapped, ok := m["nsd"]; ok {
					inner = wrapped
				}
			}
			if l, ok := inner.([]any); ok {
				if len(l) != 1 {
					return "", Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "it holds %d NSDs: a package is one", len(l))
				}
				inner = l[0]
			}
		}
		d, err := decodeTree(inner)
		if err != nil || d.ID == "" {
			return "", Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "the %s under %q has no id", kind.descriptor(), name)
		}
		whole, _ := jsonTree(inner).(map[string]any)
		return kind, d, whole, nil
	}
	for name := range tree {
		if strings.HasSuffix(name, "-catalog") {
			return "", Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "it has the old form %q, which OSM no longer accepts: write vnfd or nsd", name)
		}
	}
	return "", Descriptor{}, nil, tko.Errorf(tko.ErrInvalid, "it is no descriptor: its root has neither vnfd nor nsd")
}

func decodeTree(v any) (Descriptor, error) {
	data, err := json.Marshal(jsonTree(v))
	if err != nil {
		return Descriptor{}, fmt.Errorf("reading a descriptor: %w", err)
	}
	var d Descriptor
	err = json.Unmarshal(data, &d)
	return d, err
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

func (k Kind) descriptor() string {
	if k == KindVNF {
		return "VNFD"
	}
	return "NSD"
}

// versionOf returns the version at the end of a chart's name; empty if it has none.
func versionOf(model string) string {
	slash := strings.LastIndexByte(model, '/')
	_, version, _ := strings.Cut(model[slash+1:], ":")
	return version
}

// unversioned returns a chart's name without its version.
func unversioned(model string) string {
	if v := versionOf(model); v != "" {
		return strings.TrimSuffix(model, ":"+v)
	}
	return model
}
