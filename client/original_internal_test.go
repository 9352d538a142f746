package client

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tko-orchestrator/tko/api/tkopb"
)

// Each field from 100 of a request of the original interface either is checked before the
// request is sent to a server that may ignore it, or is harmless, for a reason.
func TestEachFieldThatTheOriginalIgnoresIsChecked(t *testing.T) {
	t.Parallel()
	service := tkopb.File_tko_tko_proto.Services().ByName("Data")
	original := []protoreflect.Name{
		"registerTemplate", "deleteTemplate", "getTemplate", "listTemplates", "purgeTemplates", "registerSite", "deleteSite", "getSite", "listSites", "purgeSites",
		"createDeployment", "deleteDeployment", "getDeployment", "listDeployments", "purgeDeployments",
		"startDeploymentModification", "endDeploymentModification", "cancelDeploymentModification",
		"registerPlugin", "deletePlugin", "getPlugin", "listPlugins", "purgePlugins",
	}
	checked := 0
	var visit func(root, m protoreflect.MessageDescriptor, set func() (protoreflect.Message, protoreflect.Message))
	visit = func(root, m protoreflect.MessageDescriptor, set func() (whole, part protoreflect.Message)) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			whole, part := set()
			switch {
			case f.Number() >= 100 && harmless[f.Name()] != "":
			case f.Number() >= 100:
				checked++
				switch {
				case f.IsList() && f.Kind() == protoreflect.StringKind:
					part.Mutable(f).List().Append(protoreflect.ValueOfString("x"))
				case f.IsList():
					part.Mutable(f).List().AppendMutable()
				case f.Kind() == protoreflect.MessageKind:
					part.Mutable(f)
				case f.Kind() == protoreflect.BoolKind:
					part.Set(f, protoreflect.ValueOfBool(true))
				case f.Kind() == protoreflect.StringKind:
					part.Set(f, protoreflect.ValueOfString("x"))
				case f.Kind() == protoreflect.Int64Kind:
					part.Set(f, protoreflect.ValueOfInt64(1))
				case f.Kind() == protoreflect.Uint64Kind:
					part.Set(f, protoreflect.ValueOfUint64(1))
				default:
					t.Fatalf("%s has a kind that this test can't set", f.FullName())
				}
				if !originalRequests[root.FullName()] || limiting(whole) != string(f.Name()) {
					t.Errorf("%s in %s isn't checked: a server of the original TKO would ignore it", f.FullName(), root.FullName())
				}
			case f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap():
				visit(root, f.Message(), func() (protoreflect.Message, protoreflect.Message) {
					whole, part := set()
					return whole, part.Mutable(f).Message()
				})
			}
		}
	}
	for _, name := range original {
		m := service.Methods().ByName(name).Input()
		typ, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
		if err != nil {
			t.Fatal(err)
		}
		visit(m, m, func() (protoreflect.Message, protoreflect.Message) {
			whole := typ.New()
			return whole, whole
		})
	}
	if checked < 15 {
		t.Errorf("only %d fields were checked", checked)
	}
}
