package gitops_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestEntitiesFollowTheRepository(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	first := r.push(map[string]string{
		"all.yaml":           all(deployment("one", "t", "s"), site("s", "t"), template("t", "1"), plugin),
		"values.yaml":        "tko.nephio.org: {{ not for us }}\n",
		"other/cm.yaml":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
		".github/wf.yaml":    "apiVersion: tko.nephio.org/v1alpha1\nkind: Nothing\n",
		"osm/README.md":      "x",
		"charts/helm/t.yaml": "{{- if .Values.x }}\nkind: x # tko.nephio.org\n{{- end }}\n",
	})
	w := start(t, data(t), gitops.Options{Worker: "w", Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}})
	s := w.sync("fleet", first)
	want := []string{"plugin schedule|p 1 gitops:fleet", "template t 1 gitops:fleet", "site s 1 gitops:fleet", "deployment t@s 1 gitops:fleet"}
	if diff := cmp.Diff(want, w.entities()); diff != "" {
		t.Fatal(diff)
	}
	if len(s.Status.Items) != 4 || s.Status.Items[3].ID == "" || s.Status.Items[3].Name != "one" {
		t.Errorf("the inventory is %+v", s.Status.Items)
	}
	site1, err := w.Site(t.Context(), "s", 0)
	if err != nil || len(site1.Package) != 1 || site1.Metadata["tier"] != "edge" || site1.Stamp.Why != first {
		t.Errorf("the site is %+v, %v", site1, err)
	}

	// Reconciling an unchanged revision makes one request to the repository and writes nothing.
	r.requests.Store(0)
	before, err := w.About(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n := r.requests.Load()
		if err := w.controller.Enqueue(t.Context(), "fleet"); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "a request to the repository", func() bool { return r.requests.Load() > n })
	}
	eventually.True(t, "three requests", func() bool { return r.requests.Load() >= 3 })
	after, err := w.About(t.Context())
	if err != nil || after.Position != before.Position {
		t.Errorf("something was written: the position was %d and is %d, %v", before.Position, after.Position, err)
	}
	if n := r.requests.Load(); n > 3 {
		t.Errorf("three reconciliations made %d requests, want 3", n)
	}
	if again, err := w.Source(t.Context(), "fleet"); err != nil || again.Version != s.Version {
		t.Errorf("the source was written again: its version was %d and is %d, %v", s.Version, again.Version, err)
	}

	// A change of one manifest is one write.
	second := r.push(map[string]string{"all.yaml": all(deployment("one", "t", "s"), site("s", "t"), template("t", "2"), plugin)})
	w.sync("fleet", second)
	want[1] = "template t 2 gitops:fleet"
	if diff := cmp.Diff(want, w.entities()); diff != "" {
		t.Fatal(diff)
	}
	// A deployment that changes keeps its ID.
	id := s.Status.Items[3].ID
	third := r.push(map[string]string{"all.yaml": all(deployment("one", "t", "s2"), site("s", "t"), site("s2", ""), template("t", "2"), plugin)})
	w.sync("fleet", third)
	d, err := w.Deployment(t.Context(), tko.DeploymentID(id), 0)
	if err != nil || d.Site != "s2" || d.Stamp.Revision != 2 || d.Prepared {
		t.Fatalf("the deployment is %+v, %v", d, err)
	}
	if data, _ := d.Package[1].Get("data", "at"); data != "s2" {
		t.Errorf("its package is %v", d.Package)
	}
	// Entities whose manifests are removed are deleted, referring entities first.
	fourth := r.push(map[string]string{"all.yaml": template("t", "2")})
	s = w.sync("fleet", fourth)
	if diff := cmp.Diff([]string{"template t 2 gitops:fleet"}, w.entities()); diff != "" {
		t.Fatal(diff)
	}
	var done []string
	for _, o := range s.Status.Operations[:4] {
		done = append(done, o.Verb+" "+o.Kind)
	}
	// the newest first
	if got := strings.Join(done, ","); got != "delete plugin,delete site,delete site,delete deployment" {
		t.Errorf("the last operations are %s, want the deletion of the deployment, the sites and the plugin", got)
	}
	// A revert in git is a rollback.
	git(t, r.dir, "revert", "--no-edit", "HEAD")
	fifth := r.push(nil)
	w.sync("fleet", fifth)
	if got := w.entities(); len(got) != 5 {
		t.Errorf("after the revert there are %v, want 5 entities", got)
	}
}

