package gitops_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
)

// A deployment in git may name a template and a site that another source brings later. It is
// applied, waits, can be changed while it waits, and isn't written again when they arrive.
func TestDeploymentInGitNamesWhatComesLater(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}})
	s := w.sync("fleet", r.push(map[string]string{"d.yaml": deployment("early", "t", "s")}))
	id := tko.DeploymentID(s.Status.Items[0].ID)
	is := func(revision int64, template, awaited tko.TemplateID) tko.Deployment {
		t.Helper()
		d, err := w.Deployment(t.Context(), id, 0)
		if err != nil || d.Stamp.Revision != revision || d.Template != template || d.AwaitedTemplate != awaited || d.Stamp.Who == "" {
			t.Fatalf("it is %+v, %v", d, err)
		}
		return d
	}
	is(1, "", "t")
	w.sync("fleet", r.push(map[string]string{"other.txt": "x"}))
	is(1, "", "t")
	w.sync("fleet", r.push(map[string]string{"d.yaml": deployment("early", "t2", "s")}))
	d := is(2, "", "t2")

	if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: "t2", Package: d.Package[:0]}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CommitDeployment(t.Context(), tko.DeploymentCommit{ID: id, Revision: 2, Package: d.Package}); err != nil { // as the preparer
		t.Fatal(err)
	}
	if d = is(3, "t2", ""); d.Site != "s" || len(d.Package) != 2 {
		t.Errorf("with what it names, it is %+v", d)
	}
	w.sync("fleet", r.push(map[string]string{"other.txt": "y"}))
	is(3, "t2", "")
}
