package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
)

// ErrUnavailable is the kind of errors of a server that can't be reached, is
// stopping, or can't reach its database. The call may have taken effect; the
// same call may succeed later.
var ErrUnavailable = tko.ErrUnavailable

// DefaultAddress is the default address of a server.
const DefaultAddress = "localhost:50050"

// Options are the settings of a client. The zero value works.
type Options struct {
	// Address is host:port of the server; DefaultAddress if empty. [Dial] only.
	Address string
	// Network is "tcp" (IPv6 and IPv4, the default), "tcp6" or "tcp4". [Dial] only.
	Network string
	// TLS secures the connection with TLS 1.3. Without it, and without
	// Credentials, the connection is plain text, which is for loopback and
	// trusted networks only. [Dial] only.
	TLS *TLS
	// Credentials secure the connection in place of TLS. [Dial] only.
	Credentials credentials.TransportCredentials
	// Token returns the token that authenticates the client; none if it is nil.
	// It is called for each call. Tokens are sent over TLS, or to this machine:
	// otherwise Dial returns an error. [Dial] only.
	Token func(ctx context.Context) (string, error)
	// Dialer makes connections in place of the network. It gets the address
	// unchanged. [Dial] only.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	// Author is the author of changes, and the reason for them, unless the
	// context of a call has an author ([tko.WithAuthor]).
	Author tko.Author
	// PackageFormat is the format of packages on the wire; krm.CBOR if empty.
	PackageFormat krm.Format
	// Timeout limits each call that is not a stream and whose context has no
	// deadline; no limit if 0. The waiting time of ClaimWork is added to it.
	Timeout time.Duration
	// WaitForReady makes calls wait for a server that can't be reached, until
	// their context is done. Calls that are safe to repeat (reads,
	// registrations, work, conditions, CreateChildren, ProvisionSite) are
	// repeated if the server becomes unavailable. It is for programs that
	// outlive the server. Without it, calls fail at once with ErrUnavailable.
	WaitForReady bool
}

// TLS has the files of a secure connection. The zero value trusts the
// certificate authorities of this machine.
type TLS struct {
	CA         string // file of the certificate authorities of servers; those of this machine if empty
	Cert, Key  string // files of the client's certificate and key, read for each connection; none if empty
	ServerName string // name in the server's certificate; the host of Address if empty
}

// A Client calls a server. Its methods may be called concurrently.
type Client struct {
	data     tkopb.DataClient
	access   tkopb.AccessClient
	rollouts tkopb.RolloutsClient
	why      tkopb.WhyClient
	past     tkopb.PastClient
	logs     tkopb.LogsClient
	admin    tkopb.AdminClient
	options  Options
	calls    []grpc.CallOption
	lineage  *lineage
	codecs   bool // the connection is gRPC's own type, which accepts codecs
	close    func() error
}

// Dial makes a client with a connection of its own. The connection is made when
// it is first needed, and again after it was lost. The caller closes the
// client.
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
	secure, err := o.transport()
	if err != nil {
		return nil, err
	}
	var tokens []grpc.DialOption
	if o.Token != nil {
		tokens = append(tokens, grpc.WithPerRPCCredentials(bearer(o.Token)))
	}
	// The dialer resolves the name: it tries all addresses of a host, IPv6 first.
	conn, err := grpc.NewClient("passthrough:///"+o.Address, append(tokens,
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(secure),
		grpc.WithConnectParams(connectParams),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
	)...)
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

// transport returns the credentials of the connection.
func (o Options) transport() (credentials.TransportCredentials, error) {
	switch {
	case o.Credentials != nil:
		return o.Credentials, nil
	case o.TLS != nil:
		t := certs.ClientOptions(*o.TLS)
		if host, _, err := net.SplitHostPort(o.Address); err == nil && t.ServerName == "" {
			t.ServerName = host // and not passthrough's text
		}
		config, err := certs.Client(t)
		if err != nil {
			return nil, err
		}
		return credentials.NewTLS(config), nil
	case o.Token != nil && o.Dialer == nil && !isLocal(o.Address):
		return nil, tko.Errorf(tko.ErrInvalid, "a token for %s needs TLS: otherwise others on the network could read it", o.Address)
	}
	return insecure.NewCredentials(), nil
}

