package relational

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Clients page by growing offsets. Skipping rows costs time, so the store caches, for
// the most recent paged queries, the IDs at some offsets. A cached mark is used only
// if the change log shows that it is still valid: an offset is always exact.

const (
	// maxQueries is the number of cached queries.
	maxQueries = 64
	// maxMarks is the number of cached marks of each query.
	maxMarks = 2000
	// markDistance is the number of matches between two marks.
	markDistance = 1000
	// maxMissed is the number of changes that are read to validate marks.
	maxMissed = 5000
)

// A mark records that n matches have IDs up to id.
type mark struct {
	n  int
	id string
}

// offsetMarks are the marks of a query, valid at a position of the log.
type offsetMarks struct {
	key      string
	position int64
	marks    []mark // by ascending n
}

// An offsetCache caches the marks of queries. It is safe for concurrent use.
type offsetCache struct {
	mutex   sync.Mutex
	queries []*offsetMarks // most recently used first
}

// get returns a copy of the marks of a query, or nil.
func (o *offsetCache) get(key string) *offsetMarks {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	i := slices.IndexFunc(o.queries, func(p *offsetMarks) bool { return p.key == key })
	if i < 0 {
		return nil
	}
	p := o.queries[i]
	copy(o.queries[1:i+1], o.queries[:i])
	o.queries[0] = p
	return p.clone()
}

// put stores a copy of the marks of a query, unless newer ones are cached.
func (o *offsetCache) put(p *offsetMarks) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	i := slices.IndexFunc(o.queries, func(other *offsetMarks) bool { return other.key == p.key })
	switch {
	case i < 0:
		o.queries = slices.Insert(o.queries, 0, p.clone())
		o.queries = o.queries[:min(len(o.queries), maxQueries)]
	case o.queries[i].position <= p.position:
		o.queries[i] = p.clone()
	}
}

func (p *offsetMarks) clone() *offsetMarks {
	return &offsetMarks{p.key, p.position, slices.Clone(p.marks)}
}

// best returns the last mark up to an offset; zero if there is none.
func (p *offsetMarks) best(offset int) mark {
	i := sort.Search(len(p.marks), func(i int) bool { return p.marks[i].n > offset })
	if i == 0 {
		return mark{}
	}
	return p.marks[i-1]
}

// add adds a mark, and removes the one before it if both are close.
func (p *offsetMarks) add(m mark) {
	i := sort.Search(len(p.marks), func(i int) bool { return p.marks[i].n >= m.n })
	if i < len(p.marks) && p.marks[i].n == m.n {
		return
	}
	p.marks = slices.Insert(p.marks, i, m)
	if i >= 2 && m.n-p.marks[i-2].n <= markDistance {
		p.marks = slices.Delete(p.marks, i-1, i)
	}
	if len(p.marks) > maxMarks {
		p.marks = slices.Delete(p.marks, 0, 1)
	}
}

// queryKey returns a text that is equal for queries that select the same records.
func queryKey(q *record.Query) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q", q.Kind, q.Parent)
	for _, list := range [][]tko.Pattern{q.IDs, q.Templates, q.Sites} {
		b.WriteString(" |")
		for _, p := range list {
			fmt.Fprintf(&b, " %q", p.String())
		}
	}
	for _, m := range []map[string]tko.Pattern{q.Metadata, q.TemplateMetadata, q.SiteMetadata} {
		texts := []string{}
		for key, p := range m {
			texts = append(texts, fmt.Sprintf(" %q=%q", key, p.String()))
		}
		slices.Sort(texts)
		b.WriteString(" |" + strings.Join(texts, ""))
	}
	for _, column := range slices.Sorted(maps.Keys(q.Is)) {
		fmt.Fprintf(&b, " %s %t", column, q.Is[column])
	}
	for _, column := range slices.Sorted(maps.Keys(q.Since)) {
		fmt.Fprintf(&b, " %s since %d", column, q.Since[column].UnixNano())
	}
	fmt.Fprintf(&b, " crds %t", q.CRDs)
	if q.Outdated != nil {
		fmt.Fprintf(&b, " outdated %t", *q.Outdated)
	}
	for _, key := range slices.Sorted(maps.Keys(q.Labels)) {
		fmt.Fprintf(&b, " label %q=%q", key, q.Labels[key].String())
	}
	fmt.Fprintf(&b, " %q %q", q.Origin, q.Scope.Key())
	return b.String()
}

