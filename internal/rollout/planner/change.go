package planner

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// deployment plans the change of a deployment, and of the children that come and go with
// it.
func (p *run) deployment(ctx context.Context, d Deployment, edits []int) error {
	p.seen[d.ID] = len(p.request.Spec.Edits) > 1 || p.seen[d.ID]
	before := stateOf(d)
	draft := draftOf(d)
	draft.Row = plan.Row{Deployment: d.ID, UID: d.Stamp.UID, Revision: d.Stamp.Revision, Wave: plan.NoWave, Before: before.Digest}
	draft.BeforeState = &before
	for _, n := range edits {
		draft.Edits = append(draft.Edits, uint8(n)) //nolint:gosec // at most spec.MaxEdits
	}
	c, err := p.changed(ctx, d, edits)
	if err != nil {
		return err
	}
	draft.Pins = append(draft.Pins, c.pins...)
	draft.Unknown = c.unknown
	if c.manifest != nil {
		draft.Site = c.manifest.Site
	}
	if len(c.conflicts)+len(c.problems) > 0 || c.same {
		if err := p.settle(0); err != nil { // in the order of IDs
			return err
		}
	}
	switch {
	case len(c.conflicts) > 0:
		draft.Kind, draft.Findings = plan.Conflict, bounded(c.conflicts)
		return p.send(draft)
	case len(c.problems) > 0:
		draft.Kind, draft.Findings = plan.Invalid, bounded(c.problems)
		return p.send(draft)
	case c.same:
		draft.Kind, draft.After, draft.AfterState, draft.Unknown = plan.Same, before.Digest, &before, nil
		if err := p.send(draft); err != nil {
			return err
		}
		return p.family(ctx, ancestry{root: d.ID, pins: pinsOf(c, d), edits: draft.Edits}, c)
	}
	// Validation takes most of the time: it goes on while the next deployments are merged.
	one := &pending{draft: draft, changed: c, before: d, done: make(chan struct{})}
	go func() {
		defer close(one.done)
		one.stored, one.err = p.snapshot.Changed(ctx, d, Change{Package: c.pkg, From: c.from, Derivation: c.derivation, Manifest: c.manifest})
	}()
	p.pending = append(p.pending, one)
	one.ctx = ctx
	if len(c.create)+len(c.remove) > 0 {
		return p.settle(0) // its children follow at once
	}
	return p.settle(maxPending)
}

// maxPending is the number of changes that are validated at once.
var maxPending = 2 * runtime.GOMAXPROCS(0)

// A pending is a change that is being validated.
type pending struct {
	ctx     context.Context //nolint:containedctx // of the plan, which waits for it
	draft   plan.Draft
	changed changed
	before  Deployment
	stored  Deployment
	err     error
	done    chan struct{} // closed when stored or err is set
}

