package topology_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/krm"
)

const id tko.DeploymentID = "2iWcRJ7nP4nVb9pXGrYwZ3k0abc"

// A data is a data controller with templates and sites that records what it creates.
type data struct {
	templates map[string]map[string]string // ID: metadata
	sites     map[string]map[string]string
	breakList error // after the first element

	mu          sync.Mutex
	batches     []tko.NewChildren
	children    map[string]string // origin: "template at site"
	provisioned map[string]tko.NewSite
	refuse      error
}

func match(metadata, sel map[string]string) bool {
	for key, text := range sel {
		value, ok := metadata[key]
		pattern, err := tko.ParseValuePattern(text)
		if !ok || err != nil || !pattern.Match(value) {
			return false
		}
	}
	return true
}

func list[T any](d *data, all map[string]map[string]string, ids []string, metadata map[string]string, o tko.ListOptions, entity func(string) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		n := 0
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if len(ids) > 0 && !slices.Contains(ids, id) || !match(all[id], metadata) {
				continue
			}
			if o.Window.Max != nil && *o.Window.Max >= 0 && n == *o.Window.Max {
				return
			}
			if n > 0 && d.breakList != nil {
				var none T
				yield(none, d.breakList)
				return
			}
			n++
			if !yield(entity(id), nil) {
				return
			}
		}
	}
}

func (d *data) Templates(_ context.Context, sel tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error] {
	return list(d, d.templates, sel.IDs, sel.Metadata, o, func(id string) tko.Template { return tko.Template{ID: tko.TemplateID(id)} })
}

func (d *data) Sites(_ context.Context, sel tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error] {
	return list(d, d.sites, sel.IDs, sel.Metadata, o, func(id string) tko.Site { return tko.Site{ID: tko.SiteID(id)} })
}

func (d *data) About(context.Context) (tko.About, error) { return tko.About{}, nil }

func (d *data) CreateChildren(_ context.Context, c tko.NewChildren) (ids []tko.DeploymentID, created int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return nil, 0, d.refuse
	}
	if d.children == nil {
		d.children = map[string]string{}
	}
	d.batches = append(d.batches, c)
	for _, child := range c.Children {
		if _, ok := d.children[child.Origin]; !ok {
			created++
		}
		d.children[child.Origin] = fmt.Sprintf("%s at %s", child.Template, child.Site)
		ids = append(ids, tko.DeploymentID(child.Origin))
	}
	return ids, created, nil
}

func (d *data) ProvisionSite(_ context.Context, s tko.NewSite) (id tko.SiteID, created bool, err error) {
	if d.refuse != nil {
		return "", false, d.refuse
	}
	if d.provisioned == nil {
		d.provisioned = map[string]tko.NewSite{}
	}
	_, there := d.provisioned[s.Origin]
	d.provisioned[s.Origin] = s
	return tko.SiteID("provisioned/" + s.Origin), !there, nil
}

// placed returns the children, sorted.
func (d *data) placed() []string { return slices.Sorted(maps.Values(d.children)) }

func world() *data {
	return &data{
		templates: map[string]map[string]string{
			"upf:v1": {"nf": "upf", "version": "1"},
			"upf:v2": {"nf": "upf", "version": "2"},
			"smf:v1": {"nf": "smf", "version": "1"},
		},
		sites: map[string]map[string]string{
			"delhi/1":  {"region": "north", "tier": "edge"},
			"delhi/2":  {"region": "north", "tier": "edge"},
			"mumbai/1": {"region": "west", "tier": "core"},
		},
	}
}

