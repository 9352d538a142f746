package catalog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	threeway "github.com/tko-orchestrator/tko/internal/rollout/merge"
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
func pastQuery(sel tko.PastSelect) (query Query, err error) {
	bad := func(what string) error {
		return tko.Errorf(tko.ErrInvalid, "%ss can't be selected by %s", sel.Kind, what)
	}
	if !slices.Contains(pastKinds, sel.Kind) {
		return Query{}, tko.Errorf(tko.ErrInvalid, "there is no kind %.40q: use template, site, deployment or plugin", string(sel.Kind))
	}
	if sel.Kind != tko.KindDeployment && (len(sel.Sites)+len(sel.SiteMetadata)+len(sel.TemplateMetadata) > 0 || sel.Parent != "") {
		return Query{}, bad("sites, parents, or the metadata of templates")
	}
	if sel.Kind != tko.KindDeployment && sel.Kind != tko.KindSite && len(sel.Templates) > 0 {
		return Query{}, bad("templates")
	}
	if sel.Kind == tko.KindDeployment && len(sel.IDs) > 0 {
		return Query{}, bad("patterns of IDs")
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
		if err := CheckKey(Key{Kind: sel.Kind, ID: sel.ID}); err != nil {
			return Query{}, err
		}
		exact, err := tko.ParsePattern(tko.LiteralPattern(sel.ID))
		if err != nil {
			return Query{}, err
		}
		query.IDs = append(query.IDs, exact)
	}
	query.Fields = Fields{}
	return query, err
}

// A pastMoment is a moment of a comparison: it reads records as of a position, and
// knows which ones a query selected then.
type pastMoment struct {
	service  *Service
	caller   *caller
	query    Query
	fields   Fields // of the records that it reads
	position int64
	sites    map[string]bool // with the metadata of the query; nil: all
	template map[string]bool
}

