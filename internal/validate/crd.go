package validate

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"github.com/tko-orchestrator/tko/krm"
)

// crdGVK is the kind of CRDs whose schemas are read. No supported version of
// Kubernetes serves older ones.
var crdGVK = krm.GVK{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// A definition holds the parts of a CRD that matter for validation.
type definition struct {
	resource krm.Resource
	group    string
	kind     string
	versions []definedVersion
	digest   func() ([sha256.Size]byte, error) // of the CRD, computed once
}

type definedVersion struct {
	name   string
	path   []string // of the schema, from the CRD's root
	schema any      // openAPIV3Schema, nil if there is none
}

// define reads a CRD. It ignores values of the wrong type: the CRD's own schema
// reports them.
func define(r krm.Resource) *definition {
	root := map[string]any(r)
	d := &definition{resource: r, digest: sync.OnceValues(func() ([sha256.Size]byte, error) {
		digest, _, err := krm.DigestOf(krm.Package{r})
		return digest, err
	})}
	d.group, _ = dig(root, "spec", "group").(string)
	d.kind, _ = dig(root, "spec", "names", "kind").(string)
	versions, _ := dig(root, "spec", "versions").([]any)
	for i, v := range versions {
		name, _ := dig(v, "name").(string)
		if dig(v, "served") == false || name == "" {
			continue
		}
		d.versions = append(d.versions, definedVersion{
			name:   name,
			path:   []string{"spec", "versions", strconv.Itoa(i), "schema", "openAPIV3Schema"},
			schema: dig(v, "schema", "openAPIV3Schema"),
		})
	}
	return d
}

// An issue is an error in a schema.
type issue struct {
	path   []string
	reason string
}

// A structural converts the schemas of CRDs, which are OpenAPI v3 with
// extensions ("structural schemas"), to JSON schemas that accept what the API
// server accepts with strict field validation.
type structural struct {
	complete bool
	issues   []issue
}

func (c *structural) issue(path []string, format string, args ...any) {
	c.issues = append(c.issues, issue{slices.Clone(path), fmt.Sprintf(format, args...)})
}

// document converts the schema of a version. objectMeta is the document of a
// resource's metadata.
func (c *structural) document(schema any, path []string, meta map[string]any) map[string]any {
	root, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	s := c.node(root, path)
	if s["type"] == nil {
		s["type"] = "object"
	}
	definitions, _ := meta["definitions"].(map[string]any)
	c.resource(s, meta["$ref"])
	s["definitions"] = definitions
	return s
}

// resource adds the properties that every resource has.
func (c *structural) resource(s map[string]any, metadata any) {
	properties, _ := s["properties"].(map[string]any)
	if properties == nil {
		properties = map[string]any{}
		s["properties"] = properties
	}
	text := map[string]any{"type": "string"}
	for _, key := range []string{"apiVersion", "kind"} {
		if properties[key] == nil {
			properties[key] = text
		}
	}
	meta := map[string]any{"$ref": metadata}
	if own, ok := properties["metadata"].(map[string]any); ok {
		delete(own, "additionalProperties")
		meta = map[string]any{"allOf": []any{meta, own}}
	}
	properties["metadata"] = meta
}

// Keywords whose values are copied, by the required type of the value.
var (
	numberKeywords  = []string{"minimum", "maximum", "multipleOf"}
	countKeywords   = []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
	booleanKeywords = []string{"exclusiveMinimum", "exclusiveMaximum", "uniqueItems"}
	listKeywords    = []string{"allOf", "anyOf", "oneOf"}
	crdTypes        = []any{"array", "boolean", "integer", "number", "object", "string"}
)

// node converts a schema that defines the structure of a value.
func (c *structural) node(s map[string]any, path []string) map[string]any {
	out := c.values(s, path)
	preserve := s["x-kubernetes-preserve-unknown-fields"] == true
	if out["type"] == nil && !preserve && s["x-kubernetes-int-or-string"] != true && c.complete {
		c.issue(append(path, "type"), "is required: a structural schema names the type of every value")
	}
	isObject := s["type"] == "object"
	properties := c.properties(s, path, c.node)
	if properties != nil {
		out["properties"] = properties
	}
	switch additional := s["additionalProperties"].(type) {
	case nil:
		if isObject && !preserve {
			out["additionalProperties"] = false
		}
	case bool:
		if isObject && !preserve {
			out["additionalProperties"] = additional
		}
	case map[string]any:
		out["additionalProperties"] = c.node(additional, append(path, "additionalProperties"))
	default:
		c.issue(append(path, "additionalProperties"), "must be a schema or a boolean")
	}
	switch items := s["items"].(type) {
	case nil:
	case map[string]any:
		out["items"] = c.node(items, append(path, "items"))
	default:
		c.issue(append(path, "items"), "must be a schema")
	}
	if s["x-kubernetes-list-type"] == "set" {
		out["uniqueItems"] = true
	}
	if s["x-kubernetes-embedded-resource"] == true {
		c.resource(out, "#/definitions/"+objectMeta)
		required, _ := out["required"].([]any)
		for _, key := range []any{"apiVersion", "kind"} {
			if !slices.Contains(required, key) {
				required = append(slices.Clone(required), key)
			}
		}
		out["required"] = required
	}
	return out
}

// value converts a schema below allOf, anyOf, oneOf or not, which constrains a
// value but does not define its structure.
func (c *structural) value(s map[string]any, path []string) map[string]any {
	out := c.values(s, path)
	if properties := c.properties(s, path, c.value); properties != nil {
		out["properties"] = properties
	}
	if items, ok := s["items"].(map[string]any); ok {
		out["items"] = c.value(items, append(path, "items"))
	}
	if additional, ok := s["additionalProperties"].(map[string]any); ok {
		out["additionalProperties"] = c.value(additional, append(path, "additionalProperties"))
	}
	return out
}

func (c *structural) properties(s map[string]any, path []string, convert func(map[string]any, []string) map[string]any) map[string]any {
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		return nil
	}
	path = append(path, "properties")
	out := make(map[string]any, len(properties))
	for key, p := range properties {
		inner, ok := p.(map[string]any)
		if !ok {
			c.issue(append(path, key), "must be a schema")
			continue
		}
		out[key] = convert(inner, append(slices.Clone(path), key))
	}
	return out
}

