package relational

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// The counts of causes are read under the lock of the head, with what a group depends on,
// and written with its changes. A group whose commits count nothing reads and writes
// none: see [reachRows].

// A reachKey identifies a count of a cause.
type reachKey struct {
	cause string
	count catalog.Count
}

// A reachRow is a count of a cause as decided so far.
type reachRow struct {
	n, consent int64
	since      int64 // microseconds
	changed    bool
}

// A reachSite is a site at which a cause has changed running deployments.
type reachSite struct{ cause, site string }

// counts reports whether a call's changes are counted. New deployments of clients, which
// may be committed optimistically, never are.
func (c *call) counts() bool { return c.reach.Cause != "" }

// loadReach returns the statements that read the counts of the causes of calls.
func (g *group) loadReach(calls []*call) []Statement {
	var rows, sites [][]any
	seen := map[string]bool{}
	for _, c := range calls {
		if !c.counts() {
			continue
		}
		if !seen[c.reach.Cause] {
			seen[c.reach.Cause] = true
			rows = append(rows, []any{c.reach.Cause})
		}
		for i := range c.writes {
			if w := &c.writes[i]; !c.reach.Derived && w.Op == tko.OpWritten && w.Record.Kind == tko.KindDeployment && w.Expect != catalog.Absent {
				sites = append(sites, []any{c.reach.Cause, w.Record.ID, w.Record.Site})
			}
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return []Statement{
		{
			SQL:     "SELECT x.cause, x.what, x.n, x.consent, x.since FROM {rows} CROSS JOIN reach x WHERE x.cause = r.c",
			Columns: []Column{Text.As("c")}, Rows: rows,
			Scan: func(from Row) error {
				var key reachKey
				var what string
				row := new(reachRow)
				err := from.Scan(&key.cause, &what, &row.n, &row.consent, &row.since)
				key.count = catalog.Count(what)
				g.reach[key] = row
				return err
			},
		},
		{
			SQL: "SELECT x.cause, x.site, x.updated FROM {rows} CROSS JOIN reach_site x WHERE x.cause = r.c AND " +
				"(x.site = r.s OR x.site = (SELECT e.site FROM entity e WHERE e.kind = 'deployment' AND e.id = r.i))",
			Columns: []Column{Text.As("c"), Text.As("i"), Text.As("s")}, Rows: sites,
			Scan: func(from Row) error {
				var site reachSite
				var updated int64
				err := from.Scan(&site.cause, &site.site, &updated)
				g.reachSites[site] = updated
				return err
			},
		},
	}
}

// reached returns a count of a cause, which begins anew if its window has ended.
func (g *group) reached(cause string, count catalog.Count, window time.Duration) reachRow {
	now := micros(g.now)
	row := g.reach[reachKey{cause, count}]
	if row == nil || window > 0 && row.since+window.Microseconds() <= now {
		return reachRow{since: now}
	}
	return *row
}

// setReached sets a count of a cause until the decisions of the call are undone.
func (g *group) setReached(cause string, count catalog.Count, row reachRow) {
	key := reachKey{cause, count}
	before, known := g.reach[key]
	g.undo = append(g.undo, func() {
		if g.reach[key] = before; !known {
			delete(g.reach, key)
		}
	})
	row.changed = true
	g.reach[key] = &row
}

// countReach counts the changes that a call made, from the given ones on, and returns an
// error if they exceed a limit.
func (g *group) countReach(reach *catalog.Reach, from int) error {
	if reach.Cause == "" {
		return nil
	}
	adds := map[catalog.Count]int{}
	for i := range g.changes[from:] {
		g.countChange(reach, &g.changes[from+i], adds)
	}
	total := 0
	for _, n := range adds {
		total += n
	}
	consented := reach.Consent > 0
	if consented && total > reach.Consent {
		return &catalog.ExceededError{Limit: reach.Consent}
	}
	for _, count := range slices.Sorted(maps.Keys(adds)) {
		row := g.reached(reach.Cause, count, reach.Window)
		row.n += int64(adds[count])
		if consented {
			row.consent += int64(adds[count])
		}
		g.setReached(reach.Cause, count, row)
	}
	for _, count := range slices.Sorted(maps.Keys(reach.Grant)) {
		row := g.reached(reach.Cause, count, reach.Window)
		row.consent += int64(reach.Grant[count])
		row.since = micros(g.now) // what was consented to may take the whole window
		g.setReached(reach.Cause, count, row)
	}
	if consented {
		return nil
	}
	for _, limit := range reach.Limits {
		now, added := int64(0), 0
		for _, count := range limit.Of {
			row := g.reached(reach.Cause, count, reach.Window)
			now += max(0, row.n-row.consent)
			added += adds[count]
		}
		if added > 0 && now > int64(limit.Most) {
			return &catalog.ReachError{Cause: reach.Cause, Limit: limit, Had: max(0, int(now)-added), Adds: added}
		}
	}
	return nil
}

// countChange adds what one change counts as.
func (g *group) countChange(reach *catalog.Reach, c *change, adds map[catalog.Count]int) {
	before, after := &c.before.Record, &c.after.Record
	switch {
	case c.op == tko.OpStatus, c.replacing:
	case c.op == tko.OpDeleted:
		adds[catalog.RemovalOf(after.Kind)]++
	case c.orphans:
		adds[catalog.OrphanOf(after.Kind)]++
	case after.Kind != tko.KindDeployment:
	case before.Revision == 0:
		if reach.Derived {
			adds[catalog.CountCreated]++
		}
	case reach.Derived:
	default:
		if after.Approved && !before.Approved {
			adds[catalog.CountApproved]++
		}
		for _, site := range catalog.Touched(*before, *after) {
			key, now := reachSite{reach.Cause, site}, micros(g.now)
			since := g.reached(reach.Cause, catalog.CountSites, reach.Window).since
			at, known := g.reachSites[key]
			if known && at >= since {
				continue
			}
			was := g.newSites[key]
			g.undo = append(g.undo, func() {
				if g.reachSites[key], g.newSites[key] = at, was; !known {
					delete(g.reachSites, key)
				}
			})
			g.reachSites[key], g.newSites[key] = now, true
			adds[catalog.CountSites]++
		}
	}
}

var (
	putReach      = sqldb.Upsert("reach", 2, Text.As("cause"), Text.As("what"), Int.As("n"), Int.As("consent"), Int.As("since"), Int.As("updated"))
	putReachSites = sqldb.Upsert("reach_site", 2, Text.As("cause"), Text.As("site"), Int.As("updated"))
)

// reachStatements write the counts that have changed.
func (g *group) reachStatements() ([]Statement, error) {
	counts, sites, now := putReach, putReachSites, micros(g.now)
	for _, key := range slices.SortedFunc(maps.Keys(g.reach), func(a, b reachKey) int {
		return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.count, b.count))
	}) {
		row := g.reach[key]
		if row == nil || !row.changed {
			continue
		}
		counts.Rows = append(counts.Rows, []any{key.cause, string(key.count), row.n, row.consent, row.since, now})
		clean := *row
		clean.changed = false
		g.reach[key] = &clean
	}
	for _, key := range slices.SortedFunc(maps.Keys(g.newSites), func(a, b reachSite) int {
		return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.site, b.site))
	}) {
		if g.newSites[key] {
			sites.Rows = append(sites.Rows, []any{key.cause, key.site, now})
		}
	}
	clear(g.newSites)
	return []Statement{counts, sites}, nil
}

