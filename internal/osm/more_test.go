package osm_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A change sends all files of the package. Unchanged packages are not sent.
func TestChangedFilesOfAPackageAreSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages()}
	w.settle(d)
	before, _ := w.server.Package("vnf", "upf_knf")
	want := "50d38ac0d2be8ed9c1ad7a1c5ee5dd0f\tupf_knf/charts/values/a.yaml\n"
	if got := string(before.Files["upf_knf/checksums.txt"]); before.Revision != 1 || !strings.Contains(got, "\tupf_knf/charts/values/a.yaml\n") || strings.Count(got, "\n") != 2 || len(strings.Fields(got)[0]) != len(strings.Fields(want)[0]) {
		t.Errorf("revision %d, checksums:\n%s", before.Revision, got)
	}
	d.Packages[1].Files.(fstest.MapFS)["charts/values/a.yaml"] = &fstest.MapFile{Data: []byte("a: 2\n"), ModTime: time.Now()}
	w.server.Reset()
	w.settle(d)
	after, _ := w.server.Package("vnf", "upf_knf")
	other, _ := w.server.Package("ns", "upf_ns")
	if got := string(after.Files["upf_knf/charts/values/a.yaml"]); got != "a: 2\n" || after.Revision != 2 || after.ID != before.ID || other.Revision != 1 || after.Edits != 0 {
		t.Errorf("the file is %q, the package %+v, the other %+v", got, after, other)
	}
	if n := w.server.Counts().Requests["PUT /vnfpkgm/v1/vnf_packages/{id}/package_content"]; n != 1 {
		t.Errorf("%d updates", n)
	}
	// A time alone is no change.
	d.Packages[1].Files.(fstest.MapFS)["charts/values/a.yaml"].ModTime = time.Now().Add(time.Hour)
	w.server.Reset()
	w.settle(d)
	if got := w.server.Counts().Total; got != 0 {
		t.Errorf("%d requests for nothing", got)
	}
}

func TestWhatAnotherClientRemovedIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1)), instance("b", nil)}}
	w.settle(d)
	before := w.instance("a").ID
	w.server.Vanish("a")
	w.settle(d)
	if got := w.instance("a"); got.ID == before || got.Releases["upf/upf"].Values["x"] != 1 {
		t.Errorf("it is %+v", got)
	}
	w.server.Vanish("a")
	w.server.Vanish("b")
	for kind, id := range map[string]string{"ns": "upf_ns"} {
		p, _ := w.server.Package(kind, id)
		if err := w.client.DeletePackage(t.Context(), nbi.KindNS, p.ID); err != nil {
			t.Fatal(err)
		}
	}
	r := w.apply(d)
	if !r.Settled() { // that the NSD is gone is found out by using it
		w.settle(d)
	}
	w.instance("a")
	w.instance("b")
}

// The values of an adopted instance are not known, so they are set.
func TestExistingInstanceOfTheSameNameAndNSDIsAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{VIMs: []string{"vim", "other"}})
	w.policy.Retry = time.Hour
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{
		instance("a", values("x", 1)), instance("b", nil), instance("same", values("x", 1, "deep", values("l", []any{1, "it's", nil, true}))), instance("twice", nil), instance("elsewhere", nil), instance("another", nil),
	}}
	d.Packages = append(d.Packages, ns("amf_ns", "upf"))
	d.Instances[5].NSD = "amf_ns"
	by := newWorld(t, osmtest.Options{})
	by.server, by.client = w.server, w.client
	by.settle(osm.Desired{Packages: d.Packages, Instances: []osm.Instance{instance("a", values("old", 1)), instance("b", values("old", 1)), instance("another", nil), instance("same", values("x", 1, "deep", values("l", []any{1, "it's", nil, true})))}})
	for range 2 {
		by.state = nil
		by.apply(osm.Desired{Instances: []osm.Instance{instance("t", nil)}})
		w.server.Rename("t", "twice")
	}
	by.state = nil
	moved := instance("elsewhere", nil)
	moved.VIM = "other"
	by.apply(osm.Desired{Instances: []osm.Instance{moved}})

	a := w.instance("a").ID
	r := w.apply(d)
	phases := map[string]string{}
	for name, s := range r.Instances {
		phases[name] = s.Phase
	}
	want := map[string]string{"a": osm.PhaseReady, "b": osm.PhaseReady, "same": osm.PhaseReady, "twice": osm.PhaseStalled, "elsewhere": osm.PhaseStalled, "another": osm.PhaseStalled}
	if diff := cmp.Diff(want, phases); diff != "" {
		t.Errorf("-want +got:\n%s%+v", diff, r.Instances)
	}
	if got := r.Instances["another"].Message; !strings.Contains(got, "it is another one") {
		t.Errorf("of another NSD: %s", got)
	}
	if got := w.instance("same").Operations; len(got) != 1 {
		t.Errorf("the one that has all its values was changed: %v", got)
	}
	if got := w.instance("a"); got.ID != a || fmt.Sprint(got.Releases["upf/upf"].Values) != "map[x:1]" {
		t.Errorf("a is %+v", got)
	}
	if all := w.server.Instances(); len(all) != 7 {
		t.Errorf("there are %d instances", len(all))
	}
}

