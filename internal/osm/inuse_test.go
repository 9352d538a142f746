package osm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// edit replaces a text in the descriptor of a package.
func edit(t *testing.T, p bundle.Package, old, text string) {
	t.Helper()
	files := p.Files.(fstest.MapFS)
	data := string(files[p.ID+".yaml"].Data)
	if !strings.Contains(data, old) {
		t.Fatalf("%q isn't in %s", old, data)
	}
	files[p.ID+".yaml"] = &fstest.MapFile{Data: []byte(strings.Replace(data, old, text, 1))}
}

// merged is a field of a package's record in OSM.
func merged(t *testing.T, w *world, kind, id, field string) any {
	t.Helper()
	p, ok := w.server.Package(kind, id)
	if !ok {
		t.Fatalf("there is no %s package %q", kind, id)
	}
	return p.Record[field]
}

func TestPackageInUseIsMergedIfItsStructureStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Retry = time.Hour
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1)), instance("b", nil)}}
	w.settle(d)

	// OSM refuses a changed value with 422.
	edit(t, d.Packages[1], "product-name: p\n", "product-name: q\n  k8s-cluster: {nets: [], version: '1'}\n")
	edit(t, d.Packages[0], "name: n\n", "name: m\n")
	d.Instances = []osm.Instance{instance("a", values("x", 2))}
	w.settle(d)
	if got := []any{merged(t, w, "vnf", "upf_knf", "product-name"), merged(t, w, "ns", "upf_ns", "name")}; !cmp.Equal(got, []any{"q", "m"}) {
		t.Errorf("the descriptors have %v", got)
	}
	if got := w.instance("a").Releases["upf/upf"].Values["x"]; got != 2 {
		t.Errorf("the instance's value is %v", got)
	}
	if _, there := w.server.Instance("b"); there {
		t.Error("what left is still there")
	}

	// A removed key is refused with 400. OSM compares the file that was sent last.
	edit(t, d.Packages[1], "  k8s-cluster: {nets: [], version: '1'}\n", "  k8s-cluster: {nets: []}\n")
	edit(t, d.Packages[0], "    name: m\n", "")
	w.settle(d)
	if got := merged(t, w, "vnf", "upf_knf", "k8s-cluster"); fmt.Sprint(got) != "map[nets:[]]" {
		t.Errorf("k8s-cluster is %v", got)
	}
	if got := merged(t, w, "ns", "upf_ns", "name"); got != nil {
		t.Errorf("name is %v", got)
	}

	// Files are replaced all the same, together with a change that is merged, and with a descriptor's file of another name.
	files := d.Packages[1].Files.(fstest.MapFS)
	edit(t, d.Packages[1], "product-name: q", "product-name: r")
	files["charts/values/a.yaml"] = &fstest.MapFile{Data: []byte("a: 2\n")}
	w.settle(d)
	files["renamed.yaml"] = files["upf_knf.yaml"]
	delete(files, "upf_knf.yaml")
	files["charts/values/b.yaml"] = &fstest.MapFile{Data: []byte("b: 1\n")}
	w.settle(d)
	p, _ := w.server.Package("vnf", "upf_knf")
	if p.Record["product-name"] != "r" || string(p.Files["upf_knf/charts/values/a.yaml"]) != "a: 2\n" || string(p.Files["upf_knf/charts/values/b.yaml"]) != "b: 1\n" {
		t.Errorf("OSM has %v and %q", p.Record, p.Files)
	}

	// Nothing is sent again.
	w.server.Reset()
	w.settle(d)
	if diff := cmp.Diff(map[string]int{"GET /nslcm/v1/ns_instances": 1}, w.server.Counts().Requests); diff != "" {
		t.Errorf("unchanged: -want +got:\n%s", diff)
	}

	// What OSM takes of a package in use isn't merged: it is replaced.
	edit(t, bundle.Package{ID: "renamed", Files: files}, "product-name: r", "product-name: s\n  software-version: '2.0'")
	files["upf_knf.yaml"] = files["renamed.yaml"]
	delete(files, "renamed.yaml")
	revision := p.Revision
	w.settle(d)
	p, _ = w.server.Package("vnf", "upf_knf")
	if p.Revision != revision+1 || p.Record["software-version"] != "2.0" {
		t.Errorf("revision %d after %d: %v", p.Revision, revision, p.Record)
	}
}

