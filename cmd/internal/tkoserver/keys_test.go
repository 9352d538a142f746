package tkoserver

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestEncryptedPackagesAreReadableWithTheKeyOnly(t *testing.T) {
	folder := t.TempDir()
	database, key, next := filepath.Join(folder, "tko.db"), filepath.Join(folder, "key"), filepath.Join(folder, "next")
	command := func(want int, args ...string) string {
		t.Helper()
		var out eventually.Buffer
		if code := run(t.Context(), args, &out, &out); code != want {
			t.Fatalf("%v: exit code %d, want %d:\n%s", args, code, want, &out)
		}
		return out.String()
	}
	for _, path := range []string{key, next} {
		command(0, "keys", "create", path)
	}
	serve := []string{"--roles=data", "--store=sqlite:" + database, "--listen-grpc=localhost:0", "--listen-web=", "--listen-log="}
	put := func(id string, args ...string) (packages []string) {
		t.Helper()
		served, stop := start(t, append(append([]string{}, serve...), args...)...)
		defer stop()
		c, err := client.Dial(client.Options{Address: served.GRPC[0]})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		resource := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"x": "canary-of-" + id}}
		if _, err := c.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id), Package: krm.Package{resource}}); err != nil {
			t.Fatal(err)
		}
		for template, err := range c.Templates(t.Context(), tko.TemplateSelect{}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			full, err := c.Template(t.Context(), template.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			packages = append(packages, full.Package[0].Text("data", "x"))
		}
		return packages
	}
	stored := func() string {
		t.Helper()
		var all bytes.Buffer
		files, err := filepath.Glob(database + "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(data)
		}
		return all.String()
	}

	put("plain")
	if !strings.Contains(stored(), "canary-of-plain") {
		t.Fatal("the database lacks a package without encryption: this test can't tell")
	}
	if got := put("sealed", "--encryption-key="+key); len(got) != 2 {
		t.Fatalf("got the packages %v, want the earlier one, too", got)
	}
	if strings.Contains(stored(), "canary-of-sealed") {
		t.Error("a package is in the database as it is")
	}
	if out := command(2, serve...); !strings.Contains(out, "--encryption-key") {
		t.Errorf("without the key: %s", out)
	}
	if out := command(2, append(append([]string{}, serve...), "--encryption-key="+next)...); !strings.Contains(out, "doesn't fit") {
		t.Errorf("with another key: %s", out)
	}
	command(0, "keys", "rotate", "--store=sqlite:"+database, "--encryption-key="+key, "--new-encryption-key="+next, "--rewrite")
	if out := command(2, "keys", "check", "--store=sqlite:"+database, "--encryption-key="+key); !strings.Contains(out, "doesn't fit") {
		t.Errorf("the replaced key: %s", out)
	}
	command(0, "keys", "check", "--store=sqlite:"+database, "--encryption-key="+next)
	if got := put("later", "--encryption-key="+next); len(got) != 3 || got[1] != "canary-of-plain" || got[2] != "canary-of-sealed" {
		t.Errorf("got the packages %v, want all three", got)
	}
	if err := os.Chmod(next, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := command(2, "keys", "check", "--store=sqlite:"+database, "--encryption-key="+next); !strings.Contains(out, "chmod") {
		t.Errorf("a key that others can read: %s", out)
	}
}

// A transit is a stand-in for Vault's transit engine: keys with versions that encrypt,
// and never leave it.
type transit struct {
	mutex sync.Mutex
	keys  map[string][]cipher.AEAD // by name; the last one is the current version
	down  bool
}

func (v *transit) rotate(t *testing.T, name string) {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.keys[name] = append(v.keys[name], aead)
}

