package catalog_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// A change of an approved deployment that a person must approve is not deployed
// without a new approval.
func TestEditingAnApprovedDeploymentWithdrawsItsApproval(t *testing.T) {
	t.Parallel()
	const manual, auto = ", nephio.org/approve: Manual", ", nephio.org/approve: Auto"
	placement := func(count string) string {
		return "apiVersion: topology.nephio.org/v1alpha1\nkind: Placement\nmetadata: {name: p}\nspec: {a: 1}\nstatus: {deployments: " + count + "}\n---\n"
	}
	on, strict := catalog.Options{WithdrawApproval: true}, catalog.Options{WithdrawApproval: true, ManualApprove: true}
	tests := map[string]struct {
		why     string
		options catalog.Options
		site    string
		before  string // annotations in addition to prepared and approved
		change  func(p krm.Package) krm.Package
		stays   bool
	}{
		"a change":             {"it is manual", on, "s", manual, replacing(t, thing("a", "x: 2")), false},
		"a new resource":       {"it is a change", on, "s", manual, adding(t, thing("b", "x: 1")), false},
		"no change":            {"nothing goes live", on, "s", manual, func(p krm.Package) krm.Package { return p }, true},
		"the setting is off":   {"as it was", catalog.Options{}, "s", manual, replacing(t, thing("a", "x: 2")), true},
		"automatic":            {"it asks for no approval", strict, "s", auto, replacing(t, thing("a", "x: 2")), true},
		"the default":          {"preparers approve it", on, "s", "", replacing(t, thing("a", "x: 2")), true},
		"the default, manual":  {"preparers don't approve it", strict, "s", "", replacing(t, thing("a", "x: 2")), false},
		"no longer manual":     {"an edit doesn't choose", on, "s", manual, replacing(t, state("", isPrepared+", "+isApproved+auto)), false},
		"another site":         {"it wasn't approved for that", on, "s", manual, replacing(t, state("siteId: t", isPrepared+", "+isApproved+manual)), false},
		"no site":              {"it runs nowhere", on, "", manual, replacing(t, thing("a", "x: 2")), true},
		"a topology's status":  {"preparers write it", on, "s", manual, adding(t, placement("2")), true},
		"a topology's spec":    {"that is a change", on, "s", manual, adding(t, placement("2")+thing("c", "x: 1")), false},
		"without the resource": {"it comes back as it was", on, "s", manual, func(krm.Package) krm.Package { return pkg(t, thing("a", "x: 3")) }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ways := map[string]func(w *world, d tko.Deployment, p krm.Package) error{
				"commit": func(w *world, d tko.Deployment, p krm.Package) error {
					_, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: d.ID, Revision: d.Stamp.Revision, Package: p})
					return err
				},
				"modification": func(w *world, d tko.Deployment, p krm.Package) error {
					m, err := w.StartModification(w.ctx, d.ID)
					if err == nil {
						_, _, err = w.EndModification(w.ctx, m.Token, p)
					}
					return err
				},
				"put": func(w *world, d tko.Deployment, p krm.Package) error {
					_, _, err := w.PutRecord(w.ctx, catalog.Put{
						Key: record.Key{Kind: tko.KindDeployment, ID: string(d.ID)}, Site: string(d.Site), Metadata: d.Metadata, Package: p,
					})
					return err
				},
			}
			for way, write := range ways {
				w := newWorld(t, test.options)
				w.site("s", "")
				w.site("t", "")
				first := state("", isPrepared+", "+isApproved+test.before) + thing("a", "x: 1")
				if name == "a topology's status" || name == "a topology's spec" {
					first += placement("1")
				}
				id := w.create(tko.NewDeployment{Site: tko.SiteID(test.site), Merge: pkg(t, first)})
				before := w.deployment(id)
				if !before.Approved {
					t.Fatal("it isn't approved to begin with")
				}
				if err := write(w, before, test.change(before.Package)); err != nil {
					t.Fatalf("%s: %v", way, err)
				}
				after := w.deployment(id)
				condition := approvedCondition(after)
				if after.Approved != test.stays || after.Prepared != before.Prepared {
					t.Errorf("%s: approved is %t, prepared %t: %s", way, after.Approved, after.Prepared, test.why)
				}
				if withdrawn := condition.Status == tko.ConditionFalse && condition.Reason == tko.ReasonApprovalWithdrawn && condition.Message != ""; withdrawn == test.stays {
					t.Errorf("%s: the condition is %+v", way, condition)
				}
				if test.stays {
					continue
				}
				if n, err := w.ApproveDeployment(w.ctx, id); n != 1 || err != nil {
					t.Errorf("%s: approving it again: %d, %v", way, n, err)
				}
				if d := w.deployment(id); !d.Approved || approvedCondition(d).Status != tko.ConditionTrue {
					t.Errorf("%s: approved again it is %+v", way, approvedCondition(d))
				}
			}
		})
	}
}

