package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
)

// maxEdits is the number of newest revisions of a site that are searched for values that
// users set.
const maxEdits = 50

// editable reports whether users may set a part of a site.
func (p Policy) editable(part string) bool {
	return slices.ContainsFunc(p.Editable, func(pattern tko.Pattern) bool { return pattern.Match(part) })
}

// usersIn returns the parts that users set, with their authors, as the status records
// them.
func usersIn(origins tko.SourceOrigins) map[string]string {
	users := map[string]string{}
	for part := range origins {
		if who, ok := origins.User(part); ok {
			users[part] = who
		}
	}
	return users
}

// settled reports whether an existing entity of the source is as it was applied last. It
// keeps the values that users set.
func (m *maker) settled(k key, item tko.SourceItem, there *entity, w *manifest.Manifest) bool {
	if item.Digest != w.Digest || item.Revision != there.revision {
		return false
	}
	users := usersIn(m.given(item))
	for part := range users {
		if !m.policy.editable(part) { // any more
			return false
		}
	}
	if len(users) > 0 {
		m.keep(k, there, w, users)
	}
	return true
}

// keepUsers has the action on an existing site keep the values that users set, if the
// policy allows it.
func (m *maker) keepUsers(ctx context.Context, a *Action, item tko.SourceItem, there *entity) error {
	users, err := m.users(ctx, item, there)
	if err != nil || len(users) == 0 {
		return err
	}
	if _, ok := users["template"]; ok {
		a.put.Template = there.template
	}
	will, err := m.next(ctx, a)
	if err != nil {
		return err
	}
	a.put.Metadata = maps.Clone(a.put.Metadata)
	if a.put.Metadata == nil {
		a.put.Metadata = map[string]string{}
	}
	for part := range users {
		key, isMetadata := strings.CutPrefix(part, "metadata.")
		value, has := will.metadata[key]
		switch {
		case !isMetadata && there.template == a.manifest.Put.Template, isMetadata && has && value == there.metadata[key]:
			delete(users, part) // the user agrees with the inventory, or the template has the value
		case isMetadata:
			a.put.Metadata[key] = there.metadata[key]
		}
	}
	m.keep(key{a.Kind, a.Name}, there, a.manifest, users)
	return nil
}

// users returns the editable parts of an existing site that users set, with their
// authors: those that are recorded, and those of revisions after the recorded one.
func (m *maker) users(ctx context.Context, item tko.SourceItem, there *entity) (map[string]string, error) {
	users := usersIn(m.given(item))
	first := item.Revision
	if first > there.revision { // the site was deleted, and registered again
		first = 0
	}
	first = max(first, there.revision-maxEdits)
	was, err := m.siteAt(ctx, there.id, first)
	if err != nil {
		return nil, err
	}
	for revision := first + 1; revision <= there.revision; revision++ {
		now := there
		if revision < there.revision {
			if now, err = m.siteAt(ctx, there.id, revision); err != nil {
				return nil, err
			}
		}
		if now == nil {
			continue // it isn't retained
		}
		parts, before := now.parts(), was.parts()
		for part, value := range parts {
			switch old, had := before[part]; {
			case had && old == value:
			case strings.HasPrefix(now.who, authorPrefix):
				delete(users, part)
			default:
				users[part] = now.who
			}
		}
		maps.DeleteFunc(users, func(part, _ string) bool { _, has := parts[part]; return !has })
		was = now
	}
	if item.Pending { // it was registered with saved values, but the process was killed before it recorded them
		saved := m.policy.Saved[item.Name]
		for part, value := range there.parts() {
			if who, ok := saved.Users[part]; ok && saved.Values[part] == value {
				users[part] = who
			}
		}
	}
	maps.DeleteFunc(users, func(part, _ string) bool { return !m.policy.editable(part) })
	return users, nil
}

// UserValues are values that users set at a site, and the users, by the names of
// [tko.SourceOrigins].
type UserValues struct {
	Values map[string]string `json:"values"`
	Users  map[string]string `json:"users"`
}

