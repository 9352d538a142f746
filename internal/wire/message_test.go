package wire

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// Entities that are written without intermediate messages have the encoding of their
// messages: alone and as rows, with packages of each format, large and small, and
// without one.
func TestEntitiesAreWrittenAsTheirMessages(t *testing.T) {
	t.Parallel()
	large := krm.Package{{"apiVersion": "v1", "kind": "K", "data": string(bytes.Repeat([]byte("é"), maxCopied))}}
	var row Message
	for name, test := range rowTests {
		for _, steps := range []bool{false, true} {
			for _, p := range []krm.Package{nil, pkg, large} {
				for _, format := range []krm.Format{"", krm.CBOR, krm.YAML} {
					var encoded []byte
					if format != "" {
						var err error
						if encoded, err = krm.Encode(format, p); err != nil {
							t.Fatal(err)
						}
					}
					d := test.deployment
					d.Replaces, d.TemplateRevision, d.Package = []tko.DeploymentID{"r1", "", "r2"}, 7, p
					if steps {
						d.Stamp.Steps = append(slices.Clone(stamp1.Steps), tko.PreparationStep{Took: -1500, Notes: []string{"", "n"}, NotesLeftOut: 3})
					}
					members := []tko.DeploymentID{d.ID, "", "m"}
					site := tko.Site{ID: tko.SiteID(d.ID), Template: d.Template, Metadata: d.Metadata, Package: p, Deployments: members, DeploymentCount: 5, Stamp: d.Stamp}
					template := tko.Template{ID: tko.TemplateID(d.ID), Metadata: d.Metadata, Package: p, Deployments: members, DeploymentCount: 300, Stamp: d.Stamp}
					same := func(got *Message, want proto.Message, err error) {
						t.Helper()
						if err != nil {
							t.Fatal(err)
						}
						compare(t, name, test.why, got, want)
					}
					want1, err := NewListedDeployment(d, format)
					same(row.ListedDeployment(tko.Encoded[tko.Deployment]{Entity: d, Package: encoded}, format), want1, err)
					want2, err := NewListedSite(site, format)
					same(row.ListedSite(tko.Encoded[tko.Site]{Entity: site, Package: encoded}, format), want2, err)
					want3, err := NewListedTemplate(template, format)
					same(row.ListedTemplate(tko.Encoded[tko.Template]{Entity: template, Package: encoded}, format), want3, err)
					want4, err := NewDeployment(d, format)
					same(NewMessage().Deployment(tko.Encoded[tko.Deployment]{Entity: d, Package: encoded}, format), want4, err)
					want5, err := NewSite(site, format)
					same(NewMessage().Site(tko.Encoded[tko.Site]{Entity: site, Package: encoded}, format), want5, err)
					want6, err := NewTemplate(template, format)
					same(NewMessage().Template(tko.Encoded[tko.Template]{Entity: template, Package: encoded}, format), want6, err)
				}
			}
		}
	}
}

func compare(t *testing.T, name, why string, message *Message, want proto.Message) {
	t.Helper()
	data, err := NewCodec().Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	got := want.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(data.Materialize(), got); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	data.Free()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("%s: %s (-want +got):\n%s", name, why, diff)
	}
}

// A message that is reused has nothing of the entity before.
func TestReusedMessagesHaveNothingOfTheEntityBefore(t *testing.T) {
	t.Parallel()
	codec := NewCodec()
	for range 3 {
		first, err := codec.Marshal(NewMessage().Site(tko.Encoded[tko.Site]{Entity: tko.Site{ID: "first", Template: "t", Deployments: []tko.DeploymentID{"d"}}, Package: make([]byte, 2*maxCopied)}, krm.CBOR))
		if err != nil {
			t.Fatal(err)
		}
		second, err := codec.Marshal(NewMessage().Site(tko.Encoded[tko.Site]{Entity: tko.Site{ID: "second"}}, krm.CBOR))
		if err != nil {
			t.Fatal(err)
		}
		var m tkopb.Site
		if err := proto.Unmarshal(first.Materialize(), &m); err != nil || m.GetSiteId() != "first" || len(m.GetPackage()) != 2*maxCopied {
			t.Errorf("the first became %v: %v", &m, err)
		}
		m.Reset()
		if err := proto.Unmarshal(second.Materialize(), &m); err != nil || !proto.Equal(&m, &tkopb.Site{SiteId: "second", PackageFormat: "cbor"}) {
			t.Errorf("the second is %v: %v", &m, err)
		}
		first.Free()
		second.Free()
	}
}
