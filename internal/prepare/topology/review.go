package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// The values of a Placement's spec.update: the reaction to a change of the matching
// sites.
const (
	UpdateOnce    = "Once"    // none: it is evaluated once
	UpdatePropose = "Propose" // propose the changes, and wait for an approval
	UpdateApply   = "Apply"   // change the children, within spec.budget
)

// Children is the part of the data controller's API that reviews need.
type Children interface {
	// Deployments returns the deployments that match, sorted by ID.
	Deployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions) iter.Seq2[tko.Deployment, error]
	// DeleteDeployment deletes a deployment and its descendants.
	DeleteDeployment(ctx context.Context, id tko.DeploymentID) (tko.Deleted, error)
	// DeleteDeploymentAt deletes a deployment and its descendants if it is at a
	// revision: tko.ErrConflict otherwise.
	DeleteDeploymentAt(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deleted, error)
	// Deployment returns a deployment as it was at a revision, or as it is
	// (revision 0). It belongs to the caller.
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	// CommitDeployment replaces a deployment's package if it is still at the
	// revision and no client holds a modification token; tko.ErrConflict and
	// tko.ErrBusy otherwise.
	CommitDeployment(ctx context.Context, commit tko.DeploymentCommit) (revision int64, err error)
	// ReservedOrigins returns the origins of the children of a deployment that rollouts
	// deleted and can create again, with the rollouts.
	ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error)
}

// Author is the author of the preparer's changes. Children whose last change another
// author made are never deleted without an approval.
const Author = "preparer"

// Updating returns the prepared placements of a package whose spec.update is Propose or
// Apply: they are evaluated again.
func Updating(pkg krm.Package) []krm.Identity {
	var ids []krm.Identity
	for _, r := range pkg {
		if r.GVK() == PlacementGVK && r.IsPrepared() && isUpdating(r) {
			ids = append(ids, r.Identity())
		}
	}
	return ids
}

func isUpdating(r krm.Resource) bool {
	update, _ := r.Get("spec", "update")
	where := r.Annotation(krm.AnnotationPrepare)
	return (update == UpdatePropose || update == UpdateApply) && (where == "" || where == krm.Here)
}

// A Review is the result of evaluating a placement again: the children that it
// wants, and the differences of the existing ones.
type Review struct {
	Placement krm.Identity
	update    string
	budget    budget
	proposed  string // the target of the proposal that the placement holds, or ""

	names      []string                // of Template resources, now and at the evaluation before
	templates  map[string]any          // IDs of templates, by name of the Template resource
	pinned     []pinnedTemplate        // selected earlier
	notes      []string                // on edits without an effect
	merged     map[string]any          // status.merged: the digest of merged resources, and the children that have it
	wanted     int                     // number of wanted children
	existing   int                     // number of existing children
	target     string                  // digest of all wanted children
	create     []tko.NewChildren       // wanted and missing, in batches
	restorable []restoration           // wanted children without a site whose site exists again
	surplus    []tko.Deployment        // unwanted and without a replacement, sorted by ID
	orphans    []tko.Deployment        // of removed placements, and without a replacement here
	replacing  []tko.Deployment        // unwanted, and an existing child will replace them
	finish     []tko.Deployment        // unwanted, and another child has replaced them
	discard    []tko.Deployment        // unwanted children that would have replaced others
	replaced   map[string]*replacement // replacements by children of create, by origin
	unprepared int                     // number of wanted children that aren't prepared

	discardWanted bool // a child of discard is wanted: it is created again

	pending map[tko.SiteID]bool // sites where a wanted child is missing or not prepared
}

// A budget bounds how many children are created and deleted at once.
type budget struct {
	create int // negative: any number
	delete int
}

// A restoration is a site that was deleted and is registered again, for a child that lost
// it.
type restoration struct {
	child    tko.DeploymentID
	template tko.TemplateID
	site     tko.SiteID
}

