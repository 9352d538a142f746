package spanner

import (
	"context"
	"math"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// The counts of a cause are rows that each counted commit of the cause reads and writes: commits of the same cause wait for each
// other, as its limits require, and commits of others don't.

// count counts the changes of the commit, and returns an error if they exceed a limit of its cause.
func (t *transaction) count(ctx context.Context) error {
	r := t.reach
	if r.Cause == "" || len(t.changes)+len(r.Adds)+len(r.Grant)+len(r.Sites) == 0 {
		return nil
	}
	now, err := t.time(ctx)
	if err != nil {
		return err
	}
	changes := make([]decide.CountedChange, len(t.changes))
	sites := map[string]bool{}
	for _, site := range r.Sites {
		sites[site] = true
	}
	for i, c := range t.changes {
		before := orNew(c.before)
		changes[i] = decide.CountedChange{Op: c.op, Before: before, After: c.after, Orphans: c.orphans, Replacing: c.replacing}
		for _, site := range record.Touched(*before, *c.after) {
			sites[site] = true
		}
		sites[before.Site], sites[c.after.Site] = true, true
	}
	if err := t.readCounts(ctx, now, sites); err != nil {
		return err
	}
	return t.counts.Add(r, now.UnixMicro(), changes)
}

// readCounts reads the counts of the commit's cause, and of some sites when it changed them last.
func (t *transaction) readCounts(ctx context.Context, now time.Time, sites map[string]bool) error {
	cause := t.reach.Cause
	since := int64(math.MinInt64)
	if t.reach.Window > 0 {
		since = now.UnixMicro() - max(decide.CountSpan(t.reach.Window), decide.CountSpan(t.reach.WindowOf(record.CountSites)))
	}
	prefix := spanner.Key{shardOf(cause), cause}.AsPrefix()
	err := t.tx.Read(ctx, "reach", prefix, []string{"what", "granted", "used", "since"}).Do(func(row *spanner.Row) error {
		var what string
		var g decide.CountGrant
		err := row.Columns(&what, &g.Granted, &g.Used, &g.Since)
		t.counts.ReadGrant(decide.CountKey{Cause: cause, Count: record.Count(what)}, g)
		return err
	})
	if err != nil {
		return fault("read what a cause may change", err)
	}
	statement := spanner.Statement{
		SQL:    "SELECT p.what, p.part, p.n, p.consent FROM reach_part AS p WHERE p.shard = @shard AND p.cause = @cause AND p.part > @since",
		Params: map[string]any{"shard": shardOf(cause), "cause": cause, "since": since},
	}
	err = t.tx.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var what string
		var part int64
		var p decide.CountPart
		err := row.Columns(&what, &part, &p.N, &p.Consent)
		t.counts.ReadPart(decide.CountKey{Cause: cause, Count: record.Count(what)}, part, p)
		return err
	})
	if err != nil {
		return fault("read what a cause has changed", err)
	}
	var keys []spanner.Key
	for site := range sites {
		if record.Storable(site) {
			keys = append(keys, spanner.Key{shardOf(site), cause, site})
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return fault("read where a cause has changed something", t.tx.Read(ctx, "reach_site", spanner.KeySetFromKeys(keys...), []string{"site", "updated"}).Do(func(row *spanner.Row) error {
		var site string
		var updated int64
		err := row.Columns(&site, &updated)
		t.counts.ReadSite(decide.CountedSite{Cause: cause, Site: site}, updated)
		return err
	}))
}

// putCounts puts the counts that have changed.
func (t *transaction) putCounts(m *mutations) {
	now := t.now.UnixMicro()
	counts, sites := t.counts.Changed()
	for _, c := range counts {
		if g := c.Grant; g != nil {
			m.put("reach", []string{"shard", "cause", "what", "used", "granted", "since", "updated"}, shardOf(c.Cause), c.Cause, string(c.Count), g.Used, g.Granted, g.Since, now)
		}
		for part, p := range c.Parts {
			m.put("reach_part", []string{"shard", "cause", "what", "part", "n", "consent", "updated"}, shardOf(c.Cause), c.Cause, string(c.Count), part, p.N, p.Consent, now)
		}
	}
	for _, site := range sites {
		m.put("reach_site", []string{"shard", "cause", "site", "updated"}, shardOf(site.Site), site.Cause, site.Site, now)
	}
}

// Reached returns the counts of a cause within a window that ends now; an empty cause stands for the most recent ones of all
// causes. What a cause may still change with consent is in Consent.
func (s *Store) Reached(ctx context.Context, cause string, window time.Duration, limit int) ([]record.Reached, error) {
	if err := decide.CheckTexts("cause", cause); err != nil {
		return nil, err
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	now, err := readNow(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	var found []record.Reached
	for _, read := range []struct {
		columns, table, moment string
		since                  int64
		most                   int
	}{
		{"r.n, r.consent, r.part", "reach_part", "r.part", now.UnixMicro() - decide.CountSpan(window), limit * (record.ReachParts + 1)},
		{"0, r.granted - r.used, r.since", "reach", "r.granted > r.used AND r.since", now.UnixMicro() - window.Microseconds(), limit},
	} {
		statement := spanner.Statement{
			SQL:    "SELECT r.cause, r.what, " + read.columns + ", r.updated FROM " + read.table + " AS r WHERE r.shard = @shard AND r.cause = @cause AND " + read.moment + " > @since",
			Params: map[string]any{"shard": shardOf(cause), "cause": cause, "since": read.since},
		}
		if cause == "" {
			statement.SQL = "SELECT r.cause, r.what, " + read.columns + ", r.updated FROM " + read.table + " AS r WHERE " + read.moment + " > @since ORDER BY r.updated DESC LIMIT @most"
			statement.Params = map[string]any{"since": read.since, "most": int64(read.most)}
		}
		err := snapshot.Query(ctx, statement).Do(func(row *spanner.Row) error {
			var r record.Reached
			var what string
			var n, consent, since, updated int64
			err := row.Columns(&r.Cause, &what, &n, &consent, &since, &updated)
			r.Count, r.N, r.Consent, r.Since, r.Updated = record.Count(what), int(n), int(consent), time.UnixMicro(since).UTC(), time.UnixMicro(updated).UTC()
			found = append(found, r)
			return err
		})
		if err != nil {
			return nil, fault("read what a cause has changed", err)
		}
	}
	return decide.SumReached(found, cause == "", limit), nil
}
