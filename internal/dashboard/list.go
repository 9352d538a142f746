package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Limits of a list.
const (
	windowRows = 5 * pageRows // rows that are held, apart from the page that was read last
	maxSearch  = 10           // pages without rows that are read before the user moves on
)

// A list is the window of loaded pages of one kind, with its cursor and marks.
type list struct {
	kind   tko.Kind
	query  query
	pages  []page
	before []string // the starts of the pages before the window
	rows   []row    // of all pages

	cursor, top int
	sort        int      // the column that orders the rows; 0: their IDs
	sorted      bool     // the user has chosen it
	keys        []string // of metadata, in columns
	marks       map[string]bool
	all         bool // all that match are selected

	generation int // of the query
	loaded     bool
	loading    bool
	jumping    bool // to the end of the list
	resting    bool // a page with a state was read again, which is expensive: not before the next tick
	searched   int  // pages without rows that were read since the user has moved
	err        error
	tally      tally
	tallied    bool // tally was read
	counted    bool // tally was requested
	recount    bool // something has changed since then
	countedAt  time.Time
}

func newList(kind tko.Kind) *list {
	q, _ := parseQuery(kind, "")
	return &list{kind: kind, query: q, marks: map[string]bool{}}
}

// Where a page belongs in the window.
type where int

const (
	atStart where = iota // the window begins with it
	atEnd
	atFront
	again  // it replaces the page with the same start
	atLast // the window is this page: the end of the list
)

// A fetch is a request for a page.
type fetch struct {
	where where
	after string
	until string
}

// reset shows another query. The rows of the old one stay until the first page comes.
func (l *list) reset(q query) {
	l.query, l.generation, l.loaded, l.loading, l.err, l.counted, l.tallied, l.searched = q, l.generation+1, false, false, nil, false, false, 0
	l.all, l.marks, l.jumping = false, map[string]bool{}, false
}

// want returns the next page to read for a view of the given height.
func (l *list) want(height int) (fetch, bool) {
	switch {
	case l.loading || l.err != nil:
		return fetch{}, false
	case !l.loaded:
		return fetch{where: atStart}, true
	case l.jumping:
		return fetch{atLast, l.pages[len(l.pages)-1].next, ""}, true
	}
	begin := 0
	for _, p := range l.pages {
		end := begin + len(p.rows)
		if p.stale && !l.resting && begin <= l.top+height && end >= l.top {
			return fetch{again, p.after, p.next}, true
		}
		begin = end
	}
	if last := l.pages[len(l.pages)-1]; last.next != "" && l.cursor+height >= len(l.rows) && l.searched < maxSearch {
		return fetch{atEnd, last.next, ""}, true
	}
	if len(l.before) > 0 && l.cursor < height {
		return fetch{atFront, l.before[len(l.before)-1], l.pages[0].after}, true
	}
	return fetch{}, false
}

// put adds a page that was read to the window.
// starts are the IDs after which pages between the fetch and this page begin.
func (l *list) put(f fetch, p page, starts []string, height int) {
	id, line := l.selected(), l.cursor-l.top
	switch f.where {
	case atStart:
		l.loaded = true
		if len(l.before) > 0 {
			id = ""
		}
		l.pages, l.before = []page{p}, nil
	case atEnd:
		l.pages = append(l.pages, p)
		l.searched++
		if len(p.rows) > 0 {
			l.searched = 0
		}
		for l.size()-len(l.pages[0].rows) >= windowRows {
			l.before = append(l.before, l.pages[0].after)
			l.pages = l.pages[1:]
		}
	case atLast:
		for _, old := range l.pages {
			l.before = append(l.before, old.after)
		}
		l.before, l.jumping = append(l.before, starts...), false
		l.pages = []page{p}
	case atFront:
		l.before = append(l.before[:len(l.before)-1], starts...)
		if p.next != f.until { // very many are new before the window
			l.pages = nil
		}
		l.pages = append([]page{p}, l.pages...)
		for n := len(l.pages) - 1; n > 0 && l.size()-len(l.pages[n].rows) >= windowRows; n-- {
			l.pages = l.pages[:n]
		}
	case again:
		i := slices.IndexFunc(l.pages, func(old page) bool { return old.after == f.after })
		if i < 0 {
			return
		}
		if p.next != f.until {
			l.pages = l.pages[:i+1]
		}
		l.pages[i] = p
		l.resting = l.query.state != "" || l.query.reason != ""
	}
	l.arrange()
	if l.restore(id, line, height); f.where == atLast {
		l.move(len(l.rows), height)
	}
}

