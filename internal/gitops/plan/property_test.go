package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/plan/plantest"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/krm"
)

// draw returns a valid random revision: templates, and sites and deployments that refer to
// them.
func draw(r *rand.Rand) []tko.Put {
	var puts []tko.Put
	value := func() string { return strconv.Itoa(r.IntN(2)) }
	templates := []tko.TemplateID{""}
	for i := range 2 {
		if id := fmt.Sprint("t", i); r.IntN(4) > 0 {
			puts, templates = append(puts, template(id, value())), append(templates, tko.TemplateID(id))
		}
	}
	sites := []tko.SiteID{""}
	for i := range 4 {
		if id := fmt.Sprint("s", i); r.IntN(3) > 0 {
			puts = append(puts, site(id, templates[r.IntN(len(templates))], "k", value()))
			sites = append(sites, tko.SiteID(id))
		}
	}
	for i := range 4 {
		if r.IntN(3) > 0 {
			d := deployment(fmt.Sprint("d", i), value())
			d.Template, d.Site = templates[r.IntN(len(templates))], sites[r.IntN(len(sites))]
			puts = append(puts, d)
		}
	}
	return puts
}

// interfere changes or removes a random entity as another client.
func (w *world) interfere(r *rand.Rand) {
	w.Helper()
	if len(w.items) == 0 {
		return
	}
	item := w.items[r.IntN(len(w.items))]
	kind, id := tko.Kind(item.Kind), item.Name
	if kind == tko.KindDeployment {
		id = item.ID
	}
	switch {
	case id == "": // pending
	case r.IntN(2) == 0:
		if _, err := w.RemoveEntity(w.Context(), kind, id, false); err != nil && !errors.Is(err, tko.ErrNotFound) {
			w.Fatal(err)
		}
	case kind == tko.KindSite:
		w.put(site(id, "", "k", "theirs"))
	case kind == tko.KindTemplate:
		w.put(template(id, "theirs"))
	}
}

// wants returns the names of a revision, as names does those of an inventory.
func wants(puts []tko.Put) []string {
	list := []string{}
	for _, p := range puts {
		list = append(list, string(p.Kind)+" "+p.ID)
	}
	slices.Sort(list)
	return list
}

