package wire

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// NewGetBlame writes a request for a blame.
func NewGetBlame(r tko.BlameRequest) *tkopb.GetBlame {
	return &tkopb.GetBlame{Kind: string(r.Kind), Id: r.ID, Revision: r.Revision, Field: r.Field, History: r.History}
}

// GetBlame reads a request for a blame.
func GetBlame(m *tkopb.GetBlame) tko.BlameRequest {
	return tko.BlameRequest{Kind: tko.Kind(m.GetKind()), ID: m.GetId(), Revision: m.GetRevision(), Field: m.GetField(), History: m.GetHistory()}
}

// NewBlame writes a blame.
func NewBlame(b tko.Blame) *tkopb.Blame {
	m := &tkopb.Blame{Kind: string(b.Kind), Id: b.ID, Revision: b.Revision, Origins: convert(b.Origins, newOrigin)}
	for _, f := range b.Fields {
		m.Fields = append(m.Fields, &tkopb.BlamedField{Resource: f.Resource, Path: f.Path, Value: f.Value, Hidden: f.Hidden, Origin: int32(f.Origin)}) //nolint:gosec // an index in a response
	}
	for _, c := range b.Changes {
		m.Changes = append(m.Changes, &tkopb.FieldChange{
			Resource: c.Resource, Path: c.Path, Before: c.Before, After: c.After, Hidden: c.Hidden, Origin: newOrigin(c.Origin), Upstream: convert(c.Upstream, newOrigin),
		})
	}
	return m
}

// Blame reads a blame. An origin that isn't in the message is unknown.
func Blame(m *tkopb.Blame) tko.Blame {
	b := tko.Blame{Kind: tko.Kind(m.GetKind()), ID: m.GetId(), Revision: m.GetRevision(), Origins: convert(m.GetOrigins(), origin)}
	unknown := -1
	for _, f := range m.GetFields() {
		one := tko.BlamedField{Resource: f.GetResource(), Path: f.GetPath(), Value: f.GetValue(), Hidden: f.GetHidden(), Origin: int(f.GetOrigin())}
		if one.Origin < 0 || one.Origin >= len(m.GetOrigins()) {
			if unknown < 0 {
				unknown = len(b.Origins)
				b.Origins = append(b.Origins, tko.Origin{Source: tko.SourceUnknown})
			}
			one.Origin = unknown
		}
		b.Fields = append(b.Fields, one)
	}
	for _, c := range m.GetChanges() {
		b.Changes = append(b.Changes, tko.FieldChange{
			Resource: c.GetResource(), Path: c.GetPath(), Before: c.GetBefore(), After: c.GetAfter(), Hidden: c.GetHidden(), Origin: origin(c.GetOrigin()), Upstream: convert(c.GetUpstream(), origin),
		})
	}
	return b
}

func newOrigin(o tko.Origin) *tkopb.Origin {
	return &tkopb.Origin{
		Source: o.Source, Revision: o.Revision, Time: NewTime(o.Time), Who: o.Author.Who, Why: o.Author.Why, TemplateId: string(o.Template), TemplateRevision: o.TemplateRevision,
		Resource: o.Resource, Plugin: o.Plugin, PluginRevision: o.PluginRevision, RolloutId: string(o.Rollout), RestoredBy: string(o.RestoredBy), RestoredAt: o.RestoredAt, Collected: o.Collected,
	}
}

func origin(m *tkopb.Origin) tko.Origin {
	return tko.Origin{
		Source: m.GetSource(), Revision: m.GetRevision(), Time: Time(m.GetTime()), Author: tko.Author{Who: m.GetWho(), Why: m.GetWhy()},
		Template: tko.TemplateID(m.GetTemplateId()), TemplateRevision: m.GetTemplateRevision(), Resource: m.GetResource(), Plugin: m.GetPlugin(), PluginRevision: m.GetPluginRevision(),
		Rollout: tko.RolloutID(m.GetRolloutId()), RestoredBy: tko.RolloutID(m.GetRestoredBy()), RestoredAt: m.GetRestoredAt(), Collected: m.GetCollected(),
	}
}

// NewGetSiteExplanation writes a request for an explanation of a site.
func NewGetSiteExplanation(r tko.SiteExplanationRequest) *tkopb.GetSiteExplanation {
	return &tkopb.GetSiteExplanation{SiteId: string(r.Site), DeploymentId: string(r.Deployment), TemplateId: string(r.Template)}
}

// GetSiteExplanation reads a request for an explanation of a site.
func GetSiteExplanation(m *tkopb.GetSiteExplanation) tko.SiteExplanationRequest {
	return tko.SiteExplanationRequest{Site: tko.SiteID(m.GetSiteId()), Deployment: tko.DeploymentID(m.GetDeploymentId()), Template: tko.TemplateID(m.GetTemplateId())}
}

// NewSiteExplanation writes an explanation of a site.
func NewSiteExplanation(e tko.SiteExplanation) *tkopb.SiteExplanation {
	m := &tkopb.SiteExplanation{SiteId: string(e.Site)}
	for _, p := range e.Placements {
		one := &tkopb.PlacementExplanation{Placement: p.Placement, Template: p.Template, Sites: p.Sites, Selected: p.Selected, DeploymentIds: stringsOf(p.Deployments), Note: p.Note}
		for _, c := range p.Unmet {
			one.Unmet = append(one.Unmet, &tkopb.UnmetCondition{Field: c.Field, Present: c.Present, Value: c.Value, Wanted: c.Wanted})
		}
		m.Placements = append(m.Placements, one)
	}
	return m
}

