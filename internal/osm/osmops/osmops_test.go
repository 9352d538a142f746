package osmops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/osmops"
)

const config = "connectionFile: /etc/osmops/nbi-connection.yaml\n"

const upf = `kind: nsinstance
name: edge-upf-07
description: user plane, site 07
nsdName: upf_ns
vnfName: upf
vimAccountName: site07
kdu:
  name: upf
  params: {replicaCount: "2", deep: {since: 2024-01-02, on: yes, n: 3, f: 0.5, l: [1, {a: b}], nothing: null}}
`

func repository(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

func TestRepositoryOfOSMOpsIsRead(t *testing.T) {
	t.Parallel()
	r, err := osmops.Read(repository(map[string]string{
		"osm_ops_config.yaml":               "targetDir: /deploy/me/\nfileExtensions: [ .ops.yaml , '' ]\nconnectionFile: ' secrets/../nbi.yaml '\nextra: 1\n",
		"other.ops.yaml":                    "not: ours",
		"deploy/me/z.OPS.yaml":              upf,
		"deploy/me/more/a.ops.yaml":         "---\nkind: NsInstance\nname: b\nnsdName: n\nvnfName: v\nvimAccountName: w\nkdu: {name: k, version: 1}\nlabels: {}\n---\nkind: Other\n",
		"deploy/me/x.osmops.yaml":           "not: ours",
		"deploy/me/osm-pkgs/upf_ns/d.yaml":  "nsd: {}",
		"deploy/me/osm-pkgs/upf_knf/d.yaml": "vnfd: {}",
		"deploy/me/osm-pkgs/upf_knf/i/x":    "x",
		"deploy/me/osm-pkgs/README":         "x",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if r.ConnectionFile != "nbi.yaml" {
		t.Errorf("the connection is in %q", r.ConnectionFile)
	}
	want := []osm.Instance{
		{Name: "b", NSD: "n", VIM: "w", Source: "deploy/me/more/a.ops.yaml", VNFs: []osm.VNF{{Member: "v", KDUs: []osm.KDU{{Name: "k"}}}}},
		{
			Name: "edge-upf-07", Description: "user plane, site 07", NSD: "upf_ns", VIM: "site07", Source: "deploy/me/z.OPS.yaml",
			VNFs: []osm.VNF{{Member: "upf", KDUs: []osm.KDU{{Name: "upf", Params: map[string]any{"replicaCount": "2", "deep": map[string]any{
				"since": "2024-01-02", "on": "yes", "n": 3, "f": 0.5, "l": []any{1, map[string]any{"a": "b"}}, "nothing": nil,
			}}}}}},
		},
	}
	if diff := cmp.Diff(want, r.Desired.Instances); diff != "" {
		t.Errorf("instances: -want +got:\n%s", diff)
	}
	var packages []string
	for _, p := range r.Desired.Packages {
		packages = append(packages, fmt.Sprintf("%s %s %s", p.Kind, p.ID, p.Source))
	}
	if diff := cmp.Diff([]string{"vnf upf_knf deploy/me/osm-pkgs/upf_knf", "ns upf_ns deploy/me/osm-pkgs/upf_ns"}, packages); diff != "" {
		t.Errorf("packages: -want +got:\n%s", diff)
	}
	warnings := []string{
		"osm_ops_config.yaml:4: extra is unknown, and ignored",
		"deploy/me/more/a.ops.yaml: only its first document is read: give each instance a file of its own",
		"deploy/me/more/a.ops.yaml:8: labels is unknown, and ignored",
		"deploy/me/more/a.ops.yaml:7: kdu.version is unknown, and ignored",
	}
	if diff := cmp.Diff(warnings, r.Warnings); diff != "" {
		t.Errorf("warnings: -want +got:\n%s", diff)
	}
}

func TestDefaultTargetIsTheRoot(t *testing.T) {
	t.Parallel()
	r, err := osmops.Read(repository(map[string]string{
		"osm_ops_config.yaml": config, "a.osmops.yaml": upf, "b/c.OSMOPS.yml": strings.ReplaceAll(upf, "07", "08"), "d.yaml": "a",
	}))
	if err != nil || len(r.Desired.Instances) != 2 || r.ConnectionFile != "/etc/osmops/nbi-connection.yaml" || len(r.Warnings) > 0 {
		t.Errorf("%v %+v", err, r)
	}
}

func TestInvalidConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		text  []string
	}{
		"no config":               {map[string]string{"a": ""}, []string{"osm_ops_config.yaml is missing"}},
		"an empty config":         {map[string]string{"osm_ops_config.yaml": ""}, []string{"osm_ops_config.yaml: it is empty"}},
		"no connection":           {map[string]string{"osm_ops_config.yaml": "targetDir: a"}, []string{"osm_ops_config.yaml:1: connectionFile is missing"}},
		"a connection outside":    {map[string]string{"osm_ops_config.yaml": "connectionFile: a/../../b"}, []string{"is not in the repository"}},
		"a target outside":        {map[string]string{"osm_ops_config.yaml": config + "targetDir: /a/../../b"}, []string{`targetDir: "/a/../../b" leaves the repository`}},
		"a target that isn't":     {map[string]string{"osm_ops_config.yaml": config + "targetDir: a"}, []string{`there is no folder "a"`}},
		"a target that is a file": {map[string]string{"osm_ops_config.yaml": config + "targetDir: a", "a": ""}, []string{`there is no folder "a"`}},
		"a blank target":          {map[string]string{"osm_ops_config.yaml": config + "targetDir: ' '"}, []string{"osm_ops_config.yaml:2: targetDir is blank"}},
		"extensions that aren't":  {map[string]string{"osm_ops_config.yaml": config + "fileExtensions: .yaml"}, []string{"osm_ops_config.yaml:2: fileExtensions must be a list"}},
		"an unknown package":      {map[string]string{"osm_ops_config.yaml": config, "osm-pkgs/x/y": ""}, []string{"osm-pkgs/x: the name of a package's folder ends with _knf (VNF) or _ns (NS)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := osmops.Read(repository(c.files))
			if !errors.Is(err, tko.ErrInvalid) {
				t.Fatalf("error: %v", err)
			}
			for _, text := range c.text {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in: %v", text, err)
				}
			}
		})
	}
}

// An invalid file of an instance doesn't affect the others.
func TestInvalidInstanceFileIsReportedAndItsInstanceKept(t *testing.T) {
	t.Parallel()
	without := func(field string) string {
		var lines []string
		for l := range strings.SplitSeq(upf, "\n") {
			if !strings.HasPrefix(l, field+":") {
				lines = append(lines, l)
			}
		}
		return strings.Join(lines, "\n")
	}
	for name, c := range map[string]struct {
		file    string
		text    string
		keep    string // the instance in Desired.Keep
		unnamed bool   // everything is
	}{
		"no YAML":                {"a: [\n", "a.osmops.yaml: line ", "", true},
		"nothing":                {"# to be written\n", "a.osmops.yaml: it is empty", "", true},
		"a list":                 {"- a", "a.osmops.yaml:1: it holds no map", "", true},
		"another kind":           {"kind: Pod\nmetadata: {name: a}", `a.osmops.yaml:1: kind is "Pod"`, "", false},
		"another kind, a name":   {strings.ReplaceAll(upf, "nsinstance", "NsInstanse"), `a.osmops.yaml:1: kind is "NsInstanse"`, "edge-upf-07", false},
		"no kind":                {"metadata: {name: a}", `a.osmops.yaml:1: kind is ""`, "", true},
		"a field twice":          {upf + "name: b\n", "a.osmops.yaml:10: name is there twice", "", true},
		"no name":                {without("name"), "a.osmops.yaml:1: name is missing", "", true},
		"no NSD":                 {without("nsdName"), "a.osmops.yaml:1: nsdName is missing", "edge-upf-07", false},
		"no member":              {without("vnfName"), "a.osmops.yaml:1: vnfName is missing", "edge-upf-07", false},
		"no VIM account":         {without("vimAccountName"), "a.osmops.yaml:1: vimAccountName is missing", "edge-upf-07", false},
		"params that are a list": {strings.Split(upf, "  params:")[0] + "  params: [a]\n", "a.osmops.yaml:9: kdu.params must be a map", "edge-upf-07", false},
		"params beyond JSON":     {strings.ReplaceAll(upf, "0.5", ".nan"), "a.osmops.yaml:9: kdu.params has a number that JSON can't represent", "edge-upf-07", false},
		"no KDU":                 {strings.Split(upf, "kdu:")[0], "kdu is missing", "edge-upf-07", false},
		"a KDU without a name":   {strings.Split(upf, "kdu:")[0] + "kdu: {params: {}}", "kdu.name is missing", "edge-upf-07", false},
		"too much":               {strings.Repeat("# x\n", 1<<20+1), "a.osmops.yaml: has more than 4 MiB", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := osmops.Read(repository(map[string]string{"osm_ops_config.yaml": config, "a.osmops.yaml": c.file, "b.osmops.yaml": strings.ReplaceAll(upf, "07", "08")}))
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Desired.Instances) != 1 || r.Desired.Instances[0].Name != "edge-upf-08" {
				t.Errorf("the other file says %+v", r.Desired.Instances)
			}
			if len(r.Unread) != 1 || !errors.Is(r.Unread[0], tko.ErrInvalid) || !strings.Contains(r.Unread[0].Error(), c.text) {
				t.Errorf("unread: %v", r.Unread)
			}
			var keep []string
			if c.keep != "" {
				keep = []string{"instance/" + c.keep}
			}
			if c.unnamed {
				keep = []string{osm.KeepAll}
			}
			if diff := cmp.Diff(keep, r.Desired.Keep); diff != "" {
				t.Errorf("kept: -want +got:\n%s", diff)
			}
		})
	}
}

