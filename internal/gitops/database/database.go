// Package database runs the queries of inventories: on PostgreSQL, and on files of SQLite.
// It only reads, within limits. Programs without the drivers don't import it: see
// [remote.Access]. Start reading at [Query].
package database

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
)

// connectTimeout is the time limit of a connection.
const connectTimeout = 30 * time.Second

// Query runs a query in a read-only transaction, and returns its rows as a JSON list of
// objects, by the names of columns. It is a [remote.Query]'s function for [remote.Access].
func Query(ctx context.Context, q remote.Query) ([]byte, error) {
	limited, cancel := context.WithTimeoutCause(ctx, q.Timeout+connectTimeout, fmt.Errorf("the query did not end within %s: select less, or set sql.timeout", q.Timeout))
	defer cancel()
	q.Text = strings.TrimRight(strings.TrimSpace(q.Text), "; \n\t")
	var data []byte
	var err error
	if file, ok := strings.CutPrefix(q.URL, "sqlite:"); ok {
		data, err = inSQLite(limited, file, q)
	} else {
		data, err = inPostgres(limited, q)
	}
	if err != nil {
		return nil, remote.Cause(limited, err)
	}
	return data, nil
}

// wrapped returns a query of a query. The database refuses those that aren't one SELECT:
// several statements, and those that write.
func wrapped(columns, text string) string {
	return "SELECT " + columns + " FROM (\n" + text + "\n) AS q"
}

// rows collects rows within limits.
type rows struct {
	q    remote.Query
	text bytes.Buffer
	n    int
}

func (r *rows) add(row []byte) error {
	r.n++
	if r.n > r.q.Rows {
		return tko.Errorf(tko.ErrInvalid, "it has more than %d records: select fewer, or set maxRecords", r.q.Rows)
	}
	if int64(r.text.Len()+len(row)) > r.q.Bytes {
		return tko.Errorf(tko.ErrInvalid, "it has more than %d bytes: select less, or set maxBytes", r.q.Bytes)
	}
	r.text.WriteByte(separatorOf(r.n))
	r.text.Write(row)
	return nil
}

func separatorOf(n int) byte {
	if n == 1 {
		return '['
	}
	return ','
}

func (r *rows) list() []byte {
	if r.n == 0 {
		return []byte("[]")
	}
	return append(r.text.Bytes(), ']')
}

// unique returns an ErrInvalid if two columns have one name, so that one would be lost.
func unique(columns []string) error {
	seen := map[string]bool{}
	for _, name := range columns {
		if seen[name] {
			return tko.Errorf(tko.ErrInvalid, "two columns of the query have the name %.100q: name one of them by AS", name)
		}
		seen[name] = true
	}
	return nil
}

func inPostgres(ctx context.Context, q remote.Query) ([]byte, error) {
	config, err := postgres(q)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, explain(err, q)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, explain(err, q)
	}
	// The connection ends with the query, and its transaction with it.
	limit := strconv.FormatInt(q.Timeout.Milliseconds(), 10)
	if _, err := tx.Exec(ctx, "SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)", limit); err != nil {
		return nil, explain(err, q)
	}
	described, err := tx.Prepare(ctx, "", q.Text)
	if err != nil {
		return nil, explain(err, q)
	}
	var columns []string
	for _, field := range described.Fields {
		columns = append(columns, field.Name)
	}
	if err := unique(columns); err != nil {
		return nil, err
	}
	found, err := tx.Query(ctx, wrapped("row_to_json(q)::text", q.Text), pgx.QueryExecModeExec)
	if err != nil {
		return nil, explain(err, q)
	}
	defer found.Close()
	all := rows{q: q}
	for found.Next() {
		var row []byte
		if err := found.Scan(&row); err != nil {
			return nil, err
		}
		if err := all.add(row); err != nil {
			return nil, err
		}
	}
	if err := found.Err(); err != nil {
		return nil, explain(err, q)
	}
	return all.list(), nil
}

