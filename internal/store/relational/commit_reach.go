package relational

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// The counts of causes are read under the lock of the head, with what a group depends on,
// and written with its changes: see [decide.Counts]. A group whose commits count nothing reads and writes
// none.

// counts reports whether a call's changes are counted. New deployments of clients, which
// may be committed optimistically, never are.
func (c *call) counts() bool { return c.reach.Cause != "" }

// loadReach returns the statements that read the counts of the causes of calls.
func (g *group) loadReach(calls []*call) []Statement {
	var rows, sites, resumed [][]any
	spans := map[string]int64{}
	for _, c := range calls {
		if !c.counts() {
			continue
		}
		most := int64(math.MaxInt64 / 2)
		if c.reach.Window > 0 {
			most = max(decide.CountSpan(c.reach.Window), decide.CountSpan(c.reach.WindowOf(record.CountSites)))
		}
		spans[c.reach.Cause] = max(spans[c.reach.Cause], most)
		for i := range c.writes {
			w := &c.writes[i]
			if c.reach.RemovedSites && w.Record.Kind == tko.KindDeployment { // those of descendants may count twice
				sites = append(sites, []any{c.reach.Cause, w.Record.ID, w.Record.Site})
			}
			if !c.reach.CountsSites() || w.Op != tko.OpWritten || w.Expect == record.Absent {
				continue
			}
			switch w.Record.Kind {
			case tko.KindDeployment:
				sites = append(sites, []any{c.reach.Cause, w.Record.ID, w.Record.Site})
				resumed = append(resumed, []any{string(w.Record.Kind), w.Record.ID})
			case tko.KindSite:
				sites = append(sites, []any{c.reach.Cause, "", w.Record.ID})
				resumed = append(resumed, []any{string(w.Record.Kind), w.Record.ID})
			case tko.KindTemplate, tko.KindPlugin, tko.KindRollout, tko.KindSource, tko.KindSubscription: // have no effect at sites by themselves
			}
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(spans)) {
		rows = append(rows, []any{cause, spans[cause]})
	}
	if len(rows) == 0 {
		return nil
	}
	return []Statement{
		{
			SQL:     "SELECT x.cause, x.what, x.n, x.consent, x.since FROM {rows} CROSS JOIN reach x WHERE x.cause = r.c",
			Columns: []Column{Text.As("c"), Int.As("w")}, Rows: rows,
			Scan: func(from Row) error {
				var cause, what string
				var granted, used, since int64
				err := from.Scan(&cause, &what, &used, &granted, &since)
				g.reach.ReadGrant(decide.CountKey{Cause: cause, Count: record.Count(what)}, decide.CountGrant{Granted: granted, Used: used, Since: since})
				return err
			},
		},
		{
			SQL:     "SELECT x.cause, x.what, x.part, x.n, x.consent FROM {rows} CROSS JOIN reach_part x WHERE x.cause = r.c AND x.part > {now} - r.w",
			Columns: []Column{Text.As("c"), Int.As("w")}, Rows: rows,
			Scan: func(from Row) error {
				var cause, what string
				var begin int64
				var p decide.CountPart
				err := from.Scan(&cause, &what, &begin, &p.N, &p.Consent)
				g.reach.ReadPart(decide.CountKey{Cause: cause, Count: record.Count(what)}, begin, p)
				return err
			},
		},
		{
			SQL: "SELECT x.cause, x.site, x.updated FROM {rows} CROSS JOIN reach_site x WHERE x.cause = r.c AND " +
				"(x.site = r.s OR x.site = (SELECT e.site FROM entity e WHERE e.kind = 'deployment' AND e.id = r.i))",
			Columns: []Column{Text.As("c"), Text.As("i"), Text.As("s")}, Rows: sites,
			Scan: func(from Row) error {
				var site decide.CountedSite
				var updated int64
				err := from.Scan(&site.Cause, &site.Site, &updated)
				g.reach.ReadSite(site, updated)
				return err
			},
		},
		{
			SQL: "SELECT e.kind, e.id, m.doc FROM {rows} CROSS JOIN entity e CROSS JOIN metaset m WHERE e.kind = r.k AND e.id = r.i AND m.id = e.metaset " +
				"AND m.doc LIKE '%" + tko.MetadataSuspend + "%'",
			Columns: keyColumns, Rows: resumed,
			Scan: func(from Row) error {
				var kind, id, doc string
				if err := from.Scan(&kind, &id, &doc); err != nil {
					return err
				}
				metadata := new(record.Metadata)
				g.suspended[record.Key{Kind: tko.Kind(kind), ID: id}] = metadata
				return json.Unmarshal([]byte(doc), metadata)
			},
		},
	}
}

// countReach counts the changes that a call made, from the given ones on, and returns an
// error if they exceed a limit.
func (g *group) countReach(reach *record.Reach, from int) error {
	if reach.Cause == "" {
		return nil
	}
	changes := make([]decide.CountedChange, len(g.changes)-from)
	for i := range changes {
		c := &g.changes[from+i]
		before := &c.before.Record
		if before.Metadata == nil && g.suspended[c.after.Key] != nil {
			was := *before
			was.Metadata, before = g.suspended[c.after.Key], &was
		}
		changes[i] = decide.CountedChange{Op: c.op, Before: before, After: &c.after.Record, Orphans: c.orphans, Replacing: c.replacing}
	}
	return g.reach.Add(reach, micros(g.now), changes)
}

var (
	putGrants     = sqldb.Upsert("reach", 2, Text.As("cause"), Text.As("what"), Int.As("n"), Int.As("consent"), Int.As("since"), Int.As("updated"))
	putReach      = sqldb.Upsert("reach_part", 3, Text.As("cause"), Text.As("what"), Int.As("part"), Int.As("n"), Int.As("consent"), Int.As("updated"))
	putReachSites = sqldb.Upsert("reach_site", 2, Text.As("cause"), Text.As("site"), Int.As("updated"))
)

// reachStatements write the counts that have changed.
func (g *group) reachStatements() ([]Statement, error) {
	grants, parts, sites, now := putGrants, putReach, putReachSites, micros(g.now)
	counts, changed := g.reach.Changed()
	for _, c := range counts {
		if c.Grant != nil {
			grants.Rows = append(grants.Rows, []any{c.Cause, string(c.Count), c.Grant.Used, c.Grant.Granted, c.Grant.Since, now})
		}
		for _, part := range slices.Sorted(maps.Keys(c.Parts)) {
			parts.Rows = append(parts.Rows, []any{c.Cause, string(c.Count), part, c.Parts[part].N, c.Parts[part].Consent, now})
		}
	}
	for _, site := range changed {
		sites.Rows = append(sites.Rows, []any{site.Cause, site.Site, now})
	}
	return []Statement{grants, parts, sites}, nil
}

// Reached returns the counts of a cause within a window that ends now; an empty cause
// stands for the most recent ones of all causes, at most limit. What a cause may still
// change with consent is in Consent.
func (s *Store) Reached(ctx context.Context, cause string, window time.Duration, limit int) ([]record.Reached, error) {
	if err := decide.CheckTexts("cause", cause); err != nil {
		return nil, err
	}
	var found []record.Reached
	scan := func(from Row) error {
		var r record.Reached
		var what string
		var n, consent, since, updated int64
		err := from.Scan(&r.Cause, &what, &n, &consent, &since, &updated)
		r.Count, r.N, r.Consent, r.Since, r.Updated = record.Count(what), int(n), int(consent), moment(since), moment(updated)
		found = append(found, r)
		return err
	}
	const (
		parts  = "SELECT x.cause, x.what, x.n, x.consent, x.part, x.updated FROM reach_part x WHERE "
		grants = "SELECT x.cause, x.what, 0, x.consent - x.n, x.since, x.updated FROM reach x WHERE x.consent > x.n AND "
	)
	made := Statement{SQL: parts + "x.cause = $1 AND x.part > (SELECT {now} - $2)", Args: []any{cause, decide.CountSpan(window)}, Scan: scan}
	may := Statement{SQL: grants + "x.cause = $1 AND x.since > (SELECT {now} - $2)", Args: []any{cause, window.Microseconds()}, Scan: scan}
	if cause == "" {
		made = Statement{SQL: parts + "x.part > (SELECT {now} - $1) ORDER BY x.updated DESC LIMIT $2", Args: []any{decide.CountSpan(window), int64(limit) * (record.ReachParts + 1)}, Scan: scan}
		may = Statement{SQL: grants + "x.since > (SELECT {now} - $1) ORDER BY x.updated DESC LIMIT $2", Args: []any{window.Microseconds(), int64(limit)}, Scan: scan}
	}
	err := s.retry(ctx, func() error {
		found = nil
		return fault("read what a cause has changed", cmp.Or(s.db.Run(ctx, made), s.db.Run(ctx, may)))
	})
	return decide.SumReached(found, cause == "", limit), err
}
