package relational

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// Wrap returns a store on the database of s, with another database between them. It owns
// the database: s must not be used before or after. It doesn't watch the clock, because the
// watcher writes after the first commit, at a moment that a test doesn't know.
func (s *Store) Wrap(ctx context.Context, wrap func(Database) Database) *Store {
	s.quit()
	s.wait.Wait()
	return newStore(ctx, wrap(s.base), s.backend)
}

// Exec runs a statement that writes.
func (s *Store) Exec(ctx context.Context, sql string, args ...any) error {
	return s.write(ctx, func(Tx) ([]Statement, error) { return []Statement{{SQL: sql, Args: args}}, nil })
}

// Numbers returns the only column of a statement's result.
func (s *Store) Numbers(ctx context.Context, sql string, args ...any) (numbers []int64, err error) {
	err = s.run(ctx, Statement{SQL: sql, Args: args, Scan: sqldb.Collect(&numbers)})
	return numbers, err
}

// SetStep sets the number of records that the next step of a deletion changes.
func (s *Store) SetStep(kind tko.Kind, size int) { s.stepSizers[kind].size = size }

// CountEntities counts all entities, and calls meanwhile after the beginning and before the end.
func (s *Store) CountEntities(ctx context.Context, meanwhile func()) error {
	begun, err := s.beginTally(ctx)
	if err != nil {
		return err
	}
	meanwhile()
	sum, _, err := s.sumTally(ctx, begun)
	if err != nil {
		return err
	}
	meanwhile()
	return s.endTally(ctx, begun, sum)
}

// MaxMissed is the number of changes that are read to validate marks of offsets.
const MaxMissed = maxMissed
