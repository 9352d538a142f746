package webapi_test

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A rolloutFake has a rollout named there, and two freezes.
type rolloutFake struct{ fake }

func (f *rolloutFake) Rollout(_ context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error) {
	p, err := f.found(string(id), revision)
	return tko.Rollout{Package: p}, err
}

func (f *rolloutFake) Rollouts(_ context.Context, _ tko.RolloutSelect, o tko.ListOptions) iter.Seq2[tko.Rollout, error] {
	return list(&f.fake, o, tko.Rollout{ID: "there", State: "Paused", Reason: "paused by ann", Metadata: map[string]string{"k": "v"}, Stamp: tko.Stamp{Revision: 2, Created: at, Updated: at}},
		tko.Rollout{ID: "two", State: "Draft", Stamp: tko.Stamp{Revision: 1, Created: at, Updated: at}})
}

func (f *rolloutFake) RolloutStatus(_ context.Context, id tko.RolloutID) (tko.RolloutStatus, error) {
	_, err := f.found(string(id), 0)
	return tko.RolloutStatus{
		ID: id, State: "Running", Plan: "abc", UndoneBy: "u", Kinds: map[string]int{"Change": 3}, Failures: 1, Blocks: []string{"1 deployment waits"},
		Waves: []tko.RolloutWave{{Name: "canary", Rows: 3, Approval: "Required", Progress: map[string]int{"Healthy": 2}}},
	}, err
}

func (f *rolloutFake) Freezes(context.Context) ([]tko.Freeze, error) {
	return []tko.Freeze{
		{ID: "f1", SiteMetadata: map[string]string{"region": "north"}, Until: at.Add(time.Hour), Reason: "peak", By: tko.Author{Who: "ann"}, Created: at},
		{ID: "f2", SiteMetadata: map[string]string{"region": "south"}, Until: at.Add(2 * time.Hour), Reason: "x", Created: at},
	}, f.err
}

func (f *rolloutFake) Stops(context.Context) ([]tko.StopStatus, error) {
	return []tko.StopStatus{{
		Stop:      tko.Stop{ID: "s1", Sites: []string{"a/*"}, Reason: "storm", By: tko.Author{Who: "ann"}, Created: at},
		SiteCount: 2, DeploymentCount: 3, InFlight: []tko.InFlight{{Queue: "schedule", Key: "a/1", Since: at, Until: at}}, InFlightCount: 1, WaitingSites: 1,
	}}, f.err
}

func (f *rolloutFake) SourceDefinitions(context.Context, int64) (tko.SourceDefinitions, error) {
	return tko.SourceDefinitions{All: []tko.SourceDefinition{{
		Kind: tko.SourceKindGit, Name: "fleet", Spec: []byte(`{"git":{"url":"https://x"}}`), By: tko.Author{Who: "ann"}, Created: at, Updated: at.Add(time.Hour), Ending: &tko.SourceEnding{},
	}}}, f.err
}

func (f *rolloutFake) Queues(context.Context) ([]tko.QueueState, error) {
	return []tko.QueueState{
		{QueueStatistics: tko.QueueStatistics{Queue: "prepare", Ready: 1, Oldest: 1500 * time.Millisecond}},
		{QueueStatistics: tko.QueueStatistics{Queue: "schedule", Running: 1, Retrying: 2, Waiting: 3}, Failing: []tko.FailingWork{{Key: "a/1", Failures: 7, Error: "no route", Due: at}}},
	}, f.err
}

func TestRolloutsAndFreezesAreRead(t *testing.T) {
	t.Parallel()
	const freeze1 = `{"id":"f1","siteMetadata":{"region":"north"},"reason":"peak","frozenBy":"ann","untilTimestamp":1700003600123,"createdTimestamp":1700000000123}`
	const freeze2 = `{"id":"f2","siteMetadata":{"region":"south"},"reason":"x","frozenBy":"","untilTimestamp":1700007200123,"createdTimestamp":1700000000123}`
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/api/rollout?id=there":            {200, "apiVersion: v1\nkind: Thing\nmetadata:\n  name: a\n"},
		"/api/rollout?id=there&revision=1": {404, `{"error":"site \"there\": not found"}`},
		"/api/rollout":                     {400, `{"error":"there is no ID: add ?id=ID"}`},
		"/api/rollout/status":              {400, `{"error":"there is no ID: add ?id=ID"}`},
		"/api/rollout/status?id=nowhere":   {404, `{"error":"site \"nowhere\": not found"}`},
		"/api/rollout/status?id=there": {200, `{"id":"there","state":"Running","reason":"","plan":"abc","undoneBy":"u","kinds":{"Change":3},"failures":1,"blocks":["1 deployment waits"],` +
			`"waves":[{"name":"canary","deployments":3,"approval":"Required","progress":{"Healthy":2}}]}`},
		"/api/rollout/list": {200, `[{"id":"there","metadata":{"k":"v"},"state":"Paused","reason":"paused by ann","createdTimestamp":1700000000123,"updatedTimestamp":1700000000123,"revision":2}
,{"id":"two","metadata":{},"state":"Draft","reason":"","createdTimestamp":1700000000123,"updatedTimestamp":1700000000123,"revision":1}
]`},
		"/api/rollout/list?count=x":         {400, `{"error":"count=\"x\" is not a number, or too large"}`},
		"/api/freeze/list":                  {200, "[" + freeze1 + "\n," + freeze2 + "\n]"},
		"/api/freeze/list?offset=1&count=5": {200, "[" + freeze2 + "\n]"},
		"/api/freeze/list?count=1":          {200, "[" + freeze1 + "\n]"},
		"/api/freeze/list?offset=7":         {200, "[]"},
		"/api/stop/list": {200, `[{"id":"s1","all":false,"topologyId":"","siteIds":["a/*"],"siteMetadata":{},"onlyUndo":false,"reason":"storm","stoppedBy":"ann","createdTimestamp":1700000000123,` +
			`"siteCount":2,"deploymentCount":3,"inFlight":[{"queue":"schedule","key":"a/1","sinceTimestamp":1700000000123,"untilTimestamp":1700000000123}],"inFlightCount":1,"waitingSites":1,"waitingDeployments":0}` + "\n]"},
		"/api/queue/list": {200, `[{"queue":"prepare","ready":1,"running":0,"retrying":0,"waiting":0,"oldest":1500,"failing":[]}` + "\n," +
			`{"queue":"schedule","ready":0,"running":1,"retrying":2,"waiting":3,"oldest":0,"failing":[{"key":"a/1","failures":7,"error":"no route","dueTimestamp":1700000000123}]}` + "\n]"},
		"/api/source/list": {200, `[{"name":"fleet","kind":"GitOpsSource","spec":{"git":{"url":"https://x"}},"registeredBy":"ann","createdTimestamp":1700000000123,"updatedTimestamp":1700003600123,"deleting":true}` + "\n]"},
	} {
		w := httptest.NewRecorder()
		webapi.New(&rolloutFake{}, nil, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if diff := cmp.Diff(want.body, strings.TrimSuffix(w.Body.String(), "\n")); w.Code != want.status && diff != "" || diff != "" && path != "/api/rollout?id=there" {
			t.Errorf("%s: status %d: %s", path, w.Code, diff)
		}
		if w.Code != want.status {
			t.Errorf("%s: status %d, want %d", path, w.Code, want.status)
		}
	}
	w := httptest.NewRecorder()
	webapi.New(&rolloutFake{}, nil, nil).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/freeze/list", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a freeze is posted: status %d", w.Code)
	}
}
