package relational

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// Compatible is the oldest schema whose programs may use a database with the schema of
// this program: later migrations only added what those programs don't use. A migration
// that they can't live with raises it. Programs before schema 70 collect revisions that
// rollouts need, create children again that rollouts deleted, and schedule onto frozen
// sites.
const Compatible = 70

// oldestAllowed is the oldest schema whose programs AllowOlder admits.
const oldestAllowed = 49

// The facts of the table state about the schema.
const (
	// stateSchema is the version of the schema, if goose's table states an older one so
	// that older programs use the database.
	stateSchema = "schema"
	// stateCompatible is Compatible of the program that migrated the database last.
	stateCompatible = "compatible"
)

// schemaOf reads the version of the schema.
func schemaOf(to *int64) Statement {
	return Statement{
		SQL: "SELECT max(v) FROM (SELECT max(version_id) AS v FROM goose_db_version UNION ALL " +
			"SELECT CAST(value AS BIGINT) FROM state WHERE name = '" + stateSchema + "') s",
		Scan: func(from Row) error { return from.Scan(to) },
	}
}

// A Schema is the state of a database's schema.
type Schema struct {
	Version    int64 // 0: there is none
	Recorded   int64 // as programs before schema 56 see it
	Compatible int64 // the oldest schema whose programs may use it; 0: it isn't known
}

// ReadSchema reads the state of a schema. exists reports whether a table exists.
func ReadSchema(ctx context.Context, db *sql.DB, exists func(table string) (bool, error)) (s Schema, err error) {
	there, err := exists("goose_db_version")
	if err != nil || !there {
		return s, err
	}
	var recorded sql.NullInt64
	if err := db.QueryRowContext(ctx, "SELECT max(version_id) FROM goose_db_version").Scan(&recorded); err != nil {
		return s, err
	}
	s.Recorded, s.Version = recorded.Int64, recorded.Int64
	if there, err = exists("state"); err != nil || !there {
		return s, err
	}
	rows, err := db.QueryContext(ctx, "SELECT name, value FROM state WHERE name IN ('"+stateSchema+"', '"+stateCompatible+"')")
	if err != nil {
		return s, err
	}
	defer rows.Close() //nolint:errcheck // its error is that of Err
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return s, err
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return s, fmt.Errorf("the state %q of the schema is %q, which is no number", name, value)
		}
		if name == stateSchema {
			s.Version = max(s.Version, n)
		} else {
			s.Compatible = n
		}
	}
	return s, rows.Err()
}

// Newest returns the newest of the migrations in a store's folder of them.
func Newest(files fs.FS) (int64, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	return goose.NumericComponent(names[len(names)-1]) // sorted by their numbers
}

// A RewrittenFS is a folder of migrations whose texts are rewritten when they are read.
type RewrittenFS struct {
	fs.FS
	Rewrite func(text string) string
}

// Open implements [fs.FS].
func (f RewrittenFS) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".sql") {
		return file, err
	}
	text, err := io.ReadAll(file)
	return rewrittenFile{file, strings.NewReader(f.Rewrite(string(text)))}, err
}

type rewrittenFile struct {
	fs.File
	text io.Reader
}

func (f rewrittenFile) Read(p []byte) (int, error) { return f.text.Read(p) }

// Check returns whether a program whose newest migration is newest must migrate the
// database. The error is that the program can't use it.
func (s Schema) Check(where string, newest int64) (migrate bool, err error) {
	switch {
	case s.Version <= newest:
		allowed := s.Recorded != s.Version // older programs were allowed: that stays until the next migration
		return s.Version < newest || s.Compatible < Compatible && !allowed, nil
	case s.Compatible != 0 && s.Compatible <= newest:
		return false, nil
	case s.Compatible != 0:
		return false, fmt.Errorf("%s has the schema %d of a newer TKO, which only programs that know the schema %d may use; this one knows %d: use the newer TKO", where, s.Version, s.Compatible, newest)
	default:
		return false, fmt.Errorf("%s has the schema %d of a newer TKO, this one knows %d: use the newer TKO", where, s.Version, newest)
	}
}

// Rejoin makes goose's table state the real schema again, before further migrations.
// versions are all migrations that the program knows.
func (s Schema) Rejoin(ctx context.Context, db *sql.DB, versions []int64) error {
	if s.Recorded == s.Version {
		return nil
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it is committed, or its error doesn't matter
	for _, v := range versions {
		if v > s.Recorded && v <= s.Version {
			if _, err := tx.ExecContext(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, $2)", v, true); err != nil {
				return err
			}
		}
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM state WHERE name = $1", stateSchema); err != nil {
		return err
	}
	return tx.Commit()
}

// SaveCompatible records which programs may use the database, after migrations.
func SaveCompatible(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "INSERT INTO state (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", stateCompatible, strconv.Itoa(Compatible))
	return err
}

