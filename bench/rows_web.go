package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
)

const (
	rowWebPage     = "dashboard: first page of deployments"
	rowWebOverview = "dashboard: overview, its requests concurrent as in browsers"
	rowWebCount    = "dashboard: count of all deployments by template"
	rowWebCost     = rowWebCount + ": server processor time"
	rowWebChange   = "dashboard: write to server-sent event"

	aimWebPage = 300 * time.Millisecond
	webRows    = 100
)

const (
	maxWebBody = 64 << 20 // of a response
	maxWebLine = 4 << 20  // of a stream: a frame has 500 changes at most
)

// web measures the HTTP API as the dashboard uses it.
func (r *run) web(ctx context.Context) error {
	if r.Web == nil {
		return &notMeasuredError{"the server's HTTP API is not known: set -web"}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // of the standard library
	transport.MaxIdleConnsPerHost = 6                            // as browsers
	defer transport.CloseIdleConnections()
	w := &webClient{base: "http://" + r.Web(), client: &http.Client{Transport: transport}}
	if err := r.webReads(ctx, w); err != nil {
		return err
	}
	return r.webChanges(ctx, w)
}

func (r *run) webReads(ctx context.Context, w *webClient) error {
	size, rows := 0, min(webRows, r.Deployments)
	took, err := sample(ctx, r.Samples, func(ctx context.Context) (err error) {
		var page struct{ Rows []json.RawMessage }
		size, err = w.get(ctx, "/api/v1/deployment/list?limit="+strconv.Itoa(webRows), &page)
		if err == nil && len(page.Rows) != rows {
			err = fmt.Errorf("the page has %d rows, want %d", len(page.Rows), rows)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.add(latency(rowWebPage, took, aimWebPage).with(fmt.Sprintf("%d rows, %d kB", rows, size/1000)))

	took, err = sample(ctx, r.Samples, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { _, err := w.count(ctx, "deployment", "state,reason"); return err })
		group.Go(func() error { _, err := w.count(ctx, "site", "state"); return err })
		group.Go(func() error { _, err := w.get(ctx, "/api/v1/me", &struct{}{}); return err })
		return group.Wait()
	})
	if err != nil {
		return err
	}
	r.add(latency(rowWebOverview, took, aimWebPage))

	end := r.begin(ctx)
	if err = w.countAll(ctx, "deployment", "template", r.Deployments); err == nil {
		m := end(r.Deployments)
		r.add(duration(rowWebCount, m.took, 0, "in the background"), r.processor(rowWebCost, m, 0, "for each deployment; "+m.String()))
	}
	return err
}

// webChanges measures the time from the start of a write until a stream of server-sent
// events has it. A frame is sent at most four times a second.
func (r *run) webChanges(ctx context.Context, w *webClient) (err error) {
	position, err := r.position(ctx)
	if err != nil {
		return err
	}
	own, n := r.scope("streamed"), 0
	defer func() { err = errors.Join(err, own.purge(context.WithoutCancel(ctx))) }()
	write := func() (string, error) {
		id := own.site(n)
		n++
		_, err := r.client.RegisterSite(ctx, tko.Site{ID: id})
		return string(id), err
	}
	first, err := write() // the stream begins before this change, which shows that it has begun
	if err != nil {
		return err
	}
	events, err := w.stream(ctx, position)
	if err != nil {
		return err
	}
	defer events.close()
	if err := events.until(first); err != nil {
		return err
	}
	took, err := sample(ctx, min(r.Samples, maxWatchedWrites), func(context.Context) error {
		id, err := write()
		if err != nil {
			return err
		}
		return events.until(id)
	})
	if err == nil {
		r.add(latency(rowWebChange, took, time.Second))
	}
	return err
}

// A webClient is a client of the HTTP API.
type webClient struct {
	base   string
	client *http.Client
}

func (w *webClient) open(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
	return nil, fmt.Errorf("GET %s: %s: %s", path, response.Status, strings.TrimSpace(string(text)))
}

// get reads a response as JSON, and returns its size.
func (w *webClient) get(ctx context.Context, path string, into any) (size int, err error) {
	response, err := w.open(ctx, path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxWebBody))
	if err != nil {
		return 0, fmt.Errorf("GET %s: %w", path, err)
	}
	return len(body), json.Unmarshal(body, into)
}

// A webCount is numbers of entities. Those of the whole fleet may be incomplete yet.
type webCount struct {
	Counted  int
	Counting bool
}

// count reads the numbers of the whole fleet that the server has.
func (w *webClient) count(ctx context.Context, kind, by string) (count webCount, err error) {
	_, err = w.get(ctx, "/api/v1/"+kind+"/count?"+url.Values{"by": {by}, "whole": {"true"}}.Encode(), &count)
	if err == nil && count.Counted == 0 && !count.Counting {
		err = errNoRow
	}
	return count, err
}

// countAll waits until the server has counted all entities, of which there are some at
// least.
func (w *webClient) countAll(ctx context.Context, kind, by string, least int) error {
	for {
		count, err := w.count(ctx, kind, by)
		if err == nil && !count.Counting && count.Counted < least {
			err = fmt.Errorf("%d %ss were counted, want %d", count.Counted, kind, least)
		}
		if err != nil || !count.Counting {
			return err
		}
	}
}

// A webStream is an open stream of server-sent events.
type webStream struct {
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (w *webClient) stream(ctx context.Context, after int64) (*webStream, error) {
	response, err := w.open(ctx, fmt.Sprintf("/api/v1/stream?kind=site&after=%d", after)) //nolint:bodyclose // webStream.close closes it
	if err != nil {
		return nil, err
	}
	s := &webStream{response.Body, bufio.NewScanner(response.Body)}
	s.lines.Buffer(nil, maxWebLine)
	return s, nil
}

func (s *webStream) close() { _ = s.body.Close() }

// until reads up to the change of an entity. An event that ends
// the stream is an error, and so is one without the changes.
func (s *webStream) until(id string) error {
	event := ""
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch {
		case name == "event":
			event = value
		case name != "data" || event == "open" || event == "beat":
		case event != "changes":
			return fmt.Errorf("the stream has the event %s: %s", event, value)
		default:
			var frame struct{ Changes []struct{ ID string } }
			if err := json.Unmarshal([]byte(value), &frame); err != nil {
				return err
			}
			for _, change := range frame.Changes {
				if change.ID == id {
					return nil
				}
			}
		}
	}
	return errors.Join(errors.New("the stream ended early"), s.lines.Err())
}
