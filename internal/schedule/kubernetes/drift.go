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

// A difference is a field that isn't as it should be.
type difference struct {
	at         pointer
	live, want any // nil if it isn't there
}

// maxDifferences bounds what is gathered of an object.
const maxDifferences = 20

// differences are those of an object as it is from what it would be, without
// what only the API server writes.
func differences(live, want *unstructured.Unstructured) []difference {
	var all []difference
	compare(nil, writable(live.Object), writable(want.Object), &all)
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

func compare(at pointer, live, want any, all *[]difference) {
	if len(*all) >= maxDifferences {
		return
	}
	switch live := live.(type) {
	case map[string]any:
		want, ok := want.(map[string]any)
		if !ok {
			break
		}
		keys := map[string]bool{}
		for k := range live {
			keys[k] = true
		}
		for k := range want {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			compare(append(slices.Clip(at), k), live[k], want[k], all)
		}
		return
	case []any:
		want, ok := want.([]any)
		if !ok || len(live) != len(want) {
			break
		}
		for i := range live {
			compare(append(slices.Clip(at), strconv.Itoa(i)), live[i], want[i], all)
		}
		return
	default:
		if live == want {
			return
		}
	}
	*all = append(*all, difference{at: at, live: live, want: want})
}

const (
	fewDifferences = 3
	maxValue       = 60 // bytes of a value that is shown
)

// describeDifferences says what was found where, the first few; the values of
// secrets it keeps to itself.
func describeDifferences(k key, all []difference) string {
	lines := make([]string, len(all))
	for i, d := range all {
		if k.Group == "" && k.Kind == "Secret" && (d.at[0] == "data" || d.at[0] == "stringData") {
			lines[i] = d.at.String() + " differs"
			continue
		}
		lines[i] = fmt.Sprintf("%s is %s, should be %s", d.at, show(d.live), show(d.want))
	}
	return firstFew(lines, fewDifferences)
}

func show(value any) string {
	if value == nil {
		return "missing"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "something else"
	}
	return bounded(string(text), maxValue)
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
