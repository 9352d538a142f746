package webapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A wallFake is a fleet whose deployments may take time to list.
type wallFake struct {
	liveFake

	all         []tko.Site
	deployments []tko.Deployment
	every       time.Duration // between two deployments
	position    int64
	listed      int // how often sites were listed
}

func (f *wallFake) About(context.Context) (tko.About, error) {
	return tko.About{Position: f.position}, nil
}

func (f *wallFake) Sites(context.Context, tko.SiteSelect, tko.ListOptions) iter.Seq2[tko.Site, error] {
	f.listed++
	return func(yield func(tko.Site, error) bool) {
		for _, s := range f.all {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (f *wallFake) Deployments(ctx context.Context, _ tko.DeploymentSelect, _ tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	return func(yield func(tko.Deployment, error) bool) {
		for _, d := range f.deployments {
			if f.every > 0 {
				select {
				case <-time.After(f.every):
				case <-ctx.Done():
					yield(tko.Deployment{}, ctx.Err())
					return
				}
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}

func (f *wallFake) handler() http.Handler {
	return webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f}, webapi.LiveOptions{})
}

type wallGroup struct {
	Value  string
	Rest   bool
	States map[tko.State]int
	IDs    []string
	Tiles  string
	Places [][]float64
}

type wallPicture struct {
	Position         webapi.Position
	Time             int64
	Counting, Behind bool
	By               string
	Keys             []struct {
		Key           string
		Values, Sites int
	}
	States             []tko.State
	Groups             []wallGroup
	Without            int
	Sites, Deployments map[tko.State]int
	Failures           []struct {
		Reason, Message, Deployment, Site string
		Count                             int
		Since                             int64
	}
	Began               []int
	Earlier, Unapproved int
}

func wallOf(t *testing.T, h http.Handler, query, tag string) (code int, newTag string, p wallPicture) {
	t.Helper()
	r := httptest.NewRequestWithContext(identity.With(t.Context(), identity.Identity{Subject: "ann"}), http.MethodGet, "/api/v1/wall"+query, http.NoBody)
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code, w.Header().Get("ETag"), p
}

func stampOf(conditions ...tko.Condition) tko.Stamp {
	return tko.Stamp{Revision: 1, Conditions: conditions}
}

func is(typ, status, reason string, since time.Time) tko.Condition {
	return tko.Condition{Type: typ, Status: status, Reason: reason, Message: "message of " + reason, LastTransition: since, ObservedRevision: 1}
}

// wallSample has sites in all states, and deployments that change them.
func wallSample(now time.Time) *wallFake {
	up := []tko.Condition{is(tko.ConditionScheduled, tko.ConditionTrue, "Applied", now), is(tko.ConditionHealthy, tko.ConditionTrue, "Healthy", now)}
	site := func(id, region string, more map[string]string, conditions ...tko.Condition) tko.Site {
		s := tko.Site{ID: tko.SiteID(id), Metadata: map[string]string{"serial": id}, Stamp: stampOf(conditions...)}
		if region != "" {
			s.Metadata["region"] = region
		}
		maps.Copy(s.Metadata, more)
		return s
	}
	place := map[string]string{"latitude": "60.17", "longitude": "24.94"}
	return &wallFake{
		position: 7,
		all: []tko.Site{
			site("a", "north", place, up...),
			site("b", "north", map[string]string{"latitude": "91", "longitude": "1"}, up...),
			site("c", "south", nil, is(tko.ConditionScheduled, tko.ConditionFalse, "Unreachable", now)),
			site("d", "north", nil),
			site("e", "", nil, up...),
			site("f", "north", nil, is(tko.ConditionScheduled, tko.ConditionTrue, "Applied", now)),
		},
		deployments: []tko.Deployment{
			{ID: "1", Site: "b", Prepared: true, Approved: true, Stamp: stampOf(is(tko.ConditionHealthy, tko.ConditionFalse, "NotReady", now.Add(-10*time.Minute)))},
			{ID: "2", Site: "b", Prepared: true, Approved: true, Stamp: stampOf(is(tko.ConditionHealthy, tko.ConditionFalse, "NotReady", now.Add(-3*time.Hour)))},
			{ID: "3", Site: "a", Prepared: true, Approved: true, Stamp: stampOf(up...)},
			{ID: "4", Site: "e", Prepared: true},
			{ID: "5", Stamp: stampOf(is(tko.ConditionPrepared, tko.ConditionFalse, "PluginFailed", now.Add(-50*time.Hour)))},
			{ID: "6", Site: "gone", Prepared: true, Approved: true, Stamp: stampOf(up...)},
		},
	}
}

func TestWallShowsEachSiteInTheWorstStateOfItAndItsDeployments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, _, p := wallOf(t, wallSample(time.Now()).handler(), "?places=true", "")
		if p.Counting || p.Behind || p.Position != 7 || p.By != "region" {
			t.Errorf("%+v, want a complete picture by region", p)
		}
		want := []wallGroup{
			{Value: "north", States: map[tko.State]int{tko.StateHealthy: 1, tko.StateFailing: 1, tko.StateUnknown: 2}, IDs: []string{"a", "b", "d", "f"}, Tiles: "4033", Places: [][]float64{{60.17, 24.94}, {}, {}, {}}},
			{States: map[tko.State]int{tko.StateWaiting: 1}, IDs: []string{"e"}, Tiles: "1", Places: [][]float64{{}}},
			{Value: "south", States: map[tko.State]int{tko.StateFailing: 1}, IDs: []string{"c"}, Tiles: "0", Places: [][]float64{{}}},
		}
		if diff := cmp.Diff(want, p.Groups); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[tko.State]int{tko.StateFailing: 2, tko.StateWaiting: 1, tko.StateUnknown: 2, tko.StateHealthy: 1}, p.Sites); diff != "" {
			t.Errorf("sites (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[tko.State]int{tko.StateFailing: 3, tko.StateWaiting: 1, tko.StateHealthy: 2}, p.Deployments); diff != "" {
			t.Errorf("deployments (-want +got):\n%s", diff)
		}
		if !slices.Equal(p.States, tko.States()) || p.Unapproved != 1 || p.Earlier != 1 || len(p.Began) != 48 || p.Began[47] != 1 || p.Began[41] != 1 {
			t.Errorf("%+v: want failures that began 10 minutes, 3 hours and 50 hours ago", p)
		}
		if len(p.Failures) != 2 || p.Failures[0].Reason != "NotReady" || p.Failures[0].Count != 2 || p.Failures[0].Deployment != "2" || p.Failures[0].Site != "b" ||
			p.Failures[0].Since != time.Now().Add(-3*time.Hour).UnixMilli() {
			t.Errorf("why: %+v, want the deployment that has failed for longest as the example", p.Failures)
		}
	})
}

func TestWallIsGroupedByAnyMetadata(t *testing.T) {
	t.Parallel()
	f := &wallFake{position: 1}
	for i := range 500 {
		f.all = append(f.all, tko.Site{ID: tko.SiteID(fmt.Sprintf("s%03d", i)), Metadata: map[string]string{"serial": fmt.Sprintf("%03d", i), "tier": strconv.Itoa(i % 3), "tko.nephio.org/suspend": "true"}})
	}
	h := f.handler()
	_, _, p := wallOf(t, h, "", "")
	if p.By != "tier" || len(p.Groups) != 3 || len(p.Groups[0].IDs) != 167 || p.Groups[0].Places != nil {
		t.Errorf("by default: by %s in %d groups, want one of few values", p.By, len(p.Groups))
	}
	if len(p.Keys) != 2 || p.Keys[0].Key != "tier" || p.Keys[1].Key != "serial" || p.Keys[1].Values != 200 {
		t.Errorf("keys: %+v, want those that don't control TKO", p.Keys)
	}
	_, _, p = wallOf(t, h, "?by=serial", "")
	last := p.Groups[len(p.Groups)-1]
	if len(p.Groups) != 201 || !last.Rest || len(last.IDs) != 300 || !slices.IsSorted(last.IDs) || len(last.Tiles) != 300 {
		t.Errorf("by a serial number: %d groups, the last one is %+v", len(p.Groups), last)
	}
	_, _, p = wallOf(t, h, "?by=nothing", "")
	if len(p.Groups) != 1 || p.Groups[0].Value != "" || p.By != "nothing" || len(p.Groups[0].IDs) != 500 {
		t.Errorf("by a key that no site has: %d groups", len(p.Groups))
	}
}

// However clients group the sites, the fleet is counted once.
func TestWallsShareACount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := wallSample(time.Now())
		h := f.handler()
		for _, query := range []string{"", "?by=region", "?by=serial", "?places=true"} {
			if _, _, p := wallOf(t, h, query, ""); p.Counting || len(p.Groups) == 0 {
				t.Errorf("%q: %+v", query, p)
			}
		}
		if f.listed != 1 {
			t.Errorf("the sites were listed %d times", f.listed)
		}
	})
}

