package prepare

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

// PropertyPlan is the property of a prepare plugin that says whether plans run it:
// [PlanPure] if its output depends on its input alone and it changes nothing else.
const (
	PropertyPlan = "_plan"
	PlanPure     = "pure"
)

// IsPure reports whether a plan may run a plugin. A plan launches no jobs of AWX.
func IsPure(p tko.Plugin) bool { return p.Properties[PropertyPlan] == PlanPure && !p.UsesAWX() }

// A View is the state that a simulation reads: topologies, children and plugins as of
// one position. It is only read.
type View interface {
	// Templates returns the templates that match, sorted by ID.
	Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error]
	// Sites returns the sites that match, sorted by ID.
	Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error]
	// Children returns the children of a deployment, without packages, sorted by ID.
	Children(ctx context.Context, parent tko.DeploymentID) iter.Seq2[tko.Deployment, error]
	// Revision returns a deployment as it was at a revision, 0 for the newest.
	Revision(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	// ReservedOrigins returns the origins of the children of a deployment that rollouts
	// deleted and can create again, with the rollouts.
	ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error)
	// Plugins returns the plugins that match, sorted by type and name.
	Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error]
}

// SimulationOptions are the settings of simulations. The zero value works.
type SimulationOptions struct {
	Runner        Runner // runs pure plugins; if nil, they aren't run
	ManualApprove bool   // as in [Options]
	MaxIterations int    // as in [Options]
}

// A Simulation is the result of preparing a deployment without changing anything.
type Simulation struct {
	Package  krm.Package // with the state in its Deployment resource
	Prepared bool
	Unknown  []string          // what only a real preparation can say, in the order of the package
	Problems []string          // why the preparation would fail
	Create   []tko.NewChildren // children that placements would create
	Delete   []tko.DeploymentID
	Commits  []Commit // the packages that the preparation would commit, in their order
	Pure     bool     // the result depends on the package, template and site of the deployment alone
}

// A Commit is a package that a simulated preparation would commit, with the steps since
// the one before.
type Commit struct {
	Package krm.Package
	Steps   []tko.PreparationStep
}

// Simulate prepares a deployment as [Preparer.Prepare] would, on a view, and changes
// nothing: plugins that aren't pure aren't run, no site is provisioned, and children are
// listed instead of created. What depends on them is unknown. Errors are those of the
// view.
func Simulate(ctx context.Context, view View, d tko.Deployment, options SimulationOptions) (Simulation, error) {
	if options.MaxIterations <= 0 {
		options.MaxIterations = 100
	}
	s := &simulator{view: view, runner: options.Runner, d: d, pure: true}
	p := &Preparer{
		client: s, runner: s,
		options: Options{MaxIterations: options.MaxIterations, ManualApprove: options.ManualApprove, Backoff: 1, MaxBackoff: 1, TOSCA: s},
		log:     slog.New(slog.DiscardHandler),
	}
	plugins, err := pluginsOf(ctx, view)
	if err != nil {
		return Simulation{}, err
	}
	rc := &reconciliation{p: p, d: d, plugins: plugins}
	if _, err := rc.run(tko.WithAuthor(ctx, tko.Author{Who: topology.Author})); err != nil {
		return Simulation{}, err
	}
	out := Simulation{Package: rc.d.Package, Unknown: s.unknown, Create: s.create, Delete: s.deleted, Commits: s.commits, Pure: s.pure}
	resource, err := rc.d.Package.Deployment()
	out.Prepared = err == nil && resource != nil && resource.IsPrepared()
	for _, id := range rc.failed {
		if !slices.Contains(s.later, id.String()) {
			out.Problems = append(out.Problems, rc.failures[id].message)
		}
	}
	if s.refused != "" {
		out.Problems = append(out.Problems, s.refused)
	}
	if !out.Prepared && len(out.Problems) == 0 {
		for _, w := range rc.waits {
			if len(s.unknown) == 0 { // it isn't known what it waits for
				out.Unknown = append(out.Unknown, w.message)
			}
		}
	}
	for _, id := range topology.Updating(out.Package) {
		if _, counted := out.Package.Find(id).Get("status", "deployments"); counted && len(s.create)+len(s.deleted) == 0 && !isPreparedIn(d.Package, id) {
			out.Unknown = append(out.Unknown, fmt.Sprintf("the children of %s: known after preparation, which evaluates it within its budget", id))
		}
	}
	return out, nil
}

