package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/cli"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/osm"
)

func TestSourcePlanHoldsAllOfAPreview(t *testing.T) {
	t.Parallel()
	refused := osm.Problem{What: "ns", Name: "core", Source: "core.yaml", Err: errors.New("in use")}
	preview := &gitops.Preview{
		Plan: &plan.Plan{
			Actions:  []plan.Action{{Verb: plan.Update, Kind: tko.KindSite, Name: "a", File: "a.yaml", Reason: "moved", Changes: []string{"x"}}},
			Held:     []plan.Action{{Verb: plan.Delete, Kind: tko.KindDeployment, Name: "d", With: 2}},
			Messages: []string{"a message"},
		},
		OSM: &osm.Plan{
			Changes:  []osm.Change{{Action: osm.ActionUpgrade, What: "instance", Name: "upf", Source: "upf.osmops.yaml", Paths: []string{"1/upf: replicaCount"}}},
			Refused:  []osm.Problem{refused},
			Warnings: []osm.Problem{{What: "vnf", Name: "smf", Source: "smf.yaml", Err: errors.New("unused")}},
		},
		New: true,
	}
	got := sourcePlan(preview)
	var texts []string
	for _, err := range got.Refused {
		texts = append(texts, err.Error())
	}
	if diff := cmp.Diff([]string{`core.yaml: NsPackage "core": in use`}, texts); diff != "" {
		t.Error(diff)
	}
	got.Refused = nil
	want := cli.SourcePlan{
		New:      true,
		Messages: []string{"a message"},
		Warnings: []string{`smf.yaml: VnfPackage "smf": unused`},
		Changes: []cli.PlannedChange{
			{Verb: "update", Kind: "site", Name: "a", File: "a.yaml", Reason: "moved", Details: []string{"x"}},
			{Verb: "delete", Kind: "deployment", Name: "d", Descendants: 2, Held: true},
			{Verb: "upgrade", Kind: "NsInstance", Name: "upf", File: "upf.osmops.yaml", Details: []string{"1/upf: replicaCount"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPlanSourceRefusesUnreadableKeysBeforeItUsesTheServer(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := planner{}.PlanSource(t.Context(), nil, fstest.MapFS{}, cli.PlanOptions{AgeKeys: keys})
	if !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("error %v, want an ErrInvalid", err)
	}
}