func TestBadRevisionsChangeNothing(t *testing.T) {
	t.Parallel()
	good := map[string]string{"a.yaml": template("t", "1"), "b.yaml": site("s", "t"), "c.yaml": deployment("d", "t", "s")}
	tests := map[string]struct {
		why   string
		files map[string]string
		parts []string
	}{
		"invalid resource": {
			"the server validates before anything is written",
			map[string]string{"a.yaml": template("t", "2"), "z.yaml": strings.Replace(template("bad", "x"), "data: {key: \"x\"}", "data: [1]", 1)},
			[]string{"z.yaml", `"bad"`, "ConfigMap", "data"},
		},
		"invalid in the site's merge": {
			"a site is also validated after the merge with its changed template",
			map[string]string{"a.yaml": template("t", "2"), "b.yaml": strings.Replace(site("s2", "t2"), "templateId", "package: {resources: [{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: 3}}]}\n  templateId", 1), "t2.yaml": template("t2", "x")},
			[]string{"b.yaml", `"s2"`, "Service"},
		},
		"unknown field":                   {"a misspelt field would be silently ignored", map[string]string{"b.yaml": strings.Replace(site("s", "t"), "templateId", "template", 1)}, []string{"b.yaml", "spec.template:"}},
		"reference to a removed template": {"a deletion must not break entities that stay", map[string]string{"a.yaml": "", "x.yaml": "y: 1\n"}, []string{"b.yaml", `template "t"`}},
		"two manifests of one entity":     {"they would overwrite each other", map[string]string{"e.yaml": site("s", "")}, []string{"e.yaml", "b.yaml"}},
		"not YAML":                        {"a TKO manifest that can't be read must not count as removed", map[string]string{"c.yaml": "apiVersion: tko.nephio.org/v1alpha1\nkind: [\n"}, []string{"c.yaml"}},
		"other version":                   {"the meaning of an unknown version is unknown", map[string]string{"c.yaml": strings.Replace(deployment("d", "t", "s"), "v1alpha1", "v9", 1)}, []string{"c.yaml", "v9"}},
		"deployment with an ID":           {"TKO assigns the IDs of deployments", map[string]string{"c.yaml": strings.Replace(deployment("d", "t", "s"), "spec:", "spec:\n  deploymentId: x", 1)}, []string{"c.yaml", "deploymentId"}},
	}
	r := newRepo(t)
	revision := r.push(good)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}})
	w.sync("fleet", revision)
	before := w.entities()
	for name, test := range tests {
		bad := r.push(test.files)
		s := w.refused("fleet", tko.SourceReasonInvalid, test.parts...)
		if s.Status.Attempted != bad || s.Status.Applied != revision {
			t.Errorf("%s: attempted %s, applied %s; want %s and %s", name, s.Status.Attempted, s.Status.Applied, bad, revision)
		}
		if diff := cmp.Diff(before, w.entities()); diff != "" {
			t.Errorf("%s: %s: %s", name, test.why, diff)
		}
		for name := range test.files {
			if good[name] == "" {
				r.write(map[string]string{name: ""})
			}
		}
		revision = r.push(good)
		w.sync("fleet", revision)
	}
}

func TestRemovalsBeyondTheBudgetWait(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	var sites []string
	for i := range 30 {
		sites = append(sites, site(fmt.Sprintf("s%02d", i), ""))
	}
	first := r.push(map[string]string{"a.yaml": all(sites...), "keep.yaml": strings.Replace(site("kept", ""), "spec:", "metadata: {annotations: {gitops.tko.nephio.org/prune: disabled}}\nspec:", 1)})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Name: "x", Git: gitops.GitSettings{URL: r.url}})}})
	w.sync("x", first)
	second := r.push(map[string]string{"a.yaml": all(sites[:10]...), "keep.yaml": ""})
	w.sync("x", second) // 20 removals are within the budget
	if got := len(w.entities()); got != 11 {
		t.Fatalf("%d sites are left, want 11", got)
	}
	third := r.push(map[string]string{"a.yaml": all(sites...)})
	w.sync("x", third)
	r.push(map[string]string{"a.yaml": all(sites[:2]...), "new.yaml": site("new", "")})
	s := w.refused("x", tko.SourceReasonApproval, "28 of 3", "tko gitops approve x ")
	if got := len(w.entities()); got != 32 {
		t.Fatalf("%d sites are left, want 32: the new one is applied, the removals wait for approval", got)
	}
	if err := w.EnqueueSources(t.Context(), []string{"x"}, false, "other"); err == nil {
		t.Error("an approval with another digest is accepted")
	}
	if err := w.EnqueueSources(t.Context(), []string{"x"}, false, s.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	w.until("x", "pruned", func(s tko.Source) bool {
		return s.Status.PendingRemoval == "" && s.Status.Applied == s.Status.Attempted
	})
	if got := w.entities(); len(got) != 4 {
		t.Fatalf("left are %v, want 4 sites", got)
	}
}

