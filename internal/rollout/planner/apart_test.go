package planner_test

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// apartOf is a rollout of the deployments of some sites that keeps pairs apart.
func apartOf(id, limits string, sites ...string) string {
	var edits strings.Builder
	for _, site := range sites {
		edits.WriteString("  - {upgrade: {to: \"t:v2\"}, select: {templateIdPatterns: [\"t:v1\"], siteIdPatterns: [" + site + "]}}\n")
	}
	return "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: " + id + "}\nspec:\n" + limits + "  edits:\n" + edits.String()
}

const apartPairs = "  limits: {apart: [pair]}\n"

// changedAt returns the sites at which the deployments are at v2.
func (w *world) changedAt(ids []tko.DeploymentID) string {
	w.t.Helper()
	var sites []string
	for _, id := range ids {
		if w.version(id) == "v2" {
			sites = append(sites, string(w.deployment(id).Site))
		}
	}
	return strings.Join(sites, " ")
}

// Sites with equal metadata are never changed at once, also if they become equal, or begin
// to be changed, late.
func TestApartHoldsForWhatBecomesRelevantLate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why string
		// before and after happen after the start of the rollout, before or after its first
		// evaluation. s00 and s01 have the pair 0, s02 and s03 the pair 1.
		before, after func(w *world, ids []tko.DeploymentID)
		sites         []string // of the rollout; s00 and s02 if nil
		first         string   // what is changed at first
	}{
		"waiting site is relabelled": {
			why:    "the row of s02 is compared by its site's metadata of now",
			before: func(w *world, _ []tko.DeploymentID) { w.site("s02", map[string]string{"pair": "0"}) },
			first:  "one",
		},
		"site in flight is relabelled": {
			why: "it counts by its metadata at admission and by that of now",
			after: func(w *world, ids []tko.DeploymentID) {
				w.site(w.changedAt(ids), map[string]string{"pair": "9"})
			},
			sites: []string{"s00", "s01"}, first: "one",
		},
		"site in flight becomes a peer": {
			why: "s00 counts by its metadata of now, too",
			after: func(w *world, _ []tko.DeploymentID) {
				w.site("s00", map[string]string{"pair": "1"})
				w.started("o", apartOf("o", "", "s02"))
			},
			sites: []string{"s00"}, first: "s00",
		},
		"client changes a peer": {
			why: "s01 has a revision that isn't scheduled yet",
			before: func(w *world, ids []tko.DeploymentID) {
				w.edit(ids[1], set(w.t, `v1 ConfigMap "c"`, "mine", "data", "other"))
			},
			first: "s02",
		},
		"client creates a deployment at a peer": {
			why: "what is new at s01 isn't scheduled yet",
			before: func(w *world, _ []tko.DeploymentID) {
				if _, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t:v1", Site: "s01"}); err != nil {
					w.t.Fatal(err)
				}
			},
			first: "s02",
		},
		"placement creates a child at a peer": {
			why: "what placements change counts, too",
			before: func(w *world, _ []tko.DeploymentID) {
				w.site("s01", map[string]string{"pair": "0", "region": "north"})
				w.template("cu:v1", config("cu", `x: "1"`))
				w.template("ran", topology("north", "cu:v1"))
				w.deploy("ran", "", "")
			},
			first: "s02",
		},
		"another rollout without the limit changes a peer": {
			why: "the limit of one rollout counts against all others",
			before: func(w *world, _ []tko.DeploymentID) {
				w.started("o", apartOf("o", "", "s01"))
			},
			first: "s01 s02",
		},
		"another rollout without the limit starts later": {
			why: "and all others against it",
			after: func(w *world, _ []tko.DeploymentID) {
				w.started("o", apartOf("o", "", "s01"))
			},
			first: "s00 s02",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ids := w.fleet(4)
			sites := test.sites
			if sites == nil {
				sites = []string{"s00", "s02"}
			}
			s := w.create("r", apartOf("r", apartPairs, sites...))
			w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
			if test.before != nil {
				test.before(w, ids)
			}
			w.advance("r")
			if test.after != nil {
				test.after(w, ids)
				w.advance("r")
			}
			got := w.changedAt(ids)
			if test.first == "one" && len(strings.Fields(got)) != 1 || test.first != "one" && got != test.first {
				t.Fatalf("%s: changed at %q, want %q; %+v", test.why, got, test.first, w.status("r").Blocks)
			}
			for range 6 { // in the end everything is changed
				w.settle(w.all()...)
				w.advance("r")
				w.advance("o")
			}
			if s := w.status("r"); s.State != "Done" || s.Kinds["Change"] != len(sites) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// What others change at a peer is stored, but not scheduled, until the rollout has finished
// with the site that it is changing.
func TestRolloutHoldsTheSchedulingOfPeersThatOthersChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(4)
	w.started("r", apartOf("r", apartPairs, "s00"))
	held := func(site tko.SiteID, want string) {
		t.Helper()
		reason, err := w.SiteHold(w.ctx, site)
		if err != nil || want == "" && reason != "" || !strings.Contains(reason, want) {
			t.Errorf("site %s is held by %q (%v), want %q", site, reason, err, want)
		}
	}
	w.edit(ids[1], set(t, `v1 ConfigMap "c"`, "mine", "data", "other"))
	held("s00", "") // it is the one that is changed
	held("s01", `rollout "r" is changing site "s00", whose pair is "0", too`)
	held("s02", "")
	w.site("s02", map[string]string{"pair": "0"})
	held("s02", `site "s00"`)
	w.site("s00", map[string]string{"pair": "1"})
	held("s01", `site "s00"`) // by the values at its admission
	held("s03", `site "s00"`) // and by those of now
	w.settle(ids[0])
	w.advance("r")
	for _, site := range []tko.SiteID{"s00", "s01", "s02", "s03"} {
		held(site, "")
	}
}

// Two sites that become equal while both are being changed don't wait for each other.
func TestSitesInFlightDoNotHoldEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(4)
	w.started("r", apartOf("r", apartPairs, "s00", "s02"))
	w.site("s02", map[string]string{"pair": "0"})
	for _, site := range []tko.SiteID{"s00", "s02"} {
		if reason, err := w.SiteHold(w.ctx, site); err != nil || reason != "" {
			t.Errorf("site %s is held by %q: %v", site, reason, err)
		}
	}
	if reason, err := w.SiteHold(w.ctx, "s01"); err != nil || reason == "" {
		t.Errorf("s01 isn't held: %v", err)
	}
}
