package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

// unknownID is the ID of a deployment that doesn't exist.
const unknownID = "2hSsVGCoZ0BQsmQ3dVNyHxa9cGr"

func TestRenamesAreAppliedByTheMerge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	renamed := func() krm.Package {
		p := pkg(t, thing("before", ""))
		p[0].SetAnnotation(krm.AnnotationRename, "after")
		return p
	}
	w.template("t", "")
	_, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Package: renamed()})
	if err != nil {
		t.Fatal(err)
	}
	site := func(id tko.SiteID) krm.Package {
		s, err := w.Site(w.ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s.Package
	}
	provisioned, _, err := w.ProvisionSite(w.ctx, tko.NewSite{Origin: "o", Package: renamed()})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		why  string
		pkg  krm.Package
		want string
	}{
		"without a template": {
			why:  "without a template, the merge package is the package: a Placement in it refers to its merge resources by their written names",
			pkg:  w.deployment(w.create(tko.NewDeployment{Merge: renamed()})).Package,
			want: "before",
		},
		"with a template":         {why: "it is merged", pkg: w.deployment(w.create(tko.NewDeployment{Template: "t", Merge: renamed()})).Package, want: "after"},
		"site without a template": {why: "the package is the package", pkg: site("s"), want: "before"},
		"provisioned site":        {why: "it is merged from where the site is wanted", pkg: site(provisioned), want: "after"},
	}
	for name, test := range tests {
		if named(test.pkg, test.want) == nil {
			t.Errorf("%s: got %v, want the name %q: %s", name, test.pkg, test.want, test.why)
		}
	}
}

func TestDeploymentIsMadeFromItsTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", "x: 1")+facts("version: one")+state("", "nephio.org/approve: Manual"), "vendor", "v", "tier", "t")
	w.site("s", "")
	w.validator.take()
	parent := w.create(tko.NewDeployment{})
	id := w.create(tko.NewDeployment{
		Parent: parent, Template: "t", Site: "s", Metadata: map[string]string{"tier": "mine"},
		Merge: pkg(t, thing("b", "picky: 1")),
	})
	d := w.deployment(id)
	if d.ID != id || d.Parent != parent || d.Template != "t" || d.Site != "s" || d.Prepared || d.Approved || d.Stamp.Revision != 1 || d.Stamp.UID == "" {
		t.Errorf("%+v: want the fields of the request", d)
	}
	if id <= parent {
		t.Error("IDs must sort in the order of creation")
	}
	want := map[string]string{"vendor": "v", "tier": "mine", "NF.version": "one"}
	if diff := cmp.Diff(want, d.Metadata); diff != "" {
		t.Errorf("template < package < caller (-want +got):\n%s", diff)
	}
	r := deploymentResource(t, d.Package)
	if r.Text("spec", "templateId") != "t" || r.Text("spec", "siteId") != "s" || r.Annotation(krm.AnnotationApprove) != krm.Manual {
		t.Errorf("the Deployment resource is %v: want it in step, with the template's annotations", r)
	}
	if named(d.Package, "a") == nil || named(d.Package, "b") == nil {
		t.Error("want the template's package with the given one merged in")
	}
	for _, v := range w.validator.take() {
		if v.Complete {
			t.Error("an unprepared deployment was validated completely, want partially")
		}
	}
	_, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Prepared: true, Merge: pkg(t, thing("b", "picky: 1"))})
	wantError(t, err, tko.ErrInvalid, "spec.required")
	_, err = w.CreateDeployment(w.ctx, tko.NewDeployment{Merge: pkg(t, thing("b", "picky: 1")+state("", isPrepared))})
	wantError(t, err, tko.ErrInvalid, "spec.required")
}

