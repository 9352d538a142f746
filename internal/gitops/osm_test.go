package gitops_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

// connections returns a directory with the connection file of an OSM, mounted as
// Kubernetes mounts secrets: a link to a link.
func connections(t testing.TB, s *osmtest.Server) string {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..v1"), 0o700); err != nil {
		t.Fatal(err)
	}
	content := fmt.Sprintf("hostname: %s\nuser: admin\npassword: admin\nproject: admin\n", u.Host)
	if err := os.WriteFile(filepath.Join(dir, "..v1", "nbi.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"..data": "..v1", "nbi.yaml": "..data/nbi.yaml"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// osmFiles returns the files of a repository of OSM Ops, without instances.
func osmFiles(connection string) map[string]string {
	return map[string]string{
		"osm_ops_config.yaml":                   "targetDir: deploy\nconnectionFile: " + connection + "\n",
		"deploy/osm-pkgs/upf_knf/upf_vnfd.yaml": "vnfd:\n  id: upf_knf\n  product-name: p\n  kdu:\n  - name: upf\n    helm-chart: ops/upf\n",
		"deploy/osm-pkgs/upf_ns/upf_nsd.yaml": "nsd:\n  nsd:\n  - id: upf_ns\n    name: n\n    vnfd-id: [upf_knf]\n    df:\n    - id: default\n      vnf-profile:\n" +
			"      - {id: upf, vnfd-id: upf_knf}\n",
	}
}

func instanceFile(name, replicas string) string {
	return fmt.Sprintf("kind: NsInstance\nname: %s\nnsdName: upf_ns\nvnfName: upf\nvimAccountName: vim\nkdu:\n  name: upf\n  params: {replicaCount: %q}\n", name, replicas)
}

func osmSpec(t testing.TB, r *repo) gitops.Spec {
	t.Helper()
	s := spec(t, gitops.Settings{Name: "osm", Git: gitops.GitSettings{URL: r.url}})
	s.OSM.Policy.Poll, s.OSM.Policy.Settle, s.OSM.Policy.Retry = 5*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond
	return s
}

// The upgrade of one of ten network services listed all of them: only the one is read.
func TestRevisionThatUpgradesOneServiceReadsNoOthers(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{Delay: 10 * time.Millisecond, Padding: 11_000})
	dir := connections(t, server)
	r := newRepo(t)
	files := osmFiles(filepath.Join(dir, "nbi.yaml"))
	for i := range 10 {
		files[fmt.Sprintf("deploy/s%d.osmops.yaml", i)] = instanceFile(fmt.Sprintf("s%d", i), "1")
	}
	first := r.push(files)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}})
	w.sync("osm", first)
	server.Reset()
	second := r.push(map[string]string{"deploy/s3.osmops.yaml": instanceFile("s3", "2")})
	w.sync("osm", second)
	if s3, _ := server.Instance("s3"); s3.Releases["upf/upf"].Values["replicaCount"] != "2" {
		t.Errorf("s3 is %+v, want replicaCount 2", s3)
	}
	c := server.Counts()
	reads := c.Requests["GET /nslcm/v1/ns_instances"]
	t.Logf("%d requests, %d records of services, %d bytes", c.Total, c.Listed, c.BytesIn+c.BytesOut)
	if c.Listed > reads || c.BytesIn+c.BytesOut > 273_000/4+int64(max(0, reads-4))*12_000 {
		t.Errorf("%d records in %d reads, %d bytes: %v", c.Listed, reads, c.BytesIn+c.BytesOut, c.Requests)
	}
}

