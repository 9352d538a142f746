package ansible

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/test/process"
	"github.com/tko-orchestrator/tko/test/soak"
)

// inventory is the output of ansible-inventory --list.
type inventory struct {
	Meta struct {
		Hostvars map[string]map[string]any `json:"hostvars"`
	} `json:"_meta"`
	All struct {
		Hosts, Children []string
	} `json:"all"`
}

// untrusted matches the form of texts that Ansible must not evaluate as templates.
var untrusted = regexp.MustCompile(`\{\s*"__ansible_unsafe": ("(?:[^"\\]|\\.)*")\s*\}`)

// list runs ansible-inventory, and returns the hosts by group.
func (c *control) list(source string) (hosts inventory, groups map[string][]string, stderr string) {
	c.t.Helper()
	stdout, stderr, code := c.run("ansible-inventory", "-i", source, "--list", "--export")
	if code != 0 {
		c.t.Fatalf("ansible-inventory: exit code %d: %s", code, stderr)
	}
	stdout = untrusted.ReplaceAllString(stdout, "$1")
	if err := json.Unmarshal([]byte(stdout), &hosts); err != nil {
		c.t.Fatalf("%v: %.1000s", err, stdout)
	}
	var all map[string]struct{ Hosts []string }
	if err := json.Unmarshal([]byte(stdout), &all); err != nil {
		c.t.Fatal(err)
	}
	groups = map[string][]string{}
	for name, g := range all {
		groups[name] = g.Hosts
	}
	return hosts, groups, stderr
}

// registerSites registers n sites, half of them in each of two regions.
func (c *control) registerSites(n int) {
	c.t.Helper()
	client := c.client()
	var wait sync.WaitGroup
	for worker := range 16 {
		wait.Go(func() {
			for i := worker; i < n; i += 16 {
				// "expression" is text: an author of metadata must not run code
				site := tko.Site{ID: tko.SiteID(fmt.Sprintf("edge/%05d", i)), Metadata: map[string]string{
					"region": []string{"west", "east"}[i%2], "address": fmt.Sprintf("10.0.%d.%d", i/256, i%256), "expression": "{{ 1 + 1 }}",
				}}
				if _, err := client.RegisterSite(c.t.Context(), site); err != nil {
					c.t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}

func TestInventoryHasThousandsOfSites(t *testing.T) {
	t.Parallel()
	sites := soak.Rounds(t, 2000, 10_000)
	c := newControl(t)
	c.registerSites(sites)
	source := c.write("sites.tko.yaml", `
plugin: tko.tko.sites
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: `+filepath.Join(c.dir, "cache")+`
compose:
  ansible_host: metadata.address
  copy: metadata.expression
`)
	hosts, groups, _ := c.list(source)
	if n := len(hosts.Meta.Hostvars); n != sites {
		t.Errorf("%d hosts", n)
	}
	if w, e := len(groups["region_west"]), len(groups["region_east"]); w != sites/2 || e != sites/2 {
		t.Errorf("%d hosts in the west, %d in the east", w, e)
	}
	if n := len(hosts.All.Children); n > 10 {
		t.Errorf("%d groups: each address has one", n)
	}
	if vars := hosts.Meta.Hostvars["edge/00258"]; vars["ansible_host"] != "10.0.1.2" || vars["metadata"].(map[string]any)["region"] != "west" || vars["copy"] != "{{ 1 + 1 }}" {
		t.Errorf("variables are %v", vars)
	}

	// a filter of the environment is not served by the cache of all sites
	c.env = []string{"TKO_METADATA_PATTERNS={region: east, address: 10.0.0.*}", "TKO_MAX_COUNT=100"}
	hosts, _, stderr := c.list(source)
	if n := len(hosts.Meta.Hostvars); n != 100 || !strings.Contains(stderr, "TKO_MAX_COUNT") {
		t.Errorf("%d hosts, want 100 and a warning: %s", n, stderr)
	}
	c.env = []string{"TKO_METADATA_PATTERNS={region: east, address: 10.0.0.*}"}
	hosts, _, stderr = c.list(source)
	if len(hosts.Meta.Hostvars) != 128 || strings.Contains(stderr, "TKO_MAX_COUNT") {
		t.Errorf("%d hosts, want 128 without a warning: %s", len(hosts.Meta.Hostvars), stderr)
	}

	// the cache needs no server
	c.env = nil
	c.server.Stop()
	if hosts, _, _ := c.list(source); len(hosts.Meta.Hostvars) != sites {
		t.Errorf("%d hosts from the cache", len(hosts.Meta.Hostvars))
	}
	if _, stderr, code := c.run("ansible-inventory", "-i", source, "--list", "--flush-cache"); !strings.Contains(stderr, "can't be read") {
		t.Errorf("without server and cache: exit code %d: %s", code, stderr)
	}
}

// An inventory script of a user of the SDK runs unchanged.
func TestInventoryScriptRunsUnchanged(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	c.registerSites(20)
	script := c.write("sites.py", "#!"+filepath.Join(process.Ansible(t), "bin", "python3")+`
import tko, tko.ansible

inventory = tko.ansible.Inventory()
with tko.Client(host=tko.ansible.DATA_HOST) as client:
    for listed in client.list_sites(offset=0, max_count=tko.ansible.MAX_COUNT, metadata_patterns=tko.ansible.METADATA_PATTERNS):
        site = client.get_site(listed.siteId).to_ard()
        inventory.add(site.pop("site_id"), site)
inventory.dump()
`)
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	c.env = []string{"TKO_METADATA_PATTERNS={region: we*}", "TKO_MAX_COUNT=7"}
	hosts, _, _ := c.list(script)
	if n := len(hosts.Meta.Hostvars); n != 7 {
		t.Errorf("%d hosts, want 7", n)
	}
	if vars := hosts.Meta.Hostvars["edge/00002"]; vars["metadata"].(map[string]any)["region"] != "west" || vars["updated"] == nil {
		t.Errorf("variables are %v", vars)
	}
}
