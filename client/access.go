package client

import (
	"context"
	"errors"
	"iter"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// Access returns the client of tko.Access: rights, policies of approvals, and the
// audit log. It uses the connection and the settings of the client.
func (c *Client) Access() *Access { return &Access{client: c, stub: c.access} }

// Access calls tko.Access. Its methods may be called concurrently. Their errors are
// of the kinds of package tko; the messages are those of the protocol.
type Access struct {
	client *Client
	stub   tkopb.AccessClient
}

// CanI returns whether the caller may use a verb, and how rights are enforced.
func (a *Access) CanI(ctx context.Context, m *tkopb.CanI) (*tkopb.CanIResponse, error) {
	return call(ctx, a.client, a.stub.CanI, m)
}

// Bindings streams the bindings, or the caller's own if it may not bind.
func (a *Access) Bindings(ctx context.Context) iter.Seq2[*tkopb.Binding, error] {
	return rows(ctx, a.client, a.stub.ListBindings, &emptypb.Empty{}, same[tkopb.Binding])
}

// Bind adds a binding and returns it.
func (a *Access) Bind(ctx context.Context, b *tkopb.Binding) (*tkopb.Binding, error) {
	return call(ctx, a.client, a.stub.Bind, b)
}

// Unbind removes a binding or a policy.
func (a *Access) Unbind(ctx context.Context, id string) error {
	_, err := call(ctx, a.client, a.stub.Unbind, &tkopb.Unbind{Id: id})
	return err
}

// Policies streams the policies of approvals.
func (a *Access) Policies(ctx context.Context) iter.Seq2[*tkopb.Policy, error] {
	return rows(ctx, a.client, a.stub.ListPolicies, &emptypb.Empty{}, same[tkopb.Policy])
}

// AddPolicy adds a policy and returns it.
func (a *Access) AddPolicy(ctx context.Context, p *tkopb.Policy) (*tkopb.Policy, error) {
	return call(ctx, a.client, a.stub.AddPolicy, p)
}

// Owner returns the owner of an entity.
func (a *Access) Owner(ctx context.Context, kind tko.Kind, id string) (*tkopb.Owner, error) {
	return call(ctx, a.client, a.stub.GetOwner, &tkopb.GetOwner{Kind: string(kind), Id: id})
}

// CountOwned counts the entities whose owners a binding gives rights.
func (a *Access) CountOwned(ctx context.Context, binding string) (*tkopb.Owned, error) {
	return call(ctx, a.client, a.stub.CountOwned, &tkopb.Unbind{Id: binding})
}

// Credentials returns how the credentials of the server are used; with undeclared, only uses
// that the operator did not declare.
func (a *Access) Credentials(ctx context.Context, undeclared bool) (*tkopb.ListCredentialsResponse, error) {
	return call(ctx, a.client, a.stub.ListCredentials, &tkopb.ListCredentials{Undeclared: undeclared})
}

// SetOwner makes a subject or a group the owner of an entity.
func (a *Access) SetOwner(ctx context.Context, m *tkopb.SetOwner) error {
	_, err := call(ctx, a.client, a.stub.SetOwner, m)
	return err
}

// BreakGlass makes the local user of the server administrator for an hour.
func (a *Access) BreakGlass(ctx context.Context, why string) (*tkopb.Binding, error) {
	return call(ctx, a.client, a.stub.BreakGlass, &tkopb.BreakGlass{Why: why})
}

// Freeze freezes sites until a time, and returns the freeze with its ID.
func (a *Access) Freeze(ctx context.Context, f *tkopb.Freeze) (*tkopb.Freeze, error) {
	return call(ctx, a.client, a.stub.Freeze, f)
}

// Unfreeze ends freezes.
func (a *Access) Unfreeze(ctx context.Context, ids ...string) error {
	_, err := call(ctx, a.client, a.stub.Unfreeze, &tkopb.Unfreeze{Ids: ids})
	return err
}

// EnrollSite returns a one-time token for an agent of a site.
func (a *Access) EnrollSite(ctx context.Context, m *tkopb.EnrollSite) (*tkopb.EnrollmentToken, error) {
	return call(ctx, a.client, a.stub.EnrollSite, m)
}

// RevokeSite ends the certificates and tokens of a site's agent.
func (a *Access) RevokeSite(ctx context.Context, id tko.SiteID) error {
	_, err := call(ctx, a.client, a.stub.RevokeSite, &tkopb.RevokeSite{SiteId: string(id)})
	return err
}

// EnrollSites returns a token for the agents of the sites that match a pattern, or ends it.
func (a *Access) EnrollSites(ctx context.Context, m *tkopb.EnrollSites) (*tkopb.EnrollmentToken, error) {
	return call(ctx, a.client, a.stub.EnrollSites, m)
}

// WaitingAgents streams the agents that wait until they are approved, by their sites.
func (a *Access) WaitingAgents(ctx context.Context) iter.Seq2[*tkopb.WaitingAgent, error] {
	return rows(ctx, a.client, a.stub.ListWaitingAgents, &emptypb.Empty{}, same[tkopb.WaitingAgent])
}

// ApproveAgent approves an agent that waits, or refuses it.
func (a *Access) ApproveAgent(ctx context.Context, m *tkopb.ApproveAgent) error {
	_, err := call(ctx, a.client, a.stub.ApproveAgent, m)
	return err
}

// Freezes streams the freezes that aren't over, those that end first at the beginning.
func (a *Access) Freezes(ctx context.Context) iter.Seq2[*tkopb.Freeze, error] {
	return rows(ctx, a.client, a.stub.ListFreezes, &emptypb.Empty{}, same[tkopb.Freeze])
}

// Freezes returns the freezes of sites that aren't over. A data controller that is too
// old to have any returns none.
func (c *Client) Freezes(ctx context.Context) ([]tko.Freeze, error) {
	all, err := collect(rows(ctx, c, c.access.ListFreezes, &emptypb.Empty{}, wire.Freeze.ReadRow))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return all, err
}

// Stops returns the stops with what they hold now, the oldest first. A data controller that is
// too old to have any returns none.
func (c *Client) Stops(ctx context.Context) ([]tko.StopStatus, error) {
	all, err := collect(rows(ctx, c, c.access.ListStops, &emptypb.Empty{}, wire.StopStatus.ReadRow))
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return all, err
}

// SiteStop returns what of a site stops hold now; for no site, whether everything is stopped.
// A data controller that is too old to stop anything returns that nothing is.
func (c *Client) SiteStop(ctx context.Context, id tko.SiteID) (tko.SiteStop, error) {
	m, err := call(ctx, c, c.access.GetSiteStop, &tkopb.GetSiteStop{SiteId: string(id)})
	if errors.Is(err, errors.ErrUnsupported) {
		return tko.SiteStop{}, nil
	}
	return wire.SiteStop.Read(m), err
}

// RegisterSources registers definitions of GitOps sources: all of them, or none.
func (c *Client) RegisterSources(ctx context.Context, definitions []tko.SourceDefinition, dryRun bool) ([]tko.RegisteredSource, error) {
	response, err := call(ctx, c, c.access.RegisterSources, &tkopb.RegisterSources{Sources: wire.Each(definitions, wire.SourceDefinition.Write), DryRun: dryRun})
	return wire.Each(response.GetSources(), wire.RegisteredSource.Read), err
}

// DeclareSources registers the sources that the repository of another one declares: all of
// them, or none. It needs the claim of that source's work. It returns
// errors.ErrUnsupported if the server is too old.
func (c *Client) DeclareSources(ctx context.Context, d tko.DeclareSources, claim tko.WorkItem) (tko.DeclaredSources, error) {
	done, err := call(ctx, c, c.access.DeclareSources, &tkopb.DeclareSources{
		Parent: d.Parent, Sources: wire.Each(d.Definitions, wire.SourceDefinition.Write), Prune: d.Prune, DryRun: d.DryRun, Claim: claim.Claim,
	})
	return wire.DeclaredSources.Read(done), err
}

// SourceDefinitions returns the registered GitOps sources by name, or none if the version
// is the known one. It returns errors.ErrUnsupported if the server is too old.
func (c *Client) SourceDefinitions(ctx context.Context, known int64) (tko.SourceDefinitions, error) {
	m, err := call(ctx, c, c.access.GetSourceDefinitions, &tkopb.GetSourceDefinitions{KnownVersion: known})
	return tko.SourceDefinitions{Version: m.GetVersion(), All: wire.Each(m.GetSources(), wire.SourceDefinition.Read)}, err
}

// DeleteSource deletes the definition of a GitOps source; with keep, its entities stay.
// Otherwise their number must be confirmed ([tko.WithConfirmation]).
func (c *Client) DeleteSource(ctx context.Context, name string, keep bool) error {
	_, err := call(ctx, c, c.access.DeleteSource, &tkopb.DeleteSource{Name: name, Keep: keep, Confirm: wire.NewConfirm(ctx)})
	return err
}

// RegisterSubscriptions registers subscriptions: all of them, or none.
func (c *Client) RegisterSubscriptions(ctx context.Context, all []tko.Subscription, dryRun bool) ([]tko.RegisteredSubscription, error) {
	response, err := call(ctx, c, c.access.RegisterSubscriptions, &tkopb.RegisterSubscriptions{Subscriptions: wire.Each(all, wire.Subscription.Write), DryRun: dryRun})
	return wire.Each(response.GetSubscriptions(), wire.RegisteredSubscription.Read), err
}

// Subscriptions returns the subscriptions by name, with how far they are.
func (c *Client) Subscriptions(ctx context.Context) ([]tko.Subscription, error) {
	return collect(rows(ctx, c, c.access.ListSubscriptions, &emptypb.Empty{}, wire.Subscription.ReadRow))
}

// DeleteSubscription deletes a subscription. What it has not told is never reported.
func (c *Client) DeleteSubscription(ctx context.Context, name string) error {
	_, err := call(ctx, c, c.access.DeleteSubscription, &tkopb.DeleteSubscription{Name: name})
	return err
}

// RegisterViews saves views of the dashboards: all of them, or none.
func (c *Client) RegisterViews(ctx context.Context, all []tko.View, dryRun bool) ([]tko.RegisteredView, error) {
	response, err := call(ctx, c, c.access.RegisterViews, &tkopb.RegisterViews{Views: wire.Each(all, wire.View.Write), DryRun: dryRun})
	return wire.Each(response.GetViews(), wire.RegisteredView.Read), err
}

// Views returns the saved views by name.
func (c *Client) Views(ctx context.Context) ([]tko.View, error) {
	return collect(rows(ctx, c, c.access.ListViews, &emptypb.Empty{}, wire.View.ReadRow))
}

// DeleteView deletes a view that a user saved.
func (c *Client) DeleteView(ctx context.Context, name string) error {
	_, err := call(ctx, c, c.access.DeleteView, &tkopb.DeleteView{Name: name})
	return err
}

// TestSubscription sends a test message to the destination of a subscription, and returns
// its ID.
func (c *Client) TestSubscription(ctx context.Context, name string) (id string, err error) {
	response, err := call(ctx, c, c.access.TestSubscription, &tkopb.TestSubscription{Name: name})
	return response.GetMessageId(), err
}

// Audit streams audit records in their order, up to the newest one.
func (a *Access) Audit(ctx context.Context, m *tkopb.ListAudit) iter.Seq2[*tkopb.AuditRecord, error] {
	return rows(ctx, a.client, a.stub.ListAudit, m, same[tkopb.AuditRecord])
}

// VerifyAudit checks the chain of the audit log. A broken chain is a
// tko.ErrConflict with the first bad record.
func (a *Access) VerifyAudit(ctx context.Context, checkpoints ...*tkopb.AuditHead) (*tkopb.VerifyAuditResponse, error) {
	return call(ctx, a.client, a.stub.VerifyAudit, &tkopb.VerifyAudit{Checkpoints: checkpoints})
}

func same[M any](m *M) (*M, error) { return m, nil }
