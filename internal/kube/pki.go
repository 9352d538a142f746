package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A pki holds the certificates of a cluster.
type pki struct {
	ca, server, admin    *pair
	frontCA, frontClient *pair
	accounts             *ecdsa.PrivateKey // signs the tokens of service accounts
}

// A pair is a certificate and its key.
type pair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newPKI() (*pki, error) {
	p := &pki{}
	var err error
	if p.ca, err = authority("kubernetes-ca"); err != nil {
		return nil, err
	}
	if p.frontCA, err = authority("front-proxy-ca"); err != nil {
		return nil, err
	}
	if p.server, err = p.ca.serving("kube-apiserver", "localhost", "kubernetes.default.svc", "127.0.0.1", "::1", "10.96.0.1"); err != nil {
		return nil, err
	}
	if p.admin, err = p.client("administrator", "system:masters"); err != nil {
		return nil, err
	}
	if p.frontClient, err = p.frontCA.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "front-proxy-client"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return nil, err
	}
	p.accounts, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return p, err
}

// client makes a client certificate for a user with a name and groups.
func (p *pki) client(name string, groups ...string) (*pair, error) {
	return p.ca.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func (p *pki) write(folder string) error {
	files := map[string][]byte{
		"ca.crt": p.ca.certificatePEM(), "ca.key": p.ca.keyPEM(),
		"apiserver.crt": p.server.certificatePEM(), "apiserver.key": p.server.keyPEM(),
		"front-proxy-ca.crt":     p.frontCA.certificatePEM(),
		"front-proxy-client.crt": p.frontClient.certificatePEM(), "front-proxy-client.key": p.frontClient.keyPEM(),
		"accounts.key": keyPEM(p.accounts),
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func authority(name string) (*pair, error) {
	return (&pair{}).sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
}

// serving makes a server certificate for the hosts, which are names and IP addresses.
func (p *pair) serving(name string, hosts ...string) (*pair, error) {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return p.sign(template)
}

// sign makes a certificate from template, signed by p, or self-signed if p is nil.
func (p *pair) sign(template *x509.Certificate) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(48*time.Hour)
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	parent, signer := p.certificate, p.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &pair{certificate, key}, err
}

func (p *pair) certificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.certificate.Raw})
}

func (p *pair) keyPEM() []byte { return keyPEM(p.key) }

func keyPEM(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		panic(err) // cannot happen: the curve is a known one
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// ServingCertificate writes a server certificate signed by CA, and returns the paths
// of the certificate and its key. Without hosts, it is valid for ServerName and for
// the names and addresses of loopback.
func (c *Cluster) ServingCertificate(t testing.TB, hosts ...string) (certificate, key string) {
	t.Helper()
	if len(hosts) == 0 {
		hosts = []string{ServerName, "localhost", "127.0.0.1", "::1"}
	}
	p, err := c.pki.ca.serving(hosts[0], hosts...)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certificate, key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	for path, data := range map[string][]byte{certificate: p.certificatePEM(), key: p.keyPEM()} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

func (c *Cluster) writeKubeconfig(path string, user *pair) error {
	encode := base64.StdEncoding.EncodeToString
	return os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: test
  cluster: {server: %q, certificate-authority-data: %s}
users:
- name: test
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: test
  context: {cluster: test, user: test}
current-context: test
`, c.URL(), encode(c.CA()), encode(user.certificatePEM()), encode(user.keyPEM())), 0o600)
}
