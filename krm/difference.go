package krm

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Difference is a field that isn't the same in two resources.
type Difference struct {
	Path   []string // keys, and indexes of lists
	A, B   any      // nil where it isn't there
	Secret bool     // A and B are not for people: Show and String hide them
}

// Differences are those of one resource from another, in the order of their
// paths. Lists of different lengths differ as a whole. What a Secret holds is
// marked so, wherever in the resource that is.
func Differences(a, b Resource) iter.Seq[Difference] {
	return func(yield func(Difference) bool) {
		differ(Difference{A: map[string]any(a), B: map[string]any(b)}, nil, yield)
	}
}

// differ goes through the differences of two values. inSecret is where in a
// Secret they are, nil if they are in none.
func differ(d Difference, inSecret []string, yield func(Difference) bool) bool {
	if isSecret(d.A) || isSecret(d.B) {
		inSecret = []string{}
	}
	inner := func(step string, a, b any) bool {
		at := inSecret
		if at != nil {
			at = append(slices.Clip(at), step)
		}
		return differ(Difference{Path: append(slices.Clip(d.Path), step), A: a, B: b}, at, yield)
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
			if !inner(k, a[k], b[k]) {
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
			if !inner(strconv.Itoa(i), a[i], b[i]) {
				return false
			}
		}
		return true
	default:
		if d.A == d.B {
			return true
		}
	}
	d.Secret = inSecret != nil && secretAt(inSecret)
	return yield(d)
}

func isSecret(v any) bool {
	m, ok := v.(map[string]any)
	return ok && m["kind"] == "Secret" && m["apiVersion"] == "v1"
}

// secretAt says whether there may be something secret at a path of a Secret.
// Annotations may hold a copy of all of it.
func secretAt(path []string) bool {
	switch {
	case len(path) == 0:
		return true
	case path[0] == "metadata":
		return len(path) == 1 || path[1] == "annotations"
	default:
		return path[0] == "data" || path[0] == "stringData"
	}
}

// maxShown is how much of a value is shown, in bytes.
const maxShown = 60

// Show is what people see of A and B: short JSON, or hidden; missing is what
// is said of what isn't there.
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
	if err := e.Encode(masked(v)); err != nil {
		return "something else"
	}
	return brief(strings.TrimSpace(text.String()), maxShown)
}

// masked is a value without what Secrets in it hold.
func masked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		secret := isSecret(v)
		result := make(map[string]any, len(v))
		for k, inner := range v {
			if secret && secretAt([]string{k}) {
				inner = "hidden"
			}
			result[k] = masked(inner)
		}
		return result
	case []any:
		result := make([]any, len(v))
		for i, inner := range v {
			result[i] = masked(inner)
		}
		return result
	default:
		return v
	}
}

// String is `spec.ports[0].port: 80 → 81`.
func (d Difference) String() string {
	a, b := d.Show("(none)")
	return PathText(d.Path) + ": " + a + " → " + b
}

// PathText writes a path for people: `spec.ports[0].name`, and
// `metadata.labels["a.b"]` where a key has other characters than letters,
// digits, - and _.
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

// Changes tells people what makes one package of another, at most so many
// lines: resources that are added, removed and changed, these field by field,
// in the order of the packages. What the Deployment resource says of the state
// of a deployment isn't told.
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

// emptyDeployment says whether a resource is a Deployment resource that says
// nothing but the state.
func emptyDeployment(r Resource) bool {
	metadata, _ := r["metadata"].(map[string]any)
	return r.GVK() == DeploymentGVK && len(r) <= 3 && len(metadata) <= 1
}
