package catalog

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/kubename"
)

// nameOrigin returns the origin of a new deployment with a name. It returns an
// *ExistsError if the name is taken.
func (s *RecordWriter) nameOrigin(ctx context.Context, name string) (origin string, err error) {
	if err := kubename.Check(name); err != nil {
		return "", err
	}
	if record.IsDeploymentID(name) {
		return "", tko.Errorf(tko.ErrInvalid, "the name %q has the form of an ID that TKO makes: use another one", name)
	}
	key, err := s.Named(ctx, name)
	if err != nil || key.ID == "" {
		return record.NameOrigin(name), err
	}
	return "", &record.ExistsError{Key: key, Name: name}
}

// Named returns the key of the deployment with a name; without an ID if there
// is none.
func (s *RecordWriter) Named(ctx context.Context, name string) (record.Key, error) {
	key := record.Key{Kind: tko.KindDeployment}
	if kubename.Check(name) != nil {
		return key, nil
	}
	for r, err := range s.store.List(ctx, record.Query{Kind: key.Kind, Scope: access.ScopeAll, Origin: record.NameOrigin(name), Limit: 1}) {
		return r.Key, err
	}
	return key, nil
}
