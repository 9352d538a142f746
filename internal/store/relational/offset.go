package relational

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// Clients page by growing offsets. To pass over what matches costs time, so the
// store remembers, for the queries that were paged last, which ID is how many
// matches from the beginning. What is remembered is used only if the change log
// says that it still holds: an offset is always exact.

const (
	// maxShapes is how many queries are remembered.
	maxShapes = 64
	// maxMarks is how many marks of each.
	maxMarks = 2000
	// markDistance is how many matches lie between marks that are kept.
	markDistance = 1000
	// maxMissed is how many changes are looked at to keep what is remembered.
	maxMissed = 5000
)

// A mark says that of what matches, n have IDs up to id.
type mark struct {
	n  int
	id string
}

// pages are what is remembered of a query: true at a position of the log.
type pages struct {
	key      string
	position int64
	marks    []mark // in their order
}

// offsets are the pages of queries.
type offsets struct {
	mutex sync.Mutex
	pages []*pages // used last, first
}

// get answers a copy of the pages of a query, or nil.
func (o *offsets) get(key string) *pages {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	i := slices.IndexFunc(o.pages, func(p *pages) bool { return p.key == key })
	if i < 0 {
		return nil
	}
	p := o.pages[i]
	copy(o.pages[1:i+1], o.pages[:i])
	o.pages[0] = p
	return p.clone()
}

// put keeps a copy of the pages of a query, unless newer ones are there.
func (o *offsets) put(p *pages) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	i := slices.IndexFunc(o.pages, func(other *pages) bool { return other.key == p.key })
	switch {
	case i < 0:
		o.pages = slices.Insert(o.pages, 0, p.clone())
		o.pages = o.pages[:min(len(o.pages), maxShapes)]
	case o.pages[i].position <= p.position:
		o.pages[i] = p.clone()
	}
}

func (p *pages) clone() *pages { return &pages{p.key, p.position, slices.Clone(p.marks)} }

// best is the last mark up to an offset; zero if there is none.
func (p *pages) best(offset int) mark {
	i := sort.Search(len(p.marks), func(i int) bool { return p.marks[i].n > offset })
	if i == 0 {
		return mark{}
	}
	return p.marks[i-1]
}

// add adds a mark, and drops the one before it if it is of little use.
func (p *pages) add(m mark) {
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

// keyOf is what queries that select the same have in common.
func keyOf(q *catalog.Query) string {
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
	for _, flag := range []*bool{q.Prepared, q.Approved} {
		if flag == nil {
			b.WriteString(" -")
			continue
		}
		fmt.Fprintf(&b, " %t", *flag)
	}
	fmt.Fprintf(&b, " %t", q.CRDs)
	return b.String()
}

// pages answers what is known of the pages of the query, as far as it is true
// in the list's snapshot.
func (l *lister) pages(ctx context.Context) (*pages, error) {
	now := &pages{key: keyOf(&l.query)}
	var gone int64
	err := l.turn.run(ctx, Statement{
		SQL:  "SELECT position, gone FROM head WHERE one = 1",
		Scan: func(from Row) error { return from.Scan(&now.position, &gone) },
	})
	if err != nil {
		return nil, err
	}
	known := l.store.offsets.get(now.key)
	if known == nil || known.position > now.position || known.position < gone {
		return now, nil
	}
	if known.position < now.position {
		holds, err := l.holds(ctx, known, now.position)
		if err != nil {
			return nil, err
		}
		known.marks = known.marks[:holds]
	}
	now.marks = known.marks
	return now, nil
}

// holds answers how many of the marks still hold at a position.
func (l *lister) holds(ctx context.Context, known *pages, position int64) (count int, err error) {
	missed, count := 0, len(known.marks)
	q := &l.query
	everything := len(q.IDs) == 0 && q.Parent == "" && len(q.Templates)+len(q.Sites)+len(q.Metadata)+len(q.TemplateMetadata)+len(q.SiteMetadata) == 0 &&
		q.Prepared == nil && q.Approved == nil && !q.CRDs
	err = l.turn.run(ctx, Statement{
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
			case tko.Kind(kind) == tko.KindTemplate && len(q.TemplateMetadata) > 0, tko.Kind(kind) == tko.KindSite && len(q.SiteMetadata) > 0:
				count = 0
			case tko.Kind(kind) != q.Kind, everything && tko.Op(op) == tko.OpWritten && created == 0: // neither comes nor goes
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

// start brings the walk to where the query's offset is, and answers the pages
// of the query, if they are of use. The walk is nil if that is behind the end.
func (l *lister) start(ctx context.Context) (known *pages, err error) {
	w := l.walk
	if l.skip == 0 {
		return nil, nil //nolint:nilnil // none are of use
	}
	if l.query.After == "" {
		if known, err = l.pages(ctx); err != nil {
			return nil, err
		}
		if m := known.best(l.skip); m.n > 0 {
			w.after = bound{id: m.id, set: true}
			l.skip -= m.n
		}
	}
	if w.rest != nil || l.skip == 0 {
		return known, nil
	}
	ok, err := w.skip(ctx, l.skip)
	if l.skip = 0; err != nil || !ok {
		l.walk = nil
		return nil, err
	}
	if known != nil {
		known.add(mark{int(l.query.Offset), w.after.id})
		l.store.offsets.put(known)
	}
	return known, nil
}
