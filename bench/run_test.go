package bench_test

import (
	"context"
	"iter"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
)

func tiny() bench.Options {
	return bench.Options{
		Clients: 4, Register: 20, Create: 20, Deployments: 500, Sites: 40, Seed: 1, Placements: []int{10}, Samples: 3, Watchers: 10,
		Dependents: 50, Missed: 100, Backlog: 20, Planned: 30, Statuses: 5, Network: 6, NetworkTemplates: 3, StreamSites: 60, StreamDeployments: 40, Idle: 50 * time.Millisecond, PreparerWait: 200 * time.Millisecond,
	}
}

// With only an address, the benchmark starts no preparers and reads no statistics.
func TestRunMeasuresServerThatRuns(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		why      string
		options  []grpc.ServerOption
		measured string // rows with a value
	}{
		"ours": {
			"rows that need only the API are measured",
			nil, `^(create \d|create deployments|plan|apply|undo|modification|blame|stream|first row|as of: (first|list)|difference|get|register|status of the|change feed|longest wait) ?`,
		},
		"contract only": {
			"rows that need no addition are measured",
			contractOnly(), `^(create deployments|modification|stream|first row|get|register|longest wait.*purge) ?`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := serve(t, test.options...)
			table, err := bench.Run(t.Context(), bench.Target{Address: address}, nil, tiny(), func(text string) { t.Log(text) })
			if err != nil {
				t.Fatalf("%v, want no error for methods that the server lacks", err)
			}
			small := regexp.MustCompile("three metadata keys|site metadata") // a small fleet may have no match
			process := regexp.MustCompile("memory growth|processor time")    // of a server on this machine
			measured := regexp.MustCompile(test.measured)
			if len(table.Rows) < 35 {
				t.Errorf("there are %d rows, want 35 at least", len(table.Rows))
			}
			for _, row := range table.Rows {
				switch {
				case small.MatchString(row.What) && strings.HasPrefix(row.Missing, "nothing"):
				case process.MatchString(row.What) && row.Missing != "" && !strings.HasPrefix(row.Missing, "failed"):
				case measured.MatchString(row.What) && (row.Missing != "" || row.Value <= 0):
					t.Errorf("%q is %g, %s: %s", row.What, row.Value, row.Missing, test.why)
				case !measured.MatchString(row.What) && (row.Missing == "" || strings.HasPrefix(row.Missing, "failed")):
					t.Errorf("%q is %g, %s: want a reason why it isn't measured", row.What, row.Value, row.Missing)
				}
			}
		})
	}
}

func TestRunMeasuresOnlySelectedRows(t *testing.T) {
	t.Parallel()
	address, _ := serve(t)
	o := tiny()
	o.Rows = regexp.MustCompile("by one metadata key|^get .* 4 clients$|mass delete: a template")
	table, err := bench.Run(t.Context(), bench.Target{Address: address}, nil, o, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 8 {
		t.Errorf("the rows are %+v: want sites by one key, deployments by five shares, get, and the first of two deletes", table.Rows)
	}
	for _, row := range table.Rows {
		if !o.Rows.MatchString(row.What) {
			t.Errorf("%q was not selected", row.What)
		}
	}
}

// A torn backend reads the chunks of a list from different snapshots.
type torn struct{ grpcapi.Backend }

func (s torn) Deployments(ctx context.Context, sel tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	return func(yield func(tko.Deployment, error) bool) {
		const size = 200
		chunk := size
		for o.Window.Max = &chunk; ; {
			n := 0
			for d, err := range s.Backend.Deployments(ctx, sel, o) {
				if !yield(d, err) {
					return
				}
				o.Window.After = string(d.ID)
				n++
			}
			if n < size {
				return
			}
			s.awaitChanges(ctx)
		}
	}
}

// awaitChanges waits for five changes, for up to a second.
func (s torn) awaitChanges(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n := 0
	for range s.Watch(ctx, -1) {
		n++
		if n == 5 {
			return
		}
	}
}

func TestRunFailsIfListIsNotOneSnapshot(t *testing.T) {
	t.Parallel()
	address, _ := serveAs(t, func(s *catalog.Service) grpcapi.Backend { return torn{s} })
	o := tiny()
	o.Rows = regexp.MustCompile("^stream all")
	table, err := bench.Run(t.Context(), bench.Target{Address: address}, nil, o, func(string) {})
	if err == nil || len(table.Rows) != 1 || !strings.HasPrefix(table.Rows[0].Missing, "failed: the list has ") {
		t.Errorf("%+v, %v: want an error that the list is not of one snapshot", table.Rows, err)
	}
}

func TestRunFailsIfDeploymentsStayUnprepared(t *testing.T) {
	t.Parallel()
	address, _ := serve(t)
	o := tiny()
	o.Rows = regexp.MustCompile("^create to prepared")
	target := bench.Target{Address: address, Preparers: func(context.Context, int) ([]int, func(), error) { return nil, func() {}, nil }}
	table, err := bench.Run(t.Context(), target, nil, o, func(string) {})
	if err == nil || len(table.Rows) != 1 || !strings.Contains(table.Rows[0].Missing, "can't be prepared") {
		t.Errorf("%+v, %v: want an error that deployments can't be prepared", table.Rows, err)
	}
}

// A flaky backend fails every third read of a deployment.
type flaky struct {
	grpcapi.Backend
	reads *atomic.Int64
}

func (s flaky) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	if s.reads.Add(1)%3 == 0 {
		return tko.Deployment{}, tko.Errorf(tko.ErrBusy, "the disk is slow")
	}
	return s.Backend.Deployment(ctx, id, revision)
}

func TestRunFailsIfGetsFail(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	address, _ := serveAs(t, func(s *catalog.Service) grpcapi.Backend { return flaky{s, &reads} })
	o := tiny()
	o.Rows = regexp.MustCompile("^get .* 4 clients$")
	table, err := bench.Run(t.Context(), bench.Target{Address: address}, nil, o, func(string) {})
	if err == nil || len(table.Rows) != 1 || !regexp.MustCompile(`^failed: [1-9]\d* of \d+ calls failed, one with: .*the disk is slow`).MatchString(table.Rows[0].Missing) {
		t.Errorf("%+v, %v: want the number of failed gets, and one error", table.Rows, err)
	}
}

// A running server may have little else than what the rows make, so that deletions of it
// must be confirmed.
func TestRunRemovesItsOwnEntitiesFromSmallFleet(t *testing.T) {
	t.Parallel()
	address, c := serve(t)
	o := tiny()
	o.Register, o.Create, o.StreamSites, o.Dependents, o.Deployments = 200, 200, 200, 700, 500
	o.Rows = regexp.MustCompile("^(register|create|modification|stream|longest|change feed: write|dashboard)")
	table, err := bench.Run(t.Context(), bench.Target{Address: address}, nil, o, func(text string) { t.Log(text) })
	if err != nil {
		t.Fatal(err)
	}
	if row, ok := table.Row("modification, start and end, 4 clients"); !ok || row.Value <= 0 {
		t.Errorf("modifications: %+v", row)
	}
	left := 0
	for _, err := range c.Sites(t.Context(), tko.SiteSelect{IDs: []string{"bench-*/**"}}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		left++
	}
	if left > 0 {
		t.Errorf("%d sites of rows are left", left)
	}
}