// A Decision lists the changes that are made now, and those that wait.
type Decision struct {
	Discard []tko.Deployment // deleted first; if one has changed, everything is decided again
	Create  []tko.NewChildren
	Restore []restoration // children that get their sites back
	Delete  []tko.Deployment
	Notes   []string  // on edits of the topology without an effect
	Wait    string    // why some changes are made later
	Propose *Proposal // needs an approval

	rollout tko.RolloutID // of a policy, which makes the changes
	keep    bool          // the placement's proposal: it was approved, and isn't carried out yet

	approved bool // a user has consented to the changes
}

// A Proposal lists the changes that need an approval.
type Proposal struct {
	target   string
	create   []tko.NewChildren
	restore  []restoration
	delete   []tko.Deployment
	replaced map[string]*replacement
}

// Review evaluates a prepared placement again, and changes nothing. Selected
// templates stay those that were selected when the placement was prepared; named
// templates are those that are named now. The error is as Prepare's.
func (p *Preparer) Review(ctx context.Context, d Deployment, id krm.Identity) (Review, error) {
	resource := d.Package.Find(id)
	if resource == nil {
		return Review{}, refuse(id, ReasonInvalid, "is not in the package")
	}
	entries, err := readPlacement(d, resource)
	if err != nil {
		return Review{}, err
	}
	r := Review{Placement: id}
	if err := r.read(resource, entries); err != nil {
		return Review{}, err
	}
	placed, err := p.resolve(ctx, entries)
	if err != nil {
		return Review{}, err
	}
	if placed, err = p.withoutMissingSites(ctx, placed); err != nil {
		return Review{}, err
	}
	children, err := p.siblings(ctx, d)
	if err != nil {
		return Review{}, err
	}
	r.setTemplates(placed)
	batches, slots := planChildren(d, id, placed)
	if batches, err = p.withoutReserved(ctx, &r, d, batches, children); err != nil {
		return Review{}, err
	}
	r.compare(batches, slots, children, prefixesOf(d.Package), rulesAll)
	if err := p.findEdits(ctx, r.replaced); err != nil {
		return Review{}, err
	}
	return r, p.note(ctx, &r, resource, placed, children)
}

// withoutReserved leaves out the children that a rollout deleted and can create again,
// and adds a note on them.
func (p *Preparer) withoutReserved(ctx context.Context, r *Review, d Deployment, wanted []tko.NewChildren, children []tko.Deployment) ([]tko.NewChildren, error) {
	if p.Children == nil || len(wanted) == 0 {
		return wanted, nil
	}
	reserved, err := p.Children.ReservedOrigins(ctx, d.ID)
	if err != nil {
		return nil, fmt.Errorf("read the origins of children of deployment %q that rollouts reserve: %w", d.ID, err)
	}
	for _, child := range children { // created again
		delete(reserved, child.Origin)
	}
	if len(reserved) == 0 {
		return wanted, nil
	}
	by := map[tko.RolloutID]int{}
	wanted = keep(wanted, func(child tko.NewChild) bool {
		id, skip := reserved[child.Origin]
		if skip {
			by[id]++
		}
		return !skip
	})
	for _, id := range slices.Sorted(maps.Keys(by)) {
		r.notes = append(r.notes, fmt.Sprintf("%d deployments aren't created: rollout %q deleted them and can be undone; undo it, or delete it to have them created again", by[id], id))
	}
	return wanted, nil
}

// prefixesOf returns the names of the placements of a package, by origin prefix.
func prefixesOf(pkg krm.Package) map[string]string {
	prefixes := map[string]string{}
	for _, r := range pkg {
		if r.GVK() == PlacementGVK {
			prefixes[originPrefix(r.Identity())] = r.Identity().Name
		}
	}
	return prefixes
}

// setTemplates records the templates of the entries.
func (r *Review) setTemplates(entries []placed) {
	r.templates = map[string]any{}
	for _, e := range entries {
		r.templates[e.template.resource.Name] = string(e.id)
		if !slices.Contains(r.names, e.template.resource.Name) {
			r.names = append(r.names, e.template.resource.Name)
		}
	}
}

