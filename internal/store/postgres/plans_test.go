package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
)

// checkPlans plans each statement that the promises of a store run, as connections plan it once, in
// the states that the statistics of a large database can have. No plan reads a large table to its
// end.
func (r *recorder) checkPlans(t *testing.T) {
	t.Helper()
	c, err := postgres.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	statements := slices.DeleteFunc(slices.Sorted(maps.Keys(r.statements)), func(sql string) bool { return !hasPlan(sql) })
	if len(statements) < 300 {
		t.Errorf("%d statements, want 300 at least", len(statements))
	}
	for _, state := range lifeOfTables {
		run(t, c, state.sql)
		for _, sql := range statements {
			plan, whole, err := planOf(t.Context(), c, sql)
			if err != nil {
				t.Fatalf("%s: %v\n%s", state.name, err, sql)
			}
			if len(whole) > 0 && !readsAll(sql) {
				t.Errorf("%s: reads all of %s: %s\n%s", state.name, strings.Join(whole, ", "), sql, plan)
			}
		}
	}
}

// readsAll reports whether a statement may read all of a table.
func readsAll(sql string) bool {
	for _, begin := range []string{
		"SELECT doc FROM flight", "DELETE FROM flight", "SELECT (SELECT r.site FROM rollout_row", // few are in flight
		"SELECT doc FROM rollout WHERE active",                              // there are few rollouts
		"SELECT o.deployment, o.rollout, h.doc FROM rollout h",              // rows of all active rollouts
		"SELECT policy, count(*), CAST(sum(changes) AS bigint) FROM longer", // a count
		"SELECT x.cause, x.what,",                                           // those of a window of time, the newest first; older ones are collected
		"UPDATE modification SET expires", "UPDATE work SET due = (CAST",    // after the clock was set back
		"SELECT CASE WHEN k.past", // the newest change, which is the first in its order
	} {
		if strings.HasPrefix(sql, begin) {
			return true
		}
	}
	return false
}

func run(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// hasPlan reports whether a statement reads or writes tables of the store.
func hasPlan(sql string) bool {
	word, _, _ := strings.Cut(sql, " ")
	return slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}, word) && !strings.Contains(sql, "pg_") && !strings.Contains(sql, "goose_")
}

// lifeOfTables are states of a database's statistics, one after the other: sites are there first,
// then deployments. Statistics are those that a store collects itself (see watchGrowth), the newest
// that it can, or none.
var lifeOfTables = []struct{ name, sql string }{
	{"4,000 deployments, with their statistics", grow("site", 1, 300) + "; ANALYZE; " + grow("deployment", 1_001, 5_000) + "; ANALYZE"},
	{"24,000 deployments, with the statistics of 4,000", grow("deployment", 5_001, 25_000)},
	{"24,000 deployments, with their statistics", "ANALYZE"},
	{"24,000 deployments, without statistics", "DELETE FROM pg_statistic WHERE starelid >= 16384; UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0 WHERE oid >= 16384"},
}

