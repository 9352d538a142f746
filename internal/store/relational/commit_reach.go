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
// and written with its changes. A group whose commits count nothing reads and writes
// none: see [reachRows].

// A reachKey identifies a count of a cause.
type reachKey struct {
	cause string
	count record.Count
}

// A reachRow is a count of a cause as decided so far.
type reachRow struct {
	parts map[int64]reachPart // by the microsecond at which they begin
	// granted changes may be made with consent, and used of them were; since is the
	// microsecond of the last grant.
	granted, used, since int64
	grants               bool           // the grant has changed
	changed              map[int64]bool // parts that have changed
}

// A reachPart is what a cause changed in a part of its window, and how much of that with
// consent.
type reachPart struct{ n, consent int64 }

// clone returns a copy of the row, which may be nil.
func (r *reachRow) clone() *reachRow {
	if r == nil {
		return &reachRow{parts: map[int64]reachPart{}, changed: map[int64]bool{}}
	}
	c := *r
	c.parts, c.changed = maps.Clone(r.parts), maps.Clone(r.changed)
	return &c
}

// add adds changes to a part.
func (r *reachRow) add(part, n, consent int64) {
	p := r.parts[part]
	r.parts[part] = reachPart{p.n + n, p.consent + consent}
	r.changed[part] = true
}

// free returns the changes without consent in the window that ends at a microsecond.
func (r *reachRow) free(now int64, window time.Duration) (n int64) {
	if r == nil {
		return 0
	}
	for begin, p := range r.parts {
		if isWithin(begin, now, window) {
			n += max(0, p.n-p.consent)
		}
	}
	return n
}

// left returns the number of changes that may still be made with consent.
func (r *reachRow) left(now int64, window time.Duration) int64 {
	if window > 0 && r.since+window.Microseconds() <= now {
		return 0
	}
	return max(0, r.granted-r.used)
}

// The window of a cause slides by parts: the oldest part counts as a whole as long as a
// moment of it is within the window. So a limit holds in each period that is as
// long as the window, and a change stops counting at most a part after the window has ended.

// partLength returns the length of the parts of a window, in microseconds.
func partLength(window time.Duration) int64 {
	return max(1, window.Microseconds()/record.ReachParts)
}

// partOf returns the microsecond at which the part of a moment begins.
func partOf(moment int64, window time.Duration) int64 {
	if window <= 0 {
		return 0
	}
	return moment - moment%partLength(window)
}

// isWithin reports whether the part that begins at a microsecond is in the window that ends
// at another one.
func isWithin(begin, now int64, window time.Duration) bool {
	return window <= 0 || begin > now-span(window)
}

// span returns how long ago the parts of a window may have begun, in microseconds.
func span(window time.Duration) int64 { return window.Microseconds() + partLength(window) }

