package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/location/sshkey"
	"github.com/tko-orchestrator/tko/internal/secret"
)

const (
	maxSecret = 1 << 20
	tokenUser = "git" // hosts that accept tokens as passwords ignore the user's name
)

// auth has a method to log in, and the secrets that no error may contain.
type auth struct {
	method  transport.AuthMethod
	secrets []string
}

// hide replaces the secrets in an error's text.
func (a auth) hide(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, value := range a.secrets {
		text = strings.ReplaceAll(text, value, "[secret]")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// readAuth reads the files of credentials that a Repository names.
func (t *Target) readAuth(ctx context.Context, s spec) (auth, error) {
	c := s.Credentials
	switch {
	case s.Local != "":
		return auth{}, nil
	case c.SSHKeyFile != "":
		return t.readSSH(ctx, s)
	case c.PasswordFile != "":
		password, err := t.secret(ctx, "passwordFile", c.PasswordFile)
		return auth{method: &http.BasicAuth{Username: c.Username, Password: password}, secrets: []string{password}}, err
	case c.TokenFile != "":
		token, err := t.secret(ctx, "tokenFile", c.TokenFile)
		user := c.Username
		if user == "" {
			user = tokenUser
		}
		return auth{method: &http.BasicAuth{Username: user, Password: token}, secrets: []string{token}}, err
	}
	return auth{}, nil
}

func (t *Target) readSSH(ctx context.Context, s spec) (auth, error) {
	key, err := t.secret(ctx, "sshKeyFile", s.Credentials.SSHKeyFile)
	if err != nil {
		return auth{}, err
	}
	hosts, err := t.path("knownHostsFile", s.Credentials.KnownHostsFile)
	if err != nil {
		return auth{}, err
	}
	method, err := sshkey.Auth(s.URL, s.Credentials.Username, key, hosts)
	if err != nil {
		return auth{}, fmt.Errorf("spec.credentials.sshKeyFile %q: %w", s.Credentials.SSHKeyFile, err)
	}
	return auth{method: method}, nil
}

// path returns the path of a file in the folder of secrets. The name comes from a
// site's package, so it must not lead to other files of the server. ErrInvalid if
// it does.
func (t *Target) path(field, name string) (string, error) {
	if t.options.Secrets == "" {
		return "", fmt.Errorf("spec.credentials.%s: this meta-scheduler has no folder of secrets: configure one", field)
	}
	if filepath.IsAbs(name) {
		relative, err := filepath.Rel(t.options.Secrets, name)
		if err != nil {
			return "", tko.Errorf(tko.ErrInvalid, "spec.credentials.%s %q is not in the meta-scheduler's folder of secrets", field, name)
		}
		name = relative
	}
	if !filepath.IsLocal(name) {
		return "", tko.Errorf(tko.ErrInvalid, "spec.credentials.%s %q is not in the meta-scheduler's folder of secrets", field, name)
	}
	return filepath.Join(t.options.Secrets, name), nil
}

// secret reads a file in the folder of secrets, or resolves a reference.
func (t *Target) secret(ctx context.Context, field, name string) (string, error) {
	if secret.IsReference(name) {
		text, err := t.options.References.Resolve(ctx, name)
		if err != nil { // not ErrInvalid: the secret may be created later
			return "", fmt.Errorf("spec.credentials.%s: %w", field, err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	path, err := t.path(field, name)
	if err != nil {
		return "", err
	}
	file, err := os.OpenInRoot(t.options.Secrets, strings.TrimPrefix(path, filepath.Clean(t.options.Secrets)+string(filepath.Separator)))
	if err != nil {
		// not ErrInvalid: files of secrets may be created later
		return "", fmt.Errorf("spec.credentials.%s %q can't be read: %w", field, name, errors.Unwrap(err))
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxSecret))
	if err != nil {
		return "", fmt.Errorf("spec.credentials.%s %q can't be read", field, name)
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "", fmt.Errorf("spec.credentials.%s %q is empty", field, name)
	}
	return text, nil
}

func readAll(b *object.Blob) ([]byte, error) {
	r, err := b.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}
