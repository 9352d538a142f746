package sops_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/sops"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func keys(t testing.TB) *sops.Keys {
	t.Helper()
	k, err := sops.ParseKeys(file(t, "key.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func values(t *testing.T, name string, data []byte) (all []any) {
	t.Helper()
	if strings.HasSuffix(name, ".json") {
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatal(err)
		}
		return []any{v}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
}

// Files that SOPS itself encrypted decrypt to the original content.
func TestDecryptReadsAllFormatsOfSOPS(t *testing.T) {
	for _, name := range []string{"all.yaml", "all.json", "regex.yaml", "unregex.yaml", "suffix.yaml", "unsuffix.yaml", "mac.yaml", "both.yaml"} {
		t.Run(name, func(t *testing.T) {
			if !sops.Encrypted(file(t, name)) {
				t.Error("Encrypted returned false, want true")
			}
			got, err := sops.Decrypt(name, file(t, name), keys(t))
			if err != nil {
				t.Fatal(err)
			}
			clear := "plain" + path.Ext(name)
			if diff := cmp.Diff(values(t, clear, file(t, clear)), values(t, name, got)); diff != "" {
				t.Errorf("plain (-) and decrypted (+):\n%s", diff)
			}
		})
	}
}

// Keys are PGP keys or age keys, with the names that Flux uses in a Secret.
func TestDecryptWithPGPKeys(t *testing.T) {
	secret := map[string][]byte{"identity.asc": file(t, "key.asc"), "age.agekey": file(t, "key.txt")}
	all, err := sops.SecretKeys(secret)
	if err != nil {
		t.Fatal(err)
	}
	pgp, err := sops.SecretKeys(map[string][]byte{"identity.asc": secret["identity.asc"]})
	if err != nil {
		t.Fatal(err)
	}
	two, err := sops.ParsePGPKeys(append(file(t, "other.asc"), secret["identity.asc"]...))
	if err != nil {
		t.Fatal(err)
	}
	other, err := sops.ParsePGPKeys(file(t, "other.asc"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		why, name string
		keys      *sops.Keys
		fails     bool
	}{
		"its key":             {"the key is in the form that gpg exports", "pgp.yaml", pgp, false},
		"both kinds":          {"a Secret may have keys of both kinds", "pgp.yaml", all, false},
		"among others":        {"a file may hold several", "pgp.yaml", two, false},
		"either":              {"SOPS uses the first key that works", "agepgp.yaml", pgp, false},
		"either, by age":      {"SOPS uses the first key that works", "agepgp.yaml", keys(t), false},
		"age key for PGP":     {"an age key can't decrypt a PGP file", "pgp.yaml", keys(t), true},
		"another PGP key":     {"the file isn't encrypted for this key", "pgp.yaml", other, true},
		"PGP key for age":     {"a PGP key can't decrypt an age file", "all.yaml", pgp, true},
		"age with both kinds": {"PGP keys don't change the use of age keys", "all.yaml", all, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := sops.Decrypt(test.name, file(t, test.name), test.keys)
			if test.fails {
				if !errors.Is(err, tko.ErrDenied) {
					t.Errorf("%s: the error is %v, want ErrDenied", test.why, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", test.why, err)
			}
			if diff := cmp.Diff(values(t, "plain.yaml", file(t, "plain.yaml")), values(t, test.name, got)); diff != "" {
				t.Errorf("plain (-) and decrypted (+):\n%s", diff)
			}
		})
	}
	for name, want := range map[string]string{"locked.asc": "has a passphrase", "key.txt": "PGP keys can't be parsed", "pgp.yaml": "PGP keys can't be parsed"} {
		if _, err := sops.ParsePGPKeys(file(t, name)); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePGPKeys of %s returned %v, want ErrInvalid with %q", name, err, want)
		}
	}
}

func TestDecryptRefusesModifiedFiles(t *testing.T) {
	replace := func(name, old, new string) []byte {
		data := file(t, name)
		if !bytes.Contains(data, []byte(old)) {
			t.Fatalf("%s has no %q", name, old)
		}
		return bytes.Replace(data, []byte(old), []byte(new), 1)
	}
	line := func(name, key string) string {
		for text := range strings.Lines(string(file(t, name))) {
			if strings.HasPrefix(strings.TrimSpace(text), key+": ENC") {
				return text
			}
		}
		t.Fatalf("%s has no %s", name, key)
		return ""
	}
	count := line("regex.yaml", "count")
	tests := map[string]struct {
		why  string
		data []byte
		keys *sops.Keys
		kind error
		want string
	}{
		"no key":         {why: "the content must not be taken as plain text", data: file(t, "all.yaml"), kind: tko.ErrDenied, want: "no key is given"},
		"another key":    {why: "the file isn't encrypted for this key", data: file(t, "other.yaml"), keys: keys(t), kind: tko.ErrDenied, want: "other keys"},
		"changed value":  {why: "the MAC includes values that aren't encrypted", data: replace("regex.yaml", "edge-upf-07", "edge-upf-08"), keys: keys(t), kind: tko.ErrDenied, want: "don't match its MAC"},
		"removed value":  {why: "the MAC includes all values", data: replace("regex.yaml", count, ""), keys: keys(t), kind: tko.ErrDenied, want: "don't match its MAC"},
		"moved value":    {why: "an attacker could move a secret into a field that is shown", data: replace("regex.yaml", "replicaCount: ENC", "description: ENC"), keys: keys(t), kind: tko.ErrDenied, want: "description: can't be decrypted"},
		"broken value":   {why: "storage may damage a value", data: replace("regex.yaml", "data:", "data:AA"), keys: keys(t), kind: tko.ErrDenied, want: "replicaCount"},
		"plain value":    {why: "an attacker could replace an encrypted value", data: replace("regex.yaml", strings.TrimSpace(count), "count: 3"), keys: keys(t), kind: tko.ErrDenied, want: "count: is not encrypted"},
		"other time":     {why: "the MAC includes the time", data: replace("regex.yaml", "lastmodified: \"20", "lastmodified: \"19"), keys: keys(t), kind: tko.ErrDenied, want: "its MAC"},
		"alias":          {why: "SOPS writes no aliases, and they can expand without limit", data: replace("regex.yaml", "kind: Second", "kind: &a Second\nmore: *a"), keys: keys(t), kind: tko.ErrDenied, want: "alias"},
		"comment rule":   {why: "rules about comments aren't supported", data: file(t, "comments.yaml"), keys: keys(t), kind: tko.ErrInvalid, want: "comments"},
		"several groups": {why: "several key groups need more than one key", data: file(t, "groups.yaml"), keys: keys(t), kind: tko.ErrInvalid, want: "key_groups"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := sops.Decrypt("edge.yaml", test.data, test.keys)
			if !errors.Is(err, test.kind) || !strings.Contains(fmt.Sprint(err), test.want) || got != nil {
				t.Errorf("%s: the error is %v, want one that contains %q", test.why, err, test.want)
			}
			// As the status of a source has it, the error names the file, once.
			data := append([]byte("# "+manifest.Group+"\n"), test.data...)
			_, err = manifest.Read(sops.FS(fstest.MapFS{"edge.yaml": {Data: data}}, test.keys, nil), "")
			if !errors.Is(err, test.kind) || !strings.Contains(fmt.Sprint(err), test.want) || strings.Count(fmt.Sprint(err), "edge.yaml") != 1 {
				t.Errorf("%s: the error of the source is %v, want one that names the file once, and contains %q", test.why, err, test.want)
			}
		})
	}
}

func TestFSDecryptsOnOpen(t *testing.T) {
	encrypted := fstest.MapFS{
		"a/secret.yaml": {Data: file(t, "regex.yaml")},
		"a/open.yaml":   {Data: []byte("text: about sops and ENC[AES256_GCM,data\n")},
		"a/package.bin": {Data: []byte{0, 1, 2}},
	}
	if err := fstest.TestFS(sops.FS(fstest.MapFS{"a/open.yaml": {Data: []byte("x: 1\n")}}, nil, nil), "a/open.yaml"); err != nil {
		t.Error(err)
	}
	open := sops.FS(encrypted, keys(t), nil)
	data, err := fs.ReadFile(open, "a/secret.yaml")
	if err != nil || !strings.Contains(string(data), "replicaCount: \"2\"") || strings.Contains(string(data), "sops") {
		t.Errorf("the decrypted file is, %v:\n%s", err, data)
	}
	if info, err := fs.Stat(open, "a/secret.yaml"); err != nil || info.Size() != int64(len(data)) {
		t.Errorf("Stat of the decrypted file returned %+v, %v; want size %d", info, err, len(data))
	}
	closed := sops.FS(encrypted, nil, nil)
	if _, err := fs.ReadFile(closed, "a/secret.yaml"); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("ReadFile without a key returned %v, want ErrDenied", err)
	}
	for _, name := range []string{"a/open.yaml", "a/package.bin"} {
		if data, err := fs.ReadFile(closed, name); err != nil || !bytes.Equal(data, encrypted[name].Data) {
			t.Errorf("without a key, %s is %q, %v; want it unchanged", name, data, err)
		}
	}
	secret := append([]byte("apiVersion: v1\n"), file(t, "mac.yaml")...)
	secret = bytes.Replace(secret, []byte("---\nkind"), []byte("---\napiVersion: v1\nkind"), 1)
	mixed := fstest.MapFS{
		"theirs.yaml": {Data: secret}, "ours.yaml": {Data: file(t, "mac.yaml")},
		"other.yaml":  {Data: bytes.Replace(secret, []byte("apiVersion: v1"), []byte("apiVersion: tko.nephio.org/v1alpha1"), 1)},
		"hidden.yaml": {Data: bytes.ReplaceAll(secret, []byte("apiVersion: v1"), []byte("apiVersion: ENC[AES256_GCM,data:aa==,iv:aa==,tag:aa==,type:str]"))},
	}
	others := sops.FS(mixed, nil, func(apiVersion string) bool { return !strings.HasPrefix(apiVersion, "tko.nephio.org/") })
	if data, err := fs.ReadFile(others, "theirs.yaml"); err != nil || !bytes.Equal(data, secret) {
		t.Errorf("an encrypted file without TKO manifests isn't returned unchanged: %v", err)
	}
	for _, name := range []string{"ours.yaml", "other.yaml", "hidden.yaml"} {
		if _, err := fs.ReadFile(others, name); !errors.Is(err, tko.ErrDenied) {
			t.Errorf("%s may have TKO manifests: ReadFile without a key returned %v, want ErrDenied", name, err)
		}
	}
	if entries, err := fs.ReadDir(closed, "a"); err != nil || len(entries) != 3 {
		t.Errorf("ReadDir returned %v, %v; want 3 entries", entries, err)
	}
}

