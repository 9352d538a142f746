package krm

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
)

// MetadataGroup is the group of the resources that contribute metadata.
const MetadataGroup = "metadata.nephio.org"

// Metadata gathers the metadata from the resources of group
// metadata.nephio.org, except for those whose annotation is Postpone or Never:
// each value of the spec under the key Kind.path.to.key. Text stays as it is,
// other scalars are written as in YAML, lists as compact JSON; nulls are left
// out. If two resources have the same key, the later one wins.
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

// maxGathered is the maximum length of a gathered key, in bytes, far more than
// can be stored. Longer keys are truncated, so that the total size of all keys
// stays in proportion to the package.
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

// MetadataWith returns the combined metadata of an entity: inherited, gathered
// from the package, and passed. Later values win. The caller owns the result.
func (p Package) MetadataWith(inherited, passed map[string]string) map[string]string {
	said := p.Metadata()
	all := make(map[string]string, len(inherited)+len(said)+len(passed))
	maps.Copy(all, inherited)
	maps.Copy(all, said)
	maps.Copy(all, passed)
	return all
}
