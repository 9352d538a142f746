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

// logins is the operator's file of credentials by host: a config.json as docker login
// and helm registry login write it. Only the operator decides which host gets which
// credentials; a package could send them anywhere. Credential helpers in the file are
// ignored.
type logins struct {
	Auths map[string]struct {
		Auth          string `json:"auth"` // USERNAME:PASSWORD, in base64
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	} `json:"auths"`
}

// login returns the credentials for a path at a host, which has a port unless it is
// the default; empty if there are none. It reads the file each time, because the file
// may change. Its errors don't contain the file's content.
func (s *Store) login(host, path string) (auth.Credential, error) {
	if s.options.Credentials == "" {
		return auth.EmptyCredential, nil
	}
	file, err := os.Open(s.options.Credentials)
	if err != nil {
		return auth.EmptyCredential, fmt.Errorf("read the file of chart credentials: %w", plainError(err))
	}
	defer func() { _ = file.Close() }()
	data, err := readBounded(file, maxCredentials)
	if err != nil {
		return auth.EmptyCredential, fmt.Errorf("read the file of chart credentials: %w", plainError(err))
	}
	var all logins
	if err := json.Unmarshal(data, &all); err != nil {
		return auth.EmptyCredential, errors.New("the file of chart credentials is not a config.json as docker login writes it")
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
				return auth.EmptyCredential, fmt.Errorf("the file of chart credentials: auth of %q is not USERNAME:PASSWORD in base64", name)
			}
			c.Username, c.Password = username, password
		}
		best, found = within, c
	}
	return found, nil
}

// scopeOf returns the host, and the path below it if any, of a name in the
// file.
func scopeOf(name string) string {
	if _, rest, ok := strings.Cut(name, "://"); ok {
		name = rest
	}
	name = strings.Trim(name, "/")
	host, path, _ := strings.Cut(name, "/")
	if path == "v1" || path == "v2" { // written by old clients
		path = ""
	}
	return strings.TrimSuffix(plainHost(host)+"/"+path, "/")
}

// plainHost returns the canonical name of a host.
func plainHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, ":443"))
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		return "docker.io"
	}
	return host
}

// authorize adds the host's credentials to a request. It sends credentials over
// https, and over http only to this machine.
func (s *Store) authorize(r *http.Request) error {
	c, err := s.login(r.URL.Host, r.URL.Path)
	if err != nil || c == auth.EmptyCredential {
		return err
	}
	if r.URL.Scheme != "https" && !isLoopback(r.URL.Host) {
		return tko.Errorf(tko.ErrInvalid, "%s requires credentials, which are not sent over http: write https", r.URL.Host)
	}
	if c.AccessToken != "" {
		r.Header.Set("Authorization", "Bearer "+c.AccessToken)
		return nil
	}
	r.SetBasicAuth(c.Username, c.Password)
	return nil
}

// redirect follows a redirection. It sends credentials only to hosts that they are
// for.
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

// refused returns a hint for a status that means that a host requires credentials.
func refused(status int) string {
	if status != http.StatusUnauthorized && status != http.StatusForbidden {
		return ""
	}
	return ": the meta-scheduler's operator gives credentials for it with --chart-credentials"
}

// explain adds the hint of refused to errors of registries.
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

// forRegistry returns the credentials of a repository for its registry only.
func (s *Store) forRegistry(at registry.Reference) (auth.CredentialFunc, error) {
	c, err := s.login(at.Registry, at.Repository)
	if err != nil || c == auth.EmptyCredential {
		return nil, err
	}
	return auth.StaticCredential(at.Host(), c), nil
}
