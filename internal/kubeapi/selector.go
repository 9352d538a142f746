package kubeapi

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/kubename"
)

// A selector holds the conditions of a list or watch. The store evaluates
// query; rest holds the conditions that the store can't evaluate.
type selector struct {
	query record.Query
	all   []func(record.Record) bool // all conditions, for single records
	rest  []func(record.Record) bool
}

// A fieldSelector returns how to select by a field: ask adds the condition to a
// query (nil if the store can't evaluate it), and match evaluates it for one
// record.
type fieldSelector func(value string) (ask func(*record.Query), match func(record.Record) bool, err error)

// everything reports whether there are no conditions.
func (s *selector) everything() bool { return len(s.all) == 0 }

// matches reports whether a record fulfills all conditions.
func (s *selector) matches(r record.Record) bool { return matchesAll(s.all, r) }

// matchesRest reports whether a record of the query's result fulfills the other
// conditions.
func (s *selector) matchesRest(r record.Record) bool { return matchesAll(s.rest, r) }

func matchesAll(all []func(record.Record) bool, r record.Record) bool {
	return !slices.ContainsFunc(all, func(match func(record.Record) bool) bool { return !match(r) })
}

func (s *selector) add(ask func(*record.Query), match func(record.Record) bool) {
	s.all = append(s.all, match)
	if ask == nil {
		s.rest = append(s.rest, match)
		return
	}
	ask(&s.query)
}

