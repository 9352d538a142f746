package spanner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

// movedIDs returns the IDs of records of a kind that changed after the position, sorted, from one after another on.
func (p *pastReader) movedIDs(ctx context.Context, kind tko.Kind, after string) *spanner.RowIterator {
	statement := spanner.Statement{
		SQL:    "SELECT DISTINCT c.id " + changesOf + "WHERE " + afterPlace + " AND c.kind = @kind AND c.id > @after ORDER BY c.id",
		Params: placeOf(p.position).parameters(),
	}
	statement.Params["kind"], statement.Params["after"] = string(kind), after
	return p.from.Query(ctx, statement)
}

// A pastOne is a record as of the position, and now; nil if it was deleted.
type pastOne struct{ then, now *record.Record }

// visible reports whether the record is in a scope as it was and as it is, unless it was deleted.
func (s pastOne) visible(scope access.Predicate) bool {
	return scope.Match(record.AttributesOf(*s.then)) && (s.now == nil || scope.Match(record.AttributesOf(*s.now)))
}

// movedBatch is the number of records that changed after the position, and are read together.
const movedBatch = 256

// A movedCursor returns the records that changed after the position in the order of IDs.
type movedCursor struct {
	past *pastReader
	kind tko.Kind
	ids  *spanner.RowIterator
	list []pastOne // read ahead
	end  string    // the ID up to which they are
	done bool
}

// next returns the states of records up to an ID; "" for all.
func (c *movedCursor) next(ctx context.Context, up string) ([]pastOne, error) {
	for !c.done && (up == "" || c.end < up) {
		var keys []record.Key
		for len(keys) < movedBatch {
			row, err := c.ids.Next()
			if errors.Is(err, iterator.Done) {
				c.done = true
				break
			}
			key := record.Key{Kind: c.kind}
			if err == nil {
				err = row.Column(0, &key.ID)
			}
			if err != nil {
				return nil, fault("read what changed since", err)
			}
			keys = append(keys, key)
			c.end = key.ID
		}
		current, err := readRecords(ctx, c.past.from, keys)
		if err != nil {
			return nil, err
		}
		then, err := c.past.records(ctx, keys, current)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if r := then[key]; r != nil {
				c.list = append(c.list, pastOne{r, current[key]})
			}
		}
	}
	n := len(c.list)
	if up != "" {
		n, _ = slices.BinarySearchFunc(c.list, up, func(s pastOne, id string) int { return cmp.Compare(s.then.ID, id) })
	}
	next := c.list[:n]
	c.list = c.list[n:]
	return next, nil
}

// scan calls found with records as of the position that include all that matched a query then, in the order of IDs. Of those that have
// not changed since, it reads at most a number, or all if that is 0; next is the ID after which there may be others.
func (p *pastReader) scan(ctx context.Context, q *record.Query, most int, found func(pastOne) error) (next string, err error) {
	cursor := &movedCursor{past: p, kind: q.Kind, ids: p.movedIDs(ctx, q.Kind, q.After)}
	defer cursor.ids.Stop()
	moved := func(up string) error {
		states, err := cursor.next(ctx, up)
		for _, s := range states {
			if err == nil {
				err = found(s)
			}
		}
		return err
	}
	next, err = scan(ctx, p.from, q, most, func(r *record.Record) error {
		if err := moved(r.ID); err != nil || r.Position > p.position {
			return err // the log has its ID
		}
		return found(pastOne{pastOf(r), r})
	})
	up := ""
	if next != "" { // this one, too, may have changed since
		up = next + "\x00"
	}
	if err == nil {
		err = moved(up)
	}
	return next, err
}

// A pastSource is the records that matched a query as of its position.
type pastSource struct {
	*pastReader

	related *related
}

