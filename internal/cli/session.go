package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/dashboard"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// The methods of client.Client that the commands use.
type (
	server interface {
		dashboard.Server
		writers
		removers
		modifications
		declared
		services
	}
	declared interface {
		sources
		subscriptions
		savedViews
	}
	services interface {
		reports
		clients
		client.Calls
		Stops(ctx context.Context) ([]tko.StopStatus, error)
		RolloutRows(ctx context.Context, s tko.RolloutRows) iter.Seq2[tko.RolloutRow, error]
		RolloutEvidence(ctx context.Context, s tko.RolloutEvidenceSelect) iter.Seq2[tko.RolloutEvidence, error]
	}
	reports interface {
		scheduling
		past
		reasons
		logServer
	}
	clients interface {
		Access() *client.Access
		Admin() *client.Admin
		io.Closer
	}
	writers interface {
		RegisterTemplate(ctx context.Context, t tko.Template) (revision int64, err error)
		RegisterSite(ctx context.Context, s tko.Site) (revision int64, err error)
		RegisterPlugin(ctx context.Context, p tko.Plugin) (revision int64, err error)
		RegisterRollout(ctx context.Context, r tko.Rollout) (revision int64, err error)
		CreateDeployment(ctx context.Context, d tko.NewDeployment) (tko.DeploymentID, error)
		PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error)
	}
	removers interface {
		DeleteTemplate(ctx context.Context, id tko.TemplateID) (tko.Deleted, error)
		DeleteSite(ctx context.Context, id tko.SiteID) (tko.Deleted, error)
		DeleteDeployment(ctx context.Context, id tko.DeploymentID) (tko.Deleted, error)
		DeletePlugin(ctx context.Context, typ, name string) (tko.Deleted, error)
		PurgePlugins(ctx context.Context, sel tko.PluginSelect, dryRun bool) (tko.Deleted, error)
	}
	modifications interface {
		StartModification(ctx context.Context, id tko.DeploymentID) (tko.Modification, error)
		EndModification(ctx context.Context, token string, pkg krm.Package) (tko.DeploymentID, int64, error)
		CancelModification(ctx context.Context, token string) error
	}
	sources interface {
		Source(ctx context.Context, name string) (tko.Source, error)
		Sources(ctx context.Context) ([]tko.Source, error)
		EnqueueSources(ctx context.Context, names []string, missing bool, approve string) error
		RegisterSources(ctx context.Context, definitions []tko.SourceDefinition, dryRun bool) ([]tko.RegisteredSource, error)
		SourceDefinitions(ctx context.Context, known int64) (tko.SourceDefinitions, error)
		DeleteSource(ctx context.Context, name string, keep bool) error
	}
	savedViews interface {
		RegisterViews(ctx context.Context, all []tko.View, dryRun bool) ([]tko.RegisteredView, error)
		Views(ctx context.Context) ([]tko.View, error)
		DeleteView(ctx context.Context, name string) error
	}
	subscriptions interface {
		RegisterSubscriptions(ctx context.Context, all []tko.Subscription, dryRun bool) ([]tko.RegisteredSubscription, error)
		Subscriptions(ctx context.Context) ([]tko.Subscription, error)
		DeleteSubscription(ctx context.Context, name string) error
		TestSubscription(ctx context.Context, name string) (id string, err error)
	}
)

// A target is a server to connect to.
type target struct {
	address string // host:port
	network string // tcp, tcp6 or tcp4
	local   bool   // localhost, over IPv6 or IPv4
	socket  string // path of a Unix socket, in place of the network; "" for none
	format  krm.Format

	tls   *client.TLS  // nil for plain text
	token *tokenSource // nil for none
}

// A tokenSource returns the token of a call.
type tokenSource struct {
	get func(ctx context.Context) (string, error)
}

// unixScheme begins the address of a Unix socket.
const unixScheme = "unix:"

type dialer func(t target) (server, error)

var (
	// errUnavailable is the kind of errors of a server that doesn't respond.
	errUnavailable = errors.New("unavailable")
	errTimeout     = errors.New("no response in time")
)

