package record

import (
	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// TemplateOf returns the template of a record, without its package. Its
// metadata and conditions are those of the record.
func TemplateOf(r Record) tko.Template {
	return tko.Template{
		ID:          tko.TemplateID(r.ID),
		Details:     r.Details,
		Metadata:    r.Effective(),
		Deployments: deploymentIDs(r.Deployments), DeploymentCount: r.Count,
		Stamp: r.Stamp(),
	}
}

func deploymentIDs(ids []string) []tko.DeploymentID {
	if ids == nil {
		return nil
	}
	typed := make([]tko.DeploymentID, len(ids))
	for i, id := range ids {
		typed[i] = tko.DeploymentID(id)
	}
	return typed
}

// SiteOf returns the site of a record, without its package. Its metadata and
// conditions are those of the record.
func SiteOf(r Record) tko.Site {
	return tko.Site{
		ID:          tko.SiteID(r.ID),
		Details:     r.Details,
		Template:    tko.TemplateID(r.Template),
		Metadata:    r.Effective(),
		Deployments: deploymentIDs(r.Deployments), DeploymentCount: r.Count,
		AwaitedTemplate: tko.TemplateID(r.Awaited().Template),
		Stamp:           r.Stamp(),
	}
}

// DeploymentOf returns the deployment of a record, without its package. Its
// metadata and conditions are those of the record.
func DeploymentOf(r Record) tko.Deployment {
	d := tko.Deployment{
		ID:       tko.DeploymentID(r.ID),
		Parent:   tko.DeploymentID(r.Parent),
		Template: tko.TemplateID(r.Template),
		Site:     tko.SiteID(r.Site),
		Metadata: r.Effective(),
		Prepared: r.Prepared,
		Approved: r.Approved,
		Origin:   r.ChildOrigin(),
		Stamp:    r.Stamp(),

		TemplateRevision: r.Base,
	}
	if a := r.Awaited(); !a.IsZero() {
		d.AwaitedTemplate, d.AwaitedSite = tko.TemplateID(a.Template), tko.SiteID(a.Site)
	}
	for _, id := range r.Replaces {
		d.Replaces = append(d.Replaces, tko.DeploymentID(id))
	}
	for _, id := range r.Replaced {
		d.Replaced = append(d.Replaced, tko.DeploymentID(id))
	}
	return d
}

// RolloutOf returns the rollout of a record, without its package. Its metadata and
// conditions are those of the record.
func RolloutOf(r Record) tko.Rollout {
	e := tko.Rollout{ID: tko.RolloutID(r.ID), Metadata: r.Effective(), State: string(execute.Draft), Stamp: r.Stamp()}
	if state := tko.FindCondition(r.Conditions, tko.ConditionState); state != nil {
		e.State, e.Reason = state.Reason, state.Message
	}
	return e
}

// DeclaredOrigin returns the origin of the deployment that a manifest declares, as
// PutEntity stores it.
func DeclaredOrigin(origin string) string { return OriginOf("named", origin) }

// NewUID returns a new UID for an entity.
func NewUID() string { return uuid.NewString() }
