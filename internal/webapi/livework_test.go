package webapi_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A workFake has changes and runs of plugins.
type workFake struct {
	liveFake

	head, oldest int64
	after        int64 // of the newest request
	logs         bool  // the caller has the right to the log
	hidden       string
	history      tko.HistoryRequest
}

func (f *workFake) About(context.Context) (tko.About, error) { return tko.About{Position: f.head}, nil }

func (f *workFake) Retention(context.Context) (tko.Retention, error) {
	return tko.Retention{OldestPosition: f.oldest, NewestPosition: f.head}, nil
}

// BeforeNewest has positions that are twenty apart.
func (f *workFake) BeforeNewest(_ context.Context, n int) (int64, error) {
	return max(0, f.head-20*int64(n)), nil
}

func (f *workFake) Changes(_ context.Context, after int64, _ ...tko.Kind) iter.Seq2[tko.Change, error] {
	f.after = after
	return func(yield func(tko.Change, error) bool) {
		for _, c := range f.changes {
			if c.Position > after && !yield(c, nil) {
				return
			}
		}
		if f.failure != nil {
			yield(tko.Change{}, f.failure)
		}
	}
}

func (f *workFake) HistoryOf(_ context.Context, r tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error] {
	f.history = r
	return func(yield func(tko.HistoryEntry, error) bool) {
		yield(tko.HistoryEntry{Change: tko.Change{Position: 7, Revision: 2, Time: time.UnixMilli(5), Author: tko.Author{Who: "ada", Why: "more"}}, What: tko.PastChanged, Summary: "replicas 2 -> 3"}, nil)
	}
}

func (f *workFake) Plugin(_ context.Context, typ, name string) (tko.Plugin, error) {
	return tko.Plugin{Type: typ, Name: name}, nil
}

func (f *workFake) Deployment(_ context.Context, id tko.DeploymentID, _ int64) (tko.Deployment, error) {
	if string(id) == f.hidden {
		return tko.Deployment{}, tko.NotFound(tko.KindDeployment, id)
	}
	return tko.Deployment{ID: id}, nil
}

func (f *workFake) CanI(_ context.Context, verb access.Verb, _ tko.Kind, id string) (bool, error) {
	switch {
	case verb == access.Logs:
		return f.logs, nil
	case id == "gone":
		return false, tko.NotFound(tko.KindDeployment, tko.DeploymentID(id))
	}
	return id != f.hidden, nil
}

func workHandler(f *workFake, runs *webapi.PluginRuns) http.Handler {
	return webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f}, webapi.LiveOptions{Runs: runs})
}

func TestThroughputCountsChangesByTheirMinuteAndAuthor(t *testing.T) {
	now := time.Now().Truncate(time.Minute)
	change := func(position int64, ago time.Duration, who string, op tko.Op) tko.Change {
		return tko.Change{Position: position, Kind: tko.KindDeployment, ID: "d", Op: op, Time: now.Add(-ago), Author: tko.Author{Who: who}}
	}
	f := &workFake{head: 60, oldest: 1}
	f.changes = []tko.Change{
		change(1, 2*time.Hour, "tko:preparer", tko.OpWritten), // too old
		change(2, 3*time.Minute, "tko:preparer", tko.OpWritten),
		change(3, 3*time.Minute-time.Second, "tko:preparer", tko.OpStatus), // a condition is no prepared package
		change(4, 3*time.Minute, "tko:meta-scheduler", tko.OpStatus),
		change(5, time.Minute, "meta-scheduler", tko.OpStatus), // rights are off
		change(6, time.Minute, "ada", tko.OpWritten),
		change(7, time.Minute, "tko:plugin:preparer", tko.OpWritten), // not the preparer itself
	}
	type minute struct{ Start, Prepared, Scheduled, Others int64 }
	type body struct {
		Position webapi.Position
		Complete bool
		Minutes  []minute
	}
	var got body
	if status := call(t, workHandler(f, nil), "GET", "/api/v1/throughput", "", &got); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	third, first := now.Add(-3*time.Minute).UnixMilli(), now.Add(-time.Minute).UnixMilli()
	if diff := cmp.Diff(body{60, true, []minute{{third, 1, 1, 1}, {first, 0, 1, 2}}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got = body{}
	if call(t, workHandler(f, nil), "GET", "/api/v1/throughput?after=5", "", &got); f.after != 5 || !got.Complete || len(got.Minutes) != 1 {
		t.Errorf("after 5, it has read after %d: %+v", f.after, got)
	}
}

func TestThroughputReadsABoundedNumberOfChangesAndStatesIt(t *testing.T) {
	for query, oldest := range map[string]int64{"": 1, "?after=7": 1, "?": 400_000} {
		f := &workFake{head: 1_000_000, oldest: oldest}
		f.changes = []tko.Change{{Position: 999_999, Time: time.Now()}}
		var got struct{ Complete bool }
		call(t, workHandler(f, nil), "GET", "/api/v1/throughput"+query, "", &got)
		if f.after != 600_000 || got.Complete {
			t.Errorf("%q: it has read after %d, and says that it is complete: %v", query, f.after, got.Complete)
		}
	}
	f := &workFake{head: 10, oldest: 1, liveFake: liveFake{failure: tko.Errorf(tko.ErrGone, "no longer retained")}}
	var got struct {
		Position webapi.Position
		Complete bool
	}
	if status := call(t, workHandler(f, nil), "GET", "/api/v1/throughput?after=3", "", &got); status != http.StatusOK || got.Complete || got.Position != 10 {
		t.Errorf("changes that are no longer retained: status %d, %+v", status, got)
	}
	f.failure = errors.New("no database")
	if status := call(t, workHandler(f, nil), "GET", "/api/v1/throughput", "", nil); status != http.StatusInternalServerError {
		t.Errorf("a failure: status %d", status)
	}
	if status := call(t, workHandler(f, nil), "GET", "/api/v1/throughput?minutes=5", "", nil); status != http.StatusBadRequest {
		t.Errorf("an unknown parameter: status %d", status)
	}
}

func TestHistoryOfAnEntityIsBounded(t *testing.T) {
	f := &workFake{}
	var got struct {
		Events []struct{ What, Summary, Who, Why string }
	}
	if status := call(t, workHandler(f, nil), "GET", "/api/v1/history?kind=site&id=north/1", "", &got); status != http.StatusOK || len(got.Events) != 1 || got.Events[0].Summary != "replicas 2 -> 3" {
		t.Errorf("status %d, %+v", status, got)
	}
	if diff := cmp.Diff(tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindSite, ID: "north/1"}, Max: 100}, f.history); diff != "" {
		t.Errorf("requested (-want +got):\n%s", diff)
	}
	for _, query := range []string{"?kind=site", "?kind=site&id=x&limit=0", "?kind=site&id=x&limit=201", "?kind=site&id=x&metadata=a=b"} {
		if status := call(t, workHandler(f, nil), "GET", "/api/v1/history"+query, "", nil); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", query, status)
		}
	}
}

