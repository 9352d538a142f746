package planner_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

// heard sets when the agent of a site was heard.
func (w *world) heard(id tko.SiteID, ago time.Duration) {
	w.t.Helper()
	at := time.Now().Add(-ago)
	if err := w.SetConditions(w.ctx, tko.KindSite, string(id), []tko.Condition{tko.HeardCondition(at, at.Add(10*time.Minute))}); err != nil {
		w.t.Fatal(err)
	}
}

// The plan says how many sites are away; their deployments wait, are left out, or fail. A site is
// away once its time is over, also before a condition says so.
func TestRolloutsDecideAboutSitesThatAreAway(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]struct{ state, versions, progress string }{
		"":     {"Running", "v2 v1 v2", "Waiting"},
		"Skip": {"Done", "v2 v1 v2", "Skipped"},
		"Fail": {"Paused", "v2 v1 v2", "Skipped"},
	} {
		t.Run("policy "+policy, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ids := w.fleet(3)
			w.heard("s00", 0)
			w.heard("s01", time.Hour)
			yaml := strings.Replace(upgrade, "  waves: [{name: canary, count: 1}, {name: rest}]\n", "", 1)
			if policy != "" {
				yaml += "  unreachable: " + policy + "\n"
			}
			w.started("r", yaml)
			p, err := w.RolloutPlan(w.ctx, "r")
			if err != nil || !strings.Contains(strings.Join(p.Warnings, "; "), `1 deployment is away: the agents of 1 site (such as "s01") are not heard now: with spec.unreachable `) {
				t.Errorf("the plan warns of %q, %v", p.Warnings, err)
			}
			for range 3 {
				w.advance("r")
				w.settle(ids[0], ids[2])
				w.advance("r")
			}
			s := w.status("r")
			if s.State != want.state || w.versions(ids) != want.versions || s.Waves[0].Progress[want.progress] != 1 {
				t.Errorf("it is %s (%s), at %s, with %v", s.State, s.Reason, w.versions(ids), s.Waves)
			}
			switch policy {
			case "Fail":
				if s.Failures != 1 {
					t.Errorf("there are %d failures", s.Failures)
				}
				w.do("r", "waive", func(c *tko.RolloutCommand) { c.Deployment = ids[1] })
				w.do("r", "resume")
				w.advance("r")
				if s := w.status("r"); s.State != "Done" {
					t.Errorf("after it was waived, it is %s", s.State)
				}
			case "":
				if text := strings.Join(s.Blocks, "; "); !strings.Contains(text, "1 deployment waits: the agents of their sites are not heard") {
					t.Errorf("it is blocked by %q", text)
				}
				w.heard("s01", 0)
				for range 3 {
					w.advance("r")
					w.settle(ids...)
					w.advance("r")
				}
				if s := w.status("r"); s.State != "Done" || w.versions(ids) != "v2 v2 v2" {
					t.Errorf("after the site is back, it is %s at %s", s.State, w.versions(ids))
				}
			}
		})
	}
}
