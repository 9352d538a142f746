package kubeapi

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/changelog"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
)

// EventNamespace is the namespace of Events of objects without a namespace.
const EventNamespace = metav1.NamespaceDefault

// Limits of Events.
const (
	eventsPerSecond = 10
	eventsBurst     = 200
	// After its burst, an object gets one Event in five minutes, and the others
	// are dropped. Similar Events are combined in one with a count. See
	// eventrecord.EventCorrelator.
	eventsPerObject = 25
	// lateEvents is the age beyond which normal Events are dropped, and
	// staleEvents the age beyond which warnings are dropped as well: they limit
	// the backlog if Events are created faster than they can be posted.
	lateEvents  = time.Minute
	staleEvents = 10 * time.Minute

	// rememberedObjects is the number of objects whose conditions are cached.
	rememberedObjects = 20_000
	maxEventMessage   = 1024
	eventAttempts     = 3
)

// Reasons of Events, in addition to the reasons of conditions.
const (
	reasonCreated = "Created"
	reasonChanged = "Changed"
	reasonDeleted = "Deleted"
)

// A Recorder posts Kubernetes Events about TKO's objects to the management
// cluster: for objects that are created, changed and deleted, and for changes
// of conditions, including those about objects at sites. Only one recorder of a
// database runs at a time.
type Recorder struct {
	catalog interface {
		Position(ctx context.Context) (int64, error)
		Follower
	}
	events     typedcorev1.EventInterface
	correlator *eventrecord.EventCorrelator
	limit      flowcontrol.RateLimiter
	retry      time.Duration
	log        *slog.Logger

	mu       sync.Mutex
	leftOut  int
	reported time.Time
}

// NewRecorder returns a recorder that posts Events with a client of one
// namespace.
func NewRecorder(c Catalog, events typedcorev1.EventInterface, log *slog.Logger) *Recorder {
	return &Recorder{
		catalog: c, events: events, log: log, retry: time.Second,
		correlator: eventrecord.NewEventCorrelatorWithOptions(eventrecord.CorrelatorOptions{BurstSize: eventsPerObject}),
		limit:      flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsBurst),
	}
}

// Run follows the changes of all kinds until ctx is done. It starts with the
// changes of the last minute. The names of Events are derived from the changes,
// so an Event that another recorder already posted is not posted twice.
func (r *Recorder) Run(ctx context.Context) error {
	head, err := r.catalog.Position(ctx)
	if err != nil {
		return err
	}
	since := time.Now().Add(-lateEvents)
	group, ctx := errgroup.WithContext(ctx)
	for _, k := range kinds() {
		group.Go(func() error { return r.follow(ctx, k, max(head-catchUp, 0), head, since) })
	}
	return group.Wait()
}

// catchUp is the number of positions before the head at which Run starts.
const catchUp = 1000

func (r *Recorder) follow(ctx context.Context, k *kind, position, head int64, since time.Time) error {
	if r.catalog.CheckPosition(ctx, position) != nil {
		position = head
	}
	known := map[string]map[string]uint64{} // by UID, by type of condition
	for {
		events, upTo, wait, err := r.catalog.Events(ctx, k.kind, position)
		if err != nil {
			return err
		}
		for _, e := range events {
			if len(known) > rememberedObjects {
				clear(known)
			}
			drafts := draftEvents(e, known[e.Record.UID])
			known[e.Record.UID] = conditionHashes(e.Record)
			if e.Op == tko.OpDeleted {
				delete(known, e.Record.UID)
			}
			if e.Time.Before(since) {
				continue
			}
			for _, d := range drafts {
				if err := r.post(ctx, k, e, d); err != nil {
					return err
				}
			}
		}
		position = upTo
		if len(events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait:
		}
	}
}

// An eventDraft is the content of an Event.
type eventDraft struct {
	warning         bool
	reason, message string
}

// quietReasons are reasons of conditions that are not True and need no
// attention.
var quietReasons = []string{
	"Waiting", "InProgress", "Running", "Removing", "NotPrepared", "NotApproved", "Postponed", tko.ReasonChangeProposed, tko.ReasonUnscheduled, "Left",
	tko.ReasonHealthNotReported, tko.ReasonNotYetApplied,
}