// read reads the fields of the placement that concern reviews, and sets the templates
// of entries to those that were selected when it was prepared.
func (r *Review) read(resource krm.Resource, entries []entry) error {
	var err error
	if r.update, err = textAt(resource, "spec", "update"); err != nil {
		return err
	}
	r.budget = budget{create: -1}
	for name, field := range map[string]*int{"create": &r.budget.create, "delete": &r.budget.delete} {
		value, ok := resource.Get("spec", "budget", name)
		if !ok || value == nil {
			continue
		}
		n, ok := value.(int64)
		if !ok || n < 0 {
			return refuse(r.Placement, ReasonInvalid, "spec.budget.%s must be a number of children", name)
		}
		*field = int(min(n, 1<<30))
	}
	if r.proposed, err = textAt(resource, "status", "proposal", "target"); err != nil {
		return err
	}
	if known, ok := resource.Get("status", "templates"); ok {
		known, _ := known.(map[string]any)
		r.names = slices.Sorted(maps.Keys(known))
	}
	for i := range entries {
		name := entries[i].template.resource.Name
		pinned, err := textAt(resource, "status", "templates", name)
		if err != nil {
			return err
		}
		if pinned != "" && entries[i].template.id == "" {
			r.pinned = append(r.pinned, pinnedTemplate{resource: entries[i].template.resource, id: tko.TemplateID(pinned), sel: entries[i].template.sel})
			entries[i].template.id, entries[i].template.sel = tko.TemplateID(pinned), nil
		}
	}
	return nil
}

// withoutMissingSites leaves out the sites of Site resources that no longer exist.
func (p *Preparer) withoutMissingSites(ctx context.Context, all []placed) ([]placed, error) {
	there := map[tko.SiteID]bool{}
	gone := map[tko.SiteID]bool{}
	for i := range all {
		for _, site := range all[i].sites {
			if there[site] || gone[site] {
				continue
			}
			err := p.checkSite(ctx, siteRequest{resource: all[i].template.resource, id: site})
			if refusal, ok := errors.AsType[*Error](err); ok && refusal.Reason == ReasonSiteMissing {
				gone[site] = true
				continue
			}
			if err != nil {
				return nil, err
			}
			there[site] = true
		}
		all[i].at = slices.DeleteFunc(all[i].at, func(site tko.SiteID) bool { return gone[site] })
	}
	return all, nil
}

