package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// The limits of a status.
const (
	statusFailures = 10 // kinds of failures that are shown, at most
	statusLines    = 20 // of a status, unless the server has many problems
)

// A fleet is what a status shows.
type fleet struct {
	tko.Fleet

	stops    []tko.StopStatus
	problems []string // of the server
}

// fleetStates returns the numbers of entities in each state that some have, and of the healthy ones.
func fleetStates(c tko.FleetCounts) string {
	var all []string
	for _, state := range tko.States() {
		if n := c.State(state); n > 0 || state == tko.StateHealthy {
			all = append(all, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(all, ", ")
}

// fleetCountsValue returns numbers for programs.
func fleetCountsValue(c tko.FleetCounts) map[string]any {
	value := map[string]any{"total": int64(c.Total), "scheduled": int64(c.Scheduled), "notScheduled": int64(c.NotScheduled), "unhealthy": int64(c.Unhealthy)}
	for _, state := range tko.States() {
		value[string(state)] = int64(c.State(state))
	}
	return value
}

// A waitLine is how a status shows what entities wait for.
type waitLine struct {
	text string
	how  string // the command that shows or ends it
}

// waitLines are by the kind and what is waited for.
var waitLines = map[tko.FleetWait]waitLine{
	{Kind: tko.KindDeployment, What: tko.WaitsStopped}:    {"stopped by a user, and waiting for the release", "tko stop list"},
	{Kind: tko.KindDeployment, What: tko.WaitsApproval}:   {"waiting for an approval", "tko deployment list --prepared --approved=false"},
	{Kind: tko.KindDeployment, What: tko.WaitsWithdrawn}:  {"changed since the last approval, waiting for another one", "tko deployment list --condition Approved:" + tko.ReasonApprovalWithdrawn},
	{Kind: tko.KindDeployment, What: tko.WaitsProposal}:   {"with proposed changes of placements, waiting for an approval", "tko deployment list --condition Placed:" + tko.ReasonChangeProposed},
	{Kind: tko.KindDeployment, What: tko.WaitsPreparer}:   {"waiting for a preparer", "tko deployment list --prepared=false -o wide"},
	{Kind: tko.KindDeployment, What: tko.WaitsScheduler}:  {"waiting for the meta-scheduler", "tko deployment list --prepared --approved --scheduled=false"},
	{Kind: tko.KindDeployment, What: tko.WaitsSuspended}:  {"suspended, or at suspended sites", "tko deployment list --condition Scheduled:" + tko.ReasonSuspended},
	{Kind: tko.KindDeployment, What: tko.WaitsFrozen}:     {"waiting for the end of a freeze", "tko freeze list"},
	{Kind: tko.KindDeployment, What: tko.WaitsReferences}: {"waiting for templates or sites that don't exist yet", "tko deployment list --condition ResolvedRefs=False"},
	{Kind: tko.KindDeployment, What: tko.WaitsPartly}:     {"delivered in part", "tko deployment list --condition Delivered=False -o wide"},
	{Kind: tko.KindDeployment, What: tko.WaitsApart}:      {"waiting for a rollout that is changing a site from which theirs is kept apart", "tko deployment list --condition Scheduled:" + tko.ReasonApart},
	{Kind: tko.KindSite, What: tko.WaitsReferences}:       {"waiting for templates that don't exist yet", "tko site list --condition ResolvedRefs=False"},
}

// textOf returns how a status shows a wait. A newer server may have others.
func textOf(w tko.FleetWait) waitLine {
	t, ok := waitLines[tko.FleetWait{Kind: w.Kind, What: w.What}]
	if !ok {
		t = waitLine{"waiting: " + w.What, "tko " + string(w.Kind) + " list -o wide"}
	}
	return t
}

func (a *app) statusCommand() *cobra.Command {
	var sites tko.FleetSelect
	var exitCode, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the fleet in a few lines: what fails, why and since when, and what waits",
		Long: `Show the fleet in a few lines: counts of sites and deployments, with the states that
dashboards show, what fails, grouped by the reason, with the oldest example of each, and what waits for an approval or a
controller. Stops by users come first. The server counts what you may read; of the whole fleet, if you
may read all of it, that takes as long whatever its size. Filters limit it to sites, and to the deployments at them. With
--exit-code, the exit code is 1 if something fails. With --watch, the status is shown again each time that it
has changed, at most once a second, until the command is interrupted.`,
		Example: `  tko status
  tko status --watch
  tko status --site-metadata region=west
  tko status -o json`,
	}
	patterns(cmd.Flags(), &sites.Sites, "site-id", "", "the site's ID")
	metadataPatterns(cmd.Flags(), &sites.SiteMetadata, "site-metadata", "", " of the site")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit code 1 if something fails")
	complete(cmd, "site-id", a.completion(completeSites))
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again each time that it has changed, until interrupted")
	cmd.MarkFlagsMutuallyExclusive("watch", "exit-code")
	cmd.RunE = a.run(func(ctx context.Context, s *session, _ []string) error {
		if watch {
			return a.watchFleet(ctx, s, sites)
		}
		f, err := readFleet(ctx, s, sites)
		if err == nil {
			err = a.printFleet(f)
		}
		if err == nil && exitCode && len(f.Failures) > 0 {
			err = fmt.Errorf("something fails, for %s: see the list", count(len(f.Failures), "reason", "reasons"))
		}
		return err
	})
	return cmd
}

// printFleet prints a summary, for people unless another format is set.
func (a *app) printFleet(f *fleet) error {
	if format := a.format(); format != formatTable && format != formatWide && a.globals.format != "" {
		return a.encoder(format).value(a.out, f.value())
	}
	return f.print(a)
}

// statusEvery is the least time between two summaries of a watch.
const statusEvery = time.Second

// watchFleet prints a summary, and another one each time that it has changed.
func (a *app) watchFleet(ctx context.Context, s *session, sites tko.FleetSelect) error {
	var last any
	for {
		began := time.Now()
		f, err := readFleet(ctx, s, sites)
		if err != nil {
			return err
		}
		took := time.Since(began)
		if now := f.value(); !reflect.DeepEqual(now, last) {
			if last != nil && a.format() == formatTable {
				fmt.Fprintf(a.out, "\n%s\n", time.Now().Format(time.TimeOnly))
			}
			last = now
			if err := errors.Join(a.printFleet(f), a.out.Flush()); err != nil {
				return err
			}
		}
		if err := pause.For(ctx, max(statusEvery, 4*took)); err != nil { // of a large fleet, it is much work for the server
			return err
		}
	}
}

// readFleet reads a summary from the server.
func readFleet(ctx context.Context, s *session, sites tko.FleetSelect) (*fleet, error) {
	f := &fleet{}
	about, err := call(ctx, s, s.About)
	if err != nil {
		return nil, err
	}
	for _, c := range about.Conditions {
		if c.Status == tko.ConditionFalse {
			f.problems = append(f.problems, c.Reason+": "+c.Text())
		}
	}
	if f.stops, err = call(ctx, s, s.Stops); err != nil {
		return nil, err
	}
	count := func(ctx context.Context) (tko.Fleet, error) { return s.Fleet(ctx, sites) }
	if s.app.globals.timeoutSet {
		f.Fleet, err = call(ctx, s, count)
	} else { // of a part of a large fleet, it takes long
		f.Fleet, err = callWithin(ctx, s, count)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		f.Fleet, err = countFleet(ctx, s, sites)
	}
	return f, err
}

// countFleet reads each site and deployment once, without packages: servers of earlier versions
// don't count them.
func countFleet(ctx context.Context, s *session, sites tko.FleetSelect) (tko.Fleet, error) {
	sum := new(tko.FleetCount)
	sel := tko.SiteSelect{IDs: sites.Sites, Metadata: sites.SiteMetadata}
	err := each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Site, error] { return s.Sites(ctx, sel, tko.ListOptions{}) }, func(site tko.Site) error {
		sum.AddSite(site, 1)
		return nil
	})
	if err != nil {
		return tko.Fleet{}, err
	}
	err = s.eachDeployment(ctx, tko.DeploymentSelect{Sites: sites.Sites, SiteMetadata: sites.SiteMetadata}, tko.ListOptions{}, func(d tko.Deployment) { sum.AddDeployment(d, 1) })
	return sum.Fleet(), err
}

