package osm_test

import (
	"encoding/json"
	"fmt"
	"maps"
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

// calls are all kinds of requests, with functions that match them.
var calls = map[string]func(method, path string) bool{
	"log in":               func(_, p string) bool { return strings.HasSuffix(p, "/tokens") },
	"list instances":       func(m, p string) bool { return m == "GET" && strings.HasSuffix(p, "/ns_instances") },
	"look at an instance":  func(m, p string) bool { return m == "GET" && strings.Contains(p, "/ns_instances/") },
	"list operations":      func(_, p string) bool { return strings.HasSuffix(p, "/ns_lcm_op_occs") },
	"list NS packages":     func(m, p string) bool { return m == "GET" && strings.HasSuffix(p, "/ns_descriptors") },
	"list VNF packages":    func(m, p string) bool { return m == "GET" && strings.HasSuffix(p, "/vnf_packages") },
	"list VIM accounts":    func(_, p string) bool { return strings.HasSuffix(p, "/vim_accounts") },
	"create a VNF package": func(m, p string) bool { return m == "POST" && strings.HasSuffix(p, "/vnf_packages_content") },
	"create an NS package": func(m, p string) bool { return m == "POST" && strings.HasSuffix(p, "/ns_descriptors_content") },
	"update a VNF package": func(m, _ string) bool { return m == "PUT" },
	"delete an NS package": func(m, p string) bool { return m == "DELETE" && strings.Contains(p, "/ns_descriptors/") },
	"delete a VNF package": func(m, p string) bool { return m == "DELETE" && strings.Contains(p, "/vnf_packages/") },
	"create an instance":   func(m, p string) bool { return m == "POST" && strings.HasSuffix(p, "/ns_instances") },
	"instantiate":          func(_, p string) bool { return strings.HasSuffix(p, "/instantiate") },
	"upgrade":              func(_, p string) bool { return strings.HasSuffix(p, "/action") },
	"terminate":            func(m, p string) bool { return m == "DELETE" && strings.Contains(p, "/ns_instances_content/") },
}

// Each kind of request fails twice, with each fault. In the end everything is as
// desired, without duplicates, and later everything is removed.
func TestEveryFailedRequestIsRecoveredWithoutDuplicates(t *testing.T) {
	t.Parallel()
	faults := map[string]osmtest.Fault{
		"400": osmtest.Reject, "401": osmtest.Forbid, "404": osmtest.Missing, "409": osmtest.Busy, "500": osmtest.Fail, "500 and done": osmtest.FailAfter,
		"503": osmtest.Refuse, "cut": osmtest.DropBefore, "cut and done": osmtest.DropAfter,
		"done, without an ID": osmtest.Nameless,
	}
	for call, is := range calls {
		for what, fault := range faults {
			if what == "401" && !slices.Contains([]string{"list instances", "create a VNF package", "create an instance", "upgrade"}, call) {
				continue // each costs a login, and after a refused one there is a pause of a minute
			}
			if what == "done, without an ID" && (strings.HasPrefix(call, "list") || strings.HasPrefix(call, "look")) {
				continue // those make nothing
			}
			if call == "log in" && !slices.Contains([]string{"404", "500 and done", "cut"}, what) {
				continue // those cost two
			}
			t.Run(call+" "+what, func(t *testing.T) {
				t.Parallel()
				o := osmtest.Options{}
				if fault == osmtest.Nameless {
					o.Delay = 5 * time.Millisecond
				}
				w := newWorld(t, o)
				var mu sync.Mutex
				left := 2
				if what == "401" || call == "log in" {
					left = 1
				}
				before := left
				w.server.Fault(func(method, path string) osmtest.Fault {
					mu.Lock()
					defer mu.Unlock()
					if left > 0 && is(method, path) {
						left--
						return fault
					}
					return osmtest.None
				})
				kinds := []error{tko.ErrUnavailable, tko.ErrDenied, tko.ErrNotFound, tko.ErrConflict, tko.ErrInvalid}
				d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1)), instance("b", nil)}}
				w.settles(d, kinds...)
				d.Instances[0] = instance("a", values("x", 2))
				d.Packages[1].Files.(fstest.MapFS)["charts/values/a.yaml"] = &fstest.MapFile{Data: []byte("a: 2\n")}
				w.settles(d, kinds...)
				if got := w.instance("a").Releases["upf/upf"].Values["x"]; got != 2 || len(w.server.Instances()) != 2 {
					t.Errorf("the value is %v of %+v", got, w.server.Instances())
				}
				w.server.Vanish("b")
				w.settles(d, kinds...)
				w.instance("b")
				w.settles(osm.Desired{}, kinds...)
				eventually.True(t, "the packages are removed", func() bool {
					w.settles(osm.Desired{}, kinds...) // also settles while a package is kept because it is in use
					return len(w.saved().Packages) == 0
				})
				_, vnfs := w.server.Package("vnf", "upf_knf")
				_, nss := w.server.Package("ns", "upf_ns")
				if all := w.server.Instances(); len(all) > 0 || vnfs || nss {
					t.Errorf("left: %+v, packages %t %t", all, vnfs, nss)
				}
				if left == before {
					t.Errorf("nothing went wrong: %v", w.server.Counts().Requests)
				}
			})
		}
	}
}

func TestInstanceThatAlwaysFailsDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]osmtest.Fault{"500": osmtest.Fail, "403, as OSM says it": osmtest.Forbid, "409": osmtest.Busy, "404": osmtest.Missing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, osmtest.Options{})
			w.policy.Retry = time.Hour
			d := func(x int) osm.Desired {
				all := osm.Desired{Packages: packages()}
				for i := range 20 {
					all.Instances = append(all.Instances, instance(fmt.Sprintf("i%02d", i), values("x", x)))
				}
				return all
			}
			w.settle(d(1))
			bad := w.instance("i00").ID
			w.server.Fault(func(method, path string) osmtest.Fault {
				if method == "POST" && strings.Contains(path, bad) {
					return fault
				}
				return osmtest.None
			})
			w.policy.Wait, w.policy.Poll = 50*time.Millisecond, 40*time.Millisecond
			w.server.Reset()
			began := time.Now()
			for behind := 19; behind > 0; {
				w.apply(d(2))
				behind = 0
				for i := 1; i < 20; i++ {
					if w.instance(fmt.Sprintf("i%02d", i)).Releases["upf/upf"].Values["x"] != 2 {
						behind++
					}
				}
				if behind > 0 && time.Since(began) > 2*time.Minute {
					t.Fatalf("%d others wait", behind)
				}
			}
			for range 5 {
				w.apply(d(2))
			}
			most := 8 + int(time.Since(began)/(64*w.policy.Poll)) // each pause is twice the one before, up to that
			if n := w.server.Counts().Requests["POST /nslcm/v1/ns_instances/{id}/action"]; n > 19+most {
				t.Errorf("the bad one was asked for %d times", n-19)
			}
			if name == "500" {
				if got := w.apply(d(2)).Instances["i00"]; got.Phase != osm.PhaseFailed && got.Phase != osm.PhaseProgressing || !strings.Contains(got.Message, "500") && got.Operation == "" {
					t.Errorf("it is %+v", got)
				}
			}
		})
	}
}

