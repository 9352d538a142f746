package planner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/segmentio/ksuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// Options are the settings of a planner. The zero value works.
type Options struct {
	Runner        prepare.Runner // runs pure plugins and functions; if nil, none is run
	ManualApprove bool           // as in prepare.Options
	Memory        int            // bytes of memory for results; 16 MiB if 0
	MaxRows       int            // rows of a plan; 1,000,000 if 0
}

// A Planner makes plans. It is safe for concurrent use, and writes nothing.
type Planner struct {
	open    func(ctx context.Context) (Snapshot, error)
	options Options

	mutex  sync.Mutex
	newest declared // of the newest request with manifests
}

var _ plan.Planner = (*Planner)(nil)

// New returns a planner. open returns a snapshot at the newest position.
func New(open func(ctx context.Context) (Snapshot, error), options Options) *Planner {
	if options.Memory <= 0 {
		options.Memory = 16 << 20
	}
	if options.MaxRows <= 0 {
		options.MaxRows = 1_000_000
	}
	return &Planner{open: open, options: options}
}

// Plan calls emit once for each deployment that an edit selects, as of one snapshot:
// first for those that edits delete, then for the others, each in the order of IDs. The
// drafts of deployments that are created or deleted with another one follow that one. The
// drafts have no Wave, Rank and Group.
func (p *Planner) Plan(ctx context.Context, r plan.Request, emit func(plan.Draft) error) error {
	run, err := p.start(ctx, r, nil)
	if err != nil {
		return err
	}
	run.emit = emit
	defer run.wait()
	if err := run.deletions(ctx); err != nil {
		return err
	}
	for d, edits := range run.selected(ctx) {
		if edits.err != nil {
			return edits.err
		}
		if r.Only != nil && !r.Only(d.ID) || run.seen[d.ID] {
			continue
		}
		if err := run.deployment(ctx, d, edits.list); err != nil {
			return fmt.Errorf("plan deployment %q: %w", d.ID, err)
		}
	}
	if err := run.settle(0); err != nil {
		return err
	}
	return run.creations(ctx)
}

// Row makes the draft of a row again, from the deployment at the row's revision and the
// pinned revisions. An [tko.ErrConflict] means that the row isn't planned any more.
func (p *Planner) Row(ctx context.Context, r plan.Request, row plan.Row, pins []plan.Pin) (plan.Draft, error) {
	one := again{planner: p, request: r}
	return one.draft(ctx, plan.Pinned{Row: row, Pins: pins})
}

// A run makes one plan, or rows of one again.
type run struct {
	*Planner
	snapshot Snapshot
	request  plan.Request
	types    merge.Types // of the snapshot
	plugins  map[string]tko.Plugin
	pins     map[plan.Pin]int64 // by kind and ID, of rows that are made again
	emit     func(plan.Draft) error

	pending   []*pending                  // changes that are being validated, in their order
	seen      map[tko.DeploymentID]bool   // emitted already, with another deployment
	named     map[string]tko.DeploymentID // by origin, as they were found; "" if there is none
	rows      int
	templates map[templateKey]tko.Template
	lineages  map[plan.Digest]lineage
	results   *memo
}

type templateKey struct {
	id       tko.TemplateID
	revision int64
}

func (p *Planner) start(ctx context.Context, r plan.Request, pins []plan.Pin) (*run, error) {
	snapshot, err := p.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a snapshot: %w", err)
	}
	kubernetes, err := merge.Kubernetes()
	if err != nil {
		return nil, err
	}
	custom, err := snapshot.Types(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the custom resource definitions: %w", err)
	}
	run := &run{
		Planner: p, snapshot: snapshot, request: r, types: kubernetes, plugins: map[string]tko.Plugin{}, pins: map[plan.Pin]int64{},
		seen: map[tko.DeploymentID]bool{}, named: map[string]tko.DeploymentID{}, templates: map[templateKey]tko.Template{}, lineages: map[plan.Digest]lineage{}, results: newMemo(p.options.Memory),
	}
	if custom != nil {
		run.types = merge.First(custom, kubernetes)
	}
	for _, pin := range pins {
		run.pins[plan.Pin{Kind: pin.Kind, ID: pin.ID}] = pin.Revision
	}
	typ := tko.PluginPrepare
	for plugin, err := range snapshot.Plugins(ctx, tko.PluginSelect{Type: &typ}, tko.ListOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("list the prepare plugins: %w", err)
		}
		run.plugins[plugin.Name] = plugin
	}
	return run, nil
}

