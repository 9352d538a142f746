package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxResponse bounds what is read of a response, in bytes.
const maxResponse = 64 << 10

// client returns an HTTP client of the API server for the administrator.
func (c *Cluster) client() (*http.Client, error) {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(c.CA())
	own, err := tls.X509KeyPair(c.Administrator())
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: trusted, Certificates: []tls.Certificate{own},
	}}}, nil
}

// get reads objects of the API server: all must exist.
func (c *Cluster) get(ctx context.Context, client *http.Client, paths ...string) error {
	for _, path := range paths {
		if err := c.request(ctx, client, http.MethodGet, path, ""); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) request(ctx context.Context, client *http.Client, method, path, body string) (err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL()+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return nil
}
