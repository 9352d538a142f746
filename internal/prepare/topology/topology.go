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
	TemplateGVK  = gvk("Template")  // names a template; not prepared
	SiteGVK      = gvk("Site")      // names or requests a site
	SitesGVK     = gvk("Sites")     // names all sites that match; not prepared
	PlacementGVK = gvk("Placement") // requests child deployments of templates at sites
	TOSCAGVK     = gvk("TOSCA")     // a topology in TOSCA
)

func gvk(kind string) krm.GVK {
	return krm.GVK{Group: "topology.nephio.org", Version: "v1alpha1", Kind: kind}
}

// Client is the part of the data controller's API that the preparation of topologies
// needs.
type Client interface {
	// Templates returns the templates that match, sorted by ID.
	Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error]
	// Sites returns the sites that match, sorted by ID.
	Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error]
	// CreateChildren creates the children whose origin is new: all or none of them.
	CreateChildren(ctx context.Context, children tko.NewChildren) (ids []tko.DeploymentID, created int, err error)
	// ProvisionSite registers a site, unless one with its origin exists.
	ProvisionSite(ctx context.Context, site tko.NewSite) (id tko.SiteID, created bool, err error)
	// About returns, among others, the position of the newest change; 0 if all reads are
	// as of one position.
	About(ctx context.Context) (tko.About, error)
}

// Bounds of the requests to the data controller.
const (
	childrenPerCall = 500
	callsAtOnce     = 2
)

// The reasons of an [Error].
const (
	ReasonInvalid               = "Invalid"                  // a field of the resource is missing or wrong
	ReasonReferenceMissing      = "ReferenceMissing"         // a Placement names a resource that isn't in the package
	ReasonMergeReferenceMissing = "MergeReferenceMissing"    // a merge list does
	ReasonSelectMatchedNothing  = "SelectMatchedNothing"     // no template, or no site, matches
	ReasonTemplateMissing       = "TemplateMissing"          // the named template doesn't exist
	ReasonSiteMissing           = "SiteMissing"              // the named site doesn't exist
	ReasonSiteNotPrepared       = "SiteNotPrepared"          // a Site resource that is never prepared here names no site
	ReasonChildrenRefused       = "ChildrenRefused"          // the children would be invalid
	ReasonSiteRefused           = "SiteRefused"              // the provisioned site would be invalid
	ReasonNotConfirmed          = "NotConfirmed"             // a child isn't deleted, because too many deployments would be deleted with it
	ReasonWaitsForApproval      = tko.ReasonWaitsForApproval // it would create or delete more deployments than it may without consent
	ReasonNotSupported          = "NotSupported"             // this kind can't be prepared by this release
)

// An Error reports why a resource can't be prepared. It is a tko.ErrInvalid: the
// resource, or an entity that it names, must be changed.
type Error struct {
	Resource krm.Identity
	Reason   string // CamelCase, one of the constants
	Message  string
}

func (e *Error) Error() string { return e.Resource.String() + ": " + e.Message }

// Is makes it an ErrInvalid.
func (e *Error) Is(target error) bool { return target == tko.ErrInvalid }

// A WaitError reports that a resource can't be prepared before another one is.
type WaitError struct {
	Resource krm.Identity
	For      krm.Identity
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("%s waits until %s is prepared", e.Resource, e.For)
}

// A Deployment is the deployment of a topology.
type Deployment struct {
	ID         tko.DeploymentID
	Revision   int64 // children are created only at this revision; 0: at any
	Package    krm.Package
	Preparable func(krm.Resource) bool // reports whether TKO or a plugin is to prepare a resource: then others wait for it
	Waits      bool                    // it has yet to replace others: until then its placements create no children
}

// A Preparer prepares topologies. It may be used by many goroutines.
type Preparer struct {
	Client   Client
	Children Children // for reviews
}

// Prepares reports whether the package prepares resources of a kind.
func Prepares(kind krm.GVK) bool {
	return kind == SiteGVK || kind == PlacementGVK || kind == TOSCAGVK
}

// Place creates the children of a pending placement, and returns the placement with
// its new status. It is idempotent. The error is as Prepare's.
func (p *Preparer) Place(ctx context.Context, d Deployment, id krm.Identity) (krm.Resource, error) {
	resource := d.Package.Find(id)
	if resource == nil {
		return nil, refuse(id, ReasonInvalid, "is not in the package")
	}
	return p.preparePlacement(ctx, d, resource)
}

