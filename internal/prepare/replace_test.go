package prepare_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/krm"
)

// running returns the templates of prepared and approved deployments, by site.
func (m *memory) running() map[tko.SiteID][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[tko.SiteID][]string{}
	for _, id := range slices.Sorted(maps.Keys(m.deployments)) {
		if d := m.deployments[id]; d.Prepared && d.Approved && d.Site != "" {
			found[d.Site] = append(found[d.Site], string(d.Template))
		}
	}
	return found
}

// name changes the named template of the topology, as a user does.
func (m *memory) name(id tko.DeploymentID, template string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.deployments[id]
	i := slices.IndexFunc(d.Package, func(r krm.Resource) bool { return r.GVK().Kind == "Template" })
	d.Package[i]["spec"] = map[string]any{"templateId": template}
	d.Stamp.Revision++
}

// everything reconciles each deployment once, in the order of the queue.
func everything(t *testing.T, m *memory) {
	t.Helper()
	m.mu.Lock()
	ids := slices.Sorted(maps.Keys(m.deployments))
	m.mu.Unlock()
	for _, id := range ids {
		reconcile(t, prepare.New(m, runner{}, prepare.Options{ReviewPause: time.Nanosecond}), id) // a new preparer has no state
	}
}

// TestUpgradeSurvivesTheFailureOfEveryWrite upgrades four sites, and upgrades them
// again before the first upgrade is complete. Each write fails once, before or after
// it takes effect.
func TestUpgradeSurvivesTheFailureOfEveryWrite(t *testing.T) {
	t.Parallel()
	const most = 200
	for _, after := range []bool{false, true} {
		for n := 0; ; n++ {
			if n == most {
				t.Fatalf("there are more than %d writes", most)
			}
			if !upgradeFailing(t, n, after) {
				if n < 10 {
					t.Errorf("there are only %d writes", n)
				}
				break
			}
		}
	}
}

