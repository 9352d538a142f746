package callhome_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// policies are those of rollouts for sites that are away, by the names of the rollouts.
var policies = map[string]string{"wait": "Wait", "skip": "Skip", "fail": "Fail", "flight": "Wait"}

// versions registers two versions of a template for each rollout, and a deployment of the first one of
// each at each site. It returns when all are approved.
func (w *world) versions(sites ...string) {
	w.t.Helper()
	for name := range policies {
		for _, version := range []string{"v1", "v2"} {
			_, err := w.client.RegisterTemplate(w.patient(), tko.Template{ID: tko.TemplateID(name + ":" + version), Package: configMap(name, name+"-"+version)})
			w.check(err)
		}
		for _, site := range sites {
			_, err := w.client.CreateDeployment(w.patient(), tko.NewDeployment{Template: tko.TemplateID(name + ":v1"), Site: tko.SiteID(site)})
			w.check(err)
		}
	}
	eventually.Within(w.t, timeLimit, "all deployments are approved", func() error {
		for d, err := range w.client.Deployments(w.patient(), tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err == nil && !d.Approved {
				err = fmt.Errorf("deployment %q is not approved", d.ID)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// upgrade starts a rollout.
func (w *world) upgrade(name string) {
	w.t.Helper()
	_, err := w.client.RegisterRollout(w.patient(), tko.Rollout{ID: tko.RolloutID(name), Package: krm.Package{{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"edits":       []any{map[string]any{"upgrade": map[string]any{"to": name + ":v2"}, "select": map[string]any{"templateIdPatterns": []any{name + ":v1"}}}},
			"health":      map[string]any{"within": "10m", "none": "Accept"}, // a repository reports no health
			"unreachable": policies[name],
		},
	}}})
	w.check(err)
	s := w.becomes(name, "Planned")
	_, err = w.client.RolloutDo(w.patient(), tko.RolloutCommand{ID: tko.RolloutID(name), Verb: "start", Plan: s.Plan})
	w.check(err)
}

// becomes waits until a rollout has a state.
func (w *world) becomes(name, state string) (s tko.RolloutStatus) {
	w.t.Helper()
	return w.rollout(name, state, func(s tko.RolloutStatus) bool { return s.State == state })
}

// rollout waits until the status of a rollout is so.
func (w *world) rollout(name, what string, is func(tko.RolloutStatus) bool) (s tko.RolloutStatus) {
	w.t.Helper()
	eventually.Within(w.t, timeLimit, fmt.Sprintf("the rollout %q is %s", name, what), func() (err error) {
		s, err = w.client.RolloutStatus(w.patient(), tko.RolloutID(name))
		if err == nil && !is(s) {
			err = fmt.Errorf("it is %s (%s), with %v and blocks %q", s.State, s.Reason, s.Waves, s.Blocks)
		}
		return err
	})
	return s
}

// Three sites call home to a server with PostgreSQL, and one of them is away while each policy has a
// rollout: it waits for the site, leaves it out, or fails there. When the site is back, it gets only
// what waited.
func TestRolloutsWithASiteThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--store="+pgtest.DSN(t), "--agents-silence=8s")
	sites := []string{"a/1", "a/2", "a/3"}
	var agents []*agent
	for _, site := range sites {
		w.site(site)
	}
	w.versions(sites...)
	all := func(version string) []string {
		return []string{"wait-" + version, "skip-" + version, "fail-" + version}
	}
	for _, site := range sites {
		agents = append(agents, w.agentOf(site))
	}
	for _, a := range agents {
		a.has(append(all("v1"), "flight-v1"), nil)
	}
	for d, err := range w.client.Deployments(w.patient(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		w.check(err)
		w.reported(d.ID, tko.ConditionScheduled, tko.ConditionTrue)
	}
	away := agents[2]
	away.kill()
	w.condition(tko.KindSite, "a/3", tko.ConditionConnected, tko.ConditionFalse, tko.ReasonNotHeard)

	for _, name := range []string{"wait", "skip", "fail"} {
		w.upgrade(name)
	}
	for _, a := range agents[:2] {
		a.has(all("v2"), all("v1"))
	}
	if s := w.becomes("fail", "Paused"); s.Failures != 1 {
		t.Errorf("with Fail, there are %d failures: %s", s.Failures, s.Reason)
	}
	if s := w.becomes("skip", "Done"); s.Failures != 0 || s.Waves[0].Progress["Skipped"] != 1 || s.Waves[0].Progress["Healthy"] != 2 {
		t.Errorf("with Skip, it is %+v", s)
	}
	s := w.rollout("wait", "healthy at the other sites", func(s tko.RolloutStatus) bool { return s.Waves[0].Progress["Healthy"] == 2 })
	if text := strings.Join(s.Blocks, "; "); s.State != "Running" || !strings.Contains(text, "1 deployment waits: the agents of their sites are not heard (condition Connected): \"a/3\" since 2") {
		t.Errorf("with Wait, the rollout is %s, and waits for %q", s.State, text)
	}

	away.start()
	away.has([]string{"wait-v2", "skip-v1", "fail-v1"}, []string{"wait-v1", "skip-v2", "fail-v2"})
	w.becomes("wait", "Done")
	w.becomes("fail", "Paused")

	// An agent that goes away while its site is changed leaves nothing healthy, as it isn't known what the
	// site has; when the agent is back, the rollout goes on.
	away = agents[1]
	away.kill()
	w.upgrade("flight")
	w.condition(tko.KindSite, "a/2", tko.ConditionConnected, tko.ConditionFalse, tko.ReasonNotHeard)
	s = w.rollout("flight", "healthy at the other sites", func(s tko.RolloutStatus) bool { return s.Waves[0].Progress["Healthy"] == 2 })
	if s.State != "Running" {
		t.Errorf("the rollout without a/2 is %+v", s)
	}
	away.start()
	away.has([]string{"flight-v2"}, []string{"flight-v1"})
	if s := w.becomes("flight", "Done"); s.Waves[0].Progress["Healthy"] != 3 || s.Failures != 0 {
		t.Errorf("the rollout is %+v", s)
	}
}

// Any server of a store serves any agent: one that connects to another server gets what is changed
// through the first one, with nothing lost or repeated, also when servers are killed in turn.
func TestAgentsMoveBetweenServersOfAStore(t *testing.T) {
	t.Parallel()
	store := "--store=" + pgtest.DSN(t)
	first := newWorld(t, store)
	second := first.replica(store)
	first.site("a/1")
	id := first.deploy("a/1", "one", "v0")
	stays := first.deploy("a/1", "stays", "untouched")
	between := newProxy(t, first.agents)
	other := first.agents
	first.agents = between.listener.Addr().String()
	a := first.agent()
	a.has([]string{"value: v0", "value: untouched"}, nil)
	first.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	before := len(a.commits())

	between.forward(second.agents)
	second.change(id, "v1")
	a.has([]string{"value: v1", "value: untouched"}, []string{"value: v0"})
	first.reported(id, tko.ConditionScheduled, tko.ConditionTrue)

	second.server.Kill()
	between.forward(other)
	first.change(id, "v2")
	a.has([]string{"value: v2", "value: untouched"}, nil)
	first.reported(id, tko.ConditionScheduled, tko.ConditionTrue)
	first.reported(stays, tko.ConditionScheduled, tko.ConditionTrue)
	if got := len(a.commits()) - before; got != 2 {
		t.Errorf("two changes have made %d commits", got)
	}
}

// replica starts another server of the store, with the same authority of agents.
func (w *world) replica(store string) *world {
	w.t.Helper()
	host, _, err := net.SplitHostPort(w.agents)
	w.check(err)
	other := &world{t: w.t, home: w.home, dir: w.dir, ca: w.ca, grpc: freeAddress(w.t, host), agents: freeAddress(w.t, host)}
	for _, flag := range w.flags {
		if !strings.HasPrefix(flag, "--listen") && !strings.HasPrefix(flag, "--store") {
			other.flags = append(other.flags, flag)
		}
	}
	other.flags = append(other.flags, store, "--listen-grpc="+other.grpc, "--listen-agents="+other.agents)
	other.start()
	other.client = w.dialGRPC(other.grpc)
	return other
}
