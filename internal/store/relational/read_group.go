package relational

import (
	"context"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

const (
	// maxReadStatements is the number of statements for single records that run at
	// the same time. Reads that find all of them running wait, and share the next
	// one.
	maxReadStatements = 3
	// maxReadGroup is the number of records that one statement reads.
	maxReadGroup = 64
	// maxGroupWait is the time after which a read that waits for others stops
	// waiting, and runs a statement of its own.
	maxGroupWait = time.Second
)

// A readGroup reads single records for concurrent callers together. A statement
// begins after all its callers have called, so each of them sees everything that
// was committed before its call.
type readGroup struct {
	mutex   sync.Mutex
	waiting []*groupedRead
	running int // statements
	closed  bool
}

// A groupedRead is a read of a record that another goroutine executes.
type groupedRead struct {
	key  record.Key
	done chan struct{} // closed when the fields below are set

	row row
	err error // the caller reads alone
}

// readRow returns the row of a key, without the parts that are in other tables. Its
// Revision is 0 if the key doesn't exist.
func (s *Store) readRow(ctx context.Context, key record.Key) (row, error) {
	g := &s.reads
	g.mutex.Lock()
	if g.running < maxReadStatements {
		g.running++
		g.mutex.Unlock()
		defer s.endRead()
		return s.readAlone(ctx, key)
	}
	read := &groupedRead{key: key, done: make(chan struct{})}
	g.waiting = append(g.waiting, read)
	g.mutex.Unlock()
	timer := time.NewTimer(maxGroupWait)
	defer timer.Stop()
	select {
	case <-read.done:
		if read.err == nil {
			return read.row, nil
		}
	case <-timer.C:
	case <-ctx.Done():
		return row{}, ctx.Err()
	}
	return s.readAlone(ctx, key)
}

func (s *Store) readAlone(ctx context.Context, key record.Key) (found row, err error) {
	err = s.run(ctx, rowsOf([]record.Key{key}, func(r row) { found = r }))
	return found, err
}

// rowsOf returns the statement that reads the rows of keys, in no order.
func rowsOf(keys []record.Key, found func(row)) Statement {
	statement := Statement{
		SQL:     selectRows,
		Columns: keyColumns,
		Rows:    make([][]any, len(keys)),
	}
	for i, key := range keys {
		statement.Rows[i] = []any{string(key.Kind), key.ID}
	}
	scanner := newEntityScanner()
	statement.Scan = func(from Row) error {
		r, err := scanner.scan(from)
		if err == nil {
			found(r)
		}
		return err
	}
	return statement
}

var (
	selectRows = "SELECT " + selectedEntity + " FROM {rows} CROSS JOIN entity e WHERE e.kind = r.k AND e.id = r.i"
	keyColumns = []Column{Text.As("k"), Text.As("i")}
)

// endRead ends a caller's own statement: the next statement reads for those who
// wait.
func (s *Store) endRead() {
	g := &s.reads
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if len(g.waiting) == 0 || g.closed {
		g.running--
		return
	}
	s.wait.Go(s.readWaiting)
}

// readWaiting reads for those who wait, until there are none.
func (s *Store) readWaiting() {
	g := &s.reads
	for {
		g.mutex.Lock()
		group := g.waiting[:min(len(g.waiting), maxReadGroup)]
		g.waiting = g.waiting[len(group):]
		if len(group) == 0 {
			g.running--
			g.waiting = nil
			g.mutex.Unlock()
			return
		}
		g.mutex.Unlock()
		s.readTogether(group)
	}
}

// readTogether reads for several callers, in one statement.
func (s *Store) readTogether(group []*groupedRead) {
	keys := make([]record.Key, 0, len(group))
	rows := make(map[record.Key]*row, len(group))
	for _, read := range group {
		if _, ok := rows[read.key]; !ok {
			rows[read.key] = nil
			keys = append(keys, read.key)
		}
	}
	statement := rowsOf(keys, func(r row) { rows[r.Key] = &r })
	var err error
	if !s.runOnStandby(len(keys), statement) {
		clear(rows)
		err = s.db.Run(s.ended, statement)
	}
	taken := make(map[record.Key]bool, len(group))
	for _, read := range group {
		read.err = err
		if r := rows[read.key]; err == nil && r != nil {
			read.row = *r
			if taken[read.key] {
				read.row.Record = cloneRecord(r.Record)
			}
			taken[read.key] = true
		}
	}
	for _, read := range group { // from here on callers may change their records
		close(read.done)
	}
}

// closeReads makes reads that wait run alone, which fails.
func (s *Store) closeReads() {
	s.reads.mutex.Lock()
	defer s.reads.mutex.Unlock()
	s.reads.closed = true
}

// getOne is Get for one record without its deployments.
func (s *Store) getOne(ctx context.Context, fields record.Fields, key record.Key) (record.Record, error) {
	if decide.CheckTexts("kind", string(key.Kind), "ID", key.ID) != nil {
		return record.Record{Key: key}, nil //nolint:nilerr // a key that can't be stored doesn't exist
	}
	r, err := s.readRow(ctx, key)
	if err != nil {
		return record.Record{}, fault("read", err)
	}
	if r.Revision == 0 {
		return record.Record{Key: key}, nil
	}
	if s.fillCached(fields, &r) {
		return r.Record, nil
	}
	rows := []row{r}
	err = s.fill(ctx, fields, rows)
	return rows[0].Record, err
}

// fillCached is fill for a row whose metadata and package are cached. Otherwise it
// returns false.
func (s *Store) fillCached(fields record.Fields, r *row) (filled bool) {
	metadata, ok := s.metasets.Get(r.metaset)
	if !ok {
		return false
	}
	r.Metadata = metadata
	if !fields.Package || r.Digest == (record.Digest{}) {
		return true
	}
	r.Package, ok = s.blobs.Get(r.Digest)
	return ok
}

// hasDeployments reports whether a record of a kind has deployments.
func hasDeployments(kind tko.Kind) bool { return kind == tko.KindTemplate || kind == tko.KindSite }

// deploymentRows returns rows of keyColumns: the kind deployment, and a text of each.
func deploymentRows(texts []string) [][]any {
	rows := make([][]any, len(texts))
	for i, text := range texts {
		rows[i] = []any{string(tko.KindDeployment), text}
	}
	return rows
}
