package catalog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// StartModification gives the right to write a deployment, to one at a time,
// until it is ended or cancelled or its time has run out. ErrBusy while
// somebody else has it.
func (s *Service) StartModification(ctx context.Context, id tko.DeploymentID) (tko.Modification, error) {
	if !isDeploymentID(id) {
		return tko.Modification{}, tko.NotFound(tko.KindDeployment, id)
	}
	token := rand.Text()
	r, expires, err := s.store.StartModification(tko.WithAuthor(ctx, author(ctx)), string(id), token, s.options.ModificationTime)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return tko.Modification{}, tko.NotFound(tko.KindDeployment, id)
	case err != nil:
		return tko.Modification{}, err
	}
	pkg, err := deploymentPackage(r)
	if err != nil {
		return tko.Modification{}, errors.Join(err, s.store.CancelModification(ctx, token))
	}
	return tko.Modification{Token: token, Deployment: id, Package: pkg, Expires: expires.UTC()}, nil
}

// EndModification replaces the package of the deployment that the token is
// for, and with it what the Deployment resource in it says: prepared, approved,
// template and site. It answers the deployment's ID and new revision. An
// ErrInvalid leaves the token good; a token whose time has run out is an
// ErrBusy, and one that was ended or never given an ErrNotFound.
func (s *Service) EndModification(ctx context.Context, token string, pkg krm.Package) (tko.DeploymentID, int64, error) {
	if !storable(token) {
		return "", 0, tokenError(tko.ErrNotFound, token)
	}
	start, err := s.store.Modification(ctx, token)
	if err != nil {
		return "", 0, tokenError(err, token)
	}
	var revision int64
	err = retry(ctx, func() error {
		current, err := s.get(ctx, Fields{}, start.Key)
		if err != nil {
			return err
		}
		if current.Revision == 0 {
			return tokenError(tko.ErrNotFound, token)
		}
		change, err := s.changed(ctx, nil, start, current, pkg)
		if err != nil {
			return err
		}
		if sameContent(current, change.record) {
			revision = current.Revision
			return tokenError(s.store.CancelModification(ctx, token), token)
		}
		revision, err = s.writeChange(ctx, nil, current, change, token, nil)
		return tokenError(err, token)
	})
	if err != nil {
		return "", 0, err
	}
	return tko.DeploymentID(start.ID), revision, nil
}

// CancelModification gives a token up. Errors as EndModification's.
func (s *Service) CancelModification(ctx context.Context, token string) error {
	if !storable(token) {
		return tokenError(tko.ErrNotFound, token)
	}
	return tokenError(s.store.CancelModification(ctx, token), token)
}

// Modifications returns the modification tokens that are good, sorted by
// deployment: not the tokens themselves, which are their holders'.
func (s *Service) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	return s.store.Modifications(ctx)
}

// BreakModification takes the modification token of a deployment from its
// holder, whose end will be an ErrNotFound. ErrNotFound if there is none.
func (s *Service) BreakModification(ctx context.Context, id tko.DeploymentID) (tko.OpenModification, error) {
	if !isDeploymentID(id) {
		return tko.OpenModification{}, tko.NotFound(tko.KindDeployment, id)
	}
	broken, err := s.store.BreakModification(ctx, string(id))
	if err == nil {
		s.log.InfoContext(ctx, "broke a modification token", "deployment", id, "holder", broken.Author.Who, "who", author(ctx).Who)
	}
	return broken, err
}

// tokenError puts the store's refusal of a token into the user's words.
func tokenError(err error, token string) error {
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return tko.Errorf(tko.ErrNotFound, "the modification token %.40q is not known: it was ended, cancelled or broken, was never given, or its deployment was deleted; start again", token)
	case errors.Is(err, tko.ErrBusy):
		return tko.Errorf(tko.ErrBusy, "the time of the modification token %.40q has run out, and nothing was changed: start again", token)
	default:
		return err
	}
}

// CommitDeployment replaces a deployment's package, as EndModification does,
// if it is still at the given revision, and conditions, by type, in the same
// transaction. The revision records the steps of the commit. It answers the new revision; a package that changes nothing
// keeps the revision. ErrConflict if the deployment moved on, ErrBusy if
// somebody is modifying it.
func (s *Service) CommitDeployment(ctx context.Context, commit tko.DeploymentCommit) (int64, error) {
	if !isDeploymentID(commit.ID) {
		return 0, tko.NotFound(tko.KindDeployment, commit.ID)
	}
	if commit.Revision <= 0 {
		return 0, tko.Errorf(tko.ErrInvalid, "deployment %q: the revision is %d: give the one that the package was made from", commit.ID, commit.Revision)
	}
	if err := checkConditions(commit.Conditions); err != nil {
		return 0, err
	}
	var revision int64
	err := onGrounds(ctx, func(on *grounds) (err error) {
		revision, err = s.commitOn(ctx, on, commit)
		return err
	})
	return revision, err
}

