package gitops_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// osmWorld starts a world with a repository of OSM Ops, and applies its instances with
// these names. It returns the applied revision last.
func osmWorld(t *testing.T, o osmtest.Options, names ...string) (*world, *repo, *osmtest.Server, string) {
	t.Helper()
	server := osmtest.Start(t, o)
	dir := connections(t, server)
	r := newRepo(t)
	files := osmFiles(filepath.Join(dir, "nbi.yaml"))
	for _, name := range names {
		files["deploy/"+name+".osmops.yaml"] = instanceFile(name, "1")
	}
	revision := r.push(files)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}})
	w.sync("osm", revision)
	return w, r, server, revision
}

const (
	vnfdFile = "deploy/osm-pkgs/upf_knf/upf_vnfd.yaml"
	amfVNFD  = "vnfd:\n  id: amf_knf\n  kdu:\n  - name: upf\n    helm-chart: ops/amf\n"
	amfNSD   = "nsd:\n  nsd:\n  - id: amf_ns\n    name: n\n    vnfd-id: [amf_knf]\n    df:\n    - id: default\n      vnf-profile:\n      - {id: upf, vnfd-id: amf_knf}\n"
)

func TestPackageChangeOnALiveOSMDoesNotStopTheSource(t *testing.T) {
	t.Parallel()
	w, r, server, _ := osmWorld(t, osmtest.Options{}, "a", "removed")
	amf := func(name, replicas string) string {
		return strings.Replace(instanceFile(name, replicas), "upf_ns", "amf_ns", 1)
	}
	revision := r.push(map[string]string{
		"deploy/osm-pkgs/amf_knf/vnfd.yaml": amfVNFD, "deploy/osm-pkgs/amf_ns/nsd.yaml": amfNSD, "deploy/c.osmops.yaml": amf("c", "1"),
	})
	w.sync("osm", revision)

	// A change that OSM can merge is applied.
	vnfd := osmFiles("")[vnfdFile]
	revision = r.push(map[string]string{vnfdFile: strings.Replace(vnfd, "product-name: p", "product-name: q", 1)})
	w.sync("osm", revision)
	if p, _ := server.Package("vnf", "upf_knf"); p.Record["product-name"] != "q" {
		t.Errorf("OSM has %v, want product-name q", p.Record)
	}

	// A package change that OSM refuses holds back the instances that need it, and its
	// message names the remedy.
	r.push(map[string]string{
		vnfdFile:                     strings.Replace(vnfd, "- name: upf", "- name: smf", 1),
		"deploy/a.osmops.yaml":       strings.Replace(instanceFile("a", "1"), "  name: upf\n", "  name: smf\n", 1),
		"deploy/removed.osmops.yaml": "",
		"deploy/c.osmops.yaml":       amf("c", "2"),
	})
	w.refused("osm", tko.SourceReasonFailed, "deploy/osm-pkgs/upf_knf", `the KDU "upf" left it`, "software-version", "cannot be modified")
	w.until("osm", "the other instances are applied", func(tko.Source) bool {
		c, _ := server.Instance("c")
		_, there := server.Instance("removed")
		return !there && c.Releases["upf/upf"].Values["replicaCount"] == "2"
	})
	revision = r.push(map[string]string{
		vnfdFile: strings.Replace(vnfd, "product-name: p", "product-name: r", 1), "deploy/a.osmops.yaml": instanceFile("a", "2"),
	})
	w.sync("osm", revision)
	if a, _ := server.Instance("a"); a.Releases["upf/upf"].Values["replicaCount"] != "2" {
		t.Errorf("instance a is %+v, want replicaCount 2", a)
	}
}

func TestSyncComparesWithOSM(t *testing.T) {
	t.Parallel()
	w, _, server, _ := osmWorld(t, osmtest.Options{}, "a")
	before, _ := server.Instance("a")
	w.until("osm", "settled", func(s tko.Source) bool { return !s.Enqueued })
	server.Vanish("a")
	if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
		t.Fatal(err)
	}
	s := w.until("osm", "reconciled", func(s tko.Source) bool { return !s.Enqueued && ready(s).Status == tko.ConditionTrue })
	if after, there := server.Instance("a"); !there || after.ID == before.ID {
		t.Errorf("the source is ready with the instances %+v, want a new a; its conditions are %+v", server.Instances(), s.Status.Conditions)
	}
}

