package monitoring_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const folder = "../../deploy/monitoring"

// A metric is an entry of metrics.json, which a test of cmd/tko-server compares with a
// real server.
type metric struct {
	Type   string   `json:"type"`
	Labels []string `json:"labels"`
}

func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	decode(t, filepath.Join(folder, "metrics.json"), &all)
	return all
}

func decode(t *testing.T, path string, to any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// targetLabels are those that Prometheus adds.
var targetLabels = []string{"job", "instance"}

// check parses an expression, and reports metrics and labels that no server exports.
func check(t *testing.T, where, text string, exported map[string]metric) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %q: %v", where, text, err)
		return
	}
	var known []string // labels of the metrics of the expression
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		if selector.Name == "up" { // Prometheus' own
			known = append(known, targetLabels...)
			return nil
		}
		m, suffix := find(exported, selector.Name)
		if m == nil {
			t.Errorf("%s: no server exports %s", where, selector.Name)
			return nil
		}
		own := slices.Concat(m.Labels, targetLabels)
		if suffix == "_bucket" {
			own = append(own, "le")
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != labels.MetricName && !slices.Contains(own, matcher.Name) {
				t.Errorf("%s: %s has no label %s", where, selector.Name, matcher.Name)
			}
		}
		known = append(known, own...)
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		var names []string
		switch n := node.(type) {
		case *parser.AggregateExpr:
			names = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = n.VectorMatching.MatchingLabels
			}
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				t.Errorf("%s: no metric of %q has the label %s", where, text, name)
			}
		}
		return nil
	})
}

// find returns the metric of a name in an expression.
func find(exported map[string]metric, name string) (m *metric, suffix string) {
	if m, ok := exported[name]; ok && m.Type != "histogram" {
		return &m, ""
	}
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			if m, ok := exported[base]; ok && m.Type == "histogram" {
				return &m, suffix
			}
		}
	}
	return nil, ""
}

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(folder, "alerts.yaml"), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func TestAlertsUseMetricsOfTheServer(t *testing.T) {
	exported := metrics(t)
	for _, rule := range rules(t) {
		check(t, rule.Alert, rule.Expr, exported)
		if len(rule.Annotations["runbook"]) < 50 || rule.Annotations["summary"] == "" || !slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]) {
			t.Errorf("%s needs a summary, a runbook and a severity", rule.Alert)
		}
	}
}

func TestDashboardsUseMetricsOfTheServer(t *testing.T) {
	exported := metrics(t)
	files, err := filepath.Glob(filepath.Join(folder, "dashboard-*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	// What Grafana replaces before it queries.
	replace := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	for _, file := range files {
		var dashboard struct {
			UID, Title string
			Templating struct {
				List []struct{ Name, Query string }
			}
			Panels []struct {
				ID      int
				Title   string
				Type    string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ Expr string }
			}
		}
		decode(t, file, &dashboard)
		if dashboard.UID == "" || dashboard.Title == "" || len(dashboard.Panels) == 0 {
			t.Errorf("%s is no dashboard", file)
		}
		ids := map[int]bool{}
		for _, p := range dashboard.Panels {
			if ids[p.ID] || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: panel %q has a bad ID or position", file, p.Title)
			}
			ids[p.ID] = true
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s: panel %q shows nothing", file, p.Title)
			}
			for _, target := range p.Targets {
				check(t, file+" "+p.Title, replace.Replace(target.Expr), exported)
			}
		}
		for _, v := range dashboard.Templating.List {
			if m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query); m != nil {
				check(t, file, m[1]+"{"+m[2]+"=~\".*\"}", exported)
			}
		}
	}
}

