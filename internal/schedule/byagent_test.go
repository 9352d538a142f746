package schedule

import (
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

var agentCluster = krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"}, "spec": map[string]any{"agent": map[string]any{}}}

// conditionsOf returns the conditions that a reconciliation writes at a site of an agent, by ID
// and type.
func conditionsOf(site tko.Site, deployments ...tko.Deployment) map[string]tko.Condition {
	site.Package = krm.Package{agentCluster}
	seen := snapshot{site: site, deployments: deployments}
	p := decide(seen, nil)
	all := map[string]tko.Condition{}
	for _, c := range conclude(seen, p, make([]result, len(p.steps))) {
		all[c.id+" "+c.condition.Type] = c.condition
	}
	return all
}

func TestNothingIsKnownOfSitesOfAgentsUntilTheyReport(t *testing.T) {
	t.Parallel()
	d := tko.Deployment{ID: "d", Site: "s", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 3}}
	all := conditionsOf(tko.Site{ID: "s", Stamp: tko.Stamp{Revision: 2}}, d)
	for _, name := range []string{"d Scheduled", "d Healthy", "s Scheduled", "s Healthy"} {
		if c := all[name]; c.Status != tko.ConditionUnknown || c.Reason != tko.ReasonByAgent {
			t.Errorf("%s is %+v", name, c)
		}
	}
}

func TestSitesOfAgentsWithAnotherTargetAreNeverWhole(t *testing.T) {
	t.Parallel()
	p := plan{agent: true}
	all := p.withoutAgent([]conditionOf{
		{condition: tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue}},
		{condition: tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionTrue}},
		{condition: tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionFalse}},
	})
	if all[0].condition.Status != tko.ConditionUnknown || all[1].condition.Status != tko.ConditionUnknown || all[2].condition.Status != tko.ConditionFalse {
		t.Errorf("the conditions are %+v", all)
	}
}

func TestReportsOfAgentsStayForTheirRevision(t *testing.T) {
	t.Parallel()
	reported := func(typ string) tko.Condition {
		return tko.ReportedCondition(tko.Condition{Type: typ, Status: tko.ConditionTrue, Reason: "Healthy", ObservedRevision: 3}, time.Now())
	}
	d := tko.Deployment{ID: "d", Site: "s", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 3, Conditions: []tko.Condition{reported(tko.ConditionHealthy), reported(tko.ConditionScheduled)}}}
	site := tko.Site{ID: "s", Stamp: tko.Stamp{Revision: 2}}
	if all := conditionsOf(site, d); all["d Scheduled"].Type != "" || all["d Healthy"].Type != "" {
		t.Errorf("what the agent reported is replaced: %+v", all)
	}
	again := d
	again.Prepared = false
	if all := conditionsOf(site, again); all["d Scheduled"].Type != "" {
		t.Errorf("the site keeps a deployment that is being prepared again, and yet: %+v", all)
	}
	newer := d
	newer.Stamp.Revision = 4
	if all := conditionsOf(site, newer); all["d Healthy"].Status != tko.ConditionUnknown || all["d Scheduled"].ObservedRevision != 4 {
		t.Errorf("a revision that no agent reported is %+v", all)
	}
}

func TestNothingIsHealthyFromMemory(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	heard := tko.HeardCondition(at, at.Add(time.Minute))
	heard.ObservedRevision = 2
	healthy := tko.AgentCondition(tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "Healthy", ObservedRevision: 3}, at)
	d := tko.Deployment{ID: "d", Site: "s", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 3, Conditions: []tko.Condition{healthy}}}
	quiet := func(now time.Time, conditions ...tko.Condition) (map[string]tko.Condition, time.Duration) {
		seen := snapshot{site: tko.Site{ID: "s", Package: krm.Package{agentCluster}, Stamp: tko.Stamp{Revision: 2, Conditions: conditions}}, deployments: []tko.Deployment{d}}
		written, again := silence(seen, decide(seen, nil), now)
		all := map[string]tko.Condition{}
		for _, c := range written {
			all[c.id+" "+c.condition.Type] = c.condition
		}
		return all, again
	}
	if all, again := quiet(at); len(all) != 0 || again != 0 {
		t.Errorf("a site whose agent never connected: %v, %s", all, again)
	}
	if all, again := quiet(at.Add(20*time.Second), heard); len(all) != 0 || again != 40*time.Second {
		t.Errorf("a site whose agent was heard: %v, %s", all, again)
	}
	all, again := quiet(at.Add(time.Minute), heard)
	if c := all["s Connected"]; c.Status != tko.ConditionFalse || c.Reason != tko.ReasonNotHeard || again != askAgain {
		t.Errorf("the site is %+v, again in %s", c, again)
	}
	for _, name := range []string{"d Healthy", "s Healthy"} {
		if c := all[name]; c.Status != tko.ConditionUnknown || c.Reason != tko.ReasonNotHeard || c.Message != tko.NotHeardText("s", at) {
			t.Errorf("%s is %+v", name, c)
		}
	}
	silent, before := all["s Connected"], d.Stamp.Conditions
	d.Stamp.Conditions = []tko.Condition{all["d Healthy"]}
	if all, again := quiet(at.Add(time.Hour), silent, all["s Healthy"]); len(all) != 0 || again != 0 {
		t.Errorf("what is there is written again in %s: %v", again, all)
	}
	d.Stamp.Conditions = before
	for range 2 { // likewise of a certificate that was revoked, and again
		all, _ = quiet(at.Add(time.Hour), silent)
		if c := all["s Connected"]; c.Type != "" || all["d Healthy"].Status != tko.ConditionUnknown {
			t.Errorf("the site is %+v", all)
		}
		silent.Reason = tko.ReasonRevoked
	}
	// A site that is dialled from now on has no agent that could be away.
	dialled := snapshot{site: tko.Site{ID: "s", Stamp: tko.Stamp{Revision: 3, Conditions: []tko.Condition{silent, {Type: tko.ConditionHeldByOwner, Status: tko.ConditionTrue}}}}}
	written, _ := silence(dialled, decide(dialled, nil), at.Add(time.Hour))
	var after []tko.Condition
	for _, c := range written {
		after = append(after, c.condition)
	}
	if _, away := tko.AgentAway("s", after, at.Add(time.Hour)); away || len(after) != 2 {
		t.Errorf("a site that is dialled is away: %+v", after)
	}
	if _, _, held := tko.HeldByOwner(after); held {
		t.Errorf("a site that is dialled is held by its owner: %+v", after)
	}
	// What the agent reports when it is back replaces that, and nothing else does.
	d.Stamp.Conditions = []tko.Condition{all["d Healthy"]}
	if got := conditionsOf(tko.Site{ID: "s", Stamp: tko.Stamp{Revision: 2, Conditions: []tko.Condition{heard}}}, d); got["d Healthy"].Type != "" {
		t.Errorf("it is %+v", got["d Healthy"])
	}
}
