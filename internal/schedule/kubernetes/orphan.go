package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/tko-orchestrator/tko"
)

// maxOrphans bounds the orphans of one kind, give or take a page.
const maxOrphans = tko.MaxSiteChanges

// orphans finds the objects in the cluster that are labelled as those of a deployment,
// and that no deployment wants and no inventory of any site names. It is called after
// plan. unsearched has the kinds that can't be listed, with the reason.
func (rc *reconciliation) orphans(ctx context.Context) (all []tko.SiteChange, unsearched []string) {
	known, charts, err := rc.inventoried(ctx)
	if err != nil {
		return nil, []string{"orphans were not looked for: " + bounded(describeUnreachable(err).Error())}
	}
	kinds, unknown, err := rc.conn.listable(ctx)
	if err != nil {
		return nil, []string{"orphans were not looked for: " + bounded(describeUnreachable(err).Error())}
	}
	client, err := metadata.NewForConfigAndClient(metadata.ConfigFor(rc.conn.config), rc.conn.client)
	if err != nil {
		return nil, []string{"orphans were not looked for: " + bounded(err.Error())}
	}
	unsearched = unknown
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(rc.target.options.Parallel)
	for _, k := range kinds {
		g.Go(func() error {
			found, more, err := listMatching(ctx, client.Resource(k.resource), metav1.ListOptions{LabelSelector: LabelDeployment}, maxOrphans, func(r *metav1.PartialObjectMetadata) bool {
				at := k.keyOf(r)
				return !known[at] && !charts[place{r.Namespace, tko.DeploymentID(r.Labels[LabelDeployment])}] && !isIncidental(at, r)
			})
			mu.Lock()
			defer mu.Unlock()
			for _, r := range found {
				all = append(all, tko.SiteChange{Verb: tko.SiteOrphan, Object: k.keyOf(&r).String(), Deployment: tko.DeploymentID(r.Labels[LabelDeployment])})
			}
			if more {
				err = errors.New("there are more")
			}
			if err != nil {
				unsearched = append(unsearched, fmt.Sprintf("the %s (%s)", k.resource.GroupResource(), bounded(err.Error())))
			}
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	slices.SortFunc(all, func(a, b tko.SiteChange) int { return strings.Compare(a.Object, b.Object) })
	slices.Sort(unsearched)
	return all, unsearched
}

// A place is a namespace with a deployment that has a release there. No inventory has
// the hooks of releases, and Helm's own records.
type place struct {
	namespace  string
	deployment tko.DeploymentID
}

// inventoried returns the objects that deployments want or that inventories name, in all
// namespaces: sites of one cluster may have their inventories in different ones.
func (rc *reconciliation) inventoried(ctx context.Context) (known map[key]bool, charts map[place]bool, err error) {
	elsewhere, err := rc.own.readInventories(ctx, "", rc.site.ID)
	if err != nil {
		return nil, nil, err
	}
	known, charts = map[key]bool{}, map[place]bool{}
	add := func(k key, id tko.DeploymentID) {
		known[k] = true
		if k.isChart() {
			charts[place{k.Namespace, id}] = true
		}
	}
	for _, i := range slices.Concat(slices.Collect(maps.Values(elsewhere.mine)), elsewhere.others, slices.Collect(maps.Values(rc.recorded.mine))) {
		for k := range i.entries {
			add(k, i.deployment)
		}
	}
	for id, keys := range rc.wanted.of {
		for _, k := range keys {
			add(k, id)
		}
	}
	return known, charts, nil
}