// target returns the server that the flags name.
func (g *globals) target() (target, error) {
	if len(g.unchosen) > 0 {
		return target{}, tko.Errorf(errUsage, "no context is the current one: choose one with tko context use (%s), or name the server with --context or --grpc-address", strings.Join(g.unchosen, ", "))
	}
	t := target{network: "tcp", format: krm.Format(g.grpcFormat)}
	local := "localhost"
	switch g.ipStack {
	case "ipv6":
		t.network, local = "tcp6", "::1"
	case "ipv4":
		t.network, local = "tcp4", "127.0.0.1"
	}
	if g.tls || g.tlsCA != "" || g.tlsCert != "" || g.tlsServerName != "" {
		t.tls = &client.TLS{CA: g.tlsCA, Cert: g.tlsCert, Key: g.tlsKey, ServerName: g.tlsServerName}
	}
	if path, ok := strings.CutPrefix(g.address, unixScheme); ok {
		path = "/" + strings.TrimLeft(path, "/") // unix:///PATH is the same
		if t.tls != nil || path == "/" {
			return target{}, tko.Errorf(errUsage, "--grpc-address %q: use unix:/PATH of a socket, without TLS", g.address)
		}
		t.address, t.socket = "localhost", path
		return t, nil
	}
	t.local = g.address == "" && g.ipStack == "dual"
	host, port := cmp.Or(g.address, local), strconv.Itoa(int(g.port))
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return target{}, tko.Errorf(errUsage, "--grpc-address %q: %q is not a port: use 1 to 65535", g.address, p)
		}
	} else if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	t.address = net.JoinHostPort(host, port)
	return t, nil
}

// A session is a connection to a server.
type session struct {
	server
	app    *app
	target target
}

// connect prepares a connection, which is made at the first call. The context that
// it returns names the author of changes.
func (a *app) connect(ctx context.Context) (context.Context, *session, error) {
	t, err := a.globals.target()
	if err != nil {
		return nil, nil, err
	}
	t.token = a.tokens()
	srv, err := a.dial(t)
	if err != nil {
		return nil, nil, tko.Errorf(errUsage, "connect to %s: %w", t.address, err)
	}
	a.closers = append(a.closers, srv)
	ctx = tko.WithAuthor(ctx, tko.Author{Who: who(), Why: a.globals.reason})
	ctx = a.trailed(ctx)
	a.log.InfoContext(ctx, "using server", "address", t.address, "network", t.network, "request_id", trail.Request(ctx))
	return ctx, &session{server: srv, app: a, target: t}, nil
}

// trailed gives the command's requests an ID, and a trace if one is asked for.
func (a *app) trailed(ctx context.Context) context.Context {
	ctx = trail.WithRequest(ctx, cmp.Or(a.globals.requestID, trail.NewRequest()))
	if !a.globals.trace {
		return ctx
	}
	ctx = trail.WithNewTrace(ctx)
	a.notice("trace %s, request %s", trail.TraceID(ctx), trail.Request(ctx))
	return ctx
}

func (a *app) timeout() time.Duration {
	return time.Duration(a.globals.timeout * float64(time.Second))
}

// call makes one call to the server, within the time limit.
func call[T any](ctx context.Context, s *session, ask func(ctx context.Context) (T, error)) (T, error) {
	ctx, stop := expiring(ctx, s.app.timeout(), errTimeout)
	defer stop()
	return callWithin(ctx, s, ask)
}

// callWithin makes one call to the server, without a time limit of its own.
func callWithin[T any](ctx context.Context, s *session, ask func(ctx context.Context) (T, error)) (T, error) {
	began := time.Now()
	result, err := ask(ctx)
	s.app.log.DebugContext(ctx, "called the server", "took", time.Since(began), "err", err)
	return result, s.explain(ctx, err)
}

// do makes a call that returns only an error.
func (s *session) do(ctx context.Context, ask func(ctx context.Context) error) error {
	_, err := call(ctx, s, func(ctx context.Context) (none, error) { return none{}, ask(ctx) })
	return err
}

// deployment reads a deployment.
func (s *session) deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	return call(ctx, s, func(ctx context.Context) (tko.Deployment, error) { return s.Deployment(ctx, id, revision) })
}

