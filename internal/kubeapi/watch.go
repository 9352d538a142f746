package kubeapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// Watch sends changes after a resourceVersion. Without one, with "0", or if
// initial events are requested, it sends the existing objects first.
func (s *storage) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	selected, err := s.kind.selector(options)
	if err != nil {
		return nil, s.failed(ctx, "", nil, err)
	}
	position, err := parsePosition(options.ResourceVersion)
	if err != nil {
		return nil, s.failed(ctx, "", nil, err)
	}
	w := &watcher{
		storage: s, selector: selected, whole: !partial(ctx), bookmarks: options.AllowWatchBookmarks,
		results: make(chan watch.Event, 64), position: position,
	}
	head, err := s.catalog.Position(ctx)
	if err != nil {
		return nil, s.failed(ctx, "", nil, err)
	}
	explicit := options.SendInitialEvents != nil
	switch {
	case explicit && *options.SendInitialEvents:
		if position > head {
			return nil, tooNew(position, head)
		}
		w.initial, w.announce, w.position = options, options.AllowWatchBookmarks, head
	case position == 0:
		if !explicit {
			w.initial = options
		}
		w.position = head
	default:
		if err := s.catalog.CheckPosition(ctx, position); err != nil {
			return nil, s.failed(ctx, "", nil, err)
		}
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.reader = s.reader(ctx, "")
	if w.rights, err = s.catalog.Rights(ctx); err != nil {
		w.cancel()
		return nil, s.failed(ctx, "", nil, err)
	}
	w.done.Go(func() {
		defer close(w.results)
		w.run(ctx)
	})
	return w, nil
}

// A watcher is one client's watch.
type watcher struct {
	storage   *storage
	selector  *selector
	whole     bool
	reader    *reader
	bookmarks bool
	initial   *metainternalversion.ListOptions // selects existing objects to send first; nil for none
	announce  bool                             // whether a bookmark marks the end of the existing objects
	position  int64                            // up to which all changes were sent

	rights  rights.Rights
	results chan watch.Event
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// ResultChan returns the channel of events.
func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

// Stop ends the watch, and waits until it has ended.
func (w *watcher) Stop() {
	w.cancel()
	w.done.Wait()
}

func (w *watcher) run(ctx context.Context) {
	err := w.begin(ctx)
	if err == nil {
		err = w.follow(ctx)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	err = w.storage.failed(ctx, "", nil, err)
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return
	}
	failure := status.Status()
	if failure.Code == http.StatusTooManyRequests { // this code is for lists; a watcher must start again
		failure.Code, failure.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	}
	_ = w.send(ctx, watch.Error, &failure) // the watcher may have stopped
}

var errStopped = errors.New("the watcher has stopped")

// send sends an event. It returns errStopped if the watcher or the server has
// stopped.
func (w *watcher) send(ctx context.Context, typ watch.EventType, o runtime.Object) error {
	select {
	case w.results <- watch.Event{Type: typ, Object: o}:
		return nil
	case <-ctx.Done():
	case <-w.storage.stopping:
	}
	w.cancel()
	return errStopped
}

// begin sends the existing objects if the watcher requested them.
func (w *watcher) begin(ctx context.Context) error {
	if w.initial == nil {
		return nil
	}
	for o, err := range w.storage.objects(ctx, w.initial, token{Position: w.position}, w.whole) {
		if err != nil {
			return err
		}
		if err := w.send(ctx, watch.Added, o.object); err != nil {
			return err
		}
	}
	if !w.announce {
		return nil
	}
	return w.bookmark(ctx, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

func (w *watcher) bookmark(ctx context.Context, annotations map[string]string) error {
	o := w.storage.kind.newObject()
	o.SetResourceVersion(formatPosition(w.position))
	o.SetAnnotations(annotations)
	o.GetObjectKind().SetGroupVersionKind(w.storage.kind.gvk())
	return w.send(ctx, watch.Bookmark, o)
}

// mark sends a bookmark if the client requested bookmarks.
func (w *watcher) mark(ctx context.Context) error {
	if !w.bookmarks {
		return nil
	}
	return w.bookmark(ctx, nil)
}

// follow sends changes.
func (w *watcher) follow(ctx context.Context) error {
	ticker := time.NewTicker(w.storage.bookmarks)
	defer ticker.Stop()
	check, stop := w.rights.Interval()
	defer stop()
	for {
		if err := w.rights.Still(ctx); err != nil {
			return err
		}
		select {
		case <-ticker.C: // also during a continuous series of changes
			if err := w.mark(ctx); err != nil {
				return err
			}
		default:
		}
		events, upTo, more, err := w.storage.hub.after(ctx, w.position)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := w.sendEvent(ctx, e); err != nil {
				return err
			}
		}
		w.position = upTo
		if len(events) > 0 {
			continue
		}
		if err := w.await(ctx, more, ticker.C, check); err != nil {
			return err
		}
	}
}

// await waits for a signal among all watchers of the kind. Meanwhile it checks the rights of the
// watcher, and sends bookmarks.
func (w *watcher) await(ctx context.Context, more signal, tick, check <-chan time.Time) error {
	waiter, ok := w.storage.hub.join(more)
	if !ok {
		return nil
	}
	defer waiter.Leave()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.storage.stopping:
			w.cancel()
			return errStopped
		case <-waiter.Signal:
			return nil
		case <-waiter.Woken:
			return nil
		case <-check:
			if err := w.rights.Still(ctx); err != nil {
				return err
			}
		case <-tick:
			if err := w.mark(ctx); err != nil {
				return err
			}
		}
	}
}

