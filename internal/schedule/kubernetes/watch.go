package kubernetes

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	maxPlaces   = 16              // watches of one site
	watchTime   = 5 * time.Minute // after which the API server is asked to end a watch
	watchGrace  = time.Minute     // after which we end one that the API server didn't
	watchPause  = time.Second     // before one that broke is begun again, at first
	watchPauses = time.Minute     // and at last

	stirDelay = 200 * time.Millisecond // what comes together is looked at together
	stirGap   = time.Second            // between two looks that watches ask for, at first
	stirGaps  = time.Minute            // and at last, as long as things keep changing
)

// watches notice what others do to our objects between looks: a bounded number
// for each site, of a bounded number of sites, of nothing but metadata. They
// only ask for looks.
//
// No change is lost, whenever it happens: each watch begins with a list that is
// compared with what the newest look has seen, and continues where the list
// ends. So a change between a look and a watch, or between two watches, is a
// difference in the list; a change while a watch is open is an event, which is
// forgotten only when a look that began later has ended.
type watches struct {
	options Options
	open    func(*cluster) (metadata.Interface, error)

	mu     sync.Mutex
	sites  map[watched]*siteWatch
	closed bool
	all    sync.WaitGroup
}

// watched is what is watched together.
type watched struct {
	site      tko.SiteID
	from      source
	inventory string // namespace
}

// A notice is what a watch told of an object.
type notice struct {
	version string
	at      time.Time
}

// A lookout is where a watch looks: objects of a kind in a namespace.
type lookout struct {
	resource  schema.GroupVersionResource
	namespace string
	kind      groupKind
}

// A siteWatch is the watches of a site at one cluster.
type siteWatch struct {
	at     watched
	stir   func(tko.SiteID)
	conn   *cluster
	places []lookout
	stop   context.CancelFunc
	began  time.Time
	open   atomic.Int64 // watches

	mu    sync.Mutex
	known map[key]string // the versions of our objects as they were looked at
	news  map[key]notice // of objects that aren't so any more
	broke time.Time      // when a watch broke
	timer *time.Timer    // of a look that was asked for
	last  time.Time      // when one was
	gap   time.Duration
	over  bool
}

// follow watches what a look has seen, until the next look, or until the site
// must make room for another.
func (w *watches) follow(ctx context.Context, l *look) {
	if w.options.Stir == nil || w.options.Watched < 0 {
		return
	}
	at := watched{l.site.ID, l.spec.Source, l.spec.Inventory}
	places, known := l.places()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	var gap time.Duration
	var last time.Time
	if s := w.sites[at]; s != nil {
		if s.conn == l.conn && slices.Equal(s.places, places) && s.looked(l.began, known) {
			return
		}
		gap, last = w.end(s) // the lists of its successor find what it has noticed
	}
	if len(places) == 0 || len(w.sites) >= w.options.Watched && (l.applied.Load()+l.gone.Load() == 0 || !w.makeRoom()) {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it lives longer than the look
	s := &siteWatch{at: at, stir: w.options.Stir, conn: l.conn, places: places, known: known, news: map[key]notice{}, stop: cancel, began: time.Now(), gap: gap, last: last}
	w.sites[at] = s
	release := l.target.connections.hold(l.conn)
	client, err := w.open(l.conn)
	if err != nil {
		cancel()
		release()
		delete(w.sites, at)
		return
	}
	var running sync.WaitGroup
	for _, p := range places {
		running.Go(func() { s.run(ctx, client.Resource(p.resource).Namespace(p.namespace), p) })
	}
	w.all.Go(func() {
		running.Wait()
		release()
	})
}

// openMetadata makes a client for watches, which go on without a time limit.
func openMetadata(c *cluster) (metadata.Interface, error) {
	return metadata.NewForConfigAndClient(metadata.ConfigFor(c.config), &http.Client{Transport: c.client.Transport})
}

// forget ends the watches of a site whose look failed: it is looked at again.
func (w *watches) forget(at watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sites[at]; s != nil {
		w.end(s)
	}
}

// makeRoom ends the watches that run for the longest time: those that changed
// lately are more worth watching.
func (w *watches) makeRoom() bool {
	var oldest *siteWatch
	for _, s := range w.sites {
		if oldest == nil || s.began.Before(oldest.began) {
			oldest = s
		}
	}
	if oldest == nil {
		return false
	}
	w.end(oldest)
	oldest.hurry()
	return true
}

// end ends watches, and returns when they last asked for a look, and how long
// they would have waited for the next; w.mu is held.
func (w *watches) end(s *siteWatch) (gap time.Duration, last time.Time) {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if w.sites[s.at] == s {
		delete(w.sites, s.at)
	}
	return s.gap, s.last
}

// hurry asks for a look at once if one is due: of watches that have ended and
// have no successor.
func (s *siteWatch) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.news) > 0 || !s.broke.IsZero() {
		s.stir(s.at.site)
	}
}

