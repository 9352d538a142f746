package topology

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// The kinds of the group.
var (
	TemplateGVK  = gvk("Template")  // names a template; is read, not prepared
	SiteGVK      = gvk("Site")      // names a site, or asks for one
	SitesGVK     = gvk("Sites")     // names all sites that match; is read, not prepared
	PlacementGVK = gvk("Placement") // asks for child deployments of templates at sites
	TOSCAGVK     = gvk("TOSCA")     // a topology in TOSCA
)

func gvk(kind string) krm.GVK {
	return krm.GVK{Group: "topology.nephio.org", Version: "v1alpha1", Kind: kind}
}

// Client is what preparing topologies needs of the data controller.
type Client interface {
	// Templates answers the templates that match, sorted by ID.
	Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error]
	// Sites answers the sites that match, sorted by ID.
	Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error]
	// CreateChildren creates those children whose origin is new, all or none.
	CreateChildren(ctx context.Context, children tko.NewChildren) (ids []tko.DeploymentID, created int, err error)
	// ProvisionSite registers a site, unless its origin is known already.
	ProvisionSite(ctx context.Context, site tko.NewSite) (id tko.SiteID, created bool, err error)
}

// Bounds of what is asked of the data controller at once.
const (
	childrenPerCall = 500
	callsAtOnce     = 2
)

// The reasons of an [Error].
const (
	ReasonInvalid               = "Invalid"               // the resource doesn't say what it must
	ReasonReferenceMissing      = "ReferenceMissing"      // a Placement names what isn't in the package
	ReasonMergeReferenceMissing = "MergeReferenceMissing" // so does a merge list
	ReasonSelectMatchedNothing  = "SelectMatchedNothing"  // no template, or no site, matches
	ReasonTemplateMissing       = "TemplateMissing"       // the template named doesn't exist
	ReasonSiteMissing           = "SiteMissing"           // the site named doesn't exist
	ReasonSiteNotPrepared       = "SiteNotPrepared"       // a Site that is never prepared here names no site
	ReasonChildrenRefused       = "ChildrenRefused"       // the children would be invalid
	ReasonSiteRefused           = "SiteRefused"           // the provisioned site would be invalid
	ReasonNotConfirmed          = "NotConfirmed"          // a child isn't deleted with the very many that would go with it
	ReasonNotSupported          = "NotSupported"          // this kind can't be prepared by this release
)

// An Error says why a resource can't be prepared as it is. It is a
// tko.ErrInvalid: something must change, be it the resource, be it what it
// names.
type Error struct {
	Resource krm.Identity
	Reason   string // CamelCase, one of the constants
	Message  string
}

func (e *Error) Error() string { return e.Resource.String() + ": " + e.Message }

// Is makes it an ErrInvalid.
func (e *Error) Is(target error) bool { return target == tko.ErrInvalid }

// A WaitError says that a resource can't be prepared before another one is.
type WaitError struct {
	Resource krm.Identity
	For      krm.Identity
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("%s waits until %s is prepared", e.Resource, e.For)
}

// A Deployment is what a topology belongs to.
type Deployment struct {
	ID         tko.DeploymentID
	Revision   int64 // children are created only while it is at it; 0 is any
	Package    krm.Package
	Preparable func(krm.Resource) bool // by anybody, in this deployment: then it is waited for
	Waits      bool                    // to take the place of others: its placements make no children before
}

// A Preparer prepares topologies. It may be used by many goroutines.
type Preparer struct {
	Client   Client
	Children Children // for reviews
}

// Prepares says whether resources of a kind are prepared here.
func Prepares(kind krm.GVK) bool {
	return kind == SiteGVK || kind == PlacementGVK || kind == TOSCAGVK
}

// Place makes the children of a placement that is pending, and returns it with
// what came of that. Doing it again changes nothing more. The error is as Prepare's.
func (p *Preparer) Place(ctx context.Context, d Deployment, id krm.Identity) (krm.Resource, error) {
	resource := d.Package.Find(id)
	if resource == nil {
		return nil, refuse(id, ReasonInvalid, "is not in the package")
	}
	return p.preparePlacement(ctx, d, resource)
}

// Prepare prepares one resource of the package and answers it, changed and
// marked prepared; the package itself is left alone. Doing it again changes
// nothing more. The error is an [*Error], a [*WaitError], or what the client
// answered: tko.ErrConflict and tko.ErrBusy when the deployment moved on.
func (p *Preparer) Prepare(ctx context.Context, d Deployment, id krm.Identity) (krm.Resource, error) {
	resource := d.Package.Find(id)
	if resource == nil {
		return nil, refuse(id, ReasonInvalid, "is not in the package")
	}
	switch id.GVK {
	case SiteGVK:
		return p.prepareSite(ctx, d, resource)
	case PlacementGVK:
		return p.preparePlacement(ctx, d, resource)
	default:
		return nil, refuse(id, ReasonNotSupported,
			"resources of this kind can't be prepared by this preparer: write Template, Site, Sites and Placement resources instead, or annotate it with %s: %s",
			krm.AnnotationPrepare, krm.Never)
	}
}

