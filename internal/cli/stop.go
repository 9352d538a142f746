package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

var stopView = view[tko.StopStatus]{
	id:  func(s tko.StopStatus) string { return s.Stop.ID },
	row: stopValue,
	columns: []column[tko.StopStatus]{
		{name: "ID", text: func(s tko.StopStatus) string { return s.Stop.ID }},
		{name: "STOPPED", text: func(s tko.StopStatus) string { return s.Stop.Selection() }},
		{name: "SITES", text: func(s tko.StopStatus) string { return strconv.Itoa(s.SiteCount) }},
		{name: "IN FLIGHT", text: func(s tko.StopStatus) string { return strconv.Itoa(s.InFlightCount) }},
		{name: "BUT", text: func(s tko.StopStatus) string {
			if s.Stop.OnlyUndo {
				return "undos go on"
			}
			if s.Stop.Releasing {
				return fmt.Sprintf("is released, wave %d", s.Stop.Wave)
			}
			return ""
		}},
		{name: "BY", text: func(s tko.StopStatus) string { return s.Stop.By.Who }},
		{name: "SINCE", age: func(s tko.StopStatus) time.Time { return s.Stop.Created }},
		{name: "REASON", text: func(s tko.StopStatus) string { return s.Stop.Reason }},
		{name: "DEPLOYMENTS", wide: true, text: func(s tko.StopStatus) string { return strconv.Itoa(s.DeploymentCount) }},
		{name: "WAITING SITES", wide: true, text: func(s tko.StopStatus) string { return strconv.Itoa(s.WaitingSites) }},
		{name: "TO PREPARE", wide: true, text: func(s tko.StopStatus) string { return strconv.Itoa(s.WaitingDeployments) }},
	},
}

// stopValue returns a stop for programs.
func stopValue(s tko.StopStatus) map[string]any {
	flight := make([]any, len(s.InFlight))
	for i, f := range s.InFlight {
		flight[i] = map[string]any{"queue": f.Queue, "key": f.Key, "since": f.Since.UTC().Format(time.RFC3339), "until": f.Until.UTC().Format(time.RFC3339)}
	}
	rollouts := make([]any, len(s.Rollouts))
	for i, id := range s.Rollouts {
		rollouts[i] = string(id)
	}
	return map[string]any{
		"id": s.Stop.ID, "all": s.Stop.All, "topologyId": string(s.Stop.Topology), "sites": listValue(s.Stop.Sites), "siteMetadata": metadataValue(s.Stop.SiteMetadata),
		"onlyUndo": s.Stop.OnlyUndo, "releasing": s.Stop.Releasing, "wave": int64(s.Stop.Wave), "reason": s.Stop.Reason, "stoppedBy": s.Stop.By.Who, "created": s.Stop.Created.UTC().Format(time.RFC3339),
		"siteCount": int64(s.SiteCount), "deploymentCount": int64(s.DeploymentCount), "inFlight": flight, "inFlightCount": int64(s.InFlightCount),
		"waitingSites": int64(s.WaitingSites), "waitingDeployments": int64(s.WaitingDeployments), "rollouts": rollouts,
	}
}

