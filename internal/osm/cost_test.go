package osm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"testing"
	"testing/fstest"
	"text/tabwriter"
	"time"

	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

// The test compares the requests for a revision with those of OSM Ops. With -v it
// prints the table in docs/performance.md.
func TestCostIsBelowThatOfOSMOps(t *testing.T) {
	t.Parallel()
	const instances, padding = 500, 10_000 // real records of instances have 10 KB and more
	desired := func(changed int) osm.Desired {
		d := osm.Desired{Packages: packages()}
		for i := range instances {
			replicas := 1
			if i < changed {
				replicas = 2
			}
			d.Instances = append(d.Instances, instance(fmt.Sprintf("edge-upf-%03d", i), values("replicaCount", replicas, "kdu_model", "ops/upf:1.4.2")))
		}
		return d
	}
	w := newWorld(t, osmtest.Options{Padding: padding})
	w.quick = true
	w.policy.Poll = 200 * time.Millisecond
	w.policy.InFlight = instances
	theirs := osmtest.Start(t, osmtest.Options{Padding: padding})

	var table bytes.Buffer
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\tTKO: requests\tMB\tOSM Ops: requests\tMB")
	var costs []osmtest.Counts
	for _, c := range []struct {
		name    string
		changed int
	}{{"first sync", 0}, {"unchanged revision", 0}, {"one value of one instance", 1}} {
		w.server.Reset()
		theirs.Reset()
		w.settle(desired(c.changed))
		original(t, theirs.URL, desired(c.changed))
		ours, their := w.server.Counts(), theirs.Counts()
		mb := func(c osmtest.Counts) float64 { return float64(c.BytesIn+c.BytesOut) / 1e6 }
		fmt.Fprintf(out, "%s\t%d\t%.2f\t%d\t%.2f\n", c.name, ours.Total, mb(ours), their.Total, mb(their))
		costs = append(costs, ours)
	}
	_ = out.Flush()
	t.Logf("%d instances:\n%s", instances, table.String())
	if n := costs[1].Total; n != 1 {
		t.Errorf("an unchanged revision costs %d requests", n)
	}
	if n := costs[2].Total; n > 10 {
		t.Errorf("a change of one instance costs %d requests", n)
	}
	if n := costs[0].Total; n > 2*instances+100 { // the record and its instantiation, so that no crash doubles it
		t.Errorf("the first sync costs %d requests", n)
	}
}

// original makes the calls of OSM Ops for a revision.
func original(t *testing.T, url string, d osm.Desired) {
	t.Helper()
	token := ""
	call := func(method, at, contentType string, body []byte, into any) int {
		req, err := http.NewRequestWithContext(t.Context(), method, url+"/osm"+at, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/json")
		req.Header.Set("Content-Type", contentType)
		if contentType == "application/gzip" {
			req.Header.Set("Content-Filename", "package.tar.gz")
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if into != nil {
			if err := json.Unmarshal(data, into); err != nil {
				t.Fatal(err)
			}
		}
		return resp.StatusCode
	}
	const yaml = "application/yaml"
	send := func(at string, body any) {
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if status := call(http.MethodPost, at, yaml, data, nil); status > 299 {
			t.Fatalf("POST %s: %d", at, status)
		}
	}
	var login struct{ ID string }
	call(http.MethodPost, "/admin/v1/tokens", yaml, []byte(`{"username":"admin","password":"admin","project_id":"admin"}`), &login)
	token = login.ID

	type named struct {
		ID         string `json:"_id"`
		Descriptor string `json:"id"`
		Name       string `json:"name"`
	}
	lists := map[string][]named{}
	list := func(at string) []named {
		if _, ok := lists[at]; !ok {
			var all []named
			call(http.MethodGet, at, "", nil, &all)
			lists[at] = all
		}
		return lists[at]
	}
	find := func(all []named, name string) string {
		for _, n := range all {
			if n.Descriptor == name || n.Name == name {
				return n.ID
			}
		}
		return ""
	}
	for _, kind := range []nbi.Kind{nbi.KindVNF, nbi.KindNS} {
		for _, p := range d.Packages {
			if p.Kind != kind {
				continue
			}
			records, content := "/vnfpkgm/v1/vnf_packages_content", "/vnfpkgm/v1/vnf_packages_content"
			if kind == nbi.KindNS {
				records, content = "/nsd/v1/ns_descriptors", "/nsd/v1/ns_descriptors_content"
			}
			if id := find(list(records), p.ID); id != "" {
				data, err := fs.ReadFile(p.Files, p.ID+".yaml")
				if err != nil {
					t.Fatal(err)
				}
				call(http.MethodPut, content+"/"+id, yaml, data, nil)
			} else {
				call(http.MethodPost, content, "application/gzip", archiveOf(t, p), nil)
				delete(lists, records) // more than it does, so that its first sync works
			}
		}
	}
	for _, i := range d.Instances {
		kdu := i.VNFs[0].KDUs[0]
		if id := find(list("/nslcm/v1/ns_instances_content"), i.Name); id != "" {
			send(path.Join("/nslcm/v1/ns_instances", id, "action"), map[string]any{
				"member_vnf_index": i.VNFs[0].Member, "kdu_name": kdu.Name, "primitive": "upgrade", "primitive_params": kdu.Params,
			})
			continue
		}
		send("/nslcm/v1/ns_instances_content", map[string]any{
			"nsName": i.Name, "nsdId": find(list("/nsd/v1/ns_descriptors"), i.NSD), "vimAccountId": find(list("/admin/v1/vim_accounts"), i.VIM), "nsDescription": "x",
			"additionalParamsForVnf": []any{map[string]any{
				"member-vnf-index": i.VNFs[0].Member, "additionalParamsForKdu": []any{map[string]any{"kdu_name": kdu.Name, "additionalParams": kdu.Params}},
			}},
		})
	}
}

func TestArchiveIsDeterministic(t *testing.T) {
	t.Parallel()
	p := vnf("ops/upf")
	first := archiveOf(t, p)
	for _, f := range p.Files.(fstest.MapFS) {
		f.ModTime = time.Now()
	}
	p.Files.(fstest.MapFS)["checksums.txt"] = &fstest.MapFile{Data: []byte("of another client")}
	if !bytes.Equal(first, archiveOf(t, p)) {
		t.Error("two archives of the same files differ")
	}
	if !strings.HasSuffix(string(first[:2]), "\x8b") {
		t.Error("it is no gzip")
	}
}

// archiveOf returns the archive of a package.
func archiveOf(t *testing.T, p bundle.Package) []byte {
	t.Helper()
	c, err := p.Load()
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.Pack(c, false)
	if err != nil {
		t.Fatal(err)
	}
	return a.Data
}