// grow returns the statements that insert rows of a kind into all large tables.
func grow(kind string, from, to int) string {
	rows := fmt.Sprintf("generate_series(%d, %d) i", from, to)
	id := "'" + kind + "-' || lpad(i::text, 8, '0')"
	site, template, parent := "''", "''", "''"
	if kind == "deployment" {
		site, template, parent = "'site-' || lpad((i % 300)::text, 8, '0')", "'t' || i % 20", "'deployment-' || lpad((i / 100)::text, 8, '0')"
	}
	const entity = "uid, revision, created, updated, prepared, approved, origin, digest, metaset, crds, who, why, kind, id, parent, template, site, position"
	values := "'', 1, 0, 0, i % 1000 <> 0, i % 100 <> 0, " + id + ", sha256('package'), -(i % 200) - 1, false, '', '', '" + kind + "', " + id + ", " + parent + ", " + template + ", " + site + ", i"
	return strings.Join([]string{
		"INSERT INTO entity (" + entity + ") SELECT " + values + " FROM " + rows,
		"INSERT INTO change (op, " + entity + ") SELECT 'written', " + values + " FROM " + rows,
		"INSERT INTO entity_pair (pair, id) SELECT i % 200, " + id + " FROM " + rows,
		"INSERT INTO pair (id, kind, key, value, start, hash) SELECT i, '" + kind + "', 'k', i::text, i::text, sha256(i::text::bytea) FROM " + rows,
		"INSERT INTO metaset (id, digest, doc) SELECT i, sha256(i::text::bytea), '{}' FROM " + rows,
		"INSERT INTO metaset_pair (pair, metaset) SELECT i % 200, -i FROM " + rows,
		"INSERT INTO blob (digest, encoding, size, data) SELECT sha256(i::text::bytea), 0, 1, 'x' FROM " + rows,
		"INSERT INTO work (queue, key, generation, due, attempt, last_error, lease_until, claim, claimed, claimed_generation) SELECT '" + kind + "', " + id + ", 1, i, 0, '', 0, '', 0, 0 FROM " + rows,
		"INSERT INTO modification (token, deployment, revision, expires) SELECT sha256(i::text::bytea)::text, " + id + ", 1, i FROM " + rows,
		"INSERT INTO audit (seq, at, doc, hash) SELECT i, i, '{}', 'x' FROM " + rows,
		"INSERT INTO rollout_row (rollout, plan, deployment, uid, revision, kind, wave, rank, grp, parent, site, progress, since, evaluated, credit, counted, broken, reason, applied, chain, target, doc) " +
			"SELECT 'r' || i / 10000, 1, " + id + ", '', 1, i % 4, i / 1000, i, 0, " + parent + ", " + site + ", 'Waiting', 0, 0, 0, false, false, '', 0, 0, 0, '{}' FROM " + rows,
		"INSERT INTO rollout (id, active, undoes, started, doc) SELECT '" + kind + "' || i, i % 100 = 0, '', i, '{}' FROM generate_series(" + fmt.Sprint(from/100, ", ", to/100-1) + ") i",
		"INSERT INTO rollout_pin (rollout, kind, id, revision) SELECT 'r' || i / 10000, '" + kind + "', " + id + ", 1 FROM " + rows,
		"INSERT INTO flight (deployment, rollout, site, doc) SELECT " + id + ", 'r', 's', '{}' FROM " + rows + " WHERE i % 10 = 0",
		"INSERT INTO target_state (site, name, version, updated, state) SELECT " + id + ", 't', 1, 0, '' FROM " + rows,
		"INSERT INTO longer (id, policy, changes) SELECT " + id + ", 'p', 1 FROM " + rows,
		"INSERT INTO reach (cause, what, n, consent, since, updated) SELECT 'c' || i / 10, " + id + ", 1, 0, 0, i FROM " + rows,
		"INSERT INTO reach_part (cause, what, part, n, consent, updated) SELECT 'c' || i / 10, " + id + ", 1, 1, 0, i FROM " + rows,
		"INSERT INTO reach_site (cause, site, updated) SELECT 'c' || i / 10, " + id + ", i FROM " + rows,
		"INSERT INTO hold (queue, key, mode) SELECT '" + kind + "', " + id + ", 'all' FROM " + rows,
	}, ";\n")
}

// planOf returns the generic plan of a statement, and the large tables of which it reads everything.
func planOf(ctx context.Context, c *pgx.Conn, sql string) (plan string, whole []string, err error) {
	if _, err := c.PgConn().Exec(ctx, "PREPARE planned AS "+sql).ReadAll(); err != nil {
		return "", nil, err
	}
	defer func() { _, _ = c.PgConn().Exec(ctx, "DEALLOCATE planned").ReadAll() }() // the next PREPARE reports a failure
	var parameters int
	if err := c.QueryRow(ctx, "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'planned'").Scan(&parameters); err != nil {
		return "", nil, err
	}
	execute := "EXECUTE planned"
	if parameters > 0 {
		execute += "(" + strings.Repeat("NULL, ", parameters-1) + "NULL)"
	}
	results, err := c.PgConn().Exec(ctx, "EXPLAIN (FORMAT JSON, COSTS OFF) "+execute).ReadAll()
	if err != nil {
		return "", nil, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return "", nil, errors.New("no plan")
	}
	var plans []struct{ Plan accessNode }
	if err := json.Unmarshal(results[0].Rows[0][0], &plans); err != nil {
		return "", nil, err
	}
	var b strings.Builder
	whole = plans[0].Plan.write(&b)
	return b.String(), whole, nil
}

// An accessNode is a step of a plan.
type accessNode struct {
	Type      string       `json:"Node Type"`
	Relation  string       `json:"Relation Name"`
	Index     string       `json:"Index Name"`
	Condition string       `json:"Index Cond"`
	Plans     []accessNode `json:"Plans"`
}

// write writes the steps that read tables, and returns the large tables that are read to their
// end.
func (n accessNode) write(b *strings.Builder) (whole []string) {
	if strings.HasSuffix(n.Type, "Scan") && n.Relation != "" {
		fmt.Fprintf(b, "\t%s: %s %s %s\n", n.Relation, n.Type, n.Index, n.Condition)
		if n.Condition == "" && isLarge(n.Relation) {
			whole = append(whole, n.Relation)
		}
	}
	for _, child := range n.Plans {
		whole = append(whole, child.write(b)...)
	}
	return whole
}

// isLarge reports whether a table grows with the fleet, or with the time.
func isLarge(table string) bool {
	return strings.Contains(grow("site", 1, 1), "INSERT INTO "+table+" (")
}
