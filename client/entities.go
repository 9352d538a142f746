package client

import (
	"context"
	"fmt"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
)

// About describes the server.
func (c *Client) About(ctx context.Context) (tko.About, error) {
	return wire.Then(wire.About.Read)(call(ctx, c, c.data.About, &emptypb.Empty{}))
}

// WhoAmI returns the caller as the server has authenticated it.
func (c *Client) WhoAmI(ctx context.Context) (tko.Caller, error) {
	return wire.Then(wire.Caller.Read)(call(ctx, c, c.data.WhoAmI, &emptypb.Empty{}))
}

// RegisterTemplate creates or replaces a template, and returns its new
// revision.
func (c *Client) RegisterTemplate(ctx context.Context, t tko.Template) (revision int64, err error) {
	t.Stamp, t.Deployments = tko.Stamp{}, nil // set by the server
	m, err := wire.NewTemplate(t, c.options.PackageFormat)
	if err != nil {
		return 0, err
	}
	m.Details = wire.NewDetails(ctx, t.Details)
	if m.KeepPackage, err = c.keepPackage(ctx, t.Package, func() (krm.Package, error) {
		old, err := c.Template(ctx, t.ID, 0)
		return old.Package, err
	}); err != nil {
		return 0, fmt.Errorf("template %q: %w", t.ID, err)
	}
	return registered(call(ctx, c, c.data.RegisterTemplate, m))
}

// Template returns a template with its package, as of a revision; 0 is the
// current one. An unknown template is a tko.ErrNotFound.
func (c *Client) Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	return wire.ThenRead(wire.Template[*tkopb.Template])(call(ctx, c, c.data.GetTemplate, &tkopb.GetTemplate{
		TemplateId:             string(id),
		PreferredPackageFormat: string(c.options.PackageFormat),
		Revision:               revision,
		AsOf:                   tko.AsOfOf(ctx).String(),
	}))
}

// Templates streams the templates that match, sorted by ID, all from one
// snapshot. An error comes last.
func (c *Client) Templates(ctx context.Context, s tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error] {
	return rows(ctx, c, c.data.ListTemplates, &tkopb.ListTemplates{
		AsOf:                   tko.AsOfOf(ctx).String(),
		Window:                 wire.NewWindow(o.Window),
		Select:                 wire.NewTemplateSelect(s, false),
		WithPackages:           o.Packages,
		PreferredPackageFormat: string(c.options.PackageFormat),
		WithoutDeploymentIds:   !o.Deployments,
		WithDeploymentCounts:   o.Counts,
	}, wire.Template)
}

// DeleteTemplate deletes a template; its deployments stay. An unknown template
// is a tko.ErrNotFound.
func (c *Client) DeleteTemplate(ctx context.Context, id tko.TemplateID) (tko.Deleted, error) {
	return deletedOne(call(ctx, c, c.data.DeleteTemplate, &tkopb.TemplateID{TemplateId: string(id), Confirm: wire.NewConfirm(ctx)}))
}

// PurgeTemplates deletes the templates that match (all if nothing is selected);
// with dryRun it only counts them. Deleting many must be confirmed: see
// [tko.WithConfirmation].
func (c *Client) PurgeTemplates(ctx context.Context, s tko.TemplateSelect, dryRun bool) (tko.Deleted, error) {
	m := wire.NewTemplateSelect(s, dryRun)
	m.Confirm = wire.NewConfirm(ctx)
	return purge(ctx, c, dryRun, c.Templates(ctx, s, tko.ListOptions{}), func() (*tkopb.DeleteResponse, error) {
		return call(ctx, c, c.data.PurgeTemplates, m)
	})
}

// RegisterSite creates or replaces a site, and returns its new revision.
func (c *Client) RegisterSite(ctx context.Context, s tko.Site) (revision int64, err error) {
	s.Stamp, s.Deployments = tko.Stamp{}, nil // set by the server
	m, err := wire.NewSite(s, c.options.PackageFormat)
	if err != nil {
		return 0, err
	}
	m.Details = wire.NewDetails(ctx, s.Details)
	if m.KeepPackage, err = c.keepPackage(ctx, s.Package, func() (krm.Package, error) {
		old, err := c.Site(ctx, s.ID, 0)
		return old.Package, err
	}); err != nil {
		return 0, fmt.Errorf("site %q: %w", s.ID, err)
	}
	return registered(call(ctx, c, c.data.RegisterSite, m))
}

