package bundle

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"strings"

	"filippo.io/age"

	"github.com/tko-orchestrator/tko"
)

// The limits of files. A row has at most one package, which has at most 64 MiB, in base64.
const (
	MaxSize  = 1 << 30 // of a file that isn't verified yet
	maxRow   = 128 << 20
	maxRows  = 100_000
	maxTrail = 64 << 10
)

// A File is a verified file.
type File struct {
	Statement Statement

	from        io.ReaderAt
	payloadType string
}

// Open verifies a file of a size: the signature by one of the keys, and that all rows are as they
// were signed. It reads the file once, and needs memory for its last line only. ErrDenied means
// that the signature is of another key; ErrInvalid, that the file is broken or too large.
func Open(from io.ReaderAt, size int64, payloadType string, keys ...ed25519.PublicKey) (*File, error) {
	if size > MaxSize {
		return nil, tko.Errorf(tko.ErrInvalid, "it has %d bytes, more than %d", size, MaxSize)
	}
	last, begin, err := lastLine(from, size)
	if err != nil {
		return nil, err
	}
	s, err := verify(last, payloadType, keys)
	if err != nil {
		return nil, err
	}
	digest := sha256.New()
	n, err := io.Copy(digest, io.NewSectionReader(from, 0, begin))
	if err != nil {
		return nil, err
	}
	if n != s.Size || hex.EncodeToString(digest.Sum(nil)) != s.Digest || s.Rows < 1 || s.Rows > maxRows {
		return nil, tko.Errorf(tko.ErrInvalid, "its rows are not those that were signed: it was changed or broken on its way; copy it again")
	}
	return &File{Statement: s, from: from, payloadType: payloadType}, nil
}

// Claimed returns the statement of a file without verifying it: of a file that was verified before
// and is kept where no other user can write, or to find the key that verifies it.
func Claimed(from io.ReaderAt, size int64, payloadType string) (Statement, error) {
	last, _, err := lastLine(from, size)
	if err != nil {
		return Statement{}, err
	}
	return claimed(last, payloadType, func(envelope) bool { return true })
}

// lastLine returns the last line of a file, and where it begins.
func lastLine(from io.ReaderAt, size int64) (line []byte, begin int64, err error) {
	tail := make([]byte, min(size, maxTrail))
	if _, err := from.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	if len(tail) == 0 || tail[len(tail)-1] != '\n' {
		return nil, 0, tko.Errorf(tko.ErrInvalid, "it has no signature at its end: it is truncated, or no bundle or report of TKO; copy it again")
	}
	tail = tail[:len(tail)-1]
	i := bytes.LastIndexByte(tail, '\n')
	if i < 0 {
		return nil, 0, tko.Errorf(tko.ErrInvalid, "it has no rows, or its last line is too long: it is no bundle or report of TKO")
	}
	return tail[i+1:], size - int64(len(tail)) + int64(i), nil
}

// Rows returns the rows, one in memory at a time, decrypted with an identity of age; "" for files
// in the clear. They are checked: those of a bundle begin with its site, and their deployments
// ascend.
func (f *File) Rows(identity string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		keys, err := parseIdentity(identity)
		if err != nil {
			yield(Row{}, err)
			return
		}
		lines := bufio.NewReaderSize(io.NewSectionReader(f.from, 0, f.Statement.Size), 1<<20)
		var seen order
		for n := range f.Statement.Rows {
			row, err := f.next(lines, keys)
			if err == nil {
				err = seen.next(f.payloadType, n, row)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
		if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
			yield(Row{}, tko.Errorf(tko.ErrInvalid, "it has more than the %d rows that its statement names", f.Statement.Rows))
		}
	}
}

func (f *File) next(lines *bufio.Reader, keys []age.Identity) (Row, error) {
	line, err := readLine(lines)
	if err != nil {
		return Row{}, err
	}
	var row Row
	if err := strict(line, &row); err != nil {
		return Row{}, tko.Errorf(tko.ErrInvalid, "a row can't be read: %w", err)
	}
	if len(row.Sealed) > 0 {
		if row, err = unseal(row.Sealed, keys); err != nil {
			return Row{}, err
		}
	}
	return row, row.check(f.payloadType, f.Statement.Site)
}

// readLine reads a line of at most maxRow bytes, without its end.
func readLine(lines *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxRow {
			return nil, tko.Errorf(tko.ErrInvalid, "a row has more than %d bytes", maxRow)
		}
		if err == nil {
			return line[:len(line)-1], nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, tko.Errorf(tko.ErrInvalid, "it has fewer rows than its statement names")
		}
	}
}

func parseIdentity(text string) ([]age.Identity, error) {
	if text == "" {
		return nil, nil
	}
	key, err := age.ParseX25519Identity(strings.TrimSpace(text))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the key for encrypted bundles can't be read: it is not an identity of age")
	}
	return []age.Identity{key}, nil
}

func unseal(sealed []byte, keys []age.Identity) (Row, error) {
	if len(keys) == 0 {
		return Row{}, tko.Errorf(tko.ErrInvalid, "it is encrypted: only the agent of its site can read it")
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), keys...)
	if err != nil {
		return Row{}, tko.Errorf(tko.ErrInvalid, "it is encrypted for another agent: create it again with the recipient that tko-agent init printed here (spec.agent.recipient)")
	}
	line, err := io.ReadAll(io.LimitReader(r, maxRow+1))
	if err != nil || len(line) > maxRow {
		return Row{}, tko.Errorf(tko.ErrInvalid, "an encrypted row is broken or has more than %d bytes", maxRow)
	}
	var row Row
	if err := strict(line, &row); err != nil {
		return Row{}, tko.Errorf(tko.ErrInvalid, "a row can't be read: %w", err)
	}
	return row, nil
}

// An order checks the order of rows.
type order struct{ last string }

func (o *order) next(payloadType string, n int, row Row) error {
	if (payloadType == TypeBundle && n == 0) != (row.Site != nil) {
		return tko.Errorf(tko.ErrInvalid, "its first row, and no other one, must be the site")
	}
	id := ""
	switch {
	case row.Deployment != nil:
		id = string(row.Deployment.ID)
	case row.State != nil:
		id = string(row.State.Kind) + " " + row.State.ID
	}
	if n > 0 && id <= o.last {
		return tko.Errorf(tko.ErrInvalid, "its rows are not in the order of their IDs, or there are two of %q", id)
	}
	o.last = id
	return nil
}
