package entitytest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Shared is the prefix of the fields that several kinds of entities have, in lists of
// exceptions: "Stamp.UID" is that of all kinds, "Site.Package" that of sites.
const Shared = "Stamp."

// An Exceptions says why a form lacks fields. Each list may only become shorter: what is in it
// and has come into the form is an error, and so is another number of entries than Most.
type Exceptions struct {
	Reasons map[string]string // by field, such as "Site.Package" or "Stamp.Conditions.Attached"
	Most    int
}

// Metadata is what filled entities have: it makes them suspended, too.
func Metadata() map[string]string {
	return map[string]string{"region": "west", tko.MetadataSuspend: "true"}
}

// Fill returns a value with each field set, apart from those of types that others define.
func Fill[E any]() E {
	var e E
	n := 0
	fill(reflect.ValueOf(&e).Elem(), &n)
	return e
}

// fill sets each part of a value to one of its own.
func fill(v reflect.Value, n *int) {
	*n++
	switch own := v.Addr().Interface().(type) {
	case *time.Time:
		*own = time.Date(2026, 1, 2, 3, 4, *n, 0, time.UTC)
		return
	case *krm.Package:
		*own = krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("c", *n)}}}
		return
	case *map[string]string:
		*own = Metadata()
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("text", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(1000 + *n))
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256)) //nolint:gosec // it is positive
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field, n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	default:
		panic("there is no value of a " + v.Type().String() + ": add one to entitytest")
	}
}

// leaves calls visit with each field of a filled value that has no fields itself.
func leaves(path string, v reflect.Value, visit func(path string, v reflect.Value)) {
	switch v.Interface().(type) {
	case time.Time, krm.Package:
		visit(path, v)
		return
	}
	switch {
	case v.Kind() == reflect.Struct:
		for field, value := range v.Fields() {
			name := path + "." + field.Name
			if field.Anonymous {
				name = path
			}
			leaves(name, value, visit)
		}
	case v.Kind() == reflect.Pointer:
		leaves(path, v.Elem(), visit)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		leaves(path, v.Index(0), visit)
	default:
		visit(path, v)
	}
}

// Each calls visit with each field of a kind of entities, and an entity that has all fields
// except for this one.
func Each[E any](visit func(field string, without E)) {
	full := Fill[E]()
	var names []string
	kind := reflect.TypeFor[E]().Name()
	leaves(kind, reflect.ValueOf(&full).Elem(), func(path string, _ reflect.Value) { names = append(names, path) })
	for i, name := range names {
		without, n := Fill[E](), 0
		leaves(kind, reflect.ValueOf(&without).Elem(), func(_ string, v reflect.Value) {
			if n == i {
				v.SetZero()
			}
			n++
		})
		visit(strings.Replace(name, kind+"."+Shared, Shared, 1), without)
	}
}

// A Form checks that a form of entities has all their fields.
type Form struct {
	t       *testing.T
	name    string
	reasons map[string]string
	used    map[string]bool
}

// NewForm begins the check of a form, which ends with the test.
func NewForm(t *testing.T, name string, x Exceptions) *Form {
	t.Helper()
	if len(x.Reasons) != x.Most {
		t.Errorf("%s: there are %d exceptions and not %d: the list may only become shorter (then lower the number)", name, len(x.Reasons), x.Most)
	}
	f := &Form{t, name, x.Reasons, map[string]bool{}}
	t.Cleanup(func() {
		for field, reason := range x.Reasons {
			if !f.used[field] && !t.Failed() {
				t.Errorf("%s has %s, and an exception, too: remove it", name, field)
			}
			if reason == "" {
				t.Errorf("%s: the exception %s has no reason", name, field)
			}
		}
	})
	return f
}

// Has reports that the form has or lacks a field.
func (f *Form) Has(field string, has bool) {
	f.t.Helper()
	name := field
	if _, excepted := f.reasons[name]; !excepted {
		for p := range f.reasons {
			if strings.HasPrefix(field, p+".") { // all fields of a part
				name = p
			}
		}
	}
	_, excepted := f.reasons[name]
	switch {
	case has && excepted && name == field:
		f.t.Errorf("%s has %s, and an exception, too: remove it, and lower the number", f.name, field)
	case !has && !excepted:
		f.t.Errorf("%s lacks %s: add it there", f.name, field)
	}
	if !has {
		f.used[name] = true
	}
}

// Compare checks that a form has each field of a kind of entities: what render returns is
// another value without it.
func Compare[E, F any](f *Form, render func(E) F, options ...cmp.Option) {
	f.t.Helper()
	full := render(Fill[E]())
	Each(func(field string, without E) {
		f.t.Helper()
		f.Has(field, !cmp.Equal(full, render(without), options...))
	})
}

// Names returns the names of the fields of a type in JSON, sorted, with those of embedded
// types.
func Names(of reflect.Type) []string {
	var names []string
	for f := range of.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && tag == "":
			names = append(names, Names(f.Type)...)
		case tag != "" && tag != "-":
			names = append(names, tag)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
