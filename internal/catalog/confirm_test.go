package catalog_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// prepared creates prepared deployments.
func (w *world) prepared(n int) {
	w.t.Helper()
	for range n {
		w.create(tko.NewDeployment{Prepared: true})
	}
}

func (w *world) countDeployments() int {
	w.t.Helper()
	return len(all(w.t, w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{})))
}

// A request that removes more than half of a kind, or approves more than the limit,
// changes nothing unless it confirms the count.
func TestLargeDeletionsMustBeConfirmed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why    string
		fill   func(w *world)
		run    func(ctx context.Context, w *world) error
		counts int // entities that the request affects,
		free   bool
	}{
		"purge of sites": {
			why:  "all are more than half",
			fill: func(w *world) { w.sites("s", 11) },
			run: func(ctx context.Context, w *world) error {
				_, err := w.PurgeSites(ctx, tko.SiteSelect{}, false)
				return err
			}, counts: 11,
		},
		"purge of few sites": {
			why:  "ten are not above ten",
			fill: func(w *world) { w.sites("s", 10) },
			run: func(ctx context.Context, w *world) error {
				_, err := w.PurgeSites(ctx, tko.SiteSelect{}, false)
				return err
			}, counts: 10, free: true,
		},
		"purge of half": {
			why:  "half is not more than half",
			fill: func(w *world) { w.sites("s", 12); w.sites("t", 12) },
			run: func(ctx context.Context, w *world) error {
				_, err := w.PurgeSites(ctx, tko.SiteSelect{IDs: []string{"s/*"}}, false)
				return err
			}, counts: 12, free: true,
		},
		"purge of more than half": {
			why:  "it is one more than half",
			fill: func(w *world) { w.sites("s", 13); w.sites("t", 12) },
			run: func(ctx context.Context, w *world) error {
				_, err := w.PurgeSites(ctx, tko.SiteSelect{IDs: []string{"s/*"}}, false)
				return err
			}, counts: 13,
		},
		"purge of templates": {
			why: "templates are a kind of their own",
			fill: func(w *world) {
				w.sites("s", 100)
				for i := range 11 {
					w.template(fmt.Sprintf("t/%d", i), "")
				}
			},
			run: func(ctx context.Context, w *world) error {
				_, err := w.PurgeTemplates(ctx, tko.TemplateSelect{}, false)
				return err
			}, counts: 11,
		},
		"purge of plugins": {
			why: "and plugins",
			fill: func(w *world) {
				for i := range 11 {
					w.plugin(tko.Plugin{Type: tko.PluginPrepare, Name: fmt.Sprintf("p/%d", i), Arguments: []string{"x"}})
				}
			},
			run: func(ctx context.Context, w *world) error {
				_, err := w.PurgePlugins(ctx, tko.PluginSelect{}, false)
				return err
			}, counts: 11,
		},
		"purge of a deployment with children": {
			why: "the children that go with it count",
			fill: func(w *world) {
				w.many(11, tko.NewDeployment{Parent: w.create(tko.NewDeployment{Metadata: map[string]string{"top": "yes"}})})
			},
			run: func(ctx context.Context, w *world) error {
				_, err := w.PurgeDeployments(ctx, tko.DeploymentSelect{Metadata: map[string]string{"top": "yes"}}, false)
				return err
			}, counts: 12,
		},
		"deletion of one deployment with children": {
			why:  "deletions by ID are limited, too",
			fill: func(w *world) { w.many(11, tko.NewDeployment{Parent: w.create(tko.NewDeployment{})}) },
			run: func(ctx context.Context, w *world) error {
				_, err := w.DeleteDeployment(ctx, w.first())
				return err
			}, counts: 12,
		},
		"deletion of one deployment with children at a revision": {
			why:  "a client that names a revision deletes as much",
			fill: func(w *world) { w.many(11, tko.NewDeployment{Parent: w.create(tko.NewDeployment{})}) },
			run: func(ctx context.Context, w *world) error {
				_, err := w.DeleteDeploymentAt(ctx, w.first(), 1)
				return err
			}, counts: 12,
		},
		"removal of one deployment with children": {
			why:  "GitOps and the Kubernetes API delete in this way",
			fill: func(w *world) { w.many(11, tko.NewDeployment{Parent: w.create(tko.NewDeployment{})}) },
			run: func(ctx context.Context, w *world) error {
				_, err := w.RemoveEntity(ctx, tko.KindDeployment, string(w.first()), false)
				return err
			}, counts: 12,
		},
		"removal of a collection": {
			why:  "as Kubernetes' deletecollection does",
			fill: func(w *world) { w.sites("s", 11) },
			run: func(ctx context.Context, w *world) error {
				var ids []string
				for _, s := range all(w.t, w.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{})) {
					ids = append(ids, string(s.ID))
				}
				_, err := w.RemoveRecords(ctx, tko.KindSite, ids, record.Requirement{}, false)
				return err
			}, counts: 11,
		},
		"approval": {
			why:  "approved deployments are scheduled",
			fill: func(w *world) { w.prepared(12) },
			run: func(ctx context.Context, w *world) error {
				_, err := w.ApproveDeployments(ctx, tko.DeploymentSelect{}, false)
				return err
			}, counts: 12,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, catalog.Options{Reach: gate.ReachLimits{Created: 11}})
			test.fill(w)
			before := w.head()
			if !test.free {
				wantError(t, test.run(w.ctx, w), tko.ErrInvalid, fmt.Sprintf("%d ", test.counts), "need consent", fmt.Sprintf("--confirm=%d", test.counts))
				for _, wrong := range []int{test.counts - 1, test.counts + 101} {
					err := test.run(tko.WithConfirmation(w.ctx, wrong), w)
					wantError(t, err, tko.ErrInvalid, fmt.Sprintf("but %d were confirmed", wrong), fmt.Sprintf("--confirm=%d", test.counts))
				}
				if w.head() != before {
					t.Errorf("%s: a refused request changed something", test.why)
				}
			}
			ctx := w.ctx
			if !test.free {
				ctx = tko.WithConfirmation(ctx, test.counts)
			}
			if err := test.run(ctx, w); err != nil {
				t.Errorf("%s: %v", test.why, err)
			}
			if w.head() == before {
				t.Error("nothing was changed")
			}
		})
	}
}

