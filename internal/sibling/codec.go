package sibling

import (
	"fmt"
	"math"
	"reflect"

	"github.com/fxamacker/cbor/v2"
	"google.golang.org/grpc/mem"
)

// Values are encoded in CBOR: it keeps integers, floating-point numbers and bytes
// apart, also in packages, and needs no generated code.
var (
	encoder = must(cbor.EncOptions{Time: cbor.TimeRFC3339Nano}.EncMode())
	decoder = must(cbor.DecOptions{
		DefaultMapType: reflect.TypeFor[map[string]any](), IntDec: cbor.IntDecConvertSignedOrFail, UTF8: cbor.UTF8DecodeInvalid,
		MaxNestedLevels: 65535, MaxArrayElements: math.MaxInt32, MaxMapPairs: math.MaxInt32,
	}.DecMode())
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err) // wrong options, which no input changes
	}
	return value
}

// codec is gRPC's codec: messages are encoded by this package.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "tko-sibling" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	data, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a message is a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*data)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a message is a %T", v)
	}
	*to = data.Materialize()
	return nil
}
