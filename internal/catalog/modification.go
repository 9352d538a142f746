package catalog

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// StartModification issues a token that gives its holder the exclusive right to
// write a deployment, until it is ended, cancelled or expired. It returns
// ErrBusy while another token for the deployment is valid. [tko.WithModificationTime]
// sets how long the token is valid.
func (s *Service) StartModification(ctx context.Context, id tko.DeploymentID) (tko.Modification, error) {
	var pkg krm.Package
	m, err := s.startModification(ctx, id, func(c *caller, r Record) (err error) {
		pkg, err = deploymentPackage(r)
		pkg = s.redact(c, r, pkg)
		return err
	})
	m.Package = pkg
	return m, err
}

// StartEncodedModification is StartModification with the package in a format; without it
// if the format is empty.
func (s *Service) StartEncodedModification(ctx context.Context, id tko.DeploymentID, format krm.Format) (tko.Encoded[tko.Modification], error) {
	var pkg []byte
	m, err := s.startModification(ctx, id, func(c *caller, r Record) (err error) {
		if format != "" {
			pkg, err = s.encodedPackage(c, r, format)
		}
		return err
	})
	return tko.Encoded[tko.Modification]{Entity: m, Package: pkg}, err
}

// startModification starts a modification, and passes its deployment to read. If that
// fails, the modification is cancelled.
func (s *Service) startModification(ctx context.Context, id tko.DeploymentID, read func(*caller, Record) error) (tko.Modification, error) {
	if !isDeploymentID(id) {
		return tko.Modification{}, tko.NotFound(tko.KindDeployment, id)
	}
	ctx, c, err := s.enter(ctx, tko.KindDeployment, access.Update)
	if err != nil {
		return tko.Modification{}, err
	}
	if !c.grant.IsAll() { // others neither get a token nor learn whether there is one
		now, err := s.get(ctx, Fields{}, deploymentKey(id))
		if err == nil {
			err = s.visible(c, now)
		}
		if err == nil {
			err = s.permit(ctx, &now, nil, access.Update)
		}
		if err != nil {
			return tko.Modification{}, err
		}
	}
	validity := s.options.ModificationTime
	if asked, ok := tko.ModificationTimeOf(ctx); ok {
		if asked < time.Second || asked > tko.MaxModification {
			return tko.Modification{}, tko.Errorf(tko.ErrInvalid, "the modification would take %v: use 1s to %v", asked, tko.MaxModification)
		}
		validity = asked
	}
	token := rand.Text()
	r, expires, err := s.store.StartModification(tko.WithAuthor(ctx, author(ctx)), string(id), c.token(token), validity)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return tko.Modification{}, tko.NotFound(tko.KindDeployment, id)
	case err != nil:
		return tko.Modification{}, err
	}
	// The deployment may have left the caller's scope since it was read.
	if err = s.visible(c, r); err == nil {
		err = s.permit(ctx, &r, nil, access.Update)
	}
	if err == nil {
		err = read(c, r)
	}
	if err != nil {
		return tko.Modification{}, errors.Join(err, s.store.CancelModification(ctx, c.token(token)))
	}
	s.started.put(c.token(token), r)
	return tko.Modification{Token: token, Deployment: id, Expires: expires.UTC()}, nil
}

// EndModification replaces the package of the deployment that the token is for.
// The Deployment resource in it sets whether the deployment is prepared and
// approved, its template and its site. It returns the deployment's ID and new
// revision. After an ErrInvalid the token stays valid. An expired token is an
// ErrBusy; a token that was ended or never issued is an ErrNotFound.
func (s *Service) EndModification(ctx context.Context, token string, pkg krm.Package) (tko.DeploymentID, int64, error) {
	if !storable(token) {
		return "", 0, tokenError(tko.ErrNotFound, token)
	}
	ctx, c, err := s.enter(ctx, tko.KindDeployment, access.Update)
	if err != nil {
		return "", 0, err
	}
	var id tko.DeploymentID
	var revision int64
	err = tryOptimistic(ctx, func(reads *readSet) error {
		return retry(ctx, func() (err error) {
			id, revision, err = s.endFrom(ctx, reads, token, c.token(token), pkg)
			if isStale(err) {
				return final(err)
			}
			return err
		})
	})
	if err != nil {
		return "", 0, err
	}
	return id, revision, nil
}

