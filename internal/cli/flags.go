package cli

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/location"
	"github.com/tko-orchestrator/tko/krm"
)

const urlHelp = "`location` of the package: a file, a directory, an archive, a URL, a git repository, or LOCATION!/PATH within one; - is stdin"

// A packageFlag says where a package is.
type packageFlag struct {
	url   string
	stdin bool
	empty bool // that there is none is on purpose
}

func (p *packageFlag) flags(f *pflag.FlagSet, stdinShorthand string) {
	f.StringVarP(&p.url, "url", "u", "", urlHelp)
	f.BoolVarP(&p.stdin, "stdin", stdinShorthand, false, "read the package from stdin")
}

func (p *packageFlag) emptyFlag(f *pflag.FlagSet) {
	f.BoolVar(&p.empty, "empty", false, "no package, on purpose: also where there was one")
}

// purpose says in the context whether the package that is there may be replaced
// by none.
func (p *packageFlag) purpose(ctx context.Context) (context.Context, error) {
	if !p.empty {
		return tko.WithPackageRequired(ctx), nil
	}
	if p.given() {
		return nil, tko.Errorf(errUsage, "--empty says that there is no package, and --url and --stdin say where it is: use one")
	}
	return ctx, nil
}

func (p *packageFlag) given() bool { return p.url != "" || p.stdin }

// read reads the package; there is none if it isn't given.
func (p *packageFlag) read(ctx context.Context, a *app) (krm.Package, error) {
	switch {
	case p.stdin && p.url != "" && p.url != "-":
		return nil, tko.Errorf(errUsage, "--stdin and --url both say where the package is: use one")
	case p.stdin, p.url == "-":
		return location.ReadStream(ctx, a.streams.In, "stdin", location.Options{})
	case p.url != "":
		return location.Read(ctx, p.url, location.Options{})
	}
	return nil, nil
}

// A windowFlag says which part of a list.
type windowFlag struct {
	offset uint32
	max    int
}

func (w *windowFlag) flags(f *pflag.FlagSet) {
	f.Uint32Var(&w.offset, "offset", 0, "pass over this `number` of results")
	f.IntVar(&w.max, "max-count", -1, "show at most this `number` of results (default all)")
	f.Lookup("max-count").DefValue = ""
}

// options are the part of the list that is asked for, and what its rows show.
// One row more than is shown says whether there are more.
func (w *windowFlag) options(a *app) tko.ListOptions {
	options := tko.ListOptions{Window: tko.Window{Offset: w.offset}}
	if w.max >= 0 {
		more := min(w.max, math.MaxInt32-1) + 1
		options.Window.Max = &more
	}
	switch a.format() {
	case formatBare:
	case formatTable, formatWide:
		options.Counts = true
	default:
		options.Deployments = true
	}
	return options
}

const patternHelp = " (* is anything but / and :, ** is anything; may be repeated, all must match)"

func patterns(f *pflag.FlagSet, to *[]string, name, shorthand, what string) {
	f.StringArrayVarP(to, name, shorthand, nil, "only `pattern`s of "+what+patternHelp)
}

func metadataPatterns(f *pflag.FlagSet, to *map[string]string, name, shorthand, what string) {
	f.StringToStringVarP(to, name, shorthand, nil, "only with this metadata"+what+": `key=pattern` (may be repeated)")
	f.Lookup(name).DefValue = ""
}

func stateFlag(f *pflag.FlagSet, to *state, name string) {
	f.Var(to, name, "only "+name+" ones; =false: only others")
	f.Lookup(name).NoOptDefVal = "true"
}

func metadataFlag(f *pflag.FlagSet, to *map[string]string) {
	f.StringToStringVarP(to, "metadata", "m", nil, "`key=value` (may be repeated)")
	f.Lookup("metadata").DefValue = ""
}

func dryRunFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "dry-run", false, "only say what would be done")
}

func revisionFlag(f *pflag.FlagSet, to *int64) {
	f.Int64Var(to, "revision", 0, "the package as it was at this `revision` (0: now)")
}

func parseTrigger(text string) (krm.GVK, error) {
	parts := strings.Split(text, ",")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return krm.GVK{}, tko.Errorf(errUsage, "the trigger %q is none: use GROUP,VERSION,KIND (the group of core kinds is empty: ,v1,ConfigMap)", text)
	}
	return krm.GVK{Group: parts[0], Version: parts[1], Kind: parts[2]}, nil
}

// wouldDeleteOne counts, by a purge that is only tried, what a deletion would
// delete, by the pattern of the ID ([tko.LiteralPattern]).
func wouldDeleteOne(kind tko.Kind, id, name string, count func() (tko.Deleted, error)) (tko.Deleted, error) {
	d, err := count()
	if err == nil && d.Count == 0 {
		if err = tko.CheckID(string(kind)+" ID", name); err == nil {
			err = tko.NotFound(kind, id)
		}
	}
	return d, err
}

// deleted says how many entities went.
func (a *app) deleted(what, whats string, d tko.Deleted, dryRun bool) error {
	verb := "deleted "
	if dryRun {
		verb = "would delete "
	}
	text := verb + count(d.Count, what, whats)
	if d.Descendants > 0 {
		text += ", of which " + count(d.Descendants, "is a descendant", "are descendants")
	}
	a.notice("%s", text)
	return a.printResult(map[string]any{"deleted": int64(d.Count), "descendants": int64(d.Descendants), "dryRun": dryRun})
}

// none is for commands whose call answers an error only.
type none struct{}

var errNoSource = errors.New("no package: use --url or --stdin")

// run is a command's work in a conversation with the server.
func (a *app) run(work func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, s, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		return work(ctx, s, args)
	}
}

// count is "1 template" or "2 templates".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