// openPast returns the source of a list as of a position.
func (l *lister) openPast(ctx context.Context, snapshot *spanner.ReadOnlyTransaction) (source, error) {
	p, err := l.store.pastIn(ctx, snapshot, l.query.AsOf)
	if err != nil {
		return nil, err
	}
	if l.related == nil {
		related, err := p.related(ctx, &l.query)
		if err != nil {
			return nil, err
		}
		l.related = &related
	}
	return &pastSource{pastReader: p, related: l.related}, nil
}

func (p *pastSource) scan(ctx context.Context, q *record.Query, most int, found func(r *record.Record, matches bool) error) (next string, err error) {
	scope := q.Scope.Of(q.Kind)
	return p.pastReader.scan(ctx, q, most, func(state pastOne) error {
		return found(state.then, state.visible(scope) && q.Matches(*state.then) && p.related.match(state.then))
	})
}

func (p *pastSource) complete(ctx context.Context, q *record.Query, rows []record.Record) error {
	fields := q.Fields
	fields.Scope = q.Scope
	return p.addDeployments(ctx, fields, rows)
}

// related returns what a query asks about templates and sites, as of the position.
func (p *pastReader) related(ctx context.Context, q *record.Query) (r related, err error) {
	r.query = q
	read := func(kind tko.Kind, metadata map[string]tko.Pattern) (map[string]version, error) {
		of := &record.Query{Kind: kind, Scope: q.Scope, Metadata: metadata}
		scope := q.Scope.Of(kind)
		found := map[string]version{}
		_, err := p.scan(ctx, of, 0, func(state pastOne) error {
			if state.visible(scope) && of.Matches(*state.then) {
				found[state.then.ID] = version{state.then.Revision, state.then.Updated}
			}
			return nil
		})
		return found, err
	}
	if len(q.TemplateMetadata) > 0 || q.Outdated != nil {
		if r.templates, err = read(tko.KindTemplate, q.TemplateMetadata); err != nil {
			return r, fmt.Errorf("read the templates of a list: %w", err)
		}
	}
	if len(q.SiteMetadata) > 0 {
		if r.sites, err = read(tko.KindSite, q.SiteMetadata); err != nil {
			return r, fmt.Errorf("read the sites of a list: %w", err)
		}
	}
	return r, nil
}

// addDeployments sets the deployments of templates and sites, and their numbers, as of the position: those of now that have not
// changed since, and those that have.
func (p *pastReader) addDeployments(ctx context.Context, fields record.Fields, records []record.Record) error {
	scope := fields.Scope.Of(tko.KindDeployment)
	if !fields.Deployments && !fields.Counts || scope.Empty() {
		return nil
	}
	for role, kind := range map[string]tko.Kind{asTemplate: tko.KindTemplate, asSite: tko.KindSite} {
		owners := map[string]*record.Record{}
		var ids []string
		for i := range records {
			if r := &records[i]; r.Kind == kind && r.Revision != 0 {
				owners[r.ID] = r
				ids = append(ids, r.ID)
			}
		}
		if len(ids) == 0 {
			continue
		}
		add := func(s pastOne) {
			if owner := owners[target(s.then, role)]; owner != nil && s.visible(scope) {
				owner.Count++
				if fields.Deployments {
					owner.Deployments = append(owner.Deployments, s.then.ID)
				}
			}
		}
		var keys []record.Key
		err := readReferrers(ctx, p.from, role, ids, func(_ string, key record.Key) bool {
			if key.Kind == tko.KindDeployment {
				keys = append(keys, key)
			}
			return true
		})
		if err != nil {
			return err
		}
		current, err := readRecords(ctx, p.from, keys)
		if err != nil {
			return err
		}
		for _, r := range current {
			if r.Position <= p.position {
				add(pastOne{r, r})
			}
		}
		cursor := &movedCursor{past: p, kind: tko.KindDeployment, ids: p.movedIDs(ctx, tko.KindDeployment, "")}
		moved, err := cursor.next(ctx, "")
		cursor.ids.Stop()
		if err != nil {
			return err
		}
		for _, s := range moved {
			add(s)
		}
		for _, owner := range owners {
			slices.Sort(owner.Deployments)
		}
	}
	return nil
}
