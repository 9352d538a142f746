package authn

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// OIDCOptions are the settings of an [OIDC] reader.
type OIDCOptions struct {
	Issuer      string // URL, exactly as in the tokens
	Alias       string // short name of the issuer, in subjects and groups
	Audience    string // that tokens must have: the client ID
	Algorithms  []string
	GroupsClaim string // name of the claim with the groups; "" for no groups
	CA          string // file of the issuer's certificate authorities; the system's if ""

	// For logins of browsers, with the audience as the client ID:
	Secret string   // of the client; "" for a public client
	Scopes []string // in addition to openid
}

// Algorithms are the signature algorithms that may be accepted: asymmetric ones
// only.
var Algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

const (
	fetchLimit     = 10 * time.Second // of one request to the issuer
	discoveryPause = 5 * time.Second  // between failed discoveries
	clockSkew      = time.Minute      // that clocks of issuers may differ
)

// An OIDC reader authenticates the ID tokens of an issuer. It discovers the
// issuer's keys when the first token is read, so that the server starts without
// the issuer.
type OIDC struct {
	options OIDCOptions
	client  *http.Client

	mutex    sync.Mutex
	endpoint oauth2.Endpoint
	verifier *oidc.IDTokenVerifier
	failed   error
	retry    time.Time
}

// NewOIDC checks the settings. Wrong ones are an ErrInvalid.
func NewOIDC(o OIDCOptions) (*OIDC, error) {
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopbackHost(u.Hostname())):
		return nil, tko.Errorf(tko.ErrInvalid, "--oidc-issuer is %q: use an https URL", o.Issuer)
	case o.Audience == "":
		return nil, tko.Errorf(tko.ErrInvalid, "--oidc-audience is empty: name the client that tokens must be for")
	case o.Alias == "" || strings.ContainsAny(o.Alias, ":/ "):
		return nil, tko.Errorf(tko.ErrInvalid, "--oidc-alias is %q: use a short name without colon, slash and space", o.Alias)
	case len(o.Algorithms) == 0:
		return nil, tko.Errorf(tko.ErrInvalid, "--oidc-algorithms is empty: use some of %s", strings.Join(Algorithms, ", "))
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(Algorithms, a) {
			return nil, tko.Errorf(tko.ErrInvalid, "--oidc-algorithms has %q: use some of %s", a, strings.Join(Algorithms, ", "))
		}
	}
	secure, err := certs.Client(certs.ClientOptions{CA: o.CA})
	if err != nil {
		return nil, err
	}
	if u.Scheme == "http" {
		secure = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	secure.MinVersion = tls.VersionTLS12 // many issuers have no newer one
	transport := &http.Transport{TLSClientConfig: secure, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 4, IdleConnTimeout: time.Minute}
	return &OIDC{options: o, client: &http.Client{Transport: transport, Timeout: fetchLimit}}, nil
}

