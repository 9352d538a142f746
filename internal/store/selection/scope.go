package selection

import (
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// Within returns the condition that records of a kind, in a table with an alias, are
// selected by a predicate. It is written so that the planner uses no index for it.
func Within(alias string, kind tko.Kind, p access.Predicate) Condition {
	switch {
	case p.IsAll():
		return plain("1 = 1")
	case p.Empty():
		return plain("1 = 0")
	}
	var terms [][]Condition
	for _, t := range p.Terms() {
		var all []Condition
		if t.ID != nil {
			all = append(all, matches(hide(alias+".id"), *t.ID)...)
		}
		for _, reference := range []struct {
			column  string
			pattern *tko.Pattern
		}{{"template", t.Template}, {"site", t.Site}} {
			if reference.pattern != nil {
				column := alias + "." + reference.column
				all = append(all, plain(column+" <> ''"))
				all = append(all, matches(hide(column), *reference.pattern)...)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(t.Metadata)) {
			all = append(all, hasPair(alias, kind, key, t.Metadata[key]))
		}
		if len(all) == 0 {
			all = append(all, plain("1 = 1"))
		}
		terms = append(terms, all)
	}
	return func(b *Builder) string {
		texts := make([]string, len(terms))
		for i, all := range terms {
			texts[i] = b.all(all)
		}
		return "(" + strings.Join(texts, " OR ") + ")"
	}
}

// hasPair is the condition that the metadata of a record has a value: by itself, or
// in the metadata that it shares with others (see isShared).
func hasPair(alias string, kind tko.Kind, key, value string) Condition {
	hash := PairOf(kind, key, value).Hash
	return func(b *Builder) string {
		pair := "(SELECT p.id FROM pair p WHERE p.kind = " + b.Arg(string(kind)) + " AND p.key = " + b.Arg(key) + " AND p.hash = " + b.Arg(hash[:]) + ")"
		own := "EXISTS (SELECT 1 FROM entity_pair y WHERE y.pair = " + pair + " AND y.id = " + hide(alias+".id") + ")"
		if kind != tko.KindDeployment {
			return own
		}
		return "CASE WHEN " + alias + ".metaset < 0 THEN EXISTS (SELECT 1 FROM metaset_pair s WHERE s.pair = " + pair + " AND s.metaset = " + alias + ".metaset) ELSE " + own + " END"
	}
}

// limit adds the scope of the query. A scope of one term is like filters of the
// caller, and uses their access paths.
func (p *Plan) limit() {
	q := p.query
	scope := q.Scope.Of(q.Kind)
	switch terms := scope.Terms(); {
	case scope.IsAll():
		return
	case scope.Empty():
		p.empty = true
	case len(terms) == 1:
		limited := *q
		t := terms[0]
		for _, f := range []struct {
			pattern *tko.Pattern
			list    *[]tko.Pattern
		}{{t.ID, &limited.IDs}, {t.Template, &limited.Templates}, {t.Site, &limited.Sites}} {
			if f.pattern != nil {
				*f.list = append(slices.Clip(*f.list), *f.pattern)
			}
		}
		limited.Metadata = maps.Clone(q.Metadata)
		for key, value := range t.Metadata {
			literal, err := tko.ParseValuePattern(tko.LiteralPattern(value))
			if _, taken := limited.Metadata[key]; taken || err != nil {
				p.filters = append(p.filters, filter{hidden: hasPair("e", q.Kind, key, value)})
				continue
			}
			if limited.Metadata == nil {
				limited.Metadata = map[string]tko.Pattern{}
			}
			limited.Metadata[key] = literal
		}
		p.query = &limited
	default:
		p.limitIDs(terms)
		p.filters = append(p.filters, filter{hidden: Within("e", q.Kind, scope)})
	}
}

// limitIDs limits the range of IDs to that of terms that all have one.
func (p *Plan) limitIDs(terms []access.Term) {
	low, high := "", ""
	for i, t := range terms {
		if t.ID == nil {
			return
		}
		prefix, end := t.ID.Prefix(), prefixEnd(t.ID.Prefix())
		if i == 0 || prefix < low {
			low = prefix
		}
		if i == 0 || high != "" && (end == "" || end > high) {
			high = end
		}
	}
	p.low = p.low.greater(bound{id: low, inclusive: true, set: low != ""})
	p.high = p.high.less(bound{id: high, set: high != ""})
}

// limitRelated returns the condition that the template or site of a record, if the
// query asks for its metadata, is within the scope: otherwise its metadata could be
// found out.
func (p *Plan) limitRelated(column string, kind tko.Kind) Condition {
	scope := p.query.Scope.Of(kind)
	if scope.IsAll() {
		return nil
	}
	inner := Within("t", kind, scope)
	return func(b *Builder) string {
		return "EXISTS (SELECT 1 FROM entity t WHERE t.kind = " + b.Arg(string(kind)) + " AND t.id = " + hide("e."+column) + " AND " + inner(b) + ")"
	}
}
