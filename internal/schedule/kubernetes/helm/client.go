package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/kube"
	status "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/release/v1/util"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
)

// LabelDigest is a label on Helm's record of a release: a digest of the chart and
// values.
const LabelDigest = "tko.nephio.org/chart-digest"

const maxHistory = 5 // retained revisions of a release

// A Client deploys releases in a cluster. It is safe for concurrent use, except for
// concurrent calls for the same release.
type Client struct {
	Host      string            // the API server's URL
	Transport http.RoundTripper // adds the credentials
	Label     string            // label on all objects; the value is the owner
	Timeout   time.Duration     // limit of a hook
	Request   time.Duration     // limit of a request; none if 0
	Renderer  *Renderer         // renders charts' templates
	Keep      func(annotations map[string]string) bool

	// Adjust returns the object to apply in place of a rendered object of a release,
	// or nil to apply it unchanged. It may be nil.
	Adjust func(namespace string, object map[string]any) (map[string]any, error)
}

// A Release is the desired state of a release.
type Release struct {
	Name, Namespace string
	Owner           string // value of the client's label
	Digest          string // digest of the chart and values
	Chart           *Chart
	Values          map[string]any
	Adopt           bool // take over an existing release, and existing objects, of other owners
	CRDs            CRDs
}

// A State is the state of a deployed release.
type State struct {
	Revision int
	Previous int // revision for a rollback; 0 if none
	Objects  []map[string]any
}

// A FailedError reports why a release did not reach its desired state, and its
// current state.
type FailedError struct {
	Reason  string
	Invalid bool // the chart or its values are the cause
	// State is the state from before, which was restored; nil if nothing was
	// attempted, or there was no release.
	State *State
}

func (e *FailedError) Error() string { return e.Reason }

// A session is one operation on a release.
type session struct {
	client *Client
	config *action.Configuration
	at     *connection
}

// Manager is the field manager of Helm's library in this process.
const Manager = "tko"

var manage = sync.OnceFunc(func() { kube.ManagedFieldsManager = Manager })

func (c *Client) begin(ctx context.Context, namespace string) (*session, error) {
	manage()
	at := newConnection(ctx, c.Host, c.Transport, c.Request, namespace)
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	config.HookOutputFunc = func(string, string, string) io.Writer { return io.Discard }
	if err := config.Init(at, namespace, "secret"); err != nil {
		return nil, fmt.Errorf("prepare Helm: %w", err)
	}
	return &session{client: c, config: config, at: at}, nil
}

// away returns the error of the connection to the cluster, if any.
func (s *session) away() error { return s.at.wire.problem() }

func waiting(ctx context.Context) []kube.WaitOption {
	return []kube.WaitOption{kube.WithWaitContext(ctx)}
}

// history returns the revisions of a release, newest first.
func (s *session) history(name string) ([]*release.Release, error) {
	found, err := s.config.Releases.History(name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the revisions of release %q: %w", name, err)
	}
	var all []*release.Release
	for _, r := range found {
		if v, ok := r.(*release.Release); ok {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *release.Release) int { return b.Version - a.Version })
	return all, nil
}

// good returns the newest deployed revision that is older than before; nil if there
// is none.
func good(all []*release.Release, before int) *release.Release {
	for _, was := range []status.Status{status.StatusDeployed, status.StatusSuperseded} {
		for _, r := range all {
			if r.Version < before && r.Info.Status == was {
				return r
			}
		}
	}
	return nil
}

func (s *session) state(all []*release.Release) (*State, error) {
	if len(all) == 0 {
		return nil, tko.Errorf(tko.ErrNotFound, "there is no such release")
	}
	r := all[0]
	state := &State{Revision: r.Version}
	if before := good(all, r.Version); before != nil {
		state.Previous = before.Version
	}
	var err error
	state.Objects, err = objects(r)
	return state, err
}

