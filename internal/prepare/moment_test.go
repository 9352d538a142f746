package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A mover is a client that calls between after each list of all sites of the ring first, and
// keeps what children at a site were to replace.
type mover struct {
	*client.Client

	first    string
	mu       sync.Mutex
	between  func()
	replaces map[tko.SiteID][]tko.DeploymentID // by the last child that was created there
}

func (m *mover) CreateChildren(ctx context.Context, children tko.NewChildren) ([]tko.DeploymentID, int, error) {
	m.mu.Lock()
	for _, child := range children.Children {
		m.replaces[child.Site] = child.Replaces
	}
	m.mu.Unlock()
	return m.Client.CreateChildren(ctx, children)
}

func (m *mover) Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error] {
	return func(yield func(tko.Site, error) bool) {
		for site, err := range m.Client.Sites(ctx, sel, options) {
			if !yield(site, err) {
				return
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if all := *options.Window.Max < 0; all && sel.Metadata["ring"] == m.first && m.between != nil {
			m.between()
		}
	}
}

const rings = `
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec:
  templates: [{template: NAME1, sites: [RING1]}, {template: NAME2, sites: [RING2]}]
  update: Apply
  budget: {delete: 10}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: old}, spec: {templateId: "leaf:v1"}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: new}, spec: {templateId: "leaf:v2"}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: stable}, spec: {select: {metadata: {ring: stable}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: canary}, spec: {select: {metadata: {ring: canary}}}}
`

// A site moves from the ring stable to the ring canary while a review reads the sites of
// both: it must not be in both, nor in none of them.
func TestSitesOfAPlacementAreReadAsOfOnePosition(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{
		"in both":    {"NAME1", "old", "RING1", "stable", "NAME2", "new", "RING2", "canary"},
		"in neither": {"NAME1", "new", "RING1", "canary", "NAME2", "old", "RING2", "stable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := newSystem(t)
			register(t, data, map[string]string{
				"topology": strings.NewReplacer(order...).Replace(rings), "leaf:v1": realLeaf, "leaf:v2": realLeaf,
			}, nil)
			move := func(id tko.SiteID, ring string) {
				if _, err := data.RegisterSite(context.WithoutCancel(t.Context()), tko.Site{ID: id, Metadata: map[string]string{"ring": ring}}); err != nil {
					t.Error(err)
				}
			}
			move("moves", "stable")
			move("other", "stable")
			id, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Template: "topology"})
			if err != nil {
				t.Fatal(err)
			}
			m := &mover{Client: data, first: order[3], replaces: map[tko.SiteID][]tko.DeploymentID{}}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- prepare.New(m, runner{}, prepare.Options{ReviewPause: time.Millisecond}).Run(ctx)
			}()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			awaitAt(t, data, id, map[tko.SiteID]string{"moves": "leaf:v1", "other": "leaf:v1"})
			before := childAt(t, data, id, "moves")
			m.mu.Lock()
			m.between = sync.OnceFunc(func() { move("moves", "canary") })
			m.mu.Unlock()
			move("other", "canary") // the review begins
			awaitAt(t, data, id, map[tko.SiteID]string{"moves": "leaf:v2", "other": "leaf:v2"})
			m.mu.Lock()
			defer m.mu.Unlock()
			if got := m.replaces["moves"]; len(got) != 1 || got[0] != before.ID {
				t.Errorf("the new child replaces %v, want the old one, %s: the site was without a child, or had two", got, before.ID)
			}
		})
	}
}

// awaitAt waits until each site has exactly one child, prepared and approved, of a
// template.
func awaitAt(t *testing.T, data *client.Client, parent tko.DeploymentID, want map[tko.SiteID]string) {
	t.Helper()
	eventually.NoError(t, fmt.Sprintf("the children are %v", want), func() error {
		got := map[tko.SiteID]string{}
		for child, err := range data.Deployments(t.Context(), tko.DeploymentSelect{Parent: parent}, tko.ListOptions{}) {
			if err != nil {
				return err
			}
			if got[child.Site] != "" || !child.Prepared || !child.Approved {
				return fmt.Errorf("site %s has several children, or one that isn't ready", child.Site)
			}
			got[child.Site] = string(child.Template)
		}
		for site, template := range want {
			if got[site] != template {
				return fmt.Errorf("site %s has %q", site, got[site])
			}
		}
		return nil
	})
}

func childAt(t *testing.T, data *client.Client, parent tko.DeploymentID, site tko.SiteID) tko.Deployment {
	t.Helper()
	for child, err := range data.Deployments(t.Context(), tko.DeploymentSelect{Parent: parent}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if child.Site == site {
			return child
		}
	}
	t.Fatal(errors.New("there is no child at site " + string(site)))
	return tko.Deployment{}
}