func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	for _, s := range w.sites {
		w.end(s)
		s.hurry()
	}
	w.mu.Unlock()
	w.all.Wait()
}

// places are where the look has seen objects, those of the most if there are
// many, and the objects' versions.
func (l *look) places() ([]lookout, map[key]string) {
	counts, known := map[lookout]int{}, map[key]string{}
	for k, s := range l.states {
		if s.live == nil {
			continue
		}
		known[k] = s.live.GetResourceVersion()
		found, ok := l.conn.knownKind(krm.GVK{Group: k.Group, Version: s.live.GroupVersionKind().Version, Kind: k.Kind})
		if !ok {
			continue
		}
		p := lookout{resource: found.resource, kind: groupKind{k.Group, k.Kind}}
		if found.namespaced {
			p.namespace = k.Namespace
		}
		counts[p]++
	}
	all := make([]lookout, 0, len(counts))
	for p := range counts {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b lookout) int {
		if n := counts[b] - counts[a]; n != 0 {
			return n
		}
		if a.text() < b.text() {
			return -1
		}
		return 1
	})
	return all[:min(len(all), maxPlaces)], known
}

func (p lookout) text() string { return p.resource.String() + " " + p.namespace }

// run watches at a lookout until the context ends. What can't be watched is
// tried rarely: it may be allowed, or be there, later.
func (s *siteWatch) run(ctx context.Context, at metadata.ResourceInterface, p lookout) {
	pause := watchPause
	for ctx.Err() == nil {
		began := time.Now()
		err := s.watch(ctx, at, p)
		refused := isRefused(err)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && time.Since(began) > watchTime/2: // it ended as it should
			pause = watchPause
			continue
		case refused:
			pause = watchTime
		default:
			s.broken() // how is the cluster?
		}
		if sleep(ctx, pause/2+rand.N(pause)) != nil { //nolint:gosec // jitter is no secret
			return
		}
		pause = min(2*pause, watchPauses)
	}
}

// isRefused says whether the cluster doesn't let us watch, now.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) ||
		apierrors.IsInvalid(err) || apierrors.IsUnauthorized(err)
}

