package krm

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
)

// MetadataGroup is the group of the resources that metadata is gathered from.
const MetadataGroup = "metadata.nephio.org"

// Metadata gathers the metadata of the resources of group
// metadata.nephio.org, those that are not to be gathered elsewhere or never:
// each value of the spec under Kind.path.to.key. Texts are themselves, other
// scalars are written as they look, lists as compact JSON, nulls are left
// out. Where two resources say the same key, the later one wins.
func (p Package) Metadata() map[string]string {
	metadata := map[string]string{}
	for _, r := range p {
		gvk := r.GVK()
		if gvk.Group != MetadataGroup {
			continue
		}
		if a := r.Annotation(AnnotationMetadata); a != "" && a != Here {
			continue
		}
		if spec, ok := r["spec"].(map[string]any); ok {
			gather(metadata, gvk.Kind, spec)
		}
	}
	return metadata
}

// maxGathered is how long keys are made, in bytes: far longer than what can be
// stored. What is longer is cut there, so that the sum of all keys stays in
// proportion to the package.
const maxGathered = 4096

func gather(metadata map[string]string, path string, value any) {
	if len(path) > maxGathered {
		metadata[strings.ToValidUTF8(path[:maxGathered], "")] = ""
		return
	}
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for _, key := range sortedKeys(v) {
			gather(metadata, path+"."+key, v[key])
		}
	case string:
		metadata[path] = v
	case bool:
		metadata[path] = strconv.FormatBool(v)
	case int64:
		metadata[path] = strconv.FormatInt(v, 10)
	default:
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err == nil {
			metadata[path] = string(bytes.TrimSpace(b.Bytes()))
		}
	}
}

// MetadataWith is the metadata of what has a package: what it inherits, what the
// package says and what was passed with it, the later winning. It is the
// caller's.
func (p Package) MetadataWith(inherited, passed map[string]string) map[string]string {
	said := p.Metadata()
	all := make(map[string]string, len(inherited)+len(said)+len(passed))
	maps.Copy(all, inherited)
	maps.Copy(all, said)
	maps.Copy(all, passed)
	return all
}
