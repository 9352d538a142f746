package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/test/process"
)

func TestMain(m *testing.M) {
	process.Plain()
	_ = os.Setenv("PYTHONPATH", process.PythonSDK())
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

func TestMeasuresBothStores(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), []string{
		"-bin", process.Folder(t, "tko", "tko-server", "tko-kubernetes"), "-json", "-deployments", "1000", "-register", "40", "-create", "40", "-placements", "20",
		"-samples", "5", "-watchers", "20", "-dependents", "200", "-idle", "500ms", "-prepared", "8", "-backlog", "1200", "-planned", "300", "-missed", "2000", "-stream-sites", "60", "-stream-deployments", "1200", "-inventory", "700", "-applied", "60", "-catalog", "3", "-statuses", "30", "-network", "6", "-network-templates", "3", "-python", process.Python(t),
	}, &stdout, &stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got struct {
		Raw    bench.RawRates
		Tables []bench.Table
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, &stdout)
	}
	if len(got.Raw.Inserts) != 6 || len(got.Raw.Groups) != 2 || len(got.Raw.Streams) != 6 || slices.Min(got.Raw.Groups) <= 0 || slices.Min(got.Raw.Inserts) <= 0 || slices.Min(got.Raw.Streams) <= 0 {
		t.Errorf("raw PostgreSQL is %+v", got.Raw)
	}
	if len(got.Tables) != 2 || !strings.HasPrefix(got.Tables[0].Backend, "PostgreSQL") || !strings.HasPrefix(got.Tables[1].Backend, "SQLite") {
		t.Fatalf("the tables are %+v", got.Tables)
	}
	for _, table := range got.Tables {
		checkRows(t, table)
	}
}

func checkRows(t *testing.T, table bench.Table) {
	t.Helper()
	for _, want := range []string{
		"create 200 children, in batches of 500", "disk per deployment", "server start to first row",
		"stream all deployments, while a client writes", "memory growth of the server meanwhile",
		"first row: sites by ID prefix", "first row: deployments by one metadata key (0.001 %)", "first row: deployments by site metadata (10 %)",
		"first row: page at 90 % by cursor", "first row: pages from 90 % on by growing offset",
		"get a deployment (1.9 kB package), 16 clients", "get a deployment (1.9 kB package), 16 clients: p99",
		"get a deployment (1.9 kB package), 16 clients: server processor time", "get a deployment (1.9 kB package), 256 clients",
		"get a deployment (1.9 kB package), 256 clients: p99", "get a deployment (1.9 kB package), 256 clients: server processor time",
		"register sites from a template with 5 metadata, role data alone", "the same, all roles in one process",
		"tko apply of 60 new sites", "tko apply of 60 sites, unchanged",
		"create deployments of one template", "create deployments of 100 templates", "modification, start and end, 16 clients",
		"blame of a deployment (1.9 kB package, 30 revisions)", "blame of a deployment (1.9 kB package, 30 revisions): server processor time",
		"stream 60 sites", "stream 60 sites: memory growth of the server", "stream 1,000 deployments", "stream 1,000 deployments: memory growth of the server",
		"dashboard: first page of deployments", "dashboard: overview, its requests concurrent as in browsers",
		"dashboard: count of all deployments by template", "dashboard: count of all deployments by template: server processor time",
		"dashboard: write to server-sent event",
		"change feed: write to watcher, 20 watchers", "change feed: resume after missed changes",
		"longest wait of a writer beside a mass delete: a template of 200 deployments",     // plain-words: ok, the name of a row
		"longest wait of a writer beside a mass delete: a deployment with 200 descendants", // plain-words: ok, the name of a row
		"longest wait of a writer beside a mass delete: a purge of 60 sites",               // plain-words: ok, the name of a row
		"prepare, one preparer", "prepare, two preparers",
		"prepare 8 deployments by a plugin that waits 0.2 s, one preparer", "prepare 8 deployments by a plugin that waits 0.2 s, 2 preparers",
		"prepare 8 deployments by a plugin that waits 0.2 s, 4 preparers", "prepare 8 deployments by a plugin in Python",
		"prepare 8 deployments by a persistent plugin in Python",
		"as of: first row of a page", "as of: list all deployments", "difference of the fleet: first group of 20 changes",
		"create to prepared, idle", "placement on 20 sites: children there", "placement on 20 sites: all prepared, one preparer",
		"placement on 20 sites: all prepared, 2 preparers", "idle: processor time of the servers",
		"inventory: 700 sites of NetBox, until registered", "inventory: 700 sites of NetBox, unchanged",
		"30 sites with the status of Flux: created to all healthy", "30 sites with the status of Flux: commit to healthy seen", "30 sites with the status of Flux, idle: processor time",
		"catalog: 3 packages with 50 versions in git, until registered", "catalog: 3 packages with 50 versions in git, unchanged",
		"a network of 6 sites and 3 templates: sites registered", "a network of 6 sites and 3 templates: all prepared", "a network of 6 sites and 3 templates: all delivered",
		"a network of 6 sites and 3 templates: commits", "a network of 6 sites and 3 templates: memory of the server",
		"a network of 6 sites and 3 templates: the same topology, unchanged", "a network of 6 sites and 3 templates: one template upgraded at all sites by a rollout",
	} {
		row, ok := table.Row(want)
		if !ok || row.Missing != "" {
			t.Errorf("%s: %q is not measured: %s", table.Backend, want, row.Missing)
		}
	}
	for _, want := range []string{"as of: size of the index", "as of: cost of the index on writes, if each has an entry"} {
		row, ok := table.Row(want)
		measured := row.Missing == "" || strings.HasPrefix(row.Missing, "an entry takes ") // in a fleet this small the rest can't be measured
		if !ok || measured != strings.HasPrefix(table.Backend, "PostgreSQL") {
			t.Errorf("%s: %q: %+v", table.Backend, want, row)
		}
	}
	for _, row := range table.Rows {
		least, most := 0.0, 0.0
		switch row.Unit {
		case bench.PerSecond:
			least, most = 0.1, 1e7
		case bench.Seconds:
			least, most = 1e-6, 60
		case bench.Bytes:
			most = 1e9
		case bench.Percent, bench.Frequency:
			most = 400
		case bench.Count:
			least, most = 1, 1000
		}
		if row.Missing == "" && (row.Value < least || row.Value > most) {
			t.Errorf("%s: %q is %g %s, which can't be", table.Backend, row.What, row.Value, row.Unit)
		}
	}
}

