package kubernetes

import (
	"context"
	"errors"
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// reconcileManagement applies the part of the site's package for the management
// cluster: usually the resources that the site's own cluster is made from. The
// objects are recorded as those of a deployment. Every removal needs an approval,
// because it may remove the site's cluster.
func (t *Target) reconcileManagement(ctx context.Context, s spec, rules healthRules, site tko.Site) (report.Report, error) {
	rc, release, err := t.ofManagement(ctx, s, rules, site)
	if err != nil || rc == nil {
		return report.Report{}, err
	}
	defer release()
	err = rc.run(ctx)
	rc.log(ctx)
	if err != nil {
		return report.Report{}, describeUnreachable(err)
	}
	r, err := rc.report()
	for _, d := range rc.deployments {
		own := r.Deployments[d.ID]
		r.Site.Healthy = own.Healthy
		if own.Scheduled.Status != tko.ConditionTrue {
			r.Site.Scheduled = own.Scheduled
		}
	}
	return r, err
}

// ofManagement makes the reconciliation of a site's part for the management cluster; nil
// if there is none, and none was applied.
func (t *Target) ofManagement(ctx context.Context, s spec, rules healthRules, site tko.Site) (rc *reconciliation, release func(), err error) {
	var pkg krm.Package
	for _, r := range site.Package.Deployable() {
		if r.Annotation(AnnotationTarget) == targetManagement && !r.IsLocal() {
			pkg = append(pkg, r)
		}
	}
	if len(pkg) == 0 && t.options.Management == "" {
		return nil, nil, nil
	}
	by := leash.Operator() // to look for what was applied
	if len(pkg) > 0 {
		by = t.options.Leash.Site(site.ID)
	}
	conn, release, err := t.connections.get(ctx, by, kubeconfigRef{Management: true}, trigger.Impersonation{})
	if err != nil {
		return nil, nil, err
	}
	site.ID += " (management)"                         // no site has this name: the management cluster may also be the site's own cluster
	id := tko.DeploymentID(inventoryName(site.ID, "")) // valid as a label's value, as IDs of deployments are
	rc = t.reconciliation(conn, conn, spec{Namespace: trigger.DefaultNamespace, Inventory: s.Inventory, Drift: s.Drift, Ignore: s.Ignore, Approve: s.Approve})
	rc.site, rc.health, rc.management = site, rules, true
	if len(pkg) > 0 {
		rc.deployments = []tko.Deployment{{ID: id, Package: pkg}}
		return rc, release, nil
	}
	there, err := conn.get(ctx, key{Kind: "ConfigMap", Namespace: s.Inventory, Name: inventoryName(site.ID, id)}, "v1")
	if err != nil || there == nil {
		release()
		return nil, nil, describeUnreachable(err)
	}
	return rc, release, nil
}

// describeUnreachable replaces an error of a cluster that can't be reached by a
// description that is the same for each attempt.
func describeUnreachable(err error) error {
	if isUnreachable(err) {
		return fmt.Errorf("unreachable: %s", unreachableReason(err))
	}
	return err
}

// combineReports combines the reports on the management cluster's part of a site and
// on the site's own cluster. Problems of the former take precedence, because they
// usually cause those of the latter.
func combineReports(infrastructure report.Report, infrastructureErr error, own report.Report, err error) (report.Report, error) {
	const where = "in the management cluster: "
	if again := infrastructure.Requeue; again > 0 && (own.Requeue == 0 || again < own.Requeue) {
		own.Requeue = again
	}
	switch v := infrastructure.Site.Scheduled; {
	case v.Status != "" && v.Status != tko.ConditionTrue:
		v.Message = where + v.Message
		own.Site.Scheduled = v
	case infrastructureErr != nil:
		own.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonFailed, Message: where + infrastructureErr.Error()}
	}
	if v := infrastructure.Removals; v.Status == tko.ConditionFalse {
		v.Message = where + v.Message
		own.Removals = v
	}
	if v := infrastructure.Site.Healthy; v.Status != "" && v.Status != tko.ConditionTrue && (own.Site.Healthy.Status == "" || own.Site.Healthy.Status == tko.ConditionTrue) {
		v.Message = where + v.Message
		own.Site.Healthy = v
	}
	if infrastructureErr != nil && (err == nil || errors.Is(err, tko.ErrInvalid)) {
		err = fmt.Errorf("%s%w", where, infrastructureErr) // keep the kind of the error
		if !errors.Is(err, tko.ErrInvalid) {
			own.Requeue = 0 // retry with the back-off of failures
		}
	}
	return own, err
}