// values converts the keywords that both forms of schemas have.
func (c *structural) values(s map[string]any, path []string) map[string]any {
	out := map[string]any{}
	c.types(s, path, out)
	for _, key := range numberKeywords {
		if v, ok := s[key]; ok && c.must(isNumber(v), path, key, "a number") {
			out[key] = v
		}
	}
	for _, key := range countKeywords {
		if v, ok := s[key]; ok && c.must(isCount(v), path, key, "a whole number, 0 or more") {
			out[key] = v
		}
	}
	for _, key := range booleanKeywords {
		if v, ok := s[key]; ok {
			if _, isBool := v.(bool); c.must(isBool, path, key, "a boolean") {
				out[key] = v
			}
		}
	}
	for _, key := range listKeywords {
		if v, ok := s[key]; ok {
			if list := c.list(v, append(path, key)); len(list) > 0 {
				out[key] = list
			}
		}
	}
	if v, ok := s["not"]; ok {
		if inner, isMap := v.(map[string]any); c.must(isMap, path, "not", "a schema") {
			out["not"] = c.value(inner, append(path, "not"))
		}
	}
	if v, ok := s["enum"]; ok {
		if list, isList := v.([]any); c.must(isList && len(list) > 0, path, "enum", "a list of values") {
			if s["nullable"] == true {
				list = append(slices.Clone(list), nil)
			}
			out["enum"] = distinct(list)
		}
	}
	if v, ok := s["required"]; ok {
		if list, isList := v.([]any); c.must(isList && allText(list), path, "required", "a list of names") && len(list) > 0 {
			out["required"] = distinct(list)
		}
	}
	if v, ok := s["pattern"]; ok {
		if text, isText := v.(string); c.must(isText, path, "pattern", "a regular expression") {
			if _, err := regexp.Compile(text); err != nil {
				c.issue(append(path, "pattern"), "is not a regular expression: %s", err)
			} else {
				out["pattern"] = text
			}
		}
	}
	if format, ok := s["format"].(string); ok {
		out["format"] = format
	}
	return out
}

func (c *structural) types(s map[string]any, path []string, out map[string]any) {
	var types []any
	switch t := s["type"]; {
	case s["x-kubernetes-int-or-string"] == true:
		types = []any{"integer", "string"}
	case t == nil || t == "":
		return
	case slices.Contains(crdTypes, t):
		types = []any{t}
	default:
		c.issue(append(path, "type"), "must be one of array, boolean, integer, number, object, string, is %s", show(t))
		return
	}
	if _, hasDefault := s["default"]; s["nullable"] == true || hasDefault {
		types = append(types, "null")
	}
	out["type"] = types
}

func (c *structural) list(v any, path []string) []any {
	list, ok := v.([]any)
	if !ok {
		c.issue(path, "must be a list of schemas")
		return nil
	}
	var out []any
	for i, inner := range list {
		at := append(slices.Clone(path), strconv.Itoa(i))
		m, ok := inner.(map[string]any)
		if !ok {
			c.issue(at, "must be a schema")
			continue
		}
		out = append(out, c.value(m, at))
	}
	return out
}

func (c *structural) must(ok bool, path []string, key, what string) (fine bool) {
	if !ok {
		c.issue(append(path, key), "must be %s", what)
	}
	return ok
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64, int:
		return true
	}
	return false
}

func isCount(v any) bool {
	switch v := v.(type) {
	case int64:
		return v >= 0
	case int:
		return v >= 0
	case float64:
		return v >= 0 && v == float64(int64(v))
	}
	return false
}

func allText(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(string); return !ok })
}

// distinct drops duplicate scalars, which JSON schema does not allow in lists
// of names and values.
func distinct(list []any) []any {
	seen := map[any]bool{}
	var out []any
	for _, v := range list {
		switch v.(type) {
		case map[string]any, []any:
		default:
			if seen[v] {
				continue
			}
			seen[v] = true
		}
		out = append(out, v)
	}
	return out
}

// crdFormats are the formats that the API server checks.
var crdFormats = formats("bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5",
	"isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "date", "duration", "date-time", "datetime")

var errFormat = errors.New("malformed")

func formats(names ...string) []*jsonschema.Format {
	var all []*jsonschema.Format
	for _, name := range names {
		all = append(all, &jsonschema.Format{Name: name, Validate: func(v any) error {
			if s, ok := v.(string); ok && !strfmt.Default.Validates(name, s) {
				return errFormat
			}
			return nil
		}})
	}
	return all
}
