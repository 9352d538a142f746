package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
)

var evidenceView = view[tko.RolloutEvidence]{
	id: func(e tko.RolloutEvidence) string { return strconv.FormatInt(e.Number, 10) },
	row: func(e tko.RolloutEvidence) map[string]any {
		row := map[string]any{
			"number": e.Number, "time": momentText(e.Time), "plan": e.Plan, "wave": e.Wave, "metric": e.Metric, "query": e.Query,
			"changed": measuredRow(e.Changed), "compared": measuredRow(e.Compared), "outcome": e.Outcome, "text": e.Text,
		}
		setText(row, "system", e.System)
		setText(row, "ticket", e.Ticket)
		setText(row, "who", e.Who)
		return row
	},
	columns: []column[tko.RolloutEvidence]{
		{name: "TIME", text: func(e tko.RolloutEvidence) string { return e.Time.Local().Format(time.RFC3339) }}, //nolint:gosmopolitan // for people
		{name: "WAVE", text: func(e tko.RolloutEvidence) string { return e.Wave }},
		{name: "ABOUT", text: func(e tko.RolloutEvidence) string { return cmp.Or(e.Metric, e.Ticket, e.System) }},
		{name: "OUTCOME", text: func(e tko.RolloutEvidence) string { return e.Outcome }},
		{name: "SITES", text: sitesMeasured},
		{name: "TEXT", text: func(e tko.RolloutEvidence) string { return e.Text }},
	},
}

// sitesMeasured returns the number of changed sites, and that of those they are compared with.
func sitesMeasured(e tko.RolloutEvidence) string {
	switch {
	case e.Changed.Count+e.Compared.Count == 0:
		return ""
	case e.Compared.Count == 0:
		return strconv.Itoa(e.Changed.Count)
	}
	return fmt.Sprintf("%d/%d", e.Changed.Count, e.Compared.Count)
}

func measuredRow(q tko.RolloutQuery) map[string]any {
	row := map[string]any{"sites": int64(q.Count), "examples": listValue(q.Sites)}
	if q.Value != nil {
		row["value"] = *q.Value
	}
	setText(row, "at", momentText(q.At))
	setText(row, "reason", q.Reason)
	return row
}

func (a *app) rolloutEvidence() *cobra.Command {
	sel := tko.RolloutEvidenceSelect{}
	cmd := &cobra.Command{
		Use: "evidence ID", Short: "List the measurements and tickets that a rollout was decided by",
		Long: `List what a rollout was decided by, the oldest first: the measurements of its metrics
(spec.health.metrics), at how many changed sites and at how many that they are compared with, the
values, and what follows from them; and what became of tickets (approval: {external: NAME} of
waves), with who decided. The newest 10,000 are kept until the rollout is deleted.`,
		Example: "  tko rollout evidence smf-v2\n  tko rollout evidence smf-v2 -o json --after 100",
		Args:    arguments(1, 1), ValidArgsFunction: a.completeArgs(completeRollouts),
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			sel.ID = tko.RolloutID(args[0])
			return list(ctx, s, evidenceView, nil, func(ctx context.Context) iter.Seq2[tko.RolloutEvidence, error] { return s.RolloutEvidence(ctx, sel) })
		}),
	}
	cmd.Flags().Int64Var(&sel.After, "after", 0, "`number` of the measurement after which to begin (default the oldest)")
	cmd.Flags().IntVar(&sel.Limit, "max-count", 0, "`number` of measurements to show at most (default all)")
	return cmd
}