// settle waits for the oldest changes until at most so many are pending, and emits them.
func (p *run) settle(most int) error {
	for len(p.pending) > most {
		one := p.pending[0]
		p.pending = p.pending[1:]
		<-one.done
		if err := p.settled(one); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for the changes that are pending, after an error.
func (p *run) wait() {
	for _, one := range p.pending {
		<-one.done
	}
}

func (p *run) settled(one *pending) error {
	draft, c := one.draft, one.changed
	if findings, invalid := findingsOf(one.err); invalid {
		draft.Kind, draft.Findings = plan.Invalid, findings
		return p.send(draft)
	}
	if one.err != nil {
		return one.err
	}
	after := stateOf(one.stored)
	after.Manifest = c.manifest
	draft.Kind, draft.After, draft.AfterState = plan.Change, after.Digest, &after
	if after.Digest == draft.Before {
		draft.Kind, draft.Unknown = plan.Same, nil
	}
	if err := p.send(draft); err != nil || draft.Kind == plan.Same {
		return err
	}
	return p.family(one.ctx, ancestry{root: one.before.ID, pins: pinsOf(c, one.before), edits: draft.Edits}, c)
}

// pinsOf returns the pins of what comes and goes with a changed deployment.
func pinsOf(c changed, d Deployment) []plan.Pin {
	return append(slices.Clone(c.pins), plan.Pin{Kind: tko.KindDeployment, ID: string(d.ID), Revision: d.Stamp.Revision})
}

// A changed is the planned package of a deployment.
type changed struct {
	pkg       krm.Package // with the state in its Deployment resource
	from      *tko.Template
	same      bool
	conflicts []string
	problems  []string
	unknown   []string
	pins      []plan.Pin
	create    []tko.NewChildren
	remove    []tko.DeploymentID
	dependent bool           // the result depends on more than the lineage, package and state
	manifest  *spec.Manifest // that the deployment is made from; nil: others edits change it

	commits            []prepare.Commit   // of the planned preparation, until derivation is set
	derivation         *derivation.Record // what pkg is made from; nil if it isn't known
	template           tko.TemplateID
	prepared, approved bool // as in pkg
}

// changed returns the package of a deployment after edits. Results that depend on the
// lineage, package and edits alone are made once.
func (p *run) changed(ctx context.Context, d Deployment, list []int) (changed, error) {
	l, err := p.lineage(ctx, d)
	if err != nil {
		return changed{}, err
	}
	key := memoKey(d, l, list)
	if c, ok := p.results.get(key); ok {
		if !c.same && c.pkg != nil {
			c.pkg = c.pkg.WithDeployment(string(c.template), string(d.Site), c.prepared, c.approved)
		}
		return c, nil
	}
	c, err := p.edit(ctx, d, l, list)
	if err == nil && !c.dependent {
		p.results.put(key, c)
	}
	return c, err
}

func memoKey(d Deployment, l lineage, list []int) string {
	h := hasher{}
	h.sum = append(h.sum, d.Content[:]...)
	h.sum = append(h.sum, l.key[:]...)
	h.text(string(d.Template))
	h.number(map[bool]int64{true: 1}[d.Prepared] + 2*map[bool]int64{true: 1}[d.Approved])
	for _, n := range list {
		h.number(int64(n))
	}
	return string(h.sum)
}

// edit applies edits to a deployment: what preparation made is taken off, the edits are
// merged, and preparation is put back or made again.
func (p *run) edit(ctx context.Context, d Deployment, l lineage, list []int) (changed, error) {
	c := changed{}
	of := editing{d: d, l: l, types: p.types, policy: p.request.Spec.Conflicts}
	if own := merge.Custom(d.Package); len(own) > 0 {
		of.types = merge.First(own, of.types)
	}
	current, later, err := of.unprepared()
	if err != nil {
		c.problems = []string{err.Error()}
		return c, nil //nolint:nilerr // the row reports it
	}
	template := d.Template
	merged := current
	for _, n := range list {
		e := p.request.Spec.Edits[n]
		var err error
		switch {
		case e.Upgrade != nil:
			template = e.Upgrade.To
			merged, err = p.upgrade(ctx, &c, of, merged, e.Upgrade.To)
		case e.Function != nil:
			merged, err = p.function(ctx, d.ID, merged, *e.Function)
			c.dependent = true
		case e.Place:
			c.dependent = true
			if len(list) > 1 {
				c.problems = append(c.problems, fmt.Sprintf("edit %d evaluates placements of a deployment that other edits change, too: make several rollouts", n+1))
				return c, nil
			}
			return c, p.place(ctx, &c, d.Deployment)
		case e.Manifests != nil:
			if len(list) > 1 {
				c.problems = append(c.problems, fmt.Sprintf("edit %d makes a deployment from its manifest that other edits change, too: make several rollouts", n+1))
				return c, nil
			}
			c.dependent = true
			template, merged, err = p.manifest(ctx, &c, d.ID)
		case e.Package != nil:
			merged = merge.WithoutBookkeeping(e.Package.Resources)
		default:
			merged, err = krm.Merge(merged, krm.ForChild(e.Merge))
			merged = merge.WithoutBookkeeping(merged)
		}
		if refused, ok := err.(*refusal); ok { //nolint:errorlint // ours, never wrapped
			c.conflicts = append(c.conflicts, refused.findings...)
			return c, nil
		}
		if errors.Is(err, tko.ErrInvalid) {
			c.problems = append(c.problems, fmt.Sprintf("edit %d: %v", n+1, err))
			return c, nil
		}
		if err != nil {
			return c, err
		}
	}
	changes := merge.Differences(current, merged, of.types)
	site := d.Site
	if c.manifest != nil {
		site = c.manifest.Site
	}
	if len(changes) == 0 && c.from == nil && template == d.Template && site == d.Site && c.manifest == nil {
		c.same = true
		return c, nil
	}
	pkg, back, conflicts := p.reprepared(of, later, merged, changedIn(changes))
	if of.policy == merge.Fail && len(conflicts) > 0 {
		c.conflicts = conflicts
		return c, nil
	}
	prepared := d.Deployment
	prepared.Template, prepared.Site = template, site
	prepared.Package = pkg.WithDeployment(string(template), string(site), false, d.Approved)
	prepared.Prepared = false
	if err := p.prepare(ctx, &c, prepared); err != nil {
		return c, err
	}
	c.derivation = p.derived(of, c, back, prepared.Package)
	c.commits = nil
	return c, nil
}

// An editing is a deployment that is being edited, what it was made from, and how its
// resources are merged.
type editing struct {
	d      Deployment
	l      lineage
	types  merge.Types
	policy merge.Policy
}

// derived returns what the planned package is made from; nil if that isn't known.
func (p *run) derived(of editing, c changed, back []derivation.Step, unprepared krm.Package) *derivation.Record {
	d, l := of.d, of.l
	if c.manifest == nil && l.lost != "" || (c.manifest != nil || c.template != d.Template) && c.from == nil {
		return nil
	}
	r := derivation.Record{Template: l.from.ID, Revision: l.from.Stamp.Revision, Merge: l.merge, Steps: back}
	if c.manifest != nil {
		r.Merge = c.manifest.Package
	}
	if c.from != nil {
		r.Template, r.Revision = c.from.ID, c.from.Stamp.Revision
	}
	before := unprepared
	for _, commit := range append(slices.Clip(c.commits), prepare.Commit{Package: c.pkg}) {
		r, _ = r.After(before, commit.Package, of.types, func(id krm.Identity) (string, int64) {
			for _, step := range slices.Backward(commit.Steps) {
				if step.Plugin != "" && step.Resource == id.String() {
					return step.Plugin, p.plugins[step.Plugin].Stamp.Revision
				}
			}
			return "", 0
		})
		before = commit.Package
	}
	return &r
}

// prepare prepares the planned package as far as plans do.
func (p *run) prepare(ctx context.Context, c *changed, d tko.Deployment) error {
	s, err := prepare.Simulate(ctx, view{p}, d, prepare.SimulationOptions{Runner: p.options.Runner, ManualApprove: p.options.ManualApprove})
	if err != nil {
		return err
	}
	c.commits = s.Commits
	c.pkg, c.unknown, c.problems = s.Package, s.Unknown, append(c.problems, s.Problems...)
	c.create, c.remove = s.Create, s.Delete
	c.template = d.Template
	if resource, err := c.pkg.Deployment(); err == nil && resource != nil {
		if state, err := krm.ReadDeployment(resource); err == nil {
			c.prepared, c.approved = state.Prepared != nil && *state.Prepared, state.Approved != nil && *state.Approved
		}
	}
	c.dependent = c.dependent || !s.Pure
	return nil
}

// place evaluates the placements of a deployment that follow its sites.
func (p *run) place(ctx context.Context, c *changed, d tko.Deployment) error {
	s, err := prepare.SimulatePlacements(ctx, view{p}, d)
	if err != nil {
		return err
	}
	c.same, c.problems, c.create, c.remove = true, s.Problems, s.Create, s.Delete
	return nil
}

// A refusal is conflicts that block a row.
type refusal struct{ findings []string }

func (r *refusal) Error() string { return strings.Join(r.findings, "; ") }

// upgrade merges a new template into a package.
func (p *run) upgrade(ctx context.Context, c *changed, of editing, current krm.Package, id tko.TemplateID) (krm.Package, error) {
	l := of.l
	if l.lost != "" {
		return nil, &refusal{[]string{l.lost}}
	}
	to, err := p.template(ctx, id, 0)
	if errors.Is(err, tko.ErrNotFound) {
		return nil, tko.Errorf(tko.ErrInvalid, "the template %q does not exist: register it, or name another one", id)
	}
	if err != nil {
		return nil, fmt.Errorf("read template %q: %w", id, err)
	}
	c.pins = append(c.pins, plan.Pin{Kind: tko.KindTemplate, ID: string(id), Revision: to.Stamp.Revision})
	if l.from.ID == to.ID && l.from.Stamp.Revision == to.Stamp.Revision {
		return current, nil
	}
	edit, err := l.edit(to.Package)
	if err != nil {
		return nil, err
	}
	result, err := merge.Packages(merge.Sides{Base: merge.WithoutBookkeeping(l.base), Edit: edit, Current: current}, of.types, of.policy)
	if err != nil {
		return nil, err
	}
	if result.Blocked {
		findings := make([]string, len(result.Conflicts))
		for i, conflict := range result.Conflicts {
			findings[i] = conflict.String()
		}
		return nil, &refusal{findings}
	}
	c.from = &to
	return result.Package, nil
}

// edit returns what a new template gives with the merge of the deployment's creation.
func (l lineage) edit(to krm.Package) (krm.Package, error) {
	edit, err := krm.Merge(to, l.merge)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "what the deployment was created with can't be merged into the template: %w", err)
	}
	return merge.WithoutBookkeeping(edit), nil
}

