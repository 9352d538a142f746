package spanner

import (
	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
)

// Spanner's limits of one commit. The emulator doesn't check the first one.
const (
	maxMutations   = 80_000
	maxCommitBytes = 100 << 20
)

// A mutations is the writes of a transaction. Spanner counts each column of a row that is written,
// and one for a row that is deleted. Only items of work have an index: see [dueIndex].
type mutations struct {
	list         []*spanner.Mutation
	count, bytes int
}

func (m *mutations) insert(table string, columns []string, values ...any) {
	m.add(spanner.Insert(table, columns, values), values)
}

// put writes a row, whether or not it exists.
func (m *mutations) put(table string, columns []string, values ...any) {
	m.add(spanner.InsertOrUpdate(table, columns, values), values)
}

func (m *mutations) update(table string, columns []string, values ...any) {
	m.add(spanner.Update(table, columns, values), values)
}

func (m *mutations) remove(table string, key spanner.Key) {
	m.list = append(m.list, spanner.Delete(table, key))
	m.count++
}

// removeRange removes the rows of a range of keys. Spanner counts a range as one.
func (m *mutations) removeRange(table string, keys spanner.KeyRange) {
	m.list = append(m.list, spanner.Delete(table, keys))
	m.count++
}

func (m *mutations) add(mutation *spanner.Mutation, values []any) {
	m.list = append(m.list, mutation)
	m.count += len(values)
	for _, v := range values {
		switch v := v.(type) {
		case string:
			m.bytes += len(v)
		case []byte:
			m.bytes += len(v)
		default:
			m.bytes += 8
		}
	}
}

// check refuses what Spanner would refuse.
func (m *mutations) check() error {
	if m.count > maxMutations {
		return tko.Errorf(tko.ErrInvalid, "the commit needs %d mutations, and Spanner's limit is %d: commit fewer records at once", m.count, maxMutations)
	}
	if m.bytes > maxCommitBytes {
		return tko.Errorf(tko.ErrInvalid, "the commit has %d bytes, and Spanner's limit is %d: commit fewer records at once", m.bytes, maxCommitBytes)
	}
	return nil
}
