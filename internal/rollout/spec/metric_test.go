package spec_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// withMetrics returns the package of a rollout with metrics, in YAML of one line.
func withMetrics(t *testing.T, metrics, more string) krm.Package {
	t.Helper()
	text := fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{delete: {}, select: {templateIdPatterns: [x]}}], health: {metrics: %s}%s}\n", metrics, more)
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const errorsMetric = `{name: errors, prometheus: {url: "https://p.example.net", query: 'sum(rate(errors{site=~"${site}"}[5m]))'}, compare: {to: unchanged, maxPercent: 10}}`

func TestMetricsAreRead(t *testing.T) {
	t.Parallel()
	parsed, err := spec.Parse(withMetrics(t, "["+errorsMetric+`, {name: load, every: 30s, for: 2m, timeout: 5s, noData: Wait,
  prometheus: {url: "http://localhost:9090/sub", token: "env:T", query: 'avg(load{r=~"${metadata.region}",i=~"${site}"})'}, compare: {to: value, max: 0.5, min: -1}}]`, ""))
	if err != nil {
		t.Fatal(err)
	}
	ten, half, low := 10.0, 0.5, -1.0
	want := []spec.Metric{{
		Name: "errors", URL: "https://p.example.net", Query: `sum(rate(errors{site=~"${site}"}[5m]))`, Compare: spec.Compare{To: spec.ToUnchanged, MaxPercent: &ten},
		Every: time.Minute, Timeout: 30 * time.Second, NoData: spec.NoDataPause,
	}, {
		Name: "load", URL: "http://localhost:9090/sub", Token: "env:T", Query: `avg(load{r=~"${metadata.region}",i=~"${site}"})`, Compare: spec.Compare{To: spec.ToValue, Max: &half, Min: &low},
		Every: 30 * time.Second, For: 2 * time.Minute, Timeout: 5 * time.Second, NoData: spec.NoDataWait,
	}}
	if diff := cmp.Diff(want, parsed.Health.Metrics); diff != "" {
		t.Error(diff)
	}
	if keys := parsed.Keys(); len(keys) != 1 || keys[0].Name != "region" || keys[0].Path != "spec.health.metrics[1].prometheus.query" {
		t.Errorf("keys of metadata: %+v", keys)
	}
}