// function runs a KRM function on a package.
func (p *run) function(ctx context.Context, id tko.DeploymentID, pkg krm.Package, f spec.Function) (krm.Package, error) {
	if p.options.Runner == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the function %q can't be run: this planner runs no functions", f.Image)
	}
	data := map[string]any{}
	maps.Copy(data, f.Config)
	carrier := krm.Resource{ // the kpt executor reads a function's config from a resource
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "RolloutFunction", "metadata": map[string]any{"name": "function"},
		"spec": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "function-config"}, "data": data},
	}
	plugin := tko.Plugin{
		Type: tko.PluginPrepare, Name: "rollout", Executor: tko.ExecutorKpt, Arguments: []string{f.Image},
		Properties: map[string]string{tko.FunctionConfig: "spec"},
	}
	if f.Config == nil {
		plugin.Properties = nil
	}
	target := carrier.Identity()
	prepared, out, err := p.options.Runner.Prepare(ctx, plugin, target, id, append(slices.Clip(pkg), carrier))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "function %q: %w", f.Image, err)
	}
	if !prepared {
		return nil, tko.Errorf(tko.ErrInvalid, "function %q returned nothing", f.Image)
	}
	out = slices.DeleteFunc(slices.Clone(out), func(r krm.Resource) bool { return r.Identity() == target })
	if err := out.Check(); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "function %q returned an invalid package: %w", f.Image, err)
	}
	return merge.WithoutBookkeeping(out), nil
}

