package webapi_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

func (f *liveFake) RolloutDo(ctx context.Context, c tko.RolloutCommand) (tko.RolloutStatus, error) {
	f.command, f.author = c, tko.AuthorOf(ctx)
	return f.RolloutStatus(ctx, c.ID)
}

func (f *liveFake) RolloutPlan(_ context.Context, id tko.RolloutID) (tko.RolloutPlan, error) {
	return tko.RolloutPlan{ID: id, Digest: "abc", Groups: []tko.RolloutGroup{{Kind: "Change", Count: 3, Changes: []tko.RolloutChange{{Resource: "v1 ConfigMap \"c\"", Path: "data.a", Before: "1", After: "2"}}}}}, nil
}

func (f *liveFake) RolloutRows(_ context.Context, sel tko.RolloutRows) iter.Seq2[tko.RolloutRow, error] {
	f.rows = sel
	return func(yield func(tko.RolloutRow, error) bool) {
		n := sel.Limit
		if n == 0 { // all of them
			n = 24
		}
		for i := range n {
			row := tko.RolloutRow{Deployment: tko.DeploymentID(fmt.Sprintf("d%03d", i)), Kind: "Change", Wave: i % 2}
			if row.Deployment > sel.After && !yield(row, nil) {
				return
			}
		}
	}
}

func (f *liveFake) DiffPast(_ context.Context, r tko.DiffRequest) iter.Seq2[tko.PastGroup, error] {
	f.diff = r
	return func(yield func(tko.PastGroup, error) bool) {
		for i := range 600 {
			if !yield(tko.PastGroup{What: tko.PastChanged, Count: 2, Examples: []string{strconv.Itoa(i)}}, nil) {
				return
			}
		}
	}
}

func (f *liveFake) Retention(context.Context) (tko.Retention, error) {
	return tko.Retention{OldestPosition: 3, NewestPosition: 9, NewestTime: time.UnixMilli(5000)}, nil
}

func TestARolloutIsCommandedWithThePlanThatWasReviewed(t *testing.T) {
	t.Parallel()
	f := &liveFake{}
	var status struct {
		State string
		Can   []string
	}
	body := `{"id":"there","command":"start","plan":"abc","skipBlocked":true,"reason":"reviewed"}`
	if code := call(t, liveHandler(f), "POST", "/api/v1/rollout/command", body, &status); code != http.StatusOK || status.State != "Running" {
		t.Errorf("status %d, %+v", code, status)
	}
	if diff := cmp.Diff(tko.RolloutCommand{ID: "there", Verb: "start", Plan: "abc", SkipBlocked: true}, f.command); diff != "" || f.author.Why != "reviewed" {
		t.Errorf("commanded (-want +got), because %q:\n%s", f.author.Why, diff)
	}
	if diff := cmp.Diff([]string{"approve"}, status.Can); diff != "" {
		t.Errorf("rights of the caller (-want +got):\n%s", diff)
	}
	if code := call(t, liveHandler(f), "POST", "/api/v1/rollout/command", `{"id":"there","command":"approve","plan":"abc","wave":"rest"}`, nil); code != http.StatusOK {
		t.Errorf("an approval: status %d", code)
	}
	if diff := cmp.Diff(tko.RolloutCommand{ID: "there", Verb: "approve", Plan: "abc", Wave: "rest"}, f.command); diff != "" {
		t.Errorf("commanded (-want +got):\n%s", diff)
	}
	for _, body := range []string{`{"command":"start"}`, `{"id":"there","command":"undo","forse":true}`, `{`} {
		f := &liveFake{}
		if code := call(t, liveHandler(f), "POST", "/api/v1/rollout/command", body, nil); code != http.StatusBadRequest || f.command.Verb != "" {
			t.Errorf("%s: status %d, commanded %+v", body, code, f.command)
		}
	}
}

func TestPlansOpenToPagesOfRows(t *testing.T) {
	t.Parallel()
	f := &liveFake{}
	var plan struct {
		Digest string
		Groups []struct {
			Count   int
			Changes []tko.RolloutChange
		}
	}
	if code := call(t, liveHandler(f), "GET", "/api/v1/rollout/plan?id=there", "", &plan); code != http.StatusOK || plan.Digest != "abc" || plan.Groups[0].Changes[0].After != "2" {
		t.Errorf("plan: status %d, %+v", code, plan)
	}
	var page struct {
		Rows []struct{ Deployment string }
		Next string
	}
	if code := call(t, liveHandler(f), "GET", "/api/v1/rollout/rows?id=there&group=0&kind=Change&changes=true", "", &page); code != http.StatusOK || len(page.Rows) != 20 || page.Next != "d019" {
		t.Errorf("rows: status %d, %d rows, next %q", code, len(page.Rows), page.Next)
	}
	group := 0
	if diff := cmp.Diff(tko.RolloutRows{ID: "there", Group: &group, Kinds: []string{"Change"}, Limit: 21, Changes: true}, f.rows); diff != "" {
		t.Errorf("selected (-want +got):\n%s", diff)
	}
	var first, second struct {
		Rows []struct {
			Deployment string
			Wave       int
		}
		Next string
	}
	if code := call(t, liveHandler(f), "GET", "/api/v1/rollout/rows?id=there&wave=1&limit=5", "", &first); code != http.StatusOK || len(first.Rows) != 5 || first.Rows[0].Wave != 1 || first.Rows[4].Wave != 1 || f.rows.Limit != 0 {
		t.Errorf("rows of a wave: status %d, %+v of a selection of %d", code, first, f.rows.Limit)
	}
	call(t, liveHandler(f), "GET", "/api/v1/rollout/rows?id=there&wave=1&limit=500&after="+first.Next, "", &second)
	if len(second.Rows) != 7 || second.Next != "" || second.Rows[0].Deployment <= first.Next {
		t.Errorf("the rest of the wave, after %q: %+v", first.Next, second)
	}
	for _, target := range []string{"/api/v1/rollout/rows?id=there&wave=-1", "/api/v1/rollout/rows?id=there&wave=x", "/api/v1/rollout/rows?id=there&wave=0&changes=true", "/api/v1/rollout/rows?id=there&changes=true&limit=21", "/api/v1/rollout/rows?id=there&limit=501", "/api/v1/rollout/rows?id=there&x=1", "/api/v1/rollout/status", "/api/v1/rollout/plan?id=", "/api/v1/blame?kind=site&ID=a", "/api/v1/retention?x=1"} {
		if code := call(t, liveHandler(f), "GET", target, "", nil); code != http.StatusBadRequest {
			t.Errorf("%s: status %d", target, code)
		}
	}
}

