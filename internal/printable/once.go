package printable

import "strings"

// maxOnce is the beginning of a text, in bytes, in which subjects are looked for: those of an
// error are there.
const maxOnce = 1 << 10

// Prefixed returns a text about a subject: "SUBJECT: TEXT". A text that begins with the
// subject stays as it is.
func Prefixed(subject, text string) string {
	if subject == "" || text == subject || strings.HasPrefix(text, subject+": ") {
		return text
	}
	return subject + ": " + text
}

// Once returns a text without a subject that is there twice in a row: that of "X: X: text"
// is "X: text". Several functions on the way of an error name what it is about. Only the
// beginning of a long text is changed.
func Once(text string) string {
	for from := 0; ; {
		i := strings.Index(text[from:], ": ")
		if i < 0 || from+i > maxOnce {
			return text
		}
		// A subject may begin after another one, and have colons itself.
		at := from + i + len(": ")
		again := false
		for begin := 0; ; {
			subject := text[begin:at]
			if strings.HasPrefix(text[at:], subject) {
				text, again = text[:begin]+text[at:], true
				break
			}
			next := strings.Index(text[begin:at-len(": ")], ": ")
			if next < 0 {
				break
			}
			begin += next + len(": ")
		}
		if !again {
			from = at
			continue
		}
		from = 0
	}
}
