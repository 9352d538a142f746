package tko

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Pattern is a wildcard pattern that matches whole strings.
type Pattern struct {
	text   string
	prefix string // literal beginning, unescaped
	exact  bool   // the pattern has no wildcards
	regex  string
}

// patternParts is the encoded form of a Pattern.
type patternParts struct {
	Text, Prefix, Regex string
	Exact               bool
}

// MarshalBinary encodes the pattern for another process of this version.
func (p Pattern) MarshalBinary() ([]byte, error) {
	return json.Marshal(patternParts{p.text, p.prefix, p.regex, p.exact})
}

// UnmarshalBinary decodes what MarshalBinary returned.
func (p *Pattern) UnmarshalBinary(data []byte) error {
	var parts patternParts
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("decode a pattern: %w", err)
	}
	*p = Pattern{text: parts.Text, prefix: parts.Prefix, regex: parts.Regex, exact: parts.Exact}
	return nil
}

// ParsePattern parses a pattern of IDs: * matches any run of characters other
// than / and :, ** matches any run, \ escapes the next character; all other
// characters are literal. Runs may be empty.
func ParsePattern(text string) (Pattern, error) { return parsePattern(text, `[^/:]*`) }

// ParseValuePattern parses a pattern of metadata values. It is like
// [ParsePattern], except that * also matches / and :.
func ParseValuePattern(text string) (Pattern, error) { return parsePattern(text, `.*`) }

// LiteralPattern returns the pattern that matches only text.
func LiteralPattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`).Replace(text)
}

// The limits of patterns. Each wildcard costs time for each text that is
// compared, and a regular expression grows with the length of its pattern.
const (
	MaxPatternLength     = 128 << 10 // bytes; the longest storable text with each character escaped
	MaxWildPatternLength = 1 << 10   // bytes of a pattern with wildcards
	MaxWildcards         = 32        // runs of * in one pattern
)

func parsePattern(text, star string) (Pattern, error) {
	if len(text) > MaxPatternLength {
		return Pattern{}, Errorf(ErrInvalid, "the pattern %.40q… has %d bytes: use at most %d", text, len(text), MaxPatternLength)
	}
	if !utf8.ValidString(text) { // it would match the replacement character
		return Pattern{}, Errorf(ErrInvalid, "the pattern %.40q is not valid UTF-8", text)
	}
	p := Pattern{text: text, exact: true}
	wildcards := 0
	var prefix, regex strings.Builder
	regex.WriteString("(?s)^")
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		switch c := runes[i]; c {
		case '*':
			p.exact = false
			wildcards++
			if wildcards > MaxWildcards {
				return Pattern{}, Errorf(ErrInvalid, "the pattern %.40q… has more than %d wildcards: use fewer", text, MaxWildcards)
			}
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
				return Pattern{}, Errorf(ErrInvalid, `the pattern %s ends with \: write \\ for a backslash`, quoteShort(text))
			}
		}
		if p.exact {
			prefix.WriteRune(runes[i])
		}
		regex.WriteString(quoteMeta(runes[i]))
	}
	if !p.exact && len(text) > MaxWildPatternLength {
		return Pattern{}, Errorf(ErrInvalid, "the pattern %.40q… has wildcards and %d bytes: use at most %d", text, len(text), MaxWildPatternLength)
	}
	regex.WriteString("$")
	p.prefix, p.regex = prefix.String(), regex.String()
	return p, nil
}

// quoteShort quotes at most the first 200 bytes of a text.
func quoteShort(text string) string {
	if len(text) > 200 {
		return strconv.Quote(text[:200]) + "…"
	}
	return strconv.Quote(text)
}

// quoteMeta escapes a character so that the regular expressions of both RE2 and
// PostgreSQL match it literally.
func quoteMeta(c rune) string { return regexp.QuoteMeta(string(c)) }

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Prefix returns the literal beginning of all texts that match.
func (p Pattern) Prefix() string { return p.prefix }

// Exact reports whether the pattern matches only its Prefix.
func (p Pattern) Exact() bool { return p.exact }

// Regexp returns the pattern as a regular expression that RE2 and PostgreSQL
// both accept, anchored at both ends.
func (p Pattern) Regexp() string { return p.regex }

// Match reports whether the pattern matches the whole of s.
func (p Pattern) Match(s string) bool {
	if p.exact {
		return s == p.prefix
	}
	return strings.HasPrefix(s, p.prefix) && regexp.MustCompile(p.regex).MatchString(s)
}
