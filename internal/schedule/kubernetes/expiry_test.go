package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestExpiredClientCertificateIsNamedWithItsDate(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "scheduler"}, NotBefore: end.AddDate(-1, 0, 0), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	config := func() *rest.Config {
		return &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}}
	}
	if err := checkExpiry(config(), end.Add(-time.Second)); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := checkExpiry(config(), end.Add(time.Second)); err == nil || !strings.Contains(err.Error(), `of "scheduler", expired on 2026-03-01T12:00:00Z`) {
		t.Errorf("after: %v", err)
	}
	with := config()
	with.BearerToken = "t"
	if err := checkExpiry(with, end.Add(time.Second)); err != nil {
		t.Errorf("the token may still be valid: %v", err)
	}
	if err := checkExpiry(&rest.Config{}, end); err != nil {
		t.Errorf("without a certificate: %v", err)
	}
}
