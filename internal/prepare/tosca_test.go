package prepare_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/krm"
)

// A compiler returns resources, and records its arguments.
type compiler struct {
	made  krm.Package
	err   error
	asked []string
}

func (c *compiler) Resources(_ context.Context, location string) (krm.Package, error) {
	c.asked = append(c.asked, location)
	return c.made.Clone(), c.err
}

const toscaYAML = `{apiVersion: TOPOLOGY, kind: TOSCA, metadata: {name: t}, spec: {url: "https://example.com/a.csar"}}`

func TestTOSCAResourceBecomesTopology(t *testing.T) {
	m := world(t)
	id := m.deploy(t, toscaYAML+"\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}\n---\n{apiVersion: PLUGIN, kind: One, metadata: {name: here}, spec: {old: true}}")
	c := &compiler{made: pkg(t, topologyYAML)}
	p := prepare.New(m, runner{"one": marks}, prepare.Options{TOSCA: c})
	if r := reconcile(t, p, id); r.Outcome != tko.WorkDone {
		t.Fatalf("%+v: %s", r, m.condition(id, tko.ConditionPrepared))
	}
	twin := m.deploy(t, topologyYAML)
	reconcile(t, p, twin)
	places := func(id tko.DeploymentID) []string {
		all := m.children(id)
		for i, child := range all {
			if strings.Contains(child, "provisioned/") { // each topology provisions its own
				all[i] = "at a new site"
			}
		}
		return all
	}
	if diff := cmp.Diff(places(twin), places(id)); diff != "" || len(m.children(id)) == 0 {
		t.Errorf("children (-want +got): %s", diff)
	}
	if diff := cmp.Diff([]string{"https://example.com/a.csar"}, c.asked); diff != "" {
		t.Error(diff)
	}
	d := m.get(id)
	has := map[string]bool{}
	for _, r := range d.Package {
		has[r.GVK().Kind+" "+r.Name()] = true
		if _, old := r.Get("spec", "old"); old || r.GVK().Kind == "TOSCA" && !r.IsPrepared() {
			t.Errorf("%s: %v", r.Identity(), r)
		}
	}
	if !has["ConfigMap mine"] || !has["Placement placement"] {
		t.Errorf("it is merged into the package: %v", has)
	}
}

func TestTOSCAFailureIsReported(t *testing.T) {
	tests := map[string]struct {
		why  string
		yaml string
		err  error
		says string
	}{
		"wrong":       {why: "the user can mend it", yaml: toscaYAML, err: tko.Errorf(tko.ErrInvalid, "bad type"), says: `False Invalid: topology.nephio.org/v1alpha1 TOSCA "t": bad type`},
		"not allowed": {why: "the operator can", yaml: toscaYAML, err: tko.Errorf(tko.ErrDenied, "not from http"), says: `False TOSCAFailed: topology.nephio.org/v1alpha1 TOSCA "t": not from http`},
		"away":        {why: "it may come back", yaml: toscaYAML, err: errors.New("no route"), says: `False TOSCAFailed: topology.nephio.org/v1alpha1 TOSCA "t": no route (attempt 1, next try `},
		"two": {
			why: "both would make a Placement of one name", yaml: toscaYAML + "\n---\n" + strings.Replace(toscaYAML, "name: t", "name: u", 1),
			says: `False Invalid: topology.nephio.org/v1alpha1 TOSCA "t": the package has another TOSCA resource`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := world(t)
			id := m.deploy(t, test.yaml)
			p := prepare.New(m, runner{}, prepare.Options{TOSCA: &compiler{made: pkg(t, topologyYAML), err: test.err}})
			if r := reconcile(t, p, id); r.Outcome != tko.WorkFailed {
				t.Errorf("%s: %+v", test.why, r)
			}
			if got := m.condition(id, tko.ConditionPrepared); !strings.HasPrefix(got, test.says) {
				t.Errorf("%s: %s", test.why, got)
			}
			if len(m.children(id)) != 0 {
				t.Error("there are children")
			}
		})
	}
}