// A laterEdit is an edit of what a step of preparation made.
type laterEdit struct {
	step int
	merge.Conflict
}

// unprepared returns the package without what preparation made of it. Where a user edited
// the output of a step, the edit stays unless the policy takes the rollout's edits.
func (e editing) unprepared() (krm.Package, []laterEdit, error) {
	current, types, policy := merge.WithoutBookkeeping(e.d.Package), e.types, e.policy
	var later []laterEdit
	for i, s := range slices.Backward(e.l.steps) {
		input, output := merge.Patched(current, s.Patch, types, true), merge.Patched(current, s.Patch, types, false)
		without, edited, err := merge.Unprepare(input, output, current, types)
		if err == nil && policy == merge.TakeEdit && len(edited) > 0 {
			var r merge.Result
			r, err = merge.Packages(merge.Sides{Base: output, Edit: input, Current: current}, types, merge.TakeEdit)
			without = r.Package
		}
		if err != nil {
			return nil, nil, err
		}
		for _, one := range edited {
			if one.Resource.Group == topology.PlacementGVK.Group && len(one.Path) > 0 && one.Path[0] == "status" {
				continue // preparation writes it again
			}
			later = append(later, laterEdit{i, one})
		}
		current = without
	}
	return current, later, nil
}

// reprepared puts what preparation made back on a merged package, with the annotations of
// unchanged resources. A step whose inputs have changed is to be made again: its output
// stays for its plugin to find, and its trigger isn't prepared. A step whose triggers are
// gone isn't put back. The conflicts are edits of output that is to be made again, or
// goes.
func (p *run) reprepared(of editing, later []laterEdit, merged krm.Package, changes map[krm.Identity]bool) (pkg krm.Package, back []derivation.Step, conflicts []string) {
	types := of.types
	again := map[krm.Identity]bool{}
	for i, s := range of.l.steps {
		gone, redo := true, false
		for _, t := range s.Triggers {
			if merged.Find(t.Resource) == nil {
				continue
			}
			gone = false
			if p.changesInput(t, merged, changes) {
				redo, again[t.Resource] = true, true
			}
		}
		gone = gone && len(s.Triggers) > 0
		if gone || redo {
			for _, e := range later {
				if e.step == i {
					conflicts = append(conflicts, placeOf(e.Conflict)+": the resource was edited after preparation made it, and preparation is to make it again or remove it")
				}
			}
		}
		if gone {
			continue
		}
		input, output := merge.Patched(merged, s.Patch, types, true), merge.Patched(merged, s.Patch, types, false)
		put, err := merge.Reprepare(input, output, merged, types)
		if err != nil {
			continue // several resources of one identity: preparation makes it again
		}
		merged = put
		back = append(back, s)
	}
	restored := merge.RestoreBookkeeping(merged, of.d.Package)
	for i, r := range restored {
		if again[r.Identity()] && r.IsPrepared() {
			r = r.Clone()
			r.SetAnnotation(krm.AnnotationPrepared, "")
			restored[i] = r
		}
	}
	return restored, back, conflicts
}

