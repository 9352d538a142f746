package monitoring_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// The queries that rollouts make of metrics, which a test of internal/rollout/spec writes, are
// valid, and about exactly the sites that they name: a harm of 2 % at changed sites is seen, in
// a bad night and in a good one, and the odd names of sites are no syntax.
func TestQueriesOfRolloutsSelectTheirSites(t *testing.T) {
	var queries []struct{ Name, Query string }
	decode(t, "testdata/queries.json", &queries)
	for night, base := range map[string]int{"a good night": 1, "a bad night": 50} { // errors of 100 requests
		var load strings.Builder
		load.WriteString("load 1m\n")
		for i := range 1000 {
			harm := 0
			if i < 500 { // changed
				harm = 2
			}
			region := "north"
			if i%4 == 0 {
				region = "noxth" // which the pattern no.th must not match
			}
			labels := fmt.Sprintf(`{site="lagos/edge-%d",region=%q}`, i, region)
			fmt.Fprintf(&load, "  errors_total%s 0+%dx10\n  requests_total%s 0+100x10\n", labels, base+harm, labels)
		}
		for _, site := range []string{`a"b`, `a\b`, "a.b", "axb", "ü|x", "ü", "x", "line\nbreak", "${1}", ""} {
			fmt.Fprintf(&load, "  odd{site=%s,n=\"1\"} 1x10\n", strconv.Quote(site))
		}
		want := map[string]float64{
			"changed": float64(base+2) / 100, "unchanged": float64(base) / 100, "region": 750, "odd": 6, "replaced": 1,
		}
		storage := promqltest.LoadedStorage(t, load.String())
		engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
		for _, q := range queries {
			query, err := engine.NewInstantQuery(context.Background(), storage, nil, q.Query, time.Unix(600, 0))
			if err != nil {
				t.Fatalf("%s: %v", q.Name, err)
			}
			result, err := query.Exec(context.Background()).Vector()
			if err != nil || len(result) != 1 || math.Abs(result[0].F-want[q.Name]) > 1e-9 {
				t.Errorf("%s, %s: %v, %v, want %v", night, q.Name, result, err, want[q.Name])
			}
			query.Close()
		}
		if len(queries) != len(want) {
			t.Errorf("there are %d queries, want %d", len(queries), len(want))
		}
		_ = storage.Close()
	}
}
