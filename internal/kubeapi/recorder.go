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
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// EventNamespace is where the Events of objects are that have no namespace.
const EventNamespace = metav1.NamespaceDefault

// The bounds of Events.
const (
	eventsPerSecond = 10
	eventsBurst     = 200
	// An object's Events beyond its burst are left out but for one in five minutes;
	// similar ones are counted in one. See record.EventCorrelator.
	eventsPerObject = 25
	// lateEvents is how old news may be that are no warnings, and staleEvents how
	// old any may be: what comes faster than it may be posted is left out.
	lateEvents  = time.Minute
	staleEvents = 10 * time.Minute

	// rememberedObjects is how many objects the conditions are remembered of.
	rememberedObjects = 20_000
	maxEventMessage   = 1024
	eventAttempts     = 3
)

// Reasons of Events, beside those of conditions.
const (
	reasonCreated = "Created"
	reasonChanged = "Changed"
	reasonDeleted = "Deleted"
)

// A Recorder posts Kubernetes Events about TKO's objects to the management
// cluster: what is created, changed and deleted, and what conditions report, which
// includes what is applied at sites. One recorder of a database runs at a time.
type Recorder struct {
	catalog interface {
		Position(ctx context.Context) (int64, error)
		Follower
	}
	events     typedcorev1.EventInterface
	correlator *record.EventCorrelator
	limit      flowcontrol.RateLimiter
	retry      time.Duration
	log        *slog.Logger

	mu       sync.Mutex
	leftOut  int
	reported time.Time
}

// NewRecorder makes a recorder that posts to a namespace's Events.
func NewRecorder(c Catalog, events typedcorev1.EventInterface, log *slog.Logger) *Recorder {
	return &Recorder{
		catalog: c, events: events, log: log, retry: time.Second,
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{BurstSize: eventsPerObject}),
		limit:      flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsBurst),
	}
}

// Run follows the changes of all kinds until the context ends. It begins with
// those of the last minute: Events have names of their own, so that what another
// recorder posted before it ended isn't posted twice.
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

// catchUp is how many changes are looked at again at the beginning.
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
			if known[e.Record.UID] = conditionHashes(e.Record); e.Op == tko.OpDeleted {
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
		if position = upTo; len(events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait:
		}
	}
}

// An eventDraft is what an Event says.
type eventDraft struct {
	warning         bool
	reason, message string
}

// quietReasons are those of conditions that aren't true and need no one's care.
var quietReasons = []string{
	"Waiting", "InProgress", "Removing", "NotPrepared", "NotApproved", "Postponed", tko.ReasonChangeProposed, tko.ReasonUnscheduled, "Left",
}

// draftEvents is what there is to say of a change. before are the conditions'
// hashes as they were known, nil if they aren't.
func draftEvents(e catalog.Event, before map[string]uint64) []eventDraft {
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

// conditionHashes tell what conditions say apart.
func conditionHashes(r catalog.Record) map[string]uint64 {
	hashes := make(map[string]uint64, len(r.Conditions))
	for _, c := range r.Conditions {
		applied := int64(0)
		if c.Type == tko.ConditionScheduled && r.Kind == tko.KindDeployment {
			applied = c.ObservedRevision // which is another one that is applied
		}
		hash := fnv.New64a()
		fmt.Fprintf(hash, "%q %q %q %d", c.Status, c.Reason, c.Text(), applied)
		hashes[c.Type] = hash.Sum64()
	}
	return hashes
}

// event is an Event of an object, under a name that tells it apart for ever.
func (k *kind) eventOf(e catalog.Event, d eventDraft, now time.Time) (*corev1.Event, bool) {
	name, err := nameOf(e.Record)
	if err != nil || e.Record.UID == "" {
		return nil, false
	}
	if len(d.message) > maxEventMessage {
		d.message = d.message[:maxEventMessage-3] + "..."
	}
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

// post posts an Event, unless there are too many, or the cluster doesn't take it.
// The error is the context's.
func (r *Recorder) post(ctx context.Context, k *kind, e catalog.Event, d eventDraft) error {
	if age := time.Since(e.Time); age > staleEvents || age > lateEvents && !d.warning {
		r.leaveOut(ctx, nil)
		return nil
	}
	event, ok := k.eventOf(e, d, e.Time)
	if !ok {
		return nil
	}
	result, err := r.correlator.EventCorrelate(event)
	if err != nil || result.Skip {
		r.leaveOut(ctx, err)
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
			r.leaveOut(ctx, err)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(r.retry << attempt):
		}
	}
}

// send creates an Event, or counts one more in the one that is there.
func (r *Recorder) send(ctx context.Context, result *record.EventCorrelateResult) (*corev1.Event, error) {
	event := result.Event
	if event.Count > 1 {
		patched, err := r.events.Patch(ctx, event.Name, types.StrategicMergePatchType, result.Patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return patched, err
		}
		event.ResourceVersion = "" // it has expired
	}
	created, err := r.events.Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return event, nil
	}
	return created, err
}

// leaveOut counts Events that aren't posted, and reports them once a minute.
func (r *Recorder) leaveOut(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leftOut++; time.Since(r.reported) < time.Minute {
		return
	}
	attributes := []any{"count", r.leftOut}
	if err != nil {
		attributes = append(attributes, "err", err)
	}
	r.log.WarnContext(ctx, "kubernetes events were left out", attributes...)
	r.leftOut, r.reported = 0, time.Now()
}
