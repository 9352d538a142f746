package main

import (
	"slices"

	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/guard"
)

// guards limit what the server accesses on behalf of users.
type guards struct {
	remote *guard.Guard // for downloads
	git    *guard.Guard // for sites' repositories
	tosca  *guard.Guard // for service templates
}

// newGuards makes the guards from the settings. Invalid settings are an ErrInvalid.
func newGuards(c *config.Config) (g guards, err error) {
	o := guard.Options{Schemes: c.RemoteSchemes, Hosts: c.RemoteHosts, Addresses: c.RemoteAddresses}
	if g.remote, err = guard.New(o); err != nil {
		return guards{}, err
	}
	git := o
	git.Folders, git.FoldersFlag = c.GitLocal, "--git-local"
	if g.git, err = guard.New(git); err != nil {
		return guards{}, err
	}
	tosca := o
	tosca.Folders, tosca.FoldersFlag = c.TOSCALocal, "--tosca-local"
	if tosca.AddressesFlag = "--remote-addresses or --tosca-local-addresses"; c.TOSCALocalAddresses {
		tosca.Addresses = slices.Concat(o.Addresses, guard.LocalNetworks)
	}
	g.tosca, err = guard.New(tosca)
	return g, err
}
