package nbi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// MaxPackage is the limit of the bytes of a package.
const MaxPackage = 256 << 20

const (
	maxResponse = 16 << 20 // bytes of a response that isn't a list
	maxList     = 1 << 30  // bytes of a list, which is decoded as it arrives
	maxDetail   = 1000     // bytes of a message in an error
)

// A Client makes requests of one NBI as one user in one project. It is safe for
// concurrent use. In a process, clients with the same server, account and project
// share a token, and those with the same server share connections.
type Client struct {
	endpoint Endpoint
	place    place
	options  Options
	http     *http.Client
	account  *account

	mu    sync.Mutex
	key   sessionKey
	known bool // key is of the password that was read last
}

// NewClient makes a Client. It makes no request. ErrInvalid if the endpoint is
// invalid.
func NewClient(e Endpoint, o Options) (*Client, error) {
	p, err := e.place()
	if err != nil {
		return nil, err
	}
	if e.User == "" || e.Project == "" || e.Password == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "OSM at %q: user, password and project are needed", e.URL)
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	transport, err := shared.transport(p, e)
	if err != nil {
		return nil, err
	}
	return &Client{
		endpoint: e, place: p, options: o, account: shared.account(accountKey{place: p, user: e.User}),
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Target returns the name of the OSM and the project, for messages and comparison.
func (c *Client) Target() string { return c.place.host + c.place.path + " " + c.endpoint.Project }

// An Error is an error response of the NBI. By its status, it is a
// [tko.ErrNotFound], ErrConflict, ErrInvalid, ErrDenied or ErrUnavailable.
type Error struct {
	Method, Path string
	Status       int
	Code         string // OSM's, such as CONFLICT
	Detail       string // OSM's message
}

// Error returns the request and the server's message.
func (e *Error) Error() string {
	return fmt.Sprintf("OSM responds to %s %s with %d %s: %s", e.Method, e.Path, e.Status, e.Code, e.Detail)
}

// Is reports whether the error is of a kind.
func (e *Error) Is(target error) bool {
	switch {
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		return target == tko.ErrDenied
	case e.Status == http.StatusNotFound:
		return target == tko.ErrNotFound
	case e.Status == http.StatusConflict:
		return target == tko.ErrConflict
	case e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout || e.Status >= 500 && e.Status != http.StatusNotImplemented:
		return target == tko.ErrUnavailable
	default:
		return target == tko.ErrInvalid
	}
}

// A noResponseError is the error of a request without a complete response: the server
// may have processed it.
type noResponseError struct{ err error }

func (e *noResponseError) Error() string {
	return "OSM doesn't answer: " + e.err.Error()
}
func (e *noResponseError) Unwrap() error        { return e.err }
func (e *noResponseError) Is(target error) bool { return target == tko.ErrUnavailable }

// A request is a request of the NBI.
type request struct {
	method, path string
	query        url.Values
	body         any // JSON
	archive      []byte
	header       http.Header
}

// do makes a request as the client's user; a second time if the server refuses the
// token. It decodes the response into into: a pointer for JSON, a *[]byte for other
// content, or a function that decodes the elements of a list.
func (c *Client) do(ctx context.Context, r request, into any) error {
	if r.method != http.MethodGet {
		if err := c.MayBegin(ctx); err != nil {
			return err
		}
	}
	s, k, err := c.session(ctx, nil)
	if err != nil {
		return err
	}
	err = c.once(ctx, r, s, into)
	if response, ok := errors.AsType[*Error](err); ok && response.Status == http.StatusUnauthorized && c.account.drop(k, s, r.resource()) {
		if s, _, err = c.session(ctx, s); err != nil {
			return err
		}
		err = c.once(ctx, r, s, into)
	}
	if err == nil {
		c.account.worked(s, r.resource())
	}
	return err
}

// MayBegin returns an error if nothing that changes OSM may begin now.
func (c *Client) MayBegin(ctx context.Context) error {
	if c.options.Begin == nil {
		return nil
	}
	return c.options.Begin(ctx)
}

// resource returns the method and the path without IDs.
func (r request) resource() string {
	parts := strings.SplitN(r.path, "/", 5)
	return r.method + strings.Join(parts[:min(4, len(parts))], "/")
}

// once makes a request once, with the token of s if that isn't nil.
func (c *Client) once(ctx context.Context, r request, s *session, into any) error {
	timeout := c.options.Timeout
	if r.archive != nil {
		timeout *= 10
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := c.build(ctx, r, s)
	if err != nil {
		return err
	}
	began := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err
		}
		return &noResponseError{fmt.Errorf("%s %s at %s: %w%s", r.method, r.path, c.place.host, err, hint(err))}
	}
	defer func() { _ = resp.Body.Close() }()
	c.options.Log.DebugContext(ctx, "requested osm", "method", r.method, "path", r.path, "status", resp.StatusCode, "took", time.Since(began))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return refusalOf(r, resp)
	}
	if err := readResponse(resp.Body, into); err != nil {
		return &noResponseError{fmt.Errorf("%s %s at %s: reading the response: %w", r.method, r.path, c.place.host, err)}
	}
	return nil
}

