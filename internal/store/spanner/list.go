package spanner

import (
	"context"
	"errors"
	"iter"
	"maps"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A list is read in pages, which grow from firstPage records to mostPage. Between two pages it holds nothing: the next one is read at the
// timestamp of the first. So lists that aren't read don't block others, and the database needs not sort what is never read.
const (
	firstPage = 64
	mostPage  = 2048
	// candidates is the maximum number of records of which a page is made, relative to its own.
	candidates = 4
)

// errEnough ends a read.
var errEnough = errors.New("enough")

// List returns the records that match a query, all as of one timestamp.
func (s *Store) List(ctx context.Context, q record.Query) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		if err := errors.Join(checkPatterns(&q), checkAfter(&q)); err != nil {
			yield(record.Record{}, err)
			return
		}
		if q.Limit == 0 {
			if err := ctx.Err(); err != nil {
				yield(record.Record{}, err)
			}
			return
		}
		l := &lister{store: s, query: q, skip: q.Offset, left: q.Limit}
		for size := firstPage; ; size = min(4*size, mostPage) {
			rows, more, err := l.page(ctx, size)
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			for _, r := range rows {
				if !yield(r, nil) {
					return
				}
			}
			if !more {
				return
			}
		}
	}
}

// A lister reads a list.
type lister struct {
	store   *Store
	query   record.Query // After is the ID of the last record that was read
	at      time.Time    // of the first page; zero: not read yet
	skip    uint32
	left    int      // negative: no limit
	related *related // of the first page
}

// A source is what a page is read from: the records as they are, or as they were.
type source interface {
	// scan calls found with records in the order of IDs that include all that match a query, and whether they do: at most a number of
	// those as they are. next is the ID after which there may be others; "" if there are none.
	scan(ctx context.Context, q *record.Query, most int, found func(r *record.Record, matches bool) error) (next string, err error)
	// complete adds the deployments of records, or their numbers.
	complete(ctx context.Context, q *record.Query, rows []record.Record) error
}

// page returns the next records of the list, and whether there may be more.
func (l *lister) page(ctx context.Context, size int) (rows []record.Record, more bool, err error) {
	snapshot := l.store.client.ReadOnlyTransaction()
	defer snapshot.Close()
	if !l.at.IsZero() {
		snapshot.WithTimestampBound(spanner.ReadTimestamp(l.at))
	}
	from, err := l.open(ctx, snapshot)
	if err != nil {
		return nil, false, err
	}
	q := l.query
	last := ""
	next, err := from.scan(ctx, &q, candidates*size, func(r *record.Record, matches bool) error {
		last = r.ID
		switch {
		case !matches:
			return nil
		case l.skip > 0:
			l.skip--
			return nil
		}
		rows = append(rows, *r)
		l.left--
		if l.left == 0 || len(rows) == size {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		next, err = last, nil
	}
	more = next != "" && l.left != 0
	l.query.After = next
	if err == nil {
		err = from.complete(ctx, &q, rows)
	}
	if err == nil && q.Fields.Package {
		err = l.store.addPackages(ctx, snapshot, rows)
	}
	if err == nil && more && l.at.IsZero() {
		l.at, err = snapshot.Timestamp()
	}
	if spanner.ErrCode(err) == codes.FailedPrecondition && !l.at.IsZero() { // the database no longer has the versions of that time
		err = tko.Errorf(tko.ErrBusy, "the list of %ss was not read in time: list again after %q: %w", q.Kind, q.After, err)
	}
	if isOfDatabase(err) {
		err = fault("list", err)
	}
	return rows, more, err
}

// open returns the source of the list in a snapshot.
func (l *lister) open(ctx context.Context, snapshot *spanner.ReadOnlyTransaction) (source, error) {
	if l.query.AsOf != 0 {
		return l.openPast(ctx, snapshot)
	}
	if l.related == nil {
		related, err := readRelated(ctx, snapshot, &l.query)
		if err != nil {
			return nil, err
		}
		l.related = &related
	}
	return &present{snapshot, l.related}, nil
}

// A present is the records as they are.
type present struct {
	from    *spanner.ReadOnlyTransaction
	related *related
}

func (p *present) scan(ctx context.Context, q *record.Query, most int, found func(r *record.Record, matches bool) error) (next string, err error) {
	return scan(ctx, p.from, q, most, func(r *record.Record) error { return found(r, q.Matches(*r) && p.related.match(r)) })
}

func (p *present) complete(ctx context.Context, q *record.Query, rows []record.Record) error {
	return addDeployments(ctx, p.from, q.Scope.Of(tko.KindDeployment), q.Fields, rows)
}

// checkAfter refuses an ID after which no list can begin.
func checkAfter(q *record.Query) error {
	if !record.Storable(q.After) || !storable(record.Key{Kind: q.Kind}) {
		return tko.Errorf(tko.ErrInvalid, "the list can't begin after %.60q: it isn't an ID", q.After)
	}
	return nil
}

// scan calls found with records that include all that match a query, in the order of IDs: that of an origin or ID,
// those of an access path, or all of a kind. It reads at most a number of them, or all if that is 0; next is the ID after which there may
// be others.
func scan(ctx context.Context, from *spanner.ReadOnlyTransaction, q *record.Query, most int, found func(*record.Record) error) (next string, err error) {
	if key, ok := only(q); ok {
		return "", scanOne(ctx, from, q, key, found)
	}
	path, err := pathOf(ctx, from, q)
	if err != nil {
		return "", err
	}
	const columns = "SELECT e.kind, e.id, e.revision, e.committed, e.slot, e.n, e.created, e.updated, e.doc FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s "
	statement := spanner.Statement{SQL: columns + "JOIN entity AS e ON e.shard = s WHERE e.kind = @kind", Params: map[string]any{}}
	if path != nil {
		statement.SQL = columns + path.from + " JOIN entity AS e ON e.shard = p.shard AND e.kind = p.kind AND e.id = p.id WHERE " + path.where
		maps.Copy(statement.Params, path.parameters)
	}
	statement.SQL += " AND e.id > @after AND STARTS_WITH(e.id, @beginning) ORDER BY e.id"
	statement.Params["kind"], statement.Params["after"], statement.Params["beginning"] = string(q.Kind), q.After, beginningOfIDs(q)
	if most > 0 {
		statement.SQL += " LIMIT @most"
		statement.Params["most"] = int64(most)
	}
	n := 0
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		r, err := scanRow(row)
		if err != nil {
			return err
		}
		n++
		if n == most {
			next = r.ID
		}
		return found(r)
	})
	return next, err
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
	_, err := scan(ctx, from, q, 0, func(r *record.Record) error {
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
