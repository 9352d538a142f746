package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// NewPutEntity writes the desired state of an entity.
func NewPutEntity(p tko.Put, format krm.Format) (*tkopb.PutEntity, error) {
	name, data, err := encodeSome(format, p.Package)
	if err != nil {
		return nil, err
	}
	m := &tkopb.PutEntity{
		Kind: string(p.Kind), Id: p.ID, ParentDeploymentId: string(p.Parent), TemplateId: string(p.Template), SiteId: string(p.Site),
		Details: newDetails(p.Details), Metadata: p.Metadata, PackageFormat: name, Package: data, Origin: p.Origin, Name: p.Name, DryRun: p.DryRun, FromTemplate: p.FromTemplate,
		ExpectRevision: p.Revision, RemoveMetadata: p.RemoveMetadata, Whole: p.Whole, MadeFrom: p.MadeFrom, DeferReferences: p.Defer, Manager: p.Manager,
		Marks: optionalMarks(p.Marks),
	}
	if p.Kind == tko.KindPlugin {
		m.Plugin = NewPlugin(p.Plugin)
	}
	return m, nil
}

// PutEntity reads the desired state of an entity.
func PutEntity(m *tkopb.PutEntity) (tko.Put, error) {
	p, err := Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return tko.Put{}, err
	}
	put := tko.Put{
		Kind: tko.Kind(m.GetKind()), ID: m.GetId(), Parent: tko.DeploymentID(m.GetParentDeploymentId()),
		Template: tko.TemplateID(m.GetTemplateId()), Site: tko.SiteID(m.GetSiteId()),
		Details: entityDetails.Read(m.GetDetails()), Metadata: m.GetMetadata(), Package: p, Origin: m.GetOrigin(), Name: m.GetName(), DryRun: m.GetDryRun(), FromTemplate: m.GetFromTemplate(),
		Revision: m.GetExpectRevision(), RemoveMetadata: m.GetRemoveMetadata(), Whole: m.GetWhole(), MadeFrom: m.GetMadeFrom(), Defer: m.GetDeferReferences(), Manager: m.GetManager(),
	}
	if m.GetPlugin() != nil {
		put.Plugin = Plugin(m.GetPlugin())
		put.Plugin.Stamp = tko.Stamp{}
	}
	if m.GetMarks() != nil {
		marks := entityMarks.Read(m.GetMarks())
		put.Marks = &marks
	}
	return put, nil
}

var entityMarks = NewPair[tko.Marks, tkopb.Marks](nil)

func optionalMarks(m *tko.Marks) *tkopb.Marks {
	if m == nil {
		return nil
	}
	return entityMarks.Write(*m)
}

// NewClaim writes a claim of work; nil for none.
func NewClaim(item tko.WorkItem, ok bool) *tkopb.WorkItem {
	if !ok {
		return nil
	}
	return newWorkItem(item)
}

// Claim reads a claim of work.
func Claim(m *tkopb.WorkItem) tko.WorkItem { return workItem(m) }

// Source converts GitOps sources.
var Source = NewPair[tko.Source, tkopb.Source](Names{"Called": "Enqueued"})

var _ = NewPair[tko.SourceStatus, tkopb.SourceStatus](Names{"AttemptedRevision": "Attempted", "AppliedRevision": "Applied", "Asks": "PendingRemoval"})

// NewTargetState encodes the state of a target.
func NewTargetState(s tko.TargetState) *tkopb.TargetState {
	return &tkopb.TargetState{SiteId: string(s.Site), Name: s.Name, State: s.State, Version: s.Version, Updated: NewTime(s.Updated)}
}

// TargetState decodes the state of a target.
func TargetState(m *tkopb.TargetState) tko.TargetState {
	return tko.TargetState{
		Site: tko.SiteID(m.GetSiteId()), Name: m.GetName(), State: m.GetState(), Version: m.GetVersion(), Updated: Time(m.GetUpdated()),
	}
}

// SourceDefinition converts definitions of sources.
var SourceDefinition = NewPair[tko.SourceDefinition, tkopb.SourceDefinition](Names{"RegisteredBy": "By.Who", "DeclaredBy": "Parent"})

// RegisteredSource converts results of registrations.
var RegisteredSource = NewPair[tko.RegisteredSource, tkopb.RegisteredSource](nil)

// DeclaredSources converts the result of a declaration.
var DeclaredSources = NewPair[tko.DeclaredSources, tkopb.DeclareSourcesResponse](nil)

// Subscription converts subscriptions.
var Subscription = NewPair[tko.Subscription, tkopb.Subscription](Names{"RegisteredBy": "By.Who", "DeclaredBy": "Parent", "OwnerSubject": "Owner.Subject", "OwnerGroups": "Owner.Groups"})

// RegisteredSubscription converts results of registrations.
var RegisteredSubscription = NewPair[tko.RegisteredSubscription, tkopb.RegisteredSubscription](nil)

// View converts saved views.
var View = NewPair[tko.View, tkopb.View](Names{"RegisteredBy": "By.Who", "DeclaredBy": "Parent"})

// RegisteredView converts results of saving views.
var RegisteredView = NewPair[tko.RegisteredView, tkopb.RegisteredView](nil)
