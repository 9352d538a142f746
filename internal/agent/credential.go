package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// The files of an agent that calls home.
const (
	tlsKeyFile = "tls.key"
	tlsCert    = "tls.crt"
	holdFile   = "hold.json"
)

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY"
	// maxTokenFile is the maximum size of the file of a token.
	maxTokenFile = 4 << 10
	callTimeout  = time.Minute
	// readBuffer is the size of the buffer of the connection, which is idle most of the time.
	readBuffer = 4 << 10
)

// A Server is the server that an agent calls.
type Server struct {
	Address   string      // host:port
	TLS       *tls.Config // verifies the server
	TokenFile string      // file of the token of tko site enroll; "" for none
	// Site is the site that the agent claims to be of, for a token for several sites; "" for another
	// token.
	Site tko.SiteID
}

// dial connects to the server, with a certificate or, to get one, without.
func (s Server) dial(cert *tls.Certificate) (*grpc.ClientConn, error) {
	secure := s.TLS.Clone()
	if cert != nil {
		secure.Certificates = []tls.Certificate{*cert}
	}
	return grpc.NewClient(s.Address, grpc.WithTransportCredentials(credentials.NewTLS(secure)), grpc.WithReadBufferSize(readBuffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}))
}

// token reads the one-time token.
func (s Server) token() (string, error) {
	if s.TokenFile == "" {
		return "", tko.Errorf(tko.ErrNotFound, "the agent has no valid certificate: name the file of the token that tko site enroll printed with --token-file")
	}
	info, err := os.Stat(s.TokenFile)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxTokenFile) {
		err = tko.Errorf(tko.ErrInvalid, "it is no file of at most %d bytes", maxTokenFile)
	}
	if err != nil {
		return "", fmt.Errorf("--token-file %s: %w", s.TokenFile, err)
	}
	text, err := os.ReadFile(s.TokenFile)
	if err == nil && strings.TrimSpace(string(text)) == "" {
		err = tko.Errorf(tko.ErrInvalid, "--token-file %s: it is empty", s.TokenFile)
	}
	return strings.TrimSpace(string(text)), err
}

// Enroll makes sure that the folder has the agent of a site with a certificate, for which it uses the
// token if it has none, or if again is true. Whether the certificate is valid is decided by the clock
// of the server, when the agent connects. It can be repeated at any time: the same key may use the
// token again.
func Enroll(ctx context.Context, path string, s Server, again bool) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	f, err := openFolder(path)
	if err != nil {
		return err
	}
	defer f.close()
	cert, err := f.certificate()
	if err == nil && cert != nil && !again {
		return nil
	}
	if err != nil {
		return err
	}
	return f.enroll(ctx, s)
}

// enroll exchanges the token for a certificate.
func (f *folder) enroll(ctx context.Context, s Server) error {
	token, err := s.token()
	if err != nil {
		return err
	}
	request, err := f.request()
	if err != nil {
		return err
	}
	seen, err := f.epoch()
	if err != nil {
		return err
	}
	conn, err := s.dial(nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := agentpb.NewAgentsClient(conn).Enroll(ctx, &agentpb.EnrollRequest{Token: token, CertificateRequest: request, ClaimedSite: string(s.Site), Epoch: seen})
	if err != nil {
		return fmt.Errorf("enrolling at %s: %w", s.Address, s.aboutClock(wire.Error(err), nil))
	}
	site := tko.SiteID(response.GetSiteId())
	if s.Site != "" && site != s.Site {
		return tko.Errorf(tko.ErrConflict, "the token is for site %q, and --site is %q: leave it out, or use a token for that site", site, s.Site)
	}
	if err := f.admit(s.Address, response.GetEpoch()); err != nil {
		return err
	}
	return f.keepCertificate(site, response.GetCertificates())
}

// renew exchanges the certificate for a newer one.
func (f *folder) renew(ctx context.Context, conn *grpc.ClientConn, site tko.SiteID, server string) error {
	request, err := f.request()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := agentpb.NewAgentsClient(conn).Renew(ctx, &agentpb.RenewRequest{CertificateRequest: request})
	if err != nil {
		return wire.Error(err)
	}
	if err := f.admit(server, response.GetEpoch()); err != nil {
		return err
	}
	if got := tko.SiteID(response.GetSiteId()); got != site {
		return tko.Errorf(tko.ErrConflict, "the server renews the certificate for site %q, and this agent is of site %q", got, site)
	}
	return f.keepCertificate(site, response.GetCertificates())
}

// keepCertificate writes the certificate of the agent of a site. The folder becomes that of the
// site; ErrConflict if it is of another one.
func (f *folder) keepCertificate(site tko.SiteID, chain [][]byte) error {
	if err := tko.CheckID("site", string(site)); err != nil {
		return err
	}
	if err := f.initialize(site); err != nil {
		return err
	}
	text, err := f.read(setupFile)
	if err != nil {
		return err
	}
	var setup setupJSON
	if err := json.Unmarshal(text, &setup); err != nil {
		return fmt.Errorf("reading %s: %w", f.file(setupFile), err)
	}
	if setup.Site != site {
		return tko.Errorf(tko.ErrConflict, "the token is for site %q, and the folder %s is of the agent of site %q: choose another folder (--state)", site, f.path, setup.Site)
	}
	var encoded []byte
	for _, der := range chain {
		encoded = append(encoded, pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: der})...)
	}
	key, err := f.read(tlsKeyFile)
	if err != nil {
		return err
	}
	if _, err := tls.X509KeyPair(encoded, key); err != nil {
		return fmt.Errorf("the server's certificate doesn't fit the key %s: %w", f.file(tlsKeyFile), err)
	}
	return f.replace(tlsCert, encoded)
}

// request returns a request for a certificate of the key of the folder, which it makes if there is
// none.
func (f *folder) request() ([]byte, error) {
	text, err := f.read(tlsKeyFile)
	if err != nil {
		return nil, err
	}
	if text == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		text = pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der})
		if err := f.replace(tlsKeyFile, text); err != nil {
			return nil, err
		}
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%s is no key in PEM: restore it, or remove it with %s and enroll again", f.file(tlsKeyFile), tlsCert)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.file(tlsKeyFile), err)
	}
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// certificate returns the certificate of the folder; nil if there is none.
func (f *folder) certificate() (*tls.Certificate, error) {
	cert, err := f.read(tlsCert)
	if err != nil || cert == nil {
		return nil, err
	}
	key, err := f.read(tlsKeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s and %s: %w: restore them, or remove both and enroll again", f.file(tlsCert), f.file(tlsKeyFile), err)
	}
	return &pair, nil
}

// renewal returns when a certificate is to be renewed: at two thirds of its time.
func renewal(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) * 2 / 3)
}

// isUnenrolled reports whether only a new token helps against an error of the server.
func isUnenrolled(err error) bool {
	return errors.Is(err, tko.ErrDenied) || errors.Is(err, tko.ErrUnauthenticated)
}
