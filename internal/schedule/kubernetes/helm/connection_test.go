package helm_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
)

func TestConnectionErrorsAreDistinguishedFromResponses(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hang) })
	if err := helm.Reach(t.Context(), server.URL, 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that does not respond: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, stop)
	if err := helm.Reach(ctx, server.URL, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a server that does not respond, after the caller's context ended: %v", err)
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	t.Cleanup(refusing.Close)
	if err := helm.Reach(t.Context(), refusing.URL, time.Minute); err != nil {
		t.Errorf("a server that responds with an error: %v", err)
	}
}
