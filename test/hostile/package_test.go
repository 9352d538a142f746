package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/api/tkopb"
)

const (
	resource = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\n"
	depth    = 100_000
)

// laughs is the billion-laughs bomb: ten references to ten references and so on.
func laughs() string {
	var b strings.Builder
	b.WriteString(resource + "data:\n  a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return b.String()
}

// mergeLaughs does the same with merge keys.
func mergeLaughs() string {
	var b strings.Builder
	b.WriteString(resource + "data:\n  a0: &a0 {k0: v}\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d {<<: *a%d, x%d: *a%d, y%d: *a%d}\n", i, i, i-1, i, i-1, i, i-1)
	}
	return b.String()
}

// cborText returns a string in CBOR.
func cborText(s string) []byte { return append(cborHead(3, uint64(len(s))), s...) }

func cborHead(major byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{major<<5 | 27}, n)
}

// cborResource returns a package in CBOR of one resource with the given data.
func cborResource(data []byte) []byte {
	b := []byte{0x81, 0xa4}
	for _, s := range []string{"apiVersion", "v1", "kind", "ConfigMap"} {
		b = append(b, cborText(s)...)
	}
	b = append(b, cborText("metadata")...)
	b = append(b, 0xa1)
	b = append(b, cborText("name")...)
	b = append(b, cborText("bad")...)
	b = append(b, cborText("data")...)
	return append(b, data...)
}

// cborLaughs is the same bomb with shared values (tags 28 and 29).
func cborLaughs() []byte {
	b := []byte{0x8c} // an array of twelve
	b = append(b, 0xd8, 28, 0x8a)
	b = append(b, bytes.Repeat([]byte{0x63, 'l', 'o', 'l'}, 10)...)
	for i := range byte(11) {
		b = append(b, 0xd8, 28, 0x8a)
		b = append(b, bytes.Repeat([]byte{0xd8, 29, i}, 10)...)
	}
	return b
}

