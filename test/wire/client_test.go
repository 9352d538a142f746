package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/test/process"
	"github.com/tko-orchestrator/tko/test/wire/contractpb"
)

func TestMain(m *testing.M) {
	process.Plain()
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

// A peer is an existing client and the server that it uses.
type peer struct {
	contractpb.DataClient

	conn   *grpc.ClientConn
	server *process.Server
}

// serve starts a data controller with an empty store.
func serve(t *testing.T, flags ...string) *peer {
	t.Helper()
	server := process.StartServer(t, append([]string{"--roles=data", "--store=sqlite::memory:"}, flags...)...)
	return dial(t, server)
}

func dial(t *testing.T, server *process.Server, options ...grpc.DialOption) *peer {
	t.Helper()
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	}, options...)
	conn, err := grpc.NewClient("passthrough:///"+server.GRPC, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &peer{DataClient: contractpb.NewDataClient(conn), conn: conn, server: server}
}

// wantCode checks the status of a call.
func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("got status %s (%v), want %s", got, err, want)
	}
}

// must returns a function that fails the test on an error, for calls that are not
// under test.
func must[A any](t *testing.T) func(A, error) A {
	t.Helper()
	return func(answer A, err error) A {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
}

// all reads a stream to its end.
func all[R any](stream grpc.ServerStreamingClient[R], err error) ([]*R, error) {
	if err != nil {
		return nil, err
	}
	var rows []*R
	for {
		row, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
}

type resource = map[string]any

// configMap is a resource that is valid in every package.
func configMap(name string, data map[string]any) resource {
	r := resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}
	if data != nil {
		r["data"] = data
	}
	return r
}

// partial returns a resource without its required fields: valid in templates and
// unprepared deployments only.
func partial() resource {
	return resource{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "partial"},
		"spec": map[string]any{"replicas": 1},
	}
}

// wrong returns a resource that is always invalid.
func wrong() resource {
	return resource{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "wrong"},
		"spec": map[string]any{"replicas": "many"},
	}
}

// facts returns a metadata resource.
func facts(kind string, spec map[string]any) resource {
	return resource{"apiVersion": "metadata.nephio.org/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "facts"}, "spec": spec}
}

// toCBOR encodes a package as clients in Go do.
func toCBOR(t *testing.T, resources ...resource) []byte {
	t.Helper()
	if resources == nil {
		resources = []resource{}
	}
	data, err := cbor.Marshal(resources)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func toYAML(t *testing.T, resources ...resource) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, r := range resources {
		data, err := yaml.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "---\n%s", data)
	}
	return b.Bytes()
}

// fromCBOR decodes a package as clients in Go do.
func fromCBOR(t *testing.T, data []byte) []resource {
	t.Helper()
	mode, err := cbor.DecOptions{DefaultMapType: reflect.TypeFor[map[string]any](), IntDec: cbor.IntDecConvertSignedOrFail, MaxNestedLevels: 256, MaxArrayElements: 1 << 24, MaxMapPairs: 1 << 24}.DecMode()
	if err != nil {
		t.Fatal(err)
	}
	var resources []resource
	if err := mode.Unmarshal(data, &resources); err != nil {
		t.Fatalf("not an array of maps in CBOR: %v", err)
	}
	return resources
}

// fromYAML decodes YAML documents that are separated by ---.
func fromYAML(t *testing.T, data []byte) []resource {
	t.Helper()
	var resources []resource
	for document := range strings.SplitSeq("\n"+string(data), "\n---\n") {
		var r resource
		if err := yaml.Unmarshal([]byte(document), &r); err != nil {
			t.Fatalf("not YAML of a resource: %v\n%s", err, document)
		}
		if r != nil {
			resources = append(resources, r)
		}
	}
	return resources
}

// find returns the resource of a kind and name.
func find(t *testing.T, resources []resource, kind, name string) resource {
	t.Helper()
	var found resource
	for _, r := range resources {
		metadata, _ := r["metadata"].(map[string]any)
		if r["kind"] == kind && metadata["name"] == name {
			if found != nil {
				t.Fatalf("two resources %s %q in %v", kind, name, resources)
			}
			found = r
		}
	}
	if found == nil {
		t.Fatalf("no resource %s %q in %v", kind, name, resources)
	}
	return found
}

// at returns the value at a path of keys.
func at(value any, path ...string) any {
	for _, key := range path {
		m, _ := value.(map[string]any)
		value = m[key]
	}
	return value
}

func (p *peer) registerTemplate(t *testing.T, id string, metadata map[string]string, resources ...resource) {
	t.Helper()
	answer, err := p.RegisterTemplate(t.Context(), &contractpb.Template{
		TemplateId: id, Metadata: metadata, PackageFormat: "cbor", Package: toCBOR(t, resources...),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !answer.GetRegistered() {
		t.Fatalf("template %q is not registered: %s", id, answer.GetNotRegisteredReason())
	}
}

func (p *peer) registerSite(t *testing.T, id, template string, metadata map[string]string, resources ...resource) {
	t.Helper()
	answer, err := p.RegisterSite(t.Context(), &contractpb.Site{
		SiteId: id, TemplateId: template, Metadata: metadata, PackageFormat: "cbor", Package: toCBOR(t, resources...),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !answer.GetRegistered() {
		t.Fatalf("site %q is not registered: %s", id, answer.GetNotRegisteredReason())
	}
}

func (p *peer) createDeployment(t *testing.T, m *contractpb.CreateDeployment) string {
	t.Helper()
	answer, err := p.CreateDeployment(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if !answer.GetCreated() || answer.GetDeploymentId() == "" {
		t.Fatalf("deployment is not created: %v", answer)
	}
	return answer.GetDeploymentId()
}

func (p *peer) getDeployment(t *testing.T, id string) (*contractpb.Deployment, []resource) {
	t.Helper()
	d := must[*contractpb.Deployment](t)(p.GetDeployment(t.Context(), &contractpb.GetDeployment{DeploymentId: id}))
	if d.GetPackageFormat() != "cbor" {
		t.Fatalf("package of deployment %q is %q, want the default cbor", id, d.GetPackageFormat())
	}
	return d, fromCBOR(t, d.GetPackage())
}

func (p *peer) start(t *testing.T, id string) (token string, resources []resource) {
	t.Helper()
	m := must[*contractpb.StartDeploymentModificationResponse](t)(p.StartDeploymentModification(t.Context(), &contractpb.StartDeploymentModification{DeploymentId: id}))
	if !m.GetStarted() || m.GetModificationToken() == "" {
		t.Fatalf("modification of %q is not started: %v", id, m)
	}
	return m.GetModificationToken(), fromCBOR(t, m.GetPackage())
}

func (p *peer) end(t *testing.T, token string, resources ...resource) (*contractpb.EndDeploymentModificationResponse, error) {
	t.Helper()
	return p.EndDeploymentModification(t.Context(), &contractpb.EndDeploymentModification{
		ModificationToken: token, PackageFormat: "cbor", Package: toCBOR(t, resources...),
	})
}

func (p *peer) modify(t *testing.T, id string, change func([]resource) []resource) {
	t.Helper()
	token, resources := p.start(t, id)
	answer := must[*contractpb.EndDeploymentModificationResponse](t)(p.end(t, token, change(resources)...))
	if !answer.GetModified() || answer.GetDeploymentId() != id {
		t.Fatalf("deployment %q is not modified: %v", id, answer)
	}
}
