package selection

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A Condition writes its SQL into a statement.
type Condition func(b *Builder) string

// A Builder collects the arguments of a statement.
type Builder struct {
	Dialect *sqldb.Dialect
	Args    []any
}

// Arg adds an argument, and returns its parameter.
func (b *Builder) Arg(value any) string {
	b.Args = append(b.Args, value)
	return sqldb.Parameter(len(b.Args))
}

func (b *Builder) all(conditions []Condition) string {
	texts := make([]string, len(conditions))
	for i, c := range conditions {
		texts[i] = c(b)
	}
	return strings.Join(texts, " AND ")
}

func plain(text string) Condition { return func(*Builder) string { return text } }

func equals(expression string, value any) Condition {
	return func(b *Builder) string { return expression + " = " + b.Arg(value) }
}

// among is the condition that an entry of the metadata index is one of pairs.
func among(expression string, pairs []int64) Condition {
	if len(pairs) == 1 {
		return equals(expression, pairs[0])
	}
	return func(b *Builder) string { return b.Dialect.In(expression, b.Arg(b.Dialect.Ints(pairs))) }
}

// oneOf is the condition that an expression without an index is in a list.
func oneOf(expression string, list []string) Condition {
	return func(b *Builder) string { return b.Dialect.Among(expression, b.Arg(b.Dialect.List(list))) }
}

// has is the condition that the metadata index has an ID under one of pairs. With OFFSET,
// the planner probes for each record. Without it, it may read all records that have the
// pair, for each of those that it compares them with: because they are in the wanted order.
func has(pairs []int64, id string) Condition {
	pair := among("y.pair", pairs)
	return func(b *Builder) string {
		return "EXISTS (SELECT 1 FROM entity_pair y WHERE " + pair(b) + " AND y.id = " + hide(id) + " LIMIT 1 OFFSET 0)"
	}
}

// hide hides a column from the database's planner, which then uses no index on it.
func hide(column string) string { return "(" + column + " || '')" }

// matches is the condition that an expression matches a pattern.
func matches(expression string, pattern tko.Pattern) []Condition {
	if pattern.Exact() {
		return []Condition{equals(expression, pattern.Prefix())}
	}
	conditions := startsWith(expression, pattern.Prefix())
	if !prefixOnly(pattern) {
		conditions = append(conditions, func(b *Builder) string { return b.Dialect.Regexp(expression, b.Arg(pattern.Regexp())) })
	}
	return conditions
}

// startsWith is the condition that an expression starts with a prefix.
func startsWith(expression, prefix string) []Condition {
	if prefix == "" {
		return nil
	}
	conditions := []Condition{func(b *Builder) string { return expression + " >= " + b.Arg(prefix) }}
	if end := prefixEnd(prefix); end != "" {
		conditions = append(conditions, func(b *Builder) string { return expression + " < " + b.Arg(end) })
	}
	return conditions
}

// prefixOnly reports whether a pattern matches every text that starts with its
// prefix.
func prefixOnly(p tko.Pattern) bool {
	return p.Regexp() == "(?s)^"+regexp.QuoteMeta(p.Prefix())+".*$"
}

// prefixEnd returns the least text that is greater than all texts that start with a
// prefix, or "" if there is none.
func prefixEnd(prefix string) string {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		switch c := runes[i] + 1; {
		case c > utf8.MaxRune:
			continue
		case c == 0xD800: // surrogates are not valid text
			runes[i] = 0xE000
		default:
			runes[i] = c
		}
		return string(runes[:i+1])
	}
	return ""
}

func matcher(pattern tko.Pattern) func(string) bool {
	if prefixOnly(pattern) {
		return func(text string) bool { return strings.HasPrefix(text, pattern.Prefix()) }
	}
	return regexp.MustCompile(pattern.Regexp()).MatchString
}