// With the extension .yaml, files of other kinds match, too.
func TestOtherYAMLFilesOfWideExtensionsAreIgnored(t *testing.T) {
	t.Parallel()
	r, err := osmops.Read(repository(map[string]string{
		"osm_ops_config.yaml":    config + "fileExtensions: [~, ' .yaml ']\n",
		"a.yaml":                 upf,
		"osm-pkgs/upf_ns/d.yaml": "nsd: {}",
		"osm-pkgs/upf_knf/charts/templates/a.yaml": "{{ if .Values.a }}\n",
		"osm-pkgs/upf_knf/b.yaml":                  strings.ReplaceAll(upf, "07", "08"),
		"osm-pkgs/upf_knf/c.yaml":                  "kind: NsInstance\n",
	}))
	if err != nil || len(r.Desired.Instances) != 2 || len(r.Unread) != 1 || !strings.HasPrefix(r.Unread[0].Error(), "osm-pkgs/upf_knf/c.yaml:1: name is missing") {
		t.Errorf("%v %+v", err, r)
	}
}

func TestMergedMapsAndAliasesAreRead(t *testing.T) {
	t.Parallel()
	r, err := osmops.Read(repository(map[string]string{"osm_ops_config.yaml": "x: &x {connectionFile: /a}\n<<: *x\n", "a.osmops.yaml": `
site: &site {vimAccountName: site07, nsdName: other}
when: &when 2024-01-02
all: &all
  <<: *site
  kind: NsInstance
  nsdName: upf_ns
  kdu: &kdu {name: upf, params: &params {a: 1, since: *when, deep: {x: 1}}}
<<: [*all, {vnfName: upf, nsdName: last}]
name: edge-upf-07
kdu:
  <<: *kdu
  params:
    <<: *params
    b: 2
`, "b.osmops.yaml": "a: &a\n  <<: *a\nkind: NsInstance\n<<: *a\n"}))
	if err != nil {
		t.Fatal(err)
	}
	want := []osm.Instance{{
		Name: "edge-upf-07", NSD: "upf_ns", VIM: "site07", Source: "a.osmops.yaml",
		VNFs: []osm.VNF{{Member: "upf", KDUs: []osm.KDU{{Name: "upf", Params: map[string]any{"a": 1, "b": 2, "since": "2024-01-02", "deep": map[string]any{"x": 1}}}}}},
	}}
	if diff := cmp.Diff(want, r.Desired.Instances); diff != "" || r.ConnectionFile != "/a" {
		t.Errorf("%q, -want +got:\n%s", r.ConnectionFile, diff)
	}
	if len(r.Unread) != 1 {
		t.Errorf("unread: %v", r.Unread)
	}
}