func (w *world) sites(prefix string, n int) {
	w.t.Helper()
	for i := range n {
		w.site(fmt.Sprintf("%s/%02d", prefix, i), "")
	}
}

func (w *world) plugin(p tko.Plugin) {
	w.t.Helper()
	if _, err := w.RegisterPlugin(w.ctx, p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) first() tko.DeploymentID {
	return all(w.t, w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{}))[0].ID
}

// The confirmed count limits the deletion: entities that are added after the count
// are not deleted.
func TestConfirmedCountLimitsTheDeletion(t *testing.T) {
	t.Parallel()
	tests := map[string]func(ctx context.Context, w *world, top tko.DeploymentID) error{
		"purge": func(ctx context.Context, w *world, _ tko.DeploymentID) error {
			_, err := w.PurgeDeployments(ctx, tko.DeploymentSelect{Metadata: map[string]string{"top": "yes"}}, false)
			return err
		},
		"deletion": func(ctx context.Context, w *world, top tko.DeploymentID) error {
			_, err := w.DeleteDeployment(ctx, top)
			return err
		},
		"deletion at a revision": func(ctx context.Context, w *world, top tko.DeploymentID) error {
			_, err := w.DeleteDeploymentAt(ctx, top, 1)
			return err
		},
		"removal": func(ctx context.Context, w *world, top tko.DeploymentID) error {
			_, err := w.RemoveEntity(ctx, tko.KindDeployment, string(top), false)
			return err
		},
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, catalog.Options{})
			top := w.create(tko.NewDeployment{Metadata: map[string]string{"top": "yes"}})
			w.many(3, tko.NewDeployment{Parent: top})
			whole := w.Service
			came := false
			w.between(func([]record.Write) error {
				if came {
					return nil
				}
				came = true
				_, err := whole.CreateDeployment(w.ctx, tko.NewDeployment{Parent: top})
				return err
			})
			wantError(t, run(tko.WithConfirmation(w.ctx, 4), w, top), tko.ErrInvalid, "entities were added", "at most")
			if n := w.countDeployments(); n != 5 {
				t.Errorf("%d deployments are left of 5", n)
			}
			if err := run(tko.WithConfirmation(w.ctx, 5), w, top); err != nil {
				t.Error(err)
			}
			if n := w.countDeployments(); n != 0 {
				t.Errorf("%d deployments are left", n)
			}
		})
	}
}

// An unknown ID is not found, with any confirmation.
func TestConfirmedDeletionOfAnUnknownIDIsNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	_, err := w.DeleteSite(tko.WithConfirmation(w.ctx, 5), "nowhere")
	wantError(t, err, tko.ErrNotFound)
}

// The original client always sends the type and the executor of plugins, empty
// if it doesn't filter by them.
func TestEmptyFiltersOfPluginsSelectNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.plugin(tko.Plugin{Type: tko.PluginPrepare, Name: "a", Arguments: []string{"x"}})
	w.plugin(tko.Plugin{Type: tko.PluginValidate, Name: "b", Arguments: []string{"x"}})
	empty := ""
	sel := tko.PluginSelect{Type: &empty, Executor: &empty, Trigger: &krm.GVK{}}
	if got := all(t, w.Plugins(w.ctx, sel, tko.ListOptions{})); len(got) != 2 {
		t.Errorf("listed %v, want both plugins", got)
	}
	if deleted, err := w.PurgePlugins(w.ctx, sel, false); err != nil || deleted.Count != 2 {
		t.Errorf("%+v, %v, want both deleted", deleted, err)
	}
}
