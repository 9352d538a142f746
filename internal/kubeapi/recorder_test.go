package kubeapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// posts runs a recorder that posts to cluster until the test ends or stop is
// called.
func posts(t *testing.T, w *world, cluster *fake.Clientset) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	r := kubeapi.NewRecorder(w.Service, cluster.CoreV1().Events(kubeapi.EventNamespace), slog.New(slog.DiscardHandler))
	go func() { ended <- r.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(stop)
	return stop
}

// posted waits until all wanted Events exist, and returns all existing Events.
func posted(t *testing.T, cluster *fake.Clientset, want ...string) []corev1.Event {
	t.Helper()
	var events []corev1.Event
	eventually.NoError(t, "the Events "+strings.Join(want, ", "), func() error {
		list, err := cluster.CoreV1().Events(kubeapi.EventNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, e := range list.Items {
			have = append(have, fmt.Sprintf("%s %s %s/%s", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name))
		}
		if slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(have, w) }) {
			return fmt.Errorf("there are only the Events\n%s", strings.Join(have, "\n"))
		}
		events = list.Items
		return nil
	})
	return events
}

func TestEventsReportChangesAndConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := fake.NewClientset()
	stop := posts(t, w, cluster)
	if _, err := w.RegisterSite(tko.WithAuthor(t.Context(), tko.Author{Who: "alice", Why: "a new city"}), tko.Site{ID: "nigeria/lagos"}); err != nil {
		t.Fatal(err)
	}
	name := w.must("POST", "deployments", deployment(obj{"siteId": "nigeria/lagos"}).set("metadata", obj{"name": "web", "annotations": obj{"tko.nephio.org/name": "Keep"}})).text("spec.deploymentId")
	report := func(status, reason string, revision int64) {
		t.Helper()
		condition := tko.Condition{Type: tko.ConditionScheduled, Status: status, Reason: reason, Message: "3 objects", ObservedRevision: revision}
		if err := w.SetConditions(t.Context(), tko.KindDeployment, name, []tko.Condition{condition}); err != nil {
			t.Fatal(err)
		}
	}
	report("False", "Failed", 1)
	posted(t, cluster, "Normal Created Site/nigeria-002flagos", "Normal Created Deployment/web", "Warning Failed Deployment/web")
	report("True", "Applied", 1)
	// Deleting the site changes the condition again: a recorder that reads later sees
	// only the newest condition.
	posted(t, cluster, "Normal Applied Deployment/web")
	w.must("PATCH", "deployments/web", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge)
	w.must("DELETE", "sites/nigeria-002flagos", nil)
	events := posted(t, cluster, "Normal Changed Deployment/web", "Normal Applied Deployment/web", "Normal Deleted Site/nigeria-002flagos")
	uid := w.must("GET", "deployments/web", nil).text("metadata.uid")
	for _, e := range events {
		switch {
		case e.Namespace != "default" || e.InvolvedObject.Namespace != "" || e.InvolvedObject.APIVersion != "tko.nephio.org/v1alpha1" || e.InvolvedObject.UID == "":
			t.Errorf("kubectl describe would not find %+v", e)
		case e.Reason == "Created" && e.InvolvedObject.Kind == "Site" && !strings.Contains(e.Message, "alice (a new city)"):
			t.Errorf("the message %q lacks author or reason", e.Message)
		case e.Reason == "Applied" && (!strings.Contains(e.Message, `at site "nigeria/lagos": 3 objects`) || string(e.InvolvedObject.UID) != uid):
			t.Errorf("got %+v, want the applied revision and the site", e)
		}
	}

	// Another recorder starts a little earlier, and posts no Event twice.
	stop()
	posts(t, w, cluster)
	w.must("DELETE", "deployments/web", nil)
	names := map[string]int{}
	for _, e := range posted(t, cluster, "Normal Deleted Deployment/web") {
		names[e.InvolvedObject.Kind+" "+e.Reason+" "+e.Message]++
	}
	for what, n := range names {
		if n != 1 {
			t.Errorf("posted %d times, want once: %s", n, what)
		}
	}
}

// A site that changes continuously causes few Events.
func TestEventsOfOneObjectAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := fake.NewClientset()
	posts(t, w, cluster)
	for i := range 200 {
		if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "s", Metadata: map[string]string{"n": strconv.Itoa(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	w.must("POST", "sites", site("last", nil))
	if events := posted(t, cluster, "Normal Created Site/s", "Normal Changed Site/s", "Normal Created Site/last"); len(events) > 40 {
		t.Errorf("there are %d Events", len(events))
	}
}

// The recorder continues if the cluster refuses an Event.
func TestRefusedEventsAreDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := fake.NewClientset()
	var refused atomic.Bool
	cluster.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !refused.Swap(true), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("not allowed"))
	})
	w.must("POST", "sites", site("first", nil))
	posts(t, w, cluster)
	w.must("POST", "sites", site("second", nil))
	for _, e := range posted(t, cluster, "Normal Created Site/second") {
		if e.InvolvedObject.Name == "first" {
			t.Errorf("%+v", e)
		}
	}
}
