package kubernetes

import (
	"context"
	"errors"
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// provide makes the management cluster hold what the site's package has for it:
// what the site's own cluster is made from, mostly. It is recorded as if the
// site were a deployment there. Removing any of it needs an approval: with it
// may go the cluster.
func (t *Target) provide(ctx context.Context, s spec, site tko.Site) (report.Report, error) {
	var pkg krm.Package
	for _, r := range site.Package.Deployable() {
		if r.Annotation(AnnotationTarget) == targetManagement && !r.IsLocal() {
			pkg = append(pkg, r)
		}
	}
	if len(pkg) == 0 && t.options.Management == "" {
		return report.Report{}, nil
	}
	conn, release, err := t.connections.get(ctx, source{Management: true})
	if err != nil {
		return report.Report{}, err
	}
	defer release()
	site.ID += " (management)"                         // no site is called so: it may be the site's own cluster, too
	id := tko.DeploymentID(inventoryName(site.ID, "")) // a label's value, as the IDs of deployments are
	l := &look{
		target: t, conn: conn, site: site, management: true,
		spec: spec{Namespace: defaultNamespace, Inventory: s.Inventory, Drift: s.Drift, Ignore: s.Ignore, Approve: s.Approve},
	}
	if len(pkg) > 0 {
		l.deployments = []tko.Deployment{{ID: id, Package: pkg}}
	} else {
		there, err := conn.get(ctx, key{Kind: "ConfigMap", Namespace: s.Inventory, Name: inventoryName(site.ID, id)}, "v1")
		if err != nil || there == nil {
			return report.Report{}, reached(err)
		}
	}
	err = l.do(ctx)
	l.log(ctx)
	if err != nil {
		return report.Report{}, reached(err)
	}
	r, err := l.report()
	if own := r.Deployments[id]; len(pkg) > 0 {
		r.Site.Healthy = own.Healthy
		if own.Scheduled.Status != tko.ConditionTrue {
			r.Site.Scheduled = own.Scheduled
		}
	}
	return r, err
}

// reached says in words that stay the same what is wrong with the way.
func reached(err error) error {
	if isAway(err) {
		return fmt.Errorf("it doesn't answer: %s", whyAway(err))
	}
	return err
}

// together is the report on a site: of what the management cluster has for it,
// and of its own cluster. What is wrong with the former is the reason for what
// is wrong with the latter, mostly.
func together(infrastructure report.Report, infrastructureErr error, own report.Report, err error) (report.Report, error) {
	const where = "in the management cluster: "
	if again := infrastructure.Requeue; again > 0 && (own.Requeue == 0 || again < own.Requeue) {
		own.Requeue = again
	}
	switch v := infrastructure.Site.Scheduled; {
	case v.Status != "" && v.Status != tko.ConditionTrue:
		v.Message = where + v.Message
		own.Site.Scheduled = v
	case infrastructureErr != nil:
		own.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonFailed, Message: where + infrastructureErr.Error()}
	}
	if v := infrastructure.Site.Healthy; v.Status != "" && v.Status != tko.ConditionTrue && (own.Site.Healthy.Status == "" || own.Site.Healthy.Status == tko.ConditionTrue) {
		v.Message = where + v.Message
		own.Site.Healthy = v
	}
	if infrastructureErr != nil && (err == nil || errors.Is(err, tko.ErrInvalid)) {
		err = fmt.Errorf("%s%w", where, infrastructureErr) // its kind stays
		if !errors.Is(err, tko.ErrInvalid) {
			own.Requeue = 0 // with the back-off of what failed
		}
	}
	return own, err
}