func (v *transit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	var in struct {
		Plaintext  []byte `json:"plaintext"`
		Ciphertext string `json:"ciphertext"`
		Associated []byte `json:"associated_data"`
	}
	verb, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/transit/"), "/")
	versions := v.keys[name]
	switch {
	case v.down:
		http.Error(w, `{"errors":["Vault is sealed"]}`, http.StatusServiceUnavailable)
		return
	case r.Header.Get("X-Vault-Token") != "s.tko" || r.Method != http.MethodPost || len(versions) == 0:
		http.Error(w, `{"errors":["permission denied"]}`, http.StatusForbidden)
		return
	case json.NewDecoder(r.Body).Decode(&in) != nil:
		http.Error(w, `{"errors":["malformed"]}`, http.StatusBadRequest)
		return
	}
	data := map[string]any{}
	switch verb {
	case "encrypt":
		nonce := make([]byte, 12)
		_, _ = rand.Read(nonce) // it never fails
		sealed := versions[len(versions)-1].Seal(nonce, nonce, in.Plaintext, in.Associated)
		data["ciphertext"] = fmt.Sprintf("vault:v%d:%s", len(versions), base64.StdEncoding.EncodeToString(sealed))
	case "decrypt":
		var version int
		_, text, _ := strings.Cut(strings.TrimPrefix(in.Ciphertext, "vault:v"), ":")
		_, err := fmt.Sscanf(in.Ciphertext, "vault:v%d:", &version)
		sealed, decodeErr := base64.StdEncoding.DecodeString(text)
		if err != nil || decodeErr != nil || version < 1 || version > len(versions) || len(sealed) < 12 {
			http.Error(w, `{"errors":["malformed"]}`, http.StatusBadRequest)
			return
		}
		plain, err := versions[version-1].Open(nil, sealed[:12], sealed[12:], in.Associated)
		if err != nil {
			http.Error(w, `{"errors":["cipher: message authentication failed"]}`, http.StatusBadRequest)
			return
		}
		data["plaintext"] = plain
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
}

// TestKeyInVaultEncryptsDataKeys follows a key of Vault through its rotation, a change
// to it from a file and back, and an outage.
func TestKeyInVaultEncryptsDataKeys(t *testing.T) {
	folder := t.TempDir()
	v := &transit{keys: map[string][]cipher.AEAD{}}
	v.rotate(t, "tko")
	v.rotate(t, "other")
	web := httptest.NewServer(v)
	defer web.Close()
	token, key := filepath.Join(folder, "token"), filepath.Join(folder, "key")
	if err := os.WriteFile(token, []byte("s.tko\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := "--store=sqlite:" + filepath.Join(folder, "tko.db")
	command := func(want int, says string, args ...string) {
		t.Helper()
		var out eventually.Buffer
		if code := run(t.Context(), append(args, store, "--vault-address="+web.URL, "--vault-token-file="+token), &out, &out); code != want || !strings.Contains(out.String(), says) {
			t.Fatalf("%v: exit code %d, want %d and %q:\n%s", args, code, want, says, &out)
		}
	}
	served, stop := start(t, "--roles=data", store, "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--encryption-key=vault:transit/tko", "--vault-address="+web.URL, "--vault-token-file="+token)
	c, err := client.Dial(client.Options{Address: served.GRPC[0]})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.RegisterTemplate(t.Context(), tko.Template{ID: "t", Package: krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}}}})
	v.mutex.Lock()
	v.down = true // the server has what it needs
	v.mutex.Unlock()
	if got, getErr := c.Template(t.Context(), "t", 0); err != nil || getErr != nil || len(got.Package) != 1 {
		t.Errorf("with Vault out of reach: %+v, %v, %v", got, err, getErr)
	}
	_ = c.Close()
	stop()
	check := []string{"keys", "check"}
	command(1, "503", append(check, "--encryption-key=vault:transit/tko")...)
	v.mutex.Lock()
	v.down = false
	v.mutex.Unlock()
	command(0, "1 data keys", append(check, "--encryption-key=vault:transit/tko")...)
	command(1, "", append(check, "--encryption-key=vault:transit/other")...)
	command(1, "", append(check, "--encryption-key=vault:transit/missing")...)
	command(2, "vault:MOUNT/NAME", append(check, "--encryption-key=vault:../tko")...)
	v.rotate(t, "tko") // in Vault: earlier versions still decrypt
	command(0, "1 data keys", append(check, "--encryption-key=vault:transit/tko")...)
	command(0, "2 data keys", "keys", "rotate", "--encryption-key=vault:transit/tko")
	var out eventually.Buffer
	if code := run(t.Context(), []string{"keys", "create", key}, &out, &out); code != 0 {
		t.Fatal(out.String())
	}
	command(0, "3 data keys", "keys", "rotate", "--encryption-key=vault:transit/tko", "--new-encryption-key="+key)
	command(1, "", append(check, "--encryption-key=vault:transit/tko")...)
	command(0, "4 data keys", "keys", "rotate", "--encryption-key="+key, "--new-encryption-key=vault:transit/other", "--rewrite")
	command(0, "4 data keys", append(check, "--encryption-key=vault:transit/other")...)
}
