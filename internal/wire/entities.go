package wire

import (
	"context"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// NewTemplate writes a template with its package in a format.
func NewTemplate(t tko.Template, format krm.Format) (*tkopb.Template, error) {
	name, data, err := encode(format, t.Package)
	if err != nil {
		return nil, err
	}
	return &tkopb.Template{
		TemplateId:    string(t.ID),
		Details:       newDetails(t.Details),
		Metadata:      t.Metadata,
		Updated:       NewTime(t.Stamp.Updated),
		PackageFormat: name,
		Package:       data,
		DeploymentIds: Texts(t.Deployments),
		Stamp:         newStamp(t.Stamp),
	}, nil
}

// entityDetails converts details of templates and sites.
var entityDetails = NewPair[tko.Details, tkopb.Details](nil)

// NewDetails writes the details of a request, even if they are empty: requests of clients that
// don't know details lack them. It returns nil if the context keeps those that there are.
func NewDetails(ctx context.Context, d tko.Details) *tkopb.Details {
	if tko.DetailsKept(ctx) {
		return nil
	}
	return entityDetails.Write(d)
}

func newDetails(d tko.Details) *tkopb.Details {
	if d == (tko.Details{}) {
		return nil
	}
	return entityDetails.Write(d)
}

// A packed message is an entity with a package: by itself, or as a row of a
// list.
type packed interface {
	GetMetadata() map[string]string
	GetUpdated() *timestamppb.Timestamp
	GetStamp() *tkopb.Stamp
	GetPackageFormat() string
	GetPackage() []byte
}

// A counted message is a row with the number of its entity's deployments.
type counted interface{ GetDeploymentCount() uint64 }

func deploymentCount(m any) int {
	if row, ok := m.(counted); ok {
		return int(min(row.GetDeploymentCount(), math.MaxInt))
	}
	return 0
}

// A TemplateMessage is a template, or a row of a list of templates.
type TemplateMessage interface {
	packed
	GetTemplateId() string
	GetDetails() *tkopb.Details
	GetDeploymentIds() []string
}

// Template reads a template.
func Template[M TemplateMessage](m M) (tko.Template, error) {
	p, err := Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return tko.Template{}, err
	}
	return tko.Template{
		ID:              tko.TemplateID(m.GetTemplateId()),
		Details:         entityDetails.Read(m.GetDetails()),
		Metadata:        m.GetMetadata(),
		Package:         p,
		DeploymentCount: deploymentCount(m),
		Deployments:     IDs[tko.DeploymentID](m.GetDeploymentIds()),
		Stamp:           stamp(m.GetStamp(), nil, m.GetUpdated()),
	}, nil
}

// NewSite writes a site with its package in a format.
func NewSite(s tko.Site, format krm.Format) (*tkopb.Site, error) {
	name, data, err := encode(format, s.Package)
	if err != nil {
		return nil, err
	}
	return &tkopb.Site{
		SiteId:        string(s.ID),
		TemplateId:    string(s.Template),
		Details:       newDetails(s.Details),
		Metadata:      s.Metadata,
		Updated:       NewTime(s.Stamp.Updated),
		PackageFormat: name,
		Package:       data,
		DeploymentIds: Texts(s.Deployments),
		Stamp:         newStamp(s.Stamp),

		AwaitedTemplateId: string(s.AwaitedTemplate),
	}, nil
}

// A SiteMessage is a site, or a row of a list of sites.
type SiteMessage interface {
	TemplateMessage
	GetSiteId() string
	GetAwaitedTemplateId() string
}

// Site reads a site.
func Site[M SiteMessage](m M) (tko.Site, error) {
	p, err := Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return tko.Site{}, err
	}
	return tko.Site{
		ID:              tko.SiteID(m.GetSiteId()),
		Template:        tko.TemplateID(m.GetTemplateId()),
		AwaitedTemplate: tko.TemplateID(m.GetAwaitedTemplateId()),
		Details:         entityDetails.Read(m.GetDetails()),
		Metadata:        m.GetMetadata(),
		Package:         p,
		DeploymentCount: deploymentCount(m),
		Deployments:     IDs[tko.DeploymentID](m.GetDeploymentIds()),
		Stamp:           stamp(m.GetStamp(), nil, m.GetUpdated()),
	}, nil
}

