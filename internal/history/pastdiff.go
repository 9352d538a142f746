package history

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	// Page is the number of entities that are compared at once: their packages, and
	// those of the page that is read meanwhile, are in memory.
	Page = 100
	// maxPastChanged is the maximum number of entities of which a difference
	// remembers the IDs.
	maxPastChanged = 2_000_000
)

// pastKinds are the kinds whose past can be selected.
var pastKinds = []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin}

// QueryOf returns the query of a selection.
func QueryOf(sel tko.PastSelect) (query record.Query, err error) {
	bad := func(what string) error {
		return tko.Errorf(tko.ErrInvalid, "%ss can't be selected by %s", sel.Kind, what)
	}
	if !slices.Contains(pastKinds, sel.Kind) {
		return record.Query{}, tko.Errorf(tko.ErrInvalid, "there is no kind %.40q: use template, site, deployment or plugin", string(sel.Kind))
	}
	if sel.Kind != tko.KindDeployment && (len(sel.Sites)+len(sel.SiteMetadata)+len(sel.TemplateMetadata) > 0 || sel.Parent != "") {
		return record.Query{}, bad("sites, parents, or the metadata of templates")
	}
	if sel.Kind != tko.KindDeployment && sel.Kind != tko.KindSite && len(sel.Templates) > 0 {
		return record.Query{}, bad("templates")
	}
	if sel.Kind == tko.KindDeployment && len(sel.IDs) > 0 {
		return record.Query{}, bad("patterns of IDs")
	}
	switch sel.Kind {
	case tko.KindDeployment:
		query, err = criteria.Deployments(tko.DeploymentSelect{
			Parent: sel.Parent, Metadata: sel.Metadata, Templates: sel.Templates, TemplateMetadata: sel.TemplateMetadata,
			Sites: sel.Sites, SiteMetadata: sel.SiteMetadata,
		}, tko.ListOptions{})
	default:
		query, err = criteria.Sites(tko.SiteSelect{IDs: sel.IDs, Templates: sel.Templates, Metadata: sel.Metadata}, tko.ListOptions{})
		query.Kind = sel.Kind
	}
	if sel.ID != "" {
		if err := record.CheckKey(record.Key{Kind: sel.Kind, ID: sel.ID}); err != nil {
			return record.Query{}, err
		}
		exact, err := tko.ParsePattern(tko.LiteralPattern(sel.ID))
		if err != nil {
			return record.Query{}, err
		}
		query.IDs = append(query.IDs, exact)
	}
	query.Fields = record.Fields{}
	return query, err
}

// A Moment is a moment of a comparison: it reads records as of a position, and
// knows which ones a query selected then.
type Moment struct {
	store    record.Past
	caller   *rights.Caller
	Query    record.Query
	Fields   record.Fields // of the records that it reads
	Position int64
	sites    map[string]bool // with the metadata of the query; nil: all
	template map[string]bool
}

// MomentAt returns the moment of a query at a position.
func (s *Moments) MomentAt(ctx context.Context, c *rights.Caller, query record.Query, position int64) (*Moment, error) {
	m := &Moment{store: s.store, caller: c, Query: query, Fields: record.Fields{Package: true}, Position: position}
	m.Query.Scope, m.Query.AsOf = c.View(), position
	related := func(kind tko.Kind, metadata map[string]tko.Pattern) (map[string]bool, error) {
		if len(metadata) == 0 {
			return nil, nil //nolint:nilnil // all
		}
		found := map[string]bool{}
		for r, err := range s.store.List(ctx, record.Query{Kind: kind, Metadata: metadata, Scope: m.Query.Scope, Limit: -1, AsOf: position}) {
			if err != nil {
				return nil, err
			}
			found[r.ID] = true
		}
		return found, nil
	}
	var err error
	if m.sites, err = related(tko.KindSite, query.SiteMetadata); err == nil {
		m.template, err = related(tko.KindTemplate, query.TemplateMetadata)
	}
	return m, err
}

// Selects reports whether the query selects a record as of the moment.
func (m *Moment) Selects(r record.Record) bool {
	return r.Revision != 0 && m.Query.Matches(r) && (m.sites == nil || m.sites[r.Site]) && (m.template == nil || m.template[r.Template])
}

// Records returns the records of keys as of the moment.
func (m *Moment) Records(ctx context.Context, keys []record.Key) ([]record.Record, error) {
	return m.store.GetAt(ctx, m.Position, m.Fields, keys...)
}

// changesPage is the number of changes that are read at once.
const changesPage = 1000