// compare compares the existing children with the wanted ones. placements are the
// names of all placements of the package, by origin prefix: children of others are
// orphans, which children of this placement may replace by the given number of rules.
func (r *Review) compare(wanted []tko.NewChildren, slots map[string]string, children []tko.Deployment, placements map[string]string, rules int) {
	have := make(map[string]tko.Deployment, len(children))
	for _, child := range children {
		have[child.Origin] = child
	}
	want := map[string]tko.SiteID{}
	stays := map[tko.DeploymentID]bool{} // wanted and existing
	r.pending = map[tko.SiteID]bool{}
	for _, batch := range wanted {
		missing := batch
		missing.Children = nil
		for _, child := range batch.Children {
			want[child.Origin] = child.Site
			if there, ok := have[child.Origin]; ok {
				stays[there.ID] = true
				continue
			}
			r.pending[child.Site] = true
			missing.Children = append(missing.Children, child)
		}
		if len(missing.Children) > 0 {
			r.create = append(r.create, missing)
		}
	}
	claimed := map[tko.DeploymentID]bool{} // replaced by a child that waits
	running := map[string]bool{}           // by slot and site
	var left, orphans []tko.Deployment
	prefix := originPrefix(r.Placement)
	for _, child := range children {
		of, _, _ := madeBy(child)
		site, wanted := want[child.Origin]
		mine := of == prefix
		switch {
		case !mine && placements[of] != "":
			r.claim(claimed, child)
			continue
		case isWaiting(child) && (!wanted || slices.ContainsFunc(child.Replaces, func(id tko.DeploymentID) bool { return stays[id] })):
			r.discard = append(r.discard, child)
			r.discardWanted = r.discardWanted || wanted
			continue
		case !mine:
			orphans = append(orphans, child)
			continue
		}
		r.existing++
		if !wanted {
			left = append(left, child)
			continue
		}
		r.claim(claimed, child)
		if !child.Prepared {
			r.unprepared++
			r.pending[site] = true
		}
		if isRunning(child) {
			running[slots[child.Origin]+" "+string(child.Site)] = true
		}
		if child.Site == "" {
			r.restorable = append(r.restorable, restoration{child: child.ID, template: child.Template, site: site})
		}
	}
	isClaimed := func(child tko.Deployment) bool {
		if claimed[child.ID] {
			r.replacing = append(r.replacing, child)
		}
		return claimed[child.ID]
	}
	left, orphans = slices.DeleteFunc(left, isClaimed), slices.DeleteFunc(orphans, isClaimed)
	slot := func(child tko.Deployment) string { return slotOf(child, r.names, placements) }
	left = slices.DeleteFunc(left, func(child tko.Deployment) bool {
		slot := slot(child)
		superseded := slot != "" && !isModified(child) && running[slot+" "+string(child.Site)]
		if superseded {
			r.finish = append(r.finish, child)
		}
		return superseded
	})
	m := newMatch(slot, slots, r.create)
	r.surplus = m.pair(left, rules)
	r.orphans = m.pair(orphans, min(rules, ruleSite))
	r.replaced = m.replaced
	for _, batch := range r.create {
		for i := range batch.Children {
			if t := r.replaced[batch.Children[i].Origin]; t != nil {
				batch.Children[i].Replaces = t.ids()
			}
		}
	}
	r.wanted = len(want)
	r.target = digest(strings.Join(slices.Sorted(maps.Keys(want)), "\n"))[:32]
}

// claim records the children that a waiting child will replace.
func (r *Review) claim(claimed map[tko.DeploymentID]bool, child tko.Deployment) {
	if !isWaiting(child) {
		return
	}
	for _, id := range child.Replaces {
		claimed[id] = true
	}
}

// Adopt adds the orphans that no placement of a deployment replaces to the surplus of
// the first review. Orphans are children of placements that were removed from the
// package or renamed.
func Adopt(reviews []Review) {
	if len(reviews) == 0 {
		return
	}
	taken := map[tko.DeploymentID]bool{}
	for _, r := range reviews {
		for _, t := range r.replaced {
			for _, id := range t.ids() {
				taken[id] = true
			}
		}
	}
	for _, orphan := range reviews[0].orphans {
		if !taken[orphan.ID] {
			reviews[0].surplus = append(reviews[0].surplus, orphan)
			reviews[0].existing++
		}
	}
}