// watch compares what is there with what was looked at, and watches from there
// until the watch ends.
func (s *siteWatch) watch(ctx context.Context, at metadata.ResourceInterface, p lookout) error {
	limit := jittered(watchTime)
	ctx, cancel := context.WithTimeout(ctx, limit+watchGrace) // the way to the cluster may be cut without a sign
	defer cancel()
	there, version, err := listVersions(ctx, at)
	if err != nil {
		return err
	}
	s.compare(p, there)
	seconds := int64(limit / time.Second)
	w, err := at.Watch(ctx, metav1.ListOptions{LabelSelector: LabelDeployment, ResourceVersion: version, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	s.read(ctx, w, p)
	return nil
}

// listVersions returns the versions of all objects with our label, by namespace
// and name, and the version of the list.
func listVersions(ctx context.Context, at metadata.ResourceInterface) (there map[types.NamespacedName]string, version string, err error) {
	options := metav1.ListOptions{LabelSelector: LabelDeployment, Limit: pageSize}
	there = map[types.NamespacedName]string{}
	for restarted := false; ; {
		page, err := at.List(ctx, options)
		if apierrors.IsResourceExpired(err) && !restarted { // too slow for its pages
			restarted, options.Continue, options.Limit = true, "", 0
			clear(there)
			continue
		}
		if err != nil {
			return nil, "", err
		}
		for i := range page.Items {
			r := &page.Items[i]
			there[types.NamespacedName{Namespace: r.Namespace, Name: r.Name}] = r.ResourceVersion
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return there, page.ResourceVersion, nil
		}
	}
}

// compare asks for a look if an object at a lookout isn't as it was looked at.
func (s *siteWatch) compare(p lookout, there map[types.NamespacedName]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, was := range s.known {
		if (groupKind{k.Group, k.Kind}) != p.kind || p.namespace != "" && k.Namespace != p.namespace {
			continue
		}
		if version := there[types.NamespacedName{Namespace: k.Namespace, Name: k.Name}]; version != was {
			s.notice(k, version)
		}
	}
}

// read asks for a look when an object isn't as it was looked at.
func (s *siteWatch) read(ctx context.Context, w watch.Interface, p lookout) {
	defer w.Stop()
	s.open.Add(1)
	defer s.open.Add(-1)
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-w.ResultChan():
			if !ok || event.Type == watch.Error {
				return
			}
			if r, ok := event.Object.(*metav1.PartialObjectMetadata); ok {
				s.see(key{p.kind.group, p.kind.kind, r.Namespace, r.Name}, r.ResourceVersion, event.Type == watch.Deleted)
			}
		}
	}
}

func (s *siteWatch) see(k key, version string, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ours := s.known[k]; ours && (gone || was != version) && s.news[k].version != version {
		s.notice(k, version)
	}
}

// notice remembers that an object has another version than the one that was
// looked at, "" if it is gone; s.mu is held.
func (s *siteWatch) notice(k key, version string) {
	s.news[k] = notice{version, time.Now()}
	s.ask()
}

func (s *siteWatch) broken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broke = time.Now()
	s.ask()
}

// looked records what a look has seen that began at a time: what was noticed
// before is no news any more, and neither is what the look did itself. It
// returns false if the look has seen objects that these watches didn't know:
// what became of those while it went on was not noticed.
func (s *siteWatch) looked(began time.Time, known map[key]string) (complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range known {
		if _, ours := s.known[k]; !ours {
			return false
		}
	}
	s.known = known
	for k, n := range s.news {
		if n.at.Before(began) || known[k] == n.version {
			delete(s.news, k)
		}
	}
	if s.broke.Before(began) {
		s.broke = time.Time{}
	}
	return true
}

// ask asks for a look, soon, but not too often, if there is news then still;
// s.mu is held.
func (s *siteWatch) ask() {
	if s.over || s.timer != nil {
		return
	}
	wait := stirDelay
	if since := time.Since(s.last); since > 2*max(s.gap, stirGap) {
		s.gap = stirGap
	} else {
		wait = max(wait, s.gap-since)
		s.gap = min(2*s.gap, stirGaps)
	}
	s.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.timer = nil
		if !s.over && (len(s.news) > 0 || !s.broke.IsZero()) {
			s.last = time.Now()
			s.stir(s.at.site)
		}
	})
}

// hold keeps a connection open until it is released.
func (c *connections) hold(conn *cluster) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.users++
	return sync.OnceFunc(func() { c.release(conn) })
}

// knownKind is kindOf without asking the cluster.
func (c *cluster) knownKind(gvk krm.GVK) (k kind, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, known = c.kinds[schema.GroupVersion{Group: gvk.Group, Version: gvk.Version}][gvk.Kind]
	return k, known
}