func TestDeploymentsCannotReferToUnknownEntities(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", "", "from", "t")
	w.site("s", "")
	tests := map[string]struct {
		why     string
		request tko.NewDeployment
		merge   string
		names   string // of the error, if one is wanted
	}{
		"unknown template":                {why: "a deployment starts from its template", request: tko.NewDeployment{Template: "nope"}, names: `template "nope"`},
		"unknown site":                    {why: "a deployment needs an existing site", request: tko.NewDeployment{Site: "nope"}, names: `site "nope"`},
		"unknown parent":                  {why: "a child needs an existing parent", request: tko.NewDeployment{Parent: unknownID}, names: unknownID},
		"a parent that is no ID":          {why: "an invalid ID is an unknown one", request: tko.NewDeployment{Parent: "nope"}, names: `"nope"`},
		"a template that is no ID":        {why: "an invalid ID is an unknown one", request: tko.NewDeployment{Template: "no pe"}, names: `"no pe"`},
		"unknown template in the package": {why: "references to unknown entities are refused", merge: state("templateId: nope", ""), names: `template "nope"`},
		"unknown site in the package":     {why: "references to unknown entities are refused", merge: state("siteId: nope", ""), names: `site "nope"`},
		"a site that is no ID":            {why: "an invalid ID is an unknown one", merge: state(`siteId: "no pe"`, ""), names: `"no pe"`},
		"template and site in the package": {
			why:   "a package sets its site",
			merge: state("templateId: t, siteId: s", ""),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.request.Merge = pkg(t, test.merge)
			id, err := w.CreateDeployment(w.ctx, test.request)
			if test.names != "" {
				wantError(t, err, tko.ErrInvalid, test.names)
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, test.why)
			}
			if d := w.deployment(id); d.Template != "t" || d.Site != "s" || d.Metadata["from"] != "t" {
				t.Errorf("%+v: %s, and metadata comes from that template", d, test.why)
			}
		})
	}
}

func TestOnlyPreparedDeploymentsAreApproved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	unprepared := w.create(tko.NewDeployment{})
	prepared := w.create(tko.NewDeployment{Prepared: true})
	_, err := w.ApproveDeployment(w.ctx, unprepared)
	wantError(t, err, tko.ErrInvalid, string(unprepared), "not prepared")
	_, err = w.ApproveDeployment(w.ctx, unknownID)
	wantError(t, err, tko.ErrNotFound, unknownID)
	for i, want := range []int{1, 0} {
		if got, err := w.ApproveDeployment(w.ctx, prepared); err != nil || got != want {
			t.Errorf("time %d: approved %d, %v: want %d", i+1, got, err, want)
		}
	}
	d := w.deployment(prepared)
	if !d.Approved || d.Stamp.Revision != 2 || deploymentResource(t, d.Package).Annotation(krm.AnnotationApproved) != "true" {
		t.Errorf("%+v: want it approved, in entity and resource, as a revision", d)
	}
	if c := condition(d, tko.ConditionApproved); c.Status != tko.ConditionTrue {
		t.Errorf("the condition is %+v: want it to say so", c)
	}

	var ids []tko.DeploymentID
	for range 3 {
		ids = append(ids, w.create(tko.NewDeployment{Prepared: true, Metadata: map[string]string{"wave": "1"}}))
	}
	wave := tko.DeploymentSelect{Metadata: map[string]string{"wave": "1"}}
	if n, err := w.ApproveDeployments(w.ctx, wave, true); err != nil || n != 3 || w.deployment(ids[0]).Approved {
		t.Errorf("%d, %v: a dry run counts 3 and approves none", n, err)
	}
	m := w.start(ids[1])
	n, err := w.ApproveDeployments(w.ctx, wave, false)
	wantError(t, err, tko.ErrBusy, string(ids[1]))
	if n != 2 || w.deployment(ids[1]).Approved {
		t.Errorf("%d approved: want all but the one that is being modified", n)
	}
	if err := w.CancelModification(w.ctx, m.Token); err != nil {
		t.Fatal(err)
	}
	if n, err := w.ApproveDeployments(w.ctx, wave, false); err != nil || n != 1 {
		t.Errorf("%d, %v: want the last one approved", n, err)
	}
}

func condition(d tko.Deployment, typ string) tko.Condition {
	for _, c := range d.Stamp.Conditions {
		if c.Type == typ {
			return c
		}
	}
	return tko.Condition{}
}

