package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/gofrs/flock"
	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/printable"
)

const (
	defaultClientID = "tko"
	issuerLimit     = 30 * time.Second // of one request to the issuer
	refreshBefore   = 30 * time.Second // the expiry of a token
)

// A login is what the issuer gave at tko login.
type login struct {
	Issuer   string    `json:"issuer"`
	ClientID string    `json:"clientId"`
	IssuerCA string    `json:"issuerCA,omitempty"`
	IDToken  string    `json:"idToken"`
	Refresh  string    `json:"refreshToken,omitempty"`
	Expires  time.Time `json:"expires"`
}

func loginPath(name string) (string, error) {
	if err := checkContextName(name); err != nil {
		return "", err
	}
	config, err := configPath()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(config), "logins", name+".json"), nil
}

func hasLogin(name string) bool {
	path, err := loginPath(name)
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}

func readLogin(name string) (l login, err error) {
	path, err := loginPath(name)
	if err != nil {
		return l, err
	}
	data, err := os.ReadFile(path) //nolint:gosec // in the user's own folder
	if errors.Is(err, fs.ErrNotExist) {
		return l, tko.Errorf(tko.ErrUnauthenticated, "you are not logged in to the context %q", name)
	}
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return l, tko.Errorf(tko.ErrUnauthenticated, "the login of the context %q is damaged", name)
	}
	return l, nil
}

