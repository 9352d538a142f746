package database_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/database"
	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const schema = `CREATE TABLE sites (name text PRIMARY KEY, region text, racks integer, active boolean);
INSERT INTO sites VALUES ('accra', 'west', 3, true), ('lagos', 'west', 12, true), ('cairo', NULL, 1, true), ('retired', 'x', 0, false);`

// postgres returns the settings of an origin in a new database of PostgreSQL, and its DSN.
func postgres(t *testing.T) (inventory.OriginSettings, string) {
	t.Helper()
	dsn := pgtest.EmptyDSN(t)
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(config.Password+"x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := url.URL{Scheme: "postgres", Host: net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), Path: "/" + config.Database}
	return inventory.OriginSettings{
		SQL: &inventory.SQLSettings{URL: u.String()}, Credentials: remote.Credentials{Username: config.User, PasswordFile: password},
		Map: inventory.Mapping{ID: "record.name", Metadata: map[string]string{"region": "record.region", "racks": "record.racks"}},
	}, dsn
}

// sqlite is postgres for a file of SQLite.
func sqlite(t *testing.T) inventory.OriginSettings {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sites of others.db")
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	return inventory.OriginSettings{
		SQL: &inventory.SQLSettings{URL: "sqlite:" + file},
		Map: inventory.Mapping{ID: "record.name", Metadata: map[string]string{"region": "record.region", "racks": "record.racks"}},
	}
}

const active = "SELECT name, region, racks FROM sites WHERE active ORDER BY name -- all\n;"

func read(t *testing.T, o inventory.OriginSettings, query string) ([]inventory.Site, error) {
	t.Helper()
	settings := *o.SQL
	settings.Query = query
	o.SQL = &settings
	i, err := inventory.New(inventory.Settings{From: []inventory.OriginSettings{o}}, remote.Access{User: leash.Operator(), Databases: database.Query})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Revision(t.Context()); err != nil {
		return nil, err
	}
	sites, _ := i.Sites()
	return sites, nil
}

// A query reads sites, and nothing else: it can't write, run other statements, exceed the
// limits of rows and bytes, or run for longer than its timeout.
func TestQueriesReadRecordsWithinLimits(t *testing.T) {
	t.Parallel()
	onPostgres, dsn := postgres(t)
	for name, o := range map[string]inventory.OriginSettings{"postgres": onPostgres, "sqlite": sqlite(t)} {
		sites, err := read(t, o, active)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found := map[string]map[string]string{}
		for _, s := range sites {
			found[s.ID] = s.Metadata
		}
		if diff := cmp.Diff(map[string]map[string]string{"accra": {"region": "west", "racks": "3"}, "lagos": {"region": "west", "racks": "12"}, "cairo": {"racks": "1"}}, found); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		limited := o
		limited.MaxRecords = 2
		if _, err := read(t, limited, active); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "more than 2 records") {
			t.Errorf("%s: more rows than maxRecords: the error is %v", name, err)
		}
		limited = o
		limited.MaxBytes = 50
		if _, err := read(t, limited, active); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "more than 50 bytes") {
			t.Errorf("%s: more than maxBytes: the error is %v", name, err)
		}
		for _, query := range []string{
			"DELETE FROM sites", "DELETE FROM sites RETURNING name", "SELECT name FROM sites; DELETE FROM sites", "SELECT 1) AS q; DELETE FROM sites; SELECT * FROM (SELECT 1",
			"SELECT nothing FROM sites", "SELECT name FROM nowhere",
		} {
			if _, err := read(t, o, query); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "sql.query must be one SELECT") {
				t.Errorf("%s: %s: the error is %v", name, query, err)
			}
		}
		if _, err := read(t, o, "SELECT name, region AS name FROM sites"); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), `the name "name"`) {
			t.Errorf("%s: two columns with one name: the error is %v", name, err)
		}
		if again, err := read(t, o, "SELECT name, region, racks FROM sites"); err != nil || len(again) != 4 {
			t.Errorf("%s: there are %d sites afterwards: %v", name, len(again), err)
		}
		endless := o
		settings := *o.SQL
		settings.Timeout = "200ms"
		endless.SQL = &settings
		if _, err := read(t, endless, "WITH RECURSIVE n(name) AS (SELECT 1 UNION ALL SELECT name + 1 FROM n) SELECT count(name) AS name FROM n"); err == nil || !strings.Contains(err.Error(), "did not end within 200ms") {
			t.Errorf("%s: an endless query: the error is %v", name, err)
		}
	}
	// Functions that write are refused by the read-only transaction, and errors show no values.
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), "CREATE FUNCTION clean() RETURNS text LANGUAGE sql AS 'DELETE FROM sites RETURNING name'"); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, onPostgres, "SELECT clean() AS name"); err == nil || !strings.Contains(err.Error(), "25006") {
		t.Errorf("a function that writes: the error is %v", err)
	}
	if _, err := read(t, onPostgres, "SELECT name::integer AS name FROM sites"); err == nil || strings.Contains(err.Error(), "accra") {
		t.Errorf("the error of a value is %v: want one without it", err)
	}
	other := onPostgres
	other.Username = "mallory"
	if _, err := read(t, other, "SELECT name FROM sites"); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("an unknown user: the error is %v, want %v", err, tko.ErrDenied)
	}
}

