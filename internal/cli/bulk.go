package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// A bulkFlag confirms a command that may change very many entities.
type bulkFlag struct {
	all     bool
	confirm int
	dryRun  bool
	unasked int // counts up to this need no confirmation
}

// flags adds the flags of a command that has filters.
func (b *bulkFlag) flags(f *pflag.FlagSet, what string) {
	f.BoolVar(&b.all, "all", false, "all "+what+", instead of filters")
	b.confirmFlag(f)
	dryRunFlag(f, &b.dryRun)
}

func (b *bulkFlag) confirmFlag(f *pflag.FlagSet) {
	f.IntVar(&b.confirm, "confirm", 0, "consent to at most this `count` of entities: required by the server for many")
}

// check returns an error if nothing is selected or the flags contradict each
// other. A dry run needs no filter.
func (b *bulkFlag) check(cmd *cobra.Command) error {
	filtered := filtered(cmd)
	err := emptyFilter(cmd, true)
	if err == nil {
		err = b.checkCount(cmd, "entities")
	}
	switch {
	case err != nil:
		return err
	case b.all && filtered:
		return usageError(cmd, errors.New("--all and filters can't be used together: use one"))
	case !b.all && !filtered && !b.dryRun:
		return usageError(cmd, errors.New("nothing is selected: use filters, or --all"))
	}
	return nil
}

// checkCount returns an error if the confirmed number is none.
func (b *bulkFlag) checkCount(cmd *cobra.Command, what string) error {
	if cmd.Flags().Changed("confirm") && b.confirm < 1 {
		return usageError(cmd, fmt.Errorf("--confirm %d: use the number of %s, at least 1", b.confirm, what))
	}
	return nil
}

// settle returns a context with the confirmed number of entities: that of
// --confirm, or the counted one, if a user at a terminal confirms it. Without a
// terminal, the server decides whether it requires a confirmation. doing is a verb
// such as "delete"; counted counts without changing anything.
func (b *bulkFlag) settle(ctx context.Context, s *session, doing, one, many string, counted func(ctx context.Context) (int, error)) (context.Context, error) {
	if b.confirm > 0 {
		return tko.WithConfirmation(ctx, b.confirm), nil
	}
	if b.dryRun || !s.app.interactive {
		return ctx, nil
	}
	n, err := callLong(ctx, s, counted)
	if err != nil || n <= b.unasked {
		return ctx, err
	}
	if !s.app.ask("This will %s %s. Continue?", doing, count(n, one, many)) {
		return nil, errNotConfirmed
	}
	return tko.WithConfirmation(ctx, n), nil
}

// settleDeletion is settle for a deletion, which may leave entities without their template
// or site: they count, too.
func (b *bulkFlag) settleDeletion(
	ctx context.Context, s *session, one, many string, ask func(ctx context.Context, dryRun bool) (tko.Deleted, error),
) (context.Context, error) {
	if b.confirm > 0 {
		return tko.WithConfirmation(ctx, b.confirm), nil
	}
	if b.dryRun || !s.app.interactive {
		return ctx, nil
	}
	would, err := callLong(ctx, s, func(ctx context.Context) (tko.Deleted, error) { return ask(ctx, true) })
	if errors.Is(err, tko.ErrNotFound) {
		return ctx, nil // the deletion returns the error
	}
	if err != nil || would.Reach() <= b.unasked {
		return ctx, err
	}
	what := count(would.Count, one, many)
	if would.Orphaned > 0 {
		what += ", and leave " + count(would.Orphaned, "entity", "entities") + " without template or site"
	}
	if !s.app.ask("This will delete %s. Continue?", what) {
		return nil, errNotConfirmed
	}
	return tko.WithConfirmation(ctx, would.Reach()), nil
}

var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// ask asks the user a question, after what was printed so far, and reports whether the
// answer is yes.
func (a *app) ask(format string, args ...any) bool {
	_ = a.out.Flush() // a later write reports the error
	fmt.Fprint(a.streams.Err, printable.Text(fmt.Sprintf(format, args...))+" [y/N] ")
	line, _ := bufio.NewReader(a.streams.In).ReadString('\n') // the end of the input is no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

// purge deletes the selected entities, after a confirmation if one is needed.
func (a *app) purge(ctx context.Context, s *session, b *bulkFlag, one, many string, ask func(ctx context.Context, dryRun bool) (tko.Deleted, error)) error {
	ctx, err := b.settleDeletion(ctx, s, one, many, ask)
	if err != nil {
		return err
	}
	d, err := callLong(ctx, s, func(ctx context.Context) (tko.Deleted, error) { return ask(ctx, b.dryRun) })
	if err != nil {
		return err
	}
	return a.deleted(one, many, d, b.dryRun)
}

// emptyFilter returns an error if a filter is given but empty, which is often an
// unset variable: it would select more than intended. Filters by a state that are empty
// are errors only if states is true.
func emptyFilter(cmd *cobra.Command, states bool) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = len(list.GetSlice()) == 0
			for _, text := range list.GetSlice() {
				empty = empty || text == ""
			}
		}
		if f.Value.Type() == "stringToString" {
			empty = f.Value.String() == "[]"
		}
		if _, isState := f.Value.(*state); isState && !states {
			return
		}
		if filterNames[f.Name] && empty && err == nil {
			err = usageError(cmd, fmt.Errorf("--%s is empty: leave it out, or give it a value", f.Name))
		}
	})
	return err
}

// filterNames are the flags that select entities, or must not be empty for the same reason.
var filterNames = func() map[string]bool {
	names := map[string]bool{
		"deployment-metadata": true, "trigger": true,
		"scheduled": true, "healthy": true, "kind": true, "site": true, "deployment": true, "plan": true, "wave": true, "url": true, "merge": true, "topology": true,
	}
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin, tko.KindRollout} {
		for _, name := range filter.Words(kind) {
			names[name] = true
		}
	}
	return names
}()

// filtered reports whether a filter was given.
func filtered(cmd *cobra.Command) bool {
	given := false
	cmd.Flags().Visit(func(f *pflag.Flag) { given = given || filterNames[f.Name] })
	return given
}
