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
	// Deployment answers a deployment as it is (revision 0). It belongs to the
	// caller.
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

	wanted     int               // children, in all
	target     string            // names all that is wanted
	create     []tko.NewChildren // what is missing, in batches
	homeless   []home            // of this placement, wanted, and at no site although theirs is there again
	surplus    []tko.Deployment  // of this placement and not wanted, sorted by ID
	unprepared int               // of this placement and wanted

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
	Create  []tko.NewChildren
	Restore []home // children that get their sites back
	Delete  []tko.Deployment
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
}

// Review evaluates a prepared placement again, and changes nothing. Templates
// stay what they were when the placement was prepared. The error is as
// Prepare's.
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
	children, err := p.childrenOf(ctx, d, id)
	if err != nil {
		return Review{}, err
	}
	r.compare(planChildren(d, id, placed), children)
	return r, nil
}

// read reads what the placement says about being evaluated again, and puts the
// templates of the first time into its entries.
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
	for i := range entries {
		name := entries[i].template.resource.Name
		pinned, err := textAt(resource, "status", "templates", name)
		if err != nil {
			return err
		}
		if pinned != "" {
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

// childrenOf answers all children that a placement has made.
func (p *Preparer) childrenOf(ctx context.Context, d Deployment, placement krm.Identity) ([]tko.Deployment, error) {
	var children []tko.Deployment
	prefix := originPrefix(placement)
	limit := -1
	for child, err := range p.Children.Deployments(ctx, tko.DeploymentSelect{Parent: d.ID}, tko.ListOptions{Window: tko.Window{Max: &limit}}) {
		if err != nil {
			return nil, fmt.Errorf("list the children of %s: %w", placement, err)
		}
		if strings.HasPrefix(child.Origin, prefix) {
			children = append(children, child)
		}
	}
	return children, nil
}

// compare finds out how children differ from what is wanted.
func (r *Review) compare(wanted []tko.NewChildren, children []tko.Deployment) {
	have := make(map[string]bool, len(children))
	for _, child := range children {
		have[child.Origin] = true
	}
	want := map[string]tko.SiteID{}
	r.pending = map[tko.SiteID]bool{}
	for _, batch := range wanted {
		missing := batch
		missing.Children = nil
		for _, child := range batch.Children {
			want[child.Origin] = child.Site
			if !have[child.Origin] {
				r.pending[child.Site] = true
				missing.Children = append(missing.Children, child)
			}
		}
		if len(missing.Children) > 0 {
			r.create = append(r.create, missing)
		}
	}
	for _, child := range children {
		site, wanted := want[child.Origin]
		if !wanted {
			r.surplus = append(r.surplus, child)
			continue
		}
		if !child.Prepared {
			r.unprepared++
			r.pending[site] = true
		}
		if child.Site == "" {
			r.homeless = append(r.homeless, home{child: child.ID, template: child.Template, site: site})
		}
	}
	r.wanted = len(want)
	r.target = digest(strings.Join(slices.Sorted(maps.Keys(want)), "\n"))[:32]
}

// Decide says what is to be done now. approved is whether what the placement
// proposes was approved: that goes for this proposal, and no other.
func (r Review) Decide(approved bool) Decision {
	var d Decision
	var propose Proposal
	approved = approved && r.proposed == r.target
	switch {
	case !approved && (r.update == UpdatePropose || r.budget.create == 0):
		propose.create, propose.restore = r.create, r.homeless
	case r.budget.create <= 0:
		d.Create, d.Restore = r.create, r.homeless
	default:
		d.Restore = r.homeless // no more of them are unprepared than before
		d.Create = first(r.create, r.budget.create-r.unprepared)
		if left := countOf(r.create) - countOf(d.Create); left > 0 {
			d.wait(fmt.Sprintf("%d more children will be created when others are prepared: %d aren't yet, and spec.budget.create is %d",
				left, r.unprepared+countOf(d.Create), r.budget.create))
		}
	}
	if approved || r.update == UpdateApply && len(r.surplus) <= r.budget.delete && !slices.ContainsFunc(r.surplus, isModified) {
		d.Delete = slices.DeleteFunc(slices.Clone(r.surplus), func(child tko.Deployment) bool { return child.Site != "" && r.pending[child.Site] })
		if left := len(r.surplus) - len(d.Delete); left > 0 {
			d.wait(fmt.Sprintf("%d children will be deleted when what is new at their sites is prepared", left))
		}
	} else {
		propose.delete = r.surplus
	}
	d.keep = approved && d.Wait != ""
	if len(propose.create)+len(propose.restore)+len(propose.delete) > 0 {
		propose.target = r.target
		d.Propose = &propose
	}
	return d
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

// CarryOut creates and deletes what was decided. Doing it again, whole or after
// half of it, comes to the same. Creations first: what is new is there before
// what is old goes. tko.ErrConflict and tko.ErrBusy say that somebody else is
// changing a child: then the placement has to be looked at again.
func (p *Preparer) CarryOut(ctx context.Context, placement krm.Identity, d Decision) error {
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
			return refuse(placement, ReasonNotConfirmed, "doesn't delete its child %q by itself; \"tko deployment delete %[1]s\" does, if the count is confirmed: %v", child.ID, err)
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
	out.Set(int64(r.wanted-countOf(r.create)+countOf(d.Create)+len(r.surplus)-len(d.Delete)), "status", "deployments")
	status, _ := out["status"].(map[string]any)
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
	text := fmt.Sprintf("created %d and deleted %d deployments", countOf(d.Create), len(d.Delete))
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
func (d Decision) Done() bool { return len(d.Create)+len(d.Restore)+len(d.Delete) > 0 }

// samples is how many examples a proposal gives.
const samples = 20

func (p *Proposal) value() map[string]any {
	value := map[string]any{
		"target": p.target,
		"create": map[string]any{"count": int64(countOf(p.create)), "examples": texts(p.creations(samples))},
		"delete": map[string]any{"count": int64(len(p.delete)), "examples": texts(p.deletions(samples))},
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

func (p *Proposal) creations(most int) []string {
	var list []string
	for _, batch := range first(p.create, most) {
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
	if n := countOf(p.create); n > 0 {
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
