// Package original is a stand-in for the server of the original TKO. It has the methods and
// fields of that interface only, and its ways with what clients leave out:
//
//   - an absent window is one of no rows,
//   - an absent selection fails,
//   - a list without a limit may be cut,
//   - an empty package format is unknown, even for an empty package.
//
// What it stores, a server of this repository keeps behind it.
package original

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko/api/tkopb"
)

// A Server is a stand-in. Its fields may be set before the first call.
type Server struct {
	Address string // HOST:PORT
	// MostRows cuts lists without a limit; 0 doesn't.
	MostRows int32

	tkopb.UnimplementedDataServer
	behind tkopb.DataClient
}

// Start starts a stand-in in front of the server at an address. It ends with the test.
func Start(t testing.TB, behind string) *Server {
	t.Helper()
	conn, err := grpc.NewClient(behind, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Address: listener.Addr().String(), behind: tkopb.NewDataClient(conn)}
	server := grpc.NewServer()
	tkopb.RegisterDataServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(<-done, conn.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// strip removes the fields from 100.
func strip(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Number() >= 100:
			m.Clear(f)
		case f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap():
			strip(v.Message())
		}
		return true
	})
	m.SetUnknown(nil)
}

// one makes a unary call without what the original doesn't have.
func one[M, R proto.Message](ctx context.Context, method func(context.Context, M, ...grpc.CallOption) (R, error), m M) (R, error) {
	strip(m.ProtoReflect())
	if f, ok := any(m).(interface{ GetPackageFormat() string }); ok && f.GetPackageFormat() == "" {
		var none R
		return none, status.Error(codes.InvalidArgument, "unsupported format: ")
	}
	if f, ok := any(m).(interface{ GetMergePackageFormat() string }); ok && f.GetMergePackageFormat() == "" {
		var none R
		return none, status.Error(codes.InvalidArgument, "unsupported format: ")
	}
	r, err := method(ctx, m)
	if err != nil {
		st, _ := status.FromError(err)
		return r, status.Error(st.Code(), st.Message()) // without details
	}
	strip(r.ProtoReflect())
	return r, nil
}

