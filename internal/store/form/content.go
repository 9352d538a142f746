package form

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// The encodings of blobs.
const (
	rawEncoding  = 0
	zstdEncoding = 1
)

// minCompressed is the size, in bytes, below which compression doesn't pay.
const minCompressed = 256

var (
	compressor   = sync.OnceValue(func() *zstd.Encoder { return must(zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))) })
	decompressor = sync.OnceValue(func() *zstd.Decoder {
		return must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(1<<32)))
	})
)

// must is for constant options.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Compress returns content as it is stored, with the number of its encoding.
func Compress(data []byte) (encoding int, stored []byte) {
	if len(data) >= minCompressed {
		if small := compressor().EncodeAll(data, nil); len(small) < len(data)*9/10 {
			return zstdEncoding, small
		}
	}
	if data == nil {
		data = []byte{}
	}
	return rawEncoding, data
}

// Decompress is the reverse of Compress. A size, if it is known, saves memory.
func Decompress(encoding, size int, stored []byte) ([]byte, error) {
	switch encoding {
	case rawEncoding:
		return stored, nil
	case zstdEncoding:
		data, err := decompressor().DecodeAll(stored, make([]byte, 0, size))
		if err != nil {
			return nil, fmt.Errorf("decompress a package: %w", err)
		}
		return data, nil
	default:
		return nil, fmt.Errorf("package of the unknown encoding %d: a newer TKO wrote it", encoding)
	}
}

// A Sealer encrypts packages. Both methods authenticate the identity, too: a
// package can't be opened as another one.
type Sealer interface {
	Seal(plain, identity []byte) (sealed []byte, err error)
	Open(ctx context.Context, sealed, identity []byte) (plain []byte, err error)
}

// sealedEncoding is added to the encoding of contents that are encrypted.
const sealedEncoding = 1 << 4

// Encode returns content as it is stored: compressed, and encrypted unless the sealer is nil.
func Encode(sealer Sealer, digest record.Digest, data []byte) (encoding int, stored []byte, err error) {
	encoding, stored = Compress(data)
	if sealer == nil {
		return encoding, stored, nil
	}
	if stored, err = sealer.Seal(stored, digest[:]); err != nil {
		return 0, nil, fmt.Errorf("encrypt a package: %w", err)
	}
	return encoding | sealedEncoding, stored, nil
}

// A Stored is content as it is stored.
type Stored struct {
	Digest         record.Digest
	Encoding, Size int // size: of the content; 0: not known
	Data           []byte
}

// Decode is the reverse of Encode.
func Decode(ctx context.Context, sealer Sealer, s Stored) ([]byte, error) {
	if s.Encoding&sealedEncoding != 0 {
		if sealer == nil {
			return nil, tko.Errorf(tko.ErrUnavailable, "the package %x is encrypted: start the server with --encryption-key", s.Digest[:])
		}
		var err error
		if s.Data, err = sealer.Open(ctx, s.Data, s.Digest[:]); err != nil {
			return nil, fmt.Errorf("decrypt the package %x: %w", s.Digest[:], err)
		}
	}
	return Decompress(s.Encoding&^sealedEncoding, s.Size, s.Data)
}

// DerivationOf returns the stored form of the digest of what a revision was made from: the digest,
// followed by the revision that it is of. Programs of older schemas write revisions without it and leave
// the column as it is: then it isn't known what the new revision was made from.
func DerivationOf(d record.Digest, revision int64) []byte {
	return binary.BigEndian.AppendUint64(slices.Clone(d[:]), uint64(revision)) //nolint:gosec // revisions are positive
}

// ParseDerivation returns the digest of what a revision was made from; zero if it isn't known.
func ParseDerivation(stored []byte, revision int64) (d record.Digest) {
	if len(stored) == len(d)+8 && int64(binary.BigEndian.Uint64(stored[len(d):])) == revision { //nolint:gosec // written as such
		copy(d[:], stored)
	}
	return d
}
