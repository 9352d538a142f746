package plan

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// Lister lists entities.
type Lister interface {
	// Templates, Sites and Deployments return the selected entities, ordered by ID.
	Templates(ctx context.Context, s tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error]
	Sites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error]
	Deployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error]
}

const (
	// many is the least number of entities of a kind for which a list is cheaper
	// than single requests.
	many = 50
	// worth is the most entities that a list may read for each wanted one: beyond
	// that, single requests are cheaper.
	worth = 10
)

// gather reads the entities that the plan needs in lists, where that is cheaper
// than single requests.
func (m *maker) gather(ctx context.Context) error {
	for kind, ids := range m.needs() {
		if len(ids) < many {
			continue
		}
		if err := m.list(ctx, kind, ids); err != nil {
			return fmt.Errorf("list entities of kind %s: %w", kind, err)
		}
	}
	return nil
}

// needs returns the IDs of the entities that the plan reads, by kind.
func (m *maker) needs() map[tko.Kind]map[string]key {
	needs := map[tko.Kind]map[string]key{tko.KindTemplate: {}, tko.KindSite: {}, tko.KindDeployment: {}}
	add := func(k key) {
		id := k.name
		if k.kind == tko.KindDeployment {
			id = m.items[k].ID
		}
		if ids := needs[k.kind]; ids != nil && id != "" {
			ids[id] = k
		}
	}
	for k, w := range m.wanted {
		add(k)
		add(key{tko.KindTemplate, string(w.Put.Template)})
		add(key{tko.KindSite, string(w.Put.Site)})
	}
	for k := range m.items {
		add(k)
	}
	return needs
}

// list reads the entities with some IDs in one list. It stops early if the list
// holds too many others; entities that weren't reached then stay unknown.
func (m *maker) list(ctx context.Context, kind tko.Kind, ids map[string]key) error {
	sorted := slices.Sorted(maps.Keys(ids))
	first, last := sorted[0], sorted[len(sorted)-1]
	// The ID without its last byte sorts before it.
	options := tko.ListOptions{Window: tko.Window{After: first[:len(first)-1]}}
	found := make(map[key]*entity, len(ids))
	seen := 0
	for e, err := range m.entities(ctx, kind, options) {
		if err != nil {
			return err
		}
		if e.id > last {
			break
		}
		if k, ours := ids[e.id]; ours {
			found[k] = e
		}
		seen++
		if seen > worth*len(ids) {
			m.note(found)
			return nil
		}
	}
	for _, k := range ids {
		if found[k] == nil {
			found[k] = nil // it doesn't exist
		}
	}
	m.note(found)
	return nil
}

func (m *maker) note(found map[key]*entity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.live, found)
}

func (m *maker) entities(ctx context.Context, kind tko.Kind, o tko.ListOptions) iter.Seq2[*entity, error] {
	switch kind {
	case tko.KindTemplate:
		return each(m.client.Templates(ctx, tko.TemplateSelect{}, o), func(t tko.Template) *entity {
			return &entity{id: string(t.ID), revision: t.Stamp.Revision, who: t.Stamp.Who}
		})
	case tko.KindSite:
		return each(m.client.Sites(ctx, tko.SiteSelect{}, o), func(s tko.Site) *entity {
			return &entity{id: string(s.ID), revision: s.Stamp.Revision, who: s.Stamp.Who, template: s.Template, metadata: s.Metadata}
		})
	default:
		return each(m.client.Deployments(ctx, tko.DeploymentSelect{}, o), deploymentEntity)
	}
}

func each[T any](list iter.Seq2[T, error], known func(T) *entity) iter.Seq2[*entity, error] {
	return func(yield func(*entity, error) bool) {
		for item, err := range list {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(known(item), nil) {
				return
			}
		}
	}
}
