package notify_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/kinds"
	"github.com/tko-orchestrator/tko/internal/notify"
)

// The schema that users see has the fields that specs have.
func TestSchemaHasTheFieldsOfSpecs(t *testing.T) {
	t.Parallel()
	specs, _, err := kinds.Read()
	if err != nil {
		t.Fatal(err)
	}
	got, want := schemaPaths(specs["tko.nephio.org/v1alpha1 Subscription"], ""), typePaths(reflect.TypeFor[notify.Spec](), "")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the schema has %v, and specs have %v", got, want)
	}
}

func schemaPaths(schema map[string]any, path string) (all []string) {
	if items, ok := schema["items"].(map[string]any); ok {
		return schemaPaths(items, path)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, of := range properties {
		field, _ := of.(map[string]any)
		all = append(append(all, path+name), schemaPaths(field, path+name+".")...)
	}
	return all
}

func typePaths(typ reflect.Type, path string) (all []string) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice:
		return typePaths(typ.Elem(), path)
	case reflect.Struct:
	default:
		return nil
	}
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			all = append(all, typePaths(field.Type, path)...)
		case field.IsExported():
			all = append(append(all, path+name), typePaths(field.Type, path+name+".")...)
		}
	}
	return all
}
