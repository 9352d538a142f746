package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// CreateDeployment makes a deployment from its template's package with the
// given one merged in, and answers its ID. IDs made by one Service sort in the
// order of creation. A prepared one is validated completely, others partially.
// An unknown template, site or parent is an ErrInvalid.
func (s *Service) CreateDeployment(ctx context.Context, request tko.NewDeployment) (id tko.DeploymentID, err error) {
	if request.Parent != "" && !isDeploymentID(request.Parent) {
		return "", explain(&MissingError{Key: Key{Kind: tko.KindDeployment, ID: string(request.Parent)}})
	}
	err = onGrounds(ctx, func(on *grounds) error {
		id, err = s.createOn(ctx, on, request)
		return err
	})
	return id, err
}

func (s *Service) createOn(ctx context.Context, on *grounds, request tko.NewDeployment) (tko.DeploymentID, error) {
	base, err := s.base(ctx, on, string(request.Template))
	if err != nil {
		return "", err
	}
	n, err := s.newRecord(ctx, on, base, request)
	if err != nil {
		return "", err
	}
	ids, err := s.ids.next(1)
	if err != nil {
		return "", err
	}
	if request.Parent != "" {
		n.requires = append(n.requires, deploymentKey(request.Parent))
	}
	outcomes, err := s.commit(ctx, on.write(n.write(ctx, ids[0])))
	if err != nil {
		return "", err
	}
	return tko.DeploymentID(outcomes[0].Key.ID), nil
}

// A newRecord is a deployment that was derived and validated, but for its ID.
type newRecord struct {
	record   Record
	requires []Key
}

// newRecord derives and validates a new deployment.
func (s *Service) newRecord(ctx context.Context, on *grounds, base base, request tko.NewDeployment) (newRecord, error) {
	d, err := draftNew(base.pkg, request)
	if err != nil {
		return newRecord{}, err
	}
	inherited, revision := base.metadata, base.revision
	if d.template != string(request.Template) {
		other, err := s.base(ctx, on, d.template)
		if err != nil {
			return newRecord{}, err
		}
		inherited, revision = other.metadata, other.revision
	}
	if d.site != "" && tko.CheckID("site ID", d.site) != nil {
		return newRecord{}, explain(&MissingError{Key: Key{Kind: tko.KindSite, ID: d.site}})
	}
	metadata, err := metadataOf(d.pkg, inherited, request.Metadata)
	if err != nil {
		return newRecord{}, err
	}
	c, err := s.validDraft(ctx, on, d, request.Parent)
	if err != nil {
		return newRecord{}, err
	}
	n := newRecord{
		record: Record{
			Key:      Key{Kind: tko.KindDeployment},
			Parent:   string(request.Parent),
			Template: d.template,
			Base:     revision,
			Site:     d.site,
			Prepared: d.prepared,
			Approved: d.approved,
			Metadata: metadata,
			Digest:   c.digest,
			Package:  c.encoded,
		},
		requires: references(d.template, d.site),
	}
	n.record.Conditions = mergeConditions(nil, flagConditions(nil, d.prepared, d.approved), 1, time.Now())
	return n, nil
}

// write is the write of a new deployment.
func (n newRecord) write(ctx context.Context, id string) Write {
	r := n.record
	r.ID, r.UID, r.Author = id, newUID(), author(ctx)
	return Write{Op: tko.OpWritten, Record: r, Expect: Absent, Requires: n.requires}
}

// validDraft has a draft validated and encodes it.
func (s *Service) validDraft(ctx context.Context, on *grounds, d draft, parent tko.DeploymentID) (content, error) {
	c, err := contentOf(d.pkg.WithoutDeploymentState())
	if err != nil {
		return content{}, err
	}
	c.pkg = d.pkg
	return c, s.validateDraft(ctx, on, d, c, s.earlierOf(deploymentKey(parent), false, d.template))
}

// MaxChildren is how many children one call of CreateChildren may create.
const MaxChildren = 10_000

