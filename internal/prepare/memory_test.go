package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A memory is a data controller in memory with the properties that the preparer
// relies on: compare and set, origins, Deployment resources that match the records,
// conditions. Its hooks inject failures.
type memory struct {
	mu          sync.Mutex
	position    int64
	deployments map[tko.DeploymentID]*tko.Deployment
	origins     map[string]string
	reserved    map[string]tko.RolloutID
	templates   map[tko.TemplateID]krm.Package
	sites       map[tko.SiteID]krm.Package
	plugins     []tko.Plugin

	rollouts []krm.Package // that were proposed
	sitesMax int           // of what placements change at once without a rollout; no limit if 0

	made       int
	siteFails  int // lists of sites fail after this number of sites, if not 0
	batches    []int
	commits    int
	whys       []string                // of the commits
	steps      [][]tko.PreparationStep // of the commits
	statuses   int
	lists      int
	beforeEach func(call string) error // called before every write; its error is returned instead
	afterEach  func(call string) error // called after every write; its error is returned as if the response were lost
	validate   func(krm.Package, bool) error
}

func newMemory() *memory {
	return &memory{
		deployments: map[tko.DeploymentID]*tko.Deployment{},
		origins:     map[string]string{},
		templates:   map[tko.TemplateID]krm.Package{},
		sites:       map[tko.SiteID]krm.Package{},
	}
}

func (m *memory) write(call string, f func() error) error {
	if m.beforeEach != nil {
		if err := m.beforeEach(call); err != nil {
			return err
		}
	}
	err := func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.position++
		return f()
	}()
	if err == nil && m.afterEach != nil {
		return m.afterEach(call)
	}
	return err
}

func (m *memory) create(parent tko.DeploymentID, template tko.TemplateID, site tko.SiteID, merge krm.Package) (tko.DeploymentID, error) {
	m.made++
	id := tko.DeploymentID(fmt.Sprintf("deployment-%05d", m.made))
	pkg, err := krm.Merge(m.templates[template].Clone(), merge)
	if err != nil {
		return "", err
	}
	m.deployments[id] = &tko.Deployment{
		ID: id, Parent: parent, Template: template, Site: site,
		Package: pkg.WithDeployment(string(template), string(site), false, false),
		Stamp:   tko.Stamp{Revision: 1, Position: m.position, Created: time.Now()},
	}
	return id, nil
}

func (m *memory) Deployment(_ context.Context, id tko.DeploymentID, _ int64) (tko.Deployment, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.deployments[id]
	if !ok {
		return tko.Deployment{}, tko.NotFound(tko.KindDeployment, id)
	}
	out := *d
	out.Package = d.Package.Clone()
	out.Stamp.Conditions = slices.Clone(d.Stamp.Conditions)
	return out, nil
}

func (m *memory) CommitDeployment(ctx context.Context, c tko.DeploymentCommit) (revision int64, err error) {
	err = m.write("commit", func() error {
		d, ok := m.deployments[c.ID]
		if !ok {
			return tko.NotFound(tko.KindDeployment, c.ID)
		}
		if d.Stamp.Revision != c.Revision {
			return fmt.Errorf("deployment %q is at revision %d: %w", c.ID, d.Stamp.Revision, tko.ErrConflict)
		}
		resource, err := c.Package.Deployment()
		if err != nil {
			return err
		}
		state, err := krm.ReadDeployment(resource)
		if err != nil {
			return err
		}
		prepared := state.Prepared != nil && *state.Prepared
		if m.validate != nil {
			if err := m.validate(c.Package, prepared); err != nil {
				return err
			}
		}
		m.commits++
		m.whys, m.steps = append(m.whys, tko.AuthorOf(ctx).Why), append(m.steps, c.Steps)
		d.Package = c.Package.Clone()
		d.Prepared = prepared
		d.Approved = state.Approved != nil && *state.Approved
		m.takePlace(d)
		if state.Site != nil {
			d.Site = tko.SiteID(*state.Site)
		}
		d.Stamp.Revision++
		d.Stamp.Position = m.position
		m.setConditions(d, c.Conditions)
		revision = d.Stamp.Revision
		return nil
	})
	return revision, err
}

func (m *memory) SetConditions(_ context.Context, _ tko.Kind, id string, conditions []tko.Condition) error {
	return m.write("conditions", func() error {
		m.statuses++
		d := m.deployments[tko.DeploymentID(id)]
		d.Stamp.Position = m.position
		m.setConditions(d, conditions)
		return nil
	})
}

func (m *memory) setConditions(d *tko.Deployment, conditions []tko.Condition) {
	for _, c := range conditions {
		d.Stamp.Conditions = append(slices.DeleteFunc(d.Stamp.Conditions, func(old tko.Condition) bool { return old.Type == c.Type }), c)
	}
}

