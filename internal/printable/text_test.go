package printable

import "testing"

func TestPrintableTextCantControlTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain ü 漢字":               "plain ü 漢字",
		"two\nlines\r\n":           "two lines",
		"a\tb":                     "a b",
		"\x1b[2Jgone":              "\uFFFD[2Jgone",
		"left\u202Eright":          "left\uFFFDright",
		"bell\a, zero-width\u200B": "bell\uFFFD, zero-width\uFFFD",
		"":                         "",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