// CreateChildren makes children of a deployment, all or none, each exactly
// once: if the parent has a child of the same origin, the ID of that child is
// returned, and it stays as it is. A new child replaces deployments when it is prepared
// and approved, in the same transaction. The IDs are in the order of the children, those of new
// ones ascending. If a revision is given, a parent that isn't there or isn't at
// it is an ErrConflict. Unknown templates and sites, and parents if no revision
// is given, are an ErrInvalid.
func (s *Service) CreateChildren(ctx context.Context, request tko.NewChildren) (ids []tko.DeploymentID, created int, err error) {
	if err := checkChildren(request); err != nil {
		return nil, 0, err
	}
	if len(request.Children) == 0 {
		return nil, 0, nil
	}
	derived := map[tko.TemplateID]newRecord{}
	fresh, err := s.ids.next(len(request.Children))
	if err != nil {
		return nil, 0, err
	}
	writes := make([]Write, len(request.Children))
	for i, child := range request.Children {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		n, ok := derived[child.Template]
		if !ok {
			if n, err = s.firstChild(ctx, request, child.Template); err != nil {
				return nil, 0, fmt.Errorf("child %q: %w", child.Origin, err)
			}
			derived[child.Template] = n
		}
		n.record.Origin = originOf(string(request.Parent), child.Origin)
		if child.Site != "" {
			n.record.Site = string(child.Site)
			n.requires = references(n.record.Template, n.record.Site)
			if tko.CheckID("site ID", n.record.Site) != nil {
				return nil, 0, explain(&MissingError{Key: Key{Kind: tko.KindSite, ID: n.record.Site}})
			}
		}
		if n.record.Replaces, err = replacesOf(child); err != nil {
			return nil, 0, err
		}
		if n := &n.record; len(n.Replaces) > 0 && (n.Prepared || n.Approved) {
			// A child of this origin may be there already, in another state: then
			// nothing is written, and nothing may go.
			n.Prepared, n.Approved = false, false
			n.Conditions = mergeConditions(nil, flagConditions(nil, false, false), 1, time.Now())
		}
		writes[i] = n.write(ctx, fresh[i])
		if writes[i].ParentRevision = request.Revision; request.Revision == 0 {
			writes[i].Requires = append(slices.Clone(writes[i].Requires), deploymentKey(request.Parent))
		}
	}
	outcomes, err := s.commit(ctx, writes...)
	if err != nil {
		return nil, 0, err
	}
	ids = make([]tko.DeploymentID, len(outcomes))
	for i, o := range outcomes {
		ids[i] = tko.DeploymentID(o.Key.ID)
		if !o.Existed {
			created++
		}
	}
	return ids, created, nil
}

// firstChild derives and validates what the children of one template have in
// common: everything but the site.
func (s *Service) firstChild(ctx context.Context, request tko.NewChildren, template tko.TemplateID) (newRecord, error) {
	base, err := s.base(ctx, nil, string(template))
	if err != nil {
		return newRecord{}, err
	}
	return s.newRecord(ctx, nil, base, tko.NewDeployment{Parent: request.Parent, Template: template, Merge: request.Merge})
}

func checkChildren(request tko.NewChildren) error {
	parent := string(request.Parent)
	switch {
	case !isDeploymentID(parent):
		return explain(&MissingError{Key: Key{Kind: tko.KindDeployment, ID: parent}})
	case request.Revision < 0:
		return tko.Errorf(tko.ErrInvalid, "the revision %d of the parent %q is negative: use 0 for any", request.Revision, parent)
	case len(request.Children) > MaxChildren:
		return tko.Errorf(tko.ErrInvalid, "there are %d children: create at most %d at a time", len(request.Children), MaxChildren)
	}
	seen := make(map[string]bool, len(request.Children))
	for _, child := range request.Children {
		if err := checkOrigin(child.Origin); err != nil {
			return err
		}
		if seen[child.Origin] {
			return tko.Errorf(tko.ErrInvalid, "two children have the origin %q: give each its own", child.Origin)
		}
		seen[child.Origin] = true
	}
	return nil
}