func TestConnectionFilesAreRead(t *testing.T) {
	t.Parallel()
	const good = "hostname: nbi.example.com:9999\nuser: u\npassword: ' hunter2 '\nproject: p\n"
	for name, c := range map[string]struct {
		data string
		url  string
		text string // of the error
	}{
		"as it was":       {good, "nbi.example.com:9999", ""},
		"port 80":         {strings.ReplaceAll(good, "9999", "80"), "http://nbi.example.com:80", ""},
		"blanks":          {strings.ReplaceAll(good, "nbi.example.com:9999", "'  nbi.example.com:9999 '"), "nbi.example.com:9999", ""},
		"a root domain":   {strings.ReplaceAll(good, ":9999", ".:09999"), "nbi.example.com.:09999", ""},
		"plain":           {good + "scheme: http", "http://nbi.example.com:9999", ""},
		"an IPv6 address": {strings.ReplaceAll(good, "nbi.example.com", "'[::1]") + "", "", ""},
		"no port":         {strings.ReplaceAll(good, ":9999", ""), "", "hostname must be host:port"},
		"a port too high": {strings.ReplaceAll(good, "9999", "99999"), "", "hostname must be host:port"},
		"a URL":           {strings.ReplaceAll(good, "nbi", "https://nbi"), "", "hostname must be host:port"},
		"no password":     {strings.ReplaceAll(good, "password", "pass"), "", "password is missing"},
		"a bad scheme":    {good + "scheme: ftp", "", "scheme must be https or http"},
		"a bad CA":        {good + "ca: hello", "", "ca must be certificates in PEM"},
		"a bad insecure":  {good + "insecure: maybe", "", "insecure must be true or false"},
		"no map":          {"hunter2", "", "no YAML map"},
		"not even YAML":   {"hunter2: [", "", "no YAML map"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "an IPv6 address" {
				c.data, c.url = strings.ReplaceAll(good, "nbi.example.com:9999", "'[::1]:9999'"), "[::1]:9999"
			}
			got, err := osmops.ParseConnection([]byte(c.data))
			switch {
			case c.text == "" && err != nil, c.text != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), c.text)):
				t.Fatalf("error: %v", err)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("a secret is shown: %v", err)
			case err != nil:
				return
			}
			e := got.Endpoint(nil)
			if password, _ := e.Password(t.Context()); e.URL != c.url || password != " hunter2 " || e.User != "u" || e.Project != "p" {
				t.Errorf("the endpoint is %+v", e)
			}
			e = got.Endpoint(func(context.Context) (osmops.Connection, error) { return osmops.Connection{Password: "new"}, nil })
			if password, _ := e.Password(t.Context()); password != "new" {
				t.Error("a password that changed doesn't count")
			}
		})
	}
}
