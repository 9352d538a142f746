package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	maxPlaces     = 16              // watches of a site
	watchTime     = 5 * time.Minute // time after which the API server is asked to end a watch
	watchGrace    = time.Minute     // additional time after which this side ends a watch
	minWatchPause = time.Second     // before a broken watch is restarted, at first
	maxWatchPause = time.Minute     // and at most

	enqueueDelay  = 200 * time.Millisecond // changes within this time are reconciled together
	minEnqueueGap = time.Second            // between two requests to reconcile, and at first between two for one cause
	maxEnqueueGap = time.Minute            // and at most, as long as an object, or the status of any, keeps changing
)

// watches detect changes that other clients make to TKO's objects between
// reconciliations. They watch metadata only, with a bounded number of watches for
// each of a bounded number of sites. They only request reconciliations.
//
// No change is lost, whenever it happens. Each watch starts with a list, which is
// compared with the state that the newest reconciliation observed, and continues from
// the list's version. So a change between a reconciliation and a watch, or between
// two watches, is a difference in the list. A change while a watch is open is an
// event, which is dropped only when a reconciliation that started later has ended.
type watches struct {
	options Options
	open    func(*cluster) (metadata.Interface, error)

	mu     sync.Mutex
	sites  map[watched]*siteWatch
	closed bool
	all    sync.WaitGroup
}

// A watched identifies the watches of a site at a cluster.
type watched struct {
	site      tko.SiteID
	from      kubeconfigRef
	inventory string // namespace
}

// An observation is what watches compare of an object.
type observation struct {
	version string
	content uint64 // of all but the status, if the API server counts generations of the object; otherwise of the version
}

// observationOf returns the observation of an object.
func observationOf(o metav1.Object) observation {
	hash := fnv.New64a()
	if o.GetGeneration() == 0 {
		fmt.Fprint(hash, o.GetResourceVersion())
	} else {
		fmt.Fprint(hash, o.GetGeneration(), o.GetDeletionTimestamp() != nil, o.GetLabels(), o.GetAnnotations()) // fmt sorts keys
	}
	return observation{o.GetResourceVersion(), hash.Sum64()}
}

// An observedChange is the newest change of an object.
type observedChange struct {
	version string
	at      time.Time
	status  bool // only the status has changed
}

// A pace spaces requests to reconcile: the gap doubles with each request, as long as the next change comes within twice
// the gap.
type pace struct {
	last time.Time
	gap  time.Duration
}

// due returns when a change that was observed now may be reconciled.
func (p pace) due(now time.Time) time.Time {
	due := now.Add(enqueueDelay)
	if next := p.last.Add(p.gap); !p.rested(now) && next.After(due) {
		return next
	}
	return due
}

// rested returns whether the gap is over twice.
func (p pace) rested(now time.Time) bool { return now.Sub(p.last) > 2*max(p.gap, minEnqueueGap) }

// request returns the pace after a request.
func (p pace) request(now time.Time) pace {
	if p.rested(now) {
		return pace{now, minEnqueueGap}
	}
	return pace{now, min(2*max(p.gap, minEnqueueGap/2), maxEnqueueGap)}
}

// paces are those of a site. An object that another client keeps changing doesn't delay the repair of others, and neither
// do changes of status, which all objects share.
type paces struct {
	site, status pace
	objects      map[key]pace
}

// due returns when a change of an object may be reconciled.
func (p *paces) due(k key, change observedChange, now time.Time) time.Time {
	due := p.objects[k].due(now)
	if change.status {
		due = p.status.due(now)
	}
	if next := p.site.last.Add(minEnqueueGap); next.After(due) {
		return next
	}
	return due
}

// request records that the changes that are due are reconciled now.
func (p *paces) request(changes map[key]observedChange, now time.Time) {
	status := false
	for k, change := range changes {
		status = status || change.status
		if !change.status {
			p.objects[k] = p.objects[k].request(now)
		}
	}
	if status {
		p.status = p.status.request(now)
	}
	p.site.last = now
	maps.DeleteFunc(p.objects, func(_ key, one pace) bool { return one.rested(now) })
}