// Decide decides which changes are made now. approved reports whether the placement's
// proposal was approved: the approval holds only for that proposal.
func (r Review) Decide(approved bool) Decision {
	d := Decision{Discard: r.discard, approved: approved}
	var propose Proposal
	approved = approved && r.proposed == r.target
	mayDelete := approved || r.mayDelete()
	free := func(child tko.NewChild) bool {
		t := r.replaced[child.Origin]
		return t == nil || (!t.exchange || mayDelete) && (!t.edited || approved)
	}
	create := keep(r.create, free)
	switch {
	case !approved && (r.update == UpdatePropose || r.budget.create == 0):
		propose.create, propose.restore = r.create, r.restorable
	case r.budget.create <= 0:
		d.Create, d.Restore = create, r.restorable
	default:
		d.Restore = r.restorable // they don't count as new unprepared children
		d.Create = first(create, r.budget.create-r.unprepared)
		if left := countOf(create) - countOf(d.Create); left > 0 {
			d.wait(fmt.Sprintf("%d more children will be created when others are prepared: %d aren't yet, and spec.budget.create is %d",
				left, r.unprepared+countOf(d.Create), r.budget.create))
		}
	}
	if propose.create == nil {
		propose.create = keep(r.create, func(child tko.NewChild) bool { return !free(child) })
	}
	if mayDelete {
		d.Delete = slices.DeleteFunc(slices.Clone(r.surplus), func(child tko.Deployment) bool { return child.Site != "" && r.pending[child.Site] })
		if left := len(r.surplus) - len(d.Delete); left > 0 {
			d.wait(fmt.Sprintf("%d children will be deleted when the new children at their sites are prepared", left))
		}
	} else {
		propose.delete = r.surplus
	}
	d.Delete = append(d.Delete, r.finish...)
	if n := len(r.replacing) + replacedBy(d.Create); n > 0 {
		d.wait(fmt.Sprintf("%d children will be replaced, each when its replacement is prepared and approved", n))
	}
	if r.discardWanted {
		d.wait("a child that would have replaced one that stays is created again")
	}
	d.Notes = r.notes
	d.keep = approved && d.Wait != ""
	if len(propose.create)+len(propose.restore)+len(propose.delete) > 0 {
		propose.target, propose.replaced = r.target, r.replaced
		d.Propose = &propose
	}
	return d
}

// Changes returns the children that the placement wants and that don't exist, and the
// existing ones that it doesn't want: replaced ones are among these.
func (r Review) Changes() (create []tko.NewChildren, remove []tko.DeploymentID) {
	gone := slices.Concat(r.surplus, r.finish, r.discard, r.replacing)
	for _, origin := range slices.Sorted(maps.Keys(r.replaced)) {
		gone = append(gone, r.replaced[origin].old...)
	}
	for _, child := range gone {
		remove = append(remove, child.ID)
	}
	slices.Sort(remove)
	for _, batch := range r.create {
		batch.Children = slices.Clone(batch.Children)
		for i := range batch.Children {
			batch.Children[i].Replaces = nil
		}
		create = append(create, batch)
	}
	return create, slices.Compact(remove)
}

// A Policy is when a placement without spec.rollout makes its changes by a rollout.
type Policy struct {
	Needed   bool           // the data controller asks for one: see [tko.NeedsRollout]
	Settings map[string]any // the spec of the rollout, without edits; nil: never
}

// statusRollout is the field of status that names the rollout that a policy made. As long
// as it has changes to make, no other way makes them.
const statusRollout = "rollout"

// governs reports whether the rollout of a placement is that of the policy.
func (p Policy) governs(resource krm.Resource, d Decision) bool {
	if p.Settings == nil {
		return false
	}
	if begun, _ := resource.Get("status", statusRollout); begun != nil {
		return true
	}
	return p.Needed && d.sites() > 0
}

// sites returns the number of sites at which running deployments are deleted or replaced
// now.
func (d Decision) sites() int {
	sites := map[tko.SiteID]bool{}
	for _, child := range d.Delete {
		if child.Prepared && child.Approved && child.Site != "" {
			sites[child.Site] = true
		}
	}
	for _, batch := range d.Create {
		for _, child := range batch.Children {
			if len(child.Replaces) > 0 {
				sites[child.Site] = true
			}
		}
	}
	return len(sites)
}

// Rollout returns the rollout that makes the changes of the placement, or nil if it makes
// them at once: its base ID and its package. byPolicy reports that it is that of the
// policy.
func (r Review) Rollout(parent tko.DeploymentID, resource krm.Resource, p Policy, d Decision) (id tko.RolloutID, pkg krm.Package, byPolicy bool) {
	if r.update != UpdateApply {
		return "", nil, false
	}
	settings, _ := resource.Get("spec", "rollout")
	fields, ok := settings.(map[string]any)
	if !ok && p.governs(resource, d) {
		fields, ok, byPolicy = p.Settings, true, true
	}
	if !ok {
		return "", nil, false
	}
	id, pkg = r.rollout(parent, fields)
	return id, pkg, byPolicy && pkg != nil
}

