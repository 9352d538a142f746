package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

func (a *app) waitCommand() *cobra.Command {
	var until string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait KIND ID",
		Short: "Wait for a condition of a site, deployment or plugin, or for its deletion",
		Long: `Wait for a condition of a site, deployment or plugin, or for its deletion. The kind is
site, deployment, template or plugin; the ID of a plugin is TYPE|NAME. A condition counts only
if it was observed at the current revision, so a wait after a change waits for the
change. While it waits, the command prints the current condition, once for each state.

The exit code is 1 after the timeout, and 3 if the entity doesn't exist, or is deleted while
a condition is awaited.`,
		Example: `  tko wait deployment "$id" --for condition=Scheduled
  tko wait site lagos/1 --for condition=Healthy=True --wait-timeout 10m
  tko wait deployment "$id" --for delete`,
		Args:              arguments(2, 2),
		ValidArgsFunction: a.completeKindAndID,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			kind := tko.Kind(args[0])
			if err := expectID("ID", args[1]); err != nil {
				return err
			}
			if timeout < 0 {
				return tko.Errorf(errUsage, "--wait-timeout %s is negative: use 0 for no limit", timeout)
			}
			goal, err := parseGoal(kind, until)
			if err != nil {
				return err
			}
			return s.waitFor(ctx, kind, args[1], goal, timeout)
		}),
	}
	cmd.Flags().StringVar(&until, "for", "", "`GOAL`: condition=TYPE[=STATUS][:REASON], or delete")
	cmd.Flags().DurationVar(&timeout, "wait-timeout", 5*time.Minute, "`time` to wait at most (0: no limit)")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "the same as --wait-timeout")
	cmd.MarkFlagsMutuallyExclusive("wait-timeout", "timeout")
	complete(cmd, "for", fixed("condition=Prepared", "condition=Approved", "condition=Scheduled", "condition=Healthy", "delete"))
	return cmd
}

// completeKindAndID completes a kind, and then its IDs.
func (a *app) completeKindAndID(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{"deployment", "site", "template", "plugin"}, cobra.ShellCompDirectiveNoFileComp
	}
	find, ok := map[string]completer{"deployment": completeDeployments, "site": completeSites, "template": completeTemplates}[args[0]]
	if !ok || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completion(find)(cmd, args, prefix)
}

// A goal is what a wait waits for: a condition, or the deletion.
type goal struct {
	deleted   bool
	condition tko.ConditionSelect
}

func (g goal) String() string {
	if g.deleted {
		return "is deleted"
	}
	return "has the condition " + g.condition.String()
}

func parseGoal(kind tko.Kind, text string) (goal, error) {
	switch kind {
	case tko.KindSite, tko.KindDeployment, tko.KindPlugin, tko.KindTemplate:
	default:
		return goal{}, tko.Errorf(errUsage, "there is no kind %q: use site, deployment, template or plugin", string(kind))
	}
	if text == "delete" {
		return goal{deleted: true}, nil
	}
	name, ok := strings.CutPrefix(text, "condition=")
	if !ok {
		return goal{}, tko.Errorf(errUsage, "--for %q: use condition=TYPE[=STATUS][:REASON], or delete", text)
	}
	if kind == tko.KindTemplate {
		return goal{}, tko.Errorf(errUsage, "templates have no conditions: use --for delete")
	}
	c, err := parseCondition("for", name)
	return goal{condition: c}, err
}

// waitFor waits until an entity reaches a goal.
func (s *session) waitFor(ctx context.Context, kind tko.Kind, id string, g goal, timeout time.Duration) error {
	ctx, cancel := expiring(ctx, timeout, errWaitTimeout)
	defer cancel()
	changed, stopWatching := s.changesOf(ctx, kind, id)
	defer stopWatching()
	last, shown := "", ""
	for {
		began := time.Now()
		e, err := s.entity(ctx, kind, id, 0)
		stamp := e.stamp
		took := time.Since(began)
		switch timedOut := errors.Is(context.Cause(ctx), errWaitTimeout); {
		case timedOut:
			return fmt.Errorf("%s %q: waited %v, until it %s: %s", kind, id, timeout, g, last)
		case g.deleted && errors.Is(err, tko.ErrNotFound):
			s.app.notice("%s %q %s", kind, id, g)
			return nil
		case err != nil:
			return err
		case !g.deleted && g.reached(stamp):
			s.app.notice("%s %q %s", kind, id, g)
			return nil
		}
		last = g.state(stamp)
		if last != shown {
			s.app.notice("%s %q: %s", kind, id, last)
			shown = last
		}
		if err := untilChanged(ctx, changed, max(waitPause, waitCost*took)); err != nil && !errors.Is(err, errWaitTimeout) {
			return err
		}
	}
}

// reached reports whether the condition is as it should be. A condition that was
// observed at an earlier revision is unknown.
func (g goal) reached(stamp tko.Stamp) bool {
	return g.condition.Match(observed(stamp))
}

// observed returns the conditions, with the status Unknown of those that were
// observed at an earlier revision.
func observed(stamp tko.Stamp) []tko.Condition {
	var conditions []tko.Condition
	for _, c := range stamp.Conditions {
		if c.ObservedRevision > 0 && c.ObservedRevision < stamp.Revision {
			c.Status, c.Reason = tko.ConditionUnknown, "NotObserved"
		}
		conditions = append(conditions, c)
	}
	return conditions
}

// state describes how far the entity is from the goal.
func (g goal) state(stamp tko.Stamp) string {
	if g.deleted {
		return fmt.Sprintf("it is there, at revision %d", stamp.Revision)
	}
	c := tko.FindCondition(stamp.Conditions, g.condition.Type)
	switch {
	case c == nil:
		return fmt.Sprintf("its condition %s has not been reported yet", g.condition.Type)
	case c.ObservedRevision > 0 && c.ObservedRevision < stamp.Revision:
		return fmt.Sprintf("its condition %s is of revision %d, and it is at revision %d", c.Type, c.ObservedRevision, stamp.Revision)
	}
	text := strings.Trim(c.Reason+": "+c.Text(), ": ")
	return strings.TrimSuffix(fmt.Sprintf("its condition %s is %s: %s", c.Type, c.Status, text), ": ")
}
