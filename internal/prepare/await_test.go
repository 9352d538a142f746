package prepare_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// The preparer uses a template and a site as soon as they are registered, also after another
// preparer has begun to wait for them. A template that makes the deployment invalid is reported.
func TestPreparerUsesWhatArrives(t *testing.T) {
	t.Parallel()
	data := newSystem(t)
	r, err := data.PutEntity(t.Context(), tko.Put{Kind: tko.KindDeployment, Name: "early", Template: "late", Site: "later", Defer: true, Package: krm.Package{{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"}, "data": map[string]any{"k": "v"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	is := func(what string, check func(d tko.Deployment, prepared tko.Condition) bool) {
		t.Helper()
		eventually.Within(t, time.Minute, what, func() error {
			d, err := data.Deployment(t.Context(), tko.DeploymentID(r.ID), 0)
			if err != nil {
				return err
			}
			c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionPrepared)
			if c == nil || !check(d, *c) {
				return fmt.Errorf("it is %+v", d)
			}
			return nil
		})
	}
	stop := run(t, data, nil, prepare.Options{})
	is("it waits", func(_ tko.Deployment, c tko.Condition) bool { return c.Reason == tko.ReasonWaitsForReferences })
	stop()
	defer run(t, data, nil, prepare.Options{})()

	register(t, data, map[string]string{"late": "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 1}]}\n"}, nil)
	is("it waits for the site", func(d tko.Deployment, c tko.Condition) bool {
		return d.Template == "late" && len(d.Package) == 3 && !d.Prepared
	})
	register(t, data, nil, map[string]string{"later": "north"})
	is("it is prepared", func(d tko.Deployment, c tko.Condition) bool {
		return d.Prepared && d.Approved && d.Site == "later" && tko.ConditionIs(d.Stamp.Conditions, tko.ConditionResolvedRefs) == tko.ConditionTrue
	})

	// It moves to a site when that exists, and runs at its own one until then.
	d, err := data.Deployment(t.Context(), tko.DeploymentID(r.ID), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := data.PutEntity(t.Context(), tko.Put{Kind: tko.KindDeployment, ID: r.ID, Template: "late", Site: "next", Defer: true, Package: d.Package}); err != nil {
		t.Fatal(err)
	}
	is("it waits to move", func(d tko.Deployment, c tko.Condition) bool {
		return d.Prepared && d.Site == "later" && d.AwaitedSite == "next"
	})
	register(t, data, nil, map[string]string{"next": "south"})
	is("it has moved", func(d tko.Deployment, c tko.Condition) bool { return d.Prepared && d.Site == "next" })
}

// The preparer gives a site the template that it names as soon as that is registered, also after
// another preparer has begun to wait for it, and then a placement selects it by what it has from
// the template.
func TestPreparerResolvesSitesThatWait(t *testing.T) {
	t.Parallel()
	data := newSystem(t)
	if _, err := data.PutEntity(t.Context(), tko.Put{Kind: tko.KindSite, ID: "early", Template: "late", Defer: true}); err != nil {
		t.Fatal(err)
	}
	stop := run(t, data, nil, prepare.Options{})
	eventually.True(t, "the work is claimed and waits", func() bool {
		items, err := data.ClaimWork(t.Context(), tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "other", Max: 1, Lease: time.Millisecond})
		return err == nil && len(items) == 0
	})
	stop()
	defer run(t, data, nil, prepare.Options{})()
	if _, err := data.RegisterTemplate(t.Context(), tko.Template{ID: "late", Metadata: map[string]string{"tier": "edge"}}); err != nil {
		t.Fatal(err)
	}
	eventually.Within(t, time.Minute, "the site has its template", func() error {
		s, err := data.Site(t.Context(), "early", 0)
		if err != nil {
			return err
		}
		if s.Template != "late" || s.Metadata["tier"] != "edge" || tko.ConditionIs(s.Stamp.Conditions, tko.ConditionResolvedRefs) != tko.ConditionTrue {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
}