// changedSince returns the sorted IDs of the records of a kind that changed between two
// positions. It returns IDs of selected records only if the selection names one.
func (s *Moments) changedSince(ctx context.Context, query record.Query, from, to int64) ([]string, error) {
	changed := map[string]bool{}
	if len(query.IDs) == 1 && query.IDs[0].Exact() {
		return []string{query.IDs[0].Prefix()}, nil
	}
	for after := from; after < to; {
		changes, err := s.store.Changes(ctx, after, changesPage)
		if err != nil {
			return nil, err
		}
		for _, c := range changes {
			after = c.Position
			if after > to {
				break
			}
			if c.Kind == query.Kind && c.Op != tko.OpStatus {
				changed[c.ID] = true
			}
		}
		if len(changes) < changesPage {
			break
		}
		if len(changed) > maxPastChanged {
			return nil, tko.Errorf(tko.ErrInvalid, "more than %d entities changed between the positions %d and %d: compare moments that are closer", maxPastChanged, from, to)
		}
	}
	return slices.Sorted(maps.Keys(changed)), nil
}

// A Difference is an entity as of two moments; a Revision of 0 means that it didn't
// exist.
type Difference struct{ Before, After record.Record }

// What returns whether the entity was created, deleted or changed between the moments.
func (d Difference) What() string {
	switch {
	case d.Before.Revision == 0:
		return tko.PastCreated
	case d.After.Revision == 0:
		return tko.PastDeleted
	}
	return tko.PastChanged
}

