package record

import (
	"slices"

	"github.com/tko-orchestrator/tko"
)

// Matches reports whether a record matches the query, except for the metadata of its
// template and site, and for Outdated.
func (q *Query) Matches(r Record) bool {
	match := func(patterns []tko.Pattern, text string) bool {
		return !slices.ContainsFunc(patterns, func(p tko.Pattern) bool { return !p.Match(text) })
	}
	named := func(patterns []tko.Pattern, id string) bool { // no pattern matches what isn't there
		return len(patterns) == 0 || id != "" && match(patterns, id)
	}
	if r.ID <= q.After || !match(q.IDs, r.ID) || !named(q.Templates, r.Template) || !named(q.Sites, r.Site) ||
		q.Parent != "" && q.Parent != r.Parent ||
		!q.Scope.Of(q.Kind).Match(AttributesOf(r)) || q.CRDs && !r.CRDs || q.Origin != "" && q.Origin != r.Origin {
		return false
	}
	if slices.ContainsFunc(q.Conditions, func(c tko.ConditionSelect) bool { return !c.Match(r.Conditions) }) {
		return false
	}
	for column, is := range q.Is {
		if of := FlagColumns[column]; of == nil || of(&r) != is {
			return false
		}
	}
	for column, since := range q.Since {
		if of := TimeColumns[column]; of == nil || of(&r).Before(since) {
			return false
		}
	}
	for key, pattern := range q.Labels {
		if value, ok := r.Labels()[key]; !ok || !pattern.Match(value) {
			return false
		}
	}
	for key, pattern := range q.Metadata {
		if value, ok := r.Effective()[key]; !ok || !pattern.Match(value) {
			return false
		}
	}
	return true
}
