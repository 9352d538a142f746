package catalog

import (
	"context"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// keptNames begins the origins of deployments that are known by a name: no other
// origin begins so (see originOf).
const keptNames = "kept/"

// KubernetesName is the name that a deployment was given when it was created, and by
// which it is known in Kubernetes; "" if it is known by its ID.
func (r Record) KubernetesName() string {
	name, ok := strings.CutPrefix(r.Origin, keptNames)
	if !ok {
		return ""
	}
	return name
}

// NameOrigin is the origin of the deployment of a name, to query for it.
func NameOrigin(name string) string { return keptNames + name }

// newName is the origin of a new deployment with a name: an *ExistsError if there
// is one.
func (s *Service) newName(ctx context.Context, name string) (origin string, err error) {
	if err := tko.CheckKubernetesName(name); err != nil {
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

// Named is the key of the deployment of a name; without an ID if there is none.
func (s *Service) Named(ctx context.Context, name string) (Key, error) {
	key := Key{Kind: tko.KindDeployment}
	if tko.CheckKubernetesName(name) != nil {
		return key, nil
	}
	for r, err := range s.store.List(ctx, Query{Kind: key.Kind, Origin: NameOrigin(name), Limit: 1}) {
		return r.Key, err
	}
	return key, nil
}