func (s *Service) commitOn(ctx context.Context, on *grounds, commit tko.DeploymentCommit) (int64, error) {
	key := deploymentKey(commit.ID)
	current, err := s.get(ctx, Fields{Package: true}, key)
	if err == nil {
		err = isAt(current, commit)
	}
	if err != nil {
		return 0, err
	}
	change, err := s.changed(ctx, on, current, current, commit.Package)
	if err != nil {
		return 0, err
	}
	change.record.Steps = tko.BoundSteps(commit.Steps)
	if sameContent(current, change.record) {
		return current.Revision, s.SetConditions(ctx, key.Kind, key.ID, commit.Conditions)
	}
	var revision int64
	err = retry(ctx, func() error {
		var err error
		if revision, err = s.writeChange(ctx, on, current, change, "", commit.Conditions); !errors.Is(err, tko.ErrConflict) {
			return err
		}
		if isStale(err) {
			return final(err)
		}
		again, getErr := s.get(ctx, Fields{}, key)
		if getErr == nil {
			getErr = isAt(again, commit)
		}
		if getErr != nil {
			return final(getErr)
		}
		current = again // only conditions changed
		return err
	})
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return 0, tko.NotFound(tko.KindDeployment, commit.ID)
	case isStale(err):
		return 0, err
	case errors.Is(err, tko.ErrConflict):
		return 0, movedOn(commit)
	default:
		return revision, err
	}
}

// isAt says whether a deployment is there, and at the revision of a commit.
func isAt(current Record, commit tko.DeploymentCommit) error {
	switch current.Revision {
	case 0:
		return tko.NotFound(tko.KindDeployment, commit.ID)
	case commit.Revision:
		return nil
	default:
		return movedOn(commit)
	}
}

func movedOn(commit tko.DeploymentCommit) error {
	return tko.Errorf(tko.ErrConflict, "deployment %q is no longer at revision %d: read it again", commit.ID, commit.Revision)
}

// A change is a deployment with another package, derived and, where it differs
// from what it was, validated.
type change struct {
	record    Record
	requires  []Key
	withdrawn *tko.Condition // what is to be said of the approval, if it is withdrawn
}

// changed derives what a deployment becomes with another package. start is the
// deployment that the package was made from, with its package, and current what
// it is now.
func (s *Service) changed(ctx context.Context, on *grounds, start, current Record, pkg krm.Package) (change, error) {
	return s.changedBeside(ctx, on, start, current, pkg, beside{template: current.Template, site: current.Site, passed: current.passed(), removed: current.removed(), labels: current.labels(), attached: current.Attached()})
}

// beside is what a deployment says beside its package: its template and site,
// which if they aren't those that it has are what it gets, the metadata that is
// passed and taken away, its labels, and what is attached.
type beside struct {
	template, site string
	passed         map[string]string
	removed        []string
	labels         map[string]string
	attached       []byte
}

func (s *Service) changedBeside(ctx context.Context, on *grounds, start, current Record, pkg krm.Package, beside beside) (change, error) {
	before, err := deploymentPackage(start)
	if err != nil {
		return change{}, err
	}
	d, err := draftChanged(start, current, before, pkg)
	if err == nil {
		d, err = d.moved(current, beside.template, beside.site)
	}
	if err != nil {
		return change{}, err
	}
	unapproved, err := s.unapproves(current, before, d)
	if err != nil {
		return change{}, err
	}
	var withdrawn *tko.Condition
	if unapproved {
		d.approved = false
		d, withdrawn = d.inStep(d.pkg), withdrawal(current)
	}
	var requires []Key
	inherited, revision := current.inherited(), current.Base
	if d.template != current.Template {
		other, err := s.base(ctx, on, d.template)
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
	if record.Metadata, err = metadataAfter(current.effective(), d.pkg, inherited, beside.passed); err != nil {
		return change{}, err
	}
	record.remove(beside.removed)
	if err := errors.Join(record.label(beside.labels), record.attach(beside.attached)); err != nil {
		return change{}, err
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
	return change{record: record, requires: requires, withdrawn: withdrawn}, s.validateDraft(ctx, on, d, c, s.earlierOfDeployment(start, d.template))
}

// writeChange commits a change of a deployment that is at current, under a
// token or without, with conditions, and answers the new revision.
func (s *Service) writeChange(ctx context.Context, on *grounds, current Record, c change, token string, conditions []tko.Condition) (int64, error) {
	record, now := c.record, time.Now()
	record.Author = author(ctx)
	var held []tko.Condition
	if takesPlace(Write{Op: tko.OpWritten, Record: record}) && !current.Approved {
		old, err := s.editedSince(ctx, record)
		if err != nil {
			return 0, err
		}
		if old.Revision != 0 {
			record.Approved = false
			held = append(held, tko.Condition{
				Type: tko.ConditionApproved, Status: tko.ConditionFalse, Reason: reasonNotApproved,
				Message: fmt.Sprintf("deployment %s, whose place it takes, was changed by %q after this one was made: approve this one to have that go", old.ID, old.Author.Who),
			})
		}
	}
	record.Conditions = mergeConditions(current.Conditions, conditions, current.Revision+1, now)
	record.Conditions = mergeConditions(record.Conditions, c.flags(record.Conditions), current.Revision+1, now)
	record.Conditions = mergeConditions(record.Conditions, held, current.Revision+1, now)
	if err := checkMerged(record.Key, current.Conditions, record.Conditions); err != nil {
		return 0, err
	}
	outcomes, err := s.commit(ctx, on.write(Write{
		Op: tko.OpWritten, Record: record, Expect: current.Revision, Position: current.Position, Token: token, Requires: c.requires,
	}))
	if err != nil {
		return 0, err
	}
	return outcomes[0].Revision, nil
}

// validateDraft has a draft validated: completely if it says that it is
// prepared.
func (s *Service) validateDraft(ctx context.Context, on *grounds, d draft, c content, before earlier) error {
	seal := fmt.Sprintf("%q %q %t %t", d.template, d.site, d.prepared, d.approved)
	return s.validate(ctx, on, c, d.prepared, seal, before)
}
