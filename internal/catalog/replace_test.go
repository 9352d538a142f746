package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// A spy is a store that records the writes of each commit, and may call a function
// before it.
type spy struct {
	record.Store
	mu      sync.Mutex
	commits [][]string
	before  func([]record.Write)
}

func (s *spy) Commit(ctx context.Context, gated record.Gated) ([]record.Outcome, error) {
	writes := gated.Writes()
	if s.before != nil {
		s.before(writes)
	}
	outcomes, err := s.Store.Commit(ctx, gated)
	if err == nil {
		var list []string
		for _, w := range writes {
			list = append(list, fmt.Sprintf("%s %s", w.Op, w.Record.ID))
		}
		s.mu.Lock()
		s.commits = append(s.commits, list)
		s.mu.Unlock()
	}
	return outcomes, err
}

// A succession is a child that runs at a site, with children of its own, and its
// replacement.
type succession struct {
	*world
	spy                     *spy
	parent, old, below, new tko.DeploymentID
}

func newSuccession(t *testing.T) succession {
	t.Helper()
	w := newWorld(t, catalog.Options{})
	s := succession{world: w, spy: &spy{Store: w.store}}
	w.Service = catalog.New(s.spy, w.validator, catalog.Options{})
	w.site("lagos", "")
	s.parent = w.create(tko.NewDeployment{Prepared: true})
	s.old = w.create(tko.NewDeployment{Parent: s.parent, Site: "lagos", Prepared: true, Approved: true})
	s.below = w.create(tko.NewDeployment{Parent: s.old, Site: "lagos"})
	s.new = s.child("new", s.old)
	s.spy.commits = nil
	return s
}

// child creates a child at the site that replaces others.
func (s succession) child(origin string, replaces ...tko.DeploymentID) tko.DeploymentID {
	s.t.Helper()
	ids, _, err := s.CreateChildren(s.ctx, tko.NewChildren{Parent: s.parent, Children: []tko.NewChild{{Origin: origin, Site: "lagos", Replaces: replaces}}})
	if err != nil {
		s.t.Fatal(err)
	}
	return ids[0]
}

// finish commits a deployment as its preparer does.
func (s succession) finish(id tko.DeploymentID, approved bool) error {
	d := s.deployment(id)
	_, err := s.CommitDeployment(s.ctx, tko.DeploymentCommit{
		ID: id, Revision: d.Stamp.Revision, Package: d.Package.WithDeployment("", string(d.Site), true, approved),
	})
	return err
}

// placed returns the children that their site should run.
func (s succession) placed() []tko.DeploymentID {
	s.t.Helper()
	yes := true
	var ids []tko.DeploymentID
	for d, err := range s.Deployments(s.ctx, tko.DeploymentSelect{Parent: s.parent, Prepared: &yes, Approved: &yes, Sites: []string{"lagos"}}, tko.ListOptions{}) {
		if err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, d.ID)
	}
	return ids
}

// A deployment names those that it has replaced, the newest first, whatever is written of it
// later: their objects may still be at the site.
func TestReplacedDeploymentsAreNamed(t *testing.T) {
	t.Parallel()
	s := newSuccession(t)
	if err := s.finish(s.new, true); err != nil {
		t.Fatal(err)
	}
	next := s.child("next", s.new)
	replaced := func(what string, want ...tko.DeploymentID) {
		t.Helper()
		if diff := cmp.Diff(want, s.deployment(next).Replaced); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	replaced("before")
	if err := s.finish(next, true); err != nil {
		t.Fatal(err)
	}
	replaced("after", s.new, s.old)
	d := s.deployment(next)
	if _, err := s.CommitDeployment(s.ctx, tko.DeploymentCommit{ID: next, Revision: d.Stamp.Revision, Package: append(d.Package, krm.Resource{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "more"},
	})}); err != nil {
		t.Fatal(err)
	}
	replaced("after a commit", s.new, s.old)
	m := s.start(next)
	if _, _, err := s.EndModification(s.ctx, m.Token, m.Package); err != nil {
		t.Fatal(err)
	}
	replaced("after a modification", s.new, s.old)
	if _, err := s.PutEntity(s.ctx, tko.Put{Kind: tko.KindDeployment, ID: string(next), Parent: s.parent, Site: "lagos", Package: krm.Package{}.WithDeployment("", "lagos", true, true)}); err != nil {
		t.Fatal(err)
	}
	replaced("after it was written anew", s.new, s.old)
	ids := []tko.DeploymentID{next}
	for n := range 30 { // what is inherited is bounded
		next = s.child(fmt.Sprint("later", n), next)
		if err := s.finish(next, true); err != nil {
			t.Fatal(err)
		}
		ids = append([]tko.DeploymentID{next}, ids...)
	}
	replaced("after many", ids[1:18]...)
}

