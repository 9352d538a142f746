package plan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/krm"
)

// Reader reads the entities that a plan is made from.
type Reader interface {
	// Template, Site, Deployment and Plugin return an entity; for revision 0 the
	// newest one. The error is an ErrNotFound if there is none.
	Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error)
	Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error)
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	Plugin(ctx context.Context, typ, name string) (tko.Plugin, error)
	// Sources returns all sources, with their inventories.
	Sources(ctx context.Context) ([]tko.Source, error)
}

// A RolloutReader is a Reader of rollouts, too.
type RolloutReader interface {
	Rollout(ctx context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error)
}

func rollout(ctx context.Context, client Reader, id string) (tko.Rollout, error) {
	r, ok := client.(RolloutReader)
	if !ok {
		return tko.Rollout{}, errors.New("this connection has no service of rollouts")
	}
	return r.Rollout(ctx, tko.RolloutID(id), 0)
}

// Writer writes the changes of a plan, or makes dry runs of them.
type Writer interface {
	// PutEntity creates or replaces an entity. With DryRun it only validates it and
	// reports whether it would change.
	PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error)
	// RemoveEntity deletes an entity. With dryRun it only counts what it would
	// delete.
	RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error)
}

// Client is the part of the data controller's API that plans use.
type Client interface {
	Reader
	Lister
	Writer
}

// Policy limits the changes of a source.
type Policy struct {
	Source  string // its name
	Prune   bool   // delete entities whose manifests were removed
	Adopt   bool   // take over existing entities, even if they differ
	Budget  prune.Budget
	Approve string // digest of the approved removal that exceeds the budget
	// Ends is for a source that a user deletes, with consent to the removal of all that it
	// owns. Of other sources, that needs an approval, whatever the budget is.
	Ends bool
	// Careful is for inventories that others keep. A loss needs an approval if it exceeds
	// either limit of the budget, or if deployments are at a removed site. Removed sites
	// are lost, and so are sites that lose their template or keys of their metadata. Other
	// values need one if they change at more than maxAltered percent of the entities, and
	// new entities if they are more than those that exist.
	// While the approval is pending, nothing else is changed: what left and what is new may
	// be the same entities under other IDs.
	Careful bool
	// Editable are patterns of parts of sites, as [tko.SourceOrigins] names them. Where users
	// set one, their value stays.
	Editable []tko.Pattern
	// Origins are those of the items, as their status has them.
	Origins []tko.SourceOrigins
	// Spent is the number of entities that were removed without an approval lately. It is
	// charged to the budget of a careful policy.
	Spent int
	// Saved are values that users set at sites that the source removed, by the sites' names.
	// A site that comes back has them again, as far as they are editable.
	Saved map[string]UserValues
	// Reach is what the source may change now without consent; the zero value limits nothing.
	// If it would create more deployments than that, their creation needs an approval.
	Reach tko.SourceReach
	// Rollout reports that a rollout makes the changes of deployments: its plan is the consent
	// to them.
	Rollout bool
	// AddOnly is for catalogs: existing entities are never changed or removed. Messages
	// name those that differ.
	AddOnly bool
}

// The verbs of actions.
const (
	Create = "create"
	Update = "update"
	Adopt  = "adopt"
	Delete = "delete"
)

// An Action is one change of an entity.
type Action struct {
	Verb   string
	Kind   tko.Kind
	Name   string
	ID     string // of the existing entity
	File   string // that holds the manifest; "" for removals
	Reason string // "" if the manifest is the reason
	With   int    // number of descendants that are deleted, too
	// Changes describe the differences from the existing entity: see Explain.
	Changes []string

	manifest  *manifest.Manifest
	put       tko.Put
	changes   bool       // the existing entity differs
	origins   int        // number of its origins in the plan's Origins
	lost      bool       // an existing site loses its template or keys of its metadata
	altered   bool       // an existing site has another template, or other values of its metadata
	saved     UserValues // of a site that is deleted
	consented bool       // a user approved that very many are created, or have another target
	retargets bool       // an existing site, at which deployments run, has another target
	site      tko.SiteID // at which an existing deployment runs that is updated
}

// String describes the action for users.
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

// A Plan is a list of changes.
type Plan struct {
	Actions  []Action            // in the order in which they are applied
	Held     []Action            // removals, or all actions of a careful policy, that wait for an approval
	Asks     string              // digest of the held actions; "" if there are none
	Charged  int                 // removals that no approval allowed, but the budget
	Messages []string            // entities that stay unchanged, and why
	Invalid  []string            // with AddOnly: manifests that are left out, and why
	Items    []tko.SourceItem    // the current inventory, without entities that no longer exist
	Origins  []tko.SourceOrigins // of the items: those of the policy, and new ones

	policy Policy
	maker  *maker
}