// A reachSite is a site at which a cause has changed running deployments.
type reachSite struct{ cause, site string }

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
			most = max(span(c.reach.Window), span(c.reach.WindowOf(record.CountSites)))
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
	row := func(cause, what string) *reachRow {
		key := reachKey{cause, record.Count(what)}
		if g.reach[key] == nil {
			g.reach[key] = (*reachRow)(nil).clone()
		}
		return g.reach[key]
	}
	return []Statement{
		{
			SQL:     "SELECT x.cause, x.what, x.n, x.consent, x.since FROM {rows} CROSS JOIN reach x WHERE x.cause = r.c",
			Columns: []Column{Text.As("c"), Int.As("w")}, Rows: rows,
			Scan: func(from Row) error {
				var cause, what string
				var granted, used, since int64
				err := from.Scan(&cause, &what, &used, &granted, &since)
				r := row(cause, what)
				r.granted, r.used, r.since = granted, used, since
				return err
			},
		},
		{
			SQL:     "SELECT x.cause, x.what, x.part, x.n, x.consent FROM {rows} CROSS JOIN reach_part x WHERE x.cause = r.c AND x.part > {now} - r.w",
			Columns: []Column{Text.As("c"), Int.As("w")}, Rows: rows,
			Scan: func(from Row) error {
				var cause, what string
				var begin int64
				var p reachPart
				err := from.Scan(&cause, &what, &begin, &p.n, &p.consent)
				row(cause, what).parts[begin] = p
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

// changeReach changes a count of a cause until the decisions of the call are undone.
func (g *group) changeReach(cause string, count record.Count, change func(*reachRow)) {
	key := reachKey{cause, count}
	before, known := g.reach[key]
	g.undo = append(g.undo, func() {
		g.reach[key] = before
		if !known {
			delete(g.reach, key)
		}
	})
	row := before.clone()
	change(row)
	g.reach[key] = row
}

// countReach counts the changes that a call made, from the given ones on, and returns an
// error if they exceed a limit.
func (g *group) countReach(reach *record.Reach, from int) error {
	if reach.Cause == "" {
		return nil
	}
	adds, now := map[record.Count]int{}, micros(g.now)
	for i := range g.changes[from:] {
		g.countChange(reach, &g.changes[from+i], adds)
	}
	if reach.CountsSites() {
		for _, site := range reach.Sites {
			g.countSite(reach, record.Record{Key: record.Key{Kind: tko.KindSite, ID: site}}, site, adds)
		}
	}
	for count, n := range reach.Adds {
		adds[count] += n
	}
	total := 0
	for count, n := range adds {
		if !count.IsFurther() {
			total += n
		}
	}
	consented := reach.Consent > 0
	if consented && total > reach.Consent {
		return &record.ExceededError{Limit: reach.Consent}
	}
	for _, count := range slices.Sorted(maps.Keys(adds)) {
		window, n := reach.WindowOf(count), int64(adds[count])
		g.changeReach(reach.Cause, count, func(row *reachRow) {
			with := n
			if !consented {
				with = min(n, row.left(now, reach.Window))
				row.used, row.grants = row.used+with, row.grants || with > 0
			}
			row.add(partOf(now, window), n, with)
		})
	}
	for _, count := range slices.Sorted(maps.Keys(reach.Grant)) {
		g.changeReach(reach.Cause, count, func(row *reachRow) {
			// What was consented to may take the whole window.
			row.granted, row.used, row.since, row.grants = row.left(now, reach.Window)+int64(reach.Grant[count]), 0, now, true
		})
	}
	if consented {
		return nil
	}
	for _, limit := range reach.Limits {
		free, added := int64(0), 0
		for _, count := range limit.Of {
			free += g.reach[reachKey{reach.Cause, count}].free(now, reach.WindowOf(count))
			added += adds[count]
		}
		if added > 0 && free > int64(limit.Most) {
			return &record.ReachError{Cause: reach.Cause, Limit: limit, Had: max(0, int(free)-added), Adds: added}
		}
	}
	return nil
}

// countChange adds what one change counts as.
func (g *group) countChange(reach *record.Reach, c *change, adds map[record.Count]int) {
	was, after := c.before.Record, &c.after.Record
	if was.Metadata == nil {
		was.Metadata = g.suspended[after.Key]
	}
	before := &was
	count := func(count record.Count, of record.Record) {
		of.Key = after.Key
		for _, one := range reach.Counts(count, of, "") {
			adds[one]++
		}
	}
	switch {
	case c.op == tko.OpStatus, c.replacing:
	case c.op == tko.OpDeleted:
		count(record.RemovalOf(after.Kind), *before)
		if reach.RemovedSites {
			for _, site := range record.Touched(*before, record.Record{Key: after.Key}) {
				g.countSite(reach, *before, site, adds)
			}
		}
	case c.orphans:
		count(record.OrphanOf(after.Kind), *before)
	case after.Kind == tko.KindSite && before.Revision != 0 && reach.CountsSites():
		for _, site := range record.Touched(*before, *after) {
			g.countSite(reach, *after, site, adds)
		}
	case after.Kind != tko.KindDeployment:
	case before.Revision == 0:
		if reach.Derived {
			count(record.CountCreated, *after)
		}
		if reach.RemovedSites && len(after.Replaces) > 0 && after.Site != "" {
			g.countSite(reach, *after, after.Site, adds)
		}
	case !reach.CountsSites():
	default:
		if after.Approved && !before.Approved && !reach.Derived {
			count(record.CountApproved, *after)
		}
		for _, site := range record.Touched(*before, *after) {
			g.countSite(reach, *after, site, adds)
		}
	}
}

// countSite counts a site that a change has an effect at. A site counts once in each
// period: a change there moves what it counts as to the present part.
func (g *group) countSite(reach *record.Reach, of record.Record, site string, adds map[record.Count]int) {
	counts := reach.Counts(record.CountSites, of, site)
	key, now, window := reachSite{reach.Cause, site}, micros(g.now), reach.WindowOf(record.CountSites)
	at, known := g.reachSites[key]
	from, to := partOf(at, window), partOf(now, window)
	counted := known && isWithin(from, now, window)
	switch consented := reach.Consent > 0; {
	case counted && (consented || from == to):
		return
	case counted:
		for _, count := range counts {
			g.changeReach(reach.Cause, count, func(row *reachRow) {
				if p := row.parts[from]; p.n > p.consent {
					row.add(from, -1, 0)
				}
				row.add(to, 1, 0)
			})
		}
	default:
		for _, count := range counts {
			adds[count]++
		}
		if consented {
			return
		}
	}
	was := g.newSites[key]
	g.undo = append(g.undo, func() {
		g.reachSites[key], g.newSites[key] = at, was
		if !known {
			delete(g.reachSites, key)
		}
	})
	g.reachSites[key], g.newSites[key] = now, true
}

var (
	putGrants     = sqldb.Upsert("reach", 2, Text.As("cause"), Text.As("what"), Int.As("n"), Int.As("consent"), Int.As("since"), Int.As("updated"))
	putReach      = sqldb.Upsert("reach_part", 3, Text.As("cause"), Text.As("what"), Int.As("part"), Int.As("n"), Int.As("consent"), Int.As("updated"))
	putReachSites = sqldb.Upsert("reach_site", 2, Text.As("cause"), Text.As("site"), Int.As("updated"))
)

// reachStatements write the counts that have changed.
func (g *group) reachStatements() ([]Statement, error) {
	grants, counts, sites, now := putGrants, putReach, putReachSites, micros(g.now)
	for _, key := range slices.SortedFunc(maps.Keys(g.reach), func(a, b reachKey) int {
		return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.count, b.count))
	}) {
		row := g.reach[key]
		if row == nil || !row.grants && len(row.changed) == 0 {
			continue
		}
		if row.grants {
			grants.Rows = append(grants.Rows, []any{key.cause, string(key.count), row.used, row.granted, row.since, now})
		}
		for _, part := range slices.Sorted(maps.Keys(row.changed)) {
			counts.Rows = append(counts.Rows, []any{key.cause, string(key.count), part, row.parts[part].n, row.parts[part].consent, now})
		}
		clean := row.clone()
		clean.grants, clean.changed = false, map[int64]bool{}
		g.reach[key] = clean
	}
	for _, key := range slices.SortedFunc(maps.Keys(g.newSites), func(a, b reachSite) int {
		return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.site, b.site))
	}) {
		if g.newSites[key] {
			sites.Rows = append(sites.Rows, []any{key.cause, key.site, now})
		}
	}
	clear(g.newSites)
	return []Statement{grants, counts, sites}, nil
}