// The approval is of exactly the instances that it names.
func TestRemovalsBeyondTheBudgetWaitForApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Budget = prune.Budget{Count: 1, Percent: 50}
	d := osm.Desired{Packages: packages()}
	for i := range 4 {
		d.Instances = append(d.Instances, instance(fmt.Sprintf("i%d", i), nil))
	}
	w.settle(d)
	empty := osm.Desired{Packages: packages()}
	w.policy.Approve = "something else"
	r := w.apply(empty)
	if len(w.server.Instances()) != 4 || r.Approval == nil || len(r.Approval.Instances) != 4 || r.Settled() {
		t.Fatalf("%d are left, %+v", len(w.server.Instances()), r.Approval)
	}
	w.policy.Approve = r.Approval.Key
	w.settle(empty)
	if n := len(w.server.Instances()); n != 0 {
		t.Errorf("%d are left", n)
	}

	w.policy.Approve = ""
	w.settle(d)
	w.settle(osm.Desired{Packages: packages(), Instances: d.Instances[:2]}) // half of them
	if n := len(w.server.Instances()); n != 2 {
		t.Errorf("%d are left", n)
	}
	w.policy.Prune = false
	r = w.settle(empty)
	if n := len(w.server.Instances()); n != 2 || r.Instances["i0"].Phase != osm.PhaseKept {
		t.Errorf("without pruning: %d are left, %+v", n, r.Instances)
	}
}

// OSM can't change the NSD of an instance.
func TestChangedNSDIsRefusedUnlessInstancesMayBeReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{VIMs: []string{"vim", "other"}})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
	w.settle(d)
	before := w.instance("a").ID
	d.Instances[0].VIM = "other"
	if r := w.apply(d); r.Instances["a"].Phase != osm.PhaseStalled || w.instance("a").ID != before {
		t.Errorf("not allowed: %+v", r.Instances["a"])
	}
	w.policy.Replace = true
	w.settle(d)
	if w.instance("a").ID == before {
		t.Error("it is still the old one")
	}
}

func TestRecreationOfABrokenInstanceIsLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Broken = osm.BrokenRecreate
	var made atomic.Int32
	w.server.LCM(func(o osmtest.Operation) string {
		if o.Type == "instantiate" {
			made.Add(1)
			return "no nodes available"
		}
		return ""
	})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
	var r osm.Report
	eventually.True(t, "the last recreation failed", func() bool {
		r = w.apply(d)
		return made.Load() >= 4 && r.Instances["a"].Phase == osm.PhaseStalled
	})
	for range 5 { // and no other one follows
		r = w.apply(d)
		time.Sleep(10 * time.Millisecond) // the pause between tries
	}
	if got := r.Instances["a"]; made.Load() != 4 || got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, "no nodes available") {
		t.Errorf("it was created %d times, want 4: %+v", made.Load(), got)
	}
	w.server.LCM(nil)
	d.Instances[0] = instance("a", values("x", 1)) // a user changed it
	w.settle(d)
	if got := w.saved().Instances["a"]; got.Operations[0].State != "COMPLETED" || got.Operations[0].Kind != osm.Instantiate {
		t.Errorf("operations: %+v", got.Operations)
	}
}

// The message of the LCM is reported.
func TestFailedUpgradeIsReportedAndNotRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1))}}
	w.settle(d)
	w.server.LCM(func(osmtest.Operation) string { return "timed out waiting for the condition" })
	d.Instances[0] = instance("a", values("x", 2))
	w.policy.Retry = time.Hour
	r := w.apply(d)
	if got := r.Instances["a"]; got.Phase != osm.PhaseFailed || !strings.Contains(got.Message, "timed out waiting") || !strings.Contains(got.Message, "upgrade of upf/upf") || r.Again == 0 {
		t.Errorf("it is %+v, again in %s", got, r.Again)
	}
	if len(r.Ended) != 1 || r.Ended[0].Name != "a" || r.Ended[0].State != "FAILED" || !strings.Contains(r.Ended[0].Failure, "timed out waiting") {
		t.Errorf("ended: %+v", r.Ended)
	}
	w.apply(d)
	if n := len(w.instance("a").Operations); n != 2 {
		t.Errorf("%d operations", n)
	}
	w.server.LCM(nil)
	d.Instances[0] = instance("a", values("x", 3))
	w.settle(d)
}

