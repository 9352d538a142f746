package nbi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/test/eventually"
)

const logins = "POST /admin/v1/tokens"

func TestEndpointsAreCheckedAndAuthenticated(t *testing.T) {
	t.Parallel()
	secure, plain := osmtest.Start(t, osmtest.Options{TLS: true}), osmtest.Start(t, osmtest.Options{})
	bare := func(s *osmtest.Server) string { _, host, _ := strings.Cut(s.URL, "://"); return host }
	for name, c := range map[string]struct {
		why  string
		of   *osmtest.Server
		with func(*nbi.Endpoint)
		text string // of the error; none if empty
	}{
		"the right CA":               {"the normal case", secure, func(*nbi.Endpoint) {}, ""},
		"no CA":                      {"no CA has signed it", secure, func(e *nbi.Endpoint) { e.CA = nil }, "give the CA"},
		"insecure":                   {"it was said so", secure, func(e *nbi.Endpoint) { e.CA, e.Insecure = nil, true }, ""},
		"plain":                      {"it was said so", plain, func(*nbi.Endpoint) {}, ""},
		"TLS to a plain server":      {"the password must not go out in the clear", plain, func(e *nbi.Endpoint) { e.URL = "https://" + bare(plain) }, "the server speaks plain http"},
		"no scheme, TLS":             {"on this machine it is found out", secure, func(e *nbi.Endpoint) { e.URL = bare(secure) }, ""},
		"no scheme, plain":           {"on this machine it is found out", plain, func(e *nbi.Endpoint) { e.URL = bare(plain) }, ""},
		"with /osm":                  {"people copy it so", plain, func(e *nbi.Endpoint) { e.URL += "/osm/" }, ""},
		"no such project":            {"the server says 404", plain, func(e *nbi.Endpoint) { e.Project = "other" }, `project "other" not found`},
		"a password in the URL":      {"it would be shown", plain, func(e *nbi.Endpoint) { e.URL = "http://u:secret@" + bare(plain) }, "holds a user"},
		"no host":                    {"nonsense", plain, func(e *nbi.Endpoint) { e.URL = "https://" }, "write https://HOST:PORT"},
		"no user":                    {"nonsense", plain, func(e *nbi.Endpoint) { e.User = "" }, "user, password and project"},
		"a CA that isn't one":        {"nonsense", secure, func(e *nbi.Endpoint) { e.CA = []byte("hello") }, "no certificate"},
		"a scheme that isn't HTTP's": {"nonsense", plain, func(e *nbi.Endpoint) { e.URL = "ftp://" + bare(plain) }, "use https"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := c.of.Endpoint()
			e.User = "admin"
			c.with(&e)
			cl, err := nbi.NewClient(e, nbi.Options{})
			if err == nil {
				_, err = cl.Instances(t.Context(), nil)
			}
			switch {
			case c.text == "" && err != nil, c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)):
				t.Errorf("%s: %v", c.why, err)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("a secret is shown: %v", err)
			}
		})
	}
}

