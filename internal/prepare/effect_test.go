package prepare_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A resource that no plugin handles doesn't prevent that the deployment is prepared.
// A condition reports it until a plugin is registered.
func TestUnhandledResourceOfAPluginIsReported(t *testing.T) {
	m := newMemory()
	id := m.deploy(t, `
{apiVersion: DEPLOYMENT, metadata: {name: deployment}}
---
{apiVersion: a.plugin.nephio.org/v1, kind: One, metadata: {name: x}}
---
{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: of-the-scheduler}, spec: {url: x}}
---
{apiVersion: b.plugin.nephio.org/v1, kind: Two, metadata: {name: not-here, annotations: {nephio.org/prepare: Never}}}
`)
	p := prepare.New(m, runner{"one": marks}, prepare.Options{})
	r := reconcile(t, p, id)
	if !m.get(id).Prepared || r.Outcome != tko.WorkLater {
		t.Fatalf("it is not prepared, or not reconciled again: %+v", r)
	}
	says := m.condition(id, tko.ConditionHandled)
	if !strings.HasPrefix(says, "False NoPlugin: ") || !strings.Contains(says, `One "x"`) || strings.Contains(says, "Repository") || strings.Contains(says, "not-here") {
		t.Errorf("Handled is %q", says)
	}
	commits := m.commits
	if r := reconcile(t, p, id); r.Outcome != tko.WorkLater || m.commits != commits || m.condition(id, tko.ConditionHandled) != says {
		t.Errorf("a second reconciliation changed something: %+v", r)
	}
	m.register("two", "Other") // of the same group, so the resource may be its configuration
	if r := reconcile(t, p, id); r.Outcome != tko.WorkDone || !strings.HasPrefix(m.condition(id, tko.ConditionHandled), "True Handled: ") {
		t.Errorf("with a plugin of the group: %+v, %q", r, m.condition(id, tko.ConditionHandled))
	}
}

// A condition reports a plugin that was registered too late.
func TestPluginThatComesTooLateIsReported(t *testing.T) {
	m := newMemory()
	id := m.deploy(t, `
{apiVersion: DEPLOYMENT, metadata: {name: deployment}}
---
{apiVersion: a.plugin.nephio.org/v1, kind: One, metadata: {name: x}}
`)
	p := prepare.New(m, runner{"one": marks}, prepare.Options{})
	reconcile(t, p, id)
	m.register("one", "One")
	reconcile(t, p, id)
	if says := m.condition(id, tko.ConditionHandled); !strings.HasPrefix(says, "False NotPrepared: ") || !strings.Contains(says, krm.AnnotationPrepared) {
		t.Errorf("Handled is %q", says)
	}
}

// A Sites resource that matches no site leads to no children. A condition reports
// that until a review of the placement finds a site.
func TestSelectorWithoutAMatchIsReported(t *testing.T) {
	for update, after := range map[string]string{"Apply": "True Matched: ", "Once": "False SelectMatchedNothing: "} {
		t.Run(update, func(t *testing.T) {
			m := newMemory()
			m.templates["leaf"] = krm.Package{}
			id := m.deploy(t, `
{apiVersion: DEPLOYMENT, metadata: {name: deployment}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: t}, spec: {templateId: leaf}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: edges}, spec: {select: {metadata: {region: north}}}}
---
{apiVersion: TOPOLOGY, kind: Placement, metadata: {name: p}, spec: {update: `+update+`, templates: [{template: t, sites: [edges]}]}}
`)
			p := prepare.New(m, runner{}, prepare.Options{ReviewPause: 1})
			reconcile(t, p, id)
			says := m.condition(id, tko.ConditionMatched)
			if !m.get(id).Prepared || !strings.HasPrefix(says, "False SelectMatchedNothing: ") || !strings.Contains(says, `Sites "edges" (region="north")`) {
				t.Fatalf("Matched is %q", says)
			}
			reconcile(t, p, id)
			m.sites["north-1"] = nil
			eventually.NoError(t, "with a site, Matched begins with "+after, func() error { // reviews have a pause in between
				reconcile(t, p, id)
				if says := m.condition(id, tko.ConditionMatched); !strings.HasPrefix(says, after) {
					return fmt.Errorf("it is %q", says)
				}
				return nil
			})
		})
	}
}

// Only spec.select.all selects every site.
func TestEmptySelectorPlacesNothing(t *testing.T) {
	m := newMemory()
	m.templates["leaf"] = krm.Package{}
	m.sites["north-1"] = nil
	deploy := func(sel string) tko.DeploymentID {
		return m.deploy(t, `
{apiVersion: DEPLOYMENT, metadata: {name: deployment}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: t}, spec: {templateId: leaf}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: every}, spec: {select: `+sel+`}}
---
{apiVersion: TOPOLOGY, kind: Placement, metadata: {name: p}, spec: {templates: [{template: t, sites: [every]}]}}
`)
	}
	p := prepare.New(m, runner{}, prepare.Options{})
	id := deploy("{metadata: {}}")
	reconcile(t, p, id)
	if says := m.condition(id, tko.ConditionPrepared); !strings.Contains(says, "all: true") || len(m.children(id)) > 0 {
		t.Errorf("Prepared is %q, with the children %v", says, m.children(id))
	}
	id = deploy("{all: true}")
	reconcile(t, p, id)
	if len(m.children(id)) != 1 {
		t.Errorf("all: %v, %q", m.children(id), m.condition(id, tko.ConditionPrepared))
	}
}