// endFrom ends a modification that was started from a cached deployment, if there is
// one and reads is not nil. The commit checks that the deployment hasn't changed since.
// If it refuses the change, the change is derived again from the store. stored is the
// token as it is stored.
func (s *Service) endFrom(ctx context.Context, reads *readSet, token, stored string, pkg krm.Package) (tko.DeploymentID, int64, error) {
	start, ok := s.started.take(stored)
	if ok && reads != nil {
		change, err := s.changed(ctx, reads, start, start, pkg)
		if err == nil && !sameContent(start, change.record) {
			var revision int64
			revision, err = s.writeChange(ctx, reads, start, change, stored, nil)
			if err == nil || isStale(err) || !refused(err) {
				return tko.DeploymentID(start.ID), revision, tokenError(err, token)
			}
		}
	}
	start, current, err := s.store.Modification(ctx, stored)
	if err != nil {
		return "", 0, tokenError(err, token)
	}
	change, err := s.changed(ctx, reads, start, current, pkg)
	if err != nil {
		return "", 0, err
	}
	id := tko.DeploymentID(start.ID)
	if sameContent(current, change.record) {
		return id, current.Revision, tokenError(s.store.CancelModification(ctx, stored), token)
	}
	revision, err := s.writeChange(ctx, reads, current, change, stored, nil)
	return id, revision, tokenError(err, token)
}

// A startCache caches the deployments of the modifications that were started most
// recently, as they were then. When it is full, it is emptied.
type startCache struct {
	mutex  sync.Mutex
	starts map[string]Record
	size   int
}

// maxCachedStarts is the maximum size of the cached packages, in encoded bytes.
const maxCachedStarts = 16 << 20

// put caches the deployment of a token.
func (c *startCache) put(token string, r Record) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	size := len(r.Package) + 1000
	if c.size += size; c.starts == nil || c.size > maxCachedStarts {
		c.starts, c.size = map[string]Record{}, size
	}
	c.starts[token] = r
}

// take removes and returns the deployment of a token.
func (c *startCache) take(token string) (r Record, ok bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if r, ok = c.starts[token]; ok {
		delete(c.starts, token)
		c.size -= len(r.Package) + 1000
	}
	return r, ok
}

// CancelModification ends a token without a change. Errors as for
// EndModification.
func (s *Service) CancelModification(ctx context.Context, token string) error {
	if !storable(token) {
		return tokenError(tko.ErrNotFound, token)
	}
	ctx, c, err := s.enter(ctx, tko.KindDeployment, access.Update)
	if err != nil {
		return err
	}
	s.started.take(c.token(token))
	return tokenError(s.store.CancelModification(ctx, c.token(token)), token)
}

// token returns a modification token as it is stored. Where rights are enforced, it is
// bound to the caller: for others it is unknown.
func (c *caller) token(token string) string {
	if !c.bound {
		return token
	}
	sum := sha256.Sum256([]byte("tko modification\x00" + token + "\x00" + c.identity.Subject))
	return hex.EncodeToString(sum[:])
}

// Modifications returns the valid modification tokens, sorted by deployment,
// without the tokens themselves, which only their holders know.
func (s *Service) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	ctx, c, err := s.enter(ctx, tko.KindDeployment, access.Read)
	if err != nil {
		return nil, err
	}
	open, err := s.store.Modifications(ctx)
	if err != nil || c.view(s).IsAll() {
		return open, err
	}
	return s.visibleModifications(ctx, c, open)
}

// visibleModifications returns those of the deployments that the caller may read.
func (s *Service) visibleModifications(ctx context.Context, c *caller, open []tko.OpenModification) (seen []tko.OpenModification, err error) {
	for batch := range slices.Chunk(open, selectedPage) {
		keys := keysOf(batch, func(m tko.OpenModification) Key { return deploymentKey(m.Deployment) })
		records, err := s.store.Get(ctx, Fields{}, keys...)
		if err != nil {
			return nil, err
		}
		for i, r := range records {
			if c.sees(s, r) {
				seen = append(seen, batch[i])
			}
		}
	}
	return seen, nil
}