func TestInstanceMissingFromAListIsNeitherForgottenNorDuplicated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{Delay: 30 * time.Millisecond})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil), instance("b", nil)}}
	w.settle(d)
	before := w.server.Instances()
	empty := func(method, path string) osmtest.Fault {
		if calls["list instances"](method, path) {
			return osmtest.Empty
		}
		return osmtest.None
	}
	w.server.Fault(empty)
	w.policy.Wait = 0
	if r := w.apply(d); r.Settled() || r.Again == 0 {
		t.Errorf("it is %+v, again in %s", r.Instances, r.Again)
	}
	w.apply(osm.Desired{Packages: d.Packages, Instances: d.Instances[:1]})
	if diff := cmp.Diff(before, w.server.Instances()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if known := w.saved().Instances; known["b"] == nil || known["b"].ID == "" {
		t.Errorf("what is to go is forgotten: %+v", known)
	}
	w.server.Fault(nil)
	w.policy.Wait = time.Minute
	w.settle(d)
	w.policy.Wait = 0
	w.apply(osm.Desired{Packages: d.Packages})               // both are being terminated
	w.server.Fault(func(method, path string) osmtest.Fault { // nor are the operations
		if calls["list operations"](method, path) {
			return osmtest.Empty
		}
		return empty(method, path)
	})
	w.apply(osm.Desired{Packages: d.Packages})
	if known := w.saved().Instances; len(w.server.Instances()) == 2 && (known["a"] == nil || known["a"].ID == "") {
		t.Errorf("what is being terminated is forgotten: %+v", known)
	}
	w.server.Fault(nil)
	w.policy.Wait = time.Minute
	w.settle(osm.Desired{})
	if len(w.server.Instances()) > 0 || len(w.saved().Instances) > 0 {
		t.Errorf("left: %+v, known: %+v", w.server.Instances(), w.saved().Instances)
	}
}

// OSM creates the instance, responds with an error, and lists the instance late.
func TestInstanceCreatedByAFailedRequestIsFoundLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Settle, w.policy.Wait = time.Hour, 0
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
	made := 0
	w.server.Fault(func(method, path string) osmtest.Fault {
		switch {
		case calls["create an instance"](method, path):
			made++
			return osmtest.FailAfter
		case made > 0 && calls["list instances"](method, path):
			return osmtest.Empty
		default:
			return osmtest.None
		}
	})
	for range 5 {
		w.apply(d)
		time.Sleep(5 * time.Millisecond) // of the pause between tries
	}
	w.server.Fault(nil)
	w.settles(d)
	if made != 1 {
		t.Errorf("it was asked for %d times", made)
	}
}

func TestInstantiationRequestedByAnotherClientIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{Pickup: 50 * time.Millisecond})
	w.settle(osm.Desired{Packages: packages()})
	by := newWorld(t, osmtest.Options{})
	by.server, by.client, by.policy.Wait = w.server, w.client, 0
	by.apply(osm.Desired{Instances: []osm.Instance{instance("a", values("old", 1))}})
	w.settle(osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1))}})
	got := w.instance("a")
	if diff := cmp.Diff([]string{"instantiate COMPLETED", "action COMPLETED"}, got.Operations); diff != "" || got.State != "READY" {
		t.Errorf("it is %s: -want +got:\n%s", got.State, diff)
	}
	if diff := cmp.Diff(values("x", 1), got.Releases["upf/upf"].Values); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTerminatedInstanceThatOSMDidNotRemoveIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.server.Forget()
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}}
	w.settle(d)
	w.settle(osm.Desired{})
	if all := w.server.Instances(); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}

func TestEveryFinalStateOfAnOperationIsHandled(t *testing.T) {
	t.Parallel()
	for outcome, c := range map[string]struct {
		phase string
		warns bool
	}{
		"PARTIALLY_COMPLETED": {osm.PhaseReady, true},
		"FAILED_TEMP":         {osm.PhaseFailed, false},
		"ROLLED_BACK":         {osm.PhaseFailed, false},
		"ROLLING_BACK":        {osm.PhaseProgressing, false},
	} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, osmtest.Options{})
			w.policy.Retry = time.Hour
			w.settle(osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1))}})
			w.server.Outcomes(func(o osmtest.Operation) string { return outcome })
			w.policy.Wait = 0
			warned := false
			eventually.NoError(t, "the operation ends and the instance is in the phase "+c.phase, func() error {
				r := w.apply(osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 2))}})
				warned = warned || slices.ContainsFunc(r.Warnings, func(p osm.Problem) bool { return strings.Contains(p.Err.Error(), "only in part") })
				ops := w.instance("a").Operations
				got := r.Instances["a"]
				if got.Phase != c.phase || ops[len(ops)-1] != "action "+outcome {
					return fmt.Errorf("it is %+v after %s", got, ops[len(ops)-1])
				}
				return nil
			})
			if warned != c.warns {
				t.Errorf("warned that the operation is done only in part: %t, want %t", warned, c.warns)
			}
		})
	}
}

