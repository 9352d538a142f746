package catalog

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// A Modifier serves modifications: exclusive rights to change deployments, by tokens.
type Modifier struct {
	rights   *rights.Authorizer // callers enter and commit through it
	store    record.Store
	reader   record.Lookup
	validity time.Duration // of tokens
	log      *slog.Logger

	deployments *DeploymentWriter
	started     startCache
}

// StartModification issues a token that gives its holder the exclusive right to
// write a deployment, until it is ended, cancelled or expired. It returns
// ErrBusy while another token for the deployment is valid. [tko.WithModificationTime]
// sets how long the token is valid.
func (s *Modifier) StartModification(ctx context.Context, id tko.DeploymentID) (tko.Modification, error) {
	var pkg krm.Package
	m, err := s.startModification(ctx, id, func(c *rights.Caller, r record.Record) (err error) {
		pkg, err = record.DeploymentPackage(r)
		pkg = s.rights.Redact(c, r, pkg)
		return err
	})
	m.Package = pkg
	return m, err
}

// StartEncodedModification is StartModification with the package in a format; without it
// if the format is empty.
func (s *Modifier) StartEncodedModification(ctx context.Context, id tko.DeploymentID, format krm.Format) (tko.Encoded[tko.Modification], error) {
	var pkg []byte
	m, err := s.startModification(ctx, id, func(c *rights.Caller, r record.Record) (err error) {
		if format != "" {
			pkg, err = encodedPackage(s.rights, c, r, format)
		}
		return err
	})
	return tko.Encoded[tko.Modification]{Entity: m, Package: pkg}, err
}

// startModification starts a modification, and passes its deployment to read. If that
// fails, the modification is cancelled.
func (s *Modifier) startModification(ctx context.Context, id tko.DeploymentID, read func(*rights.Caller, record.Record) error) (tko.Modification, error) {
	if !record.IsDeploymentID(id) {
		return tko.Modification{}, tko.NotFound(tko.KindDeployment, id)
	}
	ctx, c, err := s.rights.Enter(rights.ActFor(ctx, id), tko.KindDeployment, access.Update, access.Commit)
	if err != nil {
		return tko.Modification{}, err
	}
	if !c.Grant.IsAll() { // others neither get a token nor learn whether there is one
		now, err := s.rights.GetVisible(ctx, c, record.Fields{}, record.DeploymentKey(id))
		if err == nil {
			err = s.rights.Permit(ctx, &now, nil, access.Update, access.Commit)
		}
		if err != nil {
			return tko.Modification{}, err
		}
	}
	validity := s.validity
	if asked, ok := tko.ModificationTimeOf(ctx); ok {
		if asked < time.Second || asked > tko.MaxModification {
			return tko.Modification{}, tko.Errorf(tko.ErrInvalid, "the modification would take %v: use 1s to %v", asked, tko.MaxModification)
		}
		validity = asked
	}
	token := rand.Text()
	r, expires, err := s.store.StartModification(tko.WithAuthor(ctx, rights.Author(ctx)), string(id), callerToken(c, token), validity)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return tko.Modification{}, tko.NotFound(tko.KindDeployment, id)
	case err != nil:
		return tko.Modification{}, err
	}
	// The deployment may have left the caller's scope since it was read.
	if err = s.rights.Visible(c, r); err == nil {
		err = s.rights.Permit(ctx, &r, nil, access.Update, access.Commit)
	}
	if err == nil {
		err = read(c, r)
	}
	if err != nil {
		return tko.Modification{}, errors.Join(err, s.store.CancelModification(ctx, callerToken(c, token)))
	}
	s.started.put(callerToken(c, token), r)
	return tko.Modification{Token: token, Deployment: id, Expires: expires.UTC()}, nil
}

