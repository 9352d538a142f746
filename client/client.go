package client

import (
	"context"
	"errors"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
)

// ErrUnavailable is the kind of errors of a server that can't be reached, is
// about to stop or can't reach its database: the same call may work later, or
// may have worked.
var ErrUnavailable = tko.ErrUnavailable

// DefaultAddress is where a server listens unless told otherwise.
const DefaultAddress = "localhost:50050"

// Options are the settings of a client. The zero value works.
type Options struct {
	// Address is host:port of the server; DefaultAddress if empty. [Dial] only.
	Address string
	// Network is "tcp" (IPv6 and IPv4, the default), "tcp6" or "tcp4". [Dial] only.
	Network string
	// Credentials secure the connection. Without, it is plain text, which is
	// for loopback and trusted networks. [Dial] only.
	Credentials credentials.TransportCredentials
	// Dialer makes connections in place of the network, with the address as it
	// is. [Dial] only.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	// Author says who makes the changes, and why, unless the context of a call
	// has an author of its own ([tko.WithAuthor]).
	Author tko.Author
	// PackageFormat is that of packages on the wire; krm.CBOR if empty.
	PackageFormat krm.Format
	// Timeout bounds each call that is no stream and whose context has no
	// deadline; none if 0. The time that ClaimWork waits comes on top.
	Timeout time.Duration
	// WaitForReady makes calls wait for a server that can't be reached, and
	// calls that may safely be made twice (reads, registrations, work,
	// conditions, CreateChildren, ProvisionSite) be made again when it goes
	// away, until their context is done. It is for programs that outlive the
	// server. Without it they fail at once, with ErrUnavailable.
	WaitForReady bool
}

// A Client calls a server. All of its methods may be called at the same time.
type Client struct {
	data    tkopb.DataClient
	options Options
	calls   []grpc.CallOption
	codecs  bool // the connection is gRPC's own, which takes codecs
	close   func() error
}

// Dial makes a client with a connection of its own, which is made when first
// needed, and again whenever it was lost. The caller closes the client.
func Dial(o Options) (*Client, error) {
	if o.Address == "" {
		o.Address = DefaultAddress
	}
	if o.Network == "" {
		o.Network = "tcp"
	}
	if o.Network != "tcp" && o.Network != "tcp6" && o.Network != "tcp4" {
		return nil, tko.Errorf(tko.ErrInvalid, "unknown network %q: use tcp, tcp6 or tcp4", o.Network)
	}
	dial := o.Dialer
	if dial == nil {
		if _, _, err := net.SplitHostPort(o.Address); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "address %q: %w: use host:port, or [host]:port for IPv6", o.Address, err)
		}
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, o.Network, address)
		}
	}
	secure := o.Credentials
	if secure == nil {
		secure = insecure.NewCredentials()
	}
	// The dialer resolves: it tries all addresses of a host, IPv6 first.
	conn, err := grpc.NewClient("passthrough:///"+o.Address,
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(secure),
		grpc.WithConnectParams(connectParams),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
	)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "address %q: %w", o.Address, err)
	}
	c, err := New(conn, o)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	c.close = conn.Close
	return c, nil
}

// New makes a client on a connection that the caller keeps.
func New(conn grpc.ClientConnInterface, o Options) (*Client, error) {
	format, err := wire.Format(string(o.PackageFormat), krm.CBOR)
	if err != nil {
		return nil, err
	}
	o.PackageFormat = format
	_, codecs := conn.(*grpc.ClientConn)
	return &Client{
		data:    tkopb.NewDataClient(conn),
		options: o,
		codecs:  codecs,
		calls: []grpc.CallOption{
			grpc.WaitForReady(o.WaitForReady),
			grpc.MaxCallRecvMsgSize(math.MaxInt32), // the server bounds what it keeps
			grpc.MaxCallSendMsgSize(math.MaxInt32), // and what it takes
		},
		close: func() error { return nil },
	}, nil
}

// Close ends the client's connection, if it was made by [Dial], and with it
// all calls.
func (c *Client) Close() error { return c.close() }

// errorSize is how long errors may be that we take: gRPC for Go takes 16 MiB.
var errorSize = strconv.Itoa(1 << 20)

// rowSize is how large rows of lists may be that we take: any.
var rowSize = strconv.Itoa(math.MaxInt32)

// outgoing puts what the server wants to know into the context of a call.
func (c *Client) outgoing(ctx context.Context) context.Context {
	author := tko.AuthorOf(ctx)
	if author == (tko.Author{}) {
		author = c.options.Author
	}
	pairs := []string{wire.ErrorSizeKey, errorSize, wire.RowSizeKey, rowSize}
	if author.Who != "" {
		pairs = append(pairs, wire.WhoKey, wire.NewAuthorText(author.Who))
	}
	if author.Why != "" {
		pairs = append(pairs, wire.WhyKey, wire.NewAuthorText(author.Why))
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// failed makes an error of what a call ended with.
func (c *Client) failed(err error) error {
	err = wire.Error(err)
	if err == nil {
		return nil
	}
	// What gRPC says of a connection is for its developers.
	text := err.Error()
	_, cause, dialing := strings.Cut(text, "Error while dialing: ")
	if !dialing && (!isUnavailable(err) || wire.Message(err)) {
		return err
	}
	if dialing {
		text = strings.TrimSuffix(cause, `"`)
	}
	server := "the server"
	if c.options.Address != "" {
		server = "the server at " + c.options.Address
	}
	kind := ErrUnavailable
	if errors.Is(err, context.DeadlineExceeded) {
		kind = context.DeadlineExceeded
	}
	return tko.Errorf(kind, "%s can't be reached: %s", server, text)
}
