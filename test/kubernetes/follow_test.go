package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var templates = v1alpha1.GroupVersion.WithResource("templates")

// Clients follow the API while others write and the data controller is killed with
// kill -9. Each ends with the current state. A resumed watch gets each change once;
// informers and controllers get no change twice.
func TestFollowersSurviveKillOfDataController(t *testing.T) {
	klog.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	ctrl.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	w := newWorld(t, "data")
	n := number(t, "TKO_KUBERNETES_OBJECTS", 1000)
	w.writeAll(0, n, "0")
	api, err := dynamic.NewForConfig(kubetest.Config(w.Cluster))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeLimit)
	defer cancel()
	position := w.position()

	resumed := newFollower()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { resumed.watch(ctx, api, position) })

	informed := newFollower()
	informer := dynamicinformer.NewDynamicSharedInformerFactory(api, 0).ForResource(templates).Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { informed.sawAny(o, false) },
		UpdateFunc: func(old, o any) {
			if version(old) != version(o) { // informers that listed again get an update for each object
				informed.sawAny(o, false)
			}
		},
		DeleteFunc: func(o any) { informed.sawAny(o, true) },
	}); err != nil {
		t.Fatal(err)
	}
	running.Go(func() { informer.RunWithContext(ctx) })

	reconciled := newFollower()
	running.Go(w.manager(ctx, reconciled))

	all := func(what string) {
		t.Helper()
		current := w.current() //nolint:contextcheck // the test's context
		for name, f := range map[string]*follower{"informer": informed, "controller": reconciled} {
			if err := f.await(ctx, current); err != nil {
				t.Fatalf("%s: the %s: %v", what, name, err)
			}
		}
	}
	all("at first")

	// A concurrent writer.
	writing := make(chan int, 1)
	first := w.dial()
	go func() {
		done := 0
		for ; done < n/2; done++ {
			if err := write(ctx, first, done, "1"); err != nil {
				break
			}
		}
		writing <- done
	}()
	waitFor(t, "concurrent writes", func() bool { return w.position() > position+int64(n/20) })
	w.Kill()
	done := <-writing
	if done >= n/2 {
		t.Errorf("all %d were written before the server was killed", done)
	}
	w.start()
	w.writeAll(done, n/2, "2")
	second := w.dial()
	for i := range n / 20 {
		if _, err := second.DeleteTemplate(ctx, tko.TemplateID(id(i))); err != nil {
			t.Fatal(err)
		}
	}
	all("after the server was killed")

	want := w.changes(position)
	if err := resumed.awaitSeen(ctx, len(want)); err != nil {
		t.Errorf("the resumed watch: %v", err)
	}
	if diff := cmp.Diff(want, resumed.all()); diff != "" {
		t.Errorf("the resumed watch does not get each change once: %s", diff)
	}
	for name, f := range map[string]*follower{"resumed watch": resumed, "informer": informed} {
		if twice := f.repeated(); twice != "" {
			t.Errorf("the %s got twice: %s", name, twice)
		}
	}
	t.Logf("%d objects, %d changes; the informer saw %d events", n, len(want), len(informed.all()))
}

// manager runs a controller that reads each template that it gets an event for.
func (w *world) manager(ctx context.Context, f *follower) func() {
	w.t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	m, err := ctrl.NewManager(kubetest.Config(w.Cluster), ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		w.t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(m).For(&v1alpha1.Template{}).Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		var o v1alpha1.Template
		err := m.GetClient().Get(ctx, r.NamespacedName, &o)
		if ctrlclient.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
		if err != nil {
			o.Name = r.Name
		}
		f.saw(&o, err != nil)
		return reconcile.Result{}, nil
	}))
	if err != nil {
		w.t.Fatal(err)
	}
	return func() {
		if err := m.Start(ctx); err != nil && ctx.Err() == nil {
			w.t.Errorf("the manager ended: %v", err)
		}
	}
}

// A follower records the events that it gets.
type follower struct {
	lock    sync.Mutex
	seen    []string          // "NAME VERSION", or "NAME deleted VERSION", in order
	current map[string]string // versions by name
	changed chan struct{}
}

func newFollower() *follower {
	return &follower{current: map[string]string{}, changed: make(chan struct{})}
}

func version(o any) string {
	object, ok := o.(metav1.Object)
	if !ok {
		return ""
	}
	return object.GetResourceVersion()
}

