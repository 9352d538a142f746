package krmfn

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko/krm"
)

// A list is a ResourceList.
type list struct {
	items   krm.Package
	config  krm.Resource // nil if there is none
	results []result
	raw     any // results as the function wrote them
}

const (
	listVersion = "config.kubernetes.io/v1"
	listKind    = "ResourceList"
)

// listVersions are the versions of the protocol that are read alike.
var listVersions = []string{listVersion, "config.kubernetes.io/v1beta1", "config.kubernetes.io/v1alpha1"}

func (l list) encode() ([]byte, error) {
	items := make([]any, len(l.items))
	for i, r := range l.items {
		items[i] = map[string]any(r)
	}
	document := krm.Resource{"apiVersion": listVersion, "kind": listKind, "items": items}
	if l.config != nil {
		document["functionConfig"] = map[string]any(l.config)
	}
	if l.raw != nil {
		document["results"] = l.raw
	}
	return krm.Encode(krm.YAML, krm.Package{document})
}

// decodeList decodes a function's output: one document in YAML 1.2, where "yes"
// is text even without quotes.
func decodeList(data []byte, limits krm.Limits) (list, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return list{}, errors.New("it wrote no output: a function writes one ResourceList to stdout")
	}
	documents, err := krm.DecodeYAML12(data, withoutResources(limits))
	if err != nil {
		return list{}, fmt.Errorf("its output is malformed: %w", err)
	}
	return readList(documents, limits)
}

// decodeOwn decodes the output of encode.
func decodeOwn(data []byte, limits krm.Limits) (list, error) {
	documents, err := krm.Decode(krm.YAML, data, withoutResources(limits))
	if err != nil {
		return list{}, fmt.Errorf("its output is malformed: %w", err)
	}
	return readList(documents, limits)
}

// withoutResources returns the limits of a document that contains resources.
func withoutResources(limits krm.Limits) krm.Limits {
	limits.Resources = 0
	return limits
}

func readList(documents krm.Package, limits krm.Limits) (l list, err error) {
	if len(documents) != 1 {
		return list{}, fmt.Errorf("its output has %d documents: a function writes one ResourceList to stdout", len(documents))
	}
	document := documents[0]
	if version := document.Text("apiVersion"); document.Text("kind") != listKind || !slices.Contains(listVersions, version) {
		return list{}, fmt.Errorf("its output is malformed: it is %.100q of %.100q, not %s of %s", document.Text("kind"), version, listKind, listVersion)
	}
	if l.items, err = decodeItems(document["items"], limits.Resources); err != nil {
		return list{}, fmt.Errorf("its output is malformed: %w", err)
	}
	if config, ok := document["functionConfig"].(map[string]any); ok {
		l.config = config
	}
	l.raw = document["results"]
	if l.results, err = decodeResults(l.raw); err != nil {
		return list{}, fmt.Errorf("its output is malformed: %w", err)
	}
	return l, nil
}

func decodeItems(value any, most int) (krm.Package, error) {
	if value == nil {
		return krm.Package{}, nil
	}
	items, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("items is %s, not a list", TypeName(value))
	}
	if most > 0 && len(items) > most {
		return nil, fmt.Errorf("items has %d resources: at most %d are allowed", len(items), most)
	}
	pkg := make(krm.Package, len(items))
	for i, item := range items {
		r, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("items[%d] is %s, not a map", i, TypeName(item))
		}
		pkg[i] = r
	}
	return pkg, nil
}

// TypeName returns the name of a value's type for error messages, such as "a
// map".
func TypeName(value any) string {
	switch value.(type) {
	case nil:
		return "missing"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	default:
		return "a map"
	}
}
