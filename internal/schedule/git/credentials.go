package git

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// readAuth reads the files of credentials that a Repository names.
func (t *Target) readAuth(ctx context.Context, s spec) (gitclient.Auth, error) {
	if s.Local != "" {
		return gitclient.Auth{}, nil
	}
	read := gitclient.Credentials{URL: s.URL, Username: s.Credentials.Username}
	for _, one := range []struct {
		field, name string
		to          *string
	}{
		{"sshKeyFile", s.Credentials.SSHKeyFile, &read.SSHKey},
		{"passwordFile", s.Credentials.PasswordFile, &read.Password},
		{"tokenFile", s.Credentials.TokenFile, &read.Token},
	} {
		if one.name == "" {
			continue
		}
		var err error
		if *one.to, err = t.secret(ctx, one.name); err != nil {
			return gitclient.Auth{}, fmt.Errorf("spec.credentials.%s %w", one.field, err)
		}
	}
	if read.SSHKey != "" {
		var err error
		if read.KnownHosts, err = t.secrets.Locate(s.Credentials.KnownHostsFile); err != nil {
			return gitclient.Auth{}, fmt.Errorf("spec.credentials.knownHostsFile %w", err)
		}
	}
	a, err := gitclient.Login(read)
	if err != nil {
		return gitclient.Auth{}, fmt.Errorf("spec.credentials: %w", err)
	}
	return a, nil
}

// secret reads a file in the folder of secrets, or resolves a reference.
func (t *Target) secret(ctx context.Context, name string) (string, error) {
	if secret.IsReference(name) {
		text, err := t.options.References.Resolve(ctx, name)
		if err != nil { // not ErrInvalid: the secret may be created later
			return "", fmt.Errorf("%q: %w", name, err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	data, err := t.secrets.Read(name)
	return strings.TrimSpace(string(data)), err
}

func readAll(b *object.Blob) ([]byte, error) {
	r, err := b.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}
