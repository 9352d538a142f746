package catalog

import (
	"context"
	"errors"

	"github.com/tko-orchestrator/tko"
)

// maxEarlier is how many revisions of a deployment are read to find the last
// one that was prepared.
const maxEarlier = 50

// earlierOf reads the package of a record as it is stored, which complete says
// how it was validated, and the package of a template. Either may be missing.
func (s *Service) earlierOf(key Key, complete bool, template string) earlier {
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

// earlierOfDeployment reads the package of a deployment that is to change, that
// of its template, and if it isn't prepared the package that it had when it was
// last: what it runs.
func (s *Service) earlierOfDeployment(start Record, template string) earlier {
	return func(ctx context.Context) ([]tko.AcceptedPackage, error) {
		accepted, err := s.earlierOf(Key{}, false, template)(ctx)
		if err != nil {
			return nil, err
		}
		for r, n := start, 0; n < maxEarlier; n++ {
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