// Reached returns the counts of a cause that began within a window; an empty cause stands
// for the most recent ones of all causes, at most limit.
func (s *Store) Reached(ctx context.Context, cause string, window time.Duration, limit int) (reached []catalog.Reached, err error) {
	if err := checkText("cause", cause); err != nil {
		return nil, err
	}
	read := Statement{
		SQL:  "SELECT x.cause, x.what, x.n, x.consent, x.since, x.updated FROM reach x WHERE x.cause = $1 AND x.since > (SELECT {now} - $2) ORDER BY x.what LIMIT $3",
		Args: []any{cause, window.Microseconds(), int64(limit)},
		Scan: func(from Row) error {
			var r catalog.Reached
			var what string
			var n, consent, since, updated int64
			err := from.Scan(&r.Cause, &what, &n, &consent, &since, &updated)
			r.Count, r.N, r.Consent, r.Since, r.Updated = catalog.Count(what), int(n), int(consent), moment(since), moment(updated)
			reached = append(reached, r)
			return err
		},
	}
	if cause == "" {
		read.SQL = "SELECT x.cause, x.what, x.n, x.consent, x.since, x.updated FROM reach x WHERE x.since > (SELECT {now} - $1) ORDER BY x.updated DESC, x.cause, x.what LIMIT $2"
		read.Args = read.Args[1:]
	}
	err = s.retry(ctx, func() error {
		reached = nil
		return fault("read what a cause has changed", s.db.Run(ctx, read))
	})
	return reached, err
}