// template returns a template at a revision; 0 is that of the snapshot or the pins.
func (p *run) template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	if revision == 0 {
		revision = p.pins[plan.Pin{Kind: tko.KindTemplate, ID: string(id)}]
	}
	key := templateKey{id, revision}
	if t, ok := p.templates[key]; ok {
		return t, nil
	}
	t, err := p.snapshot.Template(ctx, id, revision)
	if err != nil {
		return t, err
	}
	if len(p.templates) == maxTemplates {
		clear(p.templates)
	}
	p.templates[key] = t
	return t, nil
}

// maxTemplates bounds the templates that a run keeps in memory.
const maxTemplates = 50

// edits are the edits that select a deployment, in their order.
type edits struct {
	list []int
	err  error
}

// selected returns the deployments that edits select, in the order of IDs.
func (p *run) selected(ctx context.Context) iter.Seq2[Deployment, edits] {
	return func(yield func(Deployment, edits) bool) {
		type stream struct {
			next func() (Deployment, error, bool)
			head Deployment
			edit int
		}
		var streams []*stream
		advance := func(s *stream) error {
			d, err, ok := s.next()
			if !ok {
				streams = slices.DeleteFunc(streams, func(one *stream) bool { return one == s })
				return nil
			}
			s.head = d
			return err
		}
		for i, e := range p.request.Spec.Edits {
			s := &stream{edit: i}
			if e.Delete {
				continue // see deletions
			}
			next, stop := iter.Pull2(p.matching(ctx, e))
			defer stop()
			s.next = next
			streams = append(streams, s)
			if err := advance(s); err != nil {
				yield(Deployment{}, edits{err: fmt.Errorf("select the deployments of edit %d: %w", i+1, err)})
				return
			}
		}
		for len(streams) > 0 {
			first := slices.MinFunc(streams, func(a, b *stream) int { return cmp.Compare(a.head.ID, b.head.ID) })
			d, found := first.head, edits{}
			for _, s := range slices.Clone(streams) {
				if s.head.ID != d.ID {
					continue
				}
				found.list = append(found.list, s.edit)
				if err := advance(s); err != nil {
					yield(Deployment{}, edits{err: fmt.Errorf("select the deployments of edit %d: %w", s.edit+1, err)})
					return
				}
			}
			if !yield(d, found) {
				return
			}
		}
	}
}

// matching returns the deployments that one edit selects.
func (p *run) matching(ctx context.Context, e spec.Edit) iter.Seq2[Deployment, error] {
	if e.Deployments != nil {
		return func(yield func(Deployment, error) bool) {
			for _, id := range e.Deployments {
				if d, err := p.snapshot.Deployment(ctx, id, 0); !yield(d, err) || err != nil {
					return
				}
			}
		}
	}
	if e.Manifests != nil {
		return p.declaring(ctx, e.Manifests, false)
	}
	if e.Package == nil {
		return p.snapshot.Deployments(ctx, e.Select)
	}
	return func(yield func(Deployment, error) bool) {
		yield(p.snapshot.Deployment(ctx, e.Package.Deployment, 0))
	}
}

// deletions plans the deletions first: what is deleted isn't changed.
func (p *run) deletions(ctx context.Context) error {
	for i, e := range p.request.Spec.Edits {
		var list iter.Seq2[Deployment, error]
		switch {
		case e.Delete:
			list = p.matching(ctx, e)
		case e.Manifests != nil:
			list = p.declaring(ctx, e.Manifests, true)
		default:
			continue
		}
		for d, err := range list {
			if err != nil {
				return fmt.Errorf("select the deployments of edit %d: %w", i+1, err)
			}
			if p.seen[d.ID] || p.request.Only != nil && !p.request.Only(d.ID) {
				continue
			}
			if err := p.removeAll(ctx, d, "", []uint8{uint8(i)}); err != nil { //nolint:gosec // at most spec.MaxEdits
				return err
			}
		}
	}
	return nil
}

