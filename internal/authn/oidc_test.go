package authn_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// An issuer is an OpenID Connect issuer for tests, which signs anything.
type issuer struct {
	*httptest.Server

	t    *testing.T
	key  *ecdsa.PrivateKey
	down atomic.Bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if i.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL, "token_endpoint": i.URL, "id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) sign(key jose.SigningKey, claims map[string]any) string {
	i.t.Helper()
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithHeader("kid", "1"))
	if err != nil {
		i.t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return token
}

func TestForgedAndForeignIDTokensAreRefused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	own := jose.SigningKey{Algorithm: jose.ES256, Key: i.key}
	now := time.Now()
	good := map[string]any{"iss": i.URL, "aud": "tko", "sub": "ann", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "email": "ann@example.org", "groups": []string{"noc"}}
	with := func(key string, value any) map[string]any {
		c := maps.Clone(good)
		c[key] = value
		if value == nil {
			delete(c, key)
		}
		return c
	}
	reader, err := authn.NewOIDC(authn.OIDCOptions{Issuer: i.URL, Alias: "corp", Audience: "tko", Algorithms: []string{"ES256"}, GroupsClaim: "groups"})
	if err != nil {
		t.Fatal(err)
	}
	a := authn.New(authn.Options{Tokens: []authn.TokenReader{reader}})
	identify := func(token string) (identity.Identity, error) {
		return a.Identify(t.Context(), authn.Connection{From: "192.0.2.1:5"}, token)
	}
	who, err := identify(i.sign(own, good))
	if err != nil || who.Subject != "oidc:corp:ann" || strings.Join(who.Groups, " ") != "oidc:corp:noc" || who.Display != "ann@example.org" || !who.Expires.Equal(time.Unix(now.Add(time.Hour).Unix(), 0)) {
		t.Fatalf("a valid token: %+v, %v", who, err)
	}
	public := base64.RawURLEncoding.EncodeToString(i.key.PublicKey.X.Bytes()) //nolint:staticcheck // a public value that a forger would use as the secret
	none := func(claims map[string]any) string {
		text, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
	}
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for why, token := range map[string]string{
		"another issuer":        i.sign(own, with("iss", "https://evil.example.org")),
		"another audience":      i.sign(own, with("aud", "grafana")),
		"no audience":           i.sign(own, with("aud", nil)),
		"no algorithm":          none(good),
		"HMAC":                  i.sign(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(public)}, good),
		"another key":           i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: foreign}, good),
		"expired":               i.sign(own, with("exp", now.Add(-time.Minute).Unix())),
		"no expiry":             i.sign(own, with("exp", nil)),
		"not yet valid":         i.sign(own, with("nbf", now.Add(time.Hour).Unix())),
		"issued in the future":  i.sign(own, with("iat", now.Add(time.Hour).Unix())),
		"no subject":            i.sign(own, with("sub", nil)),
		"our own controller":    i.sign(own, with("sub", "tko:admin")),
		"a group of our own":    i.sign(own, with("groups", []string{"tko:admins"})),
		"groups left out":       i.sign(own, map[string]any{"iss": i.URL, "aud": "tko", "sub": "ann", "exp": now.Add(time.Hour).Unix(), "_claim_names": map[string]string{"groups": "src1"}}),
		"groups left out, flag": i.sign(own, map[string]any{"iss": i.URL, "aud": "tko", "sub": "ann", "exp": now.Add(time.Hour).Unix(), "hasgroups": true}),
		"groups that are a map": i.sign(own, with("groups", map[string]string{"a": "b"})),
		"no JWT":                "x.y.z",
	} {
		if who, err := identify(token); !errors.Is(err, tko.ErrUnauthenticated) && !errors.Is(err, tko.ErrDenied) || !who.IsZero() {
			t.Errorf("%s: %+v, %v", why, who, err)
		}
	}
	if who, err := identify(i.sign(own, with("sub", "oidc:other:ann"))); err != nil || who.Subject != "oidc:corp:oidc:other:ann" {
		t.Errorf("a subject with a colon names the user of another issuer: %+v, %v", who, err)
	}
}

func TestIssuerMayStartAfterTheServer(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.down.Store(true)
	reader, err := authn.NewOIDC(authn.OIDCOptions{Issuer: i.URL, Alias: "corp", Audience: "tko", Algorithms: []string{"ES256"}})
	if err != nil {
		t.Fatal(err)
	}
	token := i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, map[string]any{"iss": i.URL, "aud": "tko", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()})
	if _, _, err := reader.Read(t.Context(), token); !errors.Is(err, tko.ErrUnavailable) {
		t.Errorf("without the issuer: %v", err)
	}
	for _, wrong := range []authn.OIDCOptions{
		{Issuer: "http://login.example.org", Alias: "a", Audience: "tko", Algorithms: []string{"RS256"}},
		{Issuer: i.URL, Alias: "a", Audience: "tko", Algorithms: []string{"HS256"}},
		{Issuer: i.URL, Alias: "a", Audience: "tko", Algorithms: []string{"none"}},
		{Issuer: i.URL, Alias: "a", Algorithms: []string{"RS256"}},
		{Issuer: i.URL, Alias: "a:b", Audience: "tko", Algorithms: []string{"RS256"}},
	} {
		if _, err := authn.NewOIDC(wrong); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
