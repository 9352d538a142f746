package tko

import "strings"

// MaxIDLength is the maximum length of an ID, in bytes. It fits into the
// indexes of every store.
const MaxIDLength = 512

// CheckID checks the ID of a template or site, or the name of a plugin: it must
// be one or more of 0-9 A-Z a-z _ . - / : and at most [MaxIDLength] bytes. The
// error is an ErrInvalid that names what and id.
func CheckID(what, id string) error {
	if id == "" {
		return Errorf(ErrInvalid, "%s is empty: use one or more of 0-9 A-Z a-z _ . - / :", what)
	}
	if len(id) > MaxIDLength {
		return Errorf(ErrInvalid, "%s %.40q… has %d characters: use at most %d", what, id, len(id), MaxIDLength)
	}
	for _, c := range id {
		if !isIDChar(c) {
			return Errorf(ErrInvalid, "%s %q has the character %q: use only 0-9 A-Z a-z _ . - / :", what, id, c)
		}
	}
	return nil
}

func isIDChar(c rune) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || strings.ContainsRune("_.-/:", c)
}

// PluginID returns the ID of a plugin: "type|name".
func PluginID(typ, name string) string { return typ + "|" + name }

// SplitPluginID is the inverse of [PluginID].
func SplitPluginID(id string) (typ, name string, ok bool) { return strings.Cut(id, "|") }