// Differences calls visit with the entities that a selection selects at either moment
// and that differ, sorted by ID.
func (s *Moments) Differences(ctx context.Context, c *rights.Caller, from, to *Moment, visit func(Difference) error) error {
	ids, err := s.changedSince(ctx, from.Query, from.Position, to.Position)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	pages := slices.Collect(slices.Chunk(ids, Page))
	read := func(page []string) <-chan pageOfDifferences {
		result := make(chan pageOfDifferences, 1)
		reading.Go(func() { result <- s.readDifferences(ctx, c, from, to, page) })
		return result
	}
	var next <-chan pageOfDifferences
	for i := range pages {
		if i == 0 {
			next = read(pages[0])
		}
		page := <-next
		if page.err != nil {
			return page.err
		}
		if i+1 < len(pages) { // while this one is visited
			next = read(pages[i+1])
		}
		for _, d := range page.list {
			if err := visit(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// A pageOfDifferences is those of a part of the entities that changed.
type pageOfDifferences struct {
	list []Difference
	err  error
}

// readDifferences reads the entities with IDs as of both moments, and returns those that
// are selected and differ.
func (s *Moments) readDifferences(ctx context.Context, c *rights.Caller, from, to *Moment, ids []string) (page pageOfDifferences) {
	keys := record.Keys(ids, func(id string) record.Key { return record.Key{Kind: from.Query.Kind, ID: id} })
	before, err := from.Records(ctx, keys)
	if err != nil {
		return pageOfDifferences{err: err}
	}
	after, err := to.Records(ctx, keys)
	if err != nil {
		return pageOfDifferences{err: err}
	}
	now := make([]record.Record, len(keys))
	if !c.View().IsAll() {
		if now, err = s.store.Get(ctx, record.Fields{}, keys...); err != nil {
			return pageOfDifferences{err: err}
		}
	}
	for i := range keys {
		d := Difference{before[i], after[i]}
		hidden := slices.ContainsFunc([]record.Record{d.Before, d.After, now[i]}, func(r record.Record) bool { return r.Revision != 0 && !c.Sees(r) })
		if hidden || !from.Selects(d.Before) && !to.Selects(d.After) || d.Before.Revision == d.After.Revision && d.Before.UID == d.After.UID {
			continue
		}
		if d.Before.Revision != 0 && d.After.Revision != 0 && record.SameContent(d.Before, d.After) {
			continue
		}
		page.list = append(page.list, d)
	}
	return page
}

// comparablePackage returns the content of a record as a package: its package, and a resource
// with its properties. It is nil if the record doesn't exist.
func comparablePackage(r record.Record) (krm.Package, error) {
	if r.Revision == 0 {
		return nil, nil
	}
	properties := map[string]any{}
	texts := map[string]any{}
	for key, value := range r.Effective() {
		texts[key] = value
	}
	if len(texts) > 0 {
		properties["metadata"] = texts
	}
	for name, value := range map[string]string{"parentDeploymentId": r.Parent, "templateId": r.Template, "siteId": r.Site} {
		if value != "" && (r.Kind != tko.KindDeployment || name == "parentDeploymentId") { // the Deployment resource has the others
			properties[name] = value
		}
	}
	for _, f := range tko.DetailFields() {
		if text := *f.In(&r.Details); text != "" {
			properties[f.Name] = text
		}
	}
	if r.Kind == tko.KindPlugin {
		if err := json.Unmarshal(r.Plugin, &properties); err != nil {
			return nil, fmt.Errorf("plugin %q: %w", r.ID, err)
		}
		return krm.Package{propertiesOf(r, properties)}, nil
	}
	pkg, err := r.Resources()
	if err != nil {
		return nil, err
	}
	if len(properties) == 0 {
		return pkg, nil
	}
	return append(slices.Clip(pkg), propertiesOf(r, properties)), nil
}

// propertiesOf returns the resource that shows the properties of a record.
func propertiesOf(r record.Record, properties map[string]any) krm.Resource {
	return krm.Resource{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Properties",
		"metadata": map[string]any{"name": string(r.Kind)}, "spec": properties,
	}
}

// tokensOf returns the texts that are a record's own, with their placeholders: entities
// that differ in nothing else are in one group.
func tokensOf(r record.Record) map[string]string {
	tokens := map[string]string{r.ID: "(" + string(r.Kind) + ")"}
	if r.Kind == tko.KindDeployment && r.Site != "" {
		tokens[r.Site] = "(site)"
	}
	return tokens
}

// DiffPast returns what differs between two moments, in groups of entities with equal
// differences. Values of Secrets are not shown.
func (s *History) DiffPast(ctx context.Context, request tko.DiffRequest) iter.Seq2[tko.PastGroup, error] {
	return record.Stream(func(yield func(tko.PastGroup) bool) error {
		groups, err := s.diffPast(ctx, request)
		for _, g := range groups {
			if !yield(g) {
				break
			}
		}
		return err
	})
}

func (s *History) diffPast(ctx context.Context, request tko.DiffRequest) ([]tko.PastGroup, error) {
	query, err := QueryOf(request.Select)
	if err != nil {
		return nil, err
	}
	ctx, c, err := s.rights.Enter(ctx, query.Kind, access.Read)
	if err != nil {
		return nil, err
	}
	types, mask, err := s.differ(ctx)
	if err != nil {
		return nil, err
	}
	grouper := plan.NewGrouper(types, mask)
	add := func(d Difference) error {
		before, err := comparablePackage(d.Before)
		if err != nil {
			return err
		}
		after, err := comparablePackage(d.After)
		if err != nil {
			return err
		}
		row := plan.Row{Deployment: tko.DeploymentID(d.Before.ID), Kind: plan.Change}
		tokens := tokensOf(d.Before)
		switch d.What() {
		case tko.PastCreated:
			row.Deployment, row.Kind, tokens = tko.DeploymentID(d.After.ID), plan.Create, tokensOf(d.After)
		case tko.PastDeleted:
			row.Kind = plan.Delete
		default:
			if d.After.Site != d.Before.Site {
				tokens = nil
			}
			if !grouper.Differs(before, after) {
				return nil
			}
		}
		grouper.Add(row, before, after, tokens)
		return nil
	}
	if request.FromRevision != 0 || request.ToRevision != 0 {
		err = s.diffRevisions(ctx, c, request, add)
	} else {
		var first, last int64
		if request.From.IsZero() {
			return nil, tko.Errorf(tko.ErrInvalid, "there is no moment to compare with: name one (--from), or revisions of one entity")
		}
		if first, last, err = s.moments.MomentsOf(ctx, query.Kind, request.Select.ID != "", request.From, request.To); err != nil {
			return nil, err
		}
		var from, to *Moment
		if from, err = s.moments.MomentAt(ctx, c, query, first); err != nil {
			return nil, err
		}
		if to, err = s.moments.MomentAt(ctx, c, query, last); err != nil {
			return nil, err
		}
		err = s.moments.Differences(ctx, c, from, to, add)
	}
	if err != nil {
		return nil, err
	}
	found, _ := grouper.Finish()
	groups := make([]tko.PastGroup, len(found))
	for i, g := range found {
		what := map[plan.Kind]string{plan.Create: tko.PastCreated, plan.Delete: tko.PastDeleted, plan.Change: tko.PastChanged}[g.Kind]
		groups[i] = tko.PastGroup{What: what, Count: g.Count, Changes: plan.Shown(g.Changes), More: g.More, Coarse: g.Coarse}
		for _, id := range g.Examples {
			groups[i].Examples = append(groups[i].Examples, string(id))
		}
	}
	return groups, nil
}

// diffRevisions compares two revisions of an entity; 0 is the current one.
func (s *History) diffRevisions(ctx context.Context, c *rights.Caller, request tko.DiffRequest, add func(Difference) error) error {
	if request.Select.ID == "" || !request.From.IsZero() || !request.To.IsZero() {
		return tko.Errorf(tko.ErrInvalid, "revisions are of one entity: name it, without moments of the past")
	}
	key := record.Key{Kind: request.Select.Kind, ID: request.Select.ID}
	before, err := s.rights.AtOf(ctx, c, key, request.FromRevision)
	if err != nil {
		return err
	}
	after, err := s.rights.AtOf(ctx, c, key, request.ToRevision)
	if err != nil {
		return err
	}
	return add(Difference{before, after})
}