// Instances are created, changed and removed as their files in a repository of OSM
// Ops are; each operation and each failure is reported in the status.
func TestNetworkServicesFollowTheRepository(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{Delay: 10 * time.Millisecond})
	dir := connections(t, server)
	r := newRepo(t)
	files := osmFiles(filepath.Join(dir, "nbi.yaml"))
	files["deploy/a.osmops.yaml"], files["deploy/b.osmops.yaml"] = instanceFile("a", "1"), instanceFile("b", "1")
	files["site.yaml"] = site("edge", "")
	first := r.push(files)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}})
	s := w.sync("osm", first)
	a, ok := server.Instance("a")
	if !ok || a.Releases["upf/upf"].Values["replicaCount"] != "1" {
		t.Fatalf("instance a is %+v, want replicaCount 1", a)
	}
	var items []string
	for _, i := range s.Status.Items {
		items = append(items, i.Kind+" "+i.Name+" "+i.Status)
	}
	want := []string{"site edge ", "VnfPackage upf_knf Ready", "NsPackage upf_ns Ready", "NsInstance a Ready", "NsInstance b Ready"}
	if diff := cmp.Diff(want, items); diff != "" {
		t.Error(diff)
	}

	second := r.push(map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "2")})
	w.sync("osm", second)
	after, _ := server.Instance("a")
	if after.ID != a.ID || after.Releases["upf/upf"].Values["replicaCount"] != "2" || after.Releases["upf/upf"].Revision != 2 {
		t.Errorf("instance a is %+v, want replicaCount 2 in revision 2", after)
	}
	if b, _ := server.Instance("b"); b.Releases["upf/upf"].Revision != 1 {
		t.Errorf("instance b was also upgraded: %+v", b)
	}

	// The status reports the results of operations.
	s = w.until("osm", "the upgrade is reported", func(s tko.Source) bool {
		return len(s.Status.Operations) > 1 && s.Status.Operations[0].Verb == "upgraded" // replaces the operation that was started
	})
	var verbs []string
	for _, o := range s.Status.Operations {
		verbs = append(verbs, o.Verb+" "+o.Name)
	}
	if got := strings.Join(verbs, ", "); !strings.HasPrefix(got, "upgraded a, instantiated ") || s.Status.Operations[0].Error != "" {
		t.Errorf("the operations are %s with the error %q, want the upgrade first", got, s.Status.Operations[0].Error)
	}
	server.LCM(func(osmtest.Operation) string { return "timed out" })
	r.push(map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "9")})
	if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
		t.Fatal(err)
	}
	w.until("osm", "the failure is reported", func(s tko.Source) bool {
		return slices.ContainsFunc(s.Status.Operations, func(o tko.SourceOperation) bool {
			return o.Verb == "upgrade" && o.Name == "a" && strings.Contains(o.Error, "timed out")
		})
	})
	server.LCM(nil)
	second = r.push(map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "2")})
	w.sync("osm", second)
	after, _ = server.Instance("a")

	// A revision without changes for OSM costs at most one list of its instances.
	server.Reset()
	third := r.push(map[string]string{"README.md": "x"})
	w.sync("osm", third)
	if n := server.Counts(); n.Total > 1 {
		t.Errorf("a revision without changes for OSM made the requests %v", n.Requests)
	}

	// An invalid package stops the whole revision, in TKO and in OSM.
	vnfd := "deploy/osm-pkgs/upf_knf/upf_vnfd.yaml"
	r.push(map[string]string{vnfd: strings.Replace(files[vnfd], "id: upf_knf", "id: other", 1), "site.yaml": site("other", ""), "deploy/b.osmops.yaml": instanceFile("b", "2")})
	w.refused("osm", tko.SourceReasonInvalid, "deploy/osm-pkgs/upf_knf", "other")
	if b, _ := server.Instance("b"); b.Releases["upf/upf"].Revision != 1 {
		t.Errorf("instance b is %+v, want revision 1", b)
	}
	if diff := cmp.Diff([]string{"site edge 1 gitops:osm"}, w.entities()); diff != "" {
		t.Error(diff)
	}

	// An invalid instance file leaves its instance unchanged; the other files are applied.
	r.push(map[string]string{
		vnfd: files[vnfd], "deploy/a.osmops.yaml": strings.Replace(instanceFile("a", "3"), "vnfName: upf", "vnfName: other", 1),
	})
	w.refused("osm", tko.SourceReasonFailed, "deploy/a.osmops.yaml", "other")
	s = w.until("osm", "instance b is upgraded", func(tko.Source) bool {
		b, _ := server.Instance("b")
		return b.Releases["upf/upf"].Values["replicaCount"] == "2"
	})
	if still, _ := server.Instance("a"); still.Releases["upf/upf"].Revision != after.Releases["upf/upf"].Revision {
		t.Errorf("instance a is %+v, want it unchanged", still)
	}
	if i := s.Status.Items[3]; i.ID != a.ID || !strings.HasPrefix(i.Status, "Stalled: ") {
		t.Errorf("the inventory has %+v for the invalid instance, want it stalled", i)
	}

	// A file that can't be read may be the file of any instance. Until it can be read,
	// no instance is removed.
	r.push(map[string]string{"deploy/a.osmops.yaml": "kind: NsInstance\nname: [\n", "deploy/b.osmops.yaml": "", "deploy/c.osmops.yaml": instanceFile("c", "1")})
	w.refused("osm", tko.SourceReasonInvalid, "deploy/a.osmops.yaml", "nothing is removed until that is corrected")
	w.until("osm", "instance c is created", func(tko.Source) bool {
		c, there := server.Instance("c")
		return there && c.State == "READY"
	})
	if all := server.Instances(); len(all) != 3 {
		t.Errorf("the instances are %+v, want 3", all)
	}
	r.push(map[string]string{"deploy/a.osmops.yaml": "kind: NsInstance\nname: a\n", "deploy/c.osmops.yaml": ""})
	w.refused("osm", tko.SourceReasonInvalid, "deploy/a.osmops.yaml:1: nsdName is missing")
	w.until("osm", "instances without files are removed", func(tko.Source) bool { return len(server.Instances()) == 1 })
	if still, there := server.Instance("a"); !there || still.ID != a.ID {
		t.Errorf("instance a, whose file names it, was also removed: left are %+v", server.Instances())
	}
	r.push(map[string]string{"deploy/b.osmops.yaml": instanceFile("b", "1")})

	fourth := r.push(map[string]string{"deploy/a.osmops.yaml": "", "site.yaml": ""})
	w.sync("osm", fourth)
	if all := server.Instances(); len(all) != 1 || all[0].Name != "b" {
		t.Errorf("left are %+v, want b", all)
	}
	for name := range files {
		r.write(map[string]string{name: ""})
	}
	fifth := r.push(map[string]string{"README.md": "y"})
	if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
		t.Fatal(err)
	}
	s = w.until("osm", "the removal of everything waits, as the marker is gone", func(s tko.Source) bool { return s.Status.PendingRemoval != "" })
	if err := w.controller.Approve(t.Context(), "osm", s.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	s = w.sync("osm", fifth)
	_, vnf := server.Package("vnf", "upf_knf")
	_, ns := server.Package("ns", "upf_ns")
	if len(server.Instances()) > 0 || vnf || ns || len(s.Status.Items) > 0 {
		t.Errorf("left are instances %+v, VNF package %t, NS package %t, items %+v; want none", server.Instances(), vnf, ns, s.Status.Items)
	}
}

