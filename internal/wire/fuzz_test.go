package wire_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
)

// requests makes the requests of all methods of tko.Data.
func requests(t testing.TB) []proto.Message {
	t.Helper()
	var messages []proto.Message
	methods := tkopb.File_tko_tko_proto.Services().ByName("Data").Methods()
	for i := range methods.Len() {
		name := methods.Get(i).Input().FullName()
		kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		messages = append(messages, kind.New().Interface())
	}
	if len(messages) < 20 {
		t.Fatalf("the service has %d methods", len(messages))
	}
	return messages
}

// FuzzRequests decodes data as the request of each method of tko.Data, and
// translates it into the vocabulary.
func FuzzRequests(f *testing.F) {
	seeds := []proto.Message{
		&tkopb.Template{TemplateId: "t:v1", PackageFormat: "yaml", Package: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), Metadata: map[string]string{"a": "b"}},
		&tkopb.CreateDeployment{TemplateId: "t:v1", SiteId: "s"},
		&tkopb.SelectDeployments{TemplateIdPatterns: []string{"a/**"}, MetadataPatterns: map[string]string{"a": "*"}},
		&tkopb.Plugin{Type: "prepare", Name: "p", Arguments: []string{"x"}, Triggers: []*tkopb.GVK{{Group: "g", Version: "v1", Kind: "K"}}},
		&tkopb.CommitDeployment{},
	}
	all := requests(f)
	for i := range all {
		for _, seed := range seeds {
			data, err := proto.Marshal(seed)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), data)
		}
		f.Add(uint8(i), []byte("\x0a\xff\xff\xff\xff\x0f"))
	}
	codec := wire.NewCodec()
	f.Fuzz(func(t *testing.T, method uint8, data []byte) {
		m := all[int(method)%len(all)].ProtoReflect().New().Interface()
		bounded := &wire.Bounded{Message: m, MaxBytes: 1 << 16, MaxParts: 1000}
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, bounded); err != nil {
			return // gRPC reports it
		}
		if bounded.Refused != nil {
			if !errors.Is(bounded.Refused, tko.ErrInvalid) || proto.Size(m) != 0 {
				t.Fatalf("%v, with %d bytes decoded", bounded.Refused, proto.Size(m))
			}
			return
		}
		if n := parts(m.ProtoReflect()); n > bounded.MaxParts+1 {
			t.Fatalf("the message has %d parts", n)
		}
		translate(t, m)
	})
}

// parts counts a message and the messages in it.
func parts(m protoreflect.Message) int {
	n := 1
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			n += value.Map().Len()
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				n += parts(value.List().Get(i).Message())
			}
		default:
			n += parts(value.Message())
		}
		return true
	})
	return n
}

// translate translates a request, and the result back.
func translate(t *testing.T, m proto.Message) {
	t.Helper()
	check := func(err error) bool {
		if err != nil && !errors.Is(err, tko.ErrInvalid) {
			t.Fatalf("%T: %v is no ErrInvalid", m, err)
		}
		return err == nil
	}
	switch m := m.(type) {
	case *tkopb.Template:
		if v, err := wire.Template(m); check(err) {
			_, err := wire.NewTemplate(v, krm.CBOR)
			check(err)
		}
	case *tkopb.Site:
		if v, err := wire.Site(m); check(err) {
			_, err := wire.NewSite(v, krm.CBOR)
			check(err)
		}
	case *tkopb.CreateDeployment:
		if v, err := wire.CreateDeployment(m); check(err) {
			_, err := wire.NewCreateDeployment(v, krm.YAML)
			check(err)
		}
	case *tkopb.CreateChildren:
		_, err := wire.CreateChildren(m)
		check(err)
	case *tkopb.ProvisionSite:
		_, err := wire.ProvisionSite(m)
		check(err)
	case *tkopb.CommitDeployment:
		_, err := wire.CommitDeployment(m)
		check(err)
	case *tkopb.Plugin:
		check(wire.Plugin(m).Check())
	case *tkopb.SelectTemplates:
		wire.TemplateSelect(m)
	case *tkopb.SelectSites:
		wire.SiteSelect(m)
	case *tkopb.SelectDeployments:
		wire.DeploymentSelect(m)
	case *tkopb.SelectPlugins:
		wire.PluginSelect(m)
	}
}
