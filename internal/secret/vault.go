package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"
)

const (
	vaultTimeout  = 20 * time.Second
	maxVault      = 1 << 20 // bytes of a response
	renewFraction = 2       // a token is renewed after this part of its lifetime
)

// A Vault reads secrets by Vault's HTTP API. It logs in with a Kubernetes service
// account or uses a token from a file. It is safe for concurrent use.
type Vault struct {
	Address   string   // URL
	Prefixes  []string // paths, with the mount, below which secrets may be read
	TokenFile string   // file of a token; read at each request
	Role      string   // role of Vault's Kubernetes login, if there is no TokenFile
	JWTFile   string   // file of the service account's token, for Role
	Client    *http.Client

	mu      sync.Mutex
	token   Text
	expires time.Time
	renew   time.Time
}

// Read reads a secret: PATH#KEY, where PATH is that of the API without /v1/, such
// as secret/data/git of a KV engine of version 2.
func (v *Vault) Read(ctx context.Context, reference string) (Text, error) {
	name, key, ok := strings.Cut(reference, "#")
	if !ok || name == "" || key == "" || path.Clean(name) != name || strings.ContainsAny(name, "?%\\") {
		return "", fmt.Errorf("vault:%s: use vault:PATH#KEY: %w", reference, ErrReference)
	}
	if !v.allowed(name) {
		return "", fmt.Errorf("vault:%s is not below a path of --vault-path (%s): %w", name, strings.Join(v.Prefixes, ", "), ErrReference)
	}
	token, err := v.login(ctx)
	if err != nil {
		return "", err
	}
	var response struct {
		Data map[string]any `json:"data"`
	}
	if err := v.call(ctx, http.MethodGet, name, token, nil, &response); err != nil {
		return "", fmt.Errorf("vault:%s can't be read: %w", name, err)
	}
	data := response.Data
	if inner, ok := data["data"].(map[string]any); ok { // a KV engine of version 2
		data = inner
	}
	value, ok := data[key].(string)
	if !ok || value == "" {
		return "", fmt.Errorf("vault:%s has no text %q", name, key)
	}
	return Text(value), nil
}

func (v *Vault) allowed(name string) bool {
	for _, prefix := range v.Prefixes {
		prefix = strings.Trim(prefix, "/")
		if prefix != "" && (name == prefix || strings.HasPrefix(name, prefix+"/")) {
			return true
		}
	}
	return false
}

// login returns a token. It renews the token of a login half way of its
// lifetime, and logs in again if that fails.
func (v *Vault) login(ctx context.Context) (Text, error) {
	if v.TokenFile != "" {
		text, err := os.ReadFile(v.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token for Vault: %w", err)
		}
		return Text(strings.TrimSpace(string(text))), nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if v.token != "" && now.Before(v.renew) {
		return v.token, nil
	}
	if v.token != "" && now.Before(v.expires) {
		if err := v.authenticate(ctx, "auth/token/renew-self", v.token, map[string]string{}); err == nil {
			return v.token, nil
		}
	}
	jwt, err := os.ReadFile(v.JWTFile)
	if err != nil {
		return "", fmt.Errorf("read the service account's token for Vault: %w", err)
	}
	err = v.authenticate(ctx, "auth/kubernetes/login", "", map[string]string{"role": v.Role, "jwt": strings.TrimSpace(string(jwt))})
	if err != nil {
		v.token = ""
		return "", fmt.Errorf("log in to Vault as %q: %w", v.Role, err)
	}
	return v.token, nil
}

func (v *Vault) authenticate(ctx context.Context, name string, token Text, body any) error {
	var response struct {
		Auth struct {
			Token    string `json:"client_token"`
			Duration int    `json:"lease_duration"`
		} `json:"auth"`
	}
	if err := v.call(ctx, http.MethodPost, name, token, body, &response); err != nil {
		return err
	}
	if response.Auth.Token == "" {
		return errors.New("the response has no token")
	}
	lifetime := time.Duration(response.Auth.Duration) * time.Second
	v.token, v.expires, v.renew = Text(response.Auth.Token), time.Now().Add(lifetime), time.Now().Add(lifetime/renewFraction)
	return nil
}

// call makes a request. Errors don't contain the response's text, which may
// hold secrets.
func (v *Vault) call(ctx context.Context, method, name string, token Text, body, to any) error {
	ctx, cancel := context.WithTimeout(ctx, vaultTimeout)
	defer cancel()
	address, err := url.JoinPath(v.Address, "v1", name)
	if err != nil {
		return err
	}
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return err
	}
	request.Header.Set("X-Vault-Request", "true")
	if token != "" {
		request.Header.Set("X-Vault-Token", string(token))
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if v.Client != nil {
		client.Transport = v.Client.Transport
	}
	response, err := client.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("Vault responded %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxVault))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return errors.New("Vault's response is malformed") //nolint:staticcheck // a name
	}
	return nil
}