// momentAt returns the moment of a query at a position.
func (s *Service) momentAt(ctx context.Context, c *caller, query Query, position int64) (*pastMoment, error) {
	m := &pastMoment{service: s, caller: c, query: query, fields: Fields{Package: true}, position: position}
	m.query.Scope, m.query.AsOf = c.view(s), position
	related := func(kind tko.Kind, metadata map[string]tko.Pattern) (map[string]bool, error) {
		if len(metadata) == 0 {
			return nil, nil //nolint:nilnil // all
		}
		found := map[string]bool{}
		for r, err := range s.store.List(ctx, Query{Kind: kind, Metadata: metadata, Scope: m.query.Scope, Limit: -1, AsOf: position}) {
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
func (m *pastMoment) selects(r Record) bool {
	return r.Revision != 0 && m.query.Matches(r) && (m.sites == nil || m.sites[r.Site]) && (m.template == nil || m.template[r.Template])
}

// records returns the records of keys as of the moment.
func (m *pastMoment) records(ctx context.Context, keys []Key) ([]Record, error) {
	return m.service.store.GetAt(ctx, m.position, m.fields, keys...)
}

// changedSince returns the sorted IDs of the records of a kind that changed between two
// positions. It returns IDs of selected records only if the selection names one.
func (s *Service) changedSince(ctx context.Context, query Query, from, to int64) ([]string, error) {
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
			if after = c.Position; after > to {
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
type difference struct{ before, after Record }

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
func (s *Service) differences(ctx context.Context, c *caller, from, to *pastMoment, visit func(difference) error) error {
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
func (s *Service) readDifferences(ctx context.Context, c *caller, from, to *pastMoment, ids []string) (page pageOfDifferences) {
	keys := keysOf(ids, func(id string) Key { return Key{Kind: from.query.Kind, ID: id} })
	before, err := from.records(ctx, keys)
	if err != nil {
		return pageOfDifferences{err: err}
	}
	after, err := to.records(ctx, keys)
	if err != nil {
		return pageOfDifferences{err: err}
	}
	now := make([]Record, len(keys))
	if !c.view(s).IsAll() {
		if now, err = s.store.Get(ctx, Fields{}, keys...); err != nil {
			return pageOfDifferences{err: err}
		}
	}
	for i := range keys {
		d := difference{before[i], after[i]}
		hidden := slices.ContainsFunc([]Record{d.before, d.after, now[i]}, func(r Record) bool { return r.Revision != 0 && !c.sees(s, r) })
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
func comparablePackage(r Record) (krm.Package, error) {
	if r.Revision == 0 {
		return nil, nil
	}
	properties := map[string]any{}
	texts := map[string]any{}
	for key, value := range r.effective() {
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
func propertiesOf(r Record, properties map[string]any) krm.Resource {
	return krm.Resource{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Properties",
		"metadata": map[string]any{"name": string(r.Kind)}, "spec": properties,
	}
}

// tokensOf returns the texts that are a record's own, with their placeholders: entities
// that differ in nothing else are in one group.
func tokensOf(r Record) map[string]string {
	tokens := map[string]string{r.ID: "(" + string(r.Kind) + ")"}
	if r.Kind == tko.KindDeployment && r.Site != "" {
		tokens[r.Site] = "(site)"
	}
	return tokens
}

// momentsOf returns the positions of a range of moments; zero is the oldest one and now.
// Of a single entity of the kind (alone), moments before the oldest one are allowed: whether its
// state is retained is known when it is read.
func (s *Service) momentsOf(ctx context.Context, kind tko.Kind, alone bool, from, to tko.AsOf) (first, last int64, err error) {
	oldest, newest, err := s.store.Past(ctx)
	if err != nil {
		return 0, 0, err
	}
	first, last = oldest.Position, newest.Position
	if !from.IsZero() {
		if first, err = s.positionOf(ctx, from); err != nil {
			return 0, 0, err
		}
	}
	if !to.IsZero() {
		if last, err = s.positionOf(ctx, to); err != nil {
			return 0, 0, err
		}
	}
	switch {
	case first > newest.Position || last > newest.Position:
		err = tko.Errorf(tko.ErrInvalid, "the position %d is beyond the newest change, which is %d", max(first, last), newest.Position)
	case first > last:
		err = tko.Errorf(tko.ErrInvalid, "the position %d is after the position %d: swap them", first, last)
	case first < oldest.Position && !alone:
		err = s.orAlone(ctx, kind, tko.Errorf(tko.ErrGone, "changes after the position %d are no longer retained: the oldest position is %d, of %s", first, oldest.Position, oldest.Time.Format(time.RFC3339Nano)))
	}
	return first, last, err
}

// listFault returns the error of a list of the store.
func (s *Service) listFault(ctx context.Context, query Query, err error) error {
	if query.AsOf != 0 && errors.Is(err, tko.ErrGone) {
		return s.orAlone(ctx, query.Kind, err)
	}
	return err
}

// orAlone adds to an error because a state is no longer retained that policies retain that
// of single deployments.
func (s *Service) orAlone(ctx context.Context, kind tko.Kind, gone error) error {
	if kind != tko.KindDeployment {
		return gone
	}
	size, err := s.store.HistorySize(ctx)
	if err != nil || len(size.Longer) == 0 {
		return gone
	}
	var deployments int64
	for _, l := range size.Longer {
		deployments += l.Deployments
	}
	return fmt.Errorf("%w; policies retain older states of %d deployments, which can be read, compared and restored one by one: name the deployment's ID", gone, deployments)
}

// DiffPast returns what differs between two moments, in groups of entities with equal
// differences. Values of Secrets are not shown.
func (s *Service) DiffPast(ctx context.Context, request tko.DiffRequest) iter.Seq2[tko.PastGroup, error] {
	return func(yield func(tko.PastGroup, error) bool) {
		groups, err := s.diffPast(ctx, request)
		if err != nil {
			yield(tko.PastGroup{}, err)
			return
		}
		for _, g := range groups {
			if !yield(g, nil) {
				return
			}
		}
	}
}

func (s *Service) diffPast(ctx context.Context, request tko.DiffRequest) ([]tko.PastGroup, error) {
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
		groups[i] = tko.PastGroup{What: what, Count: g.Count, More: g.More, Coarse: g.Coarse}
		for _, id := range g.Examples {
			groups[i].Examples = append(groups[i].Examples, string(id))
		}
		for _, l := range g.Changes {
			groups[i].Changes = append(groups[i].Changes, tko.RolloutChange(l))
		}
	}
	return groups, nil
}

// differ returns what packages are compared by: types, and a random key that masks
// confidential values.
func (s *Service) differ(ctx context.Context) (threeway.Types, []byte, error) {
	rules, err := s.rulesFor(ctx, new(readSet))
	if err != nil {
		return nil, nil, err
	}
	mask := make([]byte, 32)
	_, err = rand.Read(mask)
	return rules.types(), mask, err
}

// diffRevisions compares two revisions of an entity; 0 is the current one.
func (s *Service) diffRevisions(ctx context.Context, c *caller, request tko.DiffRequest, add func(difference) error) error {
	if request.Select.ID == "" || !request.From.IsZero() || !request.To.IsZero() {
		return tko.Errorf(tko.ErrInvalid, "revisions are of one entity: name it, without moments of the past")
	}
	key := Key{Kind: request.Select.Kind, ID: request.Select.ID}
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

// Retention returns which part of the past can be read, and what it takes.
func (s *Service) Retention(ctx context.Context) (tko.Retention, error) {
	if _, _, err := s.enter(ctx, tko.KindDeployment, access.Read); err != nil {
		return tko.Retention{}, err
	}
	oldest, newest, err := s.store.Past(ctx)
	if err != nil {
		return tko.Retention{}, err
	}
	size, err := s.store.HistorySize(ctx)
	r := tko.Retention{
		OldestPosition: oldest.Position, OldestTime: oldest.Time, NewestPosition: newest.Position, NewestTime: newest.Time,
		Changes: size.Changes, Bytes: size.Bytes, DatabaseBytes: size.DatabaseBytes,
	}
	if keep := s.retention.Load(); keep != nil {
		r.KeepChanges, r.KeepRevisions = keep.Changes, keep.Revisions
		for _, l := range keep.Longer {
			r.Longer = append(r.Longer, tko.RetentionPolicy{Name: l.Name, Keep: l.Keep})
		}
	}
	for _, l := range size.Longer {
		i := slices.IndexFunc(r.Longer, func(p tko.RetentionPolicy) bool { return p.Name == l.Policy })
		if i < 0 { // another server has it, or the next collection removes what it retains
			r.Longer = append(r.Longer, tko.RetentionPolicy{Name: l.Policy})
			i = len(r.Longer) - 1
		}
		r.Longer[i].Deployments, r.Longer[i].Changes, r.Longer[i].Bytes = l.Deployments, l.Changes, l.Bytes
	}
	return r, err
}

// HistoryOf returns the changes of the selected entities, newest first. An entity is
// selected by what it was after the change, or before it was deleted.
func (s *Service) HistoryOf(ctx context.Context, request tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error] {
	return func(yield func(tko.HistoryEntry, error) bool) {
		if err := s.history(ctx, request, yield); err != nil {
			yield(tko.HistoryEntry{}, err)
		}
	}
}

// historyPage is the number of changes that are read at once.
const historyPage = 200

func (s *Service) history(ctx context.Context, request tko.HistoryRequest, yield func(tko.HistoryEntry, error) bool) error {
	query, err := pastQuery(request.Select)
	if err != nil {
		return err
	}
	ctx, c, err := s.enter(ctx, query.Kind, access.Read)
	if err != nil {
		return err
	}
	query.Scope = c.view(s)
	alone := request.Select.ID != ""
	first, last, err := s.momentsOf(ctx, query.Kind, alone, request.From, request.To)
	if err != nil {
		return err
	}
	if alone {
		if request.From.IsZero() {
			first = 0 // as far as its revisions are retained
		} else if _, err := s.store.GetAt(ctx, first, Fields{}, Key{Kind: query.Kind, ID: request.Select.ID}); err != nil {
			return err
		}
	}
	types, mask, err := s.differ(ctx)
	if err != nil {
		return err
	}
	sites := relation{service: s, caller: c, kind: tko.KindSite, metadata: query.SiteMetadata, known: map[string]relationSpan{}}
	templates := relation{service: s, caller: c, kind: tko.KindTemplate, metadata: query.TemplateMetadata, known: map[string]relationSpan{}}
	sent, next := 0, int64(-1) // the revision of the next change of a single entity; -1: any
	for before := last + 1; ; {
		changes, err := s.store.History(ctx, HistoryQuery{Kind: query.Kind, ID: request.Select.ID, After: first, Before: before, Limit: historyPage})
		if err != nil {
			return err
		}
		for _, change := range changes {
			before = change.Position
			if err := ctx.Err(); err != nil {
				return err
			}
			if alone {
				if next >= 0 && change.Revision != next {
					return nil // earlier ones are no longer retained, except for some
				}
				if next = change.Revision; change.Op == tko.OpWritten {
					next--
				}
			}
			d, err := s.around(ctx, change)
			if err != nil {
				return err
			}
			r := d.after
			if r.Revision == 0 {
				r = d.before
			}
			if r.Revision != 0 && (!c.sees(s, r) || !query.Matches(r)) || r.Revision == 0 && !query.Scope.IsAll() {
				continue
			}
			related, err := sites.matches(ctx, r.Site, change.Position)
			if err == nil && related {
				related, err = templates.matches(ctx, r.Template, change.Position)
			}
			if err != nil {
				return err
			}
			if !related {
				continue
			}
			e := tko.HistoryEntry{Change: change, What: d.what()}
			if d.before.Revision == 0 || c.sees(s, d.before) { // else its values are hidden
				e.Summary = summary(d, types, mask)
			}
			switch {
			case change.Op == tko.OpDeleted:
				e.What = tko.PastDeleted
			case alone && d.before.Revision == 0 && change.Revision > 1 && !d.after.Created.Equal(change.Time):
				e.What, e.Summary = tko.PastChanged, "the revision before is no longer retained"
			}
			if !yield(e, nil) {
				return nil
			}
			if sent++; sent == request.Max {
				return nil
			}
		}
		if len(changes) < historyPage {
			return nil
		}
	}
}

// A relation selects changes of deployments by the metadata that their sites or templates
// had at the change.
type relation struct {
	service  *Service
	caller   *caller
	kind     tko.Kind
	metadata map[string]tko.Pattern // none: all match
	known    map[string]relationSpan
}

// A relationSpan is a range of positions in which a record didn't change.
type relationSpan struct {
	from, to int64
	matches  bool
}

// matches reports whether a record matched as of a position. Calls with decreasing
// positions read each revision once.
func (l *relation) matches(ctx context.Context, id string, position int64) (bool, error) {
	if len(l.metadata) == 0 {
		return true, nil
	}
	if id == "" {
		return false, nil
	}
	if span, ok := l.known[id]; ok && span.from <= position && position <= span.to {
		return span.matches, nil
	}
	records, err := l.service.store.GetAt(ctx, position, Fields{}, Key{Kind: l.kind, ID: id})
	if err != nil {
		return false, err
	}
	r, span := records[0], relationSpan{from: position, to: position}
	if r.Revision != 0 {
		span.from = r.Position
		span.matches = l.caller.sees(l.service, r) && (&Query{Kind: l.kind, Scope: l.caller.view(l.service), Metadata: l.metadata}).Matches(r)
	}
	l.known[id] = span
	return span.matches, nil
}

// around returns a record before and after a change, as far as it is retained.
func (s *Service) around(ctx context.Context, change tko.Change) (difference, error) {
	key := Key{Kind: change.Kind, ID: change.ID}
	revision := func(n int64) (Record, error) {
		r, err := s.store.Revision(ctx, key, n)
		if n == 0 || errors.Is(err, tko.ErrNotFound) {
			return Record{Key: key}, nil
		}
		return r, err
	}
	if change.Op == tko.OpDeleted {
		r, err := revision(change.Revision)
		return difference{before: r, after: Record{Key: key}}, err
	}
	after, err := revision(change.Revision)
	if err != nil {
		return difference{}, err
	}
	before, err := revision(change.Revision - 1)
	if before.UID != after.UID {
		before = Record{Key: key}
	}
	return difference{before, after}, err
}

// summary returns what a change changed, in one line.
func summary(d difference, types threeway.Types, mask []byte) string {
	switch d.what() {
	case tko.PastDeleted:
		return ""
	case tko.PastCreated:
		text := ""
		if d.after.Template != "" {
			text = fmt.Sprintf("from template %q", d.after.Template)
		}
		if d.after.Site != "" {
			text += fmt.Sprintf(" at site %q", d.after.Site)
		}
		return text
	}
	before, err := comparablePackage(d.before)
	if err != nil {
		return err.Error()
	}
	after, err := comparablePackage(d.after)
	if err != nil {
		return err.Error()
	}
	lines := plan.Lines(before, after, types, mask)
	if len(lines) == 0 {
		return "nothing but its revision"
	}
	l := lines[0]
	text := l.Resource
	if l.Path != "" {
		text += " " + l.Path
	}
	text += ": " + short(l.Before) + " -> " + short(l.After)
	if more := len(lines) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// short returns the beginning of a value for a line.
func short(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