func (m *memory) CreateChildren(_ context.Context, c tko.NewChildren) (ids []tko.DeploymentID, created int, err error) {
	err = m.write("children", func() error {
		if m.sitesMax > 0 && c.Sites > m.sitesMax {
			return tko.Errorf(tko.ErrInvalid, "%d sites: %s", c.Sites, tko.RolloutText)
		}
		if len(c.Children) == 0 {
			return nil
		}
		m.batches = append(m.batches, len(c.Children))
		parent, ok := m.deployments[c.Parent]
		if !ok {
			return tko.NotFound(tko.KindDeployment, c.Parent)
		}
		if c.Revision != 0 && parent.Stamp.Revision != c.Revision {
			return tko.ErrConflict
		}
		for _, child := range c.Children {
			key := string(c.Parent) + "|" + child.Origin
			if id, ok := m.origins[key]; ok {
				ids = append(ids, tko.DeploymentID(id))
				continue
			}
			id, err := m.create(c.Parent, child.Template, child.Site, c.Merge)
			if err != nil {
				return err
			}
			created++
			m.deployments[id].Origin = child.Origin
			m.deployments[id].Replaces = child.Replaces
			m.deployments[id].Stamp.Who = "preparer"
			m.origins[key] = string(id)
			ids = append(ids, id)
		}
		return nil
	})
	return ids, created, err
}

func (m *memory) ReservedOrigins(context.Context, tko.DeploymentID) (map[string]tko.RolloutID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.reserved), nil
}

func (m *memory) ProposeRollout(_ context.Context, id tko.RolloutID, pkg krm.Package) (tko.RolloutStatus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rollouts = append(m.rollouts, pkg)
	return tko.RolloutStatus{ID: id, State: "Planned"}, nil
}

