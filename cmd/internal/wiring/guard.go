package wiring

import (
	"slices"

	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// Guards limit what the server accesses on behalf of users, and with which credentials.
type Guards struct {
	Remote *guard.Guard // for downloads
	Git    *guard.Guard // for sites' repositories
	TOSCA  *guard.Guard // for service templates
	Leash  *leash.Leash // of credentials
}

// NewGuards makes the guards from the settings. Invalid settings are an ErrInvalid.
func NewGuards(c *config.Config) (g Guards, err error) {
	o := guard.Options{Schemes: c.RemoteSchemes, Hosts: c.RemoteHosts, Addresses: c.RemoteAddresses}
	if g.Remote, err = guard.New(o); err != nil {
		return Guards{}, err
	}
	git := o
	git.Folders, git.FoldersFlag = c.GitLocal, "--target-git-local"
	if g.Git, err = guard.New(git); err != nil {
		return Guards{}, err
	}
	tosca := o
	tosca.Folders, tosca.FoldersFlag = c.TOSCALocal, "--tosca-local"
	tosca.AddressesFlag = "--remote-addresses or --tosca-local-addresses"
	if c.TOSCALocalAddresses {
		tosca.Addresses = slices.Concat(o.Addresses, guard.LocalNetworks)
	}
	if g.TOSCA, err = guard.New(tosca); err != nil {
		return Guards{}, err
	}
	g.Leash, err = leash.Open(c.Credentials)
	return g, err
}

// Secrets returns what may be referred to as secrets, in addition to files.
func Secrets(c *config.Config) secret.Sources {
	s := secret.Sources{Environment: c.SecretEnvironment}
	if c.Vault.Address != "" {
		s.Vault = &secret.Vault{Address: c.Vault.Address, Prefixes: c.Vault.Paths, TokenFile: c.Vault.TokenFile, Role: c.Vault.Role, JWTFile: c.Vault.JWTFile}
	}
	return s
}
