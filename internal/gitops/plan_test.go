package gitops_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops"
)

// The preview of a pull request lists each changed field. Values of secrets are hidden.
func TestPlanShowsChangedFields(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	const secret = "    - {apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: %s}}\n"
	lots := func(n, from int) string {
		var b strings.Builder
		b.WriteString("    - {apiVersion: v1, kind: ConfigMap, metadata: {name: lots}, data: {")
		for i := range n {
			fmt.Fprintf(&b, "k%02d: 'v%d', ", i, i+from)
		}
		return b.String() + "}}\n"
	}
	gathered := func(value string) string {
		return "    - {apiVersion: metadata.nephio.org/v1alpha1, kind: Tier, metadata: {name: m}, spec: {level: " + value + "}}\n"
	}
	first := r.push(map[string]string{
		"plugin.yaml":      plugin,
		"template.yaml":    template("t", "1") + fmt.Sprintf(secret, "hush") + gathered("a"),
		"lots.yaml":        template("lots", "1") + lots(30, 0),
		"site.yaml":        site("lagos", "t"),
		"other.yaml":       site("accra", ""),
		"deployment.yaml":  deployment("d", "t", "lagos"),
		"same.yaml":        site("same", ""),
		"deployment2.yaml": deployment("moved", "t", "lagos"),
	})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: r.url}})}})
	w.sync("fleet", first)
	// Modifications of a deployment after it was applied are no changes of the source.
	for _, i := range w.until("fleet", "applied", func(s tko.Source) bool { return !s.Enqueued }).Status.Items {
		if i.Name != "d" {
			continue
		}
		m, err := w.StartModification(t.Context(), tko.DeploymentID(i.ID))
		if err != nil {
			t.Fatal(err)
		}
		m.Package[0].Set("modified", "data", "key")
		if _, _, err := w.EndModification(t.Context(), m.Token, m.Package); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "same", Metadata: map[string]string{"theirs": "x"}}); err != nil {
		t.Fatal(err)
	}
	r.write(map[string]string{
		"plugin.yaml":      strings.Replace(plugin, "[x]", "[x, z]", 1),
		"template.yaml":    strings.Replace(template("t", "2"), "tier: edge", "more: new", 1) + fmt.Sprintf(secret, "quiet") + gathered("b"),
		"lots.yaml":        template("lots", "1") + lots(30, 1),
		"site.yaml":        strings.Replace(site("lagos", "t"), "spec:", "metadata: {labels: {region: west}}\nspec:", 1),
		"other.yaml":       "",
		"new.yaml":         site("new", ""),
		"deployment.yaml":  strings.Replace(deployment("d", "t", "lagos"), "own}", "mine}", 1),
		"deployment2.yaml": deployment("moved", "t", "same"),
	})
	preview, err := gitops.PreviewFiles(t.Context(), w.Client, os.DirFS(r.dir), gitops.PreviewOptions{Name: "fleet", Prune: true})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, a := range preview.Plan.Actions {
		got[a.String()] = a.Changes
	}
	many := []string{}
	for i := range 20 {
		many = append(many, fmt.Sprintf(`v1 ConfigMap "lots": data.k%02d: "v%d" → "v%d"`, i, i, i+1))
	}
	inherited := []string{
		`v1 ConfigMap "settings": data.key: "1" → "2"`, `v1 Secret "s": stringData.password: hidden → hidden`,
		`metadata.nephio.org/v1alpha1 Tier "m": spec.level: "a" → "b"`,
	}
	want := map[string][]string{
		`update plugin "schedule|p"`: {`arguments: ["x"] → ["x","z"]`},
		`update template "lots"`:     append(many, "and 10 more"),
		`update template "t"`: append([]string{
			`metadata["Tier.level"]: "a" → "b"`, `metadata.more: (none) → "new"`, `metadata.tier: "edge" → (none)`,
		}, inherited...),
		`update site "lagos"`: append([]string{
			`metadata["Tier.level"]: "a" → "b"`, `metadata.more: (none) → "new"`, `metadata.region: (none) → "west"`, `metadata.tier: "edge" → (none)`,
		}, inherited...),
		`update site "same" (it was changed by test)`: {`metadata.theirs: "x" → (none)`},
		`create site "new"`:                           nil,
		`delete site "accra"`:                         nil,
		`update deployment "d"`: append([]string{
			`metadata["Tier.level"]: "a" → "b"`, `metadata.more: (none) → "new"`, `metadata.tier: "edge" → (none)`,
		}, append(inherited, `v1 ConfigMap "mine": added`, `v1 ConfigMap "own": removed`)...),
		`update deployment "moved"`: append([]string{
			`site: "lagos" → "same"`, `metadata["Tier.level"]: "a" → "b"`, `metadata.more: (none) → "new"`, `metadata.tier: "edge" → (none)`,
		}, append(inherited, `v1 ConfigMap "own": data.at: "lagos" → "same"`)...),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if text := fmt.Sprint(got); strings.Contains(text, "hush") || strings.Contains(text, "quiet") {
		t.Errorf("the preview has values of a secret: %s", text)
	}
}

