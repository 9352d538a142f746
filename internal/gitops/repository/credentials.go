package repository

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/location/sshkey"
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

// auth is a login method with the secret that must be hidden in errors.
type auth struct {
	method transport.AuthMethod
	secret string
}

// hide replaces the secret in an error's text.
func (a auth) hide(err error) error {
	if err == nil || a.secret == "" || !strings.Contains(err.Error(), a.secret) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), a.secret, "[secret]"))
}

// maxSecret is the most bytes of a secret that are read.
const maxSecret = 1 << 20

func secret(name string) (string, error) {
	file, err := os.Open(name) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fmt.Errorf("the credentials: %w", err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxSecret))
	if err != nil {
		return "", fmt.Errorf("the credentials: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "", fmt.Errorf("the credentials: file %s is empty", name)
	}
	return text, nil
}

func (r *Repository) auth() (auth, error) {
	c := r.options.Credentials
	switch {
	case c.SSHKeyFile != "":
		return r.sshAuth()
	case c.PasswordFile != "":
		password, err := secret(c.PasswordFile)
		return auth{&http.BasicAuth{Username: c.Username, Password: password}, password}, err
	case c.TokenFile != "":
		token, err := secret(c.TokenFile)
		user := c.Username
		if user == "" {
			user = "git" // hosts that accept tokens as passwords ignore the user name
		}
		return auth{&http.BasicAuth{Username: user, Password: token}, token}, err
	}
	return auth{}, nil
}

func (r *Repository) sshAuth() (auth, error) {
	c := r.options.Credentials
	key, err := secret(c.SSHKeyFile)
	if err != nil {
		return auth{}, err
	}
	method, err := sshkey.Auth(r.options.URL, c.Username, key, c.KnownHostsFile)
	if err != nil {
		return auth{}, fmt.Errorf("the SSH key %s: %w", c.SSHKeyFile, err)
	}
	return auth{method: method}, nil
}