// Deploy installs or upgrades a release, or leaves it if it is up to date. It first
// cleans up after a process that died during an operation. If the deployment fails,
// it rolls an upgrade back, removes a first installation, and returns a *FailedError.
// owned tells by the value of the label which existing releases it may change. All
// other errors are errors of the connection to the cluster.
func (c *Client) Deploy(ctx context.Context, r Release, owned func(string) bool) (*State, error) {
	s, err := c.begin(ctx, r.Namespace)
	if err != nil {
		return nil, err
	}
	state, err := s.deploy(ctx, r, owned)
	if err == nil {
		return state, nil
	}
	if away := s.away(); away != nil {
		return nil, away
	}
	return nil, err
}

func (s *session) deploy(ctx context.Context, r Release, owned func(string) bool) (*State, error) {
	all, err := s.history(r.Name)
	if err != nil {
		return nil, err
	}
	if len(all) > 0 && !owned(all[0].Labels[s.client.Label]) && !r.Adopt {
		return nil, &FailedError{Invalid: true, Reason: "exists already, installed by another owner: annotate the HelmChart with tko.nephio.org/adopt: \"true\" to take it over"}
	}
	if len(all) > 0 && all[0].Info.Status == status.StatusDeployed && all[0].Labels[LabelDigest] == r.Digest && owned(all[0].Labels[s.client.Label]) {
		return s.state(all)
	}
	if len(all) > 0 && owned(all[0].Labels[s.client.Label]) {
		if all, err = s.tidy(ctx, r.Name, all); err != nil {
			return nil, err
		}
	}
	before := 0
	if len(all) > 0 {
		before = all[0].Version
	}
	if err := s.installOrUpgrade(ctx, r, before); err != nil {
		return nil, s.undo(ctx, r, before, err)
	}
	if all, err = s.history(r.Name); err != nil {
		return nil, err
	}
	return s.state(all)
}

// tidy cleans up after a process that died during an operation. Afterwards the
// release is deployed, or does not exist.
func (s *session) tidy(ctx context.Context, name string, all []*release.Release) ([]*release.Release, error) {
	if len(all) == 0 || all[0].Info.Status == status.StatusDeployed {
		return all, nil
	}
	to := good(all, all[0].Version)
	var err error
	if all[0].Info.Status.IsPending() {
		all[0].SetStatus(status.StatusFailed, "It was interrupted")
		err = s.config.Releases.Update(all[0])
	}
	switch now := all[0].Info.Status; {
	case err != nil:
	case to == nil, now == status.StatusUninstalling, now == status.StatusUninstalled:
		err = s.uninstall(ctx, name)
	default:
		err = s.rollback(ctx, name, to.Version, "an upgrade was interrupted")
	}
	if err != nil {
		return nil, fmt.Errorf("clean up after an interrupted operation: %w", err)
	}
	return s.history(name)
}

// installOrUpgrade installs a release, or upgrades it from revision before if that is not 0.
func (s *session) installOrUpgrade(ctx context.Context, r Release, before int) error {
	loaded, err := r.Chart.load()
	if err != nil {
		return &FailedError{Invalid: true, Reason: err.Error()}
	}
	restore, err := s.render(ctx, r, loaded, before)
	if err != nil {
		return &FailedError{Invalid: errors.Is(err, tko.ErrInvalid), Reason: err.Error()}
	}
	if err := s.define(ctx, r, loaded, before > 0); err != nil {
		return &FailedError{Invalid: apierrors.IsInvalid(err) || errors.Is(err, tko.ErrInvalid), Reason: err.Error()}
	}
	rendered := false
	mark := &marker{
		labels: map[string]string{s.client.Label: r.Owner}, keep: s.client.Keep, adjust: s.adjust(r.Namespace),
		rendered: func() {
			restore() // Helm's record holds the original chart
			rendered = true
		},
	}
	if err := s.run(ctx, r, loaded, before > 0, mark); err != nil {
		return &FailedError{Invalid: !rendered, Reason: err.Error()}
	}
	return nil
}

// adjust returns the client's Adjust for a namespace.
func (s *session) adjust(namespace string) func(map[string]any) (map[string]any, error) {
	if s.client.Adjust == nil {
		return nil
	}
	return func(object map[string]any) (map[string]any, error) { return s.client.Adjust(namespace, object) }
}

