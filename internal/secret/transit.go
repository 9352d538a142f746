package secret

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// TransitPrefix is the prefix of keys in Vault: vault:MOUNT/NAME.
const TransitPrefix = "vault:"

// A Transit encrypts with a key that never leaves Vault, by its transit engine. It is an
// AEADWithContext of Tink.
type Transit struct {
	vault       *Vault
	mount, name string
}

// NewTransit returns the key that a text vault:MOUNT/NAME names.
func NewTransit(v *Vault, key string) (*Transit, error) {
	text, ok := strings.CutPrefix(key, TransitPrefix)
	mount, name := path.Split(text)
	if !ok || mount == "" || name == "" || path.Clean("/"+text) != "/"+text || strings.ContainsAny(text, "?%#\\") {
		return nil, fmt.Errorf("%q: use vault:MOUNT/NAME, such as vault:transit/tko: %w", key, ErrReference)
	}
	if v == nil || v.Address == "" || v.TokenFile == "" && v.Role == "" {
		return nil, fmt.Errorf("%q needs --vault-address, and --vault-token-file or --vault-role: %w", key, ErrReference)
	}
	if u, err := url.Parse(v.Address); err != nil || u.Scheme != "https" && !isLoopback(u.Hostname()) {
		return nil, fmt.Errorf("%q: --vault-address is %q, and data keys are sent over TLS only: use https: %w", key, v.Address, ErrReference)
	}
	return &Transit{vault: v, mount: strings.TrimSuffix(mount, "/"), name: name}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// EncryptWithContext encrypts a text, and binds it to associated data.
func (t *Transit) EncryptWithContext(ctx context.Context, plain, associated []byte) ([]byte, error) {
	data, err := t.call(ctx, "encrypt", map[string]string{"plaintext": base64.StdEncoding.EncodeToString(plain), "associated_data": base64.StdEncoding.EncodeToString(associated)})
	if err != nil {
		return nil, err
	}
	if data.Ciphertext == "" {
		return nil, errors.New("Vault's response has no ciphertext") //nolint:staticcheck // a name
	}
	return []byte(data.Ciphertext), nil
}

// DecryptWithContext decrypts what EncryptWithContext returned for the same associated
// data.
func (t *Transit) DecryptWithContext(ctx context.Context, sealed, associated []byte) ([]byte, error) {
	data, err := t.call(ctx, "decrypt", map[string]string{"ciphertext": string(sealed), "associated_data": base64.StdEncoding.EncodeToString(associated)})
	if err != nil {
		return nil, err
	}
	plain, err := base64.StdEncoding.DecodeString(string(data.Plaintext))
	if err != nil || len(plain) == 0 {
		return nil, errors.New("Vault's response has no plaintext") //nolint:staticcheck // a name
	}
	return plain, nil
}

type transitData struct {
	Ciphertext string `json:"ciphertext"`
	Plaintext  Text   `json:"plaintext"`
}

func (t *Transit) call(ctx context.Context, verb string, body map[string]string) (data transitData, err error) {
	token, err := t.vault.login(ctx)
	if err != nil {
		return data, err
	}
	response := struct {
		Data *transitData `json:"data"`
	}{&data}
	name := t.mount + "/" + verb + "/" + t.name
	if err := t.vault.call(ctx, http.MethodPost, name, token, body, &response); err != nil {
		return data, fmt.Errorf("vault:%s: %w", name, err)
	}
	return data, nil
}
