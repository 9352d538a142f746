package grpcapi

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// A RightsBackend implements tko.Access.
type RightsBackend interface { //nolint:interfacebloat // a method for each of the service
	Bindings(ctx context.Context) (access.Rules, error)
	Bind(ctx context.Context, b access.Binding) (access.Binding, error)
	Unbind(ctx context.Context, id string) error
	AddPolicy(ctx context.Context, p access.Policy) (access.Policy, error)
	BreakGlass(ctx context.Context, why string) (access.Binding, error)

	Owner(ctx context.Context, kind tko.Kind, id string) (tko.Owner, error)
	SetOwner(ctx context.Context, kind tko.Kind, id string, to tko.Owner) error
	CountOwned(ctx context.Context, binding string) (tko.Owned, error)

	Freeze(ctx context.Context, f tko.Freeze) (tko.Freeze, error)
	Unfreeze(ctx context.Context, ids ...string) error
	Freezes(ctx context.Context) ([]tko.Freeze, error)

	Stops(ctx context.Context) ([]tko.StopStatus, error)
	SiteStop(ctx context.Context, id tko.SiteID) (tko.SiteStop, error)

	EnrollSite(ctx context.Context, id tko.SiteID, valid time.Duration) (tko.EnrollmentToken, error)
	RevokeSite(ctx context.Context, id tko.SiteID) error
	EnrollSites(ctx context.Context, pattern string, valid time.Duration) (tko.EnrollmentToken, error)
	EndEnrollSites(ctx context.Context, pattern string) error
	WaitingAgents(ctx context.Context) ([]tko.WaitingAgent, error)
	ApproveAgent(ctx context.Context, a tko.AgentApproval) error

	RegisterSources(ctx context.Context, definitions []tko.SourceDefinition, dryRun bool) ([]tko.RegisteredSource, error)
	SourceDefinitions(ctx context.Context, known int64) (tko.SourceDefinitions, error)
	DeleteSource(ctx context.Context, name string, keep bool) error
	DeclareSources(ctx context.Context, d tko.DeclareSources, claim tko.WorkItem) (tko.DeclaredSources, error)

	RegisterSubscriptions(ctx context.Context, all []tko.Subscription, dryRun bool) ([]tko.RegisteredSubscription, error)
	Subscriptions(ctx context.Context) ([]tko.Subscription, error)
	DeleteSubscription(ctx context.Context, name string) error
	RegisterViews(ctx context.Context, all []tko.View, dryRun bool) ([]tko.RegisteredView, error)
	Views(ctx context.Context) ([]tko.View, error)
	DeleteView(ctx context.Context, name string) error
	TestSubscription(ctx context.Context, name string) (id string, err error)

	AuditRecords(ctx context.Context, sel audit.Select) iter.Seq2[audit.Stored, error]
	VerifyAudit(ctx context.Context, checkpoints ...audit.Head) (base, head audit.Head, err error)

	CredentialUses(ctx context.Context, undeclared bool) (all []tko.CredentialUse, more bool, err error)
	AccessMode() string // off, report or enforce
	CanI(ctx context.Context, verb access.Verb, kind tko.Kind, id string) (bool, error)
}

// rights implements tko.Access on a backend.
type rights struct {
	tkopb.UnimplementedAccessServer

	backend Backend
}

func (r *rights) CanI(ctx context.Context, m *tkopb.CanI) (*tkopb.CanIResponse, error) {
	allowed, err := r.backend.CanI(ctx, access.Verb(m.GetVerb()), tko.Kind(m.GetKind()), m.GetId())
	if err != nil {
		return nil, err
	}
	return &tkopb.CanIResponse{Allowed: allowed, Access: r.backend.AccessMode()}, nil
}

func (r *rights) ListBindings(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.Binding]) error {
	rules, err := r.backend.Bindings(s.Context())
	return sendAll(s, bindings.Write)(rules.Bindings, err)
}

func (r *rights) ListPolicies(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.Policy]) error {
	rules, err := r.backend.Bindings(s.Context())
	return sendAll(s, policies.Write)(rules.Policies, err)
}

