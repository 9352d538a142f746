package kubernetes

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/tko-orchestrator/tko"
)

// A shelf is a fake API server with objects of one kind in one namespace. It serves
// lists and watches, and records which objects another client changed. It calls at at
// each point where a concurrent change may happen.
type shelf struct {
	metadata.Getter

	at func(point string)

	mu      sync.Mutex
	version int
	objects map[string]int // versions by name
	spoiled map[string]bool
	events  []change
	watches map[chan struct{}]bool
	refuse  error
	settles atomic.Bool // nothing changes any more
}

type change struct {
	version int
	typ     watch.EventType
	name    string
}

func newShelf() *shelf {
	return &shelf{at: func(string) {}, objects: map[string]int{}, spoiled: map[string]bool{}, watches: map[chan struct{}]bool{}}
}

func (s *shelf) Resource(schema.GroupVersionResource) metadata.Getter { return s }

func (s *shelf) Namespace(string) metadata.ResourceInterface { return s }

// put writes an object; spoil marks it as changed by another client.
func (s *shelf) put(name string, spoil bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	typ := watch.Modified
	if s.objects[name] == 0 {
		typ = watch.Added
	}
	s.version++
	s.objects[name], s.spoiled[name] = s.version, spoil
	s.tell(change{s.version, typ, name})
}

func (s *shelf) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[name] == 0 {
		return
	}
	s.version++
	delete(s.objects, name)
	s.spoiled[name] = true
	s.tell(change{s.version, watch.Deleted, name})
}

func (s *shelf) tell(c change) {
	s.events = append(s.events, c)
	for wake := range s.watches {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

func (s *shelf) metadata(name string, version int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: strconv.Itoa(version)}}
}

func (s *shelf) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	s.at("before a list")
	defer s.at("after a list")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for name, version := range s.objects {
		list.Items = append(list.Items, *s.metadata(name, version))
	}
	return list, nil
}

// Watch starts with the existing objects if no version is given, else after the
// version.
func (s *shelf) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.at("before a watch")
	defer s.at("after a watch began")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	next := 0
	var initial []change
	if o.ResourceVersion == "" {
		next = len(s.events)
		for name, version := range s.objects {
			initial = append(initial, change{version, watch.Added, name})
		}
	}
	from, _ := strconv.Atoi(o.ResourceVersion)
	results := make(chan watch.Event)
	w := watch.NewProxyWatcher(results)
	wake := make(chan struct{}, 1)
	s.watches[wake] = true
	go func() {
		defer close(results)
		defer func() {
			s.mu.Lock()
			delete(s.watches, wake)
			s.mu.Unlock()
		}()
		end := time.After(time.Duration(*o.TimeoutSeconds) * time.Second)
		for {
			s.mu.Lock()
			changes := slices.Concat(initial, s.events[next:])
			initial, next = nil, len(s.events)
			s.mu.Unlock()
			for _, c := range changes {
				if c.version <= from && o.ResourceVersion != "" {
					continue
				}
				select {
				case results <- watch.Event{Type: c.typ, Object: s.metadata(c.name, c.version)}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-end:
				return
			case _, ok := <-wake:
				if !ok {
					return
				}
			}
		}
	}()
	return w, nil
}

// check finds changes by other clients that no reconciliation corrected.
func (s *shelf) check(t *testing.T, n int, point string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, spoiled := range s.spoiled {
		if spoiled {
			t.Errorf("point %d, %s: the change of %q is lost", n, point, name)
		}
	}
}

// hangUp ends all open watches.
func (s *shelf) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for wake := range s.watches {
		delete(s.watches, wake)
		close(wake)
	}
}

// A fakeReconciler reconciles a shelf as a reconciliation does with a cluster, one at a
// time, when watches request it.
type fakeReconciler struct {
	shelf   *shelf
	target  *Target
	conn    *cluster
	want    []string
	due     chan struct{}
	running sync.Mutex
}

func newLookalike(s *shelf, want ...string) *fakeReconciler {
	l := &fakeReconciler{shelf: s, want: want, due: make(chan struct{}, 1)}
	o := Options{Watched: 1, Enqueue: func(tko.SiteID) {
		select {
		case l.due <- struct{}{}:
		default:
		}
	}}
	l.target = &Target{options: o, connections: &connections{options: Options{Idle: time.Minute}, entries: map[connectionKey]*cluster{}}}
	l.target.watches = &watches{options: o, open: func(*cluster) (metadata.Interface, error) { return s, nil }, sites: map[watched]*siteWatch{}}
	gv := schema.GroupVersion{Version: "v1"}
	l.conn = &cluster{kinds: map[schema.GroupVersion]map[string]kind{gv: {"ConfigMap": {resource: gv.WithResource("configmaps"), namespaced: true}}}}
	return l
}

