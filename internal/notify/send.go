package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// sendTimeout limits one attempt to send a message.
const sendTimeout = 30 * time.Second

// maxAnswer is the most bytes of a response that are read.
const maxAnswer = 64 << 10

// Access says which hosts messages may be sent to, and with which credentials.
type Access struct {
	Guard   *guard.Guard
	Leash   *leash.Leash
	Secrets secret.Sources
}

// An outlet is what one subscription may use to send.
type outlet struct {
	Access

	user leash.User
}

// outlet returns what a subscription may use.
func (a Access) outlet(name string) outlet { return outlet{a, a.Leash.Subscription(name)} }

// A sender sends messages to a destination. Errors contain no text of the destination, and
// no secrets.
type sender interface {
	send(ctx context.Context, m Message, out outlet) error
}

// A retryError is the refusal of a destination that asks for a pause.
type retryError struct {
	error

	after time.Duration
}

// read returns the secret that a reference names, for a host; "" if there is no reference.
func (o outlet) read(ctx context.Context, reference, host string) (secret.Text, error) {
	if reference == "" {
		return "", nil
	}
	grant, err := o.user.Grant(reference, host)
	if err != nil {
		return "", err
	}
	text, err := o.Secrets.Resolve(ctx, reference, grant)
	if err != nil {
		return "", tko.Errorf(tko.ErrDenied, "read a credential: %w", err)
	}
	return text, nil
}

func checkCA(text string) error {
	if len(text) > maxCA {
		return fmt.Errorf("ca has more than %d bytes", maxCA)
	}
	_, err := pool(text)
	return err
}

// pool returns the certificates of a text; nil for none.
func pool(text string) (*x509.CertPool, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // the machine's are trusted then
	}
	certificates := x509.NewCertPool()
	if !certificates.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("ca has no certificates in PEM")
	}
	return certificates, nil
}

// client returns a client for a server, which follows no redirects.
func (s *Server) client(out outlet) (*http.Client, error) {
	certificates, err := pool(s.CA)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	transport := out.Guard.Transport()
	if certificates != nil {
		transport = out.Guard.Wrap(&http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: certificates, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: sendTimeout, ResponseHeaderTimeout: sendTimeout, IdleConnTimeout: time.Second,
		})
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// post sends a body to a server; path is appended to its URL.
func (s *Server) post(ctx context.Context, out outlet, path string, header http.Header, body []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sendTimeout, fmt.Errorf("the destination did not respond within %s", sendTimeout))
	defer cancel()
	token, err := out.read(ctx, s.Token, s.URL)
	if err != nil {
		return err
	}
	password, err := out.read(ctx, s.Password, s.URL)
	if err != nil {
		return err
	}
	client, err := s.client(out)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "the URL of the destination can't be parsed") // the cause may show a secret
	}
	maps.Copy(request.Header, header)
	switch {
	case token != "":
		request.Header.Set("Authorization", "Bearer "+string(token))
	case s.Username != "":
		request.SetBasicAuth(s.Username, string(password))
	}
	response, err := client.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the URL
		}
		return remote.Cause(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)); err != nil {
		return fmt.Errorf("the response is incomplete: %w", remote.Cause(ctx, err))
	}
	return accepted(response)
}

// accepted returns an error unless a response accepts a message.
func accepted(r *http.Response) error {
	switch {
	case r.StatusCode >= 200 && r.StatusCode < 300:
		return nil
	case r.StatusCode >= 300 && r.StatusCode < 400:
		return fmt.Errorf("the destination responded %s, and redirects are not followed: use the URL that it redirects to", guard.Status(r.StatusCode))
	case r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the destination responded %s: check the credentials and their rights", guard.Status(r.StatusCode))
	}
	err := fmt.Errorf("the destination responded %s", guard.Status(r.StatusCode))
	if seconds, atoiErr := strconv.Atoi(r.Header.Get("Retry-After")); atoiErr == nil && seconds > 0 && seconds <= int(maxBackoff/time.Second) {
		return &retryError{err, time.Duration(seconds) * time.Second}
	}
	return err
}

// signed returns the headers of Standard Webhooks for a body: the signature covers the ID,
// the time and the body.
func signed(id string, at time.Time, key secret.Text, body []byte) http.Header {
	header := http.Header{}
	stamp := strconv.FormatInt(at.Unix(), 10)
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", stamp)
	if key == "" {
		return header
	}
	raw := []byte(key)
	if text, ok := strings.CutPrefix(string(key), "whsec_"); ok {
		if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
			raw = decoded
		}
	}
	mac := hmac.New(sha256.New, raw)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return header
}

func (w *Webhook) send(ctx context.Context, m Message, out outlet) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	key, err := out.read(ctx, w.Secret, w.URL)
	if err != nil {
		return err
	}
	header := signed(m.ID, m.Time, key, body)
	header.Set("Content-Type", "application/json")
	return w.post(ctx, out, "", header, body)
}

// eventType is the type of events, unless the subscription has another.
const eventType = "org.nephio.tko.message.v1"

func (c *CloudEvents) send(ctx context.Context, m Message, out outlet) error {
	typ := eventType
	if c.Type != "" {
		typ = c.Type
	}
	body, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": m.ID, "source": "/tko/" + url.PathEscape(m.Instance), "type": typ, "subject": m.Subscription,
		"time": m.Time.Format(time.RFC3339Nano), "datacontenttype": "application/json", "data": m,
	})
	if err != nil {
		return err
	}
	key, err := out.read(ctx, c.Secret, c.URL)
	if err != nil {
		return err
	}
	header := signed(m.ID, m.Time, key, body)
	header.Set("Content-Type", "application/cloudevents+json; charset=UTF-8")
	return c.post(ctx, out, "", header, body)
}

func (s *Slack) send(ctx context.Context, m Message, out outlet) error {
	path, err := out.read(ctx, s.Path, s.URL)
	if err != nil {
		return err
	}
	if path != "" && (path[0] != '/' || strings.HasSuffix(s.URL, "/")) {
		return tko.Errorf(tko.ErrInvalid, "path must begin with /, and the URL must not end with it")
	}
	text := fmt.Sprintf("*%s*\n%s\n_%s_", slackEscape(m.Title), slackEscape(m.Text), m.ID)
	value := map[string]any{"text": text}
	if s.Channel != "" {
		value["channel"] = s.Channel
	}
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.post(ctx, out, string(path), http.Header{"Content-Type": {"application/json"}}, body)
}

// slackEscape returns a text as Slack shows it: without links and mentions.
func slackEscape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// ownLabels are the labels of alerts that TKO sets.
var ownLabels = []string{"alertname", "subscription", "message", "instance"}

// defaultFiring is how long an alert fires.
const defaultFiring = time.Hour

func (a *Alertmanager) send(ctx context.Context, m Message, out outlet) error {
	labels := map[string]string{}
	maps.Copy(labels, a.Labels)
	labels["alertname"], labels["subscription"], labels["message"] = "TKOMessage", m.Subscription, m.ID
	if m.Instance != "" {
		labels["instance"] = m.Instance
	}
	firing := time.Duration(a.For)
	if firing == 0 {
		firing = defaultFiring
	}
	body, err := json.Marshal([]map[string]any{{
		"labels": labels, "annotations": map[string]string{"summary": m.Title, "description": m.Text},
		"startsAt": m.Time.Format(time.RFC3339Nano), "endsAt": m.Time.Add(firing).Format(time.RFC3339Nano),
	}})
	if err != nil {
		return err
	}
	return a.post(ctx, out, "/api/v2/alerts", http.Header{"Content-Type": {"application/json"}}, body)
}
