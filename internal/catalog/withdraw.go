package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// withdrawsApproval reports whether a change leaves a deployment without an
// approval although its new package sets it: a user must approve the content
// that runs at its site, and that content changes. A package that changes only
// the approval approves. before returns the deployment's package.
func (s *DeploymentWriter) withdrawsApproval(ctx context.Context, current record.Record, before func() (krm.Package, error), d content.Draft) (bool, error) {
	policies, err := s.approvals.policiesFor(ctx, current)
	if err != nil {
		return false, err
	}
	if len(policies) > 0 && d.Approved {
		if d.Site != current.Site {
			return true, nil
		}
		old, err := before()
		if err != nil {
			return false, err
		}
		return contentDiffers(old, d.Package)
	}
	if !s.options.WithdrawApproval || !d.Approved || d.Site == "" {
		return false, nil
	}
	old, err := before()
	if err != nil {
		return false, err
	}
	resource, err := old.Deployment()
	if err != nil {
		return false, err
	}
	approve := krm.Default
	if resource != nil {
		state, err := krm.ReadDeployment(resource)
		if err != nil {
			return false, err
		}
		approve = state.Approve
	}
	if approve == krm.Auto || approve != krm.Manual && !s.options.ManualApprove {
		return false, nil
	}
	if d.Site != current.Site || !current.Approved && d.Prepared != current.Prepared {
		return true, nil
	}
	return contentDiffers(old, d.Package)
}

// contentDiffers reports whether two packages differ in what a user approves.
func contentDiffers(before, after krm.Package) (bool, error) {
	was, err := content.Of(approvable(before))
	if err != nil {
		return false, err
	}
	is, err := content.Of(approvable(after))
	return was.Digest != is.Digest, err
}

// approvable returns the content that a user approves: all of a package except
// the state of the deployment and the statuses of topologies.
func approvable(pkg krm.Package) krm.Package {
	pkg = slices.Clone(pkg.WithoutDeploymentState())
	for i, r := range pkg {
		if _, ok := r["status"]; ok && r.GVK().Group == gate.TopologyGroup {
			r = r.Clone()
			delete(r, "status")
			pkg[i] = r
		}
	}
	return pkg
}

// withdrawal returns the Approved condition of a deployment whose approval was
// withdrawn because of a change; nil if it was never approved.
func withdrawal(current record.Record) *tko.Condition {
	if !current.Approved {
		if !tko.HasCondition(current.Conditions, tko.ConditionApproved, tko.ReasonApprovalWithdrawn) {
			return nil
		}
		withdrawn := *tko.FindCondition(current.Conditions, tko.ConditionApproved)
		return &withdrawn
	}
	return &tko.Condition{
		Type: tko.ConditionApproved, Status: tko.ConditionFalse, Reason: tko.ReasonApprovalWithdrawn,
		Message: fmt.Sprintf("the deployment has changed since revision %d, which was approved: approve it again; until then its site keeps the approved revision", current.Revision),
	}
}
