package wire

import (
	"strings"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tko-orchestrator/tko"
)

// A Bounded message is decoded only if it is within its limits. Decoding can
// take far more memory than the encoded message: an empty message in a list
// takes two bytes on the wire, and a hundred in memory. If the message exceeds
// a limit, it stays empty and Refused is set, a tko.ErrInvalid. The codec
// doesn't return the error, because gRPC would make it an Internal one.
type Bounded struct {
	Message  proto.Message
	MaxBytes int // of the encoded message
	MaxParts int // number of messages in it, at any depth; entries of maps are messages

	Refused error
}

func (b *Bounded) read(data mem.BufferSlice) error {
	name := b.Message.ProtoReflect().Descriptor().Name()
	if n := data.Len(); n > b.MaxBytes {
		b.Refused = tko.Errorf(tko.ErrInvalid, "the message %s has %d bytes: send at most %d", name, n, b.MaxBytes)
		return nil
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	left := b.MaxParts
	if path := tooMany(buffer.ReadOnlyData(), b.Message.ProtoReflect().Descriptor(), &left, nil); path != nil {
		b.Refused = tko.Errorf(tko.ErrInvalid, "the message %s has more than %d parts, counted up to the field %s: send fewer at a time", name, b.MaxParts, strings.Join(path, "."))
		return nil
	}
	return proto.Unmarshal(buffer.ReadOnlyData(), b.Message)
}

// maxNesting is the maximum depth at which messages are counted. Our messages
// are less deep.
const maxNesting = 16

// tooMany counts the messages in a message, and returns the path of the first
// field that exceeds the limit; nil if there is none. It leaves malformed data
// to the decoder.
func tooMany(data []byte, in protoreflect.MessageDescriptor, left *int, path []string) []string {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		data = data[n:]
		if kind != protowire.BytesType {
			n = protowire.ConsumeFieldValue(number, kind, data)
			if n < 0 {
				return nil
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return nil
		}
		data = data[n:]
		field := in.Fields().ByNumber(number)
		if field == nil || field.Message() == nil {
			continue
		}
		here := append(path, string(field.Name())) //nolint:gocritic // siblings share the array, because only one path is in use
		*left--
		if *left < 0 {
			return here
		}
		if field.IsMap() || len(here) >= maxNesting {
			continue
		}
		if found := tooMany(value, field.Message(), left, here); found != nil {
			return found
		}
	}
	return nil
}