// Each alert fires on series of a problem, after its time, and not on series without.
func TestAlertsFire(t *testing.T) {
	const on = `{instance="a:50057",job="tko"}`
	cases := map[string]struct{ bad, good string }{
		"TKOServerDown":            {`up` + on + ` 0x60`, `up` + on + ` 1x60`},
		"TKOServersAbsent":         {`up` + on + ` 0x60`, `tko_build_info` + on + ` 1x60`},
		"TKODatabaseDown":          {`tko_store_up` + on + ` 0x60`, `tko_store_up` + on + ` 1x60`},
		"TKODatabaseDiskFull":      {`tko_store_disk_full` + on + ` 1x60`, `tko_store_disk_full` + on + ` 0x60`},
		"TKODiskLow":               {`tko_disk_free_bytes{folder="database"} 10x60` + "\n" + `tko_disk_size_bytes{folder="database"} 100x60`, `tko_disk_free_bytes{folder="database"} 50x60` + "\n" + `tko_disk_size_bytes{folder="database"} 100x60`},
		"TKODiskFullSoon":          {`tko_disk_free_bytes{folder="database"} 20000-100x120`, `tko_disk_free_bytes{folder="database"} 2000000-100x120`},
		"TKOWorkOld":               {`tko_work_oldest_age_seconds{queue="prepare"} 0+60x60`, `tko_work_oldest_age_seconds{queue="prepare"} 5x60`},
		"TKOWorkFails":             {`tko_work_duration_seconds_count{queue="prepare",result="failed"} 0+60x60` + "\n" + `tko_work_duration_seconds_count{queue="prepare",result="done"} 0+10x60`, `tko_work_duration_seconds_count{queue="prepare",result="failed"} 0+10x60` + "\n" + `tko_work_duration_seconds_count{queue="prepare",result="done"} 0+60x60`},
		"TKOLeasesLost":            {`tko_leases_lost_total{queue="prepare"} 0+60x60`, `tko_leases_lost_total{queue="prepare"} 0x60`},
		"TKOErrors":                {`tko_api_requests_total{api="http",code="503"} 0+60x60` + "\n" + `tko_api_requests_total{api="http",code="200"} 0+600x60`, `tko_api_requests_total{api="http",code="404"} 0+60x60` + "\n" + `tko_api_requests_total{api="http",code="200"} 0+600x60`},
		"TKOSlow":                  {`tko_api_request_duration_seconds_bucket{api="grpc",method="tko.Data/GetSite",le="1"} 0x60` + "\n" + `tko_api_request_duration_seconds_bucket{api="grpc",method="tko.Data/GetSite",le="2.5"} 0+60x60` + "\n" + `tko_api_request_duration_seconds_bucket{api="grpc",method="tko.Data/GetSite",le="+Inf"} 0+60x60`, `tko_api_request_duration_seconds_bucket{api="grpc",method="tko.Data/ListSites",le="1"} 0x60` + "\n" + `tko_api_request_duration_seconds_bucket{api="grpc",method="tko.Data/ListSites",le="+Inf"} 0+60x60`},
		"TKOStoreErrors":           {`tko_store_errors_total{reason="transient"} 0+60x60`, `tko_store_errors_total{reason="transient"} 0x60`},
		"TKOConnectionsUsedUp":     {`tko_store_connections{state="used",instance="a",job="tko"} 16x60` + "\n" + `tko_store_connections{state="limit",instance="a",job="tko"} 16x60`, `tko_store_connections{state="used",instance="a",job="tko"} 3x60` + "\n" + `tko_store_connections{state="limit",instance="a",job="tko"} 16x60`},
		"TKOFeedLag":               {`tko_feed_lag_seconds` + on + ` 0+60x60`, `tko_feed_lag_seconds` + on + ` 1x60`},
		"TKOWatchersDropped":       {`tko_watchers_dropped_total{api="grpc"} 0+60x60`, `tko_watchers_dropped_total{api="grpc"} 0x60`},
		"TKOLimitsReached":         {`tko_api_limit_refusals_total{api="grpc",limit="rate"} 0+600x60`, `tko_api_limit_refusals_total{api="grpc",limit="rate"} 0x60`},
		"TKORefusals":              {`tko_access_refusals_total{verb="read"} 0x1440 0+600x60`, `tko_access_refusals_total{verb="read"} 0+600x1500`},
		"TKOSitesUnreachable":      {`tko_sites{state="unreachable"} 5x60` + "\n" + `tko_sites{state="ok"} 95x60`, `tko_sites{state="unreachable"} 1x60` + "\n" + `tko_sites{state="ok"} 99x60`},
		"TKOAgentsSilent":          {`tko_site_agents{state="silent"} 5x60` + "\n" + `tko_site_agents{state="heard"} 95x60`, `tko_site_agents{state="silent"} 1x60` + "\n" + `tko_site_agents{state="heard"} 99x60`},
		"TKOStoreFenced":           {`tko_site_agents{state="fenced"} 0x30 1x30`, `tko_site_agents{state="fenced"} 0x60`},
		"TKOAgentsReconnect":       {`tko_agent_connections_total{kind="again"} 0+100x60` + "\n" + `tko_agents_connected 100x60`, `tko_agent_connections_total{kind="again"} 0+2x60` + "\n" + `tko_agents_connected 100x60`},
		"TKOSitesFail":             {`tko_sites{state="failed"} 5x60` + "\n" + `tko_sites{state="ok"} 95x60`, `tko_sites{state="failed"} 1x60` + "\n" + `tko_sites{state="ok"} 99x60`},
		"TKORolloutFails":          {`tko_rollout_failures{rollout="a"} 0x60` + "\n" + `tko_rollout_failing{rollout="a"} 1x60`, `tko_rollout_failures{rollout="a"} 0x60` + "\n" + `tko_rollout_failing{rollout="a"} 0x60`},
		"TKORolloutBlocked":        {`tko_rollout_blocked_seconds{rollout="a"} 25000+60x60`, `tko_rollout_blocked_seconds{rollout="a"} 0+60x60`},
		"TKOTargetDown":            {`tko_target_apply_duration_seconds_count{target="git",result="failed"} 0+60x60` + "\n" + `tko_target_apply_duration_seconds_count{target="git",result="ok"} 7x60`, `tko_target_apply_duration_seconds_count{target="git",result="failed"} 0+60x60` + "\n" + `tko_target_apply_duration_seconds_count{target="git",result="ok"} 0+1x60`},
		"TKOPluginFails":           {`tko_plugin_runs_total{type="prepare",plugin="x",result="killed"} 0+60x60`, `tko_plugin_runs_total{type="prepare",plugin="x",result="ok"} 0+60x60`},
		"TKOCertificateExpires":    {`tko_tls_certificate_expiry_timestamp_seconds{use="server"} 864000x120`, `tko_tls_certificate_expiry_timestamp_seconds{use="server"} 8640000x120`},
		"TKOCertificateExpiresNow": {`tko_tls_certificate_expiry_timestamp_seconds{use="server"} 86400x60`, `tko_tls_certificate_expiry_timestamp_seconds{use="server"} 864000x60`},
		"TKOAuditSinkBehind":       {`tko_audit_sink_lag_records{sink="file"} 20000x60`, `tko_audit_sink_lag_records{sink="file"} 20x60`},
		"TKOMessagesFail":          {`tko_notify_subscriptions{job="tko",state="failing"} 1x60`, `tko_notify_subscriptions{job="tko",state="failing"} 0x60`},
		"TKOMessagesIncomplete":    {`tko_notify_subscriptions{job="tko",state="incomplete"} 1x60`, `tko_notify_subscriptions{job="tko",state="incomplete"} 0x60`},
		"TKOInsecure":              {`tko_insecure` + on + ` 1x60`, `tko_insecure` + on + ` 0x60`},
	}
	for _, rule := range rules(t) {
		c, ok := cases[rule.Alert]
		if !ok {
			t.Errorf("%s has no case", rule.Alert)
			continue
		}
		delete(cases, rule.Alert)
		need := time.Duration(rule.For)
		if got := longest(t, rule.Expr, c.bad); got < need {
			t.Errorf("%s fires for %s, want %s with\n%s", rule.Alert, got, need, c.bad)
		}
		if got := longest(t, rule.Expr, c.good); got >= need {
			t.Errorf("%s fires for %s with\n%s", rule.Alert, got, c.good)
		}
	}
	for name := range cases {
		t.Errorf("there is no alert %s", name)
	}
}

