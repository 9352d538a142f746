package notify

import (
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Statistics are what a notifier has done, and what it is late with.
type Statistics struct {
	Sent     map[string]int64 // accepted messages, by the kind of destination
	Failed   map[string]int64 // attempts that were not accepted, likewise
	Seconds  float64          // of all attempts
	Lag      time.Duration    // the longest of a subscription
	Failing  int              // subscriptions whose destination doesn't accept messages, or whose owner is held
	Active   int              // subscriptions for which this server sends
	Gaps     int              // subscriptions that missed events
	Template int              // subscriptions whose templates fail
}

type counters struct {
	mu     sync.Mutex
	stats  Statistics
	states map[string]tko.SubscriptionStatus
}

func (c *counters) sent(kind string, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stats.Sent == nil {
		c.stats.Sent, c.stats.Failed = map[string]int64{}, map[string]int64{}
	}
	c.stats.Seconds += took.Seconds()
	if err != nil {
		c.stats.Failed[kind]++
		return
	}
	c.stats.Sent[kind]++
}

func (c *counters) state(name string, s tko.SubscriptionStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states == nil {
		c.states = map[string]tko.SubscriptionStatus{}
	}
	c.states[name] = s
}

// none notes that this server sends for no subscription.
func (c *counters) none() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.states)
}

// drop notes that this server no longer sends for a subscription.
func (c *counters) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, name)
}

// Statistics returns what the notifier has done since its start.
func (n *Notifier) Statistics() Statistics {
	c := &n.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Sent, s.Failed = map[string]int64{}, map[string]int64{}
	for _, kind := range Destinations() {
		s.Sent[kind], s.Failed[kind] = c.stats.Sent[kind], c.stats.Failed[kind]
	}
	for _, one := range c.states {
		s.Active++
		s.Lag = max(s.Lag, one.Lag)
		for _, condition := range one.Conditions {
			if condition.Status != tko.ConditionFalse {
				continue
			}
			switch condition.Type {
			case tko.ConditionAccepted:
				s.Failing++
			case tko.ConditionComplete:
				s.Gaps++
			case tko.ConditionRendered:
				s.Template++
			}
		}
	}
	return s
}
