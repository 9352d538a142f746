package prepare_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// ownTopology is a topology that names its own template, at all sites.
const ownTopology = `
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: own, sites: [all]}]}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: own}, spec: {templateId: own}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: all}, spec: {select: {metadata: {region: north}}}}
`

func sites(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("s%03d", i)] = "north"
	}
	return all
}

// A topology that names its own template makes no children. One that merges something into them makes them, and they make
// none: only these are known to be what their parent is.
func TestSystemEndsTopologyThatNamesItself(t *testing.T) {
	t.Parallel()
	const n = 5
	merging := strings.Replace(ownTopology, "sites: [all]", "sites: [all], merge: [{apiVersion: v1, kind: ConfigMap, name: more}]", 1) + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: more}}\n"
	for text, made := range map[string]int{ownTopology: 1, merging: 1 + n} {
		data := newSystem(t, catalog.Options{})
		register(t, data, map[string]string{"own": text}, sites(n))
		stop := run(t, data, runner{}, prepare.Options{Backoff: 10 * time.Millisecond})
		top, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Template: "own"})
		if err != nil {
			t.Fatal(err)
		}
		eventually.NoError(t, "conditions name the cycle", func() error {
			total := 0
			for d, err := range data.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
				if err != nil {
					return err
				}
				total++
				c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionPrepared)
				if refused := c != nil && strings.Contains(c.Message, "a cycle of topologies: own"); refused == (d.ID == top && made > 1) {
					return fmt.Errorf("%s: %+v", d.ID, c)
				}
			}
			if total != made {
				return fmt.Errorf("%d deployments, want %d", total, made)
			}
			return nil
		})
		stop()
		if total := count(t, data, tko.DeploymentSelect{}); total != made {
			t.Errorf("%d deployments, want %d", total, made)
		}
	}
}

// A topology with more sites than are free waits as a whole, until one consent.
func TestSystemWaitsForConsentToTopology(t *testing.T) {
	t.Parallel()
	const n = 620 // more than one call creates
	data := newSystem(t, catalog.Options{Reach: gate.ReachLimits{Created: 600}})
	register(t, data, map[string]string{"top": realNested, "leaf": realLeaf}, sites(n))
	stop := run(t, data, runner{}, prepare.Options{Backoff: 10 * time.Millisecond})
	defer stop()
	top, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Template: "top"})
	if err != nil {
		t.Fatal(err)
	}
	eventually.NoError(t, "the topology waits for consent", func() error {
		d, err := data.Deployment(t.Context(), top, 0)
		if err != nil {
			return err
		}
		c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionPrepared)
		waiting, ok := tko.WaitingOf(d.Stamp.Conditions)
		if !ok || waiting != (tko.Waiting{Create: n}) || c.Reason != tko.ReasonWaitsForApproval || c.Attempt != 0 {
			return fmt.Errorf("%+v", d.Stamp.Conditions)
		}
		if want := fmt.Sprintf("tko deployment approve %s --confirm=%d", top, n); !strings.Contains(c.Message, want) {
			return fmt.Errorf("%q doesn't contain %q", c.Message, want)
		}
		return nil
	})
	if total := count(t, data, tko.DeploymentSelect{}); total != 1 {
		t.Errorf("%d deployments before the consent, want 1", total)
	}
	if _, err := data.ApproveDeployment(tko.WithConfirmation(t.Context(), n), top); err != nil {
		t.Fatal(err)
	}
	waitFor(t, data, top, tko.ConditionTrue)
	if total := count(t, data, tko.DeploymentSelect{}); total != 1+n {
		t.Errorf("%d deployments after the consent, want %d", total, 1+n)
	}
}