// A writer whose package was read before the approval was withdrawn, such as a
// preparer, doesn't approve the deployment. A package that changes only the
// approval does.
func TestStalePackagesDontApprove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{WithdrawApproval: true})
	w.site("s", "")
	const flags = isApproved + ", nephio.org/approve: Manual"
	id := w.create(tko.NewDeployment{Site: "s", Merge: pkg(t, state("", isPrepared+", "+flags)+thing("a", "x: 1"))})
	commit := func(yaml string, conditions ...tko.Condition) tko.Deployment {
		t.Helper()
		before := w.deployment(id)
		if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: before.Stamp.Revision, Package: pkg(t, yaml), Conditions: conditions}); err != nil {
			t.Fatal(err)
		}
		return w.deployment(id)
	}
	withdrawn := func(step string, d tko.Deployment) {
		t.Helper()
		if c := approvedCondition(d); d.Approved || c.Status != tko.ConditionFalse || c.Reason != tko.ReasonApprovalWithdrawn {
			t.Errorf("%s: approved is %t, the condition %+v", step, d.Approved, c)
		}
	}
	site := "siteId: s"
	withdrawn("an edit", commit(state(site, flags)+thing("a", "x: 2")))
	withdrawn("a step of a preparer", commit(state(site, flags)+thing("a", "x: 3")))
	withdrawn("its end", commit(state(site, isPrepared+", "+flags)+thing("a", "x: 3"), tko.Condition{Type: tko.ConditionApproved, Status: tko.ConditionTrue, Reason: "Approved"}))
	if d := w.deployment(id); !d.Prepared {
		t.Error("it isn't prepared")
	}
	withdrawn("another edit", commit(state(site, isPrepared+", "+flags)+thing("a", "x: 4")))
	if d := commit(state(site, isPrepared+", "+flags) + thing("a", "x: 4")); !d.Approved || approvedCondition(d).Status != tko.ConditionTrue {
		t.Errorf("a package that only approves: %t, %+v", d.Approved, approvedCondition(d))
	}
}

func approvedCondition(d tko.Deployment) tko.Condition {
	for _, c := range d.Stamp.Conditions {
		if c.Type == tko.ConditionApproved {
			return c
		}
	}
	return tko.Condition{}
}

// replacing replaces resources of a package by those of the same identity.
func replacing(t *testing.T, yaml string) func(krm.Package) krm.Package {
	return func(p krm.Package) krm.Package {
		out := append(krm.Package(nil), p...)
		for _, r := range pkg(t, yaml) {
			out[out.Index(r.Identity())] = r
		}
		return out
	}
}

// adding adds resources, and replaces those of the same identity.
func adding(t *testing.T, yaml string) func(krm.Package) krm.Package {
	return func(p krm.Package) krm.Package {
		out := append(krm.Package(nil), p...)
		for _, r := range pkg(t, yaml) {
			if i := out.Index(r.Identity()); i >= 0 {
				out[i] = r
			} else {
				out = append(out, r)
			}
		}
		return out
	}
}
