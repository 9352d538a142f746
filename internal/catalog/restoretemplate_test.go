package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// A template that was deleted comes back with the sites and deployments that referred to it,
// except for those that refer to another one now.
func TestRestoredTemplateHasItsSitesAndDeploymentsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("one", "n: 1"))
	w.template("other", thing("one", "n: 2"))
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Template: "t"}); err != nil {
		t.Fatal(err)
	}
	d, moved, gone := w.create(tko.NewDeployment{Template: "t", Site: "s"}), w.create(tko.NewDeployment{Template: "t"}), w.create(tko.NewDeployment{Template: "t"})
	before := w.deployment(d)
	at := w.head()
	if _, err := w.DeleteTemplate(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if w.deployment(d).Template != "" {
		t.Fatal("the deployment refers to a deleted template")
	}
	if _, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindDeployment, ID: string(moved), Template: "other", Package: w.deployment(moved).Package}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeleteDeployment(w.ctx, gone); err != nil {
		t.Fatal(err)
	}
	request := tko.RestoreRequest{Select: tko.PastSelect{Kind: tko.KindTemplate, ID: "t"}, AsOf: tko.AsOf{Position: at}}
	dry := request
	dry.DryRun = true
	if would, err := w.RestorePast(w.ctx, dry); err != nil || would.Associated != 2 || w.deployment(d).Template != "" {
		t.Errorf("%+v, %v", would, err)
	}
	done, err := w.RestorePast(w.ctx, request)
	if err != nil || done.Created != 1 || done.Associated != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	after := w.deployment(d)
	site, err := w.Site(w.ctx, "s", 0)
	if err != nil || site.Template != "t" || after.Template != "t" || w.deployment(moved).Template != "other" {
		t.Errorf("site %q, deployments %q and %q, %v", site.Template, after.Template, w.deployment(moved).Template, err)
	}
	if !cmp.Equal(after.Package.WithoutDeploymentState(), before.Package.WithoutDeploymentState()) || after.Prepared != before.Prepared {
		t.Errorf("the deployment became %+v, and was %+v", after, before)
	}
	outdated := true
	if list := all(t, w.Deployments(w.ctx, tko.DeploymentSelect{Templates: []string{"t"}, Outdated: &outdated}, tko.ListOptions{})); len(list) > 0 {
		t.Errorf("%d deployments are outdated, and the template is as it was", len(list))
	}
	if again, err := w.RestorePast(w.ctx, request); err != nil || again.Associated != 0 || again.Same != 1 {
		t.Errorf("again: %+v, %v", again, err)
	}
}
