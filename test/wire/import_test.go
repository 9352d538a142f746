package wire

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/test/process"
	"github.com/tko-orchestrator/tko/test/wire/contractpb"
)

// A foreign server of the contract: it has the methods and fields of the contract and no
// others, and refuses all methods that write.
type foreign struct {
	contractpb.UnimplementedDataServer

	templates   map[string]*contractpb.Template
	sites       map[string]*contractpb.Site
	deployments map[string]*contractpb.Deployment
	plugins     map[string]*contractpb.Plugin
}

// serveForeign starts a foreign server and returns its address.
func serveForeign(t *testing.T, f *foreign) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	contractpb.RegisterDataServer(server, f)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func (f *foreign) About(context.Context, *emptypb.Empty) (*contractpb.AboutResponse, error) {
	return &contractpb.AboutResponse{InstanceName: "foreign", TkoVersion: "0.1", DefaultPackageFormat: "cbor"}, nil
}

// found returns the entity with an ID.
func found[T any](all map[string]T, id string) (T, error) {
	entity, ok := all[id]
	if !ok {
		return entity, status.Errorf(codes.NotFound, "%q is not here", id)
	}
	return entity, nil
}

// send streams rows in the order of IDs, those in the window.
func send[T, R any](all map[string]T, w *contractpb.Window, s grpc.ServerStreamingServer[R], row func(T) *R) error {
	ids := slices.Sorted(maps.Keys(all))
	if w != nil {
		ids = ids[min(int(w.GetOffset()), len(ids)):]
		if most := int(w.GetMaxCount()); most >= 0 {
			ids = ids[:min(most, len(ids))]
		}
	}
	for _, id := range ids {
		if err := s.Send(row(all[id])); err != nil {
			return err
		}
	}
	return nil
}

// encode returns a package, which is YAML with one document per resource, in a format of
// the contract.
func encode(format string, pkg []byte) (string, []byte, error) {
	if format == "yaml" {
		return format, pkg, nil
	}
	resources := []any{}
	for document := range strings.SplitSeq(string(pkg), "---\n") {
		var resource any
		if err := yaml.Unmarshal([]byte(document), &resource); err != nil {
			return "", nil, err
		}
		resources = append(resources, resource)
	}
	data, err := cbor.Marshal(resources)
	return "cbor", data, err
}

func (f *foreign) GetTemplate(_ context.Context, m *contractpb.GetTemplate) (*contractpb.Template, error) {
	t, err := found(f.templates, m.GetTemplateId())
	if err != nil {
		return nil, err
	}
	format, pkg, err := encode(m.GetPreferredPackageFormat(), t.GetPackage())
	return &contractpb.Template{TemplateId: t.GetTemplateId(), Metadata: t.GetMetadata(), Updated: timestamppb.Now(), PackageFormat: format, Package: pkg}, err
}

func (f *foreign) ListTemplates(m *contractpb.ListTemplates, s grpc.ServerStreamingServer[contractpb.ListedTemplate]) error {
	return send(f.templates, m.GetWindow(), s, func(t *contractpb.Template) *contractpb.ListedTemplate {
		return &contractpb.ListedTemplate{TemplateId: t.GetTemplateId(), Metadata: t.GetMetadata(), Updated: timestamppb.Now()}
	})
}

func (f *foreign) GetSite(_ context.Context, m *contractpb.GetSite) (*contractpb.Site, error) {
	site, err := found(f.sites, m.GetSiteId())
	if err != nil {
		return nil, err
	}
	format, pkg, err := encode(m.GetPreferredPackageFormat(), site.GetPackage())
	return &contractpb.Site{
		SiteId: site.GetSiteId(), TemplateId: site.GetTemplateId(), Metadata: site.GetMetadata(), Updated: timestamppb.Now(), PackageFormat: format, Package: pkg,
	}, err
}

