package tko

import "strings"

// MaxIDLength is the limit of the length of an ID, in bytes: what fits into
// the indexes of every store.
const MaxIDLength = 512

// CheckID says what is wrong with an ID of a template or site or with the name
// of a plugin: they are one or more of 0-9 A-Z a-z _ . - / : and nothing else.
// The error is an ErrInvalid that names what and id.
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

// PluginID writes a plugin's type and name as one.
func PluginID(typ, name string) string { return typ + "|" + name }

// SplitPluginID is the inverse of PluginID.
func SplitPluginID(id string) (typ, name string, ok bool) { return strings.Cut(id, "|") }
