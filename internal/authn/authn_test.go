package authn_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// anyCertificate accepts all certificates: TLS has verified them.
type anyCertificate struct{}

func (anyCertificate) Verify([]*x509.Certificate) error { return nil }

func TestCertificatesWithoutUsableNameAreRefused(t *testing.T) {
	t.Parallel()
	a := authn.New(authn.Options{Certificates: anyCertificate{}, SPIFFEDomains: []string{"example.org"}})
	uri := func(texts ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, text := range texts {
				u, err := url.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				c.URIs = append(c.URIs, u)
			}
		}
	}
	tests := map[string]struct {
		why  string
		name string
		edit func(*x509.Certificate)
		want string // "" if refused
	}{
		"common name":              {why: "it is the name without others", name: "ann", want: "cert:ann"},
		"DNS name":                 {why: "it wins over the common name", name: "tko:admin", edit: func(c *x509.Certificate) { c.DNSNames = []string{"ci.example.org"} }, want: "cert:ci.example.org"},
		"SPIFFE ID":                {why: "the common name is ignored", name: "root", edit: uri("spiffe://example.org/ns/ran"), want: "spiffe://example.org/ns/ran"},
		"two URIs":                 {why: "which one counts is open to choice", edit: uri("spiffe://example.org/a", "spiffe://example.org/b")},
		"own controller":           {why: "these names are ours", name: "tko:admin"},
		"own controller, capital":  {why: "the same", name: "TKO:preparer"},
		"no name":                  {why: "it would be the same for all"},
		"another trust domain":     {why: "it is not listed", edit: uri("spiffe://example.com/a")},
		"trust domain in capitals": {why: "SPIFFE has none", edit: uri("spiffe://EXAMPLE.org/a")},
		"dots":                     {why: "paths have no steps up", edit: uri("spiffe://example.org/a/../b")},
		"no path":                  {why: "this is the domain itself", edit: uri("spiffe://example.org")},
		"a query":                  {why: "SPIFFE has none", edit: uri("spiffe://example.org/a?x=y")},
		"another scheme":           {why: "it is no SPIFFE ID", name: "ann", edit: uri("https://example.org/ann")},
		"line break":               {why: "it would forge lines of logs", name: "ann\nadmin"},
	}
	authority := certstest.New(t, "authority")
	for name, test := range tests {
		_, _, cert := authority.Issue(test.name, test.edit)
		i, err := a.Identify(t.Context(), authn.Connection{From: "192.0.2.1:5", Peer: []*x509.Certificate{cert}}, "")
		if test.want == "" && !errors.Is(err, tko.ErrDenied) || test.want != "" && (err != nil || i.Subject != test.want || i.Expires.IsZero()) {
			t.Errorf("%s: %q, %v, want %q: %s", name, i.Subject, err, test.want, test.why)
		}
	}
}

func TestCallersOnOtherMachinesNeedCredentials(t *testing.T) {
	t.Parallel()
	far, near := authn.Connection{From: "192.0.2.1:5"}, authn.Connection{From: "127.0.0.1:5", Loopback: true}
	a := authn.New(authn.Options{})
	if i, err := a.Identify(t.Context(), far, ""); !errors.Is(err, tko.ErrUnauthenticated) {
		t.Errorf("from another machine: %+v, %v", i, err)
	}
	if i, err := a.Identify(t.Context(), near, ""); err != nil || !i.IsAnonymous() {
		t.Errorf("from this machine: %+v, %v", i, err)
	}
	if i, err := a.Identify(t.Context(), near, "invented"); !errors.Is(err, tko.ErrUnauthenticated) {
		t.Errorf("with an unknown token, the caller must not become anonymous: %+v, %v", i, err)
	}
	if i, err := authn.New(authn.Options{Insecure: true}).Identify(t.Context(), far, ""); err != nil || !i.IsAnonymous() {
		t.Errorf("with --insecure: %+v, %v", i, err)
	}
	if i, err := a.Identify(t.Context(), authn.Connection{From: "unix", User: &authn.User{UID: 65534}}, ""); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a user of another user namespace: %+v, %v", i, err)
	}
	if i, err := a.Identify(t.Context(), authn.Connection{From: "unix", User: &authn.User{UID: 1234, GID: 77}}, ""); err != nil || i.Subject != "unix:1234" || strings.Join(i.Groups, " ") != "unix:77" {
		t.Errorf("a user of this machine: %+v, %v", i, err)
	}
}