func (r Review) rollout(parent tko.DeploymentID, fields map[string]any) (id tko.RolloutID, pkg krm.Package) {
	create, remove := r.Changes()
	if len(create)+len(remove) == 0 {
		return "", nil
	}
	spec := map[string]any{"edits": []any{map[string]any{"place": map[string]any{}, "select": map[string]any{"deploymentIds": []any{string(parent)}}}}}
	for key, value := range krm.Resource(fields).Clone() {
		if key != "edits" {
			spec[key] = value
		}
	}
	var changes strings.Builder // a change of sites is planned again
	for _, batch := range create {
		for _, child := range batch.Children {
			changes.WriteString(child.Origin + "\n")
		}
	}
	for _, id := range remove {
		changes.WriteString(string(id) + "\n")
	}
	id = tko.RolloutID("placement/" + string(parent) + "/" + digest(r.Placement.Name)[:8])
	return id, krm.Package{{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout",
		"metadata": map[string]any{"name": "placement-" + digest(r.Placement.Name)[:8], "annotations": map[string]any{
			"topology.nephio.org/placement": r.Placement.Name, "topology.nephio.org/changes": digest(changes.String())[:32],
		}},
		"spec": spec,
	}}
}

// Planned returns what a review does if a rollout makes the changes: it gives children
// their sites back, and waits. ofPolicy is the rollout if a policy made it.
func (r Review) Planned(wait string, ofPolicy tko.RolloutID) Decision {
	return Decision{Restore: r.restorable, Notes: r.notes, Wait: wait, rollout: ofPolicy}
}

// mayDelete reports whether the surplus may be deleted without an approval. Children
// that are replaced by ones with which they have only the site in common count, too.
func (r Review) mayDelete() bool {
	gone := slices.Clone(r.surplus)
	for _, t := range r.replaced {
		if t.exchange {
			gone = append(gone, t.old...)
		}
	}
	return r.update == UpdateApply && len(gone) <= r.budget.delete && !slices.ContainsFunc(gone, isModified)
}

// replacedBy returns the number of children that new ones replace.
func replacedBy(batches []tko.NewChildren) int {
	n := 0
	for _, batch := range batches {
		for _, child := range batch.Children {
			n += len(child.Replaces)
		}
	}
	return n
}

func (d *Decision) wait(why string) {
	if d.Wait != "" {
		why = d.Wait + "; " + why
	}
	d.Wait = why
}

// isModified reports whether another author than the preparer made the last change of
// a child that has a site. A child without a site was changed when its site was
// deleted.
func isModified(child tko.Deployment) bool {
	return child.Site != "" && child.Stamp.Who != Author
}

// first returns the first n children of batches.
func first(batches []tko.NewChildren, n int) []tko.NewChildren {
	var out []tko.NewChildren
	for _, batch := range batches {
		if n <= 0 {
			break
		}
		batch.Children = batch.Children[:min(n, len(batch.Children))]
		n -= len(batch.Children)
		out = append(out, batch)
	}
	return out
}

func countOf(batches []tko.NewChildren) int {
	n := 0
	for _, batch := range batches {
		n += len(batch.Children)
	}
	return n
}

// notConfirmed returns the error for a child that the data controller refuses to
// delete, because too many deployments would be deleted with it.
func notConfirmed(placement krm.Identity, child tko.DeploymentID, err error) error {
	return refuse(placement, ReasonNotConfirmed, "doesn't delete its child %q automatically: run \"tko deployment delete %[1]s\" and confirm the count: %v", child, err)
}