// upgradeFailing lets one write fail, and reports whether there was one.
func upgradeFailing(t *testing.T, nth int, after bool) bool {
	t.Helper()
	m, _, id := placedAt(t, "update: Apply", "north-1", "north-2", "north-3", "north-4")
	for _, name := range []tko.TemplateID{"leaf:v2", "leaf:v3"} {
		m.templates[name] = pkg(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: leaf}}`)
	}
	var mu sync.Mutex
	writes, failed := 0, false
	m.afterEach = func(call string) error {
		for site, templates := range m.running() {
			if len(templates) != 1 {
				t.Errorf("after a %s (write %d fails): site %q should run %v", call, nth, site, templates)
			}
		}
		if got := len(m.running()); got != 4 {
			t.Errorf("after a %s (write %d fails): %d sites should run something", call, nth, got)
		}
		return nil
	}
	fail := func() error {
		mu.Lock()
		defer mu.Unlock()
		writes++
		if writes == nth+1 {
			failed = true
			return errors.New("crash")
		}
		return nil
	}
	if after {
		check := m.afterEach
		m.afterEach = func(call string) error { return errors.Join(check(call), fail()) }
	} else {
		m.beforeEach = func(string) error { return fail() }
	}
	m.name(id, "leaf:v2")
	everything(t, m) // creates the new children
	everything(t, m) // some, or all, replace the old ones
	m.name(id, "leaf:v3")
	want := at("leaf:v3 at north-1", "leaf:v3 at north-2", "leaf:v3 at north-3", "leaf:v3 at north-4")
	for range 20 {
		everything(t, m)
		if strings.HasPrefix(m.condition(id, tko.ConditionPlaced), "True UpToDate") && slices.Equal(m.children(id), want) {
			return failed
		}
	}
	t.Errorf("write %d fails (after: %t): the children are %v, and %s", nth, after, m.children(id), m.condition(id, tko.ConditionPlaced))
	return failed
}

// TestUnwantedChildIsDeletedOnlyIfItHasReplacedNothing lets a new child replace
// the old one while a review decides to delete it.
func TestUnwantedChildIsDeletedOnlyIfItHasReplacedNothing(t *testing.T) {
	t.Parallel()
	m, p, id := placedAt(t, "update: Apply", "north-1")
	m.templates["leaf:v2"], m.templates["leaf:v3"] = krm.Package{}, krm.Package{}
	m.name(id, "leaf:v2")
	reconcile(t, p, id)
	waiting := m.unprepared()
	if len(waiting) != 1 {
		t.Fatalf("unprepared: %v", waiting)
	}
	m.name(id, "leaf:v3")
	once := true
	m.beforeEach = func(call string) error {
		if once && call == "delete" {
			once = false
			reconcile(t, p, waiting[0])
		}
		return nil
	}
	reconcile(t, prepare.New(m, runner{}, prepare.Options{}), id)
	if diff := cmp.Diff(map[tko.SiteID][]string{"north-1": {"leaf:v2"}}, m.running()); diff != "" || once {
		t.Fatalf("it went although it had replaced the old one: -want +got:\n%s", diff)
	}
	m.beforeEach = nil
	for range 3 {
		everything(t, m)
	}
	if diff := cmp.Diff(map[tko.SiteID][]string{"north-1": {"leaf:v3"}}, m.running()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestExchangeCountsAsDeletion replaces a child by an unrelated one in one step, but
// only if the old one may be deleted.
func TestExchangeCountsAsDeletion(t *testing.T) {
	t.Parallel()
	for budget, want := range map[string][]string{"update: Apply": {"leaf at north-1"}, "update: Apply, budget: {delete: 1}": {"other at north-1"}} {
		m, p, id := placedAt(t, budget, "north-1")
		m.templates["other"] = krm.Package{}
		d := m.deployments[id]
		d.Package[0].Set([]any{map[string]any{"template": "another", "sites": []any{"all"}}}, "spec", "templates")
		i := slices.IndexFunc(d.Package, func(r krm.Resource) bool { return r.GVK().Kind == "Template" })
		d.Package[i]["metadata"], d.Package[i]["spec"] = map[string]any{"name": "another"}, map[string]any{"templateId": "other"}
		reconcile(t, p, id)
		for range 3 {
			everything(t, m)
		}
		if diff := cmp.Diff(want, m.children(id)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", budget, diff)
		}
		placed := m.condition(id, tko.ConditionPlaced)
		if waits := strings.HasPrefix(placed, "False WaitsForApproval"); waits != (want[0] == "leaf at north-1") || waits && !strings.Contains(placed, "replace 1 deployments") {
			t.Errorf("%s: says %q", budget, placed)
		}
	}
}

// TestEditOfMergedResourcesReportsUnchangedChildren edits the resources that are
// merged into children, and reverts the edit.
func TestEditOfMergedResourcesReportsUnchangedChildren(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.templates["leaf"] = krm.Package{}
	m.sites["north-1"], m.sites["north-2"] = nil, nil
	id := m.deploy(t, strings.Replace(updating("update: Apply"), "sites: [all]", "sites: [all], merge: [{apiVersion: v1, kind: ConfigMap, name: values}]", 1)+
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: values}, data: {mtu: '1400'}}\n")
	settle(t, m, prepare.New(m, runner{}, prepare.Options{}))
	edit := func(mtu string) string {
		d := m.deployments[id]
		i := slices.IndexFunc(d.Package, func(r krm.Resource) bool { return r.GVK().Kind == "ConfigMap" })
		d.Package[i].Set(mtu, "data", "mtu")
		d.Stamp.Revision++
		reconcile(t, prepare.New(m, runner{}, prepare.Options{}), id)
		return m.condition(id, tko.ConditionPlaced)
	}
	if got := edit("1400"); !strings.HasPrefix(got, "True UpToDate") {
		t.Errorf("nothing was edited: %s", got)
	}
	if got := edit("9000"); !strings.HasPrefix(got, `False EditHasNoEffect: Placement "placement": 2 deployments were created before the resources that topology.nephio.org/v1alpha1 Placement "placement" merges into them changed`) {
		t.Errorf("after an edit: %s", got)
	}
	if got := edit("1400"); !strings.HasPrefix(got, "True UpToDate") {
		t.Errorf("the edit was reverted: %s", got)
	}
	edit("9000")
	for n, child := range []string{"deployment-00002", "deployment-00003"} {
		if _, err := m.DeleteDeployment(t.Context(), tko.DeploymentID(child)); err != nil {
			t.Fatal(err)
		}
		got := edit("9000")
		if want := []string{`False EditHasNoEffect: Placement "placement": 1 deployments`, "True UpToDate"}[n]; !strings.HasPrefix(got, want) {
			t.Errorf("%d were created again: %s", n+1, got)
		}
	}
}

// TestPlacementPreparedAgainStillNeedsApproval prepares a proposing placement
// again, which is no approval.
func TestPlacementPreparedAgainStillNeedsApproval(t *testing.T) {
	t.Parallel()
	m, p, id := placedAt(t, "update: Propose", "north-1", "north-2")
	m.templates["leaf:v2"] = krm.Package{}
	m.name(id, "leaf:v2")
	d := m.deployments[id]
	for _, r := range d.Package {
		r.SetAnnotation(krm.AnnotationPrepared, "")
	}
	d.Prepared = false
	settle(t, m, p)
	if got := m.condition(id, tko.ConditionPlaced); !strings.HasPrefix(got, "Unknown NotEvaluatedYet") {
		t.Errorf("before it is evaluated again: %s", got)
	}
	everything(t, m)
	if got := m.condition(id, tko.ConditionPlaced); !strings.HasPrefix(got, "False WaitsForApproval") {
		t.Errorf("says %s", got)
	}
	if diff := cmp.Diff(at("north-1", "north-2"), m.children(id)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestOncePlacementLeavesEditedChildAndReportsIt prepares a placement again that is
// evaluated once: it can't ask for an approval to delete a user's work.
func TestOncePlacementLeavesEditedChildAndReportsIt(t *testing.T) {
	t.Parallel()
	m, p, id := placedAt(t, "update: Once", "north-1", "north-2")
	m.templates["leaf:v2"] = krm.Package{}
	m.name(id, "leaf:v2")
	m.deployments["deployment-00002"].Stamp.Who = "ann@laptop"
	d := m.deployments[id]
	for _, r := range d.Package {
		r.SetAnnotation(krm.AnnotationPrepared, "")
	}
	d.Prepared = false
	settle(t, m, p)
	if diff := cmp.Diff(at("leaf at north-1", "leaf:v2 at north-2"), m.children(id)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := `Unknown EvaluatedOnce: topology.nephio.org/v1alpha1 Placement "placement" doesn't want 1 of its deployments any more, and spec.update is Once: they stay; delete them, or set spec.update: deployment-00002 (leaf at north-1, last written by ann@laptop)`
	if got := m.condition(id, tko.ConditionPlaced); got != want {
		t.Errorf("says %s", got)
	}
}