// Reached returns the counts of a cause within a window that ends now; an empty cause
// stands for the most recent ones of all causes, at most limit. What a cause may still
// change with consent is in Consent.
func (s *Store) Reached(ctx context.Context, cause string, window time.Duration, limit int) (reached []record.Reached, err error) {
	if err := decide.CheckTexts("cause", cause); err != nil {
		return nil, err
	}
	found := map[reachKey]*record.Reached{}
	add := func(r record.Reached) {
		key := reachKey{r.Cause, r.Count}
		had := found[key]
		if had == nil {
			found[key] = &r
			return
		}
		had.N, had.Consent = had.N+r.N, had.Consent+r.Consent
		if r.Since.Before(had.Since) {
			had.Since = r.Since
		}
		if r.Updated.After(had.Updated) {
			had.Updated = r.Updated
		}
	}
	scan := func(from Row) error {
		var r record.Reached
		var what string
		var n, consent, since, updated int64
		err := from.Scan(&r.Cause, &what, &n, &consent, &since, &updated)
		r.Count, r.N, r.Consent, r.Since, r.Updated = record.Count(what), int(n), int(consent), moment(since), moment(updated)
		add(r)
		return err
	}
	const (
		parts  = "SELECT x.cause, x.what, x.n, x.consent, x.part, x.updated FROM reach_part x WHERE "
		grants = "SELECT x.cause, x.what, 0, x.consent - x.n, x.since, x.updated FROM reach x WHERE x.consent > x.n AND "
	)
	made := Statement{SQL: parts + "x.cause = $1 AND x.part > (SELECT {now} - $2)", Args: []any{cause, span(window)}, Scan: scan}
	may := Statement{SQL: grants + "x.cause = $1 AND x.since > (SELECT {now} - $2)", Args: []any{cause, window.Microseconds()}, Scan: scan}
	if cause == "" {
		made = Statement{SQL: parts + "x.part > (SELECT {now} - $1) ORDER BY x.updated DESC LIMIT $2", Args: []any{span(window), int64(limit) * (record.ReachParts + 1)}, Scan: scan}
		may = Statement{SQL: grants + "x.since > (SELECT {now} - $1) ORDER BY x.updated DESC LIMIT $2", Args: []any{window.Microseconds(), int64(limit)}, Scan: scan}
	}
	err = s.retry(ctx, func() error {
		clear(found)
		return fault("read what a cause has changed", cmp.Or(s.db.Run(ctx, made), s.db.Run(ctx, may)))
	})
	for _, r := range found {
		reached = append(reached, *r)
	}
	slices.SortFunc(reached, func(a, b record.Reached) int {
		newest := 0
		if cause == "" {
			newest = b.Updated.Compare(a.Updated)
		}
		return cmp.Or(newest, cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Count, b.Count))
	})
	return reached[:min(len(reached), limit)], err
}