func (f *foreign) ListSites(m *contractpb.ListSites, s grpc.ServerStreamingServer[contractpb.ListedSite]) error {
	return send(f.sites, m.GetWindow(), s, func(site *contractpb.Site) *contractpb.ListedSite {
		return &contractpb.ListedSite{SiteId: site.GetSiteId(), TemplateId: site.GetTemplateId(), Metadata: site.GetMetadata(), Updated: timestamppb.Now()}
	})
}

func (f *foreign) GetDeployment(_ context.Context, m *contractpb.GetDeployment) (*contractpb.Deployment, error) {
	d, err := found(f.deployments, m.GetDeploymentId())
	if err != nil {
		return nil, err
	}
	format, pkg, err := encode(m.GetPreferredPackageFormat(), d.GetPackage())
	return &contractpb.Deployment{
		DeploymentId: d.GetDeploymentId(), ParentDeploymentId: d.GetParentDeploymentId(), TemplateId: d.GetTemplateId(), SiteId: d.GetSiteId(), Metadata: d.GetMetadata(),
		Created: timestamppb.Now(), Updated: timestamppb.Now(), Prepared: d.GetPrepared(), Approved: d.GetApproved(), PackageFormat: format, Package: pkg,
	}, err
}

func (f *foreign) ListDeployments(m *contractpb.ListDeployments, s grpc.ServerStreamingServer[contractpb.ListedDeployment]) error {
	return send(f.deployments, m.GetWindow(), s, func(d *contractpb.Deployment) *contractpb.ListedDeployment {
		return &contractpb.ListedDeployment{
			DeploymentId: d.GetDeploymentId(), ParentDeploymentId: d.GetParentDeploymentId(), TemplateId: d.GetTemplateId(), SiteId: d.GetSiteId(), Metadata: d.GetMetadata(),
			Created: timestamppb.Now(), Updated: timestamppb.Now(), Prepared: d.GetPrepared(), Approved: d.GetApproved(),
		}
	})
}

func (f *foreign) GetPlugin(_ context.Context, m *contractpb.PluginID) (*contractpb.Plugin, error) {
	return found(f.plugins, m.GetType()+"|"+m.GetName())
}

func (f *foreign) ListPlugins(m *contractpb.ListPlugins, s grpc.ServerStreamingServer[contractpb.Plugin]) error {
	return send(f.plugins, m.GetWindow(), s, func(p *contractpb.Plugin) *contractpb.Plugin { return p })
}

// deploymentResource is the Deployment resource in a package, as servers of the contract
// keep it.
func deploymentResource(template, site string, prepared, approved bool) string {
	text := map[bool]string{true: "'true'", false: "'false'"}
	return "apiVersion: deployment.nephio.org/v1alpha1\nkind: Deployment\nmetadata:\n  name: deployment\n  annotations:\n    nephio.org/prepared: " + text[prepared] +
		"\n    nephio.org/approved: " + text[approved] + "\n    nephio.org/approve: Manual\nspec:\n  templateId: " + template + "\n  siteId: '" + site + "'\n---\n"
}

const foreignPackage = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nf}\ndata: {a: one}\n"