// Deployment answers a deployment, with its package; as it was at a revision,
// if that is not 0.
func (s *Service) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	if !isDeploymentID(id) {
		return tko.Deployment{}, tko.NotFound(tko.KindDeployment, id)
	}
	r, err := s.at(ctx, deploymentKey(id), revision)
	if err != nil {
		return tko.Deployment{}, err
	}
	return deploymentOf(r)
}

func deploymentKey(id tko.DeploymentID) Key { return Key{Kind: tko.KindDeployment, ID: string(id)} }

// deploymentOf is the deployment of a record; with its package, if it was
// read, whose Deployment resource says what the record says.
func deploymentOf(r Record) (tko.Deployment, error) {
	d := tko.Deployment{
		ID:       tko.DeploymentID(r.ID),
		Parent:   tko.DeploymentID(r.Parent),
		Template: tko.TemplateID(r.Template),
		Site:     tko.SiteID(r.Site),
		Metadata: maps.Clone(r.effective()),
		Prepared: r.Prepared,
		Approved: r.Approved,
		Origin:   strings.TrimPrefix(r.Origin, originOf(r.Parent, "")),
		Stamp:    r.stamp(),

		TemplateRevision: r.Base,
	}
	for _, id := range r.Replaces {
		d.Replaces = append(d.Replaces, tko.DeploymentID(id))
	}
	if r.KubernetesName() != "" {
		d.Origin = "" // which would make it one of its parent's placements
	}
	if r.Package == nil {
		return d, nil
	}
	pkg, err := deploymentPackage(r)
	d.Package = pkg
	return d, err
}

// deploymentPackage is the package of a deployment's record.
func deploymentPackage(r Record) (krm.Package, error) {
	pkg, err := packageOf(r)
	if err != nil {
		return nil, err
	}
	return pkg.WithDeployment(r.Template, r.Site, r.Prepared, r.Approved), nil
}

// ApproveDeployment approves a prepared deployment, and what its placements
// propose, and answers 1, or 0 if both were approved already. One that isn't
// prepared is an ErrInvalid.
func (s *Service) ApproveDeployment(ctx context.Context, id tko.DeploymentID) (approved int, err error) {
	_, wrote, err := s.approve(ctx, deploymentKey(id), Requirement{}, false)
	if wrote {
		approved = 1
	}
	return approved, err
}

// approve approves a deployment, if what is required is so, and answers it as it
// is then, without what it is associated with; wrote says whether that is
// another state than before. A dry run writes nothing.
func (s *Service) approve(ctx context.Context, key Key, require Requirement, dryRun bool) (r Record, wrote bool, err error) {
	if !isDeploymentID(key.ID) {
		return Record{}, false, tko.NotFound(tko.KindDeployment, key.ID)
	}
	err = retry(ctx, func() error {
		r, err = s.get(ctx, Fields{Package: true}, key)
		switch {
		case err != nil:
			return err
		case r.Revision == 0:
			return tko.NotFound(tko.KindDeployment, key.ID)
		}
		if err := require.check(key, r); err != nil {
			return final(err)
		}
		switch {
		case !r.Prepared:
			return tko.Errorf(tko.ErrInvalid, "deployment %q is not prepared: approve it once it is, its conditions say what it lacks", key.ID)
		case r.Approved && !proposes(r):
			return nil
		}
		w := approval(ctx, r)
		if dryRun {
			r = w.Record
			return nil
		}
		outcomes, err := s.commit(ctx, w)
		if err != nil {
			return err
		}
		r, wrote = w.Record, true
		r.Revision, r.Position = outcomes[0].Revision, outcomes[0].Position
		s.log.InfoContext(ctx, "approved", "deployment", key.ID, "who", author(ctx).Who)
		return nil
	})
	return r, wrote, err
}

// proposes says whether the placements of a deployment wait for an approval of
// what they propose.
func proposes(r Record) bool {
	return slices.ContainsFunc(r.Conditions, func(c tko.Condition) bool {
		return c.Type == tko.ConditionPlaced && c.Reason == tko.ReasonChangeProposed
	})
}

