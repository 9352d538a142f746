package field

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Field is a field of an entity.
type Field struct {
	Go       string // its name in Go
	Row      string // its name in rows
	Spec     string // its name in the specs of manifests
	Written  bool   // by users, so that it is in manifests
	Identity bool   // the name of a manifest is made of it, in place of its spec
	Optional bool   // rows lack it if it isn't set

	index []int
	typ   reflect.Type
}

// types are those of the entities of each kind.
var types = map[tko.Kind]reflect.Type{
	tko.KindTemplate: reflect.TypeFor[tko.Template](), tko.KindSite: reflect.TypeFor[tko.Site](), tko.KindDeployment: reflect.TypeFor[tko.Deployment](),
	tko.KindPlugin: reflect.TypeFor[tko.Plugin](), tko.KindRollout: reflect.TypeFor[tko.Rollout](),
}

// of are the fields of the entities of each type.
var of = sync.OnceValue(func() map[reflect.Type][]Field {
	all := map[reflect.Type][]Field{}
	for _, typ := range types {
		for _, f := range reflect.VisibleFields(typ) {
			tag, ok := f.Tag.Lookup("tko")
			if !ok {
				continue
			}
			name, options, _ := strings.Cut(tag, ",")
			has := strings.Split(options, ",")
			spec := f.Tag.Get("spec")
			if spec == "" {
				spec = name
			}
			all[typ] = append(all[typ], Field{
				f.Name, name, spec, slices.Contains(has, "written"), slices.Contains(has, "identity"), slices.Contains(has, "omitempty"), f.Index, f.Type,
			})
		}
	}
	return all
})

// Of returns the fields of a kind of entities that have a name in rows.
func Of(kind tko.Kind) []Field { return of()[types[kind]] }

// TypeOf returns the type of the entities of a kind.
func TypeOf(kind tko.Kind) reflect.Type { return types[kind] }

// Row returns the fields of an entity in a row for programs. Packages and stamps aren't in it.
func Row(entity any) map[string]any {
	v := reflect.ValueOf(entity)
	row := map[string]any{}
	for _, f := range of()[v.Type()] {
		field := v.FieldByIndex(f.index)
		if f.typ == reflect.TypeFor[krm.Package]() || f.Optional && isEmpty(field) {
			continue
		}
		row[f.Row] = value(field)
	}
	return row
}

func isEmpty(v reflect.Value) bool {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
}

// value returns the value of a field for programs.
func value(v reflect.Value) any {
	switch own := v.Interface().(type) {
	case krm.Package:
		return map[string]any{"resources": each(own, func(r krm.Resource) any { return map[string]any(r) })}
	case []krm.GVK:
		return each(own, func(t krm.GVK) any {
			return map[string]any{"group": t.Group, "version": t.Version, "kind": t.Kind}
		})
	case map[string]string:
		values := make(map[string]any, len(own))
		for key, text := range own {
			values[key] = text
		}
		return values
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int64:
		return v.Int()
	case reflect.Slice:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = value(v.Index(i))
		}
		return all
	default:
		panic("rows and manifests have no form of a " + v.Type().String() + ": add one to package field")
	}
}

func each[T any](list []T, of func(T) any) []any {
	all := make([]any, len(list))
	for i, one := range list {
		all[i] = of(one)
	}
	return all
}
