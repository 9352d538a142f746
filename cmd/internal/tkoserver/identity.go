package tkoserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/cmd/internal/wiring"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/turn"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// security holds how ports are secured and clients identified.
type security struct {
	insecure bool
	reach    config.Reach
	rate     float64                                          // requests per second of a client; 0: no limit
	turns    *turn.Queue                                      // of requests that read, of all transports
	refused  func(ctx context.Context, source, detail string) // records callers that could not be authenticated; may be nil
	certs    *certs.Server                                    // nil without TLS
	tokens   *authn.TokenFile                                 // nil without static tokens
	issuer   *authn.OIDC                                      // nil without an issuer
	callers  *authn.Authenticator
	readers  []authn.TokenReader
	runs     authn.Runs // of plugins that validate
}

// newSecurity reads the files that the settings name.
func newSecurity(c *config.Identity, log *slog.Logger) (*security, error) {
	s := &security{insecure: c.Insecure, turns: turn.New()}
	var err error
	if s.certs, err = wiring.Certificates(c, log); err != nil {
		return nil, err
	}
	if c.TokenFile != "" {
		if s.tokens, err = authn.OpenTokenFile(c.TokenFile, log); err != nil {
			return nil, err
		}
		s.readers = append(s.readers, s.tokens)
	}
	if c.OIDCIssuer != "" {
		secret := ""
		if c.OIDCSecretFile != "" {
			text, err := os.ReadFile(c.OIDCSecretFile)
			if err != nil {
				return nil, tko.Errorf(tko.ErrInvalid, "--oidc-secret-file: %w", err)
			}
			secret = strings.TrimSpace(string(text))
			if secret == "" {
				return nil, tko.Errorf(tko.ErrInvalid, "--oidc-secret-file: %s is empty", c.OIDCSecretFile)
			}
		}
		s.issuer, err = authn.NewOIDC(authn.OIDCOptions{
			Issuer: c.OIDCIssuer, Alias: c.OIDCAlias, Audience: c.OIDCAudience, Algorithms: c.OIDCAlgorithms, GroupsClaim: c.OIDCGroupsClaim, CA: c.OIDCCA,
			Secret: secret, Scopes: c.OIDCScopes,
		})
		if err != nil {
			return nil, err
		}
		s.readers = append(s.readers, s.issuer)
	}
	if c.TokenReview != "" {
		cluster, err := authn.NewReviewer(c.TokenReview, c.TokenReviewAudience)
		if err != nil {
			return nil, err
		}
		s.readers = append(s.readers, cluster)
	}
	return s, s.authenticate(c, nil)
}

// dataTokens are the tokens of which the data controller knows.
type dataTokens interface {
	authn.Claims
	authn.SetupTokens
}

// authenticate makes the authenticator; claims are those of the data controller,
// which validate the tokens of plugins, or nil.
func (s *security) authenticate(c *config.Identity, claims dataTokens) error {
	controllers, err := authn.ParseControllers(c.Controllers)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "--controllers: %w", err)
	}
	readers := s.readers
	if claims != nil {
		readers = append([]authn.TokenReader{authn.Plugins{Claims: claims}, &s.runs, authn.Setup{Tokens: claims}}, readers...)
	}
	o := authn.Options{SPIFFEDomains: c.SPIFFEDomains, Tokens: readers, Controllers: controllers, Insecure: s.insecure}
	if s.certs != nil {
		o.Certificates = s.certs
	}
	s.callers = authn.New(o)
	return nil
}

// run reads the files again when they change, until the context ends.
func (s *security) run(ctx context.Context) error {
	if s.tokens != nil {
		go s.tokens.Run(ctx, certs.DefaultInterval)
	}
	if s.certs != nil {
		s.certs.Run(ctx)
	}
	return nil
}

// expiresSoon is the time before the expiry of a certificate at which it is
// reported.
const expiresSoon = 14 * 24 * time.Hour

