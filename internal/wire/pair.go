package wire

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// Names are the counterparts of the fields of a message whose names differ from those of the
// vocabulary: a field, a path such as Author.Who, or "" if the message's field has none.
type Names map[string]string

// A Pair is a type of the vocabulary and a message, which it converts field by field.
//
// Counterparts have the same name, without regard to Id and Ids at its end (SiteId is the
// counterpart of Site), or are in the Pair's names. Types of fields whose names differ have a
// Pair of their own. Numbers are limited to those of the smaller type, zero times are absent,
// and an int64 for a duration has seconds.
//
// Each field of both types must have a counterpart that it can be converted to: otherwise the
// first use panics, and a test uses every Pair. Rows of lists and calls that are made all the
// time have functions of their own, which need no reflection.
type Pair[T, M any] struct{ fields func() []pairField }

// NewPair returns the Pair of a T and a message M. It is called before the program runs.
func NewPair[T, M any](names Names) Pair[T, M] {
	types := pairTypes{reflect.TypeFor[T](), reflect.TypeFor[M]()}
	differing[types] = names
	return Pair[T, M]{sync.OnceValue(func() []pairField { return pairFields(types) })}
}

// Write returns the message of a value.
func (p Pair[T, M]) Write(value T) *M {
	m := new(M)
	writeFields(p.fields(), reflect.ValueOf(&value).Elem(), reflect.ValueOf(m).Elem())
	return m
}

// Read returns the value of a message; zero if it is nil.
func (p Pair[T, M]) Read(m *M) (value T) {
	if m != nil {
		readFields(p.fields(), reflect.ValueOf(m).Elem(), reflect.ValueOf(&value).Elem())
	}
	return value
}

// ReadRow is Read for the rows of lists, of which others may be invalid.
func (p Pair[T, M]) ReadRow(m *M) (T, error) { return p.Read(m), nil }

// pairTypes are a type of the vocabulary and a message.
type pairTypes struct{ value, message reflect.Type }

// differing are the names of all pairs. It doesn't change once the program runs.
var differing = map[pairTypes]Names{}

// A pairField is a field of a type of the vocabulary and of a message.
type pairField struct {
	value   []int
	message int
	conversion
}

// A conversion sets a value to another one, in both directions.
type conversion struct{ write, read func(from, to reflect.Value) }

func writeFields(fields []pairField, value, message reflect.Value) {
	for _, f := range fields {
		f.write(value.FieldByIndex(f.value), message.Field(f.message))
	}
}

func readFields(fields []pairField, message, value reflect.Value) {
	for _, f := range fields {
		f.read(message.Field(f.message), value.FieldByIndex(f.value))
	}
}

func pairFields(types pairTypes) []pairField {
	var fields []pairField
	has := map[int]bool{}
	for i := range types.message.NumField() {
		field := types.message.Field(i)
		name, named := differing[types][field.Name]
		if !field.IsExported() || named && name == "" {
			continue
		}
		if !named {
			name = field.Name
		}
		counterpart := counterpartOf(types.value, name)
		has[counterpart.Index[0]] = true
		fields = append(fields, pairField{counterpart.Index, i, conversionOf(pairTypes{counterpart.Type, field.Type})})
	}
	if len(has) != types.value.NumField() {
		panic(fmt.Sprintf("%s has %d fields, and %s has counterparts of %d", types.value, types.value.NumField(), types.message, len(has)))
	}
	return fields
}

// counterpartOf returns the field of a type with a path, or with the name of a message's field.
func counterpartOf(value reflect.Type, name string) reflect.StructField {
	first, rest, isPath := strings.Cut(name, ".")
	if isPath {
		outer := counterpartOf(value, first)
		inner := counterpartOf(outer.Type, rest)
		inner.Index = append(outer.Index, inner.Index...)
		return inner
	}
	plural, isPlural := strings.CutSuffix(name, "Ids")
	if isPlural {
		plural += "s"
	}
	for _, one := range []string{name, strings.TrimSuffix(name, "Id"), plural, strings.ToUpper(name)} {
		if field, ok := value.FieldByName(one); ok {
			return field
		}
	}
	panic(fmt.Sprintf("%s has no field %s", value, name))
}