func (r *rights) Bind(ctx context.Context, m *tkopb.Binding) (*tkopb.Binding, error) {
	return wire.Then(bindings.Write)(r.backend.Bind(ctx, access.Binding{
		Subject: m.GetSubject(), Group: m.GetGroup(), Role: access.Role(m.GetRole()), Scope: scopes.Read(m.GetScope()), Expires: wire.Time(m.GetExpires()), Reason: m.GetReason(),
	}))
}

func (r *rights) Unbind(ctx context.Context, m *tkopb.Unbind) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.Unbind(ctx, m.GetId())
}

func (r *rights) AddPolicy(ctx context.Context, m *tkopb.Policy) (*tkopb.Policy, error) {
	return wire.Then(policies.Write)(r.backend.AddPolicy(ctx, access.Policy{
		Scope: scopes.Read(m.GetScope()), Approvers: int(m.GetApprovers()), Groups: m.GetGroups(), Reason: m.GetReason(),
	}))
}

func (r *rights) BreakGlass(ctx context.Context, m *tkopb.BreakGlass) (*tkopb.Binding, error) {
	return wire.Then(bindings.Write)(r.backend.BreakGlass(ctx, m.GetWhy()))
}

func (r *rights) GetOwner(ctx context.Context, m *tkopb.GetOwner) (*tkopb.Owner, error) {
	o, err := r.backend.Owner(ctx, tko.Kind(m.GetKind()), m.GetId())
	if err != nil {
		return nil, err
	}
	if o.Subject == "" && len(o.Groups) == 0 {
		o.Subject = tko.OwnerUnowned
	}
	return &tkopb.Owner{Subject: o.Subject, Groups: o.Groups}, nil
}

func (r *rights) CountOwned(ctx context.Context, m *tkopb.Unbind) (*tkopb.Owned, error) {
	n, err := r.backend.CountOwned(ctx, m.GetId())
	return &tkopb.Owned{Deployments: uint64(n.Deployments), Rollouts: uint64(n.Rollouts), Sources: uint64(n.Sources), Sites: uint64(n.Sites)}, err //nolint:gosec // counts
}

func (r *rights) ListCredentials(ctx context.Context, m *tkopb.ListCredentials) (*tkopb.ListCredentialsResponse, error) {
	all, more, err := r.backend.CredentialUses(ctx, m.GetUndeclared())
	out := &tkopb.ListCredentialsResponse{More: more}
	for _, u := range all {
		out.Uses = append(out.Uses, &tkopb.CredentialUse{
			Credential: u.Credential, Host: u.Host, Kind: string(u.Kind), Example: u.Example, Count: uint64(u.Count), Declared: u.Declared, //nolint:gosec // a count
		})
	}
	return out, err
}

func (r *rights) SetOwner(ctx context.Context, m *tkopb.SetOwner) (*emptypb.Empty, error) {
	to := tko.Owner{Subject: m.GetSubject()}
	if m.GetGroup() != "" {
		to.Groups = []string{m.GetGroup()}
	}
	return &emptypb.Empty{}, r.backend.SetOwner(ctx, tko.Kind(m.GetKind()), m.GetId(), to)
}

func (r *rights) Freeze(ctx context.Context, m *tkopb.Freeze) (*tkopb.Freeze, error) {
	return wire.Then(wire.Freeze.Write)(r.backend.Freeze(ctx, tko.Freeze{SiteMetadata: m.GetSiteMetadata(), Until: wire.Time(m.GetUntil()), Reason: m.GetReason()}))
}

func (r *rights) Unfreeze(ctx context.Context, m *tkopb.Unfreeze) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.Unfreeze(ctx, m.GetIds()...)
}

func (r *rights) ListFreezes(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.Freeze]) error {
	return sendAll(s, wire.Freeze.Write)(r.backend.Freezes(s.Context()))
}

func (r *rights) ListStops(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.StopStatus]) error {
	return sendAll(s, wire.StopStatus.Write)(r.backend.Stops(s.Context()))
}

