package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

func (a *app) siteDiff() *cobra.Command {
	var orphansCount bool
	cmd := a.ofOne(tko.KindSite, &cobra.Command{
		Use:   "diff ID",
		Short: "Show how a site differs from its desired state",
		Long: `Show how a site differs from its desired state: what the next reconciliation would
create, update and remove there, and what is blocked, with the reason. A meta-scheduler
compares the prepared and approved deployments of the site with its clusters (by dry-run
applies) and git repositories, and changes nothing. Values of Secrets are not shown.

Orphans are in the site's folder of a git repository, or have TKO's label in a cluster, and
belong to no deployment of the site. TKO doesn't remove them.

The exit code is 7 if there are differences, 0 if there are none, and 9 if not everything
could be compared, such as a site that a plugin or Open Source MANO applies. Orphans count
with --count-orphans only.`,
		Example: "  tko site diff lagos/1\n  tko site diff lagos/1 --count-orphans -o json",
	}, func(ctx context.Context, s *session, id string) error {
		c, err := callLong(ctx, s, func(ctx context.Context) (tko.SiteComparison, error) { return s.CompareSite(ctx, tko.SiteID(id)) })
		if err != nil {
			return err
		}
		if f := a.format(); isForPeople(f) {
			a.printComparison(c)
		} else if err := a.encoder(f).value(a.out, comparisonValue(c)); err != nil {
			return err
		}
		problems, found := c.Problems, len(c.Changes)+c.More
		if orphansCount {
			problems, found = slices.Concat(problems, c.Unsearched), found+len(c.Orphans)+c.MoreOrphans
		}
		switch {
		case len(problems) > 0:
			return fmt.Errorf("%w: %s", errIncomplete, strings.Join(problems, "; "))
		case found > 0:
			return errChanges
		}
		return nil
	})
	cmd.Flags().BoolVar(&orphansCount, "count-orphans", false, "exit code 7 also for orphans, and 9 if they could not be looked for everywhere")
	return cmd
}

// printComparison prints the changes of a comparison, as showSteps does, and then the
// orphans.
func (a *app) printComparison(c tko.SiteComparison) {
	a.printSiteChanges(c.Changes)
	if c.More > 0 {
		fmt.Fprintf(a.out, "and %s\n", count(c.More, "more change", "more changes"))
	}
	if len(c.Orphans)+c.MoreOrphans+len(c.Unsearched) == 0 {
		return
	}
	if len(c.Changes)+c.More > 0 {
		fmt.Fprintln(a.out)
	}
	fmt.Fprintln(a.out, "Orphans, which belong to no deployment of the site and stay:")
	a.printSiteChanges(c.Orphans)
	if c.MoreOrphans > 0 {
		fmt.Fprintf(a.out, "and %s\n", count(c.MoreOrphans, "more orphan", "more orphans"))
	}
	for _, text := range c.Unsearched {
		fmt.Fprintln(a.out, "not searched: "+cut(printable.Text(text), a.width()))
	}
}

func (a *app) printSiteChanges(changes []tko.SiteChange) {
	colors := map[string]string{tko.SiteCreate: "\x1b[32m", tko.SiteUpdate: "\x1b[33m", tko.SiteRemove: "\x1b[31m", tko.SiteBlocked: "\x1b[35m", tko.SiteOrphan: "\x1b[36m"}
	for _, change := range changes {
		line := printable.Text(change.Verb + " " + change.Object)
		if change.Deployment != "" {
			line += printable.Text(fmt.Sprintf(" (%s %s)", either(change.Verb == tko.SiteOrphan, "labelled with deployment", "deployment"), change.Deployment))
		}
		fmt.Fprintln(a.out, a.paint(a.streams.Out, colors[change.Verb], line))
		for _, detail := range change.Details {
			fmt.Fprintln(a.out, "    "+cut(printable.Text(detail), a.width()))
		}
	}
}

func comparisonValue(c tko.SiteComparison) map[string]any {
	return map[string]any{
		"site": string(c.Site), "time": c.Time.UTC().Format(time.RFC3339), "changes": siteChangesValue(c.Changes), "more": c.More, "problems": listValue(c.Problems),
		"orphans": siteChangesValue(c.Orphans), "moreOrphans": c.MoreOrphans, "unsearched": listValue(c.Unsearched),
	}
}

func siteChangesValue(changes []tko.SiteChange) []any {
	return values(changes, func(c tko.SiteChange) map[string]any {
		return map[string]any{"target": c.Target, "verb": c.Verb, "object": c.Object, "deployment": string(c.Deployment), "details": listValue(c.Details)}
	})
}
