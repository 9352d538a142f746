package relational

import (
	"context"
	"math"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// This file retains the changes of the deployments that policies select longer than
// others. The table longer has those deployments whose changes the general retention
// would have removed.

// policiesOf returns the names of the policies of those deployments of which the general
// retention would remove something for the changes.
func (c *collection) policiesOf(ctx context.Context, past []pastChange) (map[catalog.Key]string, error) {
	if len(c.keep.Longer) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	revisions := map[catalog.Key]int64{} // to judge by: 0 is the current one
	for _, p := range past {
		if p.key.Kind != tko.KindDeployment {
			continue
		}
		switch {
		case p.current == 0 && p.op == tko.OpDeleted:
			revisions[p.key] = p.revision
		case p.op == tko.OpDeleted, c.keep.Revisions > 0 && p.current > int64(c.keep.Revisions):
			revisions[p.key] = 0
		}
	}
	return c.judge(ctx, revisions)
}

// judge returns the names of the policies of deployments as of revisions; 0 is the current
// one. A deployment without a policy is not in the result.
func (c *collection) judge(ctx context.Context, revisions map[catalog.Key]int64) (map[catalog.Key]string, error) {
	var current []catalog.Key
	var deleted []catalog.AtRevision
	for key, revision := range revisions {
		if revision == 0 {
			current = append(current, key)
		} else {
			deleted = append(deleted, catalog.AtRevision{Key: key, Revision: revision})
		}
	}
	records, err := c.store.Get(ctx, catalog.Fields{}, current...)
	if err != nil {
		return nil, err
	}
	last, err := c.store.Revisions(ctx, catalog.Fields{}, deleted...)
	if err != nil {
		return nil, err
	}
	records = append(records, last...)
	var related []catalog.Key
	for _, r := range records {
		related = append(related, catalog.Key{Kind: tko.KindTemplate, ID: r.Template}, catalog.Key{Kind: tko.KindSite, ID: r.Site})
	}
	others, err := c.store.Get(ctx, catalog.Fields{}, related...)
	if err != nil {
		return nil, err
	}
	policies := map[catalog.Key]string{}
	for i, r := range records {
		if r.Revision == 0 {
			continue
		}
		longest := int64(-1)
		for _, l := range c.keep.Longer {
			if l.Keep.Microseconds() > longest && l.Matches(r, others[2*i], others[2*i+1]) {
				policies[r.Key], longest = l.Name, l.Keep.Microseconds()
			}
		}
	}
	return policies, nil
}

// A held is a deployment whose changes a policy retains.
type held struct {
	key      catalog.Key
	policy   string // "": no longer one
	current  int64  // its revision; 0 if it was deleted
	revision int64  // the newest one that is old enough to be superseded
	at       int64  // when the deployment was deleted; 0: it wasn't
}

// longerRetained removes what the policies of the next deployments no longer cover. Of
// each deployment it removes revisions from the oldest on, so that those that stay have no
// gap.
func (c *collection) longerRetained(ctx context.Context) (more bool, err error) {
	if c.keep.Changes <= 0 {
		return false, nil
	}
	list, err := c.nextHeld(ctx)
	if err != nil || len(list) == 0 {
		return false, err
	}
	var rows, tombstones, policies [][]any
	var over [][]any
	for i := range list {
		h := &list[i]
		cutoff := c.cutoffOf(h.policy)
		if err := c.superseded(ctx, h, cutoff); err != nil {
			return false, err
		}
		general := int64(math.MaxInt64) // the general retention would remove revisions up to this one
		if h.current != 0 {
			general = h.current - int64(c.keep.Revisions)
			if c.keep.Revisions == 0 {
				general = 0
			}
		}
		limit := min(h.revision-1, general)
		gone := h.current == 0 && h.at <= cutoff
		if gone {
			limit = h.revision
		}
		if limit > 0 {
			rows = append(rows, []any{string(h.key.Kind), h.key.ID, limit})
		}
		tombstones = append(tombstones, []any{h.key.ID, cutoff})
		if gone || h.policy == "" {
			over = append(over, []any{h.key.ID})
		} else {
			policies = append(policies, []any{h.key.ID, h.policy, general})
		}
	}
	removed := 0
	err = c.commit(ctx, func(tx Tx) ([]Statement, error) {
		removed = 0
		count := func(from Row) error {
			var position int64
			removed++
			return from.Scan(&position)
		}
		if err := tx.Run(
			ctx,
			removeRevisions(c.position, rows, count),
			Statement{
				SQL: "DELETE FROM change WHERE position IN (SELECT c.position FROM {rows} CROSS JOIN change c WHERE c.kind = 'deployment' AND c.id = r.i " +
					"AND c.op = 'deleted' AND c.op <> 'status' AND c.departed <> 0 AND c.updated <= r.v AND c.position <= $1) RETURNING position",
				Args:    []any{c.position},
				Columns: []Column{{"i", Text}, {"v", Int}}, Rows: tombstones, Scan: count,
			},
		); err != nil {
			return nil, err
		}
		return []Statement{
			{SQL: "DELETE FROM longer WHERE id IN (SELECT r.i FROM {rows})", Columns: []Column{{"i", Text}}, Rows: over},
			{
				SQL: "INSERT INTO longer (id, policy, changes) SELECT r.i, r.p, (SELECT count(*) FROM change c WHERE c.kind = 'deployment' AND c.id = r.i " +
					"AND c.op = 'written' AND c.revision <= r.g AND c.position <= $1) FROM {rows} WHERE true ON CONFLICT (id) DO UPDATE SET policy = excluded.policy, changes = excluded.changes",
				Args: []any{c.position}, Columns: []Column{{"i", Text}, {"p", Text}, {"g", Int}}, Rows: policies,
			},
			{SQL: "UPDATE collector SET loose = loose + $1 WHERE one = 1", Args: []any{int64(removed)}},
		}, nil
	})
	if err != nil {
		return false, err
	}
	c.longer = list[len(list)-1].key.ID
	c.loose += int64(removed)
	c.done.Changes += removed
	return len(list) == collectBatch, nil
}

// cutoffOf returns the time since which a policy retains changes.
func (c *collection) cutoffOf(policy string) int64 {
	cutoff := c.cutoff
	for _, l := range c.keep.Longer {
		if l.Name == policy {
			cutoff = min(cutoff, c.cutoff+c.keep.Changes.Microseconds()-l.Keep.Microseconds())
		}
	}
	return cutoff
}

// nextHeld returns the next deployments whose changes policies retain, with the policies
// of now; that of a deleted one stays.
func (c *collection) nextHeld(ctx context.Context) ([]held, error) {
	var list []held
	if err := c.store.run(ctx, Statement{
		SQL: "SELECT l.id, l.policy, COALESCE(e.revision, 0) FROM (SELECT id, policy FROM longer WHERE id > $1 ORDER BY id LIMIT $2) AS l " +
			"LEFT JOIN entity e ON e.kind = 'deployment' AND e.id = l.id ORDER BY l.id",
		Args: []any{c.longer, int64(collectBatch)},
		Scan: func(from Row) error {
			h := held{key: catalog.Key{Kind: tko.KindDeployment}}
			err := from.Scan(&h.key.ID, &h.policy, &h.current)
			list = append(list, h)
			return err
		},
	}); err != nil {
		return nil, err
	}
	exist := map[catalog.Key]int64{}
	for _, h := range list {
		if h.current != 0 {
			exist[h.key] = 0
		}
	}
	policies, err := c.judge(ctx, exist)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if h := &list[i]; h.current != 0 {
			h.policy = policies[h.key]
		}
	}
	return list, nil
}

