package bundle

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko"
)

// The types of files, as the payload types of their envelopes.
const (
	TypeBundle = "application/vnd.tko.bundle+json"
	TypeReport = "application/vnd.tko.bundle-report+json"
)

// Format is the version of the format.
const Format = 1

// A Statement is what the signature of a file is about.
type Statement struct {
	Format  int        `json:"format"`
	Program string     `json:"program"` // version of TKO that wrote it
	Site    tko.SiteID `json:"site"`
	// Serial ascends with the changes that the server has: it is the position of its newest change
	// before the site was read. A report has that of the bundle that it is about.
	Serial int64     `json:"serial"`
	Time   time.Time `json:"time"` // at which the file was made, UTC
	// Missing is the number of deployments at the site that are not prepared and approved, and
	// that the site therefore keeps as they are.
	Missing int    `json:"missing,omitempty"`
	Rows    int    `json:"rows"`
	Size    int64  `json:"size"`   // of all rows, in bytes
	Digest  string `json:"sha256"` // of all rows, in hexadecimal digits
	// Bundle is the digest of the bundle that a report is about, and Made is the time of that bundle.
	Bundle string     `json:"bundle,omitempty"`
	Made   *time.Time `json:"made,omitempty"`
}

// Before reports whether a bundle is older than another one of the same site.
func (s Statement) Before(other Statement) bool {
	return s.Serial < other.Serial || s.Serial == other.Serial && s.Time.Before(other.Time)
}

// String describes the statement's file for users.
func (s Statement) String() string {
	return fmt.Sprintf("serial %d of %s for site %q", s.Serial, s.Time.UTC().Format(time.RFC3339), s.Site)
}

// An envelope is a DSSE envelope.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   []byte `json:"sig"`
}

// preAuthentication returns what a DSSE signature is about.
func preAuthentication(payloadType string, payload []byte) []byte {
	var b bytes.Buffer
	b.WriteString("DSSEv1 " + strconv.Itoa(len(payloadType)) + " " + payloadType + " " + strconv.Itoa(len(payload)) + " ")
	b.Write(payload)
	return b.Bytes()
}

// sign returns the last line of a file.
func sign(payloadType string, s Statement, key ed25519.PrivateKey) ([]byte, error) {
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(envelope{payloadType, payload, []signature{{
		KeyID: KeyID(publicOf(key)), Sig: ed25519.Sign(key, preAuthentication(payloadType, payload)),
	}}})
	return append(line, '\n'), err
}

// verify returns the statement of the last line of a file, if one of the keys has signed it.
func verify(line []byte, payloadType string, keys []ed25519.PublicKey) (Statement, error) {
	return claimed(line, payloadType, func(e envelope) bool { return signedByAny(e, keys) })
}

// claimed returns the statement of an envelope that isTrue accepts.
func claimed(line []byte, payloadType string, isTrue func(envelope) bool) (Statement, error) {
	var e envelope
	if err := strict(line, &e); err != nil || len(e.Signatures) == 0 {
		return Statement{}, tko.Errorf(tko.ErrInvalid, "it has no signature at its end: it is truncated, or no bundle or report of TKO; copy it again")
	}
	if e.PayloadType != payloadType {
		return Statement{}, tko.Errorf(tko.ErrInvalid, "it is of the type %q, not %q: name the other file", bounded(e.PayloadType), payloadType)
	}
	if !isTrue(e) {
		return Statement{}, tko.Errorf(tko.ErrDenied, "it is not signed by a key that is trusted here, but claims the key %s: name the public key of its author with --key, if you trust it", bounded(e.Signatures[0].KeyID))
	}
	var s Statement
	if err := strict(e.Payload, &s); err != nil {
		return Statement{}, tko.Errorf(tko.ErrInvalid, "its statement can't be read: %w: use the version of TKO that wrote it", err)
	}
	if s.Format != Format {
		return Statement{}, tko.Errorf(tko.ErrInvalid, "its format is %d, and this program reads %d: use the version of TKO that wrote it", s.Format, Format)
	}
	if err := tko.CheckID("site", string(s.Site)); err != nil {
		return Statement{}, err
	}
	return s, nil
}

func signedByAny(e envelope, keys []ed25519.PublicKey) bool {
	about := preAuthentication(e.PayloadType, e.Payload)
	for _, key := range keys {
		for _, s := range e.Signatures {
			if len(key) == ed25519.PublicKeySize && ed25519.Verify(key, about, s.Sig) {
				return true
			}
		}
	}
	return false
}

// strict decodes one JSON value without fields that v doesn't have.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more than one value")
	}
	return nil
}

// bounded shortens a text from a file that isn't verified, for errors.
func bounded(text string) string {
	const most = 80
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strconv.QuoteToASCII(text)
}