// A user who asks for a reconciliation doesn't wait for the pause after a failure, unless it
// is of just now.
func TestFailedUpgradeIsTriedAgainWhenAUserAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1))}}
	w.settle(d)
	w.server.LCM(func(osmtest.Operation) string { return "timed out waiting for the condition" })
	d.Instances[0] = instance("a", values("x", 2))
	w.policy.Retry = time.Hour
	w.apply(d)
	w.server.LCM(nil)
	w.policy.RetryNow = true
	if r := w.apply(d); r.Settled() {
		t.Error("a failure of just now is repeated at once, as by each of many webhooks")
	}
	s := w.saved()
	s.Instances["a"].Failed.At = s.Instances["a"].Failed.At.Add(-time.Minute)
	if err := w.reconciler().Keep(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	w.policy.RetryNow = false
	if r := w.apply(d); r.Settled() {
		t.Error("without a request, the pause isn't kept")
	}
	w.policy.RetryNow = true
	w.settle(d)
}

// Since release 19, OSM refuses versions of charts in descriptors. Repositories that
// have them still work, and no chart changes its version by itself.
func TestVersionsOfChartsInDescriptorsAreGivenWithInstances(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old     bool
		chart   string // in the VNFD
		params  map[string]any
		version string // when made, and after a change of a value
		warns   bool
	}{
		"in the descriptor, release 19":         {false, "ops/upf:1.4.2", nil, "1.4.2", false},
		"in the descriptor, an older release":   {true, "ops/upf:1.4.2", nil, "1.4.2", false},
		"in the parameters":                     {false, "ops/upf", values("kdu_model", "ops/upf:1.4.2"), "1.4.2", false},
		"in the parameters, not the descriptor": {true, "ops/upf:1.3.0", values("kdu_model", "ops/upf:1.4.2"), "1.4.2", false},
		"nowhere":                               {false, "ops/upf", nil, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, osmtest.Options{OldCharts: c.old, Charts: map[string][]string{"ops/upf": {"1.3.0", "1.4.2", "1.5.0"}}})
			d := osm.Desired{Packages: []bundle.Package{vnf(c.chart), ns("upf_ns", "upf")}, Instances: []osm.Instance{instance("a", nil)}}
			for i := range 3 {
				params := values("x", i)
				maps.Copy(params, c.params)
				d.Instances[0] = instance("a", params)
				r := w.settle(d)
				got := w.instance("a").Releases["upf/upf"]
				if c.version != "" && got.Version != c.version || got.Values["x"] != i || got.Values["kdu_model"] != nil {
					t.Errorf("it is %+v", got)
				}
				if warns := len(r.Warnings) > 0; i > 0 && warns != c.warns {
					t.Errorf("warnings: %v", r.Warnings)
				}
				w.server.AddChart("ops/upf", fmt.Sprintf("2.%d.0", i))
			}
			w.server.Reset()
			w.settle(d)
			if n := w.server.Counts().Total; n != 1 {
				t.Errorf("%d requests for nothing", n)
			}
		})
	}
}

func TestChangedChartIsUpgradedWithAllValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1, "kdu_model", "ops/upf:1.0.0"))}}
	w.settle(d)
	d.Instances[0] = instance("a", values("x", 1, "kdu_model", "ops/upf:1.1.0"))
	w.settle(d)
	want := osmtest.Release{Chart: "ops/upf", Version: "1.1.0", Values: values("x", 1), Revision: 2}
	if diff := cmp.Diff(want, w.instance("a").Releases["upf/upf"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPlanReportsChangesAndMakesNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	first := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1, "y", 2)), instance("b", nil)}}
	plan := func(d osm.Desired) []string {
		t.Helper()
		state := string(w.state)
		p, err := w.reconciler().Plan(t.Context(), d, w.saved(), w.policy)
		if err != nil {
			t.Fatal(err)
		}
		if string(w.state) != state {
			t.Error("the plan changed the state")
		}
		var lines []string
		for _, c := range p.Changes {
			lines = append(lines, fmt.Sprintf("%s %s %s %v", c.Action, c.What, c.Name, c.Paths))
		}
		for _, r := range p.Refused {
			lines = append(lines, "refused "+r.Name)
		}
		return lines
	}
	want := []string{"create vnf upf_knf []", "create ns upf_ns []", "create instance a []", "create instance b []"}
	if diff := cmp.Diff(want, plan(first)); diff != "" {
		t.Errorf("at first: -want +got:\n%s", diff)
	}
	if n := len(w.server.Instances()); n != 0 {
		t.Errorf("the plan made %d instances", n)
	}
	w.settle(first)
	if got := plan(first); got != nil {
		t.Errorf("unchanged: %v", got)
	}
	wrong := instance("c", nil)
	wrong.VNFs[0].Member = "amf"
	second := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 2, "z", 3)), wrong}}
	want = []string{"upgrade instance a [upf/upf: +z upf/upf: -y upf/upf: x]", "delete instance b []", "refused c"}
	if diff := cmp.Diff(want, plan(second)); diff != "" {
		t.Errorf("changed: -want +got:\n%s", diff)
	}
}

