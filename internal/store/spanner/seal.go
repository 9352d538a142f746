package spanner

import (
	"bytes"
	"context"
	"errors"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/form"
)

// Encrypt encrypts the packages that are written from now on. It is called
// before the store is used.
func (s *Store) Encrypt(sealer form.Sealer) { s.sealer = sealer }

// onlyKey is the key of the only row of the table sealing_key.
var onlyKey = spanner.Key{int64(1)}

// SealingKey returns the wrapped keys of encrypted packages, and their version;
// nil and 0 if there are none.
func (s *Store) SealingKey(ctx context.Context) (wrapped []byte, version int64, err error) {
	return readSealingKey(ctx, s.client.Single())
}

func readSealingKey(ctx context.Context, from reader) (wrapped []byte, version int64, err error) {
	row, err := from.ReadRow(ctx, "sealing_key", onlyKey, []string{"wrapped", "version"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return nil, 0, nil
	}
	if err == nil {
		err = row.Columns(&wrapped, &version)
	}
	return wrapped, version, fault("read the encryption keys", err)
}

// SaveSealingKey replaces the wrapped keys of a version, 0 if there are none.
// The error is an ErrConflict if there is another version.
func (s *Store) SaveSealingKey(ctx context.Context, wrapped []byte, version int64) error {
	return s.write(ctx, "save the encryption keys", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		stored, now, err := readSealingKey(ctx, tx)
		switch {
		case err != nil || bytes.Equal(stored, wrapped): // an earlier try was committed
			return err
		case now != version:
			return tko.Errorf(tko.ErrConflict, "the encryption keys were changed concurrently: try again")
		}
		m.put("sealing_key", []string{"id", "version", "wrapped"}, onlyKey[0], version+1, wrapped)
		return nil
	})
}

// resealed is the number of packages, and their maximum size, that one transaction encrypts.
const (
	resealed      = 200
	resealedBytes = 32 << 20
)

// Reseal encrypts all stored packages with the current key, and reports progress.
// Servers may use the store meanwhile. It may be interrupted and run again.
func (s *Store) Reseal(ctx context.Context, progress func(done int)) error {
	after := []byte{}
	for done := 0; ; {
		var list []storedContent
		size := 0
		keys := spanner.KeyRange{Start: spanner.Key{after}, Kind: spanner.OpenOpen, End: spanner.Key{endOfDigests}}
		err := readStored(ctx, s.client.Single(), keys, func(c storedContent) error {
			list = append(list, c)
			size += len(c.data)
			if len(list) == resealed || size >= resealedBytes {
				return iterator.Done
			}
			return nil
		})
		if err != nil && !errors.Is(err, iterator.Done) {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		if err := s.resealSome(ctx, list); err != nil {
			return err
		}
		after = list[len(list)-1].digest[:]
		done += len(list)
		progress(done)
	}
}

// endOfDigests is greater than each digest, which is shorter.
var endOfDigests = bytes.Repeat([]byte{0xff}, 33)

// resealSome encrypts those of the packages that are still stored.
func (s *Store) resealSome(ctx context.Context, list []storedContent) error {
	var keys []spanner.Key
	for i := range list {
		c := &list[i]
		data, err := form.Decode(ctx, s.sealer, c.stored())
		if err != nil {
			return err
		}
		encoding, stored, err := form.Encode(s.sealer, c.digest, data)
		if err != nil {
			return err
		}
		c.encoding, c.size, c.data = int64(encoding), int64(len(data)), stored
		keys = append(keys, spanner.Key{c.digest[:], int64(0)})
	}
	return s.write(ctx, "encrypt packages", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		stored := map[string]bool{}
		err := tx.Read(ctx, "content", spanner.KeySetFromKeys(keys...), []string{"digest"}).Do(func(row *spanner.Row) error {
			var digest []byte
			err := row.Column(0, &digest)
			stored[string(digest)] = true
			return err
		})
		if err != nil {
			return fault("read which packages are stored", err)
		}
		for _, c := range list {
			if stored[string(c.digest[:])] { // old ones are collected meanwhile
				m.removeRange("content", spanner.KeyRange{Start: spanner.Key{c.digest[:], int64(0)}, Kind: spanner.ClosedOpen, End: spanner.Key{c.digest[:], int64(1 << 32)}})
				putChunks(m, c)
			}
		}
		return nil
	})
}