// A watchTarget identifies what a watch covers: TKO's objects of a kind in a namespace,
// or the one object with the name, of any owner.
type watchTarget struct {
	resource  schema.GroupVersionResource
	namespace string
	kind      groupKind
	name      string
}

// has returns whether a watch covers an object. Of those that the values of charts are
// read from, each has its own watch.
func (p watchTarget) has(k key, referred map[key]bool) bool {
	switch {
	case (groupKind{k.Group, k.Kind}) != p.kind, p.namespace != "" && k.Namespace != p.namespace:
		return false
	case p.name != "":
		return k.Name == p.name
	default:
		return !referred[k]
	}
}

// options select what the watch covers.
func (p watchTarget) options() metav1.ListOptions {
	if p.name != "" {
		return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", p.name).String()}
	}
	return metav1.ListOptions{LabelSelector: LabelDeployment}
}

// A siteWatch is the watches of a site at one cluster.
type siteWatch struct {
	at      watched
	enqueue func(tko.SiteID)
	conn    *cluster
	targets []watchTarget
	named   map[key]bool // objects that have their own watch
	stop    context.CancelFunc
	began   time.Time
	open    atomic.Int64 // number of open watches

	mu      sync.Mutex
	known   map[key]observation    // of the objects that the newest reconciliation observed
	changes map[key]observedChange // of objects that have changed since
	broke   time.Time              // time of the last broken watch since the newest reconciliation started
	timer   *time.Timer            // of a requested reconciliation
	next    time.Time              // when the timer ends
	paces   *paces
	over    bool
}

// follow watches the objects that a reconciliation observed, until the next
// reconciliation, or until another site needs the watches.
func (w *watches) follow(ctx context.Context, rc *reconciliation) {
	if w.options.Enqueue == nil || w.options.Watched < 0 {
		return
	}
	at := watched{rc.site.ID, rc.spec.Kubeconfig, rc.spec.Inventory}
	places, known := rc.watchTargets()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	spaced := &paces{objects: map[key]pace{}}
	if s := w.sites[at]; s != nil {
		if s.conn == rc.conn && slices.Equal(s.targets, places) && s.reconciled(rc.started, known) {
			return
		}
		spaced = w.end(s) // the lists of its successor find the changes that it detected
	}
	if len(places) == 0 || len(w.sites) >= w.options.Watched && (rc.appliedCount.Load()+rc.removedCount.Load() == 0 || !w.evictOldest()) {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the reconciliation
	s := &siteWatch{at: at, enqueue: w.options.Enqueue, conn: rc.conn, targets: places, named: namedIn(places), known: known, changes: map[key]observedChange{}, stop: cancel, began: time.Now(), paces: spaced}
	w.sites[at] = s
	release := rc.target.connections.hold(rc.conn)
	client, err := w.open(rc.conn)
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

// openMetadata makes a client for watches, without a time limit.
func openMetadata(c *cluster) (metadata.Interface, error) {
	return metadata.NewForConfigAndClient(metadata.ConfigFor(c.config), &http.Client{Transport: c.client.Transport})
}

// forget ends the watches of a site whose reconciliation failed: the scheduler
// retries it anyway.
func (w *watches) forget(at watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sites[at]; s != nil {
		w.end(s)
	}
}

// evictOldest ends the site watches that have run the longest, because recently
// changed sites are more likely to change. It returns false if there are none.
func (w *watches) evictOldest() bool {
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
	oldest.flush()
	return true
}

// end ends watches, and returns the paces of their requests. The caller holds w.mu.
func (w *watches) end(s *siteWatch) *paces {
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
	return s.paces
}

// flush requests a pending reconciliation at once. Call it on watches that have ended
// without a successor.
func (s *siteWatch) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changes) > 0 || !s.broke.IsZero() {
		s.enqueue(s.at.site)
	}
}

