package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/spelling"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// globals are the flags of all commands.
type globals struct {
	withDiff bool // the command can write the format diff
	quiet    bool
	logFile  string
	verbose  int
	width    int
	format   string
	colorize string
	strict   bool
	pretty   bool

	noHeaders bool
	sortBy    string

	expression *expressionFormat // of format, or nil
	sortSteps  []pathStep        // of sortBy, or nil

	ipStack    string
	address    string
	port       uint16
	grpcFormat string
	timeout    float64
	timeoutSet bool // --grpc-timeout was given
	pager      string
	pagerSet   bool // --pager was given

	reason    string
	requestID string
	trace     bool

	tls           bool
	tlsCA         string
	tlsCert       string
	tlsKey        string
	tlsServerName string
	tokenFile     string
	context       string

	contextName string   // of the context in use, or ""
	unchosen    []string // names of the contexts, if none is the current one and the user named no server
	login       serverContext
}

func (g *globals) flags(f *pflag.FlagSet) {
	f.BoolVarP(&g.quiet, "quiet", "q", false, "no notices and progress: only results and errors")
	f.StringVarP(&g.logFile, "log", "l", "", "`file` for the log (default stderr)")
	f.CountVarP(&g.verbose, "verbose", "v", "log of each step; twice: of each call, too")
	f.IntVarP(&g.width, "width", "j", 0, "width of tables in `columns` (0: the terminal's; -1: unlimited)")
	f.StringVarP(&g.format, "format", "o", "", "output `format`: "+strings.Join(formats, ", ")+", jsonpath=TEMPLATE, go-template=TEMPLATE, custom-columns=NAME:PATH,… (default table on a terminal, else yaml)")
	f.BoolVar(&g.noHeaders, "no-headers", false, "tables without the line of column names")
	f.StringVar(&g.sortBy, "sort-by", "", "`path` of the field to sort lists by, such as .created or .metadata.region (default: the ID)")
	f.StringVarP(&g.colorize, "colorize", "z", "true", "colors on terminals: true, false, or force for all outputs")
	f.BoolVarP(&g.strict, "strict", "y", false, "YAML with all strings quoted, which all YAML parsers read alike")
	f.BoolVarP(&g.pretty, "pretty", "p", true, "indentation of JSON, XML and Go")
	f.StringVar(&g.pager, "pager", "", "`program` that shows lists on a terminal; empty for none (default PAGER, else less)")
	f.StringVar(&g.ipStack, "grpc-ip-stack", "dual", "IP versions to connect with: dual (IPv6 first), ipv6, ipv4")
	f.StringVar(&g.address, "grpc-address", "", "`address` of the server, or unix:PATH of its socket (default localhost)")
	f.Uint16Var(&g.port, "grpc-port", 50050, "`port` of the server")
	f.StringVar(&g.grpcFormat, "grpc-format", "cbor", "`encoding` of packages on the wire: cbor, yaml")
	f.Float64Var(&g.timeout, "grpc-timeout", 10, "`seconds` to wait for a response (0: no limit); if not set, deletions and approvals have no limit")
	f.BoolVar(&g.tls, "tls", false, "connect with TLS, trusting the certificate authorities of this machine")
	f.StringVar(&g.tlsCA, "tls-ca", "", "connect with TLS, trusting the certificate authorities in this `file`")
	f.StringVar(&g.tlsCert, "tls-cert", "", "`file` of your certificate")
	f.StringVar(&g.tlsKey, "tls-key", "", "`file` of the key of your certificate")
	f.StringVar(&g.tlsServerName, "tls-server-name", "", "`name` in the server's certificate (default: the host of its address)")
	f.StringVar(&g.tokenFile, "token-file", "", "`file` with a token; without one, the token is TKO_TOKEN, or that of tko login")
	f.StringVar(&g.context, "context", "", "`name` of the context to use (default: the current one, unless --grpc-address or --grpc-port is given)")
	f.StringVar(&g.requestID, "request-id", "", "`ID` of the command's requests in the server's log and audit log: 1 to 64 letters, digits and . _ : / + = @ - (default: a new one)")
	f.BoolVar(&g.trace, "trace", false, "trace the command's requests: the server exports their spans, if it exports traces; the trace's ID is printed")
	f.StringVar(&g.reason, "reason", "", "`why`: reason that is stored with the command's changes")
}

