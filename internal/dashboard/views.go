package dashboard

import (
	"context"
	"errors"
	"fmt"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// kindView is the kind of the detail that has the saved views, which are no entities.
const kindView tko.Kind = "view"

// readViews returns the saved views. Those of lists open here; what only the web dashboard has
// says so.
func readViews(ctx context.Context, s Getter) ([]line, error) {
	all, err := s.Views(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return []line{{text: "This server is of an earlier version, and keeps no views.", style: faint}}, nil
	}
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return []line{{text: "No view is saved yet: save one with tko view save NAME ADDRESS, or in the web dashboard.", style: faint}}, nil
	}
	var lines []line
	for _, v := range all {
		text := v.Name
		if v.Description != "" {
			text += ": " + v.Description
		}
		if v.By.Who != "" {
			text += fmt.Sprintf(" (%s)", v.By.Who)
		}
		one := line{text: printable.Text(text), style: strong}
		kind, filters, ok := filter.ListPage(v.Path, v.Query)
		switch {
		case v.Problem != "":
			lines = append(lines, one)
			lines = append(lines, textLines("  ", v.Problem, failing)...)
			continue
		case !ok:
			one.text += " (" + printable.Text(v.Address()) + ", only in the web dashboard)"
			one.style = faint
		default:
			one.kind, one.filter, one.whole = kind, filter.Line(kind, filters), true
		}
		lines = append(lines, one)
		if ok {
			lines = append(lines, line{text: "  " + printable.Text(fmt.Sprintf("%ss %s", kind, one.filter)), style: faint})
		}
	}
	return append(lines, line{}, line{text: "Lists show the present: the moment and the columns of a view are of the web dashboard.", style: faint}), nil
}
