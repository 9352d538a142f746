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

// connections is a folder with the connection file of an OSM, mounted as
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

// osmFiles are a repository of OSM Ops.
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

// The whole life of a repository of OSM Ops: what is pushed is there, what is
// changed changes, what leaves goes.
func TestNetworkServicesFollowTheRepository(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{Delay: 10 * time.Millisecond})
	dir := connections(t, server)
	r := newRepo(t)
	files := osmFiles(filepath.Join(dir, "nbi.yaml"))
	files["deploy/a.osmops.yaml"], files["deploy/b.osmops.yaml"] = instanceFile("a", "1"), instanceFile("b", "1")
	files["site.yaml"] = site("beside", "")
	first := r.push(files)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{dir}})
	s := w.sync("osm", first)
	a, ok := server.Instance("a")
	if !ok || a.Releases["upf/upf"].Values["replicaCount"] != "1" {
		t.Fatalf("the instance is %+v", a)
	}
	var items []string
	for _, i := range s.Status.Items {
		items = append(items, i.Kind+" "+i.Name+" "+i.Status)
	}
	want := []string{"site beside ", "VnfPackage upf_knf Ready", "NsPackage upf_ns Ready", "NsInstance a Ready", "NsInstance b Ready"}
	if diff := cmp.Diff(want, items); diff != "" {
		t.Error(diff)
	}

	second := r.push(map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "2")})
	w.sync("osm", second)
	after, _ := server.Instance("a")
	if after.ID != a.ID || after.Releases["upf/upf"].Values["replicaCount"] != "2" || after.Releases["upf/upf"].Revision != 2 {
		t.Errorf("the instance is %+v", after)
	}
	if b, _ := server.Instance("b"); b.Releases["upf/upf"].Revision != 1 {
		t.Errorf("the other was upgraded, too: %+v", b)
	}

	// How operations end is told.
	s = w.until("osm", "told of the upgrade", func(s tko.Source) bool {
		return len(s.Status.Operations) > 1 && s.Status.Operations[0].Verb == "upgraded" // in place of what was begun
	})
	var verbs []string
	for _, o := range s.Status.Operations {
		verbs = append(verbs, o.Verb+" "+o.Name)
	}
	if got := strings.Join(verbs, ", "); !strings.HasPrefix(got, "upgraded a, instantiated ") || s.Status.Operations[0].Error != "" {
		t.Errorf("operations: %s", got)
	}
	server.LCM(func(osmtest.Operation) string { return "timed out" })
	r.push(map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "9")})
	if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
		t.Fatal(err)
	}
	w.until("osm", "told of the failure", func(s tko.Source) bool {
		return slices.ContainsFunc(s.Status.Operations, func(o tko.SourceOperation) bool {
			return o.Verb == "upgrade" && o.Name == "a" && strings.Contains(o.Error, "timed out")
		})
	})
	server.LCM(nil)
	second = r.push(map[string]string{"deploy/a.osmops.yaml": instanceFile("a", "2")})
	w.sync("osm", second)
	after, _ = server.Instance("a")

	// What isn't changed costs nothing, or a list when it is looked at.
	server.Reset()
	third := r.push(map[string]string{"README.md": "x"})
	w.sync("osm", third)
	if n := server.Counts(); n.Total > 1 {
		t.Errorf("nothing changed for the OSM, and it was asked %v", n.Requests)
	}

	// A package that is wrong stops all of its revision, in TKO and in the OSM.
	vnfd := "deploy/osm-pkgs/upf_knf/upf_vnfd.yaml"
	r.push(map[string]string{vnfd: strings.Replace(files[vnfd], "id: upf_knf", "id: other", 1), "site.yaml": site("other", ""), "deploy/b.osmops.yaml": instanceFile("b", "2")})
	w.refused("osm", tko.SourceReasonInvalid, "deploy/osm-pkgs/upf_knf", "other")
	if b, _ := server.Instance("b"); b.Releases["upf/upf"].Revision != 1 {
		t.Errorf("the instance is %+v", b)
	}
	if diff := cmp.Diff([]string{"site beside 1 gitops:osm"}, w.entities()); diff != "" {
		t.Error(diff)
	}

	// An instance that is wrong stays as it is, and the others go on.
	r.push(map[string]string{
		vnfd: files[vnfd], "deploy/a.osmops.yaml": strings.Replace(instanceFile("a", "3"), "vnfName: upf", "vnfName: other", 1),
	})
	w.refused("osm", tko.SourceReasonFailed, "deploy/a.osmops.yaml", "other")
	s = w.until("osm", "the other is upgraded", func(tko.Source) bool {
		b, _ := server.Instance("b")
		return b.Releases["upf/upf"].Values["replicaCount"] == "2"
	})
	if still, _ := server.Instance("a"); still.Releases["upf/upf"].Revision != after.Releases["upf/upf"].Revision {
		t.Errorf("the instance is %+v", still)
	}
	if i := s.Status.Items[3]; i.ID != a.ID || !strings.HasPrefix(i.Status, "Stalled: ") {
		t.Errorf("the wrong one is told as %+v", i)
	}

	// So does one whose file can't be read. As nobody knows which one it is about,
	// what left stays until it can be.
	r.push(map[string]string{"deploy/a.osmops.yaml": "kind: NsInstance\nname: [\n", "deploy/b.osmops.yaml": "", "deploy/c.osmops.yaml": instanceFile("c", "1")})
	w.refused("osm", tko.SourceReasonInvalid, "deploy/a.osmops.yaml", "nothing is removed until that is corrected")
	w.until("osm", "the other is made", func(tko.Source) bool {
		c, there := server.Instance("c")
		return there && c.State == "READY"
	})
	if all := server.Instances(); len(all) != 3 {
		t.Errorf("there are %+v", all)
	}
	r.push(map[string]string{"deploy/a.osmops.yaml": "kind: NsInstance\nname: a\n", "deploy/c.osmops.yaml": ""})
	w.refused("osm", tko.SourceReasonInvalid, "deploy/a.osmops.yaml:1: nsdName is missing")
	w.until("osm", "what left is gone", func(tko.Source) bool { return len(server.Instances()) == 1 })
	if still, there := server.Instance("a"); !there || still.ID != a.ID {
		t.Errorf("the one whose name is known went, too: %+v", server.Instances())
	}
	r.push(map[string]string{"deploy/b.osmops.yaml": instanceFile("b", "1")})

	fourth := r.push(map[string]string{"deploy/a.osmops.yaml": "", "site.yaml": ""})
	w.sync("osm", fourth)
	if all := server.Instances(); len(all) != 1 || all[0].Name != "b" {
		t.Errorf("left are %+v", all)
	}
	for name := range files {
		r.write(map[string]string{name: ""})
	}
	fifth := r.push(map[string]string{"README.md": "y"})
	s = w.sync("osm", fifth)
	_, vnf := server.Package("vnf", "upf_knf")
	_, ns := server.Package("ns", "upf_ns")
	if len(server.Instances()) > 0 || vnf || ns || len(s.Status.Items) > 0 {
		t.Errorf("left are %+v, packages %t %t, %+v", server.Instances(), vnf, ns, s.Status.Items)
	}
}