// SimulatePlacements evaluates the placements of a prepared deployment that follow its
// sites, on a view, and changes nothing: it returns the children that they want and that
// don't exist, and the existing ones that they don't want, whatever their budget is.
func SimulatePlacements(ctx context.Context, view View, d tko.Deployment) (Simulation, error) {
	s := &simulator{view: view, d: d}
	plugins, err := pluginsOf(ctx, view)
	if err != nil {
		return Simulation{}, err
	}
	preparer := topology.Preparer{Client: s, Children: s}
	of := topology.Deployment{ID: d.ID, Revision: d.Stamp.Revision, Package: d.Package, Preparable: plugins.preparable}
	var out Simulation
	var found []topology.Review
	for _, id := range topology.Updating(d.Package) {
		one, err := preparer.Review(ctx, of, id)
		switch {
		case errors.Is(err, tko.ErrInvalid), isWaitError(err):
			out.Problems = append(out.Problems, err.Error())
		case err != nil:
			return Simulation{}, err
		default:
			found = append(found, one)
		}
	}
	if len(out.Problems) > 0 {
		return out, nil
	}
	topology.Adopt(found)
	for _, one := range found {
		create, remove := one.Changes()
		out.Create, out.Delete = append(out.Create, create...), append(out.Delete, remove...)
	}
	return out, nil
}

func isWaitError(err error) bool {
	_, ok := errors.AsType[*topology.WaitError](err)
	return ok
}

// pluginsOf returns the prepare plugins of a view.
func pluginsOf(ctx context.Context, view View) (triggerMap, error) {
	plugins := triggerMap{}
	typ := tko.PluginPrepare
	for plugin, err := range view.Plugins(ctx, tko.PluginSelect{Type: &typ}, tko.ListOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("list the prepare plugins: %w", err)
		}
		for _, gvk := range plugin.Triggers {
			plugins[gvk] = append(plugins[gvk], plugin)
		}
	}
	return plugins, nil
}

func isPreparedIn(pkg krm.Package, id krm.Identity) bool {
	r := pkg.Find(id)
	return r != nil && r.IsPrepared()
}

// A simulator is the client and runner of a simulated preparation: it reads from a view,
// and records writes.
type simulator struct {
	work.Client // nil: a simulation claims no work

	view   View
	runner Runner
	d      tko.Deployment

	pure    bool
	unknown []string
	later   []string // built-in resources that only a real preparation prepares
	create  []tko.NewChildren
	deleted []tko.DeploymentID
	commits []Commit
	refused string // the reason of the last unprepared condition
}

func (s *simulator) Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error] {
	s.pure = false
	return s.view.Templates(ctx, sel, options)
}

func (s *simulator) Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error] {
	s.pure = false
	return s.view.Sites(ctx, sel, options)
}

func (s *simulator) Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return s.view.Plugins(ctx, sel, options)
}

// About has no position: all that a simulation reads is as of one.
func (s *simulator) About(context.Context) (tko.About, error) { return tko.About{}, nil }

// Deployments returns children: preparation selects deployments by their parent only.
func (s *simulator) Deployments(ctx context.Context, sel tko.DeploymentSelect, _ tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	s.pure = false
	if s.d.Stamp.Revision == 0 { // it is to be created, too
		return func(func(tko.Deployment, error) bool) {}
	}
	return s.view.Children(ctx, sel.Parent)
}

func (s *simulator) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	s.pure = false
	return s.view.Revision(ctx, id, revision)
}

