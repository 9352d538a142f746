package webapi

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// schemas are the JSON schemas of the types of responses, by their names in the description.
type schemas map[string]object

// stateSchema lists the values of states. Kinds aren't listed: clients that were made earlier
// would refuse those that are added.
func stateSchema() object { return object{"type": "string", "enum": tko.States()} }

// of returns the schema of a type: a reference for structs, which become components.
func (s schemas) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[tko.State]():
		return stateSchema()
	case reflect.TypeFor[Position]():
		return object{"type": "string", "pattern": "^[0-9]+$"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		name := SchemaName(t)
		if s[name] == nil {
			s[name] = object{} // types may contain themselves
			s[name] = s.structure(name, t)
		}
		return object{"$ref": "#/components/schemas/" + name}
	default:
		panic("responses have no schema of a " + t.String() + ": add one")
	}
}

// structure returns the schema of a struct. Fields that responses may lack aren't required.
func (s schemas) structure(name string, t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range JSONFields(t) {
		schema := s.of(f.Type)
		if about := comments[name+"."+f.Name]; about != "" {
			schema["description"] = about
		}
		properties[f.Name] = schema
		if !f.Optional {
			required = append(required, f.Name)
		}
	}
	slices.Sort(required)
	schema := object{"type": "object", "properties": properties, "required": required}
	if about := comments[name]; about != "" {
		schema["description"] = about
	}
	return schema
}

// A JSONField is a field of a type as its JSON has it.
type JSONField struct {
	Name     string // in JSON
	Of       reflect.Type
	Go       string // its name in Go, in the type Of, which may be embedded
	Type     reflect.Type
	Optional bool // JSON lacks it if it isn't set
}

// JSONFields returns the fields of a struct, with those of embedded ones. A field of the
// struct hides those of the same name in embedded ones, as in [json].
func JSONFields(t reflect.Type) (fields []JSONField) {
	var embedded []JSONField
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			embedded = append(embedded, JSONFields(f.Type)...)
		case name == "" || name == "-":
		default:
			fields = append(fields, JSONField{name, t, f.Name, f.Type, strings.HasPrefix(options, "omit")})
		}
	}
	for _, f := range embedded {
		if !slices.ContainsFunc(fields, func(other JSONField) bool { return other.Name == f.Name }) {
			fields = append(fields, f)
		}
	}
	return fields
}

// SchemaName returns the name of a type in the description: Site of siteBody, SitePage of
// pageBody[siteRowBody].
func SchemaName(t reflect.Type) string {
	outer, inner, generic := strings.Cut(strings.TrimSuffix(t.Name(), "]"), "[")
	name := strings.TrimSuffix(outer, "Body")
	name = strings.ToUpper(name[:1]) + name[1:]
	if generic {
		inner = strings.TrimSuffix(inner[strings.LastIndex(inner, ".")+1:], "RowBody")
		name = strings.ToUpper(inner[:1]) + inner[1:] + name
	}
	return name
}

// ResponseTypes returns the structs that responses consist of, by their names in the
// description.
func ResponseTypes() map[string]reflect.Type {
	all := map[string]reflect.Type{}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(t.Elem())
		case reflect.Struct:
			if t == reflect.TypeFor[time.Time]() || all[SchemaName(t)] == t {
				return
			}
			if other := all[SchemaName(t)]; other != nil {
				panic(t.String() + " and " + other.String() + " have the same name in the description: rename one")
			}
			all[SchemaName(t)] = t
			for _, f := range JSONFields(t) {
				visit(f.Type)
			}
		default:
		}
	}
	for _, route := range new(live).routes() {
		if route.response != nil {
			visit(route.response)
		}
	}
	for _, event := range events {
		visit(event)
	}
	visit(reflect.TypeFor[errorBody]())
	visit(reflect.TypeFor[stopBody]()) // of the older paths, which the dashboard reads, too
	return all
}

// Kinds returns the kinds of entities that the API lists.
func Kinds() []tko.Kind { return slices.Clone(kinds) }