func pkg(t *testing.T, yaml string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(strings.ReplaceAll(yaml, "TOPOLOGY", "topology.nephio.org/v1alpha1")), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// preparable is the function of a preparer with a plugin for the kind Wants only.
func preparable(r krm.Resource) bool {
	if where := r.Annotation(krm.AnnotationPrepare); r.IsPrepared() || where != "" && where != krm.Here {
		return false
	}
	return topology.Prepares(r.GVK()) || r.GVK().Kind == "Wants"
}

func prepare(t *testing.T, d *data, p krm.Package, gvk krm.GVK) (krm.Resource, error) {
	t.Helper()
	preparer := topology.Preparer{Client: d}
	before := p.Clone()
	r, err := preparer.Prepare(t.Context(), topology.Deployment{ID: id, Revision: 7, Package: p, Preparable: preparable}, krm.Identity{GVK: gvk, Name: "it"})
	if diff := cmp.Diff(before, p); diff != "" {
		t.Errorf("the package was changed: %s", diff)
	}
	return r, err
}

func TestSiteResourceResolvesToSite(t *testing.T) {
	tests := map[string]struct {
		why      string
		spec     string
		want     string // status.siteId
		wantErr  string // reason: a part of the message
		provided string // origin of the provisioned site
	}{
		"given": {
			why: "the user knows best", spec: `siteId: mumbai/1`, want: "mumbai/1",
		},
		"given wins": {
			why: "the given site goes before a select", spec: `{siteId: mumbai/1, select: {metadata: {region: north}}, provisionIfNotFound: true}`, want: "mumbai/1",
		},
		"given but not there": {
			why: "nothing is provisioned in place of what was named", spec: `{siteId: nowhere, provisionIfNotFound: true}`, wantErr: `SiteMissing: the site "nowhere" does not exist`,
		},
		"given is a pattern": {
			why: "an ID is no pattern", spec: `{siteId: "mumbai/*"}`, wantErr: `Invalid: has the character`,
		},
		"select": {
			why: "the first by ID", spec: `select: {metadata: {region: n*}}`, want: "delhi/1",
		},
		"select all": {
			why: "all patterns must match", spec: `select: {metadata: {region: north, tier: core}}`, wantErr: `SelectMatchedNothing: no site has metadata that matches region="north", tier="core"`,
		},
		"select before provision": {
			why: "a site that is there is used", spec: `{select: {metadata: {tier: core}}, provisionIfNotFound: true}`, want: "mumbai/1",
		},
		"provision": {
			why: "nothing matches", spec: `{select: {metadata: {tier: far}}, provisionIfNotFound: true}`,
			want: "provisioned/" + string(id) + "/Site/it", provided: string(id) + "/Site/it",
		},
		"provision only": {
			why: "no select means a new one", spec: `{provisionIfNotFound: true, provisionTemplateId: "site:v1"}`,
			want: "provisioned/" + string(id) + "/Site/it", provided: string(id) + "/Site/it",
		},
		"nothing":      {why: "no field names a site", spec: `{}`, wantErr: "Invalid: names no site"},
		"number":       {why: "an ID is a string", spec: `{siteId: 5}`, wantErr: "Invalid: spec.siteId must be a string"},
		"list":         {why: "metadata is a map", spec: `{select: {metadata: [a]}}`, wantErr: "Invalid: spec.select.metadata must be a map"},
		"bool pattern": {why: "a pattern is a string", spec: `{select: {metadata: {a: true}}}`, wantErr: "Invalid: spec.select.metadata.a must be a pattern"},
		"bool as text": {why: "a typo must not be taken for false", spec: `{provisionIfNotFound: "true"}`, wantErr: "Invalid: spec.provisionIfNotFound must be true or false"},
		"merge missing": {
			why: "a reference to nothing is an error", wantErr: `MergeReferenceMissing: spec.merge[0]: there is no v1 ConfigMap "c"`,
			spec: `{provisionIfNotFound: true, merge: [{apiVersion: v1, kind: ConfigMap, name: c}]}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := world()
			p := pkg(t, fmt.Sprintf("{apiVersion: TOPOLOGY, kind: Site, metadata: {name: it}, spec: %s}", inline(test.spec)))
			r, err := prepare(t, d, p, topology.SiteGVK)
			if !checkErr(t, err, test.wantErr) {
				return
			}
			if got := r.Text("status", "siteId"); got != test.want {
				t.Errorf("%s: got %q, want %q", test.why, got, test.want)
			}
			if !r.IsPrepared() {
				t.Error("not marked prepared")
			}
			if got := strings.Join(slices.Collect(maps.Keys(d.provisioned)), " "); got != test.provided {
				t.Errorf("%s: provisioned %q, want %q", test.why, got, test.provided)
			}
		})
	}
}

func inline(spec string) string {
	if strings.HasPrefix(spec, "{") {
		return spec
	}
	return "{" + spec + "}"
}

// checkErr reports whether no error was wanted and there was none. wantErr is
// "reason: a part of the message".
func checkErr(t *testing.T, err error, want string) (ok bool) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	var refusal *topology.Error
	if !errors.As(err, &refusal) {
		t.Fatalf("got the error %v, want %s", err, want)
	}
	got := refusal.Reason + ": " + refusal.Error()
	reason, message, _ := strings.Cut(want, ": ")
	if refusal.Reason != reason || !strings.Contains(refusal.Message, message) {
		t.Errorf("got the error %s, want %s", got, want)
	}
	if refusal.Resource.Name != "it" && !strings.Contains(got, refusal.Resource.String()) {
		t.Errorf("the error doesn't name the resource: %s", got)
	}
	if !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("%v is no ErrInvalid", err)
	}
	return false
}

func TestSiteIsProvisionedOnce(t *testing.T) {
	d := world()
	p := pkg(t, `
apiVersion: TOPOLOGY
kind: Site
metadata: {name: it}
spec:
  provisionIfNotFound: true
  provisionTemplateId: edge:v1
  merge:
  - {apiVersion: v1, kind: ConfigMap, name: c}
  - {apiVersion: a.plugin.nephio.org/v1, kind: Wants, name: w}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: not-merged}}
---
{apiVersion: a.plugin.nephio.org/v1, kind: Wants, metadata: {name: w, annotations: {nephio.org/prepare: Postpone}}}
`)
	if _, err := prepare(t, d, p, topology.SiteGVK); err != nil {
		t.Fatal(err)
	}
	want := map[string]tko.NewSite{string(id) + "/Site/it": {
		Origin:   string(id) + "/Site/it",
		Template: "edge:v1",
		Metadata: map[string]string{"type": "provisioned"},
		Package: pkg(t, `
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
---
{apiVersion: a.plugin.nephio.org/v1, kind: Wants, metadata: {name: w, annotations: {nephio.org/prepare: Here}}}
`),
	}}
	if diff := cmp.Diff(want, d.provisioned); diff != "" {
		t.Error(diff)
	}
}

const parts = `
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: upf}, spec: {templateId: "upf:v1"}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: smf}, spec: {select: {metadata: {nf: smf}}}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: newest}, spec: {select: {metadata: {nf: upf, version: "2"}}}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: gone}, spec: {templateId: "gone:v1"}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: none}, spec: {select: {metadata: {nf: none}}}}
---
{apiVersion: TOPOLOGY, kind: Template, metadata: {name: empty}, spec: {}}
---
{apiVersion: TOPOLOGY, kind: Site, metadata: {name: core, annotations: {nephio.org/prepared: "true"}}, spec: {select: {metadata: {tier: core}}}, status: {siteId: mumbai/1}}
---
{apiVersion: TOPOLOGY, kind: Site, metadata: {name: raw}, spec: {siteId: delhi/1}}
---
{apiVersion: TOPOLOGY, kind: Site, metadata: {name: never, annotations: {nephio.org/prepare: Never}}, spec: {siteId: delhi/1}}
---
{apiVersion: TOPOLOGY, kind: Site, metadata: {name: never-ever, annotations: {nephio.org/prepare: Never}}, spec: {select: {metadata: {tier: core}}}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: edge}, spec: {select: {metadata: {tier: edge}}}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: nowhere}, spec: {select: {metadata: {tier: nowhere}}}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: all}, spec: {select: {all: true}}}
---
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: unsaid}, spec: {}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
---
{apiVersion: a.plugin.nephio.org/v1, kind: Wants, metadata: {name: here}}
---
{apiVersion: a.plugin.nephio.org/v1, kind: Wants, metadata: {name: postponed, annotations: {nephio.org/prepare: Postpone}}}
---
`

func TestPlacementCreatesChildrenOrReportsWhy(t *testing.T) {
	tests := map[string]struct {
		why      string
		spec     string
		want     []string
		wantErr  string
		wantWait string // name of the resource that is waited for
	}{
		"one at one":        {why: "the plainest", spec: `[{template: upf, sites: [core]}]`, want: []string{"upf:v1 at mumbai/1"}},
		"one at many":       {why: "all that match", spec: `[{template: smf, sites: [edge]}]`, want: []string{"smf:v1 at delhi/1", "smf:v1 at delhi/2"}},
		"both kinds":        {why: "Site and Sites mix", spec: `[{template: newest, sites: [core, edge]}]`, want: []string{"upf:v2 at delhi/1", "upf:v2 at delhi/2", "upf:v2 at mumbai/1"}},
		"doubles":           {why: "a site that is named twice gets one child", spec: `[{template: upf, sites: [all, edge, core, core]}]`, want: []string{"upf:v1 at delhi/1", "upf:v1 at delhi/2", "upf:v1 at mumbai/1"}},
		"many templates":    {why: "each entry is its own", spec: `[{template: upf, sites: [core]}, {template: smf, sites: [core]}]`, want: []string{"smf:v1 at mumbai/1", "upf:v1 at mumbai/1"}},
		"equal entries":     {why: "two entries are two children, even if they are equal", spec: `[{template: upf, sites: [core]}, {template: upf, sites: [core]}]`, want: []string{"upf:v1 at mumbai/1", "upf:v1 at mumbai/1"}},
		"nowhere":           {why: "no site today is no error: there may be some tomorrow", spec: `[{template: upf, sites: [nowhere]}]`},
		"no entries":        {why: "nothing to do", spec: `[]`},
		"never prepared":    {why: "a Site that isn't prepared here may still name its site", spec: `[{template: upf, sites: [never]}]`, want: []string{"upf:v1 at delhi/1"}},
		"never resolved":    {why: "its site will never be known", spec: `[{template: upf, sites: [never-ever]}]`, wantErr: "SiteNotPrepared: topology.nephio.org/v1alpha1 Site \"never-ever\" has neither"},
		"waits for site":    {why: "the site isn't known yet", spec: `[{template: upf, sites: [core, raw]}]`, wantWait: "raw"},
		"waits for merge":   {why: "the children get what is prepared", spec: `[{template: upf, sites: [core], merge: [{apiVersion: a.plugin.nephio.org/v1, kind: Wants, name: here}]}]`, wantWait: "here"},
		"postponed merge":   {why: "the children prepare it", spec: `[{template: upf, sites: [core], merge: [{apiVersion: a.plugin.nephio.org/v1, kind: Wants, name: postponed}]}]`, want: []string{"upf:v1 at mumbai/1"}},
		"errors before":     {why: "what is wrong is said before waiting", spec: `[{template: upf, sites: [raw]}, {template: typo, sites: [core]}]`, wantErr: `ReferenceMissing: spec.templates[1].template: there is no Template resource "typo"`},
		"no such site":      {why: "a typo", spec: `[{template: upf, sites: [core, typo]}]`, wantErr: `ReferenceMissing: spec.templates[0].sites[1]: there is no Site or Sites resource "typo"`},
		"no such merge":     {why: "a typo", spec: `[{template: upf, sites: [core], merge: [{apiVersion: v1, kind: ConfigMap, name: typo}]}]`, wantErr: `MergeReferenceMissing: spec.templates[0].merge[0]: there is no v1 ConfigMap "typo"`},
		"half a reference":  {why: "a typo", spec: `[{template: upf, sites: [core], merge: [{apiVersion: v1, name: c}]}]`, wantErr: `Invalid: spec.templates[0].merge[0] must be a reference`},
		"template is gone":  {why: "the ID names nothing", spec: `[{template: gone, sites: [core]}]`, wantErr: `TemplateMissing: the template "gone:v1" does not exist`},
		"no template":       {why: "the select matches nothing", spec: `[{template: none, sites: [core]}]`, wantErr: `SelectMatchedNothing: no template has metadata that matches nf="none"`},
		"template of none":  {why: "neither ID nor select", spec: `[{template: empty, sites: [core]}]`, wantErr: `Invalid: names no template`},
		"sites of none":     {why: "a forgotten select must not be everywhere", spec: `[{template: upf, sites: [unsaid]}]`, wantErr: `Invalid: selects no sites`},
		"entry is no map":   {why: "hostile", spec: `[upf]`, wantErr: `Invalid: spec.templates[0] must be a map`},
		"sites is no list":  {why: "hostile", spec: `[{template: upf, sites: core}]`, wantErr: `Invalid: sites must be a list`},
		"site is no name":   {why: "hostile", spec: `[{template: upf, sites: [5]}]`, wantErr: `Invalid: spec.templates[0].sites[0] must be the name`},
		"template no name":  {why: "hostile", spec: `[{template: {a: b}, sites: [core]}]`, wantErr: `Invalid: spec.templates[0].template must be the name`},
		"templates no list": {why: "hostile", spec: `{a: b}`, wantErr: `Invalid: spec.templates must be a list`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := world()
			p := pkg(t, parts+fmt.Sprintf("{apiVersion: TOPOLOGY, kind: Placement, metadata: {name: it}, spec: {templates: %s}}", test.spec))
			r, err := prepare(t, d, p, topology.PlacementGVK)
			if test.wantWait != "" {
				var wait *topology.WaitError
				if !errors.As(err, &wait) || wait.For.Name != test.wantWait {
					t.Errorf("%s: got %v, want to wait for %q", test.why, err, test.wantWait)
				}
				if len(d.batches) > 0 {
					t.Error("created children while waiting")
				}
				return
			}
			if !checkErr(t, err, test.wantErr) {
				if len(d.batches) > 0 {
					t.Error("created children in spite of the error")
				}
				return
			}
			if diff := cmp.Diff(test.want, d.placed(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: %s", test.why, diff)
			}
			if n, _ := r.Get("status", "deployments"); n != int64(len(test.want)) {
				t.Errorf("status.deployments is %v", n)
			}
			if !r.IsPrepared() {
				t.Error("not marked prepared")
			}
			if _, err := prepare(t, d, p, topology.PlacementGVK); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(test.want, d.placed(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the second run is not the first: %s", diff)
			}
		})
	}
}

func TestPlacementHandsOverTheMergedResources(t *testing.T) {
	d := world()
	p := pkg(t, parts+`
