// Package sshkey authenticates with git's SSH servers.
package sshkey

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"github.com/tko-orchestrator/tko"
)

// dialTimeout is how long a server may take to greet.
const dialTimeout = 30 * time.Second

// Auth answers how a private key without a passphrase is used with the server
// of a URL: only if its host is known in a file as known_hosts(5) has it. The
// user is that of the URL, or else the one given, or else git. An ErrInvalid
// is about the key or the URL; what is wrong with the file of known hosts is
// not.
func Auth(url, user, key, knownHosts string) (transport.AuthMethod, error) {
	signer, err := ssh.ParsePrivateKey([]byte(key + "\n"))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it holds no private key without a passphrase")
	}
	known, err := knownhosts.NewDB(knownHosts)
	if err != nil {
		return nil, fmt.Errorf("the file of known hosts can't be read: %w", err)
	}
	ep, err := transport.NewEndpoint(url)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the repository's URL can't be read")
	}
	if ep.User != "" {
		user = ep.User
	}
	if user == "" {
		user = gitssh.DefaultUsername
	}
	port := ep.Port
	if port == 0 {
		port = gitssh.DefaultPort
	}
	return &auth{config: ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, Timeout: dialTimeout,
		HostKeyCallback: known.HostKeyCallback(), HostKeyAlgorithms: known.HostKeyAlgorithms(net.JoinHostPort(ep.Host, strconv.Itoa(port))),
	}}, nil
}

// auth is a key together with the hosts that may see it used.
type auth struct{ config ssh.ClientConfig }

func (*auth) Name() string   { return gitssh.PublicKeysName }
func (*auth) String() string { return gitssh.PublicKeysName }

// ClientConfig answers a copy: the caller changes it.
func (a *auth) ClientConfig() (*ssh.ClientConfig, error) {
	c := a.config
	return &c, nil
}