// watch watches from a position, and resumes where it ended.
func (f *follower) watch(ctx context.Context, api dynamic.Interface, position int64) {
	from := strconv.FormatInt(position, 10)
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		w, err := api.Resource(templates).Watch(ctx, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
		if err != nil {
			continue // the server is not available
		}
		for e := range w.ResultChan() {
			o, ok := e.Object.(metav1.Object)
			if !ok {
				break
			}
			from = o.GetResourceVersion()
			if e.Type != watch.Bookmark {
				f.saw(o, e.Type == watch.Deleted)
			}
		}
		w.Stop()
	}
}

func (f *follower) sawAny(o any, deleted bool) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	if object, ok := o.(metav1.Object); ok {
		f.saw(object, deleted)
	}
}

func (f *follower) saw(o metav1.Object, deleted bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if deleted {
		f.seen = append(f.seen, o.GetName()+" deleted "+o.GetResourceVersion())
		delete(f.current, o.GetName())
	} else {
		f.seen = append(f.seen, o.GetName()+" "+o.GetResourceVersion())
		f.current[o.GetName()] = o.GetResourceVersion()
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *follower) all() []string {
	f.lock.Lock()
	defer f.lock.Unlock()
	return append([]string{}, f.seen...)
}

// repeated returns an event that came twice, "" if there is none.
func (f *follower) repeated() string {
	told := map[string]bool{}
	for _, e := range f.all() {
		if told[e] {
			return e
		}
		told[e] = true
	}
	return ""
}

// until waits until so returns "".
func (f *follower) until(ctx context.Context, so func() string) error {
	for {
		f.lock.Lock()
		wrong, changed := so(), f.changed
		f.lock.Unlock()
		if wrong == "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New(wrong)
		}
	}
}

func (f *follower) await(ctx context.Context, want map[string]string) error {
	return f.until(ctx, func() string { return cmp.Diff(want, f.current) })
}

func (f *follower) awaitSeen(ctx context.Context, n int) error {
	return f.until(ctx, func() string {
		if len(f.seen) >= n {
			return ""
		}
		return fmt.Sprintf("%d of %d", len(f.seen), n)
	})
}

func id(i int) string { return fmt.Sprintf("t%06d", i) }

func write(ctx context.Context, c *client.Client, i int, value string) error {
	_, err := c.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID(id(i)), Metadata: map[string]string{"value": value}})
	return err
}

func writeLoad(ctx context.Context, c *client.Client, i int) error {
	_, err := c.RegisterTemplate(ctx, tko.Template{ID: "load", Metadata: map[string]string{"load": "", "value": strconv.Itoa(i)}})
	return err
}

// dial connects to the running server.
func (w *world) dial() *client.Client {
	w.t.Helper()
	c, err := client.Dial(client.Options{Address: w.GRPC})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// writeAll writes templates concurrently.
func (w *world) writeAll(from, to int, value string) {
	w.t.Helper()
	c := w.dial()
	next := make(chan int)
	var writers sync.WaitGroup
	for range 32 {
		writers.Go(func() {
			for i := range next {
				if err := write(w.t.Context(), c, i, value); err != nil {
					w.t.Error(err)
				}
			}
		})
	}
	for i := from; i < to; i++ {
		next <- i
	}
	close(next)
	writers.Wait()
}

func (w *world) position() int64 {
	w.t.Helper()
	about, err := w.dial().About(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return about.Position
}

// current returns the current names and versions.
func (w *world) current() map[string]string {
	w.t.Helper()
	current := map[string]string{}
	for o, err := range w.dial().Templates(w.t.Context(), tko.TemplateSelect{}, tko.ListOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		current[string(o.ID)] = strconv.FormatInt(o.Stamp.Position, 10)
	}
	return current
}

// changes returns the changes after a position, as followers record them.
func (w *world) changes(after int64) []string {
	w.t.Helper()
	head := w.position()
	list := []string{}
	for c, err := range w.dial().Watch(w.t.Context(), after) {
		if err != nil {
			w.t.Fatal(err)
		}
		text := c.ID + " "
		if c.Op == tko.OpDeleted {
			text += "deleted "
		}
		list = append(list, text+strconv.FormatInt(c.Position, 10))
		if c.Position == head {
			break
		}
	}
	return list
}

// waitFor waits until so returns true.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	eventually.Within(t, timeLimit, what, func() error {
		if !so() {
			return errors.New("it is not the case")
		}
		return nil
	})
}
