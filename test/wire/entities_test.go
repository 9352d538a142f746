package wire

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tko-orchestrator/tko/test/wire/contractpb"
)

func TestAboutDescribesServer(t *testing.T) {
	t.Parallel()
	p := serve(t, "--instance-name=wire", "--instance-description=a test")
	about := must[*contractpb.AboutResponse](t)(p.About(t.Context(), &emptypb.Empty{}))
	if about.GetInstanceName() != "wire" || about.GetInstanceDescription() != "a test" {
		t.Errorf("instance is %q, %q", about.GetInstanceName(), about.GetInstanceDescription())
	}
	if about.GetTkoVersion() == "" || about.GetBackend() == "" || len(about.GetAddressPorts()) == 0 {
		t.Errorf("version, backend or addresses are empty: %v", about)
	}
	if about.GetDefaultPackageFormat() != "cbor" {
		t.Errorf("default package format is %q, want cbor", about.GetDefaultPackageFormat())
	}
	health, err := healthpb.NewHealthClient(p.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "tko.Data"})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health is %v, %v", health, err)
	}
}

// The names of the methods on the wire, which existing clients use.
func TestMethodNamesAreStable(t *testing.T) {
	t.Parallel()
	p := serve(t)
	var about contractpb.AboutResponse
	if err := p.conn.Invoke(t.Context(), "/tko.Data/about", &emptypb.Empty{}, &about); err != nil {
		t.Error(err)
	}
	wantCode(t, p.conn.Invoke(t.Context(), "/tko.Data/About", &emptypb.Empty{}, &about), codes.Unimplemented)
}