func (p *Preparer) prepareSite(ctx context.Context, d Deployment, resource krm.Resource) (krm.Resource, error) {
	wish, err := readSite(d, resource)
	if err != nil {
		return nil, err
	}
	site, err := p.site(ctx, wish)
	if err != nil {
		return nil, err
	}
	prepared := resource.Clone()
	prepared.Set(string(site), "status", "siteId")
	prepared.SetPrepared()
	return prepared, nil
}

func (p *Preparer) site(ctx context.Context, wish siteWish) (tko.SiteID, error) {
	if wish.id != "" {
		return wish.id, p.checkSite(ctx, wish)
	}
	if wish.sel != nil {
		sites, err := p.sites(ctx, wish.resource, tko.SiteSelect{Metadata: wish.sel}, 1)
		if err != nil {
			return "", err
		}
		if len(sites) > 0 {
			return sites[0], nil
		}
	}
	if wish.provision == nil {
		return "", refuse(wish.resource, ReasonSelectMatchedNothing,
			"no site has metadata that matches %s: register one, or set spec.provisionIfNotFound", selectText(wish.sel))
	}
	id, _, err := p.Client.ProvisionSite(ctx, *wish.provision)
	if errors.Is(err, tko.ErrInvalid) {
		return "", refuse(wish.resource, ReasonSiteRefused, "can't provision a site: %v", err)
	}
	if err != nil {
		return "", fmt.Errorf("provision a site for %s: %w", wish.resource, err)
	}
	return id, nil
}

func (p *Preparer) checkSite(ctx context.Context, wish siteWish) error {
	if err := tko.CheckID("spec.siteId", string(wish.id)); err != nil {
		return refuse(wish.resource, ReasonInvalid, "%v", err)
	}
	// No character of an ID means anything in a pattern: the ID matches itself.
	sites, err := p.sites(ctx, wish.resource, tko.SiteSelect{IDs: []string{string(wish.id)}}, 1)
	if err != nil {
		return err
	}
	if len(sites) == 0 {
		return refuse(wish.resource, ReasonSiteMissing, "the site %q does not exist: register it, or name another one", wish.id)
	}
	return nil
}

// sites answers the IDs of all sites that match, or an error: never a part of
// them. A negative limit is none.
func (p *Preparer) sites(ctx context.Context, resource krm.Identity, sel tko.SiteSelect, limit int) ([]tko.SiteID, error) {
	var ids []tko.SiteID
	for site, err := range p.Client.Sites(ctx, sel, tko.ListOptions{Window: tko.Window{Max: &limit}}) {
		if errors.Is(err, tko.ErrInvalid) {
			return nil, refuse(resource, ReasonInvalid, "can't select sites: %v", err)
		}
		if err != nil {
			return nil, fmt.Errorf("list the sites for %s: %w", resource, err)
		}
		ids = append(ids, site.ID)
	}
	return ids, nil
}

func (p *Preparer) template(ctx context.Context, wish templateWish) (tko.TemplateID, error) {
	sel := tko.TemplateSelect{Metadata: wish.sel}
	if wish.id != "" {
		if err := tko.CheckID("spec.templateId", string(wish.id)); err != nil {
			return "", refuse(wish.resource, ReasonInvalid, "%v", err)
		}
		sel = tko.TemplateSelect{IDs: []string{string(wish.id)}}
	}
	one := 1
	for template, err := range p.Client.Templates(ctx, sel, tko.ListOptions{Window: tko.Window{Max: &one}}) {
		if errors.Is(err, tko.ErrInvalid) {
			return "", refuse(wish.resource, ReasonInvalid, "can't select a template: %v", err)
		}
		if err != nil {
			return "", fmt.Errorf("list the templates for %s: %w", wish.resource, err)
		}
		return template.ID, nil
	}
	if wish.id != "" {
		return "", refuse(wish.resource, ReasonTemplateMissing, "the template %q does not exist: register it, or name another one", wish.id)
	}
	return "", refuse(wish.resource, ReasonSelectMatchedNothing,
		"no template has metadata that matches %s: register one, or select otherwise", selectText(wish.sel))
}

// statusPending is the field of status that says that a placement has made no
// children yet, because its deployment must take the place of others first.
const statusPending = "pending"

