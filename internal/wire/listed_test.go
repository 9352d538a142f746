package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// The rows of lists as messages: the reference for what [Message] and [DeploymentRow]
// write and read without messages in between.

// NewListedTemplate writes a row of a list of templates, with its package
// unless the format is empty.
func NewListedTemplate(t tko.Template, format krm.Format) (*tkopb.ListedTemplate, error) {
	name, data, err := encode(format, t.Package)
	if err != nil {
		return nil, err
	}
	return &tkopb.ListedTemplate{
		TemplateId:      string(t.ID),
		Metadata:        t.Metadata,
		Updated:         NewTime(t.Stamp.Updated),
		DeploymentCount: uint64(max(t.DeploymentCount, 0)),
		DeploymentIds:   Texts(t.Deployments),
		Stamp:           newStamp(t.Stamp),
		PackageFormat:   name,
		Package:         data,
	}, nil
}

// NewListedSite writes a row of a list of sites, with its package unless the
// format is empty.
func NewListedSite(s tko.Site, format krm.Format) (*tkopb.ListedSite, error) {
	name, data, err := encode(format, s.Package)
	if err != nil {
		return nil, err
	}
	return &tkopb.ListedSite{
		SiteId:          string(s.ID),
		TemplateId:      string(s.Template),
		Metadata:        s.Metadata,
		Updated:         NewTime(s.Stamp.Updated),
		DeploymentCount: uint64(max(s.DeploymentCount, 0)),
		DeploymentIds:   Texts(s.Deployments),
		Stamp:           newStamp(s.Stamp),
		PackageFormat:   name,
		Package:         data,

		AwaitedTemplateId: string(s.AwaitedTemplate),
	}, nil
}

// NewListedDeployment writes a row of a list of deployments, with its package
// unless the format is empty.
func NewListedDeployment(d tko.Deployment, format krm.Format) (*tkopb.ListedDeployment, error) {
	name, data, err := encode(format, d.Package)
	if err != nil {
		return nil, err
	}
	return &tkopb.ListedDeployment{
		DeploymentId:       string(d.ID),
		ParentDeploymentId: string(d.Parent),
		TemplateId:         string(d.Template),
		SiteId:             string(d.Site),
		Metadata:           d.Metadata,
		Created:            NewTime(d.Stamp.Created),
		Updated:            NewTime(d.Stamp.Updated),
		Prepared:           d.Prepared,
		Approved:           d.Approved,
		Origin:             d.Origin,

		ReplacesDeploymentIds: Texts(d.Replaces), TemplateRevision: d.TemplateRevision,

		Stamp:         newStamp(d.Stamp),
		PackageFormat: name,
		Package:       data,
	}, nil
}