// isLocal returns whether an address is one of the loopback interface.
func isLocal(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A bearer adds a token to calls.
type bearer func(ctx context.Context) (string, error)

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b(ctx)
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	if token == "" {
		return map[string]string{}, nil
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity returns false: Dial refuses tokens that would be sent
// over a network in plain text.
func (bearer) RequireTransportSecurity() bool { return false }

// New makes a client on a connection, which the caller closes.
func New(conn grpc.ClientConnInterface, o Options) (*Client, error) {
	format, err := wire.Format(string(o.PackageFormat), krm.CBOR)
	if err != nil {
		return nil, err
	}
	o.PackageFormat = format
	_, codecs := conn.(*grpc.ClientConn)
	conn = namer{warned{conn}}
	return &Client{
		data:     tkopb.NewDataClient(conn),
		access:   tkopb.NewAccessClient(conn),
		rollouts: tkopb.NewRolloutsClient(conn),
		why:      tkopb.NewWhyClient(conn),
		past:     tkopb.NewPastClient(conn),
		logs:     tkopb.NewLogsClient(conn),
		admin:    tkopb.NewAdminClient(conn),
		options:  o,
		lineage:  &lineage{},
		codecs:   codecs,
		calls: []grpc.CallOption{
			grpc.WaitForReady(o.WaitForReady),
			grpc.MaxCallRecvMsgSize(math.MaxInt32), // the server limits what it stores
			grpc.MaxCallSendMsgSize(math.MaxInt32), // and what it accepts
		},
		close: func() error { return nil },
	}, nil
}

// Close closes a connection that [Dial] made, and ends its calls.
func (c *Client) Close() error { return c.close() }

// errorSize is the accepted size of errors, in bytes. gRPC for Go accepts 16
// MiB.
var errorSize = strconv.Itoa(1 << 20)

// rowSize is the accepted size of rows of lists: no limit.
var rowSize = strconv.Itoa(math.MaxInt32)

// outgoing adds the metadata of a call to its context.
func (c *Client) outgoing(ctx context.Context) context.Context {
	author := tko.AuthorOf(ctx)
	if author == (tko.Author{}) {
		author = c.options.Author
	}
	pairs := []string{wire.ErrorSizeKey, errorSize, wire.RowSizeKey, rowSize, wire.ConfirmKey, strconv.FormatUint(wire.NewConfirm(ctx), 10)}
	if id := trail.Request(ctx); id != "" {
		pairs = append(pairs, trail.RequestKey, id)
	}
	if traceparent := trail.Traceparent(ctx); traceparent != "" {
		pairs = append(pairs, trail.TraceparentKey, traceparent)
	}
	if acting, ok := tko.ActingOf(ctx); ok {
		pairs = append(pairs, wire.ActingKey, wire.NewActing(acting))
		if acting.Claim != "" {
			pairs = append(pairs, wire.ClaimKey, wire.NewAuthorText(acting.Claim))
		}
	}
	if author.Who != "" {
		pairs = append(pairs, wire.WhoKey, wire.NewAuthorText(author.Who))
	}
	if author.Why != "" {
		pairs = append(pairs, wire.WhyKey, wire.NewAuthorText(author.Why))
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// An unsupportedError is that of a method which the server lacks: an errors.ErrUnsupported.
type unsupportedError struct{ err error }

func (e *unsupportedError) Error() string   { return e.err.Error() }
func (e *unsupportedError) Unwrap() []error { return []error{errors.ErrUnsupported, e.err} }

// failed converts the error of a call to an error for users.
func (c *Client) failed(err error) error {
	err = wire.Error(err)
	if err == nil {
		return nil
	}
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("the server lacks this method, because it is older than this program, or one of the original TKO: upgrade it: %w", &unsupportedError{err})
	}
	// gRPC's text about a connection is for gRPC's developers.
	text := err.Error()
	_, cause, dialing := strings.Cut(text, "Error while dialing: ")
	if !dialing && (!isUnavailable(err) || wire.IsServerError(err)) {
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