func TestWarningAboutChartVersionsStaysInTheStatus(t *testing.T) {
	t.Parallel()
	w, r, _, revision := osmWorld(t, osmtest.Options{}, "a", "b", "c", "d", "e", "f", "g")
	const want = `NsInstance "a", "b", "c", "d", "e", and 2 more: the chart of upf/upf has no version`
	warned := func(s tko.Source) bool {
		return slices.ContainsFunc(s.Status.Messages, func(m string) bool { return strings.HasPrefix(m, want) })
	}
	for range 2 {
		if s := w.sync("osm", revision); !warned(s) {
			w.until("osm", "the warning is in the status", warned)
		}
	}
	revision = r.push(map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "2")})
	for range 2 {
		if s := w.sync("osm", revision); !warned(s) {
			t.Errorf("the messages are %q, want the warning", s.Status.Messages)
		}
		w.until("osm", "settled", func(s tko.Source) bool { return !s.Enqueued })
	}
}

// operations returns a line for each operation of an instance, the newest first.
func operations(s tko.Source) (all []string) {
	for _, o := range s.Status.Operations {
		if o.Kind == "NsInstance" {
			line := o.Verb + " " + o.Name
			if o.Error != "" {
				line += ": failed"
			}
			all = append(all, line)
		}
	}
	return all
}

func TestOperationsListEachChangeOnceWithRefusals(t *testing.T) {
	t.Parallel()
	w, r, server, _ := osmWorld(t, osmtest.Options{Delay: 5 * time.Millisecond}, "a", "b")
	revision := r.push(map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "2"), "deploy/b.osmops.yaml": ""})
	s := w.sync("osm", revision)
	got := operations(s)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"instantiated a", "instantiated b", "removed b", "upgraded a"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	r.push(map[string]string{"deploy/c.osmops.yaml": strings.Replace(instanceFile("c", "1"), "vimAccountName: vim", "vimAccountName: nowhere", 1)})
	w.refused("osm", tko.SourceReasonFailed, `OSM has no VIM accounts that are called "nowhere"`)
	server.Reset()
	eventually.True(t, "the creation is retried", func() bool { return server.Counts().Requests["GET /admin/v1/vim_accounts"] > 6 })
	s, err := w.Source(t.Context(), "osm")
	if err != nil {
		t.Fatal(err)
	}
	if got := operations(s); got[0] != "create c: failed" || slices.Contains(got[1:], got[0]) {
		t.Errorf("the operations are %q, want the failed creation once, first", got)
	}
}

// The upgrade of one of ten network services, whose records have 11 kB as those of a real OSM,
// took two lists of all of them: 224 of 273 kB. It is to take a quarter at the most.
func TestRevisionThatUpgradesOneServiceReadsNoOthers(t *testing.T) {
	t.Parallel()
	const services, limit, record = 10, 273_000 / 4, 12_000
	var names []string
	for i := range services {
		names = append(names, fmt.Sprintf("i%02d", i))
	}
	w, r, server, _ := osmWorld(t, osmtest.Options{Delay: 20 * time.Millisecond, Padding: 11_000}, names...)
	for _, replicas := range []string{"2", "3"} { // also after an upgrade that read one only
		w.until("osm", "settled", func(s tko.Source) bool { return !s.Enqueued })
		server.Reset()
		w.sync("osm", r.push(map[string]string{"deploy/i07.osmops.yaml": instanceFile("i07", replicas)}))
		if got, _ := server.Instance("i07"); got.Releases["upf/upf"].Values["replicaCount"] != replicas {
			t.Errorf("instance i07 is %+v, want replicaCount %s", got, replicas)
		}
		c := server.Counts()
		reads := c.Requests["GET /nslcm/v1/ns_instances"]
		bytes := c.BytesIn + c.BytesOut
		t.Logf("%d requests, %d records of services, %d bytes: %v", c.Total, c.Listed, bytes, c.Requests)
		polls := int64(max(0, reads-4)) * record // as long as the upgrade lasts on a busy machine
		if c.Listed > reads || bytes-polls > limit {
			t.Errorf("%d records in %d reads, %d bytes, want a record in each, and %d bytes: %v", c.Listed, reads, bytes, limit, c.Requests)
		}
	}

	// What another client breaks is found by a sync of a revision that changes nothing, and then
	// with each change.
	w.until("osm", "settled", func(s tko.Source) bool { return !s.Enqueued })
	server.Vanish("i05")
	if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
		t.Fatal(err)
	}
	w.until("osm", "the service that vanished is there again", func(tko.Source) bool {
		_, there := server.Instance("i05")
		return there
	})
}