// A changed template doesn't change the deployments that were made from it, except
// those that the source replaces; the preview counts the others.
func TestPlanCountsDeploymentsOfEarlierRevisions(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	first := r.push(map[string]string{
		"template.yaml": template("t", "1"), "other.yaml": template("other", "1"), "site.yaml": site("lagos", ""),
		"anew.yaml": deployment("anew", "t", "lagos"), "same.yaml": deployment("same", "t", "lagos"),
	})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: r.url}})}})
	w.sync("fleet", first)
	for _, template := range []tko.TemplateID{"t", "other"} {
		if _, err := w.CreateDeployment(t.Context(), tko.NewDeployment{Template: template}); err != nil {
			t.Fatal(err)
		}
	}
	outdated := func() (n int) {
		yes := true
		for _, err := range w.Deployments(t.Context(), tko.DeploymentSelect{Outdated: &yes}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	r.write(map[string]string{"template.yaml": template("t", "2"), "anew.yaml": strings.Replace(deployment("anew", "t", "lagos"), "own}", "mine}", 1)})
	preview, err := gitops.PreviewFiles(t.Context(), w.Client, os.DirFS(r.dir), gitops.PreviewOptions{Name: "fleet", Prune: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`template "t" changes: 2 deployments made from it keep the earlier revision (tko deployment list --outdated --template-id t)`}
	if diff := cmp.Diff(want, preview.Plan.Messages); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := outdated(); n != 0 {
		t.Errorf("before the revision is applied, %d deployments are outdated, want 0", n)
	}
	w.sync("fleet", r.push(map[string]string{"template.yaml": template("t", "2"), "anew.yaml": strings.Replace(deployment("anew", "t", "lagos"), "own}", "mine}", 1)}))
	if n := outdated(); n != 2 {
		t.Errorf("after the revision is applied, %d deployments are outdated, want 2", n)
	}
}

// A meter counts requests for single entities, lists, and the entities in lists.
type meter struct {
	*client.Client
	single, lists, listed atomic.Int64
}

func (c *meter) Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	c.single.Add(1)
	return c.Client.Template(ctx, id, revision)
}

func (c *meter) Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	c.single.Add(1)
	return c.Client.Site(ctx, id, revision)
}

func (c *meter) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	c.single.Add(1)
	return c.Client.Deployment(ctx, id, revision)
}

func (c *meter) Templates(ctx context.Context, s tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error] {
	return metered(c, c.Client.Templates(ctx, s, o))
}

func (c *meter) Sites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error] {
	return metered(c, c.Client.Sites(ctx, s, o))
}

func (c *meter) Deployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	return metered(c, c.Client.Deployments(ctx, s, o))
}

func metered[T any](c *meter, list iter.Seq2[T, error]) iter.Seq2[T, error] {
	c.lists.Add(1)
	return func(yield func(T, error) bool) {
		for item, err := range list {
			c.listed.Add(1)
			if !yield(item, err) {
				return
			}
		}
	}
}

// sites returns the manifests of n sites.
func sites(n int, format string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("---\n" + site(fmt.Sprintf(format, i), "t"))
	}
	return b.String()
}

