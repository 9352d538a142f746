package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Check returns an error if a server can't use the database of a DSN, and whether Open would
// migrate it. It doesn't wait for a database that is not available, and changes nothing.
func Check(ctx context.Context, dsn string) (migrates bool, err error) {
	config, err := configure(dsn, 0)
	if err != nil {
		return false, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	db := stdlib.OpenDB(*config.ConnConfig, stdlib.OptionAfterConnect(withoutLimits))
	defer db.Close() //nolint:errcheck // it was only read
	newest, err := relational.Newest(migrations)
	if err != nil {
		return false, err
	}
	return needsMigration(ctx, db, newest, whereOf(config.ConnConfig))
}

// needsMigration returns whether the schema of a database is older than newest.
func needsMigration(ctx context.Context, db *sql.DB, newest int64, where string) (bool, error) {
	schema, err := readSchema(ctx, db)
	if err != nil {
		return false, fmt.Errorf("open PostgreSQL at %s: %w", where, err)
	}
	return schema.Check("the database at "+where, newest)
}

// migrate migrates the schema to this version. Servers that start at the same time
// do it one after the other.
func migrate(ctx context.Context, config *pgx.ConnConfig, where string) error {
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(withoutLimits))
	defer db.Close() //nolint:errcheck // it is no longer used
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := newProvider(db, files)
	if err != nil {
		return fmt.Errorf("open PostgreSQL at %s: %w", where, err)
	}
	sources := provider.ListSources()
	newest := sources[len(sources)-1].Version
	if needed, err := needsMigration(ctx, db, newest, where); err != nil || !needed {
		return err
	}
	err = exclusively(ctx, db, func() error {
		// Another server may have migrated meanwhile.
		schema, err := readSchema(ctx, db)
		if err != nil {
			return err
		}
		if needed, err := schema.Check("the database at "+where, newest); err != nil || !needed {
			return err
		}
		versions := make([]int64, len(sources))
		for i, source := range sources {
			versions[i] = source.Version
		}
		if err := schema.Rejoin(ctx, db, versions); err != nil {
			return err
		}
		current := schema.Version
		files, err := adaptMigrations(ctx, db, files)
		if err != nil {
			return err
		}
		provider, err := newProvider(db, files)
		if err != nil {
			return err
		}
		if current < patient {
			if _, err := provider.UpTo(ctx, patient); err != nil {
				return err
			}
		}
		if err := migrateSoon(ctx, config, files); err != nil {
			return err
		}
		return relational.SaveCompatible(ctx, db)
	})
	if err != nil {
		return fmt.Errorf("migrate the database at %s: %w", where, err)
	}
	return nil
}

// patient is the newest migration that waits for locks as long as it takes. It builds
// indexes, which makes no other transaction wait.
const patient = 48

const (
	// lockWait is the time for which a later migration waits for the lock of a table.
	// All other transactions on the table wait meanwhile.
	lockWait = "200ms"
	// lockPause is the time between two attempts.
	lockPause = time.Second
)

// migrateSoon runs the migrations after patient. One that doesn't get its lock soon is
// tried again, because lists may hold theirs for long.
func migrateSoon(ctx context.Context, config *pgx.ConnConfig, files fs.FS) error {
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		if err := withoutLimits(ctx, conn); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "SET lock_timeout = '"+lockWait+"'")
		if refused(err) {
			return nil
		}
		return err
	}))
	defer db.Close() //nolint:errcheck // it is no longer used
	provider, err := newProvider(db, files)
	if err != nil {
		return err
	}
	for {
		if _, err = provider.Up(ctx); !isCode(err, codeLockTimeout) {
			return err
		}
		if pause.For(ctx, lockPause) != nil {
			return err
		}
	}
}

// collation sorts the texts by which lists are ordered byte by byte.
const collation = ` COLLATE "C"`

func newProvider(db *sql.DB, files fs.FS) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, db, files, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
}

// hashIndex makes an index of hashes, which is smaller than one of texts.
const hashIndex = " USING hash"

// adaptMigrations returns the migrations in the form that the database accepts: some
// databases sort all texts byte by byte, and have no such collation, and some have no
// indexes of hashes.
func adaptMigrations(ctx context.Context, db *sql.DB, files fs.FS) (fs.FS, error) {
	var hashes int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_am WHERE amname = 'hash'").Scan(&hashes); err != nil && !refused(err) {
		return nil, err
	}
	if hashes == 0 {
		files = without(files, hashIndex)
	}
	var bytewise bool
	err := db.QueryRowContext(ctx, "SELECT 'B'"+collation+" < 'a'").Scan(&bytewise)
	if !refused(err) {
		return files, err
	}
	if err := db.QueryRowContext(ctx, "SELECT 'B' < 'a'").Scan(&bytewise); err != nil {
		return nil, err
	}
	if !bytewise {
		return nil, errors.New("the database can't sort texts byte by byte: create it with the collation C")
	}
	return without(files, collation), nil
}

// without removes a clause from migrations.
func without(files fs.FS, clause string) fs.FS {
	return relational.RewrittenFS{FS: files, Rewrite: func(text string) string { return strings.ReplaceAll(text, clause, "") }}
}

// withoutLimits removes the time limits from a connection that migrates: building
// indexes of large tables takes long, and so does waiting for a server that does.
func withoutLimits(ctx context.Context, conn *pgx.Conn) error {
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		if _, err := conn.Exec(ctx, "SET "+name+" = 0"); err != nil && !refused(err) {
			return err
		}
	}
	return nil
}

// exclusively runs fn while no other server does. It locks a row, because every SQL
// database has row locks; advisory locks are specific to PostgreSQL, and poolers lose
// them.
func exclusively(ctx context.Context, db *sql.DB, fn func() error) error {
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS migrating (one SMALLINT NOT NULL PRIMARY KEY)",
		"INSERT INTO migrating (one) VALUES (1) ON CONFLICT (one) DO NOTHING",
	} {
		// Servers that create the same table at once may fail on each other.
		if _, err := db.ExecContext(ctx, statement); err != nil && !isCode(err, codeUnique, codeDuplicateTable, codeDuplicateObject) {
			return err
		}
	}
	for {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		// To wait for the lock in the database would need a snapshot, for which an
		// index that is built concurrently would wait.
		var one int
		err = tx.QueryRowContext(ctx, "SELECT one FROM migrating WHERE one = 1 FOR UPDATE NOWAIT").Scan(&one)
		if err == nil {
			// The snapshot of a statement lasts until the next one.
			_, err = tx.ExecContext(ctx, "SAVEPOINT locked")
		}
		if err == nil {
			err = fn()
		} else if isCode(err, codeLockTimeout) {
			_ = tx.Rollback()
			if pause.For(ctx, lockPause/4) != nil {
				return ctx.Err()
			}
			continue
		}
		_ = tx.Rollback() // it has changed nothing
		return err
	}
}

// readSchema reads the state of the schema.
func readSchema(ctx context.Context, db *sql.DB) (relational.Schema, error) {
	return relational.ReadSchema(ctx, db, func(table string) (there bool, err error) {
		var one int
		err = db.QueryRowContext(ctx, "SELECT 1 FROM "+table+" LIMIT 1").Scan(&one)
		switch {
		case isCode(err, codeUndefinedTable):
			return false, nil
		case errors.Is(err, sql.ErrNoRows):
			return true, nil
		}
		return err == nil, err
	})
}
