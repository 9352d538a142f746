package webapi

import (
	"context"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// Limits of groups.
const (
	maxJoinedSites = 200_000 // sites whose metadata groups all deployments
	sitesInBatch   = 100     // sites that one select names: the catalog takes as many patterns
	firstRows      = 100     // rows whose sites are read at first
	moreRows       = 1000    // and then
)

// A keyOf returns the key of the group that an entity is in; "" without one.
type keyOf func(liveRow) string

// keysOf returns what reads the keys of groups of some names. Those of metadata of sites are
// read from the join, which must have the values of the sites of the rows by then.
func keysOf(names []string, sites join) []keyOf {
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
		case strings.HasPrefix(name, filter.BySiteMetadata):
			values := sites[strings.TrimPrefix(name, filter.BySiteMetadata)]
			keys[i] = func(r liveRow) string { return values[r.site] }
		default:
			key := strings.TrimPrefix(name, filter.ByMetadata)
			keys[i] = func(r liveRow) string { return r.metadata[key] }
		}
	}
	return keys
}

// A join has values of the metadata of sites: by key, and then by the ID of the site. Sites
// without the key, and those that the caller may not see, have none.
type join map[string]map[string]string

// joinOf returns the empty join for the names of what groups entities, and of groups.
func joinOf(names []string, groups []filter.Group) join {
	j := join{}
	for _, g := range groups {
		names = append(slices.Clip(names), g.Name)
	}
	for _, name := range names {
		if key, ok := strings.CutPrefix(name, filter.BySiteMetadata); ok {
			j[key] = map[string]string{}
		}
	}
	return j
}

// joinAll reads the values of all sites that have the keys of a join: for counts of the whole
// fleet.
func (l *live) joinAll(ctx context.Context, j join) error {
	for key, values := range j {
		for s, err := range l.catalog.Sites(ctx, tko.SiteSelect{Metadata: map[string]string{key: "*"}}, tko.ListOptions{}) {
			if err != nil {
				return err
			}
			if len(values) == maxJoinedSites {
				return tko.Errorf(tko.ErrInvalid, "more than %d sites have the metadata %.80q: group by template, state or site instead", maxJoinedSites, key)
			}
			if value, ok := s.Metadata[key]; ok {
				values[string(s.ID)] = value
			}
		}
	}
	return nil
}

// rows lists what a filter selects after an ID, and reads the values of their sites for a join:
// those of the rows only, so that a page costs the same whatever the number of sites. A list
// holds a connection of the store until its end, so rows are read first and their sites then:
// requests that wait for a second connection with the first in their hands would wait for each
// other.
func (l *live) rows(ctx context.Context, f filter.Filter, j join, window tko.Window) iter.Seq2[liveRow, error] {
	if len(j) == 0 {
		return liveRows.List(ctx, l.catalog, f, tko.ListOptions{Window: window})
	}
	return func(yield func(liveRow, error) bool) {
		known := map[string]bool{"": true} // deployments without a site
		after, left := window.After, *window.Max
		for size := firstRows; left > 0; size = moreRows {
			size = min(size, left)
			part := make([]liveRow, 0, size)
			for row, err := range liveRows.List(ctx, l.catalog, f, tko.ListOptions{Window: tko.Window{After: after, Max: &size}}) {
				if err != nil {
					yield(liveRow{}, err)
					return
				}
				part = append(part, row)
			}
			if err := l.joinSites(ctx, j, known, part); err != nil {
				yield(liveRow{}, err)
				return
			}
			for _, row := range part {
				if !yield(row, nil) {
					return
				}
			}
			if len(part) < size {
				return
			}
			after, left = part[len(part)-1].id, left-len(part)
		}
	}
}

// joinSites adds the values of the sites of some rows that are not known yet.
func (l *live) joinSites(ctx context.Context, j join, known map[string]bool, rows []liveRow) error {
	var patterns []string
	for _, row := range rows {
		if !known[row.site] {
			known[row.site] = true
			patterns = append(patterns, tko.LiteralPattern(row.site))
		}
	}
	for batch := range slices.Chunk(patterns, sitesInBatch) {
		for s, err := range l.catalog.Sites(ctx, tko.SiteSelect{IDs: batch}, tko.ListOptions{}) {
			if err != nil {
				return err
			}
			for key, values := range j {
				if value, ok := s.Metadata[key]; ok {
					values[string(s.ID)] = value
				}
			}
		}
	}
	return nil
}

// within reads the groups that entities must be in: &within=NAME=VALUE, with a name as in by,
// and an empty value for the group without one. It returns the query with those that the
// catalog can select by as filters, and the rest.
func (q *query) within(kind tko.Kind) (values url.Values, rest []filter.Group) {
	values = url.Values{}
	for name, list := range q.Values {
		values[name] = slices.Clone(list)
	}
	groups, err := filter.Groups(kind, q.Values["within"])
	q.check(err)
	for _, g := range groups {
		if !addFilter(kind, values, g.Name, g.Value) {
			rest = append(rest, g)
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
	case strings.HasPrefix(name, filter.BySiteMetadata):
		word, prefix = "site-metadata", strings.TrimPrefix(name, filter.BySiteMetadata)+"="
	case strings.HasPrefix(name, filter.ByMetadata):
		word, prefix = "metadata", strings.TrimPrefix(name, filter.ByMetadata)+"="
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
func inGroups(groups []filter.Group, sites join) func(liveRow) bool {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.Name
	}
	keys := keysOf(names, sites)
	return func(row liveRow) bool {
		for i, g := range groups {
			if keys[i](row) != g.Value {
				return false
			}
		}
		return true
	}
}
