package printable

import "strings"

// ellipsis ends a text that was shortened.
const ellipsis = "…"

// Short returns a text, or its first limit bytes and "…". It cuts no character.
func Short(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:max(limit, 0)], "") + ellipsis
}

// Within returns a text in at most limit bytes, with "…" as the last of them if it was
// longer. It cuts no character.
func Within(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return Short(text, limit-len(ellipsis))
}

// Storable returns a text that every database and protocol accepts: valid UTF-8
// without NUL.
func Storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// Kept returns a text that every database can store, at most limit bytes.
func Kept(text string, limit int) string { return Within(Storable(text), limit) }
