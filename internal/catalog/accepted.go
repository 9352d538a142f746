package catalog

import (
	"context"
	"errors"

	"github.com/tko-orchestrator/tko"
)

// maxAcceptedRevisions is the maximum number of revisions of a deployment that
// are read to find the last prepared one.
const maxAcceptedRevisions = 50

// acceptedOf returns a reader of the stored package of a record and of the
// package of a template. complete states how the record was validated. Either
// may be missing.
func (s *validation) acceptedOf(key Key, complete bool, template string) acceptedPackages {
	return func(ctx context.Context) ([]tko.AcceptedPackage, error) {
		var accepted []tko.AcceptedPackage
		for _, one := range []struct {
			key      Key
			complete bool
		}{{key, complete}, {Key{Kind: tko.KindTemplate, ID: template}, false}} {
			if one.key.ID == "" {
				continue
			}
			r, err := s.get(ctx, Fields{Package: true}, one.key)
			if err != nil {
				return nil, err
			}
			if r.Revision == 0 {
				continue
			}
			pkg, err := packageOf(r)
			if err != nil {
				return nil, err
			}
			accepted = append(accepted, tko.AcceptedPackage{Package: pkg, Complete: one.complete})
		}
		return accepted, nil
	}
}

// acceptedOfDeployment returns a reader of the package of a deployment that is
// to change, of its template's package and, if the deployment isn't prepared,
// of its last prepared package, which its site runs.
func (s *validation) acceptedOfDeployment(start Record, template string) acceptedPackages {
	return func(ctx context.Context) ([]tko.AcceptedPackage, error) {
		accepted, err := s.acceptedOf(Key{}, false, template)(ctx)
		if err != nil {
			return nil, err
		}
		for r, n := start, 0; n < maxAcceptedRevisions; n++ {
			pkg, err := packageOf(r)
			if err != nil {
				return nil, err
			}
			if n == 0 || r.Prepared {
				accepted = append(accepted, tko.AcceptedPackage{Package: pkg, Complete: r.Prepared})
			}
			if r.Prepared || r.Revision <= 1 {
				break
			}
			if r, err = s.store.Revision(ctx, start.Key, r.Revision-1); errors.Is(err, tko.ErrNotFound) || err == nil && r.UID != start.UID {
				break
			} else if err != nil {
				return nil, err
			}
		}
		return accepted, nil
	}
}
