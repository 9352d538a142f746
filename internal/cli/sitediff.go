package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

func (a *app) siteDiff() *cobra.Command {
	return &cobra.Command{
		Use:   "diff ID",
		Short: "Show how a site differs from its desired state",
		Long: `Show how a site differs from its desired state: what the next reconciliation would
create, update and remove there, and what is blocked, with the reason. A meta-scheduler
compares the prepared and approved deployments of the site with its clusters (by dry-run
applies) and git repositories, and changes nothing. Values of Secrets are not shown.

The exit code is 7 if there are differences, 0 if there are none, and 1 if not everything
could be compared, such as a site that a plugin or Open Source MANO applies.`,
		Example:           "  tko site diff lagos/1\n  tko site diff lagos/1 -o json",
		Args:              arguments(1, 1),
		ValidArgsFunction: a.completeFirst(completeSites),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			if err := expectID("site ID", args[0]); err != nil {
				return err
			}
			c, err := callLong(ctx, s, func(ctx context.Context) (tko.SiteComparison, error) { return s.CompareSite(ctx, tko.SiteID(args[0])) })
			if err != nil {
				return err
			}
			switch f := a.format(); f {
			case formatTable, formatWide, formatBare:
				a.printComparison(c)
			default:
				if err := a.encoder(f).value(a.out, comparisonValue(c)); err != nil {
					return err
				}
			}
			switch {
			case len(c.Problems) > 0:
				return errors.New("not everything was compared: " + strings.Join(c.Problems, "; "))
			case len(c.Changes)+c.More > 0:
				return errChanges
			}
			return nil
		}),
	}
}

// printComparison prints the changes of a comparison, as showSteps does.
func (a *app) printComparison(c tko.SiteComparison) {
	colors := map[string]string{tko.SiteCreate: "\x1b[32m", tko.SiteUpdate: "\x1b[33m", tko.SiteRemove: "\x1b[31m", tko.SiteBlocked: "\x1b[35m"}
	for _, change := range c.Changes {
		line := printable.Text(change.Verb + " " + change.Object)
		if change.Deployment != "" {
			line += printable.Text(fmt.Sprintf(" (deployment %s)", change.Deployment))
		}
		if a.colors(a.streams.Out) {
			line = colors[change.Verb] + line + "\x1b[0m"
		}
		fmt.Fprintln(a.out, line)
		for _, detail := range change.Details {
			fmt.Fprintln(a.out, "    "+cut(printable.Text(detail), a.width()))
		}
	}
	if c.More > 0 {
		fmt.Fprintf(a.out, "and %s\n", count(c.More, "more change", "more changes"))
	}
}

func comparisonValue(c tko.SiteComparison) map[string]any {
	changes := []any{}
	for _, change := range c.Changes {
		changes = append(changes, map[string]any{
			"target": change.Target, "verb": change.Verb, "object": change.Object, "deployment": string(change.Deployment), "details": listValue(change.Details),
		})
	}
	return map[string]any{"site": string(c.Site), "time": c.Time.UTC().Format(time.RFC3339), "changes": changes, "more": c.More, "problems": listValue(c.Problems)}
}