// Each way to approve a deployment that replaces another one deletes that in the
// same commit.
func TestEveryApprovalReplacesInOneCommit(t *testing.T) {
	t.Parallel()
	tests := map[string]func(s succession) error{
		"a preparer commits it": func(s succession) error { return s.finish(s.new, true) },
		"a modification": func(s succession) error {
			m := s.start(s.new)
			_, _, err := s.EndModification(s.ctx, m.Token, m.Package.WithDeployment("", "lagos", true, true))
			return err
		},
		"an approval": func(s succession) error {
			return errors.Join(s.finish(s.new, false), errOnly(s.ApproveDeployment(s.ctx, s.new)))
		},
		"an approval of many": func(s succession) error {
			return errors.Join(s.finish(s.new, false), errOnly(s.ApproveDeployments(s.ctx, tko.DeploymentSelect{Parent: s.parent}, false)))
		},
		"an approval in Kubernetes": func(s succession) error {
			return errors.Join(s.finish(s.new, false), errOnly(s.PutApproval(s.ctx, record.Key{Kind: tko.KindDeployment, ID: string(s.new)}, record.Requirement{}, false)))
		},
		"the whole of it": func(s succession) error {
			return errOnly(s.PutEntity(s.ctx, tko.Put{Kind: tko.KindDeployment, ID: string(s.new), Parent: s.parent, Site: "lagos", Package: krm.Package{}.WithDeployment("", "lagos", true, true)}))
		},
	}
	for name, approve := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSuccession(t)
			if diff := cmp.Diff([]tko.DeploymentID{s.old}, s.placed()); diff != "" {
				t.Errorf("before: -want +got:\n%s", diff)
			}
			if err := approve(s); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]tko.DeploymentID{s.new}, s.placed()); diff != "" {
				t.Errorf("after: -want +got:\n%s", diff)
			}
			want := []string{"written " + string(s.new), "written " + string(s.below), "deleted " + string(s.old)}
			if last := s.spy.commits[len(s.spy.commits)-1]; !slices.Equal(last, want) {
				t.Errorf("the last commit is %v, want %v", last, want)
			}
			if d := s.deployment(s.new); len(d.Replaces) > 0 {
				t.Errorf("it still replaces %v", d.Replaces)
			}
			if d := s.deployment(s.below); d.Parent != s.new {
				t.Errorf("the parent of the replaced deployment's child is %q, want the replacement", d.Parent)
			}
		})
	}
}

func errOnly[T any](_ T, err error) error { return err }

// The replaced deployment is moved, deleted or changed before and during its
// replacement.
func TestReplacementDeletesOnlySiblingsAtTheSite(t *testing.T) {
	t.Parallel()
	t.Run("moved to another site", func(t *testing.T) {
		t.Parallel()
		s := newSuccession(t)
		s.site("accra", "")
		m := s.start(s.old)
		if _, _, err := s.EndModification(s.ctx, m.Token, m.Package.WithDeployment("", "accra", true, true)); err != nil {
			t.Fatal(err)
		}
		if err := s.finish(s.new, true); err != nil {
			t.Fatal(err)
		}
		if d := s.deployment(s.old); d.Site != "accra" {
			t.Errorf("the old one is at %q", d.Site)
		}
	})
	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		s := newSuccession(t)
		if _, err := s.DeleteDeployment(s.ctx, s.old); err != nil {
			t.Fatal(err)
		}
		if err := s.finish(s.new, true); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("of another parent", func(t *testing.T) {
		t.Parallel()
		s := newSuccession(t)
		other := s.create(tko.NewDeployment{Site: "lagos", Prepared: true, Approved: true})
		thief := s.child("thief", other, s.parent, "2Zq8LmV3xT6YbN9cWd4RkJ5HsGf")
		if err := s.finish(thief, true); err != nil {
			t.Fatal(err)
		}
		s.deployment(other)
		s.deployment(s.parent)
	})
	for name, change := range map[string]func(s succession) error{
		"changed meanwhile": func(s succession) error {
			d := s.deployment(s.old)
			return errOnly(s.CommitDeployment(s.ctx, tko.DeploymentCommit{ID: s.old, Revision: d.Stamp.Revision, Package: append(d.Package, pkg(s.t, thing("more", ""))...)}))
		},
		"a new child meanwhile": func(s succession) error { s.create(tko.NewDeployment{Parent: s.old}); return nil },
		"deleted meanwhile":     func(s succession) error { return errOnly(s.DeleteDeployment(s.ctx, s.old)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSuccession(t)
			once := true
			s.spy.before = func(writes []record.Write) {
				if once && len(writes) > 1 {
					once = false
					if err := change(s); err != nil {
						t.Error(err)
					}
				}
			}
			if err := s.finish(s.new, true); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]tko.DeploymentID{s.new}, s.placed()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if once {
				t.Error("nothing was replaced")
			}
		})
	}
}

