package plan

import (
	"cmp"

	"github.com/tko-orchestrator/tko"
)

// Keeps reports whether an entity stays although its manifest was removed.
func Keeps(item tko.SourceItem) bool { return item.Status == statusKeep }

// Deployments splits the actions of a plan: it returns those that change deployments, for
// a rollout, and leaves those that come before it. Removals of other entities, to which
// deployments may refer, come after it: waiting is their number. If no deployment changes,
// all actions stay.
func (p *Plan) Deployments() (rollout []Action, waiting int) {
	var now []Action
	for _, a := range p.Actions {
		switch {
		case a.Kind == tko.KindDeployment:
			rollout = append(rollout, a)
		case a.Verb == Delete:
			waiting++
		default:
			now = append(now, a)
		}
	}
	if len(rollout) > 0 {
		p.Actions = now
	}
	return rollout, waiting
}

// Sites returns the number of sites at which the actions change what runs there.
func (p *Plan) Sites() int { return len(p.sites()) }

func (p *Plan) sites() map[tko.SiteID]bool {
	sites := map[tko.SiteID]bool{}
	for _, a := range p.Actions {
		if a.site == "" {
			continue
		}
		sites[a.site] = true
		if a.put.Site != "" {
			sites[a.put.Site] = true
		}
	}
	return sites
}

// NeedsRollout reports whether the plan changes what runs at more sites than the source may
// without a rollout.
func (p *Plan) NeedsRollout() bool {
	may := p.policy.Reach
	return may.Known && may.Sites >= 0 && p.Sites() > may.Sites
}

// FreeSites returns the number of sites at which the source may change what runs without a
// rollout.
func (p *Plan) FreeSites() int { return p.policy.Reach.Sites }

// Unknown is the digest of a manifest that was applied before, if the inventory doesn't
// have it.
const Unknown = "unknown"

// Manifests returns actions that change deployments as the manifests of a rollout's edit. The
// error is an ErrInvalid if a manifest has what an edit can't state.
func (p *Plan) Manifests(actions []Action) ([]any, error) {
	list := make([]any, 0, len(actions))
	for _, a := range actions {
		m := map[string]any{"name": a.Name, "origin": OriginOf(p.policy.Source, a.Name)}
		if item, ok := p.maker.items[key{a.Kind, a.Name}]; ok {
			m["before"] = cmp.Or(item.Digest, Unknown)
		}
		set := func(name, value string) {
			if value != "" {
				m[name] = value
			}
		}
		set("deploymentId", a.ID)
		if a.Verb == Delete {
			m["absent"] = true
			list = append(list, m)
			continue
		}
		put := a.manifest.Put
		annotations, err := put.ManifestAnnotations()
		if err != nil {
			return nil, err
		}
		for name := range annotations {
			return nil, tko.Errorf(tko.ErrInvalid, "%s: deployment %q: a source with a rollout can't apply the annotation %s: leave it out, or apply the manifest with tko import", a.File, a.Name, name)
		}
		m["digest"] = a.manifest.Digest
		set("templateId", string(put.Template))
		set("siteId", string(put.Site))
		set("parentDeploymentId", string(put.Parent))
		if len(put.Metadata) > 0 {
			metadata := map[string]any{}
			for key, value := range put.Metadata {
				metadata[key] = value
			}
			m["metadata"] = metadata
		}
		if len(put.Package) > 0 {
			resources := make([]any, len(put.Package))
			for i, r := range put.Package {
				resources[i] = map[string]any(r)
			}
			m["package"] = map[string]any{"resources": resources}
		}
		list = append(list, m)
	}
	return list, nil
}