// conditions returns the problems of the files, and of the settings.
func (s *security) conditions() []tko.Condition {
	var all []tko.Condition
	add := func(typ, reason, format string, args ...any) {
		all = append(all, tko.Condition{Type: typ, Status: tko.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if s.insecure {
		add("Secure", "Insecure", "other machines are served without TLS or identities (--insecure)")
	}
	if off := s.reach.Off(); len(off) > 0 {
		add("ReachLimited", "SwitchedOff", "%s", strings.Join(off, "; "))
	}
	if s.certs != nil {
		if problem := s.certs.Problem(); problem != "" {
			add("CertificatesLoaded", "Invalid", "the previous files are in use: %s", problem)
		}
		if until := s.certs.Expires(); time.Until(until) < expiresSoon {
			add("CertificatesValid", "ExpiresSoon", "the certificate of this server expires at %s", until.UTC().Format(time.RFC3339))
		}
		if until := s.certs.RevocationsExpire(); !until.IsZero() && time.Now().After(until) {
			add("RevocationsValid", "Outdated", "the revocation lists are outdated since %s", until.UTC().Format(time.RFC3339))
		}
	}
	if s.tokens != nil {
		if problem := s.tokens.Problem(); problem != "" {
			add("TokensLoaded", "Invalid", "the previous content is in use: %s", problem)
		}
	}
	return all
}

// grpc returns how the gRPC API makes connections secure.
func (s *security) grpc() *grpcapi.Secure {
	if s.certs == nil {
		return nil
	}
	return &grpcapi.Secure{Accept: s.certs.Accept, Peer: certs.Peer}
}

// listener returns a listener whose connections are secure, if there is TLS.
func (s *security) listener(l net.Listener, protocols ...string) net.Listener {
	if s.certs == nil {
		return l
	}
	return s.certs.Listener(l, protocols...)
}

type connKey struct{}

// withConn keeps a connection of an [http.Server] for its requests.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// serveHTTP serves HTTP securely, by a server whose ConnContext is [withConn], until the
// context ends, or the server or the listener is closed.
func (s *security) serveHTTP(ctx context.Context, server *http.Server, l net.Listener) error {
	return wiring.ServeHTTP(ctx, server, s.listener(l, wiring.HTTPProtocol))
}

// identified adds the identities of callers to requests, and refuses those
// without one.
func (s *security) identified(handler http.Handler, log *slog.Logger) http.Handler {
	o := webapi.IdentityOptions{Log: log, Turns: s.turns, Refused: s.refused}
	if s.rate > 0 {
		o.Limits = identity.NewRates(s.rate, max(1, int(2*s.rate)))
	}
	return webapi.WithIdentity(handler, s.callers, func(r *http.Request) authn.Connection {
		c := webapi.ConnectionOf(r)
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			c.Peer = certs.Peer(conn)
		}
		return c
	}, o)
}

// logInsecure logs that other machines are served without TLS or identities.
func (s *server) logInsecure(ctx context.Context) {
	if !s.config.Identity.Insecure {
		return
	}
	s.log.WarnContext(ctx, "INSECURE: clients on other machines have all rights without TLS and identities (--insecure)", "addresses", strings.Join(s.config.Exposed(), " "))
}

// listenUnix opens the Unix socket of the gRPC API, whose port is known. A
// socket that a killed server left is replaced.
func (s *server) listenUnix(ctx context.Context) error {
	if passed := s.passed[socketUnix]; len(passed) > 0 {
		s.unix = passed
		return nil
	}
	path := s.config.Identity.ListenUnix
	if path == "" || !s.config.Has(config.RoleData) {
		return nil
	}
	auto := path == config.UnixAuto
	if auto {
		_, port, err := net.SplitHostPort(s.config.ListenGRPC)
		dir := client.SocketDir()
		if err != nil || port == "0" || dir == "" {
			return nil //nolint:nilerr // without a port there is no name for the socket
		}
		path = filepath.Join(dir, client.SocketName(port))
	}
	l, err := openUnix(ctx, path)
	if err != nil && auto { // TCP works
		s.log.InfoContext(ctx, "no unix socket", "path", path, "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on the Unix socket %q (--listen-unix): %w", path, err)
	}
	s.unix = []net.Listener{l}
	return nil
}

func openUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, tko.Errorf(tko.ErrInvalid, "there is a file that is no socket: remove it")
		}
		if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
			_ = conn.Close()
			return nil, errors.New("another server uses it")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil { //nolint:gosec // the group of the folder may connect: its user IDs are known
		_ = l.Close()
		return nil, err
	}
	return l, nil
}
