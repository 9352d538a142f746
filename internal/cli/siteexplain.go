package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A sitePart is a part of a site: its template, or a key of its metadata.
type sitePart struct {
	name, value string
	from        string    // where the value comes from
	set         tko.Stamp // of the oldest revision that has had the value since
}

var sitePartView = view[sitePart]{
	id: func(p sitePart) string { return p.name },
	row: func(p sitePart) map[string]any {
		row := map[string]any{"part": p.name, "value": p.value, "from": p.from, "revision": p.set.Revision, "by": p.set.Who}
		if !p.set.Updated.IsZero() {
			row["since"] = p.set.Updated
		}
		return row
	},
	columns: []column[sitePart]{
		{name: "PART", text: func(p sitePart) string { return p.name }},
		{name: "VALUE", text: func(p sitePart) string { return p.value }},
		{name: "FROM", text: func(p sitePart) string { return p.from }},
		{name: "BY", text: func(p sitePart) string { return p.set.Who }},
		{name: "REVISION", wide: true, text: func(p sitePart) string { return strconv.FormatInt(p.set.Revision, 10) }},
		{name: "SINCE", age: func(p sitePart) time.Time { return p.set.Updated }},
	},
}

// partsOf returns the values of a site's parts.
func partsOf(s tko.Site) map[string]string {
	parts := map[string]string{}
	if s.Template != "" {
		parts["template"] = string(s.Template)
	}
	for _, f := range tko.DetailFields() {
		if text := *f.In(&s.Details); text != "" {
			parts[f.Name] = text
		}
	}
	for key, value := range s.Metadata {
		parts["metadata."+key] = value
	}
	return parts
}

// readSiteParts reads a site with its history, and the source that owns it, if one does.
func readSiteParts(ctx context.Context, s *session, id tko.SiteID) (all []sitePart, owner tko.Source, err error) {
	site, err := call(ctx, s, func(ctx context.Context) (tko.Site, error) { return s.Site(ctx, id, 0) })
	if err != nil {
		return nil, owner, err
	}
	now := partsOf(site)
	parts := map[string]*sitePart{}
	for name, value := range now {
		parts[name] = &sitePart{name: name, value: value, set: site.Stamp}
	}
	open := maps.Clone(now) // parts whose oldest revision isn't found yet
	for revision := site.Stamp.Revision - 1; revision > 0 && revision > site.Stamp.Revision-historyRevisions && len(open) > 0; revision-- {
		was, err := call(ctx, s, func(ctx context.Context) (tko.Site, error) { return s.Site(ctx, id, revision) })
		if errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrGone) {
			break // it is no longer retained
		}
		if err != nil {
			return nil, owner, err
		}
		values := partsOf(was)
		for name, value := range open {
			if before, had := values[name]; !had || before != value {
				delete(open, name)
				continue
			}
			parts[name].set = was.Stamp
		}
	}
	if owner, err = nameOrigins(ctx, s, site, parts); err != nil {
		return nil, owner, err
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		all = append(all, *parts[name])
	}
	return all, owner, nil
}

// nameOrigins sets where parts come from, and returns the source that owns the site, if
// one does.
func nameOrigins(ctx context.Context, s *session, site tko.Site, parts map[string]*sitePart) (owner tko.Source, err error) {
	sources, err := call(ctx, s, s.Sources)
	if err != nil && !errors.Is(err, tko.ErrDenied) {
		return owner, err
	}
	var given tko.SourceOrigins
	for _, source := range sources {
		for _, item := range source.Status.Items {
			if item.Kind == string(tko.KindSite) && item.Name == string(site.ID) {
				owner, given = source, source.Status.OriginsOf(item)
			}
		}
	}
	inherited := map[string]string{}
	if site.Template != "" {
		template, err := call(ctx, s, func(ctx context.Context) (tko.Template, error) { return s.Template(ctx, site.Template, 0) })
		if err != nil && !errors.Is(err, tko.ErrNotFound) && !errors.Is(err, tko.ErrDenied) {
			return owner, err
		}
		inherited = template.Metadata
	}
	for name, part := range parts {
		key, isMetadata := strings.CutPrefix(name, "metadata.")
		value, has := inherited[key]
		name, isSource := strings.CutPrefix(part.set.Who, "gitops:")
		user, isUser := given.User(part.name)
		switch origin := given[part.name]; {
		case isUser:
			part.from = fmt.Sprintf("user %s, kept by source %s", user, owner.Name)
		case origin != "" && name == owner.Name && isSource:
			part.from = fmt.Sprintf("%s of source %s", origin, owner.Name)
		case isMetadata && has && value == part.value:
			part.from = "template " + string(site.Template)
		case isSource:
			part.from = "source " + name
		default:
			part.from = "user"
		}
	}
	return owner, nil
}