// The writers of a repository choose the connection file. It must be in an allowed
// directory, so that they can't make the controller read other files.
func TestConnectionFilesOutsideAllowedDirectoriesAreRefused(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{})
	mine, others := connections(t, server), connections(t, server)
	if err := os.Symlink(filepath.Join(others, "..v1", "nbi.yaml"), filepath.Join(mine, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	r := newRepo(t)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{mine}})
	for why, file := range map[string]string{
		"another directory":           filepath.Join(others, "nbi.yaml"),
		"a path out of the directory": mine + "/../" + filepath.Base(others) + "/nbi.yaml",
		"the directory itself":        mine,
		"a link out of the directory": filepath.Join(mine, "link.yaml"),
		"a system file":               "/etc/passwd",
	} {
		r.push(osmFiles(file))
		if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
			t.Fatal(err)
		}
		s := w.until("osm", why, func(s tko.Source) bool {
			c := ready(s)
			return c.Status == tko.ConditionFalse && strings.Contains(c.Message, "connectionFile "+fmt.Sprintf("%q", file))
		})
		if s.Status.Applied != "" {
			t.Errorf("%s was applied", why)
		}
	}
	if n := server.Counts(); n.Total > 0 {
		t.Errorf("OSM got the requests %v, want none", n.Requests)
	}
}