var failureColumns = []column[tko.FleetFailure]{
	{name: "COUNT", text: func(f tko.FleetFailure) string { return strconv.Itoa(f.Count) }},
	{name: "KIND", text: func(f tko.FleetFailure) string { return string(f.Kind) }},
	{name: "CONDITION", text: func(f tko.FleetFailure) string { return f.Type }},
	{name: "REASON", text: func(f tko.FleetFailure) string { return f.Reason }},
	{name: "SINCE", age: func(f tko.FleetFailure) time.Time { return f.Since }},
	{name: "EXAMPLE", text: func(f tko.FleetFailure) string { return f.Example }},
	{name: "MESSAGE", text: func(f tko.FleetFailure) string { return f.Message }},
}

func (f *fleet) print(a *app) error {
	for _, stop := range f.stops {
		text := "STOPPED: " + stop.Stop.Text()
		if stop.Stop.OnlyUndo {
			text += "; undos of rollouts go on"
		}
		fmt.Fprintln(a.out, a.paint(a.streams.Out, "\x1b[31m", cut(printable.Text(text), a.width())))
	}
	s, d := f.Sites, f.Deployments
	err := a.printLines(fmt.Sprintf("Sites:        %d: %d scheduled, %d not; %s\nDeployments:  %d: %d prepared, %d approved, %d scheduled; %s\n",
		s.Total, s.Scheduled, s.NotScheduled, fleetStates(s), d.Total, d.Prepared, d.Approved, d.Scheduled, fleetStates(d)))
	if err != nil {
		return err
	}
	for _, problem := range f.problems {
		fmt.Fprintln(a.out, "Server problem: "+cut(printable.Text(problem), a.width()))
	}
	failures := f.Failures
	if len(failures) == 0 {
		fmt.Fprintln(a.out, "\nNothing fails.")
	} else {
		fmt.Fprintln(a.out, "\nWhat fails:")
		others := 2 + len(f.problems) + 4 // the title and the names of columns, with an empty line; the rest
		if len(f.Waits) > 0 {
			others += 2 + len(f.Waits)
		}
		shown := min(len(failures), statusFailures, max(3, statusLines-others))
		if err := printTable(a, failureColumns, failures[:shown]); err != nil {
			return err
		}
		rest := f.FailuresLeftOut
		for _, group := range failures[shown:] {
			rest += group.Count
		}
		if rest > 0 {
			fmt.Fprintf(a.out, "and %s for other reasons: see tko status -o json\n", count(rest, "failure", "failures"))
		}
	}
	if len(f.Waits) > 0 {
		fmt.Fprintln(a.out, "\nWhat waits:")
	}
	for _, w := range f.Waits {
		shown := textOf(w)
		fmt.Fprintf(a.out, "%s %s: see %s\n", count(w.Count, string(w.Kind), string(w.Kind)+"s"), shown.text, shown.how)
	}
	return nil
}

// value returns the summary for programs.
func (f *fleet) value() map[string]any {
	failures := values(f.Failures, func(group tko.FleetFailure) map[string]any {
		return map[string]any{
			"kind": string(group.Kind), "type": group.Type, "reason": group.Reason, "count": int64(group.Count),
			"since": group.Since.UTC().Format(time.RFC3339), "example": group.Example, "message": group.Message,
		}
	})
	waits := values(f.Waits, func(w tko.FleetWait) map[string]any {
		shown := textOf(w)
		return map[string]any{"kind": string(w.Kind), "count": int64(w.Count), "text": shown.text, "command": shown.how}
	})
	deployments := fleetCountsValue(f.Deployments)
	deployments["prepared"], deployments["approved"] = int64(f.Deployments.Prepared), int64(f.Deployments.Approved)
	return map[string]any{
		"sites":       fleetCountsValue(f.Sites),
		"deployments": deployments,
		"failures":    failures, "failuresLeftOut": int64(f.FailuresLeftOut), "waits": waits, "stops": values(f.stops, stopValue), "serverProblems": listValue(f.problems),
	}
}
