package topology

import (
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

// The values of a Placement's spec.update: what is done when other sites match
// than before.
const (
	UpdateOnce    = "Once"    // nothing: it is evaluated once
	UpdatePropose = "Propose" // say what would change, and wait for an approval
	UpdateApply   = "Apply"   // change it, within spec.budget
)

// Children are what evaluating a placement again needs of the data controller.
type Children interface {
	// Deployments answers the deployments that match, sorted by ID.
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
	// revision and nobody holds a modification token; tko.ErrConflict and
	// tko.ErrBusy otherwise.
	CommitDeployment(ctx context.Context, commit tko.DeploymentCommit) (revision int64, err error)
}

// Author is who the preparer says it is when it writes. Children that somebody
// else wrote last are never deleted without an approval.
const Author = "preparer"

// Living are the placements of a package that were prepared and are to be
// evaluated again.
func Living(pkg krm.Package) []krm.Identity {
	var ids []krm.Identity
	for _, r := range pkg {
		if r.GVK() == PlacementGVK && r.IsPrepared() && isLiving(r) {
			ids = append(ids, r.Identity())
		}
	}
	return ids
}

func isLiving(r krm.Resource) bool {
	update, _ := r.Get("spec", "update")
	where := r.Annotation(krm.AnnotationPrepare)
	return (update == UpdatePropose || update == UpdateApply) && (where == "" || where == krm.Here)
}

// A Review is a placement evaluated again: what it wants, and how its children
// differ from that.
type Review struct {
	Placement krm.Identity
	update    string
	budget    budget
	proposed  string // the target of the proposal that the placement holds, or ""

	names      []string           // of Template resources, now and when it was evaluated before
	templates  map[string]any     // what they stand for
	kept       []keptTemplate     // that were selected
	notes      []string           // what an edit doesn't change
	merged     map[string]any     // what is merged into children, and which have it
	wanted     int                // children, in all
	existing   int                // children that are there
	target     string             // names all that is wanted
	create     []tko.NewChildren  // what is missing, in batches
	homeless   []home             // of this placement, wanted, and at no site although theirs is there again
	surplus    []tko.Deployment   // of this placement and not wanted, and nothing takes their place, sorted by ID
	orphans    []tko.Deployment   // of placements that are gone, and nothing here takes their place
	replacing  []tko.Deployment   // not wanted, and a child that is there will take their place
	finish     []tko.Deployment   // not wanted, and their place is taken
	discard    []tko.Deployment   // not wanted, and they would have taken the place of others
	takes      map[string]*taking // what of create takes the place of what, by origin
	unprepared int                // of this placement and wanted

	discardWanted bool // one of discard is to be made again

	pending map[tko.SiteID]bool // where something wanted isn't there, or isn't prepared
}

// A budget says how many children may be created and deleted at once.
type budget struct {
	create int // negative: any number
	delete int
}

// A home is the site that a child lost when that was deleted, and that came back.
type home struct {
	child    tko.DeploymentID
	template tko.TemplateID
	site     tko.SiteID
}

// A Decision says what is to be done about a review now, and what has to wait.
type Decision struct {
	Discard []tko.Deployment // first, and everything is decided again if one is no longer as it was
	Create  []tko.NewChildren
	Restore []home // children that get their sites back
	Delete  []tko.Deployment
	Notes   []string  // what an edit of the topology doesn't change
	Wait    string    // why not all of it is done now, if it will be later
	Propose *Proposal // needs an approval

	keep bool // the proposal of the placement: it was approved, and isn't done yet
}

// A Proposal is what would be done if it were approved.
type Proposal struct {
	target  string
	create  []tko.NewChildren
	restore []home
	delete  []tko.Deployment
	takes   map[string]*taking
}

// Review evaluates a prepared placement again, and changes nothing. Templates
// that are selected stay what they were when the placement was prepared; one
// that is named is the one that is named now. The error is as Prepare's.
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
	if placed, err = p.withoutGone(ctx, placed); err != nil {
		return Review{}, err
	}
	children, err := p.siblings(ctx, d)
	if err != nil {
		return Review{}, err
	}
	r.know(placed)
	batches, slots := planChildren(d, id, placed)
	r.compare(batches, slots, children, prefixesOf(d.Package), rulesAll)
	if err := p.findEdits(ctx, r.takes); err != nil {
		return Review{}, err
	}
	return r, p.note(ctx, &r, resource, placed, children)
}

// prefixesOf are the beginnings of the origins of all placements of a package, with
// their names.
func prefixesOf(pkg krm.Package) map[string]string {
	prefixes := map[string]string{}
	for _, r := range pkg {
		if r.GVK() == PlacementGVK {
			prefixes[originPrefix(r.Identity())] = r.Identity().Name
		}
	}
	return prefixes
}