// Site returns a site with its package, as of a revision; 0 is the current one.
// An unknown site is a tko.ErrNotFound.
func (c *Client) Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	return wire.ThenRead(wire.Site[*tkopb.Site])(call(ctx, c, c.data.GetSite, &tkopb.GetSite{
		SiteId:                 string(id),
		PreferredPackageFormat: string(c.options.PackageFormat),
		Revision:               revision,
		AsOf:                   tko.AsOfOf(ctx).String(),
	}))
}

// Sites streams the sites that match, sorted by ID, all from one snapshot. An
// error comes last.
func (c *Client) Sites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error] {
	return rows(ctx, c, c.data.ListSites, &tkopb.ListSites{
		AsOf:                   tko.AsOfOf(ctx).String(),
		Window:                 wire.NewWindow(o.Window),
		Select:                 wire.NewSiteSelect(s, false),
		WithPackages:           o.Packages,
		PreferredPackageFormat: string(c.options.PackageFormat),
		WithoutDeploymentIds:   !o.Deployments,
		WithDeploymentCounts:   o.Counts,
	}, wire.Site)
}

// DeleteSite deletes a site; its deployments stay. An unknown site is a
// tko.ErrNotFound.
func (c *Client) DeleteSite(ctx context.Context, id tko.SiteID) (tko.Deleted, error) {
	return deletedOne(call(ctx, c, c.data.DeleteSite, &tkopb.SiteID{SiteId: string(id), Confirm: wire.NewConfirm(ctx)}))
}

// PurgeSites deletes the sites that match (all if nothing is selected); with
// dryRun it only counts them. Deleting many must be confirmed: see
// [tko.WithConfirmation].
func (c *Client) PurgeSites(ctx context.Context, s tko.SiteSelect, dryRun bool) (tko.Deleted, error) {
	m := wire.NewSiteSelect(s, dryRun)
	m.Confirm = wire.NewConfirm(ctx)
	return purge(ctx, c, dryRun, c.Sites(ctx, s, tko.ListOptions{}), func() (*tkopb.DeleteResponse, error) {
		return call(ctx, c, c.data.PurgeSites, m)
	})
}

// Deployment returns a deployment with its package, as of a revision; 0 is the
// current one. An unknown deployment is a tko.ErrNotFound.
func (c *Client) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	return wire.ThenRead(wire.Deployment[*tkopb.Deployment])(call(ctx, c, c.data.GetDeployment, &tkopb.GetDeployment{
		DeploymentId:           string(id),
		PreferredPackageFormat: string(c.options.PackageFormat),
		Revision:               revision,
		AsOf:                   tko.AsOfOf(ctx).String(),
	}))
}

// Deployments streams the deployments that match, sorted by ID, all from one
// snapshot. An error comes last.
func (c *Client) Deployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	m := &tkopb.ListDeployments{
		AsOf:                   tko.AsOfOf(ctx).String(),
		Window:                 wire.NewWindow(o.Window),
		Select:                 wire.NewDeploymentSelect(s, false),
		WithPackages:           o.Packages,
		PreferredPackageFormat: string(c.options.PackageFormat),
	}
	if !c.codecs {
		return rows(ctx, c, c.data.ListDeployments, m, wire.Deployment)
	}
	return func(yield func(tko.Deployment, error) bool) {
		var row wire.DeploymentRow
		rowsBy(ctx, c, c.data.ListDeployments, m, func(s grpc.ServerStreamingClient[tkopb.ListedDeployment]) (d tko.Deployment, invalid, err error) {
			if err := s.RecvMsg(&row); err != nil {
				return d, nil, err
			}
			d, invalid = row.Entity()
			return d, invalid, nil
		}, grpc.ForceCodecV2(wire.NewCodec()))(yield)
	}
}

// DeleteDeployment deletes a deployment and its descendants. An unknown
// deployment is a tko.ErrNotFound. Deleting many must be confirmed: see
// [tko.WithConfirmation].
func (c *Client) DeleteDeployment(ctx context.Context, id tko.DeploymentID) (tko.Deleted, error) {
	return deletedOne(call(ctx, c, c.data.DeleteDeployment, &tkopb.DeploymentID{DeploymentId: string(id), Confirm: wire.NewConfirm(ctx)}))
}

