package agents

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	cert, key, err := NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"crt": cert, "key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := ReadAuthority(filepath.Join(dir, "crt"), filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAuthority(filepath.Join(dir, "key"), filepath.Join(dir, "crt")); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("the files in the wrong order: %v", err)
	}
	return a
}

func csr(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{{Scheme: "urn", Opaque: "tko:agent:another"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestCertificatesOfAgentsNameOnlyTheirEnrollment(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseRequest(csr(t, key))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	chain, err := a.issue(tko.AgentEnrollment{ID: "e", Site: "s"}, r, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	if enrollmentOf(cert) != "e" || cert.IsCA || cert.NotAfter.After(now.Add(time.Hour)) {
		t.Errorf("it is of %q until %s, CA %v", enrollmentOf(cert), cert.NotAfter, cert.IsCA)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("an agent could serve")
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	chain, err = a.issue(tko.AgentEnrollment{ID: "e"}, r, now, 2*authorityTime)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(chain[0]); err != nil || cert.NotAfter.After(a.cert.NotAfter) {
		t.Errorf("it is valid until %s, and its authority until %s: %v", cert.NotAfter, a.cert.NotAfter, err)
	}
	if enrollmentOf(a.cert) != "" {
		t.Error("the authority is an agent")
	}
}

func TestRequestsForCertificatesAreVerified(t *testing.T) {
	t.Parallel()
	good, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der := csr(t, good)
	if _, err := parseRequest(der); err != nil {
		t.Fatal(err)
	}
	forged := append([]byte(nil), der...)
	forged[len(forged)-1] ^= 1
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"nothing": nil, "not signed by its key": forged, "P-384": csr(t, other), "RSA": csr(t, weak), "too large": make([]byte, maxRequest+1)} {
		if _, err := parseRequest(data); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("a request that is %s: %v", name, err)
		}
	}
}