func (r *rights) GetSiteStop(ctx context.Context, m *tkopb.GetSiteStop) (*tkopb.SiteStop, error) {
	return wire.Then(wire.SiteStop.Write)(r.backend.SiteStop(ctx, tko.SiteID(m.GetSiteId())))
}

func (r *rights) EnrollSite(ctx context.Context, m *tkopb.EnrollSite) (*tkopb.EnrollmentToken, error) {
	return enrollmentToken(r.backend.EnrollSite(ctx, tko.SiteID(m.GetSiteId()), time.Duration(m.GetValidSeconds())*time.Second))
}

func enrollmentToken(made tko.EnrollmentToken, err error) (*tkopb.EnrollmentToken, error) {
	if err != nil {
		return nil, err
	}
	return &tkopb.EnrollmentToken{SiteId: string(made.Site), Token: made.Token, Expires: timestamppb.New(made.Expires), Replaces: made.Replaces}, nil
}

func (r *rights) EnrollSites(ctx context.Context, m *tkopb.EnrollSites) (*tkopb.EnrollmentToken, error) {
	if m.GetEnd() {
		return &tkopb.EnrollmentToken{SiteId: m.GetPattern()}, r.backend.EndEnrollSites(ctx, m.GetPattern())
	}
	return enrollmentToken(r.backend.EnrollSites(ctx, m.GetPattern(), time.Duration(m.GetValidSeconds())*time.Second))
}

func (r *rights) ListWaitingAgents(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.WaitingAgent]) error {
	return sendAll(s, func(a tko.WaitingAgent) *tkopb.WaitingAgent {
		return &tkopb.WaitingAgent{
			SiteId: string(a.Site), Key: a.Key, From: a.From, Pattern: a.Pattern, Since: timestamppb.New(a.Since), Expires: timestamppb.New(a.Expires), Replaces: a.Replaces,
		}
	})(r.backend.WaitingAgents(s.Context()))
}

func (r *rights) ApproveAgent(ctx context.Context, m *tkopb.ApproveAgent) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.ApproveAgent(ctx, tko.AgentApproval{Site: tko.SiteID(m.GetSiteId()), Key: m.GetKey(), Refuse: m.GetRefuse(), Replace: m.GetReplace()})
}

func (r *rights) RevokeSite(ctx context.Context, m *tkopb.RevokeSite) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.RevokeSite(ctx, tko.SiteID(m.GetSiteId()))
}

func (r *rights) RegisterSources(ctx context.Context, m *tkopb.RegisterSources) (*tkopb.RegisterSourcesResponse, error) {
	results, err := r.backend.RegisterSources(ctx, wire.Each(m.GetSources(), wire.SourceDefinition.Read), m.GetDryRun())
	return &tkopb.RegisterSourcesResponse{Sources: wire.Each(results, wire.RegisteredSource.Write)}, err
}

func (r *rights) DeclareSources(ctx context.Context, m *tkopb.DeclareSources) (*tkopb.DeclareSourcesResponse, error) {
	d := tko.DeclareSources{Parent: m.GetParent(), Prune: m.GetPrune(), DryRun: m.GetDryRun(), Definitions: wire.Each(m.GetSources(), wire.SourceDefinition.Read)}
	return wire.Then(wire.DeclaredSources.Write)(r.backend.DeclareSources(ctx, d, tko.WorkItem{Queue: tko.QueueGitOps, Key: d.Parent, Claim: m.GetClaim()}))
}

func (r *rights) GetSourceDefinitions(ctx context.Context, m *tkopb.GetSourceDefinitions) (*tkopb.SourceDefinitions, error) {
	found, err := r.backend.SourceDefinitions(ctx, m.GetKnownVersion())
	return &tkopb.SourceDefinitions{Version: found.Version, Sources: wire.Each(found.All, wire.SourceDefinition.Write)}, err
}

func (r *rights) DeleteSource(ctx context.Context, m *tkopb.DeleteSource) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.DeleteSource(ctx, m.GetName(), m.GetKeep())
}