func TestChildrenAreCreatedOncePerOrigin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", ""), "of", "t")
	w.template("u", thing("b", ""))
	for i := range 20 {
		w.site(fmt.Sprintf("s%02d", i), "")
	}
	parent := w.create(tko.NewDeployment{Metadata: map[string]string{"only": "the parent's"}})
	request := tko.NewChildren{Parent: parent, Revision: 1, Merge: pkg(t, thing("m", ""))}
	for i := range 20 {
		for _, template := range []tko.TemplateID{"t", "u"} {
			site := tko.SiteID(fmt.Sprintf("s%02d", i))
			request.Children = append(request.Children, tko.NewChild{Origin: string(template) + "/" + string(site), Template: template, Site: site})
		}
	}
	w.validator.take()
	some := request
	some.Children = request.Children[10:20]
	first, created, err := w.CreateChildren(w.ctx, some)
	if err != nil || created != 10 {
		t.Fatalf("created %d, %v: want 10", created, err)
	}
	if n := len(w.validator.take()); n != 2 {
		t.Errorf("%d validations of 10 children of 2 templates: want 2", n)
	}
	ids, created, err := w.CreateChildren(w.ctx, request)
	if err != nil || created != 30 || len(ids) != 40 {
		t.Fatalf("created %d of %d, %v: want 30 of 40, the others are there", created, len(ids), err)
	}
	if diff := cmp.Diff(first, ids[10:20]); diff != "" {
		t.Errorf("want the IDs of existing children in the order of the request (-want +got):\n%s", diff)
	}
	if fresh := slices.Concat(ids[:10], ids[20:]); !slices.IsSorted(fresh) {
		t.Error("the IDs of new children must ascend in their order")
	}
	d := w.deployment(ids[3])
	if d.Parent != parent || d.Template != "u" || d.Site != "s01" || d.Prepared || named(d.Package, "m") == nil || named(d.Package, "b") == nil {
		t.Errorf("%+v: want the fourth child", d)
	}
	if got := deploymentResource(t, d.Package).Text("spec", "siteId"); got != "s01" {
		t.Errorf("the Deployment resource is at %q: want it in step", got)
	}
	if d.Metadata["only"] != "" || w.deployment(ids[0]).Metadata["of"] != "t" {
		t.Error("children inherit metadata from their template, not from their parent")
	}

	if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: parent, Revision: 1, Package: pkg(t, thing("new", ""))}); err != nil {
		t.Fatal(err)
	}
	request.Children = append(request.Children, tko.NewChild{Origin: "late", Template: "t", Site: "s00"})
	_, _, err = w.CreateChildren(w.ctx, request)
	wantError(t, err, tko.ErrConflict)
}

func TestInvalidChildrenAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", "")
	w.site("s", "")
	parent := w.create(tko.NewDeployment{})
	good := tko.NewChild{Origin: "good", Template: "t", Site: "s"}
	tests := map[string]struct {
		why     string
		request tko.NewChildren
		kind    error
		names   string
	}{
		"unknown template": {
			why:     "all or none: the good one isn't made either",
			request: tko.NewChildren{Parent: parent, Children: []tko.NewChild{good, {Origin: "x", Template: "nope", Site: "s"}}}, kind: tko.ErrInvalid, names: `"nope"`,
		},
		"unknown site": {
			why:     "all or none",
			request: tko.NewChildren{Parent: parent, Children: []tko.NewChild{good, {Origin: "x", Template: "t", Site: "nope"}}}, kind: tko.ErrInvalid, names: `"nope"`,
		},
		"unknown parent": {
			why:     "children need an existing parent",
			request: tko.NewChildren{Parent: unknownID, Children: []tko.NewChild{good}}, kind: tko.ErrInvalid, names: unknownID,
		},
		"a parent that is gone": {
			why:     "the parent has been deleted since the revision: read it again",
			request: tko.NewChildren{Parent: unknownID, Revision: 3, Children: []tko.NewChild{good}}, kind: tko.ErrConflict, names: unknownID,
		},
		"an origin twice": {
			why:     "one origin is one child",
			request: tko.NewChildren{Parent: parent, Children: []tko.NewChild{good, good}}, kind: tko.ErrInvalid, names: `"good"`,
		},
		"no origin": {
			why:     "it could be created again and again",
			request: tko.NewChildren{Parent: parent, Children: []tko.NewChild{{Template: "t"}}}, kind: tko.ErrInvalid, names: "origin",
		},
		"a long origin": {
			why:     "the contract states the limit",
			request: tko.NewChildren{Parent: parent, Children: []tko.NewChild{{Origin: strings.Repeat("o", 201)}}}, kind: tko.ErrInvalid, names: "200",
		},
		"too many": {
			why:     "a transaction has bounds",
			request: tko.NewChildren{Parent: parent, Children: make([]tko.NewChild, catalog.MaxChildren+1)}, kind: tko.ErrInvalid, names: "10000",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := w.CreateChildren(w.ctx, test.request)
			wantError(t, err, test.kind, test.names)
			if n := len(all(t, w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{}))); n != 1 {
				t.Errorf("there are %d deployments: %s", n, test.why)
			}
		})
	}
}

