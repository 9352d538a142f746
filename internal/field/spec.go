package field

import (
	"reflect"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// SpecNames returns the names of the fields of the spec of a manifest.
func SpecNames(kind tko.Kind) []string {
	var names []string
	for _, f := range written(kind) {
		names = append(names, f.Spec)
	}
	return names
}

// Identity returns the name of the field of the spec with the ID; "" if the kind has none.
func Identity(kind tko.Kind) string {
	for _, f := range written(kind) {
		if f.Identity {
			return f.Spec
		}
	}
	return ""
}

// written returns the fields of specs: the labels of manifests are the metadata.
func written(kind tko.Kind) []Field {
	var fields []Field
	for _, f := range Of(kind) {
		if f.Written && f.Go != "Metadata" {
			fields = append(fields, f)
		}
	}
	return fields
}

// in returns the field of a Put that has the value of a field of its entity.
func (f Field) in(p *tko.Put, kind tko.Kind) reflect.Value {
	if kind == tko.KindPlugin {
		return reflect.ValueOf(&p.Plugin).Elem().FieldByName(f.Go)
	}
	return reflect.ValueOf(p).Elem().FieldByName(f.Go)
}

// Spec returns the spec of the manifest of a Put: the fields that are set, without the
// identity, and its package.
func Spec(kind tko.Kind, p tko.Put) map[string]any {
	spec := map[string]any{}
	for _, f := range written(kind) {
		from := f.in(&p, kind)
		if !f.Identity && (f.typ == reflect.TypeFor[krm.Package]() || !isEmpty(from)) {
			spec[f.Spec] = value(from)
		}
	}
	return spec
}

// ReadSpec sets the fields of a Put to those of the spec of a manifest, except for the
// identity.
func ReadSpec(kind tko.Kind, spec map[string]any, p *tko.Put) error {
	for _, f := range written(kind) {
		if f.Identity {
			continue
		}
		if err := f.read(spec, f.in(p, kind)); err != nil {
			return err
		}
	}
	return nil
}

// read sets a value to that of a field of a spec.
func (f Field) read(spec map[string]any, to reflect.Value) error {
	switch own := to.Addr().Interface().(type) {
	case *krm.Package:
		return set(own)(PackageIn(spec))
	case *[]krm.GVK:
		return set(own)(triggers(spec, f.Spec))
	case *map[string]string:
		return set(own)(pairs(spec, f.Spec))
	case *[]string:
		return set(own)(texts(spec, f.Spec))
	case *bool:
		return set(own)(truth(spec, f.Spec))
	}
	if to.Kind() == reflect.String {
		text, err := Text(spec, f.Spec)
		to.SetString(text)
		return err
	}
	panic("manifests have no form of a " + to.Type().String() + ": add one to package field")
}

// set returns the function that sets a value to a result.
func set[T any](to *T) func(T, error) error {
	return func(value T, err error) error {
		*to = value
		return err
	}
}