// Schema returns the state of the store's schema.
func (s *Store) Schema(ctx context.Context) (schema Schema, err error) {
	err = s.run(
		ctx,
		schemaOf(&schema.Version),
		Statement{SQL: "SELECT max(version_id) FROM goose_db_version", Scan: func(from Row) error { return from.Scan(&schema.Recorded) }},
		Statement{
			SQL: "SELECT value FROM state WHERE name = $1", Args: []any{stateCompatible},
			Scan: func(from Row) error {
				var value string
				err := from.Scan(&value)
				schema.Compatible, _ = strconv.ParseInt(value, 10, 64)
				return err
			},
		},
	)
	return schema, fault("read the schema", err)
}

// AllowOlder makes the database usable by programs whose newest schema is version,
// although they aren't compatible with the present one: goose's table then states that
// version, for those that compare that, and so does the table state for those that know of
// it. Tables and columns stay. Programs of the present schema go on. It is refused if the
// older programs would do harm, unless that is only that they ignore rights, and
// ignoreRights is set.
func (s *Store) AllowOlder(ctx context.Context, version int64, ignoreRights bool) error {
	return s.write(ctx, func(tx Tx) ([]Statement, error) {
		g := newGroup(s)
		var current, keys, holds int64
		if err := tx.Run(
			ctx,
			s.lockHead(&g.head, &g.now),
			schemaOf(&current),
			Statement{
				SQL:  "SELECT (SELECT count(*) FROM sealing_key), (SELECT count(*) FROM hold)",
				Scan: func(from Row) error { return from.Scan(&keys, &holds) },
			},
		); err != nil {
			return nil, err
		}
		rollout, freeze, stop, err := blocksOlder(ctx, tx, g.now)
		if err != nil {
			return nil, err
		}
		const sealed, rights, stated = 54, 51, 56
		switch {
		case version >= current:
			return nil, tko.Errorf(tko.ErrInvalid, "the store has the schema %d: name an older one", current)
		case version >= Compatible:
			return nil, tko.Errorf(tko.ErrInvalid, "programs that know the schema %d may use the store already: start them", version)
		case version < oldestAllowed:
			return nil, tko.Errorf(tko.ErrInvalid, "programs of the schema %d can't use a store of the schema %d: the oldest are those of %d; restore a backup that they wrote", version, current, oldestAllowed)
		case version < sealed && keys > 0:
			return nil, tko.Errorf(tko.ErrConflict, "packages in the store are encrypted, which programs of the schema %d can't read", version)
		case holds > 0:
			return nil, tko.Errorf(tko.ErrConflict, "work is held after a restore, which older programs would do at once: release it first (tko hold release)")
		case rollout != "":
			return nil, tko.Errorf(tko.ErrConflict, "rollout %q: older programs collect revisions that it needs, and create again what it deleted: wait until it is done, cancel it, or delete it first", rollout)
		case freeze != "":
			return nil, tko.Errorf(tko.ErrConflict, "freeze %q: older programs ignore it: end it first (tko unfreeze %s)", freeze, freeze)
		case stop != "":
			return nil, tko.Errorf(tko.ErrConflict, "stop %q: older programs ignore it: release it first (tko resume %s)", stop, stop)
		case version < rights && g.head.access > 0 && !ignoreRights:
			return nil, tko.Errorf(tko.ErrConflict, "the store has rights of clients, which programs of the schema %d ignore: every client may do everything with them; add --ignore-rights if that is meant", version)
		}
		const put = "INSERT INTO state (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
		statements := []Statement{
			{SQL: "DELETE FROM goose_db_version WHERE version_id > $1", Args: []any{version}},
			{SQL: put, Args: []any{stateSchema, strconv.FormatInt(current, 10)}},
		}
		if version >= stated {
			statements = append(statements, Statement{SQL: put, Args: []any{stateCompatible, strconv.FormatInt(version, 10)}})
		}
		return statements, nil
	})
}

// blocksOlder returns a rollout, a freeze and a stop that older programs would break; "" if
// there is none.
func blocksOlder(ctx context.Context, tx Tx, now time.Time) (rollout, freeze, stop string, err error) {
	var rollouts []record.RolloutState
	var freezes []tko.Freeze
	var stops []tko.Stop
	err = tx.Run(
		ctx,
		Statement{
			SQL:  rolloutDocs + " h WHERE active OR EXISTS (SELECT 1 FROM rollout_row r WHERE r.rollout = h.id AND " + deletedChildren + " AND r.applied > 0) ORDER BY id",
			Scan: scanDocs(&rollouts),
		},
		Statement{SQL: "SELECT doc FROM access_rule WHERE kind = 'freeze' ORDER BY id", Scan: scanDocs(&freezes)},
		Statement{SQL: "SELECT doc FROM access_rule WHERE kind = 'stop' ORDER BY id", Scan: scanDocs(&stops)},
	)
	if i := slices.IndexFunc(rollouts, func(s record.RolloutState) bool { return s.State != execute.Undone }); i >= 0 {
		rollout = rollouts[i].ID
	}
	if i := slices.IndexFunc(freezes, func(f tko.Freeze) bool { return now.Before(f.Until) }); i >= 0 {
		freeze = freezes[i].ID
	}
	if len(stops) > 0 {
		stop = stops[0].ID
	}
	return rollout, freeze, stop, err
}