func TestEntitiesOfOtherOwnersStayUnchanged(t *testing.T) {
	t.Parallel()
	c := data(t)
	for id, template := range map[tko.SiteID]tko.TemplateID{"same": "", "other": ""} {
		s := tko.Site{ID: id, Template: template}
		if id == "other" {
			s.Metadata = map[string]string{"k": "mine"}
		}
		if _, err := c.RegisterSite(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	r := newRepo(t)
	first := r.push(map[string]string{"a.yaml": site("same", "")})
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Git: gitops.GitSettings{URL: r.url}})}})
	w.sync("fleet", first)
	if diff := cmp.Diff([]string{"site other 1 test", "site same 1 test"}, w.entities()); diff != "" {
		t.Fatal(diff)
	}
	second := r.push(map[string]string{"b.yaml": site("other", "")})
	w.refused("fleet", tko.SourceReasonInvalid, "b.yaml", `"other"`, "test wrote it last", "adopt")
	_ = second
	third := r.push(map[string]string{"b.yaml": strings.Replace(site("other", ""), "spec:", "metadata: {annotations: {gitops.tko.nephio.org/adopt: \"true\"}}\nspec:", 1)})
	w.sync("fleet", third)
	if diff := cmp.Diff([]string{"site other 2 gitops:fleet", "site same 1 test"}, w.entities()); diff != "" {
		t.Fatal(diff)
	}
	// The source restores an entity that another client changed.
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: "other", Metadata: map[string]string{"k": "again"}}); err != nil {
		t.Fatal(err)
	}
	fourth := r.push(map[string]string{"x.md": "x"})
	w.sync("fleet", fourth)
	if diff := cmp.Diff([]string{"site other 4 gitops:fleet", "site same 1 test"}, w.entities()); diff != "" {
		t.Fatal(diff)
	}
	// An entity belongs to one source only.
	other := newRepo(t)
	other.push(map[string]string{"a.yaml": site("same", "")})
	w.controller.Set(spec(t, gitops.Settings{Name: "second", Git: gitops.GitSettings{URL: other.url}}))
	w.refused("second", tko.SourceReasonInvalid, `source "fleet"`)
}

func TestBrokenSourceAffectsNoOther(t *testing.T) {
	t.Parallel()
	r, away := newRepo(t), newRepo(t)
	first := r.push(map[string]string{"a.yaml": site("s", "")})
	away.push(map[string]string{"a.yaml": site("s2", "")})
	away.away.Store(true)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{
		spec(t, gitops.Settings{Name: "good", Git: gitops.GitSettings{URL: r.url}}),
		spec(t, gitops.Settings{Name: "away", Git: gitops.GitSettings{URL: away.url}}),
		spec(t, gitops.Settings{Name: "waits", DependsOn: []string{"away"}, Git: gitops.GitSettings{URL: r.url}, Path: "nowhere"}),
	}})
	w.refused("away", tko.SourceReasonFetchFailed)
	w.refused("waits", tko.SourceReasonDependency, `"away"`)
	w.sync("good", first)
	second := r.push(map[string]string{"b.yaml": site("b", "")})
	w.sync("good", second)
	away.away.Store(false)
	w.until("away", "ready again", func(s tko.Source) bool {
		c := ready(s)
		return c.Status == tko.ConditionTrue
	})
	w.refused("waits", tko.SourceReasonInvalid, "nowhere")
}
