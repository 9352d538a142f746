package kubernetes

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

// Observe reads the object of a tool that pulls the commits of a site, and the deployments'
// objects if the tool applies them to the same cluster. It only reads. The credentials must be
// granted to the site, as those of the site's own cluster. What can't be read is a part of the
// report; an error means that the context has ended.
func (t *Target) Observe(ctx context.Context, q puller.Question) (puller.Report, error) {
	said, err := t.observe(ctx, q)
	switch {
	case err == nil:
		return said, nil
	case ctx.Err() != nil:
		return puller.Report{}, context.Cause(ctx)
	case isUnreachable(err):
		return puller.Report{Problem: "the cluster is unreachable: " + unreachableReason(err), Unreachable: true}, nil
	}
	return puller.Report{Problem: bounded(err.Error())}, nil
}

func (t *Target) observe(ctx context.Context, q puller.Question) (puller.Report, error) {
	conn, release, err := t.connections.get(ctx, t.options.Leash.Site(q.Site), q.Spec.Kubeconfig, trigger.Impersonation{})
	if err != nil {
		return puller.Report{}, err
	}
	defer release()
	said, entries, err := t.hubs.read(ctx, conn, q)
	if err != nil || said.Missing {
		return said, err
	}
	index := puller.NewIndex(entries)
	said.Objects = make([]puller.Found, len(q.Objects))
	reading, limited := errgroup.WithContext(ctx)
	reading.SetLimit(t.options.Parallel)
	for i, o := range q.Objects {
		entry, ok := index.Find(o)
		if !ok {
			continue
		}
		said.Objects[i] = entry.Found
		if said.Elsewhere {
			continue
		}
		reading.Go(func() (err error) {
			entry.Version = o.Version
			said.Objects[i], err = readHealth(limited, conn, entry)
			return err
		})
	}
	return said, reading.Wait()
}

// readHealth reads an object that a tool applied to the cluster of a connection.
func readHealth(ctx context.Context, conn *cluster, e puller.Entry) (puller.Found, error) {
	found := e.Found
	live, err := conn.get(ctx, key{e.Group, e.Kind, e.Namespace, e.Name}, e.Version)
	switch {
	case err != nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
		found.Why = "can't be read"
		return found, nil
	case err != nil:
		return found, err
	case live == nil:
		found.Known, found.Health, found.Why = true, puller.Unhealthy, "is missing"
		return found, nil
	}
	h, why := healthRules(nil).healthOf(live)
	found.Known, found.Why = true, why
	found.Health = map[health]puller.Health{healthy: puller.Healthy, inProgress: puller.InProgress, failing: puller.Unhealthy}[h]
	return found, nil
}

// missing returns the report on an object that doesn't exist.
func missing() puller.Report { return puller.Report{Missing: true} }

// readOne reads the object of a tool.
func readOne(ctx context.Context, conn *cluster, s puller.Spec) (puller.Report, []puller.Entry, error) {
	gvk := s.Tool.GVK()
	r, err := conn.get(ctx, key{gvk.Group, gvk.Kind, s.Namespace, s.Name}, gvk.Version)
	if err != nil {
		return puller.Report{}, nil, err
	}
	if r == nil {
		return missing(), nil, nil
	}
	said, entries := puller.Observe(s.Tool, r.Object)
	return said, entries, nil
}

// errNoKind means that the cluster doesn't have the kind of a tool.
var errNoKind = errors.New("the cluster doesn't have the kind")

// noKind describes that a cluster doesn't have the kind of a tool.
func noKind(tool puller.Tool) error {
	return fmt.Errorf("%w %s: install the tool, or correct the kubeconfig in spec.status of the Repository", errNoKind, tool.GVK())
}
