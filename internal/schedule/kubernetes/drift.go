package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko/krm"
)

// fieldsOf is a hash of the fields that the API server says are ours, and of the
// second in which we changed them last; empty if none are. It takes a field from
// us when somebody else changes or removes it. The time tells of what we did
// without knowing: a request of a meta-scheduler that died may come late.
func fieldsOf(r *unstructured.Unstructured) string {
	for _, m := range r.GetManagedFields() {
		if m.Manager == manager && m.Operation == "Apply" && m.Subresource == "" && m.FieldsV1 != nil {
			text, err := json.Marshal(m.FieldsV1) // JSON as the server writes it: sorted
			if err != nil {
				return ""
			}
			var at int64
			if m.Time != nil {
				at = m.Time.Unix()
			}
			return shortHash(fmt.Appendf(nil, "%s %d %s", m.APIVersion, at, text))
		}
	}
	return ""
}

// maxDifferences bounds what is gathered of an object.
const maxDifferences = 20

// differences are those of an object as it is from what it would be, without
// what only the API server writes.
func differences(live, want *unstructured.Unstructured) []krm.Difference {
	var all []krm.Difference
	for d := range krm.Differences(writable(live.Object), writable(want.Object)) {
		if all = append(all, d); len(all) == maxDifferences {
			break
		}
	}
	return all
}

// writable is what of an object can be applied.
func writable(r map[string]any) map[string]any {
	r = maps.Clone(r)
	delete(r, "status")
	if metadata, ok := r["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, name := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
			delete(metadata, name)
		}
		r["metadata"] = metadata
	}
	return r
}

const fewDifferences = 3

// describeDifferences says what was found where, the first few; the values of
// secrets it keeps to itself.
func describeDifferences(all []krm.Difference) string {
	lines := make([]string, len(all))
	for i, d := range all {
		at := pointer(d.Path)
		if d.Secret {
			lines[i] = at.String() + " differs"
			continue
		}
		is, should := d.Show("missing")
		lines[i] = fmt.Sprintf("%s is %s, should be %s", at, is, should)
	}
	return firstFew(lines, fewDifferences)
}

// withIgnored is the content of an object with the fields that aren't ours as
// they are in the cluster.
func withIgnored(content map[string]any, live *unstructured.Unstructured, pointers []pointer) map[string]any {
	if len(pointers) == 0 || live == nil {
		return content
	}
	var result any = content
	for _, p := range pointers {
		value, there := krm.Resource(live.Object).Get(p...)
		result = put(result, p, value, there)
	}
	changed, ok := result.(map[string]any)
	if !ok {
		return content
	}
	return changed
}

// put answers a copy with another value, or without one, at a pointer. What
// lies on the way is made only in maps.
func put(at any, p pointer, value any, there bool) any {
	step, rest := p[0], p[1:]
	switch v := at.(type) {
	case map[string]any:
		v = maps.Clone(v)
		inner, has := v[step]
		switch {
		case len(rest) == 0 && there:
			v[step] = value
		case len(rest) == 0:
			delete(v, step)
		case has:
			v[step] = put(inner, rest, value, there)
		case there:
			v[step] = put(map[string]any{}, rest, value, there)
		}
		return v
	case []any:
		i, err := strconv.Atoi(step)
		if err != nil || i < 0 || i >= len(v) || len(rest) == 0 && !there {
			return at
		}
		v = slices.Clone(v)
		if len(rest) == 0 {
			v[i] = value
		} else {
			v[i] = put(v[i], rest, value, there)
		}
		return v
	default:
		return at
	}
}
