package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// CommitDeployment replaces the package of a deployment that is still at the
// given revision, as EndModification does, and conditions, by type, in the same
// transaction. The new revision records the steps of the commit. It returns the
// new revision. A package that changes nothing keeps the revision. It returns
// ErrConflict if the deployment has changed, and ErrBusy while it is being
// modified.
func (s *DeploymentWriter) CommitDeployment(ctx context.Context, commit tko.DeploymentCommit) (int64, error) {
	if err := checkCommit(commit); err != nil {
		return 0, err
	}
	ctx, _, err := s.rights.Enter(rights.ActFor(ctx, commit.ID), tko.KindDeployment, access.Commit, access.Update)
	if err != nil {
		return 0, err
	}
	var revision int64
	err = tryOptimistic(ctx, func(reads *readSet) error {
		current, err := s.reader.One(ctx, record.Fields{Package: true}, record.DeploymentKey(commit.ID))
		if err == nil {
			revision, err = s.commitFrom(ctx, reads, current, commit)
		}
		return err
	})
	return revision, err
}

func checkCommit(commit tko.DeploymentCommit) error {
	if !record.IsDeploymentID(commit.ID) {
		return tko.NotFound(tko.KindDeployment, commit.ID)
	}
	if commit.Revision <= 0 {
		return tko.Errorf(tko.ErrInvalid, "deployment %q: the revision is %d: give the one that the package was made from", commit.ID, commit.Revision)
	}
	return condition.Check(commit.Conditions)
}

// maxBatch is the maximum number of deployments that are read or committed by one
// call.
const maxBatch = 500

// CommitDeployments commits different deployments, each as CommitDeployment
// does, and independently of the others. The revision of a deployment that was not
// committed is 0: committing it alone returns the reason. Their transactions are
// shared.
func (s *DeploymentWriter) CommitDeployments(ctx context.Context, commits []tko.DeploymentCommit) (revisions []int64, err error) {
	call := ctx // each commit has a caller of its own
	ctx, _, err = s.rights.Enter(ctx, tko.KindDeployment, access.Commit, access.Update)
	if err != nil {
		return nil, err
	}
	if len(commits) > maxBatch {
		return nil, tko.Errorf(tko.ErrInvalid, "%d deployments are to be committed at once: give at most %d", len(commits), maxBatch)
	}
	keys, seen := make([]record.Key, 0, len(commits)), map[tko.DeploymentID]bool{}
	for _, c := range commits {
		if seen[c.ID] {
			return nil, tko.Errorf(tko.ErrInvalid, "deployment %q is to be committed twice by one call: give it once", c.ID)
		}
		seen[c.ID] = true
		if checkCommit(c) == nil {
			keys = append(keys, record.DeploymentKey(c.ID))
		}
	}
	revisions = make([]int64, len(commits))
	if len(keys) == 0 {
		return revisions, nil
	}
	records, err := s.store.Get(ctx, record.Fields{Package: true}, keys...)
	if err != nil {
		return nil, err
	}
	current := make(map[record.Key]record.Record, len(records))
	for _, r := range records {
		current[r.Key] = r
	}
	var wait sync.WaitGroup
	for i, c := range commits {
		r, ok := current[record.DeploymentKey(c.ID)]
		if !ok {
			continue
		}
		wait.Go(func() {
			// After an error, nothing of this deployment has changed, or its outcome is
			// unknown: either way, the caller reads the reason by committing it alone.
			ctx, _, err := s.rights.Enter(rights.ActFor(call, c.ID), tko.KindDeployment, access.Commit, access.Update)
			if err != nil {
				return
			}
			if revision, err := s.commitFrom(ctx, new(readSet), r, c); err == nil {
				revisions[i] = revision
			}
		})
	}
	wait.Wait()
	return revisions, ctx.Err()
}

