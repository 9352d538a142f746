package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// formatDiff is the output format of commands with the annotation withDiff: removed and
// added values, line by line.
const (
	formatDiff = "diff"
	withDiff   = "format diff"
)

func changesValue(changes []tko.RolloutChange) []any {
	return values(changes, func(c tko.RolloutChange) map[string]any {
		return map[string]any{"resource": c.Resource, "path": c.Path, "before": c.Before, "after": c.After}
	})
}

// diffText returns changes as lines that begin with - and +, under their resources.
func diffText(changes []tko.RolloutChange) string {
	var text strings.Builder
	resource := ""
	for _, c := range changes {
		if c.Resource != resource {
			resource = c.Resource
			fmt.Fprintf(&text, "@@ %s @@\n", resource)
		}
		path := ""
		if c.Path != "" {
			path = c.Path + ": "
		}
		if c.Before != "missing" {
			fmt.Fprintf(&text, "-%s%s\n", path, c.Before)
		}
		if c.After != "missing" {
			fmt.Fprintf(&text, "+%s%s\n", path, c.After)
		}
	}
	return text.String()
}

// groupText returns the changes of a group as diffText does, and how many more there are.
func groupText(changes []tko.RolloutChange, more int) string {
	text := diffText(changes)
	if more > 0 {
		text += "... and " + count(more, "more change", "more changes") + "\n"
	}
	return text
}

// printDifference prints the text of a difference, in colors on terminals.
func (a *app) printDifference(text string) error {
	colors := a.colors(a.streams.Out)
	for line := range strings.Lines(text) {
		line = printable.Text(strings.TrimSuffix(line, "\n"))
		if color := differenceColor(line); colors && color != "" {
			line = color + line + "\x1b[0m"
		}
		if _, err := fmt.Fprintln(a.out, line); err != nil {
			return err
		}
	}
	return nil
}

func differenceColor(line string) string {
	for _, one := range [][2]string{{"===", "\x1b[1m"}, {"@@", "\x1b[36m"}, {"-", "\x1b[31m"}, {"+", "\x1b[32m"}, {"!", "\x1b[31m"}, {"?", "\x1b[33m"}} {
		if strings.HasPrefix(line, one[0]) {
			return one[1]
		}
	}
	return ""
}

func (a *app) printLines(text string) error {
	for line := range strings.Lines(text) {
		if _, err := fmt.Fprintln(a.out, printable.Text(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

// planDiff prints the groups of a plan as differences.
func (a *app) planDiff(p tko.RolloutPlan) error {
	var text strings.Builder
	for _, g := range p.Groups {
		fmt.Fprintf(&text, "=== %s %s, such as %s\n", g.Kind, count(g.Count, "deployment", "deployments"), strings.Join(idTexts(g.Examples), ", "))
		text.WriteString(groupText(g.Changes, g.More))
	}
	return a.printDifference(text.String())
}

// printRowDiffs prints the differences of rows of a plan. It returns errChanges if there
// are any.
func (a *app) printRowDiffs(ctx context.Context, s *session, sel tko.RolloutRows) error {
	changes := false
	for row, err := range s.RolloutRows(ctx, sel) {
		if err != nil {
			return err
		}
		changes = changes || row.Wave >= 0
		var text strings.Builder
		fmt.Fprintf(&text, "=== %s %s", row.Kind, row.Deployment)
		if row.Site != "" {
			fmt.Fprintf(&text, " at %s", row.Site)
		}
		fmt.Fprintf(&text, "\n%s", diffText(row.Changes))
		for _, f := range row.Findings {
			fmt.Fprintf(&text, "! %s\n", f)
		}
		for _, u := range row.Unknown {
			fmt.Fprintf(&text, "? %s\n", u)
		}
		if err := a.printDifference(text.String()); err != nil {
			return err
		}
	}
	if changes {
		return errChanges
	}
	return nil
}
