package chart

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
)

// Options are the settings of a Deployer. Label and Keep are required.
type Options struct {
	Folder  string                                   // of charts by path; none if empty
	Logins  string                                   // path of the file of credentials for repositories and registries; none if empty
	Guard   *guard.Guard                             // limits the addresses of charts; no limits if nil
	Limit   time.Duration                            // of a hook, of the tests, and of an upgrade to become healthy
	Request time.Duration                            // limit of a request to a cluster
	Render  time.Duration                            // limit of rendering a chart's templates; 30 s if 0
	Label   string                                   // on all objects; the value is the owner
	Keep    func(annotations map[string]string) bool // whether Helm never removes an object
}

// A Deployer fetches charts and deploys their releases. It is safe for concurrent use.
type Deployer struct {
	options  Options
	store    *helm.Store
	renderer *helm.Renderer
}

// NewDeployer returns a Deployer, which does not need to be closed.
func NewDeployer(o Options) *Deployer {
	return &Deployer{
		options: o, store: helm.NewStore(helm.StoreOptions{Folder: o.Folder, Credentials: o.Logins, Guard: o.Guard}),
		renderer: helm.NewRenderer(o.Render),
	}
}

// Resolve completes a chart in a namespace with the values of its sources, and returns a
// digest of what its reference leads to, without any request; empty if that doesn't change.
// find returns the content of a source; nil if it does not exist. The error is
// tko.ErrInvalid if only a change of the package helps.
func (d *Deployer) Resolve(c *Chart, namespace string, find func(Source) (map[string]any, error)) (digest string, err error) {
	if err := c.resolve(namespace, find); err != nil {
		return "", err
	}
	digest, err = d.store.Digest(c.reference)
	switch {
	case errors.Is(err, tko.ErrInvalid):
		err = tko.Errorf(tko.ErrInvalid, "%s", bounded(err.Error()))
	case err != nil:
		err = errors.New(bounded(err.Error()))
	}
	return digest, err
}

// At returns the releases in the cluster of an API server. The transport adds the
// credentials.
func (d *Deployer) At(host string, transport http.RoundTripper) *Releases {
	return &Releases{store: d.store, client: helm.Client{
		Host: host, Transport: transport, Label: d.options.Label, Timeout: d.options.Limit, Request: d.options.Request, Renderer: d.renderer, Keep: d.options.Keep,
	}}
}

// Releases are the releases in a cluster. They are safe for concurrent use, except for
// concurrent calls for the same release.
type Releases struct {
	store  *helm.Store
	client helm.Client
}

// A Release is a release to deploy.
type Release struct {
	Namespace, Name string
	Owner           string            // value of the label
	Digest          string            // of what it is made from, as the value of a label
	Adopt           bool              // take over an existing release, and existing objects, of other owners
	Owned           func(string) bool // tells by the owner which existing releases may be changed

	// Prepare is called once the chart is there, before anything is deployed.
	Prepare func(context.Context) error
	// Adjust returns the object to apply in place of a rendered object, or nil to apply it
	// unchanged. It may be nil.
	Adjust func(namespace string, object map[string]any) (map[string]any, error)
}

// A Result is the result of an operation on a release.
type Result struct {
	State   State
	Objects []map[string]any // of the revision that was deployed; nil if none was
	Problem string           // why the release is not in its desired state; empty if it is
	Invalid bool             // only a change of the package helps with the problem
}

// deployedBy returns the result of an operation that deployed a revision.
func deployedBy(s State, by *helm.State) Result {
	return Result{State: s.deployed(by), Objects: append([]map[string]any{}, by.Objects...)}
}

// rolledBack returns the result of an upgrade that was rolled back.
func rolledBack(s State, by *helm.State, why string) Result {
	r := deployedBy(s, by)
	r.State = r.State.rolledBack(why)
	r.Problem, r.Invalid = r.State.RolledBack(), true
	return r
}

// Deploy installs or upgrades the release of a chart. An upgrade that fails is rolled
// back, and a first installation is removed. All errors are errors of the connection to the
// cluster, or what it refuses; the state is the same then.
func (r *Releases) Deploy(ctx context.Context, c *Chart, s State, to Release) (Result, error) {
	unchanged := Result{State: s}
	fetched, err := r.store.Get(ctx, c.reference)
	if ctx.Err() != nil {
		return unchanged, context.Cause(ctx)
	}
	if err != nil { // an error of the chart's origin, not of the cluster
		unchanged.Problem, unchanged.Invalid = "can't be deployed: "+bounded(err.Error()), errors.Is(err, tko.ErrInvalid)
		return unchanged, nil
	}
	if err := to.Prepare(ctx); err != nil {
		return unchanged, err
	}
	client := r.client
	client.Adjust = to.Adjust
	state, err := client.Deploy(ctx, helm.Release{
		Name: to.Name, Namespace: to.Namespace, Owner: to.Owner, Digest: to.Digest, Chart: fetched, Values: c.values, Adopt: to.Adopt, CRDs: c.crds,
	}, to.Owned)
	if err == nil {
		return deployedBy(s, state), nil
	}
	failed, ok := errors.AsType[*helm.FailedError](err)
	switch {
	case !ok:
		return unchanged, err
	case failed.State == nil:
		unchanged.Problem, unchanged.Invalid = "can't be deployed: "+c.secrets.Show(failed.Reason), failed.Invalid
		return unchanged, nil
	default:
		return rolledBack(s, failed.State, c.secrets.Show(failed.Reason)), nil
	}
}

// Rollback rolls the failed upgrade of a release back. It does nothing in the cluster if
// that was done before.
func (r *Releases) Rollback(ctx context.Context, c *Chart, s State, namespace, name string) (Result, error) {
	state, err := r.client.Rollback(ctx, namespace, name, s.Revision, s.Previous, "the upgrade did not become healthy")
	if failed, ok := errors.AsType[*helm.FailedError](err); ok {
		return Result{State: s, Problem: fmt.Sprintf("was not upgraded, and could not be rolled back to revision %d: %s (%s)", s.Previous, c.secrets.Show(failed.Reason), s.Failed)}, nil
	}
	if err != nil {
		return Result{State: s}, err
	}
	return rolledBack(s, state, s.Failed), nil
}

// Test runs the tests of a release, and returns the state with their result. It runs none
// if the recorded revision isn't the newest one, or isn't deployed. A failed test is a
// matter of the release's health: nothing is rolled back.
func (r *Releases) Test(ctx context.Context, c *Chart, s State, namespace, name string) (State, error) {
	fault, tested, err := r.client.Test(ctx, namespace, name, s.Revision, c.limitOf(r.client.Timeout))
	if err == nil && tested {
		s.Tested, s.Fault = s.Revision, c.secrets.Show(fault)
	}
	return s, err
}

// Objects returns the objects of a deployed release; tko.ErrNotFound if it does not exist.
func (r *Releases) Objects(ctx context.Context, namespace, name string) ([]map[string]any, error) {
	state, err := r.client.Release(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return state.Objects, nil
}

// Uninstall removes a release and its objects, if it is owned. It does nothing if the
// release is not owned or does not exist.
func (r *Releases) Uninstall(ctx context.Context, namespace, name string, owned func(string) bool) error {
	return r.client.Uninstall(ctx, namespace, name, owned)
}