// IDs that are always invalid.
var badIDs = []string{"", " ", "a b", "a*", `a\`, "ä", "a\n", "a|b", "a@b", "a\x00"}

func recent(t *testing.T, what string, stamp *timestamppb.Timestamp) {
	t.Helper()
	if age := time.Since(stamp.AsTime()); age > 5*time.Minute || age < -time.Minute {
		t.Errorf("%s is %s, want the current time", what, stamp.AsTime())
	}
}

func TestTemplateLifecycle(t *testing.T) {
	t.Parallel()
	p := serve(t)
	metadata := map[string]string{"vendor": "acme", "a.b/c d": "ü = *"}
	p.registerTemplate(t, "nf/upf:v1.0", metadata, partial(), facts("NetworkFunction", map[string]any{"variant": map[string]any{"version": "7"}}))

	want := map[string]string{"vendor": "acme", "a.b/c d": "ü = *", "NetworkFunction.variant.version": "7"}
	got := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "nf/upf:v1.0"}))
	if got.GetTemplateId() != "nf/upf:v1.0" || got.GetPackageFormat() != "cbor" {
		t.Errorf("got template %q in %q", got.GetTemplateId(), got.GetPackageFormat())
	}
	if diff := cmp.Diff(want, got.GetMetadata()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	find(t, fromCBOR(t, got.GetPackage()), "Deployment", "partial")
	recent(t, "updated", got.GetUpdated())

	rows := must[[]*contractpb.ListedTemplate](t)(all(p.ListTemplates(t.Context(), &contractpb.ListTemplates{})))
	if len(rows) != 1 || rows[0].GetTemplateId() != "nf/upf:v1.0" || !rows[0].GetUpdated().AsTime().Equal(got.GetUpdated().AsTime()) {
		t.Errorf("listed %v", rows)
	} else if diff := cmp.Diff(want, rows[0].GetMetadata()); diff != "" {
		t.Errorf("get and list disagree in metadata (-want +got):\n%s", diff)
	}

	// Deployments stay associated with a template that is registered again.
	id := p.createDeployment(t, &contractpb.CreateDeployment{TemplateId: "nf/upf:v1.0"})
	p.registerTemplate(t, "nf/upf:v1.0", nil, configMap("new", nil))
	got = must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "nf/upf:v1.0"}))
	if !slices.Equal(got.GetDeploymentIds(), []string{id}) {
		t.Errorf("deployments after rewriting: %q, want %q", got.GetDeploymentIds(), id)
	}
	if len(got.GetMetadata()) != 0 {
		t.Errorf("metadata after rewriting without: %v", got.GetMetadata())
	}
	if resources := fromCBOR(t, got.GetPackage()); len(resources) != 1 {
		t.Errorf("package after rewriting: %v", resources)
	}
	rows = must[[]*contractpb.ListedTemplate](t)(all(p.ListTemplates(t.Context(), &contractpb.ListTemplates{})))
	if len(rows) != 1 || !slices.Equal(rows[0].GetDeploymentIds(), []string{id}) {
		t.Errorf("listed %v, want deployment %q", rows, id)
	}

	// After the template's deletion, its deployment no longer names it, and can still
	// be modified.
	deleted := must[*contractpb.DeleteResponse](t)(p.DeleteTemplate(t.Context(), &contractpb.TemplateID{TemplateId: "nf/upf:v1.0"}))
	if !deleted.GetDeleted() || deleted.GetNotDeletedReason() != "" {
		t.Errorf("answer to delete is %v", deleted)
	}
	d, resources := p.getDeployment(t, id)
	if d.GetTemplateId() != "" || at(find(t, resources, "Deployment", "deployment"), "spec", "templateId") != nil {
		t.Errorf("deployment still names the template: %v, %v", d.GetTemplateId(), resources)
	}
	p.modify(t, id, func(resources []resource) []resource { return append(resources, configMap("more", nil)) })

	_, err := p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "nf/upf:v1.0"})
	wantCode(t, err, codes.NotFound)
	_, err = p.DeleteTemplate(t.Context(), &contractpb.TemplateID{TemplateId: "nf/upf:v1.0"})
	wantCode(t, err, codes.NotFound)

	for _, id := range badIDs {
		_, err := p.RegisterTemplate(t.Context(), &contractpb.Template{TemplateId: id})
		wantCode(t, err, codes.InvalidArgument)
	}
	_, err = p.RegisterTemplate(t.Context(), &contractpb.Template{TemplateId: "wrong", Package: toYAML(t, wrong())})
	wantCode(t, err, codes.InvalidArgument)
	if rows := must[[]*contractpb.ListedTemplate](t)(all(p.ListTemplates(t.Context(), &contractpb.ListTemplates{}))); len(rows) != 0 {
		t.Errorf("rejected entities exist: %v", rows)
	}
}

func TestSiteLifecycle(t *testing.T) {
	t.Parallel()
	p := serve(t)
	p.registerTemplate(t, "base", map[string]string{"tier": "edge", "cloud": "red"}, configMap("base", map[string]any{"a": "1"}), configMap("both", map[string]any{"b": "template"}))
	p.registerSite(t, "region/one", "base", map[string]string{"cloud": "blue"}, configMap("both", map[string]any{"b": "site"}), configMap("own", nil))

	got := must[*contractpb.Site](t)(p.GetSite(t.Context(), &contractpb.GetSite{SiteId: "region/one", PreferredPackageFormat: "yaml"}))
	if got.GetSiteId() != "region/one" || got.GetTemplateId() != "base" || got.GetPackageFormat() != "yaml" {
		t.Errorf("got site %q of %q in %q", got.GetSiteId(), got.GetTemplateId(), got.GetPackageFormat())
	}
	recent(t, "updated", got.GetUpdated())
	want := map[string]string{"tier": "edge", "cloud": "blue"}
	if diff := cmp.Diff(want, got.GetMetadata()); diff != "" {
		t.Errorf("metadata starts from the template's, and what is passed wins (-want +got):\n%s", diff)
	}
	resources := fromYAML(t, got.GetPackage())
	find(t, resources, "ConfigMap", "base")
	find(t, resources, "ConfigMap", "own")
	if b := at(find(t, resources, "ConfigMap", "both"), "data", "b"); b != "site" {
		t.Errorf("the site's resource does not replace the template's: %v", b)
	}

	id := p.createDeployment(t, &contractpb.CreateDeployment{SiteId: "region/one", MergePackage: toYAML(t, configMap("x", nil))})
	p.registerSite(t, "region/one", "", nil)
	got = must[*contractpb.Site](t)(p.GetSite(t.Context(), &contractpb.GetSite{SiteId: "region/one"}))
	if !slices.Equal(got.GetDeploymentIds(), []string{id}) {
		t.Errorf("deployments after rewriting: %q, want %q", got.GetDeploymentIds(), id)
	}
	rows := must[[]*contractpb.ListedSite](t)(all(p.ListSites(t.Context(), &contractpb.ListSites{})))
	wantRow := &contractpb.ListedSite{SiteId: "region/one", Updated: got.GetUpdated(), DeploymentIds: []string{id}, TemplateId: got.GetTemplateId(), Metadata: got.GetMetadata()}
	if len(rows) != 1 {
		t.Errorf("listed %v", rows)
	} else if diff := cmp.Diff(wantRow, rows[0], protocmp.Transform(), protocmp.IgnoreUnknown()); diff != "" {
		t.Errorf("get and list disagree (-get +list):\n%s", diff)
	}

	for why, site := range map[string]*contractpb.Site{
		"an unknown template":                       {SiteId: "bad", TemplateId: "nowhere"},
		"a site's package is completely valid":      {SiteId: "bad", Package: toYAML(t, partial())},
		"nothing invalid is stored":                 {SiteId: "bad", Package: toYAML(t, wrong())},
		"a merged site's package, too":              {SiteId: "bad", TemplateId: "base", Package: toYAML(t, partial())},
		"an ID has no spaces":                       {SiteId: "b d"},
		"an ID is not empty":                        {},
		"the ID of a template has the same letters": {SiteId: "bad", TemplateId: "no where"},
	} {
		if _, err := p.RegisterSite(t.Context(), site); err == nil {
			t.Errorf("%s: registered", why)
		} else {
			wantCode(t, err, codes.InvalidArgument)
		}
	}

	deleted := must[*contractpb.DeleteResponse](t)(p.DeleteSite(t.Context(), &contractpb.SiteID{SiteId: "region/one"}))
	if !deleted.GetDeleted() {
		t.Errorf("answer to delete is %v", deleted)
	}
	d, resources := p.getDeployment(t, id)
	if d.GetSiteId() != "" || at(find(t, resources, "Deployment", "deployment"), "spec", "siteId") != nil {
		t.Errorf("deployment still names the site: %v, %v", d.GetSiteId(), resources)
	}
	_, err := p.GetSite(t.Context(), &contractpb.GetSite{SiteId: "region/one"})
	wantCode(t, err, codes.NotFound)
	_, err = p.DeleteSite(t.Context(), &contractpb.SiteID{SiteId: "region/one"})
	wantCode(t, err, codes.NotFound)
}

func TestDeploymentLifecycle(t *testing.T) {
	t.Parallel()
	p := serve(t)
	p.registerTemplate(t, "base", map[string]string{"a": "template", "b": "template"}, configMap("base", map[string]any{"k": "template"}), partial())
	p.registerSite(t, "site", "", nil)
	parent := p.createDeployment(t, &contractpb.CreateDeployment{})
	id := p.createDeployment(t, &contractpb.CreateDeployment{
		ParentDeploymentId: parent, TemplateId: "base", SiteId: "site",
		MergeMetadata:      map[string]string{"b": "passed", "c": "passed"},
		MergePackageFormat: "yaml", MergePackage: toYAML(t, configMap("base", map[string]any{"k": "merged"}), configMap("more", nil)),
	})
	if len(id) != 27 {
		t.Errorf("ID %q has %d characters, want 27", id, len(id))
	}
	d, resources := p.getDeployment(t, id)
	if d.GetDeploymentId() != id || d.GetParentDeploymentId() != parent || d.GetTemplateId() != "base" || d.GetSiteId() != "site" || d.GetPrepared() || d.GetApproved() {
		t.Errorf("got %v", d)
	}
	recent(t, "created", d.GetCreated())
	recent(t, "updated", d.GetUpdated())
	if diff := cmp.Diff(map[string]string{"a": "template", "b": "passed", "c": "passed"}, d.GetMetadata()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if k := at(find(t, resources, "ConfigMap", "base"), "data", "k"); k != "merged" {
		t.Errorf("the merge package does not win: %v", k)
	}
	find(t, resources, "ConfigMap", "more")
	find(t, resources, "Deployment", "partial")
	own := find(t, resources, "Deployment", "deployment")
	if own["apiVersion"] != "deployment.nephio.org/v1alpha1" || at(own, "spec", "templateId") != "base" || at(own, "spec", "siteId") != "site" {
		t.Errorf("Deployment resource is %v", own)
	}

	rows := must[[]*contractpb.ListedDeployment](t)(all(p.ListDeployments(t.Context(), &contractpb.ListDeployments{})))
	want := &contractpb.ListedDeployment{
		DeploymentId: id, ParentDeploymentId: parent, TemplateId: "base", SiteId: "site",
		Metadata: d.GetMetadata(), Created: d.GetCreated(), Updated: d.GetUpdated(),
	}
	if len(rows) != 2 {
		t.Errorf("listed %v", rows)
	} else if diff := cmp.Diff(want, rows[1], protocmp.Transform(), protocmp.IgnoreUnknown()); diff != "" {
		t.Errorf("get and list disagree (-get +list):\n%s", diff)
	}

	tmpl := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "base"}))
	if k := at(find(t, fromCBOR(t, tmpl.GetPackage()), "ConfigMap", "base"), "data", "k"); k != "template" {
		t.Errorf("merging changed the template: %v", k)
	}

	// Deleting a deployment deletes its children.
	must[*contractpb.DeleteResponse](t)(p.DeleteDeployment(t.Context(), &contractpb.DeploymentID{DeploymentId: parent}))
	for _, gone := range []string{parent, id} {
		_, err := p.GetDeployment(t.Context(), &contractpb.GetDeployment{DeploymentId: gone})
		wantCode(t, err, codes.NotFound)
		_, err = p.DeleteDeployment(t.Context(), &contractpb.DeploymentID{DeploymentId: gone})
		wantCode(t, err, codes.NotFound)
	}
}

func TestCreateDeploymentAppliesRules(t *testing.T) {
	t.Parallel()
	p := serve(t)
	p.registerTemplate(t, "base", nil, partial())
	nowhere := "000000000000000000000000000"
	for name, m := range map[string]*contractpb.CreateDeployment{
		"unknown template":      {TemplateId: "nowhere"},
		"unknown site":          {SiteId: "nowhere"},
		"unknown parent":        {ParentDeploymentId: nowhere},
		"prepared but partial":  {TemplateId: "base", Prepared: true},
		"prepared, merge wrong": {MergePackage: toYAML(t, partial()), Prepared: true},
		"wrong":                 {MergePackage: toYAML(t, wrong())},
		"unknown format":        {MergePackageFormat: "json", MergePackage: []byte("[]")},
		"same identity twice":   {MergePackage: toYAML(t, configMap("a", nil), configMap("a", nil))},
		"two Deployments": {MergePackage: toYAML(t,
			resource{"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": map[string]any{"name": "deployment"}},
			resource{"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": map[string]any{"name": "other"}})},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.CreateDeployment(t.Context(), m)
			wantCode(t, err, codes.InvalidArgument)
		})
	}
	if rows := must[[]*contractpb.ListedDeployment](t)(all(p.ListDeployments(t.Context(), &contractpb.ListDeployments{}))); len(rows) != 0 {
		t.Errorf("rejected entities exist: %v", rows)
	}

	t.Run("prepared and complete", func(t *testing.T) {
		id := p.createDeployment(t, &contractpb.CreateDeployment{MergePackage: toYAML(t, configMap("a", nil)), Prepared: true, Approved: true})
		d, resources := p.getDeployment(t, id)
		annotations := at(find(t, resources, "Deployment", "deployment"), "metadata", "annotations")
		if !d.GetPrepared() || !d.GetApproved() || at(annotations, "nephio.org/prepared") != "true" || at(annotations, "nephio.org/approved") != "true" {
			t.Errorf("got prepared %t, approved %t, annotations %v", d.GetPrepared(), d.GetApproved(), annotations)
		}
	})
	t.Run("without a template the merge package is the package", func(t *testing.T) {
		id := p.createDeployment(t, &contractpb.CreateDeployment{MergePackageFormat: "cbor", MergePackage: toCBOR(t, configMap("a", nil))})
		if _, resources := p.getDeployment(t, id); len(resources) != 2 {
			t.Errorf("got %v, want the ConfigMap and the Deployment resource", resources)
		}
	})
	t.Run("IDs sort in the order of creation", func(t *testing.T) {
		var ids []string
		for range 300 {
			ids = append(ids, p.createDeployment(t, &contractpb.CreateDeployment{}))
		}
		if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Errorf("IDs are not in order: %q", ids)
		}
	})
}

func TestPluginLifecycle(t *testing.T) {
	t.Parallel()
	p := serve(t)
	want := &contractpb.Plugin{
		Type: "validate", Name: "free5gc/smf:v1", Executor: "command", Arguments: []string{"./smf.py", "-v", ""},
		Properties: map[string]string{"a": "1", "_kubernetes.pod": "smf"},
		Triggers:   []*contractpb.GVK{{Group: "free5gc.org", Version: "v1", Kind: "SMF"}, {Version: "v1", Kind: "ConfigMap"}},
	}
	answer := must[*contractpb.RegisterResponse](t)(p.RegisterPlugin(t.Context(), want))
	if !answer.GetRegistered() || answer.GetNotRegisteredReason() != "" {
		t.Errorf("answer is %v", answer)
	}
	id := &contractpb.PluginID{Type: want.GetType(), Name: want.GetName()}
	got := must[*contractpb.Plugin](t)(p.GetPlugin(t.Context(), id))
	if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreUnknown()); diff != "" {
		t.Errorf("got (-want +got):\n%s", diff)
	}
	rows := must[[]*contractpb.Plugin](t)(all(p.ListPlugins(t.Context(), &contractpb.ListPlugins{})))
	if diff := cmp.Diff([]*contractpb.Plugin{want}, rows, protocmp.Transform(), protocmp.IgnoreUnknown()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}

	// The same name with another type is another plugin; an empty executor becomes
	// command.
	must[*contractpb.RegisterResponse](t)(p.RegisterPlugin(t.Context(), &contractpb.Plugin{Type: "prepare", Name: want.GetName(), Arguments: []string{"x"}}))
	other := must[*contractpb.Plugin](t)(p.GetPlugin(t.Context(), &contractpb.PluginID{Type: "prepare", Name: want.GetName()}))
	if e := other.GetExecutor(); e != "command" {
		t.Errorf("executor is %q, want command", e)
	}
	deleted := must[*contractpb.DeleteResponse](t)(p.DeletePlugin(t.Context(), id))
	if !deleted.GetDeleted() {
		t.Errorf("answer to delete is %v", deleted)
	}
	_, err := p.GetPlugin(t.Context(), id)
	wantCode(t, err, codes.NotFound)
	_, err = p.DeletePlugin(t.Context(), id)
	wantCode(t, err, codes.NotFound)

	for name, m := range map[string]*contractpb.Plugin{
		"no type":                {Name: "a", Arguments: []string{"x"}},
		"unknown type":           {Type: "destroy", Name: "a", Arguments: []string{"x"}},
		"no name":                {Type: "prepare", Arguments: []string{"x"}},
		"name":                   {Type: "prepare", Name: "a b", Arguments: []string{"x"}},
		"unknown executor":       {Type: "prepare", Name: "a", Executor: "magic", Arguments: []string{"x"}},
		"no program":             {Type: "prepare", Name: "a"},
		"kpt only prepares":      {Type: "validate", Name: "a", Executor: "kpt", Arguments: []string{"image"}},
		"kpt takes one argument": {Type: "prepare", Name: "a", Executor: "kpt", Arguments: []string{"image", "more"}},
		"ansible only schedules": {Type: "prepare", Name: "a", Executor: "ansible", Arguments: []string{"job"}},
		"ansible lacks a host":   {Type: "schedule", Name: "a", Executor: "ansible", Arguments: []string{"job"}},
		"trigger without kind":   {Type: "prepare", Name: "a", Arguments: []string{"x"}, Triggers: []*contractpb.GVK{{Version: "v1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.RegisterPlugin(t.Context(), m)
			wantCode(t, err, codes.InvalidArgument)
		})
	}
}

// A missing entity is NotFound, even with an invalid ID.
func TestMissingEntityIsNotFound(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for _, id := range []string{"nowhere", "000000000000000000000000000"} {
		t.Run(fmt.Sprintf("%q", id), func(t *testing.T) {
			_, err := p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: id})
			wantCode(t, err, codes.NotFound)
			_, err = p.GetSite(t.Context(), &contractpb.GetSite{SiteId: id})
			wantCode(t, err, codes.NotFound)
			_, err = p.GetDeployment(t.Context(), &contractpb.GetDeployment{DeploymentId: id})
			wantCode(t, err, codes.NotFound)
			_, err = p.DeleteDeployment(t.Context(), &contractpb.DeploymentID{DeploymentId: id})
			wantCode(t, err, codes.NotFound)
			_, err = p.GetPlugin(t.Context(), &contractpb.PluginID{Type: "prepare", Name: id})
			wantCode(t, err, codes.NotFound)
			_, err = p.StartDeploymentModification(t.Context(), &contractpb.StartDeploymentModification{DeploymentId: id})
			wantCode(t, err, codes.NotFound)
		})
	}
}
