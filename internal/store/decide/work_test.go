package decide_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestWorkIsDueAgainAsItsResultSays(t *testing.T) {
	t.Parallel()
	backoff := func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }
	const gathers tko.WorkOutcome = "later, gathers"
	tests := map[string]struct {
		why     string
		outcome tko.WorkOutcome
		retry   time.Duration
		claimed decide.Claimed
		want    decide.Waiting
	}{
		"done":                           {"nothing is left", tko.WorkDone, 0, decide.Claimed{Attempt: 2}, decide.Waiting{Gone: true}},
		"done, and requested again":      {"the new request isn't lost", tko.WorkDone, 0, decide.Claimed{Attempt: 2, NewWork: true}, decide.Waiting{Due: now}},
		"failed":                         {"the back-off counts failures", tko.WorkFailed, 0, decide.Claimed{Attempt: 2}, decide.Waiting{Due: now.Add(3 * time.Minute), Attempt: 3, Error: "no luck\uFFFD"}},
		"failed, with a time":            {"the worker knows better", tko.WorkFailed, time.Hour, decide.Claimed{}, decide.Waiting{Due: now.Add(time.Hour), Attempt: 1, Error: "no luck\uFFFD"}},
		"failed, and requested again":    {"it may succeed now, but not at once", tko.WorkFailed, time.Hour, decide.Claimed{NewWork: true}, decide.Waiting{Due: now.Add(record.WakeDelay), Attempt: 1, Error: "no luck\uFFFD"}},
		"later":                          {"it isn't a failure", tko.WorkLater, time.Hour, decide.Claimed{Attempt: 2}, decide.Waiting{Due: now.Add(time.Hour)}},
		"later, and requested again":     {"the new work may be what it waits for", tko.WorkLater, time.Hour, decide.Claimed{NewWork: true}, decide.Waiting{Due: now}},
		"later, and woken":               {"what it waits for may be there", tko.WorkLater, time.Hour, decide.Claimed{Woken: true}, decide.Waiting{Due: now.Add(record.WakeDelay)}},
		"soon, and woken":                {"it is due earlier anyway", tko.WorkLater, time.Millisecond, decide.Claimed{Woken: true}, decide.Waiting{Due: now.Add(time.Millisecond)}},
		"gathers, and requested again":   {"a ready deployment waits for others of its site", gathers, time.Hour, decide.Claimed{NewWork: true}, decide.Waiting{Due: now.Add(time.Hour), Gather: true}},
		"gathers, and urgently needed":   {"a removal doesn't wait", gathers, time.Hour, decide.Claimed{NewWork: true, Urgent: true}, decide.Waiting{Due: now}},
		"released":                       {"the request, its failures and its error stay", tko.WorkReleased, time.Hour, decide.Claimed{Attempt: 2}, decide.Waiting{Due: now.Add(time.Hour), Attempt: 2, Error: "before", Released: true}},
		"released, and requested again":  {"", tko.WorkReleased, time.Hour, decide.Claimed{NewWork: true}, decide.Waiting{Due: now, Error: "before", Released: true}},
		"failed without a back-off":      {"there is a limit by the caller", tko.WorkFailed, 0, decide.Claimed{Attempt: -1}, decide.Waiting{Due: now, Attempt: 0, Error: "no luck\uFFFD"}},
		"failed, requested and woken":    {"both say soon", tko.WorkFailed, time.Hour, decide.Claimed{NewWork: true, Woken: true}, decide.Waiting{Due: now.Add(record.WakeDelay), Attempt: 1, Error: "no luck\uFFFD"}},
		"done, and woken without demand": {"a request is needed", tko.WorkDone, 0, decide.Claimed{Woken: true}, decide.Waiting{Gone: true}},
	}
	for name, test := range tests {
		f := tko.FinishedWork{Item: tko.WorkItem{LastError: "before"}, Outcome: test.outcome, Error: "no luck\x00", Retry: test.retry}
		if test.outcome == gathers {
			f.Outcome, f.Gather = tko.WorkLater, true
		}
		if diff := cmp.Diff(test.want, decide.Finish(f, test.claimed, now, backoff)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, test.why, diff)
		}
	}
	if got := decide.TruncateText(strings.Repeat("x", 10_000)); len(got) != 4096 {
		t.Errorf("an error of 10,000 bytes is stored with %d, want 4096", len(got))
	}
	if err := decide.CheckFinished(tko.FinishedWork{Outcome: "so so"}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("an unknown outcome: %v", err)
	}
}

