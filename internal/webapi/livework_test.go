package webapi_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A workFake has changes and runs of plugins.
type workFake struct {
	liveFake

	head, oldest int64
	after        int64 // of the newest request
	history      tko.HistoryRequest
	runs         tko.PluginRuns
	runsOf       string // kind and ID of the newest request
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

func (f *workFake) PluginRuns(_ context.Context, kind tko.Kind, id string) (tko.PluginRuns, error) {
	if id == "gone" {
		return tko.PluginRuns{}, tko.NotFound(kind, id)
	}
	f.runsOf = string(kind) + " " + id
	return f.runs, nil
}

func workHandler(f *workFake) http.Handler {
	return webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f}, webapi.LiveOptions{})
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
	if status := call(t, workHandler(f), "GET", "/api/v1/throughput", "", &got); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	third, first := now.Add(-3*time.Minute).UnixMilli(), now.Add(-time.Minute).UnixMilli()
	if diff := cmp.Diff(body{60, true, []minute{{third, 1, 1, 1}, {first, 0, 1, 2}}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got = body{}
	if call(t, workHandler(f), "GET", "/api/v1/throughput?after=5", "", &got); f.after != 5 || !got.Complete || len(got.Minutes) != 1 {
		t.Errorf("after 5, it has read after %d: %+v", f.after, got)
	}
}

func TestThroughputReadsABoundedNumberOfChangesAndStatesIt(t *testing.T) {
	for query, oldest := range map[string]int64{"": 1, "?after=7": 1, "?": 400_000} {
		f := &workFake{head: 1_000_000, oldest: oldest}
		f.changes = []tko.Change{{Position: 999_999, Time: time.Now()}}
		var got struct{ Complete bool }
		call(t, workHandler(f), "GET", "/api/v1/throughput"+query, "", &got)
		if f.after != 600_000 || got.Complete {
			t.Errorf("%q: it has read after %d, and says that it is complete: %v", query, f.after, got.Complete)
		}
	}
	f := &workFake{head: 10, oldest: 1, liveFake: liveFake{failure: tko.Errorf(tko.ErrGone, "no longer retained")}}
	var got struct {
		Position webapi.Position
		Complete bool
	}
	if status := call(t, workHandler(f), "GET", "/api/v1/throughput?after=3", "", &got); status != http.StatusOK || got.Complete || got.Position != 10 {
		t.Errorf("changes that are no longer retained: status %d, %+v", status, got)
	}
	f.failure = errors.New("no database")
	if status := call(t, workHandler(f), "GET", "/api/v1/throughput", "", nil); status != http.StatusInternalServerError {
		t.Errorf("a failure: status %d", status)
	}
	if status := call(t, workHandler(f), "GET", "/api/v1/throughput?minutes=5", "", nil); status != http.StatusBadRequest {
		t.Errorf("an unknown parameter: status %d", status)
	}
}

func TestHistoryOfAnEntityIsBounded(t *testing.T) {
	f := &workFake{}
	var got struct {
		Events []struct{ What, Summary, Who, Why string }
	}
	if status := call(t, workHandler(f), "GET", "/api/v1/history?kind=site&id=north/1", "", &got); status != http.StatusOK || len(got.Events) != 1 || got.Events[0].Summary != "replicas 2 -> 3" {
		t.Errorf("status %d, %+v", status, got)
	}
	if diff := cmp.Diff(tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindSite, ID: "north/1"}, Max: 100}, f.history); diff != "" {
		t.Errorf("requested (-want +got):\n%s", diff)
	}
	for _, query := range []string{"?kind=site", "?kind=site&id=x&limit=0", "?kind=site&id=x&limit=201", "?kind=site&id=x&metadata=a=b"} {
		if status := call(t, workHandler(f), "GET", "/api/v1/history"+query, "", nil); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", query, status)
		}
	}
}

func TestRunsOfPluginsAreThoseOfTheCatalog(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_123)
	f := &workFake{runs: tko.PluginRuns{Lines: true, More: 2, Runs: []tko.PluginRun{
		{Plugin: "prepare|p", Kind: tko.KindDeployment, ID: "a", Began: began, Took: 41 * time.Millisecond, Result: "failed", Error: "pool exhausted", Lines: []string{"x"}, More: 3},
	}}}
	h := workHandler(f)
	type run struct {
		Plugin, Kind, ID, Result, Error string
		Began, Took                     int64
		Lines                           []string
		More                            int
	}
	type body struct {
		Runs  []run
		Lines bool
		More  int
	}
	var got body
	status := call(t, h, "GET", "/api/v1/runs?kind=plugin&id=prepare%7Cp", "", &got)
	want := body{Lines: true, More: 2, Runs: []run{{Plugin: "prepare|p", Kind: "deployment", ID: "a", Result: "failed", Error: "pool exhausted", Began: began.UnixMilli(), Took: 41, Lines: []string{"x"}, More: 3}}}
	if diff := cmp.Diff(want, got); status != http.StatusOK || diff != "" || f.runsOf != "plugin prepare|p" {
		t.Errorf("status %d, of %q, -want +got:\n%s", status, f.runsOf, diff)
	}
	for query, want := range map[string]int{"kind=plugin&id=x&after=1": http.StatusBadRequest, "kind=deployment&id=gone": http.StatusNotFound} {
		if status := call(t, h, "GET", "/api/v1/runs?"+query, "", nil); status != want {
			t.Errorf("%s: status %d", query, status)
		}
	}
}
