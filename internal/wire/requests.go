package wire

import (
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// About converts descriptions of a server.
var About = NewPair[tko.About, tkopb.AboutResponse](Names{"TkoVersion": "Version"})

// Caller converts identities of callers.
var Caller = NewPair[tko.Caller, tkopb.WhoAmIResponse](Names{"DisplayName": "Display", "Address": "From"})

// LogLevel converts levels of the log.
var LogLevel = NewPair[tko.LogLevel, tkopb.LogLevel](nil)

// Freeze converts freezes of sites.
var Freeze = NewPair[tko.Freeze, tkopb.Freeze](Names{"FrozenBy": "By.Who", "Confirm": ""})

// Stop, InFlight, StopStatus, SiteStop and Resume convert stops.
var (
	Stop       = NewPair[tko.Stop, tkopb.Stop](Names{"TopologyDeploymentId": "Topology", "StoppedBy": "By.Who"})
	InFlight   = NewPair[tko.InFlight, tkopb.InFlight](nil)
	StopStatus = NewPair[tko.StopStatus, tkopb.StopStatus](nil)
	SiteStop   = NewPair[tko.SiteStop, tkopb.SiteStop](Names{"HeldDeploymentIds": "Held"})
	Resume     = NewPair[tko.Release, tkopb.Resume](nil)
)

// Hold converts work that is held.
var Hold = NewPair[tko.Hold, tkopb.Hold](nil)

// OpenModification converts tokens as clients other than their holders
// may see them.
var OpenModification = NewPair[tko.OpenModification, tkopb.Modification](Names{"Who": "Author.Who", "Why": "Author.Why"})

// NewCreateDeployment writes a deployment to be created. It has a format even if there is
// nothing to merge: servers of the original TKO need one.
func NewCreateDeployment(d tko.NewDeployment, format krm.Format) (*tkopb.CreateDeployment, error) {
	name, data, err := encode(format, d.Merge)
	if err != nil {
		return nil, err
	}
	return &tkopb.CreateDeployment{
		ParentDeploymentId: string(d.Parent),
		TemplateId:         string(d.Template),
		SiteId:             string(d.Site),
		MergeMetadata:      d.Metadata,
		Prepared:           d.Prepared,
		Approved:           d.Approved,
		MergePackageFormat: name,
		MergePackage:       data,
	}, nil
}

// CreateDeployment reads a deployment to be created.
func CreateDeployment(m *tkopb.CreateDeployment) (tko.NewDeployment, error) {
	p, err := Package(m.GetMergePackageFormat(), m.GetMergePackage())
	if err != nil {
		return tko.NewDeployment{}, err
	}
	return tko.NewDeployment{
		Parent:   tko.DeploymentID(m.GetParentDeploymentId()),
		Template: tko.TemplateID(m.GetTemplateId()),
		Site:     tko.SiteID(m.GetSiteId()),
		Metadata: m.GetMergeMetadata(),
		Prepared: m.GetPrepared(),
		Approved: m.GetApproved(),
		Merge:    p,
	}, nil
}

// NewCreateChildren writes children to be created.
func NewCreateChildren(c tko.NewChildren, format krm.Format) (*tkopb.CreateChildren, error) {
	name, data, err := encodeSome(format, c.Merge)
	if err != nil {
		return nil, err
	}
	m := &tkopb.CreateChildren{
		ParentDeploymentId: string(c.Parent),
		ParentRevision:     c.Revision,
		MergePackageFormat: name,
		MergePackage:       data,
		Children:           make([]*tkopb.Child, len(c.Children)),
		Create:             uint64(max(c.Create, 0)),
		Remove:             uint64(max(c.Remove, 0)),
		Sites:              uint64(max(c.Sites, 0)),
	}
	for i, child := range c.Children {
		m.Children[i] = &tkopb.Child{Origin: child.Origin, TemplateId: string(child.Template), SiteId: string(child.Site), ReplacesDeploymentIds: Texts(child.Replaces)}
	}
	return m, nil
}

// CreateChildren reads children to be created.
func CreateChildren(m *tkopb.CreateChildren) (tko.NewChildren, error) {
	p, err := Package(m.GetMergePackageFormat(), m.GetMergePackage())
	if err != nil {
		return tko.NewChildren{}, err
	}
	c := tko.NewChildren{
		Parent:   tko.DeploymentID(m.GetParentDeploymentId()),
		Revision: m.GetParentRevision(),
		Merge:    p,
		Children: make([]tko.NewChild, len(m.GetChildren())),
		Create:   Count(m.GetCreate()),
		Remove:   Count(m.GetRemove()),
		Sites:    Count(m.GetSites()),
	}
	for i, child := range m.GetChildren() {
		c.Children[i] = tko.NewChild{
			Origin:   child.GetOrigin(),
			Template: tko.TemplateID(child.GetTemplateId()),
			Site:     tko.SiteID(child.GetSiteId()),
			Replaces: IDs[tko.DeploymentID](child.GetReplacesDeploymentIds()),
		}
	}
	return c, nil
}

// NewCreateChildrenResponse writes the IDs of children, and the number of new
// ones.
func NewCreateChildrenResponse(ids []tko.DeploymentID, created int) *tkopb.CreateChildrenResponse {
	return &tkopb.CreateChildrenResponse{DeploymentIds: Texts(ids), Created: uint64(max(created, 0))}
}

// CreateChildrenResponse reads the IDs of children, and the number of new ones.
func CreateChildrenResponse(m *tkopb.CreateChildrenResponse) (ids []tko.DeploymentID, created int) {
	return IDs[tko.DeploymentID](m.GetDeploymentIds()), Count(m.GetCreated())
}

// NewProvisionSite writes a site to be provisioned.
func NewProvisionSite(s tko.NewSite, format krm.Format) (*tkopb.ProvisionSite, error) {
	name, data, err := encodeSome(format, s.Package)
	if err != nil {
		return nil, err
	}
	return &tkopb.ProvisionSite{
		Origin:        s.Origin,
		TemplateId:    string(s.Template),
		Metadata:      s.Metadata,
		PackageFormat: name,
		Package:       data,
	}, nil
}

// ProvisionSite reads a site to be provisioned.
func ProvisionSite(m *tkopb.ProvisionSite) (tko.NewSite, error) {
	p, err := Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return tko.NewSite{}, err
	}
	return tko.NewSite{
		Origin:   m.GetOrigin(),
		Template: tko.TemplateID(m.GetTemplateId()),
		Metadata: m.GetMetadata(),
		Package:  p,
	}, nil
}