// selector parses the selectors in options. Errors are tko.ErrInvalid.
func (k *kind) selector(options *metainternalversion.ListOptions) (*selector, error) {
	s := &selector{query: record.Query{Kind: k.kind, Limit: -1, Metadata: map[string]tko.Pattern{}, Labels: map[string]tko.Pattern{}}}
	if options == nil {
		return s, nil
	}
	if l := options.LabelSelector; l != nil && !l.Empty() {
		requirements, selectable := l.Requirements()
		if !selectable {
			s.add(nil, func(record.Record) bool { return false })
		}
		for _, r := range requirements {
			if err := k.label(s, r); err != nil {
				return nil, err
			}
		}
	}
	if f := options.FieldSelector; f != nil && !f.Empty() {
		for _, r := range f.Requirements() {
			if err := k.field(s, r); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// A labelTerm selects by one label: escaped metadata, or literal text.
type labelTerm struct {
	key     string
	pattern tko.Pattern
	label   bool // in Metadata.Labels instead of the metadata
}

func (t labelTerm) match(r record.Record) bool {
	value, ok := t.value(r)
	return ok && t.pattern.Match(value)
}

// value returns the text that the term is about.
func (t labelTerm) value(r record.Record) (text string, ok bool) {
	switch {
	case r.Metadata == nil:
	case t.label:
		text, ok = r.Metadata.Labels[t.key]
	default:
		text, ok = r.Metadata.Effective[t.key]
	}
	return text, ok
}

// labelTerm parses a label and value to select by. A valid escape is a pattern
// of metadata; any other text is literal.
func (k *kind) labelTerm(label, text string) (labelTerm, error) {
	key, value, escaped := kubename.Metadata(label, text)
	if escaped && k.kind != tko.KindPlugin {
		pattern, err := tko.ParseValuePattern(value)
		return labelTerm{key: key, pattern: pattern}, err
	}
	pattern, err := tko.ParseValuePattern(tko.LiteralPattern(text))
	return labelTerm{key: label, pattern: pattern, label: kubename.HasPrefix(label) || k.kind == tko.KindPlugin}, err
}

// existence returns terms that select the records with a label: one of them
// must match.
func (k *kind) existence(label string) ([]labelTerm, error) {
	anything, err := tko.ParseValuePattern("**")
	terms := []labelTerm{{key: label, pattern: anything, label: kubename.HasPrefix(label) || k.kind == tko.KindPlugin}}
	if key, err := kubename.Unescape(label); err == nil && key != label && k.kind != tko.KindPlugin {
		terms = append(terms, labelTerm{key: key, pattern: anything})
	}
	return terms, err
}

// label adds a requirement for a label.
func (k *kind) label(s *selector, r labels.Requirement) error {
	var terms []labelTerm
	var err error
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In, selection.NotEquals, selection.NotIn:
		for value := range r.Values() {
			term, err := k.labelTerm(r.Key(), value)
			if err != nil {
				return tko.Errorf(tko.ErrInvalid, "label selector, key %q: %w", r.Key(), err)
			}
			terms = append(terms, term)
		}
	default:
		if terms, err = k.existence(r.Key()); err != nil {
			return err
		}
	}
	one := func(r record.Record) bool {
		return slices.ContainsFunc(terms, func(t labelTerm) bool { return t.match(r) })
	}
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In, selection.Exists:
		s.add(s.askFor(terms), one)
	case selection.NotEquals, selection.NotIn, selection.DoesNotExist:
		s.add(nil, func(r record.Record) bool { return !one(r) })
	case selection.GreaterThan, selection.LessThan:
		bound, err := strconv.ParseInt(r.Values().List()[0], 10, 64)
		if err != nil {
			return tko.Errorf(tko.ErrInvalid, "label selector, key %q: %w", r.Key(), err)
		}
		s.add(nil, func(record record.Record) bool {
			return slices.ContainsFunc(terms, func(t labelTerm) bool {
				text, _ := t.value(record)
				n, err := strconv.ParseInt(text, 10, 64)
				return err == nil && (r.Operator() == selection.GreaterThan && n > bound || r.Operator() == selection.LessThan && n < bound)
			})
		})
	default:
		return tko.Errorf(tko.ErrInvalid, "label selector, key %q: the operator %q is unknown", r.Key(), r.Operator())
	}
	return nil
}

// askFor returns the query condition for a label, or nil if the store can't
// evaluate it: it can for one pattern of a key.
func (s *selector) askFor(terms []labelTerm) func(*record.Query) {
	if len(terms) != 1 {
		return nil
	}
	t := terms[0]
	asks := func(q *record.Query) map[string]tko.Pattern {
		if t.label {
			return q.Labels
		}
		return q.Metadata
	}
	if _, asked := asks(&s.query)[t.key]; asked {
		return nil
	}
	return func(q *record.Query) { asks(q)[t.key] = t.pattern }
}

// labelsField is the prefix of field selectors for labels whose escaped value
// Kubernetes doesn't allow in label selectors, because it begins or ends with
// an escape or is too long.
const labelsField = "metadata.labels."

// conditionsField is the prefix of field selectors for conditions: the type follows,
// and the value is a status, or a status, a colon and a reason.
const conditionsField = "status.conditions."

func byConditionField(typ, value string) (func(*record.Query), func(record.Record) bool, error) {
	c, err := tko.ParseConditionSelect(typ + "=" + value)
	return func(q *record.Query) { q.Conditions = append(q.Conditions, c) },
		func(r record.Record) bool { return c.Match(r.Conditions) }, err
}

// field adds a requirement for a field.
func (k *kind) field(s *selector, r fields.Requirement) error {
	name := r.Field
	by, ok := k.fields[name]
	switch {
	case name == "metadata.name":
		by = k.byName
	case strings.HasPrefix(name, labelsField):
		by = func(value string) (func(*record.Query), func(record.Record) bool, error) {
			return k.byLabel(s, strings.TrimPrefix(name, labelsField), value)
		}
	case strings.HasPrefix(name, conditionsField):
		by = func(value string) (func(*record.Query), func(record.Record) bool, error) {
			return byConditionField(strings.TrimPrefix(name, conditionsField), value)
		}
	case !ok:
		return unknownField(k, name)
	}
	ask, match, err := by(r.Value)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "field selector, %s: %w", name, err)
	}
	if r.Operator == selection.NotEquals {
		s.add(nil, func(r record.Record) bool { return !match(r) })
		return nil
	}
	s.add(ask, match)
	return nil
}

func unknownField(k *kind, name string) error {
	known := []string{"metadata.name", labelsField + "KEY", conditionsField + "TYPE"}
	for f := range k.fields {
		known = append(known, f)
	}
	slices.Sort(known)
	return tko.Errorf(tko.ErrInvalid, "%s can't be selected by the field %q: use %s", k.resource, name, strings.Join(known, ", "))
}

func (k *kind) byLabel(s *selector, label, value string) (func(*record.Query), func(record.Record) bool, error) {
	term, err := k.labelTerm(label, value)
	return s.askFor([]labelTerm{term}), term.match, err
}