// removeAll plans the deletion of a deployment and its descendants.
func (p *run) removeAll(ctx context.Context, d Deployment, root tko.DeploymentID, edits []uint8) error {
	if p.seen[d.ID] {
		return nil
	}
	p.seen[d.ID] = true
	if err := p.delete(d, root, edits); err != nil {
		return err
	}
	top := cmp.Or(root, d.ID)
	for child, err := range p.snapshot.Children(ctx, d.ID) {
		if err != nil {
			return fmt.Errorf("list the children of deployment %q: %w", d.ID, err)
		}
		full, err := p.snapshot.Deployment(ctx, child.ID, child.Stamp.Revision)
		if err != nil {
			return fmt.Errorf("read deployment %q: %w", child.ID, err)
		}
		if err := p.removeAll(ctx, full, top, edits); err != nil {
			return err
		}
	}
	return nil
}

func (p *run) remove(d Deployment, root tko.DeploymentID) { _ = p.delete(d, root, nil) }

func (p *run) delete(d Deployment, root tko.DeploymentID, edits []uint8) error {
	before := stateOf(d)
	draft := draftOf(d)
	draft.Row = plan.Row{
		Deployment: d.ID, UID: d.Stamp.UID, Revision: d.Stamp.Revision, Kind: plan.Delete, Wave: plan.NoWave, Before: before.Digest, Root: root, Edits: edits,
	}
	draft.BeforeState = &before
	return p.send(draft)
}

// send emits a draft.
func (p *run) send(d plan.Draft) error {
	p.rows++
	if p.rows > p.options.MaxRows {
		return tko.Errorf(tko.ErrInvalid, "the plan has more than %d deployments: select fewer, or make several rollouts", p.options.MaxRows)
	}
	slices.SortFunc(d.Pins, func(a, b plan.Pin) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
	d.Pins = slices.Compact(d.Pins)
	return p.emit(d)
}

func stateOf(d Deployment) plan.State {
	return plan.State{Deployment: d.Deployment, Digest: plan.StateDigest(d.Content, d.Deployment), Encoded: d.Encoded, Content: d.Content, Derived: d.Derivation}
}

func draftOf(d Deployment) plan.Draft {
	return plan.Draft{Key: string(d.ID), Site: d.Site, Parent: d.Parent, Broken: tko.Unhealthy(d.Stamp.Conditions)}
}

// newID returns the ID of a deployment that a plan creates: planning again gives the
// same one. It sorts after its parent.
func newID(rollout string, parent tko.DeploymentID, origin string) tko.DeploymentID {
	h := hasher{}
	for _, s := range []string{"planned deployment", rollout, string(parent), origin} {
		h.text(s)
	}
	sum := sha256.Sum256(h.sum)
	at, err := ksuid.Parse(string(parent))
	if err != nil {
		at = ksuid.Nil
	}
	id, err := ksuid.FromParts(at.Time(), sum[:16])
	if err != nil {
		return ""
	}
	if ksuid.Compare(id, at) <= 0 {
		if id, err = ksuid.FromParts(at.Time().Add(1e9), sum[:16]); err != nil {
			return ""
		}
	}
	return tko.DeploymentID(id.String())
}

// findingsOf returns the findings of a package that isn't valid; ok is false if it is
// another error.
func findingsOf(err error) (findings []string, ok bool) {
	if !errors.Is(err, tko.ErrInvalid) {
		return nil, false
	}
	if invalid, ok := errors.AsType[*tko.InvalidPackageError](err); ok {
		for _, f := range invalid.Findings {
			findings = append(findings, f.String())
		}
		return bounded(findings), true
	}
	return []string{err.Error()}, true
}

// maxFindings is the maximum number of findings of a row.
const maxFindings = 20

func bounded(findings []string) []string {
	if len(findings) > maxFindings {
		return append(slices.Clone(findings[:maxFindings]), fmt.Sprintf("and %d more", len(findings)-maxFindings))
	}
	return findings
}
