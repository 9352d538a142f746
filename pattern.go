package tko

import (
	"regexp"
	"strings"
)

// A Pattern is a wildcard pattern that matches whole strings.
type Pattern struct {
	text   string
	prefix string // the literal beginning, without escapes
	exact  bool   // prefix is all there is
	regex  string
}

// ParsePattern reads a pattern of IDs: * matches any run of characters other
// than / and :, ** matches any run, \ escapes the next character; everything
// else is literal. Runs may be empty.
func ParsePattern(text string) (Pattern, error) { return parsePattern(text, `[^/:]*`) }

// ParseValuePattern reads a pattern of metadata values: as ParsePattern, but *
// crosses every boundary.
func ParseValuePattern(text string) (Pattern, error) { return parsePattern(text, `.*`) }

// LiteralPattern is the pattern that matches a text and nothing else.
func LiteralPattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`).Replace(text)
}

func parsePattern(text, star string) (Pattern, error) {
	p := Pattern{text: text, exact: true}
	var prefix, regex strings.Builder
	regex.WriteString("(?s)^")
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		switch c := runes[i]; c {
		case '*':
			p.exact = false
			n := i
			for i+1 < len(runes) && runes[i+1] == '*' {
				i++
			}
			if i > n {
				regex.WriteString(".*")
			} else {
				regex.WriteString(star)
			}
			continue
		case '\\':
			i++
			if i == len(runes) {
				return Pattern{}, Errorf(ErrInvalid, `the pattern %q ends with \: write \\ for a backslash`, text)
			}
		}
		if p.exact {
			prefix.WriteRune(runes[i])
		}
		regex.WriteString(quoteMeta(runes[i]))
	}
	regex.WriteString("$")
	p.prefix, p.regex = prefix.String(), regex.String()
	return p, nil
}

// quoteMeta escapes a character so that RE2 and PostgreSQL's regular
// expressions both take it literally.
func quoteMeta(c rune) string { return regexp.QuoteMeta(string(c)) }

// String is the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Prefix is the literal beginning of all that matches.
func (p Pattern) Prefix() string { return p.prefix }

// Exact says that only Prefix itself matches.
func (p Pattern) Exact() bool { return p.exact }

// Regexp is the pattern as a regular expression of the common subset of RE2
// and PostgreSQL, anchored at both ends.
func (p Pattern) Regexp() string { return p.regex }

// Match says whether the whole of s matches.
func (p Pattern) Match(s string) bool {
	if p.exact {
		return s == p.prefix
	}
	return strings.HasPrefix(s, p.prefix) && regexp.MustCompile(p.regex).MatchString(s)
}
