package gitclient

import (
	"cmp"
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

// dialTimeout limits the time to connect to a server.
const dialTimeout = 30 * time.Second

// sshKey returns the login with a private key without a passphrase at the server of a
// URL, whose host must be in knownHosts, a file as in known_hosts(5). The user is
// that of the URL, else the given one, else git. The error is an ErrInvalid if the
// key or the URL is invalid, and another one if the file can't be read.
func sshKey(url, user, key, knownHosts string) (transport.AuthMethod, error) {
	signer, err := ssh.ParsePrivateKey([]byte(key + "\n"))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it holds no private key, or one with a passphrase")
	}
	known, err := knownhosts.NewDB(knownHosts)
	if err != nil {
		return nil, fmt.Errorf("the file of known hosts can't be read: %w", err)
	}
	ep, err := transport.NewEndpoint(url)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the repository's URL can't be parsed")
	}
	port := cmp.Or(ep.Port, gitssh.DefaultPort)
	return &sshLogin{config: ssh.ClientConfig{
		User: cmp.Or(ep.User, user, gitssh.DefaultUsername), Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, Timeout: dialTimeout,
		HostKeyCallback: known.HostKeyCallback(), HostKeyAlgorithms: known.HostKeyAlgorithms(net.JoinHostPort(ep.Host, strconv.Itoa(port))),
	}}, nil
}

// sshLogin is a key with the known hosts.
type sshLogin struct{ config ssh.ClientConfig }

func (*sshLogin) Name() string   { return gitssh.PublicKeysName }
func (*sshLogin) String() string { return gitssh.PublicKeysName }

// ClientConfig returns a copy, because the caller changes it.
func (a *sshLogin) ClientConfig() (*ssh.ClientConfig, error) {
	c := a.config
	return &c, nil
}