// sendEvent sends an event if the watcher selects its object.
func (w *watcher) sendEvent(ctx context.Context, e *event) error {
	if !named(e.Record) {
		return nil
	}
	typ, ok, err := w.typeOf(ctx, e)
	if err != nil || !ok {
		return err
	}
	if !w.rights.All() {
		return w.sendLimited(ctx, e, typ)
	}
	o, err := e.views[view{whole: w.whole, secrets: w.reader.sees(e.Record)}]()
	if err != nil {
		return err
	}
	return w.send(ctx, typ, w.storage.kind.own(o))
}

// sendLimited sends an event to a watcher that doesn't see everything: the object is
// its last state that the watcher may see, with the deployments that it may see.
func (w *watcher) sendLimited(ctx context.Context, e *event, typ watch.EventType) error {
	r := e.Record
	if !w.rights.Sees(r) {
		before, err := e.before(ctx)
		if err != nil || !w.rights.Sees(before) {
			return err
		}
		r = before
	}
	r.Position, r.Deployments, r.Count = e.Position, nil, 0
	if now, err := w.storage.catalog.Record(ctx, w.storage.kind.read(w.whole), r.Key); err == nil && now.UID == r.UID {
		r.Deployments, r.Count = now.Deployments, now.Count
	}
	shown := view{whole: w.whole && (r.Package != nil || r.Kind == tko.KindPlugin), secrets: w.reader.sees(r)}
	o, err := w.storage.kind.object(r, shown)
	if err != nil {
		return err
	}
	return w.send(ctx, typ, o)
}

// matches reports whether the watcher selects a record and may see it.
func (w *watcher) matches(r record.Record) bool { return w.selector.matches(r) && w.rights.Sees(r) }

// typeOf returns the type of an event for the watcher: Deleted if its object is
// no longer selected, Added if it is newly selected.
func (w *watcher) typeOf(ctx context.Context, e *event) (watch.EventType, bool, error) {
	typ := watch.Modified
	switch {
	case e.Op == tko.OpDeleted:
		typ = watch.Deleted
	case e.New:
		typ = watch.Added
	}
	all := w.rights.All()
	if w.selector.everything() && all {
		return typ, true, nil
	}
	is := w.matches(e.Record) || all && e.Record.UID == "" // true if unknown, unless the watcher may not see it
	if typ == watch.Deleted || typ == watch.Added {
		return typ, is, nil
	}
	before, err := e.before(ctx)
	if err != nil {
		return typ, false, err
	}
	was := all && before.Revision == 0 || before.Revision != 0 && w.matches(before) // likewise
	switch {
	case is && was && before.Revision != 0:
		return watch.Modified, true, nil
	case is:
		return watch.Added, true, nil
	case was:
		return watch.Deleted, true, nil
	}
	return typ, false, nil
}