// postgres returns the configuration of a connection. Nothing of it is from the
// environment or from files of the server's user.
func postgres(q remote.Query) (*pgx.ConnConfig, error) {
	u, err := url.Parse(q.URL)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "sql.url can't be parsed")
	}
	config, err := pgx.ParseConfig("host=localhost sslmode=disable passfile=/dev/null servicefile=/dev/null")
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "5432"), 10, 16)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "sql.url has the port %q", u.Port())
	}
	config.Host, config.Port, config.Database = u.Hostname(), uint16(port), strings.Trim(u.Path, "/")
	config.User, config.Password = q.Username, string(q.Password)
	config.Fallbacks, config.ConnectTimeout = nil, connectTimeout
	config.RuntimeParams = map[string]string{"application_name": "tko inventory"}
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // DialFunc resolves names
	config.DialFunc = q.Dial
	if config.DialFunc == nil {
		config.DialFunc = (&net.Dialer{}).DialContext
	}
	if guard.IsLocal(config.Host) && q.CAFile == "" {
		return config, nil
	}
	config.TLSConfig = &tls.Config{ServerName: config.Host, MinVersion: tls.VersionTLS12}
	if q.CAFile == "" {
		return config, nil
	}
	data, err := os.ReadFile(q.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA certificates: %w", err)
	}
	config.TLSConfig.RootCAs = x509.NewCertPool()
	if !config.TLSConfig.RootCAs.AppendCertsFromPEM(data) {
		return nil, tko.Errorf(tko.ErrInvalid, "caFile %q holds no certificates in PEM", q.CAFile)
	}
	return config, nil
}

// explain gives errors of PostgreSQL the kinds of TKO. The server's text is shown only if
// it is about the query, because others may contain values.
func explain(err error, q remote.Query) error {
	if errors.Is(err, tko.ErrDenied) { // by the guard
		return err
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok {
			return fmt.Errorf("connect to the database: %w", errors.Unwrap(failed))
		}
		return err
	}
	switch {
	case strings.HasPrefix(refused.Code, "28") || refused.Code == "42501":
		return tko.Errorf(tko.ErrDenied, "the database refuses the user or a table (SQLSTATE %s): check the credentials and their rights", refused.Code)
	case refused.Code == "57014" || refused.Code == "55P03":
		return fmt.Errorf("the query did not end within %s: select less, or set sql.timeout", q.Timeout)
	case strings.HasPrefix(refused.Code, "42"):
		return tko.Errorf(tko.ErrInvalid, "sql.query must be one SELECT: %.300s", refused.Message)
	}
	return fmt.Errorf("the database responded with the error %s", refused.Code)
}

func noSelect(err error) error {
	return tko.Errorf(tko.ErrInvalid, "sql.query must be one SELECT: %w", err)
}

// describe returns an ErrInvalid if a query of SQLite isn't one by itself, as one that ends
// the query around it and has statements after it, or if two of its columns have one name:
// the query around it would give them others.
func describe(conn *sql.Conn, query string) error {
	return conn.Raw(func(driver any) error {
		describer, ok := driver.(interface {
			ColumnInfo(query string) ([]sqlite.ColumnInfo, error)
		})
		if !ok {
			return errors.New("the driver of SQLite describes no columns")
		}
		described, err := describer.ColumnInfo(query)
		if err != nil {
			return noSelect(err)
		}
		columns := make([]string, len(described))
		for i, column := range described {
			columns[i] = column.Name
		}
		return unique(columns)
	})
}

func inSQLite(ctx context.Context, file string, q remote.Query) ([]byte, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, q.Timeout, fmt.Errorf("the query did not end within %s: select less, or set sql.timeout", q.Timeout))
	defer cancel()
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: file, RawQuery: "mode=ro&_pragma=query_only(1)&_pragma=busy_timeout(5000)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(limited)
	if err != nil {
		return nil, remote.Cause(limited, err)
	}
	defer func() { _ = conn.Close() }()
	if err := describe(conn, q.Text); err != nil {
		return nil, err
	}
	found, err := conn.QueryContext(limited, wrapped("*", q.Text))
	if err != nil {
		return nil, remote.Cause(limited, noSelect(err))
	}
	defer func() { _ = found.Close() }()
	columns, err := found.Columns()
	if err != nil {
		return nil, err
	}
	all := rows{q: q}
	for found.Next() {
		values, row := make([]any, len(columns)), make(map[string]any, len(columns))
		to := make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		if err := found.Scan(to...); err != nil {
			return nil, err
		}
		for i, name := range columns {
			switch value := values[i].(type) {
			case []byte:
				if !utf8.Valid(value) {
					return nil, tko.Errorf(tko.ErrInvalid, "record %d: column %q isn't text: select hex(%s)", all.n+1, name, name)
				}
				row[name] = string(value)
			default:
				row[name] = value
			}
		}
		text, err := json.Marshal(row)
		if err != nil { // of an infinite number
			return nil, tko.Errorf(tko.ErrInvalid, "record %d: %w", all.n+1, err)
		}
		if err := all.add(text); err != nil {
			return nil, err
		}
	}
	if err := found.Err(); err != nil {
		return nil, remote.Cause(limited, err)
	}
	return all.list(), nil
}
