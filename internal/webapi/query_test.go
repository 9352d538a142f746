package webapi_test

import (
	"net/http"
	"testing"
)

// The first wrong parameter is named, with the remedy, in the order in which requests check
// them.
func TestWrongParametersAreNamed(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"/api/v1/site/list?state=x&limit=0":                 "state=\"x\" is unknown: use failing, waiting, working, healthy or unknown",
		"/api/v1/site/list?limit=0":                         "limit=0 is out of range: use 1 to 500",
		"/api/v1/site/list?limit=501":                       "limit=501 is out of range: use 1 to 500",
		"/api/v1/site/list?limit=x":                         "limit=\"x\" is not a number, or too large",
		"/api/v1/site/count?by=a,b,c&state=x":               "by=\"a,b,c\" has 3 keys: use one or two",
		"/api/v1/site/count?by=state,x&whole=1":             "by=\"x\" is unknown: use state, reason, template, site or metadata.KEY",
		"/api/v1/site/count?by=metadata.":                   "by=\"metadata.\" is unknown: use state, reason, template, site or metadata.KEY",
		"/api/v1/site/count?whole=1&state=x":                "whole=\"1\" is no boolean: use true or false",
		"/api/v1/site/count?whole=true&after=a&state=x":     "whole=true counts everything: leave out after",
		"/api/v1/site/count?state=x":                        "state=\"x\" is unknown: use failing, waiting, working, healthy or unknown",
		"/api/v1/site?x=1":                                  "the parameter \"x\" is unknown: use id, revision, asOf",
		"/api/v1/site?revision=x":                           "there is no ID: add ?id=ID",
		"/api/v1/site?id=s&revision=x":                      "revision=\"x\" is not a number, or too large",
		"/api/v1/plugin?id=a%7Cb&revision=1":                "plugins have no earlier revisions here: leave out revision",
		"/api/v1/retention?x=1":                             "the parameter \"x\" is unknown: use asOf",
		"/api/v1/openapi.json?x=1":                          "the parameter \"x\" is unknown: this request has none",
		"/api/v1/fleet?x=1":                                 "the parameter \"x\" is unknown: use asOf",
		"/api/v1/wall?x=1":                                  "the parameter \"x\" is unknown: use by, places, tiles, asOf",
		"/api/v1/wall?places=x":                             "places=\"x\" is unknown: use true or false",
		"/api/v1/throughput?x=1":                            "the parameter \"x\" is unknown: use after",
		"/api/v1/throughput?after=x":                        "after=\"x\" is not a number, or too large",
		"/api/v1/history?id=a&limit=201":                    "limit=201 is out of range: use 1 to 200",
		"/api/v1/history?kind=site":                         "there is no ID: add &id=ID",
		"/api/v1/history?id=a&x=1":                          "the parameter \"x\" is unknown: use kind, id, limit",
		"/api/v1/runs?x=1":                                  "the parameter \"x\" is unknown: use kind, id",
		"/api/v1/stream?after=x&kind=y":                     "after=\"x\" is not a number, or too large",
		"/api/v1/stream?kind=y":                             "the kind \"y\" is unknown: use deployment, site, template or plugin",
		"/api/v1/blame?x=1":                                 "the parameter \"x\" is unknown: use kind, id, revision, field, history",
		"/api/v1/blame?revision=x&history=y":                "revision=\"x\" is not a number, or too large",
		"/api/v1/blame?history=y":                           "history is \"y\": use true or false",
		"/api/v1/rollout/status":                            "there is no ID: add ?id=ID",
		"/api/v1/rollout/status?id=r&x=1":                   "the parameter \"x\" is unknown: use id",
		"/api/v1/rollout/plan":                              "there is no ID: add ?id=ID",
		"/api/v1/rollout/rows?x=1":                          "the parameter \"x\" is unknown: use id, group, wave, kind, progress, site, deployment, after, limit, changes",
		"/api/v1/rollout/rows?changes=y":                    "there is no ID: add ?id=ID",
		"/api/v1/rollout/rows?id=r&changes=y&limit=0":       "changes=\"y\" is unknown: use true or false",
		"/api/v1/rollout/rows?id=r&changes=true&limit=21":   "limit=21 is out of range: use 1 to 20",
		"/api/v1/rollout/rows?id=r&changes=false&limit=501": "limit=501 is out of range: use 1 to 500",
		"/api/v1/rollout/rows?id=r&limit=0&group=x":         "limit=0 is out of range: use 1 to 500",
		"/api/v1/rollout/rows?id=r&group=x":                 "group=\"x\" is not a number, or too large",
	}
	h := workHandler(&workFake{})
	for target, want := range tests {
		var body struct {
			Error string `json:"error"`
		}
		if status := call(t, h, http.MethodGet, target, "", &body); status != http.StatusBadRequest || body.Error != want {
			t.Errorf("%s: %d %q, want 400 %q", target, status, body.Error, want)
		}
	}
}
