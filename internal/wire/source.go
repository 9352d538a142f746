package wire

import (
	"math"

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
		Metadata: p.Metadata, PackageFormat: name, Package: data, Origin: p.Origin, Name: p.Name, DryRun: p.DryRun, FromTemplate: p.FromTemplate,
		ExpectRevision: p.Revision, RemoveMetadata: p.RemoveMetadata,
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
		Metadata: m.GetMetadata(), Package: p, Origin: m.GetOrigin(), Name: m.GetName(), DryRun: m.GetDryRun(), FromTemplate: m.GetFromTemplate(),
		Revision: m.GetExpectRevision(), RemoveMetadata: m.GetRemoveMetadata(),
	}
	if m.GetPlugin() != nil {
		put.Plugin = Plugin(m.GetPlugin())
		put.Plugin.Stamp = tko.Stamp{}
	}
	return put, nil
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

// NewSource writes a GitOps source.
func NewSource(s tko.Source) *tkopb.Source {
	m := &tkopb.Source{
		Name: s.Name, Version: s.Version, Approved: s.Approved, State: s.State, Called: s.Enqueued, Updated: NewTime(s.Updated), Due: NewTime(s.Due),
		Status: &tkopb.SourceStatus{
			Kind: s.Status.Kind, Url: s.Status.URL, Ref: s.Status.Ref, Path: s.Status.Path, AttemptedRevision: s.Status.Attempted,
			AppliedRevision: s.Status.Applied, Asks: s.Status.PendingRemoval, Holder: s.Status.Holder, Messages: s.Status.Messages,
			Conditions: NewConditions(s.Status.Conditions), Registered: s.Status.Registered,
		},
	}
	for _, i := range s.Status.Items {
		m.Status.Items = append(m.Status.Items, &tkopb.SourceItem{
			Kind: i.Kind, Name: i.Name, Id: i.ID, Digest: i.Digest, Revision: i.Revision, Pending: i.Pending, Status: i.Status, RolloutId: string(i.Rollout), Origins: int32(min(i.Origins, math.MaxInt32)), //nolint:gosec // it is bounded
		})
	}
	for _, parts := range s.Status.Origins {
		m.Status.Origins = append(m.Status.Origins, &tkopb.SourceOrigins{Parts: parts})
	}
	for _, o := range s.Status.Operations {
		m.Status.Operations = append(m.Status.Operations, &tkopb.SourceOperation{
			Time: NewTime(o.Time), Revision: o.Revision, Verb: o.Verb, Kind: o.Kind, Name: o.Name, Error: o.Error,
		})
	}
	return m
}

// Source reads a GitOps source.
func Source(m *tkopb.Source) tko.Source {
	status := m.GetStatus()
	s := tko.Source{
		Name: m.GetName(), Version: m.GetVersion(), Approved: m.GetApproved(), State: m.GetState(), Enqueued: m.GetCalled(), Due: Time(m.GetDue()), Updated: Time(m.GetUpdated()),
		Status: tko.SourceStatus{
			Kind: status.GetKind(), URL: status.GetUrl(), Ref: status.GetRef(), Path: status.GetPath(), Attempted: status.GetAttemptedRevision(),
			Applied: status.GetAppliedRevision(), PendingRemoval: status.GetAsks(), Holder: status.GetHolder(), Messages: status.GetMessages(),
			Conditions: Conditions(status.GetConditions()), Registered: status.GetRegistered(),
		},
	}
	for _, i := range status.GetItems() {
		s.Status.Items = append(s.Status.Items, tko.SourceItem{
			Kind: i.GetKind(), Name: i.GetName(), ID: i.GetId(), Digest: i.GetDigest(), Revision: i.GetRevision(), Pending: i.GetPending(), Status: i.GetStatus(), Origins: int(i.GetOrigins()), Rollout: tko.RolloutID(i.GetRolloutId()),
		})
	}
	for _, o := range status.GetOrigins() {
		s.Status.Origins = append(s.Status.Origins, o.GetParts())
	}
	for _, o := range status.GetOperations() {
		s.Status.Operations = append(s.Status.Operations, tko.SourceOperation{
			Time: Time(o.GetTime()), Revision: o.GetRevision(), Verb: o.GetVerb(), Kind: o.GetKind(), Name: o.GetName(), Error: o.GetError(),
		})
	}
	return s
}

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

// NewSourceDefinition encodes the definition of a source.
func NewSourceDefinition(d tko.SourceDefinition) *tkopb.SourceDefinition {
	m := &tkopb.SourceDefinition{Kind: d.Kind, Name: d.Name, Spec: d.Spec, TakeOver: d.TakeOver, RegisteredBy: d.By.Who, DeclaredBy: d.Parent, Undeclared: d.Undeclared}
	if !d.Created.IsZero() {
		m.Created, m.Updated = NewTime(d.Created), NewTime(d.Updated)
	}
	if e := d.Ending; e != nil {
		m.Ending = &tkopb.SourceEnding{Keep: e.Keep, Confirmed: int64(e.Confirmed)}
	}
	return m
}

// SourceDefinition decodes the definition of a source.
func SourceDefinition(m *tkopb.SourceDefinition) tko.SourceDefinition {
	d := tko.SourceDefinition{
		Kind: m.GetKind(), Name: m.GetName(), Spec: m.GetSpec(), TakeOver: m.GetTakeOver(), By: tko.Author{Who: m.GetRegisteredBy()},
		Created: Time(m.GetCreated()), Updated: Time(m.GetUpdated()), Parent: m.GetDeclaredBy(), Undeclared: m.GetUndeclared(),
	}
	if e := m.GetEnding(); e != nil {
		d.Ending = &tko.SourceEnding{Keep: e.GetKeep(), Confirmed: int(e.GetConfirmed())}
	}
	return d
}
