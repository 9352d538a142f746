package wire

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// MinEncoded is the minimum capacity of the data of an [Encoded] message: gRPC
// doesn't return smaller buffers to their pool.
const MinEncoded = 1<<10 + 1

// An Encoded message is sent as it is. Its data is shared and must not be
// changed. Pool gets the data back when it was written to the connection, or
// will never be.
type Encoded struct {
	Data []byte
	Pool mem.BufferPool
}

// Encode encodes a message once for all clients that get it.
func Encode(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, MinEncoded), m)
}

func (e *Encoded) slices() mem.BufferSlice {
	data := e.Data
	return mem.BufferSlice{mem.NewBuffer(&data, e.Pool)}
}