// EndModification replaces the package of the deployment that the token is for.
// The Deployment resource in it sets whether the deployment is prepared and
// approved, its template and its site. It returns the deployment's ID and new
// revision. After an ErrInvalid the token stays valid. An expired token is an
// ErrBusy; a token that was ended or never issued is an ErrNotFound.
func (s *Modifier) EndModification(ctx context.Context, token string, pkg krm.Package) (tko.DeploymentID, int64, error) {
	if !record.Storable(token) {
		return "", 0, tokenError(tko.ErrNotFound, token)
	}
	call := ctx
	ctx, c, err := s.rights.Enter(ctx, tko.KindDeployment, access.Update, access.Commit)
	if err == nil && c.IsUnnamed() { // a controller works for the deployment of its token
		start, _, tokenErr := s.store.Modification(ctx, callerToken(c, token))
		if tokenErr != nil {
			return "", 0, tokenError(tokenErr, token)
		}
		ctx, c, err = s.rights.Enter(rights.ActFor(call, tko.DeploymentID(start.ID)), tko.KindDeployment, access.Update, access.Commit)
	}
	if err != nil {
		return "", 0, err
	}
	var id tko.DeploymentID
	var revision int64
	err = tryOptimistic(ctx, func(reads *readSet) error {
		return record.Retry(ctx, func() (err error) {
			id, revision, err = s.endFrom(ctx, reads, token, callerToken(c, token), pkg)
			if record.IsStale(err) {
				return record.Final(err)
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
func (s *Modifier) endFrom(ctx context.Context, reads *readSet, token, stored string, pkg krm.Package) (tko.DeploymentID, int64, error) {
	start, ok := s.started.take(stored)
	if ok && reads != nil {
		change, err := s.deployments.changed(ctx, reads, editOf(start, start, pkg))
		change.token = stored
		if err == nil && !record.SameContent(start, change.record) {
			var revision int64
			revision, err = s.deployments.writeChange(ctx, reads, start, change)
			if err == nil || record.IsStale(err) || !refused(err) {
				return tko.DeploymentID(start.ID), revision, tokenError(err, token)
			}
		}
	}
	start, current, err := s.store.Modification(ctx, stored)
	if err != nil {
		return "", 0, tokenError(err, token)
	}
	change, err := s.deployments.changed(ctx, reads, editOf(start, current, pkg))
	if err != nil {
		return "", 0, err
	}
	id := tko.DeploymentID(start.ID)
	if record.SameContent(current, change.record) {
		return id, current.Revision, tokenError(s.store.CancelModification(ctx, stored), token)
	}
	change.token = stored
	revision, err := s.deployments.writeChange(ctx, reads, current, change)
	return id, revision, tokenError(err, token)
}

// A startCache caches the deployments of the modifications that were started most
// recently, as they were then. When it is full, it is emptied.
type startCache struct {
	mutex  sync.Mutex
	starts map[string]record.Record
	size   int
}

// maxCachedStarts is the maximum size of the cached packages, in encoded bytes.
const maxCachedStarts = 16 << 20

// put caches the deployment of a token.
func (c *startCache) put(token string, r record.Record) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	size := len(r.Package) + 1000
	c.size += size
	if c.starts == nil || c.size > maxCachedStarts {
		c.starts, c.size = map[string]record.Record{}, size
	}
	c.starts[token] = r
}

// take removes and returns the deployment of a token.
func (c *startCache) take(token string) (r record.Record, ok bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	r, ok = c.starts[token]
	if ok {
		delete(c.starts, token)
		c.size -= len(r.Package) + 1000
	}
	return r, ok
}

// CancelModification ends a token without a change. Errors as for
// EndModification.
func (s *Modifier) CancelModification(ctx context.Context, token string) error {
	if !record.Storable(token) {
		return tokenError(tko.ErrNotFound, token)
	}
	ctx, c, err := s.rights.Enter(ctx, tko.KindDeployment, access.Update, access.Commit)
	if err != nil {
		return err
	}
	s.started.take(callerToken(c, token))
	return tokenError(s.store.CancelModification(ctx, callerToken(c, token)), token)
}

// callerToken returns a modification token as it is stored. Where rights are enforced, it is
// bound to the caller: for others it is unknown.
func callerToken(c *rights.Caller, token string) string {
	if !c.Bound || c.Identity.Role() != "" { // our own controllers are bound only as authors
		return token
	}
	sum := sha256.Sum256([]byte("tko modification\x00" + token + "\x00" + c.Identity.Subject))
	return hex.EncodeToString(sum[:])
}

// Modifications returns the valid modification tokens, sorted by deployment,
// without the tokens themselves, which only their holders know.
func (s *Modifier) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	ctx, c, err := s.rights.Enter(ctx, tko.KindDeployment, access.Read)
	if err != nil {
		return nil, err
	}
	open, err := s.store.Modifications(ctx)
	if err != nil || c.View().IsAll() {
		return open, err
	}
	return s.visibleModifications(ctx, c, open)
}

// visibleModifications returns those of the deployments that the caller may read.
func (s *Modifier) visibleModifications(ctx context.Context, c *rights.Caller, open []tko.OpenModification) (seen []tko.OpenModification, err error) {
	for batch := range slices.Chunk(open, record.SelectedPage) {
		keys := record.Keys(batch, func(m tko.OpenModification) record.Key { return record.DeploymentKey(m.Deployment) })
		records, err := s.store.Get(ctx, record.Fields{}, keys...)
		if err != nil {
			return nil, err
		}
		for i, r := range records {
			if c.Sees(r) {
				seen = append(seen, batch[i])
			}
		}
	}
	return seen, nil
}

// BreakModification ends the modification token of a deployment. If its holder
// uses it later, that is an ErrNotFound. It returns ErrNotFound if there is no
// valid token.
func (s *Modifier) BreakModification(ctx context.Context, id tko.DeploymentID) (tko.OpenModification, error) {
	if !record.IsDeploymentID(id) {
		return tko.OpenModification{}, tko.NotFound(tko.KindDeployment, id)
	}
	ctx, c, err := s.rights.Enter(ctx, tko.KindDeployment, access.Inspect)
	if err != nil {
		return tko.OpenModification{}, err
	}
	if r, err := s.reader.One(ctx, record.Fields{}, record.DeploymentKey(id)); err != nil {
		return tko.OpenModification{}, err
	} else if !c.Sees(r) {
		return tko.OpenModification{}, tko.Errorf(tko.ErrNotFound, "deployment %q: there is no valid modification token", id)
	}
	broken, err := s.store.BreakModification(ctx, string(id))
	if err == nil {
		s.log.InfoContext(ctx, "broke a modification token", "deployment", id, "holder", broken.Author.Who, "who", rights.Author(ctx).Who)
	}
	return broken, err
}

// tokenError converts the store's error about a token to an error for users.
func tokenError(err error, token string) error {
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return tko.Errorf(tko.ErrNotFound, "the modification token %.40q is not known: it was ended, cancelled or broken, was never issued, or its deployment was deleted; start again", token)
	case errors.Is(err, tko.ErrStopped):
		return err
	case errors.Is(err, tko.ErrBusy):
		return tko.Errorf(tko.ErrBusy, "the modification token %.40q has expired, and nothing was changed: start again", token)
	default:
		return err
	}
}