// A source that begins anew, such as one whose GitRepository was deleted and created again, takes
// over the packages that OSM has with the same content, and sends none.
func TestNewSourceSendsNoPackagesThatOSMHas(t *testing.T) {
	t.Parallel()
	_, r, server, _ := osmWorld(t, osmtest.Options{}, "a")
	sent := func() (n int) {
		for request, count := range server.Counts().Requests {
			if !strings.HasPrefix(request, "GET") && (strings.Contains(request, "vnfpkgm") || strings.Contains(request, "/nsd/")) {
				n += count
			}
		}
		return n
	}
	if sent() == 0 {
		t.Fatal("the test doesn't see that packages are sent")
	}
	server.Reset()
	dir := connections(t, server)
	again := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}})
	revision := r.push(map[string]string{"osm_ops_config.yaml": osmFiles(filepath.Join(dir, "nbi.yaml"))["osm_ops_config.yaml"]})
	again.sync("osm", revision)
	c := server.Counts()
	t.Logf("%d requests, %d bytes: %v", c.Total, c.BytesIn+c.BytesOut, c.Requests)
	if n := sent(); n > 0 {
		t.Errorf("%d packages were sent again: %v", n, c.Requests)
	}
	if got, _ := server.Instance("a"); len(server.Instances()) != 1 || c.Requests["POST /nslcm/v1/ns_instances_content"] > 0 || got.Name != "a" {
		t.Errorf("the instances are %+v", server.Instances())
	}
}

// While a change is under way, only the instances under way are read again.
func TestAllInstancesAreListedOncePerChange(t *testing.T) {
	t.Parallel()
	const instances = 20
	var names []string
	for i := range instances {
		names = append(names, fmt.Sprintf("i%02d", i))
	}
	w, r, server, _ := osmWorld(t, osmtest.Options{Delay: 50 * time.Millisecond}, names...)
	w.until("osm", "settled", func(s tko.Source) bool { return !s.Enqueued })
	server.Reset()
	revision := r.push(map[string]string{"deploy/i07.osmops.yaml": instanceFile("i07", "2")})
	w.sync("osm", revision)
	n := server.Counts()
	lists := n.Requests["GET /nslcm/v1/ns_instances"]
	if n.Listed > instances+lists-1 || lists < 2 {
		t.Errorf("%d instances were listed in %d lists; want each once, and then the changed one only", n.Listed, lists)
	}
	if got, _ := server.Instance("i07"); got.Releases["upf/upf"].Values["replicaCount"] != "2" {
		t.Errorf("instance i07 is %+v, want replicaCount 2", got)
	}
}

// The condition names the first failing instances and counts the others: the inventory has
// the problem of each.
func TestAllFailingInstancesAreReported(t *testing.T) {
	t.Parallel()
	w, r, _, _ := osmWorld(t, osmtest.Options{}, "a")
	files := map[string]string{}
	for i := range 9 {
		name := fmt.Sprintf("bad%d", i)
		files["deploy/"+name+".osmops.yaml"] = strings.Replace(instanceFile(name, "1"), "vnfName: upf", "vnfName: other", 1)
	}
	r.push(files)
	w.refused("osm", tko.SourceReasonFailed, "deploy/bad0.osmops.yaml", "deploy/bad2.osmops.yaml", "and 6 more")
	s, err := w.Source(t.Context(), "osm")
	if err != nil {
		t.Fatal(err)
	}
	failing := 0
	for _, item := range s.Status.Items {
		if strings.Contains(item.Status, "deploy/"+item.Name+".osmops.yaml") {
			failing++
		}
	}
	if failing != 9 {
		t.Errorf("the inventory has the problems of %d instances: want 9", failing)
	}
}

func TestListFitsIntoItsLimit(t *testing.T) {
	t.Parallel()
	many := strings.Split(strings.Repeat("a problem,", 1000), ",")[:1000]
	for name, c := range map[string]struct {
		texts []string
		limit int
		want  string
	}{
		"all":            {[]string{"a", "b"}, 100, "a; b"},
		"none":           {nil, 100, ""},
		"just fits":      {[]string{strings.Repeat("a", 48), strings.Repeat("b", 50)}, 100, strings.Repeat("a", 48) + "; " + strings.Repeat("b", 50)},
		"one too long":   {[]string{strings.Repeat("a", 200)}, 100, strings.Repeat("a", 79) + "…"},
		"first too long": {[]string{strings.Repeat("a", 200), "b"}, 100, strings.Repeat("a", 79) + "…; and 1 more"},
		"too many":       {many, 100, strings.Repeat("a problem; ", 7) + "and 993 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, gitops.List(c.texts, "; ", c.limit)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
