package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// A Unit is the unit of a row's value.
type Unit string

// The units of rows.
const (
	PerSecond Unit = "/s"    // more is better
	Seconds   Unit = "s"     // less is better
	Bytes     Unit = "B"     // less is better
	Percent   Unit = "%"     // less is better
	Frequency Unit = "per s" // less is better
	Count     Unit = "count" // less is better
)

// A Row is one line of the result.
type Row struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  Unit    `json:"unit"`
	// Aim is the value to reach, or to stay under where less is better; 0 if there
	// is none.
	Aim  float64 `json:"aim,omitempty"`
	Note string  `json:"note,omitempty"` // further facts
	// Missing is the reason why there is no value.
	Missing string `json:"missing,omitempty"`
}

func (u Unit) less() bool { return u != PerSecond }

// Met reports whether the row reached its aim, if it has one.
func (r Row) Met() bool {
	switch {
	case r.Missing != "":
		return false
	case r.Aim == 0:
		return true
	case r.Unit.less():
		return r.Value < r.Aim
	default:
		return r.Value >= r.Aim
	}
}

// worse returns how many times worse a row is than another: 1 if it is as good, or if
// one has no value.
func (r Row) worse(than Row) float64 {
	if r.Missing != "" || than.Missing != "" || r.Value <= 0 || than.Value <= 0 {
		return 1
	}
	if r.Unit.less() {
		return r.Value / than.Value
	}
	return than.Value / r.Value
}

func (r Row) value() string {
	if r.Missing != "" {
		return "not measured"
	}
	return r.Unit.format(r.Value)
}

func (u Unit) format(v float64) string {
	switch u {
	case PerSecond:
		if v < 10 {
			return fmt.Sprintf("%.2f/s", v)
		}
		return fmt.Sprintf("%.0f/s", v)
	case Seconds:
		return short(time.Duration(v * float64(time.Second)))
	case Percent:
		return fmt.Sprintf("%.2f %%", v)
	case Frequency:
		return fmt.Sprintf("%.2f/s", v)
	case Count:
		return fmt.Sprintf("%.0f", v)
	case Bytes:
		if v < 0 {
			return "-" + u.format(-v)
		}
		if v < 10_000 {
			return fmt.Sprintf("%.0f B", v)
		}
		return fmt.Sprintf("%.1f MB", v/1e6)
	default:
		return fmt.Sprint(v)
	}
}

func (r Row) aim() string {
	if r.Aim == 0 {
		return ""
	}
	if r.Unit.less() {
		return "under " + r.Unit.format(r.Aim)
	}
	return r.Unit.format(r.Aim)
}

// A Table is the result for one server.
type Table struct {
	Backend string `json:"backend"`
	Rows    []Row  `json:"rows"`
}

// Row returns the row with a name.
func (t Table) Row(what string) (Row, bool) {
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.What == what })
	if i < 0 {
		return Row{What: what, Missing: "not selected"}, false
	}
	return t.Rows[i], true
}

// markedSlower is the factor above which a row is marked as slower than the first
// table's.
const markedSlower = 3

// Markdown writes tables next to each other, in the order of the first table's rows;
// rows of later tables only come last. Values that miss their aim are bold, and rows
// that are more than markedSlower times worse than the first table's are marked.
func Markdown(w io.Writer, tables []Table) error {
	var b strings.Builder
	b.WriteString("| what | aim |")
	for _, t := range tables {
		b.WriteString(" " + cell(t.Backend) + " | |")
	}
	b.WriteString("\n|---|---:|" + strings.Repeat("---:|---|", len(tables)) + "\n")
	var names []string
	for _, t := range tables {
		for _, r := range t.Rows {
			if !slices.Contains(names, r.What) {
				names = append(names, r.What)
			}
		}
	}
	for _, name := range names {
		writeRow(&b, name, tables)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRow writes the row with a name, of all tables.
func writeRow(b *strings.Builder, name string, tables []Table) {
	aim := ""
	for _, t := range tables {
		if row, ok := t.Row(name); ok && aim == "" {
			aim = row.aim()
		}
	}
	b.WriteString("| " + cell(name) + " | " + aim + " |")
	first, _ := tables[0].Row(name)
	for i, t := range tables {
		row, ok := t.Row(name)
		if !ok {
			b.WriteString(" | |")
			continue
		}
		value, notes := row.value(), row.Note
		if row.Missing != "" {
			notes = row.Missing
		} else if !row.Met() {
			value = "**" + value + "**"
		}
		if worse := row.worse(first); i > 0 && worse > markedSlower {
			notes = strings.TrimSuffix(fmt.Sprintf("**%.1fx slower**; %s", worse, notes), "; ")
		}
		b.WriteString(" " + value + " | " + cell(notes) + " |")
	}
	b.WriteString("\n")
}

// cell escapes a text for a cell.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
}

// JSON writes the tables and raw PostgreSQL's rates as JSON.
func JSON(w io.Writer, raw RawRates, tables []Table) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Raw    RawRates `json:"raw"`
		Tables []Table  `json:"tables"`
	}{raw, tables})
}

// quantile returns the least of the values that is not less than the given percentage of
// them; 0 if there are none.
func quantile(took []time.Duration, percent float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	rank := int(math.Ceil(float64(len(sorted)) * percent / 100))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(100 * time.Millisecond).String()
	}
}
