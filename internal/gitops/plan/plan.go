package plan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/krm"
)

// Reader is what a plan is made from.
type Reader interface {
	// Template, Site, Deployment and Plugin answer what is there now for
	// revision 0, ErrNotFound if nothing is.
	Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error)
	Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error)
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	Plugin(ctx context.Context, typ, name string) (tko.Plugin, error)
	// Sources answers all, with what they own.
	Sources(ctx context.Context) ([]tko.Source, error)
}

// Writer is what a plan changes, or would.
type Writer interface {
	// PutEntity makes an entity be as said, or with DryRun says whether it is.
	PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error)
	// RemoveEntity deletes an entity, or with dryRun says how many would go.
	RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error)
}

// Client is what is needed of the data controller.
type Client interface {
	Reader
	Lister
	Writer
}

// Policy is what a source may do.
type Policy struct {
	Source  string // its name
	Prune   bool   // remove what left the source
	Adopt   bool   // take over what is there already, whatever it is
	Budget  Budget
	Approve string // digest of a removal beyond the budget that somebody approved
}

// A Budget says how much may be removed without asking: what is beyond both is
// not.
type Budget struct {
	Percent  int // of what the source owns
	Entities int
}

// DefaultBudget is that of a source that has none.
var DefaultBudget = Budget{Percent: 50, Entities: 20}

func (b Budget) over(n, total int) bool { return n > b.Entities && n*100 > b.Percent*total }

// What is done.
const (
	Create = "create"
	Update = "update"
	Adopt  = "adopt"
	Delete = "delete"
)

// An Action is one thing to do.
type Action struct {
	Verb   string
	Kind   tko.Kind
	Name   string
	ID     string // what is there has
	File   string // that asks for it
	Reason string // if it isn't plain
	With   int    // how many others go with what is deleted
	// Changes tell people what changes of what is there: see Explain.
	Changes []string

	manifest *manifest.Manifest
	put      tko.Put
	changes  bool // what is there
}

// String tells people.
func (a Action) String() string {
	s := fmt.Sprintf("%s %s %q", a.Verb, a.Kind, a.Name)
	if a.With > 0 {
		s += fmt.Sprintf(" and %d below it", a.With)
	}
	if a.Reason != "" {
		s += " (" + a.Reason + ")"
	}
	return s
}

// A Plan is what is to be done.
type Plan struct {
	Actions  []Action         // in their order
	Held     []Action         // removals that wait for an approval
	Asks     string           // digest of what is held; "" if nothing is
	Messages []string         // what is left alone, and why
	Items    []tko.SourceItem // the inventory as it is now, without what is gone

	policy Policy
	maker  *maker
}

// Changes says how much is to be done, and waits.
func (p *Plan) Changes() int { return len(p.Actions) + len(p.Held) }

// AuthorOf is who writes for a source.
func AuthorOf(source string) string { return "gitops:" + source }

// OriginOf names a deployment of a source for ever.
func OriginOf(source, name string) string {
	if len(source) > 60 {
		sum := sha256.Sum256([]byte(source))
		source = hex.EncodeToString(sum[:16])
	}
	return source + "/" + name
}

type key struct {
	kind tko.Kind
	name string
}

// entity is what is known of one that is there.
type entity struct {
	id       string
	revision int64
	who      string
	template tko.TemplateID
	site     tko.SiteID
	pkg      krm.Package // of a template, if it is whole
	whole    bool
}

// A maker makes one plan.
type maker struct {
	client  Client
	policy  Policy
	wanted  map[key]*manifest.Manifest
	items   map[key]tko.SourceItem
	leaving map[key]bool

	mu     sync.Mutex
	live   map[key]*entity // nil: not there
	others map[key]string  // owners of what other sources own; read when needed
}

// asks is how many questions are asked at once.
const asks = 8

