package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
	"github.com/tko-orchestrator/tko/tools/generate"
)

// A declaration is an interface in TypeScript.
type declaration struct {
	Name   string
	Fields []member
}

type member struct {
	Name, Type, Comment string
	Optional            bool
}

// typescriptData returns the interfaces of the responses that the web dashboard reads.
func typescriptData(s *generate.Source) (any, error) {
	types := webapi.ResponseTypes()
	var all []declaration
	for _, name := range slices.Sorted(maps.Keys(types)) {
		d := declaration{Name: name}
		for _, f := range webapi.JSONFields(types[name]) {
			typ, err := inTypeScript(f.Type)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", name, f.Name, err)
			}
			d.Fields = append(d.Fields, member{f.Name, typ, s.Field(f.Of, f.Go), f.Optional})
		}
		all = append(all, d)
	}
	return map[string]any{"Interfaces": all, "Kinds": webapi.Kinds(), "States": tko.States(), "Details": tko.DetailFields()}, nil
}

// inTypeScript returns the type of a field.
func inTypeScript(t reflect.Type) (string, error) {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[webapi.Position]():
		return "string", nil
	case reflect.TypeFor[json.RawMessage]():
		return "unknown", nil
	case reflect.TypeFor[tko.Kind]():
		return "Kind", nil
	case reflect.TypeFor[tko.State]():
		return "State", nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean", nil
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "number", nil
	case reflect.String:
		return "string", nil
	case reflect.Struct:
		return webapi.SchemaName(t), nil
	case reflect.Pointer:
		return inTypeScript(t.Elem())
	case reflect.Slice:
		item, err := inTypeScript(t.Elem())
		return item + "[]", err
	case reflect.Map:
		return mapInTypeScript(t)
	default:
		return "", fmt.Errorf("there is no type for a %s: add one to tools/responses", t)
	}
}

// mapInTypeScript returns the type of a map. Each kind is there, but only the states that are
// counted.
func mapInTypeScript(t reflect.Type) (string, error) {
	key, err := inTypeScript(t.Key())
	if err != nil {
		return "", err
	}
	value, err := inTypeScript(t.Elem())
	if key == "State" {
		return "Partial<Record<State, " + value + ">>", err
	}
	return "Record<" + key + ", " + value + ">", err
}