// Controllers that stop at random moments create no instance twice and lose none,
// even if the response to a request is lost.
func TestRestartedControllerCreatesNoSecondInstance(t *testing.T) {
	t.Parallel()
	const instances = 8
	server := osmtest.Start(t, osmtest.Options{Delay: 5 * time.Millisecond, Pickup: 5 * time.Millisecond})
	dir := connections(t, server)
	c := data(t)
	r := newRepo(t)
	files := osmFiles(filepath.Join(dir, "nbi.yaml"))
	for i := range instances {
		files[fmt.Sprintf("deploy/%d.osmops.yaml", i)] = instanceFile(fmt.Sprint("i", i), "1")
	}
	r.push(files)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 10 {
		if round == 5 {
			for i := range instances {
				files[fmt.Sprintf("deploy/%d.osmops.yaml", i)] = instanceFile(fmt.Sprint("i", i), "2")
			}
			r.push(files)
		}
		runFor(t, c, gitops.Options{Worker: strconv.Itoa(round), Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}, Lease: 200 * time.Millisecond},
			time.Duration(random.Int64N(int64(120*time.Millisecond))))
		noneTwice(t, server)
	}
	w := start(t, c, gitops.Options{Worker: "last", Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}})
	last := r.push(map[string]string{"README.md": "x"})
	w.sync("osm", last)
	noneTwice(t, server)
	for i := range instances {
		got, ok := server.Instance(fmt.Sprint("i", i))
		if !ok || got.Releases["upf/upf"].Values["replicaCount"] != "2" {
			t.Errorf("instance %d is %+v, want replicaCount 2", i, got)
		}
	}
}

// A request may arrive after its controller stopped and the next controller compared
// the repository with OSM. It creates no second instance, because the intent is stored before the request.
func TestLateRequestToOSMCreatesNoSecondInstance(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{})
	held := make(chan struct{})
	var deliver func()
	var asked atomic.Bool
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	network := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost && strings.Contains(q.URL.Path, "/ns_instances") && !asked.Swap(true) {
			body, err := io.ReadAll(q.Body)
			if err != nil {
				t.Error(err)
			}
			late := q.Clone(context.WithoutCancel(q.Context()))
			late.Body = io.NopCloser(bytes.NewReader(body))
			deliver = func() { forward.ServeHTTP(httptest.NewRecorder(), late) }
			close(held)
			<-q.Context().Done() // the controller that sent it has stopped
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, q)
	}))
	t.Cleanup(network.Close)
	dir := connections(t, &osmtest.Server{URL: network.URL})
	c := data(t)
	r := newRepo(t)
	files := osmFiles(filepath.Join(dir, "nbi.yaml"))
	files["deploy/a.osmops.yaml"] = instanceFile("a", "1")
	revision := r.push(files)
	patient := osmSpec(t, r)
	patient.OSM.Policy.Settle = time.Hour // longer than the test on any machine
	options := gitops.Options{Sources: []gitops.Spec{patient}, Connections: []string{dir}, Lease: 200 * time.Millisecond}

	ctx, die := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- gitops.New(&mortal{c, ctx}, options).Run(ctx) }()
	<-held
	die()
	if err := <-first; err != nil {
		t.Error(err)
	}
	options.Lease = 0 // the default: a short one expires on a busy machine
	w := start(t, c, options)
	w.until("osm", "reconciled by the second controller", func(s tko.Source) bool {
		if len(server.Instances()) > 0 {
			return true // too early: noneTwice fails below
		}
		return slices.ContainsFunc(s.Status.Items, func(i tko.SourceItem) bool {
			return i.Kind == "NsInstance" && strings.Contains(i.Status, "it isn't known whether OSM created it")
		})
	})
	deliver()
	w.sync("osm", revision)
	noneTwice(t, server)
	if _, there := server.Instance("a"); !there {
		t.Errorf("the instances are %+v, want a", server.Instances())
	}
}

