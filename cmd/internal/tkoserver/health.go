package tkoserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/cmd/internal/wiring"
	"github.com/tko-orchestrator/tko/internal/sibling"
)

// serveHealth serves health probes until the context ends: /healthz is OK while the
// process runs, /readyz while it reaches the data controller, its own or another, the
// program that it needs serves, and the disk of the database is not full. disks returns
// the problem of disks, or "", and warnings, which /readyz shows while it succeeds.
func serveHealth(ctx context.Context, l net.Listener, data *client.Client, kubernetes *sibling.Program, disks func(context.Context) (problem string, warnings []string)) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		asking, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()
		if _, err := data.About(asking); err != nil {
			http.Error(w, "the data controller does not respond", http.StatusServiceUnavailable)
			return
		}
		if err := kubernetes.Problem(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		problem, warnings := disks(asking)
		if problem != "" {
			http.Error(w, problem, http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		for _, warning := range warnings {
			_, _ = fmt.Fprintf(w, "warning: %s\n", warning)
		}
	})
	health := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return wiring.ServeHTTP(ctx, health, l)
}
