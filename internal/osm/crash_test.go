package osm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// duplicates are instances that share a name.
func duplicates(s *osmtest.Server) []string {
	var all []string
	seen := map[string]bool{}
	for _, i := range s.Instances() {
		if seen[i.Name] {
			all = append(all, i.Name)
		}
		seen[i.Name] = true
	}
	return all
}

// The reconciliation fails after each save, before or after the step, and is repeated
// with the saved state.
func TestReconciliationContinuesFromAnySavedState(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"right after a save": true, "right before a save": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 0; ; n++ {
				w := newWorld(t, osmtest.Options{})
				w.policy.Settle = settle
				died := errors.New("died")
				count := 0
				w.fail = func() error { // from the nth on, nothing is saved
					count++
					if count > n {
						return died
					}
					return nil
				}
				if kept {
					inner := w.fail
					w.fail = func() error { _ = inner(); return nil }
				}
				first := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1)), instance("b", nil)}}
				second := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("y", 1))}}
				lives := 0
				for _, d := range []osm.Desired{first, second} {
					for {
						ctx, cancel := context.WithCancel(t.Context())
						r := w.reconciler()
						if kept { // fail after the save
							keep := r.Keep
							r.Keep = func(ctx context.Context, s osm.State, changed []string) error {
								if err := keep(ctx, s, changed); err != nil {
									return err
								}
								if count > n {
									return died
								}
								return nil
							}
						}
						_, err := r.Apply(ctx, d, w.saved(), w.policy)
						cancel()
						if all := duplicates(w.server); len(all) > 0 {
							t.Fatalf("dead after %d: there are duplicates: %v", n, all)
						}
						if err == nil {
							break
						}
						lives++
						if !errors.Is(err, died) || lives > 2 {
							t.Fatalf("dead after %d: %v", n, err)
						}
						w.fail = nil
						count = -1 << 30
					}
				}
				all := w.server.Instances()
				if len(all) != 1 || all[0].Name != "a" || fmt.Sprint(all[0].Releases["upf/upf"].Values) != "map[y:1]" {
					t.Fatalf("dead after %d: there is %+v", n, all)
				}
				if lives == 0 {
					if n < 10 {
						t.Errorf("only %d steps were kept", n)
					}
					return // it did not fail: n is beyond the last save
				}
			}
		})
	}
}

func TestRequestWithoutAResponseIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	for _, fault := range []osmtest.Fault{osmtest.DropBefore, osmtest.DropAfter, osmtest.Refuse, osmtest.Fail, osmtest.FailAfter} {
		for _, where := range []string{"/ns_instances", "/instantiate", "/action", "/ns_lcm_op_occs", "_content"} {
			t.Run(fmt.Sprintf("%d at %s", fault, where), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, osmtest.Options{})
				n := 0
				w.server.Fault(func(method, path string) osmtest.Fault {
					if method != "PUT" && strings.HasSuffix(path, where) {
						n++
						if n == 1 {
							return fault
						}
					}
					return osmtest.None
				})
				for _, x := range []int{1, 2} {
					d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", x))}}
					w.settles(d, tko.ErrUnavailable)
				}
				if all := w.server.Instances(); len(all) != 1 || all[0].Releases["upf/upf"].Values["x"] != 2 {
					t.Errorf("there is %+v", all)
				}
				if diff := cmp.Diff([]string{"instantiate COMPLETED", "action COMPLETED"}, w.instance("a").Operations); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if n == 0 {
					t.Error("nothing went wrong")
				}
			})
		}
	}
}

// Instances that exist are adopted concurrently.
func TestManyInstancesAreAdoptedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages()}
	for i := range 20 {
		d.Instances = append(d.Instances, instance(fmt.Sprintf("i%d", i), values("x", 1)))
	}
	w.settles(d)
	w.state = nil
	w.settles(d)
	if n, all := len(w.server.Instances()), w.saved().Instances; n != 20 || len(all) != 20 {
		t.Fatalf("there are %d instances, and %d in the inventory, want 20", n, len(all))
	}
	for name, state := range w.saved().Instances {
		if !state.Adopted {
			t.Errorf("%s wasn't adopted", name)
		}
	}
}

const victimURL, victimUser, victimState = "TKO_TEST_OSM_URL", "TKO_TEST_OSM_USER", "TKO_TEST_OSM_STATE"

// TestMain runs the process that the test kills, which applies without end.
func TestMain(m *testing.M) {
	if url := os.Getenv(victimURL); url != "" {
		if err := victim(url, os.Getenv(victimUser), os.Getenv(victimState)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func victimDesired(round int) osm.Desired {
	d := osm.Desired{Packages: packages()}
	for i := range 12 {
		if (i+round)%4 > 0 {
			d.Instances = append(d.Instances, instance(fmt.Sprintf("i%d", i), values("round", round)))
		}
	}
	return d
}

// settle is long enough for the server to finish the requests of a process that died, also
// on a busy machine. Otherwise the next process would create an instance again.
const settle = time.Second

var victimPolicy = osm.Policy{
	Prune: true, Budget: prune.Budget{Percent: 100}, Wait: time.Minute, Poll: time.Millisecond, Settle: settle, Retry: time.Millisecond,
}

func victim(url, user, file string) error {
	e := (&osmtest.Server{URL: url}).Endpoint()
	e.User = user
	c, err := nbi.NewClient(e, nbi.Options{})
	if err != nil {
		return err
	}
	r := &osm.Reconciler{Client: c, Keep: func(_ context.Context, s osm.State, _ []string) error {
		data, err := json.Marshal(s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file+".new", data, 0o600); err != nil {
			return err
		}
		return os.Rename(file+".new", file)
	}}
	for round := 0; ; round++ {
		s, err := readState(file)
		if err != nil {
			return err
		}
		if _, err := r.Apply(context.Background(), victimDesired(round), s, victimPolicy); err != nil {
			return err
		}
		fmt.Println(round)
	}
}

func readState(file string) (s osm.State, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	return s, err
}

func TestKilledProcessNeverLeavesAnInstanceTwice(t *testing.T) {
	t.Parallel()
	users := map[string]string{"admin": "admin"} // one for each process, as OSM delays repeated logins
	for round := range 12 {
		users[fmt.Sprintf("user%d", round)] = "admin"
	}
	server := osmtest.Start(t, osmtest.Options{Delay: 5 * time.Millisecond, Users: users})
	file := filepath.Join(t.TempDir(), "state")
	for round := range 12 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimURL+"="+server.URL, fmt.Sprintf("%s=user%d", victimUser, round), victimState+"="+file)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		before := server.Counts().Total
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the process makes requests", func() bool { return server.Counts().Total >= before+3 })
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if stderr.Len() > 0 { // a data race
			t.Errorf("round %d:\n%s", round, &stderr)
		}
		if all := duplicates(server); len(all) > 0 {
			t.Fatalf("round %d: there are duplicates: %v", round, all)
		}
	}
	s, err := readState(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &osm.Reconciler{Client: osmtest.Client(t, server), Keep: func(context.Context, osm.State, []string) error { return nil }}
	report, err := r.Apply(t.Context(), victimDesired(0), s, victimPolicy)
	if err != nil || !report.Settled() {
		t.Fatalf("the next one: %v %+v", err, report.Instances)
	}
	if got, want := len(server.Instances()), len(victimDesired(0).Instances); got != want || len(duplicates(server)) > 0 {
		t.Errorf("there are %d instances, not %d", got, want)
	}
}
