package wire

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/test/wire/contractpb"
)

const someYAML = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

// head returns the head of a CBOR data item.
func head(major byte, n int) []byte {
	switch {
	case n < 24:
		return []byte{major<<5 | byte(n)}
	case n < 256:
		return []byte{major<<5 | 24, byte(n)}
	default:
		return []byte{major<<5 | 25, byte(n >> 8), byte(n)}
	}
}

func text(s string) []byte { return append(head(3, len(s)), s...) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// mapCBOR returns a package with a resource of a kind without schema, with spec in
// CBOR.
func mapCBOR(spec []byte) []byte {
	return join(head(5, 4),
		text("apiVersion"), text("example.com/v1"), text("kind"), text("Thing"),
		text("metadata"), head(5, 1), text("name"), text("a"),
		text("spec"), spec)
}

func TestInputFormatsAreAccepted(t *testing.T) {
	t.Parallel()
	p := serve(t)
	thing := func(spec any) resource {
		return resource{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": spec}
	}
	thingYAML := func(spec string) []byte {
		return []byte("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\nspec: " + spec + "\n")
	}
	named := func(name string) resource {
		return resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}
	}
	tests := map[string]struct {
		format string
		data   []byte
		want   []resource
	}{
		"nothing":                 {"", nil, nil},
		"nothing in YAML":         {"yaml", nil, nil},
		"nothing in CBOR":         {"cbor", nil, nil},
		"an empty array":          {"cbor", []byte{0x80}, nil},
		"blank YAML":              {"yaml", []byte("\n# nothing\n"), nil},
		"no format is YAML":       {"", []byte(someYAML), []resource{named("a")}},
		"documents":               {"yaml", []byte(someYAML + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"), []resource{named("a"), named("b")}},
		"null documents":          {"yaml", []byte("---\n---\nnull\n---\n" + someYAML + "---\n~\n---\n"), []resource{named("a")}},
		"a list of resources":     {"yaml", []byte("- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"), []resource{named("a"), named("b"), named("c")}},
		"JSON is YAML":            {"yaml", []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`), []resource{named("a")}},
		"yes is a boolean":        {"yaml", thingYAML("{a: yes, b: off, c: 'yes'}"), []resource{thing(map[string]any{"a": true, "b": false, "c": "yes"})}},
		"a date is a string":      {"yaml", thingYAML("{a: 2024-01-02, b: 2001-12-14t21:59:43.10-05:00}"), []resource{thing(map[string]any{"a": "2024-01-02", "b": "2001-12-14t21:59:43.10-05:00"})}},
		"numbers":                 {"yaml", thingYAML("{a: 9223372036854775807, b: -9223372036854775808, c: 1.5, d: 1.0e300, e: 0}"), []resource{thing(map[string]any{"a": int64(9223372036854775807), "b": int64(-9223372036854775808), "c": 1.5, "d": 1e300, "e": int64(0)})}},
		"aliases":                 {"yaml", thingYAML("{a: &x [1, 2], b: *x}"), []resource{thing(map[string]any{"a": []any{int64(1), int64(2)}, "b": []any{int64(1), int64(2)}})}},
		"Go's CBOR":               {"cbor", toCBOR(t, thing(map[string]any{"a": int64(-1), "b": []any{nil, true, 1.5}})), []resource{thing(map[string]any{"a": int64(-1), "b": []any{nil, true, 1.5}})}},
		"indefinite array":        {"cbor", join([]byte{0x9f}, mapCBOR(join([]byte{0x9f}, head(0, 1), []byte{0xff})), []byte{0xff}), []resource{thing([]any{int64(1)})}},
		"indefinite map":          {"cbor", join(head(4, 1), mapCBOR(join([]byte{0xbf}, text("k"), head(0, 1), []byte{0xff}))), []resource{thing(map[string]any{"k": int64(1)})}},
		"indefinite text":         {"cbor", join(head(4, 1), mapCBOR(join([]byte{0x7f}, text("ab"), text("c"), []byte{0xff}))), []resource{thing("abc")}},
		"a tag around":            {"cbor", join([]byte{0xd9, 0xd9, 0xf7}, head(4, 1), mapCBOR(head(0, 1))), []resource{thing(int64(1))}},
		"a tagged date":           {"cbor", join(head(4, 1), mapCBOR(join([]byte{0xc0}, text("2024-01-02T03:04:05Z")))), []resource{thing("2024-01-02T03:04:05Z")}},
		"half, single floats":     {"cbor", join(head(4, 1), mapCBOR(join(head(4, 2), []byte{0xf9, 0x3e, 0x00}, []byte{0xfa, 0x3f, 0xc0, 0x00, 0x00}))), []resource{thing([]any{1.5, 1.5})}},
		"a resource with no name": {"yaml", []byte("apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\nname: c\n"), []resource{{"apiVersion": "kind.x-k8s.io/v1alpha4", "kind": "Cluster", "name": "c"}}},
		"unknown parts stay": {
			"yaml", []byte("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a, x: {w: [1, {}]}}\nz: null\n"),
			[]resource{{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a", "x": map[string]any{"w": []any{int64(1), map[string]any{}}}}, "z": nil}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := p.RegisterTemplate(t.Context(), &contractpb.Template{TemplateId: "in", PackageFormat: test.format, Package: test.data})
			if err != nil {
				t.Fatal(err)
			}
			if test.want == nil {
				test.want = []resource{}
			}
			in := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "in", PreferredPackageFormat: "cbor"}))
			if diff := cmp.Diff(test.want, fromCBOR(t, in.GetPackage())); diff != "" {
				t.Errorf("as CBOR (-want +got):\n%s", diff)
			}
			// Its YAML output is accepted as input, with the same result.
			out := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "in", PreferredPackageFormat: "yaml"}))
			if out.GetPackageFormat() != "yaml" {
				t.Errorf("format is %q, want yaml", out.GetPackageFormat())
			}
			must[*contractpb.RegisterResponse](t)(p.RegisterTemplate(t.Context(), &contractpb.Template{TemplateId: "again", PackageFormat: "yaml", Package: out.GetPackage()}))
			again := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "again"}))
			if !bytes.Equal(in.GetPackage(), again.GetPackage()) {
				t.Errorf("a round trip through YAML changed it:\n%s", out.GetPackage())
			}
		})
	}
}

func TestPreferredFormatIsReturned(t *testing.T) {
	t.Parallel()
	p := serve(t)
	p.registerTemplate(t, "a", nil, configMap("a", map[string]any{"k": "---\nyes"}), configMap("b", nil))
	p.registerTemplate(t, "empty", nil)

	got := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "a", PreferredPackageFormat: "yaml"}))
	documents := strings.Split(string(got.GetPackage()), "\n---\n")
	if len(documents) != 2 {
		t.Errorf("got %d documents, want one per resource, with --- between them:\n%s", len(documents), got.GetPackage())
	}
	if k := at(find(t, fromYAML(t, got.GetPackage()), "ConfigMap", "a"), "data", "k"); k != "---\nyes" {
		t.Errorf("the value became %q", k)
	}
	got = must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "empty", PreferredPackageFormat: "cbor"}))
	if resources := fromCBOR(t, got.GetPackage()); len(resources) != 0 {
		t.Errorf("got %v, want an empty array", resources)
	}

	for _, format := range []string{"json", "msgpack", " yaml", "\x00"} {
		_, err := p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "a", PreferredPackageFormat: format})
		wantCode(t, err, codes.InvalidArgument)
	}
	id := p.createDeployment(t, &contractpb.CreateDeployment{})
	p.registerSite(t, "s", "", nil)
	_, err := p.GetDeployment(t.Context(), &contractpb.GetDeployment{DeploymentId: id, PreferredPackageFormat: "json"})
	wantCode(t, err, codes.InvalidArgument)
	_, err = p.GetSite(t.Context(), &contractpb.GetSite{SiteId: "s", PreferredPackageFormat: "json"})
	wantCode(t, err, codes.InvalidArgument)
}

func TestDefaultFormatIsConfigurable(t *testing.T) {
	t.Parallel()
	p := serve(t, "--package-format=yaml")
	p.registerTemplate(t, "a", nil, configMap("a", nil))
	got := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "a"}))
	if got.GetPackageFormat() != "yaml" {
		t.Errorf("format is %q, want the configured yaml", got.GetPackageFormat())
	}
	find(t, fromYAML(t, got.GetPackage()), "ConfigMap", "a")
}

func TestInvalidPackagesAreRejected(t *testing.T) {
	t.Parallel()
	p := serve(t)
	var bomb strings.Builder
	bomb.WriteString("a: &a [x,x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c < 'k'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	tests := map[string]struct {
		format string
		data   []byte
	}{
		"unknown format":              {"json", []byte("{}")},
		"unknown format, empty":       {"json", nil},
		"no YAML":                     {"yaml", []byte("a: [")},
		"no text":                     {"yaml", []byte{0xff, 0xfe, 0x00, 0x01}},
		"a string":                    {"yaml", []byte("hello")},
		"a list of strings":           {"yaml", []byte("- hello")},
		"no apiVersion":               {"yaml", []byte("kind: ConfigMap\nmetadata: {name: a}")},
		"no kind":                     {"yaml", []byte("apiVersion: v1\nmetadata: {name: a}")},
		"kind is a number":            {"yaml", []byte("apiVersion: v1\nkind: 1\nmetadata: {name: a}")},
		"apiVersion is a list":        {"yaml", []byte("apiVersion: [v1]\nkind: ConfigMap\nmetadata: {name: a}")},
		"twice the same":              {"yaml", []byte(someYAML + "---\n" + someYAML)},
		"a bomb":                      {"yaml", []byte(bomb.String())},
		"deep YAML":                   {"yaml", []byte(strings.Repeat("[", 100_000))},
		"no CBOR":                     {"cbor", []byte("hello")},
		"CBOR cut short":              {"cbor", toCBOR(t, configMap("a", nil))[:20]},
		"CBOR and more":               {"cbor", append(toCBOR(t, configMap("a", nil)), 0x00)},
		"a CBOR map":                  {"cbor", mapCBOR(head(0, 1))},
		"a CBOR array of numbers":     {"cbor", []byte{0x81, 0x01}},
		"keys that are numbers":       {"cbor", join(head(4, 1), mapCBOR(join(head(5, 1), head(0, 1), head(0, 1))))},
		"a number that is too big":    {"cbor", join(head(4, 1), mapCBOR([]byte{0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}))},
		"CBOR that promises too much": {"cbor", []byte{0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		"deep CBOR":                   {"cbor", bytes.Repeat([]byte{0x81}, 1_000_000)},
		"an invalid resource":         {"yaml", toYAML(t, wrong())},
		"an unknown property":         {"yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatum: {}")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := p.RegisterTemplate(t.Context(), &contractpb.Template{TemplateId: "bad", PackageFormat: test.format, Package: test.data})
			wantCode(t, err, codes.InvalidArgument)
			_, err = p.RegisterSite(t.Context(), &contractpb.Site{SiteId: "bad", PackageFormat: test.format, Package: test.data})
			wantCode(t, err, codes.InvalidArgument)
			_, err = p.CreateDeployment(t.Context(), &contractpb.CreateDeployment{MergePackageFormat: test.format, MergePackage: test.data})
			wantCode(t, err, codes.InvalidArgument)
			if message := status.Convert(err).Message(); message == "" || strings.Contains(message, "goroutine") || strings.Contains(message, ".go:") {
				t.Errorf("message is %q", message)
			}
		})
	}
	if got := templateIDs(t, p, &contractpb.ListTemplates{}); len(got) != 0 {
		t.Errorf("rejected entities exist: %q", got)
	}
}

// A package nested as deep as a large custom resource definition is accepted, a
// deeper one rejected.
func TestNestingIsLimited(t *testing.T) {
	t.Parallel()
	p := serve(t)
	var spec any = "bottom"
	for range 64 {
		spec = map[string]any{"properties": []any{spec}}
	}
	deep := resource{"apiVersion": "example.com/v1", "kind": "Deep", "metadata": map[string]any{"name": "deep"}, "spec": spec}
	encoder, err := cbor.EncOptions{}.EncMode()
	if err != nil {
		t.Fatal(err)
	}
	data, err := encoder.Marshal([]resource{deep})
	if err != nil {
		t.Fatal(err)
	}
	must[*contractpb.RegisterResponse](t)(p.RegisterTemplate(t.Context(), &contractpb.Template{TemplateId: "deep", PackageFormat: "cbor", Package: data}))
	got := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "deep"}))
	if back := fromCBOR(t, got.GetPackage()); !reflect.DeepEqual([]resource{deep}, back) { // go-cmp would take too long
		t.Errorf("got %v", back)
	}
}

func TestBigPackageRoundTrips(t *testing.T) {
	t.Parallel()
	p := serve(t, "--modification-time=1h")
	const size = 16 << 20
	var resources []resource
	for i := range 64 {
		resources = append(resources, resource{
			"apiVersion": "example.com/v1", "kind": "Big", "metadata": map[string]any{"name": strconv.Itoa(i)},
			"spec": map[string]any{"text": strings.Repeat(string(rune('a'+i%26)), size/64)},
		})
	}
	for _, format := range []string{"cbor", "yaml"} {
		t.Run(format, func(t *testing.T) {
			data := toCBOR(t, resources...)
			if format == "yaml" {
				data = toYAML(t, resources...)
			}
			if len(data) < size {
				t.Fatalf("package has %d bytes only", len(data))
			}
			must[*contractpb.RegisterResponse](t)(p.RegisterTemplate(t.Context(), &contractpb.Template{TemplateId: "big", PackageFormat: format, Package: data}))
			got := must[*contractpb.Template](t)(p.GetTemplate(t.Context(), &contractpb.GetTemplate{TemplateId: "big", PreferredPackageFormat: format}))
			if n := len(got.GetPackage()); n < size {
				t.Errorf("got %d bytes back, sent %d", n, len(data))
			}
		})
	}
	id := p.createDeployment(t, &contractpb.CreateDeployment{TemplateId: "big"})
	p.modify(t, id, func(resources []resource) []resource { return append(resources, configMap("more", nil)) })
	_, got := p.getDeployment(t, id)
	find(t, got, "ConfigMap", "more")
}

// A message that is too large is rejected, and the server continues.
func TestTooBigPackageIsRejected(t *testing.T) {
	t.Parallel()
	p := serve(t)
	_, err := p.RegisterTemplate(t.Context(), &contractpb.Template{TemplateId: "a", Package: make([]byte, 200<<20)})
	if code := status.Code(err); code != codes.InvalidArgument && code != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
	p.registerTemplate(t, "a", nil)
}

// Existing clients accept 8 KiB of trailers: longer errors have to be shortened to
// arrive.
func TestLongErrorsFitIntoTrailers(t *testing.T) {
	t.Parallel()
	p := dial(t, serve(t).server, grpc.WithMaxHeaderListSize(8<<10))
	var bad []resource
	for i := range 500 {
		r := wrong()
		r["metadata"] = map[string]any{"name": fmt.Sprintf("wrong-ü-%d", i)}
		bad = append(bad, r)
	}
	_, err := p.RegisterTemplate(t.Context(), &contractpb.Template{TemplateId: "bad", PackageFormat: "cbor", Package: toCBOR(t, bad...)})
	wantCode(t, err, codes.InvalidArgument)
	message := status.Convert(err).Message()
	for _, part := range []string{"apps/v1", "Deployment", "wrong-ü-0", "spec.replicas"} {
		if !strings.Contains(message, part) {
			t.Errorf("message lacks %q: %s", part, message)
		}
	}
}
