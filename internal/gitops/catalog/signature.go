package catalog

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// keysIn returns the text of a file with PGP keys; "" if there is no file. The file is
// read each time, so that it may change.
func keysIn(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fmt.Errorf("read the key of signatures: %w", err)
	}
	if _, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(data)); err != nil {
		return "", fmt.Errorf("pgpKeyFile %q holds no PGP public keys in ASCII armor: %w", file, err)
	}
	return string(data), nil
}

// checkProvenance checks the provenance file of a chart: it must be signed by one of the
// keys, and name the archive's digest. The error is an ErrInvalid.
func checkProvenance(file []byte, digest, keys string) error {
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(keys))
	if err != nil {
		return err
	}
	block, _ := clearsign.Decode(file)
	if block == nil {
		return tko.Errorf(tko.ErrInvalid, "its .prov file is not a signed text")
	}
	if _, err := openpgp.CheckDetachedSignature(ring, bytes.NewReader(block.Bytes), block.ArmoredSignature.Body, nil); err != nil {
		return tko.Errorf(tko.ErrInvalid, "its signature is not valid for the keys of pgpKeyFile: %w", err)
	}
	_, sums, _ := bytes.Cut(block.Plaintext, []byte("\n...\n"))
	var content struct {
		Files map[string]string `json:"files"`
	}
	if err := yaml12.Unmarshal(sums, &content); err != nil {
		return tko.Errorf(tko.ErrInvalid, "its .prov file names no digests: %w", err)
	}
	for _, sum := range content.Files {
		if sum == "sha256:"+digest {
			return nil
		}
	}
	return tko.Errorf(tko.ErrInvalid, "its signature is for another archive: the .prov file doesn't name the digest %s", digest)
}

// A cosignKey checks signatures of artifacts.
type cosignKey struct{ key crypto.PublicKey }

// cosignKeyIn reads a public key, as cosign writes it.
func cosignKeyIn(file string) (k cosignKey, err error) {
	data, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return k, fmt.Errorf("read the key of signatures: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return k, fmt.Errorf("cosignKeyFile %q holds no public key in PEM: use cosign.pub", file)
	}
	if k.key, err = x509.ParsePKIXPublicKey(block.Bytes); err != nil {
		return k, fmt.Errorf("cosignKeyFile %q: %w", file, err)
	}
	return k, nil
}

// valid reports whether a payload is signed by the key, and names the digest
// (sha256:HEX).
func (k cosignKey) valid(payload []byte, signature, digest string) bool {
	sig, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return false
	}
	sum := sha256.Sum256(payload)
	signed := false
	switch key := k.key.(type) {
	case *ecdsa.PublicKey:
		signed = ecdsa.VerifyASN1(key, sum[:], sig)
	case ed25519.PublicKey:
		signed = ed25519.Verify(key, payload, sig)
	case *rsa.PublicKey:
		signed = rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], sig) == nil
	}
	var content struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	return signed && json.Unmarshal(payload, &content) == nil && content.Critical.Image.Digest == digest
}
