package bench_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko/bench"
)

func tiny() bench.Options {
	return bench.Options{
		Clients: 4, Register: 20, Create: 20, Deployments: 500, Sites: 40, Seed: 1, Placements: []int{10}, Samples: 3, Watchers: 10,
		Dependents: 50, Missed: 100, Idle: 50 * time.Millisecond, Patience: 200 * time.Millisecond,
	}
}

// At an address nothing is known of, and nothing prepares deployments.
func TestRunAtAnAddress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		why      string
		options  []grpc.ServerOption
		measured string // rows with a value
	}{
		"ours": {
			"what needs no more than the API is measured",
			nil, `^(create \d|create deployments|stream|first row|get|register|change feed|delete) ?`,
		},
		"contract only": {
			"what needs no addition is measured, too",
			contractOnly(), `^(create deployments|stream|first row|get|register) ?`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := serve(t, test.options...)
			table, err := bench.Run(t.Context(), bench.Target{Address: address}, bench.Raw{}, tiny(), func(text string) { t.Log(text) })
			if err != nil {
				t.Fatalf("%v: what a server doesn't have is no failure", err)
			}
			small := regexp.MustCompile("three metadata keys|site metadata") // of which a small fleet may have none
			measured := regexp.MustCompile(test.measured)
			if len(table.Rows) < 35 {
				t.Errorf("there are %d rows", len(table.Rows))
			}
			for _, row := range table.Rows {
				switch {
				case small.MatchString(row.What) && strings.HasPrefix(row.Missing, "nothing"):
				case measured.MatchString(row.What) && (row.Missing != "" || row.Value <= 0):
					t.Errorf("%q is %g, %s: %s", row.What, row.Value, row.Missing, test.why)
				case !measured.MatchString(row.What) && (row.Missing == "" || strings.HasPrefix(row.Missing, "failed")):
					t.Errorf("%q is %g, %s: want a reason why it isn't measured", row.What, row.Value, row.Missing)
				}
			}
		})
	}
}

func TestRunMeasuresOnlyWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	address, _ := serve(t)
	o := tiny()
	o.Rows = regexp.MustCompile("by one metadata key|^get")
	table, err := bench.Run(t.Context(), bench.Target{Address: address}, bench.Raw{}, o, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 7 {
		t.Errorf("the rows are %+v: want sites by one key, deployments by five shares, and get", table.Rows)
	}
	for _, row := range table.Rows {
		if !o.Rows.MatchString(row.What) {
			t.Errorf("%q was not asked for", row.What)
		}
	}
}