// superseded reads the newest revision of a deployment up to a time, and when the
// deployment was deleted.
func (c *collection) superseded(ctx context.Context, h *held, cutoff int64) error {
	return c.store.run(ctx, Statement{
		SQL: "SELECT COALESCE((SELECT c.revision FROM change c WHERE c.kind = 'deployment' AND c.id = $1 AND c.op = 'written' AND c.updated <= $2 " +
			"AND c.position <= $3 ORDER BY c.revision DESC LIMIT 1), 0), " +
			"COALESCE((SELECT c.updated FROM change c WHERE c.kind = 'deployment' AND c.id = $1 AND c.op = 'deleted' AND c.op <> 'status' AND c.departed <> 0 " +
			"ORDER BY c.position DESC LIMIT 1), 0)",
		Args: []any{h.key.ID, cutoff, c.position},
		Scan: func(from Row) error { return from.Scan(&h.revision, &h.at) },
	})
}

// longerSizes returns what policies retain.
func (s *Store) longerSizes(ctx context.Context, size catalog.HistorySize) (list []catalog.LongerSize, err error) {
	err = s.run(ctx, Statement{
		SQL: "SELECT policy, count(*), CAST(sum(changes) AS bigint) FROM longer GROUP BY policy ORDER BY policy",
		Scan: func(from Row) error {
			var l catalog.LongerSize
			err := from.Scan(&l.Policy, &l.Deployments, &l.Changes)
			if size.Changes > 0 {
				l.Bytes = int64(float64(l.Changes) * float64(size.Bytes) / float64(size.Changes))
			}
			list = append(list, l)
			return err
		},
	})
	return list, err
}

