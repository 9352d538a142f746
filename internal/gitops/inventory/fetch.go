package inventory

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/secret"
)

const (
	requestTimeout = time.Minute // of one page
	readTimeout    = 10 * time.Minute
	maxTries       = 4
	maxPause       = 30 * time.Second // before a request is repeated
	maxPages       = 100_000
)

// A getter makes the requests of one reading of an origin: with its credentials, to
// its server only, and within its limit of bytes.
type getter struct {
	client  *http.Client
	header  http.Header
	origin  string // scheme and host
	left    int64
	limit   int64
	secrets []secret.Text
}

// newGetter reads the credentials of an origin.
func newGetter(ctx context.Context, s OriginSettings, access Access, scheme string) (*getter, error) {
	u, err := url.Parse(s.address())
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the URL can't be parsed")
	}
	transport := http.DefaultTransport
	if access.Guard != nil {
		transport = access.Guard.Transport()
	}
	if s.CAFile != "" {
		data, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA certificates: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) {
			return nil, tko.Errorf(tko.ErrInvalid, "caFile %q holds no certificates in PEM", s.CAFile)
		}
		transport = access.Guard.Wrap(&http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: requestTimeout, IdleConnTimeout: 10 * time.Second,
		})
	}
	g := &getter{header: http.Header{}, origin: u.Scheme + "://" + u.Host, left: s.MaxBytes, limit: s.MaxBytes}
	g.client = &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme+"://"+r.URL.Host != g.origin || len(via) > 5 {
			return http.ErrUseLastResponse // credentials are for this server only
		}
		return nil
	}}
	token, err := credential(ctx, s.Token, s.TokenFile, access.Secrets)
	if err != nil {
		return nil, err
	}
	password, err := credential(ctx, s.Password, s.PasswordFile, access.Secrets)
	if err != nil {
		return nil, err
	}
	switch {
	case token != "":
		if strings.HasPrefix(string(token), "nbt_") {
			scheme = "Bearer" // a token of NetBox' second version
		}
		g.header.Set("Authorization", scheme+" "+string(token))
	case s.Username != "" || password != "":
		r := http.Request{Header: g.header}
		r.SetBasicAuth(s.Username, string(password))
	}
	g.header.Set("Accept", "application/json, text/csv, application/yaml, */*;q=0.5")
	return g, nil
}

func credential(ctx context.Context, reference, file string, secrets secret.Sources) (secret.Text, error) {
	if reference != "" {
		text, err := secrets.Resolve(ctx, reference)
		if err != nil {
			return "", tko.Errorf(tko.ErrDenied, "read a credential: %w", err)
		}
		return text, nil
	}
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read a credential: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return "", tko.Errorf(tko.ErrInvalid, "the credential in %q is empty or has several lines: write one line", file)
	}
	return secret.Text(text), nil
}

// A response is a complete response.
type response struct {
	body      []byte
	header    http.Header
	unchanged bool // 304
}

// get requests a URL. It repeats requests that the server refuses for the moment. An
// error contains no text of the server.
func (g *getter) get(ctx context.Context, address string, header http.Header) (response, error) {
	if u, err := url.Parse(address); err != nil || u.Scheme+"://"+u.Host != g.origin {
		return response{}, tko.Errorf(tko.ErrDenied, "the server refers to another server: its pages must be at %s", g.origin)
	}
	for try := 1; ; try++ {
		got, pause, err := g.once(ctx, address, header)
		if err == nil || pause == 0 || try == maxTries || ctx.Err() != nil {
			return got, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return response{}, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// once makes one request. A pause other than 0 means that it may be repeated then.
func (g *getter) once(ctx context.Context, address string, header http.Header) (got response, pause time.Duration, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("the server did not respond within %s", requestTimeout))
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodGet, address, http.NoBody)
	if err != nil {
		return got, 0, tko.Errorf(tko.ErrInvalid, "the URL can't be parsed")
	}
	for _, from := range []http.Header{g.header, header} {
		for key, values := range from {
			request.Header[key] = values
		}
	}
	result, err := g.client.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the URL, which may be long
		}
		return got, time.Second, cause(limited, err)
	}
	defer func() { _ = result.Body.Close() }()
	switch code := result.StatusCode; {
	case code == http.StatusNotModified && header != nil:
		return response{unchanged: true}, 0, nil
	case code == http.StatusOK:
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return got, 0, tko.Errorf(tko.ErrDenied, "the server responded %s: check the credentials and their rights", guard.Status(code))
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		return got, retryAfter(result.Header), fmt.Errorf("the server responded %s", guard.Status(code))
	default:
		return got, 0, fmt.Errorf("the server responded %s", guard.Status(code))
	}
	body, err := io.ReadAll(io.LimitReader(result.Body, g.left+1))
	if err != nil {
		return got, time.Second, fmt.Errorf("the response is incomplete: %w", cause(limited, err))
	}
	if g.left -= int64(len(body)); g.left < 0 {
		return got, 0, tko.Errorf(tko.ErrInvalid, "it has more than %d bytes: select less, or set maxBytes", g.limit)
	}
	return response{body: body, header: result.Header}, 0, nil
}

// cause returns why a context ended, if it did, or else err.
func cause(ctx context.Context, err error) error {
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
