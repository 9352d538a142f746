package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// A column of a table.
type column[T any] struct {
	name string
	wide bool // only in the format wide
	text func(T) string
	age  func(T) time.Time // instead of text: shown as the time since then
}

// tableSample is the number of rows, the first ones, that determine the widths of
// columns, so that lists of any length can be streamed.
const tableSample = 200

// A tableRow is a row, and the lines below it.
type tableRow struct{ cells, below []string }

// A table writes rows in columns.
type table[T any] struct {
	app     *app
	columns []column[T]
	below   func(T) []string // lines below a row; may be nil

	sample []tableRow
	widths []int
	began  bool
}

// newTable returns a table of the columns that the output format has.
func newTable[T any](a *app, columns []column[T], below func(T) []string) *table[T] {
	if a.format() != formatWide {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide })
	}
	return &table[T]{app: a, columns: columns, below: below}
}

// printTable writes items as a table.
func printTable[T any](a *app, columns []column[T], items []T) error {
	t := newTable(a, columns, nil)
	for _, item := range items {
		if err := t.add(item); err != nil {
			return err
		}
	}
	return t.end()
}

func (t *table[T]) add(item T) error {
	row := tableRow{cells: make([]string, len(t.columns))}
	for i, c := range t.columns {
		var text string
		if c.age != nil {
			text = age(t.app.now(), c.age(item))
		} else {
			text = printable.Text(c.text(item))
		}
		row.cells[i] = cmp.Or(text, "-")
	}
	if t.below != nil {
		row.below = t.below(item)
	}
	if t.began {
		return t.writeRow(row)
	}
	t.sample = append(t.sample, row)
	if len(t.sample) == tableSample {
		return t.begin()
	}
	return nil
}

// begin writes the header and the sampled rows.
func (t *table[T]) begin() error {
	t.began = true
	header := make([]string, len(t.columns))
	for i, c := range t.columns {
		header[i] = c.name
	}
	t.widths = make([]int, len(header))
	for _, row := range append([]tableRow{{cells: header}}, t.sample...) {
		for i, text := range row.cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(text))
		}
	}
	if !t.app.globals.noHeaders {
		if err := t.write(header, true); err != nil {
			return err
		}
	}
	for _, row := range t.sample {
		if err := t.writeRow(row); err != nil {
			return err
		}
	}
	t.sample = nil
	return nil
}

func (t *table[T]) writeRow(row tableRow) error {
	if err := t.write(row.cells, false); err != nil {
		return err
	}
	for _, line := range row.below {
		if _, err := fmt.Fprintln(t.app.out, cut("    "+printable.Text(line), t.app.width())); err != nil {
			return err
		}
	}
	return nil
}

func (t *table[T]) write(row []string, header bool) error {
	var b strings.Builder
	for i, text := range row {
		b.WriteString(text)
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", max(0, t.widths[i]-utf8.RuneCountInString(text))+2))
		}
	}
	line := cut(b.String(), t.app.width())
	if header {
		line = t.app.paint(t.app.streams.Out, "\x1b[1m", line)
	}
	_, err := fmt.Fprintln(t.app.out, line)
	return err
}

func (t *table[T]) end() error {
	if t.began {
		return nil
	}
	if len(t.sample) == 0 {
		t.app.notice("nothing found")
		return nil
	}
	return t.begin()
}

// width returns the greatest width of tables; 0 for no limit.
func (a *app) width() int {
	switch {
	case a.globals.width > 0:
		return a.globals.width
	case a.globals.width == 0 && a.terminal:
		return a.columns
	default:
		return 0
	}
}

// cut shortens a line to a width.
func cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}

// age returns the rounded time since then; "" if then is zero.
func age(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	const day = 24 * time.Hour
	switch d := max(now.Sub(then), 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d < 2*365*day:
		return fmt.Sprintf("%dd", int(d/day))
	default:
		return fmt.Sprintf("%dy", int(d/(365*day)))
	}
}