// A placement whose changes exceed what it may within the window makes the rest by a rollout:
// the data controller counts what earlier evaluations changed.
func TestPlacementWhoseChangesAddUpBecomesARollout(t *testing.T) {
	t.Parallel()
	all := []string{"north-1", "north-2", "north-3", "north-4"}
	m, _, id := placedAt(t, "update: Apply, budget: {delete: 100}", all...)
	p := prepare.New(m, runner{}, prepare.Options{ReviewPause: time.Nanosecond, ReachPolicy: map[string]any{"waves": []any{}}})
	m.rollouts = nil
	deleted := 0
	m.beforeEach = func(call string) error {
		if call != "delete" {
			return nil
		}
		deleted++
		if deleted > 1 {
			return tko.Errorf(tko.ErrInvalid, "too many: %s", tko.RolloutText)
		}
		return nil
	}
	delete(m.sites, "north-1")
	reconcile(t, p, id)
	if len(m.rollouts) != 0 || len(m.children(id)) != 3 {
		t.Fatalf("%d rollouts, %d children: want that the first one is deleted", len(m.rollouts), len(m.children(id)))
	}
	delete(m.sites, "north-2")
	p = prepare.New(m, runner{}, prepare.Options{ReviewPause: time.Nanosecond, ReachPolicy: map[string]any{"waves": []any{}}})
	reconcile(t, p, id)
	if len(m.rollouts) != 1 || len(m.children(id)) != 3 {
		t.Errorf("%d rollouts, %d children: want a rollout for the second one", len(m.rollouts), len(m.children(id)))
	}
}

// A placement that would change what runs at many sites does so by a rollout, which a user
// starts: also what is left of it.
func TestPlacementAtManySitesBecomesARollout(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf("north-%02d", i))
	}
	policy := map[string]any{"waves": []any{map[string]any{"count": int64(1)}}}
	tests := map[string]struct {
		why    string
		lost   int // sites that are no longer selected
		policy map[string]any
		update string
		want   int // rollouts
	}{
		"few":        {"ten are free", 10, policy, "update: Apply, budget: {delete: 100}", 0},
		"many":       {"eleven are not", 11, policy, "update: Apply, budget: {delete: 100}", 1},
		"no policy":  {"it waits for one", 11, nil, "update: Apply, budget: {delete: 100}", 0},
		"a proposal": {"it waits anyway", 11, policy, "update: Apply", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _, id := placedAt(t, test.update, all...)
			p := prepare.New(m, runner{}, prepare.Options{ReviewPause: time.Nanosecond, ReachPolicy: test.policy})
			m.rollouts, m.sitesMax = nil, 10
			lose := func(sites ...string) {
				for _, site := range sites {
					delete(m.sites, tko.SiteID(site))
				}
			}
			lose(all[:test.lost]...)
			reconcile(t, p, id)
			if len(m.rollouts) != test.want {
				t.Fatalf("%d rollouts, want %d: %s", len(m.rollouts), test.want, test.why)
			}
			left := len(all)
			if name == "few" {
				left -= test.lost
			}
			if got := len(m.children(id)); got != left {
				t.Errorf("%d children are left, want %d", got, left)
			}
			if c := m.condition(id, tko.ConditionPlaced); name == "no policy" && !strings.Contains(c, tko.RolloutText) {
				t.Errorf("condition %q", c)
			}
			if name != "many" {
				return
			}
			spec := m.rollouts[0][0]
			if waves, _ := spec.Get("spec", "waves"); fmt.Sprint(waves) != fmt.Sprint(policy["waves"]) {
				t.Errorf("waves %v, want those of the policy", waves)
			}
			if c := m.condition(id, tko.ConditionPlaced); !strings.Contains(c, "is planned") {
				t.Errorf("condition %q", c)
			}
			for _, d := range m.deployments { // the rollout has changed all but three
				if d.Parent == id && len(m.children(id)) > 12 && d.Site < "north-08" {
					delete(m.deployments, d.ID)
				}
			}
			again := prepare.New(m, runner{}, prepare.Options{ReviewPause: time.Nanosecond, ReachPolicy: test.policy})
			reconcile(t, again, id)
			if len(m.rollouts) != 2 || len(m.children(id)) != 12 {
				t.Errorf("%d rollouts, %d children: what is left must stay with the rollout", len(m.rollouts), len(m.children(id)))
			}
		})
	}
}