// hint returns the remedy for a common error; empty if there is none.
func hint(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return " (the server speaks plain http: if that is intended, write the scheme http)"
	case strings.Contains(text, "x509: "):
		return " (give the CA that signed its certificate)"
	default:
		return ""
	}
}

func (c *Client) build(ctx context.Context, r request, s *session) (*http.Request, error) {
	scheme, err := shared.scheme(ctx, c.place)
	if err != nil {
		return nil, &noResponseError{err}
	}
	target := scheme + "://" + c.place.host + c.place.path + "/osm" + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	contentType := ""
	switch {
	case r.archive != nil:
		body, contentType = bytes.NewReader(r.archive), "application/gzip"
	case r.body != nil:
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%s %s: %w", r.method, r.path, err)
		}
		body, contentType = bytes.NewReader(data), "application/json"
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%s %s: %w", r.method, r.path, err)
	}
	maps.Copy(req.Header, r.header)
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	if contentType != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", contentType)
	}
	if s != nil {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	return req, nil
}

// refusalOf reads an error response. If it isn't in OSM's form, its text is the
// detail.
func refusalOf(r request, resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	e := &Error{Method: r.method, Path: r.path, Status: resp.StatusCode}
	var response struct{ Code, Detail string }
	if json.Unmarshal(data, &response) == nil && response.Code+response.Detail != "" {
		e.Code, e.Detail = response.Code, response.Detail
	} else {
		e.Code, e.Detail = http.StatusText(resp.StatusCode), string(data)
	}
	e.Detail = bounded(e.Detail)
	if location := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && location != "" {
		e.Detail = "it redirects to " + bounded(location) + ": write that URL if it is right"
	}
	return e
}

// bounded returns a text of one line and of bounded length.
func bounded(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }), " ")
	return printable.Short(text, maxDetail)
}

// readResponse decodes the body of a response: see do.
func readResponse(body io.Reader, into any) error {
	switch into := into.(type) {
	case nil:
		_, err := io.Copy(io.Discard, io.LimitReader(body, maxResponse))
		return err
	case func(*json.Decoder) error:
		limited := &io.LimitedReader{R: body, N: maxList}
		d := json.NewDecoder(limited)
		if t, err := d.Token(); err != nil || t != json.Delim('[') {
			return fmt.Errorf("it is no list: %w", orEOF(err))
		}
		for d.More() {
			if err := into(d); err != nil {
				return err
			}
		}
		_, err := d.Token()
		return err
	case *[]byte:
		data, err := io.ReadAll(io.LimitReader(body, MaxPackage+1))
		if err == nil && len(data) > MaxPackage {
			err = fmt.Errorf("it is longer than %d MiB", MaxPackage>>20)
		}
		*into = data
		return err
	default:
		data, err := io.ReadAll(io.LimitReader(body, maxResponse+1))
		switch {
		case err != nil:
			return err
		case len(data) > maxResponse:
			return fmt.Errorf("it is longer than %d MiB", maxResponse>>20)
		case len(bytes.TrimSpace(data)) == 0:
			return nil
		}
		return json.Unmarshal(data, into)
	}
}

func orEOF(err error) error {
	if err == nil {
		return errors.New("something else")
	}
	return err
}

// list requests a list of records.
func list[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	var all []T
	err := c.do(ctx, request{method: http.MethodGet, path: path, query: query}, func(d *json.Decoder) error {
		var one T
		if err := d.Decode(&one); err != nil {
			return err
		}
		all = append(all, one)
		return nil
	})
	return all, err
}
