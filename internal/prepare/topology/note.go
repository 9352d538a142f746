package topology

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Some edits of a topology don't change its children. The deployment's Placed
// condition reports them.

// A pinnedTemplate is a template that was selected when the placement was prepared,
// and stays.
type pinnedTemplate struct {
	resource krm.Identity
	id       tko.TemplateID
	sel      map[string]string
}

// note adds notes on edits that don't change the children of an updating placement.
func (p *Preparer) note(ctx context.Context, r *Review, resource krm.Resource, entries []placed, children []tko.Deployment) error {
	for _, t := range r.pinned {
		matches := false
		one := 1
		sel := tko.TemplateSelect{IDs: []string{string(t.id)}, Metadata: t.sel}
		for _, err := range p.Client.Templates(ctx, sel, tko.ListOptions{Window: tko.Window{Max: &one}}) {
			if err != nil {
				return fmt.Errorf("list the templates for %s: %w", t.resource, err)
			}
			matches = true
		}
		if !matches {
			r.notes = append(r.notes, fmt.Sprintf("the template %q stays, although spec.select of %s doesn't match it any more: set spec.templateId to have its deployments replaced", t.id, t.resource))
		}
	}
	return r.noteMerged(resource, entries, children)
}

// noteMerged adds a note if the merged resources changed after some children were
// created: these stay as they are. IDs of deployments sort by creation.
func (r *Review) noteMerged(resource krm.Resource, entries []placed, children []tko.Deployment) error {
	now, err := mergedDigest(entries)
	if err != nil {
		return refuse(r.Placement, ReasonInvalid, "can't read the resources that it merges: %v", err)
	}
	var mine []string
	for _, child := range children {
		if strings.HasPrefix(child.Origin, originPrefix(r.Placement)) {
			mine = append(mine, string(child.ID))
		}
	}
	text := func(name string) string { value, _ := textAt(resource, "status", "merged", name); return value }
	known, was, before := text("digest"), text("was"), text("before")
	switch {
	case known == "":
		was, before = "", ""
	case known == now:
	case was == now && !slices.ContainsFunc(mine, func(id string) bool { return id > before }):
		was, before = "", "" // the edit was reverted
	case len(mine) > 0:
		was, before = known, slices.Max(mine)
	}
	old := 0
	for _, id := range mine {
		if id <= before {
			old++
		}
	}
	r.merged = map[string]any{"digest": now}
	if old > 0 {
		r.merged["was"], r.merged["before"] = was, before
		r.notes = append(r.notes, fmt.Sprintf("%d deployments were created before the resources that %s merges into them changed, and stay as they are: delete one to have it created again", old, r.Placement))
	}
	return nil
}

// mergedDigest returns a digest of the resources that entries merge into children.
func mergedDigest(entries []placed) (string, error) {
	var all strings.Builder
	for _, e := range entries {
		sum, _, err := krm.DigestOf(e.merge)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, "%q %x\n", e.template.resource.Name, sum)
	}
	return digest(all.String())[:16], nil
}

// inputsOf returns a digest of the resources that a placement is evaluated from,
// without the matching sites and templates.
func inputsOf(pkg krm.Package, placement krm.Resource) string {
	inputs := krm.Package{only(placement, "spec")}
	inputs[0].Set(nil, "spec", "update")
	inputs[0].Set(nil, "spec", "budget")
	seen := map[krm.Identity]bool{}
	add := func(id krm.Identity, fields ...string) {
		r := pkg.Find(id)
		if r == nil || seen[id] {
			return
		}
		seen[id] = true
		if len(fields) > 0 {
			r = only(r, fields...)
		} else {
			r = r.Clone()
			delete(r, "status")
			r.SetAnnotation(krm.AnnotationPrepared, "")
		}
		inputs = append(inputs, r)
	}
	for _, item := range items(placement, "spec", "templates") {
		entry, _ := item.(map[string]any)
		name, _ := entry["template"].(string)
		add(krm.Identity{GVK: TemplateGVK, Name: name}, "spec")
		for _, item := range items(entry, "sites") {
			name, _ := item.(string)
			add(krm.Identity{GVK: SiteGVK, Name: name}, "spec")
			add(krm.Identity{GVK: SitesGVK, Name: name}, "spec")
		}
		for _, item := range items(entry, "merge") {
			if ref, err := readReference(placement.Identity(), item, ""); err == nil {
				add(ref)
			}
		}
	}
	sum, _, err := krm.DigestOf(inputs)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(sum[:8])
}

// items returns a list in a resource; empty if it is none.
func items(r krm.Resource, path ...string) []any {
	value, _ := r.Get(path...)
	list, _ := value.([]any)
	return list
}

// only returns a resource with its identity and some of its fields.
func only(r krm.Resource, fields ...string) krm.Resource {
	out := krm.Resource{"apiVersion": r["apiVersion"], "kind": r["kind"], "metadata": map[string]any{"name": r.Identity().Name}}
	clone := r.Clone()
	for _, field := range fields {
		if value, ok := clone[field]; ok {
			out[field] = value
		}
	}
	return out
}

// isOnce reports whether a placement was evaluated, and is not evaluated again.
func isOnce(r krm.Resource) bool {
	where := r.Annotation(krm.AnnotationPrepare)
	return r.GVK() == PlacementGVK && r.IsPrepared() && !isUpdating(r) && (where == "" || where == krm.Here)
}

// HasOnce reports whether a package has placements that were evaluated and are not
// evaluated again.
func HasOnce(pkg krm.Package) bool { return slices.ContainsFunc(pkg, isOnce) }

// OnceNotes returns notes on the placements of a package that are evaluated once:
// on edits that have no effect (edited), and on unwanted children that stay (left).
func OnceNotes(pkg krm.Package) (edited, left []string) {
	for _, r := range pkg {
		if !isOnce(r) {
			continue
		}
		if was, _ := textAt(r, "status", "inputs"); was != "" && was != inputsOf(pkg, r) {
			edited = append(edited, fmt.Sprintf("%s, or what it names, was changed after it was evaluated, and spec.update is Once: its deployments stay as they are; "+
				"take the annotation %s off it and off the Deployment resource to have it evaluated again, or set spec.update",
				r.Identity(), krm.AnnotationPrepared))
		}
		count, _ := r.Get("status", "unwanted", "count")
		if n, _ := count.(int64); n > 0 {
			var texts []string
			for _, example := range items(r, "status", "unwanted", "examples") {
				texts = append(texts, fmt.Sprint(example))
			}
			left = append(left, fmt.Sprintf("%s doesn't want %d of its deployments any more, and spec.update is Once: they stay; delete them, or set spec.update: %s",
				r.Identity(), n, fewOf(texts[:min(len(texts), 3)], int(n))))
		}
	}
	return edited, left
}