// commitFrom commits a deployment that was read as current.
func (s *DeploymentWriter) commitFrom(ctx context.Context, reads *readSet, current record.Record, commit tko.DeploymentCommit) (int64, error) {
	key := record.DeploymentKey(commit.ID)
	if current.Revision != 0 {
		if err := s.rights.Permit(ctx, &current, nil, access.Commit, access.Update); err != nil {
			return 0, err
		}
	}
	if err := checkRevision(current, commit); err != nil {
		return 0, err
	}
	ctx = trail.WithCause(ctx, commit.Cause)
	if commit.Why != "" {
		ctx = tko.WithAuthor(ctx, tko.Author{Who: tko.AuthorOf(ctx).Who, Why: commit.Why})
	}
	change, err := s.changed(ctx, reads, editOf(current, current, commit.Package))
	if err != nil {
		return 0, err
	}
	change.conditions = commit.Conditions
	change.record.Steps = tko.BoundSteps(commit.Steps)
	s.prepared(ctx, current, &change.record, commit.Package, commit.Steps)
	if record.SameContent(current, change.record) {
		if err := condition.Check(commit.Conditions); err != nil || len(commit.Conditions) == 0 {
			return current.Revision, err
		}
		return current.Revision, s.statuses.setConditions(ctx, key, commit.Conditions, nil, record.Requirement{})
	}
	var revision int64
	err = record.Retry(ctx, func() error {
		var err error
		if revision, err = s.writeChange(ctx, reads, current, change); !errors.Is(err, tko.ErrConflict) {
			return err
		}
		if record.IsStale(err) {
			return record.Final(err)
		}
		again, getErr := s.reader.One(ctx, record.Fields{}, key)
		if getErr == nil {
			getErr = checkRevision(again, commit)
		}
		if getErr != nil {
			return record.Final(getErr)
		}
		current = again // only its conditions have changed
		return err
	})
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return 0, tko.NotFound(tko.KindDeployment, commit.ID)
	case record.IsStale(err):
		return 0, err
	case errors.Is(err, tko.ErrConflict):
		return 0, revisionConflict(commit)
	default:
		return revision, err
	}
}

// checkRevision checks that a deployment exists and is at the revision of a
// commit.
func checkRevision(current record.Record, commit tko.DeploymentCommit) error {
	switch current.Revision {
	case 0:
		return tko.NotFound(tko.KindDeployment, commit.ID)
	case commit.Revision:
		return nil
	default:
		return revisionConflict(commit)
	}
}

func revisionConflict(commit tko.DeploymentCommit) error {
	return tko.Errorf(tko.ErrConflict, "deployment %q is no longer at revision %d: read it again", commit.ID, commit.Revision)
}

// A change is a derived deployment with another package. It is validated if it
// differs from the stored one.
type change struct {
	record    record.Record
	requires  []record.Key
	warned    []tko.Condition
	withdrawn *tko.Condition // the Approved condition, if the change withdraws the approval

	token      string          // of the modification that it ends, as it is stored; empty: none
	conditions []tko.Condition // that are set with it
}

// An edit is another package for a deployment.
type edit struct {
	start   record.Record               // the deployment that the package was made from, with its own package
	before  func() (krm.Package, error) // the package of start: most changes don't need it
	current record.Record               // the deployment now
	pkg     krm.Package
	with    attributes
}

// editOf returns an edit that keeps the attributes of the deployment.
func editOf(start, current record.Record, pkg krm.Package) edit {
	before := sync.OnceValues(func() (krm.Package, error) { return record.DeploymentPackage(start) })
	return edit{start: start, before: before, current: current, pkg: pkg, with: attributesOf(current)}
}

func attributesOf(r record.Record) attributes {
	return attributes{template: r.Template, site: r.Site, passed: r.Passed(), removed: r.Removed(), labels: r.Labels(), attached: r.Attached(), applied: r.Applied()}
}