// OSM Ops merged changed descriptors. OSM still has the files of the first revision.
func TestFirstSyncTakesOverPackagesOfOSMOps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("replicaCount", 1))}}
	original(t, w.server.URL, d)
	edit(t, d.Packages[1], "product-name: p", "product-name: q")
	edit(t, d.Packages[0], "name: n", "name: m")
	eventually.True(t, "the instance is ready", func() bool { return w.instance("a").State == "READY" })
	original(t, w.server.URL, d)
	before := w.instance("a").ID
	w.settle(d)
	if got := w.instance("a"); got.ID != before || merged(t, w, "vnf", "upf_knf", "product-name") != "q" {
		t.Errorf("it is %+v", got)
	}
	d.Instances[0] = instance("a", values("replicaCount", 2))
	edit(t, d.Packages[1], "product-name: q", "product-name: r")
	w.settle(d)
	if got := w.instance("a").Releases["upf/upf"].Values["replicaCount"]; got != 2 || merged(t, w, "vnf", "upf_knf", "product-name") != "r" {
		t.Errorf("the value is %v, the descriptor has %v", got, merged(t, w, "vnf", "upf_knf", "product-name"))
	}
}

// another is a second family of packages, which refers to nothing of the first.
func another() []bundle.Package {
	v := bundle.Package{Kind: nbi.KindVNF, ID: "amf_knf", Source: "osm-pkgs/amf_knf", Files: fstest.MapFS{
		"amf_knf.yaml": {Data: []byte("vnfd:\n  id: amf_knf\n  product-name: p\n  kdu:\n  - name: amf\n    helm-chart: ops/amf\n")},
	}}
	n := bundle.Package{Kind: nbi.KindNS, ID: "amf_ns", Source: "osm-pkgs/amf_ns", Files: fstest.MapFS{
		"amf_ns.yaml": {Data: []byte("nsd:\n  nsd:\n  - id: amf_ns\n    name: n\n    vnfd-id: [amf_knf]\n    df:\n    - id: default\n      vnf-profile:\n      - {id: amf, vnfd-id: amf_knf}\n")},
	}}
	return []bundle.Package{v, n}
}

func TestRefusedPackageHoldsBackOnlyItsDependents(t *testing.T) {
	t.Parallel()
	amf := func(name string, params map[string]any) osm.Instance {
		return osm.Instance{Name: name, NSD: "amf_ns", VIM: "vim", Source: name + ".osmops.yaml", VNFs: []osm.VNF{{Member: "amf", KDUs: []osm.KDU{{Name: "amf", Params: params}}}}}
	}
	for name, c := range map[string]struct {
		change   func(t *testing.T, d osm.Desired)
		pkg      string
		parts    []string // of the message
		accepted func(t *testing.T, d osm.Desired)
	}{
		"a KDU leaves a VNFD": {
			func(t *testing.T, d osm.Desired) {
				edit(t, d.Packages[1], "- name: upf\n    helm-chart: ops/upf\n", "- name: smf\n    helm-chart: ops/smf\n")
			},
			"vnf/upf_knf",
			[]string{`"upf"`, "cannot be modified", "software-version"},
			func(t *testing.T, d osm.Desired) {
				edit(t, d.Packages[1], "product-name: p\n", "product-name: p\n  software-version: '2.0'\n")
			},
		},
		"a member leaves an NSD": {
			func(t *testing.T, d osm.Desired) {
				edit(t, d.Packages[0], "{id: upf, vnfd-id: upf_knf}", "{id: other, vnfd-id: upf_knf}")
			},
			"ns/upf_ns",
			[]string{`"upf"`, "cannot be modified", "another id"},
			func(t *testing.T, d osm.Desired) {
				edit(t, d.Packages[0], "{id: other, vnfd-id: upf_knf}", "{id: upf, vnfd-id: upf_knf}")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, osmtest.Options{})
			w.policy.Retry = time.Hour
			bare := func(i osm.Instance) osm.Instance { // it names no KDU, so that its file stays right
				i.VNFs = nil
				return i
			}
			d := osm.Desired{Packages: append(packages(), another()...), Instances: []osm.Instance{
				bare(instance("a", nil)), instance("gone", nil), amf("c", values("x", 1)), amf("gone too", nil),
			}}
			w.settle(d)
			c.change(t, d)
			d.Instances = []osm.Instance{bare(instance("a", nil)), bare(instance("new", nil)), amf("c", values("x", 2)), amf("made", nil)}
			r := w.apply(d)
			got := r.Packages[c.pkg]
			if got.Phase != osm.PhaseStalled || r.Again == 0 {
				t.Errorf("the package is %+v, again in %s", got, r.Again)
			}
			for _, part := range c.parts {
				if !strings.Contains(got.Message, part) {
					t.Errorf("%q isn't in: %s", part, got.Message)
				}
			}
			if got := w.instance("c").Releases["amf/amf"].Values["x"]; got != 2 {
				t.Errorf("the other's value is %v", got)
			}
			w.instance("made")
			if got := r.Instances["a"]; got.Phase != osm.PhaseReady {
				t.Errorf("one that changes nothing is %+v", got)
			}
			_, id, _ := strings.Cut(c.pkg, "/")
			if got := r.Instances["new"]; got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, "osm-pkgs/"+id) {
				t.Errorf("one that needs it is %+v", got)
			}
			var names []string
			for _, i := range w.server.Instances() {
				names = append(names, i.Name)
			}
			if diff := cmp.Diff([]string{"a", "c", "made"}, names); diff != "" {
				t.Errorf("there are: -want +got:\n%s", diff)
			}

			// It isn't sent again and again.
			w.server.Reset()
			w.apply(d)
			if diff := cmp.Diff(map[string]int{"GET /nslcm/v1/ns_instances": 1}, w.server.Counts().Requests); diff != "" {
				t.Errorf("again: -want +got:\n%s", diff)
			}
			// The plan reports it, too.
			p, err := w.reconciler().Plan(t.Context(), d, w.saved(), w.policy)
			if err != nil || !slices.ContainsFunc(p.Refused, func(p osm.Problem) bool {
				return p.What+"/"+p.Name == c.pkg && strings.Contains(p.Err.Error(), c.parts[2])
			}) {
				t.Errorf("the plan refuses %v, %v", p.Refused, err)
			}

			// What was said helps.
			c.accepted(t, d)
			w.settle(d)
			w.instance("new")
		})
	}
}