func TestFillsAServer(t *testing.T) {
	t.Parallel()
	server := process.StartServer(t, "--roles=data", "--store=sqlite::memory:")
	for _, step := range []struct{ why, deployments, want string }{
		{"all is made", "200", "Registered 10 sites and created 260 deployments"},
		{"the fleet exists already", "200", "All of 10 sites and 200 deployments exist."},
		{"the missing deployments are made", "250", "Registered 0 sites and created 70 deployments"},
	} {
		var stdout, stderr bytes.Buffer
		if err := run(t.Context(), []string{"fill", "-address", server.GRPC, "-sites", "10", "-deployments", step.deployments}, &stdout, &stderr); err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
		if !strings.HasPrefix(stdout.String(), step.want) {
			t.Errorf("the output is %q, want %q…: %s", &stdout, step.want, step.why)
		}
	}
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-address", server.GRPC, "-deployments", "250", "-sites", "10", "-samples", "2", "-create", "20", "-rows", "^get"}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if out := stdout.String(); !strings.Contains(out, "No raw PostgreSQL") || !strings.Contains(out, "| get a deployment (1.9 kB package), 16 clients | 10000/s |") || strings.Count(out, "\n") != 10 {
		t.Errorf("measured at an address, the output is:\n%s", out)
	}
}

func TestMeasuresTheDashboardOfAServer(t *testing.T) {
	t.Parallel()
	server := process.StartServer(t, "--roles=data", "--store=sqlite::memory:")
	args := []string{"-address", server.GRPC, "-deployments", "100", "-sites", "10", "-samples", "2", "-rows", "^dashboard", "-json"}
	measured := func(args ...string) bench.Table {
		var stdout, stderr bytes.Buffer
		var got struct{ Tables []bench.Table }
		if err := run(t.Context(), args, &stdout, &stderr); err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || len(got.Tables) != 1 || len(got.Tables[0].Rows) != 5 {
			t.Fatalf("%v: want a table of five rows: %s", err, &stdout)
		}
		return got.Tables[0]
	}
	for _, row := range measured(args...).Rows {
		if !strings.Contains(row.Missing, "set -web") {
			t.Errorf("without -web, %q is %g: %q", row.What, row.Value, row.Missing)
		}
	}
	for _, row := range measured(append(args, "-web", server.Web)...).Rows {
		if cost := strings.HasSuffix(row.What, "processor time"); cost != strings.Contains(row.Missing, "set -pid") || !cost && row.Value <= 0 {
			t.Errorf("%q is %g: %s", row.What, row.Value, row.Missing)
		}
	}
}

func TestInvalidUsageIsExplained(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		args []string
		want string // on the standard error
		err  error
	}{
		"help":                     {"it says how to use it", []string{"-h"}, "tko-bench fill", nil},
		"help of fill":             {"it says how to use it", []string{"fill", "-h"}, "-seed", nil},
		"an unknown flag":          {"the flag package reports it", []string{"-x"}, "-x", errUsage},
		"an unknown flag of fill":  {"the flag package reports it", []string{"fill", "-x"}, "-x", errUsage},
		"a word":                   {"commands come first", []string{"-json", "fill"}, `"fill" is not a flag`, errUsage},
		"a word after fill":        {"it has flags only", []string{"fill", "x"}, `"x" is not a flag`, errUsage},
		"no samples":               {"quantiles need some", []string{"-samples", "0"}, "-samples 0", errUsage},
		"no inventory":             {"rows would measure nothing", []string{"-inventory", "0"}, "-inventory 0", errUsage},
		"a negative number":        {"the default is another", []string{"-sites", "-3"}, "-sites -3", errUsage},
		"placements":               {"they are numbers", []string{"-placements", "1,x"}, "-placements", errUsage},
		"placements on none":       {"there would be nothing to wait for", []string{"-placements", "0"}, "-placements", errUsage},
		"an unknown store":         {"there are two", []string{"-stores", "etcd"}, "etcd", errUsage},
		"a wrong expression":       {"it must be one", []string{"-rows", "("}, "-rows", errUsage},
		"HTTP without an address":  {"it would not be used", []string{"-web", "x"}, "-address", errUsage},
		"a DSN without an address": {"it would not be used", []string{"-dsn", "x"}, "-address", errUsage},
	}
	for name, test := range tests {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), test.args, &stdout, &stderr)
		if !errors.Is(err, test.err) || !strings.Contains(stderr.String(), test.want) || stdout.Len() > 0 {
			t.Errorf("%s: %v, %q: %s", name, err, &stderr, test.why)
		}
	}
}

func TestUnreachableServerIsReported(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"fill", "-address", "localhost:1"}, &stdout, &stderr); err == nil || errors.Is(err, errUsage) {
		t.Errorf("error %v, want one that the server can't be reached", err)
	}
}
