package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// maxOrdinals is the maximum number of equal entries of a placement whose children are
// recognized.
const maxOrdinals = 10

// Explain returns, for each template of each placement of a package, whether it selects a
// site, and if not the smallest set of conditions that the site doesn't meet: if it met
// them, it would be selected. children are those of the deployment at the site.
func Explain(pkg krm.Package, site tko.Site, children []tko.Deployment) []tko.PlacementExplanation {
	var out []tko.PlacementExplanation
	for _, r := range pkg {
		if r.GVK() != PlacementGVK {
			continue
		}
		id := r.Identity()
		list, err := listAt(id, r, "spec", "templates")
		if err != nil {
			out = append(out, tko.PlacementExplanation{Placement: id.String(), Note: err.Error()})
			continue
		}
		for _, item := range list {
			m, _ := item.(map[string]any)
			name, _ := m["template"].(string)
			e := explainEntry(pkg, id, m, site)
			e.Placement, e.Template = id.String(), name
			for _, child := range children {
				if isChildOf(id, name, child) {
					e.Deployments = append(e.Deployments, child.ID)
				}
			}
			switch {
			case e.Note != "":
			case !r.IsPrepared():
				e.Note = "the placement isn't prepared yet"
			case !isUpdating(r) && e.Selected != (len(e.Deployments) > 0):
				e.Note = "the placement was evaluated once and doesn't follow its sites: set spec.update, or evaluate it again"
			}
			out = append(out, e)
		}
	}
	return out
}

func isChildOf(placement krm.Identity, template string, child tko.Deployment) bool {
	key := childKey(placement.Name, template, child.Template, child.Site)
	for n := range maxOrdinals {
		if child.Origin == childOrigin(placement, key, n) {
			return true
		}
	}
	return false
}

// explainEntry explains one entry of a placement: one of its Site and Sites resources
// must match, all conditions of that one.
func explainEntry(pkg krm.Package, placement krm.Identity, m map[string]any, site tko.Site) tko.PlacementExplanation {
	var best tko.PlacementExplanation
	var notes []string
	found := false
	names, err := listAt(placement, krm.Resource(m), "sites")
	if err != nil {
		return tko.PlacementExplanation{Note: err.Error()}
	}
	for _, item := range names {
		name, _ := item.(string)
		for _, gvk := range []krm.GVK{SitesGVK, SiteGVK} {
			r := pkg.Find(krm.Identity{GVK: gvk, Name: name})
			if r == nil {
				continue
			}
			unmet, note := unmetOf(r, site)
			if note != "" {
				notes = append(notes, note)
				continue
			}
			if !found || len(unmet) < len(best.Unmet) {
				found = true
				best = tko.PlacementExplanation{Sites: r.Identity().String(), Selected: len(unmet) == 0, Unmet: unmet}
			}
		}
	}
	if !found && len(notes) == 0 {
		notes = append(notes, "it names no Site or Sites resource of the package")
	}
	if !best.Selected {
		best.Note = strings.Join(notes, "; ")
	}
	return best
}

// unmetOf returns the conditions of a Site or Sites resource that a site doesn't meet. A
// note says why they aren't known.
func unmetOf(r krm.Resource, site tko.Site) (unmet []tko.UnmetCondition, note string) {
	if r.GVK() == SitesGVK {
		request, err := readSites(r)
		if err != nil {
			return nil, err.Error()
		}
		return unmetPatterns(request.resource, request.sel, site)
	}
	for _, field := range []string{"status", "spec"} {
		id, err := textAt(r, field, "siteId")
		if err != nil {
			return nil, err.Error()
		}
		if id == string(site.ID) {
			return nil, ""
		}
		if id != "" {
			return []tko.UnmetCondition{{Field: "siteId", Present: true, Value: string(site.ID), Wanted: id}}, ""
		}
	}
	return nil, fmt.Sprintf("%s isn't prepared yet: its site isn't known", r.Identity())
}

func unmetPatterns(id krm.Identity, sel map[string]string, site tko.Site) (unmet []tko.UnmetCondition, note string) {
	for _, key := range slices.Sorted(maps.Keys(sel)) {
		pattern, err := tko.ParseValuePattern(sel[key])
		if err != nil {
			return nil, fmt.Sprintf("%s: %v", id, err)
		}
		if value, ok := site.Metadata[key]; !ok || !pattern.Match(value) {
			unmet = append(unmet, tko.UnmetCondition{Field: "metadata." + key, Present: ok, Value: value, Wanted: sel[key]})
		}
	}
	return unmet, ""
}

// Uses returns the Template resources of a package that name a template, or that select
// templates by metadata that it has.
func Uses(pkg krm.Package, template tko.Template) []tko.ImpactTopology {
	var uses []tko.ImpactTopology
	for _, r := range pkg {
		if r.GVK() != TemplateGVK {
			continue
		}
		request, err := readTemplate(r)
		if err != nil {
			continue // its placement reports it
		}
		use := tko.ImpactTopology{Resource: r.Identity().String(), Selects: request.id == ""}
		if request.id == template.ID {
			uses = append(uses, use)
		} else if unmet, note := unmetPatterns(request.resource, request.sel, tko.Site{Metadata: template.Metadata}); request.id == "" && len(unmet) == 0 && note == "" {
			uses = append(uses, use)
		}
	}
	return uses
}
