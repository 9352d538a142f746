package wiring

import (
	"log/slog"

	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/notify"
	"github.com/tko-orchestrator/tko/internal/rollout/measure"
	"github.com/tko-orchestrator/tko/internal/rollout/ticket"
)

// Measures returns what measures the metrics of rollouts, within the limits of the settings.
func Measures(c *config.Config, g Guards) measure.Prometheus {
	return measure.Prometheus{Access: remote.Access{Guard: g.Remote, Leash: g.Leash, Secrets: Secrets(c)}}
}

// Tickets returns the ticket systems that approve waves, within the limits of the settings.
func Tickets(c *config.Config, g Guards) (*ticket.Systems, error) {
	return ticket.Read(c.Tickets.Systems, remote.Access{Guard: g.Remote, Leash: g.Leash, Secrets: Secrets(c)})
}

// Notifier returns what sends the messages of subscriptions, within the limits of the
// settings.
func Notifier(c *config.Config, g Guards, log *slog.Logger) *notify.Notifier {
	return notify.New(notify.Access{Guard: g.Remote, Leash: g.Leash, Secrets: Secrets(c)}, c.InstanceName, log)
}