func TestWallOfAHugeFleetIsBoundedAndStatesIt(t *testing.T) {
	t.Parallel()
	f := &wallFake{position: 1}
	for i := range 100_003 {
		f.all = append(f.all, tko.Site{ID: tko.SiteID(fmt.Sprintf("s%06d", i))})
	}
	h := f.handler()
	var p wallPicture
	for p.Time == 0 || p.Counting {
		_, _, p = wallOf(t, h, "", "")
	}
	if p.Without != 3 || len(p.Groups) != 1 || len(p.Groups[0].IDs) != 100_000 || p.Sites[tko.StateUnknown] != 100_000 {
		t.Errorf("%d sites have no tile, %v have", p.Without, p.Sites)
	}
}

// Until the deployments are read, the picture has the sites' own states, and says so.
func TestWallShowsSitesBeforeDeploymentsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := wallSample(time.Now())
		f.every = 10 * time.Second
		h := f.handler()
		_, _, p := wallOf(t, h, "", "")
		if !p.Counting || !p.Behind || len(p.Groups) != 3 || p.Groups[0].Tiles != "4433" || len(p.Deployments) != 0 {
			t.Errorf("at first: %+v, want the sites, and that it is counting", p)
		}
		time.Sleep(2 * time.Minute)
		_, _, p = wallOf(t, h, "", "")
		if p.Counting || p.Groups[0].Tiles != "4033" {
			t.Errorf("then: %+v", p)
		}
	})
}

func TestWallIsSentOnlyIfItDiffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := wallSample(time.Now())
		h := f.handler()
		_, tag, _ := wallOf(t, h, "", "")
		for _, known := range []string{tag, strings.TrimSuffix(tag, `"`) + `-gzip"`} {
			if code, _, p := wallOf(t, h, "", known); code != http.StatusNotModified || len(p.Groups) != 0 {
				t.Errorf("If-None-Match: %s: status %d", known, code)
			}
		}
		f.deployments[2].Stamp.Conditions = []tko.Condition{is(tko.ConditionHealthy, tko.ConditionFalse, "NotReady", time.Now())}
		f.position++
		time.Sleep(time.Minute)
		code, other, p := wallOf(t, h, "", tag)
		if code != http.StatusOK || other == tag || p.Groups[0].Tiles != "0033" {
			t.Errorf("after a change: status %d, %+v", code, p)
		}
	})
}
