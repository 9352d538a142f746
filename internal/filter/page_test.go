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
	if _, _, ok := filter.ListPage("/sites/north/1", ""); ok {
		t.Error("the page of a site is a list")
	}
}