// check validates the settings and returns all problems.
func (g *globals) check() error {
	var errs []error
	allowed := formats
	if g.withDiff {
		allowed = append([]string{formatDiff}, formats...)
	}
	var err error
	if g.expression, err = parseExpression(g.format); err != nil {
		errs = append(errs, err)
	} else if g.format != "" && g.expression == nil && !slices.Contains(allowed, g.format) {
		errs = append(errs, fmt.Errorf("--format %q: use %s, or %s", g.format, strings.Join(allowed, ", "), strings.Join(expressionFormats, "=…, ")+"=…"))
	}
	if g.sortBy != "" {
		if g.sortSteps, err = parsePath(g.sortBy); err != nil {
			errs = append(errs, fmt.Errorf("--sort-by: %w", err))
		}
	}
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	_, err = strconv.ParseBool(g.colorize)
	wrong(err != nil && g.colorize != "force", "--colorize %q: use true, false or force", g.colorize)
	wrong(!slices.Contains([]string{"dual", "ipv6", "ipv4"}, g.ipStack), "--grpc-ip-stack %q: use dual, ipv6 or ipv4", g.ipStack)
	wrong(!slices.Contains([]krm.Format{krm.YAML, krm.CBOR}, krm.Format(g.grpcFormat)), "--grpc-format %q: use cbor or yaml", g.grpcFormat)
	wrong(g.port == 0, "--grpc-port 0: use 1 to 65535")
	wrong(g.timeout < 0 || math.IsNaN(g.timeout) || g.timeout > math.MaxInt64/float64(time.Second), "--grpc-timeout %v: use seconds, or 0 for no limit", g.timeout)
	wrong(g.width < -1, "--width %d: use a number of columns, 0 for the terminal's, or -1 for no limit", g.width)
	wrong(g.requestID != "" && !trail.IsRequest(g.requestID), "--request-id %q: use 1 to 64 letters, digits and . _ : / + = @ -", g.requestID)
	wrong((g.tlsCert == "") != (g.tlsKey == ""), "--tls-cert and --tls-key belong together: give both, or none")
	if len(errs) > 0 {
		return tko.Errorf(errUsage, "%w", errors.Join(errs...))
	}
	return nil
}

// setup completes the settings from the environment, checks them, and opens
// the log.
func (a *app) setup(cmd *cobra.Command) error {
	if err := setFromEnvironment(cmd); err != nil {
		return err
	}
	_, a.globals.withDiff = cmd.Annotations[withDiff]
	a.warnUnknown(cmd)
	if err := a.globals.check(); err != nil {
		return usageError(cmd, err)
	}
	if !ownContext(cmd) {
		if err := a.useContext(cmd); err != nil {
			return err
		}
	}
	a.globals.timeoutSet = cmd.Flags().Changed("grpc-timeout")
	a.globals.pagerSet = cmd.Flags().Changed("pager")
	if a.globals.verbose == 0 && a.globals.logFile == "" {
		return nil
	}
	level := slog.LevelInfo
	if a.globals.verbose > 1 {
		level = slog.LevelDebug
	}
	to := a.streams.Err
	if a.globals.logFile != "" {
		f, err := os.OpenFile(a.globals.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return tko.Errorf(errUsage, "--log: %w", err)
		}
		a.closers = append(a.closers, f)
		to = f
	}
	a.log = slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level}))
	return nil
}

