package flux

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// reporter is the reporting component of events.
const reporter = "tko-gitops"

// An event is a change of a source's Ready condition.
type event struct {
	object  core.ObjectReference // the GitOps object, or source
	source  core.ObjectReference // the object of Flux
	failed  bool
	reason  string
	message string
	report  report
}

// A notification is an event in the format of notification-controller:
// event.toolkit.fluxcd.io/v1beta1.
type notification struct {
	InvolvedObject      core.ObjectReference `json:"involvedObject"`
	Severity            string               `json:"severity"` // info or error
	Timestamp           meta.Time            `json:"timestamp"`
	Message             string               `json:"message"`
	Reason              string               `json:"reason"`
	Metadata            map[string]string    `json:"metadata,omitempty"`
	ReportingController string               `json:"reportingController"`
	ReportingInstance   string               `json:"reportingInstance,omitempty"`
}

// events publishes events in the cluster and to notification-controller. Writers
// to its queue never wait.
type events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	sink        typedcore.EventInterface
	options     Options
	log         *slog.Logger
	client      *http.Client
	queue       chan event
}

const (
	maxWaiting    = 1000
	notifyTries   = 3
	notifyTimeout = 10 * time.Second
)

func newEvents(typed kubernetes.Interface, o Options, log *slog.Logger) *events {
	b := record.NewBroadcaster()
	return &events{
		broadcaster: b, recorder: b.NewRecorder(scheme.Scheme, core.EventSource{Component: reporter}), sink: typed.CoreV1().Events(""),
		options: o, log: log, client: &http.Client{Timeout: notifyTimeout}, queue: make(chan event, maxWaiting),
	}
}

// run publishes events until the context ends.
func (e *events) run(ctx context.Context) {
	e.broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: e.sink})
	defer e.broadcaster.Shutdown()
	defer e.client.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-e.queue:
			typ := core.EventTypeNormal
			if ev.failed {
				typ = core.EventTypeWarning
			}
			e.recorder.Event(&ev.object, typ, ev.reason, ev.message)
			if e.options.EventsAddress != "" {
				e.notify(ctx, ev)
			}
		}
	}
}

// notify sends an event to notification-controller. The involved object is the
// Flux object, because alerts support only Flux's kinds. notification-controller
// reads metadata with the prefix of that object's group; other receivers read
// TKO's prefix.
//
// It sends the event twice: the second one, for the status of a commit, goes to
// git hosts only, and not to users.
func (e *events) notify(ctx context.Context, ev event) {
	metadata := ev.metadata()
	e.send(ctx, ev, metadata)
	if metadata["revision"] == "" || ev.reason == tko.SourceReasonDependency {
		return
	}
	metadata["commit_status"] = "update"
	metadata["token"] = "commit_status" // without it, the second event would be dropped as a duplicate
	e.send(ctx, ev, metadata)
}

// metadata returns the metadata of the revision that an event is about.
func (ev event) metadata() map[string]string {
	s, a := ev.report.source.Status, ev.report.artifact
	metadata := map[string]string{}
	revision := s.Attempted
	switch ev.reason {
	case tko.SourceReasonFetchFailed, tko.SourceReasonDenied, tko.SourceReasonDependency: // the artifact's revision was not attempted
		revision = a.Revision
	}
	if revision != "" {
		metadata["revision"] = revision
	}
	if a.Revision == revision && revision != "" {
		metadata["digest"], metadata["checksum"] = a.Digest, a.Digest
		if origin := a.Origin(); origin != "" {
			metadata["originRevision"] = origin
		}
	}
	if ev.object.Kind == Kind {
		metadata["gitops"] = ev.object.Namespace + "/" + ev.object.Name
	}
	return metadata
}

// send sends an event to notification-controller, with retries.
func (e *events) send(ctx context.Context, ev event, metadata map[string]string) {
	severity := "info"
	if ev.failed && ev.reason != tko.SourceReasonDependency {
		severity = "error"
	}
	n := notification{
		InvolvedObject: ev.source, Severity: severity, Timestamp: meta.Now(), Reason: ev.reason, Metadata: map[string]string{},
		Message: fmt.Sprintf("%s %s/%s: %s", ev.object.Kind, ev.object.Namespace, ev.object.Name, ev.message), ReportingController: reporter, ReportingInstance: e.options.Worker,
	}
	for key, value := range metadata {
		n.Metadata[sourceGroup+"/"+key] = value
		n.Metadata[Group+"/"+key] = value
	}
	data, err := json.Marshal(n)
	if err != nil {
		return
	}
	for try := 1; ; try++ {
		err := e.post(ctx, data)
		if err == nil || ctx.Err() != nil {
			return
		}
		if try == notifyTries {
			e.log.WarnContext(ctx, "an event could not be sent to notification-controller", "err", err)
			return
		}
		_ = pause.For(ctx, time.Duration(try)*time.Second)
	}
}

func (e *events) post(ctx context.Context, data []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.options.EventsAddress, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	// Too many requests means that it has received the same event before.
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode/100 == 2 {
		return nil
	}
	return fmt.Errorf("the server responded %s", response.Status)
}

// announce queues an event for a report, if this replica made it and the Ready
// condition has changed.
func (c *Controller) announce(r reference, latest report) {
	s := latest.source
	c.mu.Lock()
	before, known := c.considered[r]
	if s.Version != 0 {
		c.considered[r] = s
	}
	c.mu.Unlock()
	ready, was := readyOf(s), readyOf(before)
	switch {
	case s.Version == 0 || s.Version == before.Version || s.Status.Holder != c.options.Worker:
		return // unchanged, or announced by another replica
	case ready.Status == tko.ConditionUnknown || ready.Status == "" || ready.Reason == tko.SourceReasonNothing:
		return
	case known && was.Status == ready.Status && was.Reason == ready.Reason && was.Message == ready.Message && before.Status.Applied == s.Status.Applied:
		return
	}
	ev := event{
		object: core.ObjectReference{APIVersion: Group + "/" + Version, Kind: r.kind, Namespace: r.namespace, Name: r.name},
		failed: ready.Status == tko.ConditionFalse && ready.Reason != tko.SourceReasonRollout, reason: ready.Reason, message: short(ready.Message), report: latest,
	}
	source := r
	if r.kind != Kind {
		ev.object.APIVersion = sourceGroup + "/" + sourceVersion
	} else if u, err := c.get(r); err == nil && u != nil {
		ev.object.UID, ev.object.ResourceVersion = u.GetUID(), u.GetResourceVersion()
		if o, err := readObject(u); err == nil {
			source = o.sourceOf(r.namespace)
		}
	}
	ev.source = core.ObjectReference{APIVersion: sourceGroup + "/" + sourceVersion, Kind: source.kind, Namespace: source.namespace, Name: source.name}
	if u, err := c.get(source); err == nil && u != nil {
		ev.source.UID, ev.source.ResourceVersion = u.GetUID(), u.GetResourceVersion()
		if source == r {
			ev.object = ev.source
		}
	}
	select {
	case c.events.queue <- ev:
	default:
		c.log.Warn("an event was dropped: too many are waiting", "object", r.String())
	}
}
