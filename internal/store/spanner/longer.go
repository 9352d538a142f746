package spanner

import (
	"context"
	"math"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// The table longer has the deployments that policies select and whose revisions the general retention would have removed.

// policies returns the names of the policies of deployments: of those that exist as they are, of others as of the given revision.
// A deployment without a policy is not in the result.
func (c *collection) policies(ctx context.Context, from reader, current map[record.Key]*record.Record, revisions map[record.Key]int64) (map[record.Key]string, error) {
	policies := map[record.Key]string{}
	if len(c.keep.Longer) == 0 {
		return policies, nil
	}
	var records []*record.Record
	var related []record.Key
	for key, revision := range revisions {
		r := current[key]
		if r == nil {
			var err error
			if r, err = readRevision(ctx, from, key, revision); err != nil {
				continue // it isn't retained: no policy can retain it
			}
		}
		records = append(records, r)
		related = append(related, record.Key{Kind: tko.KindTemplate, ID: r.Template}, record.Key{Kind: tko.KindSite, ID: r.Site})
	}
	others, err := readRecords(ctx, from, related)
	if err != nil {
		return nil, err
	}
	for i, r := range records {
		template, site := orNew(others[related[2*i]]), orNew(others[related[2*i+1]])
		if name := decide.LongestPolicy(c.keep.Longer, *r, *template, *site); name != "" {
			policies[r.Key] = name
		}
	}
	return policies, nil
}

// putLonger puts deployments with the names of their policies.
func (c *collection) putLonger(ctx context.Context, policies map[record.Key]string) error {
	if len(policies) == 0 {
		return nil
	}
	return c.commit(ctx, "note what policies retain", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
		for key, policy := range policies {
			m.put("longer", []string{"shard", "id", "policy"}, shardOf(key.ID), key.ID, policy)
		}
		return nil
	})
}

// cutoffOf returns the time since which a policy retains changes.
func (c *collection) cutoffOf(policy string) time.Time {
	cutoff := c.cutoff
	for _, l := range c.keep.Longer {
		if t := c.now.Add(-l.Keep); l.Name == policy && t.Before(cutoff) {
			cutoff = t
		}
	}
	return cutoff
}

// A held is a deployment whose revisions a policy retains.
type held struct {
	shard   int64
	id      string
	policy  string
	current int64 // revision; 0: it was deleted
}

func (h *held) key() record.Key { return record.Key{Kind: tko.KindDeployment, ID: h.id} }

// nextHeld returns the next deployments whose revisions policies retain, with the policies of now; that of a deleted one stays.
func (c *collection) nextHeld(ctx context.Context, from reader, after held) (list []held, err error) {
	statement := spanner.Statement{
		SQL:    "SELECT l.shard, l.id, l.policy FROM longer AS l WHERE l.shard > @shard OR l.shard = @shard AND l.id > @id ORDER BY l.shard, l.id LIMIT @most",
		Params: map[string]any{"shard": after.shard, "id": after.id, "most": int64(collectBatch)},
	}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var h held
		err := row.Columns(&h.shard, &h.id, &h.policy)
		list = append(list, h)
		return err
	})
	if err != nil {
		return nil, fault("read what policies retain", err)
	}
	keys := make([]record.Key, len(list))
	for i := range list {
		keys[i] = list[i].key()
	}
	current, err := readRecords(ctx, from, keys)
	if err != nil {
		return nil, err
	}
	exist := map[record.Key]int64{}
	for key, r := range current {
		exist[key] = r.Revision
	}
	policies, err := c.policies(ctx, from, current, exist)
	for i := range list {
		if h := &list[i]; exist[h.key()] != 0 {
			h.policy, h.current = policies[h.key()], exist[h.key()]
		}
	}
	return list, err
}