func noneTwice(t *testing.T, server *osmtest.Server) {
	t.Helper()
	seen := map[string]bool{}
	for _, i := range server.Instances() {
		if seen[i.Name] {
			t.Fatalf("there are two instances %q", i.Name)
		}
		seen[i.Name] = true
	}
}

// previewed returns the network services that a preview says would go, and those that would wait
// for an approval.
func previewed(t *testing.T, w *world, r *repo, connection string) (gone, held []string, p *gitops.Preview) {
	t.Helper()
	o := gitops.PreviewOptions{Name: "osm", Prune: true}
	if connection != "" {
		o.Connection = func() ([]byte, error) { return os.ReadFile(connection) }
	}
	p, err := gitops.PreviewFiles(t.Context(), w.Client, os.DirFS(r.dir), o)
	if err != nil {
		t.Fatal(err)
	}
	if p.OSM == nil {
		return nil, nil, p
	}
	for _, c := range p.OSM.Changes {
		if c.What == "instance" && c.Action == "delete" {
			gone = append(gone, c.Name)
		}
	}
	if p.OSM.Approval != nil {
		held = p.OSM.Approval.Instances
	}
	slices.Sort(gone)
	return gone, held, p
}

// A repository whose marker was moved ends no network service without an approval, however few
// there are, and the plan says so, with and without a connection to the OSM.
func TestRemovedMarkerEndsNothingUnasked(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{})
	dir := connections(t, server)
	r := newRepo(t)
	files := osmFiles(filepath.Join(dir, "nbi.yaml"))
	names := []string{"a", "b", "c"} // within the budget
	for _, name := range names {
		files["deploy/"+name+".osmops.yaml"] = instanceFile(name, "1")
	}
	first := r.push(files)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}})
	w.sync("osm", first)

	r.write(map[string]string{"osm_ops_config.yaml": "", "x.txt": files["osm_ops_config.yaml"]})
	for _, connection := range []string{"", filepath.Join(dir, "nbi.yaml")} {
		gone, held, p := previewed(t, w, r, connection)
		if len(gone) > 0 || !slices.Equal(held, names) || p.Unasked != (connection == "") {
			t.Errorf("connection %q: %q would go, %q wait, unasked %t", connection, gone, held, p.Unasked)
		}
	}
	r.push(nil)
	if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
		t.Fatal(err)
	}
	s := w.until("osm", "the removal waits", func(s tko.Source) bool { return s.Status.PendingRemoval != "" })
	if n := len(server.Instances()); n != 3 {
		t.Fatalf("%d network services run", n)
	}
	if err := w.controller.Approve(t.Context(), "osm", s.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	w.until("osm", "the removal is done", func(tko.Source) bool { return len(server.Instances()) == 0 })
}

