package wire

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
)

// The keys of gRPC metadata that TKO uses.
const (
	WhoKey       = "tko-who"        // author of the change
	WhyKey       = "tko-why"        // reason for the change
	ErrorSizeKey = "tko-error-size" // size of errors that the client accepts, in bytes; see DefaultErrorSize
	RowSizeKey   = "tko-row-size"   // size of rows that the client accepts, in bytes; see DefaultRowSize
	// ConfirmKey is the number that a call confirms whose message has no field for it; 0 if
	// it confirms none. Clients send it with each call, which shows that they can confirm.
	ConfirmKey = "tko-confirm"
	ActingKey  = "tko-for"         // what a controller works for: KIND/ID of a deployment, rollout or source
	ClaimKey   = "tko-claim"       // claim of the work on that
	WarningKey = "tko-warning-bin" // trailers of responses: what a call accepted and its caller should know
	AsOfKey    = "tko-as-of"       // header of responses: the moment as of which the server has read
)

// NewActing writes what a controller works for as gRPC metadata.
func NewActing(a tko.Acting) string { return NewAuthorText(string(a.Kind) + "/" + a.ID) }

// Acting is the inverse of NewActing. A malformed text is an ErrInvalid.
func Acting(value string) (tko.Acting, error) {
	text, err := AuthorText(ActingKey, value)
	if err != nil {
		return tko.Acting{}, err
	}
	kind, id, ok := strings.Cut(text, "/")
	switch a := (tko.Acting{Kind: tko.Kind(kind), ID: id}); a.Kind {
	case tko.KindDeployment, tko.KindRollout, tko.KindSource:
		if ok && id != "" {
			return a, nil
		}
	case tko.KindTemplate, tko.KindSite, tko.KindPlugin, tko.KindSubscription: // no controller works for one
	}
	return tko.Acting{}, tko.Errorf(tko.ErrInvalid, "metadata %s is %.80q: use deployment/ID, rollout/ID or source/NAME", ActingKey, text)
}

// MaxAuthorLength is the maximum length of author and reason, in bytes.
const MaxAuthorLength = 1024

// NewAuthorText writes an author or reason as gRPC metadata, which is printable
// ASCII: other characters, and %, are written as % and two hex digits per byte.
func NewAuthorText(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// AuthorText is the inverse of NewAuthorText. A % that isn't followed by two
// hex digits stands for itself. A text that is too long or not UTF-8 is an
// ErrInvalid.
func AuthorText(key, value string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if hi, lo, ok := hexPair(value[i:]); ok {
			b.WriteByte(hi<<4 | lo)
			i += 2
			continue
		}
		b.WriteByte(value[i])
	}
	text := b.String()
	if len(text) > MaxAuthorLength {
		return "", tko.Errorf(tko.ErrInvalid, "metadata %s has %d bytes: use at most %d", key, len(text), MaxAuthorLength)
	}
	if !utf8.ValidString(text) {
		return "", tko.Errorf(tko.ErrInvalid, "metadata %s is not UTF-8", key)
	}
	return text, nil
}

func hexPair(s string) (hi, lo byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, 0, false
	}
	hi, okHi := hexDigit(s[1])
	lo, okLo := hexDigit(s[2])
	return hi, lo, okHi && okLo
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	default:
		return 0, false
	}
}
