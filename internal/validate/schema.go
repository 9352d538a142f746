package validate

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var errNoReferences = errors.New("this schema may refer to itself only")

// noLoader refuses references to other documents.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errNoReferences }

// compile returns the compiled schema of a document.
func compile(url string, document any, loader jsonschema.URLLoader, formats ...*jsonschema.Format) (*jsonschema.Schema, error) {
	c := newCompiler(loader, formats...)
	if err := c.AddResource(url, document); err != nil {
		return nil, err
	}
	return c.Compile(url)
}

func newCompiler(loader jsonschema.URLLoader, formats ...*jsonschema.Format) *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft4)
	c.RegisterFormat(&jsonschema.Format{Name: "duration", Validate: checkDuration})
	for _, f := range formats {
		c.RegisterFormat(f)
	}
	c.UseLoader(loader)
	return c
}

var (
	isoDuration  = regexp.MustCompile(`^P(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?)$`)
	wordDuration = regexp.MustCompile(`^\d+ *(ns|us|µs|ms|s|m|h|d|w|nanos?|micros?|millis?|secs?|seconds?|mins?|minutes?|hours?|days?|weeks?)$`)
	errDuration  = errors.New("use one like 1h30m or PT1H30M")
)

// checkDuration accepts durations of Kubernetes and of JSON schema.
func checkDuration(v any) error {
	s, ok := v.(string)
	if !ok || isoDuration.MatchString(s) && s != "P" && s[len(s)-1] != 'T' || wordDuration.MatchString(s) {
		return nil
	}
	if _, err := time.ParseDuration(s); err != nil {
		return errDuration
	}
	return nil
}

// relax returns a schema for partial validation: nothing is required, and null
// is allowed where a value may be absent. Alternatives that differ only in
// their required properties become indistinguishable, so oneOf becomes anyOf.
// Exclusions (not) remain: additional properties don't remove an error of that
// kind.
func relax(schema any) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return schema // true, false
	}
	out := make(map[string]any, len(s))
	for key, v := range s {
		switch key {
		case "required", "dependentRequired", "oneOf":
		case "properties", "patternProperties", "definitions", "$defs", "dependentSchemas":
			out[key] = relaxAll(v)
		case "dependencies":
			out[key] = relaxDependencies(v)
		case "items", "additionalProperties", "additionalItems", "if", "then", "else", "unevaluatedProperties", "contains":
			out[key] = relaxEither(v)
		case "allOf", "anyOf", "prefixItems":
			out[key] = relaxEither(v)
		case "type":
			out[key] = orNullType(v)
		case "enum":
			if values, ok := v.([]any); ok && !slices.Contains(values, nil) {
				v = append(slices.Clone(values), nil)
			}
			out[key] = v
		default:
			out[key] = v
		}
	}
	if alternatives, ok := s["oneOf"]; ok {
		if _, both := out["anyOf"]; both {
			all, _ := out["allOf"].([]any)
			out["allOf"] = append(slices.Clone(all), map[string]any{"anyOf": relaxEither(alternatives)})
		} else {
			out["anyOf"] = relaxEither(alternatives)
		}
	}
	return out
}

func relaxAll(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(m))
	for key, schema := range m {
		out[key] = relax(schema)
	}
	return out
}

func relaxEither(v any) any {
	list, ok := v.([]any)
	if !ok {
		return relax(v)
	}
	out := make([]any, len(list))
	for i, schema := range list {
		out[i] = relax(schema)
	}
	return out
}

// relaxDependencies drops the dependencies that are lists of required names.
func relaxDependencies(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(_ string, v any) bool { _, names := v.([]any); return names })
	return relaxAll(m)
}

func orNullType(v any) any {
	switch v := v.(type) {
	case string:
		return []any{v, "null"}
	case []any:
		if !slices.Contains(v, any("null")) {
			return append(slices.Clone(v), "null")
		}
	}
	return v
}
