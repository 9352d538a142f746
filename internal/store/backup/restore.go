package backup

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/form"
)

// A Restore has the options of a restore. The zero value works.
type Restore struct {
	// WithoutAccess leaves out the rights of clients. Freezes and definitions of sources,
	// which are stored with them, are restored.
	WithoutAccess bool
	// Progress, if not nil, receives the number of restored rows.
	Progress func(rows int64)
	// Started is called once the archive's manifest was read, before anything is
	// written. If it returns an error, nothing is restored.
	Started func(archive.Manifest) error
}

// PositionsSkipped is the minimum number of positions that a restore skips: changes
// after the backup, in the store that was lost, had them.
const PositionsSkipped = 1_000_000_000

// firstTime is a position beyond all that are counts, or times in microseconds.
const firstTime = 1 << 53

// NextPosition returns the position of a restored store whose positions are counts. Clients may know
// positions of the lost store, and of an earlier restore of the same archive: the time is beyond both, in
// microseconds, or as stores on Spanner have it.
func NextPosition(m archive.Manifest, now time.Time) int64 {
	next := max(m.Position+PositionsSkipped, now.UnixMicro())
	if m.Position > firstTime {
		next = max(next, form.PositionAt(now))
	}
	return next
}

// A Target is a store that is being restored.
type Target struct {
	// Begin marks the store as incomplete, and empties it.
	Begin func(m archive.Manifest) error
	// Put inserts rows of a table. All columns are known, although some may be absent.
	Put func(t archive.Table, rows [][]any) error
}

// Read reads an archive into a store whose archives have a schema. It returns how many rows of
// which tables were left out.
func (o Restore) Read(r io.Reader, schema int64, to Target) (summary archive.Summary, left map[string]int64, err error) {
	tables := map[string]*Table{}
	for _, t := range Tables() {
		tables[t.Name] = &t
	}
	left = map[string]int64{}
	var manifest archive.Manifest
	var rows int64
	summary, err = archive.Read(r, archive.Handlers{
		Manifest: func(m archive.Manifest) error {
			manifest = m
			if m.Schema > schema {
				return tko.Errorf(tko.ErrInvalid, "the archive has the schema %d of a newer TKO, this one knows %d: use the newer TKO", m.Schema, schema)
			}
			if o.Started != nil {
				if err := o.Started(m); err != nil {
					return err
				}
			}
			return to.Begin(m)
		},
		Table: func(t archive.Table) error {
			known, ok := tables[t.Name]
			if !ok {
				return tko.Errorf(tko.ErrInvalid, "the archive has the unknown table %q: use the TKO that wrote it (%s)", t.Name, manifest.Program)
			}
			return checkColumns(t, known)
		},
		Rows: func(t archive.Table, list [][]any) error {
			if o.WithoutAccess && t.Name == accessRules {
				all := len(list)
				list = withoutRights(t, list)
				left[t.Name] += int64(all - len(list))
			}
			t, list, err := tables[t.Name].complete(t, list)
			if err == nil {
				err = to.Put(t, list)
			}
			if err != nil {
				return fmt.Errorf("restore the table %s: %w", t.Name, err)
			}
			rows += int64(len(list))
			if o.Progress != nil {
				o.Progress(rows)
			}
			return nil
		},
	})
	return summary, left, err
}

const accessRules = "access_rule"

// withoutRights returns the rows of the rules of access without the rights of clients.
func withoutRights(t archive.Table, rows [][]any) [][]any {
	at := slices.IndexFunc(t.Columns, func(c archive.Column) bool { return c.Name == "kind" })
	return slices.DeleteFunc(rows, func(row []any) bool {
		kind, _ := row[at].(string)
		return record.AccessRule{Kind: kind}.IsRight()
	})
}