// Make says what is to be done so that TKO is as the manifests say. Everything
// that is wrong is in the error, as far as that can be known without doing it:
// an ErrInvalid names files and resources, joined of one for each; then there is
// no plan.
func Make(ctx context.Context, client Client, manifests []manifest.Manifest, items []tko.SourceItem, policy Policy) (*Plan, error) {
	m := &maker{
		client: client, policy: policy, wanted: map[key]*manifest.Manifest{}, items: map[key]tko.SourceItem{}, leaving: map[key]bool{}, live: map[key]*entity{},
	}
	for i := range manifests {
		m.wanted[key{manifests[i].Put.Kind, manifests[i].Name}] = &manifests[i]
	}
	for _, item := range items {
		if slices.Contains(manifest.Order, tko.Kind(item.Kind)) {
			m.items[key{tko.Kind(item.Kind), item.Name}] = item
		}
	}
	if err := m.gather(ctx); err != nil {
		return nil, err
	}
	plan := &Plan{policy: policy, maker: m}
	removals, err := m.removals(ctx, plan)
	if err != nil {
		return nil, err
	}
	actions := make([]*Action, len(manifests))
	problems := make([]error, len(manifests))
	group, deciding := errgroup.WithContext(ctx)
	group.SetLimit(asks)
	for i := range manifests {
		group.Go(func() error {
			action, err := m.decide(deciding, &manifests[i])
			if err != nil && !errors.Is(err, tko.ErrInvalid) && !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrDenied) {
				return fmt.Errorf("%s: %w", manifests[i], err)
			}
			actions[i] = action
			if err != nil {
				problems[i] = tko.Errorf(tko.ErrInvalid, "%s: %w", manifests[i], err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, a := range actions {
		if a != nil {
			plan.Actions = append(plan.Actions, *a)
		}
	}
	m.charge(plan, removals)
	if err := m.outdate(ctx, plan); err != nil {
		return nil, err
	}
	m.inventory(plan)
	return plan, nil
}

// outdate says how many deployments keep the earlier revision of a template that
// changes: all that were made from it, but for those that the plan makes anew.
func (m *maker) outdate(ctx context.Context, plan *Plan) error {
	anew := map[string]bool{}
	for _, a := range plan.Actions {
		if a.Kind == tko.KindDeployment {
			anew[a.ID] = true
		}
	}
	for _, a := range plan.Actions {
		if a.Kind != tko.KindTemplate || a.Verb == Create || !a.changes {
			continue
		}
		n := 0
		sel := tko.DeploymentSelect{Templates: []string{a.Name}} // an ID is a pattern of itself
		for d, err := range m.client.Deployments(ctx, sel, tko.ListOptions{}) {
			if err != nil {
				return fmt.Errorf("list the deployments of template %q: %w", a.Name, err)
			}
			if !anew[string(d.ID)] {
				n++
			}
		}
		if n > 0 {
			plan.Messages = append(plan.Messages, fmt.Sprintf(
				"template %q changes: %d deployments that were made from it keep the earlier revision (tko deployment list --outdated --template-id %s)", a.Name, n, a.Name))
		}
	}
	return nil
}

// removals are of what left the source.
func (m *maker) removals(ctx context.Context, plan *Plan) ([]Action, error) {
	var gone []key
	for k := range m.items {
		if m.wanted[k] == nil {
			gone = append(gone, k)
		}
	}
	slices.SortFunc(gone, func(a, b key) int { // those that refer to others first
		return cmp.Or(slices.Index(manifest.Order, b.kind)-slices.Index(manifest.Order, a.kind), strings.Compare(a.name, b.name))
	})
	var removals []Action
	for _, k := range gone {
		item := m.items[k]
		there, err := m.lookup(ctx, k, item.ID)
		if k.kind == tko.KindDeployment && item.ID == "" && err == nil {
			// Its creator may have died before anybody saw its ID. It is ours, by its
			// origin, whoever has changed it since.
			there = &entity{who: AuthorOf(m.policy.Source)}
		}
		switch {
		case err != nil:
			return nil, err
		case there == nil || item.Pending && there.who != AuthorOf(m.policy.Source):
			delete(m.items, k) // gone, or never ours
			continue
		case item.Status == statusKeep:
			plan.Messages = append(plan.Messages, fmt.Sprintf("%s %q left the source and stays: its manifest had the annotation %s: disabled", k.kind, k.name, manifest.AnnotationPrune))
			continue
		case !m.policy.Prune:
			plan.Messages = append(plan.Messages, fmt.Sprintf("%s %q left the source and stays: pruning is off", k.kind, k.name))
			continue
		}
		m.leaving[k] = true
		removal := Action{Verb: Delete, Kind: k.kind, Name: k.name, ID: there.id}
		if k.kind == tko.KindDeployment && there.id != "" {
			would, err := m.client.RemoveEntity(ctx, k.kind, there.id, true)
			if err != nil && !errors.Is(err, tko.ErrNotFound) {
				return nil, err
			}
			removal.With = would.Descendants
		}
		removals = append(removals, removal)
	}
	return removals, nil
}

const statusKeep = "Keep"

// charge takes removals into the plan, as far as they may be done.
func (m *maker) charge(plan *Plan, removals []Action) {
	n, total := 0, len(m.items)
	digest := sha256.New()
	for _, r := range removals {
		n, total = n+1+r.With, total+r.With
		fmt.Fprintf(digest, "%s %s %s\n", r.Kind, r.Name, r.ID)
	}
	ask := hex.EncodeToString(digest.Sum(nil)[:8])
	if !m.policy.Budget.over(n, total) || m.policy.Approve == ask {
		plan.Actions = append(plan.Actions, removals...)
		return
	}
	plan.Held, plan.Asks = removals, ask
	plan.Messages = append(plan.Messages, fmt.Sprintf(
		"%d of %d entities would be removed, which is more than the budget allows (%d %%, %d entities): %s. To agree: tko gitops approve %s %s",
		n, total, m.policy.Budget.Percent, m.policy.Budget.Entities, few(removals), m.policy.Source, ask))
}

func few(removals []Action) string {
	const most = 5
	var names []string
	for _, r := range removals[:min(most, len(removals))] {
		names = append(names, fmt.Sprintf("%s %q", r.Kind, r.Name))
	}
	text := strings.Join(names, ", ")
	if more := len(removals) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// inventory is what the source owns, as far as it is there.
func (m *maker) inventory(plan *Plan) {
	for _, item := range m.items {
		k := key{tko.Kind(item.Kind), item.Name}
		if w := m.wanted[k]; w != nil {
			item.Status = ""
			if w.Keep {
				item.Status = statusKeep
			}
		}
		plan.Items = append(plan.Items, item)
	}
	sortItems(plan.Items)
}

func sortItems(items []tko.SourceItem) {
	slices.SortFunc(items, func(a, b tko.SourceItem) int {
		return cmp.Or(slices.Index(manifest.Order, tko.Kind(a.Kind))-slices.Index(manifest.Order, tko.Kind(b.Kind)), strings.Compare(a.Name, b.Name))
	})
}

// lookup answers what is there, nil if nothing is.
func (m *maker) lookup(ctx context.Context, k key, id string) (*entity, error) {
	m.mu.Lock()
	found, ok := m.live[k]
	m.mu.Unlock()
	if ok {
		return found, nil
	}
	e, err := m.read(ctx, k, id)
	if errors.Is(err, tko.ErrNotFound) {
		e, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[k] = e
	return e, nil
}

func (m *maker) read(ctx context.Context, k key, id string) (*entity, error) {
	switch k.kind {
	case tko.KindTemplate:
		t, err := m.client.Template(ctx, tko.TemplateID(k.name), 0)
		return &entity{id: k.name, revision: t.Stamp.Revision, who: t.Stamp.Who, pkg: t.Package, whole: true}, err
	case tko.KindSite:
		s, err := m.client.Site(ctx, tko.SiteID(k.name), 0)
		return &entity{id: k.name, revision: s.Stamp.Revision, who: s.Stamp.Who, template: s.Template}, err
	case tko.KindPlugin:
		typ, name, _ := tko.SplitPluginID(k.name)
		p, err := m.client.Plugin(ctx, typ, name)
		return &entity{id: k.name, revision: p.Stamp.Revision, who: p.Stamp.Who}, err
	default:
		if id == "" {
			return nil, tko.ErrNotFound
		}
		d, err := m.client.Deployment(ctx, tko.DeploymentID(id), 0)
		return &entity{id: id, revision: d.Stamp.Revision, who: d.Stamp.Who, template: d.Template, site: d.Site}, err
	}
}

// decide says what is to be done for one manifest; nil for nothing.
func (m *maker) decide(ctx context.Context, w *manifest.Manifest) (*Action, error) {
	k := key{w.Put.Kind, w.Name}
	item, owned := m.items[k]
	there, err := m.lookup(ctx, k, item.ID)
	if err != nil {
		return nil, err
	}
	a := &Action{Kind: k.kind, Name: k.name, File: w.File, manifest: w, put: w.Put}
	if k.kind == tko.KindDeployment {
		return m.decideDeployment(ctx, a, item, there)
	}
	switch {
	case there == nil:
		a.Verb = Create
		if owned && !item.Pending {
			a.Reason = "somebody removed it"
		}
	case owned && !item.Pending || item.Pending && there.who == AuthorOf(m.policy.Source):
		if item.Digest == w.Digest && item.Revision == there.revision {
			return nil, m.references(ctx, w)
		}
		a.Verb = Update
		if item.Digest == w.Digest && item.Revision != 0 {
			a.Reason = "somebody changed it: " + there.who
		}
	default:
		a.Verb = Adopt
	}
	changed, err := m.try(ctx, a)
	if err != nil {
		return nil, err
	}
	a.changes = changed
	if a.Verb == Adopt && changed && !w.Adopt && !m.policy.Adopt {
		return nil, tko.Errorf(tko.ErrInvalid, "it is there already, is different and isn't this source's (%s wrote it last): make them equal, or set the annotation %s: \"true\"",
			orNobody(there.who), manifest.AnnotationAdopt)
	}
	if a.Verb == Adopt {
		return a, m.unowned(ctx, k)
	}
	if a.Verb == Update && !changed && item.Digest == w.Digest {
		a.Reason = "" // it is so already: only our notes are old
	}
	return a, nil
}

func orNobody(who string) string {
	if who == "" {
		return "nobody"
	}
	return who
}

// unowned says whose an entity is, if it is another source's.
func (m *maker) unowned(ctx context.Context, k key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.others == nil {
		sources, err := m.client.Sources(ctx)
		if err != nil {
			return err
		}
		m.others = map[key]string{}
		for _, s := range sources {
			if s.Name == m.policy.Source {
				continue
			}
			for _, item := range s.Status.Items {
				m.others[key{tko.Kind(item.Kind), item.Name}] = s.Name
			}
		}
	}
	if owner := m.others[k]; owner != "" {
		return tko.Errorf(tko.ErrInvalid, "it is of source %q: remove it from one of the two", owner)
	}
	return nil
}

// references says what isn't there that a manifest refers to.
func (m *maker) references(ctx context.Context, w *manifest.Manifest) error {
	for _, ref := range []key{{tko.KindTemplate, string(w.Put.Template)}, {tko.KindSite, string(w.Put.Site)}} {
		if ref.name == "" || m.wanted[ref] != nil {
			continue
		}
		there, err := m.lookup(ctx, ref, "")
		if err != nil {
			return err
		}
		if there == nil || m.leaving[ref] {
			return tko.Errorf(tko.ErrInvalid, "%s %q is not there, and not in this revision: add it, or name another", ref.kind, ref.name)
		}
	}
	return nil
}

// base is the package of a template as it will be.
func (m *maker) base(ctx context.Context, id tko.TemplateID) (krm.Package, error) {
	if id == "" {
		return nil, nil
	}
	k := key{tko.KindTemplate, string(id)}
	if w := m.wanted[k]; w != nil {
		return w.Put.Package, nil
	}
	there, err := m.lookup(ctx, k, "")
	if err == nil && there != nil && !there.whole { // it was in a list
		if there, err = m.read(ctx, k, ""); err == nil {
			m.note(map[key]*entity{k: there})
		}
	}
	if err != nil || there == nil {
		return nil, err
	}
	return there.pkg, nil
}

// try has the server say whether something changes, and what is wrong with it,
// as far as that is known before the rest of the revision is applied.
func (m *maker) try(ctx context.Context, a *Action) (changed bool, err error) {
	if err := m.references(ctx, a.manifest); err != nil {
		return false, err
	}
	put := a.put
	put.DryRun = true
	if put.Kind == tko.KindSite && m.moves(tko.KindTemplate, string(put.Template)) {
		// The template changes, too: what it makes of the site is tried apart.
		base, err := m.base(ctx, put.Template)
		if err != nil {
			return false, err
		}
		if put.Package, err = krm.Merge(base.Clone(), put.Package); err != nil {
			return false, err
		}
		put.Template = ""
		_, err = m.client.PutEntity(ctx, put)
		return true, err
	}
	result, err := m.client.PutEntity(ctx, put)
	return result.Changed, err
}

// moves says whether an entity is to be written by this plan, as far as that
// matters to those that refer to it.
func (m *maker) moves(kind tko.Kind, name string) bool {
	k := key{kind, name}
	w := m.wanted[k]
	if w == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	there, known := m.live[k]
	return !known || there == nil || m.items[k].Digest != w.Digest || m.items[k].Revision != there.revision
}

func (m *maker) decideDeployment(ctx context.Context, a *Action, item tko.SourceItem, there *entity) (*Action, error) {
	w := a.manifest
	if there != nil && item.Digest == w.Digest && there.site == w.Put.Site && there.template == w.Put.Template {
		return nil, m.references(ctx, w)
	}
	a.put.Origin = OriginOf(m.policy.Source, w.Name)
	a.Verb = Create
	if there == nil && item.ID != "" {
		a.Reason = "somebody removed it"
	}
	if err := m.references(ctx, w); err != nil {
		return nil, err
	}
	base, err := m.base(ctx, w.Put.Template)
	if err != nil {
		return nil, err
	}
	merged, err := krm.Merge(base.Clone(), w.Put.Package)
	if err != nil {
		return nil, err
	}
	if there != nil {
		a.Verb, a.ID = Update, there.id
		if item.Digest == w.Digest {
			a.Reason = "somebody moved it"
		}
		a.put.Origin, a.put.ID, a.put.FromTemplate = "", there.id, true
		a.put.Package = merged.WithDeployment(string(w.Put.Template), string(w.Put.Site), false, false)
	}
	// Whatever is still to come, what it is made of is tried.
	try := tko.Put{Kind: tko.KindDeployment, Origin: "try", Metadata: w.Put.Metadata, Package: merged, DryRun: true}
	_, err = m.client.PutEntity(ctx, try)
	return a, err
}
