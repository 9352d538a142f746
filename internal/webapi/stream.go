package webapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// Limits of streams.
const (
	frameEvery   = 250 * time.Millisecond
	maxFrame     = 500 // changes; if there are more, the client reads what it shows again
	beatEvery    = 15 * time.Second
	streamLife   = 10 * time.Minute // then rights and credentials are checked anew
	streamsOfOne = 20               // of one identity or address
	streamsOfAll = 2000
)

// streams counts open streams by client.
type streams struct {
	mutex sync.Mutex
	all   int
	by    map[string]int
}

func newStreams() *streams { return &streams{by: map[string]int{}} }

func (s *streams) open(client string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.all >= streamsOfAll || s.by[client] >= streamsOfOne {
		return false
	}
	s.all++
	s.by[client]++
	return true
}

func (s *streams) close(client string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.all--
	s.by[client]--
	if s.by[client] == 0 {
		delete(s.by, client)
	}
}

type changeBody struct {
	Kind     tko.Kind `json:"kind"`
	ID       string   `json:"id"`
	Op       tko.Op   `json:"op"`
	Revision int64    `json:"revision"`
	Time     int64    `json:"time"` // Unix milliseconds
	Who      string   `json:"who,omitempty"`
	Why      string   `json:"why,omitempty"`
}

// The data of the events of a stream.
type (
	changesBody struct {
		Changes  []changeBody `json:"changes"` // the newest of each entity
		Position Position     `json:"position"`
	}
	staleBody struct {
		Changed  int      `json:"changed"` // the number of changes, which are too many: read again what is shown
		Position Position `json:"position"`
	}
	byeBody struct {
		RetryAfter float64 `json:"retryAfter"`      // seconds
		Error      string  `json:"error,omitempty"` // why the stream has ended
	}
)

// A pending buffer holds the changes between two frames: the newest of each entity,
// or only their number if there are too many. Its size is bounded.
type pending struct {
	mutex    sync.Mutex
	newest   map[string]changeBody
	count    int
	position int64
	err      error
	ended    bool
}

func (p *pending) add(c tko.Change) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.count++
	p.position = c.Position
	if len(p.newest) < maxFrame {
		p.newest[string(c.Kind)+" "+c.ID] = changeBody{Kind: c.Kind, ID: c.ID, Op: c.Op, Revision: c.Revision, Time: c.Time.UnixMilli(), Who: c.Author.Who, Why: c.Author.Why}
	}
}

func (p *pending) end(err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.ended, p.err = true, err
}

// take empties the buffer. event is "" if nothing has changed.
func (p *pending) take() (event string, position int64, data any, ended bool, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	count := p.count
	switch {
	case count == 0:
	case len(p.newest) >= maxFrame:
		event, data = "stale", staleBody{Changed: count, Position: Position(p.position)}
	default:
		changes := make([]changeBody, 0, len(p.newest))
		for _, c := range p.newest {
			changes = append(changes, c)
		}
		event, data = "changes", changesBody{Changes: changes, Position: Position(p.position)}
	}
	p.count = 0
	clear(p.newest)
	return event, p.position, data, p.ended, p.err
}

// stream responds with server-sent events: changes {changes, position}, stale
// {changed, position} if they are too many, reset if the position is no longer
// retained, and bye {retryAfter} at the end. ?after= is a position, or -1 for now;
// ?newest= begins with as many of the newest changes instead. ?kind= selects kinds.
func (l *live) stream(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	after, newest := q.number("after", -1, 64), int(q.number("newest", 0, 32))
	if q.Has("newest") && q.err == nil {
		after, q.err = l.catalog.BeforeNewest(r.Context(), newest)
	}
	var only []tko.Kind
	for _, kind := range q.Values["kind"] {
		only = append(only, tko.Kind(kind))
		if filter.Words(tko.Kind(kind)) == nil {
			q.wrong("the kind %.40q is unknown: use deployment, site, template or plugin", kind)
		}
	}
	if q.err != nil {
		l.fail(w, r, q.err)
		return
	}
	i, _ := identity.From(r.Context())
	client := i.Subject
	if client == "" || i.IsAnonymous() {
		client = peerHost(r)
	}
	if !l.streams.open(client) {
		w.Header().Set("Retry-After", "5")
		writeJSON(w, http.StatusTooManyRequests, errorBody{fmt.Sprintf("there are too many open streams: one client may have %d; close others", streamsOfOne)})
		return
	}
	defer l.streams.close(client)
	ctx, cancel := context.WithTimeout(r.Context(), streamLife)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	buffer := &pending{newest: map[string]changeBody{}}
	watching.Go(func() {
		for c, err := range l.catalog.Watch(ctx, after, only...) {
			if err != nil {
				buffer.end(err)
				return
			}
			buffer.add(c)
		}
	})
	header(w, "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	l.send(ctx, w, buffer)
}

// send writes frames until the stream ends.
func (l *live) send(ctx context.Context, w http.ResponseWriter, buffer *pending) {
	control := http.NewResponseController(w)
	write := func(event string, position int64, data any) bool {
		text, err := json.Marshal(data)
		if err != nil {
			return false
		}
		_ = control.SetWriteDeadline(time.Now().Add(beatEvery))
		if position > 0 {
			_, err = fmt.Fprintf(w, "event: %s\nid: %d\ndata: %s\n\n", event, position, text)
		} else {
			_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text)
		}
		return err == nil && control.Flush() == nil
	}
	bye := func() { write("bye", 0, byeBody{RetryAfter: 1 + rand.Float64()*2}) } //nolint:gosec // spreads reconnections
	if !write("open", 0, struct{}{}) {
		return
	}
	frames, beats := time.NewTicker(frameEvery), time.NewTicker(beatEvery)
	defer frames.Stop()
	defer beats.Stop()
	for {
		select {
		case <-l.options.Stopping:
			bye()
			return
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				bye()
			}
			return
		case <-beats.C:
			if !write("beat", 0, struct{}{}) {
				return
			}
		case <-frames.C:
			event, position, data, ended, err := buffer.take()
			if event != "" && !write(event, position, data) {
				return
			}
			if !ended {
				continue
			}
			switch {
			case errors.Is(err, tko.ErrGone):
				write("reset", 0, errorBody{err.Error()})
			case errors.Is(err, tko.ErrDenied): // or the rights have changed
				write("bye", 0, byeBody{RetryAfter: 30, Error: err.Error()})
			case !errors.Is(err, context.Canceled):
				bye()
			}
			return
		}
	}
}
