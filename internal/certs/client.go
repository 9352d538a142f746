package certs

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/tko-orchestrator/tko"
)

// ClientOptions are the settings of a client.
type ClientOptions struct {
	CA         string // file of the authorities of servers; the system's if ""
	Cert, Key  string // files of the client's certificate and key, or ""
	ServerName string // name in the server's certificate; that of its address if ""
}

// Client returns the configuration of a client. The client's certificate is read
// for each connection, so that it can be renewed. Missing and malformed files are
// an ErrInvalid.
func Client(o ClientOptions) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: o.ServerName}
	if o.CA != "" {
		data, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "tls: %w", err)
		}
		authorities, err := certificates(data)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "tls: authorities %q: %w", o.CA, err)
		}
		c.RootCAs = x509.NewCertPool()
		for _, ca := range authorities {
			c.RootCAs.AddCert(ca)
		}
	}
	if (o.Cert == "") != (o.Key == "") {
		return nil, tko.Errorf(tko.ErrInvalid, "tls: a certificate and its key belong together: give both, or none")
	}
	if o.Cert == "" {
		return c, nil
	}
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "tls: certificate %q and key %q: %w", o.Cert, o.Key, err)
		}
		return &pair, nil
	}
	if _, err := read(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	return c, nil
}
