package inventory_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/gitops/inventory"
)

// A hubCluster is a stand-in for the API of a management cluster: lists in pages of one
// snapshot, and events after a resource version.
type hubCluster struct {
	*httptest.Server
	version int
	objects []map[string]any
	events  []map[string]any // all of them, in order
	oldest  int              // resource version after which events are retained
	refuse  bool             // watches

	requests []string // list or watch
	sent     int      // bytes
}

func newHubCluster(t *testing.T, n int) *hubCluster {
	t.Helper()
	h := &hubCluster{version: 100}
	for i := range n {
		h.objects = append(h.objects, map[string]any{
			"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "spec": map[string]any{"leaseDurationSeconds": 60},
			"metadata": map[string]any{"name": fmt.Sprintf("c%04d", i), "resourceVersion": "7", "labels": map[string]any{"region": "west"}},
		})
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") == "true" {
			h.requests = append(h.requests, "watch")
			h.watch(w, q.Get("resourceVersion"))
			return
		}
		h.requests = append(h.requests, "list")
		from, _ := strconv.Atoi(q.Get("continue"))
		limit, _ := strconv.Atoi(q.Get("limit"))
		end := min(from+limit, len(h.objects))
		metadata := map[string]any{"resourceVersion": strconv.Itoa(h.version)}
		if end < len(h.objects) {
			metadata["continue"] = strconv.Itoa(end)
		}
		h.send(w, map[string]any{"metadata": metadata, "items": h.objects[from:end]})
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hubCluster) send(w http.ResponseWriter, value any) {
	data, _ := json.Marshal(value)
	h.sent += len(data)
	_, _ = w.Write(data)
}

func (h *hubCluster) watch(w http.ResponseWriter, after string) {
	from, err := strconv.Atoi(after)
	switch {
	case h.refuse:
		w.WriteHeader(http.StatusForbidden)
		return
	case err != nil || from < h.oldest:
		w.WriteHeader(http.StatusGone)
		return
	}
	for _, e := range h.events {
		metadata := e["object"].(map[string]any)["metadata"].(map[string]any)
		if at, _ := strconv.Atoi(metadata["resourceVersion"].(string)); at > from {
			h.send(w, e)
		}
	}
}

// event changes an object with an event of a type. The content of the object is a copy.
func (h *hubCluster) event(t *testing.T, typ string, n int, change func(object map[string]any)) {
	t.Helper()
	data, err := json.Marshal(h.objects[n])
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	h.version++
	object["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(h.version)
	if change != nil {
		change(object)
	}
	h.objects[n] = object
	h.events = append(h.events, map[string]any{"type": typ, "object": object})
}

// An unchanged management cluster is looked at by one request without objects, and
// heartbeats cost their events only. It is listed again if an object changes, or if its
// events are refused, no longer retained, or can't be read.
func TestUnchangedClustersAreNotListedAgain(t *testing.T) {
	t.Parallel()
	const clusters = 1234
	h := newHubCluster(t, clusters)
	i := open(t, inventory.Settings{From: []inventory.OriginSettings{{
		Kubernetes: &inventory.KubernetesSettings{URL: h.URL, Resource: "managedclusters.v1.cluster.open-cluster-management.io"},
		Map:        inventory.Mapping{ID: "record.metadata.name", Metadata: map[string]string{"region": "record.metadata.labels.region"}},
	}}})
	last := ""
	look := func(what string, want string, most int, changed bool) {
		t.Helper()
		h.requests, h.sent = nil, 0
		now := revision(t, i)
		if got := strings.Join(h.requests, " "); got != want || h.sent > most {
			t.Errorf("%s: the requests are %q with %d bytes: want %q with %d at most", what, got, h.sent, want, most)
		}
		if (now != last) != changed {
			t.Errorf("%s: the revision has changed: %v, want %v", what, now != last, changed)
		}
		last = now
	}
	relabel := func(region string) func(map[string]any) {
		return func(object map[string]any) {
			object["metadata"].(map[string]any)["labels"] = map[string]any{"region": region}
		}
	}
	const all, lists = 1 << 20, "list list list"
	look("the first time", lists, all, true)
	look("nothing has happened", "watch", 0, false)
	h.event(t, "MODIFIED", 7, nil)
	look("a heartbeat", "watch", 1000, false)
	look("after the heartbeat", "watch", 0, false)
	h.event(t, "MODIFIED", 7, relabel("east"))
	look("an object has changed", "watch "+lists, all, true)
	h.event(t, "MODIFIED", 8, relabel("east"))
	h.event(t, "MODIFIED", 8, relabel("west"))
	look("an object has changed, and changed back", "watch "+lists, all, false)
	gone := h.objects[9]
	h.event(t, "DELETED", 9, nil)
	h.objects = append(h.objects[:9:9], h.objects[10:]...)
	look("an object was deleted", "watch "+lists, all, true)
	h.objects = append(h.objects, gone)
	h.event(t, "ADDED", len(h.objects)-1, nil)
	look("an object was created", "watch "+lists, all, true)

	h.oldest = h.version + 1
	h.objects[1]["metadata"].(map[string]any)["labels"] = map[string]any{"region": "north"}
	look("its events are no longer retained", "watch "+lists, all, true)
	h.oldest, h.refuse = 0, true
	look("watches are refused", "watch "+lists, all, false)
	h.refuse = false
	h.events = append(h.events, map[string]any{"type": "ERROR", "object": map[string]any{"metadata": map[string]any{"resourceVersion": "9999"}, "code": 410}})
	look("the server reports an error", "watch "+lists, all, false)
}

// A cluster that is away changes nothing: that its events can't be read doesn't mean that
// there are none.
func TestClusterThatIsAwayIsNotUnchanged(t *testing.T) {
	t.Parallel()
	h := newHubCluster(t, 3)
	i := open(t, inventory.Settings{From: []inventory.OriginSettings{{
		Kubernetes: &inventory.KubernetesSettings{URL: h.URL, Resource: "managedclusters.v1.cluster.open-cluster-management.io"},
		Map:        inventory.Mapping{ID: "record.metadata.name"},
	}}})
	revision(t, i)
	h.Close()
	if _, err := i.Revision(t.Context()); err == nil {
		t.Error("a cluster that is away is unchanged")
	}
}
