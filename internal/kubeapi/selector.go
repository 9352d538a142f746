package kubeapi

import (
	"slices"
	"strconv"
	"strings"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// A selector is what a list or watch asks for. The store answers its query;
// rest is what the store can't be asked.
type selector struct {
	query catalog.Query
	all   []func(catalog.Record) bool // everything, for single records
	rest  []func(catalog.Record) bool
}

// A fieldSelector is how a field is selected by: in the query if it can be
// (ask is nil if not), and of a single record.
type fieldSelector func(value string) (ask func(*catalog.Query), match func(catalog.Record) bool, err error)

// everything says that nothing is selected by.
func (s *selector) everything() bool { return len(s.all) == 0 }

// matches says whether a record is selected.
func (s *selector) matches(r catalog.Record) bool { return matchesAll(s.all, r) }

// keeps says whether a record that the query answered is selected.
func (s *selector) keeps(r catalog.Record) bool { return matchesAll(s.rest, r) }

func matchesAll(all []func(catalog.Record) bool, r catalog.Record) bool {
	return !slices.ContainsFunc(all, func(match func(catalog.Record) bool) bool { return !match(r) })
}

func (s *selector) add(ask func(*catalog.Query), match func(catalog.Record) bool) {
	s.all = append(s.all, match)
	if ask == nil {
		s.rest = append(s.rest, match)
		return
	}
	ask(&s.query)
}

// selector reads what options select. Errors are tko.ErrInvalid.
func (k *kind) selector(options *metainternalversion.ListOptions) (*selector, error) {
	s := &selector{query: catalog.Query{Kind: k.kind, Limit: -1, Metadata: map[string]tko.Pattern{}}}
	if options == nil {
		return s, nil
	}
	if l := options.LabelSelector; l != nil && !l.Empty() {
		requirements, selectable := l.Requirements()
		if !selectable {
			s.add(nil, func(catalog.Record) bool { return false })
		}
		for _, r := range requirements {
			if err := s.label(r); err != nil {
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

// label selects by a label: by metadata.
func (s *selector) label(r labels.Requirement) error {
	key, err := tko.FromKubeName(r.Key())
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "label selector: %w", err)
	}
	var patterns []tko.Pattern
	for value := range r.Values() {
		text, err := unescape(value)
		if err != nil {
			return tko.Errorf(tko.ErrInvalid, "label selector, key %q: %w", r.Key(), err)
		}
		pattern, err := tko.ParseValuePattern(text)
		if err != nil {
			return tko.Errorf(tko.ErrInvalid, "label selector, key %q: %w", r.Key(), err)
		}
		patterns = append(patterns, pattern)
	}
	one := func(r catalog.Record) bool {
		value, ok := metadata(r)[key]
		return ok && slices.ContainsFunc(patterns, func(p tko.Pattern) bool { return p.Match(value) })
	}
	exists := func(r catalog.Record) bool { _, ok := metadata(r)[key]; return ok }
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		s.add(s.askFor(key, patterns), one)
	case selection.NotEquals, selection.NotIn:
		s.add(nil, func(r catalog.Record) bool { return !one(r) })
	case selection.Exists:
		anything, err := tko.ParseValuePattern("**")
		if err != nil {
			return err
		}
		s.add(s.askFor(key, []tko.Pattern{anything}), exists)
	case selection.DoesNotExist:
		s.add(nil, func(r catalog.Record) bool { return !exists(r) })
	case selection.GreaterThan, selection.LessThan:
		bound, err := strconv.ParseInt(r.Values().List()[0], 10, 64)
		if err != nil {
			return tko.Errorf(tko.ErrInvalid, "label selector, key %q: %w", r.Key(), err)
		}
		s.add(nil, func(record catalog.Record) bool {
			n, err := strconv.ParseInt(metadata(record)[key], 10, 64)
			return err == nil && (r.Operator() == selection.GreaterThan && n > bound || r.Operator() == selection.LessThan && n < bound)
		})
	default:
		return tko.Errorf(tko.ErrInvalid, "label selector, key %q: the operator %q is unknown", r.Key(), r.Operator())
	}
	return nil
}

// askFor asks the store for a metadata entry, if it can be asked: for one
// pattern of a key.
func (s *selector) askFor(key string, patterns []tko.Pattern) func(*catalog.Query) {
	if _, asked := s.query.Metadata[key]; asked || len(patterns) != 1 {
		return nil
	}
	return func(q *catalog.Query) { q.Metadata[key] = patterns[0] }
}

func metadata(r catalog.Record) map[string]string {
	if r.Metadata == nil {
		return nil
	}
	return r.Metadata.Effective
}

// labelsField selects by a label whose escaped value Kubernetes doesn't take in
// label selectors, because it begins or ends with an escape or is too long.
const labelsField = "metadata.labels."

// field selects by a field.
func (k *kind) field(s *selector, r fields.Requirement) error {
	name := r.Field
	by, ok := k.fields[name]
	switch {
	case name == "metadata.name":
		by = byName
	case strings.HasPrefix(name, labelsField):
		by = func(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
			return s.byLabel(strings.TrimPrefix(name, labelsField), value)
		}
	case !ok:
		return unknownField(k, name)
	}
	ask, match, err := by(r.Value)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "field selector, %s: %w", name, err)
	}
	if r.Operator == selection.NotEquals {
		s.add(nil, func(r catalog.Record) bool { return !match(r) })
		return nil
	}
	s.add(ask, match)
	return nil
}