func (r *rights) RegisterSubscriptions(ctx context.Context, m *tkopb.RegisterSubscriptions) (*tkopb.RegisterSubscriptionsResponse, error) {
	results, err := r.backend.RegisterSubscriptions(ctx, wire.Each(m.GetSubscriptions(), wire.Subscription.Read), m.GetDryRun())
	return &tkopb.RegisterSubscriptionsResponse{Subscriptions: wire.Each(results, wire.RegisteredSubscription.Write)}, err
}

func (r *rights) ListSubscriptions(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.Subscription]) error {
	return sendAll(s, wire.Subscription.Write)(r.backend.Subscriptions(s.Context()))
}

func (r *rights) DeleteSubscription(ctx context.Context, m *tkopb.DeleteSubscription) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.DeleteSubscription(ctx, m.GetName())
}

func (r *rights) RegisterViews(ctx context.Context, m *tkopb.RegisterViews) (*tkopb.RegisterViewsResponse, error) {
	results, err := r.backend.RegisterViews(ctx, wire.Each(m.GetViews(), wire.View.Read), m.GetDryRun())
	return &tkopb.RegisterViewsResponse{Views: wire.Each(results, wire.RegisteredView.Write)}, err
}

func (r *rights) ListViews(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.View]) error {
	return sendAll(s, wire.View.Write)(r.backend.Views(s.Context()))
}

func (r *rights) DeleteView(ctx context.Context, m *tkopb.DeleteView) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.DeleteView(ctx, m.GetName())
}

func (r *rights) TestSubscription(ctx context.Context, m *tkopb.TestSubscription) (*tkopb.TestSubscriptionResponse, error) {
	id, err := r.backend.TestSubscription(ctx, m.GetName())
	return &tkopb.TestSubscriptionResponse{MessageId: id}, err
}

func (r *rights) ListAudit(m *tkopb.ListAudit, s grpc.ServerStreamingServer[tkopb.AuditRecord]) error {
	sel := audit.Select{
		Subject: m.GetSubject(), Kind: m.GetKind(), ID: m.GetId(), Site: m.GetSiteId(), Decision: m.GetDecision(), Action: m.GetAction(), Request: m.GetRequest(),
		Since: wire.Time(m.GetSince()), Until: wire.Time(m.GetUntil()), After: m.GetAfter(), Max: int(m.GetMax()),
	}
	for record, err := range r.backend.AuditRecords(s.Context(), sel) {
		if err != nil {
			return err
		}
		if err := s.Send(&tkopb.AuditRecord{Seq: record.Seq, Text: record.Text, Hash: record.Hash[:]}); err != nil {
			return err
		}
	}
	return nil
}

func (r *rights) VerifyAudit(ctx context.Context, m *tkopb.VerifyAudit) (*tkopb.VerifyAuditResponse, error) {
	var checkpoints []audit.Head
	for _, c := range m.GetCheckpoints() {
		if len(c.GetHash()) != len(audit.Hash{}) {
			return nil, tko.Errorf(tko.ErrInvalid, "the hash of the checkpoint %d has %d bytes: use %d", c.GetSeq(), len(c.GetHash()), len(audit.Hash{}))
		}
		checkpoints = append(checkpoints, audit.Head{Seq: c.GetSeq(), Hash: audit.Hash(c.GetHash())})
	}
	base, head, err := r.backend.VerifyAudit(ctx, checkpoints...)
	if err != nil {
		return nil, err
	}
	return &tkopb.VerifyAuditResponse{Base: newHead(base), Head: newHead(head)}, nil
}

func newHead(h audit.Head) *tkopb.AuditHead { return &tkopb.AuditHead{Seq: h.Seq, Hash: h.Hash[:]} }

var (
	scopes   = wire.NewPair[access.Scope, tkopb.Scope](wire.Names{"SiteId": "SiteID", "TemplateId": "TemplateID"})
	bindings = wire.NewPair[access.Binding, tkopb.Binding](wire.Names{"BoundBy": "By.Who"})
	policies = wire.NewPair[access.Policy, tkopb.Policy](wire.Names{"AddedBy": "By.Who"})
)
