package webapi_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A groupFake is a fleet whose deployments are selected only by their templates, their sites and
// the region of these, and only by literal patterns.
type groupFake struct {
	wallFake

	selects []tko.DeploymentSelect
	listing int          // lists of deployments that have not ended
	nested  bool         // sites were listed meanwhile
	read    []tko.SiteID // by selections of sites
}

func (f *groupFake) Sites(_ context.Context, sel tko.SiteSelect, _ tko.ListOptions) iter.Seq2[tko.Site, error] {
	return func(yield func(tko.Site, error) bool) {
		f.nested = f.nested || f.listing > 0
		for _, s := range f.all {
			if len(sel.IDs) > 0 && !slices.Contains(sel.IDs, tko.LiteralPattern(string(s.ID))) {
				continue
			}
			f.read = append(f.read, s.ID)
			if len(sel.IDs) > 100 || !yield(s, nil) {
				return
			}
		}
	}
}

func (f *groupFake) Deployments(_ context.Context, sel tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	f.selects = append(f.selects, sel)
	regions := map[tko.SiteID]string{}
	for _, s := range f.all {
		regions[s.ID] = s.Metadata["region"]
	}
	return func(yield func(tko.Deployment, error) bool) {
		f.listing++
		defer func() { f.listing-- }()
		n := 0
		for _, d := range f.deployments {
			if o.Window.Max != nil && n == *o.Window.Max {
				return
			}
			region, byRegion := sel.SiteMetadata["region"]
			switch {
			case string(d.ID) <= o.Window.After, len(sel.Sites) > 0 && sel.Sites[0] != string(d.Site), byRegion && region != regions[d.Site], len(sel.Templates) > 0 && sel.Templates[0] != tko.LiteralPattern(string(d.Template)):
			case !yield(d, nil):
				return
			default:
				n++
			}
		}
	}
}

func (f *groupFake) handler() http.Handler {
	return webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f}, webapi.LiveOptions{})
}

// groupSample has deployments of two templates at sites in two regions and without one.
func groupSample() *groupFake {
	f := &groupFake{}
	f.position = 1
	for _, s := range [][2]string{{"a", "north"}, {"b", "south"}, {"c", ""}} {
		site := tko.Site{ID: tko.SiteID(s[0]), Metadata: map[string]string{"tier": "1"}}
		if s[1] != "" {
			site.Metadata["region"] = s[1]
		}
		f.all = append(f.all, site)
	}
	for i := range 30 {
		d := tko.Deployment{ID: tko.DeploymentID(fmt.Sprintf("d%02d", i)), Template: "t*", Site: tko.SiteID("abc"[i%3 : i%3+1])}
		if i%2 == 1 {
			d.Template = ""
		}
		if i%5 == 0 {
			d.Stamp = stampOf(is(tko.ConditionPrepared, tko.ConditionFalse, "PluginFailed", time.Unix(1, 0)))
		}
		f.deployments = append(f.deployments, d)
	}
	f.deployments = append(f.deployments, tko.Deployment{ID: "e", Template: "t*", Site: "hidden"})
	return f
}

type groupCount struct {
	Counted  int
	Counting bool
	Groups   []struct {
		Keys   []string
		Count  int
		States map[tko.State]int
	}
	Next string
}

func (c groupCount) counts() map[string]int {
	counts := map[string]int{}
	for _, g := range c.Groups {
		counts[strings.Join(g.Keys, "|")] = g.Count
	}
	return counts
}

func TestDeploymentsAreGroupedByTheMetadataOfTheirSites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := groupSample()
		h := f.handler()
		for target, want := range map[string]map[string]int{
			"by=site-metadata.region":                                          {"north": 10, "south": 10, "": 11},
			"by=template,site-metadata.region":                                 {"t*|north": 5, "|north": 5, "t*|south": 5, "|south": 5, "t*|": 6, "|": 5},
			"by=site-metadata.region&within=template=t*":                       {"north": 5, "south": 5, "": 6},
			"by=site-metadata.region&within=template=":                         {"north": 5, "south": 5, "": 5},
			"by=template&within=site-metadata.region=":                         {"t*": 6, "": 5},
			"by=template&within=site-metadata.region=north":                    {"t*": 5, "": 5},
			"by=site&within=site-metadata.region=&within=template=t*":          {"c": 5, "hidden": 1},
			"by=state&within=template=t*&within=site-metadata.region=north":    {"failing": 1, "working": 4},
			"by=template&within=template=t*&within=template=":                  {},
			"by=template&within=state=failing&within=site-metadata.region=":    {"t*": 1, "": 1},
			"by=site-metadata.region&within=reason=PluginFailed&within=site=a": {"north": 2},
		} {
			for _, whole := range []string{"", "&whole=true"} {
				var count groupCount
				if code := call(t, h, "GET", "/api/v1/deployment/count?"+target+whole, "", &count); code != http.StatusOK || count.Counting || count.Next != "" {
					t.Errorf("%s%s: status %d, %+v", target, whole, code, count)
				}
				if diff := cmp.Diff(want, count.counts()); diff != "" {
					t.Errorf("%s%s (-want +got):\n%s", target, whole, diff)
				}
			}
		}
	})
}

