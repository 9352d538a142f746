package cli

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/location"
	"github.com/tko-orchestrator/tko/krm"
)

const urlHelp = "`location` of the package: a file, a directory, an archive, a URL, a git repository, or LOCATION!/PATH within one; - is stdin"

// A packageFlag is the location of a package.
type packageFlag struct {
	url   string
	stdin bool
	empty bool // having no package is intended
}

func (p *packageFlag) flags(f *pflag.FlagSet) {
	f.StringVarP(&p.url, "url", "u", "", urlHelp)
	f.BoolVarP(&p.stdin, "stdin", "i", false, "the package is read from stdin")
}

func (p *packageFlag) emptyFlag(f *pflag.FlagSet) {
	f.BoolVar(&p.empty, "empty", false, "no package: removes an existing one")
}

// purpose returns a context in which an existing package may not be removed,
// unless --empty was given.
func (p *packageFlag) purpose(ctx context.Context) (context.Context, error) {
	if !p.empty {
		return tko.WithPackageRequired(ctx), nil
	}
	if p.given() {
		return nil, tko.Errorf(errUsage, "--empty can't be used with --url or --stdin: use one")
	}
	return ctx, nil
}

// content reads the package with purpose.
func (p *packageFlag) content(ctx context.Context, a *app) (context.Context, krm.Package, error) {
	ctx, err := p.purpose(ctx)
	if err != nil {
		return nil, nil, err
	}
	content, err := p.read(ctx, a)
	return ctx, content, err
}

func (p *packageFlag) given() bool { return p.url != "" || p.stdin }

// read reads the package; nil if no location was given.
func (p *packageFlag) read(ctx context.Context, a *app) (krm.Package, error) {
	switch {
	case p.stdin && p.url != "" && p.url != "-":
		return nil, tko.Errorf(errUsage, "--stdin and --url can't be used together: use one")
	case p.stdin, p.url == "-":
		return location.ReadStream(ctx, a.streams.In, "stdin", location.Options{})
	case p.url != "":
		return location.Read(ctx, p.url, location.Options{})
	}
	return nil, nil
}

// A windowFlag selects a part of a list.
type windowFlag struct {
	offset uint32
	max    int
}

func (w *windowFlag) flags(f *pflag.FlagSet) {
	f.Uint32Var(&w.offset, "offset", 0, "`number` of results to skip")
	f.IntVar(&w.max, "max-count", -1, "`number` of results to show at most (default all)")
	f.Lookup("max-count").DefValue = "0" // the usage names the default; pflag adds none to a zero
}

// options returns the list options for the window and for the output format. It
// requests one row more than is shown, to know whether there are more.
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
	f.StringArrayVarP(to, name, shorthand, nil, "`pattern` of "+what+patternHelp)
}

func metadataPatterns(f *pflag.FlagSet, to *map[string]string, name, shorthand, what string) {
	keyValues(f, to, name, shorthand, "metadata"+what+" as `key=pattern` (may be repeated)")
}

// conditionFlags select entities by their conditions.
type conditionFlags struct {
	texts              []string
	scheduled, healthy *bool
}

// flags adds the flags; none if c is nil.
func (c *conditionFlags) flags(cmd *cobra.Command) {
	if c == nil {
		return
	}
	cmd.Flags().StringArrayVar(&c.texts, "condition", nil, "`TYPE[=STATUS][:REASON]` of a condition, such as Healthy=False, Prepared:PluginFailed, or Scheduled!=True (may be repeated, all must match)")
	for _, flag := range []struct {
		name, typ string
		to        **bool
	}{{"scheduled", tko.ConditionScheduled, &c.scheduled}, {"healthy", tko.ConditionHealthy, &c.healthy}} {
		stateFlag(cmd, flag.to, flag.name, "only those whose condition "+flag.typ+" is True; =false: all others, those without the condition too")
	}
	complete(cmd, "condition", fixed("Healthy=False", "Scheduled=False", "Prepared=False", "Approved=False", "Placed=False"))
}

// conditionTypes are TKO's own types of conditions.
var conditionTypes = []string{tko.ConditionPrepared, tko.ConditionApproved, tko.ConditionScheduled, tko.ConditionHealthy, tko.ConditionPlaced, tko.ConditionFrozen, tko.ConditionDelivered, tko.ConditionResolvedRefs}