// render replaces the chart's templates by their rendered text, so that the library
// renders plain text. Call restore to undo that.
func (s *session) render(ctx context.Context, r Release, loaded *chart.Chart, before int) (restore func(), err error) {
	values, err := json.Marshal(r.Values)
	if err != nil {
		return nil, err
	}
	capabilities, err := s.capabilities()
	if err != nil {
		return nil, err
	}
	apis := []string(capabilities.APIVersions)
	if r.CRDs != SkipCRDs { // definitions are applied before other objects
		apis = append(slices.Clone(apis), definedBy(loaded, func(group, kind string) bool { return r.CRDs == ReplaceCRDs || !hasKind(apis, group, kind) })...)
	}
	files, err := s.client.Renderer.render(ctx, r.Chart, task{
		Archive: r.Chart.archive, Files: r.Chart.files, Values: values, Name: r.Name, Namespace: r.Namespace,
		Revision: before + 1, Upgrade: before > 0, Kubernetes: capabilities.KubeVersion.Version, APIs: apis,
	}, s.lookup)
	if err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependencies(loaded, r.Values); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%s", err)
	}
	return prerendered(loaded, files), nil
}

// capabilities returns what templates can query about the cluster: its version and
// APIs.
func (s *session) capabilities() (*common.Capabilities, error) {
	client, err := s.at.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("read the cluster's version: %w", err)
	}
	apis, err := action.GetVersionSet(client)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("list the cluster's APIs: %w", err)
	}
	s.config.Capabilities = &common.Capabilities{
		APIVersions: apis, HelmVersion: common.DefaultCapabilities.HelmVersion,
		KubeVersion: common.KubeVersion{Version: version.GitVersion, Major: version.Major, Minor: version.Minor},
	}
	return s.config.Capabilities, nil
}

// hasKind returns whether a kind is among APIs, in any version.
func hasKind(apis []string, group, kind string) bool {
	return slices.ContainsFunc(apis, func(api string) bool { return strings.HasPrefix(api, group+"/") && strings.HasSuffix(api, "/"+kind) })
}

// definedBy returns the APIs that a chart's own definitions define, of the kinds that
// applied selects.
func definedBy(c *chart.Chart, applied func(group, kind string) bool) []string {
	var all []string
	for _, crd := range c.CRDObjects() {
		for _, text := range util.SplitManifests(string(crd.File.Data)) {
			var d struct {
				Spec struct {
					Group    string
					Names    struct{ Kind string }
					Versions []struct{ Name string }
				}
			}
			if yaml.Unmarshal([]byte(text), &d) != nil {
				continue // it is refused with the reason
			}
			if !applied(d.Spec.Group, d.Spec.Names.Kind) {
				continue
			}
			for _, v := range d.Spec.Versions {
				at := d.Spec.Group + "/" + v.Name
				all = append(all, at, at+"/"+d.Spec.Names.Kind)
			}
		}
	}
	return all
}

// lookup executes a template's lookup in the cluster.
func (s *session) lookup(l lookup) (map[string]any, error) {
	config, err := s.at.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return engine.NewLookupFunction(config)(l.APIVersion, l.Kind, l.Namespace, l.Name)
}

func (s *session) run(ctx context.Context, r Release, loaded *chart.Chart, there bool, mark *marker) error {
	labels := map[string]string{s.client.Label: r.Owner, LabelDigest: r.Digest}
	if there {
		a := action.NewUpgrade(s.config)
		a.Namespace, a.Labels, a.PostRenderer = r.Namespace, labels, mark
		a.WaitStrategy, a.WaitOptions, a.Timeout = kube.HookOnlyStrategy, waiting(ctx), s.client.Timeout
		a.ServerSideApply, a.ForceConflicts, a.TakeOwnership = "true", true, r.Adopt
		a.ResetValues, a.MaxHistory, a.DisableOpenAPIValidation, a.SkipSchemaValidation, a.SkipCRDs = true, maxHistory, true, true, true
		_, err := a.Run(r.Name, loaded, r.Values)
		return err
	}
	a := action.NewInstall(s.config)
	a.ReleaseName, a.Namespace, a.Labels, a.PostRenderer = r.Name, r.Namespace, labels, mark
	a.WaitStrategy, a.WaitOptions, a.Timeout = kube.HookOnlyStrategy, waiting(ctx), s.client.Timeout
	a.ForceConflicts, a.TakeOwnership, a.DisableOpenAPIValidation, a.SkipSchemaValidation, a.SkipCRDs = r.Adopt, r.Adopt, true, true, true
	_, err := a.Run(loaded, r.Values)
	return err
}

