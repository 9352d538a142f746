package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A siteRequest is the request of a Site resource.
type siteRequest struct {
	resource  krm.Identity
	id        tko.SiteID        // this site, if not ""
	sel       map[string]string // else the first site that matches, if not nil
	provision *tko.NewSite      // else this new site, if not nil
}

// A templateRequest is the request of a Template resource.
type templateRequest struct {
	resource krm.Identity
	id       tko.TemplateID    // this template, if not ""
	sel      map[string]string // else the first template that matches
}

// A sitesRequest is the request of a Sites resource: all sites that match.
type sitesRequest struct {
	resource krm.Identity
	sel      map[string]string
}

// An entry is one of the templates of a Placement.
type entry struct {
	template templateRequest
	sites    []tko.SiteID // of Site resources, in the order of their names in the entry
	selects  []sitesRequest
	merge    krm.Package // of the children
}

func readSite(d Deployment, r krm.Resource) (siteRequest, error) {
	request := siteRequest{resource: r.Identity()}
	id, err := textAt(r, "spec", "siteId")
	if err != nil {
		return request, err
	}
	request.id = tko.SiteID(id)
	if request.sel, err = selectOf(r); err != nil {
		return request, err
	}
	provision, err := boolAt(r, "spec", "provisionIfNotFound")
	if err != nil {
		return request, err
	}
	if request.id == "" && request.sel == nil && !provision {
		return request, refuse(request.resource, ReasonInvalid, "names no site: set spec.siteId, spec.select.metadata or spec.provisionIfNotFound")
	}
	if request.id != "" || !provision {
		return request, nil
	}
	template, err := textAt(r, "spec", "provisionTemplateId")
	if err != nil {
		return request, err
	}
	merge, err := mergeOf(d, r.Identity(), r["spec"], "spec")
	if err != nil {
		return request, err
	}
	request.provision = &tko.NewSite{
		Origin:   SiteOrigin(d.ID, request.resource.Name),
		Template: tko.TemplateID(template),
		Metadata: map[string]string{"type": "provisioned"},
		Package:  merge,
	}
	return request, nil
}

func readTemplate(r krm.Resource) (templateRequest, error) {
	request := templateRequest{resource: r.Identity()}
	id, err := textAt(r, "spec", "templateId")
	if err != nil {
		return request, err
	}
	request.id = tko.TemplateID(id)
	if request.sel, err = selectOf(r); err != nil {
		return request, err
	}
	if request.id == "" && request.sel == nil {
		return request, refuse(request.resource, ReasonInvalid, "names no template: set spec.templateId or spec.select.metadata")
	}
	return request, nil
}

func readSites(r krm.Resource) (sitesRequest, error) {
	request := sitesRequest{resource: r.Identity()}
	var err error
	if request.sel, err = selectOf(r); err != nil {
		return request, err
	}
	if request.sel == nil {
		return request, refuse(request.resource, ReasonInvalid, "selects no sites: set spec.select.metadata")
	}
	return request, nil
}

