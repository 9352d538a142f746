package osm_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

func TestRepositoryIsCreatedChangedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{TLS: true, Delay: 10 * time.Millisecond})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{
		instance("a", values("kdu_model", "ops/upf:1.4.2", "replicas", 2, "debug", true)),
		instance("b", nil),
	}}
	d.Instances[0].Description = "user plane"
	w.settle(d)
	release := osmtest.Release{Chart: "ops/upf", Version: "1.4.2", Values: values("replicas", 2, "debug", true), Revision: 1}
	if diff := cmp.Diff(map[string]osmtest.Release{"upf/upf": release}, w.instance("a").Releases); diff != "" {
		t.Errorf("created: -want +got:\n%s", diff)
	}

	d.Instances[0].VNFs[0].KDUs[0].Params = values("kdu_model", "ops/upf:1.4.2", "replicas", 3)
	w.server.AddChart("ops/upf", "2.0.0")
	w.settle(d)
	release.Values, release.Revision = values("replicas", 3), 2
	if diff := cmp.Diff(map[string]osmtest.Release{"upf/upf": release}, w.instance("a").Releases); diff != "" {
		t.Errorf("a value changed, another was removed: -want +got:\n%s", diff)
	}

	r := w.settle(osm.Desired{Packages: d.Packages, Instances: d.Instances[1:]})
	if diff := cmp.Diff([]string{"a"}, r.Removed); diff != "" {
		t.Errorf("removed: -want +got:\n%s", diff)
	}
	w.settle(osm.Desired{})
	_, vnfs := w.server.Package("vnf", "upf_knf")
	_, nss := w.server.Package("ns", "upf_ns")
	if all := w.server.Instances(); len(all) > 0 || vnfs || nss {
		t.Errorf("left: %v, packages %t %t", all, vnfs, nss)
	}
	if s := w.saved(); len(s.Instances) > 0 || len(s.Packages) > 0 {
		t.Errorf("the state still has %+v", s)
	}
}

func TestUnchangedStateCostsOneRequestAndNoSave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1)), instance("b", nil)}}
	w.settle(d)
	w.settle(d)
	w.server.Reset()
	keeps := w.keeps
	w.settle(d)
	if diff := cmp.Diff(map[string]int{"GET /nslcm/v1/ns_instances": 1}, w.server.Counts().Requests); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if w.keeps != keeps {
		t.Errorf("the state was kept %d times", w.keeps-keeps)
	}
}

func TestFiltersSelectInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages()}
	for i := range 3 {
		d.Instances = append(d.Instances, instance(fmt.Sprintf("a b&c=%d+ü", i), nil))
	}
	w.settle(d)
	got, err := w.client.Instances(t.Context(), url.Values{"name": {d.Instances[0].Name + "," + d.Instances[2].Name}})
	if err != nil || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
}
