package krm

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// Merge merges resources into a package and returns the result. It doesn't
// change its arguments; the result shares unchanged parts with them.
//
// Each resource is renamed by its rename annotation and matched by identity. A
// resource without a match is added. Otherwise it replaces the matching one;
// with the merge annotation Override, and always if it is the Deployment
// resource, it is merged into the matching one deeply: maps by key, while lists
// and scalars are replaced. An unknown value of an annotation is an error.
func Merge(into, resources Package) (Package, error) {
	result := slices.Grow(slices.Clone(into), len(resources))
	places := make(map[Identity]int, len(into)+len(resources))
	for i, r := range into {
		id := r.Identity()
		if _, ok := places[id]; !ok {
			places[id] = i
		}
	}
	for i, r := range resources {
		r, override, err := mergeable(r)
		if err != nil {
			err.Index = i + 1
			err.Resource = resources[i].Identity()
			return nil, err
		}
		id := r.Identity()
		at, ok := places[id]
		switch {
		case !ok:
			places[id] = len(result)
			result = append(result, r)
		case override || id.GVK == DeploymentGVK:
			result[at] = overlay(result[at], r)
		default:
			result[at] = r
		}
	}
	return result, nil
}

// mergeable returns the resource with its name after merging, and whether it is
// merged deeply.
func mergeable(r Resource) (renamed Resource, override bool, err *Error) {
	how, _, err := r.annotation(AnnotationMerge, Replace, Override)
	if err != nil {
		return nil, false, err
	}
	name, ok, err := r.annotation(AnnotationRename)
	if err != nil {
		return nil, false, err
	}
	if ok && name == "" {
		return nil, false, &Error{Path: "metadata.annotations." + AnnotationRename, Reason: "must be a name, but is empty"}
	}
	if ok && name != r.Name() {
		r = r.shallow("metadata")
		r.setName(name)
	}
	return r, how == Override, nil
}

// annotation reads an annotation whose value must be one of values; any text if
// there are none.
func (r Resource) annotation(name string, values ...string) (value string, ok bool, err *Error) {
	v, ok := r.Get("metadata", "annotations", name)
	if !ok || v == nil {
		return "", false, nil
	}
	value, isText := v.(string)
	if !isText {
		return "", false, &Error{Path: "metadata.annotations." + name, Reason: "must be text, but is " + describe(v) + "; put it in quotes"}
	}
	if len(values) > 0 && !slices.Contains(values, value) {
		return "", false, &Error{Path: "metadata.annotations." + name, Reason: "must be one of " + join(values) + ", but is " + strconv.Quote(printable.Short(value, 100))}
	}
	return value, true, nil
}

func join(values []string) string {
	last := len(values) - 1
	if last == 0 {
		return values[0]
	}
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// overlay merges maps deeply without changing either.
func overlay[M ~map[string]any](base, over M) M {
	merged := maps.Clone(base)
	if merged == nil {
		merged = make(M, len(over))
	}
	for k, v := range over {
		b, ok := merged[k].(map[string]any)
		if o, isMap := v.(map[string]any); ok && isMap {
			merged[k] = overlay(b, o)
		} else {
			merged[k] = v
		}
	}
	return merged
}

// ForChild returns the resources that a Placement or Site passes to a child:
// Postpone becomes Here, and an explicit Here becomes Never. It doesn't change
// its argument; the result shares unchanged parts with it.
func ForChild(resources Package) Package {
	result := slices.Clone(resources)
	for i, r := range result {
		copied := false
		for _, name := range []string{AnnotationPrepare, AnnotationMetadata} {
			var becomes string
			switch r.Annotation(name) {
			case Postpone:
				becomes = Here
			case Here:
				becomes = Never
			default:
				continue
			}
			if !copied {
				r, copied = r.shallow("metadata", "annotations"), true
			}
			r.SetAnnotation(name, becomes)
		}
		result[i] = r
	}
	return result
}