// list makes a list without what the original doesn't have.
func list[M interface {
	proto.Message
	GetWindow() *tkopb.Window
}, R any](s *Server, stream grpc.ServerStreamingServer[R], method func(context.Context, M, ...grpc.CallOption) (grpc.ServerStreamingClient[R], error), m M, selected bool) error {
	if !selected {
		return status.Error(codes.Internal, "runtime error: invalid memory address or nil pointer dereference")
	}
	if m.GetWindow() == nil {
		return nil
	}
	strip(m.ProtoReflect())
	if s.MostRows > 0 && (m.GetWindow().MaxCount < 0 || m.GetWindow().MaxCount > s.MostRows) {
		m.GetWindow().MaxCount = s.MostRows
	}
	rows, err := method(stream.Context(), m)
	for err == nil {
		var row *R
		if row, err = rows.Recv(); err == nil {
			if p, ok := any(row).(proto.Message); ok {
				strip(p.ProtoReflect())
			}
			err = stream.Send(row)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// About implements the method of the protocol.
func (s *Server) About(ctx context.Context, m *emptypb.Empty) (*tkopb.AboutResponse, error) {
	return one(ctx, s.behind.About, m)
}

// RegisterTemplate implements the method of the protocol.
func (s *Server) RegisterTemplate(ctx context.Context, m *tkopb.Template) (*tkopb.RegisterResponse, error) {
	return one(ctx, s.behind.RegisterTemplate, m)
}

// DeleteTemplate implements the method of the protocol.
func (s *Server) DeleteTemplate(ctx context.Context, m *tkopb.TemplateID) (*tkopb.DeleteResponse, error) {
	return one(ctx, s.behind.DeleteTemplate, m)
}

// GetTemplate implements the method of the protocol.
func (s *Server) GetTemplate(ctx context.Context, m *tkopb.GetTemplate) (*tkopb.Template, error) {
	return one(ctx, s.behind.GetTemplate, m)
}

// ListTemplates implements the method of the protocol.
func (s *Server) ListTemplates(m *tkopb.ListTemplates, stream grpc.ServerStreamingServer[tkopb.ListedTemplate]) error {
	return list(s, stream, s.behind.ListTemplates, m, m.GetSelect() != nil)
}

// PurgeTemplates implements the method of the protocol.
func (s *Server) PurgeTemplates(ctx context.Context, m *tkopb.SelectTemplates) (*tkopb.DeleteResponse, error) {
	return one(ctx, s.behind.PurgeTemplates, m)
}

// RegisterSite implements the method of the protocol.
func (s *Server) RegisterSite(ctx context.Context, m *tkopb.Site) (*tkopb.RegisterResponse, error) {
	return one(ctx, s.behind.RegisterSite, m)
}

// DeleteSite implements the method of the protocol.
func (s *Server) DeleteSite(ctx context.Context, m *tkopb.SiteID) (*tkopb.DeleteResponse, error) {
	return one(ctx, s.behind.DeleteSite, m)
}

// GetSite implements the method of the protocol.
func (s *Server) GetSite(ctx context.Context, m *tkopb.GetSite) (*tkopb.Site, error) {
	return one(ctx, s.behind.GetSite, m)
}

// ListSites implements the method of the protocol.
func (s *Server) ListSites(m *tkopb.ListSites, stream grpc.ServerStreamingServer[tkopb.ListedSite]) error {
	return list(s, stream, s.behind.ListSites, m, m.GetSelect() != nil)
}

// PurgeSites implements the method of the protocol.
func (s *Server) PurgeSites(ctx context.Context, m *tkopb.SelectSites) (*tkopb.DeleteResponse, error) {
	return one(ctx, s.behind.PurgeSites, m)
}

// CreateDeployment implements the method of the protocol.
func (s *Server) CreateDeployment(ctx context.Context, m *tkopb.CreateDeployment) (*tkopb.CreateDeploymentResponse, error) {
	return one(ctx, s.behind.CreateDeployment, m)
}

// DeleteDeployment implements the method of the protocol.
func (s *Server) DeleteDeployment(ctx context.Context, m *tkopb.DeploymentID) (*tkopb.DeleteResponse, error) {
	return one(ctx, s.behind.DeleteDeployment, m)
}

// GetDeployment implements the method of the protocol.
func (s *Server) GetDeployment(ctx context.Context, m *tkopb.GetDeployment) (*tkopb.Deployment, error) {
	return one(ctx, s.behind.GetDeployment, m)
}

// ListDeployments implements the method of the protocol.
func (s *Server) ListDeployments(m *tkopb.ListDeployments, stream grpc.ServerStreamingServer[tkopb.ListedDeployment]) error {
	return list(s, stream, s.behind.ListDeployments, m, m.GetSelect() != nil)
}

// PurgeDeployments implements the method of the protocol.
func (s *Server) PurgeDeployments(ctx context.Context, m *tkopb.SelectDeployments) (*tkopb.DeleteResponse, error) {
	return one(ctx, s.behind.PurgeDeployments, m)
}

// StartDeploymentModification implements the method of the protocol.
func (s *Server) StartDeploymentModification(ctx context.Context, m *tkopb.StartDeploymentModification) (*tkopb.StartDeploymentModificationResponse, error) {
	return one(ctx, s.behind.StartDeploymentModification, m)
}

// EndDeploymentModification implements the method of the protocol.
func (s *Server) EndDeploymentModification(ctx context.Context, m *tkopb.EndDeploymentModification) (*tkopb.EndDeploymentModificationResponse, error) {
	return one(ctx, s.behind.EndDeploymentModification, m)
}

// CancelDeploymentModification implements the method of the protocol.
func (s *Server) CancelDeploymentModification(ctx context.Context, m *tkopb.CancelDeploymentModification) (*tkopb.CancelDeploymentModificationResponse, error) {
	return one(ctx, s.behind.CancelDeploymentModification, m)
}

// RegisterPlugin implements the method of the protocol.
func (s *Server) RegisterPlugin(ctx context.Context, m *tkopb.Plugin) (*tkopb.RegisterResponse, error) {
	return one(ctx, s.behind.RegisterPlugin, m)
}

// DeletePlugin implements the method of the protocol.
func (s *Server) DeletePlugin(ctx context.Context, m *tkopb.PluginID) (*tkopb.DeleteResponse, error) {
	return one(ctx, s.behind.DeletePlugin, m)
}

// GetPlugin implements the method of the protocol.
func (s *Server) GetPlugin(ctx context.Context, m *tkopb.PluginID) (*tkopb.Plugin, error) {
	return one(ctx, s.behind.GetPlugin, m)
}

// ListPlugins implements the method of the protocol.
func (s *Server) ListPlugins(m *tkopb.ListPlugins, stream grpc.ServerStreamingServer[tkopb.Plugin]) error {
	return list(s, stream, s.behind.ListPlugins, m, m.GetSelect() != nil)
}

// PurgePlugins implements the method of the protocol.
func (s *Server) PurgePlugins(ctx context.Context, m *tkopb.SelectPlugins) (*tkopb.DeleteResponse, error) {
	return one(ctx, s.behind.PurgePlugins, m)
}
