package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

var rowTests = map[string]struct {
	why        string
	deployment tko.Deployment
}{
	"full": {"every field has its number", tko.Deployment{
		ID: "d", Parent: "p", Template: "t", Site: "s", Metadata: map[string]string{"k": "v", "empty": "", "": "no key"}, Prepared: true, Approved: true, Origin: "o", Stamp: stampOfRow,
	}},
	"empty":        {"nothing stays from the row before", tko.Deployment{ID: "e"}},
	"one flag":     {"flags are not each other's", tko.Deployment{ID: "f", Approved: true, Stamp: stampOfRow}},
	"other":        {"of what rows have in common, each has its own", tko.Deployment{ID: "g", Parent: "p2", Template: "t2", Site: "s2", Metadata: map[string]string{"k": "w"}}},
	"old and late": {"seconds may be negative, and numbers large", tko.Deployment{ID: "h", Stamp: tko.Stamp{UID: "u", Created: time.Unix(-5, 3).UTC(), Updated: moment.AddDate(5000, 0, 0), Revision: -1, Position: 1 << 62}}},
	"long": {"lengths take one byte, two and three", tko.Deployment{
		ID: tko.DeploymentID(strings.Repeat("x", 127)), Parent: tko.DeploymentID(strings.Repeat("y", 128)), Metadata: map[string]string{strings.Repeat("k", 100): strings.Repeat("v", 20_000)},
		Stamp: tko.Stamp{UID: "u", Author: tko.Author{Why: strings.Repeat("w", 17_000)}, Conditions: []tko.Condition{{}, {Type: "T", Message: strings.Repeat("m", 300)}, {Type: "U"}}},
	}},
}

// stampOfRow has no steps: lists have none.
var stampOfRow = func() tko.Stamp {
	s := stamp1
	s.Steps = nil
	return s
}()

// Rows have the encoding of their message, and are read like it, also if one row is
// reused for many messages in any order.
func TestRowsAreEncodedAsTheirMessages(t *testing.T) {
	t.Parallel()
	codec := NewCodec()
	var written Message
	var got DeploymentRow
	for range 2 { // each comes after each other one, some time
		for name, test := range rowTests {
			want, err := NewListedDeployment(test.deployment, "")
			if err != nil {
				t.Fatal(err)
			}
			data, err := codec.Marshal(written.ListedDeployment(tko.Encoded[tko.Deployment]{Entity: test.deployment}, ""))
			if err != nil {
				t.Fatal(err)
			}
			message := new(tkopb.ListedDeployment)
			if err := proto.Unmarshal(data.Materialize(), message); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, message, protocmp.Transform()); diff != "" {
				t.Errorf("%s: %s, written (-want +got):\n%s", name, test.why, diff)
			}
			check(t, codec, &got, name, want)
		}
	}
}

// check checks that a row is read like its message.
func check(t *testing.T, codec Codec, row *DeploymentRow, name string, m *tkopb.ListedDeployment) {
	t.Helper()
	data, err := codec.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Deployment(sent(t, m))
	if err != nil {
		t.Fatal(err)
	}
	if err := codec.Unmarshal(data, row); err != nil {
		t.Fatal(err)
	}
	data.Free()
	got, err := row.Entity()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s, read (-want +got):\n%s", name, diff)
	}
}

func TestRowsReadPackagesAndUnknownFields(t *testing.T) {
	t.Parallel()
	codec := NewCodec()
	var row DeploymentRow
	for _, format := range []krm.Format{krm.CBOR, krm.YAML} {
		m, err := NewListedDeployment(tko.Deployment{ID: "d", Package: pkg}, format)
		if err != nil {
			t.Fatal(err)
		}
		check(t, codec, &row, "with a package", m)
	}
	m, err := NewListedDeployment(tko.Deployment{ID: "d", Stamp: stampOfRow}, "")
	if err != nil {
		t.Fatal(err)
	}
	m.Stamp = nil // as servers of others do
	check(t, codec, &row, "without a stamp", m)
	later := protowire.AppendFixed64(protowire.AppendTag(nil, 900, protowire.Fixed64Type), 1)
	later = protowire.AppendVarint(protowire.AppendTag(later, 901, protowire.VarintType), 1)
	later = protowire.AppendString(protowire.AppendTag(later, 902, protowire.BytesType), "new")
	m.ProtoReflect().SetUnknown(later)
	check(t, codec, &row, "with fields of a later version", m)
}

func TestMalformedRowsAreRefused(t *testing.T) {
	t.Parallel()
	codec := NewCodec()
	slices, err := codec.Marshal(new(Message).ListedDeployment(tko.Encoded[tko.Deployment]{Entity: rowTests["full"].deployment}, ""))
	if err != nil {
		t.Fatal(err)
	}
	data := slices.Materialize()
	var row DeploymentRow
	refused := 0
	for n := range data {
		if codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data[:n])}, &row) != nil {
			refused++
		}
	}
	if refused < len(data)/2 {
		t.Errorf("only %d of %d rows that were cut off are refused", refused, len(data))
	}
	for field := range protowire.Number(9) {
		latin := protowire.AppendString(protowire.AppendTag(nil, field+1, protowire.BytesType), "\xe4")
		proto3 := proto.Unmarshal(latin, new(tkopb.ListedDeployment))
		got := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(latin)}, &row)
		if field+1 <= rowUpdated && (got == nil) != (proto3 == nil) {
			t.Errorf("field %d with invalid UTF-8: %v, as a message: %v", field+1, got, proto3)
		}
	}
}
