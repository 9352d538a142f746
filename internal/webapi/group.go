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

// Prefixes of the names of what groups entities.
const (
	byMetadata     = "metadata."
	bySiteMetadata = "site-metadata."
)

// Limits of groups.
const (
	maxWithin      = 8       // groups that a request names
	maxJoinedSites = 200_000 // sites whose metadata groups all deployments
	sitesInBatch   = 100     // sites that one select names: the catalog takes as many patterns
	firstRows      = 100     // rows whose sites are read at first
	moreRows       = 1000    // and then
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
		case strings.HasPrefix(name, bySiteMetadata):
			values := sites[strings.TrimPrefix(name, bySiteMetadata)]
			keys[i] = func(r liveRow) string { return values[r.site] }
		default:
			key := strings.TrimPrefix(name, byMetadata)
			keys[i] = func(r liveRow) string { return r.metadata[key] }
		}
	}
	return keys
}

// A join has values of the metadata of sites: by key, and then by the ID of the site. Sites
// without the key, and those that the caller may not see, have none.
type join map[string]map[string]string

// joinOf returns the empty join for the names of what groups entities, and of groups.
func joinOf(names []string, groups []within) join {
	j := join{}
	for _, g := range groups {
		names = append(slices.Clip(names), g.name)
	}
	for _, name := range names {
		if key, ok := strings.CutPrefix(name, bySiteMetadata); ok {
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
func inGroups(groups []within, sites join) func(liveRow) bool {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	keys := keysOf(names, sites)
	return func(row liveRow) bool {
		for i, g := range groups {
			if keys[i](row) != g.value {
				return false
			}
		}
		return true
	}
}