// Pending are the placements of a package that make their children when the
// deployment has taken the place of those that it replaces.
func Pending(pkg krm.Package) []krm.Identity {
	var ids []krm.Identity
	for _, r := range pkg {
		if r.GVK() != PlacementGVK || !r.IsPrepared() {
			continue
		}
		if pending, _ := r.Get("status", statusPending); pending == true {
			ids = append(ids, r.Identity())
		}
	}
	return ids
}

func (p *Preparer) preparePlacement(ctx context.Context, d Deployment, resource krm.Resource) (krm.Resource, error) {
	entries, err := readPlacement(d, resource)
	if err != nil {
		return nil, err
	}
	all, err := p.resolve(ctx, entries)
	if err != nil {
		return nil, err
	}
	r := Review{Placement: resource.Identity(), update: UpdateOnce}
	r.know(all)
	prepared := resource.Clone()
	if status, ok := prepared["status"].(map[string]any); ok {
		for _, field := range []string{statusPending, "proposal", "unwanted"} {
			delete(status, field)
		}
	}
	// What comes later is made of the same templates: a new version of one is not
	// for a change of sites to bring.
	prepared.Set(r.templates, "status", "templates")
	prepared.SetPrepared()
	if d.Waits {
		prepared.Set(true, "status", statusPending)
		return prepared, nil
	}
	children, err := p.siblings(ctx, d)
	if err != nil {
		return nil, err
	}
	batches, slots := planChildren(d, resource.Identity(), all)
	r.compare(batches, slots, children, prefixesOf(d.Package), ruleSite)
	if isLiving(resource) {
		if _, again := resource.Get("status", "deployments"); again || len(r.surplus)+len(r.orphans)+len(r.takes)+len(r.discard) > 0 {
			return prepared, nil // a review does it, within the budget
		}
		merged, err := mergedDigest(all)
		if err != nil {
			return nil, refuse(resource.Identity(), ReasonInvalid, "what it merges can't be read: %v", err)
		}
		prepared.Set(map[string]any{"digest": merged}, "status", "merged")
	} else {
		prepared.Set(inputsOf(d.Package, resource), "status", "inputs")
	}
	if err := p.findEdits(ctx, r.takes); err != nil {
		return nil, err
	}
	unwanted := r.surplus
	create := keep(r.create, func(child tko.NewChild) bool {
		t := r.takes[child.Origin]
		if t == nil || !t.edited {
			return true
		}
		unwanted = append(unwanted, t.old...) // an edited one isn't replaced without asking
		return false
	})
	if err := p.discard(ctx, resource.Identity(), r.discard); err != nil {
		return nil, err
	}
	if err := p.createAll(ctx, resource.Identity(), create); err != nil {
		return nil, err
	}
	prepared.Set(int64(r.wanted-countOf(r.create)+countOf(create)), "status", "deployments")
	if len(unwanted) > 0 {
		list := Proposal{delete: unwanted}
		prepared.Set(map[string]any{"count": int64(len(unwanted)), "examples": texts(list.deletions(samples))}, "status", "unwanted")
	}
	return prepared, nil
}

// resolve asks for the templates and sites of entries, each once.
func (p *Preparer) resolve(ctx context.Context, entries []entry) ([]placed, error) {
	templates := map[string]tko.TemplateID{}
	sites := map[string][]tko.SiteID{}
	all := make([]placed, len(entries))
	for i, e := range entries {
		if _, ok := templates[e.template.resource.Name]; !ok {
			id, err := p.template(ctx, e.template)
			if err != nil {
				return nil, err
			}
			templates[e.template.resource.Name] = id
		}
		all[i] = placed{entry: e, id: templates[e.template.resource.Name], at: append([]tko.SiteID(nil), e.sites...)}
		for _, s := range e.selects {
			if _, ok := sites[s.resource.Name]; !ok {
				ids, err := p.sites(ctx, s.resource, tko.SiteSelect{Metadata: s.sel}, -1)
				if err != nil {
					return nil, err
				}
				sites[s.resource.Name] = ids
			}
			all[i].at = append(all[i].at, sites[s.resource.Name]...)
		}
	}
	return all, nil
}

func (p *Preparer) create(ctx context.Context, placement krm.Identity, batch tko.NewChildren) error {
	_, _, err := p.Client.CreateChildren(ctx, batch)
	if errors.Is(err, tko.ErrInvalid) {
		first := batch.Children[0]
		return refuse(placement, ReasonChildrenRefused, "can't create deployments of template %q at site %q and others: %v", first.Template, first.Site, err)
	}
	if err != nil {
		return fmt.Errorf("create the children of %s: %w", placement, err)
	}
	return nil
}

func refuse(resource krm.Identity, reason, format string, args ...any) error {
	return &Error{Resource: resource, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
