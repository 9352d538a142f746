// Package certstest makes certificates for tests.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority issues certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

// New makes an authority.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t), next: 2}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	a.cert = a.sign(template, template, a.key, a.key)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// PEM returns the certificate of the authority.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// Issue returns a certificate and its key, for servers at this machine and for
// clients, after edit has changed it; edit may be nil.
func (a *Authority) Issue(name string, edit func(*x509.Certificate)) (cert, key []byte, issued *x509.Certificate) {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	a.next++
	if edit != nil {
		edit(template)
	}
	private := newKey(a.t)
	issued = a.sign(template, a.cert, private, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return encode("CERTIFICATE", issued.Raw), encode("PRIVATE KEY", der), issued
}

// Certify returns the certificate of a client for a public key, in DER, after edit has changed it.
func (a *Authority) Certify(public any, edit func(*x509.Certificate)) []byte {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	edit(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

// Localhost makes a certificate one for servers at this machine.
func Localhost(c *x509.Certificate) {
	c.DNSNames, c.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
}

// Revoke returns a revocation list of certificates.
func (a *Authority) Revoke(certs ...*x509.Certificate) []byte {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range certs {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return encode("X509 CRL", der)
}

func encode(typ string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})
}

// Write writes files into a folder, and returns their paths in that order.
func Write(t testing.TB, dir string, files ...File) []string {
	t.Helper()
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = filepath.Join(dir, f.Name)
		if err := os.WriteFile(paths[i], f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// A File is a file to write.
type File struct {
	Name string
	Data []byte
}

// Pool returns a pool with the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}
