// Package kubename writes TKO's IDs and metadata as names and labels of
// Kubernetes, and reads them back. It is pure. Start reading at [Escape].
package kubename

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
)

// MaxLength is the maximum length of a name in Kubernetes, in bytes.
const MaxLength = 253

// Escape writes an ID (or a plugin's "type|name", or a pattern) as a name
// that Kubernetes accepts: every character outside 0-9 A-Z a-z . becomes - and
// the four lower-case hexadecimal digits of its code point. Different IDs have
// different names; [Unescape] is the inverse. An ID that can't be written in
// this way is a tko.ErrInvalid.
func Escape(id string) (string, error) { return escape(id, false) }

// EscapeKeepingHyphens writes an ID as [Escape] does, but a - that can't be mistaken for
// the beginning of an escape stays: smf-v2 is smf-v2. Rollouts have such names. The ID
// must be ASCII. [UnescapeHyphens] is the inverse.
func EscapeKeepingHyphens(id string) (string, error) { return escape(id, true) }

// dots are the names of the IDs that can't be part of a path, where they name folders.
var dots = map[string]string{".": "-002e", "..": "-002e-002e"}

func escape(id string, hyphens bool) (string, error) {
	if id == "" {
		return "", tko.Errorf(tko.ErrInvalid, "an empty ID has no Kubernetes name")
	}
	if name := dots[id]; name != "" {
		return name, nil
	}
	if hyphens && (id == dots["."] || id == dots[".."]) {
		return escape(id, false) // or it would be the name of these
	}
	var b strings.Builder
	for i, c := range id {
		switch {
		case isPlain(c), hyphens && c == '-' && !isEscape(id[i+1:]):
			b.WriteRune(c)
		case c == utf8.RuneError && !strings.HasPrefix(id[i:], string(utf8.RuneError)):
			return "", tko.Errorf(tko.ErrInvalid, "the ID %.80q has no Kubernetes name: it is not valid UTF-8", id)
		case hyphens && c > unicode.MaxASCII:
			return "", tko.Errorf(tko.ErrInvalid, "the ID %.80q has no Kubernetes name: it has the character %q", id, c)
		case c > 0xffff:
			return "", tko.Errorf(tko.ErrInvalid, "the ID %.80q has no Kubernetes name: the code point of %q has more than four hexadecimal digits", id, c)
		default:
			fmt.Fprintf(&b, "-%04x", c)
		}
	}
	if b.Len() > MaxLength {
		return "", tko.Errorf(tko.ErrInvalid, "the ID %.80q has no Kubernetes name: it would have %d characters, and the limit is %d", id, b.Len(), MaxLength)
	}
	return b.String(), nil
}

// Unescape returns the ID that [Escape] wrote as name. A name that Escape
// never writes is a tko.ErrInvalid.
func Unescape(name string) (string, error) { return unescapeName(name, false) }

// UnescapeHyphens returns the ID that [EscapeKeepingHyphens] or [Escape] wrote as name. A
// name that neither writes is a tko.ErrInvalid.
func UnescapeHyphens(name string) (string, error) { return unescapeName(name, true) }

func unescapeName(name string, hyphens bool) (string, error) {
	if name == "" {
		return "", tko.Errorf(tko.ErrInvalid, "an empty Kubernetes name stands for no ID")
	}
	if len(name) > MaxLength {
		return "", tko.Errorf(tko.ErrInvalid, "the Kubernetes name %.80q has %d characters, and the limit is %d", name, len(name), MaxLength)
	}
	for id, escaped := range dots {
		if name == escaped {
			return id, nil
		}
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if isPlain(rune(c)) {
			b.WriteByte(c)
			continue
		}
		if c != '-' {
			return "", tko.Errorf(tko.ErrInvalid, "the Kubernetes name %q stands for no ID: write the character at %d as - and four hexadecimal digits", name, i)
		}
		char, ok := unescape(name[i+1:])
		if hyphens && (!ok || char > unicode.MaxASCII) {
			b.WriteByte(c)
			continue
		}
		if !ok {
			return "", tko.Errorf(tko.ErrInvalid, "the Kubernetes name %q stands for no ID: after the - at %d, write the four lower-case hexadecimal digits of a character that needs them", name, i)
		}
		b.WriteRune(char)
		i += 4
	}
	return b.String(), nil
}