// Fields have the types of their columns. Numbers keep all their digits, and what isn't a
// text or a finite number is an error.
func TestRecordsHaveTheTypesOfTheirColumns(t *testing.T) {
	t.Parallel()
	onPostgres, _ := postgres(t)
	mapping := inventory.Mapping{ID: "record.name", Metadata: map[string]string{
		"type": "type(record.v) == int ? 'int' : type(record.v) == double ? 'double' : type(record.v) == bool ? 'bool' : type(record.v) == string ? 'string' : type(record.v) == list ? 'list' : type(record.v) == map ? 'map' : record.v == null ? 'null' : 'other'",
		"text": "type(record.v) == list ? string(record.v[1]) : type(record.v) == map ? string(record.v.a) : record.v",
	}}
	onSQLite := sqlite(t)
	onPostgres.Map, onSQLite.Map = mapping, mapping
	for name, c := range map[string]struct {
		o         inventory.OriginSettings
		value     string
		typ, text string
		wrong     string
	}{
		"a large integer":           {o: onPostgres, value: "9007199254740993::bigint", typ: "int", text: "9007199254740993"},
		"a number":                  {o: onPostgres, value: "1.5::numeric", typ: "double", text: "1.5"},
		"a condition":               {o: onPostgres, value: "true", typ: "bool", text: "true"},
		"nothing":                   {o: onPostgres, value: "NULL::text", typ: "null"},
		"a list":                    {o: onPostgres, value: "ARRAY['x','y']", typ: "list", text: "y"},
		"an object":                 {o: onPostgres, value: `'{"a": 1}'::jsonb`, typ: "map", text: "1"},
		"a time":                    {o: onPostgres, value: "timestamp '2026-01-02 03:04:05'", typ: "string", text: "2026-01-02T03:04:05"},
		"not a number":              {o: onPostgres, value: "'NaN'::float8", typ: "string", text: "NaN"},
		"a large integer of SQLite": {o: onSQLite, value: "9007199254740993", typ: "int", text: "9007199254740993"},
		"a number of SQLite":        {o: onSQLite, value: "1.5", typ: "double", text: "1.5"},
		"nothing of SQLite":         {o: onSQLite, value: "NULL", typ: "null"},
		"a text in bytes of SQLite": {o: onSQLite, value: "x'616263'", typ: "string", text: "abc"},
		"other bytes of SQLite":     {o: onSQLite, value: "x'ff'", wrong: `column "v" isn't text`},
		"an infinite one of SQLite": {o: onSQLite, value: "9e999", wrong: "record 1: json: unsupported value"},
		"a text with a semicolon":   {o: onSQLite, value: "'a;b'", typ: "string", text: "a;b"},
	} {
		sites, err := read(t, c.o, "SELECT 'x' AS name, "+c.value+" AS v")
		if c.wrong != "" {
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: the error is %v: want one with %q", name, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := sites[0].Metadata; got["type"] != c.typ || got["text"] != c.text {
			t.Errorf("%s: the field is the %s %q: want the %s %q", name, got["type"], got["text"], c.typ, c.text)
		}
	}
}

// The server of the database ends queries and waits for locks by itself, in a transaction
// that only reads, and shows whose they are.
func TestDatabaseLimitsQueriesItself(t *testing.T) {
	t.Parallel()
	o, _ := postgres(t)
	settings := *o.SQL
	settings.Timeout = "7s"
	o.SQL, o.Map = &settings, inventory.Mapping{ID: "record.name"}
	sites, err := read(t, o, "SELECT concat_ws('/', current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('transaction_read_only'), replace(current_setting('transaction_isolation'), ' ', '-'), replace(current_setting('application_name'), ' ', '-')) AS name")
	if err != nil {
		t.Fatal(err)
	}
	if want := "7s/7s/on/repeatable-read/tko-inventory"; sites[0].ID != want {
		t.Errorf("the settings are %s: want %s", sites[0].ID, want)
	}
}

