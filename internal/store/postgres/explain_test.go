package postgres_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// explained is the number of deployments of each sort: so many that a plan that reads
// all of them exceeds the limits.
const explained = 40_000

// fill writes data like an operator's: 2,000 sites, 20 templates, and deployments at
// them with metadata of every frequency. The last tenth of the sites has deployments
// only at the end of the IDs. As many deployments with higher IDs have their metadata
// from 200 templates: in the first half one template after the other, in the second
// half mixed.
const fill = `
ALTER TABLE entity SET (autovacuum_enabled = off);
ALTER TABLE entity_pair SET (autovacuum_enabled = off);
ALTER TABLE pair SET (autovacuum_enabled = off);
ALTER TABLE metaset SET (autovacuum_enabled = off);
ALTER TABLE metaset_pair SET (autovacuum_enabled = off);
CREATE FUNCTION pg_temp.pair(kind text, key text, value text) RETURNS bigint LANGUAGE sql AS
	'SELECT p.id FROM pair p WHERE p.kind = $1 AND p.key = $2 AND p.value = $3';
CREATE FUNCTION pg_temp.site(i int) RETURNS text LANGUAGE sql AS
	$$ SELECT 'region-' || lpad((i % 20)::text, 2, '0') || '/site-' || lpad(i::text, 4, '0') $$;
INSERT INTO metaset SELECT i, sha256(i::text::bytea), '{"e":{"percent":"p' || lpad(((i - 1) % 100)::text, 2, '0') || '"}}'
	FROM generate_series(1, 2000) i;
INSERT INTO pair SELECT row_number() OVER (), kind, key, value, value, substr(sha256(value::bytea), 1, 16) FROM (
	SELECT 'deployment' AS kind, 'all' AS key, 'x' AS value
	UNION ALL SELECT 'deployment', 'tenth', 't' || i FROM generate_series(0, 9) i
	UNION ALL SELECT 'deployment', 'percent', 'p' || lpad(i::text, 2, '0') FROM generate_series(0, 99) i
	UNION ALL SELECT 'deployment', 'rare', 'r' || i FROM generate_series(0, 9) i
	UNION ALL SELECT 'deployment', 'late', 'yes'
	UNION ALL SELECT 'deployment', 'shared', 'yes'
	UNION ALL SELECT 'deployment', 'function', 'f' || lpad(i::text, 2, '0') FROM generate_series(0, 19) i
	UNION ALL SELECT 'deployment', 'version', 'v' || lpad(i::text, 3, '0') FROM generate_series(0, 199) i
	UNION ALL SELECT 'deployment', 'half', 'h' || i FROM generate_series(0, 1) i
	UNION ALL SELECT 'site', 'fifth', 'f' || i FROM generate_series(0, 4) i
	UNION ALL SELECT 'site', 'group', 'g' || lpad(i::text, 3, '0') FROM generate_series(0, 199) i
	UNION ALL SELECT 'site', 'late', 'yes'
	UNION ALL SELECT 'template', 'vendor', 'v' || i FROM generate_series(0, 4) i
) x;
INSERT INTO entity SELECT 'template', 'nf/t' || lpad(i::text, 2, '0'), '', 1, i, 0, 0, '', '', '', false, false, NULL, NULL, 1, NULL, false, '', '', NULL
	FROM generate_series(0, 19) i;
INSERT INTO entity_pair SELECT pg_temp.pair('template', 'vendor', 'v' || i % 5), 'nf/t' || lpad(i::text, 2, '0') FROM generate_series(0, 19) i;
INSERT INTO entity SELECT 'site', pg_temp.site(i), '', 1, i, 0, 0, '', '', '', false, false, NULL, NULL, 1, NULL, false, '', '', NULL
	FROM generate_series(0, 1999) i;
INSERT INTO entity_pair SELECT pg_temp.pair('site', 'fifth', 'f' || i % 5), pg_temp.site(i) FROM generate_series(0, 1999) i;
INSERT INTO entity_pair SELECT pg_temp.pair('site', 'group', 'g' || lpad((i % 200)::text, 3, '0')), pg_temp.site(i) FROM generate_series(0, 1999) i;
INSERT INTO entity_pair SELECT pg_temp.pair('site', 'late', 'yes'), pg_temp.site(i) FROM generate_series(1800, 1999) i;
INSERT INTO entity SELECT 'deployment', lpad(i::text, 8, '0'), '', 1, i, 0, 0, 'parent', 'nf/t' || lpad((i % 20)::text, 2, '0'),
	pg_temp.site(CASE WHEN i < 36000 THEN (i * 7) % 1800 ELSE 1800 + i % 200 END), i % 1000 <> 0, i % 100 <> 0,
	NULL, NULL, 1 + i % 2000, NULL, false, '', '', NULL FROM generate_series(0, 39999) i;
INSERT INTO entity_pair SELECT pg_temp.pair('deployment', 'all', 'x'), lpad(i::text, 8, '0') FROM generate_series(0, 39999) i;
INSERT INTO entity_pair SELECT p.id, lpad(i::text, 8, '0') FROM generate_series(0, 39999) i, pair p WHERE p.key = 'tenth' AND p.value = 't' || i % 10;
INSERT INTO entity_pair SELECT p.id, lpad(i::text, 8, '0') FROM generate_series(0, 39999) i, pair p
	WHERE p.key = 'percent' AND p.value = 'p' || lpad((i % 100)::text, 2, '0');
INSERT INTO entity_pair SELECT p.id, lpad((i * 4000)::text, 8, '0') FROM generate_series(0, 9) i, pair p WHERE p.key = 'rare' AND p.value = 'r' || i;
INSERT INTO entity_pair SELECT p.id, lpad(i::text, 8, '0') FROM generate_series(38000, 39999) i, pair p WHERE p.kind = 'deployment' AND p.key = 'late';
INSERT INTO metaset SELECT -i - 1, sha256(('shared ' || i)::bytea), '{"e":{"version":"v' || lpad(i::text, 3, '0') || '"}}' FROM generate_series(0, 199) i;
INSERT INTO metaset_pair SELECT p.id, -i - 1 FROM generate_series(0, 199) i, pair p WHERE p.kind = 'deployment' AND (p.key = 'shared' OR
	p.key = 'function' AND p.value = 'f' || lpad((i % 20)::text, 2, '0') OR p.key = 'version' AND p.value = 'v' || lpad(i::text, 3, '0') OR
	p.key = 'half' AND p.value = 'h' || i / 100 OR p.key = 'tenth' AND p.value = 't' || i % 10 AND i >= 190);
INSERT INTO entity SELECT 'deployment', lpad(i::text, 8, '0'), '', 1, i, 0, 0, 'shared', 'nf/t' || lpad((i % 20)::text, 2, '0'),
	CASE WHEN i % 100 = 0 THEN pg_temp.site(1850) ELSE '' END, true, true, NULL, NULL, -1 - CASE WHEN i < 60000 THEN (i - 40000) / 200 ELSE 100 + i * 7 % 100 END, NULL, false, '', '', NULL FROM generate_series(40000, 79999) i;
`