// setFromEnvironment sets the flags that weren't given from TKO_NAME.
func setFromEnvironment(cmd *cobra.Command) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := environmentName(f.Name)
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || f.Name == "help" || first != nil || slices.Contains(environmentOnly, name) { // rollout create has a flag --config
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			first = usageError(cmd, fmt.Errorf("environment variable %s is %q: %w", name, value, err))
		}
	})
	return first
}

// environmentOnly are variables of the command that aren't flags. TKO_TEST_ and
// TKO_GRPC_HOST are of the Python client and of tests.
var environmentOnly = []string{"TKO_CONFIG", "TKO_TOKEN", "TKO_GRPC_HOST"}

// warnUnknown reports environment variables that no flag of any command reads:
// they are often misspelled.
func (a *app) warnUnknown(cmd *cobra.Command) {
	known := map[string]bool{}
	var collect func(c *cobra.Command)
	collect = func(c *cobra.Command) {
		note := func(f *pflag.Flag) { known[environmentName(f.Name)] = true }
		c.Flags().VisitAll(note)
		c.PersistentFlags().VisitAll(note)
		for _, below := range c.Commands() {
			collect(below)
		}
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "TKO_") || strings.HasPrefix(name, "TKO_TEST_") || slices.Contains(environmentOnly, name) {
			continue
		}
		if len(known) == 0 {
			collect(cmd.Root())
		}
		if known[name] {
			continue
		}
		if similar := spelling.Nearest(name, slices.Sorted(maps.Keys(known))); similar != "" {
			a.notice("the environment variable %s is unknown, and has no effect: did you mean %s?", name, similar)
		} else {
			a.notice("the environment variable %s is unknown to this command, and has no effect on it", name)
		}
	}
}

// flagError adds the nearest flag to the error of a mistyped one, or what a flag of another
// tool is here.
func flagError(cmd *cobra.Command, err error) error {
	if known := foreignFlag(cmd, err); !errors.Is(err, known) {
		return usageError(cmd, known)
	}
	return usageError(cmd, spelling.Flag(cmd.Flags(), err))
}

// ownContext returns whether a command doesn't use a context: it changes contexts,
// or needs no server.
func ownContext(cmd *cobra.Command) bool {
	for c := cmd; c != nil; c = c.Parent() {
		switch c.Name() {
		case "context", "version", "completion", "help", "new":
			return true
		}
	}
	return false
}

func environmentName(flag string) string {
	return "TKO_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// colors reports whether to write colors to w.
func (a *app) colors(w io.Writer) bool {
	if a.globals.colorize == "force" {
		return true
	}
	if on, err := strconv.ParseBool(a.globals.colorize); err != nil || !on || os.Getenv("NO_COLOR") != "" {
		return false
	}
	return isTerminal(w)
}

// paint returns a text in a color, if colors are written to w.
func (a *app) paint(w io.Writer, color, text string) string {
	if color == "" || !a.colors(w) {
		return text
	}
	return color + text + "\x1b[0m"
}

// who returns USER@HOST.
func who() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// A state is a flag that is true, false or not set: nil.
type state struct{ value **bool }

func (s *state) Set(text string) error {
	*s.value = nil
	if text == "" {
		return nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("use true or false")
	}
	*s.value = &b
	return nil
}

func (s *state) String() string {
	if *s.value == nil {
		return ""
	}
	return strconv.FormatBool(**s.value)
}

// Type names the value in help.
func (s *state) Type() string { return "true|false" }

// joinStates replaces "--prepared false" by "--prepared=false" for flags that are
// states: pflag reads no separate value for a flag whose value is optional.
func joinStates(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil {
		return args
	}
	var joined []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		if name, ok := strings.CutPrefix(arg, "--"); ok && i+1 < len(args) {
			f := cmd.Flags().Lookup(name)
			if next := args[i+1]; f != nil && f.Value.Type() == (&state{}).Type() && (next == "true" || next == "false" || next == "") {
				arg += "=" + next
				i++
			}
		}
		joined = append(joined, arg)
	}
	return joined
}