// The plan reads stored entities in lists where that takes fewer requests. Its actions
// are the same as with single reads.
func TestPlanReadsManyEntitiesInLists(t *testing.T) {
	t.Parallel()
	const ours = 60
	var deployments strings.Builder
	for i := range ours {
		deployments.WriteString("---\n" + deployment(fmt.Sprintf("d%02d", i), "t", "m00"))
	}
	r := newRepo(t)
	first := r.push(map[string]string{
		"templates.yaml": template("t", "1"), "sites.yaml": sites(ours, "m%02d"), "last.yaml": site("z", ""), "deployments.yaml": deployments.String(),
	})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: r.url}})}})
	s := w.sync("fleet", first)
	check := func(why string, lists, most, single int64, want ...string) {
		t.Helper()
		m := &meter{Client: w.Client}
		preview, err := gitops.PreviewFiles(t.Context(), m, os.DirFS(r.dir), gitops.PreviewOptions{Name: "fleet", Prune: true})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range preview.Plan.Actions {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", why, diff)
		}
		if m.lists.Load() != lists || m.listed.Load() > most || m.single.Load() != single {
			t.Errorf("%s: %d lists of %d entities, want %d of at most %d; %d single reads, want %d", why, m.lists.Load(), m.listed.Load(), lists, most, m.single.Load(), single)
		}
	}
	check("nothing changed", 2, 2*ours+1, 1)

	// Of the sites before the first and after the last of ours, at most one per list is read.
	for _, id := range []tko.SiteID{"a", "b", "zz", "zzz", "zzzz"} {
		if _, err := w.RegisterSite(t.Context(), tko.Site{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	check("others before and after", 2, 2*ours+2, 1)

	var gone string
	for _, i := range s.Status.Items {
		if i.Name == "d07" {
			gone = i.ID
		}
	}
	if _, err := w.DeleteDeployment(t.Context(), tko.DeploymentID(gone)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "m05", Template: "t", Metadata: map[string]string{"theirs": "x"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeleteSite(t.Context(), "m09"); err != nil {
		t.Fatal(err)
	}
	restored := []string{`update site "m05" (it was changed by test)`, `create site "m09" (it was deleted)`}
	again := `create deployment "d07" (it was deleted)`
	// The template is read, and the site whose changes the preview shows.
	check("changed by another client", 2, 2*ours+2, 2, append(restored[:2:2], again)...)

	var others []tko.SiteID
	for i := range 11 * ours {
		others = append(others, tko.SiteID(fmt.Sprintf("n%04d", i)))
	}
	for _, id := range others {
		if _, err := w.RegisterSite(t.Context(), tko.Site{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	r.write(map[string]string{"last.yaml": site("z", "t")})
	// A list with too many entities of other owners stops. Entities that it didn't reach
	// are read one by one: m09, and z, whose changes the preview also shows.
	check("others in between", 2, 10*(ours+1)+ours+2, 5, append(restored[:2:2], `update site "z"`, again)...)

	// References to entities of other owners are also read in lists.
	elsewhere := t.TempDir()
	deployments.Reset()
	for i := range ours {
		deployments.WriteString("---\n" + deployment(fmt.Sprintf("e%02d", i), "", string(others[i])))
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "a.yaml"), []byte(deployments.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	references := &meter{Client: w.Client}
	preview, err := gitops.PreviewFiles(t.Context(), references, os.DirFS(elsewhere), gitops.PreviewOptions{Name: "elsewhere"})
	if err != nil || len(preview.Plan.Actions) != ours {
		t.Fatal(err, preview)
	}
	if references.lists.Load() != 1 || references.single.Load() > 0 {
		t.Errorf("references: %d lists and %d single reads, want one list", references.lists.Load(), references.single.Load())
	}

	// A few entities are read one by one.
	r.write(map[string]string{"sites.yaml": "", "last.yaml": "", "deployments.yaml": ""})
	m := &meter{Client: w.Client}
	if _, err := gitops.PreviewFiles(t.Context(), m, os.DirFS(r.dir), gitops.PreviewOptions{Name: "other", Adopt: true}); err == nil {
		t.Error("a source can adopt the template of another source")
	}
	if m.lists.Load() > 0 || m.single.Load() != 1 {
		t.Errorf("one manifest: %d lists and %d single reads, want one single read", m.lists.Load(), m.single.Load())
	}
}
