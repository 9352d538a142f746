package gitops_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/test/soak"
)

// What gitops plan says of files is what the source then does, for random files and random changes of users: the same
// entities are created, changed and deleted, and no others.
func TestASourceDoesWhatItsPlanSays(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 0))
	repo := newRepo(t)
	budget := prune.Budget{Count: 100, Percent: 100}
	settings := gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: repo.url}, Adopt: true, Budget: &gitops.BudgetSettings{Entities: 100, Percent: 100}}
	repo.push(map[string]string{"first.yaml": site("first", "")})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	did := map[string]int{}
	for step := range soak.Rounds(t, 10, 500) {
		files := randomFiles(r)
		repo.write(files)
		// Users change what the source owns, and what it doesn't.
		id := tko.SiteID(fmt.Sprint("s", r.IntN(4)))
		if _, err := w.RegisterSite(t.Context(), tko.Site{ID: id, Metadata: map[string]string{"theirs": strconv.Itoa(r.IntN(2))}}); err != nil {
			t.Fatal(err)
		}
		present := w.present()
		about, err := w.About(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		preview, err := gitops.PreviewFiles(t.Context(), w.Client, os.DirFS(repo.dir), gitops.PreviewOptions{Name: "fleet", Prune: true, Adopt: true, Budget: &budget})
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		said := map[string]int{}
		for _, a := range preview.Plan.Actions {
			name := a.Name
			if a.Kind == tko.KindDeployment { // a new one has no ID yet
				name = ""
			}
			verb := a.Verb
			if verb == "adopt" { // its content changes, or its annotations do
				verb = "update"
			}
			said[fmt.Sprintf("%s %s %s", verb, a.Kind, name)]++
		}
		w.sync("fleet", repo.push(files))
		done := w.done(about.Position, present)
		if diff := cmp.Diff(said, done); diff != "" {
			t.Errorf("step %d: what the plan says and the source did differ (-said +did):\n%s", step, diff)
		}
		for what := range done {
			did[strings.Join(strings.Fields(what)[:2], " ")]++
		}
	}
	t.Logf("%v", did)
	for _, what := range []string{"create site", "update site", "delete site", "create template", "update template", "delete template", "create deployment", "delete deployment"} {
		if did[what] == 0 {
			t.Errorf("no step did %q: %v", what, did)
		}
	}
}

// done returns what the source changed after a position: each entity once, as a plan names it.
func (w *world) done(after int64, present map[string]bool) map[string]int {
	w.Helper()
	about, err := w.About(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	verbs := map[string]string{}
	for c, err := range w.Watch(w.Context(), after) {
		if err != nil {
			w.Fatal(err)
		}
		key := string(c.Kind) + " " + c.ID
		switch {
		case c.Op == tko.OpStatus || !strings.Contains(c.Author.Who, "gitops"):
		case c.Op == tko.OpDeleted:
			verbs[key] = "delete"
		case !present[key]: // one that was deleted before has a later revision
			verbs[key] = "create"
		case verbs[key] == "":
			verbs[key] = "update"
		}
		if c.Position >= about.Position {
			break
		}
	}
	counts := map[string]int{}
	for key, verb := range verbs {
		kind, id, _ := strings.Cut(key, " ")
		if tko.Kind(kind) == tko.KindDeployment {
			id = ""
		}
		counts[fmt.Sprintf("%s %s %s", verb, kind, id)]++
	}
	return counts
}

// present returns the entities that exist, by kind and ID.
func (w *world) present() map[string]bool {
	w.Helper()
	all := map[string]bool{}
	note := func(kind tko.Kind, id string, err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		all[string(kind)+" "+id] = true
	}
	for e, err := range w.Templates(w.Context(), tko.TemplateSelect{}, tko.ListOptions{}) {
		note(tko.KindTemplate, string(e.ID), err)
	}
	for e, err := range w.Sites(w.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		note(tko.KindSite, string(e.ID), err)
	}
	for e, err := range w.Deployments(w.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		note(tko.KindDeployment, string(e.ID), err)
	}
	return all
}

// randomFiles returns files with some templates, sites and deployments, and "" for those that are not there.
func randomFiles(r *rand.Rand) map[string]string {
	files := map[string]string{"first.yaml": site("first", "")}
	var templates, sites []string
	for i := range 3 {
		id := fmt.Sprint("t", i)
		files[id+".yaml"] = ""
		if r.IntN(4) > 0 {
			files[id+".yaml"] = template(id, strconv.Itoa(r.IntN(2)))
			templates = append(templates, id)
		}
	}
	for i := range 4 {
		id := fmt.Sprint("s", i)
		files[id+".yaml"] = ""
		if r.IntN(4) > 0 {
			files[id+".yaml"] = site(id, pickOr(r, templates))
			sites = append(sites, id)
		}
	}
	for i := range 3 {
		id := fmt.Sprint("d", i)
		files[id+".yaml"] = ""
		if r.IntN(3) > 0 && len(templates) > 0 && len(sites) > 0 {
			files[id+".yaml"] = deployment(id, templates[r.IntN(len(templates))], sites[r.IntN(len(sites))])
		}
	}
	return files
}

// pickOr returns one of some texts, or "".
func pickOr(r *rand.Rand, all []string) string {
	return slices.Concat(all, []string{""})[r.IntN(len(all)+1)]
}