type runsBody struct {
	Lines bool
	Runs  []struct {
		ID, Result, Error string
		Lines             []string
		More              int
	}
}

func (b runsBody) ids() string {
	var ids []string
	for _, r := range b.Runs {
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, " ")
}

func TestRunsOfPluginsAreShownToThoseWhoMayReadWhatTheyWereFor(t *testing.T) {
	runs := &webapi.PluginRuns{}
	began := time.Now()
	for i, id := range []string{"a", "b", "gone"} {
		runs.Add(webapi.PluginRun{Plugin: "prepare|p", Kind: tko.KindDeployment, ID: id, Began: began.Add(time.Duration(i)), Result: "failed", Error: "pool exhausted", Lines: []string{"password hunter2"}, More: 3})
	}
	runs.Add(webapi.PluginRun{Plugin: "schedule|p", Kind: tko.KindSite, ID: "a", Began: began})
	f := &workFake{hidden: "b"}
	h := workHandler(f, runs)
	get := func(query string, want int) (body runsBody) {
		t.Helper()
		if status := call(t, h, "GET", "/api/v1/runs?"+query, "", &body); status != want {
			t.Errorf("%s: status %d", query, status)
		}
		return body
	}
	got := get("kind=plugin&id=prepare%7Cp", http.StatusOK)
	if got.ids() != "a" || got.Lines || got.Runs[0].Lines != nil || got.Runs[0].More != 0 || got.Runs[0].Error != "pool exhausted" {
		t.Errorf("without the right to the log, runs are %+v", got)
	}
	if got := get("kind=deployment&id=a", http.StatusOK); got.ids() != "a" || len(got.Runs) != 1 {
		t.Errorf("of a deployment, runs are %+v", got)
	}
	if got := get("kind=deployment&id=b", http.StatusNotFound); len(got.Runs) > 0 {
		t.Errorf("of a deployment that is not visible, runs are %+v", got)
	}
	f.logs, f.hidden = true, ""
	if got := get("kind=plugin&id=prepare%7Cp", http.StatusOK); got.ids() != "b a" || !got.Lines || got.Runs[0].Lines == nil || got.Runs[0].More != 3 {
		t.Errorf("with the right to the log, runs are %+v", got)
	}
	get("kind=template&id=x", http.StatusBadRequest)
	get("kind=plugin&id=x&after=1", http.StatusBadRequest)
}

func TestRunsThatAreHeldAreBounded(t *testing.T) {
	runs := &webapi.PluginRuns{}
	began := time.Now()
	for i := range 1000 {
		runs.Add(webapi.PluginRun{Plugin: fmt.Sprintf("validate|%d", i), Began: began.Add(time.Duration(i))})
		runs.Add(webapi.PluginRun{Plugin: "validate|busy", Kind: tko.KindDeployment, ID: strconv.Itoa(i), Began: began.Add(time.Duration(i))})
	}
	h := workHandler(&workFake{}, runs)
	count := func(plugin string) (n int, ids string) {
		t.Helper()
		var body runsBody
		call(t, h, "GET", "/api/v1/runs?kind=plugin&id=validate%7C"+plugin, "", &body)
		return len(body.Runs), body.ids()
	}
	if n, ids := count("busy"); n != 20 || !strings.HasPrefix(ids, "999 998 ") {
		t.Errorf("of a plugin, %d runs are held: %s", n, ids)
	}
	held := 0
	for i := range 1000 {
		n, _ := count(strconv.Itoa(i))
		held += n
	}
	if held != 199 {
		t.Errorf("runs of %d other plugins are held", held)
	}
	if n, _ := count("999"); n != 1 {
		t.Error("the newest plugin made no room")
	}
}