// DeleteDeploymentAt deletes a deployment and its descendants if it is still at
// a revision, otherwise it returns a tko.ErrConflict. Servers that don't
// support this precondition delete it at any revision.
func (c *Client) DeleteDeploymentAt(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deleted, error) {
	return deletedOne(call(ctx, c, c.data.DeleteDeployment, &tkopb.DeploymentID{DeploymentId: string(id), Revision: revision}))
}

// PurgeDeployments deletes the deployments that match (all if nothing is
// selected) and their descendants; with dryRun it only counts them. Deleting
// many must be confirmed: see [tko.WithConfirmation].
func (c *Client) PurgeDeployments(ctx context.Context, s tko.DeploymentSelect, dryRun bool) (tko.Deleted, error) {
	m := wire.NewDeploymentSelect(s, dryRun)
	m.Confirm = wire.NewConfirm(ctx)
	return purge(ctx, c, dryRun, c.Deployments(ctx, s, tko.ListOptions{}), func() (*tkopb.DeleteResponse, error) {
		return call(ctx, c, c.data.PurgeDeployments, m)
	})
}

// RegisterPlugin creates or replaces a plugin, and returns its new revision.
func (c *Client) RegisterPlugin(ctx context.Context, p tko.Plugin) (revision int64, err error) {
	p.Stamp = tko.Stamp{} // set by the server
	return registered(call(ctx, c, c.data.RegisterPlugin, wire.NewPlugin(p)))
}

// Plugin returns a plugin. An unknown plugin is a tko.ErrNotFound.
func (c *Client) Plugin(ctx context.Context, typ, name string) (tko.Plugin, error) {
	return wire.Then(wire.Plugin)(call(ctx, c, c.data.GetPlugin, &tkopb.PluginID{Type: typ, Name: name, AsOf: tko.AsOfOf(ctx).String()}))
}

// Plugins streams the plugins that match, sorted by type and name, all from one
// snapshot. An error comes last.
func (c *Client) Plugins(ctx context.Context, s tko.PluginSelect, o tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return rows(ctx, c, c.data.ListPlugins, &tkopb.ListPlugins{
		AsOf:   tko.AsOfOf(ctx).String(),
		Window: wire.NewWindow(o.Window),
		Select: wire.NewPluginSelect(s, false),
	}, func(m *tkopb.Plugin) (tko.Plugin, error) { return wire.Plugin(m), nil })
}

// DeletePlugin deletes a plugin. An unknown plugin is a tko.ErrNotFound.
func (c *Client) DeletePlugin(ctx context.Context, typ, name string) (tko.Deleted, error) {
	return deletedOne(call(ctx, c, c.data.DeletePlugin, &tkopb.PluginID{Type: typ, Name: name, Confirm: wire.NewConfirm(ctx)}))
}

// PurgePlugins deletes the plugins that match (all if nothing is selected);
// with dryRun it only counts them. Deleting many must be confirmed: see
// [tko.WithConfirmation].
func (c *Client) PurgePlugins(ctx context.Context, s tko.PluginSelect, dryRun bool) (tko.Deleted, error) {
	m := wire.NewPluginSelect(s, dryRun)
	m.Confirm = wire.NewConfirm(ctx)
	return purge(ctx, c, dryRun, c.Plugins(ctx, s, tko.ListOptions{}), func() (*tkopb.DeleteResponse, error) {
		return call(ctx, c, c.data.PurgePlugins, m)
	})
}

func deleted(m *tkopb.DeleteResponse, err error) (tko.Deleted, error) {
	if err != nil {
		return tko.Deleted{}, err
	}
	if !m.GetDeleted() {
		return tko.Deleted{}, tko.Errorf(tko.ErrDenied, "not deleted: %s", m.GetNotDeletedReason())
	}
	return tko.Deleted{Count: wire.Count(m.GetCount()), Descendants: wire.Count(m.GetDescendants()), Orphaned: wire.Count(m.GetOrphaned())}, nil
}

// deletedOne is deleted for a single entity, which servers of the original TKO don't count.
func deletedOne(m *tkopb.DeleteResponse, err error) (tko.Deleted, error) {
	d, err := deleted(m, err)
	if err == nil {
		d.Count = max(d.Count, 1)
	}
	return d, err
}

