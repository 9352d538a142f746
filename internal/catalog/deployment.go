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
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/krm"
)

// CreateDeployment creates a deployment from its template's package, merged
// with the given one, and returns its ID. IDs that one Service makes sort in
// the order of creation. A prepared deployment is validated completely, others
// partially. An unknown template, site or parent is an ErrInvalid.
func (s *Service) CreateDeployment(ctx context.Context, request tko.NewDeployment) (id tko.DeploymentID, err error) {
	ctx, _, err = s.enter(ctx, tko.KindDeployment, access.Create)
	if err != nil {
		return "", err
	}
	if request.Parent != "" && !isDeploymentID(request.Parent) {
		return "", explain(&MissingError{Key: Key{Kind: tko.KindDeployment, ID: string(request.Parent)}})
	}
	err = tryOptimistic(ctx, func(reads *readSet) error {
		id, err = s.createFrom(ctx, reads, request)
		return err
	})
	return id, err
}

func (s *Service) createFrom(ctx context.Context, reads *readSet, request tko.NewDeployment) (tko.DeploymentID, error) {
	base, err := s.base(ctx, reads, string(request.Template))
	if err != nil {
		return "", err
	}
	n, err := s.newRecord(ctx, reads, base, request)
	if err != nil {
		return "", err
	}
	if err := s.permitWrite(ctx, Record{}, n.record); err != nil {
		return "", err
	}
	if err := s.permitApproval(ctx, Record{}, &n.record); err != nil {
		return "", err
	}
	ids, err := s.ids.next(1)
	if err != nil {
		return "", err
	}
	if request.Parent != "" {
		n.requires = append(n.requires, deploymentKey(request.Parent))
	}
	outcomes, err := s.commit(ctx, reads.write(n.write(ctx, ids[0])))
	if err != nil {
		return "", err
	}
	return tko.DeploymentID(outcomes[0].Key.ID), nil
}

// A newRecord is a derived and validated deployment without an ID.
type newRecord struct {
	record   Record
	requires []Key
}