// attributes are the properties of a deployment other than its package:
// template and site, which replace the current ones if they differ, passed and
// removed metadata, labels, attached data, and what manifests named.
type attributes struct {
	template, site string
	passed         map[string]string
	removed        []string
	labels         map[string]string
	attached       []byte
	applied        map[string]record.AppliedSet // what manifests named
	deferred       bool                         // the template and site may be ones that don't exist yet
	made           bool                         // the package was made from the template already
}

// changed derives a deployment with another package.
func (s *DeploymentWriter) changed(ctx context.Context, reads *readSet, e edit) (change, error) {
	start, current, attributes := e.start, e.current, e.with
	pkg, err := s.rights.Restore(ctx, start, e.pkg)
	if err != nil {
		return change{}, err
	}
	d, err := content.ChangedDraft(start, current, e.before, pkg)
	if err != nil {
		return change{}, err
	}
	template, site, awaited, err := s.references.resolve(ctx, current, attributes)
	if err != nil {
		return change{}, err
	}
	if d.Template != current.Template && attributes.template == current.Template { // the package names another one than the awaited
		template, awaited.Template = current.Template, ""
	}
	if d.Site != current.Site && attributes.site == current.Site {
		site, awaited.Site = current.Site, ""
	}
	if d.Template == awaited.Template && awaited.Template != "" { // the package names it, too
		d.Template = current.Template
	}
	if d.Site == awaited.Site && awaited.Site != "" {
		d.Site = current.Site
	}
	if d, err = d.WithReferences(current, template, site); err != nil {
		return change{}, err
	}
	if !awaited.IsZero() && !current.Prepared && d.Prepared {
		return change{}, tko.Errorf(tko.ErrInvalid, "it can't be prepared yet: %s", awaited)
	}
	unapproved, err := s.withdrawsApproval(ctx, current, e.before, d)
	if err != nil {
		return change{}, err
	}
	var withdrawn *tko.Condition
	if unapproved {
		d.Approved = false
		d, withdrawn = d.WithState(d.Package), withdrawal(current)
	}
	var requires []record.Key
	var made *derivation.Record // if the deployment is made from its template only now
	inherited, revision := current.Inherited(), current.Base
	if d.Template != current.Template {
		other, err := s.registry.base(ctx, reads, d.Template)
		if err != nil {
			return change{}, err
		}
		inherited, revision = other.metadata, other.revision
		requires = record.References(d.Template, "")
		if current.Awaited().Merge && d.Template != "" && !attributes.made {
			given, err := d.MergeInto(other.pkg)
			if err != nil {
				return change{}, err
			}
			made, awaited.Merge = &derivation.Record{Template: tko.TemplateID(d.Template), Revision: revision, Merge: given}, false
		}
	}
	if d.Site != current.Site {
		if d.Site != "" && tko.CheckID("site ID", d.Site) != nil {
			return change{}, record.Explain(&record.MissingError{Key: record.Key{Kind: tko.KindSite, ID: d.Site}})
		}
		requires = append(requires, record.References("", d.Site)...)
	}
	rec := current
	rec.Template, rec.Site, rec.Prepared, rec.Approved = d.Template, d.Site, d.Prepared, d.Approved
	rec.Base = revision
	if d.Template != current.Template {
		rec.Derivation = record.Digest{} // the package wasn't made from it
		if made != nil {
			setDerivation(&rec, *made)
		}
	}
	if rec.Metadata, err = content.MetadataAfter(current.Effective(), d.Package, inherited, attributes.passed); err != nil {
		return change{}, err
	}
	content.RemoveMetadata(&rec, attributes.removed)
	rec.Await(awaited)
	if err := errors.Join(content.SetLabels(&rec, attributes.labels), content.Attach(&rec, attributes.attached)); err != nil {
		return change{}, err
	}
	rec.SetApplied(attributes.applied)
	if err := s.approvals.permitApproval(ctx, current, &rec); err != nil {
		return change{}, err
	}
	if rec.Approved != d.Approved { // a policy asks for explicit approvals
		d.Approved = rec.Approved
		d = d.WithState(d.Package)
		withdrawn = waitsForApproval()
	}
	c, err := content.Of(d.Package.WithoutDeploymentState())
	if err != nil {
		return change{}, err
	}
	rec.Digest, rec.Package = c.Digest, c.Encoded
	if record.SameContent(current, rec) {
		return change{record: rec}, nil
	}
	c.Package = d.Package
	err = s.validateDraft(ctx, reads, d, c, s.validation.acceptedOfDeployment(start, d.Template))
	return change{record: rec, requires: requires, withdrawn: withdrawn, warned: c.Conditions(current.Conditions)}, err
}

