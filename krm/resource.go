package krm

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// Clone returns a deep copy.
func (p Package) Clone() Package {
	if p == nil {
		return nil
	}
	c := make(Package, len(p))
	for i, r := range p {
		c[i] = r.Clone()
	}
	return c
}

// Index returns the position of a resource, or -1.
func (p Package) Index(id Identity) int {
	return slices.IndexFunc(p, func(r Resource) bool { return r.is(id) })
}

// Find returns a resource of the package, not a copy, or nil.
func (p Package) Find(id Identity) Resource {
	if i := p.Index(id); i >= 0 {
		return p[i]
	}
	return nil
}

// Check returns all errors in the resources of a package (as [Errors]): a
// missing or non-string apiVersion or kind, two resources of the same identity,
// a name that is not a string, metadata that is not a map, annotations that are
// not a map of strings.
func (p Package) Check() error {
	const enough = 50 // errors to report at a time
	var errs Errors
	seen := make(map[Identity]int, len(p))
	for i, r := range p {
		bad := len(errs)
		for _, e := range r.check() {
			errs = append(errs, &Error{Index: i + 1, Resource: r.Identity(), Path: e.Path, Reason: e.Reason})
		}
		if len(errs) == bad {
			id := r.Identity()
			if first, ok := seen[id]; ok {
				errs = append(errs, &Error{Index: i + 1, Resource: id, Reason: "is in the package already, as resource " + strconv.Itoa(first) + "; rename or remove one of them"})
			} else {
				seen[id] = i + 1
			}
		}
		if len(errs) >= enough {
			break
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// check returns the errors in one resource.
func (r Resource) check() []*Error {
	var errs []*Error
	for _, key := range []string{"apiVersion", "kind"} {
		switch v, ok := r[key]; {
		case !ok || v == nil:
			errs = append(errs, &Error{Path: key, Reason: "is missing"})
		case !isText(v):
			errs = append(errs, &Error{Path: key, Reason: "must be text, but is " + describe(v)})
		case v == "":
			errs = append(errs, &Error{Path: key, Reason: "is empty"})
		}
	}
	if e := checkAPIVersion(r["apiVersion"]); e != nil {
		errs = append(errs, e)
	}
	if r["metadata"] == nil {
		return errs
	}
	metadata, ok := r["metadata"].(map[string]any)
	if !ok {
		return append(errs, &Error{Path: "metadata", Reason: "must be a map, but is " + describe(r["metadata"])})
	}
	if v := metadata["name"]; v != nil && !isText(v) {
		errs = append(errs, &Error{Path: "metadata.name", Reason: "must be text, but is " + describe(v) + "; put it in quotes"})
	}
	if metadata["annotations"] == nil {
		return errs
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		return append(errs, &Error{Path: "metadata.annotations", Reason: "must be a map, but is " + describe(metadata["annotations"])})
	}
	for _, key := range sortedKeys(annotations) {
		if v := annotations[key]; !isText(v) {
			errs = append(errs, &Error{Path: "metadata.annotations." + key, Reason: "must be text, but is " + describe(v) + "; put it in quotes"})
		}
	}
	return errs
}

func checkAPIVersion(v any) *Error {
	s, ok := v.(string)
	if !ok || s == "" {
		return nil // reported already
	}
	group, version, cut := strings.Cut(s, "/")
	if cut && (group == "" || version == "" || strings.Contains(version, "/")) {
		return &Error{Path: "apiVersion", Reason: "must be VERSION or GROUP/VERSION, but is " + strconv.Quote(printable.Short(s, 100))}
	}
	return nil
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok
}

// describe returns the type of a value in the terms of users.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return "the number " + strconv.FormatInt(v, 10)
	case float64:
		return "the number " + strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return "text"
	case []any:
		return "a list"
	case map[string]any, Resource:
		return "a map"
	}
	return "of an unknown type"
}

// Clone returns a deep copy.
func (r Resource) Clone() Resource {
	if r == nil {
		return nil
	}
	c := make(Resource, len(r))
	for k, v := range r {
		c[k] = clone(v)
	}
	return c
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return v
		}
		c := make(map[string]any, len(v))
		for k, x := range v {
			c[k] = clone(x)
		}
		return c
	case []any:
		if v == nil {
			return v
		}
		c := make([]any, len(v))
		for i, x := range v {
			c[i] = clone(x)
		}
		return c
	}
	return v
}

