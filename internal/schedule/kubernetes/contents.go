package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// maxContents bounds the foreign objects of a kind in a namespace that are counted,
// give or take a page.
const maxContents = 1000

// A foreign lists objects that TKO did not make and that would be deleted together
// with their namespaces.
type foreign struct {
	objects []string // sorted by name
	unknown []string // resources that can't be listed, with the reason

	namespaces map[string]bool // those that have, or may have, such objects
}

// foreignContents finds the objects that would be deleted with the namespaces of a
// removal. It leaves out objects that are removed anyway, that another object owns,
// or that Kubernetes makes in every namespace.
func (rc *reconciliation) foreignContents(ctx context.Context) (foreign, error) {
	var all foreign
	var found []string
	toRemove := keysOf(rc.pruning.remove)
	for _, r := range rc.pruning.remove {
		if r.isNamespace() && !r.Removing && rc.live[r.key].GetDeletionTimestamp() == nil && rc.namespaceUser(r.Name) == "" {
			found = append(found, r.Name)
		}
	}
	if len(found) == 0 {
		return all, nil
	}
	kinds, unknown, err := rc.conn.listable(ctx)
	if err != nil {
		return foreign{}, err
	}
	all.unknown, all.namespaces = unknown, map[string]bool{}
	for _, namespace := range found {
		all.namespaces[namespace] = len(unknown) > 0
	}
	client, err := metadata.NewForConfigAndClient(metadata.ConfigFor(rc.conn.config), rc.conn.client)
	if err != nil {
		return foreign{}, err
	}
	var mu sync.Mutex
	g, ctx := rc.group(ctx)
	for _, namespace := range found {
		for _, k := range kinds {
			if !k.namespaced {
				continue
			}
			g.Go(func() error {
				names, why, err := rc.foreignOf(ctx, client.Resource(k.resource).Namespace(namespace), k, toRemove)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				all.objects = append(all.objects, names...)
				all.namespaces[namespace] = all.namespaces[namespace] || len(names) > 0 || why != ""
				if why != "" {
					all.unknown = append(all.unknown, fmt.Sprintf("the %s in namespace %q (%s)", k.resource.GroupResource(), namespace, why))
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return foreign{}, err
	}
	slices.Sort(all.objects)
	slices.Sort(all.unknown)
	return all, nil
}

// foreignOf lists the foreign objects of a kind in a namespace. If they can't be
// listed, why is the reason.
func (rc *reconciliation) foreignOf(ctx context.Context, at metadata.ResourceInterface, k listed, toRemove map[key]bool) (names []string, why string, err error) {
	found, _, err := listMatching(ctx, at, metav1.ListOptions{}, maxContents, func(r *metav1.PartialObjectMetadata) bool {
		at := k.keyOf(r)
		return !toRemove[at] && !rc.removedWithChart(r) && !rc.isInventory(at) && !isIncidental(at, r)
	})
	var status apierrors.APIStatus
	switch {
	case err == nil:
	case ctx.Err() == nil && errors.As(err, &status):
		why = bounded(err.Error())
	default:
		return nil, "", err
	}
	for i := range found {
		names = append(names, k.keyOf(&found[i]).String())
	}
	return names, why, nil
}

// isInventory returns whether an object is an inventory of the site. It is removed
// once its objects are deleted.
func (rc *reconciliation) isInventory(k key) bool {
	for _, i := range rc.recorded.mine {
		if r := i.resource; r != nil && k == (key{Kind: "ConfigMap", Namespace: r.GetNamespace(), Name: r.GetName()}) {
			return true
		}
	}
	return false
}

// removedWithChart returns whether an object belongs to a release that is removed: no
// inventory has hooks and Helm's own records.
func (rc *reconciliation) removedWithChart(r *metav1.PartialObjectMetadata) bool {
	owner := tko.DeploymentID(r.Labels[LabelDeployment])
	return owner != "" && r.Annotations[AnnotationPrune] != krm.Never && slices.ContainsFunc(rc.pruning.remove, func(chart removal) bool {
		return chart.isChart() && chart.Namespace == r.Namespace && slices.Contains(chart.from, owner)
	})
}

// isIncidental returns whether an object exists because of another object or of the
// namespace, or is being deleted.
func isIncidental(k key, r *metav1.PartialObjectMetadata) bool {
	switch {
	case r.DeletionTimestamp != nil, len(r.OwnerReferences) > 0:
		return true
	case k.Kind == "Event" && (k.Group == "" || k.Group == "events.k8s.io"):
		return true
	case k.Group != "":
		return false
	}
	return k.Kind == "Endpoints" ||
		k.Kind == "ConfigMap" && k.Name == "kube-root-ca.crt" ||
		k.Kind == "ServiceAccount" && k.Name == "default" ||
		k.Kind == "Secret" && r.Annotations["kubernetes.io/service-account.name"] != ""
}

// A listed is a kind whose objects can be listed.
type listed struct {
	resource   schema.GroupVersionResource
	kind       string
	namespaced bool
}

func (k listed) keyOf(r *metav1.PartialObjectMetadata) key {
	return key{k.resource.Group, k.kind, r.Namespace, r.Name}
}

// listable returns the kinds of objects that can be listed and deleted, and descriptions of
// the groups that can't be discovered.
func (c *cluster) listable(ctx context.Context) (kinds []listed, unknown []string, err error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(c.config, &http.Client{Transport: c.client.Transport, Timeout: c.client.Timeout})
	if err != nil {
		return nil, nil, err
	}
	lists, err := client.ServerPreferredResourcesWithContext(ctx)
	var partly *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partly):
		for gv, why := range partly.Groups {
			unknown = append(unknown, fmt.Sprintf("the kinds of %s (%s)", gv, bounded(why.Error())))
		}
		slices.Sort(unknown)
	case err != nil:
		return nil, nil, fmt.Errorf("list the kinds of objects: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if !isSubresource(r.Name) && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") {
				kinds = append(kinds, listed{gv.WithResource(r.Name), r.Kind, r.Namespaced})
			}
		}
	}
	return kinds, unknown, nil
}