// draftEvents returns the Events of a change. before holds the previous hashes
// of the conditions, nil if unknown.
func draftEvents(e changelog.Event, before map[string]uint64) []eventDraft {
	var drafts []eventDraft
	by := ""
	if e.Author.String() != "" {
		by = " by " + e.Author.String()
	}
	switch {
	case e.Op == tko.OpDeleted:
		return []eventDraft{{reason: reasonDeleted, message: "deleted" + by}}
	case e.New:
		drafts = append(drafts, eventDraft{reason: reasonCreated, message: "created" + by})
	case e.Op == tko.OpWritten:
		drafts = append(drafts, eventDraft{reason: reasonChanged, message: fmt.Sprintf("revision %d%s", e.Revision, by)})
	}
	now := conditionHashes(e.Record)
	for _, c := range e.Record.Conditions {
		if before == nil && c.LastTransition.Before(e.Time.Add(-time.Second)) || before != nil && before[c.Type] == now[c.Type] {
			continue
		}
		d := eventDraft{reason: c.Reason, message: c.Type + " is " + c.Status, warning: c.Status != tko.ConditionTrue && !slices.Contains(quietReasons, c.Reason)}
		if c.Type == tko.ConditionDeleting {
			d.warning = false
		}
		if d.reason == "" {
			d.reason = c.Type
		}
		if c.Type == tko.ConditionScheduled && e.Record.Site != "" {
			d.message += fmt.Sprintf(" at site %q", e.Record.Site)
		}
		if text := c.Text(); text != "" {
			d.message += ": " + text
		}
		drafts = append(drafts, d)
	}
	return drafts
}

// conditionHashes returns a hash of each condition's content, by type.
func conditionHashes(r record.Record) map[string]uint64 {
	hashes := make(map[string]uint64, len(r.Conditions))
	for _, c := range r.Conditions {
		applied := int64(0)
		if c.Type == tko.ConditionScheduled && r.Kind == tko.KindDeployment {
			applied = c.ObservedRevision // another revision was applied
		}
		hash := fnv.New64a()
		fmt.Fprintf(hash, "%q %q %q %d", c.Status, c.Reason, c.Text(), applied)
		hashes[c.Type] = hash.Sum64()
	}
	return hashes
}

// eventOf returns the Event of a change, with a name that is unique to the
// change. It returns false if the object has no name in Kubernetes.
func (k *kind) eventOf(e changelog.Event, d eventDraft, now time.Time) (*corev1.Event, bool) {
	name, err := nameOf(e.Record)
	if err != nil || e.Record.UID == "" {
		return nil, false
	}
	d.message = printable.Within(d.message, maxEventMessage)
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d %q %q", e.Position, d.reason, d.message)
	typ := corev1.EventTypeNormal
	if d.warning {
		typ = corev1.EventTypeWarning
	}
	at := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("tko.%s.%016x", e.Record.UID, hash.Sum64()), Namespace: EventNamespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: k.name, Name: name, UID: types.UID(e.Record.UID), ResourceVersion: formatPosition(e.Position),
		},
		Type: typ, Reason: d.reason, Message: d.message, FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source: corev1.EventSource{Component: "tko"}, ReportingController: "tko.nephio.org/tko",
	}, true
}

// post posts an Event. It drops the Event if there are too many or the cluster
// refuses it. The error is an error of ctx.
func (r *Recorder) post(ctx context.Context, k *kind, e changelog.Event, d eventDraft) error {
	if age := time.Since(e.Time); age > staleEvents || age > lateEvents && !d.warning {
		r.drop(ctx, nil)
		return nil
	}
	event, ok := k.eventOf(e, d, e.Time)
	if !ok {
		return nil
	}
	result, err := r.correlator.EventCorrelate(event)
	if err != nil || result.Skip {
		r.drop(ctx, err)
		return nil
	}
	for attempt := 1; ; attempt++ {
		if err := r.limit.Wait(ctx); err != nil {
			return err
		}
		posted, err := r.send(ctx, result)
		switch {
		case err == nil:
			r.correlator.UpdateState(posted)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case attempt == eventAttempts || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err):
			r.drop(ctx, err)
			return nil
		}
		if pause.For(ctx, r.retry<<attempt) != nil {
			return ctx.Err()
		}
	}
}

// send creates an Event, or increments the count of an existing one.
func (r *Recorder) send(ctx context.Context, result *eventrecord.EventCorrelateResult) (*corev1.Event, error) {
	event := result.Event
	if event.Count > 1 {
		patched, err := r.events.Patch(ctx, event.Name, types.StrategicMergePatchType, result.Patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return patched, err
		}
		event.ResourceVersion = "" // the existing Event has expired
	}
	created, err := r.events.Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return event, nil
	}
	return created, err
}

// drop counts Events that are not posted, and reports them once a minute.
func (r *Recorder) drop(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leftOut++
	if time.Since(r.reported) < time.Minute {
		return
	}
	attributes := []any{"count", r.leftOut}
	if err != nil {
		attributes = append(attributes, "err", err)
	}
	r.log.WarnContext(ctx, "kubernetes events were dropped", attributes...)
	r.leftOut, r.reported = 0, time.Now()
}