func TestWorkOfChangesIsMergedByItsKey(t *testing.T) {
	t.Parallel()
	r := func(kind tko.Kind, id string, revision int64, ready bool) record.Record {
		return record.Record{Key: record.Key{Kind: kind, ID: id}, Revision: revision, Prepared: ready, Approved: ready, Site: "s"}
	}
	var works decide.Works
	if len(works.Items()) != 0 || len(works.Woken()) != 0 {
		t.Error("no changes cause work")
	}
	none := record.Record{}
	works.Add(tko.OpWritten, none, r(tko.KindDeployment, "d", 1, false), "r-1")
	works.Add(tko.OpWritten, r(tko.KindDeployment, "d", 1, false), r(tko.KindDeployment, "d", 2, false), "")
	works.Add(tko.OpStatus, r(tko.KindDeployment, "e", 1, false), r(tko.KindDeployment, "e", 1, false), "r-2")
	works.Add(tko.OpWritten, none, r(tko.KindDeployment, "f", 1, true), "r-3")
	works.Add(tko.OpDeleted, r(tko.KindDeployment, "f", 1, true), r(tko.KindDeployment, "f", 1, true), "r-4")
	site := r(tko.KindSite, "s", 2, false)
	site.Untriggered = true
	works.Add(tko.OpWritten, r(tko.KindSite, "s", 1, false), site, "")
	other := r(tko.KindSite, "t", 2, false)
	other.Untriggered = true
	works.Add(tko.OpWritten, r(tko.KindSite, "t", 1, false), other, "")
	ready := r(tko.KindDeployment, "g", 2, true)
	ready.Site = "u"
	works.Add(tko.OpWritten, none, ready, "")
	works.Add(tko.OpWritten, none, r(tko.KindPlugin, "schedule|p", 1, false), "")
	want := []decide.Enqueued{
		{Queue: tko.QueuePrepare, Key: "d", Needed: true, Urgent: true, Cause: "r-1"},
		{Queue: tko.QueueSchedule, Key: "s", Needed: true, Urgent: true, Cause: "r-4"},
		{Queue: tko.QueueSchedule, Key: "t", Urgent: true},
		{Queue: tko.QueueSchedule, Key: "u", Needed: true},
	}
	if diff := cmp.Diff(want, works.Items()); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{tko.QueuePrepare}, works.Woken()); diff != "" || !works.Everywhere {
		t.Errorf("woken, everywhere: %t (-want +got):\n%s", works.Everywhere, diff)
	}
}

func TestTokensAreChecked(t *testing.T) {
	t.Parallel()
	valid := decide.Token{Deployment: "d", Expires: now.Add(time.Second)}
	tests := map[string]struct {
		why   string
		kind  tko.Kind
		op    tko.Op
		name  string
		token decide.Token
		held  time.Time
		want  error
	}{
		"no token":              {"no caller holds the deployment", tko.KindDeployment, tko.OpWritten, "", decide.Token{}, time.Time{}, nil},
		"held":                  {"another caller modifies it", tko.KindDeployment, tko.OpWritten, "", decide.Token{}, now.Add(time.Second), tko.ErrBusy},
		"held, a status":        {"conditions wait for no caller", tko.KindDeployment, tko.OpStatus, "", decide.Token{}, now.Add(time.Second), nil},
		"held, a deletion":      {"deletions don't wait", tko.KindDeployment, tko.OpDeleted, "", decide.Token{}, now.Add(time.Second), nil},
		"held, another kind":    {"a site may have the ID of a deployment", tko.KindSite, tko.OpWritten, "", decide.Token{}, now.Add(time.Second), nil},
		"the holder":            {"", tko.KindDeployment, tko.OpWritten, "T", valid, now.Add(time.Second), nil},
		"an unknown token":      {"", tko.KindDeployment, tko.OpWritten, "T", decide.Token{}, time.Time{}, tko.ErrNotFound},
		"of another one":        {"a token is for one deployment", tko.KindDeployment, tko.OpWritten, "T", decide.Token{Deployment: "e", Expires: now.Add(time.Second)}, time.Time{}, tko.ErrNotFound},
		"an expired token":      {"", tko.KindDeployment, tko.OpWritten, "T", decide.Token{Deployment: "d", Expires: now}, time.Time{}, tko.ErrBusy},
		"expires in a moment":   {"it is valid until then", tko.KindDeployment, tko.OpWritten, "T", decide.Token{Deployment: "d", Expires: now.Add(1)}, time.Time{}, nil},
		"a status with a token": {"it ends no modification, and is checked all the same", tko.KindDeployment, tko.OpStatus, "T", decide.Token{}, time.Time{}, tko.ErrNotFound},
	}
	for name, test := range tests {
		w := &record.Write{Op: test.op, Token: test.name, Record: record.Record{Key: record.Key{Kind: test.kind, ID: "d"}}}
		if err := decide.CheckToken(w, test.token, test.held, now); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v: %s", name, err, test.want, test.why)
		}
	}
}