// undo restores the state from before a failed deployment. It returns a *FailedError,
// or cause if the connection failed or nothing was changed.
func (s *session) undo(ctx context.Context, r Release, before int, cause error) error {
	if s.away() != nil {
		return cause // the next operation cleans up
	}
	all, err := s.history(r.Name)
	if err != nil {
		return err
	}
	if len(all) == 0 || all[0].Version == before {
		return cause // nothing was changed
	}
	if before == 0 {
		if err := s.uninstall(ctx, r.Name); err != nil {
			return &FailedError{Reason: fmt.Sprintf("%s; its objects can't be removed: %s", cause, err)}
		}
		return &FailedError{Reason: cause.Error()}
	}
	if err := s.rollback(ctx, r.Name, before, "an upgrade failed"); err != nil {
		return &FailedError{Reason: fmt.Sprintf("%s; it can't be rolled back to revision %d: %s", cause, before, err)}
	}
	if all, err = s.history(r.Name); err != nil {
		return err
	}
	state, err := s.state(all)
	if err != nil {
		return err
	}
	return &FailedError{Reason: cause.Error(), State: state}
}

func (s *session) uninstall(ctx context.Context, name string) error {
	a := action.NewUninstall(s.config)
	a.IgnoreNotFound, a.WaitStrategy, a.WaitOptions, a.Timeout = true, kube.HookOnlyStrategy, waiting(ctx), s.client.Timeout
	_, err := a.Run(name)
	return err
}

func (s *session) rollback(ctx context.Context, name string, to int, why string) error {
	a := action.NewRollback(s.config)
	a.Version, a.WaitStrategy, a.WaitOptions, a.Timeout = to, kube.HookOnlyStrategy, waiting(ctx), s.client.Timeout
	a.ServerSideApply, a.ForceConflicts, a.MaxHistory = "true", true, maxHistory
	a.Description = fmt.Sprintf("Rollback to %d: %s", to, why)
	return a.Run(name)
}

// Rollback rolls a release back from revision from, which failed, to an earlier
// revision. It does nothing if that was done before.
func (c *Client) Rollback(ctx context.Context, namespace, name string, from, to int, why string) (*State, error) {
	s, err := c.begin(ctx, namespace)
	if err != nil {
		return nil, err
	}
	all, err := s.history(name)
	if err == nil && (len(all) == 0 || all[0].Version <= from || all[0].Info.Status != status.StatusDeployed) {
		if err = s.rollback(ctx, name, to, why); err == nil {
			all, err = s.history(name)
		}
	}
	if away := s.away(); err != nil && away != nil {
		return nil, away
	}
	if err != nil {
		return nil, &FailedError{Reason: err.Error()}
	}
	return s.state(all)
}

// Release returns the current state of a release; tko.ErrNotFound if it does not
// exist.
func (c *Client) Release(ctx context.Context, namespace, name string) (*State, error) {
	s, err := c.begin(ctx, namespace)
	if err != nil {
		return nil, err
	}
	all, err := s.history(name)
	if err == nil {
		if i := slices.IndexFunc(all, func(r *release.Release) bool { return r.Info.Status == status.StatusDeployed }); i > 0 {
			all = all[i:]
		}
		return s.state(all)
	}
	if away := s.away(); away != nil {
		return nil, away
	}
	return nil, err
}

// Uninstall removes a release and its objects, if it is owned. It does nothing if the
// release is not owned or does not exist.
func (c *Client) Uninstall(ctx context.Context, namespace, name string, owned func(string) bool) error {
	s, err := c.begin(ctx, namespace)
	if err != nil {
		return err
	}
	all, err := s.history(name)
	if err == nil && len(all) > 0 && owned(all[0].Labels[c.Label]) {
		err = s.uninstall(ctx, name)
	}
	if err == nil {
		return nil
	}
	if away := s.away(); away != nil {
		return away
	}
	return errors.New(strings.TrimPrefix(err.Error(), "uninstall: "))
}