// longest returns the longest time for which an expression has a result on series with
// a sample each minute; negative if it never has.
func longest(t *testing.T, expr, series string) time.Duration {
	t.Helper()
	var load strings.Builder
	load.WriteString("load 1m\n")
	minutes := 0
	for line := range strings.SplitSeq(series, "\n") {
		load.WriteString("  " + line + "\n")
		n := 0
		for _, m := range regexp.MustCompile(`x(\d+)`).FindAllStringSubmatch(line, -1) {
			var count int
			if err := json.Unmarshal([]byte(m[1]), &count); err != nil {
				t.Fatal(err)
			}
			n += count
		}
		minutes = max(minutes, n)
	}
	storage := promqltest.LoadedStorage(t, load.String())
	defer func() { _ = storage.Close() }()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	query, err := engine.NewRangeQuery(context.Background(), storage, nil, expr, time.Unix(0, 0), time.Unix(int64(minutes)*60, 0), time.Minute)
	if err != nil {
		t.Fatalf("%q: %v", expr, err)
	}
	defer query.Close()
	result := query.Exec(context.Background())
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatalf("%q: %v", expr, err)
	}
	best := time.Duration(math.MinInt64)
	for _, s := range matrix {
		begin, last := int64(math.MinInt64), int64(math.MinInt64)
		for _, point := range s.Floats {
			if point.T-last != time.Minute.Milliseconds() {
				begin = point.T
			}
			last = point.T
			best = max(best, time.Duration(last-begin)*time.Millisecond)
		}
	}
	return best
}