// NewModification writes a modification that has started.
// Its package has a format.
func NewModification(mod tko.Encoded[tko.Modification], format krm.Format) *tkopb.StartDeploymentModificationResponse {
	return &tkopb.StartDeploymentModificationResponse{
		Started:           true,
		ModificationToken: mod.Entity.Token,
		PackageFormat:     string(format),
		Package:           mod.Package,
		Expires:           NewTime(mod.Entity.Expires),
	}
}

// Modification reads a modification of a deployment that has started.
func Modification(id tko.DeploymentID, m *tkopb.StartDeploymentModificationResponse) (tko.Modification, error) {
	p, err := Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return tko.Modification{}, err
	}
	return tko.Modification{Token: m.GetModificationToken(), Deployment: id, Package: p, Expires: Time(m.GetExpires())}, nil
}

// NewEndModification writes the end of a modification.
func NewEndModification(token string, p krm.Package, format krm.Format) (*tkopb.EndDeploymentModification, error) {
	name, data, err := encode(format, p)
	if err != nil {
		return nil, err
	}
	return &tkopb.EndDeploymentModification{ModificationToken: token, PackageFormat: name, Package: data}, nil
}

// NewCommitDeployment writes a commit.
func NewCommitDeployment(c tko.DeploymentCommit, format krm.Format) (*tkopb.CommitDeployment, error) {
	name, data, err := encode(format, c.Package)
	if err != nil {
		return nil, err
	}
	return &tkopb.CommitDeployment{
		DeploymentId:  string(c.ID),
		Revision:      c.Revision,
		PackageFormat: name,
		Package:       data,
		Conditions:    NewConditions(c.Conditions),
		Steps:         newSteps(c.Steps),
		Why:           strings.ToValidUTF8(c.Why, "\uFFFD"),
		Cause:         c.Cause,
	}, nil
}

// CommitDeployments reads commits.
func CommitDeployments(m *tkopb.CommitDeployments) ([]tko.DeploymentCommit, error) {
	commits := make([]tko.DeploymentCommit, len(m.GetCommits()))
	for i, c := range m.GetCommits() {
		var err error
		if commits[i], err = CommitDeployment(c); err != nil {
			return nil, fmt.Errorf("deployment %q: %w", c.GetDeploymentId(), err)
		}
	}
	return commits, nil
}

// Deployments reads deployments.
func Deployments(m []*tkopb.Deployment) ([]tko.Deployment, error) {
	all := make([]tko.Deployment, len(m))
	for i, d := range m {
		var err error
		if all[i], err = Deployment(d); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// CommitDeployment reads a commit.
func CommitDeployment(m *tkopb.CommitDeployment) (tko.DeploymentCommit, error) {
	p, err := Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return tko.DeploymentCommit{}, err
	}
	return tko.DeploymentCommit{
		ID:         tko.DeploymentID(m.GetDeploymentId()),
		Revision:   m.GetRevision(),
		Package:    p,
		Conditions: Conditions(m.GetConditions()),
		Steps:      steps(m.GetSteps()),
		Why:        m.GetWhy(),
		Cause:      m.GetCause(),
	}, nil
}

// encodeSome writes a package; nothing for one without resources.
func encodeSome(format krm.Format, p krm.Package) (string, []byte, error) {
	if len(p) == 0 {
		return "", nil, nil
	}
	return encode(format, p)
}

// Count reads a count.
func Count(n uint64) int { return int(min(n, 1<<31-1)) }