// NewDeployment writes a deployment with its package in a format.
func NewDeployment(d tko.Deployment, format krm.Format) (*tkopb.Deployment, error) {
	name, data, err := encode(format, d.Package)
	if err != nil {
		return nil, err
	}
	return &tkopb.Deployment{
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

		ReplacesDeploymentIds: Texts(d.Replaces), ReplacedDeploymentIds: Texts(d.Replaced), TemplateRevision: d.TemplateRevision,
		AwaitedTemplateId: string(d.AwaitedTemplate), AwaitedSiteId: string(d.AwaitedSite),

		PackageFormat: name,
		Package:       data,
		Stamp:         newStamp(d.Stamp),
	}, nil
}

// A DeploymentMessage is a deployment, or a row of a list of deployments.
type DeploymentMessage interface {
	packed
	placed
	GetDeploymentId() string
	GetCreated() *timestamppb.Timestamp
	GetPrepared() bool
	GetApproved() bool
}

// A placed message has the references of a deployment.
type placed interface { //nolint:interfacebloat // a getter for each field
	GetParentDeploymentId() string
	GetTemplateId() string
	GetSiteId() string
	GetOrigin() string
	GetReplacesDeploymentIds() []string
	GetReplacedDeploymentIds() []string
	GetTemplateRevision() int64
	GetAwaitedTemplateId() string
	GetAwaitedSiteId() string
}

// Deployment reads a deployment.
func Deployment[M DeploymentMessage](m M) (tko.Deployment, error) {
	p, err := Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return tko.Deployment{}, err
	}
	return tko.Deployment{
		ID:       tko.DeploymentID(m.GetDeploymentId()),
		Parent:   tko.DeploymentID(m.GetParentDeploymentId()),
		Template: tko.TemplateID(m.GetTemplateId()),
		Site:     tko.SiteID(m.GetSiteId()),
		Metadata: m.GetMetadata(),
		Prepared: m.GetPrepared(),
		Approved: m.GetApproved(),
		Origin:   m.GetOrigin(),
		Replaces: IDs[tko.DeploymentID](m.GetReplacesDeploymentIds()),
		Replaced: IDs[tko.DeploymentID](m.GetReplacedDeploymentIds()),
		Package:  p,

		TemplateRevision: m.GetTemplateRevision(),
		AwaitedTemplate:  tko.TemplateID(m.GetAwaitedTemplateId()),
		AwaitedSite:      tko.SiteID(m.GetAwaitedSiteId()),

		Stamp: stamp(m.GetStamp(), m.GetCreated(), m.GetUpdated()),
	}, nil
}

// NewPlugin writes a plugin.
func NewPlugin(p tko.Plugin) *tkopb.Plugin {
	return &tkopb.Plugin{
		Type:       p.Type,
		Name:       p.Name,
		Executor:   p.Executor,
		Arguments:  p.Arguments,
		Properties: p.Properties,
		Triggers:   Each(p.Triggers, newGVK),
		Stamp:      newStamp(p.Stamp),
	}
}

// Plugin reads a plugin.
func Plugin(m *tkopb.Plugin) tko.Plugin {
	return tko.Plugin{
		Type:       m.GetType(),
		Name:       m.GetName(),
		Executor:   m.GetExecutor(),
		Arguments:  m.GetArguments(),
		Properties: m.GetProperties(),
		Triggers:   Each(m.GetTriggers(), gvk),
		Stamp:      stamp(m.GetStamp(), nil, nil),
	}
}

func newGVK(g krm.GVK) *tkopb.GVK {
	return &tkopb.GVK{Group: g.Group, Version: g.Version, Kind: g.Kind}
}

func gvk(m *tkopb.GVK) krm.GVK {
	return krm.GVK{Group: m.GetGroup(), Version: m.GetVersion(), Kind: m.GetKind()}
}