func TestClientsOfAnAccountShareATokenAndRenewItOnce(t *testing.T) {
	t.Parallel()
	s := osmtest.Start(t, osmtest.Options{})
	many := func() {
		var wg sync.WaitGroup
		for range 20 {
			c := osmtest.Client(t, s)
			wg.Go(func() {
				if _, err := c.Instances(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	many()
	if got := s.Counts().Requests[logins]; got != 1 {
		t.Errorf("%d logins", got)
	}
	s.Revoke()
	many()
	if got := s.Counts(); got.Requests[logins] != 2 || got.Rapid > 0 {
		t.Errorf("after the token was revoked: %d logins, %d of them within 2 s", got.Requests[logins], got.Rapid)
	}
}

// A server drops its tokens when it restarts.
func TestTokenRevokedAgainIsRenewedAgain(t *testing.T) {
	t.Parallel()
	s := osmtest.Start(t, osmtest.Options{})
	c := osmtest.Client(t, s)
	for range 3 {
		if _, err := c.Instances(t.Context(), nil); err != nil {
			t.Error(err)
		}
		s.Revoke()
	}
	if got := s.Counts(); got.Requests[logins] != 3 || got.Rapid > 0 {
		t.Errorf("%d logins, %d too early", got.Requests[logins], got.Rapid)
	}
}

func TestRefusedLoginIsNoResponseToTheRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault osmtest.Fault
		kind  error
	}{"404": {osmtest.Missing, tko.ErrDenied}, "409": {osmtest.Busy, tko.ErrDenied}, "400": {osmtest.Reject, tko.ErrDenied}, "500": {osmtest.Fail, tko.ErrUnavailable}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := osmtest.Start(t, osmtest.Options{})
			s.Fault(func(string, string) osmtest.Fault { return c.fault })
			_, err := osmtest.Client(t, s).Remove(t.Context(), "an instance")
			for _, kind := range []error{tko.ErrDenied, tko.ErrUnavailable, tko.ErrNotFound, tko.ErrConflict, tko.ErrInvalid} {
				if errors.Is(err, kind) != errors.Is(c.kind, kind) {
					t.Errorf("the error is of kind %v: %v", kind, err)
				}
			}
		})
	}
}

// Servers without TLS respond to a TLS handshake in different ways.
func TestProtocolOfALoopbackServerIsDetected(t *testing.T) {
	t.Parallel()
	for name, greeted := range map[string]func(net.Conn, *bufio.Reader){
		"hangs up":             func(net.Conn, *bufio.Reader) {},
		"waits for more":       func(_ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) },
		"says something":       func(c net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(c, "<!DOCTYPE HTML>Bad request\n") },
		"says that it is HTTP": func(c net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := osmtest.Start(t, osmtest.Options{})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					in, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer func() { _ = in.Close() }()
						r := bufio.NewReader(in)
						if first, err := r.Peek(1); err != nil || first[0] == 0x16 { // a greeting in TLS
							greeted(in, r)
							return
						}
						out, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
						if err != nil {
							return
						}
						defer func() { _ = out.Close() }()
						go func() { _, _ = io.Copy(out, r) }()
						_, _ = io.Copy(in, out)
					}()
				}
			}()
			e := s.Endpoint()
			e.URL = l.Addr().String()
			c, err := nbi.NewClient(e, nbi.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Instances(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTokenIsRenewedBeforeItExpires(t *testing.T) {
	t.Parallel()
	s := osmtest.Start(t, osmtest.Options{TokenLife: 3 * time.Second})
	c := osmtest.Client(t, s)
	refused := 0
	eventually.True(t, "the second login", func() bool {
		if _, err := c.Instances(t.Context(), nil); err != nil {
			refused++
		}
		return s.Counts().Requests[logins] >= 2
	})
	if got := s.Counts(); refused+got.Refused > 0 || got.Rapid > 0 || got.Requests[logins] != 2 {
		t.Errorf("%d were refused, %+v", refused, got)
	}
}

func TestServerThatRefusesEveryTokenIsAskedTwice(t *testing.T) {
	t.Parallel()
	s := osmtest.Start(t, osmtest.Options{})
	s.Fault(func(_, path string) osmtest.Fault {
		if strings.HasPrefix(path, "/nslcm") {
			return osmtest.Forbid
		}
		return osmtest.None
	})
	c := osmtest.Client(t, s)
	for range 3 {
		if _, err := c.Instances(t.Context(), nil); !errors.Is(err, tko.ErrDenied) {
			t.Errorf("error: %v", err)
		}
	}
	if got := s.Counts(); got.Requests[logins] != 2 || got.Rapid > 0 {
		t.Errorf("%d logins, %d too early", got.Requests[logins], got.Rapid)
	}
}

// A new password is tried at once.
func TestBadPasswordIsNotTriedUntilTheAccountIsLocked(t *testing.T) {
	t.Parallel()
	s := osmtest.Start(t, osmtest.Options{})
	s.SetPassword("admin", "new")
	var password atomic.Value
	password.Store("old")
	e := s.Endpoint()
	e.Password = func(context.Context) (secret.Text, error) { return secret.Text(password.Load().(string)), nil }
	c, err := nbi.NewClient(e, nbi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := c.Instances(t.Context(), nil); !errors.Is(err, tko.ErrDenied) || !strings.Contains(err.Error(), "Incorrect username or password") {
			t.Errorf("error: %v", err)
		}
	}
	if got := s.Counts().Requests[logins]; got != 1 {
		t.Errorf("%d logins", got)
	}
	password.Store("new")
	if _, err := c.Instances(t.Context(), nil); err != nil {
		t.Error(err)
	}
	// Who has another password gets no token that was made with the right one.
	other := s.Endpoint()
	other.Password = func(context.Context) (secret.Text, error) { return "wrong", nil }
	c, err = nbi.NewClient(other, nbi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Instances(t.Context(), nil); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("with another password: %v", err)
	}
}

func TestErrorHasTheMessageOfTheServer(t *testing.T) {
	t.Parallel()
	c := osmtest.Client(t, osmtest.Start(t, osmtest.Options{}))
	_, err := c.Instance(t.Context(), "nowhere")
	var said *nbi.Error
	if !errors.As(err, &said) || said.Status != 404 || said.Code != "NOT_FOUND" || !strings.Contains(said.Detail, "nowhere") || !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("error: %#v", err)
	}
}

func TestRequestToAServerThatDoesNotRespondTimesOut(t *testing.T) {
	t.Parallel()
	s := osmtest.Start(t, osmtest.Options{})
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	if _, err := osmtest.Client(t, s).Instances(t.Context(), nil); err != nil { // now all have the token
		t.Fatal(err)
	}
	c, err := nbi.NewClient(s.Endpoint(), nbi.Options{Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s.Slow(hang)
	if _, err := c.Instances(t.Context(), nil); !errors.Is(err, tko.ErrUnavailable) {
		t.Errorf("error: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time"))
	if _, err := c.Instances(ctx, nil); err == nil {
		t.Error("a context that ended was ignored")
	}
}