func TestDeletionRemovesReferencesAndDescendants(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", "")
	w.site("s", "")
	parent := w.create(tko.NewDeployment{Template: "t", Site: "s"})
	child := w.create(tko.NewDeployment{Parent: parent, Template: "t", Site: "s", Merge: mustPackage(t, configMap("child"))})
	w.create(tko.NewDeployment{Parent: child})
	other := w.create(tko.NewDeployment{Template: "t", Site: "s"})

	if _, err := w.DeleteSite(w.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	d := w.deployment(other)
	if _, there := deploymentResource(t, d.Package).Get("spec", "siteId"); d.Site != "" || there || d.Template != "t" {
		t.Errorf("%+v: want it to stay, without the site, also in its Deployment resource", d)
	}
	deleted, err := w.PurgeDeployments(w.ctx, tko.DeploymentSelect{Parent: parent}, true)
	if err != nil || deleted != (tko.Deleted{Count: 2, Descendants: 1}) {
		t.Errorf("%+v, %v: a dry run counts the children and their descendants", deleted, err)
	}
	deleted, err = w.DeleteDeployment(w.ctx, parent)
	if err != nil || deleted != (tko.Deleted{Count: 3, Descendants: 2}) {
		t.Errorf("%+v, %v: want the deployment and its two descendants gone", deleted, err)
	}
	_, err = w.Deployment(w.ctx, child, 0)
	wantError(t, err, tko.ErrNotFound, string(child))

	for name, remove := range map[string]func() (tko.Deleted, error){
		"template":        func() (tko.Deleted, error) { return w.DeleteTemplate(w.ctx, "nope") },
		"site":            func() (tko.Deleted, error) { return w.DeleteSite(w.ctx, "nope") },
		"deployment":      func() (tko.Deleted, error) { return w.DeleteDeployment(w.ctx, unknownID) },
		"no deploymentID": func() (tko.Deleted, error) { return w.DeleteDeployment(w.ctx, "nope\x00") },
		"plugin":          func() (tko.Deleted, error) { return w.DeletePlugin(w.ctx, "validate", "nope") },
	} {
		if _, err := remove(); err == nil {
			t.Errorf("%s: deleted an unknown entity", name)
		} else {
			wantError(t, err, tko.ErrNotFound)
		}
	}
}

func TestPurgesDeleteOnlyTheSelected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unconfirmed)
	const n = 600 // more than one batch
	w.each(n, func(i int) error {
		_, err := w.RegisterSite(w.ctx, tko.Site{ID: tko.SiteID(fmt.Sprintf("edge/%03d", i))})
		return err
	})
	w.site("core", "")
	for _, dryRun := range []bool{true, false} {
		deleted, err := w.PurgeSites(w.ctx, tko.SiteSelect{IDs: []string{"edge/*"}}, dryRun)
		if err != nil || deleted != (tko.Deleted{Count: n}) {
			t.Errorf("dry run %t: %+v, %v: want %d", dryRun, deleted, err, n)
		}
	}
	if left := all(t, w.Sites(w.ctx, tko.SiteSelect{}, tko.ListOptions{})); len(left) != 1 || left[0].ID != "core" {
		t.Errorf("%d sites left, want those that were not selected", len(left))
	}
	if deleted, err := w.PurgeTemplates(w.ctx, tko.TemplateSelect{}, false); err != nil || deleted.Count != 0 {
		t.Errorf("%+v, %v: a purge that matches nothing is fine", deleted, err)
	}
	parent := w.create(tko.NewDeployment{})
	w.create(tko.NewDeployment{Parent: parent})
	w.create(tko.NewDeployment{Parent: parent, Metadata: map[string]string{"a": "b"}})
	if deleted, err := w.PurgeDeployments(w.ctx, tko.DeploymentSelect{}, false); err != nil || deleted != (tko.Deleted{Count: 3}) {
		t.Errorf("%+v, %v: all three were selected", deleted, err)
	}
}