// Prepare prepares one resource of the package and returns the changed resource,
// marked prepared. It doesn't change the package, and is idempotent. The error is an
// [*Error], a [*WaitError], or an error of the client: tko.ErrConflict or tko.ErrBusy
// if the deployment has changed.
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
	request, err := readSite(d, resource)
	if err != nil {
		return nil, err
	}
	site, err := p.site(ctx, request)
	if err != nil {
		return nil, err
	}
	prepared := resource.Clone()
	prepared.Set(string(site), "status", "siteId")
	prepared.SetPrepared()
	return prepared, nil
}

func (p *Preparer) site(ctx context.Context, request siteRequest) (tko.SiteID, error) {
	if request.id != "" {
		return request.id, p.checkSite(ctx, request)
	}
	if request.sel != nil {
		sites, err := p.sites(ctx, request.resource, tko.SiteSelect{Metadata: request.sel}, 1)
		if err != nil {
			return "", err
		}
		if len(sites) > 0 {
			return sites[0], nil
		}
	}
	if request.provision == nil {
		return "", refuse(request.resource, ReasonSelectMatchedNothing,
			"no site has metadata that matches %s: register one, or set spec.provisionIfNotFound", selectText(request.sel))
	}
	id, _, err := p.Client.ProvisionSite(ctx, *request.provision)
	if errors.Is(err, tko.ErrInvalid) {
		return "", refuse(request.resource, ReasonSiteRefused, "can't provision a site: %v", err)
	}
	if err != nil {
		return "", fmt.Errorf("provision a site for %s: %w", request.resource, err)
	}
	return id, nil
}

func (p *Preparer) checkSite(ctx context.Context, request siteRequest) error {
	if err := tko.CheckID("spec.siteId", string(request.id)); err != nil {
		return refuse(request.resource, ReasonInvalid, "%v", err)
	}
	// IDs have no characters that are special in patterns: an ID matches only itself.
	sites, err := p.sites(ctx, request.resource, tko.SiteSelect{IDs: []string{string(request.id)}}, 1)
	if err != nil {
		return err
	}
	if len(sites) == 0 {
		return refuse(request.resource, ReasonSiteMissing, "the site %q does not exist: register it, or name another one", request.id)
	}
	return nil
}

// sites returns the IDs of the first limit sites that match, or an error: never a
// part of them. A negative limit is none.
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

func (p *Preparer) template(ctx context.Context, request templateRequest) (tko.TemplateID, error) {
	sel := tko.TemplateSelect{Metadata: request.sel}
	if request.id != "" {
		if err := tko.CheckID("spec.templateId", string(request.id)); err != nil {
			return "", refuse(request.resource, ReasonInvalid, "%v", err)
		}
		sel = tko.TemplateSelect{IDs: []string{string(request.id)}}
	}
	one := 1
	for template, err := range p.Client.Templates(ctx, sel, tko.ListOptions{Window: tko.Window{Max: &one}}) {
		if errors.Is(err, tko.ErrInvalid) {
			return "", refuse(request.resource, ReasonInvalid, "can't select a template: %v", err)
		}
		if err != nil {
			return "", fmt.Errorf("list the templates for %s: %w", request.resource, err)
		}
		return template.ID, nil
	}
	if request.id != "" {
		return "", refuse(request.resource, ReasonTemplateMissing, "the template %q does not exist: register it, or name another one", request.id)
	}
	return "", refuse(request.resource, ReasonSelectMatchedNothing,
		"no template has metadata that matches %s: register one, or change the selector", selectText(request.sel))
}

// statusPending is the field of status that reports that a placement has created no
// children yet, because its deployment must replace others first.
const statusPending = "pending"

