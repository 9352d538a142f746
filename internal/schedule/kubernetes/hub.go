package kubernetes

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
)

// hubs read the objects of tools that pull commits. All sites whose objects are in one
// namespace of a cluster share a list and a watch, however many they are; when a watch isn't
// open, an object is read by itself. The number of watches is bounded.
type hubs struct {
	options     Options
	connections *connections

	mu     sync.Mutex
	all    map[hubKey]*hub
	closed bool
	work   sync.WaitGroup
}

type hubKey struct {
	conn      *cluster
	tool      puller.Tool
	namespace string
}

// A hub is the objects of a tool in a namespace of a cluster.
type hub struct {
	at      hubKey
	enqueue func(tko.SiteID)
	stop    context.CancelFunc

	mu      sync.Mutex
	open    bool // the objects are those of the cluster
	over    bool
	objects map[string]pulled
	sites   map[string]map[tko.SiteID]bool // that have asked for an object, by its name
	paces   map[string]pace                // of requests to reconcile, by object
	waiting map[string]bool                // objects whose request waits for its time
	used    time.Time
}

// A pulled is what an object of a tool says.
type pulled struct {
	said    puller.Report
	entries []puller.Entry
}

// hubIdle is how long a hub is watched after the last site asked, in intervals.
const hubIdle = 3

// read returns what the object of a tool says, and the objects that it lists.
func (h *hubs) read(ctx context.Context, conn *cluster, q puller.Question) (puller.Report, []puller.Entry, error) {
	one, err := h.hub(ctx, conn, q)
	if err != nil {
		return puller.Report{}, nil, err
	}
	if one != nil {
		if found, open := one.find(q.Spec.Name, q.Site); open {
			found.said.Watched = true
			return found.said, found.entries, nil
		}
	}
	said, entries, err := readOne(ctx, conn, q.Spec)
	if one != nil && err == nil {
		one.note(q.Spec.Name, pulled{said, entries})
	}
	return said, entries, err
}

// hub returns the hub for a question; nil if there are too many.
func (h *hubs) hub(ctx context.Context, conn *cluster, q puller.Question) (*hub, error) {
	at := hubKey{conn, q.Spec.Tool, q.Spec.Namespace}
	h.mu.Lock()
	one := h.all[at]
	full := h.closed || h.options.Enqueue == nil || len(h.all) >= h.options.Watched
	h.mu.Unlock()
	if one != nil || full {
		return one, nil
	}
	found, known, err := conn.kindOf(ctx, q.Spec.Tool.GVK())
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, noKind(q.Spec.Tool)
	}
	client, err := dynamic.NewForConfigAndClient(conn.config, &http.Client{Transport: conn.client.Transport}) // without a time limit
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.all[at] != nil {
		return h.all[at], nil
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the reconciliation
	one = &hub{
		at: at, enqueue: h.options.Enqueue, stop: stop, objects: map[string]pulled{}, sites: map[string]map[tko.SiteID]bool{},
		paces: map[string]pace{}, waiting: map[string]bool{}, used: time.Now(),
	}
	h.all[at] = one
	release := h.connections.hold(conn)
	h.work.Go(func() {
		defer release()
		defer stop()
		one.run(watching, client.Resource(found.resource).Namespace(at.namespace), hubIdle*h.options.Interval)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.all, at)
	})
	return one, nil
}

func (h *hubs) close() {
	h.mu.Lock()
	h.closed = true
	for _, one := range h.all {
		one.stop()
	}
	h.mu.Unlock()
	h.work.Wait()
}

// find returns what an object says, for a site that is enqueued when it says something else. If
// open is false, it isn't known.
func (h *hub) find(name string, site tko.SiteID) (found pulled, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used = time.Now()
	if h.sites[name] == nil {
		h.sites[name] = map[tko.SiteID]bool{}
	}
	h.sites[name][site] = true
	found, there := h.objects[name]
	if !there {
		found.said = missing()
	}
	return found, h.open
}

// note notes what was read of an object while the hub isn't open: what the next list has
// of it is a change only if it differs.
func (h *hub) note(name string, now pulled) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open && !now.said.Missing {
		h.objects[name] = now
	}
}

// run lists and watches the objects until the context ends, or no site has asked for long.
func (h *hub) run(ctx context.Context, at dynamic.ResourceInterface, idle time.Duration) {
	wait := minWatchPause
	for ctx.Err() == nil && !h.idle(idle) {
		began := time.Now()
		err := h.watch(ctx, at)
		h.close()
		switch {
		case ctx.Err() != nil:
		case err == nil && time.Since(began) > watchTime/2: // it ended regularly
			wait = minWatchPause
			continue
		case isRefused(err):
			wait = watchTime
		}
		if pause.For(ctx, pause.About(wait, 0.5)) != nil {
			break
		}
		wait = min(2*wait, maxWatchPause)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

func (h *hub) idle(limit time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.used) > limit
}

// close notes that the objects are no longer known.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = false
}

// watch lists the objects, and watches from there until the watch ends.
func (h *hub) watch(ctx context.Context, at dynamic.ResourceInterface) error {
	limit := jittered(watchTime)
	ctx, cancel := context.WithTimeout(ctx, limit+watchGrace) // the network may drop the connection without an error
	defer cancel()
	there := map[string]pulled{}
	version, err := eachPage(ctx, at.List, metav1.ListOptions{}, func() { clear(there) }, func(page *unstructured.UnstructuredList) {
		for i := range page.Items {
			there[page.Items[i].GetName()] = h.parse(&page.Items[i])
		}
	})
	if err != nil {
		return err
	}
	h.replace(there)
	seconds := int64(limit / time.Second)
	w, err := at.Watch(ctx, metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-w.ResultChan():
			if !ok || event.Type == watch.Error {
				return nil
			}
			if r, ok := event.Object.(*unstructured.Unstructured); ok {
				h.set(r, event.Type == watch.Deleted)
			}
		}
	}
}

func (h *hub) parse(r *unstructured.Unstructured) pulled {
	said, entries := puller.Observe(h.at.tool, r.Object)
	return pulled{said, entries}
}

// replace sets all objects, and opens the hub.
func (h *hub) replace(there map[string]pulled) {
	h.mu.Lock()
	defer h.mu.Unlock()
	former := h.objects
	h.objects, h.open = there, true
	for name := range h.sites {
		if !same(former[name], there[name]) {
			h.changed(name)
		}
	}
}

// set sets an object, or removes it.
func (h *hub) set(r *unstructured.Unstructured, gone bool) {
	name, now := r.GetName(), h.parse(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.objects[name]
	h.objects[name] = now
	if gone {
		delete(h.objects, name)
	}
	if gone || !same(was, now) {
		h.changed(name)
	}
}

// same reports whether two reports say the same, apart from their times.
func same(a, b pulled) bool {
	a.said.At, b.said.At = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

// changed enqueues the sites that have asked for an object: soon, and the later the more often
// it changes. The caller holds h.mu.
func (h *hub) changed(name string) {
	if len(h.sites[name]) == 0 || h.waiting[name] {
		return
	}
	now := time.Now()
	due := h.paces[name].due(now)
	h.waiting[name] = true
	time.AfterFunc(due.Sub(now), func() {
		h.mu.Lock()
		sites := slices.Collect(maps.Keys(h.sites[name]))
		delete(h.waiting, name)
		h.paces[name] = h.paces[name].request(time.Now())
		over := h.over
		h.mu.Unlock()
		if over {
			return
		}
		for _, site := range sites {
			h.enqueue(site)
		}
	})
}
