package inventory

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
)

// SQLSettings select rows of a database.
type SQLSettings struct {
	URL     string `json:"url"`               // postgres://HOST:PORT/DATABASE, or sqlite:FILE
	Query   string `json:"query"`             // one SELECT; its columns are the fields of records
	Timeout string `json:"timeout,omitempty"` // of the query; 30s if empty
}

const (
	defaultQueryTimeout = 30 * time.Second
	maxQuery            = 100_000 // characters
)

// check returns an ErrInvalid if the settings can't work.
func (s SQLSettings) check(c remote.Credentials) error {
	if strings.TrimSpace(s.Query) == "" || len(s.Query) > maxQuery {
		return tko.Errorf(tko.ErrInvalid, "sql.query has %d characters: use one SELECT of 1 to %d", len(s.Query), maxQuery)
	}
	if _, err := s.timeout(); err != nil {
		return err
	}
	if file, ok := strings.CutPrefix(s.URL, "sqlite:"); ok {
		if file == "" || c != (remote.Credentials{}) {
			return tko.Errorf(tko.ErrInvalid, "sql.url must be sqlite:FILE, without credentials")
		}
		return nil
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Hostname() == "" || strings.Trim(u.Path, "/") == "" || u.RawQuery != "" || u.Fragment != "" {
		return tko.Errorf(tko.ErrInvalid, "sql.url is malformed: use postgres://HOST:PORT/DATABASE without parameters, or sqlite:FILE") // the cause may show a secret
	}
	if u.User != nil {
		return tko.Errorf(tko.ErrInvalid, "sql.url contains credentials: use username, and passwordFile or password, next to sql")
	}
	if c.Token+c.TokenFile != "" || c.Username == "" {
		return tko.Errorf(tko.ErrInvalid, "a database needs a username, with passwordFile or password, next to sql and not in it, and no token")
	}
	return c.CheckReferences()
}

func (s SQLSettings) timeout() (time.Duration, error) {
	if s.Timeout == "" {
		return defaultQueryTimeout, nil
	}
	limit, err := time.ParseDuration(s.Timeout)
	if err != nil || limit < time.Millisecond || limit > readTimeout {
		return 0, tko.Errorf(tko.ErrInvalid, "sql.timeout is %q: use a time up to %s, such as 30s", s.Timeout, readTimeout)
	}
	return limit, nil
}

// A query is an origin by SQL.
type query struct {
	settings OriginSettings
	access   remote.Access
	timeout  time.Duration
}

func newQuery(s OriginSettings, access remote.Access) (query, error) {
	if access.Databases == nil {
		return query{}, tko.Errorf(tko.ErrInvalid, "this program has no drivers of databases: a tko-server without Flux sources reads sql, and tko inventory test")
	}
	timeout, err := s.SQL.timeout()
	return query{s, access, timeout}, err
}

func (o query) read(ctx context.Context, known string) ([]record, string, error) {
	_, password, err := o.settings.Read(ctx, o.access, o.settings.SQL.URL)
	if err != nil {
		return nil, "", err
	}
	data, err := o.access.Databases(ctx, remote.Query{
		URL: o.settings.SQL.URL, Username: o.settings.Username, Password: password, CAFile: o.settings.CAFile,
		Text: o.settings.SQL.Query, Rows: o.settings.MaxRecords, Bytes: o.settings.MaxBytes, Timeout: o.timeout, Dial: o.access.Guard.DialContext,
	})
	if err != nil {
		return nil, "", err
	}
	tag := digestTag(data)
	if tag == known {
		return nil, tag, nil
	}
	records, err := decode("json", data, "", o.settings.MaxRecords)
	return records, tag, err
}
