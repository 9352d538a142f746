package relational

import (
	"context"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// This file reads deployments as of positions whose state is no longer retained as a whole,
// but is of the deployments that policies select.

// getBefore returns deployments as of a position before the oldest one as of which
// everything can be read.
func (p *pastReader) getBefore(ctx context.Context, fields record.Fields, keys []record.Key) ([]record.Record, error) {
	oldest, _, err := p.store.Past(ctx)
	if err != nil {
		return nil, err
	}
	records := make([]record.Record, len(keys))
	for i, key := range keys {
		records[i].Key = key
		if decide.CheckTexts("ID", key.ID) != nil {
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
func (p *pastReader) before(ctx context.Context, key record.Key, oldest record.Moment, fields record.Fields) (record.Record, error) {
	then, err := p.revisions(ctx, key.Kind, [][]any{{key.ID}})
	if err != nil {
		return record.Record{}, err
	}
	now, err := p.store.Get(ctx, record.Fields{}, key)
	if err != nil {
		return record.Record{}, err
	}
	var next, after, afterAt int64 // the revision after the position
	if err := p.store.run(ctx, Statement{
		SQL: "SELECT c.revision, c.position, c.updated FROM change c WHERE c.kind = 'deployment' AND c.id = $1 AND c.op = 'written' AND c.position > $2 " +
			"ORDER BY c.revision LIMIT 1",
		Args: []any{key.ID, p.position},
		Scan: func(from Row) error { return from.Scan(&next, &after, &afterAt) },
	}); err != nil {
		return record.Record{}, err
	}
	if next == 1 {
		return record.Record{}, nil // it was created later
	}
	gone := tko.Errorf(tko.ErrGone, "the state of deployment %q as of position %d is no longer retained: the oldest position is %d%s",
		key.ID, p.position, oldest.Position, timeOf(oldest))
	if next != 0 && after < oldest.Position {
		own := record.Moment{Position: after, Time: moment(afterAt)}
		gone = tko.Errorf(tko.ErrGone, "the state of deployment %q as of position %d is no longer retained: its oldest position is %d%s",
			key.ID, p.position, own.Position, timeOf(own))
	}
	r, ok := then[key.ID]
	if !ok {
		return record.Record{}, gone
	}
	deletedAt, last := int64(0), int64(0)
	if err := p.store.run(ctx, Statement{
		SQL: "SELECT c.position, c.revision FROM change c WHERE c.kind = 'deployment' AND c.id = $1 AND c.uid = $2 AND c.op = 'deleted' " +
			"AND c.op <> 'status' AND c.departed <> 0 ORDER BY c.position DESC LIMIT 1",
		Args: []any{key.ID, r.UID},
		Scan: func(from Row) error { return from.Scan(&deletedAt, &last) },
	}); err != nil {
		return record.Record{}, err
	}
	switch {
	case deletedAt != 0 && deletedAt <= p.position:
		return record.Record{}, nil
	case deletedAt == 0 && now[0].UID != r.UID,
		next != r.Revision+1 && (deletedAt == 0 || last != r.Revision) && (deletedAt != 0 || now[0].Revision != r.Revision):
		return record.Record{}, gone
	}
	if now[0].UID == r.UID {
		r.Conditions = slices.DeleteFunc(slices.Clone(now[0].Conditions), func(c tko.Condition) bool {
			return c.ObservedRevision > r.Revision || micros(c.LastTransition) > p.at
		})
	}
	records := []record.Record{r.Record}
	if err := p.complete(ctx, key.Kind, fields, records); err != nil {
		return record.Record{}, err
	}
	// What was read is complete if the revision is still there.
	if then, err = p.revisions(ctx, key.Kind, [][]any{{key.ID}}); err != nil {
		return record.Record{}, err
	}
	if then[key.ID].Revision != r.Revision {
		return record.Record{}, gone
	}
	return cloneRecord(records[0]), nil
}
