package bundle

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// prefix begins the text of a public key.
const prefix = "ed25519:"

// The types of blocks of PEM.
const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

// NewKey makes a key for signatures, and returns it in PEM (PKCS #8).
func NewKey() (key ed25519.PrivateKey, text []byte, err error) {
	if _, key, err = ed25519.GenerateKey(rand.Reader); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der}), nil
}

// ParseKey reads a private key in PEM (PKCS #8), as NewKey and openssl genpkey write it. Its
// errors don't contain the text.
func ParseKey(text string) (ed25519.PrivateKey, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != privateBlock || strings.TrimSpace(string(rest)) != "" {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not one private key in PEM (PKCS #8): make one with tko bundle key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not an Ed25519 key: make one with tko bundle key")
	}
	return key, nil
}

// PublicText returns the text of the public key of a private one, which ParsePublic reads.
func PublicText(key ed25519.PrivateKey) string {
	return prefix + base64.StdEncoding.EncodeToString(publicOf(key))
}

// ParsePublic reads a public key: a text that starts with ed25519:, or PEM.
func ParsePublic(text string) (ed25519.PublicKey, error) {
	text = strings.TrimSpace(text)
	if encoded, ok := strings.CutPrefix(text, prefix); ok {
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, tko.Errorf(tko.ErrInvalid, "it is not a public key: after %q it has %d bytes in base64", prefix, ed25519.PublicKeySize)
		}
		return key, nil
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != publicBlock || strings.TrimSpace(string(rest)) != "" {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not one public key: give a text that starts with %s, or PEM", prefix)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	key, ok := parsed.(ed25519.PublicKey)
	if err != nil || !ok {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not an Ed25519 key")
	}
	return key, nil
}

// KeyID returns the name of a public key in files and messages.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

func publicOf(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(key[ed25519.PrivateKeySize-ed25519.PublicKeySize:])
}
