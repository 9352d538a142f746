package git

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
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
		if _, err := t.secrets.Grant(name, s.URL, t.options.Leash.Site(site)); err != nil {
			return fmt.Errorf("spec.credentials: %w", err)
		}
	}
	return nil
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
		text, err := t.secrets.Read(ctx, one.name, s.URL, t.options.Leash.Site(site))
		if err != nil {
			return gitclient.Auth{}, fmt.Errorf("spec.credentials.%s %w", one.field, err)
		}
		*one.to = strings.TrimSpace(string(text))
	}
	if read.SSHKey != "" {
		var err error
		if read.KnownHosts, err = t.secrets.Folder.Locate(s.Credentials.KnownHostsFile); err != nil {
			return gitclient.Auth{}, fmt.Errorf("spec.credentials.knownHostsFile %w", err)
		}
	}
	a, err := gitclient.Login(read)
	if err != nil {
		return gitclient.Auth{}, fmt.Errorf("spec.credentials: %w", err)
	}
	return a, nil
}

func readAll(b *object.Blob) ([]byte, error) {
	r, err := b.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}
