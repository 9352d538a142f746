package printable

import "testing"

func TestShortTextCutsNoCharacter(t *testing.T) {
	for _, c := range []struct {
		text          string
		limit         int
		short, within string
	}{
		{"plain", 5, "plain", "plain"},
		{"plain text", 5, "plain…", "pl…"},
		{"aü", 2, "a…", "…"},
		{"üüü", 5, "üü…", "ü…"},
		{"漢字漢字", 7, "漢字…", "漢…"},
		{"", 0, "", ""},
		{"text", 0, "…", "…"},
		{"a\xffbc", 3, "ab…", "…"},
	} {
		if got := Short(c.text, c.limit); got != c.short {
			t.Errorf("Short(%q, %d) = %q, want %q", c.text, c.limit, got, c.short)
		}
		if got := Within(c.text, c.limit); got != c.within {
			t.Errorf("Within(%q, %d) = %q, want %q", c.text, c.limit, got, c.within)
		}
	}
}

func TestStorableTextIsValidWithoutNUL(t *testing.T) {
	if got := Storable("a\x00b\xffü"); got != "a\uFFFDb\uFFFDü" {
		t.Errorf("got %q", got)
	}
}