func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	for _, s := range w.sites {
		w.end(s)
		s.flush()
	}
	w.mu.Unlock()
	w.all.Wait()
}

// watchTargets returns what to watch, at most maxPlaces, most objects first, and the
// observed objects.
func (rc *reconciliation) watchTargets() ([]watchTarget, map[key]observation) {
	counts, known := map[watchTarget]int{}, map[key]observation{}
	for k, s := range rc.states {
		if s.live == nil {
			continue
		}
		known[k] = observationOf(s.live)
		found, ok := rc.conn.knownKind(krm.GVK{Group: k.Group, Version: s.live.GroupVersionKind().Version, Kind: k.Kind})
		if !ok {
			continue
		}
		p := watchTarget{resource: found.resource, kind: groupKind{k.Group, k.Kind}}
		if found.namespaced {
			p.namespace = k.Namespace
		}
		counts[p]++
	}
	for k, r := range rc.sources {
		found, ok := rc.conn.knownKind(krm.GVK{Version: "v1", Kind: k.Kind})
		if !ok || r.err != nil {
			continue
		}
		known[k] = observation{}
		if r.live != nil {
			known[k] = observationOf(r.live)
		}
		counts[watchTarget{resource: found.resource, namespace: k.Namespace, kind: groupKind{k.Group, k.Kind}, name: k.Name}] = 1
	}
	all := slices.Collect(maps.Keys(counts))
	slices.SortFunc(all, func(a, b watchTarget) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a.text(), b.text())) })
	all = all[:min(len(all), maxPlaces)]
	named := namedIn(all)
	for k := range rc.sources {
		if !named[k] {
			delete(known, k)
		}
	}
	return all, known
}

func (p watchTarget) text() string { return p.resource.String() + " " + p.namespace + " " + p.name }

// namedIn returns the objects that have their own watches.
func namedIn(targets []watchTarget) map[key]bool {
	named := map[key]bool{}
	for _, p := range targets {
		if p.name != "" {
			named[key{p.kind.group, p.kind.kind, p.namespace, p.name}] = true
		}
	}
	return named
}

// run watches p until the context ends. If the cluster refuses the watch, run retries
// rarely: the watch may be allowed, or the kind be available, later.
func (s *siteWatch) run(ctx context.Context, at metadata.ResourceInterface, p watchTarget) {
	wait := minWatchPause
	for ctx.Err() == nil {
		began := time.Now()
		err := s.watch(ctx, at, p)
		refused := isRefused(err)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && time.Since(began) > watchTime/2: // it ended regularly
			wait = minWatchPause
			continue
		case refused:
			wait = watchTime
		default:
			s.recordBreak() // the cluster may be unreachable
		}
		if pause.For(ctx, pause.About(wait, 0.5)) != nil {
			return
		}
		wait = min(2*wait, maxWatchPause)
	}
}

// isRefused returns whether the cluster refuses the watch.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) ||
		apierrors.IsInvalid(err) || apierrors.IsUnauthorized(err)
}

// watch compares a list with the observed versions, and watches from there until the
// watch ends.
func (s *siteWatch) watch(ctx context.Context, at metadata.ResourceInterface, p watchTarget) error {
	limit := jittered(watchTime)
	ctx, cancel := context.WithTimeout(ctx, limit+watchGrace) // the network may drop the connection without an error
	defer cancel()
	there, version, err := listObservations(ctx, at, p.options())
	if err != nil {
		return err
	}
	s.compare(p, there)
	seconds := int64(limit / time.Second)
	options := p.options()
	options.ResourceVersion, options.TimeoutSeconds = version, &seconds
	w, err := at.Watch(ctx, options)
	if err != nil {
		return err
	}
	s.read(ctx, w, p)
	return nil
}

