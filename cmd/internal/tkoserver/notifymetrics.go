package tkoserver

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko/internal/metrics"
	"github.com/tko-orchestrator/tko/internal/notify"
)

// The metrics of the messages of subscriptions.
const (
	notifyMessagesMetric      = "tko_notify_messages_total"
	notifySubscriptionsMetric = "tko_notify_subscriptions"
	notifyLagMetric           = "tko_notify_lag_seconds"
)

// The results of attempts to send messages.
const (
	messageSent   = "sent"
	messageFailed = "failed"
)

// notifySampler reports what a notifier sends.
func notifySampler(n *notify.Notifier) *metrics.Sampler {
	return metrics.NewSampler(time.Second, []metrics.Gauge{
		{Name: notifyMessagesMetric, Help: "Attempts of this server to send messages of subscriptions, by destination and result.", Labels: []string{"destination", "result"}, Counter: true},
		{Name: notifySubscriptionsMetric, Help: "Subscriptions for which this server sends, by state; one with several problems counts in each.", Labels: []string{"state"}},
		{Name: notifyLagMetric, Help: "Age of the oldest event of the messages that destinations have not accepted."},
	}, func(context.Context) ([]metrics.Value, error) {
		s := n.Statistics()
		values := []metrics.Value{{Name: notifyLagMetric, Value: s.Lag.Seconds()}}
		for _, kind := range notify.Destinations() {
			values = append(
				values,
				metrics.Value{Name: notifyMessagesMetric, Value: float64(s.Sent[kind]), Labels: []string{kind, messageSent}},
				metrics.Value{Name: notifyMessagesMetric, Value: float64(s.Failed[kind]), Labels: []string{kind, messageFailed}},
			)
		}
		for state, count := range map[string]int{"all": s.Active, "failing": s.Failing, "incomplete": s.Gaps, "template": s.Template} {
			values = append(values, metrics.Value{Name: notifySubscriptionsMetric, Value: float64(count), Labels: []string{state}})
		}
		return values, nil
	})
}
