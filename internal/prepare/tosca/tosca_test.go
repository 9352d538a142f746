package tosca

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/krm"
)

func property(name string, value any, meta ...string) Property {
	p := Property{Name: name, Value: value, Metadata: map[string]string{}}
	for i := 0; i < len(meta); i += 2 {
		p.Metadata["nephio."+meta[i]] = meta[i+1]
	}
	return p
}

func host(node string) Requirement {
	return Requirement{Name: "host", Relationship: []string{TypeHost, "x::Near"}, Node: node}
}

func TestServiceBecomesTopologyResources(t *testing.T) {
	t.Parallel()
	site := Node{Name: "here", Types: []string{typeSite}, Properties: []Property{property("id", "lab/1", "target", "siteId")}}
	sites := Node{Name: "all", Types: []string{typeSites, "x::Edges"}, Properties: []Property{property("metadata", map[string]any{"tier": "edge", "count": json.Number("5")})}}
	template := func(name string, requirements []Requirement, properties ...Property) Node {
		return Node{Name: name, Types: []string{typeTemplate, "x::UPF"}, Properties: append([]Property{property("id", "t", "target", "templateId")}, properties...), Requirements: requirements}
	}
	tests := map[string]struct {
		why     string
		nodes   []Node
		want    string
		wantErr string
	}{
		"everything": {
			why: "what the definitions say",
			nodes: []Node{
				sites, site,
				{Name: "other", Types: []string{"x::Database"}},
				template("upf", []Requirement{host("here"), {Name: "db", Relationship: []string{"x::Uses"}, Node: "other"}, host("all")},
					property("replicas", json.Number("3"), "apiVersion", "apps/v1", "kind", "Deployment", "name", "web", "target", "replicas"),
					property("ratio", json.Number("0.5"), "apiVersion", "apps/v1", "kind", "Deployment", "name", "web", "target", "a.b"),
					property("ns", "core", "apiVersion", "workload.plugin.nephio.org/v1alpha1", "kind", "Namespace", "suffix", "-ns", "target", "namespace"),
					property("note", "for people")),
			},
			want: `
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: all}, spec: {select: {metadata: {tier: edge, count: "5"}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: here}, spec: {siteId: lab/1}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: upf}, spec: {templateId: t}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, a: {b: 0.5}}}
---
{apiVersion: workload.plugin.nephio.org/v1alpha1, kind: Namespace, metadata: {name: upf-ns, annotations: {nephio.org/prepare: Postpone}}, spec: {namespace: core}}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec:
  templates:
  - template: upf
    sites: [here, all]
    merge: [{apiVersion: apps/v1, kind: Deployment, name: web}, {apiVersion: workload.plugin.nephio.org/v1alpha1, kind: Namespace, name: upf-ns}]
`,
		},
		"named otherwise": {
			why: "the definition of the template's or site's property may name the resource",
			nodes: []Node{
				{Name: "here", Types: []string{typeSite}, Properties: []Property{
					property("id", "lab/1", "apiVersion", topologyVersion, "kind", "Site", "suffix", "-site", "target", "siteId"),
					property("zone", "z", "apiVersion", "infra.nephio.org/v1", "kind", "Zone", "target", "zone"),
				}},
				{Name: "upf", Types: []string{typeTemplate}, Requirements: []Requirement{host("here")}, Properties: []Property{
					property("id", "t", "apiVersion", topologyVersion, "kind", "Template", "name", "tpl", "target", "templateId"),
				}},
			},
			want: `
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: here-site}, spec: {siteId: lab/1, merge: [{apiVersion: infra.nephio.org/v1, kind: Zone, name: here}]}}
---
{apiVersion: infra.nephio.org/v1, kind: Zone, metadata: {name: here}, spec: {zone: z}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: tpl}, spec: {templateId: t}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: placement}, spec: {templates: [{template: tpl, sites: [here-site]}]}}
`,
		},
		"said twice alike": {
			why: "two nodes may mean the same resource",
			nodes: []Node{
				site,
				template("a", []Requirement{host("here")}, property("v", "x", "apiVersion", "v1", "kind", "ConfigMap", "name", "c", "target", "v")),
				template("b", []Requirement{host("here")}, property("v", "x", "apiVersion", "v1", "kind", "ConfigMap", "name", "c", "target", "v")),
			},
			want: `
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: here}, spec: {siteId: lab/1}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: a}, spec: {templateId: t}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, spec: {v: x}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: b}, spec: {templateId: t}}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec:
  templates:
  - {template: a, sites: [here], merge: [{apiVersion: v1, kind: ConfigMap, name: c}]}
  - {template: b, sites: [here], merge: [{apiVersion: v1, kind: ConfigMap, name: c}]}
`,
		},
		"said twice otherwise": {
			why: "one of them would be lost",
			nodes: []Node{
				site,
				template("a", []Requirement{host("here")}, property("v", "x", "apiVersion", "v1", "kind", "ConfigMap", "name", "c", "target", "v")),
				template("b", []Requirement{host("here")}, property("v", "y", "apiVersion", "v1", "kind", "ConfigMap", "name", "c", "target", "v")),
			},
			wantErr: `node template "b" has the resource v1 ConfigMap "c", which another node template has`,
		},
		"at no site":     {why: "it would have no effect", nodes: []Node{site, template("a", nil)}, wantErr: `node template "a" is at no site`},
		"at no node":     {why: "Puccini leaves it open", nodes: []Node{template("a", []Requirement{host("")})}, wantErr: `"host" names no node template`},
		"at a template":  {why: "a template is no place", nodes: []Node{template("a", []Requirement{host("a")})}, wantErr: `is fulfilled by "a", which is derived from neither`},
		"nothing":        {why: "nothing to do is a mistake", nodes: []Node{site}, wantErr: "nothing to place"},
		"no target":      {why: "the value would be lost", nodes: []Node{template("a", nil, property("v", "x", "apiVersion", "v1", "kind", "ConfigMap"))}, wantErr: `property "v": its definition has no metadata nephio.target`},
		"half a kind":    {why: "a typo", nodes: []Node{template("a", nil, property("v", "x", "kind", "ConfigMap", "target", "v"))}, wantErr: "has one of nephio.apiVersion and nephio.kind"},
		"a bad path":     {why: "a typo", nodes: []Node{template("a", nil, property("v", "x", "target", "a..b"))}, wantErr: `nephio.target is "a..b"`},
		"two names":      {why: "a node is one Template", nodes: []Node{template("a", nil, property("v", "x", "apiVersion", topologyVersion, "kind", "Template", "name", "b", "target", "v"), property("w", "x", "apiVersion", topologyVersion, "kind", "Template", "name", "c", "target", "w"))}, wantErr: "use one name"},
		"a bad selector": {why: "a pattern is a text", nodes: []Node{{Name: "all", Types: []string{typeSites}, Properties: []Property{property("metadata", map[string]any{"a": []any{}})}}}, wantErr: `the pattern of "a" must be a plain value`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := resources(&Service{Nodes: test.nodes})
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) || !errors.Is(err, tko.ErrInvalid) {
					t.Errorf("%s: %v", test.why, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := krm.Decode(krm.YAML, []byte(test.want), krm.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", test.why, diff)
			}
		})
	}
}