// AuthorOf returns the author of changes made for a source.
func AuthorOf(source string) string { return authorPrefix + source }

// authorPrefix begins the authors of changes made for sources.
const authorPrefix = "gitops:"

// OriginOf returns the origin, unique for ever, of a deployment of a source.
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

// entity holds what is known of an existing entity.
type entity struct {
	id       string
	revision int64
	who      string
	template tko.TemplateID
	site     tko.SiteID
	parent   tko.DeploymentID
	running  bool              // a deployment that is prepared and approved, and has a site
	metadata map[string]string // of a site
	pkg      krm.Package       // of a template, if whole
	whole    bool              // pkg was read
}

// A maker makes one plan.
type maker struct {
	client  Client
	policy  Policy
	wanted  map[key]*manifest.Manifest
	items   map[key]tko.SourceItem
	leaving map[key]bool
	others  func() (map[key]string, error) // entities of other sources, with the source's name; read when first called

	mu      sync.Mutex
	live    map[key]*entity           // nil: doesn't exist
	origins map[string]int            // numbers in the plan's Origins, by their text
	stays   []string                  // messages about entities that differ, with AddOnly
	kept    []string                  // messages about values that users set
	edited  map[key]tko.SourceOrigins // of sites with values that users set
}

// asks is the number of concurrent requests.
const asks = 8

// Make computes the changes that make TKO match the manifests, which a source owns
// together with items, its inventory. Manifests are validated with dry runs. If
// some are invalid, there is no plan, and the error is an ErrInvalid that joins
// the problems, each with its file and resource.
func Make(ctx context.Context, client Client, manifests []manifest.Manifest, items []tko.SourceItem, policy Policy) (*Plan, error) {
	m := &maker{
		client: client, policy: policy, wanted: map[key]*manifest.Manifest{}, items: map[key]tko.SourceItem{}, leaving: map[key]bool{}, live: map[key]*entity{}, edited: map[key]tko.SourceOrigins{},
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
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(asks)
	m.others = sync.OnceValues(func() (map[key]string, error) { return m.ownedByOthers(reading) })
	for i := range manifests {
		group.Go(func() error {
			action, err := m.actionFor(reading, &manifests[i])
			if err != nil && !errors.Is(err, tko.ErrInvalid) && !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrDenied) {
				return fmt.Errorf("%s: %w", manifests[i], err)
			}
			if err == nil {
				actions[i] = action
			}
			if err != nil {
				problems[i] = tko.Errorf(tko.ErrInvalid, "%s: %w", manifests[i], err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if policy.AddOnly { // one version that is invalid doesn't stop the others
		for _, problem := range problems {
			if problem != nil {
				plan.Invalid = append(plan.Invalid, problem.Error())
			}
		}
		if more := len(plan.Invalid) - maxStays; more > 0 {
			plan.Invalid = append(plan.Invalid[:maxStays], fmt.Sprintf("and %d more are invalid", more))
		}
	} else if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	plan.Messages = slices.Concat(plan.Messages, first(m.stays, "stay as they are"), first(m.kept, "values of users are kept"))
	m.index(plan)
	for _, a := range actions {
		if a != nil {
			a.origins = m.originsOf(plan, a.manifest)
			plan.Actions = append(plan.Actions, *a)
		}
	}
	if err := m.charge(ctx, plan, removals); err != nil {
		return nil, err
	}
	if err := m.outdate(ctx, plan); err != nil {
		return nil, err
	}
	m.inventory(plan)
	return plan, nil
}

// maxStays is how many entities that stay as they are messages name.
const maxStays = 10

// first returns the first messages in their order, and counts the others.
func first(messages []string, what string) []string {
	slices.Sort(messages)
	if more := len(messages) - maxStays; more > 0 {
		return append(messages[:maxStays:maxStays], fmt.Sprintf("and %d more %s", more, what))
	}
	return messages
}

// outdate adds a message for each template that changes: the number of deployments
// that keep its earlier revision, without those that the plan recreates.
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
				"template %q changes: %d deployments made from it keep the earlier revision (tko deployment list --outdated --template-id %s)", a.Name, n, a.Name))
		}
	}
	return nil
}