// canJump reports whether the end of the list is not in the window, and can be found
// without reading all rows.
func (l *list) canJump() bool {
	return l.loaded && l.pages[len(l.pages)-1].next != "" && l.query.state == "" && l.query.reason == "" && l.kind != tko.KindPlugin
}

func (l *list) size() int {
	n := 0
	for _, p := range l.pages {
		n += len(p.rows)
	}
	return n
}

// arrange makes the rows from the pages.
func (l *list) arrange() {
	l.rows = nil
	for _, p := range l.pages {
		l.rows = append(l.rows, p.rows...)
	}
	if l.sorted && !l.complete() {
		l.sort, l.sorted = 0, false
	}
	if column := l.order() - 1; column >= 0 {
		by := l.columns()[column]
		slices.SortStableFunc(l.rows, func(a, b row) int { return compareCells(a, b, by) })
	}
}

// order returns the column that orders the rows: without a choice of the user the state, so
// that failing rows come first, if all rows are there.
func (l *list) order() int {
	if !l.sorted && l.kind != tko.KindTemplate && l.complete() {
		return 1
	}
	return l.sort
}

// compareCells compares by a column.
func compareCells(a, b row, by tableColumn) int {
	x, y := a.metadata[by.key], b.metadata[by.key]
	switch by.cell {
	case cellState:
		rank := func(r row) int { return slices.Index(tko.States(), r.summary.State) }
		return cmp.Compare(rank(a), rank(b))
	case cellChanged:
		return b.changed.Compare(a.changed)
	case cellMetadata:
	default:
		x, y = a.cells[by.cell], b.cells[by.cell]
	}
	return cmp.Or(cmp.Compare(len(digits(x)), len(digits(y))), strings.Compare(x, y))
}

// digits returns a text that is a number, so that longer numbers are greater.
func digits(text string) string {
	if strings.Trim(text, "0123456789") == "" {
		return text
	}
	return ""
}

// complete reports whether all rows of the list are in the window.
func (l *list) complete() bool {
	return l.loaded && len(l.before) == 0 && l.pages[len(l.pages)-1].next == ""
}

func (l *list) selected() string {
	if l.cursor < len(l.rows) {
		return l.rows[l.cursor].id
	}
	return ""
}

// restore puts the cursor on the row that it was on, on the same line of the view.
func (l *list) restore(id string, line, height int) {
	if i := slices.IndexFunc(l.rows, func(r row) bool { return r.id == id }); i >= 0 {
		l.cursor = i
		l.top = l.cursor - line
	} else if id == "" {
		l.cursor, l.top = 0, 0
	}
	l.move(0, height)
}

// move moves the cursor, and the view with it.
func (l *list) move(by, height int) {
	l.cursor = max(0, min(l.cursor+by, len(l.rows)-1))
	l.top = max(0, min(l.top, l.cursor, len(l.rows)-1))
	if l.cursor >= l.top+height {
		l.top = l.cursor - height + 1
	}
}

// change notes that an entity has changed.
func (l *list) change(id string) {
	for i := range l.pages {
		if l.pages[i].covers(id) {
			l.pages[i].stale = true
		}
	}
}

// chosen returns the IDs that an action is for: the marked ones, or that under the cursor.
func (l *list) chosen() []string {
	if len(l.marks) == 0 {
		if id := l.selected(); id != "" {
			return []string{id}
		}
		return nil
	}
	ids := make([]string, 0, len(l.marks))
	for id := range l.marks {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
