package schedule

import (
	"context"
	"iter"
	"slices"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// called is a data controller that takes calls for looks, and has no work.
type called struct {
	Client
	sites []tko.SiteID
}

func (c *called) EnqueueSites(ctx context.Context, ids []tko.SiteID) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.sites = append(c.sites, ids...)
	return nil
}

func (*called) ClaimWork(ctx context.Context, _ tko.ClaimWork) ([]tko.WorkItem, error) {
	return nil, ctx.Err()
}

func (*called) Plugins(context.Context, tko.PluginSelect, tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return func(func(tko.Plugin, error) bool) {}
}

// What was noticed just before the meta-scheduler stops is looked at by another.
func TestNoticedChangesOutliveTheScheduler(t *testing.T) {
	t.Parallel()
	client := &called{}
	s := New(client, nil, Options{})
	s.queue.add("lagos")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(client.sites, []tko.SiteID{"lagos"}) {
		t.Errorf("looks are called for at %v", client.sites)
	}
}
