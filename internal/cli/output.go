package cli

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/field"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// format returns the output format: that of the flag, or the default for the kind
// of output.
func (a *app) format() string {
	switch {
	case a.globals.format != "":
		return a.globals.format
	case a.terminal:
		return formatTable
	default:
		return formatYAML
	}
}

func (a *app) encoder(format string) encoder {
	return encoder{format: format, pretty: a.globals.pretty, strict: a.globals.strict, expression: a.globals.expression}
}

// isForPeople reports whether a format is for people.
func isForPeople(format string) bool {
	return format == formatTable || format == formatWide || format == formatBare
}

// show writes a text in the formats for people, and a value in the others.
func (a *app) show(text string, value any) error {
	if f := a.format(); !isForPeople(f) {
		return a.encoder(f).value(a.out, value)
	}
	return a.printLines(text)
}

// printScalar writes a text: plain in the formats for users, otherwise encoded.
func (a *app) printScalar(text string) error {
	switch f := a.format(); f {
	case formatTable, formatWide, formatBare, formatYAML:
		_, err := fmt.Fprintln(a.out, text)
		return err
	default:
		return a.encoder(f).value(a.out, text)
	}
}

// A fact is a named value.
type fact struct {
	key   string // for scripts; "group.key" is within a group
	name  string // for people
	text  string
	value any
}

// textFact returns a fact that is a text.
func textFact(key, name, text string) fact { return fact{key, name, text, text} }

// printFacts writes facts: as lines in the formats for users, otherwise as a map.
func (a *app) printFacts(facts []fact) error {
	f := a.format()
	if isForPeople(f) {
		width := 0
		for _, fact := range facts {
			width = max(width, len(fact.name))
		}
		for _, fact := range facts {
			if _, err := fmt.Fprintf(a.out, "%-*s  %s\n", width+1, fact.name+":", printable.Text(fact.text)); err != nil {
				return err
			}
		}
		return nil
	}
	m := map[string]any{}
	for _, fact := range facts {
		if group, key, ok := strings.Cut(fact.key, "."); ok {
			within, _ := m[group].(map[string]any)
			if within == nil {
				within = map[string]any{}
				m[group] = within
			}
			within[key] = fact.value
			continue
		}
		m[fact.key] = fact.value
	}
	return a.encoder(f).value(a.out, m)
}

// printResult writes the result of a command, if a format for scripts is set.
func (a *app) printResult(values map[string]any) error {
	if f := a.globals.format; f != "" && !isForPeople(f) {
		return a.encoder(f).value(a.out, values)
	}
	return nil
}

// printPackage writes a package: as manifests, or as a list of resources.
func (a *app) printPackage(pkg krm.Package) error {
	f := a.globals.format
	switch f {
	case formatTable, formatWide:
		return printTable(a, resourceColumns, pkg)
	case "", formatBare, formatYAML:
		if a.globals.strict {
			for i, r := range pkg {
				if i > 0 {
					fmt.Fprintln(a.out, "---")
				}
				if err := a.encoder(formatYAML).value(a.out, plainResource(r)); err != nil {
					return err
				}
			}
			return nil
		}
		text, err := krm.Encode(krm.YAML, pkg)
		if err != nil {
			return err
		}
		_, err = a.out.Write(text)
		return err
	}
	if e := a.globals.expression; e != nil {
		return e.list(a, values(pkg, plainResource))
	}
	list := &listEncoder{encoder: a.encoder(f), w: a.out}
	for _, r := range pkg {
		if err := list.add(plainResource(r)); err != nil {
			return err
		}
	}
	return list.end()
}

var resourceColumns = []column[krm.Resource]{
	{name: "APIVERSION", text: func(r krm.Resource) string { return r.GVK().APIVersion() }},
	{name: "KIND", text: func(r krm.Resource) string { return r.GVK().Kind }},
	{name: "NAME", text: krm.Resource.Name},
	{name: "PREPARED", text: func(r krm.Resource) string { return r.Annotation(krm.AnnotationPrepared) }},
	{name: "PREPARE", wide: true, text: func(r krm.Resource) string { return r.Annotation(krm.AnnotationPrepare) }},
}

// A view defines how entities of a kind are listed.
type view[T any] struct {
	columns []column[T]
	id      func(T) string
	row     func(T) map[string]any
	below   func(T) []string // lines below a row of a table; may be nil
}

// list streams entities, on a terminal through a pager. If the window cuts the
// list, it prints a notice. The window may be nil.
func list[T any](ctx context.Context, s *session, v view[T], w *windowFlag, ask func(ctx context.Context) iter.Seq2[T, error]) error {
	if s.app.globals.sortSteps != nil && w != nil && (w.max >= 0 || w.offset > 0) {
		return tko.Errorf(errUsage, "--sort-by sorts whole lists: leave --max-count and --offset out, and cut the output instead")
	}
	cut := false
	if w != nil && w.max >= 0 {
		whole := ask
		ask = func(ctx context.Context) iter.Seq2[T, error] {
			return func(yield func(T, error) bool) {
				left := w.max
				for item, err := range whole(ctx) {
					cut = err == nil && left == 0
					if cut || !yield(item, err) {
						return
					}
					left--
				}
			}
		}
	}
	pages, err := s.app.startPager(ctx)
	if err != nil {
		return err
	}
	if err := pages.end(listed(ctx, s, v, ask)); err != nil {
		return err
	}
	if cut {
		s.app.notice("this list is cut after %s: continue with --offset=%d, or leave --max-count out for all",
			count(w.max, "row", "rows"), int(w.offset)+w.max)
	}
	return nil
}