// Several commands may change the file at once: each waits for the lock of the one
// before.
func TestConcurrentChangesOfTheTokenFileAreKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	const tokens = 20
	var group errgroup.Group
	for i := range tokens {
		group.Go(func() error {
			_, err := authn.AddToken(path, authn.Entry{Name: fmt.Sprintf("t%d", i), Expires: time.Now().Add(time.Hour)}, false)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	all, err := authn.Tokens(path)
	if err != nil || len(all) != tokens {
		t.Errorf("the file has %d tokens, %v: want %d", len(all), err, tokens)
	}
}

func TestTokenFileIsReloadedAndKeepsPreviousContent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	life := time.Now().Add(time.Hour)
	add := func(e authn.Entry) string {
		t.Helper()
		token, err := authn.AddToken(path, e, false)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	ci := add(authn.Entry{Name: "ci", Expires: life, Groups: []string{"robots"}})
	preparer := add(authn.Entry{Name: "p", Expires: life, Role: identity.RolePreparer})
	old := add(authn.Entry{Name: "old", Expires: time.Now().Add(-time.Second)})
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), ci) || strings.Contains(string(text), strings.TrimPrefix(ci, "tko_")) {
		t.Errorf("the file has a token: %s, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v, %v", info.Mode(), err)
	}
	f, err := authn.OpenTokenFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := authn.New(authn.Options{Tokens: []authn.TokenReader{f}})
	subject := func(token string) string {
		i, err := a.Identify(t.Context(), authn.Connection{From: "192.0.2.1:5"}, token)
		if err != nil {
			if !errors.Is(err, tko.ErrUnauthenticated) {
				t.Errorf("%v", err)
			}
			return ""
		}
		return i.Subject + " " + strings.Join(i.Groups, " ")
	}
	if got := subject(ci); got != "token:ci token:robots" {
		t.Errorf("ci: %q", got)
	}
	if got := subject(preparer); got != "tko:preparer " {
		t.Errorf("preparer: %q", got)
	}
	if got := subject(old); got != "" {
		t.Errorf("expired: %q", got)
	}
	if got := subject(ci[:len(ci)-1] + "x"); got != "" && ci[len(ci)-1] != 'x' {
		t.Errorf("an invented token: %q", got)
	}
	if err := os.WriteFile(path, []byte("ci nonsense never\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Reload(); !errors.Is(err, tko.ErrInvalid) || f.Problem() == "" || subject(ci) == "" {
		t.Errorf("an invalid file replaced the previous content: %v, %q", err, f.Problem())
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := authn.RemoveToken(path, "ci"); err != nil {
		t.Fatal(err)
	}
	if err := f.Reload(); err != nil || f.Problem() != "" || subject(ci) != "" || subject(preparer) == "" {
		t.Errorf("after a removal: %v, %q", err, subject(ci))
	}
	for _, name := range []string{"tko:x", "", "two words", "a=b"} {
		if _, err := authn.AddToken(path, authn.Entry{Name: name, Expires: life}, false); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if _, err := authn.AddToken(path, authn.Entry{Name: "p", Expires: life}, false); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a second token of one name: %v", err)
	}
}

type claims map[string]string

func (c claims) WorkClaim(_ context.Context, queue, key string) (string, time.Time, error) {
	claim, ok := c[queue+" "+key]
	if !ok {
		return "", time.Time{}, tko.NotFound(tko.KindDeployment, key)
	}
	return claim, time.Now().Add(time.Minute), nil
}

func TestPluginTokenEndsWithItsLease(t *testing.T) {
	t.Parallel()
	held := claims{"prepare d": "claim-1", "prepare e": "claim-1"}
	a := authn.New(authn.Options{Tokens: []authn.TokenReader{authn.Plugins{Claims: held}}})
	item := tko.WorkItem{Queue: tko.QueuePrepare, Key: "d", Claim: "claim-1"}
	token := identity.NewPluginToken("prepare", "x", item)
	if strings.Contains(token, item.Claim) {
		t.Error("the token reveals the claim")
	}
	here := authn.Connection{From: "127.0.0.1:5", Loopback: true}
	i, err := a.Identify(t.Context(), here, token)
	if err != nil || i.Plugin == nil || *i.Plugin != (identity.Plugin{Type: "prepare", Name: "x", Kind: tko.KindDeployment, ID: "d"}) || i.Expires.IsZero() || i.Role() != "" {
		t.Errorf("a valid token: %+v, %v", i, err)
	}
	content, proof, _ := strings.Cut(token, ".")
	other, _, _ := strings.Cut(identity.NewPluginToken("prepare", "x", tko.WorkItem{Queue: tko.QueuePrepare, Key: "e", Claim: "?"}), ".")
	for why, forged := range map[string]string{"another deployment": other + "." + proof, "no proof": content + ".", "half": content, "another claim": identity.NewPluginToken("prepare", "x", tko.WorkItem{Queue: tko.QueuePrepare, Key: "d"})} {
		if i, err := a.Identify(t.Context(), here, forged); !errors.Is(err, tko.ErrUnauthenticated) {
			t.Errorf("%s: %+v, %v", why, i, err)
		}
	}
	held["prepare d"] = "claim-2" // another worker
	if i, err := a.Identify(t.Context(), here, token); !errors.Is(err, tko.ErrUnauthenticated) {
		t.Errorf("with a lost lease: %+v, %v", i, err)
	}
	delete(held, "prepare d")
	if i, err := a.Identify(t.Context(), here, token); !errors.Is(err, tko.ErrUnauthenticated) {
		t.Errorf("after the work: %+v, %v", i, err)
	}
}

func TestControllersInOtherProcessesAreNamedByTheOperator(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"preparer", "cook=cert:x", "preparer=x", "preparer=tko:preparer", "preparer=cert:"} {
		if _, err := authn.ParseControllers([]string{text}); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
	controllers, err := authn.ParseControllers([]string{"preparer=cert:p"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, cert := certstest.New(t, "authority").Issue("p", nil)
	a := authn.New(authn.Options{Certificates: anyCertificate{}, Controllers: controllers})
	i, err := a.Identify(t.Context(), authn.Connection{From: "192.0.2.1:5", Peer: []*x509.Certificate{cert}}, "")
	if err != nil || i.Role() != identity.RolePreparer {
		t.Errorf("%+v, %v", i, err)
	}
}
