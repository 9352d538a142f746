package validate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// Limits of the errors that a hostile package can cause.
const (
	maxFindings = 1000
	maxText     = 500 // of a path or a reason, in bytes
)

// findings collects errors, one resource after the other.
type findings struct {
	list  []tko.Finding
	more  int             // findings that were left out
	begin int             // index in list of the current resource's first finding
	paths map[string]bool // of the current resource's findings
	id    krm.Identity

	partial     bool          // whether values may be placeholders
	byTemplates bool          // whether CRDs of templates found an error
	warnings    []tko.Finding // that don't make the package invalid
}

// next starts the findings of another resource.
func (f *findings) next(id krm.Identity) {
	f.sort()
	f.begin, f.paths, f.id = len(f.list), map[string]bool{}, id
}

// add adds a finding. Only the first finding of a path counts, because the
// checks with the best explanations run first.
func (f *findings) add(path, format string, args ...any) {
	if f.paths[path] {
		return
	}
	f.paths[path] = true
	f.addAgain(path, fmt.Sprintf(format, args...))
}

// addAgain adds a finding even if the path already has one.
func (f *findings) addAgain(path, reason string) {
	f.put(shorten(path), shorten(reason))
}

// addWhole is add for a path and reason that are already shortened.
func (f *findings) addWhole(path, reason string) {
	if f.paths[path] {
		return
	}
	f.paths[path] = true
	f.put(path, reason)
}

func (f *findings) put(path, reason string) {
	if len(f.list) >= maxFindings {
		f.more++
		return
	}
	f.list = append(f.list, tko.Finding{Resource: f.id, Path: path, Reason: reason})
}

func (f *findings) sort() {
	slices.SortStableFunc(f.list[f.begin:], func(a, b tko.Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Reason, b.Reason))
	})
}

// err returns the findings as a *tko.InvalidPackageError, or nil if there are
// none.
func (f *findings) err() error {
	if len(f.list) == 0 {
		return nil
	}
	f.sort()
	if f.more > 0 {
		last := f.list[len(f.list)-1].Resource
		f.list = append(f.list, tko.Finding{Resource: last, Reason: fmt.Sprintf("%d more findings are omitted", f.more)})
	}
	return &tko.InvalidPackageError{Findings: f.list, ByTemplates: f.byTemplates}
}

// unknownProperty is the reason of a property that a schema doesn't have.
const unknownProperty = "unknown property"

// warn adds a warning about the current resource.
func (f *findings) warn(path, reason string) {
	if len(f.warnings) < maxFindings {
		f.warnings = append(f.warnings, tko.Finding{Resource: f.id, Path: path, Reason: reason})
	}
}

func shorten(s string) string { return printable.Short(s, maxText) }

// check adds the errors that a schema finds in the resource.
func (f *findings) check(schema *jsonschema.Schema, r krm.Resource) {
	root := map[string]any(r)
	err := schema.Validate(root)
	var invalid *jsonschema.ValidationError
	switch {
	case errors.As(err, &invalid) && f.partial && unfilled(invalid, root):
	case errors.As(err, &invalid):
		explain(invalid, root, f.partial, f.add)
	case err != nil:
		f.add("", "%s", err)
	}
}

// unfilled reports whether a validation error is only about placeholders, which are filled
// before the package is validated completely.
func unfilled(e *jsonschema.ValidationError, root any) bool {
	switch k := e.ErrorKind.(type) {
	case *kind.Required, *kind.AdditionalProperties:
		return false
	case *kind.AnyOf:
		return isUnfilled(root, e.InstanceLocation) || slices.ContainsFunc(e.Causes, func(c *jsonschema.ValidationError) bool { return unfilled(c, root) })
	case *kind.OneOf:
		return isUnfilled(root, e.InstanceLocation) || len(k.Subschemas) == 0 && slices.ContainsFunc(e.Causes, func(c *jsonschema.ValidationError) bool { return unfilled(c, root) })
	case *kind.Schema, *kind.Reference, *kind.Group, *kind.AllOf:
		return len(e.Causes) > 0 && !slices.ContainsFunc(e.Causes, func(c *jsonschema.ValidationError) bool { return !unfilled(c, root) })
	}
	return isUnfilled(root, e.InstanceLocation)
}

// isUnfilled reports whether the value at a place is a placeholder.
func isUnfilled(root any, tokens []string) bool {
	for _, t := range tokens {
		switch at := root.(type) {
		case map[string]any:
			root = at[t]
		case []any:
			i, err := strconv.Atoi(t)
			if err != nil || i < 0 || i >= len(at) {
				return false
			}
			root = at[i]
		default:
			return false
		}
	}
	return krm.IsPlaceholder(root)
}

