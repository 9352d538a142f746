package relational

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// staleAccess is what a write that the rules of access no longer permit has read.
const staleAccess = "the rules of access"

// AccessVersion returns the version of the rules of access.
func (s *Store) AccessVersion(ctx context.Context) (int64, error) { return s.headColumn(ctx, "access") }

// Access returns the rules of access.
func (s *Store) Access(ctx context.Context) (version int64, rules []catalog.AccessRule, err error) {
	err = s.read(ctx, func(tx Tx) error {
		rules = nil
		return tx.Commit(
			ctx,
			Statement{
				SQL:  "SELECT access FROM head WHERE one = 1",
				Scan: func(from Row) error { return from.Scan(&version) },
			},
			Statement{
				SQL: "SELECT kind, id, doc FROM access_rule ORDER BY kind, id",
				Scan: func(from Row) error {
					var r catalog.AccessRule
					var doc string
					err := from.Scan(&r.Kind, &r.ID, &doc)
					r.Doc = []byte(doc)
					rules = append(rules, r)
					return err
				},
			},
		)
	})
	return version, rules, fault("read the rules of access", err)
}

// ChangeAccess writes and removes rules of access.
func (s *Store) ChangeAccess(ctx context.Context, expect int64, put, remove []catalog.AccessRule, records ...audit.Record) (version int64, err error) {
	for _, r := range slices.Concat(put, remove) {
		if err := checkTexts("kind", r.Kind, "ID", r.ID, "rule", string(r.Doc)); err != nil {
			return 0, err
		}
	}
	var written *head // by an attempt whose outcome is unknown
	err = s.write(ctx, func(tx Tx) ([]Statement, error) {
		g := newGroup(s)
		if err := tx.Run(ctx, s.lockHead(&g.head, &g.now)); err != nil {
			return nil, err
		}
		if written != nil && g.head.access == written.access && g.head.chain == written.chain {
			return nil, nil
		}
		if g.head.access != expect {
			return nil, &catalog.StaleError{What: staleAccess}
		}
		g.audits = records
		audits, err := g.auditStatements()
		if err != nil {
			return nil, err
		}
		columns := []Column{{"kind", Text}, {"id", Text}, {"doc", Text}}
		removed := Statement{SQL: "DELETE FROM access_rule WHERE (kind, id) IN (SELECT r.kind, r.id FROM {rows})", Columns: columns[:2]}
		added := Statement{
			SQL:     "INSERT INTO access_rule (kind, id, doc) SELECT r.kind, r.id, r.doc FROM {rows} WHERE true ON CONFLICT (kind, id) DO UPDATE SET doc = excluded.doc",
			Columns: columns,
		}
		for _, r := range remove {
			removed.Rows = append(removed.Rows, []any{r.Kind, r.ID})
		}
		for _, r := range put {
			added.Rows = append(added.Rows, []any{r.Kind, r.ID, string(r.Doc)})
		}
		g.head.access++
		version = g.head.access
		written = &g.head
		statements := append([]Statement{removed, added}, audits...)
		statements = append(statements, g.saveHead(), Statement{SQL: "UPDATE head SET access = $1 WHERE one = 1", Args: []any{version}})
		return append(statements, s.notify(News{})...), nil
	})
	if err != nil {
		return 0, fault("change the rules of access", err)
	}
	s.Wake(News{})
	return version, nil
}

// within returns the condition that records of a kind, in a table with an alias, are
// selected by a predicate. It is written so that the planner uses no index for it.
func within(alias string, kind tko.Kind, p access.Predicate) condition {
	switch {
	case p.IsAll():
		return plain("1 = 1")
	case p.Empty():
		return plain("1 = 0")
	}
	var terms [][]condition
	for _, t := range p.Terms() {
		var all []condition
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
	return func(b *builder) string {
		texts := make([]string, len(terms))
		for i, all := range terms {
			texts[i] = b.all(all)
		}
		return "(" + strings.Join(texts, " OR ") + ")"
	}
}

// hasPair is the condition that the metadata of a record has a value: by itself, or
// in the metadata that it shares with others (see isShared).
func hasPair(alias string, kind tko.Kind, key, value string) condition {
	hash := pairOf(kind, key, value).hash
	return func(b *builder) string {
		pair := "(SELECT p.id FROM pair p WHERE p.kind = " + b.arg(string(kind)) + " AND p.key = " + b.arg(key) + " AND p.hash = " + b.arg(hash[:]) + ")"
		own := "EXISTS (SELECT 1 FROM entity_pair y WHERE y.pair = " + pair + " AND y.id = " + hide(alias+".id") + ")"
		if kind != tko.KindDeployment {
			return own
		}
		return "CASE WHEN " + alias + ".metaset < 0 THEN EXISTS (SELECT 1 FROM metaset_pair s WHERE s.pair = " + pair + " AND s.metaset = " + alias + ".metaset) ELSE " + own + " END"
	}
}

// limit adds the scope of the query. A scope of one term is like filters of the
// caller, and uses their access paths.
func (p *plan) limit() {
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
		p.filters = append(p.filters, filter{hidden: within("e", q.Kind, scope)})
	}
}

// limitIDs limits the range of IDs to that of terms that all have one.
func (p *plan) limitIDs(terms []access.Term) {
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
func (p *plan) limitRelated(column string, kind tko.Kind) condition {
	scope := p.query.Scope.Of(kind)
	if scope.IsAll() {
		return nil
	}
	inner := within("t", kind, scope)
	return func(b *builder) string {
		return "EXISTS (SELECT 1 FROM entity t WHERE t.kind = " + b.arg(string(kind)) + " AND t.id = " + hide("e."+column) + " AND " + inner(b) + ")"
	}
}
