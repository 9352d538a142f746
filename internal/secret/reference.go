package secret

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko/internal/leash"
)

// ErrReference reports that a reference may not be resolved.
var ErrReference = errors.New("not allowed")

// The schemes of references to secrets that are not in files.
const (
	environmentScheme = "env:"
	vaultScheme       = "vault:"
)

// Sources resolve references to secrets in packages. The author of a package
// chooses the reference, so the operator lists what may be referred to. The zero
// value allows nothing.
type Sources struct {
	Environment []string // names of variables
	Vault       *Vault   // nil for none
}

// IsReference reports whether a text refers to a secret of [Sources], rather
// than to a file: env:NAME or vault:PATH#KEY.
func IsReference(text string) bool {
	return strings.HasPrefix(text, environmentScheme) || strings.HasPrefix(text, vaultScheme)
}

// Resolve returns the secret that a reference names, for which there is a grant. Errors
// contain the reference, and never the secret.
func (s Sources) Resolve(ctx context.Context, reference string, grant leash.Grant) (Text, error) {
	if err := grant.Check(reference); err != nil {
		return "", err
	}
	if name, ok := strings.CutPrefix(reference, environmentScheme); ok {
		if !slices.Contains(s.Environment, name) {
			return "", fmt.Errorf("the variable %q is not one of --secret-environment: %w", name, ErrReference)
		}
		value := os.Getenv(name)
		if value == "" {
			return "", fmt.Errorf("the variable %q is empty", name)
		}
		return Text(value), nil
	}
	if path, ok := strings.CutPrefix(reference, vaultScheme); ok {
		if s.Vault == nil {
			return "", fmt.Errorf("this server has no Vault: configure --vault-address: %w", ErrReference)
		}
		return s.Vault.Read(ctx, path)
	}
	return "", fmt.Errorf("%q is no reference: use env:NAME or vault:PATH#KEY: %w", reference, ErrReference)
}
