package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"golang.org/x/net/proxy"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/tko-orchestrator/tko"
)

// gitPrefix begins the schemes of guarded requests, whose guard is in their context: go-git has
// one table of transports for the process, by scheme.
const gitPrefix = "tko-guarded-"

const gitTimeout = 10 * time.Minute

type guardKey struct{}

func init() { // no other goroutine reads the table of schemes yet
	for _, scheme := range []string{"http", "https"} {
		client.InstallProtocol(gitPrefix+scheme, githttp.NewClient(&http.Client{Timeout: gitTimeout, Transport: gitTransport{}}))
	}
	proxy.RegisterDialerType(gitPrefix+"ssh", func(u *url.URL, _ proxy.Dialer) (proxy.Dialer, error) {
		loaded, _ := guards.Load(u.Host)
		g, ok := loaded.(*Guard)
		if !ok {
			return nil, tko.Errorf(tko.ErrDenied, "the connection has no guard")
		}
		return sshDialer{g}, nil
	})
}

// guards are all guards by their IDs. A connection over ssh has no context; its
// guard is identified by the URL of a proxy.
var (
	guards sync.Map
	lastID atomic.Int64
)

func register(g *Guard) (id string) {
	id = "guard" + strconv.FormatInt(lastID.Add(1), 10)
	guards.Store(id, g)
	return id
}

// Git adapts a remote git repository's URL, of the scheme http, https or ssh or
// of the form user@host:path, for go-git: the caller uses the returned context
// and URL in place of its own, and the returned proxy options for connections
// over ssh.
func (g *Guard) Git(ctx context.Context, location string) (_ context.Context, guarded string, options transport.ProxyOptions, err error) {
	if g == nil {
		return ctx, location, transport.ProxyOptions{}, nil
	}
	endpoint, err := transport.NewEndpoint(location)
	if err != nil {
		return ctx, "", options, tko.Errorf(tko.ErrInvalid, "not a URL")
	}
	if err := g.URL(&url.URL{Scheme: endpoint.Protocol, Host: joinHost(endpoint.Host)}); err != nil {
		return ctx, "", options, err
	}
	ctx = context.WithValue(ctx, guardKey{}, g)
	switch endpoint.Protocol {
	case "http", "https":
		return ctx, gitPrefix + location, options, nil
	case "ssh":
		return ctx, location, transport.ProxyOptions{URL: gitPrefix + "ssh://" + g.id}, nil
	}
	return ctx, "", options, tko.Errorf(tko.ErrDenied, "git repositories must use https, http or ssh, not %s", endpoint.Protocol)
}

func joinHost(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// A gitTransport makes the requests of guarded git connections.
type gitTransport struct{}

func (gitTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	g, ok := r.Context().Value(guardKey{}).(*Guard)
	if !ok {
		return nil, tko.Errorf(tko.ErrDenied, "the connection to %s has no guard", r.URL.Host)
	}
	r = r.Clone(r.Context())
	r.URL.Scheme = strings.TrimPrefix(r.URL.Scheme, gitPrefix)
	response, err := g.Transport().RoundTrip(r)
	if err == nil {
		response.Request = nil // its scheme would confuse go-git
	}
	return response, err
}

// An sshDialer makes guarded connections for ssh.
type sshDialer struct{ guard *Guard }

// Dial is DialContext without a context, which the library requires as well.
func (d sshDialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d sshDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.guard.DialContext(ctx, network, address)
}

// shown are the errors of go-git that contain no text from the remote server.
var shown = []error{
	transport.ErrRepositoryNotFound, transport.ErrAuthenticationRequired, transport.ErrAuthorizationFailed, transport.ErrEmptyRemoteRepository,
	transport.ErrInvalidAuthMethod, plumbing.ErrReferenceNotFound, plumbing.ErrObjectNotFound, git.ErrNonFastForwardUpdate, git.ErrForceNeeded, git.NoErrAlreadyUpToDate, io.ErrUnexpectedEOF,
}

// kinds are TKO's own kinds of errors, which GitError returns unchanged.
var kinds = []error{tko.ErrInvalid, tko.ErrDenied, tko.ErrNotFound, tko.ErrConflict, tko.ErrUnavailable}

const maxStatus = 200 // bytes of a git server's message about a push

// GitError returns an error of go-git without the text of the remote server's
// response, because users read it in conditions and it may contain anything. It
// returns connection errors and TKO's own errors unchanged.
func GitError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if unexpected, ok := errors.AsType[*plumbing.UnexpectedError](err); ok {
		err = unexpected.Err
	}
	for _, known := range shown {
		if errors.Is(err, known) {
			return known
		}
	}
	if status, ok := errors.AsType[*githttp.Err](err); ok && status.Response != nil {
		return fmt.Errorf("the server responded %s", Status(status.Response.StatusCode))
	}
	if slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }) {
		return err
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return err
	}
	text := err.Error()
	for _, prefix := range []string{"ssh: ", "knownhosts: ", "tls: ", "x509: ", "command error on ", "unpack error: "} {
		if strings.HasPrefix(text, prefix) {
			return errors.New(text[:min(len(text), maxStatus)])
		}
	}
	return errors.New("the server did not respond as a git server does")
}

// RegistryError returns the error of a registry's client without the text of
// the registry's response.
func RegistryError(err error) error {
	if response, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		return fmt.Errorf("the registry responded %s", Status(response.StatusCode))
	}
	return err
}
