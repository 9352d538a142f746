package grpcapi

import (
	"context"
	"iter"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Backend implements the methods of the server: *catalog.Service in
// production. Its methods may be called concurrently. They return errors of the
// kinds of package tko; the text of any other error is logged and not sent to
// the client.
type Backend interface { //nolint:interfacebloat // one for each service
	PlainBackend
	DataBackend
	// BeforeNewest returns the position after which there are the newest n changes.
	BeforeNewest(ctx context.Context, n int) (int64, error)
	RightsBackend
	RolloutBackend
	WhyBackend
	PastBackend
	AdminBackend
	LogBackend
}

// A DataBackend implements tko.Data. Clients have the same methods.
type DataBackend interface { //nolint:interfacebloat // a method for each of the service
	About(ctx context.Context) (tko.About, error)
	RegisterTemplate(ctx context.Context, t tko.Template) (revision int64, err error)
	RegisterSite(ctx context.Context, s tko.Site) (revision int64, err error)
	RegisterPlugin(ctx context.Context, p tko.Plugin) (revision int64, err error)

	Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error)
	Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error)
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	Plugin(ctx context.Context, typ, name string) (tko.Plugin, error)
	DeploymentsByID(ctx context.Context, ids []tko.DeploymentID) ([]tko.Deployment, error)

	Templates(ctx context.Context, s tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error]
	Sites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error]
	Deployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error]
	Plugins(ctx context.Context, s tko.PluginSelect, o tko.ListOptions) iter.Seq2[tko.Plugin, error]

	DeleteTemplate(ctx context.Context, id tko.TemplateID) (tko.Deleted, error)
	DeleteSite(ctx context.Context, id tko.SiteID) (tko.Deleted, error)
	// DeleteDeploymentAt deletes a deployment and its descendants if it is at a
	// revision; at any if that is 0. Otherwise it returns ErrConflict.
	DeleteDeploymentAt(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deleted, error)
	DeletePlugin(ctx context.Context, typ, name string) (tko.Deleted, error)

	PurgeTemplates(ctx context.Context, s tko.TemplateSelect, dryRun bool) (tko.Deleted, error)
	PurgeSites(ctx context.Context, s tko.SiteSelect, dryRun bool) (tko.Deleted, error)
	PurgeDeployments(ctx context.Context, s tko.DeploymentSelect, dryRun bool) (tko.Deleted, error)
	PurgePlugins(ctx context.Context, s tko.PluginSelect, dryRun bool) (tko.Deleted, error)

	CreateDeployment(ctx context.Context, d tko.NewDeployment) (tko.DeploymentID, error)
	CreateChildren(ctx context.Context, c tko.NewChildren) (ids []tko.DeploymentID, created int, err error)
	ProvisionSite(ctx context.Context, s tko.NewSite) (id tko.SiteID, created bool, err error)
	// ResolveSite makes a site use the template that it waits for, if that exists, and
	// reports whether it still waits.
	ResolveSite(ctx context.Context, id tko.SiteID) (waits bool, err error)

	StartModification(ctx context.Context, id tko.DeploymentID) (tko.Modification, error)
	EndModification(ctx context.Context, token string, p krm.Package) (id tko.DeploymentID, revision int64, err error)
	CancelModification(ctx context.Context, token string) error

	CommitDeployment(ctx context.Context, c tko.DeploymentCommit) (revision int64, err error)
	CommitDeployments(ctx context.Context, commits []tko.DeploymentCommit) (revisions []int64, err error)

	ApproveDeployment(ctx context.Context, id tko.DeploymentID) (approved int, err error)
	ApproveDeployments(ctx context.Context, s tko.DeploymentSelect, dryRun bool) (approved int, err error)

	ClaimWork(ctx context.Context, c tko.ClaimWork) ([]tko.WorkItem, error)
	RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error)
	FinishWork(ctx context.Context, items []tko.FinishedWork) error
	EnqueueSites(ctx context.Context, ids []tko.SiteID) error
	SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error
	Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error]

	PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error)
	RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error)

	EnqueueSources(ctx context.Context, names []string, missing bool, approve string) error
	Source(ctx context.Context, name string) (tko.Source, error)
	Sources(ctx context.Context) ([]tko.Source, error)
	SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (version int64, err error)
	ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error

	TargetState(ctx context.Context, site tko.SiteID, name string) (tko.TargetState, error)
	SaveTargetState(ctx context.Context, s tko.TargetState, claim tko.WorkItem) (version int64, err error)
}