func (l *fakeReconciler) reconcile(ctx context.Context) {
	l.running.Lock()
	defer l.running.Unlock()
	s := l.shelf
	one := &reconciliation{target: l.target, conn: l.conn, site: tko.Site{ID: "lagos"}, states: map[key]*state{}, started: time.Now()}
	for _, name := range l.want {
		s.at("before an object is read")
		s.mu.Lock()
		good := s.objects[name] != 0 && !s.spoiled[name]
		s.mu.Unlock()
		if !good {
			s.put(name, false)
			one.appliedCount.Add(1)
		}
		s.mu.Lock()
		live := &unstructured.Unstructured{}
		live.SetAPIVersion("v1")
		live.SetKind("ConfigMap")
		live.SetResourceVersion(strconv.Itoa(s.objects[name]))
		s.mu.Unlock()
		one.states[key{Kind: "ConfigMap", Namespace: "n", Name: name}] = &state{live: live}
		s.at("after an object was read")
	}
	time.Sleep(time.Millisecond)
	s.at("before the end of a reconciliation")
	l.target.watches.follow(ctx, one)
	s.at("after a reconciliation")
}

func (l *fakeReconciler) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.due:
			l.reconcile(ctx)
		}
	}
}

// A reconciliation observes each change of a watched object, whenever it happens:
// other clients change objects at each point of a scenario of events of a watch.
func TestChangesAreNeverLost(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*shelf, string){
		"edit":   func(s *shelf, name string) { s.put(name, true) },
		"delete": func(s *shelf, name string) { s.remove(name) },
	}
	for what, do := range changes {
		for _, name := range []string{"x", "later"} {
			t.Run(what+" "+name, func(t *testing.T) {
				t.Parallel()
				points := 0
				for n := 0; n <= points; n++ {
					synctest.Test(t, func(t *testing.T) {
						seen, at := 0, ""
						var mu sync.Mutex
						s := newShelf()
						s.at = func(point string) {
							if s.settles.Load() {
								return
							}
							mu.Lock()
							seen++
							now := seen == n
							if now {
								at = point
							}
							mu.Unlock()
							if !now {
								return
							}
							do(s, name)
							synctest.Wait()
							s.mu.Lock()
							refused := s.refuse != nil
							s.mu.Unlock()
							if !refused { // else the change is detected long before the watch ends
								time.AfterFunc(watchTime/2, func() { s.check(t, n, point) })
							}
						}
						scenario(t, s)
						if n == 0 {
							points = seen
						}
						s.check(t, n, at+", at the end")
						for _, name := range []string{"x", "y", "later"} {
							if s.objects[name] == 0 {
								t.Errorf("point %d, %s: %q is missing at the end", n, at, name)
							}
						}
					})
				}
				if points < 30 {
					t.Errorf("only %d points", points)
				}
			})
		}
	}
}

// scenario executes the events of a watch, without changes by other clients.
func scenario(t *testing.T, s *shelf) {
	l := newLookalike(s, "x", "y")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx) })
	l.reconcile(ctx) // watches start
	time.Sleep(time.Minute)
	l.reconcile(ctx) // without a change
	l.running.Lock()
	l.want = append(l.want, "later")
	l.running.Unlock()
	l.reconcile(ctx)          // an object that the watches don't know
	time.Sleep(3 * watchTime) // watches end regularly
	s.hangUp()                // a watch breaks, or is too old to be continued
	time.Sleep(2 * time.Minute)
	for _, rejection := range []error{apierrors.NewForbidden(schema.GroupResource{}, "", nil), apierrors.NewResourceExpired("too old")} {
		s.mu.Lock()
		s.refuse = rejection
		s.mu.Unlock()
		s.hangUp()
		time.Sleep(2 * time.Minute)
		s.mu.Lock()
		s.refuse = nil
		s.mu.Unlock()
		time.Sleep(5 * watchTime)
	}
	s.settles.Store(true) // a change at the last point has the time that all others have
	time.Sleep(watchTime)
	cancel()
	running.Wait()
	l.target.watches.close()
	synctest.Wait()
}

// If a site's watches end because another site needs them or TKO stops, a detected
// change that was not reconciled still requests a reconciliation.
func TestDetectedChangesOutliveTheirWatch(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*watches){
		"to make room": func(w *watches) { w.evictOldest() },
		"at the end":   func(w *watches) { w.close() },
	}
	for what, end := range ends {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf()
				l := newLookalike(s, "x")
				l.reconcile(t.Context())
				synctest.Wait()
				s.remove("x")
				synctest.Wait()
				l.target.watches.mu.Lock()
				for _, one := range l.target.watches.sites {
					if len(one.changes) != 1 {
						t.Errorf("%d recorded changes, want 1", len(one.changes))
					}
				}
				l.target.watches.mu.Unlock()
				end(l.target.watches)
				synctest.Wait()
				select {
				case <-l.due:
				default:
					t.Error("no reconciliation is requested")
				}
				l.target.watches.close()
				s.hangUp()
			})
		})
	}
}