// registered returns the revision of a registered entity.
func registered(m *tkopb.RegisterResponse, err error) (revision int64, _ error) {
	if err == nil && !m.GetRegistered() {
		err = tko.Errorf(tko.ErrDenied, "not registered: %s", m.GetNotRegisteredReason())
	}
	return m.GetRevision(), err
}

// CreateDeployment creates a deployment, and returns its ID.
func (c *Client) CreateDeployment(ctx context.Context, d tko.NewDeployment) (tko.DeploymentID, error) {
	m, err := wire.NewCreateDeployment(d, c.options.PackageFormat)
	if err != nil {
		return "", err
	}
	response, err := call(ctx, c, c.data.CreateDeployment, m)
	if err != nil {
		return "", err
	}
	if !response.GetCreated() {
		return "", tko.Errorf(tko.ErrDenied, "deployment not created: %s", response.GetNotCreatedReason())
	}
	return tko.DeploymentID(response.GetDeploymentId()), nil
}

// StartModification returns a token for the exclusive right to modify a
// deployment for a limited time, and the deployment's package. It returns a
// tko.ErrBusy while another client has that right. [tko.WithModificationTime] sets the
// time; servers that don't know it use their own.
func (c *Client) StartModification(ctx context.Context, id tko.DeploymentID) (tko.Modification, error) {
	m := &tkopb.StartDeploymentModification{DeploymentId: string(id), PreferredPackageFormat: string(c.options.PackageFormat)}
	if validity, ok := tko.ModificationTimeOf(ctx); ok {
		m.Validity = durationpb.New(validity)
	}
	response, err := call(ctx, c, c.data.StartDeploymentModification, m)
	if err != nil {
		return tko.Modification{}, err
	}
	if !response.GetStarted() {
		return tko.Modification{}, tko.Errorf(tko.ErrDenied, "modification of deployment %q not started: %s", id, response.GetNotStartedReason())
	}
	return wire.Modification(id, response)
}

// EndModification replaces the deployment's package and ends the token. An
// expired token is a tko.ErrBusy, and a token that was ended or cancelled is a
// tko.ErrNotFound. After an invalid package (tko.ErrInvalid) the token is still
// valid.
func (c *Client) EndModification(ctx context.Context, token string, p krm.Package) (id tko.DeploymentID, revision int64, err error) {
	m, err := wire.NewEndModification(token, p, c.options.PackageFormat)
	if err != nil {
		return "", 0, err
	}
	response, err := call(ctx, c, c.data.EndDeploymentModification, m)
	if err != nil {
		return "", 0, err
	}
	if !response.GetModified() {
		return "", 0, tko.Errorf(tko.ErrDenied, "deployment not modified: %s", response.GetNotModifiedReason())
	}
	return tko.DeploymentID(response.GetDeploymentId()), response.GetRevision(), nil
}

// CancelModification ends a token without a change. Errors as for
// EndModification.
func (c *Client) CancelModification(ctx context.Context, token string) error {
	response, err := call(ctx, c, c.data.CancelDeploymentModification, &tkopb.CancelDeploymentModification{ModificationToken: token})
	if err != nil {
		return err
	}
	if !response.GetCancelled() {
		return tko.Errorf(tko.ErrDenied, "modification not cancelled: %s", response.GetNotCancelledReason())
	}
	return nil
}

// ApproveDeployment approves a prepared deployment, and returns 0 if it was
// approved already.
func (c *Client) ApproveDeployment(ctx context.Context, id tko.DeploymentID) (approved int, err error) {
	if id == "" {
		return 0, tko.Errorf(tko.ErrInvalid, "deployment ID is empty")
	}
	approved, err = count(call(ctx, c, c.data.ApproveDeployments, &tkopb.ApproveDeployments{DeploymentId: string(id)}))
	if status.Code(err) == codes.Unimplemented {
		return c.approveByModification(ctx, id)
	}
	return approved, err
}

// ApproveDeployments approves the deployments that match (all if nothing is
// selected), are prepared and not yet approved, and returns their number; with
// dryRun it only counts them. Approving many must be confirmed: see
// [tko.WithConfirmation].
func (c *Client) ApproveDeployments(ctx context.Context, s tko.DeploymentSelect, dryRun bool) (approved int, err error) {
	approved, err = count(call(ctx, c, c.data.ApproveDeployments, &tkopb.ApproveDeployments{
		Select: wire.NewDeploymentSelect(s, dryRun), Confirm: wire.NewConfirm(ctx),
	}))
	if status.Code(err) == codes.Unimplemented {
		return c.approveEachByModification(ctx, s, dryRun)
	}
	return approved, err
}