// unescape reads the four digits at the beginning of s. ok is false if Escape
// doesn't write them.
func unescape(s string) (char rune, ok bool) {
	if len(s) < 4 || strings.Trim(s[:4], "0123456789abcdef") != "" {
		return 0, false
	}
	code, err := strconv.ParseUint(s[:4], 16, 16)
	if err != nil {
		return 0, false
	}
	char = rune(code)
	return char, utf8.ValidRune(char) && !isPlain(char)
}

// isEscape reports whether a - before s begins the escape of an ASCII character.
func isEscape(s string) bool {
	char, ok := unescape(s)
	return ok && char <= unicode.MaxASCII
}

func isPlain(c rune) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '.'
}

// Metadata returns the metadata that a label of Kubernetes stands for. escaped
// reports whether both key and value are escapes, as [Escape] writes them; if
// not, the metadata is the label's literal text. A label that has a prefix
// ("app.kubernetes.io/name") and isn't an escape is no metadata: key is "".
func Metadata(label, text string) (key, value string, escaped bool) {
	key, err := Unescape(label)
	if err == nil && text != "" {
		value, err = Unescape(text)
	}
	switch {
	case err == nil:
		return key, value, true
	case HasPrefix(label):
		return "", "", false
	default:
		return label, text, false
	}
}

// HasPrefix reports whether the key of a label has a prefix, such as
// app.kubernetes.io/, that isn't part of the key of metadata: TKO's own
// [tko.MetadataSuspend] is metadata as it is written.
func HasPrefix(label string) bool {
	return strings.Contains(label, "/") && label != tko.MetadataSuspend
}

// Check returns a tko.ErrInvalid if a deployment can't have name in
// Kubernetes: it must be a DNS subdomain, as names of custom resources are.
func Check(name string) error {
	if name == "" || len(name) > MaxLength {
		return tko.Errorf(tko.ErrInvalid, "the name %.80q has %d characters: use 1 to %d", name, len(name), MaxLength)
	}
	isEdge := func(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' }
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || !isEdge(label[0]) || !isEdge(label[len(label)-1]) || strings.Trim(label, "0123456789abcdefghijklmnopqrstuvwxyz-") != "" {
			return tko.Errorf(tko.ErrInvalid, "the name %q is not valid in Kubernetes: use lower-case letters, digits, - and ., with a letter or digit at each end and next to each dot", name)
		}
	}
	return nil
}

// The limits of labels in Kubernetes, in bytes.
const (
	maxLabelName  = 63
	maxLabelValue = 63
)

// CheckLabel returns a tko.ErrInvalid if no object in Kubernetes can have a label, as it is
// written.
func CheckLabel(key, value string) error {
	if err := checkQualified("label", key); err != nil {
		return err
	}
	if len(value) > maxLabelValue || value != "" && !isLabelText(value) {
		return tko.Errorf(tko.ErrInvalid, "the label %q has the value %.80q, which is not valid in Kubernetes: use at most %d letters, digits, -, _ and ., with a letter or digit at each end", key, value, maxLabelValue)
	}
	return nil
}

// CheckAnnotation returns a tko.ErrInvalid if no object in Kubernetes can have an annotation
// with a key.
func CheckAnnotation(key string) error { return checkQualified("annotation", strings.ToLower(key)) }

// checkQualified checks the key of a label or an annotation: a name, with or without a prefix.
func checkQualified(what, key string) error {
	name := key
	if prefix, rest, ok := strings.Cut(key, "/"); ok {
		name = rest
		if Check(prefix) != nil {
			return tko.Errorf(tko.ErrInvalid, "the %s %.80q is not valid in Kubernetes: its prefix is no DNS subdomain", what, key)
		}
	}
	if len(name) > maxLabelName || !isLabelText(name) {
		return tko.Errorf(tko.ErrInvalid, "the %s %.80q is not valid in Kubernetes: use at most %d letters, digits, -, _ and ., with a letter or digit at each end, after the prefix", what, key, maxLabelName)
	}
	return nil
}

// isLabelText reports whether a text consists of what labels may have, with a letter or digit at
// each end.
func isLabelText(text string) bool {
	isEdge := func(c rune) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
	if text == "" || !isEdge(rune(text[0])) || !isEdge(rune(text[len(text)-1])) {
		return false
	}
	return !strings.ContainsFunc(text, func(c rune) bool { return c != '-' && c != '_' && c != '.' && !isEdge(c) })
}
