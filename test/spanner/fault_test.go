package spanner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/spanner/spannertest"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
	"github.com/tko-orchestrator/tko/test/soak"
)

// A share of the calls of a server to Spanner fails: they are refused, aborted, or made and their responses lost; and connections are
// cut. Clients write meanwhile. What was acknowledged is there, once; what was refused isn't; and a write whose outcome is unknown was
// made at most once. Once nothing fails, the server works as before.
func TestServerSurvivesFailuresOfSpanner(t *testing.T) {
	p := newProxy(t)
	server := process.StartServerWith(t, []string{"SPANNER_EMULATOR_HOST=" + p.address}, "--roles=data,preparer", "--store=spanner:"+spannertest.Database(t), "--work-lease=2s", "--retry=100ms", "--retry-max=1s",
		"--reach-created=0", "--reach-sites=0", "--reach-off-reason=a test")
	c, err := client.Dial(client.Options{Address: server.GRPC, Author: tko.Author{Who: "test", Why: "faults"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p.set(func(method string) (codes.Code, bool) {
		switch n := random.IntN(100); {
		case n < 4:
			return codes.Unavailable, false
		case n < 7 && !strings.Contains(method, "Streaming"):
			return codes.Unavailable, true
		case n < 15 && strings.HasSuffix(method, "/Commit"):
			return codes.Aborted, false
		}
		return codes.OK, false
	})
	ctx, stop := context.WithCancel(t.Context())
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(700 * time.Millisecond):
				p.cut()
			}
		}
	})

	const writers = 4
	var models [writers]model
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() { models[w] = work(t, c, fmt.Sprintf("w%d", w), soak.Rounds(t, 25, 1000)) })
	}
	writing.Wait()
	stop()
	cutting.Wait()
	p.set(nil)
	t.Logf("failures: %v", p.fails)
	for _, want := range []string{"Commit Aborted", "Commit Unavailable", "StreamingRead Unavailable"} {
		if p.fails[want] == 0 {
			t.Errorf("no call failed with %q", want)
		}
	}
	for _, m := range models {
		m.check(t, c)
	}
	if _, err := c.RegisterSite(patient(t), tko.Site{ID: "afterwards"}); err != nil {
		t.Errorf("once nothing fails: %v", err)
	}
}

// A model is what a writer knows of its site: the metadata of each revision are its number of the write.
type model struct {
	site         tko.SiteID
	acknowledged map[int]int64 // revision by write
	unknown      map[int]bool  // writes whose outcome is unknown
	refused      map[int]error
}

// work writes revisions of a site.
func work(t *testing.T, c *client.Client, name string, writes int) model {
	m := model{site: tko.SiteID(name), acknowledged: map[int]int64{}, unknown: map[int]bool{}, refused: map[int]error{}}
	for n := range writes {
		ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
		revision, err := c.RegisterSite(ctx, tko.Site{ID: m.site, Metadata: map[string]string{"write": strconv.Itoa(n)}})
		cancel()
		switch {
		case err == nil:
			m.acknowledged[n] = revision
		case errors.Is(err, tko.ErrUnavailable):
			m.unknown[n] = true
		default:
			m.refused[n] = err
		}
	}
	return m
}

// check compares the model with the history of its site.
func (m model) check(t *testing.T, c *client.Client) {
	t.Helper()
	if len(m.acknowledged) == 0 || len(m.refused) > 0 {
		t.Errorf("%s: %d writes were acknowledged; refused: %v", m.site, len(m.acknowledged), m.refused)
	}
	wrote := map[int]int{}
	var newest int64
	for e, err := range c.HistoryOf(patient(t), tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindSite, ID: string(m.site)}}) {
		if err != nil {
			t.Fatal(err)
		}
		newest = max(newest, e.Revision)
	}
	for revision := int64(1); revision <= newest; revision++ {
		s, err := c.Site(patient(t), m.site, revision)
		if err != nil {
			t.Fatal(err)
		}
		n := -1
		if _, err := fmt.Sscan(s.Metadata["write"], &n); err != nil {
			t.Fatalf("%s, revision %d: %v", m.site, revision, s.Metadata)
		}
		wrote[n]++
		if at, ok := m.acknowledged[n]; ok && at != revision {
			t.Errorf("%s: write %d was acknowledged as revision %d, and is revision %d", m.site, n, at, revision)
		}
	}
	for n, times := range wrote {
		if times > 1 {
			t.Errorf("%s: write %d was made %d times", m.site, n, times)
		}
	}
	for n, revision := range m.acknowledged {
		if wrote[n] != 1 {
			t.Errorf("%s: write %d was acknowledged as revision %d, and was made %d times", m.site, n, revision, wrote[n])
		}
	}
	t.Logf("%s: %d acknowledged, %d of unknown outcome", m.site, len(m.acknowledged), len(m.unknown))
}
