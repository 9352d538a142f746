package catalog

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
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	// pastPage is the number of entities that are compared at once: their packages, and
	// those of the page that is read meanwhile, are in memory.
	pastPage = 100
	// maxPastChanged is the maximum number of entities of which a difference
	// remembers the IDs.
	maxPastChanged = 2_000_000
)

// pastKinds are the kinds whose past can be selected.
var pastKinds = []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin}

// pastQuery returns the query of a selection.
func pastQuery(sel tko.PastSelect) (query record.Query, err error) {
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
		query, err = deploymentQuery(tko.DeploymentSelect{
			Parent: sel.Parent, Metadata: sel.Metadata, Templates: sel.Templates, TemplateMetadata: sel.TemplateMetadata,
			Sites: sel.Sites, SiteMetadata: sel.SiteMetadata,
		}, tko.ListOptions{})
	default:
		query, err = siteQuery(tko.SiteSelect{IDs: sel.IDs, Templates: sel.Templates, Metadata: sel.Metadata}, tko.ListOptions{})
		query.Kind = sel.Kind
	}
	if sel.ID != "" {
		if err := CheckKey(record.Key{Kind: sel.Kind, ID: sel.ID}); err != nil {
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

// A pastMoment is a moment of a comparison: it reads records as of a position, and
// knows which ones a query selected then.
type pastMoment struct {
	store    record.Past
	caller   *caller
	query    record.Query
	fields   record.Fields // of the records that it reads
	position int64
	sites    map[string]bool // with the metadata of the query; nil: all
	template map[string]bool
}

// momentAt returns the moment of a query at a position.
func (s *History) momentAt(ctx context.Context, c *caller, query record.Query, position int64) (*pastMoment, error) {
	m := &pastMoment{store: s.store, caller: c, query: query, fields: record.Fields{Package: true}, position: position}
	m.query.Scope, m.query.AsOf = c.view(), position
	related := func(kind tko.Kind, metadata map[string]tko.Pattern) (map[string]bool, error) {
		if len(metadata) == 0 {
			return nil, nil //nolint:nilnil // all
		}
		found := map[string]bool{}
		for r, err := range s.store.List(ctx, record.Query{Kind: kind, Metadata: metadata, Scope: m.query.Scope, Limit: -1, AsOf: position}) {
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

// selects reports whether the query selects a record as of the moment.
func (m *pastMoment) selects(r record.Record) bool {
	return r.Revision != 0 && m.query.Matches(r) && (m.sites == nil || m.sites[r.Site]) && (m.template == nil || m.template[r.Template])
}

// records returns the records of keys as of the moment.
func (m *pastMoment) records(ctx context.Context, keys []record.Key) ([]record.Record, error) {
	return m.store.GetAt(ctx, m.position, m.fields, keys...)
}

// changedSince returns the sorted IDs of the records of a kind that changed between two
// positions. It returns IDs of selected records only if the selection names one.
func (s *History) changedSince(ctx context.Context, query record.Query, from, to int64) ([]string, error) {
	changed := map[string]bool{}
	if len(query.IDs) == 1 && query.IDs[0].Exact() {
		return []string{query.IDs[0].Prefix()}, nil
	}
	for after := from; after < to; {
		changes, err := s.store.Changes(ctx, after, watchBatch)
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
		if len(changes) < watchBatch {
			break
		}
		if len(changed) > maxPastChanged {
			return nil, tko.Errorf(tko.ErrInvalid, "more than %d entities changed between the positions %d and %d: compare moments that are closer", maxPastChanged, from, to)
		}
	}
	return slices.Sorted(maps.Keys(changed)), nil
}

// A difference is an entity as of two moments; a Revision of 0 means that it didn't
// exist.
type difference struct{ before, after record.Record }

func (d difference) what() string {
	switch {
	case d.before.Revision == 0:
		return tko.PastCreated
	case d.after.Revision == 0:
		return tko.PastDeleted
	}
	return tko.PastChanged
}

// differences calls visit with the entities that a selection selects at either moment
// and that differ, sorted by ID.
func (s *History) differences(ctx context.Context, c *caller, from, to *pastMoment, visit func(difference) error) error {
	ids, err := s.changedSince(ctx, from.query, from.position, to.position)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	pages := slices.Collect(slices.Chunk(ids, pastPage))
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
	list []difference
	err  error
}

// readDifferences reads the entities with IDs as of both moments, and returns those that
// are selected and differ.
func (s *History) readDifferences(ctx context.Context, c *caller, from, to *pastMoment, ids []string) (page pageOfDifferences) {
	keys := record.Keys(ids, func(id string) record.Key { return record.Key{Kind: from.query.Kind, ID: id} })
	before, err := from.records(ctx, keys)
	if err != nil {
		return pageOfDifferences{err: err}
	}
	after, err := to.records(ctx, keys)
	if err != nil {
		return pageOfDifferences{err: err}
	}
	now := make([]record.Record, len(keys))
	if !c.view().IsAll() {
		if now, err = s.store.Get(ctx, record.Fields{}, keys...); err != nil {
			return pageOfDifferences{err: err}
		}
	}
	for i := range keys {
		d := difference{before[i], after[i]}
		hidden := slices.ContainsFunc([]record.Record{d.before, d.after, now[i]}, func(r record.Record) bool { return r.Revision != 0 && !c.sees(r) })
		if hidden || !from.selects(d.before) && !to.selects(d.after) || d.before.Revision == d.after.Revision && d.before.UID == d.after.UID {
			continue
		}
		if d.before.Revision != 0 && d.after.Revision != 0 && sameContent(d.before, d.after) {
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
	return stream(func(yield func(tko.PastGroup) bool) error {
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
	query, err := pastQuery(request.Select)
	if err != nil {
		return nil, err
	}
	ctx, c, err := s.enter(ctx, query.Kind, access.Read)
	if err != nil {
		return nil, err
	}
	types, mask, err := s.differ(ctx)
	if err != nil {
		return nil, err
	}
	grouper := plan.NewGrouper(types, mask)
	add := func(d difference) error {
		before, err := comparablePackage(d.before)
		if err != nil {
			return err
		}
		after, err := comparablePackage(d.after)
		if err != nil {
			return err
		}
		row := plan.Row{Deployment: tko.DeploymentID(d.before.ID), Kind: plan.Change}
		tokens := tokensOf(d.before)
		switch d.what() {
		case tko.PastCreated:
			row.Deployment, row.Kind, tokens = tko.DeploymentID(d.after.ID), plan.Create, tokensOf(d.after)
		case tko.PastDeleted:
			row.Kind = plan.Delete
		default:
			if d.after.Site != d.before.Site {
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
		if first, last, err = s.momentsOf(ctx, query.Kind, request.Select.ID != "", request.From, request.To); err != nil {
			return nil, err
		}
		var from, to *pastMoment
		if from, err = s.momentAt(ctx, c, query, first); err != nil {
			return nil, err
		}
		if to, err = s.momentAt(ctx, c, query, last); err != nil {
			return nil, err
		}
		err = s.differences(ctx, c, from, to, add)
	}
	if err != nil {
		return nil, err
	}
	found, _ := grouper.Finish()
	groups := make([]tko.PastGroup, len(found))
	for i, g := range found {
		what := map[plan.Kind]string{plan.Create: tko.PastCreated, plan.Delete: tko.PastDeleted, plan.Change: tko.PastChanged}[g.Kind]
		groups[i] = tko.PastGroup{What: what, Count: g.Count, Changes: shownChanges(g.Changes), More: g.More, Coarse: g.Coarse}
		for _, id := range g.Examples {
			groups[i].Examples = append(groups[i].Examples, string(id))
		}
	}
	return groups, nil
}

// diffRevisions compares two revisions of an entity; 0 is the current one.
func (s *History) diffRevisions(ctx context.Context, c *caller, request tko.DiffRequest, add func(difference) error) error {
	if request.Select.ID == "" || !request.From.IsZero() || !request.To.IsZero() {
		return tko.Errorf(tko.ErrInvalid, "revisions are of one entity: name it, without moments of the past")
	}
	key := record.Key{Kind: request.Select.Kind, ID: request.Select.ID}
	before, err := s.atOf(ctx, c, key, request.FromRevision)
	if err != nil {
		return err
	}
	after, err := s.atOf(ctx, c, key, request.ToRevision)
	if err != nil {
		return err
	}
	return add(difference{before, after})
}