func TestKeysAreParsedAndNeverPrinted(t *testing.T) {
	k, err := sops.SecretKeys(map[string][]byte{"age" + sops.SuffixAge: file(t, "other.txt"), "b" + sops.SuffixAge: file(t, "key.txt"), "else": []byte("?")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sops.Decrypt("x.yaml", file(t, "regex.yaml"), k); err != nil {
		t.Errorf("Decrypt with the second key: %v", err)
	}
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "keys", k)
	for _, text := range []string{fmt.Sprintf("%v", k), fmt.Sprintf("%+v", k), fmt.Sprintf("%#v", k), fmt.Sprintf("%d", k)} {
		if text != "[secret]" {
			t.Errorf("keys are printed: %s", text)
		}
	}
	if !strings.Contains(b.String(), "keys=[secret]") {
		t.Errorf("keys are logged: %s", b.String())
	}
	if _, err := sops.SecretKeys(map[string][]byte{"key": file(t, "key.txt")}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("SecretKeys without a key under a known name returned %v, want ErrInvalid", err)
	}
	wrong := "AGE-SECRET-KEY-1WRONG"
	if _, err := sops.SecretKeys(map[string][]byte{"a" + sops.SuffixAge: []byte(wrong)}); !errors.Is(err, tko.ErrInvalid) || strings.Contains(err.Error(), wrong) {
		t.Errorf("SecretKeys of an invalid key returned %v, want ErrInvalid without the key", err)
	}
}

func FuzzDecrypt(f *testing.F) {
	for _, name := range []string{"all.yaml", "all.json", "mac.yaml", "groups.yaml", "plain.yaml", "pgp.yaml"} {
		f.Add(file(f, name))
	}
	k := keys(f)
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = sops.Decrypt("x.yaml", data, k)
		_, _ = sops.Decrypt("x.json", data, k)
	})
}
