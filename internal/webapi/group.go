package webapi

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// Prefixes of the names of what groups entities.
const (
	byMetadata     = "metadata."
	bySiteMetadata = "site-metadata."
)

// Limits of groups.
const (
	maxWithin      = 8       // groups that a request names
	maxJoinedSites = 200_000 // sites whose metadata groups deployments
)

// isGrouping reports whether entities of a kind can be grouped by a name: state, reason,
// template, site, metadata.KEY, and for deployments site-metadata.KEY.
func isGrouping(kind tko.Kind, name string) bool {
	if key, ok := strings.CutPrefix(name, bySiteMetadata); ok {
		return key != "" && kind == tko.KindDeployment
	}
	if key, ok := strings.CutPrefix(name, byMetadata); ok {
		return key != ""
	}
	return slices.Contains([]string{"state", "reason", "template", "site"}, name)
}

// groupings are the names that [isGrouping] knows, for messages.
func groupings(kind tko.Kind) string {
	if kind == tko.KindDeployment {
		return "state, reason, template, site, metadata.KEY or site-metadata.KEY"
	}
	return "state, reason, template, site or metadata.KEY"
}

// A keyOf returns the key of the group that an entity is in; "" without one.
type keyOf func(liveRow) string

// keysOf returns what reads the keys of groups of some names. For metadata of sites it lists
// the sites that have the key.
func (l *live) keysOf(ctx context.Context, names []string) ([]keyOf, error) {
	keys := make([]keyOf, len(names))
	for i, name := range names {
		switch {
		case name == "state":
			keys[i] = func(r liveRow) string { return string(r.summary.State) }
		case name == "reason":
			keys[i] = func(r liveRow) string { return r.summary.Reason }
		case name == "template":
			keys[i] = func(r liveRow) string { return r.template }
		case name == "site":
			keys[i] = func(r liveRow) string { return r.site }
		case strings.HasPrefix(name, bySiteMetadata):
			values, err := l.valuesOfSites(ctx, strings.TrimPrefix(name, bySiteMetadata))
			if err != nil {
				return nil, err
			}
			keys[i] = func(r liveRow) string { return values[r.site] }
		default:
			key := strings.TrimPrefix(name, byMetadata)
			keys[i] = func(r liveRow) string { return r.metadata[key] }
		}
	}
	return keys, nil
}

// valuesOfSites returns the values of a key of metadata by the IDs of sites. Sites that the
// caller may not see have none.
func (l *live) valuesOfSites(ctx context.Context, key string) (map[string]string, error) {
	values := map[string]string{}
	for s, err := range l.catalog.Sites(ctx, tko.SiteSelect{Metadata: map[string]string{key: "*"}}, tko.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		if len(values) == maxJoinedSites {
			return nil, tko.Errorf(tko.ErrInvalid, "more than %d sites have the metadata %.80q: group by template, state or site instead", maxJoinedSites, key)
		}
		if value, ok := s.Metadata[key]; ok {
			values[string(s.ID)] = value
		}
	}
	return values, nil
}

// A within is a group that entities must be in: one of those that a count by its name has.
type within struct{ name, value string }

// within reads the groups that entities must be in: &within=NAME=VALUE, with a name as in by,
// and an empty value for the group without one. It returns the query with those that the
// catalog can select by as filters, and the rest.
func (q *query) within(kind tko.Kind) (values url.Values, rest []within) {
	values = url.Values{}
	for name, list := range q.Values {
		values[name] = slices.Clone(list)
	}
	if len(q.Values["within"]) > maxWithin {
		q.wrong("there are %d parameters within: use at most %d", len(q.Values["within"]), maxWithin)
		return values, nil
	}
	for _, text := range q.Values["within"] {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !isGrouping(kind, name) {
			q.wrong("within=%.80q is unknown: use within=NAME=VALUE, with %s as NAME", text, groupings(kind))
			continue
		}
		if !addFilter(kind, values, name, value) {
			rest = append(rest, within{name, value})
		}
	}
	return values, rest
}

// addFilter adds the filter that selects the entities of a group, and reports whether there is
// one: none selects those without a value, or by their states.
func addFilter(kind tko.Kind, values url.Values, name, value string) bool {
	word, prefix := "", ""
	switch {
	case name == "template":
		word = "template-id"
	case name == "site":
		word = "site-id"
	case strings.HasPrefix(name, bySiteMetadata):
		word, prefix = "site-metadata", strings.TrimPrefix(name, bySiteMetadata)+"="
	case strings.HasPrefix(name, byMetadata):
		word, prefix = "metadata", strings.TrimPrefix(name, byMetadata)+"="
	}
	if value == "" || !slices.Contains(filter.Words(kind), word) {
		return false
	}
	if prefix != "" && slices.ContainsFunc(values[word], func(other string) bool { return strings.HasPrefix(other, prefix) }) {
		return false // a key has one filter
	}
	values.Add(word, prefix+tko.LiteralPattern(value))
	return true
}

// inGroups returns what reports whether an entity is in all of some groups.
func (l *live) inGroups(ctx context.Context, groups []within) (func(liveRow) bool, error) {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	keys, err := l.keysOf(ctx, names)
	if err != nil {
		return nil, err
	}
	return func(row liveRow) bool {
		for i, g := range groups {
			if keys[i](row) != g.value {
				return false
			}
		}
		return true
	}, nil
}
