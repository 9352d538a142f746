package catalog

import (
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// topologyGroup is the group whose statuses preparers write. Nothing of it is
// handed to sites.
const topologyGroup = "topology.nephio.org"

// withdraws says whether a change takes back the approval that a deployment has:
// somebody must approve what runs at its site, and that changes. before is its
// package.
func (s *Service) withdraws(current Record, before krm.Package, d draft) (bool, error) {
	if !s.options.WithdrawApproval || !current.Approved || !d.approved || d.site == "" {
		return false, nil
	}
	resource, err := before.Deployment()
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
	if d.site != current.Site {
		return true, nil
	}
	was, err := contentOf(approvable(before))
	if err != nil {
		return false, err
	}
	is, err := contentOf(approvable(d.pkg))
	return was.digest != is.digest, err
}

// approvable is what of a package is approved: all but the state of the
// deployment, and the statuses of topologies.
func approvable(pkg krm.Package) krm.Package {
	pkg = slices.Clone(pkg.WithoutDeploymentState())
	for i, r := range pkg {
		if _, ok := r["status"]; ok && r.GVK().Group == topologyGroup {
			r = r.Clone()
			delete(r, "status")
			pkg[i] = r
		}
	}
	return pkg
}

// flags are the conditions that say what a change makes of a deployment.
func (c change) flags(current []tko.Condition) []tko.Condition {
	flags := flagConditions(current, c.record.Prepared, c.record.Approved)
	if !c.withdrawn {
		return flags
	}
	flags = slices.DeleteFunc(flags, func(f tko.Condition) bool { return f.Type == tko.ConditionApproved })
	return append(flags, tko.Condition{
		Type: tko.ConditionApproved, Status: tko.ConditionFalse, Reason: tko.ReasonApprovalWithdrawn,
		Message: fmt.Sprintf("the deployment has changed since revision %d, which was approved: approve it again; until then its site keeps what was approved", c.record.Revision),
	})
}
