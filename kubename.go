package tko

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxKubeNameLength is the limit of the length of a name in Kubernetes.
const MaxKubeNameLength = 253

// KubeName writes an ID (or a plugin's "type|name", or a pattern) as a name
// that Kubernetes takes: every character outside 0-9 A-Z a-z . becomes - and
// the four lower-case hexadecimal digits of its code point. Different IDs have
// different names; [FromKubeName] is the inverse. The error is an ErrInvalid.
func KubeName(id string) (string, error) {
	if id == "" {
		return "", Errorf(ErrInvalid, "an empty ID has no Kubernetes name")
	}
	var b strings.Builder
	for i, c := range id {
		switch {
		case isKubeNameChar(c):
			b.WriteRune(c)
		case c == utf8.RuneError && !strings.HasPrefix(id[i:], string(utf8.RuneError)):
			return "", Errorf(ErrInvalid, "the ID %.80q has no Kubernetes name: it is no valid UTF-8", id)
		case c > 0xffff:
			return "", Errorf(ErrInvalid, "the ID %.80q has no Kubernetes name: %q is beyond what four hexadecimal digits can say", id, c)
		default:
			fmt.Fprintf(&b, "-%04x", c)
		}
	}
	if b.Len() > MaxKubeNameLength {
		return "", Errorf(ErrInvalid, "the ID %.80q has no Kubernetes name: it would have %d characters, and the limit is %d", id, b.Len(), MaxKubeNameLength)
	}
	return b.String(), nil
}

// FromKubeName is the ID that [KubeName] wrote as name. What KubeName never
// writes is an ErrInvalid.
func FromKubeName(name string) (string, error) {
	if name == "" {
		return "", Errorf(ErrInvalid, "an empty Kubernetes name is no ID's")
	}
	if len(name) > MaxKubeNameLength {
		return "", Errorf(ErrInvalid, "the Kubernetes name %.80q has %d characters, and the limit is %d", name, len(name), MaxKubeNameLength)
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if isKubeNameChar(rune(c)) {
			b.WriteByte(c)
			continue
		}
		if c != '-' {
			return "", Errorf(ErrInvalid, "the Kubernetes name %q is no ID's: the character at %d must be written as - and four hexadecimal digits", name, i)
		}
		char, ok := unescapeKubeName(name[i+1:])
		if !ok {
			return "", Errorf(ErrInvalid, "the Kubernetes name %q is no ID's: after the - at %d must come the four lower-case hexadecimal digits of a character that needs them", name, i)
		}
		b.WriteRune(char)
		i += 4
	}
	return b.String(), nil
}

// unescapeKubeName reads the four digits that s begins with.
func unescapeKubeName(s string) (char rune, ok bool) {
	if len(s) < 4 || strings.Trim(s[:4], "0123456789abcdef") != "" {
		return 0, false
	}
	code, err := strconv.ParseUint(s[:4], 16, 16)
	if err != nil {
		return 0, false
	}
	char = rune(code)
	return char, utf8.ValidRune(char) && !isKubeNameChar(char)
}

func isKubeNameChar(c rune) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '.'
}

// FromLabel is the metadata that a label of Kubernetes is. escaped says that both
// key and value are escapes, as [KubeName] writes them; if not, the metadata is
// the label's literal text. A label with a prefix ("app.kubernetes.io/name"), which
// is no escape, is no metadata: key is "" then.
func FromLabel(label, text string) (key, value string, escaped bool) {
	key, err := FromKubeName(label)
	if err == nil && text != "" {
		value, err = FromKubeName(text)
	}
	switch {
	case err == nil:
		return key, value, true
	case HasLabelPrefix(label):
		return "", "", false
	default:
		return label, text, false
	}
}

// HasLabelPrefix says whether a label's key has a prefix.
func HasLabelPrefix(label string) bool { return strings.Contains(label, "/") }

// CheckKubernetesName says what is wrong with the name that a deployment shall keep in
// Kubernetes: it is a DNS subdomain, as names of custom resources are. The error
// is an ErrInvalid.
func CheckKubernetesName(name string) error {
	if name == "" || len(name) > MaxKubeNameLength {
		return Errorf(ErrInvalid, "the name %.80q has %d characters: use 1 to %d", name, len(name), MaxKubeNameLength)
	}
	isEdge := func(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' }
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || !isEdge(label[0]) || !isEdge(label[len(label)-1]) || strings.Trim(label, "0123456789abcdefghijklmnopqrstuvwxyz-") != "" {
			return Errorf(ErrInvalid, "the name %q is none of Kubernetes: use lower-case letters, digits, - and ., with a letter or digit at each end and beside each dot", name)
		}
	}
	return nil
}
