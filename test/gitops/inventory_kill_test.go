package gitops

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A sheet is a CSV file of sites.
type sheet struct {
	t    *testing.T
	path string
}

// write replaces the file by one with n sites. Every third has the value of its
// metadata, and the others have 0.
func (s sheet) write(n, value int) map[string]string {
	s.t.Helper()
	want := map[string]string{}
	var b strings.Builder
	b.WriteString("site,value\n")
	for i := range n {
		id, v := fmt.Sprintf("s%03d", i), 0
		if i%3 == 0 {
			v = value
		}
		fmt.Fprintf(&b, "%s,%d\n", id, v)
		want[id] = strconv.Itoa(v)
	}
	if err := os.WriteFile(s.path+".new", []byte(b.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.path+".new", s.path); err != nil {
		s.t.Fatal(err)
	}
	return want
}

// valuesOf returns the value of each site.
func valuesOf(ctx context.Context, c *client.Client) (map[string]string, error) {
	values := map[string]string{}
	for s, err := range c.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		values[string(s.ID)] = s.Metadata["value"]
	}
	return values, nil
}

// Two replicas that read an inventory, and the data controller, are killed with kill -9
// at random moments while the inventory changes, also to one that has lost half of its
// sites. No site is lost, neither meanwhile nor afterwards, without an approval.
func TestInventoryLosesNoSitesAfterKills(t *testing.T) {
	t.Parallel()
	const sites = 150
	root := t.TempDir()
	file := sheet{t, filepath.Join(root, "sites.csv")}
	sources := filepath.Join(root, "sources.yaml")
	settings := fmt.Sprintf("sources:\n- name: sheet\n  interval: 1s\n  inventory:\n    from:\n    - {file: %q, map: {id: record.site, metadata: {value: record.value}}}\n", file.path)
	if err := os.WriteFile(sources, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	want := file.write(sites, 0)
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	start := map[string]func() *process.Server{
		"data": func() *process.Server {
			return process.StartServer(t, "--roles=data", "--store=sqlite:"+filepath.Join(root, "tko.db"), "--listen-grpc="+address, "--retry=20ms", "--retry-max=200ms")
		},
		"a": func() *process.Server {
			return process.StartServer(t, "--roles=gitops", "--data="+address, "--gitops-sources="+sources, "--work-lease=1s")
		},
	}
	start["b"] = start["a"]
	running := map[string]*process.Server{}
	for _, name := range []string{"data", "a", "b"} {
		running[name] = start[name]()
	}
	c, err := client.Dial(client.Options{Address: address, WaitForReady: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	until := func(what string, holds func(values map[string]string, s tko.Source) error) {
		t.Helper()
		eventually.Within(t, timeLimit, what, func() error {
			values, err := valuesOf(ctx, c)
			if err != nil {
				return err
			}
			s, err := c.Source(ctx, "sheet")
			if err != nil {
				return err
			}
			return holds(values, s)
		})
	}
	applied := func(want map[string]string) func(map[string]string, tko.Source) error {
		return func(values map[string]string, s tko.Source) error {
			for id, value := range want {
				if values[id] != value {
					return fmt.Errorf("site %q has the value %q, want %q; the status is %+v", id, values[id], value, s.Status.Conditions)
				}
			}
			if len(values) != len(want) {
				return fmt.Errorf("there are %d sites, want %d", len(values), len(want))
			}
			return nil
		}
	}
	until("the first sites", applied(want))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round, victim := range []string{"a", "data", "b", "a"} {
		n := sites
		if round%2 == 1 {
			n /= 2
		}
		want = file.write(n, round+1)
		time.Sleep(time.Duration(random.Int64N(int64(1500 * time.Millisecond)))) // the random moment
		running[victim].Kill()
		running[victim] = start[victim]()
		if n < sites {
			until("the removal waits", func(values map[string]string, s tko.Source) error {
				if len(values) != sites {
					t.Fatalf("there are %d sites, want %d", len(values), sites)
				}
				if s.Status.PendingRemoval == "" {
					return fmt.Errorf("no removal waits: %+v", s.Status.Conditions)
				}
				return nil
			})
			continue
		}
		until("the changes are made", applied(want))
	}
	// The replicas are killed during an approved removal. What is approved may be removed,
	// and no other sites.
	for _, victim := range []string{"b", "a"} {
		s, err := c.Source(ctx, "sheet")
		if err != nil {
			t.Fatal(err)
		}
		if s.Status.PendingRemoval != "" {
			_ = c.EnqueueSources(ctx, []string{"sheet"}, false, s.Status.PendingRemoval) // it may be outdated by now
		}
		time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond)))) // the random moment
		running[victim].Kill()
		running[victim] = start[victim]()
	}
	until("the approved removal is made", func(values map[string]string, s tko.Source) error {
		for id := range want {
			if _, has := values[id]; !has {
				t.Fatalf("site %q was removed, and the inventory has it", id)
			}
		}
		if asks := s.Status.PendingRemoval; asks != "" {
			_ = c.EnqueueSources(ctx, []string{"sheet"}, false, asks)
		}
		return applied(want)(values, s)
	})
}