// writeChange commits a change of a deployment from current, and returns the new revision.
func (s *DeploymentWriter) writeChange(ctx context.Context, reads *readSet, current record.Record, c change) (int64, error) {
	rec, now := c.record, time.Now()
	rec.Author = rights.Author(ctx)
	err := s.rights.Permit(ctx, &current, &rec, access.Update, access.Commit)
	if err == nil {
		err = s.rights.PermitReferences(ctx, &current, &rec)
	}
	if err != nil {
		return 0, err
	}
	var held []tko.Condition
	if replacesNow(record.Write{Op: tko.OpWritten, Record: rec}) && !current.Approved {
		old, err := s.editedSince(ctx, rec)
		if err != nil {
			return 0, err
		}
		if old.Revision != 0 {
			rec.Approved = false
			held = append(held, tko.Condition{
				Type: tko.ConditionApproved, Status: tko.ConditionFalse, Reason: reasonNotApproved,
				Message: fmt.Sprintf("deployment %s, which this one replaces, was changed by %q after this one was created: approve this one to replace it nevertheless", old.ID, old.Author.Who),
			})
		}
	}
	rec.Conditions = condition.Merge(current.Conditions, c.conditions, current.Revision+1, now)
	rec.Conditions = condition.Merge(rec.Conditions, c.flags(rec.Conditions), current.Revision+1, now)
	rec.Conditions = condition.Merge(rec.Conditions, held, current.Revision+1, now)
	if err := condition.CheckMerged(rec.Key, current.Conditions, rec.Conditions); err != nil {
		return 0, err
	}
	outcomes, err := s.rights.Commit(ctx, reads.write(record.Write{
		Op: tko.OpWritten, Record: rec, Expect: current.Revision, Position: current.Position, Token: c.token, Requires: c.requires,
		KeepsOwner: rights.KeepsOwner(current, rec),
	}))
	if err != nil {
		return 0, err
	}
	return outcomes[0].Revision, nil
}

// validateDraft validates a draft, completely if it is prepared.
func (s *DeploymentWriter) validateDraft(ctx context.Context, reads *readSet, d content.Draft, c content.Content, accepted acceptedPackages) error {
	seal := fmt.Sprintf("%q %q %t %t", d.Template, d.Site, d.Prepared, d.Approved)
	return s.validation.validate(ctx, reads, c, d.Prepared, seal, accepted)
}

// editedSince returns a replaced deployment that another author than the
// replacement's has changed after the replacement was created. Only an explicit
// approval of the replacement may delete that change. Revision is 0 if there is
// none.
func (s *DeploymentWriter) editedSince(ctx context.Context, r record.Record) (record.Record, error) {
	replaced, err := s.replacer.replaced(ctx, r)
	if err != nil {
		return record.Record{}, err
	}
	for _, old := range replaced {
		if old.Updated.After(r.Created) && old.Author.Who != r.Author.Who {
			return old, nil
		}
	}
	return record.Record{}, nil
}

// flags returns the conditions that must change with the flags of a deployment.
func (c change) flags(conditions []tko.Condition) []tko.Condition {
	flags := condition.OfState(c.record, conditions)
	flags = append(flags, c.warned...)
	if c.withdrawn == nil {
		return flags
	}
	return append(tko.WithoutCondition(flags, tko.ConditionApproved), *c.withdrawn)
}