func TestListsRefuseBadPatterns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	tests := map[string]struct {
		why   string
		err   func() error
		names string
	}{
		`a \ at the end`: {"it escapes nothing", func() error {
			return firstError(w.Sites(w.ctx, tko.SiteSelect{IDs: []string{`a\`}}, tko.ListOptions{}))
		}, `a\`},
		"in metadata": {"the error names the key", func() error {
			return firstError(w.Templates(w.ctx, tko.TemplateSelect{Metadata: map[string]string{"tier": `\`}}, tko.ListOptions{}))
		}, "tier"},
		"of a template": {"every pattern counts", func() error {
			return firstError(w.Deployments(w.ctx, tko.DeploymentSelect{Templates: []string{`\`}}, tko.ListOptions{}))
		}, "template"},
		"NUL": {"no database has it", func() error {
			return firstError(w.Deployments(w.ctx, tko.DeploymentSelect{SiteMetadata: map[string]string{"a": "\x00"}}, tko.ListOptions{}))
		}, "site metadata"},
		"a plugin's name": {"it is said by itself, not with what we put before it", func() error {
			return firstError(w.Plugins(w.ctx, tko.PluginSelect{Names: []string{`x\`}}, tko.ListOptions{}))
		}, `"x`},
		"a binary cursor": {"cursors are IDs", func() error {
			return firstError(w.Sites(w.ctx, tko.SiteSelect{}, tko.ListOptions{Window: tko.Window{After: "\xff"}}))
		}, "cursor"},
		"in a purge": {"nothing must go", func() error { _, err := w.PurgeSites(w.ctx, tko.SiteSelect{IDs: []string{`\`}}, false); return err }, "site ID"},
		"in an approval": {"nothing must be approved", func() error {
			_, err := w.ApproveDeployments(w.ctx, tko.DeploymentSelect{Sites: []string{`\`}}, false)
			return err
		}, "site ID"},
		"in plugins purge": {"nothing must go", func() error {
			_, err := w.PurgePlugins(w.ctx, tko.PluginSelect{Names: []string{`\`}}, false)
			return err
		}, "plugin name"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { wantError(t, test.err(), tko.ErrInvalid, test.names) })
	}
}

func firstError[T any](list func(func(T, error) bool)) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestListsReturnTheSelected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("nf/upf:v1", "", "vendor", "a")
	w.template("nf/smf:v1", "", "vendor", "b")
	w.site("north/1", "", "tier", "edge")
	w.site("south/1", "", "tier", "core")
	one := w.create(tko.NewDeployment{Template: "nf/upf:v1", Site: "north/1", Prepared: true})
	two := w.create(tko.NewDeployment{Template: "nf/smf:v1", Site: "south/1"})
	three := w.create(tko.NewDeployment{Parent: one, Template: "nf/upf:v1", Site: "south/1"})
	yes, zero, minus := true, 0, -1
	tests := map[string]struct {
		why    string
		sel    tko.DeploymentSelect
		window tko.Window
		want   []tko.DeploymentID
	}{
		"all":                  {why: "sorted by ID", want: []tko.DeploymentID{one, two, three}},
		"ID":                   {why: "a pattern", sel: tko.DeploymentSelect{IDs: []string{string(two)}}, want: []tko.DeploymentID{two}},
		"ID and template":      {why: "all must match", sel: tko.DeploymentSelect{IDs: []string{string(two)}, Templates: []string{"nf/upf:*"}}},
		"template":             {why: "a pattern", sel: tko.DeploymentSelect{Templates: []string{"nf/upf:*"}}, want: []tko.DeploymentID{one, three}},
		"template metadata":    {why: "the metadata of its template", sel: tko.DeploymentSelect{TemplateMetadata: map[string]string{"vendor": "b"}}, want: []tko.DeploymentID{two}},
		"site metadata":        {why: "the metadata of its site", sel: tko.DeploymentSelect{SiteMetadata: map[string]string{"tier": "co*"}}, want: []tko.DeploymentID{two, three}},
		"metadata":             {why: "inherited counts", sel: tko.DeploymentSelect{Metadata: map[string]string{"vendor": "a"}}, want: []tko.DeploymentID{one, three}},
		"parent":               {why: "exactly", sel: tko.DeploymentSelect{Parent: one}, want: []tko.DeploymentID{three}},
		"parent without an ID": {why: "a text that is not an ID has no children", sel: tko.DeploymentSelect{Parent: "nope"}},
		"prepared":             {why: "a flag", sel: tko.DeploymentSelect{Prepared: &yes}, want: []tko.DeploymentID{one}},
		"both":                 {why: "all must match", sel: tko.DeploymentSelect{Sites: []string{"south/*"}, Templates: []string{"nf/upf:*", "**v1"}}, want: []tko.DeploymentID{three}},
		"offset":               {why: "skips", window: tko.Window{Offset: 1, Max: &minus}, want: []tko.DeploymentID{two, three}},
		"no room":              {why: "0 is nothing", window: tko.Window{Max: &zero}},
		"after":                {why: "a cursor", window: tko.Window{After: string(one)}, want: []tko.DeploymentID{two, three}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []tko.DeploymentID
			for _, d := range all(t, w.Deployments(w.ctx, test.sel, tko.ListOptions{Window: test.window, Packages: true})) {
				got = append(got, d.ID)
				if r := deploymentResource(t, d.Package); r.Text("spec", "siteId") != string(d.Site) {
					t.Errorf("%s: its Deployment resource is at %q, it is at %q", d.ID, r.Text("spec", "siteId"), d.Site)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
	sites := all(t, w.Sites(w.ctx, tko.SiteSelect{}, tko.ListOptions{Deployments: true}))
	if len(sites) != 2 || !slices.Equal(sites[1].Deployments, []tko.DeploymentID{two, three}) || sites[0].Package != nil {
		t.Errorf("%+v: want both with their deployments, without packages", sites)
	}
	templates := all(t, w.Templates(w.ctx, tko.TemplateSelect{Metadata: map[string]string{"vendor": "*"}}, tko.ListOptions{}))
	if len(templates) != 2 || templates[0].ID != "nf/smf:v1" {
		t.Errorf("%+v: want both, sorted", templates)
	}
}

// Requests that list and write at the same time must not deadlock.
func TestConcurrentPurgesDontBlockEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unconfirmed)
	w.each(200, func(i int) error {
		_, err := w.RegisterSite(w.ctx, tko.Site{ID: tko.SiteID(fmt.Sprintf("s/%03d", i))})
		return err
	})
	w.many(200, tko.NewDeployment{Prepared: true})
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			if _, err := w.PurgeSites(w.ctx, tko.SiteSelect{}, false); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := w.ApproveDeployments(w.ctx, tko.DeploymentSelect{}, false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	no := false
	if left := all(t, w.Deployments(w.ctx, tko.DeploymentSelect{Approved: &no}, tko.ListOptions{})); len(left) != 0 {
		t.Errorf("%d deployments are not approved", len(left))
	}
	if left := all(t, w.Sites(w.ctx, tko.SiteSelect{}, tko.ListOptions{})); len(left) != 0 {
		t.Errorf("%d sites are left", len(left))
	}
}
