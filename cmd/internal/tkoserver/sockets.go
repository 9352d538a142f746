package tkoserver

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/systemd"
)

// socketUnix is the name of the passed Unix socket of the gRPC API.
const socketUnix = "unix"

// A passedSocket is a socket that a service manager may pass: the setting that it
// replaces, and the role that serves it, if only one does.
type passedSocket struct {
	flag    string
	setting *string
	role    string
}

func passedSockets(c *config.Config) map[string]passedSocket {
	return map[string]passedSocket{
		"grpc":       {"listen-grpc", &c.ListenGRPC, config.RoleData},
		socketUnix:   {"listen-unix", &c.Identity.ListenUnix, config.RoleData},
		"web":        {"listen-web", &c.ListenWeb, config.RoleData},
		"kubernetes": {"kubernetes", &c.Kubernetes, config.RoleData},
		"webhook":    {"listen-webhook", &c.GitOps.Webhook, config.RoleGitOps},
		"agents":     {"listen-agents", &c.Agents.Listen, config.RoleData},
		"tickets":    {"listen-tickets", &c.Tickets.Listen, config.RoleRollout},
		"log":        {"listen-log", &c.ListenLog, ""},
		"debug":      {"listen-debug", &c.ListenDebug, ""},
		"health":     {"listen-health", &c.ListenHealth, ""},
		"metrics":    {"listen-metrics", &c.ListenMetrics, ""},
	}
}

// inherit replaces the settings of addresses by those of passed sockets, so that
// the same rules apply to them: other machines are served with TLS and identities
// only.
func inherit(c *config.Config, passed map[string][]net.Listener) error {
	known := passedSockets(c)
	for _, name := range slices.Sorted(maps.Keys(passed)) {
		s, ok := known[name]
		if !ok {
			return tko.Errorf(tko.ErrInvalid, "the service manager passes a socket %q: name it with FileDescriptorName=, as one of %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if s.role != "" && !c.Has(s.role) {
			return tko.Errorf(tko.ErrInvalid, "the service manager passes a socket %q, which the role %s serves, and --roles lacks it", name, s.role)
		}
		var address string
		for _, l := range passed[name] {
			if _, ok := l.Addr().(*net.TCPAddr); ok == (name == socketUnix) {
				return tko.Errorf(tko.ErrInvalid, "the service manager passes a socket %q at %s: %q is a Unix socket, and all others are TCP sockets", name, l.Addr(), socketUnix)
			}
			if own := l.Addr().String(); address == "" || !config.IsLoopback(own) {
				address = own
			}
		}
		*s.setting = address
	}
	return nil
}

// sockets returns the listeners of an API: the passed ones, or those of an address.
func (s *server) sockets(ctx context.Context, name, address string) ([]net.Listener, error) {
	if passed := s.passed[name]; len(passed) > 0 {
		return passed, nil
	}
	if address == "" {
		return nil, nil
	}
	return config.Listen(ctx, address, s.config.IPStack)
}

// closeAll closes listeners, which no server uses.
func closeAll(passed map[string][]net.Listener) {
	for _, listeners := range passed {
		for _, l := range listeners {
			_ = l.Close()
		}
	}
}

// manage notifies the service manager: of the start, of the end, and, as long as the
// API responds, its watchdog. It returns when the context ends.
func (s *server) manage(ctx context.Context) error {
	notifier := systemd.Notifier{Log: s.log}
	status := "serving " + strings.Join(addresses(s.grpc), " ")
	if len(s.grpc) == 0 {
		status = "running " + strings.Join(s.config.Roles, ", ")
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	notifier.Ready(status)
	stop := context.AfterFunc(ctx, notifier.Stopping)
	defer stop()
	go notifier.Watchdog(ctx, s.responds)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			notifier.Reloading()
			s.security.reload(ctx, s.log)
			notifier.Ready(status)
		}
	}
}

// responds returns an error if the API of this process does not respond. The state
// of the database does not matter: a restart doesn't mend it.
func (s *server) responds(ctx context.Context) error {
	l := s.inProcess[identity.RoleServer]
	if l == nil {
		return nil
	}
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

// reload reads the files again. Invalid ones are logged, and the previous contents
// stay in use.
func (s *security) reload(ctx context.Context, log *slog.Logger) {
	var failed error
	if s.certs != nil {
		failed = s.certs.Reload()
	}
	if s.tokens != nil {
		failed = errors.Join(failed, s.tokens.Reload())
	}
	if failed != nil {
		log.ErrorContext(ctx, "can't reload the files of certificates and tokens, keeping the previous ones", "err", failed)
		return
	}
	log.InfoContext(ctx, "reloaded the files of certificates and tokens; other settings need a restart")
}
