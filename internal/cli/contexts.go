package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// A contextFile is the configuration file of the command: servers, and how to
// reach and authenticate at them.
type contextFile struct {
	Current  string                   `json:"current,omitempty"`
	Contexts map[string]serverContext `json:"contexts"`
}

// A serverContext has the settings of one server. Its keys are those of the
// flags.
type serverContext struct {
	Address    string   `json:"address,omitempty"` // host:port; this machine if empty
	TLS        bool     `json:"tls,omitempty"`
	CA         string   `json:"tls-ca,omitempty"` // files
	Cert       string   `json:"tls-cert,omitempty"`
	Key        string   `json:"tls-key,omitempty"`
	ServerName string   `json:"tls-server-name,omitempty"`
	TokenFile  string   `json:"token-file,omitempty"`
	Issuer     string   `json:"oidc-issuer,omitempty"`
	ClientID   string   `json:"oidc-client-id,omitempty"`
	IssuerCA   string   `json:"oidc-ca,omitempty"`
	Scopes     []string `json:"oidc-scopes,omitempty"`
}

// texts returns the settings that are texts, by their flags.
func (c *serverContext) texts() map[string]*string {
	return map[string]*string{
		"address": &c.Address, "tls-ca": &c.CA, "tls-cert": &c.Cert, "tls-key": &c.Key, "tls-server-name": &c.ServerName, "token-file": &c.TokenFile,
		"oidc-issuer": &c.Issuer, "oidc-client-id": &c.ClientID, "oidc-ca": &c.IssuerCA,
	}
}

// configPath returns the path of the configuration file: TKO_CONFIG, else
// tko/config.yaml in the user's folder for configuration.
func configPath() (string, error) {
	if path := os.Getenv("TKO_CONFIG"); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", tko.Errorf(errUsage, "there is no folder for the configuration: %w; name a file with TKO_CONFIG", err)
	}
	return filepath.Join(dir, "tko", "config.yaml"), nil
}

// readContexts reads the configuration file; a missing one is empty.
func readContexts() (contextFile, error) {
	path, err := configPath()
	if err != nil {
		return contextFile{}, err
	}
	file := contextFile{}
	data, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return file, tko.Errorf(errUsage, "read the contexts: %w", err)
	}
	if err := yaml12.UnmarshalStrict(data, &file); err != nil {
		return file, tko.Errorf(errUsage, "read the contexts in %q: %w", path, err)
	}
	if file.Contexts == nil {
		file.Contexts = map[string]serverContext{}
	}
	return file, nil
}

// changeContexts changes the configuration file, in one step and readable by the
// user only.
func changeContexts(change func(*contextFile) error) error {
	path, err := configPath()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	lock := flock.New(path + ".lock")
	if err := lock.Lock(); err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	file, err := readContexts()
	if err != nil {
		return err
	}
	if err := change(&file); err != nil {
		return err
	}
	data, err := yaml.Marshal(file)
	if err != nil {
		return err
	}
	return writePrivate(path, data)
}

// writePrivate replaces a file, in one step. Only the user can read it.
func writePrivate(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tko-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkContextName(name string) error {
	if !contextName.MatchString(name) {
		return tko.Errorf(errUsage, "the context name %q is not allowed: use letters, digits, dots, dashes and underscores", name)
	}
	return nil
}

// useContext sets the flags that the user has not set from a context: the one of
// --context, else the current one, unless an address was given, to which the
// credentials of the current context must not be sent.
func (a *app) useContext(cmd *cobra.Command) error {
	g := &a.globals
	explicit := g.context != ""
	if !explicit && (g.address != "" || cmd.Flags().Changed("grpc-port")) {
		return nil
	}
	file, err := readContexts()
	if err != nil {
		return err
	}
	name := g.context
	if !explicit {
		name = file.Current
	}
	if name == "" {
		g.unchosen = slices.Sorted(maps.Keys(file.Contexts))
		return nil
	}
	c, ok := file.Contexts[name]
	if !ok {
		return tko.Errorf(errUsage, "there is no context %q: see tko context list", name)
	}
	if explicit && g.address != "" {
		return tko.Errorf(errUsage, "--context and --grpc-address can't be used together: the credentials of a context are for its server only")
	}
	g.contextName, g.login = name, c
	if c.Address != "" {
		g.address = c.Address
	}
	g.tls = g.tls || c.TLS
	for _, s := range []struct {
		flag *string
		from string
	}{{&g.tlsCA, c.CA}, {&g.tlsCert, c.Cert}, {&g.tlsKey, c.Key}, {&g.tlsServerName, c.ServerName}, {&g.tokenFile, c.TokenFile}} {
		if *s.flag == "" {
			*s.flag = s.from
		}
	}
	return nil
}

func (a *app) contextCommand() *cobra.Command {
	return group("context", "Servers, and how to reach and authenticate at them",
		a.contextList(), a.contextUse(), a.contextSet(), a.contextDelete())
}

// contextArgument completes the name of a context.
func contextArgument(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	file, err := readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(file.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) contextList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the contexts; a star marks the current one",
		Example: "  tko context list",
		RunE: func(*cobra.Command, []string) error {
			file, err := readContexts()
			if err != nil {
				return err
			}
			var text strings.Builder
			rows := []any{}
			for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
				current, address := name == file.Current, file.Contexts[name].Address
				rows = append(rows, map[string]any{"name": name, "current": current, "address": address})
				fmt.Fprintf(&text, "%s %-20s %s\n", either(current, "*", " "), name, cmp.Or(address, "this machine"))
			}
			return a.show(text.String(), map[string]any{"contexts": rows})
		},
	}
}