func TestRefusedPackageIsSentAfterItsLastInstanceIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Retry = time.Hour
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
	w.settle(d)
	edit(t, d.Packages[0], "{id: upf, vnfd-id: upf_knf}", "{id: other, vnfd-id: upf_knf}")
	d.Instances[0].VNFs = nil
	if r := w.apply(d); r.Packages["ns/upf_ns"].Phase != osm.PhaseStalled {
		t.Fatalf("it is %+v", r.Packages)
	}
	d.Instances = nil
	w.apply(d)
	w.settle(d)
	if p, _ := w.server.Package("ns", "upf_ns"); p.Revision != 2 {
		t.Errorf("it has revision %d", p.Revision)
	}
}

func TestPlanPredictsMergesOfPackagesInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
	w.settle(d)
	edit(t, d.Packages[1], "product-name: p", "product-name: q")
	p, err := w.reconciler().Plan(t.Context(), d, w.saved(), w.policy)
	if err != nil || len(p.Refused) > 0 || len(p.Changes) != 1 || p.Changes[0].Action != osm.ActionUpdate {
		t.Errorf("the plan is %+v, %v", p, err)
	}
}

func TestPackageRefusedByOSMIsReportedAndDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Retry = time.Hour
	d := osm.Desired{Packages: append(packages(), another()...), Instances: []osm.Instance{instance("a", nil)}}
	edit(t, d.Packages[2], "ops/amf", "OPS/amf")
	r, err := w.try(d)
	if err != nil && !errors.Is(err, tko.ErrInvalid) {
		t.Fatal(err)
	}
	if got := r.Packages["vnf/amf_knf"]; got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, "422") {
		t.Errorf("it is %+v", got)
	}
	if got := r.Packages["ns/amf_ns"]; got.Phase == osm.PhaseReady || !strings.Contains(got.Message, "amf_knf") {
		t.Errorf("what refers to it is %+v", got)
	}
	if got := r.Instances["a"]; got.Phase != osm.PhaseReady {
		t.Errorf("the other's instance is %+v", got)
	}
}