// A server of the contract, such as the original TKO, is copied with its methods alone:
// all its entities, with relations, metadata, packages, prepared and approved.
func TestImportNeedsOnlyTheMethodsOfTheContract(t *testing.T) {
	t.Parallel()
	const child, parent = "1111111111111111111111111aa", "2222222222222222222222222bb" // the child comes first in lists
	from := serveForeign(t, &foreign{
		templates: map[string]*contractpb.Template{"nf:v1": {TemplateId: "nf:v1", Metadata: map[string]string{"type": "nf"}, Package: []byte(foreignPackage)}},
		sites: map[string]*contractpb.Site{
			"lagos": {SiteId: "lagos", TemplateId: "nf:v1", Metadata: map[string]string{"type": "nf", "region": "west"}, Package: []byte(foreignPackage)},
			"quito": {SiteId: "quito", Package: []byte(foreignPackage)},
		},
		deployments: map[string]*contractpb.Deployment{
			parent: {
				DeploymentId: parent, TemplateId: "nf:v1", Metadata: map[string]string{"type": "nf", "name": "parent"},
				Package: []byte(deploymentResource("nf:v1", "", false, false) + foreignPackage),
			},
			child: {
				DeploymentId: child, ParentDeploymentId: parent, TemplateId: "nf:v1", SiteId: "lagos", Metadata: map[string]string{"type": "nf", "name": "child"},
				Prepared: true, Approved: true, Package: []byte(deploymentResource("nf:v1", "lagos", true, true) + strings.ReplaceAll(foreignPackage, "one", "two")),
			},
		},
		plugins: map[string]*contractpb.Plugin{"validate|check": {
			Type: "validate", Name: "check", Executor: "command", Arguments: []string{"true"}, Properties: map[string]string{"p": "q"}, Triggers: []*contractpb.GVK{{Version: "v1", Kind: "Pod"}},
		}},
	})
	to := process.StartServer(t, "--roles=data", "--store=sqlite::memory:")
	run := func(args ...string) string {
		t.Helper()
		out, errs, code := to.CLI(args...)
		if code != 0 {
			t.Fatalf("tko %v: exit code %d: %s", args, code, errs)
		}
		return strings.TrimSpace(out + errs)
	}
	if plan := run("import", "--from", from, "--dry-run"); !strings.Contains(plan, "create deployment "+parent+"\ncreate deployment "+child) || !strings.Contains(plan, "6 changes, 0 unchanged") {
		t.Errorf("the plan is\n%s", plan)
	}
	run("import", "--from", from, "--confirm", "6")

	p := dial(t, to)
	template := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "nf:v1", PreferredPackageFormat: "yaml"}))
	if template.GetMetadata()["type"] != "nf" || !strings.Contains(string(template.GetPackage()), "a: one") {
		t.Errorf("the template is %v", template)
	}
	site := must[*contractpb.Site](t)(p.GetSite(t.Context(), &contractpb.GetSite{SiteId: "lagos"}))
	if site.GetTemplateId() != "nf:v1" || site.GetMetadata()["region"] != "west" || site.GetMetadata()["tko.nephio.org/suspend"] != "true" {
		t.Errorf("the site is %v", site)
	}
	plugin := must[*contractpb.Plugin](t)(p.GetPlugin(t.Context(), &contractpb.PluginID{Type: "validate", Name: "check"}))
	if plugin.GetExecutor() != "command" || !slices.Equal(plugin.GetArguments(), []string{"true"}) || plugin.GetProperties()["p"] != "q" || plugin.GetTriggers()[0].GetKind() != "Pod" {
		t.Errorf("the plugin is %v", plugin)
	}
	copied := map[string]string{}
	for _, name := range []string{"parent", "child"} {
		copied[name] = run("deployment", "list", "-m", "name="+name, "-o", "bare")
		if len(copied[name]) != len(parent) {
			t.Fatalf("the copies of the %s are %q", name, copied[name])
		}
	}
	d := must[*contractpb.Deployment](t)(p.GetDeployment(t.Context(), &contractpb.GetDeployment{DeploymentId: copied["child"], PreferredPackageFormat: "yaml"}))
	if d.GetParentDeploymentId() != copied["parent"] || d.GetSiteId() != "lagos" || d.GetTemplateId() != "nf:v1" || !d.GetPrepared() || !d.GetApproved() || !strings.Contains(string(d.GetPackage()), "a: two") {
		t.Errorf("the child is %v", d)
	}
	if d := must[*contractpb.Deployment](t)(p.GetDeployment(t.Context(), &contractpb.GetDeployment{DeploymentId: copied["parent"]})); d.GetPrepared() || d.GetApproved() {
		t.Errorf("the parent, which was neither prepared nor approved, is %v", d)
	}
	if again := run("import", "--from", from); !strings.Contains(again, "0 changes, 6 unchanged") {
		t.Errorf("a second import: %s", again)
	}
}
