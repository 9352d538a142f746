package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	rows := make([]any, len(items))
	for i, item := range items {
		row := map[string]any{"kind": item.Kind, "name": item.Name}
		for key, value := range map[string]string{"id": item.ID, "digest": item.Digest, "status": item.Status, "rollout": string(item.Rollout)} {
			if value != "" {
				row[key] = value
			}
		}
		if item.Revision != 0 {
			row["revision"] = item.Revision
		}
		if item.Pending {
			row["pending"] = true
		}
		rows[i] = row
	}
	return rows
}

func operationRows(operations []tko.SourceOperation) []any {
	rows := make([]any, len(operations))
	for i, o := range operations {
		row := map[string]any{"time": o.Time.UTC().Format(time.RFC3339Nano), "revision": o.Revision, "verb": o.Verb, "kind": o.Kind, "name": o.Name}
		if o.Error != "" {
			row["error"] = o.Error
		}
		rows[i] = row
	}
	return rows
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
				source, err := call(ctx, s, func(ctx context.Context) (tko.Source, error) { return s.Source(ctx, args[0]) })
				if err != nil {
					return err
				}
				if f := a.format(); f == formatTable || f == formatWide {
					a.noticeSilence([]tko.Source{source})
					return a.printSource(source, f == formatWide)
				}
				sources = []tko.Source{source}
			} else {
				var err error
				if sources, err = call(ctx, s, s.Sources); err != nil {
					return err
				}
			}
			a.noticeSilence(sources)
			return list(ctx, s, sourceView, nil, func(context.Context) iter.Seq2[tko.Source, error] { return sequence(sources) })
		}),
	}
}

func sequence[T any](items []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// printSource writes the details of a source for users.
func (a *app) printSource(s tko.Source, wide bool) error {
	text := func(name, s string) fact { return fact{name, name, s, s} }
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
		items := table[tko.SourceItem]{app: a, wide: wide, columns: itemColumns}
		for _, item := range s.Status.Items {
			if err := items.add(item); err != nil {
				return err
			}
		}
		if err := items.end(); err != nil {
			return err
		}
	}
	if len(s.Status.Operations) == 0 {
		return nil
	}
	fmt.Fprintln(a.out)
	operations := table[tko.SourceOperation]{app: a, wide: wide, columns: operationColumns}
	for _, o := range s.Status.Operations {
		if err := operations.add(o); err != nil {
			return err
		}
	}
	return operations.end()
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
	var wait sourceWait
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
				if _, err := call(ctx, s, func(ctx context.Context) (tko.Source, error) { return s.Source(ctx, name) }); err != nil {
					return err
				}
			}
			_, err := call(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.EnqueueSources(ctx, args, false, "") })
			if err != nil || !wait.wait {
				return err
			}
			return wait.settled(ctx, s, args)
		}),
	}
	wait.flags(cmd.Flags())
	return cmd
}

// A sourceWait has a command wait until sources are reconciled.
type sourceWait struct {
	wait    bool
	timeout time.Duration
}

func (w *sourceWait) flags(f *pflag.FlagSet) {
	f.BoolVar(&w.wait, "wait", false, "wait until the sources are reconciled, and report whether they are ready")
	f.DurationVar(&w.timeout, "wait-timeout", 5*time.Minute, "`time` to wait at most (0: no limit)")
}

// sourcePoll is the interval of polling sources while waiting.
const sourcePoll = 200 * time.Millisecond

// settled waits until sources have been reconciled since they were enqueued, and no
// operation is in progress in them. The error names those that aren't ready, and
// why.
func (w *sourceWait) settled(ctx context.Context, s *session, names []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if w.timeout > 0 {
		timer := time.AfterFunc(w.timeout, func() { cancel(errWaitTimeout) })
		defer timer.Stop()
	}
	var trouble []string
	for _, name := range names {
		source, err := settledSource(ctx, s, name)
		switch {
		case errors.Is(context.Cause(ctx), errWaitTimeout):
			return &hintedError{
				err:  fmt.Errorf("source %q is not settled after %v: %s", name, w.timeout, underWay(source)),
				hint: "reconciliation continues: see tko gitops status " + name,
			}
		case err != nil:
			return err
		}
		if c := readiness(source); c.Status == tko.ConditionTrue {
			s.app.notice("source %q is ready at %s", name, shortRevision(source.Status.Applied))
		} else {
			trouble = append(trouble, fmt.Sprintf("source %q is not ready: %s", name, strings.Trim(c.Reason+": "+onOneLine(c.Message), ": ")))
		}
	}
	if len(trouble) > 0 {
		return errors.New(strings.Join(trouble, "; "))
	}
	return nil
}

// settledSource returns a source once it is settled. With an error, it returns the
// source as it was read last.
func settledSource(ctx context.Context, s *session, name string) (tko.Source, error) {
	var source tko.Source
	for {
		now, err := call(ctx, s, func(ctx context.Context) (tko.Source, error) { return s.Source(ctx, name) })
		if err != nil {
			return source, err
		}
		if source = now; !source.Enqueued && !progressing(source) {
			return source, nil
		}
		if err := pause.For(ctx, sourcePoll); err != nil {
			return source, err
		}
	}
}

// progressing reports whether an operation of the last reconciliation is in
// progress.
func progressing(source tko.Source) bool {
	c := readiness(source)
	return c.Status == tko.ConditionUnknown && c.Reason == tko.SourceReasonProgressing
}

// underWay returns why a source isn't settled.
func underWay(source tko.Source) string {
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
			_, err := call(ctx, s, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, s.EnqueueSources(ctx, args[:1], false, args[1])
			})
			if err == nil {
				a.notice("approved the removal of source %q", args[0])
			}
			return err
		}),
	}
}
