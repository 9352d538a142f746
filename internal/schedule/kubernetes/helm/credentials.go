package helm

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
)

// maxCredentials bounds the file of credentials, in bytes.
const maxCredentials = 1 << 20

// logins are what the operator's file has for hosts: a config.json as docker
// login and helm registry login write it. Which host gets which credentials is
// the operator's to say, and not a package's: else a package could send them
// anywhere. What it says of programs to ask is passed over.
type logins struct {
	Auths map[string]struct {
		Auth          string `json:"auth"` // USERNAME:PASSWORD, in base64
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	} `json:"auths"`
}

// login answers what a host, with a port unless it is the usual one, gets for
// what is at a path; empty if nothing. The file is read each time: it may change.
// Errors don't tell what is in it.
func (s *Store) login(host, path string) (auth.Credential, error) {
	if s.options.Credentials == "" {
		return auth.EmptyCredential, nil
	}
	file, err := os.Open(s.options.Credentials)
	if err != nil {
		return auth.EmptyCredential, fmt.Errorf("the file of charts' credentials can't be read: %w", plainError(err))
	}
	defer func() { _ = file.Close() }()
	data, err := readBounded(file, maxCredentials)
	if err != nil {
		return auth.EmptyCredential, fmt.Errorf("the file of charts' credentials can't be read: %w", plainError(err))
	}
	var all logins
	if err := json.Unmarshal(data, &all); err != nil {
		return auth.EmptyCredential, errors.New("the file of charts' credentials is no config.json as docker login writes it")
	}
	at := strings.TrimSuffix(plainHost(host)+"/"+strings.Trim(path, "/"), "/")
	best, found := "", auth.EmptyCredential
	for name, a := range all.Auths {
		within := scopeOf(name)
		if at != within && !strings.HasPrefix(at, within+"/") || len(within) <= len(best) {
			continue
		}
		c := auth.Credential{Username: a.Username, Password: a.Password, RefreshToken: a.IdentityToken, AccessToken: a.RegistryToken}
		if a.Auth != "" {
			text, err := base64.StdEncoding.DecodeString(a.Auth)
			username, password, ok := strings.Cut(string(text), ":")
			if err != nil || !ok {
				return auth.EmptyCredential, fmt.Errorf("the file of charts' credentials: auth of %q is not USERNAME:PASSWORD in base64", name)
			}
			c.Username, c.Password = username, password
		}
		best, found = within, c
	}
	return found, nil
}

// scopeOf is what a name in the file stands for: a host, or what is below a path
// there.
func scopeOf(name string) string {
	if _, rest, ok := strings.Cut(name, "://"); ok {
		name = rest
	}
	name = strings.Trim(name, "/")
	host, path, _ := strings.Cut(name, "/")
	if path == "v1" || path == "v2" { // as old clients write it
		path = ""
	}
	return strings.TrimSuffix(plainHost(host)+"/"+path, "/")
}

// plainHost is a host by its usual name.
func plainHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, ":443"))
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		return "docker.io"
	}
	return host
}

// authorize adds to a request what its host gets. Credentials go over https, and
// over http to this machine only.
func (s *Store) authorize(r *http.Request) error {
	c, err := s.login(r.URL.Host, r.URL.Path)
	if err != nil || c == auth.EmptyCredential {
		return err
	}
	if r.URL.Scheme != "https" && !isLoopback(r.URL.Host) {
		return tko.Errorf(tko.ErrInvalid, "%s asks for credentials, which don't go over http: write https", r.URL.Host)
	}
	if c.AccessToken != "" {
		r.Header.Set("Authorization", "Bearer "+c.AccessToken)
		return nil
	}
	r.SetBasicAuth(c.Username, c.Password)
	return nil
}

// redirect follows a redirection, with credentials only where they belong.
func (s *Store) redirect(r *http.Request, via []*http.Request) error {
	const most = 10
	if len(via) >= most {
		return fmt.Errorf("stopped after %d redirections", most)
	}
	if from := via[len(via)-1].URL; r.URL.Host != from.Host || r.URL.Scheme != from.Scheme {
		r.Header.Del("Authorization")
	}
	return nil
}

// refused adds to what a host says that it wants credentials.
func refused(status int) string {
	if status != http.StatusUnauthorized && status != http.StatusForbidden {
		return ""
	}
	return ": the meta-scheduler's operator gives credentials for it with --chart-credentials"
}

// explain is refused for registries.
func explain(err error) error {
	status := 0
	if answer, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		status = answer.StatusCode
		err = guard.RegistryError(err)
	}
	if errors.Is(err, auth.ErrBasicCredentialNotFound) {
		status = http.StatusUnauthorized
	}
	if hint := refused(status); hint != "" {
		return fmt.Errorf("%w%s", err, hint)
	}
	return err
}

// forRegistry answers what a registry gets for a repository, and nobody else.
func (s *Store) forRegistry(at registry.Reference) (auth.CredentialFunc, error) {
	c, err := s.login(at.Registry, at.Repository)
	if err != nil || c == auth.EmptyCredential {
		return nil, err
	}
	return auth.StaticCredential(at.Host(), c), nil
}
