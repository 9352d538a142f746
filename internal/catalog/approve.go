package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// An Approver approves deployments, under the policies that govern them.
type Approver struct {
	rights    *rights.Authorizer // callers enter and commit through it
	store     record.Store
	reader    record.Lookup
	gate      *gate.Gate
	approvals *approvals
	persons   map[string]string // of Options.Persons
	mode      rights.Mode
	log       *slog.Logger
}

// ApproveDeployment approves a prepared deployment and the changes that its
// placements propose. It returns 1, or 0 if nothing was to be approved. A
// deployment that is not prepared is an ErrInvalid.
func (s *Approver) ApproveDeployment(ctx context.Context, id tko.DeploymentID) (approved int, err error) {
	_, wrote, err := s.approve(ctx, record.DeploymentKey(id), record.Requirement{}, false)
	if wrote {
		approved = 1
	}
	return approved, err
}

// approve approves a deployment that meets a requirement, and returns its new
// record, without the associated deployments; wrote reports whether the record
// has changed. A dry run writes nothing.
func (s *Approver) approve(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (r record.Record, wrote bool, err error) {
	if !record.IsDeploymentID(key.ID) {
		return record.Record{}, false, tko.NotFound(tko.KindDeployment, key.ID)
	}
	ctx, c, err := s.rights.Enter(ctx, tko.KindDeployment, access.Approve)
	if err != nil {
		return record.Record{}, false, err
	}
	err = record.Retry(ctx, func() error {
		if r, err = s.rights.GetVisible(ctx, c, record.Fields{Package: true}, key); err == nil {
			err = s.rights.Permit(ctx, &r, nil, access.Approve)
		}
		if err != nil {
			return err
		}
		if err := require.Check(key, r); err != nil {
			return record.Final(err)
		}
		if waiting, ok := tko.WaitingOf(r.Conditions); ok {
			wrote, err = s.consent(ctx, c, &r, waiting, dryRun)
			return err
		}
		switch {
		case !r.Prepared:
			return tko.Errorf(tko.ErrInvalid, "deployment %q is not prepared: approve it after its preparation; its conditions report what is missing", key.ID)
		case r.Approved && !tko.HasCondition(r.Conditions, tko.ConditionPlaced, tko.ReasonChangeProposed):
			return nil
		}
		if err := confirmsProposal(ctx, r); err != nil {
			return record.Final(err)
		}
		w := approval(ctx, r)
		enough, err := s.vote(ctx, r, dryRun)
		if err != nil {
			return record.Final(err)
		}
		if dryRun {
			r = w.Record
			return nil
		}
		if !enough {
			return nil
		}
		commitCtx := ctx
		if grant := proposed(r); len(grant) > 0 {
			root, err := s.gate.RootOf(ctx, key.ID)
			if err != nil {
				return err
			}
			commitCtx = gate.WithGrant(ctx, root, grant)
		}
		outcomes, err := s.rights.Commit(commitCtx, w)
		if err != nil {
			return err
		}
		s.forgetVotes(ctx, key.ID)
		r, wrote = w.Record, true
		r.Revision, r.Position = outcomes[0].Revision, outcomes[0].Position
		s.log.InfoContext(ctx, "approved", "deployment", key.ID, "who", rights.Author(ctx).Who)
		return nil
	})
	return r, wrote, err
}

// consent lets a deployment make the changes that wait for it. The caller confirms their
// number. It writes a revision, so that the deployment is reconciled at once.
func (s *Approver) consent(ctx context.Context, c *rights.Caller, r *record.Record, waiting tko.Waiting, dryRun bool) (wrote bool, err error) {
	if c.Identity.Role() != "" || c.Identity.Plugin != nil {
		return false, record.Final(tko.Errorf(tko.ErrDenied, "deployment %q: %s, and %q is no person", r.ID, waiting, c.Identity.Subject))
	}
	count := waiting.Count()
	confirmed, ok := tko.ConfirmationOf(ctx)
	if !dryRun && !ok {
		return false, record.Final(tko.Errorf(tko.ErrInvalid, "deployment %q: %s: nothing was changed; check the topology, then confirm %d to proceed (--confirm=%d)", r.ID, waiting, count, count))
	}
	if ok && !tko.Consents(confirmed, count) {
		return false, record.Final(tko.Errorf(tko.ErrInvalid, "deployment %q: %s, but %d were confirmed: nothing was changed; confirm %d to proceed (--confirm=%d)", r.ID, waiting, confirmed, count, count))
	}
	if dryRun {
		return false, nil
	}
	root, err := s.gate.RootOf(ctx, r.ID)
	if err != nil {
		return false, err
	}
	grant := map[record.Count]int{}
	if spare := confirmed - count; waiting.Create > 0 {
		grant[record.CountCreated] = waiting.Create + spare
	} else {
		waiting.Remove += spare
	}
	if waiting.Remove > 0 {
		grant[record.CountDeployments] = waiting.Remove
	}
	w := *r
	w.Author = rights.Author(ctx)
	if w.Author.Why == "" {
		w.Author.Why = fmt.Sprintf("consented to %d changes: %d deployments to create, %d to remove", count, waiting.Create, waiting.Remove)
	}
	w.Conditions = slices.Clone(r.Conditions)
	for i := range w.Conditions {
		if c := &w.Conditions[i]; c.Reason == tko.ReasonWaitsForApproval && c.Type != tko.ConditionApproved {
			c.Reason, c.Message, c.ObservedRevision = tko.ReasonConsented, fmt.Sprintf("%s consented to %d changes", w.Author.Who, count), r.Revision+1
		}
	}
	outcomes, err := s.rights.Commit(gate.WithGrant(ctx, root, grant), record.Write{Op: tko.OpWritten, Record: w, Expect: r.Revision, Position: r.Position})
	if err != nil {
		return false, err
	}
	r.Conditions, r.Author, r.Revision, r.Position = w.Conditions, w.Author, outcomes[0].Revision, outcomes[0].Position
	s.log.InfoContext(ctx, "consented", "deployment", r.ID, "create", waiting.Create, "remove", waiting.Remove, "who", w.Author.Who)
	return true, nil
}

// confirmsProposal returns an error if the caller confirms another number of changes than the
// placements of a deployment propose.
func confirmsProposal(ctx context.Context, r record.Record) error {
	confirmed, ok := tko.ConfirmationOf(ctx)
	total := 0
	for count, n := range proposed(r) {
		if count != record.CountSites { // of the same deployments
			total += n
		}
	}
	if !ok || total == 0 || tko.Consents(confirmed, total) {
		return nil
	}
	return tko.Errorf(tko.ErrInvalid, "deployment %q: its placements propose %d changes, but %d were confirmed: nothing was changed; check the proposal, then confirm %d to proceed (--confirm=%d)", r.ID, total, confirmed, total, total)
}

// proposed returns the numbers of deployments that the placements of a deployment propose
// to create and to remove, and of the sites that these change: an approval of the proposal is
// consent to them.
func proposed(r record.Record) map[record.Count]int {
	if !tko.HasCondition(r.Conditions, tko.ConditionPlaced, tko.ReasonChangeProposed) {
		return nil
	}
	pkg, err := record.PackageOf(r)
	if err != nil {
		return nil
	}
	grant := map[record.Count]int{}
	add := func(resource krm.Resource, count record.Count, change string) {
		grant[count] += gate.NumberAt(resource, "status", "proposal", change, "count")
	}
	for _, resource := range pkg {
		if resource.GVK().Group == gate.TopologyGroup {
			add(resource, record.CountCreated, "create")
			add(resource, record.CountCreated, "replace")
			add(resource, record.CountDeployments, "delete")
			add(resource, record.CountSites, "replace")
			add(resource, record.CountSites, "delete")
		}
	}
	maps.DeleteFunc(grant, func(_ record.Count, n int) bool { return n <= 0 })
	return grant
}

// approval returns the write that approves a deployment and the changes that
// its placements propose.
func approval(ctx context.Context, r record.Record) record.Write {
	expect, position := r.Revision, r.Position
	r.Approved = true
	proposal := tko.FindCondition(r.Conditions, tko.ConditionPlaced)
	if proposal != nil && proposal.Reason != tko.ReasonChangeProposed {
		proposal = nil
	}
	r.Author = rights.Author(ctx)
	if r.Author.Why == "" {
		r.Author.Why = "approved it"
		if proposal != nil {
			r.Author.Why = "approved what its placements propose"
		}
	}
	changed := condition.OfFlags(r.Conditions, r.Prepared, true)
	if proposal != nil {
		c := *proposal
		c.Reason, c.ObservedRevision = tko.ReasonChangeApproved, expect+1
		changed = append(changed, c)
	}
	r.Conditions = condition.Merge(r.Conditions, changed, expect+1, time.Now())
	return record.Write{Op: tko.OpWritten, Record: r, Expect: expect, Position: position, KeepsOwner: true}
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
func (s *Approver) ApproveDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (approved int, err error) {
	if sel.Prepared != nil && !*sel.Prepared || sel.Approved != nil && *sel.Approved {
		return 0, nil
	}
	ctx, c, err := s.rights.Enter(ctx, tko.KindDeployment, access.Approve)
	if err != nil {
		return 0, err
	}
	yes, no := true, false
	sel.Prepared, sel.Approved = &yes, &no
	query, err := criteria.Deployments(sel, tko.ListOptions{})
	if err != nil {
		return 0, err
	}
	query.Scope = c.Scope(access.Approve, tko.KindDeployment)
	list := selected(ctx, s.store, query)
	chosen, err := list.freeze()
	if err != nil || dryRun {
		return chosen.len(), err
	}
	if _, err := s.gate.AllowReach(ctx, "approve", tko.KindDeployment, record.Key{Kind: tko.KindDeployment}, map[record.Count]int{record.CountApproved: chosen.len()}); err != nil {
		return 0, err
	}
	held, first := 0, ""
	var stopped error
	err = list.each(chosen, func(keys []record.Key) error {
		for batch := range slices.Chunk(keys, approveBatch) {
			n, busy, err := s.approveAll(ctx, batch)
			approved += n
			if errors.Is(err, tko.ErrStopped) { // the others don't wait for it
				stopped, err = cmp.Or(stopped, err), nil
			}
			held += len(busy)
			if first == "" && len(busy) > 0 {
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
	case stopped != nil:
		return approved, tko.Errorf(tko.ErrStopped, "%d deployments were approved, but not all: %w", approved, stopped)
	case held > 0:
		return approved, tko.Errorf(tko.ErrBusy, "%d deployments were approved, but %d are being modified, among them %q: try again after the modifications", approved, held, first)
	}
	return approved, nil
}

// approveAll approves those deployments that are still prepared and unapproved:
// in one commit if possible, otherwise one by one. held are the IDs of those
// that are being modified.
func (s *Approver) approveAll(ctx context.Context, keys []record.Key) (approved int, held []string, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	records, err := s.store.Get(ctx, record.Fields{Package: true}, keys...)
	if err != nil {
		return 0, nil, err
	}
	var batch []record.Write
	single := false // approvals that policies govern, and hold back, are counted one by one
	for _, r := range records {
		if r.Revision != 0 && r.Prepared && !r.Approved {
			policies, err := s.approvals.policiesFor(ctx, r)
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
	} else if err = s.approvals.permitBatch(ctx, batch, access.Approve); err == nil {
		_, err = s.rights.Commit(ctx, batch...)
	}
	if err == nil {
		s.log.InfoContext(ctx, "approved", "count", len(batch), "first", batch[0].Record.ID, "who", rights.Author(ctx).Who)
		return len(batch), nil, nil
	}
	if !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrBusy) && !errors.Is(err, tko.ErrNotFound) {
		return 0, nil, err
	}
	var stopped error
	for _, w := range batch {
		n, err := s.ApproveDeployment(ctx, tko.DeploymentID(w.Record.ID))
		approved += n
		switch {
		case errors.Is(err, tko.ErrStopped):
			stopped = cmp.Or(stopped, err)
		case errors.Is(err, tko.ErrBusy):
			held = append(held, w.Record.ID)
		case errors.Is(err, tko.ErrNotFound), errors.Is(err, tko.ErrInvalid): // no longer selected
		case err != nil:
			return approved, held, err
		}
	}
	return approved, held, stopped
}

// maxAuthors is the maximum number of revisions whose authors are compared with an
// approver.
const maxAuthors = 1000

// vote records the caller's approval of a deployment that a policy governs, and
// reports whether the deployment has enough of them, or needs none. It returns
// ErrDenied if the caller may not approve it: an author of a revision since the last
// approval, a controller, or a member of none of the policy's groups.
func (s *Approver) vote(ctx context.Context, r record.Record, dryRun bool) (enough bool, err error) {
	policies, err := s.approvals.policiesFor(ctx, r)
	if err != nil || len(policies) == 0 {
		return true, err
	}
	c, _ := rights.CallerOf(ctx)
	subject := c.Identity.Subject
	deny := func(format string, args ...any) error {
		reason := fmt.Sprintf(format, args...)
		s.rights.RefuseApproval(ctx, c, r, reason)
		return tko.Errorf(tko.ErrDenied, "deployment %q: %s", r.ID, reason)
	}
	if !isPerson(c.Identity.Subject) || c.Identity.Plugin != nil || c.Identity.IsAnonymous() {
		return false, deny("a policy asks for an approval by a person, which %q is not", subject)
	}
	need := 0
	for _, p := range policies {
		need = max(need, p.Approvers)
		if len(p.Groups) > 0 && !slices.ContainsFunc(p.Groups, func(g string) bool { return slices.Contains(c.Identity.Groups, g) }) {
			return false, deny("a policy asks for an approval by a member of %s", strings.Join(p.Groups, " or "))
		}
	}
	authors, err := s.authorsSinceApproval(ctx, r)
	if err != nil {
		return false, err
	}
	for _, a := range authors {
		if s.person(a) == s.person(subject) {
			return false, deny("a policy asks that who approves is not who changed it, and %s changed it since its last approval: ask another person", a)
		}
	}
	if need <= 1 || dryRun {
		return true, nil
	}
	v, err := rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (v voted, err error) {
		v.approval = rights.PendingApproval{Revision: r.Revision, Digest: fmt.Sprintf("%x", r.Digest)}
		if had, ok := book.Approvals[r.ID]; ok && had.Revision == v.approval.Revision && had.Digest == v.approval.Digest {
			v.approval.Subjects = slices.Clone(had.Subjects)
		}
		if !slices.ContainsFunc(v.approval.Subjects, func(other string) bool { return s.person(other) == s.person(subject) }) {
			v.approval.Subjects = append(v.approval.Subjects, subject)
		}
		return v, v.Write(record.RuleApproval, r.ID, v.approval,
			audit.Record{Kind: record.RuleApproval, ID: r.ID, Op: "approved", Revision: r.Revision, After: v.approval.Digest, Site: r.Site})
	})
	if err != nil {
		return false, err
	}
	return len(v.approval.Subjects) >= need, nil
}

// voted is the decision about a vote.
type voted struct {
	rights.Change

	approval rights.PendingApproval
}

// forgetVotes removes the approvals of a deployment that is approved. If that fails,
// they stay, and are void because the deployment has another revision.
func (s *Approver) forgetVotes(ctx context.Context, id string) {
	if s.mode != rights.Enforce {
		return
	}
	book, err := s.rights.RulesOf(ctx, rights.Age)
	if err != nil {
		return
	}
	if _, ok := book.Approvals[id]; !ok {
		return
	}
	if _, err := s.store.ChangeAccess(ctx, book.Version, nil, []record.AccessRule{{Kind: record.RuleApproval, ID: id}}); err != nil {
		s.log.DebugContext(ctx, "can't remove the approvals of an approved deployment", "deployment", id, "err", err)
	}
}

// isPerson reports whether an author is a person, as far as the name shows: our own
// controllers and plugins are not.
func isPerson(who string) bool { return who != "" && !strings.HasPrefix(who, identity.Own) }

// person returns the name of the person that a subject is an identity of: the subject
// itself, unless Options.Persons has it.
func (s *Approver) person(subject string) string {
	if name, ok := s.persons[subject]; ok {
		return "person " + name
	}
	return subject
}

// authorsSinceApproval returns the persons who wrote revisions of a deployment since
// it was last approved, the revision of the template that it was made from since, or
// the registrations of the plugins that changed it since.
func (s *Approver) authorsSinceApproval(ctx context.Context, r record.Record) ([]string, error) {
	var authors []string
	note := func(who string) {
		if isPerson(who) && !slices.Contains(authors, who) {
			authors = append(authors, who)
		}
	}
	approvedBase, plugins := int64(0), map[string]bool{}
	for revision := r.Revision; revision > 0 && r.Revision-revision < maxAuthors; revision-- {
		was, err := s.store.Revision(ctx, r.Key, revision)
		if errors.Is(err, tko.ErrNotFound) {
			break // no longer retained
		}
		if err != nil {
			return nil, err
		}
		if was.UID != r.UID {
			break // an earlier deployment of the same ID
		}
		if was.Approved {
			approvedBase = was.Base
			break
		}
		note(was.Author.Who)
		if id, ok := strings.CutPrefix(was.Author.Who, identity.Own+"plugin:"); ok {
			typ, name, _ := strings.Cut(id, "/")
			plugins[tko.PluginID(typ, name)] = true
		}
		for _, step := range was.Steps {
			if step.Plugin != "" {
				plugins[tko.PluginID(tko.PluginPrepare, step.Plugin)] = true
			}
		}
	}
	if r.Template != "" && r.Base != 0 && r.Base != approvedBase {
		was, err := s.store.Revision(ctx, record.Key{Kind: tko.KindTemplate, ID: r.Template}, r.Base)
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return nil, err
		}
		note(was.Author.Who)
	}
	for id := range plugins {
		registered, err := s.reader.One(ctx, record.Fields{}, record.Key{Kind: tko.KindPlugin, ID: id})
		if err != nil {
			return nil, err
		}
		note(registered.Author.Who)
	}
	return authors, nil
}
