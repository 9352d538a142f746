package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

func (a *app) gitopsCommand() *cobra.Command {
	return group("gitops", "GitOps sources",
		a.gitopsStatus(), a.gitopsPlan(), a.gitopsSync(), a.gitopsApprove(), a.sourceCommand())
}

var sourceView = view[tko.Source]{
	id: func(s tko.Source) string { return s.Name },
	row: func(s tko.Source) map[string]any {
		row := map[string]any{
			"name": s.Name, "kind": s.Status.Kind, "url": s.Status.URL, "ref": s.Status.Ref, "path": s.Status.Path,
			"attemptedRevision": s.Status.Attempted, "appliedRevision": s.Status.Applied, "asks": s.Status.PendingRemoval,
			"messages": listValue(s.Status.Messages), "inventory": itemRows(s.Status.Items), "operations": operationRows(s.Status.Operations),
		}
		stampRow(row, tko.Stamp{Updated: s.Updated, Conditions: s.Status.Conditions})
		return row
	},
	columns: []column[tko.Source]{
		{name: "NAME", text: func(s tko.Source) string { return s.Name }},
		{name: "READY", text: func(s tko.Source) string { return status(s.Status.Conditions, tko.ConditionReady) }},
		{name: "APPLIED", text: func(s tko.Source) string { return shortRevision(s.Status.Applied) }},
		{name: "ATTEMPTED", text: func(s tko.Source) string { return shortRevision(s.Status.Attempted) }},
		{name: "OWNS", text: func(s tko.Source) string { return strconv.Itoa(len(s.Status.Items)) }},
		{name: "CHANGED", age: func(s tko.Source) time.Time { return s.Updated }},
		{name: "KIND", wide: true, text: func(s tko.Source) string { return s.Status.Kind }},
		{name: "URL", wide: true, text: func(s tko.Source) string { return s.Status.URL }},
		{name: "HOLDER", wide: true, text: func(s tko.Source) string { return s.Status.Holder }},
		{name: "MESSAGE", text: sourceMessage},
	},
}

// briefly returns a view without what may be long: the entities that a source owns, and its
// last operations. Lists have their number; the details of one source have them all.
func briefly(v view[tko.Source]) view[tko.Source] {
	row := v.row
	v.row = func(s tko.Source) map[string]any {
		brief := row(s)
		delete(brief, "inventory")
		delete(brief, "operations")
		brief["owns"] = int64(len(s.Status.Items))
		return brief
	}
	return v
}

// listSources prints sources. Without a format that the user chose, in a file or pipe, the
// rows are brief: conditions would be lost among thousands of entities.
func (a *app) listSources(ctx context.Context, s *session, v view[tko.Source], sources []tko.Source) error {
	if a.globals.format == "" {
		v = briefly(v)
	}
	return listItems(ctx, s, v, sources)
}

func sourceMessage(s tko.Source) string {
	if c := tko.FindCondition(s.Status.Conditions, tko.ConditionReady); c != nil && c.Status != tko.ConditionTrue {
		return onOneLine(c.Message)
	}
	if len(s.Status.Messages) > 0 {
		return s.Status.Messages[0]
	}
	return ""
}

// onOneLine joins the lines of a message, each of which reports another problem.
func onOneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// shortRevision returns a revision for users: its name, and the start of its hash.
func shortRevision(revision string) string {
	const most = 12
	for i, c := range revision {
		if c == ':' && len(revision)-i > most {
			return revision[:i+1+most]
		}
	}
	return revision
}

func itemRows(items []tko.SourceItem) []any {
	return values(items, func(item tko.SourceItem) map[string]any {
		row := map[string]any{"kind": item.Kind, "name": item.Name}
		for key, value := range map[string]string{"id": item.ID, "digest": item.Digest, "status": item.Status, "rollout": string(item.Rollout)} {
			setText(row, key, value)
		}
		if item.Revision != 0 {
			row["revision"] = item.Revision
		}
		if item.Pending {
			row["pending"] = true
		}
		return row
	})
}

func operationRows(operations []tko.SourceOperation) []any {
	return values(operations, func(o tko.SourceOperation) map[string]any {
		row := map[string]any{"time": o.Time.UTC().Format(time.RFC3339Nano), "revision": o.Revision, "verb": o.Verb, "kind": o.Kind, "name": o.Name}
		setText(row, "error", o.Error)
		return row
	})
}

