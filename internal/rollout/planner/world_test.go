package planner_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/planner"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

// A world is a catalog with a planner, and preparation on request.
type world struct {
	*catalog.Service
	counted  *counted
	t        testing.TB
	ctx      context.Context
	log      *bytes.Buffer // of the catalog and of preparation, at all levels
	planner  *interrupted
	plugins  runner
	preparer *prepare.Preparer
	spec     spec.Rollout

	forget  bool                            // derivations weren't recorded
	applied map[tko.DeploymentID]plan.State // as if a rollout had applied them
}

// An interrupted is a planner with something that happens before a row is applied.
type interrupted struct {
	*planner.Planner

	meanwhile func()
	during    func() // at times while an impact is planned
}

func (p *interrupted) Impact(ctx context.Context, id tko.TemplateID, pkg krm.Package, emit func(plan.Draft) error) error {
	n := 0
	return p.Planner.Impact(ctx, id, pkg, func(d plan.Draft) error {
		n++
		if n%1000 == 0 && p.during != nil {
			p.during()
		}
		return emit(d)
	})
}

func (p *interrupted) After(ctx context.Context, r plan.Request, rows []plan.Pinned) iter.Seq2[plan.State, error] {
	if p.meanwhile != nil {
		p.meanwhile()
	}
	return p.Planner.After(ctx, r, rows)
}

// again makes the state of one row again.
func (w *world) again(d plan.Draft) (state plan.State, err error) {
	for state, err = range w.planner.After(w.ctx, w.request(), []plan.Pinned{{Row: d.Row, Pins: d.Pins}}) { // one
	}
	return state, err
}

// A snapshot is one of a catalog, with what a test changes of it.
type snapshot struct {
	planner.Snapshot
	w *world
}

func (s snapshot) Derivation(ctx context.Context, d planner.Deployment) (derivation.Record, bool) {
	if state, ok := s.w.applied[d.ID]; ok {
		r, err := derivation.Decode(state.Derived)
		return r, err == nil
	}
	if s.w.forget {
		return derivation.Record{}, false
	}
	return s.Snapshot.Derivation(ctx, d)
}

