package nbi

import (
	"bytes"
	"encoding/json"
	"slices"
)

// A Kind is one of the kinds of packages.
type Kind string

// The kinds of packages. VNF packages come first: NS packages refer to them.
const (
	KindVNF Kind = "vnf"
	KindNS  Kind = "ns"
)

// Descriptor returns the name of the kind's descriptors: VNFD or NSD.
func (k Kind) Descriptor() string {
	if k == KindVNF {
		return "VNFD"
	}
	return "NSD"
}

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
	for _, m := range d.Members() {
		all = append(all, m.VNFD)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(id string) bool { return id == "" })
}

// Members returns the members of all flavours of an NSD.
func (d Descriptor) Members() []Member {
	var all []Member
	for _, f := range d.DF {
		all = append(all, f.Members...)
	}
	return all
}
