package helm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// Unserved returns why a definition is not served.
var Unserved = unserved

// DigestOf returns the digest of a chart's archive.
func DigestOf(archive []byte) string {
	sum := sha256.Sum256(archive)
	return hex.EncodeToString(sum[:])
}

// Load unpacks a chart.
func Load(c *Chart) error {
	_, err := c.load()
	return err
}

// Reach sends a request to an API server, as Helm's library does in an operation, and
// returns the error of the connection.
func Reach(ctx context.Context, host string, timeout time.Duration) error {
	c := newConnection(ctx, host, http.DefaultTransport, timeout, "default")
	config, err := c.ToRESTConfig()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, host+"/version", nil)
	if err != nil {
		return err
	}
	if response, err := client.Do(request); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	return c.wire.problem()
}
