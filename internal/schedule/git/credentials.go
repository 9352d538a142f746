package git

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// permit returns an error unless a site may use the credentials of a Repository.
func (t *Target) permit(s spec, site tko.SiteID) error {
	if s.Local != "" {
		return nil
	}
	for _, name := range []string{s.Credentials.SSHKeyFile, s.Credentials.PasswordFile, s.Credentials.TokenFile} {
		if name == "" {
			continue
		}
		if _, err := t.grant(name, s.URL, site); err != nil {
			return fmt.Errorf("spec.credentials: %w", err)
		}
	}
	return nil
}

// grant returns the permission of a site to send a credential to the host of a URL.
func (t *Target) grant(name, to string, site tko.SiteID) (leash.Grant, error) {
	credential, err := t.secrets.Credential(name)
	if err != nil {
		return leash.Grant{}, err
	}
	return t.options.Leash.Site(site).Grant(credential, to)
}

// readAuth reads the files of credentials that a Repository of a site names.
func (t *Target) readAuth(ctx context.Context, s spec, site tko.SiteID) (gitclient.Auth, error) {
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
		if *one.to, err = t.secret(ctx, one.name, s.URL, site); err != nil {
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

// secret reads a file in the folder of secrets, or resolves a reference, for a site that
// sends it to the host of a URL.
func (t *Target) secret(ctx context.Context, name, to string, site tko.SiteID) (string, error) {
	grant, err := t.grant(name, to, site)
	if err != nil {
		return "", err
	}
	if secret.IsReference(name) {
		text, err := t.options.References.Resolve(ctx, name, grant)
		if err != nil { // not ErrInvalid: the secret may be created later
			return "", fmt.Errorf("%q: %w", name, err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	data, err := t.secrets.Read(name, grant)
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