// byName selects by a pattern of escaped names. A name that no record can have
// selects nothing.
func (k *kind) byName(value string) (func(*record.Query), func(record.Record) bool, error) {
	text, err := unescape(k.kind, value)
	if k.kind == tko.KindDeployment {
		return byDeploymentName(value, text, err == nil)
	}
	if err != nil {
		return nil, func(record.Record) bool { return false }, nil //nolint:nilerr // a name that no record can have is not an error
	}
	return byID(text)
}

// byDeploymentName selects by an ID or by a given name. escaped reports that
// value is also a pattern, whose unescaped form is text.
func byDeploymentName(value, text string, escaped bool) (func(*record.Query), func(record.Record) bool, error) {
	var pattern tko.Pattern
	if escaped {
		var err error
		if pattern, err = tko.ParsePattern(text); err != nil {
			return nil, nil, err
		}
	}
	match := func(r record.Record) bool {
		name := r.KubernetesName()
		if name == "" {
			return escaped && pattern.Match(r.ID)
		}
		return name == value || escaped && pattern.Match(name)
	}
	switch {
	case escaped && record.CheckKey(record.Key{Kind: tko.KindDeployment, ID: text}) == nil:
		return func(q *record.Query) { q.IDs = append(q.IDs, pattern) }, match, nil
	case !escaped || pattern.Exact():
		return func(q *record.Query) { q.Origin = record.NameOrigin(value) }, match, nil
	}
	return nil, match, nil // ID or name: the store can't evaluate that
}

func byPattern(value string, of func(record.Record) string, ask func(*record.Query, tko.Pattern)) (func(*record.Query), func(record.Record) bool, error) {
	pattern, err := tko.ParsePattern(value)
	if err != nil {
		return nil, nil, err
	}
	var asks func(*record.Query)
	if ask != nil {
		asks = func(q *record.Query) { ask(q, pattern) }
	}
	return asks, func(r record.Record) bool { return pattern.Match(of(r)) }, nil
}

func byID(value string) (func(*record.Query), func(record.Record) bool, error) {
	return byPattern(value, func(r record.Record) string { return r.ID }, func(q *record.Query, p tko.Pattern) { q.IDs = append(q.IDs, p) })
}

func byTemplate(value string) (func(*record.Query), func(record.Record) bool, error) {
	return byPattern(value, func(r record.Record) string { return r.Template }, func(q *record.Query, p tko.Pattern) { q.Templates = append(q.Templates, p) })
}

func bySite(value string) (func(*record.Query), func(record.Record) bool, error) {
	return byPattern(value, func(r record.Record) string { return r.Site }, func(q *record.Query, p tko.Pattern) { q.Sites = append(q.Sites, p) })
}

func byParent(value string) (func(*record.Query), func(record.Record) bool, error) {
	var ask func(*record.Query)
	if value != "" {
		ask = func(q *record.Query) { q.Parent = value }
	}
	return ask, func(r record.Record) bool { return r.Parent == value }, nil
}

func byPrepared(value string) (func(*record.Query), func(record.Record) bool, error) {
	want, err := strconv.ParseBool(value)
	return func(q *record.Query) { q.Is = merged(q.Is, "prepared", want) }, func(r record.Record) bool { return r.Prepared == want }, err
}

func byApproved(value string) (func(*record.Query), func(record.Record) bool, error) {
	want, err := strconv.ParseBool(value)
	return func(q *record.Query) { q.Is = merged(q.Is, "approved", want) }, func(r record.Record) bool { return r.Approved == want }, err
}

// merged returns what a query compares, with one more column.
func merged(is map[string]bool, column string, want bool) map[string]bool {
	all := map[string]bool{column: want}
	maps.Copy(all, is)
	return all
}

func byPluginType(value string) (func(*record.Query), func(record.Record) bool, error) {
	return byPattern(value, func(r record.Record) string { typ, _, _ := tko.SplitPluginID(r.ID); return typ }, nil)
}

func byPluginName(value string) (func(*record.Query), func(record.Record) bool, error) {
	return byPattern(value, func(r record.Record) string { _, name, _ := tko.SplitPluginID(r.ID); return name }, nil)
}

func byExecutor(value string) (func(*record.Query), func(record.Record) bool, error) {
	return nil, func(r record.Record) bool {
		p, err := r.AsPlugin()
		return err == nil && p.Executor == value
	}, nil
}
