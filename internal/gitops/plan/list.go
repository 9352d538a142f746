package plan

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// Lister reads many at once.
type Lister interface {
	// Templates, Sites and Deployments answer what there is, in the order of IDs.
	Templates(ctx context.Context, s tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error]
	Sites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error]
	Deployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error]
}

const (
	// many is from how many entities of a kind on they are read in a list: what
	// a list costs doesn't pay for fewer.
	many = 50
	// worth is how many entities of others a list may have for each of ours:
	// beyond that, it is cheaper to ask for ours one by one.
	worth = 10
)

// gather reads what the plan needs to know in lists, where that is cheaper than
// to ask for one after the other.
func (m *maker) gather(ctx context.Context) error {
	for kind, ids := range m.needs() {
		if len(ids) < many {
			continue
		}
		if err := m.list(ctx, kind, ids); err != nil {
			return fmt.Errorf("list what is there of kind %s: %w", kind, err)
		}
	}
	return nil
}

// needs are the IDs of the entities that the plan is about, by kind.
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

// list notes what a list has of some IDs. It ends early if there is too much
// else in it; then what wasn't seen stays unknown.
func (m *maker) list(ctx context.Context, kind tko.Kind, ids map[string]key) error {
	sorted := slices.Sorted(maps.Keys(ids))
	first, last := sorted[0], sorted[len(sorted)-1]
	// A text without its end sorts just before it.
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
		if seen++; seen > worth*len(ids) {
			m.note(found)
			return nil
		}
	}
	for _, k := range ids {
		if found[k] == nil {
			found[k] = nil // it isn't there
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
			return &entity{id: string(s.ID), revision: s.Stamp.Revision, who: s.Stamp.Who, template: s.Template}
		})
	default:
		return each(m.client.Deployments(ctx, tko.DeploymentSelect{}, o), func(d tko.Deployment) *entity {
			return &entity{id: string(d.ID), revision: d.Stamp.Revision, who: d.Stamp.Who, template: d.Template, site: d.Site}
		})
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
