package filter_test

import (
	"context"
	"iter"
	"net/url"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// A site is a server with one site, at which two deployments are.
type site struct {
	filter.Lister
	filter.Getter
}

func (site) Sites(_ context.Context, _ tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error] {
	return func(yield func(tko.Site, error) bool) {
		s := tko.Site{ID: "lagos"}
		if o.Counts {
			s.DeploymentCount = 2
		}
		if yield(s, nil) {
			yield(tko.Site{}, tko.ErrUnavailable)
		}
	}
}

func (site) Site(_ context.Context, id tko.SiteID, _ int64) (tko.Site, error) {
	if id != "lagos" {
		return tko.Site{}, tko.NotFound(tko.KindSite, id)
	}
	return tko.Site{ID: id, Deployments: []tko.DeploymentID{"a", "b"}}, nil
}

func TestViewsShowNumbersOfDeploymentsAndErrors(t *testing.T) {
	t.Parallel()
	view := filter.View[int]{Site: func(s tko.Site) int { return s.DeploymentCount }}
	f, err := filter.Parse(tko.KindSite, url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	var last error
	for n, err := range view.List(t.Context(), site{}, f, tko.ListOptions{}) {
		counts, last = append(counts, n), err
	}
	if len(counts) != 2 || counts[0] != 2 || last == nil {
		t.Errorf("the list has %v, and the error %v", counts, last)
	}
	if n, err := view.Get(t.Context(), site{}, tko.KindSite, "lagos", 0); n != 2 || err != nil {
		t.Errorf("the site has %d deployments: %v", n, err)
	}
	if _, err := view.Get(t.Context(), site{}, tko.KindSite, "abuja", 0); err == nil {
		t.Error("a site that isn't there was shown")
	}
}
