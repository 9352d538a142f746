package catalog_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// fails lets an item of a queue fail once.
func (w *world) fails(queue, key string) {
	w.t.Helper()
	w.is("enqueue", w.store.EnqueueWork(w.ctx, queue, []string{key}, false), nil)
	items, _, err := w.store.ClaimWork(w.ctx, tko.ClaimWork{Queue: queue, Max: 100, Lease: time.Minute})
	w.is("claim", err, nil)
	if !slices.ContainsFunc(items, func(i tko.WorkItem) bool { return i.Key == key }) {
		w.t.Fatalf("claimed %v of the queue %s, want %s", items, queue, key)
	}
	for _, item := range items {
		finished := tko.FinishedWork{Item: item, Outcome: tko.WorkFailed, Error: "no route to " + item.Key, Retry: time.Hour}
		w.is("finish", w.store.FinishWork(w.ctx, []tko.FinishedWork{finished}, nil), nil)
	}
}

func TestQueuesShowWorkThatWaitsAndFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	id := string(w.create(tko.NewDeployment{}))
	w.fails(tko.QueuePrepare, id)
	w.create(tko.NewDeployment{})
	states, err := w.Queues(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(states))
	for i, q := range states {
		names[i] = q.Queue
	}
	if diff := cmp.Diff(tko.Queues(), names); diff != "" {
		t.Error(diff)
	}
	q := states[0]
	if q.Ready != 1 || q.Retrying != 1 || q.Running != 0 || len(q.Failing) != 1 {
		t.Fatalf("%+v: want one ready and one retrying item", q)
	}
	if f := q.Failing[0]; f.Key != id || f.Failures != 1 || f.Error != "no route to "+id || time.Until(f.Due) < 50*time.Minute {
		t.Errorf("%+v: want the failure of %s", f, id)
	}
}

// A caller that may inspect queues gets the numbers of all of them, and the keys and errors of
// what it may read. Each queue must be here.
func TestQueuesNameOnlyWhatTheCallerMayRead(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	keys := map[string][]string{} // of the queue: what is in the scope, outside of it, and deleted
	for _, region := range []string{"emea", "apac"} {
		site := region + "/1"
		w.site(site, "")
		deployment := string(w.create(tko.NewDeployment{Site: tko.SiteID(site)}))
		keys[tko.QueuePrepare] = append(keys[tko.QueuePrepare], deployment, tko.SiteWork(tko.SiteID(site)))
		for _, queue := range []string{tko.QueueSchedule, tko.QueueCompare} {
			keys[queue] = append(keys[queue], site)
		}
		keys[tko.QueueRollout] = append(keys[tko.QueueRollout], region)
		for _, queue := range []string{tko.QueueGitOps, tko.QueueEvents} { // their keys are no entities
			keys[queue] = append(keys[queue], region)
		}
	}
	for queue, all := range keys {
		keys[queue] = append(all, "emea/deleted")
		if queue == tko.QueueGitOps || queue == tko.QueueEvents {
			keys[queue] = all
		}
		for _, key := range keys[queue] {
			w.fails(queue, key)
		}
	}
	w.bind("cert:ada", access.DefineRole, access.Scope{}) // it may inspect
	w.bind("cert:ada", access.Viewer, emea)

	named := func(subject string) map[string][]string {
		states, err := w.Queues(w.as(subject))
		w.is(subject, err, nil)
		named := map[string][]string{}
		for _, q := range states {
			if q.Retrying != len(keys[q.Queue]) || q.Retrying == 0 {
				t.Errorf("%s sees %d failing items of the queue %s, want the number of all: %d", subject, q.Retrying, q.Queue, len(keys[q.Queue]))
			}
			for _, f := range q.Failing {
				named[q.Queue] = append(named[q.Queue], f.Key)
			}
			slices.Sort(named[q.Queue])
		}
		return named
	}
	for _, all := range keys {
		slices.Sort(all)
	}
	if diff := cmp.Diff(keys, named("cert:root")); diff != "" {
		t.Errorf("an administrator: %s", diff)
	}
	deployments := slices.DeleteFunc(slices.Clone(keys[tko.QueuePrepare]), func(key string) bool { return key == "site/apac/1" || key == "emea/deleted" })
	got := named("cert:ada")
	if n := len(got[tko.QueuePrepare]); n != 2 || !slices.Contains(got[tko.QueuePrepare], "site/emea/1") || !slices.Contains(deployments, got[tko.QueuePrepare][0]) {
		t.Errorf("of the queue prepare: %v, want a deployment and a site in the scope", got[tko.QueuePrepare])
	}
	delete(got, tko.QueuePrepare)
	want := map[string][]string{
		tko.QueueSchedule: {"emea/1"}, tko.QueueCompare: {"emea/1"},
		tko.QueueGitOps: {"apac", "emea"}, tko.QueueEvents: {"apac", "emea"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("within emea: %s", diff)
	}
	w.bind("cert:bob", access.Operator, emea)
	_, err := w.Queues(w.as("cert:bob"))
	w.is("an operator of a part", err, tko.ErrDenied)
}