// newRecord derives and validates a new deployment.
func (s *Service) newRecord(ctx context.Context, reads *readSet, base base, request tko.NewDeployment) (newRecord, error) {
	d, err := newDraft(base.pkg, request)
	if err != nil {
		return newRecord{}, err
	}
	inherited, revision := base.metadata, base.revision
	if d.template != string(request.Template) {
		other, err := s.base(ctx, reads, d.template)
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
	c, err := s.validDraft(ctx, reads, d, request.Parent)
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
	if d.template != "" && d.template == string(request.Template) {
		n.record.derive(derivation.Record{Template: request.Template, Revision: revision, Merge: request.Merge})
	}
	n.record.Conditions = mergeConditions(nil, flagConditions(nil, d.prepared, d.approved), 1, time.Now())
	return n, nil
}

// write returns the write that creates the deployment.
func (n newRecord) write(ctx context.Context, id string) Write {
	r := n.record
	r.ID, r.UID, r.Author = id, newUID(), author(ctx)
	return Write{Op: tko.OpWritten, Record: r, Expect: Absent, Requires: n.requires}
}

// validDraft validates and encodes a draft.
func (s *Service) validDraft(ctx context.Context, reads *readSet, d draft, parent tko.DeploymentID) (content, error) {
	c, err := contentOf(d.pkg.WithoutDeploymentState())
	if err != nil {
		return content{}, err
	}
	c.pkg = d.pkg
	return c, s.validateDraft(ctx, reads, d, c, s.acceptedOf(deploymentKey(parent), false, d.template))
}

// MaxChildren is the maximum number of children that one call of CreateChildren
// may create.
const MaxChildren = 10_000

// CreateChildren creates children of a deployment, all or none, each exactly
// once: if the parent has a child of the same origin, the ID of that child is
// returned, and the child doesn't change. A new child replaces other
// deployments in the transaction that makes it prepared and approved. The IDs
// are in the order of the children; those of new children ascend. If a revision
// is given, a parent that doesn't exist or has another revision is an
// ErrConflict. Unknown templates and sites, and an unknown parent if no
// revision is given, are an ErrInvalid.
func (s *Service) CreateChildren(ctx context.Context, request tko.NewChildren) (ids []tko.DeploymentID, created int, err error) {
	ctx, _, err = s.enter(ctx, tko.KindDeployment, access.Create)
	if err != nil {
		return nil, 0, err
	}
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
			// If a child of this origin exists, this write is skipped, and nothing
			// may be replaced.
			n.Prepared, n.Approved = false, false
			n.Conditions = mergeConditions(nil, flagConditions(nil, false, false), 1, time.Now())
		}
		if err := s.permitWrite(ctx, Record{}, n.record); err != nil {
			return nil, 0, fmt.Errorf("child %q: %w", child.Origin, err)
		}
		if err := s.permitApproval(ctx, Record{}, &n.record); err != nil {
			return nil, 0, fmt.Errorf("child %q: %w", child.Origin, err)
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

// firstChild derives and validates the part that all children of one template
// share: everything except the site.
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

// Deployment returns a deployment with its package, as of a revision; 0 is the
// current one.
func (s *Service) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	if !isDeploymentID(id) {
		return tko.Deployment{}, tko.NotFound(tko.KindDeployment, id)
	}
	return read(ctx, s, deploymentKey(id), revision, s.deploymentOf)
}

// keysOf returns the key of each entry of a list.
func keysOf[T any](list []T, key func(T) Key) []Key {
	keys := make([]Key, len(list))
	for i, entry := range list {
		keys[i] = key(entry)
	}
	return keys
}

func deploymentKey(id tko.DeploymentID) Key { return Key{Kind: tko.KindDeployment, ID: string(id)} }

// deploymentOf returns the deployment of a record. If the record has a package,
// the Deployment resource of the result's package has the state of the record.
func (s *Service) deploymentOf(c *caller, r Record) (tko.Deployment, error) {
	pkg, err := r.Resources()
	d := sharedDeployment(r)
	d.Metadata, d.Stamp.Conditions, d.Package = maps.Clone(d.Metadata), slices.Clone(d.Stamp.Conditions), s.redact(c, r, pkg)
	return d, err
}

// sharedDeployment returns the deployment of a record, without its package. Its
// metadata and conditions are those of the record.
func sharedDeployment(r Record) tko.Deployment {
	d := tko.Deployment{
		ID:       tko.DeploymentID(r.ID),
		Parent:   tko.DeploymentID(r.Parent),
		Template: tko.TemplateID(r.Template),
		Site:     tko.SiteID(r.Site),
		Metadata: r.effective(),
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
		d.Origin = "" // an origin would make it a child of a placement of its parent
	}
	return d
}

// deploymentPackage returns the package of a deployment's record.
func deploymentPackage(r Record) (krm.Package, error) {
	pkg, err := packageOf(r)
	if err != nil {
		return nil, err
	}
	return pkg.WithDeployment(r.Template, r.Site, r.Prepared, r.Approved), nil
}

// ApproveDeployment approves a prepared deployment and the changes that its
// placements propose. It returns 1, or 0 if nothing was to be approved. A
// deployment that is not prepared is an ErrInvalid.
func (s *Service) ApproveDeployment(ctx context.Context, id tko.DeploymentID) (approved int, err error) {
	_, wrote, err := s.approve(ctx, deploymentKey(id), Requirement{}, false)
	if wrote {
		approved = 1
	}
	return approved, err
}

// approve approves a deployment that meets a requirement, and returns its new
// record, without the associated deployments; wrote reports whether the record
// has changed. A dry run writes nothing.
func (s *Service) approve(ctx context.Context, key Key, require Requirement, dryRun bool) (r Record, wrote bool, err error) {
	if !isDeploymentID(key.ID) {
		return Record{}, false, tko.NotFound(tko.KindDeployment, key.ID)
	}
	ctx, c, err := s.enter(ctx, tko.KindDeployment, access.Approve)
	if err != nil {
		return Record{}, false, err
	}
	err = retry(ctx, func() error {
		r, err = s.get(ctx, Fields{Package: true}, key)
		if err == nil {
			err = s.visible(c, r)
		}
		if err == nil {
			err = s.permit(ctx, &r, nil, access.Approve)
		}
		if err != nil {
			return err
		}
		if err := require.check(key, r); err != nil {
			return final(err)
		}
		switch {
		case !r.Prepared:
			return tko.Errorf(tko.ErrInvalid, "deployment %q is not prepared: approve it after its preparation; its conditions report what is missing", key.ID)
		case r.Approved && !tko.HasCondition(r.Conditions, tko.ConditionPlaced, tko.ReasonChangeProposed):
			return nil
		}
		w := approval(ctx, r)
		enough, err := s.vote(ctx, r, dryRun)
		if err != nil {
			return final(err)
		}
		if dryRun {
			r = w.Record
			return nil
		}
		if !enough {
			return nil
		}
		outcomes, err := s.commit(ctx, w)
		if err != nil {
			return err
		}
		s.forgetVotes(ctx, key.ID)
		r, wrote = w.Record, true
		r.Revision, r.Position = outcomes[0].Revision, outcomes[0].Position
		s.log.InfoContext(ctx, "approved", "deployment", key.ID, "who", author(ctx).Who)
		return nil
	})
	return r, wrote, err
}

// approval returns the write that approves a deployment and the changes that
// its placements propose.
func approval(ctx context.Context, r Record) Write {
	expect, position := r.Revision, r.Position
	r.Approved = true
	proposal := tko.FindCondition(r.Conditions, tko.ConditionPlaced)
	if proposal != nil && proposal.Reason != tko.ReasonChangeProposed {
		proposal = nil
	}
	if r.Author = author(ctx); r.Author.Why == "" {
		r.Author.Why = "approved it"
		if proposal != nil {
			r.Author.Why = "approved what its placements propose"
		}
	}
	changed := flagConditions(r.Conditions, r.Prepared, true)
	if proposal != nil {
		c := *proposal
		c.Reason, c.ObservedRevision = tko.ReasonChangeApproved, expect+1
		changed = append(changed, c)
	}
	r.Conditions = mergeConditions(r.Conditions, changed, expect+1, time.Now())
	return Write{Op: tko.OpWritten, Record: r, Expect: expect, Position: position}
}

// approveBatch is the number of deployments that are approved in one
// transaction. It is small, because their packages are in memory.
const approveBatch = 100

// ApproveDeployments approves those of the selected deployments that are
// prepared and not yet approved, and returns their number; with dryRun it only
// counts them. Deployments that are added meanwhile are ignored. An error does
// not undo earlier approvals, and states their number. Deployments that are being
// modified are skipped: the error, an ErrBusy, states their number and names one.
// An approval that exceeds the limits of [Options] must be confirmed.
func (s *Service) ApproveDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (approved int, err error) {
	if sel.Prepared != nil && !*sel.Prepared || sel.Approved != nil && *sel.Approved {
		return 0, nil
	}
	ctx, c, err := s.enter(ctx, tko.KindDeployment, access.Approve)
	if err != nil {
		return 0, err
	}
	yes, no := true, false
	sel.Prepared, sel.Approved = &yes, &no
	query, err := deploymentQuery(sel, tko.ListOptions{})
	if err != nil {
		return 0, err
	}
	query.Scope = c.scope(s, access.Approve, tko.KindDeployment)
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
		return approved, fmt.Errorf("%d deployments were approved before this error: repeat the request to approve the rest: %w", approved, err)
	case err != nil:
		return 0, err
	case held > 0:
		return approved, tko.Errorf(tko.ErrBusy, "%d deployments were approved, but %d are being modified, among them %q: try again after the modifications", approved, held, first)
	}
	return approved, nil
}