// CarryOut makes the changes of a decision. It is idempotent, also after a part of
// it. It first deletes unwanted children that would have replaced others, then
// creates new children, then deletes old ones. tko.ErrConflict and tko.ErrBusy report
// that another writer changes a child: the placement must be reviewed again.
func (p *Preparer) CarryOut(ctx context.Context, parent tko.DeploymentID, placement krm.Identity, d Decision) error {
	check := tko.NewChildren{Parent: parent, Create: countOf(d.Create), Remove: len(d.Delete)}
	if !d.approved {
		check.Sites = d.sites()
	}
	if err := p.checkReach(ctx, placement, check); err != nil {
		return err
	}
	if err := p.discard(ctx, placement, d.Discard); err != nil {
		return err
	}
	if err := p.createAll(ctx, placement, d.Create); err != nil {
		return err
	}
	var busy error
	for _, h := range d.Restore {
		err := p.restore(ctx, h)
		if errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrBusy) {
			busy = err // the others don't wait for it
			continue
		}
		if err != nil {
			return fmt.Errorf("give %q, a child of %s, its site %q back: %w", h.child, placement, h.site, err)
		}
	}
	for _, child := range d.Delete {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, err := p.Children.DeleteDeployment(ctx, child.ID)
		if waits := waitsForApproval(placement, err); waits != nil {
			return waits
		}
		if tko.NeedsRollout(err) {
			return err
		}
		if errors.Is(err, tko.ErrInvalid) { // too many would be deleted with it
			return notConfirmed(placement, child.ID, err)
		}
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return fmt.Errorf("delete %q, a child of %s: %w", child.ID, placement, err)
		}
	}
	return busy
}

// restore gives a child its site back, unless it has got one meanwhile.
func (p *Preparer) restore(ctx context.Context, h restoration) error {
	child, err := p.Children.Deployment(ctx, h.child, 0)
	if errors.Is(err, tko.ErrNotFound) {
		return nil
	}
	if err != nil || child.Site != "" {
		return err
	}
	resource, err := child.Package.Deployment()
	if err != nil {
		return err
	}
	if resource == nil {
		return nil // the data controller adds it, so another writer is changing the child
	}
	resource.Set(string(h.site), "spec", "siteId")
	ctx = tko.WithAuthor(ctx, tko.Author{Who: Author, Why: fmt.Sprintf("site %q is back", h.site)})
	_, err = p.Children.CommitDeployment(ctx, tko.DeploymentCommit{ID: child.ID, Revision: child.Stamp.Revision, Package: child.Package})
	return err
}