// A request can't name all of these instances.
func TestManyInstancesAreOneList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.InFlight, w.quick = 200, true
	d := osm.Desired{Packages: packages()}
	for i := range 200 {
		d.Instances = append(d.Instances, instance(fmt.Sprintf("a-network-service-with-a-long-name-%d", i), nil))
	}
	w.settle(d)
	w.server.Reset()
	w.settle(d)
	if n := w.server.Counts().Total; n != 1 {
		t.Errorf("%d requests for nothing", n)
	}
	w.server.Vanish(d.Instances[7].Name)
	w.settle(d)
	w.instance(d.Instances[7].Name)
	if all := duplicates(w.server); len(all) > 0 || len(w.server.Instances()) != 200 {
		t.Errorf("duplicates: %v", all)
	}
}

// Another OSM without the recorded instances is most likely a mistake.
func TestInstancesAreNotMadeInAnotherOSM(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
	w.settle(d)
	other := newWorld(t, osmtest.Options{})
	other.settle(osm.Desired{Packages: packages()})
	w.server, w.client = other.server, other.client
	if r := w.apply(d); r.Instances["a"].Phase != osm.PhaseStalled || len(w.server.Instances()) > 0 {
		t.Errorf("it is %+v", r.Instances["a"])
	}
}

// NS packages refer to VNF packages. The order doesn't depend on names.
func TestVNFPackagesAreCreatedFirstAndRemovedLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	early := ns("a_ns", "upf")
	w.settle(osm.Desired{Packages: []bundle.Package{early, vnf("ops/upf")}})
	w.settle(osm.Desired{})
	if _, there := w.server.Package("vnf", "upf_knf"); there {
		t.Error("the VNF package is left")
	}
}

func TestInvalidPackagesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files fstest.MapFS
		text  string
	}{
		"no descriptor":   {fstest.MapFS{"charts/values.yaml": {}}, "no descriptor"},
		"two descriptors": {fstest.MapFS{"a.yaml": {}, "b.json": {}}, "a.yaml, b.json could all be"},
		"another kind":    {fstest.MapFS{"a.yaml": {Data: []byte("nsd: {nsd: [{id: x_knf}]}")}}, "holds a NSD"},
		"another id":      {fstest.MapFS{"a.yaml": {Data: []byte("vnfd: {id: y_knf}")}}, `has the id "y_knf"`},
		"an old form":     {fstest.MapFS{"a.yaml": {Data: []byte("vnfd:vnfd-catalog: {}")}}, "old form"},
		"no YAML":         {fstest.MapFS{"a.yaml": {Data: []byte("a: [\n")}}, "a.yaml: line"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := osm.Desired{Packages: []bundle.Package{{Kind: nbi.KindVNF, ID: "x_knf", Source: "pkgs/x_knf", Files: c.files}}}
			problems := d.Check()
			if len(problems) != 1 || !errors.Is(problems[0].Err, tko.ErrInvalid) || !strings.Contains(problems[0].Err.Error(), c.text) || !strings.HasPrefix(problems[0].Err.Error(), "pkgs/x_knf: ") {
				t.Errorf("problems: %v", problems)
			}
		})
	}
}

// A source that begins anew, as that of a GitRepository that was recreated, doesn't send
// packages that OSM has already. Those that differ there are sent.
func TestPackagesThatOSMHasAreNotSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages()}
	w.settle(d)
	w.mu.Lock()
	w.state = nil
	w.mu.Unlock()
	r := w.settle(d)
	if len(r.Changes) != 0 {
		t.Errorf("packages are changed: %+v", r.Changes)
	}
	known := w.saved().Packages
	if len(known) != len(d.Packages) {
		t.Errorf("the source knows %+v", known)
	}
	for key, p := range known {
		if p.Digest == "" || p.ID == "" {
			t.Errorf("of %s is known %+v", key, p)
		}
	}
	w.mu.Lock()
	w.state = nil
	w.mu.Unlock()
	d.Packages[1] = vnf("ops/other")
	r = w.settle(d)
	if len(r.Changes) != 1 || r.Changes[0].Action != osm.ActionUpdate {
		t.Errorf("of a package that differs in OSM, and one that doesn't, the changes are %+v", r.Changes)
	}
}
