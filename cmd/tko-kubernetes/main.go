// Command tko-kubernetes holds all of TKO that needs a client of Kubernetes: the
// Kubernetes API, sites that are Kubernetes clusters, Flux sources, and plugins in
// pods. The server starts it when it first needs it; it is not for interactive use.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/tko-orchestrator/tko/cmd/internal/wiring"
	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/metrics"
	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
	"github.com/tko-orchestrator/tko/internal/sibling"
	"github.com/tko-orchestrator/tko/internal/tracing"
	"github.com/tko-orchestrator/tko/internal/trail"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	if err := supervise.Hide(); err != nil { // plugins run as the same user, and must not read this process's memory
		_, _ = fmt.Fprintf(os.Stderr, "%s: hide from plugins: %v\n", wiring.Kubernetes, err)
		return 1
	}
	// It ends with the server, and not before: the server still needs it while it stops.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	var settings wiring.KubernetesSettings
	parent, ctx, err := sibling.Inherit(&settings)
	if errors.Is(err, sibling.ErrNotStarted) {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", wiring.Kubernetes, err)
		return 2
	}
	if err != nil {
		return 1 // the server reports it
	}
	c := settings.Config
	c.LogFormat = settings.Format
	log, err := logging.New(c.Log(os.Stderr))
	if err != nil {
		parent.Failed(err)
		return 1
	}
	counted := metrics.New(wiring.Kubernetes)
	log.Logger = slog.New(counted.CountLines(log.Handler()))
	logging.Libraries(log.Logger)
	traces, err := tracing.New(ctx, tracing.Options{Program: wiring.Kubernetes, Endpoint: c.TracesEndpoint, Sample: c.TracesSample})
	if err != nil {
		parent.Failed(err)
		return 1
	}
	ctx = trail.WithTracer(ctx, traces.Tracer())
	go wiring.FollowLevels(ctx, parent.Peer, log.Levels, log.Logger)
	h, err := newHost(ctx, parent, settings, counted, log.Logger)
	if err != nil {
		parent.Failed(err)
		return 1
	}
	err = h.run(ctx, parent)
	if closeErr := traces.Close(ctx); closeErr != nil {
		log.WarnContext(ctx, "the last traces are lost", "err", closeErr)
	}
	if err != nil {
		log.ErrorContext(ctx, "tko-kubernetes failed", "err", err)
		return 1
	}
	return 0
}
