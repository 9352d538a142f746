package observer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/process"
)

func TestMain(m *testing.M) {
	process.Plain()
	code := pgtest.Main(m)
	kube.Stop()
	process.Clean()
	os.Exit(code)
}

func setting[T any](t *testing.T, name string, otherwise T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// longestRound is the longest time of work before the outcome is judged. A longer run has several rounds, each with a
// seed and an installation of its own: within a round, the counts of the gate don't begin anew.
const longestRound = 10 * time.Minute

// Authors with limited rights work at random and clumsily, servers and the database are killed, and what reaches the
// sites stays within the limits.
func TestEveryRoadToTheSitesKeepsTheLimits(t *testing.T) {
	for name, postgres := range map[string]bool{"SQLite": false, "PostgreSQL": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := os.Getenv("TKO_OBSERVER_SEED") == "random"
			seed := uint64(1)
			if !random {
				seed = setting(t, "TKO_OBSERVER_SEED", seed, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
			}
			sites := setting(t, "TKO_OBSERVER_SITES", 60, strconv.Atoi)
			duration := setting(t, "TKO_OBSERVER_TIME", 15*time.Second, time.ParseDuration)
			for left := duration; left > 0 && !t.Failed(); left -= longestRound {
				if random {
					seed = rand.Uint64()
				}
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { prove(t, postgres, seed, sites, min(left, longestRound)) })
				seed++
			}
		})
	}
}

// A run is a world in which authors work and that is observed.
type run struct {
	w      *world
	l      *ledger
	o      *observer
	random func(n uint64) *rand.Rand
	stop   func() // the observer
}

func newRun(t *testing.T, in installation, seed uint64) *run {
	t.Helper()
	w := newWorld(t, in)
	l := &ledger{requests: map[string]*request{}}
	r := &run{w: w, l: l, o: newObserver(w, l), random: func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }}
	watching, stopWatching := context.WithCancel(t.Context())
	var watches sync.WaitGroup
	watches.Go(func() { r.o.watch(watching) })
	if r.o.clusters != nil {
		watches.Go(func() { r.o.clusters.watch(watching) })
	}
	r.stop = func() {
		stopWatching()
		watches.Wait()
	}
	return r
}

// work lets the authors work, and kills servers, until ctx ends.
func (r *run) work(ctx context.Context, killEvery time.Duration) {
	var works sync.WaitGroup
	for i, tenant := range tenants {
		a := newAuthor(r.w, r.l, tenant, r.random(uint64(i)))
		works.Go(func() { a.run(ctx) })
	}
	for i, tenant := range tenants {
		roller := newRoller(r.w, r.l, tenant, r.random(uint64(50+i)))
		works.Go(func() { roller.run(ctx) })
		committer := newCommitter(r.w, r.l, tenant, r.random(uint64(70+i)))
		works.Go(func() { committer.run(ctx) })
		if r.w.cluster != nil {
			user := newKubectl(r.w, r.l, tenant, r.random(uint64(90+i)))
			works.Go(func() { user.run(ctx) })
		}
	}
	operator := newOperator(r.w, r.l, r.random(100))
	works.Go(func() { operator.run(ctx) })
	r.w.killAtRandom(ctx, r.random(200), killEvery)
	works.Wait()
}

