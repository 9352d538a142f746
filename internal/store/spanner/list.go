package spanner

import (
	"context"
	"errors"
	"iter"
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
		if q.AsOf != 0 {
			yield(record.Record{}, &UnsupportedError{What: "lists of the past"})
			return
		}
		if err := checkPatterns(&q); err != nil {
			yield(record.Record{}, err)
			return
		}
		if err := s.list(ctx, &q, func(r record.Record) bool { return yield(r, nil) }); err != nil {
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
}

// flush returns the rows. Its error is errEnough if the caller takes no more.
func (p *page) flush(ctx context.Context) error {
	q := p.query
	if err := addDeployments(ctx, p.from, q.Scope.Of(tko.KindDeployment), q.Fields, p.rows); err != nil {
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

func (s *Store) list(ctx context.Context, q *record.Query, yield func(record.Record) bool) error {
	if q.Limit == 0 {
		return ctx.Err()
	}
	if !record.Storable(q.After) || !storable(record.Key{Kind: q.Kind}) {
		return tko.Errorf(tko.ErrInvalid, "the list can't begin after %.60q: it isn't an ID", q.After)
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	related, err := readRelated(ctx, snapshot, q)
	if err != nil {
		return err
	}
	p := &page{store: s, from: snapshot, query: q, yield: yield}
	skip, left := q.Offset, q.Limit
	err = scan(ctx, snapshot, q, func(r *record.Record) error {
		switch {
		case !q.Matches(*r) || !related.match(r):
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
// those that refer to a record, or all of a kind.
func scan(ctx context.Context, from *spanner.ReadOnlyTransaction, q *record.Query, found func(*record.Record) error) error {
	if key, ok := only(q); ok {
		return scanOne(ctx, from, q, key, found)
	}
	statement := spanner.Statement{
		SQL: "SELECT e.kind, e.id, e.revision, e.committed, e.slot, e.n, e.created, e.updated, e.doc " +
			"FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s JOIN entity AS e ON e.shard = s WHERE e.kind = @kind AND e.id > @after ORDER BY e.id",
		Params: map[string]any{"kind": string(q.Kind), "after": q.After},
	}
	if role, target := referenceOf(q); role != "" {
		statement.SQL = "SELECT e.kind, e.id, e.revision, e.committed, e.slot, e.n, e.created, e.updated, e.doc " +
			"FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s JOIN reference AS r ON r.shard = s JOIN entity AS e ON e.shard = r.shard AND e.kind = r.kind AND e.id = r.id " +
			"WHERE r.role = @role AND r.target = @target AND r.kind = @kind AND r.id > @after ORDER BY e.id"
		statement.Params["role"], statement.Params["target"] = role, target
	}
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

// referenceOf returns the reference that all matches of a query have; "" if there is none.
func referenceOf(q *record.Query) (role, target string) {
	if q.Parent != "" {
		return asParent, q.Parent
	}
	for _, p := range q.Sites {
		if p.Exact() && p.Prefix() != "" {
			return asSite, p.Prefix()
		}
	}
	for _, p := range q.Templates {
		if p.Exact() && p.Prefix() != "" {
			return asTemplate, p.Prefix()
		}
	}
	return "", ""
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