// Each request of the change fails once.
func TestInterruptedChangeOfAPackageInUseIsCompleted(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string]osmtest.Fault{"cut": osmtest.DropBefore, "cut and done": osmtest.DropAfter, "500 and done": osmtest.FailAfter, "503": osmtest.Refuse} {
		for n := range 6 {
			t.Run(fmt.Sprint(what, " ", n), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, osmtest.Options{})
				d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
				w.settle(d)
				var mu sync.Mutex
				at := 0
				w.server.Fault(func(_, path string) osmtest.Fault {
					mu.Lock()
					defer mu.Unlock()
					if !strings.HasPrefix(path, "/vnfpkgm/") {
						return osmtest.None
					}
					at++
					if at == n+1 {
						return fault
					}
					return osmtest.None
				})
				edit(t, d.Packages[1], "product-name: p", "product-name: q")
				d.Packages[1].Files.(fstest.MapFS)["charts/values/a.yaml"] = &fstest.MapFile{Data: []byte("a: 2\n")}
				w.settles(d, tko.ErrUnavailable, tko.ErrNotFound, tko.ErrConflict, tko.ErrInvalid)
				p, _ := w.server.Package("vnf", "upf_knf")
				if p.Record["product-name"] != "q" || string(p.Files["upf_knf/charts/values/a.yaml"]) != "a: 2\n" {
					t.Errorf("OSM has %v and %q", p.Record, p.Files)
				}
				if at <= n {
					t.Errorf("there were only %d requests", at)
				}
			})
		}
	}
}

// OSM doesn't return its archive.
func TestPackageInUseWithoutArchiveIsMergedWithAWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("kdu_model", "ops/upf:1.0.0"))}}
	w.settle(d)
	w.server.Fault(func(method, path string) osmtest.Fault {
		if method == "GET" && strings.HasSuffix(path, "/package_content") {
			return osmtest.Reject
		}
		return osmtest.None
	})
	edit(t, d.Packages[1], "product-name: p", "product-name: q")
	r := w.settle(d)
	if got := merged(t, w, "vnf", "upf_knf", "product-name"); got != "q" || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Err.Error(), "other files") {
		t.Errorf("it has %v, warnings: %v", got, r.Warnings)
	}
	r = w.settle(d)
	if len(r.Warnings) != 1 {
		t.Errorf("afterwards, warnings: %v", r.Warnings)
	}
}

func TestUnknownVIMAccountIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{VIMs: []string{"east", "west"}})
	w.policy.Retry = time.Hour
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
	got := w.apply(d).Instances["a"]
	if want := `OSM has no VIM accounts that are called "vim" in this project, only ["east" "west"]`; got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, want) {
		t.Errorf("it is %+v", got)
	}
	p, err := w.reconciler().Plan(t.Context(), d, osm.State{}, w.policy)
	if err != nil || !slices.ContainsFunc(p.Refused, func(p osm.Problem) bool { return strings.Contains(p.Err.Error(), `only ["east" "west"]`) }) {
		t.Errorf("the plan refuses %v, %v", p.Refused, err)
	}
	if strings.Contains(got.Message, "Not found entry") {
		t.Errorf("it shows an error of OSM's database: %s", got.Message)
	}
}

// A chart without a version may change with any upgrade.
func TestWarningOfChartWithoutVersionStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1)), instance("b", values("kdu_model", "ops/upf:1.4.2"))}}
	w.settle(d)
	for range 2 {
		r := w.settle(d)
		if len(r.Warnings) != 1 || r.Warnings[0].Name != "a" || !strings.Contains(r.Warnings[0].Err.Error(), "the chart of upf/upf has no version") {
			t.Fatalf("warnings: %v", r.Warnings)
		}
	}
	d.Instances[0] = instance("a", values("x", 1, "kdu_model", "ops/upf:1.4.2"))
	w.settle(d)
	if r := w.settle(d); len(r.Warnings) > 0 {
		t.Errorf("warnings: %v", r.Warnings)
	}
}

func TestRefusedChangesAreReportedWithTheirError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{Quota: 1})
	w.policy.Retry = time.Hour
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
	w.settle(d)
	d.Instances = append(d.Instances, instance("b", nil))
	edit(t, d.Packages[0], "{id: upf, vnfd-id: upf_knf}", "{id: upf, vnfd-id: upf_knf}\n      - {id: more, vnfd-id: missing_knf}")
	r := w.apply(d)
	got := map[string]bool{}
	for _, c := range r.Changes {
		got[c.Action+" "+c.What+" "+c.Name] = c.Err != nil
	}
	if diff := cmp.Diff(map[string]bool{"update ns upf_ns": true}, got); diff != "" {
		t.Errorf("-want failed +got:\n%s", diff)
	}
	edit(t, d.Packages[0], "\n      - {id: more, vnfd-id: missing_knf}", "")
	r = w.apply(d)
	if len(r.Changes) != 1 || r.Changes[0].Action != osm.ActionCreate || r.Changes[0].Err == nil || !strings.Contains(r.Changes[0].Err.Error(), "Quota") {
		t.Errorf("changes: %+v", r.Changes)
	}
}
