package grpcapi

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
)

// data implements tko.Data on a backend. The backend's refusals become errors;
// the response fields for refusals stay empty.
type data struct {
	tkopb.UnimplementedDataServer

	backend   Backend
	encoder   Encoder    // of the backend
	format    krm.Format // for clients that don't set one
	stopping  <-chan struct{}
	limiter   *limiter
	slowWatch time.Duration
	observer  Observer
	changes   changes
}

func (d *data) About(ctx context.Context, _ *emptypb.Empty) (*tkopb.AboutResponse, error) {
	about, err := d.backend.About(ctx)
	if err != nil {
		return nil, err
	}
	about.DefaultPackageFormat = d.format
	return wire.About.Write(about), nil
}

func (d *data) WhoAmI(ctx context.Context, _ *emptypb.Empty) (*tkopb.WhoAmIResponse, error) {
	i, _ := identity.From(ctx)
	return wire.Caller.Write(tko.Caller{
		Subject: i.Subject, Groups: i.Groups, Authenticator: i.Authenticator, Display: i.Display, From: i.From, Expires: i.Expires,
	}), nil
}

func (d *data) RegisterTemplate(ctx context.Context, m *tkopb.Template) (*tkopb.RegisterResponse, error) {
	t, err := wire.Template(m)
	if err != nil {
		return nil, err
	}
	t.Stamp = tko.Stamp{}
	t.Deployments = nil
	return registered(d.backend.RegisterTemplate(ctx, t))
}

func (d *data) DeleteTemplate(ctx context.Context, m *tkopb.TemplateID) (*tkopb.DeleteResponse, error) {
	return deleted(d.backend.DeleteTemplate(ctx, tko.TemplateID(m.GetTemplateId())))
}

func (d *data) PurgeTemplates(ctx context.Context, m *tkopb.SelectTemplates) (*tkopb.DeleteResponse, error) {
	return deleted(d.backend.PurgeTemplates(ctx, wire.TemplateSelect(m), m.GetDryRun()))
}

func (d *data) RegisterSite(ctx context.Context, m *tkopb.Site) (*tkopb.RegisterResponse, error) {
	site, err := wire.Site(m)
	if err != nil {
		return nil, err
	}
	site.Stamp = tko.Stamp{}
	site.Deployments = nil
	return registered(d.backend.RegisterSite(ctx, site))
}

func (d *data) DeleteSite(ctx context.Context, m *tkopb.SiteID) (*tkopb.DeleteResponse, error) {
	return deleted(d.backend.DeleteSite(ctx, tko.SiteID(m.GetSiteId())))
}

func (d *data) PurgeSites(ctx context.Context, m *tkopb.SelectSites) (*tkopb.DeleteResponse, error) {
	return deleted(d.backend.PurgeSites(ctx, wire.SiteSelect(m), m.GetDryRun()))
}

func (d *data) DeleteDeployment(ctx context.Context, m *tkopb.DeploymentID) (*tkopb.DeleteResponse, error) {
	return deleted(d.backend.DeleteDeploymentAt(ctx, tko.DeploymentID(m.GetDeploymentId()), m.GetRevision()))
}

func (d *data) PurgeDeployments(ctx context.Context, m *tkopb.SelectDeployments) (*tkopb.DeleteResponse, error) {
	return deleted(d.backend.PurgeDeployments(ctx, wire.DeploymentSelect(m), m.GetDryRun()))
}

func (d *data) RegisterPlugin(ctx context.Context, m *tkopb.Plugin) (*tkopb.RegisterResponse, error) {
	p := wire.Plugin(m)
	p.Stamp = tko.Stamp{}
	return registered(d.backend.RegisterPlugin(ctx, p))
}

func (d *data) GetPlugin(ctx context.Context, m *tkopb.PluginID) (*tkopb.Plugin, error) {
	ctx, err := past(ctx, m)
	if err != nil {
		return nil, err
	}
	return wire.Then(wire.NewPlugin)(d.backend.Plugin(ctx, m.GetType(), m.GetName()))
}

func (d *data) ListPlugins(m *tkopb.ListPlugins, s grpc.ServerStreamingServer[tkopb.Plugin]) error {
	ctx, err := past(s.Context(), m)
	if err != nil {
		return err
	}
	options := tko.ListOptions{Window: wire.Window(m.GetWindow())}
	return sendList(s, d.backend.Plugins(ctx, wire.PluginSelect(m.GetSelect()), options), wire.NewPlugin)
}

func (d *data) DeletePlugin(ctx context.Context, m *tkopb.PluginID) (*tkopb.DeleteResponse, error) {
	if m.GetAsOf() != "" {
		return nil, tko.Errorf(tko.ErrInvalid, "plugin %q: a moment of the past can't be changed: leave it out", tko.PluginID(m.GetType(), m.GetName()))
	}
	return deleted(d.backend.DeletePlugin(ctx, m.GetType(), m.GetName()))
}

func (d *data) PurgePlugins(ctx context.Context, m *tkopb.SelectPlugins) (*tkopb.DeleteResponse, error) {
	return deleted(d.backend.PurgePlugins(ctx, wire.PluginSelect(m), m.GetDryRun()))
}

// registered returns the response to a registration.
func registered(revision int64, err error) (*tkopb.RegisterResponse, error) {
	if err != nil {
		return nil, err
	}
	return &tkopb.RegisterResponse{Registered: true, Revision: revision}, nil
}

// deleted returns the response to a deletion. A purge that matched nothing has
// succeeded, too.
func deleted(d tko.Deleted, err error) (*tkopb.DeleteResponse, error) {
	if err != nil {
		return nil, err
	}
	return &tkopb.DeleteResponse{
		Deleted:     true,
		Count:       uint64(max(d.Count, 0)),
		Descendants: uint64(max(d.Descendants, 0)),
		Orphaned:    uint64(max(d.Orphaned, 0)),
	}, nil
}