// longer returns a part that removes what the policies of deployments no longer cover: revisions from the oldest one on, so that those
// that stay have no gap.
func (c *collection) longer() func(ctx context.Context) (more bool, err error) {
	var after held
	return func(ctx context.Context) (more bool, err error) {
		snapshot := c.store.client.ReadOnlyTransaction()
		defer snapshot.Close()
		if c.at, err = readCollected(ctx, snapshot); err != nil {
			return false, err
		}
		list, err := c.nextHeld(ctx, snapshot, after)
		if err != nil || len(list) == 0 {
			return false, err
		}
		var limits []limit
		var over []held
		generals := make([]int64, len(list)) // the general retention would remove revisions up to these
		for i := range list {
			h := &list[i]
			superseded, gone, err := c.superseded(ctx, snapshot, h)
			if err != nil {
				return false, err
			}
			switch {
			case h.current == 0:
				generals[i] = math.MaxInt64
			case c.keep.Revisions > 0:
				generals[i] = h.current - int64(c.keep.Revisions)
			}
			remove := min(superseded-1, generals[i])
			if gone {
				remove = superseded
			}
			if remove > 0 {
				limits = append(limits, limit{h.shard, string(tko.KindDeployment), h.id, remove})
			}
			if gone || h.policy == "" {
				over = append(over, *h)
				h.policy = ""
			}
		}
		if err := c.removeRevisions(ctx, limits, c.at); err != nil {
			return false, err
		}
		err = c.commit(ctx, "note what policies retain", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
			for _, h := range over {
				m.remove("longer", spanner.Key{h.shard, h.id})
			}
			return c.countHeld(ctx, tx, m, list, generals)
		})
		after = list[len(list)-1]
		return len(list) == collectBatch, err
	}
}

// countHeld puts the numbers of revisions that policies retain.
func (c *collection) countHeld(ctx context.Context, from reader, m *mutations, list []held, generals []int64) error {
	var limits []limit
	policies := map[string]held{}
	for i, h := range list {
		if h.policy != "" {
			limits = append(limits, limit{h.shard, string(tko.KindDeployment), h.id, generals[i]})
			policies[h.id] = h
		}
	}
	if len(limits) == 0 {
		return nil
	}
	statement := spanner.Statement{
		SQL:    "SELECT l.ID, (SELECT COUNT(*) FROM revision AS x WHERE x.shard = l.Shard AND x.kind = l.Kind AND x.id = l.ID AND x.revision <= l.Revision AND " + upTo + ") FROM UNNEST(@limits) AS l",
		Params: placeOf(c.at).parameters(),
	}
	statement.Params["limits"] = limits
	return fault("count what policies retain", from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var id string
		var n int64
		err := row.Columns(&id, &n)
		h := policies[id]
		m.put("longer", []string{"shard", "id", "policy", "changes"}, h.shard, h.id, h.policy, n)
		return err
	}))
}

// superseded returns the newest revision of a deployment that is older than its policy retains, and whether the deployment was deleted
// before that time.
func (c *collection) superseded(ctx context.Context, from reader, h *held) (newest int64, gone bool, err error) {
	cutoff := c.cutoffOf(h.policy)
	statement := spanner.Statement{
		SQL: "SELECT x.revision, IFNULL(x.ended_at, x.ended) FROM revision AS x WHERE x.shard = @shard AND x.kind = @kind AND x.id = @id AND x.updated <= @cutoff AND " + upTo +
			" ORDER BY x.revision DESC LIMIT 1",
		Params: placeOf(c.at).parameters(),
	}
	statement.Params["shard"], statement.Params["kind"], statement.Params["id"], statement.Params["cutoff"] = h.shard, string(tko.KindDeployment), h.id, cutoff
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var ended spanner.NullTime
		err := row.Columns(&newest, &ended)
		gone = h.current == 0 && ended.Valid && !ended.Time.After(cutoff)
		return err
	})
	return newest, gone, fault("read the revisions of a deployment", err)
}

// longerSizes returns what policies retain.
func longerSizes(ctx context.Context, from reader) (list []record.LongerSize, err error) {
	statement := spanner.Statement{SQL: "SELECT l.policy, COUNT(*), IFNULL(SUM(l.changes), 0) FROM longer AS l GROUP BY l.policy ORDER BY l.policy"}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var l record.LongerSize
		err := row.Columns(&l.Policy, &l.Deployments, &l.Changes)
		list = append(list, l)
		return err
	})
	return list, fault("read what policies retain", err)
}
