package repository

import (
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/secret"
)

func (c Credentials) check() error {
	n := 0
	for _, file := range []string{c.PasswordFile, c.TokenFile, c.SSHKeyFile} {
		if file != "" {
			n++
		}
	}
	switch {
	case n > 1:
		return tko.Errorf(tko.ErrInvalid, "the credentials have more than one of password, token and SSH key: use one")
	case c.SSHKeyFile != "" && c.KnownHostsFile == "":
		return tko.Errorf(tko.ErrInvalid, "an SSH key needs a file of known hosts: set it, so that no other host can impersonate the server")
	case c.PasswordFile != "" && c.Username == "":
		return tko.Errorf(tko.ErrInvalid, "a password needs a user name: set one")
	}
	return nil
}

func (r *Repository) auth() (gitclient.Auth, error) {
	c := r.options.Credentials
	read := gitclient.Credentials{URL: r.options.URL, Username: c.Username, KnownHosts: c.KnownHostsFile}
	for file, to := range map[string]*string{c.PasswordFile: &read.Password, c.TokenFile: &read.Token, c.SSHKeyFile: &read.SSHKey} {
		if file == "" {
			continue
		}
		name := remote.NameOf(r.options.Folder, file)
		grant, err := r.options.User.Grant(name, r.options.URL)
		if err != nil {
			return gitclient.Auth{}, fmt.Errorf("the credentials: %w", err)
		}
		if *to, err = secret.ReadFile(file, name, grant); err != nil {
			return gitclient.Auth{}, fmt.Errorf("the credentials: %w", err)
		}
	}
	a, err := gitclient.Login(read)
	if err != nil {
		return gitclient.Auth{}, fmt.Errorf("the credentials: %w", err)
	}
	return a, nil
}
