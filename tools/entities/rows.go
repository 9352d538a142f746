package main

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/field"
	"github.com/tko-orchestrator/tko/tools/generate"
)

// A rowType is the part of a row of the HTTP API that has the plain fields of an entity.
type rowType struct {
	Kind   string // as it begins names in Go: site
	Entity string // in package tko
	Fields []rowField
}

type rowField struct{ Go, Type, Tag, Value, Comment string }

// rowKinds are the kinds whose rows are generated. Those of plugins hide values.
var rowKinds = []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindRollout}

// rowsData returns the plain fields of the rows of the HTTP API: their names are those of the
// entities' fields in Go.
func rowsData(s *generate.Source) (any, error) {
	var all []rowType
	for _, kind := range rowKinds {
		entity := field.TypeOf(kind)
		row := rowType{Kind: string(kind), Entity: entity.Name()}
		for _, f := range field.Of(kind) {
			if f.Go == "Package" {
				continue // only the response with one entity has it
			}
			structField, _ := entity.FieldByName(f.Go)
			one, err := newRowField(f, structField.Type)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", entity.Name(), f.Go, err)
			}
			one.Comment = s.Field(entity, f.Go)
			row.Fields = append(row.Fields, one)
		}
		all = append(all, row)
	}
	return all, nil
}

// newRowField returns the field of a row. Lists and maps that a row always has are never null.
func newRowField(f field.Field, t reflect.Type) (rowField, error) {
	one := rowField{Go: f.Go, Type: t.String(), Tag: webName(f.Go), Value: "e." + f.Go}
	if f.Optional {
		one.Tag += ",omitempty"
		return one, nil
	}
	switch t.Kind() {
	case reflect.Slice:
		one.Value = "orEmpty(" + one.Value + ")"
	case reflect.Map:
		one.Value = "orEmptyMap(" + one.Value + ")"
	case reflect.String, reflect.Bool, reflect.Int64:
	default:
		return one, fmt.Errorf("there is no form of a %s in rows: add one to tools/entities", t)
	}
	return one, nil
}

// webName returns the name of a field over HTTP: id of ID, templateRevision of TemplateRevision.
func webName(name string) string {
	if strings.ToUpper(name) == name {
		return strings.ToLower(name)
	}
	runes := []rune(name)
	runes[0] = unicode.ToLower(runes[0])
	return string(runes)
}
