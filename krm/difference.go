package krm

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// A Difference is a field that differs between two resources.
type Difference struct {
	Path   []string // keys, and indexes of lists
	A, B   any      // nil if the field is missing
	Secret bool     // A and B are confidential: Show and String hide them
}

// Differences returns the differences between two resources, in the order of
// their paths. Lists of different lengths differ as a whole. Values of Secrets
// are marked, wherever in the resource they are.
func Differences(a, b Resource) iter.Seq[Difference] {
	return func(yield func(Difference) bool) {
		differ(Difference{A: map[string]any(a), B: map[string]any(b)}, nil, "", yield)
	}
}

// differ calls yield for the differences of two values. inSecret is the path
// inside of a Secret, nil outside; name is that of the values: see [Mask].
func differ(d Difference, inSecret []string, name string, yield func(Difference) bool) bool {
	if isSecret(d.A) || isSecret(d.B) {
		inSecret = []string{}
	}
	inner := func(step, name string, a, b any) bool {
		at := inSecret
		if at != nil {
			at = append(slices.Clip(at), step)
		}
		return differ(Difference{Path: append(slices.Clip(d.Path), step), A: a, B: b}, at, name, yield)
	}
	switch a := d.A.(type) {
	case map[string]any:
		b, ok := d.B.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, k := range sortedKeys(keys) {
			name := k
			if variable, ok := a["name"].(string); ok && k == "value" {
				name = variable
			}
			if !inner(k, name, a[k], b[k]) {
				return false
			}
		}
		return true
	case []any:
		b, ok := d.B.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			if !inner(strconv.Itoa(i), "", a[i], b[i]) {
				return false
			}
		}
		return true
	default:
		if d.A == d.B {
			return true
		}
	}
	d.Secret = inSecret != nil && ConfidentialAt(inSecret) || NamesPassword(name)
	return yield(d)
}

func isSecret(v any) bool {
	m, ok := v.(map[string]any)
	return ok && m["kind"] == "Secret" && m["apiVersion"] == "v1"
}

// IsSecret reports whether a value is a Secret.
func IsSecret(v any) bool { return isSecret(v) }

// ConfidentialAt reports whether there may be a confidential value at a path of
// a Secret. Annotations may have a copy of the whole Secret.
func ConfidentialAt(path []string) bool {
	switch {
	case len(path) == 0:
		return true
	case path[0] == "metadata":
		return len(path) == 1 || path[1] == "annotations"
	default:
		return secretFields[path[0]] != ""
	}
}

// maxShown is the maximum length of a displayed value, in bytes.
const maxShown = 60

// Show returns A and B for display: short JSON, or hidden; missing stands for a
// missing value.
func (d Difference) Show(missing string) (a, b string) {
	return d.show(d.A, missing), d.show(d.B, missing)
}

func (d Difference) show(v any, missing string) string {
	switch {
	case v == nil:
		return missing
	case d.Secret:
		return "hidden"
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	masked, _ := Mask(v, FieldName(d.Path), func(any) any { return "hidden" })
	if err := e.Encode(masked); err != nil {
		return "something else"
	}
	return printable.Short(strings.TrimSpace(text.String()), maxShown)
}

// String returns, for example, `spec.ports[0].port: 80 → 81`.
func (d Difference) String() string {
	a, b := d.Show("(none)")
	return PathText(d.Path) + ": " + a + " → " + b
}

// PathText returns a path for display: `spec.ports[0].name`, or
// `metadata.labels["a.b"]` if a key has characters other than letters, digits,
// - and _.
func PathText(path []string) string {
	var b strings.Builder
	for _, step := range path {
		_, err := strconv.ParseUint(step, 10, 32)
		plain := step != "" && !strings.ContainsFunc(step, func(c rune) bool {
			return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_'
		})
		switch {
		case err == nil:
			b.WriteString("[" + step + "]")
		case !plain:
			b.WriteString("[" + strconv.Quote(step) + "]")
		case b.Len() > 0:
			b.WriteString("." + step)
		default:
			b.WriteString(step)
		}
	}
	return b.String()
}

// Changes returns lines that describe the changes from one package to another,
// for display: resources that are added, removed and changed, field by field,
// in the order of the packages. It leaves out the state in the Deployment
// resource.
func (p Package) Changes(to Package) iter.Seq[string] {
	p, to = p.WithoutDeploymentState(), to.WithoutDeploymentState()
	return func(yield func(string) bool) {
		there := make(map[Identity]Resource, len(p))
		for _, r := range p {
			there[r.Identity()] = r
		}
		for _, r := range to {
			id := r.Identity()
			was, known := there[id]
			delete(there, id)
			switch {
			case known:
				for d := range Differences(was, r) {
					if !yield(id.String() + ": " + d.String()) {
						return
					}
				}
			case emptyDeployment(r):
			default:
				if !yield(id.String() + ": added") {
					return
				}
			}
		}
		for _, r := range p {
			id := r.Identity()
			if _, left := there[id]; !left || emptyDeployment(r) {
				continue
			}
			delete(there, id)
			if !yield(id.String() + ": removed") {
				return
			}
		}
	}
}

// emptyDeployment reports whether a resource is a Deployment resource with
// nothing but the state.
func emptyDeployment(r Resource) bool {
	metadata, _ := r["metadata"].(map[string]any)
	return r.GVK() == DeploymentGVK && len(r) <= 3 && len(metadata) <= 1
}
