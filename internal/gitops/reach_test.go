package gitops_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// fleet returns n sites, and a deployment at each: the first changed ones have another value.
func fleet(n, changed int, value string) string { //nolint:unparam // each test names its number
	documents := []string{template("t", "1"), template("site", "1")}
	for i := range n {
		id := fmt.Sprintf("s%02d", i)
		d := deployment(id, "t", id)
		if i < changed {
			d = strings.ReplaceAll(d, "data: {at: ", "data: {value: \""+value+"\", at: ")
		}
		documents = append(documents, site(id, "site"), d)
	}
	return all(documents...)
}

// run has all deployments prepared and approved, as a preparer does.
func (w *world) run() {
	w.Helper()
	for d, err := range w.Deployments(w.Context(), tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			w.Fatal(err)
		}
		pkg := d.Package.WithDeployment(string(d.Template), string(d.Site), true, true)
		if _, err := w.CommitDeployment(w.Context(), tko.DeploymentCommit{ID: d.ID, Revision: d.Stamp.Revision, Package: pkg}); err != nil {
			w.Fatal(err)
		}
	}
}

// changedTo returns the number of deployments with a value.
func (w *world) changedTo(value string) int {
	w.Helper()
	n := 0
	for d, err := range w.Deployments(w.Context(), tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			w.Fatal(err)
		}
		for _, r := range d.Package {
			if v, _ := r.Get("data", "value"); v == value {
				n++
			}
		}
	}
	return n
}

// rollouts returns the rollouts with their states.
func (w *world) rollouts() []string {
	w.Helper()
	var found []string
	for r, err := range w.Rollouts(w.Context(), tko.RolloutSelect{}, tko.ListOptions{}) {
		if err != nil {
			w.Fatal(err)
		}
		found = append(found, fmt.Sprint(r.ID, " ", r.State))
	}
	return found
}

func direct(url string) gitops.Settings {
	return gitops.Settings{Name: "fleet", Git: gitops.GitSettings{URL: url}, Interval: "1s"}
}

// A revision that changes what runs at more sites than are free becomes a rollout by the
// operator's policy, which a user starts; a smaller one is applied at once, and so is what
// doesn't run yet.
func TestRevisionAtManySitesBecomesARollout(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		changed int
		limits  gate.ReachLimits
		rollout map[string]any // of the source
		waves   string         // of the rollout; "": none
	}{
		"few":        {"ten are free", 10, gate.ReachLimits{}, nil, ""},
		"many":       {"eleven are not", 11, gate.ReachLimits{}, nil, "first tenth"},
		"off":        {"the operator limits nothing", 11, gate.ReachLimits{Sites: -1}, nil, ""},
		"fewer free": {"the operator has another limit", 4, gate.ReachLimits{Sites: 3}, nil, "first tenth"},
		"policy":     {"the operator has another policy", 11, gate.ReachLimits{Policy: map[string]any{"waves": []any{map[string]any{"name": "one", "count": 1}}}}, nil, "one"},
		"own": {
			"the rollout of the source overrides it", 11,
			gate.ReachLimits{},
			map[string]any{"waves": []any{map[string]any{"name": "own", "count": float64(2)}}},
			"own",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 12
			r := newRepo(t)
			c := grpctest.StartWith(t, client.Options{Author: tko.Author{Who: "test"}}, catalog.Options{Reach: test.limits})
			advance(t, c)
			first := r.push(map[string]string{"a.yaml": fleet(n, 0, "")})
			settings := direct(r.url)
			w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
			w.sync("fleet", first)
			w.run()
			if test.rollout != nil {
				settings.Rollout = test.rollout
				w.controller.Set(spec(t, settings))
			}
			r.write(map[string]string{"a.yaml": fleet(n, test.changed, "new")})
			preview, err := gitops.PreviewFiles(t.Context(), c, os.DirFS(r.dir), gitops.PreviewOptions{Name: "fleet", Prune: true})
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Contains(strings.Join(preview.Plan.Messages, "\n"), fmt.Sprintf("becomes rollout gitops/fleet/REVISION over %d sites", test.changed))
			if want := test.waves != "" && test.rollout == nil; said != want && test.rollout == nil {
				t.Errorf("the plan says that it becomes a rollout: %v, want %v: %q", said, want, preview.Plan.Messages)
			}
			second := r.push(nil)
			if test.waves == "" {
				w.sync("fleet", second)
				if got := w.changedTo("new"); got != test.changed || len(w.rollouts()) != 0 {
					t.Errorf("%d deployments changed, rollouts %v: %s", got, w.rollouts(), test.why)
				}
				return
			}
			s := w.waiting(fmt.Sprintf("is planned: %d Change", test.changed))
			if w.changedTo("new") != 0 {
				t.Error("deployments changed before the rollout was started")
			}
			rollout, err := c.Rollout(t.Context(), rolloutOf(second), 0)
			if err != nil {
				t.Fatal(err)
			}
			var waves []string
			list, _ := rollout.Package[0].Get("spec", "waves")
			for _, wave := range list.([]any) {
				waves = append(waves, fmt.Sprint(wave.(map[string]any)["name"]))
			}
			if got := strings.Join(waves, " "); got != test.waves {
				t.Errorf("the rollout has the waves %q, want %q: %s", got, test.waves, test.why)
			}
			if want := fmt.Sprintf("becomes rollout %s over %d sites", rolloutOf(second), test.changed); test.rollout == nil && !strings.Contains(strings.Join(s.Status.Messages, "\n"), want) {
				t.Errorf("the messages %q don't say %q", s.Status.Messages, want)
			}
			w.begin(rolloutOf(second))
			wave := 1
			if test.rollout != nil {
				wave = 2
			}
			eventually.True(t, "the first wave is applied", func() bool { return w.changedTo("new") == wave })
		})
	}
}