func (a *app) stopCommand() *cobra.Command {
	var stop tko.Stop
	var topology string
	cmd := &cobra.Command{
		Use:   "stop (--site PATTERN | --site-metadata KEY=PATTERN | --topology ID | --all) --reason TEXT",
		Short: "Stop everything at sites, in a topology, or everywhere, now",
		Long: `Stop everything at sites, in a topology, or everywhere, now: nothing is created, changed,
prepared, scheduled, repaired or removed there, by users, controllers, sources, rollouts or
restores, until tko resume. It holds from the moment at which this command returns, also at
sites that are registered later; meta-schedulers end what they do at a site before the next
object. The clocks of rollouts stand still.

Requests that controllers began before are listed: a request that was sent already can't be
taken back. tko stop list shows when they have ended. Workloads that run already go on running.

One of several --site must match, and all --site-metadata. A stop with the same selection as
another one is the same stop. It needs no confirmation.`,
		Example: `  tko stop --all --reason 'wrong image everywhere'
  tko stop --site 'north/**' --reason 'storm'
  tko stop --site-metadata tier=core --reason 'incident 4711'
  tko stop --topology "$id" --reason 'it creates too much'
  tko stop list`,
		Args: arguments(0, 0),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, _ []string) error {
		stop.Topology, stop.Reason = tko.DeploymentID(topology), a.globals.reason
		if err := emptyFilter(cmd, false); err != nil {
			return err
		}
		switch {
		case !stop.All && topology == "" && len(stop.Sites)+len(stop.SiteMetadata) == 0:
			return tko.Errorf(errUsage, "name what to stop: --site PATTERN, --site-metadata KEY=PATTERN, --topology ID, or --all for everything")
		case strings.TrimSpace(stop.Reason) == "":
			return tko.Errorf(errUsage, "state with --reason why, for those who find that nothing happens")
		}
		status, err := call(ctx, s, func(ctx context.Context) (tko.StopStatus, error) { return s.Stop(ctx, stop) })
		if err != nil {
			return err
		}
		if err := a.printStop(status); err != nil {
			return err
		}
		a.notice("stopped; to release it: tko resume %s", status.Stop.ID)
		return nil
	})
	cmd.Flags().BoolVar(&stop.All, "all", false, "stop everything, everywhere")
	cmd.Flags().StringVar(&topology, "topology", "", "`ID` of a deployment that is stopped with all its descendants")
	cmd.Flags().StringArrayVar(&stop.Sites, "site", nil, "`pattern` of IDs of sites (may be repeated: one must match)")
	keyValues(cmd.Flags(), &stop.SiteMetadata, "site-metadata", "", "`KEY=PATTERN` that the metadata of sites must match")
	complete(cmd, "site", a.completion(completeSites))
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List what is stopped, and what is still in flight there", Example: "  tko stop list\n  tko stop list -o json",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			all, err := call(ctx, s, s.Stops)
			if err != nil {
				return err
			}
			return listItems(ctx, s, stopView, all)
		}),
	})
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	var release tko.Release
	confirm := 0
	cmd := &cobra.Command{
		Use:   "resume STOP",
		Short: "Release what tko stop has stopped",
		Long: `Release what tko stop has stopped, and show what waited for it: it goes on at once. If
changes wait at more sites than --reach-sites of the server, the sites are released in the
waves of --reach-policy: a wave begins when the sites of the one before have what they waited
for, and none is unhealthy. --confirm=COUNT, with the number of sites, releases all at once.

With --dry-run, it is only shown. With --only-undo, only the undos of rollouts go on there,
and everything else stays stopped until tko resume without it.

A rollout that is in progress goes on where it was. To go back first: pause it or undo it,
then resume.`,
		Example: `  tko resume "$id" --dry-run
  tko resume "$id" --only-undo
  tko resume "$id"`,
		Args: arguments(1, 1),
	}
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		release.ID = args[0]
		if confirm > 0 {
			ctx = tko.WithConfirmation(ctx, confirm)
		}
		status, err := call(ctx, s, func(ctx context.Context) (tko.StopStatus, error) { return s.Resume(ctx, release) })
		if err != nil {
			return err
		}
		if err := a.printStop(status); err != nil {
			return err
		}
		switch {
		case release.DryRun:
			a.notice("nothing was released")
		case release.OnlyUndo:
			a.notice("undos of rollouts go on; everything else stays stopped: tko resume %s", release.ID)
		case status.Stop.Releasing:
			a.notice("%s", status.Stop.Text())
		default:
			a.notice("released")
		}
		return nil
	})
	dryRunFlag(cmd.Flags(), &release.DryRun)
	cmd.Flags().IntVar(&confirm, "confirm", 0, "release all sites that wait at once: at most this `count`")
	cmd.Flags().BoolVar(&release.OnlyUndo, "only-undo", false, "let only undos of rollouts go on")
	return cmd
}

var flightColumns = []column[tko.InFlight]{
	{name: "IN FLIGHT", text: func(f tko.InFlight) string {
		return map[string]string{tko.QueuePrepare: "preparation of deployment ", tko.QueueSchedule: "scheduling of site "}[f.Queue] + f.Key
	}},
	{name: "SINCE", age: func(f tko.InFlight) time.Time { return f.Since }},
	{name: "UNTIL AT THE LATEST", text: func(f tko.InFlight) string { return f.Until.UTC().Format(time.RFC3339) }},
}

// printStop prints a stop with what is in flight and what waits.
func (a *app) printStop(s tko.StopStatus) error {
	if format := a.format(); format != formatTable && format != formatWide && a.globals.format != "" {
		return a.encoder(format).value(a.out, stopValue(s))
	}
	lines := []string{"Stop:       " + s.Stop.ID, "Selection:  " + printable.Text(s.Stop.Selection())}
	lines = append(lines, fmt.Sprintf("Holds:      %s, %s", count(s.SiteCount, "site", "sites"), count(s.DeploymentCount, "deployment", "deployments")))
	lines = append(lines, fmt.Sprintf("Waits:      %s with changes to schedule, %s to prepare", count(s.WaitingSites, "site", "sites"), count(s.WaitingDeployments, "deployment", "deployments")))
	if len(s.Rollouts) > 0 {
		names := make([]string, len(s.Rollouts))
		for i, id := range s.Rollouts {
			names[i] = string(id)
		}
		lines = append(lines, "Rollouts:   in progress: "+strings.Join(names, ", "))
	}
	if s.InFlightCount == 0 {
		lines = append(lines, "In flight:  nothing")
	}
	if err := a.printLines(strings.Join(lines, "\n") + "\n"); err != nil || s.InFlightCount == 0 {
		return err
	}
	fmt.Fprintln(a.out)
	if err := printTable(a, flightColumns, s.InFlight); err != nil {
		return err
	}
	if more := s.InFlightCount - len(s.InFlight); more > 0 {
		fmt.Fprintf(a.out, "and %d more\n", more)
	}
	return nil
}
