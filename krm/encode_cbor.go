package krm

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/x448/float16"
)

func encodeCBOR(p Package) ([]byte, error) {
	e := &cborEncoder{out: make([]byte, 0, 512*len(p)+16)}
	e.head(majorArray, uint64(len(p)))
	for i, r := range p {
		if err := e.mapping(r, 1); err != nil {
			return nil, located(err, p, i)
		}
	}
	return e.out, nil
}

type cborEncoder struct {
	out  []byte
	keys []string // a stack, so that not each map needs its own list
}

// head writes the type of an item and its argument, in the shortest form.
func (e *cborEncoder) head(major byte, arg uint64) {
	major <<= 5
	switch {
	case arg < 24:
		e.out = append(e.out, major|byte(arg))
	case arg <= math.MaxUint8:
		e.out = append(e.out, major|24, byte(arg))
	case arg <= math.MaxUint16:
		e.out = binary.BigEndian.AppendUint16(append(e.out, major|25), uint16(arg))
	case arg <= math.MaxUint32:
		e.out = binary.BigEndian.AppendUint32(append(e.out, major|26), uint32(arg))
	default:
		e.out = binary.BigEndian.AppendUint64(append(e.out, major|27), arg)
	}
}

func (e *cborEncoder) mapping(m map[string]any, depth int) *Error {
	if depth > maxEncodeDepth {
		return tooDeep()
	}
	e.head(majorMap, uint64(len(m)))
	base := len(e.keys)
	for k := range m {
		e.keys = append(e.keys, k)
	}
	keys := e.keys[base:]
	// This is the order of the encoded keys, which begin with their length.
	slices.SortFunc(keys, func(a, b string) int {
		if c := cmp.Compare(len(a), len(b)); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	for _, k := range keys {
		if err := e.text(k); err != nil {
			return err
		}
		if err := e.value(m[k], depth+1); err != nil {
			return err.under(k)
		}
	}
	e.keys = e.keys[:base]
	return nil
}

func (e *cborEncoder) value(value any, depth int) *Error {
	switch v := value.(type) {
	case nil:
		e.out = append(e.out, majorOther<<5|22)
	case bool:
		if v {
			e.out = append(e.out, majorOther<<5|21)
		} else {
			e.out = append(e.out, majorOther<<5|20)
		}
	case string:
		return e.text(v)
	case int64:
		e.integer(v)
	case int:
		e.integer(int64(v))
	case float64:
		return e.float(v)
	case map[string]any:
		return e.mapping(v, depth)
	case []any:
		if depth > maxEncodeDepth {
			return tooDeep()
		}
		e.head(majorArray, uint64(len(v)))
		for i, x := range v {
			if err := e.value(x, depth+1); err != nil {
				return err.item(i)
			}
		}
	default:
		return notEncodable(v)
	}
	return nil
}

func (e *cborEncoder) text(s string) *Error {
	if !utf8.ValidString(s) {
		return invalidf("has text that is not UTF-8")
	}
	e.head(majorText, uint64(len(s)))
	e.out = append(e.out, s...)
	return nil
}

func (e *cborEncoder) integer(n int64) {
	if n < 0 {
		e.head(majorNeg, uint64(-1-n))
		return
	}
	e.head(majorUint, uint64(n))
}

// float writes the shortest float of the same value.
func (e *cborEncoder) float(f float64) *Error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return notANumber(f)
	}
	single := float32(f)
	if float64(single) != f {
		e.out = binary.BigEndian.AppendUint64(append(e.out, majorOther<<5|27), math.Float64bits(f))
		return nil
	}
	if half := float16.Fromfloat32(single); half.Float32() == single {
		e.out = binary.BigEndian.AppendUint16(append(e.out, majorOther<<5|25), half.Bits())
		return nil
	}
	e.out = binary.BigEndian.AppendUint32(append(e.out, majorOther<<5|26), math.Float32bits(single))
	return nil
}
