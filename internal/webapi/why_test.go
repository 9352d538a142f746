package webapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A reasoner is a catalog that explains.
type reasoner struct {
	*fake
	asked []any
}

func (r *reasoner) Blame(_ context.Context, request tko.BlameRequest) (tko.Blame, error) {
	r.asked = append(r.asked, request)
	if request.ID != "there" {
		return tko.Blame{}, tko.NotFound(request.Kind, request.ID)
	}
	origin := tko.Origin{Source: tko.SourceTemplate, Revision: 1, Time: at, Template: "t:v1", TemplateRevision: 2}
	if request.History {
		return tko.Blame{Changes: []tko.FieldChange{{Resource: "r", Path: "p", After: "1", Origin: origin, Upstream: []tko.Origin{{Source: tko.SourceEdit, Time: at}}}}}, nil
	}
	return tko.Blame{Kind: request.Kind, ID: request.ID, Revision: 3, Origins: []tko.Origin{origin}, Fields: []tko.BlamedField{{Resource: "r", Path: "p", Value: "1"}, {Resource: "s", Path: "q", Hidden: true}}}, nil
}

func (r *reasoner) ExplainSite(_ context.Context, request tko.SiteExplanationRequest) (tko.SiteExplanation, error) {
	r.asked = append(r.asked, request)
	return tko.SiteExplanation{Site: request.Site, Placements: []tko.PlacementExplanation{{Placement: "p", Unmet: []tko.UnmetCondition{{Field: "metadata.region", Wanted: "north"}}}}}, nil
}

func (r *reasoner) TemplateImpact(_ context.Context, request tko.TemplateImpactRequest) (tko.TemplateImpact, error) {
	r.asked = append(r.asked, request)
	return tko.TemplateImpact{Template: request.Template, Deployments: 2, Groups: []tko.ImpactGroup{{Kind: "Change", Deployments: 2, Changes: []tko.RolloutChange{{Resource: "r", Path: "p", Before: "1", After: "2"}}}}}, nil
}

func (r *reasoner) CompareSite(_ context.Context, id tko.SiteID) (tko.SiteComparison, error) {
	r.asked = append(r.asked, id)
	if id != "s" {
		return tko.SiteComparison{}, tko.Errorf(tko.ErrUnavailable, "no meta-scheduler compared it")
	}
	return tko.SiteComparison{Site: id, Time: at, Changes: []tko.SiteChange{{Target: "t", Verb: tko.SiteUpdate, Object: "o", Deployment: "d", Details: []string{"x"}}}}, nil
}

func TestExplanationsOverHTTP(t *testing.T) {
	t.Parallel()
	r := &reasoner{fake: &fake{}}
	handler := webapi.New(r, nil, nil)
	const origin = `{"source":"template","revision":1,"time":"2023-11-14T22:13:20.123Z","who":"","why":"","template":"t:v1","templateRevision":2}`
	for url, want := range map[string]string{
		"/api/blame?kind=deployment&id=there&field=r":              `{"kind":"deployment","id":"there","revision":3,"fields":[{"resource":"r","path":"p","value":"1","origin":` + origin + `},{"resource":"s","path":"q","hidden":true,"origin":` + origin + `}]}`,
		"/api/blame?kind=deployment&id=there&field=r&history=true": `{"kind":"","id":"","revision":0,"changes":[{"resource":"r","path":"p","before":"","after":"1","origin":` + origin + `,"upstream":{"source":"edit","revision":0,"time":"2023-11-14T22:13:20.123Z","who":"","why":""}}]}`,
		"/api/blame?kind=site&id=nowhere":                          `{"error":"site \"nowhere\": not found"}`,
		"/api/blame?kind=site&id=there&history=maybe":              `{"error":"history is \"maybe\": use true or false"}`,
		"/api/site/explain?id=s&deployment=d":                      `{"site":"s","placements":[{"placement":"p","template":"","sites":"","selected":false,"unmet":[{"field":"metadata.region","wanted":"north"}],"deployments":[],"note":""}]}`,
		"/api/site/diff?id=s":                                      `{"site":"s","time":"2023-11-14T22:13:20.123Z","changes":[{"target":"t","verb":"update","object":"o","deployment":"d","details":["x"]}],"more":0,"problems":[],"orphans":[],"moreOrphans":0,"unsearched":[]}`,
		"/api/site/diff?id=away":                                   `{"error":"no meta-scheduler compared it"}`,
		"/api/template/impact?id=t:v1":                             `{"template":"t:v1","revision":0,"deployments":2,"deploymentSites":0,"sites":0,"revisions":[],"topologies":[],"rollouts":[],"groups":[{"kind":"Change","deployments":2,"examples":[],"changes":[{"resource":"r","path":"p","before":"1","after":"2"}],"moreChanges":0,"conflicts":[]}],"same":0,"unknown":0,"more":false}`,
	} {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
		if diff := cmp.Diff(want, strings.TrimSpace(recorder.Body.String())); diff != "" {
			t.Errorf("%s: %s", url, diff)
		}
	}
	if len(r.asked) != 7 {
		t.Errorf("asked %v", r.asked)
	}
}
