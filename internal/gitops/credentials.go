package gitops

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/leash"
)

// CredentialUses returns how a definition uses credentials; none if it can't be read.
func CredentialUses(d tko.SourceDefinition) (all []leash.Use) {
	s, err := definedSettings(d)
	if err != nil {
		return nil
	}
	add := func(address string, files ...string) {
		for _, file := range files {
			if file != "" {
				all = append(all, leash.Use{
					Credential: leash.Name(leash.KindGitOps, file), Host: leash.HostOf(address), By: leash.By{Kind: tko.KindSource, ID: d.Name},
				})
			}
		}
	}
	of := func(address string, c remote.Credentials) { add(address, c.TokenFile, c.PasswordFile) }
	add(s.Git.URL, s.Git.PasswordFile, s.Git.TokenFile, s.Git.SSHKeyFile)
	if s.Inventory != nil {
		for _, from := range s.Inventory.From {
			of(from.Address(), from.Credentials)
		}
	}
	if s.Report != nil {
		add(s.Report.Address(), s.Report.TokenFile)
	}
	if s.Catalog != nil && s.Catalog.OCI != nil {
		of(s.Catalog.OCI.URL, s.Catalog.OCI.Credentials)
	}
	if s.Catalog != nil && s.Catalog.Helm != nil {
		of(s.Catalog.Helm.URL, s.Catalog.Helm.Credentials)
	}
	return all
}
