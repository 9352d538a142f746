package krm

import (
	"strconv"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// Limits limit the input of Decode.
type Limits struct {
	Bytes     int // size of the input, and half of the size of its text with references expanded; 64 MiB if 0
	Depth     int // of nesting; 200 if 0
	Resources int // 100,000 if 0
	Values    int // scalars, lists and maps together, after expanding references; 4,000,000 if 0
}

func (l Limits) orDefault() Limits {
	if l.Bytes == 0 {
		l.Bytes = 64 << 20
	}
	if l.Depth == 0 {
		l.Depth = 200
	}
	if l.Resources == 0 {
		l.Resources = 100_000
	}
	if l.Values == 0 {
		l.Values = 4_000_000
	}
	return l
}

// Decode decodes a package. An empty format is YAML; empty data is a package
// without resources, in any format. It refuses data that a package can't
// represent without loss. Comments of YAML are lost, except for kpt's setters,
// which become an annotation ([AnnotationSetters]). All errors are an
// [ErrInvalid]. The result doesn't share memory with data. Decode doesn't check
// the resources: see [Package.Check].
func Decode(format Format, data []byte, limits Limits) (Package, error) {
	if format != "" && format != YAML && format != CBOR {
		return nil, unknownFormat(format)
	}
	if len(data) == 0 {
		return nil, nil
	}
	limits = limits.orDefault()
	if len(data) > limits.Bytes {
		return nil, tooManyBytes(len(data), limits)
	}
	if format == CBOR {
		return decodeCBOR(data, limits)
	}
	data, core := withoutVersion12(data)
	p, err := decodeYAML(data, limits, core && booleans11.Match(data))
	if err == nil {
		annotateSetters(p, data)
	}
	return p, err
}

func tooManyBytes(n int, limits Limits) *Error {
	return invalidf("the package has %d bytes, the limit is %d; split it", n, limits.Bytes)
}

func unknownFormat(format Format) *Error {
	return invalidf("package format %q is not known; use %q or %q", printable.Short(string(format), 100), YAML, CBOR)
}

// A budget limits the number of values and the size of a package, over all its
// documents.
type budget struct {
	limits Limits
	values int
	bytes  int // of text
}

// spend counts a value at a depth.
func (b *budget) spend(depth int) *Error {
	if depth > b.limits.Depth {
		return invalidf("is nested deeper than the limit of %d levels", b.limits.Depth)
	}
	b.values++
	if b.values > b.limits.Values {
		return tooManyValues(b.limits)
	}
	return nil
}

// spendText counts the bytes of a text that references may repeat. The text of
// encoded bytes is longer than the input, so the limit is larger than that of
// the input.
func (b *budget) spendText(n int) *Error {
	b.bytes += n
	if b.bytes/2 > b.limits.Bytes {
		return invalidf("the package has more than %d bytes of text (with references expanded), which is too much; split it", 2*b.limits.Bytes)
	}
	return nil
}

func tooManyValues(limits Limits) *Error {
	return invalidf("the package has more than %d values (with references expanded), which is the limit; split it", limits.Values)
}

// add appends an item to a package, and skips null.
func (b *budget) add(p Package, v any) (Package, *Error) {
	switch v := v.(type) {
	case nil:
		return p, nil
	case map[string]any:
		if len(p) >= b.limits.Resources {
			return nil, invalidf("the package has more than %d resources, which is the limit; split it", b.limits.Resources)
		}
		return append(p, Resource(v)), nil
	}
	return nil, &Error{Index: len(p) + 1, Reason: "must be a map, but is " + describe(v)}
}

func outOfRange(text string) *Error {
	return invalidf("the number %s does not fit 64 bits; write it as text, in quotes", printable.Short(text, 50))
}

func notANumber(f float64) *Error {
	return invalidf("%s is not a number that a resource can hold", strconv.FormatFloat(f, 'g', -1, 64))
}
