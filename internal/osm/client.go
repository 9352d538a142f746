package osm

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
)

const (
	maxAnswer = 16 << 20 // of one thing
	maxList   = 1 << 30  // of a list, which is read as it comes
	maxDetail = 1000
)

// A Client speaks to one NBI as one user in one project. It is safe for
// concurrent use. Clients with the same server, account and project share a
// token, and those with the same server connections, in the whole process.
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

// NewClient makes a Client. It asks nothing of the server. ErrInvalid says
// that the endpoint makes no sense.
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

// Target names the OSM and the project, for people and for comparison.
func (c *Client) Target() string { return c.place.host + c.place.path + " " + c.endpoint.Project }

// An Error is an answer of the NBI that says no. It is a [tko.ErrNotFound],
// ErrConflict, ErrInvalid, ErrDenied or ErrUnavailable by its status.
type Error struct {
	Method, Path string
	Status       int
	Code         string // OSM's, such as CONFLICT
	Detail       string // what it says
}

// Error is what was asked and what the server said.
func (e *Error) Error() string {
	return fmt.Sprintf("OSM answers %s %s with %d %s: %s", e.Method, e.Path, e.Status, e.Code, e.Detail)
}

// Is says of which kind it is.
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

// An unansweredError is a request of which it isn't known whether the server did it.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string {
	return "OSM doesn't answer: " + e.err.Error()
}
func (e *unansweredError) Unwrap() error        { return e.err }
func (e *unansweredError) Is(target error) bool { return target == tko.ErrUnavailable }

// request is what is asked.
type request struct {
	method, path string
	query        url.Values
	body         any // JSON
	archive      []byte
	header       http.Header
}

// do asks, as the client's user; once more if the token isn't taken any more.
// The response is read into into: a pointer, one to bytes that are no JSON, or a
// function that is given the elements of a list one by one.
func (c *Client) do(ctx context.Context, r request, into any) error {
	s, k, err := c.session(ctx, nil)
	if err != nil {
		return err
	}
	err = c.once(ctx, r, s, into)
	if said, ok := errors.AsType[*Error](err); ok && said.Status == http.StatusUnauthorized && c.account.drop(k, s, r.resource()) {
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

// resource is what a request is about, without IDs.
func (r request) resource() string {
	parts := strings.SplitN(r.path, "/", 5)
	return r.method + strings.Join(parts[:min(4, len(parts))], "/")
}

// once asks once.
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
		return &unansweredError{fmt.Errorf("%s %s at %s: %w%s", r.method, r.path, c.place.host, err, hint(err))}
	}
	defer func() { _ = resp.Body.Close() }()
	c.options.Log.DebugContext(ctx, "asked osm", "method", r.method, "path", r.path, "status", resp.StatusCode, "took", time.Since(began))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return refusalOf(r, resp)
	}
	if err := readAnswer(resp.Body, into); err != nil {
		return &unansweredError{fmt.Errorf("%s %s at %s: reading the answer: %w", r.method, r.path, c.place.host, err)}
	}
	return nil
}

// hint says what helps against what often goes wrong.
func hint(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return " (the server speaks plain http: if that is meant, say so with the scheme http)"
	case strings.Contains(text, "x509: "):
		return " (give the CA that signed its certificate)"
	default:
		return ""
	}
}

func (c *Client) build(ctx context.Context, r request, s *session) (*http.Request, error) {
	scheme, err := shared.scheme(ctx, c.place)
	if err != nil {
		return nil, &unansweredError{err}
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

// refusalOf reads an answer that says no. What isn't OSM's own form is shown
// as it is.
func refusalOf(r request, resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	e := &Error{Method: r.method, Path: r.path, Status: resp.StatusCode}
	var said struct{ Code, Detail string }
	if json.Unmarshal(data, &said) == nil && said.Code+said.Detail != "" {
		e.Code, e.Detail = said.Code, said.Detail
	} else {
		e.Code, e.Detail = http.StatusText(resp.StatusCode), string(data)
	}
	e.Detail = bounded(e.Detail)
	if location := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && location != "" {
		e.Detail = "it sends us to " + bounded(location) + ": write that URL, if it is right"
	}
	return e
}

// bounded is a text that may be shown.
func bounded(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }), " ")
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + "…"
	}
	return text
}

// readAnswer reads what the server answers.
func readAnswer(body io.Reader, into any) error {
	switch into := into.(type) {
	case nil:
		_, err := io.Copy(io.Discard, io.LimitReader(body, maxAnswer))
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
		data, err := io.ReadAll(io.LimitReader(body, maxPackage+1))
		if err == nil && len(data) > maxPackage {
			err = fmt.Errorf("it is longer than %d MiB", maxPackage>>20)
		}
		*into = data
		return err
	default:
		data, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
		switch {
		case err != nil:
			return err
		case len(data) > maxAnswer:
			return fmt.Errorf("it is longer than %d MiB", maxAnswer>>20)
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

// list reads a list of records.
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