// parseCondition reads the condition of a flag. A type that is a likely misspelling of one
// of TKO's own is refused: no entity has it.
func parseCondition(flag, text string) (tko.ConditionSelect, error) {
	c, err := tko.ParseConditionSelect(text)
	if err != nil {
		return c, tko.Errorf(errUsage, "--%s: %w", flag, err)
	}
	if slices.Contains(conditionTypes, c.Type) {
		return c, nil
	}
	for _, typ := range conditionTypes {
		if near(c.Type, strings.ToLower(typ)) {
			return c, tko.Errorf(errUsage, "--%s %q: no condition has the type %s: did you mean %s?", flag, text, c.Type, typ)
		}
	}
	return c, nil
}

// selects returns the conditions that the flags select.
func (c *conditionFlags) selects() ([]tko.ConditionSelect, error) {
	if c == nil {
		return nil, nil
	}
	var selects []tko.ConditionSelect
	for _, text := range c.texts {
		one, err := parseCondition("condition", text)
		if err != nil {
			return nil, err
		}
		selects = append(selects, one)
	}
	for typ, wanted := range map[string]*bool{tko.ConditionScheduled: c.scheduled, tko.ConditionHealthy: c.healthy} {
		if wanted != nil {
			selects = append(selects, tko.ConditionSelect{Type: typ, Status: tko.ConditionTrue, Not: !*wanted})
		}
	}
	return selects, nil
}

func stateFlag(cmd *cobra.Command, to **bool, name, usage string) {
	cmd.Flags().Var(&state{to}, name, usage)
	cmd.Flags().Lookup(name).NoOptDefVal = "true"
	complete(cmd, name, fixed("true", "false"))
}

// keyValues adds a flag of keys with values, which is empty by default. pflag would print an
// empty default as "[]".
func keyValues(f *pflag.FlagSet, to *map[string]string, name, shorthand, usage string) {
	f.StringToStringVarP(to, name, shorthand, nil, usage)
	f.Lookup(name).DefValue = ""
}

func metadataFlag(f *pflag.FlagSet, to *map[string]string) {
	keyValues(f, to, "metadata", "m", "`key=value` (may be repeated)")
}

func dryRunFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "dry-run", false, "show the changes without making them")
}

func revisionFlag(f *pflag.FlagSet, to *int64) {
	f.Int64Var(to, "revision", 0, "`revision` of the package (0: the newest)")
}

// asOfFlag adds --as-of to a command that reads.
func asOfFlag(cmd *cobra.Command) *cobra.Command {
	const name = "as-of"
	var text string
	cmd.Flags().StringVar(&text, name, "", "`moment` of the past to read"+momentHelp)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed(name) {
			asOf, err := parseMoment(name, text)
			if err != nil {
				return err
			}
			cmd.SetContext(tko.WithAsOf(cmd.Context(), asOf))
		}
		return run(cmd, args)
	}
	return cmd
}

func parseTrigger(text string) (krm.GVK, error) {
	parts := strings.Split(text, ",")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return krm.GVK{}, tko.Errorf(errUsage, "%q is not a trigger: use GROUP,VERSION,KIND (the group of core kinds is empty: ,v1,ConfigMap)", text)
	}
	return krm.GVK{Group: parts[0], Version: parts[1], Kind: parts[2]}, nil
}

// deleted prints how many entities were or would be deleted.
func (a *app) deleted(what, whats string, d tko.Deleted, dryRun bool) error {
	text := either(dryRun, "would delete ", "deleted ") + count(d.Count, what, whats)
	if d.Descendants > 0 {
		text += ", of which " + count(d.Descendants, "is a descendant", "are descendants")
	}
	result := map[string]any{"deleted": int64(d.Count), "descendants": int64(d.Descendants), "dryRun": dryRun}
	if d.Orphaned > 0 {
		text += "; " + count(d.Orphaned, "entity", "entities") + either(dryRun, " would lose their template or site", " lost their template or site")
		result["orphaned"] = int64(d.Orphaned)
	}
	a.notice("%s", text)
	return a.printResult(result)
}

var errNoSource = errors.New("no package: use --url or --stdin")

// run returns a function that connects to the server and then does a command's
// work. It refuses empty filters.
func (a *app) run(work func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := emptyFilter(cmd, false); err != nil {
			return err
		}
		ctx, s, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		if err := work(ctx, s, args); err != nil {
			return err
		}
		if parent := cmd.Parent(); !tko.AsOfOf(cmd.Context()).IsZero() && parent.Name() != string(tko.KindTemplate) {
			a.notice("conditions that have changed since then are left out")
		}
		return nil
	}
}

// either returns the first text if is is true, and otherwise the second one.
func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// count returns, for example, "1 template" or "2 templates".
func count(n int, one, many string) string {
	return strconv.Itoa(n) + " " + either(n == 1, one, many)
}