func TestFetchCollectsImportsWithinBounds(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 100)
	files := map[string]string{
		"/a/s.yaml":       "imports:\n- b/t.yaml\n- {file: ../u.yaml}\n- long: {url: u.yaml}\n- {namespace_prefix: x, url: 'SERVER/v.yaml'}\n",
		"/a/b/t.yaml":     "imports: [../s.yaml, t.yaml]\n",
		"/u.yaml":         "a: b\n",
		"/a/u.yaml":       "a: b\n",
		"/v.yaml":         "imports: ['w.yaml?q=1']\n",
		"/out.yaml":       "imports: [../../x.yaml]\n",
		"/archive.yaml":   "imports: [x.zip]\n",
		"/elsewhere.yaml": "imports: ['https://127.0.0.1:1/x.yaml']\n",
		"/x.zip":          "PK\x05\x06" + strings.Repeat("\x00", 18),
	}
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.String()
		content, ok := files[r.URL.Path]
		switch {
		case r.URL.Path == "/redirect.yaml":
			http.Redirect(w, r, server.URL+"/u.yaml", http.StatusFound)
		case r.URL.Path == "/w.yaml":
			_, _ = w.Write([]byte("a: b\n"))
		case !ok:
			http.NotFound(w, r)
		default:
			_, _ = w.Write([]byte(strings.ReplaceAll(content, "SERVER", server.URL)))
		}
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")

	got, err := fetch(t.Context(), server.URL+"/a/s.yaml", Schemes, guardOf(t, true))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range got.Files {
		names = append(names, strings.TrimPrefix(name, "/http/"+address))
	}
	slices.Sort(names)
	want := []string{"/a/b/t.yaml", "/a/s.yaml", "/a/u.yaml", "/u.yaml", "/v.yaml", "/w.yaml?q=1"}
	if diff := cmp.Diff(want, names); diff != "" || got.Root != "/http/"+address+"/a/s.yaml" {
		t.Errorf("%s: %s", got.Root, diff)
	}
	if len(requests) != len(want) {
		t.Errorf("%d requests: each file is asked for once", len(requests))
	}

	local := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(local, []byte("imports: ['"+server.URL+"/u.yaml']"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		why      string
		location string
		schemes  []string
		local    bool
		wantErr  error
		says     string
	}{
		"a scheme that isn't allowed": {why: "the operator says", location: local, schemes: []string{"https"}, local: true, wantErr: tko.ErrDenied, says: "may come from https, and not from file"},
		"nor in an import":            {why: "the operator says", location: local, schemes: []string{"file"}, local: true, wantErr: tko.ErrDenied, says: "not from http"},
		"another scheme":              {why: "as the other", location: server.URL + "/elsewhere.yaml", schemes: []string{"http"}, local: true, wantErr: tko.ErrDenied, says: "not from https"},
		"git":                         {why: "as the other", location: server.URL + "/x.git", schemes: []string{"http"}, local: true, wantErr: tko.ErrDenied, says: "not from git"},
		"git on this machine":         {why: "git asks the network, too", location: server.URL + "/x.git", wantErr: nil, says: "--tosca-local-addresses"},
		"git by SSH":                  {why: "nothing guards that", location: "ssh://git@127.0.0.1/x.git", local: true, wantErr: tko.ErrDenied, says: `scheme "ssh" is not allowed`},
		"this machine":                {why: "its services trust it", location: server.URL + "/a/s.yaml", wantErr: nil, says: "--tosca-local-addresses"},
		"by a redirection":            {why: "every connection is guarded", location: server.URL + "/redirect.yaml", wantErr: nil, says: "--tosca-local-addresses"},
		"link-local":                  {why: "where clouds keep secrets", location: "http://169.254.169.254/x.yaml", wantErr: nil, says: "--tosca-local-addresses"},
		"out of the host":             {why: "paths end at the root", location: server.URL + "/out.yaml", local: true, wantErr: tko.ErrInvalid, says: "leads out of"},
		"an archive":                  {why: "an import is a file", location: server.URL + "/archive.yaml", local: true, wantErr: tko.ErrInvalid},
		"a password":                  {why: "packages hold no secrets", location: "http://u:p@" + address + "/a/s.yaml", local: true, wantErr: tko.ErrInvalid, says: "without user"},
		"relative":                    {why: "to what?", location: "s.yaml", wantErr: tko.ErrInvalid, says: "not absolute"},
		"nothing there":               {why: "said by the server", location: server.URL + "/none.yaml", local: true, says: "404"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			schemes := test.schemes
			if schemes == nil {
				schemes = Schemes
			}
			_, err := fetch(t.Context(), test.location, schemes, guardOf(t, test.local))
			if err == nil || test.wantErr != nil && !errors.Is(err, test.wantErr) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", test.why, err)
			}
			if err != nil && strings.Contains(err.Error(), "u:p@") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

// guardOf permits the folders of temporary files, and local addresses if local.
func guardOf(t *testing.T, local bool) *guard.Guard {
	t.Helper()
	o := guard.Options{Schemes: []string{"http", "https"}, Folders: []string{os.TempDir()}, AddressesFlag: "--tosca-local-addresses", FoldersFlag: "--tosca-local"}
	if local {
		o.Addresses = []string{"127.0.0.0/8", "::1"}
	}
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A file outside the permitted folders is refused with the same message whether or not
// it exists.
func TestLocalFilesStayInTheirFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := guard.New(guard.Options{FoldersFlag: "--tosca-local", Folders: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]bool{}
	for _, location := range []string{"there.yaml", "missing.yaml", "there.git", "../there.yaml", "there.yaml!/x", "missing.yaml!/x"} {
		for _, prefix := range []string{"", "file://"} {
			_, err := fetch(t.Context(), prefix+dir+"/"+location, Schemes, g)
			if !errors.Is(err, tko.ErrDenied) {
				t.Errorf("%s: %v", location, err)
				continue
			}
			text := err.Error()
			says[text[strings.LastIndex(text, ": this path"):]] = true
		}
	}
	if len(says) != 1 {
		t.Errorf("there are different words: %v", says)
	}
}

// A compiler that writes without end is ended by the limit of its output, long before that of its time.
func TestCompilerWithTooMuchOutputIsEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), compileTime-time.Second)
	defer cancel()
	_, err := run(ctx, []string{"/bin/sh", "-c", "while :; do printf '%01000000d' 0; done"}, Request{})
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "larger than 32 MiB") {
		t.Errorf("got %v", err)
	}
}
