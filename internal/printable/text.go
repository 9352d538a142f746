// Package printable has text for people: safe to write to a terminal, shortened, and
// accepted by every database.
package printable

import (
	"strings"
	"unicode"
)

// Text returns a text on one line, without what would control a terminal: control
// characters, and those that change the direction of a text.
func Text(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' }), " ")
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\t':
			return ' '
		case !unicode.IsPrint(c):
			return '\uFFFD'
		}
		return c
	}, text)
}