// eachDeployment calls row for each selected deployment.
func (s *session) eachDeployment(ctx context.Context, sel tko.DeploymentSelect, o tko.ListOptions, row func(tko.Deployment)) error {
	return each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Deployment, error] { return s.Deployments(ctx, sel, o) }, func(d tko.Deployment) error {
		row(d)
		return nil
	})
}

// none is the result of calls that return only an error.
type none struct{}

// slow is the time after which a command reports that it is still running.
const slow = 5 * time.Second

// callLong makes a call that may take long: without a time limit, unless one was
// given. If it is interrupted, the changes that were made stay.
func callLong[T any](ctx context.Context, s *session, ask func(ctx context.Context) (T, error)) (T, error) {
	if s.app.globals.timeoutSet {
		return call(ctx, s, ask)
	}
	timer := time.AfterFunc(slow, func() {
		s.app.notice("still running; if it is interrupted, the changes made so far stay, and the same command continues")
	})
	defer timer.Stop()
	return callWithin(ctx, s, ask)
}

// each calls row for each item of a list. The time limit applies to each item.
func each[T any](ctx context.Context, s *session, list func(ctx context.Context) iter.Seq2[T, error], row func(T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	defer func() { s.app.log.DebugContext(ctx, "listed from the server", "took", time.Since(began)) }()
	var watchdog *time.Timer
	if d := s.app.timeout(); d > 0 {
		watchdog = time.AfterFunc(d, func() { cancel(errTimeout) })
		defer watchdog.Stop()
	}
	for item, err := range list(ctx) {
		if err != nil {
			return s.explain(ctx, err)
		}
		if watchdog != nil {
			watchdog.Stop()
		}
		if err := row(item); err != nil {
			return err
		}
		if watchdog != nil {
			watchdog.Reset(s.app.timeout())
		}
	}
	return s.explain(ctx, context.Cause(ctx))
}

// expiring returns a context that ends with a cause after a time; 0: never.
func expiring(ctx context.Context, limit time.Duration, cause error) (_ context.Context, stop func()) {
	ctx, _, stop = patient(ctx, limit, cause)
	return ctx, stop
}

// patient is like expiring, and the time begins again when moved is called.
func patient(ctx context.Context, limit time.Duration, cause error) (_ context.Context, moved, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if limit <= 0 {
		return ctx, func() {}, func() { cancel(nil) }
	}
	timer := time.AfterFunc(limit, func() { cancel(cause) })
	moved = func() {
		if timer.Stop() {
			timer.Reset(limit)
		}
	}
	return ctx, moved, func() {
		timer.Stop()
		cancel(nil)
	}
}

// explain adds remedies to errors of the connection.
func (s *session) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errTimeout):
		return &hintedError{
			err:  tko.Errorf(errUnavailable, "the server at %s did not respond within %v", s.target.address, s.app.timeout()),
			hint: "it may be busy: give it more time with --grpc-timeout SECONDS",
		}
	case errors.Is(err, client.ErrUnavailable) && !strings.Contains(err.Error(), "can't be reached"):
		return tko.Errorf(errUnavailable, "%w", err) // the server responded: a part of it is unavailable
	case errors.Is(err, client.ErrUnavailable):
		return &hintedError{
			err:  tko.Errorf(errUnavailable, "%w", err),
			hint: s.hint(err),
		}
	}
	return err
}

// hint returns the remedy for a server that can't be reached.
func (s *session) hint(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "certificate") || strings.Contains(text, "tls: "):
		return "check the TLS settings: --tls-ca, --tls-server-name, --tls-cert and --tls-key"
	case s.target.tls == nil && (strings.Contains(text, "error reading server preface") || strings.Contains(text, "connection closed")):
		return "the server may want TLS: use --tls or --tls-ca"
	}
	return "start one with tko-server, or name another with --grpc-address and --grpc-port"
}

// expectID refuses an empty argument, which is often an unset variable.
func expectID(what, id string) error {
	if id == "" {
		return tko.Errorf(errUsage, "the %s is empty", what)
	}
	return nil
}

// pluginText names a plugin in messages.
func pluginText(typ, name string) string { return fmt.Sprintf("%s plugin %q", typ, name) }
