package tko

import (
	"context"
	"reflect"
	"strings"
	"sync"
)

// A DetailField is one of the fields of [Details].
type DetailField struct {
	Name string // in rows, manifests and flags
	Help string

	index int
}

// DetailFields returns the fields of [Details], in their order.
func DetailFields() []DetailField { return detailFields() }

var detailFields = sync.OnceValue(func() (fields []DetailField) {
	typ := reflect.TypeFor[Details]()
	for i := range typ.NumField() {
		tag := typ.Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("tko"), ",")
		fields = append(fields, DetailField{Name: name, Help: tag.Get("help"), index: i})
	}
	return fields
})

// In returns the field's text in details.
func (f DetailField) In(d *Details) *string {
	text, _ := reflect.TypeAssert[*string](reflect.ValueOf(d).Elem().Field(f.index).Addr())
	return text
}

type detailsKeptKey struct{}

// WithDetailsKept returns a context with which writes of templates and sites leave the details
// of existing ones as they are.
func WithDetailsKept(ctx context.Context) context.Context {
	return context.WithValue(ctx, detailsKeptKey{}, true)
}

// DetailsKept reports whether the context was made by [WithDetailsKept].
func DetailsKept(ctx context.Context) bool {
	kept, _ := ctx.Value(detailsKeptKey{}).(bool)
	return kept
}
