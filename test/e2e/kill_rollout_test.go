package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// The data controller, the preparer and the rollout controller are killed with kill -9 at
// random moments of a rollout and of its undo. Each row is applied exactly once, at the
// planned revision, and the undo returns every deployment to what it was.
func TestRolloutSurvivesKills(t *testing.T) {
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds, n := killPlan(t)
			address := freeAddress(t)
			common := []string{"--confirm-above=1000000", "--work-lease=2s", "--retry=100ms", "--retry-max=1s"}
			flags := map[string][]string{
				"data":     append([]string{"--roles=data", "--store=" + store(t), "--listen-grpc=" + address}, common...),
				"preparer": append([]string{"--roles=preparer", "--data=" + address}, common...),
				"rollout":  append([]string{"--roles=rollout", "--data=" + address}, common...),
			}
			roles := []string{"data", "preparer", "rollout"}
			servers := map[string]*process.Server{}
			for _, role := range roles {
				servers[role] = process.StartServer(t, flags[role]...)
			}
			c, ctx := dial(t, address), patient(t)
			for _, v := range []string{"v1", "v2"} {
				if _, err := c.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID("smf:" + v), Package: parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {version: "+v+", other: x}}")}); err != nil {
					t.Fatal(err)
				}
			}
			for range n {
				if _, err := c.CreateDeployment(ctx, tko.NewDeployment{Template: "smf:v1"}); err != nil {
					t.Fatal(err)
				}
			}
			eventually.NoError(t, "the preparation", func() error {
				for d, err := range c.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
					if err != nil || !d.Prepared || !d.Approved {
						return fmt.Errorf("%s isn't prepared: %w", d.ID, err)
					}
				}
				return nil
			})
			before := packages(ctx, t, c)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			kill := func(times int) {
				for i := range times {
					time.Sleep(time.Duration(random.Int64N(int64(400 * time.Millisecond)))) // the random moment
					role := roles[i%len(roles)]
					servers[role].Kill()
					servers[role] = process.StartServer(t, flags[role]...)
				}
			}
			_, err := c.RegisterRollout(ctx, tko.Rollout{ID: "r", Package: parse(t, `
apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [{upgrade: {to: "smf:v2"}, select: {templateIdPatterns: ["smf:v1"]}}]
  waves: [{name: canary, count: 2}, {name: rest}]
  limits: {concurrent: 5}
  health: {within: 10m}
`)})
			if err != nil {
				t.Fatal(err)
			}
			kill(1)
			reach(ctx, t, c, "r", "Planned")
			s, err := c.RolloutStatus(ctx, "r")
			if err == nil {
				_, err = c.RolloutDo(ctx, tko.RolloutCommand{ID: "r", Verb: "start", Plan: s.Plan})
			}
			if err != nil {
				t.Fatal(err)
			}
			kill(rounds)
			reach(ctx, t, c, "r", "Done")
			applied(ctx, t, c, `rollout "r"`)
			if during := packages(ctx, t, c); len(during) != n || strings.Contains(fmt.Sprint(during), "version: v1") {
				t.Error("not every deployment was upgraded")
			}
			if _, err := c.RolloutDo(ctx, tko.RolloutCommand{ID: "r", Verb: "undo"}); err != nil {
				t.Fatal(err)
			}
			kill(rounds)
			reach(ctx, t, c, "r", "Undone")
			applied(ctx, t, c, `rollout "r-undo"`)
			if diff := cmp.Diff(before, packages(ctx, t, c)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// reach waits until a rollout is in a state.
func reach(ctx context.Context, t *testing.T, c *client.Client, id tko.RolloutID, state string) {
	t.Helper()
	eventually.NoError(t, fmt.Sprintf("rollout %s %s", id, state), func() error {
		s, err := c.RolloutStatus(ctx, id)
		if err == nil && s.State != state {
			err = fmt.Errorf("it is %+v", s)
		}
		return err
	})
}

// packages returns the packages of all deployments with their states, by ID.
func packages(ctx context.Context, t *testing.T, c *client.Client) map[tko.DeploymentID]string {
	t.Helper()
	all := map[tko.DeploymentID]string{}
	for d, err := range c.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			t.Fatal(err)
		}
		text, err := krm.Encode(krm.YAML, d.Package)
		if err != nil {
			t.Fatal(err)
		}
		all[d.ID] = fmt.Sprint(d.Template, d.TemplateRevision, d.Site, d.Metadata, d.Prepared, d.Approved, "\n", string(text))
	}
	return all
}

// applied checks that each deployment has exactly one revision for a reason.
func applied(ctx context.Context, t *testing.T, c *client.Client, why string) {
	t.Helper()
	for d, err := range c.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		times := 0
		for n := int64(1); n <= d.Stamp.Revision; n++ {
			r, err := c.Deployment(ctx, d.ID, n)
			if err != nil {
				t.Fatal(err)
			}
			if r.Stamp.Why == why || strings.HasPrefix(r.Stamp.Why, why+":") {
				times++
			}
		}
		if times != 1 {
			t.Errorf("deployment %s was changed %d times for %s", d.ID, times, why)
		}
	}
}
