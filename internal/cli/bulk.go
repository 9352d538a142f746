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
)

// A bulkFlag agrees to a command that may concern very many entities.
type bulkFlag struct {
	all     bool
	confirm int
	dryRun  bool
	unasked int // counts up to this need no question
}

// flags are those of a command that takes filters.
func (b *bulkFlag) flags(f *pflag.FlagSet, what string) {
	f.BoolVar(&b.all, "all", false, "all "+what+", in place of filters")
	b.confirmFlag(f)
	dryRunFlag(f, &b.dryRun)
}

func (b *bulkFlag) confirmFlag(f *pflag.FlagSet) {
	f.IntVar(&b.confirm, "confirm", 0, "the `count` that is expected: another one is refused; the server wants it for very many")
	f.Lookup("confirm").DefValue = ""
}

// check refuses what selects nothing, and confirmations that are none. filtered
// says whether a filter selects. A dry run may show what is selected without any.
func (b *bulkFlag) check(cmd *cobra.Command, filtered bool) error {
	switch {
	case cmd.Flags().Changed("confirm") && b.confirm < 1:
		return usageError(cmd, fmt.Errorf("--confirm %d: use the number of entities, at least 1", b.confirm))
	case b.all && filtered:
		return usageError(cmd, errors.New("--all and filters don't go together"))
	case !b.all && !filtered && !b.dryRun:
		return usageError(cmd, errors.New("nothing is selected: use filters, or --all"))
	}
	return nil
}

// settle returns a context that confirms how many entities a command concerns:
// the count that was given, or the one that the user sees on a terminal and
// agrees to. Elsewhere the server decides whether it needs one. doing is, say,
// "delete"; count counts without changing anything.
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
	if !s.app.ask("This would %s %s. Go on?", doing, count(n, one, many)) {
		return nil, errNotConfirmed
	}
	return tko.WithConfirmation(ctx, n), nil
}

var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// ask asks the user a question, and says whether the answer is yes.
func (a *app) ask(format string, args ...any) bool {
	fmt.Fprint(a.streams.Err, printable(fmt.Sprintf(format, args...))+" [y/N] ")
	line, _ := bufio.NewReader(a.streams.In).ReadString('\n') // the end of the input is no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

// purge deletes what is selected, once that is settled.
func (a *app) purge(ctx context.Context, s *session, b *bulkFlag, one, many string, ask func(ctx context.Context, dryRun bool) (tko.Deleted, error)) error {
	ctx, err := b.settle(ctx, s, "delete", one, many, func(ctx context.Context) (int, error) {
		d, err := ask(ctx, true)
		return d.Count, err
	})
	if err != nil {
		return err
	}
	d, err := callLong(ctx, s, func(ctx context.Context) (tko.Deleted, error) { return ask(ctx, b.dryRun) })
	if err != nil {
		return err
	}
	return a.deleted(one, many, d, b.dryRun)
}

// emptyFilter refuses filters that are present and empty, which are often unset
// variables: they would select more than was meant.
func emptyFilter(cmd *cobra.Command) error {
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
		if filterNames[f.Name] && empty && err == nil {
			err = usageError(cmd, fmt.Errorf("--%s is empty: leave it out, or give it a value", f.Name))
		}
	})
	return err
}

// filterNames are the flags that select entities.
var filterNames = map[string]bool{
	"id": true, "metadata": true, "template-id": true, "template-metadata": true, "site-id": true, "site-metadata": true,
	"parent": true, "prepared": true, "approved": true, "outdated": true, "type": true, "name": true, "executor": true, "trigger": true,
}

// filtered says whether a filter was given.
func filtered(cmd *cobra.Command) bool {
	given := false
	cmd.Flags().Visit(func(f *pflag.Flag) { given = given || filterNames[f.Name] })
	return given
}

// checkBulk is check for a command whose flags may select.
func (b *bulkFlag) checkBulk(cmd *cobra.Command) error {
	if err := emptyFilter(cmd); err != nil {
		return err
	}
	return b.check(cmd, filtered(cmd))
}