// Limits of what one page of a list may examine: a tenth of the deployments.
const (
	maxExamined = explained / 10
	maxBuffers  = 4 * maxExamined
)

func TestListsUseIndexes(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	execute(t, dsn, fill)
	pages(t, dsn, "without statistics")
	pages(t, dsn+"&plan_cache_mode=force_generic_plan", "without statistics, with generic plans")
	execute(t, dsn, "VACUUM ANALYZE")
	pages(t, dsn, "with statistics")
	pages(t, dsn+"&plan_cache_mode=force_generic_plan", "with statistics and generic plans")
}

// pages lists the first rows of queries of all forms, and checks their cost.
func pages(t *testing.T, dsn, when string) {
	t.Helper()
	store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	ids := func(texts ...string) (list []tko.Pattern) {
		for _, text := range texts {
			p, err := tko.ParsePattern(text)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, p)
		}
		return list
	}
	values := func(pairs ...string) map[string]tko.Pattern {
		m := map[string]tko.Pattern{}
		for i := 0; i < len(pairs); i += 2 {
			p, err := tko.ParseValuePattern(pairs[i+1])
			if err != nil {
				t.Fatal(err)
			}
			m[pairs[i]] = p
		}
		return m
	}
	tests := map[string]struct {
		query record.Query
		want  int // rows, of 50
	}{
		"all":                        {record.Query{}, 50},
		"by cursor":                  {record.Query{After: "00036000"}, 50},
		"by offset":                  {record.Query{Offset: 3000}, 50},
		"one ID":                     {record.Query{IDs: ids("00001234")}, 1},
		"ID prefix":                  {record.Query{IDs: ids("000123**")}, 50},
		"ID prefix and pattern":      {record.Query{IDs: ids("000123**", "**5")}, 10},
		"parent":                     {record.Query{Parent: "parent"}, 50},
		"parent, unprepared":         {record.Query{Parent: "parent", Is: map[string]bool{"prepared": false}}, 40},
		"prepared":                   {record.Query{Is: map[string]bool{"prepared": true}}, 50},
		"unprepared":                 {record.Query{Is: map[string]bool{"prepared": false}}, 40},
		"prepared, unapproved":       {record.Query{Is: map[string]bool{"prepared": true, "approved": false}}, 50},
		"template":                   {record.Query{Templates: ids("nf/t07")}, 50},
		"templates":                  {record.Query{Templates: ids("nf/t0*")}, 50},
		"templates by their end":     {record.Query{Templates: ids("**7")}, 50},
		"site":                       {record.Query{Sites: ids("region-03/site-0123")}, 20},
		"sites":                      {record.Query{Sites: ids("region-03/*")}, 50},
		"few sites":                  {record.Query{Sites: ids("region-03/site-00*")}, 50},
		"sites by their end":         {record.Query{Sites: ids("**3")}, 50},
		"metadata, all":              {record.Query{Metadata: values("all", "x")}, 50},
		"metadata, 10 %":             {record.Query{Metadata: values("tenth", "t3")}, 50},
		"metadata, 1 %":              {record.Query{Metadata: values("percent", "p33")}, 50},
		"metadata, one record":       {record.Query{Metadata: values("rare", "r3")}, 1},
		"metadata, none":             {record.Query{Metadata: values("rare", "none")}, 0},
		"metadata, pattern":          {record.Query{Metadata: values("percent", "p3*")}, 50},
		"metadata, every value":      {record.Query{Metadata: values("percent", "*")}, 50},
		"metadata, three keys":       {record.Query{Metadata: values("all", "x", "tenth", "t3", "percent", "p33")}, 50},
		"metadata, rare of three":    {record.Query{Metadata: values("all", "x", "tenth", "t0", "rare", "r3")}, 1},
		"metadata, at the end":       {record.Query{Metadata: values("all", "x", "late", "yes")}, 50},
		"shared, all":                {record.Query{Metadata: values("shared", "yes")}, 50},
		"shared, half":               {record.Query{Metadata: values("half", "h0")}, 50},
		"shared, the other half":     {record.Query{Metadata: values("half", "h1")}, 50},
		"shared, 5 %":                {record.Query{Metadata: values("function", "f03")}, 50},
		"shared, one template":       {record.Query{Metadata: values("version", "v007")}, 50},
		"shared, at the end":         {record.Query{Metadata: values("version", "v107")}, 50},
		"shared, pattern":            {record.Query{Metadata: values("version", "v1*")}, 50},
		"shared, every value":        {record.Query{Metadata: values("version", "*")}, 50},
		"shared, three keys":         {record.Query{Metadata: values("shared", "yes", "half", "h1", "function", "f03")}, 50},
		"shared, keys apart":         {record.Query{Metadata: values("half", "h0", "version", "v107")}, 0},
		"shared, and own":            {record.Query{Metadata: values("tenth", "t3"), After: "00039990"}, 50},
		"shared, by cursor":          {record.Query{Metadata: values("function", "f03"), After: "00070000"}, 50},
		"shared, by offset":          {record.Query{Metadata: values("function", "f03"), Offset: 500}, 50},
		"metadata at sites, offset":  {record.Query{Metadata: values("all", "x"), Sites: ids("region-*/**"), Offset: 400}, 50},
		"site metadata, no match":    {record.Query{TemplateMetadata: values("vendor", "v2"), SiteMetadata: values("group", "g001"), Is: map[string]bool{"prepared": false}}, 0},
		"shared, at a site":          {record.Query{Metadata: values("shared", "yes"), Sites: ids("region-10/site-1850")}, 50},
		"shared, unprepared":         {record.Query{Metadata: values("shared", "yes"), Is: map[string]bool{"prepared": false}}, 0},
		"metadata and template":      {record.Query{Metadata: values("tenth", "t7"), Templates: ids("nf/t07")}, 50},
		"metadata, unprepared":       {record.Query{Metadata: values("tenth", "t0"), Is: map[string]bool{"prepared": false}}, 40},
		"site metadata, one":         {record.Query{SiteMetadata: values("group", "g003")}, 50},
		"site metadata, 20 %":        {record.Query{SiteMetadata: values("fifth", "f3")}, 50},
		"site metadata, pattern":     {record.Query{SiteMetadata: values("group", "g00*")}, 50},
		"site metadata, all":         {record.Query{SiteMetadata: values("fifth", "*")}, 50},
		"site metadata, many sites":  {record.Query{SiteMetadata: values("group", "g0*")}, 50},
		"site metadata, two keys":    {record.Query{SiteMetadata: values("fifth", "f3", "group", "g003")}, 50},
		"site metadata, at the end":  {record.Query{SiteMetadata: values("late", "yes")}, 50},
		"site metadata, none":        {record.Query{SiteMetadata: values("late", "no")}, 0},
		"template metadata":          {record.Query{TemplateMetadata: values("vendor", "v3")}, 50},
		"template and site metadata": {record.Query{TemplateMetadata: values("vendor", "v4"), SiteMetadata: values("group", "g003")}, 50},
		"everything": {record.Query{
			IDs: ids("000**"), Templates: ids("nf/**"), Sites: ids("region-**"), Metadata: values("tenth", "t3"),
			TemplateMetadata: values("vendor", "v3"), SiteMetadata: values("fifth", "f*"), Parent: "parent", Is: map[string]bool{"prepared": true, "approved": true},
		}, 50},
		"sites by prefix":        {record.Query{Kind: tko.KindSite, IDs: ids("region-07/**")}, 50},
		"sites by metadata":      {record.Query{Kind: tko.KindSite, Metadata: values("group", "g007")}, 10},
		"sites with counts":      {record.Query{Kind: tko.KindSite, Fields: record.Fields{Counts: true}}, 50},
		"sites with deployments": {record.Query{Kind: tko.KindSite, Fields: record.Fields{Deployments: true}}, 50},
		"templates with CRDs":    {record.Query{Kind: tko.KindTemplate, CRDs: true}, 0},
	}
	for name, test := range tests {
		if test.query.Kind == "" {
			test.query.Kind = tko.KindDeployment
		}
		test.query.Limit = 50
		var cost spent
		ctx := relational.WithStatementHook(t.Context(), func(tx sqldb.Tx, s sqldb.Statement) error {
			return cost.explain(t, tx, s)
		})
		rows := 0
		test.query.Scope = access.ScopeAll
		for _, err := range store.List(ctx, test.query) {
			if err != nil {
				t.Fatalf("%s, %s: %v", name, when, err)
			}
			rows++
		}
		if rows != test.want {
			t.Errorf("%s, %s: %d rows, want %d", name, when, rows, test.want)
		}
		if len(cost.scans) > 0 || cost.rows > maxExamined || cost.buffers > maxBuffers {
			t.Errorf("%s, %s: %.0f rows and %.0f buffers in %d statements; whole tables: %q\n%s",
				name, when, cost.rows, cost.buffers, cost.statements, cost.scans, cost.worst)
		}
	}
}