func (m *memory) Deployments(_ context.Context, sel tko.DeploymentSelect, _ tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []tko.Deployment
	for _, id := range slices.Sorted(maps.Keys(m.deployments)) {
		if m.deployments[id].Parent == sel.Parent {
			all = append(all, *m.deployments[id])
		}
	}
	return func(yield func(tko.Deployment, error) bool) {
		for _, d := range all {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// takePlace replaces the deployments that a prepared and approved deployment
// replaces, as the data controller does in the same transaction.
func (m *memory) takePlace(d *tko.Deployment) {
	if !d.Prepared || !d.Approved {
		return
	}
	for _, id := range d.Replaces {
		old, ok := m.deployments[id]
		if !ok || old.Parent != d.Parent || old.Site != d.Site {
			continue
		}
		for _, child := range m.deployments {
			if child.Parent == id {
				child.Parent = d.ID
				child.Origin = string(id) + "/" + strings.TrimPrefix(child.Origin, string(id)+"/")
				child.Stamp.Revision++
			}
		}
		delete(m.deployments, id)
		delete(m.origins, string(old.Parent)+"|"+old.Origin)
	}
	d.Replaces = nil
}

func (m *memory) DeleteDeploymentAt(_ context.Context, id tko.DeploymentID, revision int64) (tko.Deleted, error) {
	return tko.Deleted{Count: 1}, m.write("delete", func() error {
		d, ok := m.deployments[id]
		switch {
		case !ok:
			return tko.NotFound(tko.KindDeployment, id)
		case d.Stamp.Revision != revision:
			return tko.ErrConflict
		}
		delete(m.deployments, id)
		delete(m.origins, string(d.Parent)+"|"+d.Origin)
		return nil
	})
}

func (m *memory) DeleteDeployment(_ context.Context, id tko.DeploymentID) (tko.Deleted, error) {
	return tko.Deleted{Count: 1}, m.write("delete", func() error {
		d, ok := m.deployments[id]
		if !ok {
			return tko.NotFound(tko.KindDeployment, id)
		}
		delete(m.deployments, id)
		delete(m.origins, string(d.Parent)+"|"+d.Origin)
		return nil
	})
}

func (m *memory) ResolveSite(context.Context, tko.SiteID) (waits bool, err error) { return false, nil }

func (m *memory) ProvisionSite(_ context.Context, s tko.NewSite) (id tko.SiteID, created bool, err error) {
	err = m.write("site", func() error {
		if known, ok := m.origins["site|"+s.Origin]; ok {
			id = tko.SiteID(known)
			return nil
		}
		id, created = tko.SiteID(fmt.Sprintf("provisioned/%d", len(m.sites)+1)), true
		m.sites[id] = s.Package
		m.origins["site|"+s.Origin] = string(id)
		return nil
	})
	return id, created, err
}

func (m *memory) Templates(_ context.Context, sel tko.TemplateSelect, _ tko.ListOptions) iter.Seq2[tko.Template, error] {
	return func(yield func(tko.Template, error) bool) {
		m.mu.Lock()
		ids := slices.Sorted(maps.Keys(m.templates))
		m.mu.Unlock()
		for _, id := range ids {
			if matches(string(id), sel.IDs) && !yield(tko.Template{ID: id}, nil) {
				return
			}
		}
	}
}

// Sites matches metadata by the prefix of the ID: the value of "region".
func (m *memory) Sites(_ context.Context, sel tko.SiteSelect, _ tko.ListOptions) iter.Seq2[tko.Site, error] {
	return func(yield func(tko.Site, error) bool) {
		m.mu.Lock()
		ids := slices.Sorted(maps.Keys(m.sites))
		m.mu.Unlock()
		for i, id := range ids {
			if m.siteFails > 0 && i == m.siteFails {
				yield(tko.Site{}, errors.New("the connection broke"))
				return
			}
			if matches(string(id), sel.IDs) && strings.HasPrefix(string(id), sel.Metadata["region"]) && !yield(tko.Site{ID: id}, nil) {
				return
			}
		}
	}
}

func matches(id string, patterns []string) bool {
	for _, text := range patterns {
		if p, err := tko.ParsePattern(text); err != nil || !p.Match(id) {
			return false
		}
	}
	return true
}

func (m *memory) About(context.Context) (tko.About, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return tko.About{Position: m.position}, nil
}

func (m *memory) Plugins(_ context.Context, sel tko.PluginSelect, _ tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	m.mu.Lock()
	m.lists++
	all := slices.Clone(m.plugins)
	m.mu.Unlock()
	return func(yield func(tko.Plugin, error) bool) {
		for _, p := range all {
			if (sel.Type == nil || p.Type == *sel.Type) && !yield(p, nil) {
				return
			}
		}
	}
}

func (m *memory) register(name string, kinds ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.position++
	p := tko.Plugin{Type: tko.PluginPrepare, Name: name, Stamp: tko.Stamp{Position: m.position}}
	for _, kind := range kinds {
		p.Triggers = append(p.Triggers, krm.ParseGVK("a.plugin.nephio.org/v1", kind))
	}
	m.plugins = append(slices.DeleteFunc(m.plugins, func(old tko.Plugin) bool { return old.Name == name }), p)
	slices.SortFunc(m.plugins, func(a, b tko.Plugin) int { return strings.Compare(a.Name, b.Name) })
}

// The queue: all unprepared deployments are due. A key has one claim at a time.

func (m *memory) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (m *memory) RenewWork(_ context.Context, items []tko.WorkItem, _ time.Duration) ([]tko.WorkItem, error) {
	return items, nil
}

func (m *memory) FinishWork(context.Context, []tko.FinishedWork) error { return nil }

// deploy creates an unprepared deployment of a package.
func (m *memory) deploy(t *testing.T, yaml string) tko.DeploymentID {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.position++
	id, err := m.create("", "", "", pkg(t, yaml))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (m *memory) get(id tko.DeploymentID) tko.Deployment {
	d, _ := m.Deployment(context.Background(), id, 0)
	return d
}

// condition returns a deployment's condition as "status reason: text".
func (m *memory) condition(id tko.DeploymentID, typ string) string {
	for _, c := range m.get(id).Stamp.Conditions {
		if c.Type == typ {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Text())
		}
	}
	return ""
}

// children returns a deployment's children as "template at site", sorted.
func (m *memory) children(id tko.DeploymentID) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, d := range m.deployments {
		if d.Parent == id {
			all = append(all, fmt.Sprintf("%s at %s", d.Template, d.Site))
		}
	}
	slices.Sort(all)
	return all
}

func (m *memory) unprepared() []tko.DeploymentID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []tko.DeploymentID
	for id, d := range m.deployments {
		if !d.Prepared {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func pkg(t *testing.T, yaml string) krm.Package {
	t.Helper()
	yaml = strings.NewReplacer("TOPOLOGY", "topology.nephio.org/v1alpha1", "PLUGIN", "a.plugin.nephio.org/v1", "DEPLOYMENT", "deployment.nephio.org/v1alpha1, kind: Deployment").Replace(yaml)
	p, err := krm.Decode(krm.YAML, []byte(yaml), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A runner maps names of plugins to functions.
type runner map[string]func(target krm.Identity, pkg krm.Package) (bool, krm.Package, error)

func (r runner) Prepare(_ context.Context, p tko.Plugin, target krm.Identity, _ tko.DeploymentID, in krm.Package, notes ...func(string)) (prepared bool, out krm.Package, err error) {
	for _, note := range notes {
		note("warning: " + p.Name)
	}
	return r[p.Name](target, in.Clone())
}

// marks is a plugin that only marks the resource prepared.
func marks(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
	p.Find(target).SetPrepared()
	return true, p, nil
}