// Over random repositories, what the plan says of network services is what the controller does.
func TestPlanSaysWhichNetworkServicesGo(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{})
	dir := connections(t, server)
	connection := filepath.Join(dir, "nbi.yaml")
	r := newRepo(t)
	files := osmFiles(connection)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		files["deploy/"+name+".osmops.yaml"] = instanceFile(name, "1")
	}
	first := r.push(files)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}})
	w.sync("osm", first)
	running := func() (names []string) {
		for _, i := range server.Instances() {
			names = append(names, i.Name)
		}
		slices.Sort(names)
		return names
	}
	random := rand.New(rand.NewPCG(7, 7))
	for step := range 12 {
		next := map[string]string{"README.md": strconv.Itoa(step), "osm_ops_config.yaml": files["osm_ops_config.yaml"]}
		for _, name := range names {
			next["deploy/"+name+".osmops.yaml"] = ""
			if random.IntN(3) > 0 {
				next["deploy/"+name+".osmops.yaml"] = instanceFile(name, strconv.Itoa(1+random.IntN(2)))
			}
		}
		if random.IntN(4) == 0 {
			next["osm_ops_config.yaml"] = ""
		}
		r.write(next)
		before := running()
		recordedGone, recordedHeld, _ := previewed(t, w, r, "")
		gone, held, p := previewed(t, w, r, connection)
		if !slices.Equal(gone, recordedGone) || !slices.Equal(held, recordedHeld) {
			t.Errorf("step %d: with a connection %q go and %q wait, without one %q and %q", step, gone, held, recordedGone, recordedHeld)
		}
		revision := r.push(nil)
		if len(held) > 0 {
			if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
				t.Fatal(err)
			}
			s := w.until("osm", "the removal waits", func(s tko.Source) bool { return s.Status.Attempted == revision && s.Status.PendingRemoval != "" })
			if s.Status.PendingRemoval != p.OSM.Approval.Key || !slices.Equal(running(), before) {
				t.Errorf("step %d: %s is asked for, the plan said %s; %q run after %q", step, s.Status.PendingRemoval, p.OSM.Approval.Key, running(), before)
			}
			continue
		}
		w.sync("osm", revision)
		left := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return slices.Contains(gone, name) })
		for _, c := range p.OSM.Changes {
			if c.What == "instance" && c.Action == "create" {
				left = append(left, c.Name)
			}
		}
		slices.Sort(left)
		if !slices.Equal(running(), left) {
			t.Errorf("step %d: %q run, and the plan said %q", step, running(), left)
		}
	}
}

// While everything is stopped, a source begins no operation in an OSM and changes nothing in TKO;
// while a site is, what it declares for others is applied.
func TestSourcesStandStillWhileStopped(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{})
	dir := connections(t, server)
	r := newRepo(t)
	files := osmFiles(filepath.Join(dir, "nbi.yaml"))
	files["deploy/a.osmops.yaml"] = instanceFile("a", "1")
	files["sites.yaml"] = site("edge", "")
	first := r.push(files)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}})
	w.sync("osm", first)
	stopped := func(stop tko.Stop, files map[string]string) string {
		stop.Reason = "storm"
		status, err := w.Stop(t.Context(), stop)
		if err != nil {
			t.Fatal(err)
		}
		r.push(files)
		if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
			t.Fatal(err)
		}
		w.until("osm", "the stop is reported", func(s tko.Source) bool {
			c := tko.FindCondition(s.Status.Conditions, tko.ConditionReady)
			return c != nil && c.Reason == tko.SourceReasonHeld && strings.Contains(c.Message, "storm")
		})
		return status.Stop.ID
	}
	id := stopped(tko.Stop{All: true}, map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "2")})
	if a, _ := server.Instance("a"); a.Releases["upf/upf"].Values["replicaCount"] != "1" {
		t.Errorf("instance a was changed: %+v", a)
	}
	resume := func(id string) {
		if _, err := w.Resume(t.Context(), tko.Release{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	resume(id)
	w.until("osm", "it goes on at once", func(tko.Source) bool {
		a, _ := server.Instance("a")
		return a.Releases["upf/upf"].Values["replicaCount"] == "2"
	})
	id = stopped(tko.Stop{Sites: []string{"edge"}}, map[string]string{"sites.yaml": "", "others.yaml": site("other", "")})
	if got := strings.Join(w.entities(), ", "); !strings.Contains(got, "edge") || !strings.Contains(got, "other") {
		t.Errorf("there are %s", got)
	}
	resume(id)
	w.until("osm", "the rest follows", func(tko.Source) bool { return !strings.Contains(strings.Join(w.entities(), ", "), "edge") })
}