func (a *app) gitopsStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show the status of sources, or the details of one",
		Long: `Show the status of sources: the applied revision, the last attempted one, and
problems. With a name, show the details of that source: its conditions, its
inventory, and its last operations.`,
		Example:           "  tko gitops status\n  tko gitops status fleet -o yaml",
		Args:              arguments(0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			var sources []tko.Source
			if len(args) > 0 {
				source, err := s.source(ctx, args[0])
				if err != nil {
					return err
				}
				if f := a.format(); f == formatTable || f == formatWide {
					a.noticeSilence([]tko.Source{source})
					return a.printSource(source)
				}
				sources = []tko.Source{source}
			} else {
				var err error
				if sources, err = call(ctx, s, s.Sources); err != nil {
					return err
				}
			}
			a.noticeSilence(sources)
			if len(args) > 0 {
				return listItems(ctx, s, sourceView, sources)
			}
			return a.listSources(ctx, s, sourceView, sources)
		}),
	}
}

// printSource writes the details of a source for users.
func (a *app) printSource(s tko.Source) error {
	text := func(name, s string) fact { return textFact(name, name, s) }
	facts := []fact{
		text("Source", s.Name), text("Kind", s.Status.Kind), text("URL", s.Status.URL), text("Applied", s.Status.Applied), text("Attempted", s.Status.Attempted),
	}
	for _, c := range s.Status.Conditions {
		facts = append(facts, text(c.Type, fmt.Sprintf("%s (%s) %s", c.Status, c.Reason, onOneLine(c.Message))))
	}
	for _, message := range s.Status.Messages {
		facts = append(facts, text("Note", message))
	}
	if err := a.printFacts(slices.DeleteFunc(facts, func(f fact) bool { return f.text == "" })); err != nil {
		return err
	}
	if len(s.Status.Items) > 0 {
		fmt.Fprintln(a.out)
		if err := printTable(a, itemColumns, s.Status.Items); err != nil {
			return err
		}
	}
	if len(s.Status.Operations) == 0 {
		return nil
	}
	fmt.Fprintln(a.out)
	return printTable(a, operationColumns, s.Status.Operations)
}

var itemColumns = []column[tko.SourceItem]{
	{name: "OWNS", text: func(i tko.SourceItem) string { return i.Kind }},
	{name: "NAME", text: func(i tko.SourceItem) string { return i.Name }},
	{name: "ID", text: func(i tko.SourceItem) string { return i.ID }},
	{name: "STATUS", text: func(i tko.SourceItem) string { return i.Status }},
	{name: "DIGEST", wide: true, text: func(i tko.SourceItem) string { return i.Digest }},
}

var operationColumns = []column[tko.SourceOperation]{
	{name: "DONE", age: func(o tko.SourceOperation) time.Time { return o.Time }},
	{name: "VERB", text: func(o tko.SourceOperation) string { return o.Verb }},
	{name: "KIND", text: func(o tko.SourceOperation) string { return o.Kind }},
	{name: "NAME", text: func(o tko.SourceOperation) string { return o.Name }},
	{name: "REVISION", text: func(o tko.SourceOperation) string { return shortRevision(o.Revision) }},
	{name: "ERROR", text: func(o tko.SourceOperation) string { return o.Error }},
}

func (a *app) gitopsSync() *cobra.Command {
	var wait waitFlag
	cmd := &cobra.Command{
		Use:   "sync NAME…",
		Short: "Reconcile sources now",
		Long: `Reconcile sources now, and compare them with TKO, if anything changed there, and
with Open Source MANO. With --wait, the command ends when each of them has been
reconciled since, and no operation is in progress in it: with 0 if all are ready,
and with 1 if one isn't, or after the timeout.`,
		Example:           "  tko gitops sync fleet\n  tko gitops sync fleet services --wait --wait-timeout 10m",
		Args:              arguments(1, -1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			for _, name := range args {
				if _, err := s.source(ctx, name); err != nil {
					return err
				}
			}
			err := s.do(ctx, func(ctx context.Context) error { return s.EnqueueSources(ctx, args, false, "") })
			if err != nil {
				return err
			}
			if !wait.wait {
				return a.printResult(map[string]any{"sources": values(args, func(name string) map[string]any { return map[string]any{"name": name, "enqueued": true} })})
			}
			sources, err := settled(ctx, s, args, wait.timeout)
			return errors.Join(a.printResult(map[string]any{"sources": values(sources, syncedRow)}), err)
		}),
	}
	wait.flags(cmd.Flags(), "wait until the sources are reconciled, and report whether they are ready")
	return cmd
}

// sourcePoll is the interval of polling sources while waiting.
const sourcePoll = 200 * time.Millisecond