// There is one open rollout of a source: a newer revision takes the place of one that isn't
// started, and waits for one that is.
func TestSourceHasOneOpenRolloutByPolicy(t *testing.T) {
	t.Parallel()
	const n = 12
	r := newRepo(t)
	c := data(t)
	advance(t, c)
	base := r.push(map[string]string{"a.yaml": fleet(n, 0, "")})
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, direct(r.url))}})
	w.sync("fleet", base)
	w.run()
	first := r.push(map[string]string{"a.yaml": fleet(n, n, "1")})
	w.waiting("is planned: 12 Change")
	second := r.push(map[string]string{"a.yaml": fleet(n, n, "2")})
	w.state(rolloutOf(first), "Cancelled")
	eventually.True(t, "the newer revision has a rollout", func() bool {
		return slices.Contains(w.rollouts(), string(rolloutOf(second))+" Planned")
	})
	w.begin(rolloutOf(second))
	eventually.True(t, "the first wave is applied", func() bool { return w.changedTo("2") == 1 })

	third := r.push(map[string]string{"a.yaml": fleet(n, 1, "3")}) // few sites, of which one is in the rollout
	w.waiting("revision " + third + " waits for the one of revision " + second)
	if got := w.changedTo("3"); got != 0 || len(w.rollouts()) != 2 {
		t.Errorf("%d deployments changed next to the rollout; rollouts %v", got, w.rollouts())
	}
}

// Revisions after each other share one count: two small ones in short time are as large as
// one.
func TestSmallRevisionsShareTheCountOfTheirSource(t *testing.T) {
	t.Parallel()
	const n = 12
	r := newRepo(t)
	c := data(t)
	base := r.push(map[string]string{"a.yaml": fleet(n, 0, "")})
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, direct(r.url))}})
	w.sync("fleet", base)
	w.run()
	w.sync("fleet", r.push(map[string]string{"a.yaml": fleet(n, 6, "1")}))
	source, err := c.Source(t.Context(), "fleet")
	if err != nil || !source.Reach.Known || source.Reach.Sites != 4 {
		t.Errorf("the source may change %+v, %v: want 4 more sites", source.Reach, err)
	}
	second := r.push(map[string]string{"a.yaml": fleet(n, 11, "2")}) // six that don't run now, and five
	w.waiting("rollout")
	if got := w.changedTo("2"); got != 0 || len(w.rollouts()) != 1 {
		t.Errorf("%d deployments of %s changed, rollouts %v: want a rollout for all", got, second, w.rollouts())
	}
}

// A first installation of very many deployments waits for an approval, which stays valid
// while they are created.
func TestCreationOfVeryManyDeploymentsNeedsAnApproval(t *testing.T) {
	t.Parallel()
	const n, most = 12, 8
	r := newRepo(t)
	c := grpctest.StartWith(t, client.Options{Author: tko.Author{Who: "test"}}, catalog.Options{Reach: gate.ReachLimits{Created: most}})
	revision := r.push(map[string]string{"a.yaml": fleet(n, 0, "")})
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, direct(r.url))}})
	s := w.until("fleet", "waits for an approval", func(s tko.Source) bool { return s.Status.PendingRemoval != "" })
	if got := ready(s); got.Reason != tko.SourceReasonApproval || !strings.Contains(got.Message, "12 deployments would be created") {
		t.Errorf("the source is %+v", got)
	}
	count := func() (n int) {
		for _, err := range w.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	if got := count(); got != 0 {
		t.Errorf("%d deployments before the approval", got)
	}
	if err := w.controller.Approve(t.Context(), "fleet", s.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	w.sync("fleet", revision)
	if got := count(); got != n {
		t.Errorf("%d deployments after the approval, want %d", got, n)
	}
}

// A revision that gives more sites another target than are free waits for an approval, and
// changes none of them: no rollout changes sites.
func TestOtherTargetsOfManySitesNeedAnApproval(t *testing.T) {
	t.Parallel()
	const n = 12
	r := newRepo(t)
	c := data(t)
	to := func(url string) map[string]string {
		target := "  package: {resources: [{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: r}, spec: {url: " + url + "}}]}\n"
		return map[string]string{"a.yaml": strings.ReplaceAll(fleet(n, 0, ""), "  templateId: \"site\"\n---", "  templateId: \"site\"\n"+target+"---")}
	}
	base := r.push(to("https://a"))
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, direct(r.url))}})
	w.sync("fleet", base)
	w.run()
	second := r.push(to("https://b"))
	s := w.until("fleet", "waits for an approval", func(s tko.Source) bool { return s.Status.PendingRemoval != "" })
	if got := ready(s); got.Reason != tko.SourceReasonApproval || !strings.Contains(got.Message, "12 sites at which deployments run would have another target, and 10 more sites are free") {
		t.Errorf("the source is %+v", got)
	}
	at := func(url string) (n int) {
		for s, err := range w.Sites(t.Context(), tko.SiteSelect{}, tko.ListOptions{Packages: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(s.Package, func(r krm.Resource) bool { return r.Text("spec", "url") == url }) {
				n++
			}
		}
		return n
	}
	if got := at("https://b"); got != 0 || len(w.rollouts()) != 0 {
		t.Errorf("%d sites have another target before the approval, rollouts %v", got, w.rollouts())
	}
	if err := w.controller.Approve(t.Context(), "fleet", s.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	w.sync("fleet", second)
	if got := at("https://b"); got != n {
		t.Errorf("%d sites have the target after the approval, want %d", got, n)
	}
}
