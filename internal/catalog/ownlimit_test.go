package catalog_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// A placement or a source raises the limit of what it creates up to the operator's limit for
// its author. Beyond that it needs an approver.
func TestOwnLimitsRaiseUpToThatOfTheOperator(t *testing.T) {
	t.Parallel()
	placements := func(create ...int) string {
		var text strings.Builder
		for i, n := range create {
			fmt.Fprintf(&text, "apiVersion: topology.nephio.org/v1alpha1\nkind: Placement\nmetadata: {name: p%d}\nspec: {update: Apply, budget: {create: %d}}\n---\n", i, n)
		}
		return text.String()
	}
	upTo := []access.Limit{{Limit: access.LimitCreated, UpTo: 8, Author: "cert:ada"}}
	for name, test := range map[string]struct {
		rules []access.Limit
		who   string
		own   []int
		want  int
	}{
		"none":                       {upTo, "cert:ada", nil, 3},
		"below the operator's":       {upTo, "cert:ada", []int{5}, 5},
		"of two placements":          {upTo, "cert:ada", []int{4, 3}, 7},
		"above the operator's":       {upTo, "cert:ada", []int{1000}, 8},
		"below the general one":      {upTo, "cert:ada", []int{1}, 3},
		"another author":             {upTo, "cert:root", []int{1000}, 3},
		"no limit of the operator":   {nil, "cert:ada", []int{1000}, 3},
		"with a limit of the author": {[]access.Limit{{Limit: access.LimitCreated, Most: 2, UpTo: 4, Author: "cert:**"}}, "cert:ada", nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGuarded(t, catalog.Options{Reach: gate.ReachLimits{Created: 3, Rules: test.rules}, CheckSource: func(tko.SourceDefinition) error { return nil }})
			w.template("t", "")
			w.site("s", "")
			w.bind("cert:ada", access.Admin, access.Scope{})
			parent := w.createAs(w.as(test.who), tko.NewDeployment{Merge: pkg(t, placements(test.own...))})
			preparer := tko.WithActing(identity.With(w.ctx, identity.Controller(identity.RolePreparer)), tko.Acting{Kind: tko.KindDeployment, ID: string(parent)})
			created := 0
			var refused error
			for i := range 10 {
				_, _, err := w.CreateChildren(preparer, tko.NewChildren{Parent: parent, Children: []tko.NewChild{{Origin: strconv.Itoa(i), Template: "t", Site: "s"}}})
				if err == nil {
					created++
				} else {
					refused = err
				}
			}
			if created != test.want {
				t.Errorf("a topology created %d deployments, want %d", created, test.want)
			}
			wantError(t, refused, tko.ErrInvalid, "wait for consent")

			// A source with the sum of these limits.
			sum := 0
			for _, n := range test.own {
				sum += n
			}
			spec := fmt.Sprintf(`{"reach":{"created":%d}}`, sum)
			if _, err := w.RegisterSources(w.as(test.who), []tko.SourceDefinition{{Kind: tko.SourceKinds[0], Name: "fleet", Spec: []byte(spec)}}, false); err != nil {
				t.Fatal(err)
			}
			source := tko.WithActing(tko.WithAuthor(identity.With(w.ctx, identity.Controller(identity.RoleGitOps)), tko.Author{Who: "gitops:fleet"}), tko.Acting{Kind: tko.KindSource, ID: "fleet"})
			created = 0
			for i := range 10 {
				if _, err := w.PutEntity(source, tko.Put{Kind: tko.KindDeployment, Origin: strconv.Itoa(i), Template: "t", Site: "s"}); err == nil {
					created++
				}
			}
			if created != test.want {
				t.Errorf("a source created %d deployments, want %d", created, test.want)
			}

			// Beyond it, an approver consents; who may only edit doesn't.
			waits := tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: tko.ReasonWaitsForApproval, Message: refused.Error()}
			w.is("report", w.SetConditions(preparer, tko.KindDeployment, string(parent), []tko.Condition{waits}), nil)
			w.bind("cert:bob", access.Editor, access.Scope{})
			_, err := w.ApproveDeployment(tko.WithConfirmation(w.as("cert:bob"), 1), parent)
			w.is("an editor", err, tko.ErrDenied)
			w.bind("cert:eve", access.Approver, access.Scope{})
			_, err = w.ApproveDeployment(tko.WithConfirmation(w.as("cert:eve"), 1), parent)
			w.is("an approver", err, nil)
		})
	}
}

// What would be all that a topology has is removed with consent only, whatever its budget and
// however small its part of the fleet: a wrong selector matches no site.
func TestRemovalOfAWholeTopologyNeedsConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("leaf", "")
	w.many(500, tko.NewDeployment{})
	top, small := w.create(tko.NewDeployment{}), w.create(tko.NewDeployment{})
	for parent, n := range map[tko.DeploymentID]int{top: 20, small: 10} {
		if err := w.children(parent, "leaf", 0, n); err != nil {
			t.Fatal(err)
		}
	}
	preparer := w.by(identity.RolePreparer)
	remove := func(parent tko.DeploymentID, n int) error {
		_, _, err := w.CreateChildren(preparer, tko.NewChildren{Parent: parent, Remove: n})
		return err
	}
	if err := remove(top, 19); err != nil {
		t.Errorf("not all: %v", err)
	}
	if err := remove(small, 10); err != nil {
		t.Errorf("all of a few: %v", err)
	}
	waits := remove(top, 20)
	wantError(t, waits, tko.ErrInvalid, "20 to remove", "all that the topology has", fmt.Sprintf("tko deployment approve %s --confirm=20", top))
	w.report(top, waits)
	if _, err := w.ApproveDeployment(tko.WithConfirmation(w.by("ana"), 20), top); err != nil {
		t.Fatal(err)
	}
	if err := remove(top, 20); err != nil {
		t.Errorf("with consent: %v", err)
	}
	for _, child := range all(t, w.Deployments(w.ctx, tko.DeploymentSelect{Parent: top}, tko.ListOptions{})) {
		if _, err := w.DeleteDeployment(preparer, child.ID); err != nil {
			t.Fatal(err)
		}
	}
}