func saveLogin(name string, l login) error {
	path, err := loginPath(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(l) //nolint:gosec // the file is the user's alone
	if err != nil {
		return err
	}
	return writePrivate(path, data)
}

func forgetLogin(name string) error {
	path, err := loginPath(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// An issuer is an OpenID Connect issuer.
type issuer struct {
	provider *oidc.Provider
	oauth    oauth2.Config
	ctx      func(context.Context) context.Context // with the HTTP client
}

func discover(ctx context.Context, address, clientID, ca string, scopes []string) (*issuer, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !isLoopbackName(u.Hostname())) || u.Host == "" {
		return nil, tko.Errorf(errUsage, "the issuer %q is not an https URL", address)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		if secure, err = certs.Client(certs.ClientOptions{CA: ca}); err != nil {
			return nil, err
		}
		secure.MinVersion = tls.VersionTLS12 // many issuers have no newer one
	}
	web := &http.Client{Timeout: issuerLimit, Transport: &http.Transport{TLSClientConfig: secure, Proxy: http.ProxyFromEnvironment}}
	i := &issuer{ctx: func(ctx context.Context) context.Context { return oidc.ClientContext(ctx, web) }}
	if i.provider, err = oidc.NewProvider(i.ctx(ctx), address); err != nil {
		return nil, tko.Errorf(errUnavailable, "the issuer %s can't be used: %w", address, err)
	}
	i.oauth = oauth2.Config{ClientID: clientID, Endpoint: i.provider.Endpoint(), Scopes: scopes}
	i.oauth.Endpoint.AuthStyle = oauth2.AuthStyleInParams // without a secret
	return i, nil
}

func isLoopbackName(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// read returns the login of a response of the issuer, whose ID token it verifies.
func (i *issuer) read(ctx context.Context, t *oauth2.Token, l login) (login, error) {
	raw, _ := t.Extra("id_token").(string)
	if raw == "" {
		return l, tko.Errorf(tko.ErrUnauthenticated, "the issuer %s returned no ID token", l.Issuer)
	}
	verified, err := i.provider.Verifier(&oidc.Config{ClientID: l.ClientID}).Verify(i.ctx(ctx), raw)
	if err != nil {
		return l, tko.Errorf(tko.ErrUnauthenticated, "the ID token of the issuer %s is not valid: %w", l.Issuer, err)
	}
	l.IDToken, l.Expires = raw, verified.Expiry
	if t.RefreshToken != "" {
		l.Refresh = t.RefreshToken
	}
	return l, nil
}

// loginToken returns a valid token of a login. It gets a new one shortly before the
// old one expires; only one of concurrent commands does.
func loginToken(ctx context.Context, name string) (string, error) {
	l, err := readLogin(name)
	if err != nil || time.Until(l.Expires) > refreshBefore {
		return l.IDToken, err
	}
	path, err := loginPath(name)
	if err != nil {
		return "", err
	}
	lock := flock.New(path + ".lock")
	if err := lock.Lock(); err != nil {
		return "", err
	}
	defer func() { _ = lock.Unlock() }()
	if l, err = readLogin(name); err != nil || time.Until(l.Expires) > refreshBefore {
		return l.IDToken, err // another command has renewed it
	}
	if l.Refresh == "" {
		return "", tko.Errorf(tko.ErrUnauthenticated, "the login of the context %q expired at %s, and the issuer gave no refresh token", name, l.Expires.Format(time.RFC3339))
	}
	i, err := discover(ctx, l.Issuer, l.ClientID, l.IssuerCA, nil)
	if err != nil {
		return "", err
	}
	t, err := i.oauth.TokenSource(i.ctx(ctx), &oauth2.Token{RefreshToken: l.Refresh}).Token()
	if err != nil {
		return "", tko.Errorf(tko.ErrUnauthenticated, "the login of the context %q can't be renewed: %w", name, err)
	}
	if l, err = i.read(ctx, t, l); err != nil {
		return "", err
	}
	return l.IDToken, saveLogin(name, l)
}

func (a *app) loginCommand() *cobra.Command {
	var given serverContext
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in with a browser, on this or another device",
		Long: `Log in at the OpenID Connect issuer of the context. The command prints an address
and a code to open in any browser, and waits until you have logged in there. Open it only if you
have run the command yourself. The login is stored for your user only, and is
renewed until tko logout or the issuer ends it.`,
		Example: `  tko login
  tko login --context production
  tko login --oidc-issuer https://login.example.com --oidc-client-id tko`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.logIn(cmd.Context(), given)
		},
	}
	f := cmd.Flags()
	f.StringVar(&given.Issuer, "oidc-issuer", "", "`URL` of the issuer (default: that of the context), stored in the context")
	f.StringVar(&given.ClientID, "oidc-client-id", "", "`ID` of this command at the issuer (default tko), stored likewise")
	f.StringVar(&given.IssuerCA, "oidc-ca", "", "`file` of the issuer's certificate authorities (default: those of this machine), stored likewise")
	f.StringSliceVar(&given.Scopes, "oidc-scopes", nil, "`scopes` to request in addition to openid and offline_access (default groups,email), stored likewise")
	return cmd
}

// merged returns a context with the settings that were given.
func (c serverContext) merged(given serverContext) (serverContext, error) {
	if given.IssuerCA != "" {
		path, err := filepath.Abs(given.IssuerCA)
		if err != nil {
			return c, err
		}
		c.IssuerCA = path
	}
	if given.Issuer != "" {
		c.Issuer = given.Issuer
	}
	if given.ClientID != "" {
		c.ClientID = given.ClientID
	}
	if given.Scopes != nil {
		c.Scopes = given.Scopes
	}
	return c, nil
}

func (a *app) logIn(ctx context.Context, given serverContext) error {
	name := a.globals.contextName
	if name == "" {
		name = "default"
	}
	c, err := a.globals.login.merged(given)
	if err != nil {
		return err
	}
	if c.Issuer == "" {
		return tko.Errorf(errUsage, "the context %q has no issuer: name one with --oidc-issuer", name)
	}
	l := login{Issuer: c.Issuer, ClientID: c.ClientID, IssuerCA: c.IssuerCA}
	if l.ClientID == "" {
		l.ClientID = defaultClientID
	}
	more := c.Scopes
	if more == nil {
		more = []string{"groups", "email"}
	}
	scopes := slices.Compact(append([]string{oidc.ScopeOpenID, oidc.ScopeOfflineAccess}, more...))
	i, err := discover(ctx, l.Issuer, l.ClientID, l.IssuerCA, scopes)
	if err != nil {
		return err
	}
	if i.oauth.Endpoint.DeviceAuthURL == "" {
		return tko.Errorf(errUsage, "the issuer %s does not support logging in with a code (device authorization): allow it there, or use --token-file", l.Issuer)
	}
	device, err := i.oauth.DeviceAuth(i.ctx(ctx))
	if err != nil {
		return tko.Errorf(tko.ErrUnauthenticated, "the issuer %s refused to start the login: %w", l.Issuer, err)
	}
	address := device.VerificationURIComplete
	if address == "" {
		address = device.VerificationURI
	}
	fmt.Fprintf(a.streams.Err, "To log in as the client %q with the scopes %q, open\n\n  %s\n\nand check or enter the code %s\n",
		l.ClientID, strings.Join(scopes, " "), printable.Text(address), printable.Text(device.UserCode))
	t, err := i.oauth.DeviceAccessToken(i.ctx(ctx), device)
	if err != nil {
		return tko.Errorf(tko.ErrUnauthenticated, "the login at %s failed: %w", l.Issuer, err)
	}
	if l, err = i.read(ctx, t, l); err != nil {
		return err
	}
	if err := changeContexts(func(f *contextFile) error {
		next, err := f.Contexts[name].merged(given)
		if err != nil {
			return err
		}
		f.Contexts[name] = next
		if f.Current == "" {
			f.Current = name
		}
		return nil
	}); err != nil {
		return err
	}
	if err := saveLogin(name, l); err != nil {
		return err
	}
	a.notice("logged in to the context %q until %s; renewed automatically: %t", name, l.Expires.Local().Format(time.RFC3339), l.Refresh != "")
	return nil
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "logout",
		Short:   "Delete the login of the context from this machine",
		Example: "  tko logout\n  tko logout --context production",
		RunE: func(*cobra.Command, []string) error {
			name := a.globals.contextName
			if name == "" {
				return tko.Errorf(errUsage, "there is no current context: name one with --context")
			}
			if !hasLogin(name) {
				a.notice("there is no login of the context %q", name)
				return nil
			}
			return forgetLogin(name)
		},
	}
}

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		Short:   "Your identity, as the server has authenticated it",
		Example: "  tko whoami\n  tko whoami -o json",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			c, err := call(ctx, s, s.WhoAmI)
			if err != nil {
				return err
			}
			return a.printFacts([]fact{
				textFact("subject", "Subject", c.Subject),
				{"groups", "Groups", strings.Join(c.Groups, " "), listValue(c.Groups)},
				textFact("authenticator", "Authenticated by", c.Authenticator),
				textFact("displayName", "Display name", c.Display),
				textFact("from", "From", c.From),
				textFact("expires", "Expires", momentText(c.Expires)),
			})
		}),
	}
}
