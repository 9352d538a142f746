package grpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/test/soak"
)

// Messages that are small on the wire can need very much memory.
func TestMessagesOfVeryManyPartsAreRefused(t *testing.T) {
	t.Parallel()
	conn, _ := serve(t, &fake{}, grpcapi.Options{})
	data := tkopb.NewDataClient(conn)
	empty := make([]*tkopb.Condition, soak.Rounds(t, 200_000, 2_000_000))
	for i := range empty {
		empty[i] = &tkopb.Condition{}
	}
	many := map[string]string{}
	for i := range 60_000 {
		many[strconv.Itoa(i)] = ""
	}
	for name, test := range map[string]struct {
		call  func(ctx context.Context) error
		names []string
	}{
		"very many conditions": {func(ctx context.Context) error {
			_, err := data.SetConditions(ctx, &tkopb.SetConditions{Kind: "site", Id: "s", Conditions: empty})
			return err
		}, []string{"SetConditions", "conditions", "50000"}},
		"metadata": {func(ctx context.Context) error {
			_, err := data.RegisterSite(ctx, &tkopb.Site{SiteId: "s", Metadata: many})
			return err
		}, []string{"Site", "metadata", "50000"}},
		"patterns of a stream": {func(ctx context.Context) error {
			s, err := data.ListSites(ctx, &tkopb.ListSites{Select: &tkopb.SelectSites{MetadataPatterns: many}})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		}, []string{"ListSites", "select.metadataPatterns", "50000"}},
		"an ID of 9 MB": {func(ctx context.Context) error {
			_, err := data.GetSite(ctx, &tkopb.GetSite{SiteId: strings.Repeat("x", 9<<20)})
			return err
		}, []string{"GetSite", "bytes", "8388608"}},
	} {
		err := test.call(t.Context())
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %.300v, want InvalidArgument", name, err)
		}
		for _, text := range test.names {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q doesn't say %q", name, err, text)
			}
		}
		if back := wire.Error(err); !errors.Is(back, tko.ErrInvalid) {
			t.Errorf("%s: %v is no ErrInvalid at the client", name, back)
		}
	}
}