// readPlacement reads the entries of a Placement. The error is a *WaitError as long
// as a resource that it needs is not prepared.
func readPlacement(d Deployment, r krm.Resource) ([]entry, error) {
	id := r.Identity()
	list, err := listAt(id, r, "spec", "templates")
	if err != nil {
		return nil, err
	}
	entries := make([]entry, 0, len(list))
	var waits error
	for i, item := range list {
		where := fmt.Sprintf("spec.templates[%d]", i)
		m, ok := item.(map[string]any)
		if !ok {
			return nil, refuse(id, ReasonInvalid, "%s must be a map with template, sites and merge", where)
		}
		e, err := readEntry(d, id, m, where)
		if isWait(err) {
			// Errors of the other entries take precedence over waiting.
			waits = firstOf(waits, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, waits
}

func readEntry(d Deployment, placement krm.Identity, m map[string]any, where string) (entry, error) {
	var e entry
	name, _ := m["template"].(string)
	if name == "" {
		return e, refuse(placement, ReasonInvalid, "%s.template must be the name of a Template resource", where)
	}
	template := d.Package.Find(krm.Identity{GVK: TemplateGVK, Name: name})
	if template == nil {
		return e, refuse(placement, ReasonReferenceMissing, "%s.template: there is no Template resource %q in the package", where, name)
	}
	var err error
	if e.template, err = readTemplate(template); err != nil {
		return e, err
	}
	names, err := listAt(placement, krm.Resource(m), "sites")
	if err != nil {
		return e, err
	}
	var waits error
	for i, item := range names {
		name, _ := item.(string)
		if name == "" {
			return e, refuse(placement, ReasonInvalid, "%s.sites[%d] must be the name of a Site or Sites resource", where, i)
		}
		err := e.addSites(d, placement, name, fmt.Sprintf("%s.sites[%d]", where, i))
		if isWait(err) {
			waits = firstOf(waits, err)
			continue
		}
		if err != nil {
			return e, err
		}
	}
	merge, err := mergeOf(d, placement, m, where)
	if err != nil && !isWait(err) {
		return e, err
	}
	e.merge = merge
	return e, firstOf(waits, err)
}

// addSites adds the requests of the Site and Sites resources of a name.
func (e *entry) addSites(d Deployment, placement krm.Identity, name, where string) error {
	found := false
	if r := d.Package.Find(krm.Identity{GVK: SitesGVK, Name: name}); r != nil {
		found = true
		request, err := readSites(r)
		if err != nil {
			return err
		}
		e.selects = append(e.selects, request)
	}
	if r := d.Package.Find(krm.Identity{GVK: SiteGVK, Name: name}); r != nil {
		found = true
		site, err := siteOf(d, placement, r)
		if err != nil {
			return err
		}
		e.sites = append(e.sites, site)
	}
	if !found {
		return refuse(placement, ReasonReferenceMissing, "%s: there is no Site or Sites resource %q in the package", where, name)
	}
	return nil
}

// siteOf returns the site of a Site resource. A resource that is not prepared here
// may still have its ID.
func siteOf(d Deployment, placement krm.Identity, r krm.Resource) (tko.SiteID, error) {
	if d.Preparable(r) {
		return "", &WaitError{Resource: placement, For: r.Identity()}
	}
	for _, field := range []string{"status", "spec"} {
		id, err := textAt(r, field, "siteId")
		if err != nil {
			return "", err
		}
		if id != "" {
			return tko.SiteID(id), nil
		}
	}
	return "", refuse(placement, ReasonSiteNotPrepared,
		"%s has neither status.siteId nor spec.siteId and isn't prepared here: take its annotations %s and %s off, or set spec.siteId",
		r.Identity(), krm.AnnotationPrepare, krm.AnnotationPrepared)
}

// mergeOf returns the resources of the merge list of holder (a spec or an entry), in
// the form for children.
func mergeOf(d Deployment, id krm.Identity, holder any, where string) (krm.Package, error) {
	m, _ := holder.(map[string]any)
	list, err := listAt(id, krm.Resource(m), "merge")
	if err != nil {
		return nil, err
	}
	var found krm.Package
	seen := map[krm.Identity]bool{}
	var waits error
	for i, item := range list {
		ref, err := readReference(id, item, fmt.Sprintf("%s.merge[%d]", where, i))
		if err != nil {
			return nil, err
		}
		if seen[ref] {
			continue
		}
		seen[ref] = true
		r := d.Package.Find(ref)
		if r == nil {
			return nil, refuse(id, ReasonMergeReferenceMissing, "%s.merge[%d]: there is no %s in the package", where, i, ref)
		}
		if d.Preparable(r) && ref != id {
			waits = firstOf(waits, &WaitError{Resource: id, For: ref})
			continue
		}
		found = append(found, r)
	}
	if waits != nil {
		return nil, waits
	}
	return krm.ForChild(found), nil
}

func readReference(id krm.Identity, item any, where string) (krm.Identity, error) {
	m, _ := item.(map[string]any)
	apiVersion, _ := m["apiVersion"].(string)
	kind, _ := m["kind"].(string)
	name, _ := m["name"].(string)
	if apiVersion == "" || kind == "" {
		return krm.Identity{}, refuse(id, ReasonInvalid, "%s must be a reference with apiVersion, kind and name", where)
	}
	return krm.Identity{GVK: krm.ParseGVK(apiVersion, kind), Name: name}, nil
}

// selectOf returns spec.select.metadata; nil if it isn't there. Only spec.select.all
// selects everything.
func selectOf(r krm.Resource) (map[string]string, error) {
	all, err := boolAt(r, "spec", "select", "all")
	if err != nil {
		return nil, err
	}
	value, ok := r.Get("spec", "select", "metadata")
	if !ok || value == nil {
		if all {
			return map[string]string{}, nil
		}
		return nil, nil
	}
	m, ok := value.(map[string]any)
	if !ok {
		return nil, refuse(r.Identity(), ReasonInvalid, "spec.select.metadata must be a map of patterns")
	}
	switch {
	case len(m) == 0 && !all:
		return nil, refuse(r.Identity(), ReasonInvalid, "spec.select.metadata is empty, which selects everything: write patterns, or spec.select.all: true if that is meant")
	case len(m) > 0 && all:
		return nil, refuse(r.Identity(), ReasonInvalid, "spec.select has both metadata and all: keep one of them")
	}
	sel := make(map[string]string, len(m))
	for key, value := range m {
		pattern, ok := value.(string)
		if !ok {
			return nil, refuse(r.Identity(), ReasonInvalid, "spec.select.metadata.%s must be a pattern: write it in quotes", key)
		}
		sel[key] = pattern
	}
	return sel, nil
}

func selectText(sel map[string]string) string {
	if len(sel) == 0 {
		return "all"
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(sel)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", key, sel[key]))
	}
	return strings.Join(pairs, ", ")
}

func textAt(r krm.Resource, path ...string) (string, error) {
	value, ok := r.Get(path...)
	if !ok || value == nil {
		return "", nil
	}
	text, ok := value.(string)
	if !ok {
		return "", refuse(r.Identity(), ReasonInvalid, "%s must be a string", strings.Join(path, "."))
	}
	return text, nil
}

func boolAt(r krm.Resource, path ...string) (bool, error) {
	value, ok := r.Get(path...)
	if !ok || value == nil {
		return false, nil
	}
	b, ok := value.(bool)
	if !ok {
		return false, refuse(r.Identity(), ReasonInvalid, "%s must be true or false", strings.Join(path, "."))
	}
	return b, nil
}

func listAt(id krm.Identity, r krm.Resource, path ...string) ([]any, error) {
	value, ok := r.Get(path...)
	if !ok || value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		return nil, refuse(id, ReasonInvalid, "%s must be a list", strings.Join(path, "."))
	}
	return list, nil
}

func isWait(err error) bool {
	_, ok := err.(*WaitError) //nolint:errorlint // ours, never wrapped
	return ok
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
