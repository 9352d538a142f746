package secret

import (
	"context"
	"fmt"

	"github.com/tko-orchestrator/tko/internal/leash"
)

// A Store has the secrets that the resources of sites may name: files in a folder, and what
// references resolve to.
type Store struct {
	Folder  Folder
	Sources Sources
}

// Grant returns the permission of a user to send a secret to the host of an address.
func (s Store) Grant(name, address string, user leash.User) (leash.Grant, error) {
	credential, err := s.Folder.Credential(name)
	if err != nil {
		return leash.Grant{}, err
	}
	return user.Grant(credential, address)
}

// Read returns a secret for a user who sends it to the host of an address. Errors other than
// ErrInvalid and ErrDenied may be temporary: the secret may be created later.
func (s Store) Read(ctx context.Context, name, address string, user leash.User) (Text, error) {
	grant, err := s.Grant(name, address, user)
	if err != nil {
		return "", err
	}
	if IsReference(name) {
		text, err := s.Sources.Resolve(ctx, name, grant)
		if err != nil {
			return "", fmt.Errorf("%q: %w", name, err)
		}
		return text, nil
	}
	data, err := s.Folder.Read(name, grant)
	return Text(data), err
}
