package bench_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/client"
)

// A deployed is the part of a deployment that a fill sets.
type deployed struct {
	Depth              int
	Template           tko.TemplateID
	Site               tko.SiteID
	Prepared, Approved bool
}

// everything counts the sites, and the deployments of each kind.
func everything(t *testing.T, c *client.Client) (sites int, deployments map[deployed]int) {
	t.Helper()
	for _, err := range c.Sites(t.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		sites++
	}
	depth := map[tko.DeploymentID]int{}
	deployments = map[deployed]int{}
	for d, err := range c.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		depth[d.ID] = depth[d.Parent] + 1 // parents are older, so they are listed first
		deployments[deployed{depth[d.ID], d.Template, d.Site, d.Prepared, d.Approved}]++
	}
	return sites, deployments
}

var servers = map[string]struct {
	why     string
	options []grpc.ServerOption
}{
	"ours":          {"the server creates children in batches, each once", nil},
	"contract only": {"the fill creates one by one, and finds its children by metadata", contractOnly()},
}

func TestFillContinuesAfterLostResponses(t *testing.T) {
	t.Parallel()
	fleet := bench.Fleet{Seed: 5, Sites: 60, Deployments: 700}
	options := bench.FillOptions{Clients: 4, Batch: 20}
	_, c := serve(t)
	if _, err := bench.Fill(t.Context(), c, fleet, options); err != nil {
		t.Fatal(err)
	}
	wantSites, want := everything(t, c)
	total, leaves := 0, 0
	for d, n := range want {
		total += n
		if d.Site != "" {
			leaves += n
			if d.Depth != 4 {
				t.Errorf("a deployment at a site is at depth %d: want 4, below network, region and wave", d.Depth)
			}
		}
	}
	if wantSites != fleet.Sites || leaves != fleet.Deployments {
		t.Fatalf("%d sites and %d deployments at them, want %d and %d", wantSites, leaves, fleet.Sites, fleet.Deployments)
	}
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var left atomic.Int64
			_, c := serve(t, append(server.options, losing(&left)...)...)
			runs := 0
			for {
				runs++
				left.Store(100)
				_, err := bench.Fill(t.Context(), c, fleet, options)
				if left.Load() >= 0 && err == nil {
					break
				}
				if !errors.Is(err, client.ErrUnavailable) {
					t.Fatal(err)
				}
			}
			if runs < 2 {
				t.Error("no run was interrupted, want one at least")
			}
			left.Store(math.MaxInt64)
			sites, got := everything(t, c)
			if diff := cmp.Diff(want, got); sites != fleet.Sites || diff != "" {
				t.Errorf("after %d runs there are %d sites; deployments of each kind (-want +got): %s\n%s", runs, sites, server.why, diff)
			}
			before, err := c.About(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			filled, err := bench.Fill(t.Context(), c, fleet, options)
			if err != nil || filled.Created != 0 || filled.Sites != 0 {
				t.Errorf("another run: %+v, %v: want nothing done", filled, err)
			}
			if after, err := c.About(t.Context()); err != nil || after.Position != before.Position {
				t.Errorf("another run wrote %d changes, %v", after.Position-before.Position, err)
			}
		})
	}
}

// losing returns options of a server that executes calls, but loses the responses of
// unary methods once left is used up.
func losing(left *atomic.Int64) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		response, err := handle(ctx, m)
		if left.Add(-1) < 0 {
			return nil, status.Error(codes.Unavailable, "gone")
		}
		return response, err
	})}
}

func TestFillEnlargesFleet(t *testing.T) {
	t.Parallel()
	_, c := serve(t)
	for _, fleet := range []bench.Fleet{
		{Seed: 1, Sites: 20, Deployments: 230},
		{Seed: 1, Sites: 20, Deployments: 500},
		{Seed: 1, Sites: 40, Deployments: 1000},
		{Seed: 2, Sites: 40, Deployments: 100}, // in addition to the other
	} {
		filled, err := bench.Fill(t.Context(), c, fleet, bench.FillOptions{})
		if err != nil || filled.Created == 0 {
			t.Fatalf("%+v: %+v, %v", fleet, filled, err)
		}
	}
	sites, deployments := everything(t, c)
	leaves := 0
	for d, n := range deployments {
		if d.Site != "" {
			leaves += n
		}
	}
	if sites != 80 || leaves != 1100 {
		t.Errorf("there are %d sites and %d deployments at them, want 80 and 1100", sites, leaves)
	}
}

func TestFillRefusesInvalidFleets(t *testing.T) {
	t.Parallel()
	_, c := serve(t)
	for name, fleet := range map[string]bench.Fleet{
		"no site":        {Sites: 0, Deployments: 1},
		"negative count": {Sites: 1, Deployments: -1},
		"negative sites": {Sites: -1, Deployments: 1},
	} {
		if _, err := bench.Fill(t.Context(), c, fleet, bench.FillOptions{}); !errors.Is(err, tko.ErrInvalid) || strings.Contains(err.Error(), "%") {
			t.Errorf("%s: error is %v, want an ErrInvalid", name, err)
		}
	}
}
