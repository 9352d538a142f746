// Package remote makes the requests by which sources are read: with the credentials of a
// server, to that server only, and within limits. Start reading at [Getter].
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/secret"
)

const (
	requestTimeout = time.Minute // of one request
	maxTries       = 4
	maxPause       = 30 * time.Second // before a request is repeated
)

// Credentials refer to what a server asks for. Secrets are read for each reading.
type Credentials struct {
	TokenFile    string `json:"tokenFile,omitempty"`
	Token        string `json:"token,omitempty"` // reference: env:NAME or vault:PATH#KEY
	Username     string `json:"username,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
	Password     string `json:"password,omitempty"` // reference
	CAFile       string `json:"caFile,omitempty"`
}

// Access is what sources may use to read from servers.
type Access struct {
	Guard   *guard.Guard   // limits hosts; all are allowed if nil
	Secrets secret.Sources // resolve references
	Leash   *leash.Leash   // what credentials of sources in the store may be used for
	User    leash.User     // of the credentials
	Folder  string         // of the files that sources in the store name
	// HookKey reads the secret of webhooks; the error is that the server has none. If nil,
	// the program makes no subscriptions.
	HookKey func() (secret.Text, error)
	// Databases runs the queries of inventories, and returns their rows as a JSON list of
	// objects. If nil, the program has no drivers of databases.
	Databases func(ctx context.Context, q Query) ([]byte, error)
}

// A Query is one SELECT of a database, with its limits.
type Query struct {
	URL      string // postgres://HOST:PORT/DATABASE, or sqlite:FILE
	Username string
	Password secret.Text
	CAFile   string
	Text     string
	Rows     int
	Bytes    int64
	Timeout  time.Duration
	// Dial connects to the server; without limits if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// QueryCommand is the hidden command of tko-server that runs a query, which it reads from
// stdin as JSON of a PlainQuery.
const QueryCommand = "query-inventory"

// A PlainQuery is a Query without its dialer, whose password can be written.
type PlainQuery struct {
	URL, Username, Password, CAFile, Text string

	Rows    int
	Bytes   int64
	Timeout time.Duration
}

// Plain returns the query for another process on this machine.
func (q Query) Plain() PlainQuery {
	return PlainQuery{q.URL, q.Username, string(q.Password), q.CAFile, q.Text, q.Rows, q.Bytes, q.Timeout}
}

// Query returns the query, without limits of its connections.
func (p PlainQuery) Query() Query {
	return Query{URL: p.URL, Username: p.Username, Password: secret.Text(p.Password), CAFile: p.CAFile, Text: p.Text, Rows: p.Rows, Bytes: p.Bytes, Timeout: p.Timeout}
}

// A Getter makes the requests of one reading: with credentials, to one server, and
// within a limit of bytes.
type Getter struct {
	client   *http.Client
	header   http.Header
	origin   string // scheme and host
	anywhere bool   // other servers may be used, too, without credentials
	left     int64
	limit    int64
}

// New returns a Getter for a server, and reads the credentials. The scheme is that of
// tokens. limit is the most bytes that it reads.
func New(ctx context.Context, address string, c Credentials, access Access, scheme string, limit int64) (*Getter, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the URL can't be parsed")
	}
	transport, err := c.Transport(access)
	if err != nil {
		return nil, err
	}
	g := &Getter{header: http.Header{}, origin: originOf(u), left: limit, limit: limit}
	g.client = &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if originOf(r.URL) != g.origin && !g.anywhere || len(via) > 5 {
			return http.ErrUseLastResponse // credentials are for this server only
		}
		if originOf(r.URL) != g.origin {
			r.Header.Del("Authorization")
		}
		return nil
	}}
	token, password, err := c.Read(ctx, access, address)
	if err != nil {
		return nil, err
	}
	switch {
	case token != "":
		if strings.HasPrefix(string(token), "nbt_") {
			scheme = "Bearer" // a token of NetBox' second version
		}
		g.header.Set("Authorization", scheme+" "+string(token))
	case c.Username != "" || password != "":
		r := http.Request{Header: g.header}
		r.SetBasicAuth(c.Username, string(password))
	}
	g.header.Set("Accept", "application/json, text/csv, application/yaml, */*;q=0.5")
	return g, nil
}

func originOf(u *url.URL) string { return u.Scheme + "://" + u.Host }

// Anywhere allows links and redirects to other servers, without credentials.
func (g *Getter) Anywhere() { g.anywhere = true }

// Read reads the token, or the password, that is sent to the host of a URL; "" if there is
// none.
func (c Credentials) Read(ctx context.Context, access Access, address string) (token, password secret.Text, err error) {
	if token, err = access.credential(ctx, c.Token, c.TokenFile, address); err == nil {
		password, err = access.credential(ctx, c.Password, c.PasswordFile, address)
	}
	return token, password, err
}

// Transport returns a guarded transport with the CA certificates.
func (c Credentials) Transport(access Access) (http.RoundTripper, error) {
	if c.CAFile == "" {
		return access.Guard.Transport(), nil
	}
	data, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA certificates: %w", err)
	}
	transport, err := access.Guard.WithCA(data)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "caFile %q: %w", c.CAFile, err)
	}
	return transport, nil
}

// NameOf returns the name of the credential in a file: its path, below the folder of the files
// that sources in the store name.
func NameOf(folder, file string) string {
	if folder != "" {
		if below, err := filepath.Rel(folder, file); err == nil {
			file = below
		}
	}
	return leash.Name(leash.KindGitOps, file)
}

func (a Access) credential(ctx context.Context, reference, file, address string) (secret.Text, error) {
	if reference == "" && file == "" {
		return "", nil
	}
	name := reference
	if name == "" {
		name = NameOf(a.Folder, file)
	}
	grant, err := a.User.Grant(name, address)
	if err != nil {
		return "", err
	}
	if reference != "" {
		text, err := a.Secrets.Resolve(ctx, reference, grant)
		if err != nil {
			return "", tko.Errorf(tko.ErrDenied, "read a credential: %w", err)
		}
		return text, nil
	}
	text, err := secret.ReadFile(file, name, grant)
	if err != nil {
		return "", fmt.Errorf("read a credential: %w", err)
	}
	if strings.ContainsAny(text, "\r\n") {
		return "", tko.Errorf(tko.ErrInvalid, "the credential in %q has several lines: write one line", file)
	}
	return secret.Text(text), nil
}

// A Response is a complete response.
type Response struct {
	Body      []byte
	Header    http.Header
	Unchanged bool // 304
}

// Get requests a URL. It repeats requests that the server refuses for the moment. An
// error contains no text of the server.
func (g *Getter) Get(ctx context.Context, address string, header http.Header) (Response, error) {
	if u, err := url.Parse(address); err != nil || originOf(u) != g.origin && !g.anywhere {
		return Response{}, tko.Errorf(tko.ErrDenied, "the server refers to another server: its pages must be at %s", g.origin)
	}
	for try := 1; ; try++ {
		got, wait, err := g.once(ctx, address, header)
		if err == nil || wait == 0 || try == maxTries || ctx.Err() != nil {
			return got, err
		}
		if err := pause.For(ctx, wait); err != nil {
			return Response{}, err
		}
	}
}

// maxSent is the most bytes of a response to Send.
const maxSent = 1 << 20

// Send makes one request that may change something, and doesn't repeat it. An error
// contains no text of the server.
func (g *Getter) Send(ctx context.Context, method, address string, body io.Reader) (code int, response []byte, err error) {
	return g.SendWith(ctx, method, address, nil, body)
}

// SendWith is Send with further headers.
func (g *Getter) SendWith(ctx context.Context, method, address string, header http.Header, body io.Reader) (code int, response []byte, err error) {
	all := http.Header{"Content-Type": {"application/json"}}
	maps.Copy(all, header)
	return g.send(ctx, method, address, all, body)
}

// SendForm is Send of the fields of a form, by POST.
func (g *Getter) SendForm(ctx context.Context, address string, form url.Values) (code int, response []byte, err error) {
	return g.send(ctx, http.MethodPost, address, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, strings.NewReader(form.Encode()))
}

func (g *Getter) send(ctx context.Context, method, address string, header http.Header, body io.Reader) (code int, response []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("the server did not respond within %s", requestTimeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil || originOf(request.URL) != g.origin {
		return 0, nil, tko.Errorf(tko.ErrInvalid, "the URL can't be parsed, or is of another server")
	}
	maps.Copy(request.Header, g.header)
	maps.Copy(request.Header, header)
	result, err := g.client.Do(request)
	if err != nil {
		return 0, nil, failure(ctx, err)
	}
	defer func() { _ = result.Body.Close() }()
	if response, err = io.ReadAll(io.LimitReader(result.Body, maxSent)); err != nil {
		return 0, nil, fmt.Errorf("the response is incomplete: %w", Cause(ctx, err))
	}
	return result.StatusCode, response, nil
}

// failure returns why a request failed, without the URL, which may be long.
func failure(ctx context.Context, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return Cause(ctx, err)
}

// once makes one request. A wait other than 0 means that it may be repeated then.
func (g *Getter) once(ctx context.Context, address string, header http.Header) (got Response, wait time.Duration, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("the server did not respond within %s", requestTimeout))
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodGet, address, http.NoBody)
	if err != nil {
		return got, 0, tko.Errorf(tko.ErrInvalid, "the URL can't be parsed")
	}
	for _, from := range []http.Header{g.header, header} {
		maps.Copy(request.Header, from)
	}
	if originOf(request.URL) != g.origin {
		request.Header.Del("Authorization")
	}
	result, err := g.client.Do(request)
	if err != nil {
		return got, time.Second, failure(limited, err)
	}
	defer func() { _ = result.Body.Close() }()
	switch code := result.StatusCode; {
	case code == http.StatusNotModified && header != nil:
		return Response{Unchanged: true}, 0, nil
	case code == http.StatusOK:
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return got, 0, tko.Errorf(tko.ErrDenied, "the server responded %s: check the credentials and their rights", guard.Status(code))
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		return got, retryAfter(result.Header), fmt.Errorf("the server responded %s", guard.Status(code))
	default:
		if code == http.StatusNotFound {
			return got, 0, tko.Errorf(tko.ErrNotFound, "the server responded %s", guard.Status(code))
		}
		return got, 0, fmt.Errorf("the server responded %s", guard.Status(code))
	}
	body, err := io.ReadAll(io.LimitReader(result.Body, g.left+1))
	if err != nil {
		return got, time.Second, fmt.Errorf("the response is incomplete: %w", Cause(limited, err))
	}
	g.left -= int64(len(body))
	if g.left < 0 {
		return got, 0, tko.Errorf(tko.ErrInvalid, "it has more than %d bytes: select less, or set maxBytes", g.limit)
	}
	return Response{Body: body, Header: result.Header}, 0, nil
}

// Cause returns why a context ended, if it did, or else err.
func Cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// retryAfter returns the pause that a server asks for, within limits.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return time.Second
	}
	return min(max(time.Duration(seconds)*time.Second, time.Millisecond), maxPause)
}

// Check returns an ErrInvalid if the credentials contradict each other, or can't be sent
// to a server.
func (c Credentials) Check(address string) error {
	if err := c.CheckReferences(); err != nil {
		return err
	}
	token, password := c.Token+c.TokenFile != "", c.Username+c.Password+c.PasswordFile != ""
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return tko.Errorf(tko.ErrInvalid, "the URL is not one of http or https") // the cause may show a secret
	}
	if u.User != nil {
		return tko.Errorf(tko.ErrInvalid, "the URL of %q contains credentials: put them into a file, and name that", u.Host)
	}
	if u.Scheme == "http" && (token || password) && !guard.IsLocal(u.Hostname()) {
		return tko.Errorf(tko.ErrInvalid, "the URL of %q has no TLS, and credentials are sent over TLS only: use https", u.Host)
	}
	return nil
}

// CheckReferences returns an ErrInvalid if the credentials contradict each other, or hold
// a secret in place of a reference.
func (c Credentials) CheckReferences() error {
	for field, reference := range map[string]string{"token": c.Token, "password": c.Password} {
		if reference != "" && !secret.IsReference(reference) {
			return tko.Errorf(tko.ErrInvalid, "%s is no reference: use env:NAME or vault:PATH#KEY, or %sFile", field, field)
		}
	}
	if c.Token != "" && c.TokenFile != "" || c.Password != "" && c.PasswordFile != "" {
		return tko.Errorf(tko.ErrInvalid, "credentials are given twice, as a reference and as a file: use one")
	}
	token, password := c.Token+c.TokenFile != "", c.Username+c.Password+c.PasswordFile != ""
	if token && password {
		return tko.Errorf(tko.ErrInvalid, "there is a token as well as a user: use one")
	}
	return nil
}