// selectsAll reports whether a query selects all records of its kind.
func selectsAll(q *record.Query) bool {
	return queryKey(q) == queryKey(&record.Query{Kind: q.Kind, Scope: q.Scope}) && q.Scope.Of(q.Kind).IsAll()
}

// loadMarks returns the marks of the query that are valid in the list's snapshot.
func (l *lister) loadMarks(ctx context.Context) (*offsetMarks, error) {
	now := &offsetMarks{key: queryKey(&l.query)}
	var gone int64
	err := l.lease.run(ctx, Statement{
		SQL:  "SELECT position, gone FROM head WHERE one = 1",
		Scan: func(from Row) error { return from.Scan(&now.position, &gone) },
	})
	if err != nil {
		return nil, err
	}
	known := l.store.offsetCache.get(now.key)
	if known == nil || known.position > now.position || known.position < gone {
		return now, nil
	}
	if known.position < now.position {
		holds, err := l.validMarks(ctx, known, now.position)
		if err != nil {
			return nil, err
		}
		known.marks = known.marks[:holds]
	}
	now.marks = known.marks
	return now, nil
}

// validMarks returns how many of the marks are still valid at a position.
func (l *lister) validMarks(ctx context.Context, known *offsetMarks, position int64) (count int, err error) {
	missed, count := 0, len(known.marks)
	q := &l.query
	everything := selectsAll(q)
	err = l.lease.run(ctx, Statement{
		SQL: "SELECT c.kind, c.id, c.op, CASE WHEN c.created = c.updated THEN 1 ELSE 0 END FROM change c " +
			"WHERE c.position > $1 AND c.position <= $2 ORDER BY c.position LIMIT $3",
		Args: []any{known.position, position, int64(maxMissed + 1)},
		Scan: func(from Row) error {
			var kind, id, op string
			var created int
			if err := from.Scan(&kind, &id, &op, &created); err != nil {
				return err
			}
			missed++
			switch {
			case tko.Op(op) == tko.OpStatus:
			case tko.Kind(kind) == tko.KindTemplate && (len(q.TemplateMetadata) > 0 || q.Outdated != nil), tko.Kind(kind) == tko.KindSite && len(q.SiteMetadata) > 0:
				count = 0
			case tko.Kind(kind) != q.Kind, everything && tko.Op(op) == tko.OpWritten && created == 0: // the set of matches is unchanged
			default:
				count = sort.Search(count, func(i int) bool { return known.marks[i].id >= id })
			}
			return nil
		},
	})
	if missed > maxMissed {
		count = 0
	}
	return count, err
}

// seekOffset moves the cursor to the query's offset, and returns the marks of the
// query, or nil if they are of no use. It sets the cursor to nil if the offset is
// behind the last match.
func (l *lister) seekOffset(ctx context.Context) (known *offsetMarks, err error) {
	c := l.cursor
	if l.skip == 0 {
		return nil, nil //nolint:nilnil // marks are of no use
	}
	if l.query.After == "" && len(l.query.Conditions) == 0 { // marks don't follow changes of conditions
		if known, err = l.loadMarks(ctx); err != nil {
			return nil, err
		}
		if m := known.best(l.skip); m.n > 0 {
			c.Seek(m.id)
			l.skip -= m.n
		}
	}
	if c.HasResidual() || l.skip == 0 {
		return known, nil
	}
	ok, err := c.Skip(ctx, l.skip)
	l.skip = 0
	if err != nil || !ok {
		l.cursor = nil
		return nil, err
	}
	if known != nil {
		known.add(mark{int(l.query.Offset), c.Passed()})
		l.store.offsetCache.put(known)
	}
	return known, nil
}