// Invalid packages over gRPC.
func TestInvalidPackageIsRejected(t *testing.T) {
	t.Parallel()
	yaml := func(text string) (string, []byte) { return "yaml", []byte(text) }
	cbor := func(data []byte) (string, []byte) { return "cbor", data }
	type content func() (format string, data []byte)
	tests := map[string]struct {
		why   string
		bad   content
		names []string
	}{
		"malformed YAML": {
			why: "the line tells where to look", names: []string{"document 1", "line 4", "expected"},
			bad: func() (string, []byte) { return yaml(resource + "data: {a: b\n---\nx") },
		},
		"a tab": {
			why: "the most common mistake there is", names: []string{"document 1", "line 5", "character"},
			bad: func() (string, []byte) { return yaml(resource + "data:\n\ta: b\n") },
		},
		"not text": {
			why: "the user sends a picture", names: []string{"UTF-8"},
			bad: func() (string, []byte) { return yaml("\x89PNG\r\n\x1a\n\x00\x00\xff\xfe") },
		},
		"a billion laughs": {
			why: "500 bytes of YAML must not become terabytes", names: []string{"aliasing"},
			bad: func() (string, []byte) { return yaml(laughs()) },
		},
		"a billion merges": {
			why: "merge keys multiply, too", names: []string{"aliasing"},
			bad: func() (string, []byte) { return yaml(mergeLaughs()) },
		},
		"a reference to itself": {
			why: "it would never end", names: []string{"itself"},
			bad: func() (string, []byte) { return yaml(resource + "data: &a {b: [*a]}\n") },
		},
		"a reference to nothing": {
			why: "it is named", names: []string{"nowhere"},
			bad: func() (string, []byte) { return yaml(resource + "data: {b: *nowhere}\n") },
		},
		"deep flow lists": {
			why: "recursion must not end the process", names: []string{"line 4", "depth"},
			bad: func() (string, []byte) {
				return yaml(resource + "data: " + strings.Repeat("[", depth) + strings.Repeat("]", depth))
			},
		},
		"deep lists that never close": {
			why: "a parser may recurse before it looks", names: []string{"line 4", "depth"},
			bad: func() (string, []byte) { return yaml(resource + "data: " + strings.Repeat("{a: [", depth)) },
		},
		"deep block lists": {
			why: "another form of the same", names: []string{"line 5", "depth"},
			bad: func() (string, []byte) { return yaml(resource + "data:\n  " + strings.Repeat("- ", depth) + "a\n") },
		},
		"a key twice": {
			why: "one of the two would be lost", names: []string{"line 4", `"color"`, "already"},
			bad: func() (string, []byte) { return yaml(resource + "data: {color: red, color: blue}\n") },
		},
		"too many documents": {
			why: "each costs more than its bytes", names: []string{"100000 resources"},
			bad: func() (string, []byte) { return yaml(strings.Repeat("---\n{a: 1}\n", 100_001)) },
		},
		"a number that does not fit": {
			why: "it would come back as another", names: []string{"data.much", "123456789012345678901234567890", "quotes"},
			bad: func() (string, []byte) { return yaml(resource + "data: {much: 123456789012345678901234567890}\n") },
		},
		"a text": {
			why: "YAML, but no resource", names: []string{"must be a map"},
			bad: func() (string, []byte) { return yaml("hello\n") },
		},
		"a list of texts": {
			why: "the item is named", names: []string{"resource 2", "must be a map"},
			bad: func() (string, []byte) {
				return yaml("- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- hello\n")
			},
		},
		"no kind": {
			why: "its type is unknown", names: []string{"kind"},
			bad: func() (string, []byte) { return yaml("apiVersion: v1\nmetadata: {name: a}\n") },
		},
		"a kind that is a number": {
			why: "the same", names: []string{"kind"},
			bad: func() (string, []byte) { return yaml("apiVersion: v1\nkind: 5\nmetadata: {name: a}\n") },
		},
		"the same resource twice": {
			why: "the resource is named", names: []string{"ConfigMap", `"bad"`},
			bad: func() (string, []byte) { return yaml(resource + "---\n" + resource) },
		},
		"an unknown property": {
			why: "resource, path and reason", names: []string{"ConfigMap", `"bad"`, "datta"},
			bad: func() (string, []byte) { return yaml(resource + "datta: {}\n") },
		},
		"two things wrong": {
			why: "all at once", names: []string{"datta", "immutable"},
			bad: func() (string, []byte) { return yaml(resource + "datta: {}\nimmutable: often\n") },
		},
		"malformed CBOR": {
			why: "the client sends YAML as CBOR", names: []string{"CBOR"},
			bad: func() (string, []byte) { return cbor([]byte(resource)) },
		},
		"CBOR that ends early": {
			why: "a connection broke", names: []string{"CBOR", "early"},
			bad: func() (string, []byte) { return cbor(cborResource(cborText("data"))[:40]) },
		},
		"deep CBOR arrays": {
			why: "recursion must not end the process", names: []string{"deep"},
			bad: func() (string, []byte) { return cbor(cborResource(bytes.Repeat([]byte{0x81}, depth))) },
		},
		"deep CBOR arrays of no length": {
			why: "another form of the same", names: []string{"deep"},
			bad: func() (string, []byte) { return cbor(cborResource(bytes.Repeat([]byte{0x9f}, depth))) },
		},
		"deep CBOR tags": {
			why: "tags are recursion, too", names: []string{"tags"},
			bad: func() (string, []byte) { return cbor(cborResource(bytes.Repeat([]byte{0xc1}, depth))) },
		},
		"a CBOR array that claims to be huge": {
			why: "the claimed length must not be allocated", names: []string{"early"},
			bad: func() (string, []byte) { return cbor(cborResource(cborHead(4, 1<<62))) },
		},
		"a CBOR package that claims to be huge": {
			why: "nor here", names: []string{"early"},
			bad: func() (string, []byte) { return cbor(cborHead(4, 1<<63)) },
		},
		"a CBOR map that claims to be huge": {
			why: "nor here", names: []string{"early"},
			bad: func() (string, []byte) { return cbor(cborResource(cborHead(5, 1<<40))) },
		},
		"a CBOR text that claims to be huge": {
			why: "nor here", names: []string{"early"},
			bad: func() (string, []byte) { return cbor(cborResource(cborHead(3, 1<<64-1))) },
		},
		"CBOR of too many values": {
			why: "a byte each on the wire, and many in memory", names: []string{"limit"},
			bad: func() (string, []byte) {
				return cbor(cborResource(append(cborHead(4, 20_000_000), bytes.Repeat([]byte{0x80}, 20_000_000)...)))
			},
		},
		"a billion CBOR laughs": {
			why: "value sharing multiplies as aliases do", names: []string{"limit"},
			bad: func() (string, []byte) { return cbor(cborResource(cborLaughs())) },
		},
		"a CBOR key twice": {
			why: "as in YAML", names: []string{"twice", `"k"`},
			bad: func() (string, []byte) {
				return cbor(cborResource([]byte{0xa2, 0x61, 'k', 0x01, 0x61, 'k', 0x02}))
			},
		},
		"an unknown format": {
			why: "the error names the formats", names: []string{`"xml"`, "yaml", "cbor"},
			bad: func() (string, []byte) { return "xml", []byte("<package/>") },
		},
		"a format that goes on": {
			why: "the error stays short", names: []string{"format"},
			bad: func() (string, []byte) { return strings.Repeat("yaml", 100_000), []byte("{}") },
		},
	}
	w := newWorld(t, "--roles=data", "--store=sqlite::memory:")
	created, err := w.CreateDeployment(patient(t), newDeployment("kept"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			format, data := test.bad()
			w.harmless(t, func(ctx context.Context) {
				doors := map[string]func() error{
					"register a template": func() error {
						_, err := w.data.RegisterTemplate(ctx, &tkopb.Template{TemplateId: "kept", PackageFormat: format, Package: data})
						return err
					},
					"register a site": func() error {
						_, err := w.data.RegisterSite(ctx, &tkopb.Site{SiteId: "kept", PackageFormat: format, Package: data})
						return err
					},
					"create a deployment": func() error {
						_, err := w.data.CreateDeployment(ctx, &tkopb.CreateDeployment{TemplateId: "kept", MergePackageFormat: format, MergePackage: data})
						return err
					},
					"end a modification": func() error {
						started, err := w.data.StartDeploymentModification(ctx, &tkopb.StartDeploymentModification{DeploymentId: string(created)})
						if err != nil {
							return err
						}
						_, refusal := w.data.EndDeploymentModification(ctx, &tkopb.EndDeploymentModification{
							ModificationToken: started.GetModificationToken(), PackageFormat: format, Package: data,
						})
						// At once: the token expires soon, and the other APIs are
						// slow.
						if _, err := w.data.CancelDeploymentModification(ctx, &tkopb.CancelDeploymentModification{ModificationToken: started.GetModificationToken()}); err != nil {
							t.Errorf("the rejected modification lost its token: %v", err)
						}
						return refusal
					},
				}
				for door, push := range doors {
					err := push()
					if status.Code(err) != codes.InvalidArgument {
						t.Errorf("%s: %.300v, want InvalidArgument: %s", door, err, test.why)
						continue
					}
					names(t, status.Convert(err).Message(), test.names...)
				}
			})
		})
	}
	w.bounded(t)
}