func unknownField(k *kind, name string) error {
	known := []string{"metadata.name", labelsField + "KEY"}
	for f := range k.fields {
		known = append(known, f)
	}
	slices.Sort(known)
	return tko.Errorf(tko.ErrInvalid, "%s can't be selected by the field %q: use %s", k.resource, name, strings.Join(known, ", "))
}

func (s *selector) byLabel(key, value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	key, err := tko.FromKubeName(key)
	if err != nil {
		return nil, nil, err
	}
	text, err := unescape(value)
	if err != nil {
		return nil, nil, err
	}
	pattern, err := tko.ParseValuePattern(text)
	return s.askFor(key, []tko.Pattern{pattern}), func(r catalog.Record) bool {
		value, ok := metadata(r)[key]
		return ok && pattern.Match(value)
	}, err
}

// byName takes the pattern as names are written: escaped.
func byName(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	text, err := tko.FromKubeName(value)
	if err != nil {
		return nil, nil, err
	}
	return byID(text)
}

func byPattern(value string, of func(catalog.Record) string, ask func(*catalog.Query, tko.Pattern)) (func(*catalog.Query), func(catalog.Record) bool, error) {
	pattern, err := tko.ParsePattern(value)
	if err != nil {
		return nil, nil, err
	}
	var asks func(*catalog.Query)
	if ask != nil {
		asks = func(q *catalog.Query) { ask(q, pattern) }
	}
	return asks, func(r catalog.Record) bool { return pattern.Match(of(r)) }, nil
}

func byID(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	return byPattern(value, func(r catalog.Record) string { return r.ID }, func(q *catalog.Query, p tko.Pattern) { q.IDs = append(q.IDs, p) })
}

func byTemplate(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	return byPattern(value, func(r catalog.Record) string { return r.Template }, func(q *catalog.Query, p tko.Pattern) { q.Templates = append(q.Templates, p) })
}

func bySite(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	return byPattern(value, func(r catalog.Record) string { return r.Site }, func(q *catalog.Query, p tko.Pattern) { q.Sites = append(q.Sites, p) })
}

func byParent(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	var ask func(*catalog.Query)
	if value != "" {
		ask = func(q *catalog.Query) { q.Parent = value }
	}
	return ask, func(r catalog.Record) bool { return r.Parent == value }, nil
}

func byPrepared(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	want, err := strconv.ParseBool(value)
	return func(q *catalog.Query) { q.Prepared = &want }, func(r catalog.Record) bool { return r.Prepared == want }, err
}

func byApproved(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	want, err := strconv.ParseBool(value)
	return func(q *catalog.Query) { q.Approved = &want }, func(r catalog.Record) bool { return r.Approved == want }, err
}

func byPluginType(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	return byPattern(value, func(r catalog.Record) string { typ, _, _ := tko.SplitPluginID(r.ID); return typ }, nil)
}

func byPluginName(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	return byPattern(value, func(r catalog.Record) string { _, name, _ := tko.SplitPluginID(r.ID); return name }, nil)
}

func byExecutor(value string) (func(*catalog.Query), func(catalog.Record) bool, error) {
	return nil, func(r catalog.Record) bool {
		p, err := r.AsPlugin()
		return err == nil && p.Executor == value
	}, nil
}
