package webapi

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// Limits of tallies.
const (
	maxTallies      = 64          // kept
	maxTallying     = 2           // of the present at the same time
	maxPastTallying = 1           // of the past: those of the present never wait for it
	tallyIdle       = time.Minute // after which a count ends that no client asks for
	tallyMoment     = time.Minute // a relative moment is the same for so long
	tallyWait       = 250 * time.Millisecond
	tallyTimeout    = 10 * time.Minute
	tallyRest       = 10 // a count rests for so many times its own duration, so that it takes a tenth of a processor at most
	maxTallyGroups  = 10_000
	progressOfTally = 10_000 // entities between two looks at what was counted so far
)

// tallies count all entities of a selection in the background, however many there are,
// for all callers who see the same.
type tallies struct {
	clock    func() time.Time
	stopping <-chan struct{}
	slots    chan struct{} // of the present
	past     chan struct{}

	mu   sync.Mutex
	kept map[string]*tally
}

func newTallies(stopping <-chan struct{}) *tallies {
	return &tallies{clock: time.Now, stopping: stopping, slots: make(chan struct{}, maxTallying), past: make(chan struct{}, maxPastTallying), kept: map[string]*tally{}}
}

// A tally is the newest count of a selection. The mutex of tallies protects it.
type tally struct {
	body    *countBody // nil before something was counted
	err     error      // of the newest count
	begun   time.Time
	took    time.Duration
	used    time.Time
	running chan struct{} // closed when the count has ended; nil without one
}

// A tallied is what a tally counts.
type tallied struct {
	key      string
	position int64 // of the newest change; 0 in the past, which doesn't change
	past     bool
	moving   bool // the moment is relative: what was counted is of an earlier one
	// count must call progress now and then.
	count func(ctx context.Context, progress func(*counting)) (*counting, error)
}

// read returns the newest count of a selection, begins another one if the fleet has
// changed since, and waits for a moment until it has ended.
func (t *tallies) read(ctx context.Context, what tallied) (*countBody, error) {
	c, running := t.begin(ctx, what)
	position := what.position
	if running != nil {
		timer := time.NewTimer(tallyWait)
		defer timer.Stop()
		select {
		case <-running:
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.err != nil && c.running == nil {
		return nil, c.err
	}
	if c.body == nil {
		return &countBody{Position: position, Groups: []*groupBody{}, Other: newGroup([]string{}, ""), Counting: true, Behind: true}, nil
	}
	body := *c.body
	body.Behind = body.Counting || body.Position < position
	return &body, nil
}

func (t *tallies) begin(ctx context.Context, what tallied) (c *tally, running chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	c = t.kept[what.key]
	if c == nil {
		t.makeRoom()
		c = &tally{}
		t.kept[what.key] = c
	}
	c.used = now
	fresh := c.err == nil && c.body != nil && c.body.Position >= what.position && (!what.moving || now.Sub(c.begun) < tallyMoment)
	if c.running != nil || fresh || c.err == nil && now.Sub(c.begun) < c.took*(tallyRest+1) {
		return c, c.running
	}
	c.running, c.begun, c.err = make(chan struct{}), now, nil
	go t.run(context.WithoutCancel(ctx), c, what)
	return c, c.running
}

// makeRoom forgets the tally that was used longest ago, of those that don't run.
func (t *tallies) makeRoom() {
	if len(t.kept) < maxTallies {
		return
	}
	var oldest string
	for key, c := range t.kept {
		if c.running == nil && (oldest == "" || c.used.Before(t.kept[oldest].used)) {
			oldest = key
		}
	}
	delete(t.kept, oldest)
}

func (t *tallies) run(ctx context.Context, c *tally, what tallied) {
	ctx, cancel := context.WithTimeout(ctx, tallyTimeout)
	defer cancel()
	go t.watch(ctx, c, cancel)
	slots := t.slots
	if what.past {
		slots = t.past
	}
	var sum *counting
	var err error
	select {
	case slots <- struct{}{}:
		began := t.clock()
		sum, err = what.count(ctx, func(sum *counting) {
			if t.isFirst(c) { // only then is what was counted so far worth showing
				t.keep(c, sum.body(what.position), true)
			}
		})
		<-slots
		if err == nil {
			t.keep(c, sum.body(what.position), false)
		}
		t.end(c, t.clock().Sub(began), err)
	case <-ctx.Done():
		t.end(c, 0, ctx.Err())
	}
}

// watch cancels a count when the server stops, or when no client has asked for it for a while.
func (t *tallies) watch(ctx context.Context, c *tally, cancel func()) {
	ticker := time.NewTicker(tallyIdle / 10)
	defer ticker.Stop()
	for {
		select {
		case <-t.stopping:
			cancel()
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.mu.Lock()
			idle := t.clock().Sub(c.used) > tallyIdle
			t.mu.Unlock()
			if idle {
				cancel()
				return
			}
		}
	}
}

// isFirst reports whether nothing was counted completely yet.
func (t *tallies) isFirst(c *tally) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.body == nil || c.body.Counting
}

func (t *tallies) keep(c *tally, body countBody, partial bool) {
	body.Counting = partial
	body.Time = t.clock().UnixMilli()
	t.mu.Lock()
	defer t.mu.Unlock()
	c.body = &body
}

func (t *tallies) end(c *tally, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.took, c.err = took, err
	close(c.running)
	c.running = nil
}

// whole responds with the numbers of all entities of a selection.
func (l *live) whole(ctx context.Context, q countQuery, position int64) (*countBody, error) {
	view, err := l.catalog.ViewKey(ctx)
	if err != nil {
		return nil, err
	}
	moment := tko.AsOfOf(ctx).String()
	what := tallied{position: position, past: moment != ""}
	if what.past {
		what.position = 0 // the past doesn't change
		if what.moving = isRelative(q.asOf); what.moving {
			moment = q.asOf // each request resolves it anew, and all share one count
		}
	}
	what.key = fmt.Sprintf("%s\n%s\n%s\n%s", q.filter.Kind(), q.values.Encode(), moment, view)
	what.count = func(ctx context.Context, progress func(*counting)) (*counting, error) {
		sum := newCounting(q.by, maxTallyGroups)
		for row, err := range liveRows.List(ctx, l.catalog, q.filter, tko.ListOptions{}) {
			if err != nil {
				return nil, err
			}
			sum.add(q.state, row)
			if sum.read%progressOfTally == 0 {
				progress(sum)
			}
		}
		return sum, nil
	}
	return l.tallies.read(ctx, what)
}

// isRelative reports whether a moment depends on when it is read: 10m is another one a second
// later.
func isRelative(text string) bool {
	now := time.Now()
	then, err := tko.ParseAsOf(text, now)
	later, errLater := tko.ParseAsOf(text, now.Add(time.Second))
	return err == nil && errLater == nil && !then.Time.Equal(later.Time)
}

// A countQuery says what is counted.
type countQuery struct {
	filter filter.Filter
	by     []string
	state  tko.State
	values url.Values // without asOf
	asOf   string
}