func (a *app) contextUse() *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Make a context the current one, for commands without --context",
		Example:           "  tko context use production",
		Args:              arguments(1, 1),
		ValidArgsFunction: contextArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			return changeContexts(func(f *contextFile) error {
				if _, ok := f.Contexts[args[0]]; !ok {
					return tko.Errorf(tko.ErrNotFound, "there is no context %q: make one with tko context set", args[0])
				}
				f.Current = args[0]
				return nil
			})
		},
	}
}

func (a *app) contextDelete() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a context, and its login",
		Long: `Delete a context, and its login. Deleting the current context needs --force: without a
current one, commands need --context or --grpc-address, as long as there are others.`,
		Example:           "  tko context delete staging",
		Args:              arguments(1, 1),
		ValidArgsFunction: contextArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			err := changeContexts(func(f *contextFile) error {
				if _, ok := f.Contexts[args[0]]; !ok {
					return tko.Errorf(tko.ErrNotFound, "there is no context %q", args[0])
				}
				if f.Current == args[0] {
					if !force {
						return tko.Errorf(tko.ErrConflict, "context %q is the current one: choose another one first (tko context use NAME), or use --force to have none", args[0])
					}
					f.Current = ""
				}
				if delete(f.Contexts, args[0]); len(f.Contexts) == 0 {
					a.notice("no context is left: commands use the server on this machine, unless --grpc-address names another")
				}
				return nil
			})
			if err != nil {
				return err
			}
			return forgetLogin(args[0])
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also if it is the current context")
	return cmd
}

func (a *app) contextSet() *cobra.Command {
	var c serverContext
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or change a context; the first one becomes the current one",
		Long: `Create or change a context. Flags that are not given keep their values. Files are
stored with their absolute paths; they are read when the context is used.`,
		Example: `  tko context set production --address tko.example.com:50050 --tls-ca ca.crt --oidc-issuer https://login.example.com
  tko context set ci --address tko.example.com:50050 --tls --token-file /run/secrets/tko`,
		Args:              arguments(1, 1),
		ValidArgsFunction: contextArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkContextName(args[0]); err != nil {
				return err
			}
			g := &a.globals
			for _, file := range []*string{&g.tlsCA, &g.tlsCert, &g.tlsKey, &g.tokenFile, &c.IssuerCA} {
				if *file == "" {
					continue
				}
				path, err := filepath.Abs(*file)
				if err != nil {
					return err
				}
				*file = path
			}
			return changeContexts(func(f *contextFile) error {
				next := f.Contexts[args[0]]
				cmd.Flags().Visit(func(flag *pflag.Flag) {
					switch text := flag.Value.String(); flag.Name {
					case "tls":
						next.TLS = g.tls
					case "oidc-scopes":
						next.Scopes = c.Scopes
					default:
						if to := next.texts()[flag.Name]; to != nil {
							*to = text
						}
					}
				})
				f.Contexts[args[0]] = next
				if f.Current == "" {
					f.Current = args[0]
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Address, "address", "", "`host:port` of the server (default: this machine)")
	f.StringVar(&c.Issuer, "oidc-issuer", "", "`URL` of the OpenID Connect issuer for tko login")
	f.StringVar(&c.ClientID, "oidc-client-id", "", "`ID` of this command at the issuer (default tko)")
	f.StringVar(&c.IssuerCA, "oidc-ca", "", "`file` of the issuer's certificate authorities (default: those of this machine)")
	f.StringSliceVar(&c.Scopes, "oidc-scopes", nil, "`scopes` to request in addition to openid and offline_access (default groups,email)")
	return cmd
}

// staticToken returns the token of the environment, if there is one.
func staticToken() (string, bool) {
	token := strings.TrimSpace(os.Getenv("TKO_TOKEN"))
	return token, token != ""
}

// tokens returns the source of tokens for a server; nil for none. The file wins
// over the environment, and that over the login.
func (a *app) tokens() *tokenSource {
	g := &a.globals
	if g.tokenFile != "" {
		return &tokenSource{client.TokenFile(g.tokenFile)}
	}
	if token, ok := staticToken(); ok {
		return &tokenSource{func(context.Context) (string, error) { return token, nil }}
	}
	if g.contextName != "" && hasLogin(g.contextName) {
		return &tokenSource{func(ctx context.Context) (string, error) { return loginToken(ctx, g.contextName) }}
	}
	return nil
}
