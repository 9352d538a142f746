package schedule

import (
	"context"
	"iter"
	"slices"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// A recorder is a data controller that records enqueued sites, and has no work.
type recorder struct {
	Client
	sites []tko.SiteID
}

func (c *recorder) EnqueueSites(ctx context.Context, ids []tko.SiteID) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.sites = append(c.sites, ids...)
	return nil
}

func (*recorder) ClaimWork(ctx context.Context, _ tko.ClaimWork) ([]tko.WorkItem, error) {
	return nil, ctx.Err()
}

func (*recorder) Plugins(context.Context, tko.PluginSelect, tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return func(func(tko.Plugin, error) bool) {}
}

// Another process reconciles the sites that were noted just before the meta-scheduler
// stopped.
func TestEnqueuedSitesAreFlushedWhenTheSchedulerStops(t *testing.T) {
	t.Parallel()
	client := &recorder{}
	s := New(client, nil, Options{})
	s.queue.add("lagos")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(client.sites, []tko.SiteID{"lagos"}) {
		t.Errorf("enqueued sites are %v, want lagos", client.sites)
	}
}
