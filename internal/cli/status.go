package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
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
	statusFailures = 10   // kinds of failures that are shown, at most
	statusLines    = 20   // of a status, unless the server has many problems
	statusGroups   = 2000 // kinds of failures that are counted; the rest is counted together
)

// A fleet summarizes sites and deployments.
type fleet struct {
	sites       fleetCounts
	deployments fleetCounts
	failures    map[failureKey]*failure
	overflow    int // failures of further kinds
	waits       []fleetWait
	stops       []tko.StopStatus
	problems    []string // of the server
}

// fleetCounts are numbers of entities, by what they are.
type fleetCounts map[string]int

// add counts an entity by the status of a condition.
func (c fleetCounts) add(conditions []tko.Condition, typ, yes, no string) {
	switch tko.ConditionIs(conditions, typ) {
	case tko.ConditionTrue:
		c[yes]++
	case tko.ConditionFalse:
		c[no]++
	}
}

// unhealthy is the name of the number of entities whose condition Healthy is False. It is no
// state: those that come up are working.
const unhealthy = "unhealthy"

// addState counts an entity by its state, as dashboards do, and whether it reports that it is
// unhealthy.
func (c fleetCounts) addState(state tko.State, conditions []tko.Condition) {
	c[string(state)]++
	if tko.ConditionIs(conditions, tko.ConditionHealthy) == tko.ConditionFalse {
		c[unhealthy]++
	}
}

