package spanner

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// pageOfList is the number of records of a list whose packages and deployments are read together.
const pageOfList = 64

// errEnough ends a read.
var errEnough = errors.New("enough")

// List returns the records that match a query, all from one snapshot: the database sorts, and sends rows
// as the caller takes them. A lost connection continues after its last row.
func (s *Store) List(ctx context.Context, q record.Query) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		if err := checkPatterns(&q); err != nil {
			yield(record.Record{}, err)
			return
		}
		list := s.list
		if q.AsOf != 0 {
			list = s.listAt
		}
		if err := checkAfter(&q); err != nil {
			yield(record.Record{}, err)
			return
		}
		if err := list(ctx, &q, func(r record.Record) bool { return yield(r, nil) }); err != nil {
			yield(record.Record{}, err)
		}
	}
}

// A page is rows of a list that are read and not yet returned.
type page struct {
	store   *Store
	from    *spanner.ReadOnlyTransaction
	query   *record.Query
	rows    []record.Record
	yield   func(record.Record) bool
	stopped bool // by the caller
	// complete adds the deployments of rows, or their numbers.
	complete func(ctx context.Context, rows []record.Record) error
}

// flush returns the rows. Its error is errEnough if the caller takes no more.
func (p *page) flush(ctx context.Context) error {
	q := p.query
	if err := p.complete(ctx, p.rows); err != nil {
		return err
	}
	if q.Fields.Package {
		if err := p.store.addPackages(ctx, p.from, p.rows); err != nil {
			return err
		}
	}
	for _, r := range p.rows {
		p.stopped = !p.yield(r)
		if p.stopped {
			return errEnough
		}
	}
	p.rows = p.rows[:0]
	return nil
}

// checkAfter refuses an ID after which no list can begin.
func checkAfter(q *record.Query) error {
	if !record.Storable(q.After) || !storable(record.Key{Kind: q.Kind}) {
		return tko.Errorf(tko.ErrInvalid, "the list can't begin after %.60q: it isn't an ID", q.After)
	}
	return nil
}

