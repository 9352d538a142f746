package gitclient

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/http"
)

// tokenUser is the user of a token: hosts that accept tokens as passwords ignore it.
const tokenUser = "git"

// Credentials have at most one of password, token and SSH key.
type Credentials struct {
	URL        string
	Username   string // for a password; optional for the others
	Password   string
	Token      string
	SSHKey     string // in PEM, without a passphrase
	KnownHosts string // path of the file of known hosts, for an SSH key
}

// An Auth is a method to log in, with the secret that no error may contain.
type Auth struct {
	Method transport.AuthMethod // nil if there are no credentials
	secret string
}

// Login returns the Auth of credentials. The error is a tko.ErrInvalid if the SSH key or
// the URL is invalid.
func Login(c Credentials) (a Auth, err error) {
	switch {
	case c.SSHKey != "":
		a.Method, err = sshKey(c.URL, c.Username, c.SSHKey, c.KnownHosts)
	case c.Password != "":
		a = Auth{&http.BasicAuth{Username: c.Username, Password: c.Password}, c.Password}
	case c.Token != "":
		a = Auth{&http.BasicAuth{Username: cmp.Or(c.Username, tokenUser), Password: c.Token}, c.Token}
	}
	if err != nil {
		return Auth{}, fmt.Errorf("the SSH key: %w", err)
	}
	return a, nil
}

// Hide replaces the secret in an error's text.
func (a Auth) Hide(err error) error {
	if err == nil || a.secret == "" || !strings.Contains(err.Error(), a.secret) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), a.secret, "[secret]"))
}