apiVersion: TOPOLOGY
kind: Placement
metadata: {name: it}
spec:
  templates:
  - template: upf
    sites: [core]
    merge:
    - {apiVersion: v1, kind: ConfigMap, name: c}
    - {apiVersion: v1, kind: ConfigMap, name: c}
    - {apiVersion: a.plugin.nephio.org/v1, kind: Wants, name: postponed}
`)
	if _, err := prepare(t, d, p, topology.PlacementGVK); err != nil {
		t.Fatal(err)
	}
	want := pkg(t, `
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
---
{apiVersion: a.plugin.nephio.org/v1, kind: Wants, metadata: {name: postponed, annotations: {nephio.org/prepare: Here}}}
`)
	if diff := cmp.Diff(want, d.batches[0].Merge); diff != "" {
		t.Error(diff)
	}
	if d.batches[0].Parent != id || d.batches[0].Revision != 7 {
		t.Errorf("the children are of %q at %d", d.batches[0].Parent, d.batches[0].Revision)
	}
}

func TestPlacementAtManySitesIsBatched(t *testing.T) {
	d := world()
	for i := range 1234 {
		d.sites[fmt.Sprintf("many/%d", i)] = map[string]string{"tier": "many"}
	}
	p := pkg(t, parts+`
{apiVersion: TOPOLOGY, kind: Sites, metadata: {name: many}, spec: {select: {metadata: {tier: many}}}}
---
{apiVersion: TOPOLOGY, kind: Placement, metadata: {name: it}, spec: {templates: [{template: upf, sites: [many]}]}}
`)
	if _, err := prepare(t, d, p, topology.PlacementGVK); err != nil {
		t.Fatal(err)
	}
	if len(d.children) != 1234 {
		t.Errorf("%d children of 1234", len(d.children))
	}
	for _, b := range d.batches {
		if len(b.Children) > 500 {
			t.Errorf("%d children in one call", len(b.Children))
		}
		for _, c := range b.Children {
			if len(c.Origin) > 200 {
				t.Fatalf("the origin %q is too long", c.Origin)
			}
		}
	}
}

func TestSitesAreReadCompletelyOrNotAtAll(t *testing.T) {
	d := world()
	d.breakList = errors.New("connection reset")
	p := pkg(t, parts+`{apiVersion: TOPOLOGY, kind: Placement, metadata: {name: it}, spec: {templates: [{template: upf, sites: [edge]}]}}`)
	if _, err := prepare(t, d, p, topology.PlacementGVK); !errors.Is(err, d.breakList) {
		t.Errorf("got %v", err)
	}
	if len(d.batches) > 0 {
		t.Error("children were created for a part of the sites")
	}
}

func TestErrorsOfDataControllerArePassedOn(t *testing.T) {
	tests := map[string]struct {
		why     string
		err     error
		refused bool
	}{
		"conflict": {why: "the preparer must look again", err: tko.ErrConflict},
		"busy":     {why: "the preparer must look again", err: tko.ErrBusy},
		"fault":    {why: "nothing is wrong with the resource", err: errors.New("unavailable")},
		"invalid":  {why: "the user must hear what is wrong", err: tko.Errorf(tko.ErrInvalid, "bad"), refused: true},
	}
	placement := parts + `{apiVersion: TOPOLOGY, kind: Placement, metadata: {name: it}, spec: {templates: [{template: upf, sites: [edge]}]}}`
	site := `{apiVersion: TOPOLOGY, kind: Site, metadata: {name: it}, spec: {provisionIfNotFound: true}}`
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for gvk, yaml := range map[krm.GVK]string{topology.PlacementGVK: placement, topology.SiteGVK: site} {
				d := world()
				d.refuse = test.err
				_, err := prepare(t, d, pkg(t, yaml), gvk)
				var refusal *topology.Error
				if errors.As(err, &refusal) != test.refused || !test.refused && !errors.Is(err, test.err) {
					t.Errorf("%s: %s: got %v", test.why, gvk, err)
				}
			}
		})
	}
}

func TestTOSCAIsRefused(t *testing.T) {
	p := pkg(t, `{apiVersion: TOPOLOGY, kind: TOSCA, metadata: {name: it}, spec: {url: "file:///x"}}`)
	_, err := prepare(t, world(), p, topology.TOSCAGVK)
	checkErr(t, err, "NotSupported: can't be prepared by this preparer")
}