// know notes which templates the entries have.
func (r *Review) know(entries []placed) {
	r.templates = map[string]any{}
	for _, e := range entries {
		r.templates[e.template.resource.Name] = string(e.id)
		if !slices.Contains(r.names, e.template.resource.Name) {
			r.names = append(r.names, e.template.resource.Name)
		}
	}
}

// read reads what the placement says about being evaluated again, and puts the
// templates that were selected the first time into its entries.
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
			r.kept = append(r.kept, keptTemplate{resource: entries[i].template.resource, id: tko.TemplateID(pinned), sel: entries[i].template.sel})
			entries[i].template.id, entries[i].template.sel = tko.TemplateID(pinned), nil
		}
	}
	return nil
}

// withoutGone leaves out the sites of Site resources that have vanished.
func (p *Preparer) withoutGone(ctx context.Context, all []placed) ([]placed, error) {
	there := map[tko.SiteID]bool{}
	gone := map[tko.SiteID]bool{}
	for i := range all {
		for _, site := range all[i].sites {
			if there[site] || gone[site] {
				continue
			}
			err := p.checkSite(ctx, siteWish{resource: all[i].template.resource, id: site})
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

// compare finds out how children differ from what is wanted. placements are the
// beginnings of the origins of all placements of the package: children of others
// are orphans, which rules may give to this one.
func (r *Review) compare(wanted []tko.NewChildren, slots map[string]string, children []tko.Deployment, placements map[string]string, rules int) {
	have := make(map[string]tko.Deployment, len(children))
	for _, child := range children {
		have[child.Origin] = child
	}
	want := map[string]tko.SiteID{}
	stays := map[tko.DeploymentID]bool{} // what is wanted, and there
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
	claimed := map[tko.DeploymentID]bool{} // by a child that will take its place
	running := map[string]bool{}           // what runs, by slot and site
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
		case waits(child) && (!wanted || slices.ContainsFunc(child.Replaces, func(id tko.DeploymentID) bool { return stays[id] })):
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
		if runs(child) {
			running[slots[child.Origin]+" "+string(child.Site)] = true
		}
		if child.Site == "" {
			r.homeless = append(r.homeless, home{child: child.ID, template: child.Template, site: site})
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
	r.takes = m.takes
	for _, batch := range r.create {
		for i := range batch.Children {
			if t := r.takes[batch.Children[i].Origin]; t != nil {
				batch.Children[i].Replaces = t.ids()
			}
		}
	}
	r.wanted = len(want)
	r.target = digest(strings.Join(slices.Sorted(maps.Keys(want)), "\n"))[:32]
}

// claim notes what a child will take the place of.
func (r *Review) claim(claimed map[tko.DeploymentID]bool, child tko.Deployment) {
	if !waits(child) {
		return
	}
	for _, id := range child.Replaces {
		claimed[id] = true
	}
}

// Adopt makes the orphans that no placement of a deployment has a use for the
// surplus of the first. Orphans are children of placements that are no longer in
// the package, or have another name.
func Adopt(reviews []Review) {
	if len(reviews) == 0 {
		return
	}
	taken := map[tko.DeploymentID]bool{}
	for _, r := range reviews {
		for _, t := range r.takes {
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

// Decide says what is to be done now. approved is whether what the placement
// proposes was approved: that goes for this proposal, and no other.
func (r Review) Decide(approved bool) Decision {
	d := Decision{Discard: r.discard}
	var propose Proposal
	approved = approved && r.proposed == r.target
	mayDelete := approved || r.mayDelete()
	free := func(child tko.NewChild) bool {
		t := r.takes[child.Origin]
		return t == nil || (!t.exchange || mayDelete) && (!t.edited || approved)
	}
	create := keep(r.create, free)
	switch {
	case !approved && (r.update == UpdatePropose || r.budget.create == 0):
		propose.create, propose.restore = r.create, r.homeless
	case r.budget.create <= 0:
		d.Create, d.Restore = create, r.homeless
	default:
		d.Restore = r.homeless // no more of them are unprepared than before
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
			d.wait(fmt.Sprintf("%d children will be deleted when what is new at their sites is prepared", left))
		}
	} else {
		propose.delete = r.surplus
	}
	d.Delete = append(d.Delete, r.finish...)
	if n := len(r.replacing) + replacedBy(d.Create); n > 0 {
		d.wait(fmt.Sprintf("%d children will be replaced, each when the one that takes its place is prepared and approved", n))
	}
	if r.discardWanted {
		d.wait("a child is made again that would have replaced one that stays")
	}
	d.Notes = r.notes
	d.keep = approved && d.Wait != ""
	if len(propose.create)+len(propose.restore)+len(propose.delete) > 0 {
		propose.target, propose.takes = r.target, r.takes
		d.Propose = &propose
	}
	return d
}

// mayDelete says whether what is surplus may go without asking. What makes room
// for something else altogether counts, too.
func (r Review) mayDelete() bool {
	gone := slices.Clone(r.surplus)
	for _, t := range r.takes {
		if t.exchange {
			gone = append(gone, t.old...)
		}
	}
	return r.update == UpdateApply && len(gone) <= r.budget.delete && !slices.ContainsFunc(gone, isModified)
}

// replacedBy counts what new children take the place of.
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

// isModified says whether somebody else than the preparer wrote a child that is
// at a site. One whose site is gone was written when that went.
func isModified(child tko.Deployment) bool {
	return child.Site != "" && child.Stamp.Who != Author
}

// first are the first n children of batches.
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

// notConfirmed is the refusal of the data controller to delete a child with the
// many deployments that would go with it.
func notConfirmed(placement krm.Identity, child tko.DeploymentID, err error) error {
	return refuse(placement, ReasonNotConfirmed, "doesn't delete its child %q by itself; \"tko deployment delete %[1]s\" does, if the count is confirmed: %v", child, err)
}

// CarryOut creates and deletes what was decided. Doing it again, whole or after
// half of it, has the same result. What would take the place of others and is no
// longer wanted goes first; then what is new is created, before what is old goes. tko.ErrConflict and tko.ErrBusy say that another writer is
// changing a child: then the placement has to be looked at again.
func (p *Preparer) CarryOut(ctx context.Context, placement krm.Identity, d Decision) error {
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
			busy = err // the others needn't wait for it
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
		if errors.Is(err, tko.ErrInvalid) { // too many go with it
			return notConfirmed(placement, child.ID, err)
		}
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return fmt.Errorf("delete %q, a child of %s: %w", child.ID, placement, err)
		}
	}
	return busy
}

// restore gives a child its site back, unless somebody gave it one meanwhile.
func (p *Preparer) restore(ctx context.Context, h home) error {
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
		return nil // the data controller adds it, so it is being written
	}
	resource.Set(string(h.site), "spec", "siteId")
	ctx = tko.WithAuthor(ctx, tko.Author{Who: Author, Why: fmt.Sprintf("site %q is back", h.site)})
	_, err = p.Children.CommitDeployment(ctx, tko.DeploymentCommit{ID: child.ID, Revision: child.Stamp.Revision, Package: child.Package})
	return err
}

func (p *Preparer) createAll(ctx context.Context, placement krm.Identity, batches []tko.NewChildren) error {
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(callsAtOnce)
	for _, batch := range batches {
		calls.Go(func() error { return p.create(callCtx, placement, batch) })
	}
	return calls.Wait()
}

// Status answers the placement with what came of a review in its status.
func (r Review) Status(resource krm.Resource, d Decision) krm.Resource {
	out := resource.Clone()
	out.Set(int64(r.existing+countOf(d.Create)-len(d.Delete)), "status", "deployments")
	out.Set(r.templates, "status", "templates")
	status, _ := out["status"].(map[string]any)
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

// Summary says in a few words what was done.
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

// Idle says whether there is nothing to be done, now or later.
func (d Decision) Idle() bool {
	return !d.Done() && d.Wait == "" && d.Propose == nil
}

// Done says whether something is done now.
func (d Decision) Done() bool { return len(d.Create)+len(d.Restore)+len(d.Delete)+len(d.Discard) > 0 }

// samples is how many examples a proposal gives.
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

// additions are the new children that take the place of nothing.
func (p *Proposal) additions() []tko.NewChildren {
	return keep(p.create, func(child tko.NewChild) bool { return len(child.Replaces) == 0 })
}

func (p *Proposal) replacements(most int) []string {
	var list []string
	for _, batch := range p.create {
		for _, child := range batch.Children {
			t := p.takes[child.Origin]
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
			site = "a site that is gone"
		}
		text := fmt.Sprintf("%s (%s at %s", child.ID, child.Template, site)
		if isModified(child) {
			text += ", last written by " + child.Stamp.Who
		}
		list = append(list, text+")")
	}
	return list
}

// String says what would be done.
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
		parts = append(parts, fmt.Sprintf("delete %d deployments, and what they run at their sites: %s", n, fewOf(p.deletions(most), n)))
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