func placeOf(c merge.Conflict) string {
	if len(c.Path) == 0 {
		return c.Resource.String()
	}
	return c.Resource.String() + ": " + merge.PathText(c.Path)
}

// PropertyReads is the property of a prepare plugin that lists the kinds of resources
// that it reads in addition to the resource that triggers it: "v1 ConfigMap, apps/v1 Deployment",
// or nothing. A plugin without it counts as reading the whole package.
const PropertyReads = "_reads"

// changesInput reports whether what the preparation of a resource reads has changed.
func (p *run) changesInput(t derivation.Trigger, merged krm.Package, changes map[krm.Identity]bool) bool {
	if changes[t.Resource] {
		return true
	}
	reads := func(krm.Identity) bool { return true }
	switch plugin, registered := p.plugins[t.Plugin]; {
	case t.Plugin == "" && t.Resource.GVK == topology.PlacementGVK:
		refers := referencesOf(merged.Find(t.Resource))
		reads = func(id krm.Identity) bool { return id.Group == topology.SiteGVK.Group || refers[id] }
	case t.Plugin == "":
		return false // a Site, or a service template: the resource alone
	case registered:
		kinds, ok := plugin.Properties[PropertyReads]
		if ok {
			reads = func(id krm.Identity) bool {
				return slices.ContainsFunc(strings.Split(kinds, ","), func(kind string) bool {
					apiVersion, kind, _ := strings.Cut(strings.TrimSpace(kind), " ")
					return krm.ParseGVK(apiVersion, strings.TrimSpace(kind)) == id.GVK
				})
			}
		}
	}
	for id := range changes {
		if reads(id) {
			return true
		}
	}
	return false
}

// referencesOf returns the resources that a Placement merges into its children.
func referencesOf(r krm.Resource) map[krm.Identity]bool {
	refers := map[krm.Identity]bool{}
	templates, _ := r.Get("spec", "templates")
	list, _ := templates.([]any)
	for _, entry := range list {
		m, _ := entry.(map[string]any)
		references, _ := m["merge"].([]any)
		for _, reference := range references {
			ref, _ := reference.(map[string]any)
			apiVersion, _ := ref["apiVersion"].(string)
			kind, _ := ref["kind"].(string)
			name, _ := ref["name"].(string)
			refers[krm.Identity{GVK: krm.ParseGVK(apiVersion, kind), Name: name}] = true
		}
	}
	return refers
}

func changedIn(changes []merge.Change) map[krm.Identity]bool {
	all := map[krm.Identity]bool{}
	for _, c := range changes {
		all[c.Resource] = true
	}
	return all
}

// maxDepth is the maximum depth of nested topologies that a plan follows.
const maxDepth = 20

// An ancestry is what rows of children have from the deployment that they come and go with.
type ancestry struct {
	root  tko.DeploymentID
	pins  []plan.Pin
	edits []uint8
	depth int // below root
}