// Pending returns the placements of a package that create their children when the
// deployment has replaced others.
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
	r.setTemplates(all)
	prepared := resource.Clone()
	if status, ok := prepared["status"].(map[string]any); ok {
		for _, field := range []string{statusPending, "proposal", "unwanted"} {
			delete(status, field)
		}
	}
	// Children that are created later have the same templates: a change of sites
	// must not introduce a new version of a template.
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
	if batches, err = p.withoutReserved(ctx, &r, d, batches, children); err != nil {
		return nil, err
	}
	r.compare(batches, slots, children, prefixesOf(d.Package), ruleSite)
	if isUpdating(resource) {
		_, planned := resource.Get("spec", "rollout")
		if _, again := resource.Get("status", "deployments"); again || planned || len(r.surplus)+len(r.orphans)+len(r.replaced)+len(r.discard) > 0 {
			return prepared, nil // a review changes them, within the budget
		}
		merged, err := mergedDigest(all)
		if err != nil {
			return nil, refuse(resource.Identity(), ReasonInvalid, "can't read the resources that it merges: %v", err)
		}
		prepared.Set(map[string]any{"digest": merged}, "status", "merged")
	} else {
		prepared.Set(inputsOf(d.Package, resource), "status", "inputs")
	}
	if err := p.findEdits(ctx, r.replaced); err != nil {
		return nil, err
	}
	unwanted := r.surplus
	create := keep(r.create, func(child tko.NewChild) bool {
		t := r.replaced[child.Origin]
		if t == nil || !t.edited {
			return true
		}
		unwanted = append(unwanted, t.old...) // an edited child isn't replaced without an approval
		return false
	})
	if err := p.checkReach(ctx, resource.Identity(), tko.NewChildren{Parent: d.ID, Create: countOf(create)}); err != nil {
		return nil, err
	}
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

// moment returns a context in which all Sites resources of entries are read as of one
// position. Otherwise a site whose metadata changes meanwhile could be selected by two of
// them, or by none: it would get a second child, or lose its only one.
func (p *Preparer) moment(ctx context.Context, entries []entry) (context.Context, error) {
	names := map[string]bool{}
	for _, e := range entries {
		for _, s := range e.selects {
			names[s.resource.Name] = true
		}
	}
	if len(names) < 2 {
		return ctx, nil
	}
	about, err := p.Client.About(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the position of the newest change: %w", err)
	}
	return tko.WithAsOf(ctx, tko.AsOf{Position: about.Position}), nil
}

// resolve reads the templates and sites of entries, each once.
func (p *Preparer) resolve(ctx context.Context, entries []entry) ([]placed, error) {
	moment, err := p.moment(ctx, entries)
	if err != nil {
		return nil, err
	}
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
				ids, err := p.sites(moment, s.resource, tko.SiteSelect{Metadata: s.sel}, -1)
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
	if waits := waitsForApproval(placement, err); waits != nil {
		return waits
	}
	if tko.NeedsRollout(err) {
		return err
	}
	if errors.Is(err, tko.ErrInvalid) {
		first := batch.Children[0]
		return refuse(placement, ReasonChildrenRefused, "can't create deployments of template %q at site %q and others: %v", first.Template, first.Site, err)
	}
	if err != nil {
		return fmt.Errorf("create the children of %s: %w", placement, err)
	}
	return nil
}

// waitsForApproval returns the error for changes that need consent, or nil for another one.
func waitsForApproval(placement krm.Identity, err error) error {
	if !errors.Is(err, tko.ErrInvalid) {
		return nil
	}
	if _, ok := tko.ParseWaiting(err.Error()); !ok {
		return nil
	}
	return refuse(placement, ReasonWaitsForApproval, "%v", err)
}

// checkReach returns an error if the children of a deployment that are about to be created
// and deleted need consent, or a rollout: see [tko.NeedsRollout]. One call of each can't tell: it knows nothing of the others.
func (p *Preparer) checkReach(ctx context.Context, placement krm.Identity, check tko.NewChildren) error {
	if check.Create <= childrenPerCall && check.Remove <= tko.ReachFew && check.Sites <= 1 {
		return nil // the calls themselves fail, before the first change or after a few
	}
	_, _, err := p.Client.CreateChildren(ctx, check)
	if waits := waitsForApproval(placement, err); waits != nil {
		return waits
	}
	if tko.NeedsRollout(err) {
		return err
	}
	if err != nil {
		return fmt.Errorf("check the number of children of %s: %w", placement, err)
	}
	return nil
}

func refuse(resource krm.Identity, reason, format string, args ...any) error {
	return &Error{Resource: resource, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