// prove lets the authors work, and judges the outcome.
func prove(t *testing.T, postgres bool, seed uint64, sites int, duration time.Duration) {
	t.Helper()
	t.Logf("repeat with TKO_OBSERVER_SEED=%d TKO_OBSERVER_SITES=%d TKO_OBSERVER_TIME=%s", seed, sites, duration)
	whole := os.Getenv("TKO_OBSERVER_TIME") != "" // as in make soak: it takes minutes, until there was something of everything
	r := newRun(t, installation{postgres: postgres, sites: sites, clusters: whole || !postgres}, seed)
	defer r.stop()
	o := r.o
	if path := os.Getenv("TKO_OBSERVER_LOG"); path != "" {
		defer o.write(path)
	}
	working, stopWorking := context.WithCancel(t.Context())
	defer stopWorking()
	var clock sync.WaitGroup
	clock.Go(func() {
		if whole {
			r.await(working, duration)
		} else {
			r.await(working, duration, basics...)
		}
		stopWorking()
	})
	r.work(working, max(15*time.Second, min(20*time.Second, duration/5)))
	clock.Wait()
	t.Logf("requests (done, refused, unknown): %v; killed: %v", r.l.summary(), r.w.killed)

	behind := time.Now()
	o.settle()
	if whole {
		newRoller(r.w, r.l, tenants[0], r.random(300)).undoLast(t.Context())
		o.settle()
	}
	r.stop()
	found := o.judge()
	t.Logf("the observer read %d changes and %d commits, and checked %d conditions; it was at most %s behind; all was still %s after the work",
		len(o.changes), o.commits, o.checked, o.lag.Round(time.Millisecond), time.Since(behind).Round(time.Second))
	reportFindings(t, found)
	t.Logf("judged: %v", o.counts)
	for _, what := range r.lacking(o.counts) {
		if whole || slices.Contains(basics, what) {
			t.Errorf("the run proves nothing of %s", what)
		} else {
			t.Logf("the run proves nothing of %s", what)
		}
	}
}

// findings is how many findings of a kind, and kinds, are reported one by one.
const findings = 3

// reportFindings reports what is wrong: a few of each kind, and the number of the others.
func reportFindings(t *testing.T, found []string) {
	t.Helper()
	kinds := map[string]int{}
	for _, problem := range found {
		kind := kindOf(problem)
		kinds[kind]++
		if kinds[kind] <= findings && len(kinds) <= 10*findings {
			t.Error(problem)
		}
	}
	if len(found) > 0 {
		t.Errorf("%d findings of %d kinds: %v", len(found), len(kinds), kinds)
	}
}

var (
	preamble = regexp.MustCompile(`^position .*? because of ".*?": `)
	specific = regexp.MustCompile(`"[^"]*"|\(.*\)|\S*\d\S*`)
)

// kindOf returns a finding without what is particular to it: names, numbers, positions.
func kindOf(problem string) string {
	return specific.ReplaceAllString(preamble.ReplaceAllString(problem, ""), "…")
}

// overtime is how much longer a run may last until it has something of everything.
const overtime = 6 * time.Minute

// compared is the kind of the files of rollouts that were undone.
const compared = "undone files compared"

// basics are the kinds of which there is something also in a short run.
var basics = []string{"requests to create", "requests to edit", "requests to delete"}

// await waits for a duration, and until something of each kind was observed, or only of some.
func (r *run) await(ctx context.Context, duration time.Duration, only ...string) {
	begin, said := time.Now(), time.Now()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(min(3*time.Second, duration)):
		}
		if past := time.Since(begin); past < duration {
			continue
		} else if past > duration+overtime {
			return
		}
		_, counts := r.o.judgeSoFar()
		lacking := slices.DeleteFunc(r.lacking(counts), func(what string) bool {
			return len(only) > 0 && !slices.Contains(only, what) || what == compared && len(only) == 0 // the last rollout is undone afterwards
		})
		if len(lacking) == 0 {
			return
		}
		if time.Since(said) < 15*time.Second {
			continue
		}
		said = time.Now()
		r.w.t.Logf("%s: there is nothing yet of %v", time.Since(begin).Round(time.Second), lacking)
	}
}

// lacking returns the kinds of requests of which none was done, and the kinds of facts of which none was judged.
func (r *run) lacking(judged map[string]int) (kinds []string) {
	done := r.l.summary()
	for _, verb := range verbs {
		if done[verb][0] == 0 {
			kinds = append(kinds, "requests to "+verb)
		}
	}
	for what, n := range judged {
		if n == 0 {
			kinds = append(kinds, what)
		}
	}
	slices.Sort(kinds)
	return kinds
}