// getBefore returns deployments as of a position before the oldest one as of which
// everything can be read.
func (p *pastReader) getBefore(ctx context.Context, fields catalog.Fields, keys []catalog.Key) ([]catalog.Record, error) {
	oldest, _, err := p.store.Past(ctx)
	if err != nil {
		return nil, err
	}
	records := make([]catalog.Record, len(keys))
	for i, key := range keys {
		records[i].Key = key
		if checkTexts("ID", key.ID) != nil {
			continue
		}
		r, err := p.before(ctx, key, oldest, fields)
		if err != nil {
			return nil, err
		}
		if r.Revision != 0 {
			records[i] = r
		}
	}
	return records, nil
}

// before returns a deployment as of the position, with Revision 0 if it didn't exist. It
// is certain if its revisions have no gap from the position on: the collector removes
// revisions from the oldest one on, and rollouts may retain single ones.
func (p *pastReader) before(ctx context.Context, key catalog.Key, oldest catalog.Moment, fields catalog.Fields) (catalog.Record, error) {
	then, err := p.revisions(ctx, key.Kind, [][]any{{key.ID}})
	if err != nil {
		return catalog.Record{}, err
	}
	now, err := p.store.Get(ctx, catalog.Fields{}, key)
	if err != nil {
		return catalog.Record{}, err
	}
	var next, after, afterAt int64 // the revision after the position
	if err := p.store.run(ctx, Statement{
		SQL: "SELECT c.revision, c.position, c.updated FROM change c WHERE c.kind = 'deployment' AND c.id = $1 AND c.op = 'written' AND c.position > $2 " +
			"ORDER BY c.revision LIMIT 1",
		Args: []any{key.ID, p.position},
		Scan: func(from Row) error { return from.Scan(&next, &after, &afterAt) },
	}); err != nil {
		return catalog.Record{}, err
	}
	if next == 1 {
		return catalog.Record{}, nil // it was created later
	}
	gone := tko.Errorf(tko.ErrGone, "the state of deployment %q as of position %d is no longer retained: the oldest position is %d%s",
		key.ID, p.position, oldest.Position, timeOf(oldest))
	if next != 0 && after < oldest.Position {
		own := catalog.Moment{Position: after, Time: moment(afterAt)}
		gone = tko.Errorf(tko.ErrGone, "the state of deployment %q as of position %d is no longer retained: its oldest position is %d%s",
			key.ID, p.position, own.Position, timeOf(own))
	}
	r, ok := then[key.ID]
	if !ok {
		return catalog.Record{}, gone
	}
	deletedAt, last := int64(0), int64(0)
	if err := p.store.run(ctx, Statement{
		SQL: "SELECT c.position, c.revision FROM change c WHERE c.kind = 'deployment' AND c.id = $1 AND c.uid = $2 AND c.op = 'deleted' " +
			"AND c.op <> 'status' AND c.departed <> 0 ORDER BY c.position DESC LIMIT 1",
		Args: []any{key.ID, r.UID},
		Scan: func(from Row) error { return from.Scan(&deletedAt, &last) },
	}); err != nil {
		return catalog.Record{}, err
	}
	switch {
	case deletedAt != 0 && deletedAt <= p.position:
		return catalog.Record{}, nil
	case deletedAt == 0 && now[0].UID != r.UID,
		next != r.Revision+1 && (deletedAt == 0 || last != r.Revision) && (deletedAt != 0 || now[0].Revision != r.Revision):
		return catalog.Record{}, gone
	}
	if now[0].UID == r.UID {
		r.Conditions = slices.DeleteFunc(slices.Clone(now[0].Conditions), func(c tko.Condition) bool {
			return c.ObservedRevision > r.Revision || micros(c.LastTransition) > p.at
		})
	}
	records := []catalog.Record{r.Record}
	if err := p.complete(ctx, key.Kind, fields, records); err != nil {
		return catalog.Record{}, err
	}
	// What was read is complete if the revision is still there.
	if then, err = p.revisions(ctx, key.Kind, [][]any{{key.ID}}); err != nil {
		return catalog.Record{}, err
	}
	if then[key.ID].Revision != r.Revision {
		return catalog.Record{}, gone
	}
	return cloneRecord(records[0]), nil
}