// conversionOf returns the conversion of a value to that of a message's field.
func conversionOf(types pairTypes) conversion {
	value, message := types.value, types.message
	if own, ok := conversions[types]; ok {
		return own
	}
	of := func(value, message reflect.Type) conversion { return conversionOf(pairTypes{value, message}) }
	switch kinds := [2]reflect.Kind{value.Kind(), message.Kind()}; {
	case value == message:
		set := func(from, to reflect.Value) { to.Set(from) }
		return conversion{set, set}
	case kinds == [2]reflect.Kind{reflect.String, reflect.String}:
		set := func(from, to reflect.Value) { to.SetString(from.String()) }
		return conversion{set, set}
	case kinds[0] == reflect.Int && message.ConvertibleTo(value):
		return conversion{setNumber, setNumber}
	case kinds == [2]reflect.Kind{reflect.Struct, reflect.Struct}:
		fields := pairFields(types)
		return conversion{
			func(from, to reflect.Value) { writeFields(fields, from, to) },
			func(from, to reflect.Value) { readFields(fields, from, to) },
		}
	case kinds == [2]reflect.Kind{reflect.Struct, reflect.Pointer}:
		inner := of(value, message.Elem())
		return conversion{func(from, to reflect.Value) {
			to.Set(reflect.New(message.Elem()))
			inner.write(from, to.Elem())
		}, func(from, to reflect.Value) {
			if !from.IsNil() {
				inner.read(from.Elem(), to)
			}
		}}
	case kinds == [2]reflect.Kind{reflect.Pointer, reflect.Pointer}:
		inner := of(value.Elem(), message.Elem())
		return conversion{optional(inner.write), optional(inner.read)}
	case kinds == [2]reflect.Kind{reflect.Slice, reflect.Slice}:
		inner := of(value.Elem(), message.Elem())
		return conversion{eachOf(inner.write), eachOf(inner.read)}
	case kinds == [2]reflect.Kind{reflect.Map, reflect.Map}:
		inner := of(value.Elem(), message.Elem())
		return conversion{eachEntry(inner.write), eachEntry(inner.read)}
	}
	panic(fmt.Sprintf("%s has no conversion to %s", value, message))
}

// setNumber sets a number to another one, or to the nearest that its type has. Unsigned
// numbers of messages are counts, which are limited to those of 32 bits with a sign.
func setNumber(from, to reflect.Value) {
	var n int64
	if from.CanInt() {
		n = from.Int()
	} else {
		n = int64(min(from.Uint(), math.MaxInt32))
	}
	switch {
	case to.CanUint():
		to.SetUint(uint64(min(max(n, 0), math.MaxInt32)))
	case to.Kind() == reflect.Int32:
		to.SetInt(min(max(n, math.MinInt32), math.MaxInt32))
	default:
		to.SetInt(n)
	}
}

func optional(set func(from, to reflect.Value)) func(from, to reflect.Value) {
	return func(from, to reflect.Value) {
		if !from.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
			set(from.Elem(), to.Elem())
		}
	}
}

// eachOf sets the entries of a list, which stays nil if there are none.
func eachOf(set func(from, to reflect.Value)) func(from, to reflect.Value) {
	return func(from, to reflect.Value) {
		n := from.Len()
		if n == 0 {
			return
		}
		to.Set(reflect.MakeSlice(to.Type(), n, n))
		for i := range n {
			set(from.Index(i), to.Index(i))
		}
	}
}

// eachEntry sets the entries of a map, which is never nil.
func eachEntry(set func(from, to reflect.Value)) func(from, to reflect.Value) {
	return func(from, to reflect.Value) {
		to.Set(reflect.MakeMapWithSize(to.Type(), from.Len()))
		for key, value := range from.Seq2() {
			one := reflect.New(to.Type().Elem()).Elem() // set leaves alone what is absent
			set(value, one)
			to.SetMapIndex(key, one)
		}
	}
}

// conversions are those of types that aren't converted by their kinds.
var conversions = map[pairTypes]conversion{}

func init() {
	convertBy(NewTime, Time)
	convertBy(func(d time.Duration) int64 { return int64(d / time.Second) }, func(n int64) time.Duration { return time.Duration(n) * time.Second })
	convertBy(durationpb.New, (*durationpb.Duration).AsDuration)
	convertBy(newStamp, func(m *tkopb.Stamp) tko.Stamp { return stamp(m, nil, nil) })
	convertBy(NewConditions, Conditions)
	convertBy(func(o tko.SourceOrigins) *tkopb.SourceOrigins { return &tkopb.SourceOrigins{Parts: o} }, func(m *tkopb.SourceOrigins) tko.SourceOrigins { return m.GetParts() })
}

func convertBy[V, M any](write func(V) M, read func(M) V) {
	conversions[pairTypes{reflect.TypeFor[V](), reflect.TypeFor[M]()}] = conversion{apply(write), apply(read)}
}

func apply[A, B any](convert func(A) B) func(from, to reflect.Value) {
	return func(from, to reflect.Value) {
		a, _ := reflect.TypeAssert[A](from)
		to.Set(reflect.ValueOf(convert(a)))
	}
}