// A query of several statements reaches no other file, and makes none: it can't remove
// the limits of its connection.
func TestSQLiteReachesNoOtherFiles(t *testing.T) {
	t.Parallel()
	o, other := sqlite(t), sqlite(t)
	file := strings.TrimPrefix(other.SQL.URL, "sqlite:")
	made := filepath.Join(t.TempDir(), "made.db")
	hidden := func(statement string) string {
		return "SELECT 1) AS q; " + statement + "; SELECT * FROM (SELECT 'x' AS name"
	}
	for what, statement := range map[string]string{
		"another file is written": "PRAGMA query_only=0; ATTACH DATABASE '" + file + "' AS other; DELETE FROM other.sites",
		"another file is read":    "ATTACH DATABASE '" + file + "' AS other",
		"a file is made":          "PRAGMA query_only=0; ATTACH DATABASE 'file:" + made + "?mode=rwc' AS other; CREATE TABLE other.t (x)",
		"a copy is made":          "PRAGMA query_only=0; VACUUM INTO '" + made + "'",
		"the file is written":     "PRAGMA query_only=0; DELETE FROM sites",
	} {
		if _, err := read(t, o, hidden(statement)); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s: the error is %v", what, err)
		}
	}
	if _, err := os.Stat(made); err == nil {
		t.Error("a file was made")
	}
	for what, from := range map[string]inventory.OriginSettings{"the file": o, "the other file": other} {
		if sites, err := read(t, from, "SELECT name, region, racks FROM sites"); err != nil || len(sites) != 4 {
			t.Errorf("%s has %d sites: %v", what, len(sites), err)
		}
	}
}

// Errors of connections show neither the password nor the addresses behind the name.
func TestErrorsOfConnectionsShowNoSecrets(t *testing.T) {
	t.Parallel()
	o, _ := postgres(t)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.PasswordFile = password
	here, err := url.Parse(o.SQL.URL)
	if err != nil {
		t.Fatal(err)
	}
	for what, address := range map[string]string{"no server": "postgres://127.0.0.1:1/sites", "no database": "postgres://" + here.Host + "/nowhere"} {
		settings := *o.SQL
		settings.URL = address
		o.SQL = &settings
		if _, err := read(t, o, "SELECT name FROM sites"); err == nil || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "user=") {
			t.Errorf("%s: the error is %v", what, err)
		}
	}
}

// The server's limits of hosts apply to databases, and settings that would send a password
// without TLS, or hold one, are refused.
func TestDatabasesAreGuarded(t *testing.T) {
	t.Parallel()
	o, _ := postgres(t)
	o.SQL.Query = "SELECT name FROM sites"
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	i, err := inventory.New(inventory.Settings{From: []inventory.OriginSettings{o}}, remote.Access{User: leash.Operator(), Guard: g, Databases: database.Query})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Revision(t.Context()); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a database on the server's machine: the error is %v, want %v", err, tko.ErrDenied)
	}
	for want, change := range map[string]func(*inventory.OriginSettings){
		"contains credentials":  func(o *inventory.OriginSettings) { o.SQL.URL = "postgres://u:hush@db/x" },
		"without parameters":    func(o *inventory.OriginSettings) { o.SQL.URL = "postgres://db/x?sslmode=disable" },
		"sql.url is malformed":  func(o *inventory.OriginSettings) { o.SQL.URL = "mysql://db/x" },
		"needs a username":      func(o *inventory.OriginSettings) { o.Username = "" },
		"is no reference":       func(o *inventory.OriginSettings) { o.PasswordFile, o.Password = "", "hush" },
		"has 0 characters":      func(o *inventory.OriginSettings) { o.SQL.Query = "" },
		`sql.timeout is "soon"`: func(o *inventory.OriginSettings) { o.SQL.Timeout = "soon" },
	} {
		broken := o
		settings := *o.SQL
		broken.SQL = &settings
		change(&broken)
		_, err := inventory.New(inventory.Settings{From: []inventory.OriginSettings{broken}}, remote.Access{User: leash.Operator(), Databases: database.Query})
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("the error is %v: want one with %q", err, want)
		}
	}
	if _, err := inventory.New(inventory.Settings{From: []inventory.OriginSettings{o}}, remote.Access{User: leash.Operator()}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "no drivers of databases") {
		t.Errorf("a program without drivers: the error is %v", err)
	}
}