// listItems lists items that were read before.
func listItems[T any](ctx context.Context, s *session, v view[T], items []T) error {
	return list(ctx, s, v, nil, sequence(items))
}

// sequence returns the stream of items that were read before.
func sequence[T any](items []T) func(context.Context) iter.Seq2[T, error] {
	return func(context.Context) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

func listed[T any](ctx context.Context, s *session, v view[T], ask func(ctx context.Context) iter.Seq2[T, error]) error {
	a := s.app
	if steps := a.globals.sortSteps; steps != nil {
		var items []T
		err := each(ctx, s, ask, func(item T) error {
			items = append(items, item)
			if len(items) > maxSorted {
				return tko.Errorf(errUsage, "%w", errTooManyToSort)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(items) > 0 && !slices.ContainsFunc(items, func(item T) bool { return len(valuesAt(v.row(item), steps)) > 0 }) {
			a.notice("no row has the field %s of --sort-by: the rows are in the order of their IDs", a.globals.sortBy)
		}
		items = sorted(steps, items, v.row)
		ask = sequence(items)
	}
	if e := a.globals.expression; e != nil {
		items := []any{}
		err := each(ctx, s, ask, func(item T) error {
			items = append(items, v.row(item))
			return nil
		})
		if err != nil {
			return err
		}
		return e.list(a, items)
	}
	switch f := a.format(); f {
	case formatTable, formatWide:
		t := newTable(a, v.columns, v.below)
		if err := each(ctx, s, ask, t.add); err != nil {
			return err
		}
		return t.end()
	case formatBare:
		return each(ctx, s, ask, func(item T) error {
			_, err := fmt.Fprintln(a.out, v.id(item))
			return err
		})
	default:
		l := &listEncoder{encoder: a.encoder(f), w: a.out}
		if err := each(ctx, s, ask, func(item T) error { return l.add(v.row(item)) }); err != nil {
			return err
		}
		return l.end()
	}
}

// entityRow returns an entity for programs. Those that can be suspended have their metadata.
func entityRow(entity any, metadata map[string]string, stamp tko.Stamp) map[string]any {
	row := field.Row(entity)
	if tko.Suspended(metadata) {
		row["suspended"] = true
	}
	stampRow(row, stamp)
	return row
}

// stampRow adds the fields of all entities to a row.
func stampRow(row map[string]any, s tko.Stamp) {
	setText(row, "created", momentText(s.Created))
	setText(row, "updated", momentText(s.Updated))
	if s.Revision != 0 {
		row["revision"] = s.Revision
	}
	setText(row, "who", s.Who)
	setText(row, "why", s.Why)
	if len(s.Conditions) == 0 {
		return
	}
	row["conditions"] = conditionRows(s.Conditions)
}

// conditionRows returns conditions as rows for programs.
func conditionRows(conditions []tko.Condition) []any {
	return values(conditions, func(c tko.Condition) map[string]any {
		value := map[string]any{
			"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
			"observedRevision": c.ObservedRevision, "lastTransitionTime": c.LastTransition.UTC().Format(time.RFC3339Nano),
		}
		addAttempt(value, c)
		return value
	})
}

// addAttempt adds the attempt and the next try of a condition to its value for
// programs, if it has them.
func addAttempt(value map[string]any, c tko.Condition) {
	if c.Attempt > 0 {
		value["attempt"] = int64(c.Attempt)
	}
	setText(value, "nextTry", momentText(c.NextTry))
}

// momentText returns a time for programs; "" if it is zero.
func momentText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func metadataValue(m map[string]string) map[string]any {
	values := make(map[string]any, len(m))
	for k, v := range m {
		values[k] = v
	}
	return values
}

// setText sets a text that isn't empty.
func setText(row map[string]any, key, text string) {
	if text != "" {
		row[key] = text
	}
}

// values returns the value of each entry of a list.
func values[T, V any](list []T, value func(T) V) []any {
	all := make([]any, len(list))
	for i, entry := range list {
		all[i] = value(entry)
	}
	return all
}

func listValue[S ~string](items []S) []any {
	return values(items, func(item S) string { return string(item) })
}

func metadataText(m map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ",")
}

// conditionsText returns the types of conditions, with reason and message of those
// that aren't true.
func conditionsText(conditions []tko.Condition) string {
	const most = 300
	var parts []string
	for _, c := range conditions {
		text := c.Type + "=" + c.Status
		switch {
		case c.Status == tko.ConditionFalse && c.Message != "":
			text += "(" + cut(strings.TrimPrefix(c.Reason+": "+c.Text(), ": "), most) + ")"
		case c.Reason != "":
			text += "(" + c.Reason + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}

// status returns the status of a condition, with the reason if it isn't true.
func status(conditions []tko.Condition, typ string) string {
	if c := tko.FindCondition(conditions, typ); c != nil && c.Status != tko.ConditionTrue && c.Reason != "" {
		return c.Status + " (" + c.Reason + ")"
	}
	return tko.ConditionIs(conditions, typ)
}
