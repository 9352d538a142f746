package tko_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
)

func TestPatternMatchesWholeTexts(t *testing.T) {
	tests := map[string]struct {
		why     string
		pattern string
		value   bool // a pattern of values, not of IDs
		match   []string
		differ  []string
		prefix  string
		exact   bool
	}{
		"literal":             {why: "a pattern matches the whole string", pattern: "upf", match: []string{"upf"}, differ: []string{"upf1", "aupf", "", "UPF"}, prefix: "upf", exact: true},
		"dot":                 {why: "a dot is a dot", pattern: "v1.0", match: []string{"v1.0"}, differ: []string{"v1x0"}, prefix: "v1.0", exact: true},
		"star":                {why: "* stops at / and :", pattern: "nf/*", match: []string{"nf/upf", "nf/"}, differ: []string{"nf/a/b", "nf/a:v1", "nf"}, prefix: "nf/"},
		"two stars":           {why: "** crosses every boundary", pattern: "nf/**", match: []string{"nf/upf", "nf/a/b:v1", "nf/"}, differ: []string{"nf"}, prefix: "nf/"},
		"three stars":         {why: "*** is **", pattern: "***", match: []string{"", "a/b:c"}},
		"stars inside":        {why: "runs may be empty", pattern: "a*b**c", match: []string{"abc", "axbc", "ab/x:c", "abbc"}, differ: []string{"a/bc", "ac"}, prefix: "a"},
		"escape":              {why: `\ makes the next character literal`, pattern: `a\*b`, match: []string{"a*b"}, differ: []string{"axb", `a\*b`}, prefix: "a*b", exact: true},
		"escaped backslash":   {why: `\ escapes itself`, pattern: `a\\*`, match: []string{`a\`, `a\b`}, differ: []string{"a*"}, prefix: `a\`},
		"escaped letter":      {why: "an ordinary character may be escaped, too", pattern: `\a\.`, match: []string{"a."}, differ: []string{`\a.`}, prefix: "a.", exact: true},
		"value":               {why: "in values, * crosses / and :", pattern: "G*", value: true, match: []string{"G", "G/x:y", "G\nline"}, differ: []string{"aG"}, prefix: "G"},
		"regular expressions": {why: "special characters of regular expressions are literal", pattern: "a+(b)[c]{2}^$|?", match: []string{"a+(b)[c]{2}^$|?"}, differ: []string{"aab"}, prefix: "a+(b)[c]{2}^$|?", exact: true},
		"not only ASCII":      {why: "characters, not bytes", pattern: "ü*", match: []string{"ü", "üx"}, differ: []string{"u"}, prefix: "ü"},
		"empty":               {why: "the empty pattern matches the empty string", pattern: "", match: []string{""}, differ: []string{"a"}, exact: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			parse := tko.ParsePattern
			if test.value {
				parse = tko.ParseValuePattern
			}
			p, err := parse(test.pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range test.match {
				if !p.Match(s) {
					t.Errorf("%q doesn't match %q: %s", test.pattern, s, test.why)
				}
			}
			for _, s := range test.differ {
				if p.Match(s) {
					t.Errorf("%q matches %q: %s", test.pattern, s, test.why)
				}
			}
			if p.Prefix() != test.prefix || p.Exact() != test.exact || p.String() != test.pattern {
				t.Errorf("prefix %q, exact %t, text %q; want %q, %t, %q", p.Prefix(), p.Exact(), p, test.prefix, test.exact, test.pattern)
			}
		})
	}
}

func TestPatternThatEndsWithABackslashIsRefused(t *testing.T) {
	for _, text := range []string{`\`, `a\`, `*\`, `a\\\`} {
		if _, err := tko.ParsePattern(text); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), text[:1]) {
			t.Errorf("%q: %v, want an ErrInvalid", text, err)
		}
	}
}

// Stores use prefix and regular expression: both must agree with Match.
func TestPrefixAndRegexpAgreeWithMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab/:.*\\]{0,8}`).Draw(t, "pattern")
		s := rapid.StringMatching(`[ab/:.*\\]{0,8}`).Draw(t, "string")
		p, err := tko.ParsePattern(text)
		if err != nil {
			return
		}
		if got := regexp.MustCompile(p.Regexp()).MatchString(s); got != p.Match(s) {
			t.Errorf("pattern %q, text %q: the regular expression matches: %t", text, s, got)
		}
		if p.Match(s) && !strings.HasPrefix(s, p.Prefix()) {
			t.Errorf("%q matches %q, which lacks the prefix %q", text, s, p.Prefix())
		}
	})
}

func TestLiteralPatternsMatchOnlyThemselves(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", `a*b`, `**`, `back\slash`, `\*`, "py/ä"} {
		p, err := tko.ParsePattern(tko.LiteralPattern(text))
		if err != nil || !p.Exact() || p.Prefix() != text {
			t.Errorf("%q becomes %q, %v", text, p.Prefix(), err)
		}
	}
}