func TestRolloutsAreAListByState(t *testing.T) {
	t.Parallel()
	var page struct {
		Rows []struct{ ID, State, Reason, Message string }
	}
	call(t, liveHandler(&liveFake{}), "GET", "/api/v1/rollout/list?state=waiting", "", &page)
	if len(page.Rows) != 2 || page.Rows[0].Reason != "Paused" || page.Rows[0].Message != "paused by ann" {
		t.Errorf("rows: %+v", page.Rows)
	}
}

func TestViewsReadAsOfAMoment(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/api/v1/site/list?asOf=7", "/api/v1/site/count?asOf=7"} {
		f := &liveFake{sites: 1}
		if code := call(t, liveHandler(f), "GET", target, "", nil); code != http.StatusOK || f.asOf.Position != 7 {
			t.Errorf("%s: status %d, as of %v", target, code, f.asOf)
		}
		if code := call(t, liveHandler(f), "GET", target+"x", "", nil); code != http.StatusBadRequest {
			t.Errorf("%sx: status %d", target, code)
		}
	}
	var entity struct{ Can []string }
	if code := call(t, liveHandler(&liveFake{}), "GET", "/api/v1/template?id=t&asOf=7", "", &entity); code != http.StatusOK || len(entity.Can) != 0 {
		t.Errorf("a template as of the past: status %d, the caller may %q", code, entity.Can)
	}
}

func TestDifferencesOfMomentsAreBoundedAndAddUp(t *testing.T) {
	t.Parallel()
	f := &liveFake{}
	var diff struct {
		Groups []struct{ Count int }
		Other  int
	}
	code := call(t, liveHandler(f), "GET", "/api/v1/diff?kind=deployment&from=7&to=9&site-metadata=region=north", "", &diff)
	if code != http.StatusOK || len(diff.Groups) != 500 || diff.Other != 200 {
		t.Errorf("status %d, %d groups, %d other", code, len(diff.Groups), diff.Other)
	}
	want := tko.DiffRequest{From: tko.AsOf{Position: 7}, To: tko.AsOf{Position: 9}, Select: tko.PastSelect{Kind: tko.KindDeployment, SiteMetadata: map[string]string{"region": "north"}}}
	if diff := cmp.Diff(want, f.diff); diff != "" {
		t.Errorf("compared (-want +got):\n%s", diff)
	}
	for target, why := range map[string]string{
		"/api/v1/diff?kind=deployment":                           "there is no moment",
		"/api/v1/diff?from=7":                                    "there is no kind",
		"/api/v1/diff?kind=site&from=7&entity=a&id=b":            "an ID and a filter",
		"/api/v1/diff?kind=deployment&from=7&approved=true":      "flags can't be compared",
		"/api/v1/diff?kind=deployment&from=2999-01-01T00:00:00Z": "the future",
	} {
		if code := call(t, liveHandler(f), "GET", target, "", nil); code != http.StatusBadRequest {
			t.Errorf("%s: status %d (%s)", target, code, why)
		}
	}
	var kept struct {
		OldestPosition  webapi.Position
		NewestTimestamp int64
	}
	if call(t, liveHandler(f), "GET", "/api/v1/retention", "", &kept); kept.OldestPosition != 3 || kept.NewestTimestamp != 5000 {
		t.Errorf("retention: %+v", kept)
	}
	w := &workFake{head: 60, oldest: 1}
	w.changes = []tko.Change{{Position: 1, Time: time.UnixMilli(7000)}, {Position: 2, Time: time.UnixMilli(8000)}}
	var begun struct{ OldestTimestamp int64 }
	if call(t, workHandler(w), "GET", "/api/v1/retention", "", &begun); begun.OldestTimestamp != 7000 {
		t.Errorf("a server that has removed nothing: %+v, want the time of its first change", begun)
	}
	for asOf, ago := range map[string]time.Duration{"10m": 10 * time.Minute, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano): time.Hour} {
		var moment struct{ Now, AsOfTimestamp int64 }
		call(t, liveHandler(f), "GET", "/api/v1/retention?asOf="+url.QueryEscape(asOf), "", &moment)
		if got := moment.Now - moment.AsOfTimestamp - ago.Milliseconds(); got < -1000 || got > 10_000 {
			t.Errorf("asOf=%s: %+v, want %s before now", asOf, moment, ago)
		}
	}
}

func TestTheServerServesTheWordsOfFilters(t *testing.T) {
	t.Parallel()
	var me struct {
		Filters map[string][]string
		Flags   []string
	}
	call(t, liveHandler(&liveFake{}), "GET", "/api/v1/me", "", &me)
	if diff := cmp.Diff([]string{"id", "metadata", "updated-since"}, me.Filters["template"]); diff != "" || len(me.Flags) == 0 {
		t.Errorf("filters of templates (-want +got), flags %q:\n%s", me.Flags, diff)
	}
}