// approval is the write that approves a deployment, and what its placements
// propose.
func approval(ctx context.Context, r Record) Write {
	expect, position := r.Revision, r.Position
	r.Approved = true
	if r.Author = author(ctx); r.Author.Why == "" {
		r.Author.Why = "approved it"
		if proposes(r) {
			r.Author.Why = "approved what its placements propose"
		}
	}
	changed := flagConditions(r.Conditions, r.Prepared, true)
	for _, c := range r.Conditions {
		if c.Type == tko.ConditionPlaced && c.Reason == tko.ReasonChangeProposed {
			c.Reason, c.ObservedRevision = tko.ReasonChangeApproved, expect+1
			changed = append(changed, c)
		}
	}
	r.Conditions = mergeConditions(r.Conditions, changed, expect+1, time.Now())
	return Write{Op: tko.OpWritten, Record: r, Expect: expect, Position: position}
}

// approveBatch is how many deployments are approved in one transaction: few,
// because their packages are in memory.
const approveBatch = 100

// ApproveDeployments approves those of the selected deployments that are
// prepared and not yet approved, and answers how many; with dryRun it changes
// nothing and answers how many that would be. What comes in while it goes on is
// left alone. After an error, what was approved before it stays approved, and
// the error says how many that are. Deployments that somebody is modifying are
// passed over: the error, an ErrBusy, says how many and names one. What approves
// very much must be confirmed (see [Options]).
func (s *Service) ApproveDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (approved int, err error) {
	if sel.Prepared != nil && !*sel.Prepared || sel.Approved != nil && *sel.Approved {
		return 0, nil
	}
	yes, no := true, false
	sel.Prepared, sel.Approved = &yes, &no
	query, err := deploymentQuery(sel, tko.ListOptions{})
	if err != nil {
		return 0, err
	}
	list := s.selected(ctx, query)
	chosen, err := list.freeze()
	if err != nil || dryRun {
		return chosen.len(), err
	}
	if _, err := s.allow(ctx, "approve", tko.KindDeployment, chosen.len()); err != nil {
		return 0, err
	}
	held, first := 0, ""
	err = list.each(chosen, func(keys []Key) error {
		for batch := range slices.Chunk(keys, approveBatch) {
			n, busy, err := s.approveAll(ctx, batch)
			approved += n
			if held += len(busy); first == "" && len(busy) > 0 {
				first = busy[0]
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil && approved > 0:
		return approved, fmt.Errorf("%d deployments were approved before this; the same again goes on: %w", approved, err)
	case err != nil:
		return 0, err
	case held > 0:
		return approved, tko.Errorf(tko.ErrBusy, "%d deployments were approved, but %d are being modified, among them %q: try again when that has ended", approved, held, first)
	}
	return approved, nil
}

// approveAll approves those that still are prepared and unapproved: together
// if they can be, else one by one.
func (s *Service) approveAll(ctx context.Context, keys []Key) (approved int, held []string, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	records, err := s.store.Get(ctx, Fields{Package: true}, keys...)
	if err != nil {
		return 0, nil, err
	}
	var batch []Write
	for _, r := range records {
		if r.Revision != 0 && r.Prepared && !r.Approved {
			batch = append(batch, approval(ctx, r))
		}
	}
	if len(batch) == 0 {
		return 0, nil, nil
	}
	if _, err := s.commit(ctx, batch...); err == nil {
		s.log.InfoContext(ctx, "approved", "count", len(batch), "first", batch[0].Record.ID, "who", author(ctx).Who)
		return len(batch), nil, nil
	} else if !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrBusy) && !errors.Is(err, tko.ErrNotFound) {
		return 0, nil, err
	}
	for _, w := range batch {
		n, err := s.ApproveDeployment(ctx, tko.DeploymentID(w.Record.ID))
		approved += n
		switch {
		case errors.Is(err, tko.ErrBusy):
			held = append(held, w.Record.ID)
		case errors.Is(err, tko.ErrNotFound), errors.Is(err, tko.ErrInvalid): // no longer of those selected
		case err != nil:
			return approved, held, err
		}
	}
	return approved, held, nil
}
