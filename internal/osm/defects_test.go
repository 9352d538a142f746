package osm_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/osmops"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

// Each of these tests has a repository in the format of OSM Ops for one of its known
// defects.

// repository has two packages, and these files.
func repository(t *testing.T, files map[string]string) osm.Desired {
	t.Helper()
	all := fstest.MapFS{
		"osm_ops_config.yaml":       {Data: []byte("targetDir: deploy\nconnectionFile: /etc/osmops/nbi-connection.yaml\n")},
		"deploy/osm-pkgs/README.md": {Data: []byte("hello")},
	}
	for _, p := range packages() {
		for name, f := range p.Files.(fstest.MapFS) {
			all["deploy/"+p.Source+"/"+name] = f
		}
	}
	for name, text := range files {
		all["deploy/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	r, err := osmops.Read(all)
	if err != nil {
		t.Fatal(err)
	}
	return r.Desired
}

// file is an NsInstance file.
func file(name, more string) string {
	return fmt.Sprintf("kind: NsInstance\nname: %s\nnsdName: upf_ns\nvnfName: upf\nvimAccountName: vim\n%s\n", name, more)
}

func posts(s *osmtest.Server) map[string]int {
	all := s.Counts().Requests
	maps.DeleteFunc(all, func(k string, _ int) bool {
		return !strings.HasPrefix(k, "POST /nslcm") && !strings.HasPrefix(k, "DELETE")
	})
	return all
}

func TestDefect1RefusalsAreShown(t *testing.T) {
	t.Parallel()
	d := repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: {x: 1}}")})
	for name, c := range map[string]struct {
		why     string
		options osmtest.Options
		text    string
	}{
		"422": {"a quota is exceeded", osmtest.Options{Quota: -1}, "Quota exceeded"},
		"400": {"there is no cluster", osmtest.Options{NoCluster: []string{"vim"}}, "No k8scluster"},
		"404": {"the VIM account isn't there", osmtest.Options{VIMs: []string{"other"}}, `VIM accounts that are called "vim"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.options)
			w.policy.Retry = time.Hour
			r := w.apply(d)
			if got := r.Instances["a"]; got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, c.text) {
				t.Errorf("%s: %+v", c.why, got)
			}
			w.server.Reset()
			r = w.apply(d)
			if r.Instances["a"].Phase != osm.PhaseStalled || len(posts(w.server)) > 0 || r.Again == 0 {
				t.Errorf("%s: tried again at once: %v, again in %s", c.why, posts(w.server), r.Again)
			}
		})
	}
	t.Run("409", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, osmtest.Options{})
		w.settle(d)
		n := 0
		w.server.Fault(func(method, path string) osmtest.Fault {
			if strings.HasSuffix(path, "/action") && n < 2 {
				n++
				return osmtest.Busy
			}
			return osmtest.None
		})
		w.settle(repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: {x: 2}}")}))
		if got := w.instance("a").Releases["upf/upf"].Values["x"]; got != 2 || n != 2 {
			t.Errorf("after %d refusals the value is %v", n, got)
		}
	})
}

func TestDefect2PackagesAndTheirInstancesAreMadeInOneRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	// The first instance, so that the lists are not empty later.
	w.settle(repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf}")}))
	if got := w.instance("a").State; got != "READY" {
		t.Errorf("it is %s", got)
	}
}

func TestDefect3InstancesWithTheSameNameAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := repository(t, map[string]string{
		"a.osmops.yaml":   file("same", "kdu: {name: upf}"),
		"b/c.osmops.yaml": file("same", "kdu: {name: upf}"),
		"d.osmops.yaml":   file("other", "kdu: {name: upf}"),
	})
	r := w.apply(d)
	if got := r.Instances["same"]; got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, "deploy/a.osmops.yaml, deploy/b/c.osmops.yaml") {
		t.Errorf("it is %+v", got)
	}
	if all := w.server.Instances(); len(all) != 1 || all[0].Name != "other" {
		t.Errorf("made: %+v", all)
	}
}

func TestDefect4DescriptionMayBeEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.settle(repository(t, map[string]string{"a.osmops.yaml": file("a", "description: ''\nkdu: {name: upf}"), "b.osmops.yaml": file("b", "description: words\nkdu: {name: upf}")}))
	if a, b := w.instance("a").Description, w.instance("b").Description; a != "" || b != "words" {
		t.Errorf("descriptions are %q and %q", a, b)
	}
	d := repository(t, map[string]string{"a.osmops.yaml": file("c", `description: "it's"`+"\nkdu: {name: upf}")})
	if r := w.apply(d); r.Instances["c"].Phase != osm.PhaseStalled {
		t.Errorf("a quote: %+v", r.Instances["c"])
	}
}

func TestDefect5InstanceNeedsNoParams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	w.settle(repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: {x: 1}}")}))
	w.settle(repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf}")}))
	if got := w.instance("a"); len(got.Releases["upf/upf"].Values) > 0 || got.Operations[len(got.Operations)-1] != "action COMPLETED" {
		t.Errorf("it has %+v", got)
	}
	w.server.Reset()
	w.settle(repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf}")}))
	if got := posts(w.server); len(got) > 0 {
		t.Errorf("asked for %v", got)
	}
}

func TestDefect6UnknownMembersAndKDUsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ member, kdu, text string }{
		"a VNFD's id": {"upf_knf", "upf", `"upf_knf" is the id of a VNFD; its member is "upf"`},
		"no member":   {"amf", "upf", `has no member "amf"`},
		"no KDU":      {"upf", "amf", `has no KDU "amf"`},
	} {
		for _, where := range []string{"in the repository", "in OSM"} {
			t.Run(name+" "+where, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, osmtest.Options{})
				w.policy.Prune, w.policy.Retry = false, time.Hour
				d := repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: "+c.kdu+", params: {x: 1}}")})
				d.Instances[0].VNFs[0].Member = c.member
				if where == "in OSM" {
					w.settle(osm.Desired{Packages: d.Packages})
					d.Packages = nil
				}
				r := w.apply(d)
				if got := r.Instances["a"]; got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, c.text) || !strings.Contains(got.Message, "a.osmops.yaml") {
					t.Errorf("it is %+v", got)
				}
				if got := posts(w.server); len(got) > 0 {
					t.Errorf("asked for %v", got)
				}
			})
		}
	}
}

func TestDefect7ChangeDuringAnInstantiationIsAppliedAfterIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{Pickup: 100 * time.Millisecond})
	w.policy.Wait = 0
	first := repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: {x: 1}}")})
	if r := w.apply(first); r.Instances["a"].Operation != osm.Instantiate || r.Again == 0 {
		t.Fatalf("it is %+v, again in %s", r.Instances["a"], r.Again)
	}
	second := repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: {x: 2}}")})
	if r := w.apply(second); r.Instances["a"].Operation != osm.Instantiate || r.Again == 0 {
		t.Fatalf("it is %+v, again in %s", r.Instances["a"], r.Again)
	}
	w.policy.Wait = time.Minute
	w.settle(second)
	got := w.instance("a")
	if diff := cmp.Diff([]string{"instantiate COMPLETED", "action COMPLETED"}, got.Operations); diff != "" || got.Releases["upf/upf"].Values["x"] != 2 {
		t.Errorf("-want +got:\n%s %+v", diff, got.Releases)
	}
}

func TestDefect8NoUpgradeWithoutAChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	files := map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: {x: 1}}"), "b.osmops.yaml": file("b", "kdu: {name: upf, params: {x: 1}}")}
	w.settle(repository(t, files))
	w.server.Reset()
	files["README.md"] = "another revision"
	w.settle(repository(t, files)) // each apply begins with the saved state, as after a restart
	files["b.osmops.yaml"] = file("b", "kdu: {name: upf, params: {x: 2}}")
	w.settle(repository(t, files))
	if diff := cmp.Diff(map[string]int{"POST /nslcm/v1/ns_instances/{id}/action": 1}, posts(w.server)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDefect9BrokenInstanceIsRecreatedAndUnwantedOneTerminated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	files := map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: {x: 1}}"), "b.osmops.yaml": file("b", "kdu: {name: upf}")}
	w.settle(repository(t, files))
	before := w.instance("a").ID
	w.server.Break("a")
	if r := w.apply(repository(t, files)); r.Instances["a"].Phase != osm.PhaseStalled || !r.Instances["a"].Broken {
		t.Errorf("kept: %+v", r.Instances["a"])
	}
	w.policy.Broken = osm.BrokenRecreate
	w.settle(repository(t, files))
	if got := w.instance("a"); got.ID == before || got.State != "READY" || got.Releases["upf/upf"].Values["x"] != 1 {
		t.Errorf("made anew: %+v", got)
	}
	delete(files, "a.osmops.yaml")
	w.settle(repository(t, files))
	if _, ok := w.server.Instance("a"); ok {
		t.Error("it is still there")
	}
}

func TestDefect10ValuesNoLongerDesiredAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	for _, params := range []string{"{x: 1, deep: {a: 1, b: 2}}", "{x: 1, deep: {a: 1}}", "{x: 2, deep: {a: 1}}", "{y: 1}", "{y: 2}"} {
		d := repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: "+params+"}")})
		w.settle(d)
		if diff := cmp.Diff(d.Instances[0].VNFs[0].KDUs[0].Params, w.instance("a").Releases["upf/upf"].Values); diff != "" {
			t.Errorf("%s: -want +got:\n%s", params, diff)
		}
	}

	old := newWorld(t, osmtest.Options{})
	old.policy.NoReset = true
	old.settle(repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: {x: 1, y: 1}}")}))
	r := old.settle(repository(t, map[string]string{"a.osmops.yaml": file("a", "kdu: {name: upf, params: {x: 2}}")}))
	if !slices.ContainsFunc(r.Warnings, func(p osm.Problem) bool {
		return strings.Contains(p.Err.Error(), "upf/upf") && strings.Contains(p.Err.Error(), "y")
	}) {
		t.Errorf("warnings: %v", r.Warnings)
	}
	if _, leaked := old.instance("a").Releases["upf/upf"].Values["kdu_reset_values"]; leaked {
		t.Error("an old server was given a parameter that it doesn't know")
	}
}

func TestInvalidPackageHoldsBackOnlyItsDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osmtest.Options{})
	d := repository(t, map[string]string{
		"a.osmops.yaml":                    file("a", "kdu: {name: upf}"),
		"c.osmops.yaml":                    strings.ReplaceAll(file("c", "kdu: {name: upf}"), "upf_ns", "another_ns"),
		"osm-pkgs/broken_knf/vnfd.yaml":    "vnfd: {id: other_knf}",
		"osm-pkgs/another_ns/osm.nsd.yaml": "nsd: {nsd: [{id: another_ns, vnfd-id: [broken_knf], df: [{vnf-profile: [{id: upf, vnfd-id: broken_knf}]}]}]}",
	})
	before := repository(t, map[string]string{"b.osmops.yaml": file("b", "kdu: {name: upf}")})
	w.policy.Wait = 0
	w.apply(before) // begins to make it
	w.policy.Wait = time.Minute
	r := w.apply(d)
	if got := r.Packages["vnf/broken_knf"]; got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, "deploy/osm-pkgs/broken_knf") || r.Settled() {
		t.Errorf("the package is %+v", got)
	}
	if got := r.Packages["ns/another_ns"]; got.Phase != osm.PhaseProgressing || !strings.Contains(got.Message, "broken_knf") {
		t.Errorf("the next is %+v", got)
	}
	if got := r.Instances["c"]; got.Phase != osm.PhaseStalled || !strings.Contains(got.Message, "another_ns") {
		t.Errorf("what needs it is %+v", got)
	}
	if all := w.server.Instances(); len(all) != 1 || all[0].Name != "a" || all[0].State != "READY" { // one was made, one was removed
		t.Errorf("there are: %+v", all)
	}
}
