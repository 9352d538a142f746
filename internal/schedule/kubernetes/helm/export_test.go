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

// DigestOf is the digest of a chart's archive.
func DigestOf(archive []byte) string {
	sum := sha256.Sum256(archive)
	return hex.EncodeToString(sum[:])
}

// Load unpacks a chart.
func Load(c *Chart) error {
	_, err := c.load()
	return err
}

// Reach asks an API server for something, as Helm's library does in an action,
// and answers what was wrong with the way.
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
