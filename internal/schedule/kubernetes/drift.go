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

// fieldsOf returns a hash of the managed fields that the API server attributes to
// TKO, and of the second of their last change; empty if there are none. The API
// server takes a field from TKO when another client changes or removes it. The time
// reveals late changes by TKO itself: a request of a meta-scheduler that died may
// arrive later.
func fieldsOf(r *unstructured.Unstructured) string {
	for _, m := range r.GetManagedFields() {
		if m.Manager == manager && m.Operation == "Apply" && m.Subresource == "" && m.FieldsV1 != nil {
			text, err := json.Marshal(m.FieldsV1) // sorted by the API server
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

// maxDifferences bounds the differences of an object that are collected.
const maxDifferences = 20

// differences returns the differences between an object as it is and as it should be,
// without fields that only the API server writes.
func differences(live, want *unstructured.Unstructured) []krm.Difference {
	var all []krm.Difference
	for d := range krm.Differences(writable(live.Object), writable(want.Object)) {
		all = append(all, d)
		if len(all) == maxDifferences {
			break
		}
	}
	return all
}

// writable returns a copy of an object with only the fields that clients can apply.
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

// describeDifferences describes the first few differences, without the values of
// secrets.
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

// withIgnored returns content with the ignored fields set to their values in the
// cluster.
func withIgnored(content map[string]any, live *unstructured.Unstructured, pointers []pointer) map[string]any {
	if len(pointers) == 0 || live == nil {
		return content
	}
	var result any = content
	for _, p := range pointers {
		value, there := krm.Resource(live.Object).Get(p...)
		result = withValue(result, p, value, there)
	}
	changed, ok := result.(map[string]any)
	if !ok {
		return content
	}
	return changed
}

// withValue returns a copy of at with value at the pointer, or without a value there.
// It creates missing maps on the path, but no list elements.
func withValue(at any, p pointer, value any, there bool) any {
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
			v[step] = withValue(inner, rest, value, there)
		case there:
			v[step] = withValue(map[string]any{}, rest, value, there)
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
			v[i] = withValue(v[i], rest, value, there)
		}
		return v
	default:
		return at
	}
}