// Removed returns the values that users set at the sites that the plan deletes, by the
// sites' names. Sites without such values are in it, too.
func (p *Plan) Removed() map[string]UserValues {
	removed := map[string]UserValues{}
	for _, a := range p.Actions {
		if a.Verb == Delete && a.Kind == tko.KindSite {
			removed[a.Name] = a.saved
		}
	}
	return removed
}

// valuesOf returns the editable values that users set at an existing site.
func (m *maker) valuesOf(ctx context.Context, item tko.SourceItem, there *entity) (UserValues, error) {
	users, err := m.users(ctx, item, there)
	if err != nil {
		return UserValues{}, err
	}
	values := there.parts()
	maps.DeleteFunc(values, func(part, _ string) bool { _, set := users[part]; return !set })
	return UserValues{values, users}, nil
}

// bringBack has the action that creates a site set the values that users set before the
// source removed it. A template that no longer exists stays that of the source.
func (m *maker) bringBack(ctx context.Context, a *Action) error {
	saved, users := m.policy.Saved[a.Name], map[string]string{}
	was := &entity{template: tko.TemplateID(saved.Values["template"]), metadata: map[string]string{}}
	metadata := maps.Clone(a.put.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	for part, value := range saved.Values {
		if !m.policy.editable(part) {
			continue
		}
		if part == "template" {
			ref := key{tko.KindTemplate, value}
			there, err := m.lookup(ctx, ref, "")
			if err != nil {
				return err
			}
			if m.leaving[ref] || there == nil && m.wanted[ref] == nil || a.put.Template == was.template {
				continue
			}
			a.put.Template = was.template
		}
		if key, isMetadata := strings.CutPrefix(part, "metadata."); isMetadata {
			if old, has := metadata[key]; has && old == value {
				continue // the source agrees
			}
			metadata[key], was.metadata[key] = value, value
		}
		users[part] = saved.Users[part]
	}
	if len(users) > 0 {
		a.put.Metadata, a.Reason = metadata, "it came back, with the values of users"
		m.keep(key{a.Kind, a.Name}, was, a.manifest, users)
	}
	return nil
}

// siteAt returns a revision of a site; nil if it isn't retained.
func (m *maker) siteAt(ctx context.Context, id string, revision int64) (*entity, error) {
	if revision == 0 {
		return nil, nil //nolint:nilnil // there is none before the first
	}
	s, err := m.client.Site(ctx, tko.SiteID(id), revision)
	if errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrGone) {
		return nil, nil //nolint:nilnil // as documented
	}
	return &entity{id: id, revision: revision, who: s.Stamp.Who, template: s.Template, metadata: s.Metadata}, err
}

// parts returns the values of a site by the names of tko.SourceOrigins, without the
// package.
func (e *entity) parts() map[string]string {
	parts := map[string]string{}
	if e == nil {
		return parts
	}
	if e.template != "" {
		parts["template"] = string(e.template)
	}
	for key, value := range e.metadata {
		parts["metadata."+key] = value
	}
	return parts
}

// keep records parts that users set: in the origins of a site, and in messages.
func (m *maker) keep(k key, there *entity, w *manifest.Manifest, users map[string]string) {
	if len(users) == 0 {
		return
	}
	origins := maps.Clone(w.Origins)
	if origins == nil {
		origins = tko.SourceOrigins{}
	}
	values, wanted := there.parts(), (&entity{template: w.Put.Template, metadata: w.Put.Metadata}).parts()
	m.mu.Lock()
	defer m.mu.Unlock()
	for part, who := range users {
		text := fmt.Sprintf("site %q keeps %s %q of %s", k.name, part, values[part], orUnknown(who))
		if value, has := wanted[part]; has {
			text += fmt.Sprintf(", in place of %q of %s", value, w.Origins[part])
		}
		m.kept = append(m.kept, text)
		origins[part] = tko.OriginUser + who
	}
	m.edited[k] = origins
}