func TestMetricsThatDecideNothingAreRefused(t *testing.T) {
	t.Parallel()
	metric := func(from, to string) string {
		if !strings.Contains(errorsMetric, from) {
			panic(from)
		}
		return "[" + strings.Replace(errorsMetric, from, to, 1) + "]"
	}
	tests := map[string]struct{ metrics, more, want string }{
		"no bound":                      {metric(", maxPercent: 10", ""), "", "has no bound"},
		"a bound of another kind":       {metric("maxPercent", "max"), "", "use maxDifference, minDifference, maxPercent or minPercent"},
		"bounds that nothing is in":     {metric("maxPercent: 10", "maxPercent: 1, minPercent: 2"), "", "no value is good"},
		"nothing to compare with":       {metric("to: unchanged, ", ""), "", "compare.to"},
		"no variable":                   {metric(`{site=~"${site}"}`, ""), "", "the same value for changed and unchanged sites"},
		"a variable in an equality":     {metric(`=~"${site}"`, `="${site}"`), "", "where it can't be"},
		"a part of a pattern":           {metric(`"${site}"`, `"x-${site}"`), "", "where it can't be"},
		"an unknown variable":           {metric("${site}", "${sites}"), "", "unknown variable ${sites}"},
		"metadata without a key":        {metric("${site}", "${metadata.}"), "", "unknown variable"},
		"a URL with a password":         {metric("https://p", "https://u:secret@p"), "", "contains credentials"},
		"another scheme":                {metric("https://p.example.net", "file:///etc/passwd"), "", "is not a URL of http or https"},
		"a secret in place of its name": {metric("query:", "token: s3cret, query:"), "", "is no reference"},
		"a secret without TLS":          {metric("https://p.example.net\", ", `http://p.example.net", token: "env:T", `), "", "over TLS only"},
		"a token and a user":            {metric("query:", `token: "env:T", username: u, query:`), "", "remove one"},
		"too often":                     {metric("name: errors", "name: errors, every: 1s"), "", "every"},
		"too long":                      {metric("name: errors", "name: errors, timeout: 1h"), "", "at most 5m0s"},
		"a misspelled field":            {metric("compare:", "compared:"), "", "did you mean compare?"},
		"the same name twice":           {"[" + errorsMetric + "," + errorsMetric + "]", "", "two metrics are called"},
		"failures that are ignored":     {"[" + errorsMetric + "]", ", onFailure: Continue", "the metrics would decide nothing"},
		"not a number":                  {metric("maxPercent: 10", "maxPercent: \"10\""), "", "must be a number"},
		"none":                          {"[]", "", "the list is empty"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := spec.Parse(withMetrics(t, test.metrics, test.more))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "u:secret")) {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

// What a variable becomes matches the values of the sites, and nothing else.
func TestVariablesMatchExactlyTheSites(t *testing.T) {
	t.Parallel()
	m := spec.Metric{Query: `a{s=~"${site}"} + label_replace(b{r=~"${metadata.r}"}, "x", "${1}", "y", "(.*)")`}
	values := []string{"lagos/edge-1", "a.b", "a+b", `quo"te`, `back\slash`, "ümlaut", "x|y", "$HOME", "new\nline", "{}", "${1}"}
	var sites []spec.Measured
	for _, v := range values {
		sites = append(sites, spec.Measured{ID: v, Metadata: map[string]string{"r": "north"}})
	}
	query := m.Expand(sites)
	if !strings.Contains(query, `b{r=~"north"}`) || !strings.Contains(query, `"${1}"`) {
		t.Errorf("%s", query)
	}
	literal := regexp.MustCompile(`^a\{s=~("(?:[^"\\]|\\.)*")\}`).FindStringSubmatch(query)
	if literal == nil {
		t.Fatalf("%s", query)
	}
	var pattern string
	if _, err := fmt.Sscanf(literal[1], "%q", &pattern); err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile("^(?:" + pattern + ")$")
	for _, v := range values {
		if !all.MatchString(v) {
			t.Errorf("%q doesn't match %s", v, pattern)
		}
	}
	for _, v := range []string{"axb", "x", "y", "aab", "lagos/edge-12", "", "}"} {
		if all.MatchString(v) {
			t.Errorf("%q matches %s", v, pattern)
		}
	}
}

// The queries of tools/monitoring/testdata/queries.json are tried there with the engine of
// Prometheus.
func TestQueriesForTheEngineOfPrometheus(t *testing.T) {
	t.Parallel()
	site := func(id, region string) spec.Measured {
		return spec.Measured{ID: id, Metadata: map[string]string{"region": region}}
	}
	share := `sum(rate(errors_total{site=~"${site}"}[5m])) / sum(rate(requests_total{site=~"${site}"}[5m]))`
	cases := []map[string]string{}
	add := func(name, query string, sites ...spec.Measured) {
		cases = append(cases, map[string]string{"name": name, "query": spec.Metric{Query: query}.Expand(sites)})
	}
	var changed, unchanged []spec.Measured
	for i := range 1000 {
		if s := site(fmt.Sprintf("lagos/edge-%d", i), "north"); i < spec.MaxMeasured {
			changed = append(changed, s)
		} else {
			unchanged = append(unchanged, s)
		}
	}
	add("changed", share, changed...)
	add("unchanged", share, unchanged...)
	add("region", `count(requests_total{region=~"${metadata.region}"})`, site("x", "north"), site("y", "no.th"))
	add("odd", `count(odd{site=~"${site}"})`, site(`a"b`, ""), site(`a\b`, ""), site("a.b", ""), site("ü|x", ""), site("line\nbreak", ""), site("${1}", ""))
	add("replaced", `count(label_replace(odd{site=~"${site}"}, "copy", "${1}", "site", "(.*)"))`, site("a.b", ""))
	text, err := json.MarshalIndent(cases, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "../../../tools/monitoring/testdata/queries.json"
	if *update {
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(text)); diff != "" {
		t.Errorf("%s differs: run this test with -update\n%s", file, diff)
	}
}

var update = flag.Bool("update", false, "write the files that tests compare with")
