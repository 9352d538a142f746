package catalog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/krm"
)

// A Registry registers templates, sites and plugins.
type Registry struct {
	*core

	bases    baseCache
	rewrites atomic.Int32 // number of further registrations that read before they write: see readFirst
}

// register writes a complete record, whether or not it exists, unless nothing
// would change. Permanent properties are taken from the existing record. Most
// records that are registered from cached entities are new: they are written
// without reading first (see readFirst). given is the number of resources that
// the caller gave: none may be refused (see [tko.WithPackageRequired]).
func (s *Registry) register(ctx context.Context, reads *readSet, record Record, given int, requires ...Key) (Outcome, error) {
	var outcome Outcome
	record.Author = author(ctx)
	// The right to write under the ID comes before its existence.
	if err := s.permit(ctx, nil, &record, changeVerb(record.Kind, access.Create), changeVerb(record.Kind, access.Update)); err != nil {
		return Outcome{}, err
	}
	if reads != nil && s.rewrites.Load() <= 0 {
		written := record
		if err := s.permitWrite(ctx, Record{}, written); err != nil {
			return Outcome{}, err
		}
		written.UID = newUID()
		outcomes, err := s.commit(ctx, reads.write(Write{Op: tko.OpWritten, Record: written, Expect: Absent, Requires: requires}))
		if err == nil {
			return outcomes[0], nil
		}
		if isStale(err) || !errors.Is(err, tko.ErrConflict) {
			return Outcome{}, err
		}
	}
	err := retry(ctx, func() error {
		current, err := s.get(ctx, Fields{}, record.Key)
		if err != nil {
			return err
		}
		written := record
		written.UID = newUID()
		if err := s.permitWrite(ctx, current, written); err != nil {
			return final(err)
		}
		if s.rewrites.Add(-1); current.Revision != 0 {
			s.rewrites.Store(readFirst)
			written.retainAttached(current)
			if sameContent(current, written) {
				if reads != nil && !reads.fromStore && len(reads.versions) > 0 { // no commit would check that the cached template is the current one
					return final(&StaleError{What: "the template"})
				}
				outcome = Outcome{Key: record.Key, Revision: current.Revision, Position: current.Position}
				return nil
			}
			if given == 0 && tko.PackageRequired(ctx) && current.Digest != written.Digest && current.Digest != emptyDigest() {
				return final(tko.Errorf(tko.ErrInvalid, "%s %q has a package, and this registration has none: nothing was changed; give the package (--url, --stdin), or confirm an empty one (--empty)",
					record.Kind, record.ID))
			}
			written.UID, written.Created, written.Origin, written.Conditions = current.UID, current.Created, current.Origin, current.Conditions
		}
		outcomes, err := s.commit(ctx, reads.write(Write{
			Op: tko.OpWritten, Record: written, Expect: current.Revision, Position: current.Position, Requires: requires,
		}))
		if isStale(err) {
			return final(err)
		}
		if errors.Is(err, tko.ErrNotFound) {
			return tko.Errorf(tko.ErrConflict, "%s %q was deleted while it was written: try again", record.Kind, record.ID)
		}
		if err != nil {
			return err
		}
		outcome = outcomes[0]
		return nil
	})
	if errors.Is(err, tko.ErrConflict) && !isStale(err) {
		return Outcome{}, tko.Errorf(tko.ErrConflict, "%s %q is being written by too many clients at the same time: try again", record.Kind, record.ID)
	}
	return outcome, err
}

// emptyDigest is the digest of a package of no resources.
var emptyDigest = sync.OnceValue(func() Digest {
	c, _ := contentOf(nil) // it can always be encoded
	return c.digest
})

// readFirst is the number of registrations that read before they write, after
// one that found an existing record.
const readFirst = 64

// A base is the part of a template that entities start from. Without a template
// it is an empty package without metadata. A template that doesn't exist is an
// ErrInvalid.
type base struct {
	revision int64
	pkg      krm.Package
	metadata map[string]string
}

func (s *Registry) base(ctx context.Context, reads *readSet, id string) (base, error) {
	if id == "" {
		return base{}, nil
	}
	if b, ok := s.bases.get(id, reads); ok {
		return b, nil
	}
	key := Key{Kind: tko.KindTemplate, ID: id}
	if CheckKey(key) != nil {
		return base{}, explain(&MissingError{Key: key})
	}
	r, err := s.get(ctx, Fields{Package: true}, key)
	if err != nil {
		return base{}, err
	}
	if r.Revision == 0 {
		return base{}, explain(&MissingError{Key: key})
	}
	pkg, err := packageOf(r)
	if err != nil {
		return base{}, err
	}
	b := base{revision: r.Revision, pkg: pkg, metadata: r.effective()}
	if reads != nil {
		reads.versions = append(reads.versions, Version{Key: key, Position: r.Position})
	}
	s.bases.put(r, b)
	return b, nil
}
