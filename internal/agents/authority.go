package agents

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

const (
	// enrollmentURI begins the name in the certificates of agents; the ID of the enrollment follows.
	enrollmentURI = "urn:tko:agent:"
	// authorityTime is the validity of a new authority.
	authorityTime = 20 * 365 * 24 * time.Hour
	// skew is how much earlier certificates are valid than they are made: the clocks of servers differ,
	// and one that was wrong is set back.
	skew = 24 * time.Hour
	// maxRequest is the maximum size of a certificate request.
	maxRequest = 8 << 10
)

// An Authority makes the certificates of agents.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes an authority, and returns its certificate and its key, in PEM.
func NewAuthority(now time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "TKO agents"}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityTime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

// ReadAuthority reads the files of an authority: the first certificate of the first file, and its
// key. Further certificates are of authorities whose agents are accepted, too. ErrInvalid if
// they can't be used.
func ReadAuthority(certFile, keyFile string) (*Authority, error) {
	certs, err := os.ReadFile(certFile) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "--agents-ca: %w", err)
	}
	key, err := os.ReadFile(keyFile) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "--agents-ca-key: %w", err)
	}
	pair, err := tls.X509KeyPair(certs, key)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "--agents-ca %q and --agents-ca-key %q: %w: make a pair with tko-server agents-ca", certFile, keyFile, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, tko.Errorf(tko.ErrInvalid, "--agents-ca-key %q: it is no key that signs: make one with tko-server agents-ca", keyFile)
	case !pair.Leaf.IsCA:
		return nil, tko.Errorf(tko.ErrInvalid, "--agents-ca %q: its first certificate is of no authority: make one with tko-server agents-ca", certFile)
	case time.Now().After(pair.Leaf.NotAfter):
		return nil, tko.Errorf(tko.ErrInvalid, "--agents-ca %q: its first certificate expired at %s: put a new one before it (tko-server agents-ca)", certFile, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return &Authority{pair.Leaf, signer}, nil
}

// A request is a verified request for a certificate.
type request struct {
	public any
	hash   string // of the public key
}

// parseRequest verifies a request for a certificate: that its sender has the key.
func parseRequest(der []byte) (request, error) {
	if len(der) > maxRequest {
		return request{}, tko.Errorf(tko.ErrInvalid, "the certificate request has %d bytes: use at most %d", len(der), maxRequest)
	}
	r, err := x509.ParseCertificateRequest(der)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return request{}, tko.Errorf(tko.ErrInvalid, "the certificate request can't be verified: %w", err)
	}
	switch key := r.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return request{}, tko.Errorf(tko.ErrInvalid, "the key of the certificate request is not of Ed25519 or P-256")
		}
	default:
		return request{}, tko.Errorf(tko.ErrInvalid, "the key of the certificate request is not of Ed25519 or P-256")
	}
	sum := sha256.Sum256(r.RawSubjectPublicKeyInfo)
	return request{r.PublicKey, hex.EncodeToString(sum[:])}, nil
}

// issue makes the certificate of an agent, and returns it with that of the authority, in DER. It
// ends with the authority's at the latest. Names in the request have no effect.
func (a *Authority) issue(e tko.AgentEnrollment, r request, now time.Time, valid time.Duration) ([][]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	end := now.Add(valid)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "TKO agent " + e.ID}, NotBefore: now.Add(-min(skew, valid/10)), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
		URIs: []*url.URL{{Scheme: "urn", Opaque: strings.TrimPrefix(enrollmentURI, "urn:") + e.ID}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, r.public, a.key)
	return [][]byte{der, bytes.Clone(a.cert.Raw)}, err
}

// enrollmentOf returns the ID of the enrollment that a certificate names; "" if it names none.
func enrollmentOf(cert *x509.Certificate) string {
	if len(cert.URIs) != 1 {
		return ""
	}
	id, ok := strings.CutPrefix(cert.URIs[0].String(), enrollmentURI)
	if !ok {
		return ""
	}
	return id
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}
