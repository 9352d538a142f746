package faults

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

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/test/eventually"
)

const workers = 6

// longestRound is the longest time under faults before the outcome is checked. A longer
// run has several rounds, each with a seed and an installation of its own.
const longestRound = 2 * time.Minute

// Random clients work while components fail at random. Nothing that was acknowledged is
// lost, nothing that was refused is there, nothing is there twice, and all settles after
// the faults.
func TestAcknowledgedChangesSurviveFaults(t *testing.T) {
	for name, s := range map[string]setup{
		"one server with SQLite": {kubernetes: true},
		"roles with PostgreSQL":  {postgres: true, tls: true, data: 2, preparers: 2, schedulers: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := os.Getenv("TKO_FAULTS_SEED") == "random"
			seed := uint64(1)
			if !random {
				seed = setting(t, "TKO_FAULTS_SEED", seed, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
			}
			duration := setting(t, "TKO_FAULTS_TIME", 30*time.Second, time.ParseDuration)
			for left := duration; left > 0 && !t.Failed(); left -= longestRound {
				if random {
					seed = rand.Uint64()
				}
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { endure(t, s, seed, min(left, longestRound)) })
				seed++
			}
		})
	}
}

// endure runs the workload under faults, and checks the outcome.
func endure(t *testing.T, s setup, seed uint64, duration time.Duration) {
	t.Helper()
	t.Logf("repeat with TKO_FAULTS_SEED=%d TKO_FAULTS_TIME=%s", seed, duration)
	w := newWorld(t, s)
	l := newLedger()
	admin := w.dial(w.grpc[0], "admin", 0)
	shared, err := admin.CreateDeployment(patient(t), tko.NewDeployment{Template: "work:v1", Site: "fleet/0"})
	if err != nil {
		t.Fatal(err)
	}
	following, stopFollowing := context.WithCancel(t.Context())
	defer stopFollowing()
	var followers []*follower
	var follows sync.WaitGroup
	for _, link := range []string{"clients", "other clients"} {
		f := &follower{name: "the follower through " + link, client: w.dial(w.links[link].address, "admin", 0)}
		followers = append(followers, f)
		follows.Go(func() { f.run(following, l) })
	}
	var all []*worker
	for i := range workers {
		k := &worker{ledger: l, name: fmt.Sprint("w", i), random: rand.New(rand.NewPCG(seed, uint64(100+i))), shared: shared}
		for _, link := range []string{"clients", "other clients"} {
			k.clients = append(k.clients, w.dial(w.links[link].address, "client", 0))
			k.observers = append(k.observers, w.dial(w.links[link].address, "observer", 0))
		}
		if w.setup.kubernetes {
			k.kubernetes = w.links["kubernetes"].address
		}
		if l := w.links["web"]; l != nil {
			k.web = l.address
		}
		all = append(all, k)
	}
	working, stopWorking := context.WithCancel(t.Context())
	defer stopWorking()
	var works sync.WaitGroup
	for _, k := range all {
		works.Go(func() { k.run(working) })
	}
	eventually.True(t, "the workload to begin", func() bool { return l.acknowledged() >= 50 })
	failing, endFailing := context.WithTimeout(working, duration)
	defer endFailing()
	only := setting(t, "TKO_FAULTS_ONLY", regexp.MustCompile(""), regexp.Compile)
	chosen := slices.DeleteFunc(w.faults(), func(f fault) bool { return !only.MatchString(f.name) })
	if len(chosen) == 0 {
		t.Fatalf("TKO_FAULTS_ONLY=%s matches no fault", only)
	}
	counts := inject(failing, t, chosen, seed, min(6*time.Second, duration/8))
	stopWorking()
	works.Wait()
	t.Logf("faults: %v", counts)
	t.Logf("calls: %v", l.counts)

	direct := make([]*client.Client, len(w.grpc))
	for i, address := range w.grpc {
		direct[i] = w.dial(address, "admin", time.Minute)
	}
	c := &checker{world: w, ledger: l, clients: direct, shared: shared}
	c.settle()
	final := c.position(patient(t))
	for _, f := range followers {
		eventually.True(t, f.name+" at the end of the feed", func() bool { return f.position.Load() >= final })
	}
	stopFollowing()
	follows.Wait()
	c.check(followers)
	found := l.found()
	for _, problem := range found[:min(20, len(found))] {
		t.Error(problem)
	}
	if n := len(found); n > 20 {
		t.Errorf("and %d more", n-20)
	}
}