// newStamp writes a stamp; nil for none, in requests.
func newStamp(s tko.Stamp) *tkopb.Stamp {
	if s.UID == "" && s.Revision == 0 {
		return nil
	}
	return &tkopb.Stamp{
		Uid:        s.UID,
		Revision:   s.Revision,
		Position:   s.Position,
		Created:    NewTime(s.Created),
		Updated:    NewTime(s.Updated),
		Who:        s.Who,
		Why:        s.Why,
		Conditions: NewConditions(s.Conditions),
		LeftOut:    s.LeftOut,
		Steps:      newSteps(s.Steps),
	}
}

// stamp reads a stamp. A server without stamps sends only the times.
func stamp(m *tkopb.Stamp, created, updated *timestamppb.Timestamp) tko.Stamp {
	if m == nil {
		return tko.Stamp{Created: Time(created), Updated: Time(updated)}
	}
	return tko.Stamp{
		UID:        m.GetUid(),
		Revision:   m.GetRevision(),
		Position:   m.GetPosition(),
		Created:    Time(m.GetCreated()),
		Updated:    Time(m.GetUpdated()),
		Author:     tko.Author{Who: m.GetWho(), Why: m.GetWhy()},
		Conditions: Conditions(m.GetConditions()),
		LeftOut:    m.GetLeftOut(),
		Steps:      steps(m.GetSteps()),
	}
}

func newSteps(steps []tko.PreparationStep) []*tkopb.PreparationStep {
	return Each(steps, func(s tko.PreparationStep) *tkopb.PreparationStep {
		return &tkopb.PreparationStep{
			Resource:     s.Resource,
			Plugin:       s.Plugin,
			Iteration:    newCount(s.Iteration),
			Took:         newDuration(s.Took),
			Notes:        s.Notes,
			NotesLeftOut: newCount(s.NotesLeftOut),
		}
	})
}

func steps(ms []*tkopb.PreparationStep) []tko.PreparationStep {
	return Each(ms, func(m *tkopb.PreparationStep) tko.PreparationStep {
		return tko.PreparationStep{
			Resource:     m.GetResource(),
			Plugin:       m.GetPlugin(),
			Iteration:    count(m.GetIteration()),
			Took:         m.GetTook().AsDuration(),
			Notes:        m.GetNotes(),
			NotesLeftOut: count(m.GetNotesLeftOut()),
		}
	})
}

func newCount(n int) uint32 { return uint32(min(max(n, 0), math.MaxInt32)) }
func count(n uint32) int    { return int(min(n, math.MaxInt32)) }

// NewConditions writes conditions.
func NewConditions(conditions []tko.Condition) []*tkopb.Condition {
	return Each(conditions, func(c tko.Condition) *tkopb.Condition {
		return &tkopb.Condition{
			Type:               c.Type,
			Status:             c.Status,
			Reason:             c.Reason,
			Message:            c.Message,
			LastTransitionTime: NewTime(c.LastTransition),
			ObservedRevision:   c.ObservedRevision,
			Attempt:            newCount(c.Attempt),
			NextTry:            NewTime(c.NextTry),
		}
	})
}

// Conditions reads conditions.
func Conditions(ms []*tkopb.Condition) []tko.Condition {
	return Each(ms, func(m *tkopb.Condition) tko.Condition {
		return tko.Condition{
			Type:             m.GetType(),
			Status:           m.GetStatus(),
			Reason:           m.GetReason(),
			Message:          m.GetMessage(),
			LastTransition:   Time(m.GetLastTransitionTime()),
			ObservedRevision: m.GetObservedRevision(),
			Attempt:          count(m.GetAttempt()),
			NextTry:          Time(m.GetNextTry()),
		}
	})
}

// NewTime writes a time; nil if it is zero.
func NewTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// Time reads a time; zero if there is none.
func Time(m *timestamppb.Timestamp) time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.AsTime()
}

// Texts writes IDs, or other texts that have a type.
func Texts[ID ~string](ids []ID) []string {
	return Each(ids, func(id ID) string { return string(id) })
}

// IDs is the inverse of Texts.
func IDs[ID ~string](texts []string) []ID {
	return Each(texts, func(text string) ID { return ID(text) })
}
