package filter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

func TestPagesLeadNowhereElse(t *testing.T) {
	t.Parallel()
	for address, why := range map[string]string{
		"/": "", "/matrix": "", "/matrix?rows=region&cols=tier": "", "/changes?from=2h": "", "/deployments": "", "/sites/north/640?tab=why": "",
		"/deployments?state=failing&metadata=region%3Dnorth&cols=region&asOf=2h": "", "/rollouts/smf-v2": "", "/sites/a%2Fb": "",
		"/deployments?parent=core&within=site-metadata.region%3D": "", "/sites?within=metadata.region%3D": "", "/sites?within=site-metadata.region%3D": "use within=NAME=VALUE", "/sites?within=metadata.region": "use within=NAME=VALUE",
		"/sites?" + strings.Repeat("within=metadata.a%3D&", 9): "use at most 8",
		"//evil.example": "is not the path", "https://evil.example/": "is not the path", "evil": "is not the path", `/\evil.example`: "is not the path",
		"/deployments/../login": "is not the path", "/deployments/": "is not the path", "/\tevil": "is not the path", "/sites#x": "is not the path", "": "is not the path",
		"/login": "there is no page", "/auth/logout": "there is no page", "/api/v1/me": "there is no page", "/deployments?colour=red": `the parameter "colour" is unknown`,
		"/deployments?state=broken": "state=\"broken\" is unknown", "/sites?metadata=north": "has no key or pattern", "/sites?id=%zz": "its query",
		"/changes?" + strings.Repeat("a=b&", 101): "values: use at most 100", "/matrix?rows=" + strings.Repeat("x", 4096): "use at most 1024 and 4096", "/sites/" + strings.Repeat("x", 1024): "use at most 1024 and 4096",
	} {
		path, query, _ := strings.Cut(address, "?")
		err := filter.CheckPage(path, query)
		switch {
		case why == "" && err != nil:
			t.Errorf("%s: %v", address, err)
		case why != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), why)):
			t.Errorf("%s: %v, want %q", address, err, why)
		}
	}
}

func TestPagesOfListsHaveTheirFilters(t *testing.T) {
	t.Parallel()
	kind, filters, ok := filter.ListPage("/sites", "metadata=region%3Dnorth&cols=tier&asOf=2h&state=failing")
	if !ok || kind != tko.KindSite || filters.Encode() != "metadata=region%3Dnorth&state=failing" {
		t.Errorf("%s %s %v", kind, filters.Encode(), ok)
	}
	if cols, moment := filter.Columns("cols=tier,region&asOf=2h"), filter.Moment("cols=tier&asOf=2h"); len(cols) != 2 || cols[1] != "region" || moment != "2h" || filter.Moment("") != "" || len(filter.Columns("")) > 0 {
		t.Errorf("columns %q, moment %q", cols, moment)
	}
	if _, _, ok := filter.ListPage("/sites/north/1", ""); ok {
		t.Error("the page of a site is a list")
	}
}
