package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

func look(t *testing.T, p *prepare.Preparer, id tko.DeploymentID) work.Result {
	t.Helper()
	return p.Prepare(t.Context(), tko.WorkItem{Queue: tko.QueuePrepare, Key: string(id), Claim: "c"})
}

// settle looks at whatever is unprepared until everything is prepared, or
// nothing happens any more.
func settle(t *testing.T, m *memory, p *prepare.Preparer) {
	t.Helper()
	for range 100 {
		ids := m.unprepared()
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			look(t, p, id)
		}
	}
}

func TestPlainDeploymentTakesOneCommit(t *testing.T) {
	m := newMemory()
	id := m.deploy(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}`)
	p := prepare.New(m, runner{}, prepare.Options{})
	if r := look(t, p, id); r.Outcome != tko.WorkDone || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	d := m.get(id)
	if !d.Prepared || !d.Approved || m.commits != 1 || m.statuses != 0 {
		t.Errorf("prepared %v, approved %v, %d commits, %d conditions set", d.Prepared, d.Approved, m.commits, m.statuses)
	}
	if c := m.condition(id, tko.ConditionPrepared); !strings.HasPrefix(c, "True Prepared") {
		t.Error(c)
	}
	if c := d.Stamp.Conditions[0]; c.ObservedRevision != d.Stamp.Revision {
		t.Errorf("observed revision %d, is %d", c.ObservedRevision, d.Stamp.Revision)
	}
	if r := look(t, p, id); r.Outcome != tko.WorkDone || m.commits != 1 {
		t.Errorf("the second look did something: %+v, %d commits", r, m.commits)
	}
	if r := look(t, p, "gone"); r.Outcome != tko.WorkDone || r.Err != nil {
		t.Errorf("a deployment that is gone: %+v", r)
	}
}

func TestApproval(t *testing.T) {
	tests := map[string]struct {
		why        string
		annotation string
		manual     bool
		want       bool
	}{
		"nothing said, auto":     {why: "the preparer's setting", want: true},
		"nothing said, manual":   {why: "the preparer's setting", manual: true},
		"default, auto":          {why: "the preparer's setting", annotation: "nephio.org/approve: Default", want: true},
		"default, manual":        {why: "the preparer's setting", annotation: "nephio.org/approve: Default", manual: true},
		"auto, manual":           {why: "the deployment wins", annotation: "nephio.org/approve: Auto", manual: true, want: true},
		"manual, auto":           {why: "the deployment wins", annotation: "nephio.org/approve: Manual"},
		"approved before":        {why: "what is approved stays so", annotation: `nephio.org/approve: Manual, nephio.org/approved: "true"`, want: true},
		"approved, not prepared": {why: "what is approved stays so", annotation: `nephio.org/approved: "true"`, manual: true, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			id := m.deploy(t, fmt.Sprintf(`{apiVersion: DEPLOYMENT, metadata: {name: deployment, annotations: {%s}}}`, test.annotation))
			if strings.Contains(test.annotation, "approved:") {
				m.deployments[id].Package = m.deployments[id].Package.WithDeployment("", "", false, true)
				m.deployments[id].Approved = true
			}
			look(t, prepare.New(m, runner{}, prepare.Options{ManualApprove: test.manual}), id)
			d := m.get(id)
			if !d.Prepared || d.Approved != test.want {
				t.Errorf("%s: prepared %v, approved %v", test.why, d.Prepared, d.Approved)
			}
			if got := strings.HasPrefix(m.condition(id, tko.ConditionApproved), "True"); got != test.want {
				t.Errorf("condition %s", m.condition(id, tko.ConditionApproved))
			}
		})
	}
}

// That a deployment waits for its approval again is still said when it is
// prepared again: its site keeps what was approved because of that.
func TestWithdrawnApprovalIsStillSaid(t *testing.T) {
	m := newMemory()
	id := m.deploy(t, `{apiVersion: DEPLOYMENT, metadata: {name: deployment, annotations: {nephio.org/approve: Manual}}}`)
	m.deployments[id].Stamp.Conditions = []tko.Condition{{Type: tko.ConditionApproved, Status: tko.ConditionFalse, Reason: tko.ReasonApprovalWithdrawn}}
	look(t, prepare.New(m, runner{}, prepare.Options{}), id)
	if d := m.get(id); !d.Prepared || d.Approved || !strings.Contains(m.condition(id, tko.ConditionApproved), tko.ReasonApprovalWithdrawn) {
		t.Errorf("prepared %t, approved %t, condition %s", d.Prepared, d.Approved, m.condition(id, tko.ConditionApproved))
	}
}

func TestPlugins(t *testing.T) {
	failing := func(krm.Identity, krm.Package) (bool, krm.Package, error) {
		return false, nil, errors.New("plugin says no")
	}
	notYet := func(_ krm.Identity, p krm.Package) (bool, krm.Package, error) { return false, p, nil }
	adds := func(kind, name string) func(krm.Identity, krm.Package) (bool, krm.Package, error) {
		return func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
			p.Find(target).SetPrepared()
			return true, append(p, krm.Resource{"apiVersion": "a.plugin.nephio.org/v1", "kind": kind, "metadata": map[string]any{"name": name}}), nil
		}
	}
	one := `{apiVersion: PLUGIN, kind: One, metadata: {name: one}}`
	tests := map[string]struct {
		why      string
		plugins  map[string]string // name: kinds
		runner   runner
		yaml     string
		prepared bool
		outcome  tko.WorkOutcome
		says     string   // condition
		has      []string // resources at the end: "kind name prepared"
		commits  int
		manual   bool // it isn't approved
	}{
		"marks": {
			why: "the plugin's commit, and the end", plugins: map[string]string{"p": "One"}, runner: runner{"p": marks}, yaml: one,
			prepared: true, outcome: tko.WorkDone, says: "True Prepared", has: []string{"One one true"}, commits: 2,
		},
		"adds what another prepares": {
			why: "the fixed point", plugins: map[string]string{"a": "One", "b": "Two"}, runner: runner{"a": adds("Two", "two"), "b": marks}, yaml: one,
			prepared: true, outcome: tko.WorkDone, says: "True Prepared", has: []string{"One one true", "Two two true"}, commits: 3,
		},
		"deletes its resource": {
			why: "what isn't there needs no preparing", plugins: map[string]string{"p": "One"}, yaml: one,
			runner: runner{"p": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
				return true, slices.DeleteFunc(p, func(r krm.Resource) bool { return r.Identity() == target }), nil
			}},
			prepared: true, outcome: tko.WorkDone, says: "True Prepared", commits: 2,
		},
		"fails": {
			why: "the user sees why, and the package stays", plugins: map[string]string{"p": "One"}, runner: runner{"p": failing}, yaml: one,
			outcome: tko.WorkFailed, says: `False PluginFailed: plugin says no (attempt 1, next try `, has: []string{"One one "},
		},
		"one fails, the others go on": {
			why: "each resource is its own", plugins: map[string]string{"a": "One", "b": "Two"}, runner: runner{"a": failing, "b": marks},
			yaml:    one + "\n---\n{apiVersion: PLUGIN, kind: Two, metadata: {name: two}}",
			outcome: tko.WorkFailed, says: `False PluginFailed`, has: []string{"One one ", "Two two true"}, commits: 1,
		},
		"not yet": {
			why: "asked again later", plugins: map[string]string{"p": "One"}, runner: runner{"p": notYet}, yaml: one,
			outcome: tko.WorkLater, says: `False Waiting: a.plugin.nephio.org/v1 One "one" waits: plugin "p" says that it is not prepared yet`, has: []string{"One one "},
		},
		"not yet, until another did": {
			why: "what changed may be what was waited for", plugins: map[string]string{"a": "One", "b": "Two"},
			runner: runner{
				"a": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
					if !p.Find(krm.Identity{GVK: krm.ParseGVK("a.plugin.nephio.org/v1", "Two"), Name: "two"}).IsPrepared() {
						return false, p, nil
					}
					return marks(target, p)
				},
				"b": marks,
			},
			yaml:     one + "\n---\n{apiVersion: PLUGIN, kind: Two, metadata: {name: two}}",
			prepared: true, outcome: tko.WorkDone, says: "True Prepared", has: []string{"One one true", "Two two true"}, commits: 3,
		},
		"two of a kind": {
			why: "in the order of names, until it is marked", plugins: map[string]string{"a": "One", "b": "One", "c": "One"},
			runner: runner{
				"a": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
					p.Find(target).Set("a", "spec", "by")
					return true, p, nil
				},
				"b": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
					if p.Find(target).Text("spec", "by") != "a" {
						return false, nil, errors.New("a must go first")
					}
					return marks(target, p)
				},
				"c": failing,
			},
			yaml: one, prepared: true, outcome: tko.WorkDone, says: "True Prepared", has: []string{"One one true"}, commits: 3,
		},
		"stored but never marked": {
			why: "marking is the plugin's to do", plugins: map[string]string{"p": "One"}, yaml: one,
			runner:  runner{"p": func(_ krm.Identity, p krm.Package) (bool, krm.Package, error) { return true, p, nil }},
			outcome: tko.WorkLater, says: "False Waiting: a.plugin.nephio.org/v1 One \"one\" waits: plugin \"p\" says that it is prepared, but", has: []string{"One one "},
		},
		"endless": {
			why: "the bound", plugins: map[string]string{"p": "One"}, yaml: one,
			runner: runner{"p": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
				n, _ := p.Find(target).Get("spec", "n")
				i, _ := n.(int64)
				p.Find(target).Set(i+1, "spec", "n")
				return true, p, nil
			}},
			outcome: tko.WorkFailed, says: `False TooManyIterations: a.plugin.nephio.org/v1 One "one" is still not prepared after 5 iterations and 5 steps`, has: []string{"One one "}, commits: 5,
		},
		"postponed and never": {
			why: "the annotations say so", plugins: map[string]string{"p": "One"}, runner: runner{"p": failing},
			yaml: `{apiVersion: PLUGIN, kind: One, metadata: {name: one, annotations: {nephio.org/prepare: Postpone}}}
---
{apiVersion: PLUGIN, kind: One, metadata: {name: two, annotations: {nephio.org/prepare: Never}}}`,
			prepared: true, outcome: tko.WorkDone, says: "True Prepared", has: []string{"One one ", "One two "}, commits: 1,
		},
		"duplicates": {
			why: "garbage is the plugin's failure", plugins: map[string]string{"p": "One"}, yaml: one,
			runner:  runner{"p": func(_ krm.Identity, p krm.Package) (bool, krm.Package, error) { return true, append(p, p...), nil }},
			outcome: tko.WorkFailed, says: `False PluginFailed: a.plugin.nephio.org/v1 One "one": plugin "p"`, has: []string{"One one "},
		},
		"no kind": {
			why: "garbage is the plugin's failure", plugins: map[string]string{"p": "One"}, yaml: one,
			runner: runner{"p": func(_ krm.Identity, p krm.Package) (bool, krm.Package, error) {
				return true, append(p, krm.Resource{}), nil
			}},
			outcome: tko.WorkFailed, says: `False PluginFailed: a.plugin.nephio.org/v1 One "one": plugin "p"`, has: []string{"One one "},
		},
		"marks the deployment": {
			why: "when all is prepared is not for one plugin to say", plugins: map[string]string{"a": "One", "b": "Two"},
			runner: runner{
				"a": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
					p.Find(target).SetPrepared()
					return true, p.WithDeployment("", "", true, false), nil
				},
				"b": notYet,
			},
			yaml:    one + "\n---\n{apiVersion: PLUGIN, kind: Two, metadata: {name: two}}",
			outcome: tko.WorkLater, says: "False Waiting", has: []string{"One one true", "Two two "}, commits: 1,
		},
		"the deployment's resource is gone": {
			why: "TKO adds it where it is missing", plugins: map[string]string{"p": "One"}, yaml: one,
			runner: runner{"p": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
				p.Find(target).SetPrepared()
				return true, p[:1:1], nil
			}},
			prepared: true, outcome: tko.WorkDone, says: "True Prepared", has: []string{"One one true"}, commits: 2,
		},
		"approval can't be dropped": {
			why: "a plugin that forgets the Deployment resource must not approve what waits for a person", plugins: map[string]string{"p": "One"},
			yaml: one + "\n---\n{apiVersion: DEPLOYMENT, metadata: {name: deployment, annotations: {nephio.org/approve: Manual}}}",
			runner: runner{"p": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
				p.Find(target).SetPrepared()
				return true, p[:1:1], nil
			}},
			prepared: true, outcome: tko.WorkDone, says: "True Prepared", has: []string{"One one true"}, commits: 2, manual: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			for plugin, kinds := range test.plugins {
				m.register(plugin, strings.Fields(kinds)...)
			}
			id := m.deploy(t, test.yaml)
			p := prepare.New(m, test.runner, prepare.Options{MaxIterations: 5})
			r := look(t, p, id)
			d := m.get(id)
			if r.Outcome != test.outcome || d.Prepared != test.prepared {
				t.Errorf("%s: %+v, prepared %v", test.why, r, d.Prepared)
			}
			if got := m.condition(id, tko.ConditionPrepared); !strings.HasPrefix(got, test.says) {
				t.Errorf("%s: the condition is %s", test.why, got)
			}
			var has []string
			for _, r := range d.Package {
				if r.GVK() != krm.DeploymentGVK {
					has = append(has, fmt.Sprintf("%s %s %s", r.GVK().Kind, r.Name(), r.Annotation(krm.AnnotationPrepared)))
				}
			}
			if diff := cmp.Diff(test.has, has); diff != "" {
				t.Errorf("%s: %s", test.why, diff)
			}
			if d.Approved != (test.prepared && !test.manual) {
				t.Errorf("%s: approved %v", test.why, d.Approved)
			}
			if m.commits != test.commits {
				t.Errorf("%s: %d commits, want %d", test.why, m.commits, test.commits)
			}
			commits, statuses := m.commits, m.statuses
			if test.outcome == tko.WorkFailed {
				statuses++ // which says when it is tried next, unless that is the same second
			}
			look(t, p, id)
			if m.commits != commits || m.statuses > statuses {
				t.Errorf("%s: the second look wrote %d packages and %d conditions", test.why, m.commits-commits, m.statuses-statuses)
			}
		})
	}
}

func TestEndlessLoopGoesOnWhenThePluginIsMended(t *testing.T) {
	m := newMemory()
	m.register("p", "One")
	r := runner{"p": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
		p.Find(target).Set(int64(len(p)), "spec", "n")
		return true, append(p, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": strconv.Itoa(len(p))}}), nil
	}}
	id := m.deploy(t, `{apiVersion: PLUGIN, kind: One, metadata: {name: one}}`)
	p := prepare.New(m, r, prepare.Options{MaxIterations: 3})
	look(t, p, id)
	size := len(m.get(id).Package)
	for range 3 {
		if r := look(t, p, id); r.Outcome != tko.WorkFailed || r.Retry < time.Minute {
			t.Errorf("%+v", r)
		}
	}
	if n := len(m.get(id).Package); n != size {
		t.Errorf("the package grew from %d to %d resources", size, n)
	}
	r["p"] = marks
	m.register("p", "One")
	time.Sleep(110 * time.Millisecond) // the list of plugins may be that old
	look(t, p, id)
	if !m.get(id).Prepared {
		t.Error(m.condition(id, tko.ConditionPrepared))
	}
}

func TestDoublingIsBounded(t *testing.T) {
	m := newMemory()
	m.register("p", "One")
	runs := 0
	r := runner{"p": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
		runs++
		p.Find(target).SetPrepared()
		for range 2 {
			p = append(p, krm.Resource{"apiVersion": "a.plugin.nephio.org/v1", "kind": "One", "metadata": map[string]any{"name": strconv.Itoa(len(p))}})
		}
		return true, p, nil
	}}
	id := m.deploy(t, `{apiVersion: PLUGIN, kind: One, metadata: {name: one}}`)
	look(t, prepare.New(m, r, prepare.Options{MaxIterations: 4}), id)
	if runs > 4*100+1 {
		t.Errorf("the plugin ran %d times", runs)
	}
	look(t, prepare.New(m, r, prepare.Options{MaxIterations: 50}), id)
	if got := m.condition(id, tko.ConditionPrepared); !strings.HasPrefix(got, "False TooManyIterations") {
		t.Error(got)
	}
}

func TestAPluginForTheDeploymentResource(t *testing.T) {
	m := newMemory()
	m.plugins = []tko.Plugin{{Type: tko.PluginPrepare, Name: "p", Triggers: []krm.GVK{krm.DeploymentGVK}}}
	runs := 0
	r := runner{"p": func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
		runs++
		p.Find(target).Set("seen", "spec", "note")
		return marks(target, p)
	}}
	id := m.deploy(t, `{apiVersion: DEPLOYMENT, metadata: {name: deployment}}`)
	look(t, prepare.New(m, r, prepare.Options{}), id)
	d := m.get(id)
	if !d.Prepared || runs != 1 || d.Package[0].Text("spec", "note") != "seen" {
		t.Errorf("prepared %v, %d runs, %v: %s", d.Prepared, runs, d.Package, m.condition(id, tko.ConditionPrepared))
	}
}

func TestAPluginWorksAtOnce(t *testing.T) {
	m := newMemory()
	p := prepare.New(m, runner{"p": func(krm.Identity, krm.Package) (bool, krm.Package, error) { return false, nil, nil }}, prepare.Options{})
	id := m.deploy(t, `{apiVersion: PLUGIN, kind: One, metadata: {name: one}}`)
	look(t, p, id)
	if !m.get(id).Prepared {
		t.Fatal("without the plugin there is nothing to prepare")
	}
	m.register("p", "One")
	id = m.deploy(t, `{apiVersion: PLUGIN, kind: One, metadata: {name: one}}`)
	look(t, p, id)
	if m.get(id).Prepared {
		t.Error("the plugin was there before the deployment, and didn't run")
	}
	for range 100 {
		m.deploy(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}`)
	}
	lists := m.lists
	settle(t, m, p)
	if m.lists-lists > 120 { // settle looks at the waiting one 100 times more
		t.Errorf("%d lists of plugins for 100 deployments", m.lists-lists)
	}
}