// Large rows, which an earlier version accepted, don't end the lists of clients
// with gRPC's default limit.
func TestLargeRowsDontBreakListsOfDefaultClients(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store, err := sqlite.OpenMemory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	validator, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	large := &record.Metadata{Effective: map[string]string{"small": "uncut"}}
	for i := range 84 { // 5 MB
		large.Effective[fmt.Sprintf("large-%02d", i)] = strings.Repeat("v", 60_000)
	}
	var conditions []tko.Condition
	for i := range 64 {
		conditions = append(conditions, tko.Condition{Type: fmt.Sprint("T", i), Status: tko.ConditionTrue, Message: strings.Repeat("ä", 50_000)})
	}
	const id = "2AAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, r := range []record.Record{
		{Key: record.Key{Kind: tko.KindTemplate, ID: "large"}, Metadata: large},
		{Key: record.Key{Kind: tko.KindSite, ID: "a"}},
		{Key: record.Key{Kind: tko.KindSite, ID: "large"}, Metadata: large},
		{Key: record.Key{Kind: tko.KindSite, ID: "talks"}, Conditions: conditions},
		{Key: record.Key{Kind: tko.KindSite, ID: "z"}},
		{Key: record.Key{Kind: tko.KindDeployment, ID: id}, Metadata: large, Conditions: conditions},
	} {
		r.UID = "u"
		if _, err := store.Commit(ctx, record.Ungated(record.Write{Op: tko.OpWritten, Record: r, Expect: record.Absent})); err != nil {
			t.Fatal(err)
		}
	}
	conn, _ := serve(t, catalog.New(store, validator, catalog.Options{}), grpcapi.Options{})
	data := tkopb.NewDataClient(conn) // with gRPC's own limit

	sites, err := data.ListSites(ctx, &tkopb.ListSites{})
	if err != nil {
		t.Fatal(err)
	}
	leftOut := map[string][]string{}
	for {
		row, err := sites.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the list ended: %v", err)
		}
		leftOut[row.GetSiteId()] = row.GetStamp().GetLeftOut()
		if row.GetSiteId() == "large" && (row.GetMetadata()["small"] != "uncut" || len(row.GetMetadata()) < 50) {
			t.Errorf("the large site has %d metadata keys left, want as many as fit, and the small ones", len(row.GetMetadata()))
		}
	}
	if len(leftOut) != 4 || len(leftOut["a"]) > 0 || fmt.Sprint(leftOut["large"]) != "[metadata]" || fmt.Sprint(leftOut["talks"]) != "[conditions]" {
		t.Errorf("left out of the sites: %v", leftOut)
	}
	templates, err := data.ListTemplates(ctx, &tkopb.ListTemplates{})
	if err != nil {
		t.Fatal(err)
	}
	if row, err := templates.Recv(); err != nil || fmt.Sprint(row.GetStamp().GetLeftOut()) != "[metadata]" {
		t.Errorf("template: left out %v, %v", row.GetStamp().GetLeftOut(), err)
	}
	deployments, err := data.ListDeployments(ctx, &tkopb.ListDeployments{})
	if err != nil {
		t.Fatal(err)
	}
	if row, err := deployments.Recv(); err != nil || fmt.Sprint(row.GetStamp().GetLeftOut()) != "[conditions metadata]" {
		t.Errorf("deployment: left out %v, %v", row.GetStamp().GetLeftOut(), err)
	}

	// A client that accepts larger rows gets complete ones.
	more := metadata.AppendToOutgoingContext(ctx, wire.RowSizeKey, "100000000")
	sites, err = data.ListSites(more, &tkopb.ListSites{Select: &tkopb.SelectSites{SiteIdPatterns: []string{"large"}}}, largeMessages)
	if err != nil {
		t.Fatal(err)
	}
	if row, err := sites.Recv(); err != nil || len(row.GetMetadata()) != 85 || len(row.GetStamp().GetLeftOut()) != 0 {
		t.Errorf("%d keys, %v left out, %v: want all", len(row.GetMetadata()), row.GetStamp().GetLeftOut(), err)
	}
}

// Templates of very many deployments have the complete count, and as many IDs as
// fit into a message.
func TestIDsOfVeryManyDeploymentsDontBreakLists(t *testing.T) {
	t.Parallel()
	ids := make([]tko.DeploymentID, 500_000)
	for i := range ids {
		ids[i] = tko.DeploymentID(fmt.Sprintf("%027d", i))
	}
	template := tko.Template{ID: "t", Deployments: ids, Metadata: map[string]string{"k": "v"}, Stamp: tko.Stamp{UID: "u", Revision: 1}}
	conn, _ := serve(t, &fake{
		templates: func(context.Context, tko.TemplateSelect, tko.ListOptions) iterTemplates {
			return func(yield func(tko.Template, error) bool) { yield(template, nil) }
		},
		template: func(context.Context, tko.TemplateID, int64) (tko.Template, error) { return template, nil },
	}, grpcapi.Options{})
	data := tkopb.NewDataClient(conn)
	rows, err := data.ListTemplates(t.Context(), &tkopb.ListTemplates{})
	if err != nil {
		t.Fatal(err)
	}
	row, err := rows.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(row.GetDeploymentIds()); n < 100_000 || proto.Size(row) > 4<<20 || row.GetDeploymentCount() != uint64(len(ids)) || fmt.Sprint(row.GetStamp().GetLeftOut()) != "[deploymentIds]" {
		t.Errorf("%d IDs of %d, in %d bytes, left out %v", n, row.GetDeploymentCount(), proto.Size(row), row.GetStamp().GetLeftOut())
	}
	got, err := data.GetTemplate(t.Context(), &tkopb.GetTemplate{TemplateId: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.GetStamp().GetLeftOut()) != "[deploymentIds]" || got.GetMetadata()["k"] != "v" {
		t.Errorf("left out %v, metadata %v", got.GetStamp().GetLeftOut(), got.GetMetadata())
	}
}

type iterTemplates = iter.Seq2[tko.Template, error]

var largeMessages = grpc.MaxCallRecvMsgSize(1 << 30)