// GVK returns the group, version and kind of the resource.
func (r Resource) GVK() GVK {
	apiVersion, _ := r["apiVersion"].(string)
	kind, _ := r["kind"].(string)
	return ParseGVK(apiVersion, kind)
}

// Name returns metadata.name, or else name at the root, or else "".
func (r Resource) Name() string {
	if metadata, ok := r["metadata"].(map[string]any); ok {
		if name, ok := metadata["name"].(string); ok {
			return name
		}
	}
	name, _ := r["name"].(string)
	return name
}

// setName sets the name in the place where the resource has it.
func (r Resource) setName(name string) {
	metadata, _ := r["metadata"].(map[string]any)
	_, named := metadata["name"].(string)
	if _, atRoot := r["name"].(string); atRoot && !named {
		r["name"] = name
		return
	}
	r.Set(name, "metadata", "name")
}

// Identity returns GVK and name.
func (r Resource) Identity() Identity { return Identity{GVK: r.GVK(), Name: r.Name()} }

// is compares the identity, the name first because it differs most often.
func (r Resource) is(id Identity) bool { return r.Name() == id.Name && r.GVK() == id.GVK }

// Annotation returns the value of an annotation, "" if it is missing.
func (r Resource) Annotation(name string) string {
	metadata, _ := r["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	value, _ := annotations[name].(string)
	return value
}

// SetAnnotation sets an annotation, creating metadata and annotations as
// needed; an empty value removes it.
func (r Resource) SetAnnotation(name, value string) {
	if value != "" {
		r.Set(value, "metadata", "annotations", name)
		return
	}
	metadata, _ := r["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	delete(annotations, name)
	if annotations != nil && len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}

// IsPrepared reports whether the annotation prepared is true.
func (r Resource) IsPrepared() bool { return r.Annotation(AnnotationPrepared) == "true" }

// SetPrepared sets the annotation prepared to true.
func (r Resource) SetPrepared() { r.SetAnnotation(AnnotationPrepared, "true") }

// Get returns the value at a path of map keys, and of list indexes in decimal.
func (r Resource) Get(path ...string) (any, bool) {
	var at any = map[string]any(r)
	for _, step := range path {
		switch v := at.(type) {
		case map[string]any:
			next, ok := v[step]
			if !ok {
				return nil, false
			}
			at = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			at = v[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// Text returns the string at a path, or "".
func (r Resource) Text(path ...string) string {
	v, _ := r.Get(path...)
	s, _ := v.(string)
	return s
}

// Set sets a value at a path of map keys, making maps as needed, also in place
// of other values. In addition to the types of a resource, it accepts Go's
// other number types, and lists and maps of strings.
func (r Resource) Set(value any, path ...string) {
	if len(path) == 0 {
		return
	}
	at := map[string]any(r)
	for _, step := range path[:len(path)-1] {
		next, ok := at[step].(map[string]any)
		if !ok || next == nil {
			next = make(map[string]any, 1)
			at[step] = next
		}
		at = next
	}
	at[path[len(path)-1]] = plain(value)
}

// plain converts common Go types to those of a resource.
func plain(value any) any {
	switch v := value.(type) {
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case uint32:
		return int64(v)
	case float32:
		return float64(v)
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		return list
	case map[string]string:
		m := make(map[string]any, len(v))
		for k, s := range v {
			m[k] = s
		}
		return m
	case Resource:
		return map[string]any(v)
	}
	return value
}

// shallow copies the resource and the maps on the given path, so that the
// values there can be changed.
func (r Resource) shallow(path ...string) Resource {
	c := maps.Clone(r)
	at := map[string]any(c)
	for _, step := range path {
		next, ok := at[step].(map[string]any)
		if !ok {
			break
		}
		next = maps.Clone(next)
		at[step] = next
		at = next
	}
	return c
}

// Orchestration reports whether the group is nephio.org or one of its
// subdomains.
func (g GVK) Orchestration() bool {
	return g.Group == "nephio.org" || strings.HasSuffix(g.Group, ".nephio.org")
}