func TestInvalidIsNotMarkedPrepared(t *testing.T) {
	m := newMemory()
	m.sites["north/1"] = nil
	finding := &tko.InvalidPackageError{Findings: []tko.Finding{
		{Resource: krm.Identity{GVK: krm.ParseGVK("v1", "Service"), Name: "s"}, Path: "spec.ports", Reason: "is required"},
	}}
	m.validate = func(_ krm.Package, complete bool) error {
		if complete {
			return finding
		}
		return nil
	}
	id := m.deploy(t, `{apiVersion: v1, kind: Service, metadata: {name: s}}
---
{apiVersion: TOPOLOGY, kind: Site, metadata: {name: site}, spec: {siteId: north/1}}`)
	p := prepare.New(m, runner{}, prepare.Options{})
	r := look(t, p, id)
	if r.Outcome != tko.WorkFailed || r.Retry == 0 {
		t.Errorf("%+v", r)
	}
	if got := m.condition(id, tko.ConditionPrepared); !strings.HasPrefix(got, "False Invalid: "+finding.Error()+" (attempt 1, ") {
		t.Error(got)
	}
	d := m.get(id)
	if d.Prepared || d.Package.Find(krm.Identity{GVK: krm.ParseGVK("topology.nephio.org/v1alpha1", "Site"), Name: "site"}).Text("status", "siteId") != "north/1" {
		t.Error("what was prepared should be kept, without being called prepared")
	}
	position := m.position
	look(t, p, id)
	if m.statuses != 0 {
		t.Errorf("the same condition was written again, %d writes", m.position-position)
	}
	m.validate = nil
	look(t, p, id)
	if !m.get(id).Prepared {
		t.Error(m.condition(id, tko.ConditionPrepared))
	}
}