func (p *Preparer) createAll(ctx context.Context, placement krm.Identity, batches []tko.NewChildren) error {
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(callsAtOnce)
	stopped := make([]error, len(batches)) // the others don't wait for those
	for i, batch := range batches {
		calls.Go(func() error {
			err := p.create(callCtx, placement, batch)
			if errors.Is(err, tko.ErrStopped) {
				stopped[i], err = err, nil
			}
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	return cmp.Or(stopped...)
}

// Status returns the placement with the result of a review in its status.
func (r Review) Status(resource krm.Resource, d Decision) krm.Resource {
	out := resource.Clone()
	out.Set(int64(r.existing+countOf(d.Create)-len(d.Delete)), "status", "deployments")
	out.Set(r.templates, "status", "templates")
	status, _ := out["status"].(map[string]any)
	delete(status, statusRollout)
	if d.rollout != "" {
		out.Set(string(d.rollout), "status", statusRollout)
	}
	if r.merged == nil {
		delete(status, "merged")
	} else {
		out.Set(r.merged, "status", "merged")
	}
	switch {
	case d.Propose != nil:
		out.Set(d.Propose.value(), "status", "proposal")
	case !d.keep:
		delete(status, "proposal")
	}
	return out
}

// Summary describes the changes for the reason of a revision.
func (d Decision) Summary() string {
	text := fmt.Sprintf("created %d and deleted %d deployments", countOf(d.Create), len(d.Delete)+len(d.Discard))
	if n := replacedBy(d.Create); n > 0 {
		text += fmt.Sprintf(" (%d will be replaced)", n)
	}
	if n := len(d.Restore); n > 0 {
		text += fmt.Sprintf(", and gave %d their sites back", n)
	}
	return text
}

// Done reports whether there are changes now.
func (d Decision) Done() bool { return len(d.Create)+len(d.Restore)+len(d.Delete)+len(d.Discard) > 0 }

// samples is the maximum number of examples of each kind of change in a proposal.
const samples = 20

func (p *Proposal) value() map[string]any {
	value := map[string]any{
		"target": p.target,
		"create": map[string]any{"count": int64(countOf(p.additions())), "examples": texts(p.creations(samples))},
		"delete": map[string]any{"count": int64(len(p.delete)), "examples": texts(p.deletions(samples))},
	}
	if n := replacedBy(p.create); n > 0 {
		value["replace"] = map[string]any{"count": int64(n), "examples": texts(p.replacements(samples))}
	}
	if len(p.restore) > 0 {
		value["restore"] = map[string]any{"count": int64(len(p.restore)), "examples": texts(p.restorations(samples))}
	}
	return value
}

func texts(list []string) []any {
	out := make([]any, len(list))
	for i, text := range list {
		out[i] = text
	}
	return out
}

// additions returns the new children that replace none.
func (p *Proposal) additions() []tko.NewChildren {
	return keep(p.create, func(child tko.NewChild) bool { return len(child.Replaces) == 0 })
}

func (p *Proposal) replacements(most int) []string {
	var list []string
	for _, batch := range p.create {
		for _, child := range batch.Children {
			t := p.replaced[child.Origin]
			if t == nil {
				continue
			}
			for _, old := range t.old {
				if len(list) == most {
					return list
				}
				text := fmt.Sprintf("%s (%s at %s", old.ID, old.Template, old.Site)
				if t.edited && isModified(old) {
					text += ", last written by " + old.Stamp.Who
				}
				list = append(list, fmt.Sprintf("%s) by %s", text, child.Template))
			}
		}
	}
	return list
}

func (p *Proposal) creations(most int) []string {
	var list []string
	for _, batch := range first(p.additions(), most) {
		for _, child := range batch.Children {
			list = append(list, fmt.Sprintf("%s at %s", child.Template, child.Site))
		}
	}
	return list
}

func (p *Proposal) restorations(most int) []string {
	var list []string
	for _, h := range p.restore[:min(most, len(p.restore))] {
		list = append(list, fmt.Sprintf("%s (%s at %s)", h.child, h.template, h.site))
	}
	return list
}

func (p *Proposal) deletions(most int) []string {
	var list []string
	for _, child := range p.delete[:min(most, len(p.delete))] {
		site := string(child.Site)
		if site == "" {
			site = "a site that no longer exists"
		}
		text := fmt.Sprintf("%s (%s at %s", child.ID, child.Template, site)
		if isModified(child) {
			text += ", last written by " + child.Stamp.Who
		}
		list = append(list, text+")")
	}
	return list
}

// String describes the changes for users.
func (p *Proposal) String() string {
	const most = 3
	var parts []string
	if n := replacedBy(p.create); n > 0 {
		parts = append(parts, fmt.Sprintf("replace %d deployments, each when the new one is prepared and approved: %s", n, fewOf(p.replacements(most), n)))
	}
	if n := countOf(p.additions()); n > 0 {
		parts = append(parts, fmt.Sprintf("create %d deployments: %s", n, fewOf(p.creations(most), n)))
	}
	if n := len(p.restore); n > 0 {
		parts = append(parts, fmt.Sprintf("give %d deployments their sites back: %s", n, fewOf(p.restorations(most), n)))
	}
	if n := len(p.delete); n > 0 {
		parts = append(parts, fmt.Sprintf("delete %d deployments, and remove them from their sites: %s", n, fewOf(p.deletions(most), n)))
	}
	return "would " + strings.Join(parts, "; and ")
}

func fewOf(list []string, n int) string {
	text := strings.Join(list, ", ")
	if n > len(list) {
		text += ", …"
	}
	return text
}