// approveAll approves those deployments that are still prepared and unapproved:
// in one commit if possible, otherwise one by one. held are the IDs of those
// that are being modified.
func (s *Service) approveAll(ctx context.Context, keys []Key) (approved int, held []string, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	records, err := s.store.Get(ctx, Fields{Package: true}, keys...)
	if err != nil {
		return 0, nil, err
	}
	var batch []Write
	single := false // approvals that policies govern, and hold back, are counted one by one
	for _, r := range records {
		if r.Revision != 0 && r.Prepared && !r.Approved {
			policies, err := s.policiesFor(ctx, r)
			if err != nil {
				return 0, nil, err
			}
			single = single || len(policies) > 0
			batch = append(batch, approval(ctx, r))
		}
	}
	if len(batch) == 0 {
		return 0, nil, nil
	}
	if single {
		err = tko.ErrConflict
	} else if err = s.permitBatch(ctx, batch, access.Approve); err == nil {
		_, err = s.commit(ctx, batch...)
	}
	if err == nil {
		s.log.InfoContext(ctx, "approved", "count", len(batch), "first", batch[0].Record.ID, "who", author(ctx).Who)
		return len(batch), nil, nil
	}
	if !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrBusy) && !errors.Is(err, tko.ErrNotFound) {
		return 0, nil, err
	}
	for _, w := range batch {
		n, err := s.ApproveDeployment(ctx, tko.DeploymentID(w.Record.ID))
		approved += n
		switch {
		case errors.Is(err, tko.ErrBusy):
			held = append(held, w.Record.ID)
		case errors.Is(err, tko.ErrNotFound), errors.Is(err, tko.ErrInvalid): // no longer selected
		case err != nil:
			return approved, held, err
		}
	}
	return approved, held, nil
}
