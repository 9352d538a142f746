package authn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// setupPrefix is the prefix of one-time tokens for the first administrator.
const setupPrefix = "tkos_"

// NewSetupToken returns a one-time token, and its hash, which is stored.
func NewSetupToken() (token, hash string) {
	token = setupPrefix + rand.Text()
	return token, setupHash(token)
}

func setupHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// SetupTokens hold the hashes of one-time tokens.
type SetupTokens interface {
	// SetupToken returns when the token with a hash ends. It returns ErrNotFound if
	// there is none, or it was used.
	SetupToken(ctx context.Context, hash string) (until time.Time, err error)
}

// Setup authenticates the one-time token for the first administrator.
type Setup struct{ Tokens SetupTokens }

// Read returns the identity of the holder of the token.
func (s Setup) Read(ctx context.Context, token string) (identity.Identity, bool, error) {
	if !strings.HasPrefix(token, setupPrefix) {
		return identity.Identity{}, false, nil
	}
	until, err := s.Tokens.SetupToken(ctx, setupHash(token))
	if errors.Is(err, tko.ErrNotFound) {
		return identity.Identity{}, true, unauthenticated("the one-time token is unknown, or was used: tko-server access init makes another one, as long as there is no administrator")
	}
	if err != nil {
		return identity.Identity{}, true, err
	}
	return identity.Setup(until), true, nil
}