// Whatever revisions follow each other, and whatever other clients do and servers fail at in
// between: planning writes nothing, writes follow references, no removal exceeds the budget
// without an approval, and in the end the source owns just what its revision has, once, and
// nothing remains to do. What it never owned stays.
func TestAnyRevisionsConverge(t *testing.T) {
	t.Parallel()
	held, interrupted, restored := 0, 0, 0
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, pruning())
		w.put(plainSite("theirs"))
		w.put(tko.Put{Kind: tko.KindDeployment, Origin: "theirs"})
		theirs := w.entities()
		for step := range 4 {
			name := fmt.Sprintf("seed %d, step %d", seed, step)
			puts := draw(r)
			manifests := w.of(puts...)
			w.policy.Budget = prune.Budget{Count: r.IntN(3), Percent: []int{0, 30, 50, 100}[r.IntN(4)]}
			for range r.IntN(3) {
				w.interfere(r)
			}
			for round := 0; ; round++ {
				if round == 6 {
					t.Fatalf("%s: there is no end of changes", name)
				}
				before := w.entities()
				p := w.plan(manifests...)
				equal(t, name+": entities after planning", before, w.entities())
				checkOrder(t, name, p)
				checkBudget(t, name, w, p)
				if plantest.Changes(p) == 0 {
					break
				}
				if len(p.Held) > 0 {
					held++
					w.policy.Approve = p.Asks
				}
				for _, a := range p.Actions {
					if a.Reason != "" {
						restored++
					}
				}
				fails := r.IntN(12) // the number of the write that fails
				_, _, err := w.record(p, func(_ string, n int) error {
					if n == fails {
						return errors.New("interrupted")
					}
					return nil
				})
				if err != nil && !strings.Contains(err.Error(), "interrupted") {
					t.Fatalf("%s: %v", name, err)
				}
				if err != nil {
					interrupted++
				}
			}
			got := names(w.items)
			slices.Sort(got)
			equal(t, name+": inventory", wants(puts), got)
			checkContents(t, name, w, puts)
			all := w.entities()
			equal(t, name+": number of entities", len(puts)+len(theirs), len(all))
			for _, line := range theirs {
				if !slices.Contains(all, line) {
					t.Errorf("%s: %s of another client was changed", name, line)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	if held < 3 || interrupted < 3 || restored < 3 {
		t.Errorf("%d removals were held, %d revisions interrupted, and %d entities restored: want some of each", held, interrupted, restored)
	}
}

// checkOrder checks that writes come before removals, that writes are in the order of
// references, and removals in the opposite one.
func checkOrder(t *testing.T, name string, p *plan.Plan) {
	t.Helper()
	ranks := map[tko.Kind]int{tko.KindPlugin: 1, tko.KindTemplate: 2, tko.KindSite: 3, tko.KindDeployment: 4}
	last := 0
	for _, a := range p.Actions {
		rank := ranks[a.Kind]
		if a.Verb == plan.Delete {
			rank = 10 - rank
		}
		if rank < last {
			t.Errorf("%s: %s comes too late in %v", name, a, actions(p.Actions))
		}
		last = max(last, rank)
	}
}

// checkBudget checks the removals of a plan against the budget in another way than the plan.
func checkBudget(t *testing.T, name string, w *world, p *plan.Plan) {
	t.Helper()
	removed := 0
	for _, a := range append(slices.Clone(p.Actions), p.Held...) {
		if a.Verb == plan.Delete {
			removed++
		}
	}
	part := 0.0
	if removed > 0 {
		part = 100 * float64(removed) / float64(len(p.Items))
	}
	exceeds := removed > w.policy.Budget.Count && part > float64(w.policy.Budget.Percent)
	if approved := w.policy.Approve != "" && p.Asks == ""; exceeds && !approved && len(p.Held) != removed || !exceeds && len(p.Held) > 0 {
		t.Errorf("%s: of %d removals of %d entities %d are held by the budget %+v", name, removed, len(p.Items), len(p.Held), w.policy.Budget)
	}
}

// checkContents checks that entities are as their manifests say.
func checkContents(t *testing.T, name string, w *world, puts []tko.Put) {
	t.Helper()
	for _, p := range puts {
		switch p.Kind {
		case tko.KindTemplate:
			e, err := w.Template(t.Context(), tko.TemplateID(p.ID), 0)
			if err != nil || e.Package[0].Text("data", "k") != p.Package[0].Text("data", "k") {
				t.Errorf("%s: template %q is %+v, %v; want %+v", name, p.ID, e, err, p)
			}
		case tko.KindSite:
			e, err := w.Site(t.Context(), tko.SiteID(p.ID), 0)
			if err != nil || e.Template != p.Template || !maps.Equal(e.Metadata, p.Metadata) {
				t.Errorf("%s: site %q is %+v, %v; want %+v", name, p.ID, e, err, p)
			}
		default:
			e, err := w.Deployment(t.Context(), tko.DeploymentID(w.item(p.Kind, p.ID).ID), 0)
			own := slices.IndexFunc(e.Package, func(r krm.Resource) bool { return r.Name() == "own" })
			if err != nil || e.Template != p.Template || e.Site != p.Site || own < 0 || e.Package[own].Text("data", "k") != p.Package[0].Text("data", "k") {
				t.Errorf("%s: deployment %q is %+v, %v; want %+v", name, p.ID, e, err, p)
			}
		}
	}
}

// Any careful plan is applied as a whole or waits as a whole, and an approval lets just this
// one pass.
func TestCarefulPlansAreHeldAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan.Policy{})
	r := rand.New(rand.NewPCG(1, 2))
	random := func() []manifest.Manifest {
		var puts []tko.Put
		for i := range 12 {
			id := fmt.Sprintf("s%02d", i)
			switch r.IntN(4) {
			case 0:
			case 1:
				puts = append(puts, plainSite(id))
			default:
				puts = append(puts, site(id, "", "k", strconv.Itoa(r.IntN(3))))
			}
		}
		return w.fromInventory(puts...)
	}
	w.policy = careful(lax)
	w.policy.Source = "fleet"
	first := random()
	w.apply(first...)
	has := map[string]bool{}
	for _, m := range first {
		has[m.Name] = m.Put.Metadata["k"] != ""
	}
	waited, passed := 0, 0
	for range 40 {
		w.policy.Budget, w.policy.Approve = prune.Budget{Count: r.IntN(8), Percent: r.IntN(60)}, ""
		next, other := random(), random()
		p := w.plan(next...)
		removed, lost := 0, 0
		for _, a := range slices.Concat(p.Actions, p.Held) {
			if a.Verb == plan.Delete {
				removed++
			}
			if i := slices.IndexFunc(next, func(m manifest.Manifest) bool { return m.Name == a.Name }); i >= 0 && has[a.Name] && next[i].Put.Metadata["k"] == "" {
				lost++
			}
		}
		exceeds := func(n int) bool {
			return n > w.policy.Budget.Count || float64(n)/float64(len(p.Items)) > float64(w.policy.Budget.Percent)/100
		}
		want := removed > 0 && exceeds(removed) || lost > 0 && exceeds(lost)
		if waits := p.Asks != ""; waits != want || waits && len(p.Actions) > 0 || !waits && len(p.Held) > 0 {
			t.Fatalf("%d of %d are removed and %d lose a key with %+v: it waits: %t; %v, %v", removed, len(p.Items), lost, w.policy.Budget, waits, p.Actions, p.Held)
		}
		if p.Asks == "" {
			passed++
			continue
		}
		waited++
		w.policy.Approve = p.Asks
		if again := w.plan(next...); again.Asks != "" || len(again.Actions) != len(p.Held) {
			t.Fatalf("after the approval of %v it waits for %q", p.Held, again.Asks)
		}
		if q := w.plan(other...); q.Asks == "" && q.Charged == 0 && slices.ContainsFunc(q.Actions, func(a plan.Action) bool { return a.Verb == plan.Delete }) {
			t.Fatalf("the approval of %v allows %v", p.Held, q.Actions)
		}
	}
	if waited < 10 || passed < 10 {
		t.Errorf("%d plans waited, and %d passed: want some of each", waited, passed)
	}
}
