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
	d = is(3, "t2", "")
	if d.Site != "s" || len(d.Package) != 2 {
		t.Errorf("with what it names, it is %+v", d)
	}
	w.sync("fleet", r.push(map[string]string{"other.txt": "y"}))
	is(3, "t2", "")
}

// A site in git may name a template that comes later. It is applied, waits, and isn't written
// again when it has the template.
func TestSiteInGitNamesATemplateThatComesLater(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}})
	file := `
apiVersion: tko.nephio.org/v1alpha1
kind: Site
metadata: {name: s, labels: {mine: "1"}}
spec: {templateId: later, package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: own}}]}}
`
	w.sync("fleet", r.push(map[string]string{"s.yaml": file}))
	is := func(revision int64, template, awaited tko.TemplateID, resources int) tko.Site {
		t.Helper()
		s, err := w.Site(t.Context(), "s", 0)
		if err != nil || s.Stamp.Revision != revision || s.Template != template || s.AwaitedTemplate != awaited || len(s.Package) != resources {
			t.Fatalf("it is %+v, %v", s, err)
		}
		return s
	}
	of := is(1, "", "later", 1)
	w.sync("fleet", r.push(map[string]string{"other.txt": "x"}))
	is(1, "", "later", 1)
	base := of.Package.Clone()
	base[0]["metadata"] = map[string]any{"name": "base"}
	if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: "later", Metadata: map[string]string{"from": "template"}, Package: base}); err != nil {
		t.Fatal(err)
	}
	if waits, err := w.ResolveSite(t.Context(), "s"); waits || err != nil { // as the preparer
		t.Fatal(waits, err)
	}
	if s := is(2, "later", "", 2); s.Metadata["from"] != "template" || s.Metadata["mine"] != "1" {
		t.Errorf("its metadata is %v", s.Metadata)
	}
	w.sync("fleet", r.push(map[string]string{"other.txt": "y"}))
	is(2, "later", "", 2)
}