// The list of a group has as many entities as the count of that group, over all pages.
func TestListOfAGroupHasWhatItsCountHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := groupSample()
		h := f.handler()
		var count groupCount
		call(t, h, "GET", "/api/v1/deployment/count?by=template,site-metadata.region&whole=true", "", &count)
		for _, g := range count.Groups {
			group := url.Values{"within": {"template=" + g.Keys[0], "site-metadata.region=" + g.Keys[1]}, "limit": {"2"}}
			seen, after := map[string]bool{}, ""
			for range 20 {
				var page struct {
					Rows []struct{ ID string }
					Next string
				}
				if code := call(t, h, "GET", "/api/v1/deployment/list?"+group.Encode()+"&after="+after, "", &page); code != http.StatusOK || len(page.Rows) > 2 {
					t.Fatalf("%q: status %d, %d rows", g.Keys, code, len(page.Rows))
				}
				for _, r := range page.Rows {
					seen[r.ID] = true
				}
				after = page.Next
				if after == "" {
					break
				}
			}
			if len(seen) != g.Count {
				t.Errorf("the list of %q has %v, its count %d", g.Keys, slices.Sorted(maps.Keys(seen)), g.Count)
			}
		}
	})
}

// A group that the catalog can select isn't read in full.
func TestGroupsAreSelectedByTheCatalogWhereItCan(t *testing.T) {
	t.Parallel()
	f := groupSample()
	var page struct{ Rows []struct{ ID string } }
	call(t, f.handler(), "GET", "/api/v1/deployment/list?within=template=t*&within=site-metadata.region=north&parent=p", "", &page)
	want := tko.DeploymentSelect{Parent: "p", Templates: []string{`t\*`}, SiteMetadata: map[string]string{"region": "north"}}
	if diff := cmp.Diff([]tko.DeploymentSelect{want}, f.selects); diff != "" {
		t.Errorf("selections (-want +got):\n%s", diff)
	}
}

// A page of the group without a value reads the sites of its own deployments: not all that have
// the key, of which there may be more than a count of the whole joins.
func TestAPageOfAGroupWithoutAValueReadsItsOwnSitesOnly(t *testing.T) {
	t.Parallel()
	f := &groupFake{}
	f.position = 1
	for i := range 2000 {
		site := tko.Site{ID: tko.SiteID(fmt.Sprintf("s*%04d", i)), Metadata: map[string]string{"region": "north"}}
		if i%50 == 0 {
			delete(site.Metadata, "region")
		}
		f.all = append(f.all, site)
	}
	for i := range 250 {
		f.deployments = append(f.deployments, tko.Deployment{ID: tko.DeploymentID(fmt.Sprintf("d%04d", i)), Template: "t", Site: f.all[i].ID})
	}
	f.deployments = append(f.deployments, tko.Deployment{ID: "e", Template: "t"})
	h := f.handler()
	var page struct {
		Rows []struct{ ID string }
		Next string
	}
	call(t, h, "GET", "/api/v1/deployment/list?within=site-metadata.region=&limit=2", "", &page)
	if len(page.Rows) != 2 || page.Rows[0].ID != "d0000" || page.Rows[1].ID != "d0050" || page.Next == "" {
		t.Errorf("the first page is %+v", page)
	}
	if len(f.read) > 200 {
		t.Errorf("the first page reads %d sites", len(f.read))
	}
	page.Next = ""
	call(t, h, "GET", "/api/v1/deployment/list?within=site-metadata.region=&limit=100", "", &page)
	if len(page.Rows) != 6 || page.Rows[5].ID != "e" || page.Next != "" {
		t.Errorf("the whole list is %+v", page)
	}
	f.read = nil
	var count groupCount
	call(t, h, "GET", "/api/v1/deployment/count?by=site-metadata.region", "", &count)
	if diff := cmp.Diff(map[string]int{"north": 245, "": 6}, count.counts()); diff != "" {
		t.Errorf("count (-want +got):\n%s", diff)
	}
	if len(f.read) != 250 {
		t.Errorf("a page of a count reads %d sites, of 250 that its deployments are at", len(f.read))
	}
	if f.nested {
		t.Error("sites are listed while a list of deployments holds its connection")
	}
}

func TestUnknownGroupsAreRefused(t *testing.T) {
	t.Parallel()
	h := groupSample().handler()
	for target, why := range map[string]string{
		"/api/v1/site/count?by=site-metadata.region":                         "sites have metadata of their own",
		"/api/v1/deployment/count?by=site-metadata.":                         "there is no key",
		"/api/v1/deployment/list?within=template":                            "there is no value",
		"/api/v1/deployment/list?within=":                                    "there is no name",
		"/api/v1/deployment/list?within=region=north":                        "there is no such name",
		"/api/v1/deployment/list?" + strings.Repeat("within=template=t&", 9): "the number is bounded",
		"/api/v1/wall?tiles=false&places=true":                               "places are those of tiles",
		"/api/v1/wall?tiles=maybe":                                           "it is no boolean",
	} {
		var body struct{ Error string }
		if code := call(t, h, "GET", target, "", &body); code != http.StatusBadRequest || body.Error == "" {
			t.Errorf("%s: status %d, %q (%s)", target, code, body.Error, why)
		}
	}
}

// Without tiles a picture has the same numbers, and nothing whose size grows with the fleet.
func TestWallWithoutTilesHasTheNumbersOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := wallSample(time.Now()).handler()
		_, _, full := wallOf(t, h, "", "")
		_, _, p := wallOf(t, h, "?tiles=false", "")
		for i := range full.Groups {
			full.Groups[i].IDs, full.Groups[i].Tiles = []string{}, ""
		}
		if diff := cmp.Diff(full, p); diff != "" {
			t.Errorf("(-with tiles +without):\n%s", diff)
		}
	})
}