// syncedRow returns how a source is after its reconciliation.
func syncedRow(s tko.Source) map[string]any {
	c := readiness(s)
	return map[string]any{
		"name": s.Name, "enqueued": s.Enqueued, "ready": c.Status, "reason": c.Reason, "message": c.Message, "appliedRevision": s.Status.Applied, "suspended": suspended(s),
	}
}

// suspended reports whether the reconciliation of a source is suspended.
func suspended(s tko.Source) bool {
	return tko.ConditionIs(s.Status.Conditions, tko.ConditionSuspended) == tko.ConditionTrue
}

// settled waits until sources have been reconciled since they were enqueued, and no
// operation is in progress in them; it gives up after the timeout without progress. The error
// names those that aren't ready, and why.
func settled(ctx context.Context, s *session, names []string, timeout time.Duration) (all []tko.Source, err error) {
	ctx, moved, cancel := patient(ctx, timeout, errWaitTimeout)
	defer cancel()
	var trouble []string
	for _, name := range names {
		moved()
		source, err := settledSource(ctx, s, name, moved)
		all = append(all, source)
		if source.Name == "" {
			all = all[:len(all)-1] // it was never read
		}
		switch {
		case errors.Is(context.Cause(ctx), errWaitTimeout):
			return all, &hintedError{
				err:  fmt.Errorf("source %q is not settled after %v without progress: %s", name, timeout, underWay(source)),
				hint: "reconciliation continues: see tko gitops status " + name,
			}
		case err != nil:
			return all, err
		}
		if c := readiness(source); suspended(source) && c.Status == tko.ConditionTrue {
			s.app.notice("source %q is suspended, and ready at %s", name, shortRevision(source.Status.Applied))
		} else if c.Status == tko.ConditionTrue {
			s.app.notice("source %q is ready at %s", name, shortRevision(source.Status.Applied))
		} else {
			trouble = append(trouble, fmt.Sprintf("source %q is not ready: %s", name, strings.Trim(c.Reason+": "+onOneLine(c.Message), ": ")))
		}
	}
	if len(trouble) > 0 {
		return all, errors.New(strings.Join(trouble, "; "))
	}
	return all, nil
}

func (s *session) source(ctx context.Context, name string) (tko.Source, error) {
	return call(ctx, s, func(ctx context.Context) (tko.Source, error) { return s.Source(ctx, name) })
}

// settledSource returns a source once it is settled. With an error, it returns the
// source as it was read last. It calls moved when what is under way changes.
func settledSource(ctx context.Context, s *session, name string, moved func()) (tko.Source, error) {
	var source tko.Source
	for {
		now, err := s.source(ctx, name)
		if err != nil {
			return source, err
		}
		if underWay(now) != underWay(source) {
			moved()
		}
		source = now
		if !source.Enqueued && !progressing(source) {
			return source, nil
		}
		if err := pause.For(ctx, sourcePoll); err != nil {
			return source, err
		}
	}
}

// progressing reports whether an operation of the last reconciliation is in
// progress, also if another one has failed.
func progressing(source tko.Source) bool {
	if c := tko.FindCondition(source.Status.Conditions, tko.ConditionReconciling); c != nil && c.Status == tko.ConditionTrue && c.Reason == tko.SourceReasonProgressing {
		return true
	}
	c := readiness(source)
	return c.Status == tko.ConditionUnknown && c.Reason == tko.SourceReasonProgressing
}

// underWay returns why a source isn't settled.
func underWay(source tko.Source) string {
	if c := tko.FindCondition(source.Status.Conditions, tko.ConditionReconciling); c != nil && progressing(source) {
		return c.Message
	}
	if progressing(source) {
		return readiness(source).Message
	}
	return "it has not been reconciled since it was enqueued"
}

func readiness(source tko.Source) tko.Condition {
	if c := tko.FindCondition(source.Status.Conditions, tko.ConditionReady); c != nil {
		return *c
	}
	return tko.Condition{}
}

func (a *app) gitopsApprove() *cobra.Command {
	return &cobra.Command{
		Use:   "approve NAME DIGEST",
		Short: "Approve a removal that exceeds a source's budget",
		Long: `Approve a removal that exceeds a source's budget. The source's status lists the
removal and its digest. If the removal changes, so does its digest.`,
		Example:           "  tko gitops approve fleet 8f14e45fceea167a",
		Args:              arguments(2, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			if err := expectID("digest of the removal", args[1]); err != nil {
				return err
			}
			err := s.do(ctx, func(ctx context.Context) error { return s.EnqueueSources(ctx, args[:1], false, args[1]) })
			if err == nil {
				a.notice("approved the removal of source %q", args[0])
			}
			return err
		}),
	}
}
