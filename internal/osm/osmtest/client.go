package osmtest

import (
	"context"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// Endpoint returns the endpoint of the server, with its administrator.
func (s *Server) Endpoint() nbi.Endpoint {
	return nbi.Endpoint{URL: s.URL, CA: s.CA, User: "admin", Project: "admin", Password: func(context.Context) (secret.Text, error) { return "admin", nil }}
}

// Client makes a client of the server.
func Client(t *testing.T, s *Server) *nbi.Client {
	t.Helper()
	c, err := nbi.NewClient(s.Endpoint(), nbi.Options{Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