// SiteExplanation reads an explanation of a site.
func SiteExplanation(m *tkopb.SiteExplanation) tko.SiteExplanation {
	e := tko.SiteExplanation{Site: tko.SiteID(m.GetSiteId())}
	for _, p := range m.GetPlacements() {
		one := tko.PlacementExplanation{
			Placement: p.GetPlacement(), Template: p.GetTemplate(), Sites: p.GetSites(), Selected: p.GetSelected(), Deployments: idsOf[tko.DeploymentID](p.GetDeploymentIds()), Note: p.GetNote(),
		}
		for _, c := range p.GetUnmet() {
			one.Unmet = append(one.Unmet, tko.UnmetCondition{Field: c.GetField(), Present: c.GetPresent(), Value: c.GetValue(), Wanted: c.GetWanted()})
		}
		e.Placements = append(e.Placements, one)
	}
	return e
}

// NewGetTemplateImpact writes a request for the impact of a template.
func NewGetTemplateImpact(r tko.TemplateImpactRequest, format krm.Format) (*tkopb.GetTemplateImpact, error) {
	m := &tkopb.GetTemplateImpact{TemplateId: string(r.Template)}
	if r.Package == nil {
		return m, nil
	}
	var err error
	m.PackageFormat, m.Package, err = encode(format, r.Package)
	return m, err
}

// GetTemplateImpact reads a request for the impact of a template.
func GetTemplateImpact(m *tkopb.GetTemplateImpact) (tko.TemplateImpactRequest, error) {
	r := tko.TemplateImpactRequest{Template: tko.TemplateID(m.GetTemplateId())}
	if m.GetPackageFormat() == "" && len(m.GetPackage()) == 0 {
		return r, nil
	}
	pkg, err := Package(m.GetPackageFormat(), m.GetPackage())
	if pkg == nil {
		pkg = krm.Package{}
	}
	r.Package = pkg
	return r, err
}

// NewTemplateImpact writes the impact of a template.
func NewTemplateImpact(i tko.TemplateImpact) *tkopb.TemplateImpact {
	m := &tkopb.TemplateImpact{
		TemplateId: string(i.Template), Revision: i.Revision, Deployments: int64(i.Deployments), Sites: int64(i.Sites), DeploymentSites: int64(i.DeploymentSites),
		Same: int64(i.Same), Unknown: int64(i.Unknown), More: i.More,
	}
	m.Revisions = convert(i.Revisions, func(r tko.ImpactRevision) *tkopb.ImpactRevision {
		return &tkopb.ImpactRevision{Revision: r.Revision, Deployments: int64(r.Deployments)}
	})
	for _, t := range i.Topologies {
		m.Topologies = append(m.Topologies, &tkopb.ImpactTopology{Kind: string(t.Kind), Id: t.ID, Resource: t.Resource, Selects: t.Selects})
	}
	for _, r := range i.Rollouts {
		m.Rollouts = append(m.Rollouts, &tkopb.ImpactRollout{RolloutId: string(r.ID), State: r.State})
	}
	for _, g := range i.Groups {
		one := &tkopb.ImpactGroup{Deployments: int64(g.Deployments), Examples: stringsOf(g.Examples), Conflicts: g.Conflicts, Kind: g.Kind, MoreChanges: int64(g.MoreChanges)}
		for _, c := range g.Changes {
			one.Changes = append(one.Changes, &tkopb.ImpactChange{Resource: c.Resource, Path: c.Path, Before: c.Before, After: c.After})
		}
		m.Groups = append(m.Groups, one)
	}
	return m
}

// TemplateImpact reads the impact of a template.
func TemplateImpact(m *tkopb.TemplateImpact) tko.TemplateImpact {
	i := tko.TemplateImpact{
		Template: tko.TemplateID(m.GetTemplateId()), Revision: m.GetRevision(), Deployments: int(m.GetDeployments()), Sites: int(m.GetSites()), DeploymentSites: int(m.GetDeploymentSites()),
		Same: int(m.GetSame()), Unknown: int(m.GetUnknown()), More: m.GetMore(),
	}
	for _, r := range m.GetRevisions() {
		i.Revisions = append(i.Revisions, tko.ImpactRevision{Revision: r.GetRevision(), Deployments: int(r.GetDeployments())})
	}
	for _, t := range m.GetTopologies() {
		i.Topologies = append(i.Topologies, tko.ImpactTopology{Kind: tko.Kind(t.GetKind()), ID: t.GetId(), Resource: t.GetResource(), Selects: t.GetSelects()})
	}
	for _, r := range m.GetRollouts() {
		i.Rollouts = append(i.Rollouts, tko.ImpactRollout{ID: tko.RolloutID(r.GetRolloutId()), State: r.GetState()})
	}
	for _, g := range m.GetGroups() {
		one := tko.ImpactGroup{Deployments: int(g.GetDeployments()), Examples: idsOf[tko.DeploymentID](g.GetExamples()), Conflicts: g.GetConflicts(), Kind: g.GetKind(), MoreChanges: int(g.GetMoreChanges())}
		for _, c := range g.GetChanges() {
			one.Changes = append(one.Changes, tko.RolloutChange{Resource: c.GetResource(), Path: c.GetPath(), Before: c.GetBefore(), After: c.GetAfter()})
		}
		i.Groups = append(i.Groups, one)
	}
	return i
}
