package catalog

import (
	"context"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/kubename"
)

// namedOrigin is the prefix of the origins of deployments that were created
// with a name. Other origins don't have it (see originOf). It is stored.
const namedOrigin = "kept/"

// KubernetesName returns the name that a deployment was created with, and that
// it has in Kubernetes; "" if its name there is its ID.
func (r Record) KubernetesName() string {
	name, ok := strings.CutPrefix(r.Origin, namedOrigin)
	if !ok {
		return ""
	}
	return name
}

// NameOrigin returns the origin of the deployment with a name, for queries.
func NameOrigin(name string) string { return namedOrigin + name }

// nameOrigin returns the origin of a new deployment with a name. It returns an
// *ExistsError if the name is taken.
func (s *RecordWriter) nameOrigin(ctx context.Context, name string) (origin string, err error) {
	if err := kubename.Check(name); err != nil {
		return "", err
	}
	if isDeploymentID(name) {
		return "", tko.Errorf(tko.ErrInvalid, "the name %q has the form of an ID that TKO makes: use another one", name)
	}
	key, err := s.Named(ctx, name)
	if err != nil || key.ID == "" {
		return NameOrigin(name), err
	}
	return "", &ExistsError{Key: key, Name: name}
}

// Named returns the key of the deployment with a name; without an ID if there
// is none.
func (s *RecordWriter) Named(ctx context.Context, name string) (Key, error) {
	key := Key{Kind: tko.KindDeployment}
	if kubename.Check(name) != nil {
		return key, nil
	}
	for r, err := range s.store.List(ctx, Query{Kind: key.Kind, Scope: access.ScopeAll, Origin: NameOrigin(name), Limit: 1}) {
		return r.Key, err
	}
	return key, nil
}
