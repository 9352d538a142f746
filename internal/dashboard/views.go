package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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
		if saved := savedBy(v); saved != "" {
			text += fmt.Sprintf(" (%s)", saved)
		}
		one := line{text: printable.Text(text), style: strong}
		kind, filters, ok := filter.ListPage(v.Path, v.Query)
		switch {
		case v.Problem != "":
			lines = append(lines, one)
			lines = append(lines, textLines("  ", v.Problem, failing)...)
			continue
		case !ok || filters.Has("within"): // its lists have no such groups
			ok = false
			one.text += " (" + printable.Text(v.Address()) + ", only in the web dashboard)"
			one.style = faint
		default:
			one.kind, one.filter, one.whole, one.keys = kind, filter.Line(kind, filters), true, filter.Columns(v.Query)
		}
		lines = append(lines, one)
		if !ok {
			continue
		}
		shows := fmt.Sprintf("%ss %s", kind, one.filter)
		if moment := filter.Moment(v.Query); moment != "" {
			shows += fmt.Sprintf(" (now; as of %s in the web dashboard, or with tko %s list --as-of)", moment, kind)
		}
		lines = append(lines, line{text: "  " + printable.Text(shows), style: faint})
	}
	return lines, nil
}

// savedBy returns who saved a view, or what declares it, and when.
func savedBy(v tko.View) string {
	saved := v.By.Who
	if v.Parent != "" {
		saved = "source " + v.Parent
	}
	if !v.Updated.IsZero() {
		saved = strings.TrimPrefix(saved+", "+v.Updated.UTC().Format(time.DateTime), ", ")
	}
	return saved
}