// removals returns the deletions of entities whose manifests were removed.
func (m *maker) removals(ctx context.Context, plan *Plan) ([]Action, error) {
	var gone []key
	for k := range m.items {
		if m.wanted[k] == nil {
			gone = append(gone, k)
		}
	}
	slices.SortFunc(gone, func(a, b key) int { // referring entities before referred ones
		return cmp.Or(slices.Index(manifest.Order, b.kind)-slices.Index(manifest.Order, a.kind), strings.Compare(a.name, b.name))
	})
	var removals []Action
	for _, k := range gone {
		item := m.items[k]
		there, err := m.lookup(ctx, k, item.ID)
		if k.kind == tko.KindDeployment && item.ID == "" && err == nil {
			// The controller that created it may have died before it saved the ID. The
			// origin makes it ours, even if another client has changed it since.
			there = &entity{who: AuthorOf(m.policy.Source)}
			if there.id, err = m.made(ctx, k.name); errors.Is(err, tko.ErrDenied) { // the answer for what doesn't exist, if the owner has limited rights
				plan.Messages = append(plan.Messages, fmt.Sprintf("%s %q has no manifest any more, and whether it was created isn't known: %v", k.kind, k.name, err))
				continue
			}
		}
		switch {
		case err != nil:
			return nil, err
		case there == nil || item.Pending && there.who != AuthorOf(m.policy.Source):
			delete(m.items, k) // it doesn't exist, or was never ours
			continue
		case m.policy.AddOnly:
			continue
		case item.Status == statusKeep:
			plan.Messages = append(plan.Messages, fmt.Sprintf("%s %q stays although its manifest was removed: it had the annotation %s: disabled", k.kind, k.name, manifest.AnnotationPrune))
			continue
		case !m.policy.Prune:
			plan.Messages = append(plan.Messages, fmt.Sprintf("%s %q stays although its manifest was removed: pruning is off", k.kind, k.name))
			continue
		}
		m.leaving[k] = true
		if k.kind == tko.KindDeployment && there.id != "" {
			m.leaving[key{k.kind, there.id}] = true // children refer to the ID
		}
		removal := Action{Verb: Delete, Kind: k.kind, Name: k.name, ID: there.id}
		if k.kind == tko.KindSite && len(m.policy.Editable) > 0 {
			if removal.saved, err = m.valuesOf(ctx, item, there); err != nil {
				return nil, err
			}
		}
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

// made returns the ID of a deployment of which only the origin is known; "" if it doesn't
// exist.
func (m *maker) made(ctx context.Context, name string) (id string, err error) {
	found, err := m.client.PutEntity(ctx, tko.Put{Kind: tko.KindDeployment, Origin: OriginOf(m.policy.Source, name), DryRun: true})
	if err != nil || found.Created {
		return "", err
	}
	return found.ID, nil
}

const statusKeep = "Keep"

// charge adds removals to the plan: as actions if the budget or an approval allows
// them, otherwise as held ones.
func (m *maker) charge(ctx context.Context, plan *Plan, removals []Action) error {
	n, total := 0, len(m.items)
	var lines []string
	for _, r := range removals {
		n, total = n+1+r.With, total+r.With
		line := fmt.Sprintf("%s %s %s", r.Kind, r.Name, r.ID)
		if r.With > 0 { // an approval is for this number
			line += fmt.Sprintf(" with %d", r.With)
		}
		lines = append(lines, line)
	}
	if m.policy.Careful {
		return m.chargeCarefully(ctx, plan, removals, lines)
	}
	var causes []string
	removing := m.policy.Budget.Over(n, total) || m.removesAll(n, total)
	if removing {
		causes = append(causes, fmt.Sprintf("%d of %d entities would be removed, which is %s: %s", n, total, m.overText(n, total, "entities"), few(removals)))
	} else {
		lines = nil
	}
	retargeted := m.tooManyRetargeted(plan)
	if len(retargeted) > 0 {
		causes = append(causes, m.retargetText(retargeted))
		lines = append(lines, linesOf(retargeted)...)
	}
	created := m.tooManyCreated(plan.Actions)
	if len(created) > 0 {
		causes = append(causes, fmt.Sprintf("%d deployments would be created, and %d more are free within 24 h: %s", len(created), m.policy.Reach.Created, few(created)))
		lines = append(lines, m.deploymentsWanted())
	}
	ask := prune.Key(lines)
	if len(causes) == 0 || m.policy.Approve == ask {
		for i := range plan.Actions {
			a := &plan.Actions[i]
			a.consented = len(created) > 0 && isCreation(*a) || len(retargeted) > 0 && a.retargets
		}
		plan.Actions = append(plan.Actions, removals...)
		return nil
	}
	if len(retargeted) > 0 {
		plan.Actions = slices.DeleteFunc(plan.Actions, func(a Action) bool { return a.retargets })
		plan.Held = retargeted
	}
	if len(created) > 0 {
		plan.Actions = slices.DeleteFunc(plan.Actions, isCreation)
		plan.Held = append(plan.Held, created...)
	}
	if removing {
		plan.Held = append(plan.Held, removals...)
	} else {
		plan.Actions = append(plan.Actions, removals...)
	}
	plan.Asks = ask
	plan.Messages = append(plan.Messages, fmt.Sprintf("%s. To approve: tko gitops approve %s %s", strings.Join(causes, "; "), m.policy.Source, ask))
	return nil
}

// tooManyRetargeted returns the actions that give existing sites another target, if they are
// more than the source may touch without an approval. A rollout changes deployments, and no
// sites.
func (m *maker) tooManyRetargeted(plan *Plan) []Action {
	may := m.policy.Reach
	if !may.Known || may.Sites < 0 {
		return nil
	}
	var retargeted []Action
	sites := plan.sites()
	if m.policy.Rollout || len(sites) > may.Sites { // a rollout changes those
		clear(sites)
	}
	for _, a := range plan.Actions {
		if a.retargets {
			retargeted = append(retargeted, a)
			sites[tko.SiteID(a.Name)] = true
		}
	}
	if len(sites) <= may.Sites {
		return nil
	}
	return retargeted
}

func (m *maker) retargetText(retargeted []Action) string {
	return fmt.Sprintf("%d sites at which deployments run would have another target, and %d more sites are free now (--reach-sites): %s", len(retargeted), m.policy.Reach.Sites, few(retargeted))
}

// linesOf identifies changes for an approval.
func linesOf(actions []Action) []string {
	lines := make([]string, len(actions))
	for i, a := range actions {
		lines[i] = fmt.Sprintf("change %s %s", a.Name, a.manifest.Digest)
	}
	return lines
}

func isCreation(a Action) bool { return a.Kind == tko.KindDeployment && a.Verb == Create }

// tooManyCreated returns the actions that create deployments, if they are more than the
// source may create without an approval.
func (m *maker) tooManyCreated(actions []Action) []Action {
	if may := m.policy.Reach; !may.Known || may.Created < 0 || m.policy.Rollout {
		return nil
	}
	var created []Action
	for _, a := range actions {
		if isCreation(a) {
			created = append(created, a)
		}
	}
	if len(created) <= m.policy.Reach.Created {
		return nil
	}
	return created
}

// deploymentsWanted identifies the set of deployments that the source is to have: an approval
// of their creation stays valid while they are created.
func (m *maker) deploymentsWanted() string {
	var names []string
	for k := range m.wanted {
		if k.kind == tko.KindDeployment {
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	return fmt.Sprintf("create %q", names)
}

// removesAll reports whether all that a source owns would be removed, and more than a few.
func (m *maker) removesAll(n, total int) bool {
	return !m.policy.Ends && n == total && n > tko.ReachFew
}

// overText says which limit a removal exceeds. what is counted.
func (m *maker) overText(n, total int, what string) string {
	if m.removesAll(n, total) {
		return "all that the source owns"
	}
	return m.policy.Budget.Text(what)
}

// Under a careful policy, the values of maxAltered percent of the entities may change
// without an approval, and maxAdded percent may be added; and minAsked in any case.
const (
	maxAltered = 50
	maxAdded   = 100
	minAsked   = 20
)

func tooMany(n, percent, total int) bool { return n > minAsked && n*100 > percent*total }

// chargeCarefully is charge for a careful policy. The lines identify the removals.
func (m *maker) chargeCarefully(ctx context.Context, plan *Plan, removals []Action, lines []string) error {
	total := len(m.items)
	var lost, altered, added []Action
	for _, a := range plan.Actions {
		if _, known := m.items[key{a.Kind, a.Name}]; !known { // an interrupted creation is known
			added = append(added, a)
		}
		if a.lost {
			lost = append(lost, a)
		}
		if a.altered {
			altered = append(altered, a)
		}
	}
	over := m.policy.Budget.OverEither(len(removals)+m.policy.Spent, total) || m.removesAll(len(removals), total)
	var causes []string
	if len(removals) > 0 && over {
		counted := "entities"
		if m.policy.Spent > 0 {
			counted += fmt.Sprintf("; %d were removed lately", m.policy.Spent)
		}
		causes = append(causes, fmt.Sprintf("%d of %d entities would be removed, which is %s: %s", len(removals), total, m.overText(len(removals), total, counted), few(removals)))
	}
	if m.policy.Budget.OverEither(len(lost), total) {
		causes = append(causes, fmt.Sprintf("%d of %d sites would lose their template or metadata, which is %s: %s", len(lost), total, m.policy.Budget.Text("entities"), few(lost)))
	} else {
		lost = nil
	}
	if tooMany(len(altered), maxAltered, total) {
		causes = append(causes, fmt.Sprintf("%d of %d sites would get another template or other metadata: %s", len(altered), total, few(altered)))
	} else {
		altered = nil
	}
	if total > 0 && tooMany(len(added), maxAdded, total) {
		causes = append(causes, fmt.Sprintf("%d sites would be added to %d, as by a filter or condition that was lost: %s", len(added), total, few(added)))
	} else {
		added = nil
	}
	retargeted := m.tooManyRetargeted(plan)
	if len(retargeted) > 0 {
		causes = append(causes, m.retargetText(retargeted))
	}
	if len(causes) == 0 {
		occupied, err := m.occupied(ctx, removals)
		if err != nil {
			return err
		}
		if occupied != "" {
			causes = append(causes, fmt.Sprintf("%d of %d entities would be removed, and deployments are at %s: %s", len(removals), total, occupied, few(removals)))
		}
	}
	asking := map[key]bool{}
	asked := slices.Concat(lost, altered, added)
	lines = append(lines, linesOf(asked)...)
	for _, a := range retargeted { // some may be asked about already
		if !slices.ContainsFunc(asked, func(b Action) bool { return b.Kind == a.Kind && b.Name == a.Name }) {
			asked = append(asked, a)
			lines = append(lines, linesOf([]Action{a})...)
		}
	}
	for _, a := range asked {
		asking[key{a.Kind, a.Name}] = true
	}
	ask := prune.Key(lines)
	if len(causes) == 0 || m.policy.Approve == ask {
		if len(causes) == 0 {
			plan.Charged = len(removals)
		}
		for i := range plan.Actions {
			plan.Actions[i].consented = len(retargeted) > 0 && plan.Actions[i].retargets
		}
		plan.Actions = append(plan.Actions, removals...)
		return nil
	}
	if others := len(plan.Actions) - len(asking); others > 0 && len(removals) > 0 {
		plan.Messages = append(plan.Messages, fmt.Sprintf("%d other changes wait for the removal, because entities may have other IDs now", others))
	}
	plan.Held, plan.Asks, plan.Actions = slices.Concat(plan.Actions, removals), ask, nil
	plan.Messages = append(plan.Messages, fmt.Sprintf("%s. To approve: tko gitops approve %s %s", strings.Join(causes, "; "), m.policy.Source, ask))
	return nil
}

// occupied names the first removed site at which deployments are; "" if there is none.
func (m *maker) occupied(ctx context.Context, removals []Action) (string, error) {
	for _, r := range removals {
		if r.Kind != tko.KindSite {
			continue
		}
		sel := tko.DeploymentSelect{Sites: []string{r.Name}} // an ID is a pattern of itself
		for _, err := range m.client.Deployments(ctx, sel, tko.ListOptions{Window: tko.Window{Max: new(1)}}) {
			if err != nil {
				return "", fmt.Errorf("list the deployments at site %q: %w", r.Name, err)
			}
			return fmt.Sprintf("site %q", r.Name), nil
		}
	}
	return "", nil
}

// few names the first removals and counts the others.
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

// inventory sets the plan's Items: the existing entities of the source.
func (m *maker) inventory(plan *Plan) {
	for _, item := range m.items {
		k := key{tko.Kind(item.Kind), item.Name}
		item.Rollout = ""
		if w := m.wanted[k]; w != nil {
			item.Status = ""
			if w.Keep {
				item.Status = statusKeep
			}
			if item.Digest == w.Digest {
				item.Origins = m.originsOf(plan, w)
			}
		}
		plan.Items = append(plan.Items, item)
	}
	sortItems(plan.Items)
}

// index prepares originsOf.
func (m *maker) index(plan *Plan) {
	plan.Origins = slices.Clone(m.policy.Origins)
	m.origins = map[string]int{}
	for i, parts := range plan.Origins {
		m.origins[textOf(parts)] = i + 1
	}
}

// originsOf returns the number of a manifest's origins in the plan's Origins; 0 if it
// has none.
func (m *maker) originsOf(plan *Plan, w *manifest.Manifest) int {
	if w == nil {
		return 0
	}
	parts := w.Origins
	if edited := m.edited[key{w.Put.Kind, w.Name}]; edited != nil {
		parts = edited
	}
	if len(parts) == 0 {
		return 0
	}
	text := textOf(parts)
	if m.origins[text] == 0 {
		plan.Origins = append(plan.Origins, parts)
		m.origins[text] = len(plan.Origins)
	}
	return m.origins[text]
}

// textOf returns a text that is equal for equal origins.
func textOf(parts tko.SourceOrigins) string {
	var b strings.Builder
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		fmt.Fprintf(&b, "%q %q ", part, parts[part])
	}
	return b.String()
}

// given returns the parts that the source gave an item when it was applied last.
func (m *maker) given(item tko.SourceItem) tko.SourceOrigins {
	return tko.SourceStatus{Origins: m.policy.Origins}.OriginsOf(item)
}

func sortItems(items []tko.SourceItem) {
	slices.SortFunc(items, func(a, b tko.SourceItem) int {
		return cmp.Or(slices.Index(manifest.Order, tko.Kind(a.Kind))-slices.Index(manifest.Order, tko.Kind(b.Kind)), strings.Compare(a.Name, b.Name))
	})
}

// lookup returns an existing entity; nil if it doesn't exist.
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
		return &entity{id: k.name, revision: s.Stamp.Revision, who: s.Stamp.Who, template: cmp.Or(s.AwaitedTemplate, s.Template), metadata: s.Metadata}, err
	case tko.KindRollout:
		r, err := rollout(ctx, m.client, k.name)
		return &entity{id: k.name, revision: r.Stamp.Revision, who: r.Stamp.Who}, err
	case tko.KindPlugin:
		typ, name, _ := tko.SplitPluginID(k.name)
		p, err := m.client.Plugin(ctx, typ, name)
		return &entity{id: k.name, revision: p.Stamp.Revision, who: p.Stamp.Who}, err
	default:
		if id == "" {
			return nil, tko.ErrNotFound
		}
		d, err := m.client.Deployment(ctx, tko.DeploymentID(id), 0)
		return deploymentEntity(d), err
	}
}

// deploymentEntity returns a deployment with the template and the site that it names, also if
// it waits for them.
func deploymentEntity(d tko.Deployment) *entity {
	return &entity{
		id: string(d.ID), revision: d.Stamp.Revision, who: d.Stamp.Who, template: cmp.Or(d.AwaitedTemplate, d.Template), site: cmp.Or(d.AwaitedSite, d.Site),
		parent: d.Parent, running: d.Prepared && d.Approved && d.Site != "",
	}
}

// actionFor returns the action for one manifest; nil if there is nothing to do.
func (m *maker) actionFor(ctx context.Context, w *manifest.Manifest) (*Action, error) {
	k := key{w.Put.Kind, w.Name}
	item, owned := m.items[k]
	there, err := m.lookup(ctx, k, item.ID)
	if err != nil {
		return nil, err
	}
	a := &Action{Kind: k.kind, Name: k.name, File: w.File, manifest: w, put: w.Put}
	a.put.Defer = m.mayComeLater(k.kind)
	if m.policy.AddOnly && there != nil && (!item.Pending || there.who != AuthorOf(m.policy.Source)) {
		if !owned || item.Digest != w.Digest || item.Revision != there.revision {
			if same, err := m.same(ctx, a); err != nil || same {
				return nil, err
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.stays = append(m.stays, fmt.Sprintf("%s %q stays as it is (%s wrote it last), and differs from %s: give new content a new version",
				k.kind, k.name, orUnknown(there.who), w.File))
		}
		return nil, nil
	}
	if k.kind == tko.KindDeployment {
		return m.actionForDeployment(ctx, a, item, there)
	}
	switch {
	case there == nil:
		a.Verb = Create
		if owned && !item.Pending {
			a.Reason = "it was deleted"
		}
	case owned && !item.Pending || item.Pending && there.who == AuthorOf(m.policy.Source):
		if m.settled(k, item, there, w) {
			return nil, m.references(ctx, w)
		}
		a.Verb = Update
		if item.Digest == w.Digest && item.Revision != 0 {
			a.Reason = "it was changed by " + orUnknown(there.who)
		}
	default:
		a.Verb = Adopt
	}
	if k.kind == tko.KindSite && there == nil && (!owned || item.Pending) {
		if err := m.bringBack(ctx, a); err != nil {
			return nil, err
		}
	}
	kept := k.kind == tko.KindSite && there != nil && len(m.policy.Editable) > 0
	if kept {
		if err := m.keepUsers(ctx, a, item, there); err != nil {
			return nil, err
		}
	}
	changed, err := m.try(ctx, a)
	if err != nil {
		return nil, err
	}
	if kept { // a user who writes meanwhile loses nothing
		a.put.Revision = there.revision
	}
	a.changes = changed
	if k.kind == tko.KindSite && a.Verb == Update && changed {
		a.lost, a.altered = compare(m.given(item), there, a.put)
	}
	if a.Verb == Adopt && changed && !w.Adopt && !m.policy.Adopt && m.policy.Careful {
		return nil, tko.Errorf(tko.ErrInvalid, "it exists, differs, and isn't owned by this source (%s wrote it last): make them equal, map the record to another ID, or set adopt: true for the source",
			orUnknown(there.who))
	}
	if a.Verb == Adopt && changed && !w.Adopt && !m.policy.Adopt {
		return nil, tko.Errorf(tko.ErrInvalid, "it exists, differs, and isn't owned by this source (%s wrote it last): make them equal, or set the annotation %s: \"true\"",
			orUnknown(there.who), manifest.AnnotationAdopt)
	}
	if a.Verb == Adopt || a.Verb == Create && !owned { // another source may restore what doesn't exist
		return a, m.unowned(k)
	}
	if a.Verb == Update && !changed {
		a.Reason = "" // it has the wanted content already: only the inventory is old
	}
	return a, nil
}

// compare reports whether an existing site would lose parts that the source gave it, and
// whether it would get another template or other values of its metadata. What the site
// has from its template or from users isn't counted.
func compare(given tko.SourceOrigins, there *entity, put tko.Put) (lost, altered bool) {
	for part := range given {
		if _, isUser := given.User(part); isUser {
			continue
		}
		key, isMetadata := strings.CutPrefix(part, "metadata.")
		value, has := put.Metadata[key]
		switch {
		case isMetadata && !has, part == "template" && put.Template == "", part == "package" && len(put.Package) == 0:
			lost = true
		case isMetadata && there.metadata[key] != value, part == "template" && there.template != put.Template:
			altered = true
		}
	}
	return lost, altered
}

func orUnknown(who string) string {
	if who == "" {
		return "an unknown author"
	}
	return who
}

// unowned returns an error if another source owns the entity.
func (m *maker) unowned(k key) error {
	others, err := m.others()
	if err != nil {
		return err
	}
	if owner := others[k]; owner != "" {
		return tko.Errorf(tko.ErrInvalid, "it is owned by source %q: remove it from one of the two", owner)
	}
	return nil
}

// ownedByOthers returns the entities that other sources own, with the names of these sources.
func (m *maker) ownedByOthers(ctx context.Context) (map[key]string, error) {
	sources, err := m.client.Sources(ctx)
	if err != nil {
		return nil, err
	}
	owners := map[key]string{}
	for _, s := range sources {
		if s.Name == m.policy.Source {
			continue
		}
		for _, item := range s.Status.Items {
			owners[key{tko.Kind(item.Kind), item.Name}] = s.Name
		}
	}
	return owners, nil
}

// mayComeLater reports whether entities of a kind may name what doesn't exist yet. A template
// that all sites of an inventory name, and that doesn't exist, is an error of its mapping.
func (m *maker) mayComeLater(kind tko.Kind) bool {
	return kind == tko.KindDeployment || kind == tko.KindSite && !m.policy.Careful
}

// references returns an error if a manifest refers to an entity that is about to be deleted, or
// the site of an inventory to a template that doesn't exist. Others wait for what doesn't exist yet.
func (m *maker) references(ctx context.Context, w *manifest.Manifest) error {
	if w.Put.Parent != "" && m.leaving[key{tko.KindDeployment, string(w.Put.Parent)}] {
		return tko.Errorf(tko.ErrInvalid, "parent deployment %q: this revision removes it: keep its manifest, or remove this one, too", w.Put.Parent)
	}
	for _, ref := range []key{{tko.KindTemplate, string(w.Put.Template)}, {tko.KindSite, string(w.Put.Site)}} {
		if ref.name == "" || m.wanted[ref] != nil {
			continue
		}
		there, err := m.lookup(ctx, ref, "")
		if err != nil {
			return err
		}
		if there != nil && !m.leaving[ref] || there == nil && m.mayComeLater(w.Put.Kind) {
			continue
		}
		if there == nil || m.leaving[ref] {
			return tko.Errorf(tko.ErrInvalid, "%s %q: not found on the server or in this revision: add it, or name another", ref.kind, ref.name)
		}
	}
	return nil
}

// base returns the package of a template after the plan.
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

// packageOf returns the package of an entity that is made from a template.
func packageOf(base krm.Package, put tko.Put) (krm.Package, error) {
	if put.Whole {
		base = nil
	}
	return krm.Merge(base.Clone(), put.Package)
}

// try makes a dry run of an action: it reports whether the entity would change, or
// why it is invalid, as far as that is known before the other actions are applied.
func (m *maker) try(ctx context.Context, a *Action) (changed bool, err error) {
	if err := m.references(ctx, a.manifest); err != nil {
		return false, err
	}
	put := a.put
	put.DryRun, put.Marks = true, nil // marks make no difference: they are written with what does
	if put.Kind == tko.KindSite && m.moves(tko.KindTemplate, string(put.Template)) {
		// The template changes, too: merge the new one here.
		base, err := m.base(ctx, put.Template)
		if err != nil {
			return false, err
		}
		if put.Package, err = packageOf(base, put); err != nil {
			return false, err
		}
		put.Template, put.Whole = "", false
		result, err := m.client.PutEntity(ctx, put)
		a.retargets = result.ChangesTarget
		if err != nil || a.Verb != Adopt {
			return true, err
		}
		return m.differs(ctx, a)
	}
	result, err := m.client.PutEntity(ctx, put)
	a.retargets = result.ChangesTarget
	return result.Changed, err
}

// same reports whether an existing entity, which the source doesn't change, is as its
// manifest has it. One that can't be as in the manifest isn't.
func (m *maker) same(ctx context.Context, a *Action) (bool, error) {
	changed, err := m.try(ctx, a)
	if errors.Is(err, tko.ErrInvalid) {
		return false, nil
	}
	return err == nil && !changed, err
}

// differs reports whether an existing entity has another content than after the plan.
func (m *maker) differs(ctx context.Context, a *Action) (bool, error) {
	is, err := m.content(ctx, a)
	if err != nil {
		return false, err
	}
	will, err := m.next(ctx, a)
	if err != nil {
		return false, err
	}
	for range is.changes(will) {
		return true, nil
	}
	return false, nil
}

// moves reports whether the plan writes an entity in a way that affects entities
// that refer to it.
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

// actionForDeployment is actionFor for deployments, which are known by their origin.
func (m *maker) actionForDeployment(ctx context.Context, a *Action, item tko.SourceItem, there *entity) (*Action, error) {
	w := a.manifest
	if there != nil && item.Digest == w.Digest && there.site == w.Put.Site && there.template == w.Put.Template {
		return nil, m.references(ctx, w)
	}
	a.put.Origin, a.put.Defer = OriginOf(m.policy.Source, w.Name), true
	a.Verb = Create
	if there == nil && item.ID != "" {
		a.Reason = "it was deleted"
	}
	if err := m.references(ctx, w); err != nil {
		return nil, err
	}
	if there != nil && there.parent != w.Put.Parent {
		return nil, tko.Errorf(tko.ErrInvalid, "its parent is %q, and can't become %q: give the manifest another name, which makes another deployment", there.parent, w.Put.Parent)
	}
	base, err := m.base(ctx, w.Put.Template)
	if err != nil {
		return nil, err
	}
	merged, err := packageOf(base, w.Put)
	if err != nil {
		return nil, err
	}
	if there != nil {
		a.Verb, a.ID = Update, there.id
		if there.running {
			a.site = there.site
		}
		if item.Digest == w.Digest {
			a.Reason = "its template or site was changed"
		}
		a.put.Origin, a.put.ID, a.put.FromTemplate = "", there.id, true
		a.put.Package = merged.WithDeployment(string(w.Put.Template), string(w.Put.Site), false, false)
	}
	// The template may not be applied yet, so the merged package is validated. The template and the site decide whether the
	// source's owner may create the deployment.
	try := tko.Put{
		Kind: tko.KindDeployment, Origin: "try", Parent: w.Put.Parent, Template: w.Put.Template, Site: w.Put.Site, Metadata: w.Put.Metadata,
		Package: merged.WithDeployment(string(w.Put.Template), string(w.Put.Site), false, false), Whole: true, Defer: true, DryRun: true,
	}
	_, err = m.client.PutEntity(ctx, try)
	return a, err
}
