package bundle

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"iter"

	"filippo.io/age"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/version"
)

// Options are what Write needs in addition to the rows.
type Options struct {
	Type      string             // TypeBundle or TypeReport
	Key       ed25519.PrivateKey // which signs
	Recipient string             // age recipient for whom rows are encrypted; in the clear if empty
}

// Write writes a signed file: each row when it comes, in one pass. It sets what the statement says
// of the rows, and returns it. Without a recipient, the same rows and statement make the same file.
func Write(w io.Writer, s Statement, o Options, rows iter.Seq2[Row, error]) (Statement, error) {
	s.Format, s.Program, s.Time = Format, version.String(), s.Time.UTC()
	var recipient age.Recipient
	if o.Recipient != "" {
		parsed, err := age.ParseX25519Recipient(o.Recipient)
		if err != nil {
			return s, tko.Errorf(tko.ErrInvalid, "%s is not a recipient of age (age1…): use the one that tko-agent init printed", bounded(o.Recipient))
		}
		recipient = parsed
	}
	digest := sha256.New()
	out := io.MultiWriter(w, digest)
	for row, err := range rows {
		if err != nil {
			return s, err
		}
		if err := row.check(o.Type, s.Site); err != nil {
			return s, err
		}
		line, err := encode(row, recipient)
		if err != nil {
			return s, err
		}
		if len(line) > maxRow {
			return s, tko.Errorf(tko.ErrInvalid, "a row for site %q has %d bytes, more than %d", s.Site, len(line), maxRow)
		}
		if _, err := out.Write(line); err != nil {
			return s, err
		}
		s.Rows, s.Size = s.Rows+1, s.Size+int64(len(line))
	}
	s.Digest = hex.EncodeToString(digest.Sum(nil))
	last, err := sign(o.Type, s, o.Key)
	if err != nil {
		return s, err
	}
	_, err = w.Write(last)
	return s, err
}

// encode returns the line of a row.
func encode(row Row, recipient age.Recipient) ([]byte, error) {
	line, err := json.Marshal(row)
	if err != nil || recipient == nil {
		return append(line, '\n'), err
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, recipient)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(line); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	line, err = json.Marshal(Row{Sealed: sealed.Bytes()})
	return append(line, '\n'), err
}
