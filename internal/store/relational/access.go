package relational

import (
	"context"
	"slices"

	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// AccessVersion returns the version of the rules of access.
func (s *Store) AccessVersion(ctx context.Context) (int64, error) { return s.headColumn(ctx, "access") }

// Access returns the rules of access.
func (s *Store) Access(ctx context.Context) (version int64, rules []record.AccessRule, err error) {
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
					var r record.AccessRule
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

var (
	deleteRules = sqldb.Delete("access_rule", Text.As("kind"), Text.As("id"))
	putRules    = sqldb.Upsert("access_rule", 2, Text.As("kind"), Text.As("id"), Text.As("doc"))
)

// ChangeAccess writes and removes rules of access.
func (s *Store) ChangeAccess(ctx context.Context, expect int64, put, remove []record.AccessRule, records ...audit.Record) (version int64, err error) {
	for _, r := range slices.Concat(put, remove) {
		if err := decide.CheckTexts("kind", r.Kind, "ID", r.ID, "rule", string(r.Doc)); err != nil {
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
			return nil, &record.StaleError{What: decide.StaleAccess}
		}
		g.audits = records
		audits, err := g.auditStatements()
		if err != nil {
			return nil, err
		}
		removed, added := deleteRules, putRules
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