// BreakModification ends the modification token of a deployment. If its holder
// uses it later, that is an ErrNotFound. It returns ErrNotFound if there is no
// valid token.
func (s *Service) BreakModification(ctx context.Context, id tko.DeploymentID) (tko.OpenModification, error) {
	if !isDeploymentID(id) {
		return tko.OpenModification{}, tko.NotFound(tko.KindDeployment, id)
	}
	ctx, c, err := s.enter(ctx, tko.KindDeployment, access.Inspect)
	if err != nil {
		return tko.OpenModification{}, err
	}
	if r, err := s.get(ctx, Fields{}, deploymentKey(id)); err != nil {
		return tko.OpenModification{}, err
	} else if !c.sees(s, r) {
		return tko.OpenModification{}, tko.Errorf(tko.ErrNotFound, "deployment %q: there is no valid modification token", id)
	}
	broken, err := s.store.BreakModification(ctx, string(id))
	if err == nil {
		s.log.InfoContext(ctx, "broke a modification token", "deployment", id, "holder", broken.Author.Who, "who", author(ctx).Who)
	}
	return broken, err
}

// tokenError converts the store's error about a token to an error for users.
func tokenError(err error, token string) error {
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return tko.Errorf(tko.ErrNotFound, "the modification token %.40q is not known: it was ended, cancelled or broken, was never issued, or its deployment was deleted; start again", token)
	case errors.Is(err, tko.ErrBusy):
		return tko.Errorf(tko.ErrBusy, "the modification token %.40q has expired, and nothing was changed: start again", token)
	default:
		return err
	}
}

// CommitDeployment replaces the package of a deployment that is still at the
// given revision, as EndModification does, and conditions, by type, in the same
// transaction. The new revision records the steps of the commit. It returns the
// new revision. A package that changes nothing keeps the revision. It returns
// ErrConflict if the deployment has changed, and ErrBusy while it is being
// modified.
func (s *Service) CommitDeployment(ctx context.Context, commit tko.DeploymentCommit) (int64, error) {
	if err := checkCommit(commit); err != nil {
		return 0, err
	}
	ctx, _, err := s.enter(ctx, tko.KindDeployment, access.Commit, access.Update)
	if err != nil {
		return 0, err
	}
	var revision int64
	err = tryOptimistic(ctx, func(reads *readSet) error {
		current, err := s.get(ctx, Fields{Package: true}, deploymentKey(commit.ID))
		if err == nil {
			revision, err = s.commitFrom(ctx, reads, current, commit)
		}
		return err
	})
	return revision, err
}

func checkCommit(commit tko.DeploymentCommit) error {
	if !isDeploymentID(commit.ID) {
		return tko.NotFound(tko.KindDeployment, commit.ID)
	}
	if commit.Revision <= 0 {
		return tko.Errorf(tko.ErrInvalid, "deployment %q: the revision is %d: give the one that the package was made from", commit.ID, commit.Revision)
	}
	return checkConditions(commit.Conditions)
}

// maxBatch is the maximum number of deployments that are read or committed by one
// call.
const maxBatch = 500