// CommitDeployment records the commit.
func (s *simulator) CommitDeployment(_ context.Context, commit tko.DeploymentCommit) (int64, error) {
	s.commits = append(s.commits, Commit{commit.Package, commit.Steps})
	return commit.Revision + 1, nil
}

func (s *simulator) SetConditions(_ context.Context, _ tko.Kind, _ string, conditions []tko.Condition) error {
	if c := tko.FindCondition(conditions, tko.ConditionPrepared); c != nil && c.Reason == ReasonTooManyIterations {
		s.refused = c.Message
	}
	return nil
}

func (s *simulator) CreateChildren(_ context.Context, children tko.NewChildren) ([]tko.DeploymentID, int, error) {
	s.pure = false
	children.Children = slices.Clone(children.Children)
	s.create = append(s.create, children)
	return nil, len(children.Children), nil
}

func (s *simulator) DeleteDeployment(_ context.Context, id tko.DeploymentID) (tko.Deleted, error) {
	s.pure = false
	s.deleted = append(s.deleted, id)
	return tko.Deleted{Count: 1}, nil
}

func (s *simulator) DeleteDeploymentAt(ctx context.Context, id tko.DeploymentID, _ int64) (tko.Deleted, error) {
	return s.DeleteDeployment(ctx, id)
}

func (s *simulator) ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error) {
	return s.view.ReservedOrigins(ctx, parent)
}

// ProposeRollout isn't called: simulations make no reviews that carry out changes.
func (s *simulator) ProposeRollout(context.Context, tko.RolloutID, krm.Package) (tko.RolloutStatus, error) {
	return tko.RolloutStatus{}, nil
}

// errUnprovisioned is what a simulation returns instead of a new site. It is an
// ErrInvalid so that only the resource fails.
var errUnprovisioned = tko.Errorf(tko.ErrInvalid, "plans provision no sites")

func (s *simulator) ProvisionSite(_ context.Context, site tko.NewSite) (tko.SiteID, bool, error) {
	s.pure = false
	for _, r := range s.d.Package {
		if r.GVK() == topology.SiteGVK && topology.SiteOrigin(s.d.ID, r.Name()) == site.Origin {
			s.later = append(s.later, r.Identity().String())
			s.unknown = append(s.unknown, fmt.Sprintf("%s: known after preparation (a site is provisioned)", r.Identity()))
		}
	}
	return "", false, errUnprovisioned
}

// ResolveSite isn't called: plans are of deployments.
func (s *simulator) ResolveSite(context.Context, tko.SiteID) (waits bool, err error) {
	return false, nil
}

// Resources compiles no service template: its location may be read by preparers only.
func (s *simulator) Resources(_ context.Context, location string) (krm.Package, error) {
	for _, r := range s.d.Package {
		if r.GVK() == topology.TOSCAGVK && r.Text("spec", "url") == location {
			s.later = append(s.later, r.Identity().String())
			s.unknown = append(s.unknown, fmt.Sprintf("%s: known after preparation (a service template is compiled)", r.Identity()))
		}
	}
	return nil, errUncompiled
}

var errUncompiled = errors.New("plans compile no service templates")

// Prepare runs pure plugins. The resource of another one stays unprepared.
func (s *simulator) Prepare(ctx context.Context, p tko.Plugin, target krm.Identity, id tko.DeploymentID, pkg krm.Package, notes ...func(string)) (prepared bool, out krm.Package, err error) {
	s.pure = false
	if !IsPure(p) || s.runner == nil {
		text := fmt.Sprintf("%s: known after preparation (plugin %q)", target, p.Name)
		if !slices.Contains(s.unknown, text) {
			s.unknown = append(s.unknown, text)
		}
		return false, nil, nil
	}
	prepared, out, err = s.runner.Prepare(ctx, p, target, id, pkg, notes...)
	if err != nil && errors.Is(err, tko.ErrUnavailable) {
		return false, nil, nil
	}
	return prepared, out, err
}
