package retention

import (
	"context"
	"math"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// This file retains the changes of the deployments that policies select longer than
// others. The table longer has those deployments whose changes the general retention
// would have removed.

// policiesOf returns the names of the policies of those deployments of which the general
// retention would remove something for the changes.
func (c *collection) policiesOf(ctx context.Context, past []pastChange) (map[record.Key]string, error) {
	if len(c.keep.Longer) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	revisions := map[record.Key]int64{} // to judge by: 0 is the current one
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
func (c *collection) judge(ctx context.Context, revisions map[record.Key]int64) (map[record.Key]string, error) {
	var current []record.Key
	var deleted []record.AtRevision
	for key, revision := range revisions {
		if revision == 0 {
			current = append(current, key)
		} else {
			deleted = append(deleted, record.AtRevision{Key: key, Revision: revision})
		}
	}
	records, err := c.store.Get(ctx, record.Fields{}, current...)
	if err != nil {
		return nil, err
	}
	last, err := c.store.Revisions(ctx, record.Fields{}, deleted...)
	if err != nil {
		return nil, err
	}
	records = append(records, last...)
	var related []record.Key
	for _, r := range records {
		related = append(related, record.Key{Kind: tko.KindTemplate, ID: r.Template}, record.Key{Kind: tko.KindSite, ID: r.Site})
	}
	others, err := c.store.Get(ctx, record.Fields{}, related...)
	if err != nil {
		return nil, err
	}
	policies := map[record.Key]string{}
	for i, r := range records {
		if r.Revision == 0 {
			continue
		}
		if name := decide.LongestPolicy(c.keep.Longer, r, others[2*i], others[2*i+1]); name != "" {
			policies[r.Key] = name
		}
	}
	return policies, nil
}

// A held is a deployment whose changes a policy retains.
type held struct {
	key      record.Key
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
	err = c.commit(ctx, func(tx sqldb.Tx) ([]sqldb.Statement, error) {
		removed = 0
		count := sqldb.Count(&removed)
		if err := tx.Run(
			ctx,
			removeRevisions(c.position, rows, count),
			sqldb.Statement{
				SQL: "DELETE FROM change WHERE position IN (SELECT c.position FROM {rows} CROSS JOIN change c WHERE c.kind = 'deployment' AND c.id = r.i " +
					"AND c.op = 'deleted' AND c.op <> 'status' AND c.departed <> 0 AND c.updated <= r.v AND c.position <= $1) RETURNING position",
				Args:    []any{c.position},
				Columns: []sqldb.Column{sqldb.Text.As("i"), sqldb.Int.As("v")}, Rows: tombstones, Scan: count,
			},
		); err != nil {
			return nil, err
		}
		return []sqldb.Statement{
			sqldb.Delete("longer", sqldb.Text.As("id")).With(over),
			{
				SQL: "INSERT INTO longer (id, policy, changes) SELECT r.i, r.p, (SELECT count(*) FROM change c WHERE c.kind = 'deployment' AND c.id = r.i " +
					"AND c.op = 'written' AND c.revision <= r.g AND c.position <= $1) FROM {rows} WHERE true ON CONFLICT (id) DO UPDATE SET policy = excluded.policy, changes = excluded.changes",
				Args: []any{c.position}, Columns: []sqldb.Column{sqldb.Text.As("i"), sqldb.Text.As("p"), sqldb.Int.As("g")}, Rows: policies,
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
	if err := c.store.Run(ctx, sqldb.Statement{
		SQL: "SELECT l.id, l.policy, COALESCE(e.revision, 0) FROM (SELECT id, policy FROM longer WHERE id > $1 ORDER BY id LIMIT $2) AS l " +
			"LEFT JOIN entity e ON e.kind = 'deployment' AND e.id = l.id ORDER BY l.id",
		Args: []any{c.longer, int64(collectBatch)},
		Scan: func(from sqldb.Row) error {
			h := held{key: record.Key{Kind: tko.KindDeployment}}
			err := from.Scan(&h.key.ID, &h.policy, &h.current)
			list = append(list, h)
			return err
		},
	}); err != nil {
		return nil, err
	}
	exist := map[record.Key]int64{}
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
	return c.store.Run(ctx, sqldb.Statement{
		SQL: "SELECT COALESCE((SELECT c.revision FROM change c WHERE c.kind = 'deployment' AND c.id = $1 AND c.op = 'written' AND c.updated <= $2 " +
			"AND c.position <= $3 ORDER BY c.revision DESC LIMIT 1), 0), " +
			"COALESCE((SELECT c.updated FROM change c WHERE c.kind = 'deployment' AND c.id = $1 AND c.op = 'deleted' AND c.op <> 'status' AND c.departed <> 0 " +
			"ORDER BY c.position DESC LIMIT 1), 0)",
		Args: []any{h.key.ID, cutoff, c.position},
		Scan: func(from sqldb.Row) error { return from.Scan(&h.revision, &h.at) },
	})
}
