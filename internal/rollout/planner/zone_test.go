package planner_test

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// A window whose time zone isn't known would open at another time than expected.
func TestPlanRefusesSitesWithAnUnknownTimeZone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(120) // more than are checked at once
	w.site("s01", map[string]string{"tz": "Europe/Berlim"})
	w.site("s02", map[string]string{"tz": "Europe/Berlin"})
	w.site("s119", map[string]string{"tz": ""})
	yaml := strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", `windows: [{from: "00:00", to: "24:00", zone: {key: tz, default: UTC}}]`, 1)
	s := w.create("r", yaml)
	if s.State != "Planned" || s.Kinds["Change"] != 118 || s.Kinds["Invalid"] != 2 {
		t.Fatalf("%s: %v", s.State, s.Kinds)
	}
	found := map[tko.DeploymentID]string{}
	for row, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: "r"}) {
		if err != nil {
			t.Fatal(err)
		}
		if row.Kind == "Invalid" {
			found[row.Deployment] = strings.Join(row.Findings, "; ")
		}
	}
	if text := found[ids[1]]; len(found) != 2 || !strings.Contains(text, `"tz" of site "s01" is "Europe/Berlim"`) || !strings.Contains(text, "set it to one such as UTC") || found[ids[119]] == "" {
		t.Errorf("findings: %v", found)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "r", Verb: "start", Plan: s.Plan}); err == nil || !strings.Contains(err.Error(), "2") {
		t.Errorf("start: %v", err)
	}
	w.site("s01", map[string]string{"tz": "UTC"})
	w.site("s119", nil)
	w.do("r", "plan")
	w.advance("r")
	if s := w.status("r"); s.Kinds["Change"] != 120 || s.Kinds["Invalid"] != 0 {
		t.Errorf("after a correction: %v", s.Kinds)
	}

	without := w.create("without", strings.Replace(yaml, ", zone: {key: tz, default: UTC}", "", 1))
	if without.Kinds["Invalid"] != 0 {
		t.Errorf("without zones: %v", without.Kinds)
	}
}