func TestNumbersInDescriptorsAreTextsAndJSONStaysJSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, vnfd, nsd string }{
		"numbers": {
			"d.yaml",
			"vnfd:\n  id: upf_knf\n  map: {1: {2: a}}\n  kdu: [{name: 5, helm-chart: 'ops/upf:1.4.2'}]\n",
			"nsd: {nsd: [{id: upf_ns, vnfd-id: [upf_knf], df: [{vnf-profile: [{id: 1, vnfd-id: upf_knf}]}]}]}",
		},
		"JSON": {
			"d.json",
			"{\n\t\"vnfd\": {\"id\": \"upf_knf\", \"text\": \"" + strings.Repeat("long ", 40) + "\\ud83d\\ude00\", \"kdu\": [{\"name\": \"5\", \"helm-chart\": \"ops/upf:1.4.2\"}]}}",
			"{\n\t\"nsd\": {\"nsd\": [{\"id\": \"upf_ns\", \"vnfd-id\": [\"upf_knf\"], \"df\": [{\"vnf-profile\": [{\"id\": \"1\", \"vnfd-id\": \"upf_knf\"}]}]}]}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, osmtest.Options{})
			d := osm.Desired{Packages: []bundle.Package{
				{Kind: nbi.KindVNF, ID: "upf_knf", Source: "v", Files: fstest.MapFS{c.file: {Data: []byte(c.vnfd)}}},
				{Kind: nbi.KindNS, ID: "upf_ns", Source: "n", Files: fstest.MapFS{c.file: {Data: []byte(c.nsd)}}},
			}, Instances: []osm.Instance{instance("a", nil)}}
			d.Instances[0].VNFs = []osm.VNF{{Member: "1", KDUs: []osm.KDU{{Name: "5", Params: values("x", 1)}}}}
			for _, problem := range d.Check() {
				t.Error(problem.Err)
			}
			w.apply(d)
			p, _ := w.server.Package("vnf", "upf_knf")
			if data := string(p.Files["upf_knf/"+c.file]); strings.Contains(data, "1.4.2") || c.file == "d.json" && !strings.HasPrefix(data, "{") {
				t.Errorf("OSM has %s", data)
			} else if c.file == "d.json" && !json.Valid([]byte(data)) {
				t.Errorf("it is no JSON any more: %s", data)
			}
		})
	}
}

// OSM limits characters, not bytes, and treats a comma in a filter as an or.
func TestNamesAreLimitedByCharactersAndMayNotHaveCommas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.policy.Retry = time.Hour
	long := strings.Repeat("ü", 255)
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance(long, nil), instance(long+"x", nil), instance("a", nil)}}
	d.Instances[2].VIM = "other,vim"
	r := w.apply(d)
	if got := slices.Sorted(maps.Keys(r.Instances)); len(got) != 3 || r.Instances[long].Phase != osm.PhaseReady || r.Instances[long+"x"].Phase != osm.PhaseStalled {
		t.Errorf("they are %+v", r.Instances)
	}
	if got := r.Instances["a"]; got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, `"other,vim"`) {
		t.Errorf("of a VIM account that isn't there: %+v", got)
	}
}

// OSM fails with a flag that is a boolean.
func TestBooleanFlagsAreSentAsTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.settle(osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1))}})
	w.settle(osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 2, "kdu_atomic_upgrade", false, "kdu_reuse_values", true))}})
	if diff := cmp.Diff(values("x", 2), w.instance("a").Releases["upf/upf"].Values); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.policy.NoReset = true
	w.server.LCM(func(o osmtest.Operation) string {
		if _, there := o.Params["kdu_atomic_upgrade"]; there {
			return "an old server would give it to the chart"
		}
		return ""
	})
	w.settle(osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 3, "kdu_atomic_upgrade", "true"))}})
}