const topologyYAML = `
{apiVersion: TOPOLOGY, kind: Placement, metadata: {name: placement}, spec: {templates: [
  {template: leaf, sites: [named, new, north]},
  {template: nested, sites: [named], merge: [{apiVersion: PLUGIN, kind: One, name: later}]}]}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: leaf}, spec: {templateId: leaf}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: nested}, spec: {templateId: nested}}
---
{apiVersion: TOPOLOGY, kind: Site, metadata: {name: named}, spec: {siteId: south/1}}
---
{apiVersion: TOPOLOGY, kind: Site, metadata: {name: new}, spec: {select: {metadata: {region: nowhere}}, provisionIfNotFound: true}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: north}, spec: {select: {metadata: {region: north}}}}
---
{apiVersion: PLUGIN, kind: One, metadata: {name: here}}
---
{apiVersion: PLUGIN, kind: One, metadata: {name: later, annotations: {nephio.org/prepare: Postpone}}}
`

func world(t *testing.T) *memory {
	t.Helper()
	m := newMemory()
	m.templates["leaf"] = pkg(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}`)
	m.templates["nested"] = pkg(t, `
{apiVersion: TOPOLOGY, kind: Placement, metadata: {name: p}, spec: {templates: [{template: leaf, sites: [north]}]}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: leaf}, spec: {templateId: leaf}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: north}, spec: {select: {metadata: {region: north}}}}
`)
	for i := range 5 {
		m.sites[tko.SiteID(fmt.Sprintf("north/%d", i))] = nil
	}
	m.sites["south/1"] = nil
	m.register("one", "One")
	return m
}

func checkTopology(t *testing.T, m *memory, id tko.DeploymentID) {
	t.Helper()
	for id := range m.deployments {
		if d := m.get(id); !d.Prepared {
			t.Errorf("%s (%s at %s) is not prepared: %s", id, d.Template, d.Site, m.condition(id, tko.ConditionPrepared))
		}
	}
	want := []string{
		"leaf at north/0", "leaf at north/1", "leaf at north/2", "leaf at north/3", "leaf at north/4",
		"leaf at provisioned/7", "leaf at south/1", "nested at south/1",
	}
	if diff := cmp.Diff(want, m.children(id)); diff != "" {
		t.Error(diff)
	}
	if n := len(m.deployments); n != 1+len(want)+5 {
		t.Errorf("%d deployments in all", n)
	}
	if n := len(m.sites); n != 7 {
		t.Errorf("%d sites", n)
	}
}

func TestTopology(t *testing.T) {
	m := world(t)
	id := m.deploy(t, topologyYAML)
	p := prepare.New(m, runner{"one": marks}, prepare.Options{})
	if r := look(t, p, id); r.Outcome != tko.WorkDone {
		t.Fatalf("%+v: %s", r, m.condition(id, tko.ConditionPrepared))
	}
	settle(t, m, p)
	checkTopology(t, m, id)
	for _, d := range m.deployments {
		if d.Template != "nested" {
			continue
		}
		one := d.Package.Find(krm.Identity{GVK: krm.ParseGVK("a.plugin.nephio.org/v1", "One"), Name: "later"})
		if one == nil || !one.IsPrepared() {
			t.Error("what was postponed should be prepared in the child")
		}
	}
}

func TestPreparingAgainCreatesWhatIsMissing(t *testing.T) {
	m := world(t)
	id := m.deploy(t, topologyYAML)
	p := prepare.New(m, runner{"one": marks}, prepare.Options{})
	settle(t, m, p)
	m.sites["north/9"] = nil
	d := m.deployments[id]
	d.Prepared = false
	d.Package = d.Package.WithDeployment("", "", false, true)
	d.Package.Find(krm.Identity{GVK: krm.ParseGVK("topology.nephio.org/v1alpha1", "Placement"), Name: "placement"}).SetAnnotation(krm.AnnotationPrepared, "")
	d.Stamp.Revision++
	before := m.children(id)
	settle(t, m, p)
	want := slices.Sorted(slices.Values(append(before, "leaf at north/9")))
	if diff := cmp.Diff(want, m.children(id)); diff != "" {
		t.Error(diff)
	}
}

// TestInterrupted has every write fail in every way, one after the other, and
// at random; what comes out must be the same.
func TestInterrupted(t *testing.T) {
	kinds := map[string]error{"conflict": tko.ErrConflict, "busy": tko.ErrBusy, "fault": errors.New("connection reset"), "not found": tko.ErrNotFound}
	for name, failure := range kinds {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lost answer %v", name, lost), func(t *testing.T) {
				for at := range 30 {
					m := world(t)
					id := m.deploy(t, topologyYAML)
					var calls atomic.Int64
					hook := func(string) error {
						if calls.Add(1) == int64(at)+1 {
							return failure
						}
						return nil
					}
					if lost {
						m.afterEach = hook
					} else {
						m.beforeEach = hook
					}
					settle(t, m, prepare.New(m, runner{"one": marks}, prepare.Options{}))
					checkTopology(t, m, id)
				}
			})
		}
	}
}

func TestTwoPreparersAtOnce(t *testing.T) {
	for range 20 {
		m := world(t)
		id := m.deploy(t, topologyYAML)
		var calls atomic.Int64
		m.beforeEach = func(string) error {
			if calls.Add(1)%7 == 0 {
				time.Sleep(time.Duration(rand.IntN(2)) * time.Millisecond)
			}
			return nil
		}
		var preparers sync.WaitGroup
		for range 3 {
			preparers.Go(func() { settle(t, m, prepare.New(m, runner{"one": marks}, prepare.Options{})) })
		}
		preparers.Wait()
		checkTopology(t, m, id)
	}
}

func TestSomebodyElseChangesTheDeployment(t *testing.T) {
	m := newMemory()
	m.register("p", "One")
	id := m.deploy(t, `{apiVersion: PLUGIN, kind: One, metadata: {name: one}}`)
	user := func(target krm.Identity, p krm.Package) (bool, krm.Package, error) {
		m.deployments[id].Package.Find(target).Set("user", "spec", "by")
		m.deployments[id].Stamp.Revision++
		return marks(target, p)
	}
	r := runner{"p": user}
	p := prepare.New(m, r, prepare.Options{})
	if r := look(t, p, id); r.Outcome != tko.WorkLater || r.Retry > time.Second {
		t.Errorf("%+v", r)
	}
	r["p"] = marks
	look(t, p, id)
	d := m.get(id)
	if !d.Prepared || d.Package[0].Text("spec", "by") != "user" {
		t.Errorf("the user's change was lost: %v", d.Package)
	}
}

func TestStopIsNoFailure(t *testing.T) {
	m := newMemory()
	m.register("p", "One")
	id := m.deploy(t, `{apiVersion: PLUGIN, kind: One, metadata: {name: one}}`)
	ctx, cancel := context.WithCancel(t.Context())
	p := prepare.New(m, runner{"p": func(krm.Identity, krm.Package) (bool, krm.Package, error) {
		cancel()
		return false, nil, errors.New("signal: killed")
	}}, prepare.Options{})
	r := p.Prepare(ctx, tko.WorkItem{Key: string(id)})
	if !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v", r)
	}
	if c := m.condition(id, tko.ConditionPrepared); c != "" {
		t.Errorf("a killed plugin of a stopping preparer is nobody's failure: %s", c)
	}
}

func TestErrorsNameWhatIsWrong(t *testing.T) {
	m := world(t)
	id := m.deploy(t, strings.ReplaceAll(topologyYAML, "south/1", "typo"))
	p := prepare.New(m, runner{"one": marks}, prepare.Options{})
	if r := look(t, p, id); r.Outcome != tko.WorkFailed || r.Retry <= 0 || r.Retry > time.Second {
		t.Errorf("%+v", r)
	}
	got := m.condition(id, tko.ConditionPrepared)
	for _, part := range []string{"False SiteMissing: ", `Site "named"`, `the site "typo" does not exist`, `Placement "placement" waits`, "(attempt 1, next try "} {
		if !strings.Contains(got, part) {
			t.Errorf("the condition should say %q: %s", part, got)
		}
	}
	if len(m.children(id)) != 0 {
		t.Error("children were created although a site is missing")
	}
	m.sites["typo"] = nil
	settle(t, m, p)
	if !m.get(id).Prepared {
		t.Error(m.condition(id, tko.ConditionPrepared))
	}
}

func TestFailedPreparationReportsAttemptAndNextTry(t *testing.T) {
	m := newMemory()
	m.register("p", "One")
	id := m.deploy(t, `{apiVersion: PLUGIN, kind: One, metadata: {name: one}}`)
	p := prepare.New(m, runner{"p": func(krm.Identity, krm.Package) (bool, krm.Package, error) {
		return false, nil, errors.New("no")
	}}, prepare.Options{Backoff: 8 * time.Second, MaxBackoff: time.Minute})
	for attempt, most := range []time.Duration{8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		r := p.Prepare(t.Context(), tko.WorkItem{Queue: tko.QueuePrepare, Key: string(id), Attempt: attempt})
		if r.Retry > most || r.Retry < most*3/4-time.Second {
			t.Errorf("attempt %d comes back after %s, want about %s", attempt+1, r.Retry, most)
		}
		c := m.get(id).Stamp.Conditions[0]
		if off := time.Until(c.NextTry) - r.Retry; c.Type != tko.ConditionPrepared || c.Attempt != attempt+1 || off > time.Second || off < -5*time.Second {
			t.Errorf("attempt %d is reported as %d of %s, and the next %s away", attempt+1, c.Attempt, c.Type, time.Until(c.NextTry))
		}
		if strings.Contains(c.Message, "attempt") {
			t.Errorf("message %q: want the attempt in its field only", c.Message)
		}
	}
}

func TestRevisionsRecordStepsThatLedToThem(t *testing.T) {
	m := world(t)
	m.register("one", "One")
	m.register("two", "Two")
	id := m.deploy(t, topologyYAML)
	p := prepare.New(m, runner{"two": marks, "one": func(target krm.Identity, in krm.Package) (bool, krm.Package, error) {
		in.Find(target).SetPrepared()
		return true, append(in, krm.Resource{"apiVersion": "a.plugin.nephio.org/v1", "kind": "Two", "metadata": map[string]any{"name": "two"}}), nil
	}}, prepare.Options{})
	look(t, p, id)
	var got []string
	for _, steps := range m.steps {
		for _, s := range steps {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s by %q in %d %s", s.Resource[strings.LastIndex(s.Resource, "/"):], s.Plugin, s.Iteration, strings.Join(s.Notes, ", "))))
		}
	}
	for _, want := range []string{`/v1 One "here" by "one" in 1 warning: one`, `/v1 Two "two" by "two" in 2 warning: two`} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if n := len(got); n != strings.Count(topologyYAML, "kind: Site,")+strings.Count(topologyYAML, "kind: Placement")+2 {
		t.Errorf("%d steps: %q", n, got)
	}
	for i, why := range m.whys {
		want := ""
		switch n := len(m.steps[i]); n {
		case 0:
		case 1:
			want = "prepared 1 resource"
		default:
			want = fmt.Sprintf("prepared %d resources", n)
		}
		if why != want {
			t.Errorf("commit %d has the reason %q, want %q", i, why, want)
		}
	}
	if len(m.whys) > 5 {
		t.Errorf("%d commits, want at most 5", len(m.whys))
	}
}

// A commit with so many steps was refused when its reason listed them all.
func TestReasonOfManyStepsIsShort(t *testing.T) {
	m := world(t)
	var docs []string
	for i := range 30 {
		docs = append(docs, fmt.Sprintf("{apiVersion: TOPOLOGY, kind: Site, metadata: {name: site-%d}, spec: {siteId: north/1}}", i))
	}
	id := m.deploy(t, strings.Join(docs, "\n---\n"))
	look(t, prepare.New(m, runner{}, prepare.Options{}), id)
	if why := m.whys[0]; !m.get(id).Prepared || why != "prepared 30 resources, of which the first 20 are recorded" || len(m.steps[0]) != 20 {
		t.Errorf("%s, with the reason %q and %d steps", m.condition(id, tko.ConditionPrepared), why, len(m.steps[0]))
	}
}