// spent is the cost of statements.
type spent struct {
	rows, buffers float64
	statements    int
	scans         []string // statements that read a whole table
	worst         string   // the statement that examined the most rows
	most          float64
}

// A planNode is a step of a plan as EXPLAIN reports it.
type planNode struct {
	Type        string     `json:"Node Type"`
	Relation    string     `json:"Relation Name"`
	Rows        float64    `json:"Actual Rows"`
	Loops       float64    `json:"Actual Loops"`
	Removed     float64    `json:"Rows Removed by Filter"`
	Rechecked   float64    `json:"Rows Removed by Index Recheck"`
	HitBuffers  float64    `json:"Shared Hit Blocks"`
	ReadBuffers float64    `json:"Shared Read Blocks"`
	Plans       []planNode `json:"Plans"`
}

// explain runs a statement and adds its cost. EXECUTE uses the same plan as the
// connection would for the statement, including generic plans.
func (c *spent) explain(t *testing.T, tx sqldb.Tx, s sqldb.Statement) error {
	args := make([]string, 0, len(s.Args)+len(s.Columns))
	for _, arg := range s.Args {
		args = append(args, literal(t, arg))
	}
	for i := range s.Columns {
		column := make([]string, len(s.Rows))
		for n, row := range s.Rows {
			column[n] = literal(t, row[i])
		}
		args = append(args, "ARRAY["+strings.Join(column, ", ")+"]")
	}
	execution := "EXECUTE explained"
	if len(args) > 0 {
		execution += " (" + strings.Join(args, ", ") + ")"
	}
	var text string
	err := tx.Run(t.Context(),
		sqldb.Statement{SQL: "PREPARE explained AS " + s.SQL},
		sqldb.Statement{
			SQL:  "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + execution,
			Scan: func(row sqldb.Row) error { return row.Scan(&text) },
		},
		sqldb.Statement{SQL: "DEALLOCATE explained"},
	)
	if err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, s.SQL, execution)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		return err
	}
	before := c.rows
	c.add(plans[0].Plan, s.SQL)
	c.statements++
	c.buffers += plans[0].Plan.HitBuffers + plans[0].Plan.ReadBuffers
	if c.rows-before > c.most {
		c.most, c.worst = c.rows-before, s.SQL+"\n"+text
	}
	return nil
}

func (c *spent) add(n planNode, sql string) {
	if n.Relation != "" && n.Relation != "head" {
		c.rows += (n.Rows + n.Removed + n.Rechecked) * n.Loops
		if n.Type == "Seq Scan" {
			c.scans = append(c.scans, sql)
		}
	}
	for _, child := range n.Plans {
		c.add(child, sql)
	}
}

// literal returns an argument as an SQL literal.
func literal(t *testing.T, arg any) string {
	t.Helper()
	switch arg := arg.(type) {
	case string:
		return "'" + strings.ReplaceAll(arg, "'", "''") + "'"
	case int64:
		return strconv.FormatInt(arg, 10) + "::bigint"
	case []byte:
		return fmt.Sprintf(`'\x%x'::bytea`, arg)
	case []string:
		list := make([]string, len(arg))
		for i, text := range arg {
			list[i] = literal(t, text)
		}
		return "ARRAY[" + strings.Join(list, ", ") + "]::text[]"
	case []int64:
		list := make([]string, len(arg))
		for i, number := range arg {
			list[i] = literal(t, number)
		}
		return "ARRAY[" + strings.Join(list, ", ") + "]::bigint[]"
	default:
		t.Fatalf("an argument of type %T", arg)
		return ""
	}
}