// A user changes the replaced deployment after its replacement was created.
func TestReplacementOfAnEditedDeploymentNeedsAnApproval(t *testing.T) {
	t.Parallel()
	s := newSuccession(t)
	d := s.deployment(s.old)
	ann := tko.WithAuthor(s.ctx, tko.Author{Who: "ann"})
	if _, err := s.CommitDeployment(ann, tko.DeploymentCommit{ID: s.old, Revision: d.Stamp.Revision, Package: append(d.Package, pkg(t, thing("mine", ""))...)}); err != nil {
		t.Fatal(err)
	}
	s.ctx = tko.WithAuthor(s.ctx, tko.Author{Who: "preparer"})
	if err := s.finish(s.new, true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]tko.DeploymentID{s.old}, s.placed()); diff != "" {
		t.Errorf("ann's work went without asking: -want +got:\n%s", diff)
	}
	c := condition(s.deployment(s.new), tko.ConditionApproved)
	if want := fmt.Sprintf(`deployment %s, which this one replaces, was changed by "ann" after this one was created: approve this one to replace it nevertheless`, s.old); c.Status != tko.ConditionFalse || c.Message != want {
		t.Errorf("%+v", c)
	}
	if n, err := s.ApproveDeployment(s.ctx, s.new); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if diff := cmp.Diff([]tko.DeploymentID{s.new}, s.placed()); diff != "" {
		t.Errorf("approved: -want +got:\n%s", diff)
	}
}

// A child that replaces others is created neither prepared nor approved, even if its
// template sets both.
func TestReplacementsAreCreatedUnapproved(t *testing.T) {
	t.Parallel()
	s := newSuccession(t)
	s.template("ready", state("", isPrepared+", "+isApproved))
	create := func() tko.DeploymentID {
		ids, _, err := s.CreateChildren(s.ctx, tko.NewChildren{Parent: s.parent, Children: []tko.NewChild{{Origin: "o", Template: "ready", Site: "lagos", Replaces: []tko.DeploymentID{s.old}}}})
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	id := create()
	if again := create(); again != id {
		t.Errorf("asked twice, it is there twice: %q and %q", id, again)
	}
	if d := s.deployment(id); d.Prepared || d.Approved || condition(d, tko.ConditionPrepared).Status == tko.ConditionTrue {
		t.Errorf("it begins prepared %t and approved %t", d.Prepared, d.Approved)
	}
	if diff := cmp.Diff([]tko.DeploymentID{s.old}, s.placed()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDeletionRequiresTheRevision(t *testing.T) {
	t.Parallel()
	s := newSuccession(t)
	revision := s.deployment(s.new).Stamp.Revision
	if err := s.finish(s.new, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteDeploymentAt(s.ctx, s.new, revision); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("at another revision: %v", err)
	}
	if _, err := s.DeleteDeploymentAt(s.ctx, s.new, -1); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("at a negative revision: %v", err)
	}
	if d, err := s.DeleteDeploymentAt(s.ctx, s.new, revision+1); err != nil || d.Count != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := s.DeleteDeploymentAt(s.ctx, s.new, revision+1); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("deletion of a deleted deployment: %v", err)
	}
	if d, err := s.DeleteDeploymentAt(s.ctx, s.old, 1); err != nil || d != (tko.Deleted{Count: 2, Descendants: 1}) {
		t.Errorf("%+v, %v", d, err)
	}
}

// Deployments that were made from an earlier revision of their template are
// outdated.
func TestTemplateRegisteredAgainLeavesDeploymentsOutdated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", "n: 1"))
	w.template("u", thing("a", "n: 1"))
	first := w.create(tko.NewDeployment{Template: "t"})
	moved := w.create(tko.NewDeployment{Template: "u"})
	put := w.create(tko.NewDeployment{Template: "t"})
	w.template("t", thing("a", "n: 2"))
	w.template("t", thing("a", "n: 2")) // no other revision
	second := w.create(tko.NewDeployment{Template: "t"})
	find := func(outdated bool) []tko.DeploymentID {
		var ids []tko.DeploymentID
		for d, err := range w.Deployments(w.ctx, tko.DeploymentSelect{Outdated: &outdated}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, d.ID)
		}
		return ids
	}
	if diff := cmp.Diff([]tko.DeploymentID{first, put}, find(true)); diff != "" {
		t.Errorf("outdated: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]tko.DeploymentID{moved, second}, find(false)); diff != "" {
		t.Errorf("others: -want +got:\n%s", diff)
	}
	if got := [2]int64{w.deployment(first).TemplateRevision, w.deployment(second).TemplateRevision}; got != [2]int64{1, 2} {
		t.Errorf("made from the revisions %v", got)
	}
	m := w.start(moved) // is the other template's from now on, as that is now
	if _, _, err := w.EndModification(w.ctx, m.Token, m.Package.WithDeployment("t", "", false, false)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindDeployment, ID: string(put), Template: "t", Package: pkg(t, thing("a", "n: 2")), FromTemplate: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]tko.DeploymentID{first}, find(true)); diff != "" {
		t.Errorf("outdated after two were made anew: -want +got:\n%s", diff)
	}
	m = w.start(first) // an edit doesn't bring the template's new revision
	if _, _, err := w.EndModification(w.ctx, m.Token, append(m.Package, pkg(t, thing("b", ""))...)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]tko.DeploymentID{first}, find(true)); diff != "" {
		t.Errorf("outdated after an edit: -want +got:\n%s", diff)
	}
}