func count(m *tkopb.ApproveDeploymentsResponse, err error) (int, error) {
	return wire.Count(m.GetApproved()), err
}

// CommitDeployment replaces a deployment's package, and returns its new
// revision. It returns a tko.ErrConflict if the deployment is no longer at the
// given revision, and a tko.ErrBusy while it is being modified.
func (c *Client) CommitDeployment(ctx context.Context, d tko.DeploymentCommit) (revision int64, err error) {
	m, err := wire.NewCommitDeployment(d, c.options.PackageFormat)
	if err != nil {
		return 0, err
	}
	response, err := call(ctx, c, c.data.CommitDeployment, m)
	return response.GetRevision(), err
}

// maxBatchBytes is the size of the packages that one call commits at most.
const maxBatchBytes = 1 << 20

// CommitDeployments commits different deployments independently of each other,
// and returns their new revisions. The revision is 0 if a deployment was not
// committed: [Client.CommitDeployment] returns the reason. It returns
// errors.ErrUnsupported if the server is too old. After another error, some of
// them may have been committed.
func (c *Client) CommitDeployments(ctx context.Context, commits []tko.DeploymentCommit) (revisions []int64, err error) {
	revisions = make([]int64, len(commits))
	m, first, size := &tkopb.CommitDeployments{}, 0, 0
	send := func(next int) error {
		if len(m.Commits) == 0 {
			return nil
		}
		response, err := call(ctx, c, c.data.CommitDeployments, m)
		if err != nil {
			return err
		}
		copy(revisions[first:next], response.GetRevisions())
		m, first, size = &tkopb.CommitDeployments{}, next, 0
		return nil
	}
	for i, commit := range commits {
		one, err := wire.NewCommitDeployment(commit, c.options.PackageFormat)
		if err != nil {
			return nil, err
		}
		size += len(one.GetPackage())
		if size > maxBatchBytes {
			if err := send(i); err != nil {
				return revisions, err
			}
			size = len(one.GetPackage())
		}
		m.Commits = append(m.Commits, one)
	}
	return revisions, send(len(commits))
}

// DeploymentsByID returns those of the deployments that exist and fit into one
// response, with their packages: [Client.Deployment] reads the others. It returns
// errors.ErrUnsupported if the server is too old.
func (c *Client) DeploymentsByID(ctx context.Context, ids []tko.DeploymentID) ([]tko.Deployment, error) {
	response, err := call(ctx, c, c.data.GetDeployments, &tkopb.GetDeployments{PreferredPackageFormat: string(c.options.PackageFormat), DeploymentIds: wire.Texts(ids)})
	if err != nil {
		return nil, err
	}
	return wire.Deployments(response.GetDeployments())
}

// CreateChildren creates the children of a deployment that don't exist yet, all
// or none, and returns the IDs of all given children, in their order, and the
// number of new ones.
func (c *Client) CreateChildren(ctx context.Context, n tko.NewChildren) (ids []tko.DeploymentID, created int, err error) {
	m, err := wire.NewCreateChildren(n, c.options.PackageFormat)
	if err != nil {
		return nil, 0, err
	}
	response, err := call(ctx, c, c.data.CreateChildren, m)
	ids, created = wire.CreateChildrenResponse(response)
	return ids, created, err
}

// ProvisionSite registers a site with a generated ID, once for each origin.
func (c *Client) ProvisionSite(ctx context.Context, s tko.NewSite) (id tko.SiteID, created bool, err error) {
	m, err := wire.NewProvisionSite(s, c.options.PackageFormat)
	if err != nil {
		return "", false, err
	}
	response, err := call(ctx, c, c.data.ProvisionSite, m)
	return tko.SiteID(response.GetSiteId()), response.GetCreated(), err
}

// ResolveSite makes a site use the template that it waits for, if that exists, and reports
// whether it still waits.
func (c *Client) ResolveSite(ctx context.Context, id tko.SiteID) (waits bool, err error) {
	response, err := call(ctx, c, c.data.ResolveSite, &tkopb.ResolveSite{SiteId: string(id)})
	return response.GetWaits(), err
}
