// Command dex is an OpenID Connect issuer for tests: Dex, with its state in memory,
// and users of a file who log in without a password. It prints its issuer URL.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dexidp/dex/connector"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
	"github.com/prometheus/client_golang/prometheus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dex:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cert := flag.String("cert", "", "certificate file")
	key := flag.String("key", "", "key file")
	users := flag.String("users", "", "JSON file of users: {NAME: {\"email\": ..., \"groups\": [...]}}, read at each login and refresh")
	life := flag.Duration("life", time.Hour, "lifetime of ID tokens")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := "https://" + listener.Addr().String()
	state := memory.New(log)
	// The second client is of another application of the same issuer.
	for _, id := range []string{"tko", "grafana"} {
		if err := state.CreateClient(ctx, storage.Client{ID: id, Name: id, Public: true, RedirectURIs: []string{"/device/callback", "https://tko.test/auth/callback"}}); err != nil {
			return err
		}
	}
	server.ConnectorsConfig["file"] = func() server.ConnectorConfig { return new(config) }
	names, err := read(*users)
	if err != nil {
		return err
	}
	for name := range names {
		settings, err := json.Marshal(config{File: *users, User: name})
		if err != nil {
			return err
		}
		if err := state.CreateConnector(ctx, storage.Connector{ID: name, Type: "file", Name: name, Config: settings}); err != nil {
			return err
		}
	}
	refresh, err := server.NewRefreshTokenPolicy(log, false, "", "", "")
	if err != nil {
		return err
	}
	dex, err := server.NewServer(ctx, server.Config{
		Issuer: issuer, Storage: state, SkipApprovalScreen: true, IDTokensValidFor: *life, RefreshTokenPolicy: refresh,
		Web: server.WebConfig{WebFS: web.FS()}, Logger: log, PrometheusRegistry: prometheus.NewRegistry(),
		AllowedGrantTypes: []string{"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"},
	})
	if err != nil {
		return err
	}
	serving := &http.Server{Handler: dex, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = serving.Close() })
	fmt.Println(issuer)
	if err := serving.ServeTLS(listener, *cert, *key); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A user of the file.
type user struct {
	Email  string   `json:"email"`
	Groups []string `json:"groups"`
}

func read(path string) (users map[string]user, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &users)
	}
	return users, err
}

// A config is a connector for one user of the file.
type config struct {
	File string `json:"file"`
	User string `json:"user"`
}

// Open implements server.ConnectorConfig.
func (c *config) Open(string, *slog.Logger) (connector.Connector, error) { return c, nil }

// LoginURL implements connector.CallbackConnector.
func (c *config) LoginURL(_ connector.Scopes, callback, state string) (string, error) {
	u, err := url.Parse(callback)
	if err != nil {
		return "", err
	}
	u.RawQuery = url.Values{"state": {state}}.Encode()
	return u.String(), nil
}

// HandleCallback implements connector.CallbackConnector.
func (c *config) HandleCallback(connector.Scopes, *http.Request) (connector.Identity, error) {
	return c.identity()
}

// Refresh implements connector.RefreshConnector.
func (c *config) Refresh(context.Context, connector.Scopes, connector.Identity) (connector.Identity, error) {
	return c.identity()
}

func (c *config) identity() (connector.Identity, error) {
	users, err := read(c.File)
	if err != nil {
		return connector.Identity{}, err
	}
	u, ok := users[c.User]
	if !ok {
		return connector.Identity{}, fmt.Errorf("user %q: not found", c.User)
	}
	return connector.Identity{UserID: c.User, Username: c.User, Email: u.Email, EmailVerified: true, Groups: u.Groups}, nil
}