func (s snapshot) Deployments(ctx context.Context, sel tko.DeploymentSelect) iter.Seq2[planner.Deployment, error] {
	if len(s.w.applied) > 0 {
		sel = tko.DeploymentSelect{}
	}
	return func(yield func(planner.Deployment, error) bool) {
		for d, err := range s.Snapshot.Deployments(ctx, sel) {
			if state, ok := s.w.applied[d.ID]; ok {
				d.Deployment, d.Derived = state.Deployment, plan.Digest{1}
				d.Content, _, _ = krm.DigestOf(d.Package.WithoutDeploymentState())
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// A counted store counts what is read of rollouts and sites.
type counted struct {
	record.Store

	rows, sites atomic.Int64
}

func (c *counted) RolloutView(ctx context.Context, id string, known record.RowsAt) (record.RolloutView, error) {
	v, err := c.Store.RolloutView(ctx, id, known)
	c.rows.Add(int64(len(v.Rows)))
	return v, err
}

func (c *counted) RolloutCommandView(ctx context.Context, id string, filter record.RowFilter) (record.RolloutView, error) {
	v, err := c.Store.RolloutCommandView(ctx, id, filter)
	c.rows.Add(int64(len(v.Rows)))
	return v, err
}

func (c *counted) RolloutRows(ctx context.Context, id string, number int64, after string, limit int) ([]record.RolloutRow, error) {
	rows, err := c.Store.RolloutRows(ctx, id, number, after, limit)
	c.rows.Add(int64(len(rows)))
	return rows, err
}

func (c *counted) Get(ctx context.Context, fields record.Fields, keys ...record.Key) ([]record.Record, error) {
	for _, k := range keys {
		if k.Kind == tko.KindSite {
			c.sites.Add(1)
		}
	}
	return c.Store.Get(ctx, fields, keys...)
}

func newWorld(t testing.TB) *world { return newWorldWith(t, catalog.Options{}) }

func newWorldWith(t testing.TB, options catalog.Options) *world {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	validator, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	counted, log := &counted{Store: store}, new(bytes.Buffer)
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	options.Log = logger
	w := &world{
		Service: catalog.New(counted, validator, options), counted: counted, t: t, ctx: t.Context(), log: log, plugins: runner{},
		spec: spec.Rollout{Conflicts: merge.Fail},
	}
	w.preparer = prepare.New(client{w.Service}, w.plugins, prepare.Options{Log: logger})
	open := planner.OnCatalog(w.Service)
	w.planner = &interrupted{Planner: planner.New(func(ctx context.Context) (planner.Snapshot, error) {
		s, err := open(ctx)
		return snapshot{s, w}, err
	}, planner.Options{Runner: w.plugins})}
	w.PlanWith(w.planner)
	return w
}

// A client is a catalog as preparers use it.
type client struct{ *catalog.Service }

func (c client) About(ctx context.Context) (tko.About, error) {
	position, err := c.Position(ctx)
	return tko.About{Position: position}, err
}

// A runner runs plugins by name, and counts their runs.
type runner map[string]*plugin

type plugin struct {
	runs int
	do   func(target krm.Identity, id tko.DeploymentID, pkg krm.Package) krm.Package
}

func (r runner) Prepare(_ context.Context, p tko.Plugin, target krm.Identity, id tko.DeploymentID, pkg krm.Package, _ ...func(string)) (bool, krm.Package, error) {
	one := r[p.Name]
	if one == nil {
		return false, nil, fmt.Errorf("no plugin %q", p.Name)
	}
	one.runs++
	clone := make(krm.Package, len(pkg))
	for i := range pkg {
		clone[i] = pkg[i].Clone()
	}
	return true, one.do(target, id, clone), nil
}

func read(t testing.TB, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

func write(t testing.TB, p krm.Package) string {
	t.Helper()
	text, err := krm.Encode(krm.YAML, p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// config is a ConfigMap.
func config(name, data string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}, data: {" + data + "}}\n---\n"
}

func (w *world) template(id, yaml string) {
	w.t.Helper()
	if _, err := w.RegisterTemplate(w.ctx, tko.Template{ID: tko.TemplateID(id), Package: read(w.t, yaml)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) site(id string, metadata map[string]string) {
	w.t.Helper()
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: tko.SiteID(id), Metadata: metadata}); err != nil {
		w.t.Fatal(err)
	}
}

// plugin registers the plugin "p".
func (w *world) plugin(kind krm.GVK, properties map[string]string, do func(target krm.Identity, id tko.DeploymentID, pkg krm.Package) krm.Package) {
	w.t.Helper()
	if _, err := w.RegisterPlugin(w.ctx, tko.Plugin{
		Type: tko.PluginPrepare, Name: "p", Executor: tko.ExecutorCommand, Arguments: []string{"x"}, Properties: properties, Triggers: []krm.GVK{kind},
	}); err != nil {
		w.t.Fatal(err)
	}
	w.plugins["p"] = &plugin{do: do}
}

// deploy creates a deployment, and prepares it and its descendants.
func (w *world) deploy(template, merged, site string) tko.DeploymentID {
	w.t.Helper()
	request := tko.NewDeployment{Template: tko.TemplateID(template), Site: tko.SiteID(site)}
	if merged != "" {
		request.Merge = read(w.t, merged)
	}
	id, err := w.CreateDeployment(w.ctx, request)
	if err != nil {
		w.t.Fatal(err)
	}
	w.prepare(id)
	return id
}

func (w *world) prepare(id tko.DeploymentID) {
	w.t.Helper()
	w.preparer.Prepare(w.ctx, tko.WorkItem{Key: string(id)})
	for child, err := range w.Deployments(w.ctx, tko.DeploymentSelect{Parent: id}, tko.ListOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		w.prepare(child.ID)
	}
}

func (w *world) deployment(id tko.DeploymentID) tko.Deployment {
	w.t.Helper()
	d, err := w.Deployment(w.ctx, id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// edit changes the package of a deployment as a user does.
func (w *world) edit(id tko.DeploymentID, change func(krm.Package) krm.Package) {
	w.t.Helper()
	w.editFor(id, "", change)
}

// editFor edits a deployment for a reason.
func (w *world) editFor(id tko.DeploymentID, reason string, change func(krm.Package) krm.Package) {
	w.t.Helper()
	ctx := tko.WithAuthor(w.ctx, tko.Author{Who: "ann", Why: reason})
	m, err := w.StartModification(ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, _, err := w.EndModification(ctx, m.Token, change(m.Package)); err != nil {
		w.t.Fatal(err)
	}
}

// set returns a change that sets a field of a resource.
func set(t testing.TB, id string, value any, path ...string) func(krm.Package) krm.Package {
	return func(p krm.Package) krm.Package {
		for _, r := range p {
			if r.Identity().String() == id {
				r.Set(value, path...)
				return p
			}
		}
		t.Fatalf("there is no %s", id)
		return nil
	}
}

func (w *world) request() plan.Request { return plan.Request{Rollout: "r", Spec: w.spec} }

// upgrade sets the spec to one upgrade.
func (w *world) upgrade(from, to string) {
	w.spec.Edits = []spec.Edit{{Upgrade: &spec.Upgrade{To: tko.TemplateID(to)}, Select: tko.DeploymentSelect{Templates: []string{from}}}}
}

// plan plans, and returns the drafts by ID.
func (w *world) plan() map[tko.DeploymentID]plan.Draft {
	w.t.Helper()
	drafts := map[tko.DeploymentID]plan.Draft{}
	if err := w.planner.Plan(w.ctx, w.request(), func(d plan.Draft) error {
		if _, twice := drafts[d.Deployment]; twice {
			w.t.Errorf("deployment %s is planned twice", d.Deployment)
		}
		drafts[d.Deployment] = d
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return drafts
}

// one plans, and returns the only draft.
func (w *world) one() plan.Draft {
	w.t.Helper()
	all := w.plan()
	if len(all) != 1 {
		w.t.Fatalf("%d deployments are planned, want 1", len(all))
	}
	for _, d := range all {
		return d
	}
	return plan.Draft{}
}

// after returns the package after, without bookkeeping, as YAML.
func after(t testing.TB, d plan.Draft) string {
	t.Helper()
	if d.AfterState == nil {
		t.Fatalf("%s: %v %v", d.Kind, d.Findings, d.Unknown)
	}
	pkg := merge.WithoutBookkeeping(d.AfterState.Deployment.Package)
	return write(t, slices.DeleteFunc(pkg, func(r krm.Resource) bool { return r.GVK() == krm.DeploymentGVK }))
}