// explain calls add for the leaves of a validation error. With partial, placeholders are no
// errors.
func explain(e *jsonschema.ValidationError, root any, partial bool, add func(path, format string, args ...any)) {
	here := e.InstanceLocation
	if partial && unfilled(e, root) {
		return
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			add(pathOf(root, append(slices.Clone(here), name)), "is required")
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			add(pathOf(root, append(slices.Clone(here), name)), "%s", unknownProperty)
		}
	case *kind.AnyOf:
		add(pathOf(root, here), "%s", alternatives(e, root))
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			add(pathOf(root, here), "matches more than one of the alternatives of which exactly one is allowed")
			return
		}
		add(pathOf(root, here), "%s", alternatives(e, root))
	case *kind.Schema, *kind.Reference, *kind.Group, *kind.AllOf:
		for _, cause := range e.Causes {
			explain(cause, root, partial, add)
		}
	default:
		hint := ""
		if isUnfilled(root, here) {
			hint = ": it is a placeholder that nothing has filled"
		}
		add(pathOf(root, here), "%s%s", reason(e.ErrorKind), hint)
	}
}

// alternatives returns the reasons why none of the alternatives matches.
func alternatives(e *jsonschema.ValidationError, root any) string {
	here := pathOf(root, e.InstanceLocation)
	var reasons []string
	for _, cause := range e.Causes {
		var all []string
		explain(cause, root, false, func(path, format string, args ...any) {
			text := fmt.Sprintf(format, args...)
			if rest := strings.TrimPrefix(strings.TrimPrefix(path, here), "."); rest != "" {
				text = rest + " " + text
			}
			all = append(all, text)
		})
		slices.Sort(all)
		if text := strings.Join(all, " and "); !slices.Contains(reasons, text) {
			reasons = append(reasons, text)
		}
	}
	return "matches none of the alternatives: " + strings.Join(reasons, "; or ")
}

// reason returns the error of a value, without the value itself, because it may
// be secret. Only values of enumerations are shown.
func reason(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be " + wanted(k.Want) + ", is " + noun(k.Got) + quoteHint(k)
	case *kind.Enum:
		return "must be " + choice(k.Want) + ", is " + show(k.Got)
	case *kind.Const:
		return "must be " + show(k.Want) + ", is " + show(k.Got)
	case *kind.Format:
		return "is not a valid " + k.Want
	case *kind.Pattern:
		return "does not match the pattern " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("has %d characters, must have at least %d", k.Got, k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("has %d characters, must have at most %d", k.Got, k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("has %d items, must have at least %d", k.Got, k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("has %d items, must have at most %d", k.Got, k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("has %d properties, must have at least %d", k.Got, k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("has %d properties, must have at most %d", k.Got, k.Want)
	case *kind.UniqueItems:
		return fmt.Sprintf("has the same item twice, at %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.Minimum:
		f, _ := k.Want.Float64()
		return fmt.Sprintf("must be at least %v", f)
	case *kind.Maximum:
		f, _ := k.Want.Float64()
		return fmt.Sprintf("must be at most %v", f)
	case *kind.ExclusiveMinimum:
		f, _ := k.Want.Float64()
		return fmt.Sprintf("must be more than %v", f)
	case *kind.ExclusiveMaximum:
		f, _ := k.Want.Float64()
		return fmt.Sprintf("must be less than %v", f)
	case *kind.MultipleOf:
		f, _ := k.Want.Float64()
		return fmt.Sprintf("must be a multiple of %v", f)
	case *kind.Not, *kind.FalseSchema:
		return "is excluded by the schema"
	case *kind.InvalidJsonValue:
		return "is a number that JSON can't represent"
	}
	return "does not match the schema (" + strings.Join(k.KeywordPath(), " ") + ")"
}

func wanted(types []string) string {
	var nouns []string
	for _, t := range types {
		if t != "null" || len(types) == 1 {
			nouns = append(nouns, noun(t))
		}
	}
	return strings.Join(nouns, " or ")
}

func noun(jsonType string) string {
	switch jsonType {
	case "object":
		return "a map"
	case "array":
		return "a list"
	case "boolean":
		return "a boolean"
	case "integer":
		return "an integer"
	case "null":
		return "null"
	}
	return "a " + jsonType
}

// quoteHint returns a remedy for the most common mistake in YAML.
func quoteHint(k *kind.Type) string {
	if (k.Got == "number" || k.Got == "boolean") && slices.Contains(k.Want, "string") {
		return ": put it in quotes"
	}
	return ""
}

func choice(values []any) string {
	var words []string
	for _, v := range values {
		if v != nil && v != "" {
			words = append(words, show(v))
		}
	}
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + strings.Join(words, ", ")
}

func show(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(shorten(v))
	case nil:
		return "null"
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	}
	return fmt.Sprint(v)
}

// pathOf returns the path of a value, such as spec.containers[0].image.
func pathOf(root any, tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		if list, ok := root.([]any); ok {
			root = nil
			if i, err := strconv.Atoi(t); err == nil && i >= 0 && i < len(list) {
				root = list[i]
			}
			b.WriteString("[" + t + "]")
			continue
		}
		if m, ok := root.(map[string]any); ok {
			root = m[t]
		}
		if t == "" || strings.ContainsFunc(t, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t = strconv.Quote(t)
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(t)
	}
	return b.String()
}