// Whoever writes a repository chooses the connection file: it can't be any file.
func TestConnectionFilesOutsideAllowedFoldersAreRefused(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{})
	mine, others := connections(t, server), connections(t, server)
	if err := os.Symlink(filepath.Join(others, "..v1", "nbi.yaml"), filepath.Join(mine, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	r := newRepo(t)
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{osmSpec(t, r)}, Connections: []string{mine}})
	for why, file := range map[string]string{
		"another folder":     filepath.Join(others, "nbi.yaml"),
		"out of the folder":  mine + "/../" + filepath.Base(others) + "/nbi.yaml",
		"the folder itself":  mine,
		"a link that leaves": filepath.Join(mine, "link.yaml"),
		"a system file":      "/etc/passwd",
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
		t.Errorf("the OSM was asked %v", n.Requests)
	}
}

// Controllers that die at random moments create no instance twice and lose none,
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
			t.Errorf("instance %d is %+v", i, got)
		}
	}
}

// A request may arrive after its controller died and the next one compared. It
// creates no second instance, because the intent is stored before the request.
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
			<-q.Context().Done() // who asked is gone
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
	patient.OSM.Policy.Settle = time.Hour // whatever the machine does
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
	w.until("osm", "looked at by the next one", func(s tko.Source) bool {
		if len(server.Instances()) > 0 {
			return true // too early
		}
		return slices.ContainsFunc(s.Status.Items, func(i tko.SourceItem) bool {
			return i.Kind == "NsInstance" && strings.Contains(i.Status, "it isn't known whether OSM did it")
		})
	})
	deliver()
	w.sync("osm", revision)
	noneTwice(t, server)
	if _, there := server.Instance("a"); !there {
		t.Errorf("there are %+v", server.Instances())
	}
}

func noneTwice(t *testing.T, server *osmtest.Server) {
	t.Helper()
	seen := map[string]bool{}
	for _, i := range server.Instances() {
		if seen[i.Name] {
			t.Fatalf("instance %q is there twice", i.Name)
		}
		seen[i.Name] = true
	}
}
