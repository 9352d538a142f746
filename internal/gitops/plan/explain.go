package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	maxChanges = 20  // shown for one entity
	maxChange  = 300 // bytes of one
)

// Bounded returns the first 20 changes, each of 300 bytes at most, and the number
// of the others.
func Bounded(changes iter.Seq[string]) []string {
	var shown []string
	more := 0
	for change := range changes {
		if len(shown) == maxChanges {
			more++
			continue
		}
		shown = append(shown, printable.Short(change, maxChange))
	}
	if more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return shown
}

// Explain sets the Changes of all actions on existing entities. It reads these
// entities completely, so it is for previews, not for Apply.
func (p *Plan) Explain(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asks)
	for i := range p.Actions {
		a := &p.Actions[i]
		if a.Verb != Update && a.Verb != Adopt {
			continue
		}
		group.Go(func() error {
			err := p.maker.explain(ctx, a)
			if err != nil {
				return fmt.Errorf("compare %s %q: %w", a.Kind, a.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// content is the content of an entity.
type content struct {
	fields   map[string]any // other than metadata and package
	metadata map[string]string
	pkg      krm.Package
}

func (m *maker) explain(ctx context.Context, a *Action) error {
	is, err := m.content(ctx, a)
	if errors.Is(err, tko.ErrNotFound) {
		return nil // it was deleted concurrently
	}
	if err != nil {
		return err
	}
	will, err := m.next(ctx, a)
	if err != nil {
		return err
	}
	a.Changes = Bounded(is.changes(will))
	return nil
}

// changes returns the differences between two contents, as text.
func (c content) changes(to content) iter.Seq[string] {
	return func(yield func(string) bool) {
		for d := range krm.Differences(c.fields, to.fields) {
			if !yield(d.String()) {
				return
			}
		}
		for d := range krm.Differences(metadataField(c.metadata), metadataField(to.metadata)) {
			if !yield(d.String()) {
				return
			}
		}
		c.pkg.Changes(to.pkg)(yield)
	}
}

func metadataField(metadata map[string]string) krm.Resource {
	values := make(map[string]any, len(metadata))
	for key, value := range metadata {
		values[key] = value
	}
	return krm.Resource{"metadata": values}
}

// content returns the content of an existing entity. For a deployment, it is the
// revision that the source created, if that is still stored: later changes by
// preparation are no changes of the source.
func (m *maker) content(ctx context.Context, a *Action) (content, error) {
	switch a.Kind {
	case tko.KindTemplate:
		t, err := m.client.Template(ctx, tko.TemplateID(a.Name), 0)
		return content{metadata: t.Metadata, pkg: t.Package}, err
	case tko.KindSite:
		s, err := m.client.Site(ctx, tko.SiteID(a.Name), 0)
		return content{fields: placeFields(s.Template, ""), metadata: s.Metadata, pkg: s.Package}, err
	case tko.KindRollout:
		r, err := rollout(ctx, m.client, a.Name)
		return content{metadata: r.Metadata, pkg: r.Package}, err
	case tko.KindPlugin:
		typ, name, _ := tko.SplitPluginID(a.Name)
		p, err := m.client.Plugin(ctx, typ, name)
		return content{fields: pluginFields(p)}, err
	default:
		item := m.items[key{a.Kind, a.Name}]
		now, err := m.client.Deployment(ctx, tko.DeploymentID(a.ID), 0)
		if err != nil {
			return content{}, err
		}
		d := now
		if item.Revision > 0 && item.Revision < now.Stamp.Revision {
			if d, err = m.client.Deployment(ctx, now.ID, item.Revision); err != nil {
				d = now // the revision is not stored any more
			}
		}
		return content{fields: placeFields(now.Template, now.Site), metadata: d.Metadata, pkg: d.Package}, nil
	}
}

// next returns the content of an entity after the plan.
func (m *maker) next(ctx context.Context, a *Action) (content, error) {
	put := a.put
	c := content{fields: map[string]any{}, pkg: put.Package}
	inherited := map[string]string{}
	switch a.Kind {
	case tko.KindPlugin:
		return content{fields: pluginFields(put.Plugin)}, nil
	case tko.KindTemplate, tko.KindRollout:
	default:
		c.fields = placeFields(put.Template, put.Site)
		base, metadata, err := m.template(ctx, put.Template)
		if err != nil {
			return c, err
		}
		inherited = metadata
		if a.Kind == tko.KindSite {
			if c.pkg, err = packageOf(base, put); err != nil {
				return c, err
			}
		}
	}
	c.metadata = c.pkg.MetadataWith(inherited, put.Metadata)
	for _, key := range put.RemoveMetadata {
		delete(c.metadata, key)
	}
	return c, nil
}

// template returns the package and metadata of a template after the plan.
func (m *maker) template(ctx context.Context, id tko.TemplateID) (krm.Package, map[string]string, error) {
	if id == "" {
		return nil, nil, nil
	}
	if w := m.wanted[key{tko.KindTemplate, string(id)}]; w != nil {
		return w.Put.Package, w.Put.Package.MetadataWith(nil, w.Put.Metadata), nil
	}
	t, err := m.client.Template(ctx, id, 0)
	return t.Package, t.Metadata, err
}

func placeFields(template tko.TemplateID, site tko.SiteID) map[string]any {
	fields := map[string]any{}
	if template != "" {
		fields["template"] = string(template)
	}
	if site != "" {
		fields["site"] = string(site)
	}
	return fields
}

func pluginFields(p tko.Plugin) map[string]any {
	list := func(texts []string) []any {
		result := make([]any, len(texts))
		for i, text := range texts {
			result[i] = text
		}
		return result
	}
	var triggers []string
	for _, t := range p.Triggers {
		triggers = append(triggers, t.String())
	}
	slices.Sort(triggers)
	properties := map[string]any{}
	for name, value := range p.Properties {
		properties[name] = value
	}
	return map[string]any{"executor": cmp.Or(p.Executor, tko.ExecutorCommand), "arguments": list(p.Arguments), "properties": properties, "triggers": list(triggers)}
}
