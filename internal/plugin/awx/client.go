package awx

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/secret"
)

const (
	requestTimeout = 30 * time.Second
	maxResponse    = 64 << 20 // bytes
	maxDetail      = 1000     // bytes of AWX's own message in an error
	maxPages       = 100      // of a list
	pageSize       = "100"    // entries; AWX's limit is 200
)

// A client makes requests of one AWX as one user.
type client struct {
	base     *url.URL // of version 2 of the API, ends with a slash
	username string
	password secret.Text
	token    secret.Text // instead of username and password
	http     *http.Client
	now      time.Time // AWX's clock, as of the latest response
}

// baseOf returns the URL of the API of a host: a name with or without a port, which is
// called by https, or a URL. A URL with a path names an API elsewhere than at /api,
// such as https://platform.example.com/api/controller.
func baseOf(host string) (*url.URL, error) {
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("the property %s is no host: use NAME, NAME:PORT or https://NAME", hostProperty)
	}
	path := strings.TrimSuffix(u.Path, "/")
	if path == "" {
		path = "/api"
	}
	u.Path = strings.TrimSuffix(path, "/v2") + "/v2/"
	return u, nil
}

// transport returns how AWX is connected. The certificates in ca are trusted in
// addition to the machine's.
func transport(g *guard.Guard, ca []byte) (http.RoundTripper, error) {
	base := &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: requestTimeout, IdleConnTimeout: requestTimeout}
	if len(ca) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("the property %s refers to no certificate in PEM form", caProperty)
		}
		base.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return g.Wrap(base), nil
}

// A statusError is an error response of AWX.
type statusError struct {
	method, path string
	status       int
	detail       string
	user         string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("AWX responds to %s %s with %d %s", e.method, e.path, e.status, http.StatusText(e.status))
	if e.detail != "" {
		text += ": " + e.detail
	}
	switch e.status {
	case http.StatusUnauthorized:
		text += fmt.Sprintf(" (it does not accept the credentials of %s: check the properties %s, %s and %s, and what they refer to)", e.user, usernameProperty, passwordProperty, tokenProperty)
	case http.StatusForbidden:
		text += fmt.Sprintf(" (%s needs the roles Execute of the template, Use of the inventory and Member of the organization)", e.user)
	}
	return text
}

// do makes a request of the API, with a path relative to it.
func (c *client) do(ctx context.Context, method, path string, body, into any) error {
	target := c.base.JoinPath(path)
	if strings.HasSuffix(path, "/") && !strings.HasSuffix(target.Path, "/") {
		target.Path += "/"
	}
	return c.request(ctx, method, target, body, into)
}

func (c *client) request(ctx context.Context, method string, target *url.URL, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, target.String(), content)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+string(c.token))
	} else {
		r.SetBasicAuth(c.username, string(c.password))
	}
	response, err := c.http.Do(r)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return fmt.Errorf("AWX at %s doesn't respond to %s %s: %w", c.base.Host, method, target.Path, err)
	}
	defer func() { _ = response.Body.Close() }()
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		c.now = at
	} else {
		c.now = time.Now()
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	if err != nil {
		return fmt.Errorf("AWX at %s: reading the response to %s %s: %w", c.base.Host, method, target.Path, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return &statusError{method: method, path: target.Path, status: response.StatusCode, detail: detailOf(data), user: c.user()}
	}
	if len(data) > maxResponse {
		return fmt.Errorf("AWX at %s: the response to %s %s is longer than %d bytes", c.base.Host, method, target.Path, maxResponse)
	}
	if into == nil || len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("AWX at %s: the response to %s %s is malformed: is it the host of AWX? %w", c.base.Host, method, target.Path, err)
	}
	return nil
}

func (c *client) user() string {
	if c.token != "" {
		return "the token's user"
	}
	return fmt.Sprintf("the user %q", c.username)
}

// detailOf returns the message of an error response; empty if it is no JSON, which may
// be a page of a proxy.
func detailOf(data []byte) string {
	var value any
	if json.Unmarshal(data, &value) != nil {
		return ""
	}
	if m, ok := value.(map[string]any); ok {
		if text, ok := m["detail"].(string); ok {
			return bounded(text)
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return bounded(string(text))
}

func bounded(text string) string {
	return printable.Short(strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD")), maxDetail)
}

// list calls each with the entries of a list, page by page, until each returns false.
func list[T any](ctx context.Context, c *client, path string, query url.Values, each func(T) bool) error {
	if query.Get("page_size") == "" {
		query.Set("page_size", pageSize)
	}
	target := c.base.JoinPath(path)
	if !strings.HasSuffix(target.Path, "/") {
		target.Path += "/"
	}
	target.RawQuery = query.Encode()
	for range maxPages {
		var page struct {
			Next    string `json:"next"`
			Results []T    `json:"results"`
		}
		if err := c.request(ctx, http.MethodGet, target, nil, &page); err != nil {
			return err
		}
		for _, entry := range page.Results {
			if !each(entry) {
				return nil
			}
		}
		if page.Next == "" {
			return nil
		}
		next, err := target.Parse(page.Next)
		if err != nil {
			return fmt.Errorf("AWX at %s: the address of the next page of %s is malformed", c.base.Host, path)
		}
		// AWX behind a proxy may name itself differently; credentials stay with the host.
		next.Scheme, next.Host, next.User = target.Scheme, target.Host, nil
		target = next
	}
	return fmt.Errorf("AWX at %s: the list %s has more than %d pages", c.base.Host, path, maxPages)
}