func (s *Store) list(ctx context.Context, q *record.Query, yield func(record.Record) bool) error {
	if q.Limit == 0 {
		return ctx.Err()
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	related, err := readRelated(ctx, snapshot, q)
	if err != nil {
		return err
	}
	p := &page{store: s, from: snapshot, query: q, yield: yield, complete: func(ctx context.Context, rows []record.Record) error {
		return addDeployments(ctx, snapshot, q.Scope.Of(tko.KindDeployment), q.Fields, rows)
	}}
	return p.list(ctx, func(found func(*record.Record, bool) error) error {
		return scan(ctx, snapshot, q, func(r *record.Record) error { return found(r, q.Matches(*r) && related.match(r)) })
	})
}

// list returns the window of the query: scan calls its argument with records in their order, and whether each matches.
func (p *page) list(ctx context.Context, scan func(found func(r *record.Record, matches bool) error) error) error {
	skip, left := p.query.Offset, p.query.Limit
	err := scan(func(r *record.Record, matches bool) error {
		switch {
		case !matches:
			return nil
		case skip > 0:
			skip--
			return nil
		}
		p.rows = append(p.rows, *r)
		left--
		if left == 0 {
			return errEnough
		}
		if len(p.rows) >= pageOfList {
			return p.flush(ctx)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return fault("list", err)
	}
	if p.stopped {
		return nil
	}
	if err := p.flush(ctx); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// scan calls found with records that include all that match a query, in the order of IDs: that of an origin or ID,
// those of an access path, or all of a kind.
func scan(ctx context.Context, from *spanner.ReadOnlyTransaction, q *record.Query, found func(*record.Record) error) error {
	if key, ok := only(q); ok {
		return scanOne(ctx, from, q, key, found)
	}
	path, err := pathOf(ctx, from, q)
	if err != nil {
		return err
	}
	const columns = "SELECT e.kind, e.id, e.revision, e.committed, e.slot, e.n, e.created, e.updated, e.doc FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s "
	statement := spanner.Statement{SQL: columns + "JOIN entity AS e ON e.shard = s WHERE e.kind = @kind", Params: map[string]any{}}
	if path != nil {
		statement.SQL = columns + path.from + " JOIN entity AS e ON e.shard = p.shard AND e.kind = p.kind AND e.id = p.id WHERE " + path.where
		maps.Copy(statement.Params, path.parameters)
	}
	statement.SQL += " AND e.id > @after AND STARTS_WITH(e.id, @beginning) ORDER BY e.id"
	statement.Params["kind"], statement.Params["after"], statement.Params["beginning"] = string(q.Kind), q.After, beginningOfIDs(q)
	return from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		r, err := scanRow(row)
		if err != nil {
			return err
		}
		return found(r)
	})
}

// only returns the ID that alone can match a query: "" if it is known by its origin.
func only(q *record.Query) (id string, ok bool) {
	if q.Origin != "" {
		return "", true
	}
	for _, p := range q.IDs {
		if p.Exact() {
			return p.Prefix(), true
		}
	}
	return "", false
}

func scanOne(ctx context.Context, from reader, q *record.Query, id string, found func(*record.Record) error) error {
	if id == "" && q.Origin != "" {
		o := origin{q.Kind, q.Origin}
		ids, err := readOrigins(ctx, from, []origin{o})
		if err != nil {
			return err
		}
		id = ids[o]
	}
	key := record.Key{Kind: q.Kind, ID: id}
	records, err := readRecords(ctx, from, []record.Key{key})
	if err != nil || records[key] == nil {
		return err
	}
	return found(records[key])
}

// A reference is a role and the ID of another record.
type reference struct{ role, target string }

// referencesOf returns the references that all matches of a query have.
func referencesOf(q *record.Query) (list []reference) {
	if q.Parent != "" {
		list = append(list, reference{asParent, q.Parent})
	}
	for role, patterns := range map[string][]tko.Pattern{asSite: q.Sites, asTemplate: q.Templates} {
		for _, p := range patterns {
			if p.Exact() && p.Prefix() != "" {
				list = append(list, reference{role, p.Prefix()})
			}
		}
	}
	return list
}

// beginningOfIDs returns the longest beginning that the IDs of all matches have.
func beginningOfIDs(q *record.Query) (longest string) {
	for _, p := range q.IDs {
		if len(p.Prefix()) > len(longest) {
			longest = p.Prefix()
		}
	}
	return longest
}

// checkPatterns refuses patterns that the database can't store, as other stores do.
func checkPatterns(q *record.Query) error {
	check := func(p tko.Pattern) error {
		if !record.Storable(p.String()) {
			return tko.Errorf(tko.ErrInvalid, "the pattern %.60q has a NUL character, which can't be stored: remove it", p.String())
		}
		return nil
	}
	for _, list := range [][]tko.Pattern{q.IDs, q.Templates, q.Sites} {
		for _, p := range list {
			if err := check(p); err != nil {
				return err
			}
		}
	}
	for _, m := range []map[string]tko.Pattern{q.Metadata, q.Labels, q.TemplateMetadata, q.SiteMetadata} {
		for _, p := range m {
			if err := check(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// A related is what a query asks about the templates and sites of records: those that match, within the scope.
type related struct {
	query            *record.Query
	templates, sites map[string]version
}

type version struct {
	revision int64
	updated  time.Time
}

func readRelated(ctx context.Context, from *spanner.ReadOnlyTransaction, q *record.Query) (r related, err error) {
	r.query = q
	if len(q.TemplateMetadata) > 0 || q.Outdated != nil {
		if r.templates, err = readVersions(ctx, from, tko.KindTemplate, q, q.TemplateMetadata); err != nil {
			return r, err
		}
	}
	if len(q.SiteMetadata) > 0 {
		r.sites, err = readVersions(ctx, from, tko.KindSite, q, q.SiteMetadata)
	}
	return r, err
}

func readVersions(ctx context.Context, from *spanner.ReadOnlyTransaction, kind tko.Kind, of *record.Query, metadata map[string]tko.Pattern) (map[string]version, error) {
	q := &record.Query{Kind: kind, Scope: of.Scope, Metadata: metadata}
	found := map[string]version{}
	err := scan(ctx, from, q, func(r *record.Record) error {
		if q.Matches(*r) {
			found[r.ID] = version{r.Revision, r.Updated}
		}
		return nil
	})
	return found, fault("read the "+string(kind)+"s of a list", err)
}

// match reports whether the template and the site of a record are as the query wants them.
func (r *related) match(of *record.Record) bool {
	q := r.query
	if len(q.Templates) > 0 && of.Template == "" || len(q.Sites) > 0 && of.Site == "" {
		return false // no pattern matches a reference that isn't there
	}
	template, known := r.templates[of.Template]
	if len(q.TemplateMetadata) > 0 && !known {
		return false
	}
	if _, known := r.sites[of.Site]; len(q.SiteMetadata) > 0 && !known {
		return false
	}
	if q.Outdated == nil {
		return true
	}
	if !known && !q.Scope.Of(tko.KindTemplate).IsAll() {
		return false
	}
	outdated := known && (of.Base == 0 && template.updated.After(of.Created) || of.Base != 0 && template.revision > of.Base)
	return outdated == *q.Outdated
}
