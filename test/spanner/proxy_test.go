package spanner_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	spannerapi "cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A frame is an encoded message.
type frame struct{ data []byte }

// A frames codec leaves messages encoded.
type frames struct{}

func (frames) Name() string { return "proto" }

func (frames) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, errors.New("not a frame")
	}
	return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
}

func (frames) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return errors.New("not a frame")
	}
	f.data = data.Materialize()
	return nil
}

// A proxy is between a server and Spanner, and lets calls fail.
type proxy struct {
	address string
	spanner *grpc.ClientConn

	mutex sync.Mutex
	fail  func(method string) (code codes.Code, after bool) // nil: none fails
	fails map[string]int                                    // by method and code
	conns map[net.Conn]bool
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	spanner, err := grpc.NewClient(os.Getenv("SPANNER_EMULATOR_HOST"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: l.Addr().String(), spanner: spanner, fails: map[string]int{}, conns: map[net.Conn]bool{}}
	s := grpc.NewServer(grpc.ForceServerCodecV2(frames{}), grpc.UnknownServiceHandler(p.handle), grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(&cuttable{l, p}) })
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
		_ = spanner.Close()
	})
	return p
}

// A cuttable listener remembers its connections.
type cuttable struct {
	net.Listener

	p *proxy
}

func (l *cuttable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.p.mutex.Lock()
		defer l.p.mutex.Unlock()
		l.p.conns[c] = true
	}
	return c, err
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// set lets calls fail from now on; none if fail is nil.
func (p *proxy) set(fail func(method string) (code codes.Code, after bool)) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.fail = fail
}

func (p *proxy) next(method string) (err error, after bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.fail == nil {
		return nil, false
	}
	code, after := p.fail(method)
	if code == codes.OK {
		return nil, false
	}
	p.fails[method[len(spannerService):]+" "+code.String()]++
	return status.Error(code, "injected"), after
}

const spannerService = "/google.spanner.v1.Spanner/"

// handle forwards a call, which has one request. It fails before the call is made, or after it.
func (p *proxy) handle(_ any, from grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(from)
	var request frame
	if err := from.RecvMsg(&request); err != nil {
		return err
	}
	var injected error
	var after bool
	if len(method) > len(spannerService) && method[:len(spannerService)] == spannerService {
		injected, after = p.next(method)
	}
	if injected != nil && !after {
		if status.Code(injected) == codes.Aborted {
			p.rollBack(from.Context(), request.data)
		}
		return injected
	}
	ctx := from.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	to, err := p.spanner.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodecV2(frames{}))
	if err != nil {
		return err
	}
	if err := errors.Join(to.SendMsg(&request), to.CloseSend()); err != nil {
		return err
	}
	for {
		var response frame
		switch err := to.RecvMsg(&response); {
		case errors.Is(err, io.EOF):
			return injected
		case err != nil:
			return err
		case injected != nil: // lost
		default:
			if err := from.SendMsg(&response); err != nil {
				return err
			}
		}
	}
}

// rollBack ends the transaction of a commit, as one that Spanner has aborted: the emulator would wait for it.
func (p *proxy) rollBack(ctx context.Context, commit []byte) {
	var c spannerapi.CommitRequest
	if proto.Unmarshal(commit, &c) == nil {
		_, _ = spannerapi.NewSpannerClient(p.spanner).Rollback(ctx, &spannerapi.RollbackRequest{Session: c.GetSession(), TransactionId: c.GetTransactionId()})
	}
}