func loopbackHost(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// Read returns the identity of an ID token of the issuer. Tokens that are not
// JWTs, or of another issuer, are of another kind.
func (o *OIDC) Read(ctx context.Context, token string) (i identity.Identity, ok bool, err error) {
	if issuerOf(token) != o.options.Issuer {
		return identity.Identity{}, false, nil
	}
	verifier, err := o.discover(ctx)
	if err != nil {
		return identity.Identity{}, true, tko.Errorf(tko.ErrUnavailable, "the issuer %s can't be reached to check the token: %w", o.options.Issuer, err)
	}
	verified, err := verifier.Verify(oidc.ClientContext(ctx, o.client), token)
	if err != nil {
		if expired := (*oidc.TokenExpiredError)(nil); errors.As(err, &expired) {
			return identity.Identity{}, true, unauthenticated("the token expired at %s: log in again", expired.Expiry.UTC().Format(time.RFC3339))
		}
		return identity.Identity{}, true, unauthenticated("the token of %s is not valid: %w", o.options.Issuer, err)
	}
	i, err = o.named(verified)
	return i, true, err
}

func (o *OIDC) named(t *oidc.IDToken) (i identity.Identity, err error) {
	if t.IssuedAt.After(time.Now().Add(clockSkew)) {
		return i, unauthenticated("the token of %s was issued in the future: check the clocks", o.options.Issuer)
	}
	var claims map[string]json.RawMessage
	if err := t.Claims(&claims); err != nil {
		return i, unauthenticated("the token of %s has no claims: %w", o.options.Issuer, err)
	}
	prefix := identity.OIDC + o.options.Alias + ":"
	i = identity.Identity{Authenticator: "oidc", Expires: t.Expiry, Display: displayName(claims)}
	if i.Subject, err = identity.Named(prefix, t.Subject); err != nil {
		return identity.Identity{}, err
	}
	if o.options.GroupsClaim == "" {
		return i, nil
	}
	names, err := groupNames(claims, o.options.GroupsClaim)
	if err == nil {
		i.Groups, err = identity.Groups(prefix, names)
	}
	if err != nil {
		return identity.Identity{}, err
	}
	return i, nil
}

// groupNames returns the groups of a token. If the issuer left them out because
// they are too many (an overage marker), it returns an ErrDenied: without them the
// caller's rights would be wrong.
func groupNames(claims map[string]json.RawMessage, claim string) ([]string, error) {
	raw, ok := claims[claim]
	if !ok || string(raw) == "null" {
		var elsewhere map[string]json.RawMessage
		_ = json.Unmarshal(claims["_claim_names"], &elsewhere) // no names if it is malformed
		_, moved := elsewhere[claim]
		if has := string(claims["hasgroups"]); moved || has == "true" || has == `"true"` {
			return nil, tko.Errorf(tko.ErrDenied, "the token does not hold the groups of its user, because there are too many: let the issuer send only the groups that are assigned to TKO")
		}
		return nil, nil
	}
	var many []string
	if err := json.Unmarshal(raw, &many); err == nil {
		return many, nil
	}
	var one string
	if err := json.Unmarshal(raw, &one); err != nil {
		return nil, tko.Errorf(tko.ErrDenied, "the claim %q of the token is not a list of names", claim)
	}
	return []string{one}, nil
}

func displayName(claims map[string]json.RawMessage) string {
	for _, name := range []string{"email", "preferred_username", "name"} {
		var text string
		if json.Unmarshal(claims[name], &text) == nil && text != "" {
			if checked, err := identity.Named("", text); err == nil {
				return checked
			}
		}
	}
	return ""
}

// discover returns the verifier of the issuer's tokens. It is not held up by
// the context of one call, and after a failure waits before it tries again.
func (o *OIDC) discover(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.verifier != nil {
		return o.verifier, nil
	}
	if time.Now().Before(o.retry) {
		return nil, o.failed
	}
	// The context also serves later requests for keys.
	provider, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), o.client), o.options.Issuer)
	if err != nil {
		o.failed, o.retry = err, time.Now().Add(discoveryPause)
		return nil, err
	}
	o.endpoint = provider.Endpoint()
	o.verifier = provider.Verifier(&oidc.Config{ClientID: o.options.Audience, SupportedSigningAlgs: o.options.Algorithms})
	return o.verifier, nil
}

// A CodeLogin is one login of a browser at the issuer. Its parts are secrets of the
// server and that browser.
type CodeLogin struct {
	Redirect string // address of this server to which the issuer sends the browser back
	State    string
	Nonce    string
	Verifier string // of PKCE
}

// LoginURL returns the address of the issuer where a browser logs in.
func (o *OIDC) LoginURL(ctx context.Context, l CodeLogin) (string, error) {
	if _, err := o.discover(ctx); err != nil {
		return "", tko.Errorf(tko.ErrUnavailable, "the issuer %s can't be reached: %w", o.options.Issuer, err)
	}
	return o.oauth(l).AuthCodeURL(l.State, oidc.Nonce(l.Nonce), oauth2.S256ChallengeOption(l.Verifier)), nil
}

// Exchange returns the ID token that the issuer gives for the code of a login, with
// the identity in it.
func (o *OIDC) Exchange(ctx context.Context, l CodeLogin, code string) (token string, i identity.Identity, err error) {
	verifier, err := o.discover(ctx)
	if err != nil {
		return "", i, tko.Errorf(tko.ErrUnavailable, "the issuer %s can't be reached: %w", o.options.Issuer, err)
	}
	ctx = oidc.ClientContext(ctx, o.client)
	got, err := o.oauth(l).Exchange(ctx, code, oauth2.VerifierOption(l.Verifier))
	if err != nil {
		if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError {
			return "", i, unauthenticated("the issuer %s refused the login: %w", o.options.Issuer, err)
		}
		return "", i, tko.Errorf(tko.ErrUnavailable, "the issuer %s gave no token: %w", o.options.Issuer, err)
	}
	token, _ = got.Extra("id_token").(string)
	verified, err := verifier.Verify(ctx, token)
	if err != nil {
		return "", i, unauthenticated("the issuer %s gave no valid ID token: %w", o.options.Issuer, err)
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(l.Nonce)) != 1 {
		return "", i, unauthenticated("the ID token of the issuer %s is of another login", o.options.Issuer)
	}
	i, err = o.named(verified)
	return token, i, err
}

func (o *OIDC) oauth(l CodeLogin) *oauth2.Config {
	return &oauth2.Config{
		ClientID: o.options.Audience, ClientSecret: o.options.Secret, Endpoint: o.endpoint, RedirectURL: l.Redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, o.options.Scopes...),
	}
}

// issuerOf returns the issuer that a JWT claims, without verifying it; "" for
// other tokens.
func issuerOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}
