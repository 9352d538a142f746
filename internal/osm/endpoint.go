package osm

import (
	"context"
	"log/slog"
	"time"

	"github.com/tko-orchestrator/tko/internal/config"
)

// An Endpoint is where the NBI is, and who asks.
type Endpoint struct {
	// URL is https://HOST[:PORT], with or without /osm at its end. Plain http
	// only if it says so. Without a scheme it is https; on a loopback address,
	// where nobody can be in between, it is what the server speaks.
	URL string
	// CA are the certificates, in PEM, that the server's is signed by; the
	// system's if empty.
	CA []byte
	// Insecure accepts any certificate.
	Insecure bool
	User     string
	Project  string // name or ID
	// Password is asked for at each login, so it may change.
	Password func(ctx context.Context) (config.Secret, error)
}

// Options are the settings of a Client. The zero value works.
type Options struct {
	Timeout time.Duration // of one request, its answer included; 60 s if 0. Packages have ten times that
	Log     *slog.Logger  // nowhere if nil
}