// family plans the children that come and go with a changed deployment.
func (p *run) family(ctx context.Context, of ancestry, c changed) error {
	if len(c.create)+len(c.remove) > 0 && of.depth >= maxDepth {
		return tko.Errorf(tko.ErrInvalid, "deployment %q: its topologies are nested more than %d deep", of.root, maxDepth)
	}
	going := map[tko.DeploymentID]bool{}
	for _, id := range c.remove {
		going[id] = true
	}
	for _, batch := range c.create {
		for _, child := range batch.Children {
			for _, id := range child.Replaces {
				going[id] = true
			}
			if err := p.child(ctx, of, batch, child); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(going)) {
		d, err := p.snapshot.Deployment(ctx, id, 0)
		if errors.Is(err, tko.ErrNotFound) {
			continue
		}
		if err == nil {
			err = p.removeAll(ctx, d, of.root, of.edits)
		}
		if err != nil {
			return fmt.Errorf("plan the deletion of deployment %q: %w", id, err)
		}
	}
	return nil
}

// child plans the creation of a child, and of its own children.
func (p *run) child(ctx context.Context, of ancestry, batch tko.NewChildren, child tko.NewChild) error {
	id := newID(p.request.Rollout, batch.Parent, child.Origin)
	draft := plan.Draft{Key: string(batch.Parent) + "/" + child.Origin, Site: child.Site, Parent: batch.Parent}
	draft.Row = plan.Row{Deployment: id, Kind: plan.Create, Wave: plan.NoWave, Root: of.root, Edits: of.edits}
	template, err := p.existingTemplate(ctx, child.Template)
	var stored Deployment
	if err == nil {
		of.pins = append(slices.Clip(of.pins), plan.Pin{Kind: tko.KindTemplate, ID: string(child.Template), Revision: template.Stamp.Revision})
		draft.Pins = slices.Clone(of.pins)
		stored, err = p.snapshot.Created(ctx, template, batch, child)
	}
	c, after, err := p.prepareNew(ctx, &draft, stored, err)
	if err != nil || after == nil {
		return err
	}
	draft.AfterState = after
	if err := p.send(draft); err != nil {
		return err
	}
	of.depth++
	return p.family(ctx, of, c)
}

// prepareNew prepares a deployment that a plan creates, unless it is invalid because of
// err. It completes the draft except for AfterState, which it returns; if that is nil, it
// has emitted the draft.
func (p *run) prepareNew(ctx context.Context, draft *plan.Draft, stored Deployment, err error) (changed, *plan.State, error) {
	var c changed
	if err == nil {
		stored.ID = draft.Deployment
		if err := p.prepare(ctx, &c, stored.Deployment); err != nil {
			return c, nil, err
		}
		if len(c.problems) > 0 {
			draft.Kind, draft.Findings = plan.Invalid, bounded(c.problems)
			return c, nil, p.send(*draft)
		}
		stored, err = p.snapshot.Changed(ctx, stored, Change{Package: c.pkg})
	}
	if findings, invalid := findingsOf(err); invalid {
		draft.Kind, draft.Findings = plan.Invalid, findings
		return c, nil, p.send(*draft)
	}
	if err != nil {
		return c, nil, err
	}
	after := stateOf(stored)
	draft.After, draft.Unknown = after.Digest, c.unknown
	return c, &after, nil
}

// A view is the state that simulated preparations read.
type view struct{ *run }

func (v view) Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error] {
	return v.snapshot.Templates(ctx, sel, options)
}

func (v view) Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error] {
	return v.snapshot.Sites(ctx, sel, options)
}

func (v view) Children(ctx context.Context, parent tko.DeploymentID) iter.Seq2[tko.Deployment, error] {
	return v.snapshot.Children(ctx, parent)
}

func (v view) Revision(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	d, err := v.snapshot.Deployment(ctx, id, revision)
	return d.Deployment, err
}

func (v view) ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error) {
	return v.snapshot.ReservedOrigins(ctx, parent)
}

// Plugins returns those of the run's plugins that match: simulations select by type or
// not at all.
func (v view) Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	if sel.Type == nil || *sel.Type != tko.PluginPrepare {
		return v.snapshot.Plugins(ctx, sel, options)
	}
	return func(yield func(tko.Plugin, error) bool) {
		for _, name := range slices.Sorted(maps.Keys(v.plugins)) {
			if !yield(v.plugins[name], nil) {
				return
			}
		}
	}
}
