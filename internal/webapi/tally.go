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

// slots limit how many counts run at the same time.
type slots struct{ present, past chan struct{} }

func newSlots() slots {
	return slots{make(chan struct{}, maxTallying), make(chan struct{}, maxPastTallying)}
}

// A progressBody tells how complete and how old a count of the whole fleet is.
type progressBody struct {
	Position Position `json:"position"`           // of the newest change when the count began
	Time     int64    `json:"time,omitempty"`     // of a count of the whole: when it ended, in Unix milliseconds
	Counting bool     `json:"counting,omitempty"` // the count of the whole has not ended: these are the numbers so far
	Behind   bool     `json:"behind,omitempty"`   // something may have changed since: ask again
}

func (p *progressBody) progress() *progressBody { return p }

// A progressing is a pointer to what is counted, which has a [progressBody].
type progressing[B any] interface {
	*B
	progress() *progressBody
}

// tallies count all entities of a selection in the background, however many there are,
// for all callers who see the same.
type tallies[B any, P progressing[B]] struct {
	clock    func() time.Time
	stopping <-chan struct{}
	slots    slots

	mu   sync.Mutex
	kept map[string]*tally[B]
}

func newTallies[B any, P progressing[B]](slots slots, stopping <-chan struct{}) *tallies[B, P] {
	return &tallies[B, P]{clock: time.Now, stopping: stopping, slots: slots, kept: map[string]*tally[B]{}}
}

// A tally is the newest count of a selection. The mutex of tallies protects it.
type tally[B any] struct {
	body    *B    // nil before something was counted
	err     error // of the newest count
	begun   time.Time
	took    time.Duration
	used    time.Time
	running chan struct{} // closed when the count has ended; nil without one
}

// A tallied is what a tally counts.
type tallied[B any] struct {
	key      string
	position Position // of the newest change; 0 in the past, which doesn't change
	past     bool
	moving   bool // the moment is relative: what was counted is of an earlier one
	empty    B    // before something was counted
	// count must call progress now and then, with what makes the numbers so far.
	count func(ctx context.Context, progress func(soFar func() B)) (B, error)
}

// read returns the newest count of a selection, begins another one if the fleet has
// changed since, and waits for a moment until it has ended.
func (t *tallies[B, P]) read(ctx context.Context, what tallied[B]) (*B, error) {
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
		body := what.empty
		*P(&body).progress() = progressBody{Position: position, Counting: true, Behind: true}
		return &body, nil
	}
	body := *c.body
	p := P(&body).progress()
	p.Behind = p.Counting || p.Position < position
	return &body, nil
}

func (t *tallies[B, P]) begin(ctx context.Context, what tallied[B]) (c *tally[B], running chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	c = t.kept[what.key]
	if c == nil {
		t.makeRoom()
		c = &tally[B]{}
		t.kept[what.key] = c
	}
	c.used = now
	fresh := c.err == nil && c.body != nil && P(c.body).progress().Position >= what.position && (!what.moving || now.Sub(c.begun) < tallyMoment)
	if c.running != nil || fresh || c.err == nil && now.Sub(c.begun) < c.took*(tallyRest+1) {
		return c, c.running
	}
	c.running, c.begun, c.err = make(chan struct{}), now, nil
	go t.run(context.WithoutCancel(ctx), c, what)
	return c, c.running
}

// makeRoom forgets the tally that was used longest ago, of those that don't run.
func (t *tallies[B, P]) makeRoom() {
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

func (t *tallies[B, P]) run(ctx context.Context, c *tally[B], what tallied[B]) {
	ctx, cancel := context.WithTimeout(ctx, tallyTimeout)
	defer cancel()
	go t.watch(ctx, c, cancel)
	slot := t.slots.present
	if what.past {
		slot = t.slots.past
	}
	select {
	case slot <- struct{}{}:
		began := t.clock()
		body, err := what.count(ctx, func(soFar func() B) {
			if t.isFirst(c) { // only then is what was counted so far worth showing
				t.keep(c, soFar(), what.position, true)
			}
		})
		<-slot
		if err == nil {
			t.keep(c, body, what.position, false)
		}
		t.end(c, t.clock().Sub(began), err)
	case <-ctx.Done():
		t.end(c, 0, ctx.Err())
	}
}

// watch cancels a count when the server stops, or when no client has asked for it for a while.
func (t *tallies[B, P]) watch(ctx context.Context, c *tally[B], cancel func()) {
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
func (t *tallies[B, P]) isFirst(c *tally[B]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.body == nil || P(c.body).progress().Counting
}

func (t *tallies[B, P]) keep(c *tally[B], body B, position Position, partial bool) {
	*P(&body).progress() = progressBody{Position: position, Time: t.clock().UnixMilli(), Counting: partial}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.body = &body
}

func (t *tallies[B, P]) end(c *tally[B], took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.took, c.err = took, err
	close(c.running)
	c.running = nil
}

// selectionOf returns what a count of the whole fleet is of, without how it is counted: what
// names the selection. Callers who see the same share a count.
func selectionOf[B any](ctx context.Context, catalog LiveCatalog, what, asOf string, position int64) (tallied[B], error) {
	view, err := catalog.ViewKey(ctx)
	if err != nil {
		return tallied[B]{}, err
	}
	moment := tko.AsOfOf(ctx).String()
	of := tallied[B]{position: Position(position), past: moment != ""}
	if of.past {
		of.position = 0 // the past doesn't change
		of.moving = isRelative(asOf)
		if of.moving {
			moment = asOf // each request resolves it anew, and all share one count
		}
	}
	of.key = fmt.Sprintf("%s\n%s\n%s", what, moment, view)
	return of, nil
}

// whole responds with the numbers of all entities of a selection.
func (l *live) whole(ctx context.Context, q countQuery, position int64) (*countBody, error) {
	what, err := selectionOf[countBody](ctx, l.catalog, fmt.Sprintf("%s\n%s", q.filter.Kind(), q.values.Encode()), q.asOf, position)
	if err != nil {
		return nil, err
	}
	what.empty = emptyCounting().body()
	what.count = func(ctx context.Context, progress func(func() countBody)) (countBody, error) {
		sum := newCounting(q, maxTallyGroups)
		if err := l.joinAll(ctx, sum.sites); err != nil {
			return countBody{}, err
		}
		for row, err := range liveRows.List(ctx, l.catalog, q.filter, tko.ListOptions{}) {
			if err != nil {
				return countBody{}, err
			}
			sum.add(row)
			if sum.read%progressOfTally == 0 {
				progress(sum.body)
			}
		}
		return sum.body(), nil
	}
	return l.counts.read(ctx, what)
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
	groups []filter.Group // that no filter selects
	values url.Values     // without asOf
	asOf   string
}
