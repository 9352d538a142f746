package prepare_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// updating returns a topology at all sites of the north, with spec.update and others.
func updating(update string) string {
	return `
apiVersion: TOPOLOGY
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: leaf, sites: [all]}], ` + update + `}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: leaf}, spec: {templateId: leaf}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: all}, spec: {select: {metadata: {region: north}}}}
`
}

// placedAt prepares an updating topology at sites, and its children.
func placedAt(t *testing.T, update string, sites ...string) (*memory, *prepare.Preparer, tko.DeploymentID) {
	t.Helper()
	m := newMemory()
	m.templates["leaf"] = pkg(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: leaf}}`)
	for _, site := range sites {
		m.sites[tko.SiteID(site)] = nil
	}
	id := m.deploy(t, updating(update))
	p := prepare.New(m, runner{}, prepare.Options{ReviewPause: time.Nanosecond})
	settle(t, m, p)
	if got := m.children(id); len(got) != len(sites) {
		t.Fatalf("children at first: %v", got)
	}
	return m, p, id
}

// approve approves a proposal, as the data controller does.
func (m *memory) approve(id tko.DeploymentID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.deployments[id]
	d.Stamp.Revision++
	for i, c := range d.Stamp.Conditions {
		if c.Type == tko.ConditionPlaced && c.Reason == tko.ReasonChangeProposed {
			d.Stamp.Conditions[i].Reason = tko.ReasonChangeApproved
		}
	}
}

// loseSite deletes a site, as the data controller does.
func loseSite(site tko.SiteID) func(*memory, tko.DeploymentID) {
	return func(m *memory, _ tko.DeploymentID) {
		delete(m.sites, site)
		for _, d := range m.deployments {
			if d.Site == site {
				d.Site, d.Stamp.Who = "", "ann@laptop"
				resource, _ := d.Package.Deployment()
				delete(resource["spec"].(map[string]any), "siteId")
				d.Stamp.Revision++
			}
		}
	}
}

func at(sites ...string) []string {
	var all []string
	for _, s := range sites {
		if strings.Contains(s, " at ") {
			all = append(all, s)
		} else {
			all = append(all, "leaf at "+s)
		}
	}
	return all
}

func TestReviewChangesChildrenAsUpdateAllows(t *testing.T) {
	type step struct {
		add, remove []string
		approve     bool
		settle      bool // prepares the children
		edit        func(*memory, tko.DeploymentID)
		want        []string // sites of children, after one review
		says        string   // prefix of the Placed condition
	}
	tests := map[string]struct {
		why    string
		update string
		steps  []step
	}{
		"once": {
			why: "the default: what was placed stays placed", update: "update: Once",
			steps: []step{{add: []string{"north-3"}, remove: []string{"north-1"}, want: []string{"north-1", "north-2"}}},
		},
		"apply creates": {
			why: "any number, unless there is a budget", update: "update: Apply",
			steps: []step{
				{want: []string{"north-1", "north-2"}, says: "True UpToDate"},
				{add: []string{"north-3", "north-4", "south-1"}, want: []string{"north-1", "north-2", "north-3", "north-4"}, says: "True UpToDate"},
			},
		},
		"apply never deletes without a budget": {
			why: "it proposes", update: "update: Apply",
			steps: []step{
				{
					add: []string{"north-3"}, remove: []string{"north-1"}, want: []string{"north-1", "north-2", "north-3"},
					says: `False WaitsForApproval: Placement "placement" would delete 1 deployments, and remove them from their sites: deployment-00002 (leaf at north-1); approve it`,
				},
				{approve: true, want: []string{"north-2", "north-3"}, says: "True UpToDate"},
			},
		},
		"apply deletes within the budget": {
			why: "spec.update permits it", update: "update: Apply, budget: {delete: 1}",
			steps: []step{{remove: []string{"north-1"}, want: []string{"north-2"}, says: "True UpToDate"}},
		},
		"apply deletes nothing beyond the budget": {
			why: "a bad selector must not take the network down, not even slowly", update: "update: Apply, budget: {delete: 1}",
			steps: []step{
				{remove: []string{"north-1", "north-2"}, want: []string{"north-1", "north-2"}, says: "False WaitsForApproval"},
				{want: []string{"north-1", "north-2"}, says: "False WaitsForApproval"},
				{add: []string{"north-2"}, want: []string{"north-2"}, says: "True UpToDate"},
			},
		},
		"apply creates few at once": {
			why: "the next come when these are prepared: a bad template stops", update: "update: Apply, budget: {create: 2}",
			steps: []step{
				{add: []string{"north-3", "north-4", "north-5"}, want: []string{"north-1", "north-2", "north-3", "north-4"}, says: `False WithinBudget: Placement "placement": 1 more children will be created`},
				{want: []string{"north-1", "north-2", "north-3", "north-4"}, says: "False WithinBudget"},
				{settle: true, want: []string{"north-1", "north-2", "north-3", "north-4", "north-5"}, says: "True UpToDate"},
			},
		},
		"a budget of no creations": {
			why: "means to ask for each", update: "update: Apply, budget: {create: 0}",
			steps: []step{
				{add: []string{"north-3"}, want: []string{"north-1", "north-2"}, says: "False WaitsForApproval"},
				{approve: true, want: []string{"north-1", "north-2", "north-3"}, says: "True UpToDate"},
			},
		},
		"propose": {
			why: "no change before a user has seen the proposal", update: "update: Propose, budget: {delete: 100}",
			steps: []step{
				{
					add: []string{"north-3"}, remove: []string{"north-1"}, want: []string{"north-1", "north-2"},
					says: `False WaitsForApproval: Placement "placement" would create 1 deployments: leaf at north-3; and delete 1`,
				},
				{want: []string{"north-1", "north-2"}, says: "False WaitsForApproval"},
				{approve: true, want: []string{"north-2", "north-3"}, says: "True UpToDate"},
				{add: []string{"north-4"}, want: []string{"north-2", "north-3"}, says: "False WaitsForApproval"},
			},
		},
		"propose, in time": {
			why: "an approval covers what was proposed, and goes on until it is done", update: "update: Propose, budget: {create: 1}",
			steps: []step{
				{add: []string{"north-3", "north-4"}, want: []string{"north-1", "north-2"}, says: "False WaitsForApproval"},
				{approve: true, want: []string{"north-1", "north-2", "north-3"}, says: "False ChangeApproved"},
				{settle: true, want: []string{"north-1", "north-2", "north-3", "north-4"}, says: "True UpToDate"},
			},
		},
		"approved too late": {
			why: "an approval is for what was seen: nothing else is done under it", update: "update: Propose",
			steps: []step{
				{add: []string{"north-3"}, want: []string{"north-1", "north-2"}, says: "False WaitsForApproval"},
				{add: []string{"north-4"}, approve: true, want: []string{"north-1", "north-2"}, says: `False WaitsForApproval: Placement "placement" would create 2`},
				{approve: true, want: []string{"north-1", "north-2", "north-3", "north-4"}, says: "True UpToDate"},
			},
		},
		"no longer wanted": {
			why: "a proposal goes when its cause does", update: "update: Propose",
			steps: []step{
				{add: []string{"north-3"}, want: []string{"north-1", "north-2"}, says: "False WaitsForApproval"},
				{remove: []string{"north-3"}, want: []string{"north-1", "north-2"}, says: "True UpToDate"},
			},
		},
		"a child that a user changed": {
			why: "work of people isn't thrown away by itself", update: "update: Apply, budget: {delete: 5}",
			steps: []step{
				{edit: func(m *memory, id tko.DeploymentID) {
					for _, d := range m.deployments {
						if d.Parent == id && d.Site == "north-1" {
							d.Stamp.Who = "ann@laptop"
						}
					}
				}, remove: []string{"north-1"}, want: []string{"north-1", "north-2"}, says: `False WaitsForApproval: Placement "placement" would delete 1 deployments, and remove them from their sites: deployment-00002 (leaf at north-1, last written by ann@laptop)`},
				{approve: true, want: []string{"north-2"}, says: "True UpToDate"},
			},
		},
		"a child that a user made": {
			why: "what the placement didn't make it doesn't know", update: "update: Apply, budget: {delete: 5}",
			steps: []step{{edit: func(m *memory, id tko.DeploymentID) {
				_, _ = m.create(id, "leaf", "south-9", nil)
			}, want: []string{"north-1", "north-2", "south-9"}, says: "True UpToDate"}},
		},
		"a child that a user deleted": {
			why: "the topology still says that it should be there", update: "update: Apply",
			steps: []step{{edit: func(m *memory, _ tko.DeploymentID) {
				_, _ = m.DeleteDeployment(t.Context(), "deployment-00002")
			}, want: []string{"north-1", "north-2"}, says: "True UpToDate"}},
		},
		"its site comes back": {
			why: "what runs nowhere is not as the placement says", update: "update: Apply, budget: {create: 1}",
			steps: []step{
				{edit: loseSite("north-1"), want: []string{"", "north-2"}, says: `False WaitsForApproval: Placement "placement" would delete 1 deployments, and remove them from their sites: deployment-00002 (leaf at a site that no longer exists)`},
				{add: []string{"north-1"}, want: []string{"north-1", "north-2"}, says: "True UpToDate"},
			},
		},
		"its site comes back, and it is asked": {
			why: "that something runs again is a change, too", update: "update: Propose",
			steps: []step{
				{edit: loseSite("north-1"), add: []string{"north-1"}, want: []string{"", "north-2"}, says: `False WaitsForApproval: Placement "placement" would give 1 deployments their sites back: deployment-00002 (leaf at north-1); approve it`},
				{approve: true, want: []string{"north-1", "north-2"}, says: "True UpToDate"},
			},
		},
		"its site comes back, with a budget of none": {
			why: "means to ask for each", update: "update: Apply, budget: {create: 0}",
			steps: []step{{edit: loseSite("north-1"), add: []string{"north-1"}, want: []string{"", "north-2"}, says: `False WaitsForApproval`}},
		},
		"a child that a user moved": {
			why: "it is where they want it", update: "update: Apply",
			steps: []step{{edit: func(m *memory, _ tko.DeploymentID) {
				m.deployments["deployment-00002"].Site = "south-1"
			}, want: []string{"north-2", "south-1"}, says: "True UpToDate"}},
		},
		"another template": {
			why: "what is there goes when what takes its place is prepared: a bad template replaces nothing", update: "update: Apply, budget: {delete: 2}",
			steps: []step{
				{
					edit: func(m *memory, id tko.DeploymentID) {
						m.templates["other"] = krm.Package{}
						d := m.deployments[id]
						i := slices.IndexFunc(d.Package, func(r krm.Resource) bool { return r.GVK().Kind == "Template" })
						d.Package[i].Set("other", "spec", "templateId")
						d.Package[0].Set("other", "status", "templates", "leaf")
					},
					want: []string{"north-1", "north-2", "other at north-1", "other at north-2"}, says: `False WithinBudget: Placement "placement": 2 children will be replaced, each when`,
				},
				{settle: true, want: []string{"other at north-1", "other at north-2"}, says: "True UpToDate"},
			},
		},
		"no template any more": {
			why: "what can't be done says why, and goes on when it can", update: "update: Apply",
			steps: []step{
				{edit: func(m *memory, _ tko.DeploymentID) { delete(m.templates, "leaf") }, add: []string{"north-3"}, want: []string{"north-1", "north-2"}, says: "False TemplateMissing"},
				{edit: func(m *memory, _ tko.DeploymentID) { m.templates["leaf"] = krm.Package{} }, want: []string{"north-1", "north-2", "north-3"}, says: "True UpToDate"},
			},
		},
		"no longer again": {
			why: "no more reviews, and the condition reports that", update: "update: Apply",
			steps: []step{{edit: func(m *memory, id tko.DeploymentID) {
				m.deployments[id].Package[0].Set("Once", "spec", "update")
			}, add: []string{"north-3"}, want: []string{"north-1", "north-2"}, says: "Unknown EvaluatedOnce"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, p, id := placedAt(t, test.update, "north-1", "north-2")
			for i, s := range test.steps {
				if s.edit != nil {
					s.edit(m, id)
				}
				for _, site := range s.add {
					m.sites[tko.SiteID(site)] = nil
				}
				for _, site := range s.remove {
					delete(m.sites, tko.SiteID(site))
				}
				if s.approve {
					m.approve(id)
				}
				if s.settle {
					settle(t, m, p)
				}
				p := prepare.New(m, runner{}, prepare.Options{}) // a new preparer has no reviews
				result := reconcile(t, p, id)
				if result.Err != nil {
					t.Fatalf("step %d: %v", i, result.Err)
				}
				if diff := cmp.Diff(at(s.want...), m.children(id)); diff != "" {
					t.Errorf("%s: step %d: %s", test.why, i, diff)
				}
				if got := m.condition(id, tko.ConditionPlaced); !strings.HasPrefix(got, s.says) {
					t.Errorf("%s: step %d: says %q", test.why, i, got)
				}
				commits, statuses := m.commits, m.statuses
				if reconcile(t, prepare.New(m, runner{}, prepare.Options{}), id); m.commits != commits || m.statuses != statuses {
					t.Errorf("step %d: a second reconciliation wrote something", i)
				}
			}
		})
	}
}

func TestReviewSetsPlacedConditionAndStatus(t *testing.T) {
	m, p, id := placedAt(t, "update: Propose", "north-1")
	for i := range 30 {
		m.sites[tko.SiteID(fmt.Sprintf("north-x-%02d", i))] = nil
	}
	reconcile(t, p, id)
	status := func() map[string]any {
		value, _ := m.get(id).Package[0].Get("status")
		s, _ := value.(map[string]any)
		return s
	}
	proposal, _ := status()["proposal"].(map[string]any)
	create, _ := proposal["create"].(map[string]any)
	examples, _ := create["examples"].([]any)
	if create["count"] != int64(30) || len(examples) != 20 || examples[0] != "leaf at north-x-00" {
		t.Errorf("the proposal: %v", proposal)
	}
	m.approve(id)
	reconcile(t, prepare.New(m, runner{}, prepare.Options{}), id)
	merged, _ := status()["merged"].(map[string]any)
	want := map[string]any{"deployments": int64(31), "templates": map[string]any{"leaf": "leaf"}, "merged": map[string]any{"digest": merged["digest"]}}
	if diff := cmp.Diff(want, status()); diff != "" {
		t.Errorf("when it is done: %s", diff)
	}
}

// TestReviewKeepsSelectedTemplate registers a better match for the Template resource.
func TestReviewKeepsSelectedTemplate(t *testing.T) {
	m, p, id := placedAt(t, "update: Apply, budget: {delete: 10}", "north-1")
	d := m.deployments[id]
	i := slices.IndexFunc(d.Package, func(r krm.Resource) bool { return r.GVK().Kind == "Template" })
	d.Package[i]["spec"] = map[string]any{"select": map[string]any{"all": true}}
	m.templates["a-new-leaf"] = krm.Package{}
	m.sites["north-2"] = nil
	reconcile(t, p, id)
	if diff := cmp.Diff(at("north-1", "north-2"), m.children(id)); diff != "" {
		t.Error(diff)
	}
}

// TestReviewSurvivesFailureOfEveryWrite lets each write of a large change fail,
// before it takes effect and after, as a crash would.
func TestReviewSurvivesFailureOfEveryWrite(t *testing.T) {
	for _, after := range []bool{false, true} {
		m, p, id := placedAt(t, "update: Propose", "north-1", "north-2", "north-3")
		delete(m.sites, "north-1")
		delete(m.sites, "north-2")
		want := at("north-3")
		for i := range 1200 {
			site := fmt.Sprintf("north-x-%04d", i)
			m.sites[tko.SiteID(site)] = nil
			want = append(want, "leaf at "+site)
		}
		reconcile(t, p, id)
		m.approve(id)
		crash := errors.New("crash")
		seen := map[string]int{}
		var seeing sync.Mutex
		fail := func(call string) error {
			seeing.Lock()
			defer seeing.Unlock()
			seen[call]++
			if seen[call] <= 2 && call != "conditions" {
				return crash
			}
			return nil
		}
		if after {
			m.afterEach = fail
		} else {
			m.beforeEach = fail
		}
		for n := 0; !strings.HasPrefix(m.condition(id, tko.ConditionPlaced), "True"); n++ {
			if n > 20 {
				t.Fatalf("after %v: it doesn't end: %s", seen, m.condition(id, tko.ConditionPlaced))
			}
			// Each review is by a new preparer without state.
			p = prepare.New(m, runner{}, prepare.Options{})
			reconcile(t, p, id)
		}
		if diff := cmp.Diff(want, m.children(id)); diff != "" {
			t.Error(diff)
		}
		if len(seen) != 3 {
			t.Errorf("not every kind of write failed: %v", slices.Collect(maps.Keys(seen)))
		}
	}
}

// TestReviewsArePaused registers many sites one after the other.
func TestReviewsArePaused(t *testing.T) {
	m, _, id := placedAt(t, "update: Apply", "north-1")
	p := prepare.New(m, runner{}, prepare.Options{ReviewPause: time.Hour})
	reconcile(t, p, id)
	m.sites["north-2"] = nil
	r := reconcile(t, p, id)
	if len(m.children(id)) != 1 || r.Outcome != tko.WorkLater || r.Retry > time.Hour || r.Retry < 50*time.Minute {
		t.Errorf("within the pause: %+v, %v", r, m.children(id))
	}
	m.approve(id) // any change of the deployment itself
	if reconcile(t, p, id); len(m.children(id)) != 2 {
		t.Errorf("a change of the deployment isn't seen at once: %v", m.children(id))
	}
}

// TestSystemFollowsChangesOfSites registers and deletes sites at a real data
// controller, with preparers that are stopped at random.
func TestSystemFollowsChangesOfSites(t *testing.T) {
	data := newSystem(t)
	register(t, data, map[string]string{"leaf": realLeaf}, map[string]string{"site/000": "north", "site/001": "north", "other": "south"})
	create := func(update string) tko.DeploymentID {
		id, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Merge: pkg(t, updating(update))})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	applies, proposes := create("update: Apply, budget: {delete: 1}"), create("update: Propose")
	options := prepare.Options{Concurrency: 2, Lease: 3 * time.Second, Grace: time.Millisecond, ReviewPause: 20 * time.Millisecond}
	stop := run(t, data, runner{}, options)
	for _, id := range []tko.DeploymentID{applies, proposes} {
		waitFor(t, data, id, tko.ConditionTrue)
		waitPlaced(t, data, id, tko.ConditionTrue, "")
	}
	const more = 300
	var registering sync.WaitGroup
	registering.Go(func() {
		for i := range more {
			id := tko.SiteID(fmt.Sprintf("site/%03d", i+2))
			if _, err := data.RegisterSite(t.Context(), tko.Site{ID: id, Metadata: map[string]string{"region": "north"}}); err != nil {
				t.Error(err)
			}
		}
	})
	for range 5 {
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
		stop()
		stop = run(t, data, runner{}, options)
	}
	registering.Wait()
	defer func() { stop() }()
	childrenBecome(t, data, applies, more+2)
	waitPlaced(t, data, proposes, tko.ConditionFalse, fmt.Sprintf("would create %d deployments", more))
	if n := count(t, data, tko.DeploymentSelect{Parent: proposes}); n != 2 {
		t.Errorf("%d children, before the approval", n)
	}
	if n, err := data.ApproveDeployment(t.Context(), proposes); n != 1 || err != nil {
		t.Errorf("approved %d: %v", n, err)
	}
	childrenBecome(t, data, proposes, more+2)
	waitPlaced(t, data, proposes, tko.ConditionTrue, "")
	if n, err := data.ApproveDeployment(t.Context(), proposes); n != 0 || err != nil {
		t.Errorf("approved %d once more: %v", n, err)
	}

	// One site is deleted, and the metadata of another no longer match.
	if _, err := data.DeleteSite(t.Context(), "site/000"); err != nil {
		t.Fatal(err)
	}
	childrenBecome(t, data, applies, more+1)
	if _, err := data.RegisterSite(t.Context(), tko.Site{ID: "site/001", Metadata: map[string]string{"region": "south"}}); err != nil {
		t.Fatal(err)
	}
	childrenBecome(t, data, applies, more)
	waitPlaced(t, data, proposes, tko.ConditionFalse, "would delete 2 deployments")
	if _, err := data.ApproveDeployment(t.Context(), proposes); err != nil {
		t.Fatal(err)
	}
	childrenBecome(t, data, proposes, more)
	seen := map[tko.SiteID]int{}
	for d, err := range data.Deployments(t.Context(), tko.DeploymentSelect{Parent: applies}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[d.Site]++
		if seen[d.Site] > 1 || d.Site < "site/002" {
			t.Errorf("%d at %q", seen[d.Site], d.Site)
		}
	}
}

// TestReviewsArePausedWhileDeploymentIsHeld reviews a deployment with a
// modification token: frequent reviews would not help.
func TestReviewsArePausedWhileDeploymentIsHeld(t *testing.T) {
	m, _, id := placedAt(t, "update: Propose", "north-1")
	m.sites["north-2"] = nil
	m.beforeEach = func(call string) error {
		if call == "commit" {
			return tko.ErrBusy
		}
		return nil
	}
	p := prepare.New(m, runner{}, prepare.Options{ReviewPause: time.Hour})
	if r := reconcile(t, p, id); r.Outcome != tko.WorkLater || r.Retry > time.Second {
		t.Errorf("held: %+v", r)
	}
	if r := reconcile(t, p, id); r.Outcome != tko.WorkLater || r.Retry < 50*time.Minute {
		t.Errorf("held still: %+v", r)
	}
}

// TestSystemGivesReturnedSiteBackToChild deletes a site that has a child, and
// registers it again.
func TestSystemGivesReturnedSiteBackToChild(t *testing.T) {
	data := newSystem(t)
	register(t, data, map[string]string{"leaf": realLeaf}, map[string]string{"a": "north", "b": "north"})
	id, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Merge: pkg(t, updating("update: Apply"))})
	if err != nil {
		t.Fatal(err)
	}
	defer run(t, data, runner{}, prepare.Options{ReviewPause: 20 * time.Millisecond})()
	waitPlaced(t, data, id, tko.ConditionTrue, "")
	if _, err := data.DeleteSite(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	waitPlaced(t, data, id, tko.ConditionFalse, "would delete 1 deployments")
	register(t, data, nil, map[string]string{"a": "north"})
	waitPlaced(t, data, id, tko.ConditionTrue, "")
	sites := map[tko.SiteID]bool{}
	for d, err := range data.Deployments(t.Context(), tko.DeploymentSelect{Parent: id}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, data, d.ID, tko.ConditionTrue) // it becomes true later
		sites[d.Site] = true
	}
	if diff := cmp.Diff(map[tko.SiteID]bool{"a": true, "b": true}, sites); diff != "" {
		t.Error(diff)
	}
}

// TestHeldChildDoesNotDelayReturnOfOtherSites starts a modification of one of
// two children.
func TestHeldChildDoesNotDelayReturnOfOtherSites(t *testing.T) {
	m, _, id := placedAt(t, "update: Apply", "north-1", "north-2")
	loseSite("north-1")(m, id)
	loseSite("north-2")(m, id)
	m.sites["north-1"], m.sites["north-2"] = nil, nil
	held := true
	m.beforeEach = func(call string) error {
		if call == "commit" && held {
			held = false
			return tko.ErrBusy
		}
		return nil
	}
	for i, want := range [][]string{at("", "north-2"), at("north-1", "north-2")} {
		r := reconcile(t, prepare.New(m, runner{}, prepare.Options{}), id)
		if diff := cmp.Diff(want, m.children(id)); diff != "" || r.Outcome != tko.WorkLater {
			t.Errorf("reconciliation %d: %+v %s", i, r, diff)
		}
	}
	if got := m.condition(id, tko.ConditionPlaced); !strings.HasPrefix(got, "True UpToDate") {
		t.Error(got)
	}
}

func waitPlaced(t *testing.T, data *client.Client, id tko.DeploymentID, status, says string) {
	t.Helper()
	eventually.NoError(t, fmt.Sprintf("the condition Placed of %s is %s %q", id, status, says), func() error {
		d, err := data.Deployment(t.Context(), id, 0)
		if err != nil {
			return err
		}
		for _, c := range d.Stamp.Conditions {
			if c.Type == tko.ConditionPlaced && c.Status == status && strings.Contains(c.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", d.Stamp.Conditions)
	})
}

func childrenBecome(t *testing.T, data *client.Client, id tko.DeploymentID, want int) {
	t.Helper()
	eventually.NoError(t, fmt.Sprintf("%s has %d children", id, want), func() error {
		if n := count(t, data, tko.DeploymentSelect{Parent: id}); n != want {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
}
