package tko_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// FuzzPattern checks that patterns, which become regular expressions of
// databases, match as their regular expression, prefix and literal say.
func FuzzPattern(f *testing.F) {
	for _, pattern := range []string{"", "*", "**", "a/*:v1", `\*`, "a/**", "{a,b}", "[a-z]", "?", "a\\", "é*", "\x00", "(.*", "**/**/**", strings.Repeat("*a", 50)} {
		for _, text := range []string{"", "a", "a/b:v1", "*", "a/b/c", "é"} {
			f.Add(pattern, text)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		for name, parse := range map[string]func(string) (tko.Pattern, error){"ID": tko.ParsePattern, "value": tko.ParseValuePattern} {
			p, err := parse(pattern)
			if err != nil {
				if !errors.Is(err, tko.ErrInvalid) || len(err.Error()) > 4000 {
					t.Fatalf("%s %q: %q", name, pattern, err)
				}
				continue
			}
			matches := p.Match(text)
			if matches && !strings.HasPrefix(text, p.Prefix()) {
				t.Fatalf("%s %q matches %q without the prefix %q", name, pattern, text, p.Prefix())
			}
			if p.Exact() && matches != (text == p.Prefix()) {
				t.Fatalf("%s %q is exact: %q, matches %t", name, pattern, text, matches)
			}
			if _, err := regexp.Compile(p.Regexp()); err != nil {
				t.Fatalf("%s %q: %v", name, pattern, err)
			}
		}
		literal, err := tko.ParsePattern(tko.LiteralPattern(text))
		if err == nil && !literal.Match(text) {
			t.Fatalf("the literal pattern %q doesn't match %q", tko.LiteralPattern(text), text)
		}
	})
}