// complete adds the columns to rows that an archive of an earlier version lacks and
// whose values follow from the others.
func (t *Table) complete(has archive.Table, rows [][]any) (archive.Table, [][]any, error) {
	positions := map[string]int{}
	for i, c := range has.Columns {
		positions[c.Name] = i
	}
	for _, c := range t.Columns {
		value := t.Absent[c.Name]
		if _, ok := positions[c.Name]; ok || value == nil {
			continue
		}
		has.Columns = append(slices.Clip(has.Columns), c)
		for i, row := range rows {
			v, err := value(func(name string) any { return row[positions[name]] })
			if err != nil {
				return has, nil, err
			}
			rows[i] = append(slices.Clip(row), v)
		}
	}
	return has, rows, nil
}

func checkColumns(t archive.Table, known *Table) error {
	types := map[string]archive.Column{}
	for _, c := range known.Columns {
		types[c.Name] = c
	}
	for _, c := range t.Columns {
		if types[c.Name] != c {
			return tko.Errorf(tko.ErrInvalid, "the table %s of the archive has the unknown column %q: use the TKO that wrote it", t.Name, c.Name)
		}
	}
	return nil
}

// HeldQueues are the queues that are held as a whole after a restore: their workers change records,
// run plugins, delete what their sources no longer name, or send tickets and messages to the
// same destinations as the store that the backup is of, which may still be in use.
func HeldQueues() []string {
	return []string{tko.QueuePrepare, tko.QueueGitOps, tko.QueueRollout, tko.QueueNotify}
}

// Record is the audit record of a restore: it names the head of the log that
// the backup has, because another log may continue from there.
func Record(summary archive.Summary, o Restore) audit.Record {
	m := summary.Manifest
	detail := fmt.Sprintf("from the backup of %s with the SHA-256 %s, at position %d; the audit log continues after record %d with the hash %x",
		m.Created.UTC().Format(time.RFC3339), summary.Digest, m.Position, m.Audited, m.Chain)
	if o.WithoutAccess {
		detail += "; without the rights of clients"
	}
	return audit.Record{Caller: audit.Caller{Subject: "process", Action: "restore", Decision: audit.Allow}, Kind: "store", Op: "restored", Detail: detail}
}

// Restored describes the restore of an archive at a time.
func Restored(now time.Time, summary archive.Summary) string {
	return fmt.Sprintf("%s from the backup of %s, %s", now.UTC().Format(time.RFC3339), summary.Manifest.Created.UTC().Format(time.RFC3339), summary.Digest)
}

// Incomplete is the error of a store in which a restore has begun, and hasn't ended.
func Incomplete(since string) error {
	return tko.Errorf(tko.ErrInvalid, "the store holds the beginning of a restore (%s) and can't be used: run tko-server restore again, which begins anew", since)
}

// OtherRows is the error that a table has other rows than the archive.
func OtherRows(name string, got, want int64) error {
	return tko.Errorf(tko.ErrInvalid, "the table %s has %d rows after the restore, and the archive %d: stop all servers on the store, and restore again", name, got, want)
}

// Why a restore is refused.
var (
	ErrNotEmpty = tko.Errorf(tko.ErrConflict, "the store is not empty: restore into a new database (PostgreSQL, Spanner) or a new file (SQLite), and start servers with it instead")
	ErrEnded    = tko.Errorf(tko.ErrConflict, "another restore into the store has begun or ended meanwhile")
	ErrWritten  = tko.Errorf(tko.ErrConflict, "a server has written to the store during the restore: stop all servers on it, and restore again")
)

// A Promotion has the options of a promotion. The zero value works.
type Promotion struct {
	After  int64  // the new epoch is greater than this one, too
	Reason string // for the audit log
}

// Record returns the audit record of a promotion of a store with a fencing epoch.
func (p Promotion) Record(epoch int64) audit.Record {
	detail := fmt.Sprintf("the fencing epoch is raised from %d, or from %d", epoch, p.After)
	if p.Reason != "" {
		detail += ": " + p.Reason
	}
	return audit.Record{Caller: audit.Caller{Subject: "process", Action: "promote", Decision: audit.Allow}, Kind: "store", Op: "promoted", Detail: detail}
}

// Epoch returns the fencing epoch that follows one, at the time of the database.
func (p Promotion) Epoch(before int64, now time.Time) int64 {
	return max(before+1, p.After+1, now.UnixMicro())
}