// states returns the numbers of entities in each state that some have, and of the healthy ones.
func (c fleetCounts) states() string {
	var all []string
	for _, state := range tko.States() {
		if n := c[string(state)]; n > 0 || state == tko.StateHealthy {
			all = append(all, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(all, ", ")
}

// value returns some of the numbers for programs, with those of all states.
func (c fleetCounts) value(names ...string) map[string]any {
	value := map[string]any{}
	for _, name := range append(names, "total", "scheduled", "notScheduled", unhealthy) {
		value[name] = int64(c[name])
	}
	for _, state := range tko.States() {
		value[string(state)] = int64(c[string(state)])
	}
	return value
}

type failureKey struct {
	kind        tko.Kind
	typ, reason string
}

// A failure is a group of conditions that are False for the same reason.
type failure struct {
	failureKey
	count   int
	since   time.Time // of the oldest
	example string    // the oldest
	message string
}

// A fleetWait is what a number of entities wait for.
type fleetWait struct {
	kind  tko.Kind
	count int
	text  string
	how   string // the command that shows or ends it
}

func (a *app) statusCommand() *cobra.Command {
	var sites tko.SiteSelect
	var exitCode, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the fleet in a few lines: what fails, why and since when, and what waits",
		Long: `Show the fleet in a few lines: counts of sites and deployments, with the states that
dashboards show, what fails, grouped by the reason, with the oldest example of each, and what waits for an approval or a
controller. What a user has stopped comes first. Filters limit it to sites, and to the deployments at them. With --exit-code,
the exit code is 1 if something fails. With --watch, the status is shown again each time that it
has changed, at most once a second, until the command is interrupted.`,
		Example: `  tko status
  tko status --watch
  tko status --site-metadata region=west
  tko status -o json`,
	}
	patterns(cmd.Flags(), &sites.IDs, "site-id", "", "the site's ID")
	metadataPatterns(cmd.Flags(), &sites.Metadata, "site-metadata", "", " of the site")
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
		if err == nil && exitCode && len(f.failures) > 0 {
			err = fmt.Errorf("something fails, for %s: see the list", count(len(f.failures), "reason", "reasons"))
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
func (a *app) watchFleet(ctx context.Context, s *session, sites tko.SiteSelect) error {
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

// readFleet reads each site and deployment once, without packages.
func readFleet(ctx context.Context, s *session, sites tko.SiteSelect) (*fleet, error) {
	f := &fleet{sites: fleetCounts{}, deployments: fleetCounts{}, failures: map[failureKey]*failure{}}
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
	var w fleetWaits
	err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Site, error] { return s.Sites(ctx, sites, tko.ListOptions{}) }, func(site tko.Site) error {
		f.addSite(site, &w)
		return nil
	})
	if err != nil {
		return nil, err
	}
	sel := tko.DeploymentSelect{Sites: sites.IDs, SiteMetadata: sites.Metadata}
	err = s.eachDeployment(ctx, sel, tko.ListOptions{}, func(d tko.Deployment) { f.addDeployment(d, &w) })
	if err != nil {
		return nil, err
	}
	f.waits = w.list()
	return f, nil
}

func (f *fleet) addSite(site tko.Site, w *fleetWaits) {
	if tko.HasCondition(site.Stamp.Conditions, tko.ConditionResolvedRefs, tko.ReasonWaitsForReferences) {
		w.sites++
	}
	f.sites["total"]++
	f.sites.add(site.Stamp.Conditions, tko.ConditionScheduled, "scheduled", "notScheduled")
	f.sites.addState(site.Summary().State, site.Stamp.Conditions)
	f.addFailures(tko.KindSite, string(site.ID), site.Stamp.Conditions)
}

// fleetWaits count what deployments, and sites, wait for.
type fleetWaits struct {
	preparer, approval, withdrawn, proposal, scheduler, suspended, frozen, stopped, apart, references, partly int
	sites                                                                                                     int
}

func (w fleetWaits) list() []fleetWait {
	all := []fleetWait{
		{tko.KindDeployment, w.stopped, "stopped by a user, and waiting for the release", "tko stop list"},
		{tko.KindDeployment, w.approval, "waiting for an approval", "tko deployment list --prepared --approved=false"},
		{tko.KindDeployment, w.withdrawn, "changed since the last approval, waiting for another one", "tko deployment list --condition Approved:" + tko.ReasonApprovalWithdrawn},
		{tko.KindDeployment, w.proposal, "with proposed changes of placements, waiting for an approval", "tko deployment list --condition Placed:" + tko.ReasonChangeProposed},
		{tko.KindDeployment, w.preparer, "waiting for a preparer", "tko deployment list --prepared=false -o wide"},
		{tko.KindDeployment, w.scheduler, "waiting for the meta-scheduler", "tko deployment list --prepared --approved --scheduled=false"},
		{tko.KindDeployment, w.suspended, "suspended, or at suspended sites", "tko deployment list --condition Scheduled:" + tko.ReasonSuspended},
		{tko.KindDeployment, w.frozen, "waiting for the end of a freeze", "tko freeze list"},
		{tko.KindDeployment, w.references, "waiting for templates or sites that don't exist yet", "tko deployment list --condition ResolvedRefs=False"},
		{tko.KindDeployment, w.partly, "delivered in part", "tko deployment list --condition Delivered=False -o wide"},
		{tko.KindDeployment, w.apart, "waiting for a rollout that is changing a site from which theirs is kept apart", "tko deployment list --condition Scheduled:" + tko.ReasonApart},
		{tko.KindSite, w.sites, "waiting for templates that don't exist yet", "tko site list --condition ResolvedRefs=False"},
	}
	return slices.DeleteFunc(all, func(w fleetWait) bool { return w.count == 0 })
}

func (f *fleet) addDeployment(d tko.Deployment, w *fleetWaits) {
	f.deployments["total"]++
	conditions := d.Stamp.Conditions
	scheduled, prepared := tko.ConditionIs(conditions, tko.ConditionScheduled), tko.ConditionIs(conditions, tko.ConditionPrepared)
	if d.Prepared {
		f.deployments["prepared"]++
	}
	if d.Approved {
		f.deployments["approved"]++
	}
	f.deployments.add(conditions, tko.ConditionScheduled, "scheduled", "notScheduled")
	f.deployments.addState(d.Summary().State, conditions)
	switch {
	case tko.HasCondition(conditions, tko.ConditionScheduled, tko.ReasonStopped), !d.Prepared && tko.HasCondition(conditions, tko.ConditionPrepared, tko.ReasonStopped):
		w.stopped++
	case !d.Prepared && prepared != tko.ConditionFalse:
		w.preparer++
	case d.Prepared && !d.Approved && tko.HasCondition(conditions, tko.ConditionApproved, tko.ReasonApprovalWithdrawn):
		w.withdrawn++
	case d.Prepared && !d.Approved:
		w.approval++
	case d.Prepared && d.Site != "" && scheduled != tko.ConditionTrue && scheduled != tko.ConditionFalse:
		w.scheduler++
	case tko.HasCondition(conditions, tko.ConditionScheduled, tko.ReasonSuspended):
		w.suspended++
	case tko.HasCondition(conditions, tko.ConditionScheduled, tko.ReasonFrozen):
		w.frozen++
	case tko.HasCondition(conditions, tko.ConditionScheduled, tko.ReasonApart):
		w.apart++
	}
	if tko.HasCondition(conditions, tko.ConditionPlaced, tko.ReasonChangeProposed) {
		w.proposal++
	}
	if tko.HasCondition(conditions, tko.ConditionResolvedRefs, tko.ReasonWaitsForReferences) {
		w.references++
	}
	if tko.HasCondition(conditions, tko.ConditionDelivered, tko.ReasonDeliveredPartly) {
		w.partly++
	}
	f.addFailures(tko.KindDeployment, string(d.ID), conditions)
}

// notFailures are the reasons of conditions that are False while something waits, and of what
// was delivered in part.
var notFailures = []string{
	tko.ReasonSuspended, tko.ReasonFrozen, tko.ReasonApart, tko.ReasonStopped, tko.ReasonWaitsForReferences, tko.ReasonDeliveredPartly,
}

// addFailures counts the conditions that are False, except for those that wait for
// a user, for what doesn't exist yet, or for the end of a freeze or stop.
func (f *fleet) addFailures(kind tko.Kind, id string, conditions []tko.Condition) {
	for _, c := range conditions {
		if c.Status != tko.ConditionFalse || c.Type == tko.ConditionApproved || c.Type == tko.ConditionPlaced && c.Reason == tko.ReasonChangeProposed {
			continue
		}
		if c.Type == tko.ConditionFrozen || slices.Contains(notFailures, c.Reason) {
			continue
		}
		key := failureKey{kind: kind, typ: c.Type, reason: c.Reason}
		group := f.failures[key]
		if group == nil {
			if len(f.failures) == statusGroups {
				f.overflow++
				continue
			}
			group = &failure{failureKey: key}
			f.failures[key] = group
		}
		group.count++
		if group.count == 1 || c.LastTransition.Before(group.since) {
			group.since, group.example, group.message = c.LastTransition, id, c.Text()
		}
	}
}

// sorted returns the failures, the most frequent first.
func (f *fleet) sorted() []*failure {
	all := make([]*failure, 0, len(f.failures))
	for _, group := range f.failures {
		all = append(all, group)
	}
	slices.SortFunc(all, func(a, b *failure) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(b.kind, a.kind), cmp.Compare(a.typ, b.typ), cmp.Compare(a.reason, b.reason))
	})
	return all
}

var failureColumns = []column[*failure]{
	{name: "COUNT", text: func(f *failure) string { return strconv.Itoa(f.count) }},
	{name: "KIND", text: func(f *failure) string { return string(f.kind) }},
	{name: "CONDITION", text: func(f *failure) string { return f.typ }},
	{name: "REASON", text: func(f *failure) string { return f.reason }},
	{name: "SINCE", age: func(f *failure) time.Time { return f.since }},
	{name: "EXAMPLE", text: func(f *failure) string { return f.example }},
	{name: "MESSAGE", text: func(f *failure) string { return f.message }},
}

func (f *fleet) print(a *app) error {
	for _, stop := range f.stops {
		text := "STOPPED: " + stop.Stop.Text()
		if stop.Stop.OnlyUndo {
			text += "; undos of rollouts go on"
		}
		fmt.Fprintln(a.out, a.paint(a.streams.Out, "\x1b[31m", cut(printable.Text(text), a.width())))
	}
	s, d := f.sites, f.deployments
	err := a.printLines(fmt.Sprintf("Sites:        %d: %d scheduled, %d not; %s\nDeployments:  %d: %d prepared, %d approved, %d scheduled; %s\n",
		s["total"], s["scheduled"], s["notScheduled"], s.states(), d["total"], d["prepared"], d["approved"], d["scheduled"], d.states()))
	if err != nil {
		return err
	}
	for _, problem := range f.problems {
		fmt.Fprintln(a.out, "Server problem: "+cut(printable.Text(problem), a.width()))
	}
	failures := f.sorted()
	if len(failures) == 0 {
		fmt.Fprintln(a.out, "\nNothing fails.")
	} else {
		fmt.Fprintln(a.out, "\nWhat fails:")
		others := 2 + len(f.problems) + 4 // the title and the names of columns, with an empty line; the rest
		if len(f.waits) > 0 {
			others += 2 + len(f.waits)
		}
		shown := min(len(failures), statusFailures, max(3, statusLines-others))
		if err := printTable(a, failureColumns, failures[:shown]); err != nil {
			return err
		}
		rest := f.overflow
		for _, group := range failures[shown:] {
			rest += group.count
		}
		if rest > 0 {
			fmt.Fprintf(a.out, "and %s for other reasons: see tko status -o json\n", count(rest, "failure", "failures"))
		}
	}
	if len(f.waits) > 0 {
		fmt.Fprintln(a.out, "\nWhat waits:")
	}
	for _, w := range f.waits {
		fmt.Fprintf(a.out, "%s %s: see %s\n", count(w.count, string(w.kind), string(w.kind)+"s"), w.text, w.how)
	}
	return nil
}

// value returns the summary for programs.
func (f *fleet) value() map[string]any {
	failures := values(f.sorted(), func(group *failure) map[string]any {
		return map[string]any{
			"kind": string(group.kind), "type": group.typ, "reason": group.reason, "count": int64(group.count),
			"since": group.since.UTC().Format(time.RFC3339), "example": group.example, "message": group.message,
		}
	})
	waits := values(f.waits, func(w fleetWait) map[string]any {
		return map[string]any{"kind": string(w.kind), "count": int64(w.count), "text": w.text, "command": w.how}
	})
	return map[string]any{
		"sites":       f.sites.value(),
		"deployments": f.deployments.value("prepared", "approved"),
		"failures":    failures, "failuresLeftOut": int64(f.overflow), "waits": waits, "stops": values(f.stops, stopValue), "serverProblems": listValue(f.problems),
	}
}