// CommitDeployments commits different deployments, each as CommitDeployment
// does, and independently of the others. The revision of a deployment that was not
// committed is 0: committing it alone returns the reason. Their transactions are
// shared.
func (s *Service) CommitDeployments(ctx context.Context, commits []tko.DeploymentCommit) (revisions []int64, err error) {
	ctx, _, err = s.enter(ctx, tko.KindDeployment, access.Commit, access.Update)
	if err != nil {
		return nil, err
	}
	if len(commits) > maxBatch {
		return nil, tko.Errorf(tko.ErrInvalid, "%d deployments are to be committed at once: give at most %d", len(commits), maxBatch)
	}
	keys, seen := make([]Key, 0, len(commits)), map[tko.DeploymentID]bool{}
	for _, c := range commits {
		if seen[c.ID] {
			return nil, tko.Errorf(tko.ErrInvalid, "deployment %q is to be committed twice by one call: give it once", c.ID)
		}
		seen[c.ID] = true
		if checkCommit(c) == nil {
			keys = append(keys, deploymentKey(c.ID))
		}
	}
	revisions = make([]int64, len(commits))
	if len(keys) == 0 {
		return revisions, nil
	}
	records, err := s.store.Get(ctx, Fields{Package: true}, keys...)
	if err != nil {
		return nil, err
	}
	current := make(map[Key]Record, len(records))
	for _, r := range records {
		current[r.Key] = r
	}
	var wait sync.WaitGroup
	for i, c := range commits {
		r, ok := current[deploymentKey(c.ID)]
		if !ok {
			continue
		}
		wait.Go(func() {
			// After an error, nothing of this deployment has changed, or its outcome is
			// unknown: either way, the caller reads the reason by committing it alone.
			ctx, _, err := s.enter(ctx, tko.KindDeployment, access.Commit, access.Update) // a caller for each commit
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

// DeploymentsByID returns those of the deployments that exist, with their
// packages, in the order of ids.
func (s *Service) DeploymentsByID(ctx context.Context, ids []tko.DeploymentID) ([]tko.Deployment, error) {
	ctx, c, err := s.enter(ctx, tko.KindDeployment, access.Read)
	if err != nil {
		return nil, err
	}
	if len(ids) > maxBatch {
		return nil, tko.Errorf(tko.ErrInvalid, "%d deployments are to be read at once: give at most %d", len(ids), maxBatch)
	}
	var keys []Key
	for _, id := range ids {
		if isDeploymentID(id) {
			keys = append(keys, deploymentKey(id))
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	records, err := s.store.Get(ctx, Fields{Package: true}, keys...)
	if err != nil {
		return nil, err
	}
	var all []tko.Deployment
	for _, r := range records {
		if !c.sees(s, r) {
			continue
		}
		d, err := s.deploymentOf(c, r)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// commitFrom commits a deployment that was read as current.
func (s *Service) commitFrom(ctx context.Context, reads *readSet, current Record, commit tko.DeploymentCommit) (int64, error) {
	key := deploymentKey(commit.ID)
	if current.Revision != 0 {
		if err := s.permit(ctx, &current, nil, access.Commit, access.Update); err != nil {
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
	change, err := s.changed(ctx, reads, current, current, commit.Package)
	if err != nil {
		return 0, err
	}
	change.record.Steps = tko.BoundSteps(commit.Steps)
	s.prepared(ctx, current, &change.record, commit.Package, commit.Steps)
	if sameContent(current, change.record) {
		if err := checkConditions(commit.Conditions); err != nil || len(commit.Conditions) == 0 {
			return current.Revision, err
		}
		return current.Revision, s.setConditions(ctx, key, commit.Conditions, nil, Requirement{})
	}
	var revision int64
	err = retry(ctx, func() error {
		var err error
		if revision, err = s.writeChange(ctx, reads, current, change, "", commit.Conditions); !errors.Is(err, tko.ErrConflict) {
			return err
		}
		if isStale(err) {
			return final(err)
		}
		again, getErr := s.get(ctx, Fields{}, key)
		if getErr == nil {
			getErr = checkRevision(again, commit)
		}
		if getErr != nil {
			return final(getErr)
		}
		current = again // only its conditions have changed
		return err
	})
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return 0, tko.NotFound(tko.KindDeployment, commit.ID)
	case isStale(err):
		return 0, err
	case errors.Is(err, tko.ErrConflict):
		return 0, revisionConflict(commit)
	default:
		return revision, err
	}
}

// checkRevision checks that a deployment exists and is at the revision of a
// commit.
func checkRevision(current Record, commit tko.DeploymentCommit) error {
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
	record    Record
	requires  []Key
	withdrawn *tko.Condition // the Approved condition, if the change withdraws the approval
}

// changed derives a deployment with another package. start is the deployment
// that the package was made from, with its own package; current is the
// deployment now.
func (s *Service) changed(ctx context.Context, reads *readSet, start, current Record, pkg krm.Package) (change, error) {
	return s.changedWith(ctx, reads, start, current, pkg, current.attributes())
}

func (r Record) attributes() attributes {
	return attributes{template: r.Template, site: r.Site, passed: r.passed(), removed: r.removed(), labels: r.labels(), attached: r.Attached()}
}

// attributes are the properties of a deployment other than its package:
// template and site, which replace the current ones if they differ, passed and
// removed metadata, labels, and attached data.
type attributes struct {
	template, site string
	passed         map[string]string
	removed        []string
	labels         map[string]string
	attached       []byte
}

func (s *Service) changedWith(ctx context.Context, reads *readSet, start, current Record, pkg krm.Package, attributes attributes) (change, error) {
	before := sync.OnceValues(func() (krm.Package, error) { return deploymentPackage(start) })
	return s.changedFrom(ctx, reads, start, before, current, pkg, attributes)
}

// changedFrom is changedWith for a caller who may have the package of start: most changes
// don't need it.
func (s *Service) changedFrom(
	ctx context.Context, reads *readSet, start Record, before func() (krm.Package, error), current Record, pkg krm.Package, attributes attributes,
) (change, error) {
	pkg, err := s.restore(ctx, start, pkg)
	if err != nil {
		return change{}, err
	}
	d, err := changedDraft(start, current, before, pkg)
	if err == nil {
		d, err = d.withReferences(current, attributes.template, attributes.site)
	}
	if err != nil {
		return change{}, err
	}
	unapproved, err := s.withdrawsApproval(ctx, current, before, d)
	if err != nil {
		return change{}, err
	}
	var withdrawn *tko.Condition
	if unapproved {
		d.approved = false
		d, withdrawn = d.withState(d.pkg), withdrawal(current)
	}
	var requires []Key
	inherited, revision := current.inherited(), current.Base
	if d.template != current.Template {
		other, err := s.base(ctx, reads, d.template)
		if err != nil {
			return change{}, err
		}
		inherited, revision = other.metadata, other.revision
		requires = references(d.template, "")
	}
	if d.site != current.Site {
		if d.site != "" && tko.CheckID("site ID", d.site) != nil {
			return change{}, explain(&MissingError{Key: Key{Kind: tko.KindSite, ID: d.site}})
		}
		requires = append(requires, references("", d.site)...)
	}
	record := current
	record.Template, record.Site, record.Prepared, record.Approved = d.template, d.site, d.prepared, d.approved
	record.Base = revision
	if d.template != current.Template {
		record.Derivation = Digest{} // the package wasn't made from it
	}
	if record.Metadata, err = metadataAfter(current.effective(), d.pkg, inherited, attributes.passed); err != nil {
		return change{}, err
	}
	record.remove(attributes.removed)
	if err := errors.Join(record.label(attributes.labels), record.attach(attributes.attached)); err != nil {
		return change{}, err
	}
	if err := s.permitApproval(ctx, current, &record); err != nil {
		return change{}, err
	}
	if record.Approved != d.approved { // a policy asks for explicit approvals
		d.approved = record.Approved
		d = d.withState(d.pkg)
		withdrawn = waitsForApproval()
	}
	c, err := contentOf(d.pkg.WithoutDeploymentState())
	if err != nil {
		return change{}, err
	}
	record.Digest, record.Package = c.digest, c.encoded
	if sameContent(current, record) {
		return change{record: record}, nil
	}
	c.pkg = d.pkg
	return change{record: record, requires: requires, withdrawn: withdrawn}, s.validateDraft(ctx, reads, d, c, s.acceptedOfDeployment(start, d.template))
}

// writeChange commits a change of a deployment from current, with or without a
// token, and with conditions, and returns the new revision.
func (s *Service) writeChange(ctx context.Context, reads *readSet, current Record, c change, token string, conditions []tko.Condition) (int64, error) {
	record, now := c.record, time.Now()
	record.Author = author(ctx)
	err := s.permit(ctx, &current, &record, access.Update, access.Commit)
	if err == nil {
		err = s.permitReferences(ctx, &current, &record)
	}
	if err != nil {
		return 0, err
	}
	var held []tko.Condition
	if replacesNow(Write{Op: tko.OpWritten, Record: record}) && !current.Approved {
		old, err := s.editedSince(ctx, record)
		if err != nil {
			return 0, err
		}
		if old.Revision != 0 {
			record.Approved = false
			held = append(held, tko.Condition{
				Type: tko.ConditionApproved, Status: tko.ConditionFalse, Reason: reasonNotApproved,
				Message: fmt.Sprintf("deployment %s, which this one replaces, was changed by %q after this one was created: approve this one to replace it nevertheless", old.ID, old.Author.Who),
			})
		}
	}
	record.Conditions = mergeConditions(current.Conditions, conditions, current.Revision+1, now)
	record.Conditions = mergeConditions(record.Conditions, c.flags(record.Conditions), current.Revision+1, now)
	record.Conditions = mergeConditions(record.Conditions, held, current.Revision+1, now)
	if err := checkMerged(record.Key, current.Conditions, record.Conditions); err != nil {
		return 0, err
	}
	outcomes, err := s.commit(ctx, reads.write(Write{
		Op: tko.OpWritten, Record: record, Expect: current.Revision, Position: current.Position, Token: token, Requires: c.requires,
	}))
	if err != nil {
		return 0, err
	}
	return outcomes[0].Revision, nil
}

// validateDraft validates a draft, completely if it is prepared.
func (s *Service) validateDraft(ctx context.Context, reads *readSet, d draft, c content, accepted acceptedPackages) error {
	seal := fmt.Sprintf("%q %q %t %t", d.template, d.site, d.prepared, d.approved)
	return s.validate(ctx, reads, c, d.prepared, seal, accepted)
}