// OSM shows the values that another client's upgrade has changed.
func TestValuesChangedByAnotherClientAreCorrectedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", values("x", 1, "deep", values("l", []any{1, true})))}}
	w.settle(d)
	for _, params := range []map[string]any{values("x", 2), values("y", 1)} {
		if _, err := w.client.Upgrade(t.Context(), w.instance("a").ID, nbi.UpgradeRequest{Member: "upf", KDU: "upf", Params: params}); err != nil {
			t.Fatal(err)
		}
		before := len(w.instance("a").Operations)
		eventually.True(t, "the upgrade of the other client is completed", func() bool {
			return strings.HasSuffix(w.instance("a").Operations[before-1], "COMPLETED")
		})
		w.settle(d)
		w.settle(d)
		got := w.instance("a")
		if diff := cmp.Diff(d.Instances[0].VNFs[0].KDUs[0].Params, got.Releases["upf/upf"].Values); diff != "" || len(got.Operations) != before+1 {
			t.Errorf("%v: -want +got:\n%s%v", params, diff, got.Operations)
		}
	}
}

// OSM merges a new descriptor into its own.
func TestKeysRemovedFromADescriptorAreRemovedFromOSM(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	write := func(p bundle.Package, old, text string) {
		t.Helper()
		files := p.Files.(fstest.MapFS)
		data := strings.Replace(string(files[p.ID+".yaml"].Data), old, text, 1)
		files[p.ID+".yaml"] = &fstest.MapFile{Data: []byte(data)}
	}
	has := func(kind, id, key string) bool {
		t.Helper()
		p, there := w.server.Package(kind, id)
		return there && slices.Contains(p.Keys, key)
	}
	d := osm.Desired{Packages: packages()}
	w.settle(d)
	write(d.Packages[0], "    name: n\n", "    version: '2'\n")
	write(d.Packages[1], "  product-name: p\n", "  version: '2'\n")
	w.settle(d)
	if has("ns", "upf_ns", "name") || has("vnf", "upf_knf", "product-name") || !has("ns", "upf_ns", "version") || !has("vnf", "upf_knf", "version") || !has("vnf", "upf_knf", "kdu") {
		p, _ := w.server.Package("vnf", "upf_knf")
		t.Errorf("OSM has %v", p.Keys)
	}
	// A server that doesn't take that stops nothing; it is asked again with the next change.
	w.server.Fault(func(method, path string) osmtest.Fault {
		if method == "PUT" && strings.Contains(path, "_packages_content/") {
			return osmtest.Reject
		}
		return osmtest.None
	})
	write(d.Packages[1], "  version: '2'\n", "  provider: q\n")
	r := w.settle(d)
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Err.Error(), "(version)") || !has("vnf", "upf_knf", "version") {
		t.Errorf("warnings: %v", r.Warnings)
	}
	w.server.Fault(nil)
	write(d.Packages[1], "provider: q", "provider: r")
	w.settle(d)
	if has("vnf", "upf_knf", "version") {
		t.Error("what left is still there")
	}
}

// The response to a termination has no ID. The operation is followed nevertheless.
func TestFailedTerminationWithoutAnIDIsBegunAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{Delay: 20 * time.Millisecond})
	w.settle(osm.Desired{Packages: packages(), Instances: []osm.Instance{instance("a", nil)}})
	var mu sync.Mutex
	nameless, failed := false, false
	w.server.Fault(func(method, path string) osmtest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !nameless && calls["terminate"](method, path) {
			nameless = true
			return osmtest.Nameless
		}
		return osmtest.None
	})
	w.server.LCM(func(o osmtest.Operation) string {
		if o.Type == "terminate" && !failed {
			failed = true
			return "the cluster doesn't answer"
		}
		return ""
	})
	w.settles(osm.Desired{Packages: packages()})
	if all := w.server.Instances(); len(all) > 0 || !failed {
		t.Errorf("left: %+v", all)
	}
}