// listObservations returns the observations of all objects that options select, by
// namespace and name, and the version of the list.
func listObservations(ctx context.Context, at metadata.ResourceInterface, options metav1.ListOptions) (there map[types.NamespacedName]observation, version string, err error) {
	there = map[types.NamespacedName]observation{}
	version, err = eachPage(ctx, at.List, options, func() { clear(there) }, func(page *metav1.PartialObjectMetadataList) {
		for i := range page.Items {
			r := &page.Items[i]
			there[types.NamespacedName{Namespace: r.Namespace, Name: r.Name}] = observationOf(r)
		}
	})
	return there, version, err
}

// compare requests a reconciliation if an object of p changed since it was observed.
func (s *siteWatch) compare(p watchTarget, there map[types.NamespacedName]observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, was := range s.known {
		if !p.has(k, s.named) {
			continue
		}
		if is := there[types.NamespacedName{Namespace: k.Namespace, Name: k.Name}]; is.version != was.version {
			s.recordChange(k, is)
		}
	}
}

// read requests a reconciliation when an event reports a changed object.
func (s *siteWatch) read(ctx context.Context, w watch.Interface, p watchTarget) {
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
				s.observe(key{p.kind.group, p.kind.kind, r.Namespace, r.Name}, observationOf(r), event.Type == watch.Deleted)
			}
		}
	}
}

func (s *siteWatch) observe(k key, is observation, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone {
		is.content = 0
	}
	if was, ours := s.known[k]; ours && (gone || was.version != is.version) && s.changes[k].version != is.version {
		s.recordChange(k, is)
	}
}

// recordChange records that an object is not as it was observed; the zero observation if it
// was deleted. The caller holds s.mu.
func (s *siteWatch) recordChange(k key, is observation) {
	now := time.Now()
	change := observedChange{is.version, now, is.content != 0 && is.content == s.known[k].content}
	s.changes[k] = change
	s.requestReconcile(s.paces.due(k, change, now))
}

func (s *siteWatch) recordBreak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broke = time.Now()
	s.requestReconcile(s.paces.status.due(s.broke))
}

// reconciled records the versions that a reconciliation observed, and drops the
// changes from before its start, and those that it made itself. It returns false if
// the reconciliation observed objects that these watches didn't know: their changes
// meanwhile were not detected.
func (s *siteWatch) reconciled(began time.Time, known map[key]observation) (complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range known {
		if _, ours := s.known[k]; !ours {
			return false
		}
	}
	s.known = known
	for k, n := range s.changes {
		if n.at.Before(began) || known[k].version == n.version {
			delete(s.changes, k)
		}
	}
	if s.broke.Before(began) {
		s.broke = time.Time{}
	}
	return true
}

// requestReconcile enqueues the site at a time, or earlier if that is requested already, if there are still changes then.
// The caller holds s.mu.
func (s *siteWatch) requestReconcile(at time.Time) {
	if s.over || s.timer != nil && !at.Before(s.next) {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.next = at
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(at), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.timer != timer { // an earlier time was requested meanwhile
			return
		}
		s.timer = nil
		if s.over || len(s.changes) == 0 && s.broke.IsZero() {
			return
		}
		now := time.Now()
		s.paces.request(s.changes, now)
		if !s.broke.IsZero() {
			s.paces.status = s.paces.status.request(now)
		}
		s.enqueue(s.at.site)
	})
	s.timer = timer
}

// hold keeps a connection open until it is released.
func (c *connections) hold(conn *cluster) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.users++
	return sync.OnceFunc(func() { c.release(conn) })
}

// knownKind returns a cached kind, without a request to the cluster.
func (c *cluster) knownKind(gvk krm.GVK) (k kind, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, known = c.kinds[schema.GroupVersion{Group: gvk.Group, Version: gvk.Version}][gvk.Kind]
	return k, known
}
