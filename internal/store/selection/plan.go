package selection

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

const (
	// maxPairs is the maximum number of entries of the metadata dictionary that a
	// pattern may match for the index to be used at once.
	maxPairs = 1000
	// maxSets is the maximum number of shared metasets with a key that are read at
	// once.
	maxSets = 2000
	// maxMerged is the maximum number of index ranges that are merged before
	// another path is tried.
	maxMerged = 300
	// maxProbed is the maximum number of entries of the metadata index that are
	// probed for each record.
	maxProbed = 16
	// maxCounted is the maximum number of records that are counted to find the
	// shortest access path.
	maxCounted = 2000
)

// A Plan describes how a query is executed: the conditions on records, and the
// access paths to records that fulfil some of the conditions. An access path is an
// index that has the IDs of records in their order.
//
// The statistics of the database can't tell which access path is the shortest: they
// may be old, and describe averages. So statements force the database's planner to
// use one access path (the other conditions are hidden from it). A cursor chooses
// the path for each range of IDs, by how far each path leads.
type Plan struct {
	dialect *sqldb.Dialect
	query   *record.Query
	run     sqldb.Runner

	empty    bool // no record can match
	low      bound
	high     bound
	filters  []filter
	residual []residualFilter // conditions that the database can't check
}

// A filter is a condition on records, with its access paths.
type filter struct {
	// hidden is the condition in a form for which the planner uses no index. If it
	// is nil, the condition is in residual.
	hidden Condition
	path   *accessPath
	paths  *accessPaths
	// find returns access paths that are expensive to find.
	find func(ctx context.Context) (*accessPaths, error)
}

// An accessPath is an index that has the IDs of some records in their order.
type accessPath struct {
	table    string
	id       string
	where    []Condition
	idsOnly  bool // the table has no other columns of the records
	prefixed bool // the index contains only a prefix of IDs, by which it is ordered
}

// accessPaths are many access paths. Each record is on one of them at most.
type accessPaths struct {
	column string // of the table entity, with one of texts as its value
	texts  []string
	// Entries of the metadata index, and shared metadata that has them. Records
	// have either.
	pairs []int64
	sets  []int64
}

func (p *accessPaths) count() int { return len(p.texts) + len(p.pairs) + len(p.sets) }

// A residualFilter is a metadata filter that no index supports.
type residualFilter struct {
	key   string
	label bool // the key is a label's, not metadata's
	match func(string) bool
}

// New returns the plan of a query, whose statements run runs. It is prepared before it is
// used.
func New(dialect *sqldb.Dialect, query *record.Query, run sqldb.Runner) *Plan {
	return &Plan{dialect: dialect, query: query, run: run, low: bound{id: query.After, set: query.After != ""}}
}

// Empty reports whether the query selects no record.
func (p *Plan) Empty() bool { return p.empty }

// Unfiltered reports whether the query selects all records of a range of IDs.
func (p *Plan) Unfiltered() bool { return len(p.filters) == 0 && !p.HasResidual() }

// HasResidual reports whether rows must be filtered with Matches after they are read. The
// database can't check conditions: their text has several formats.
func (p *Plan) HasResidual() bool { return p.residual != nil || len(p.query.Conditions) > 0 }

// Matches reports whether a record fulfils the residual filters.
func (p *Plan) Matches(r *record.Record) bool {
	for _, c := range p.query.Conditions {
		if !c.Match(r.Conditions) {
			return false
		}
	}
	for _, f := range p.residual {
		has := r.Metadata.Effective
		if f.label {
			has = r.Metadata.Labels
		}
		if value, ok := has[f.key]; !ok || !f.match(value) {
			return false
		}
	}
	return true
}

// Prepare finds the filters of the query.
func (p *Plan) Prepare(ctx context.Context) error {
	p.limit()
	if p.empty {
		return nil
	}
	q := p.query
	for _, pattern := range q.IDs {
		p.matchID(pattern)
	}
	if q.Parent != "" {
		p.column("parent", q.Parent)
	}
	if q.Origin != "" {
		p.column("origin", q.Origin)
	}
	for _, column := range slices.Sorted(maps.Keys(q.Is)) {
		p.flag(column, q.Is[column])
	}
	for _, column := range slices.Sorted(maps.Keys(q.Since)) {
		p.since(column, q.Since[column])
	}
	if q.Outdated != nil {
		p.filters = append(p.filters, filter{hidden: outdated(*q.Outdated)})
	}
	if c := p.limitRelated("template", tko.KindTemplate); c != nil && (q.Outdated != nil || len(q.TemplateMetadata) > 0) {
		p.filters = append(p.filters, filter{hidden: c})
	}
	if c := p.limitRelated("site", tko.KindSite); c != nil && len(q.SiteMetadata) > 0 {
		p.filters = append(p.filters, filter{hidden: c})
	}
	if q.CRDs {
		p.filters = append(p.filters, filter{hidden: plain("e.crds"), path: p.entityPath("entity_crds", plain("e.crds"))})
	}
	for _, r := range []relation{
		{plan: p, column: "template", kind: tko.KindTemplate, patterns: q.Templates, metadata: q.TemplateMetadata},
		{plan: p, column: "site", kind: tko.KindSite, patterns: q.Sites, metadata: q.SiteMetadata},
	} {
		if err := r.prepare(ctx); err != nil || p.empty {
			return err
		}
	}
	return p.metadata(ctx)
}

// matchID limits the range of IDs to those that can match a pattern.
func (p *Plan) matchID(pattern tko.Pattern) {
	prefix := pattern.Prefix()
	p.low = p.low.greater(bound{id: prefix, inclusive: true, set: prefix != "" || pattern.Exact()})
	if pattern.Exact() {
		p.high = p.high.less(bound{id: prefix, inclusive: true, set: true})
		return
	}
	end := prefixEnd(prefix)
	p.high = p.high.less(bound{id: end, set: end != ""})
	if !prefixOnly(pattern) {
		expression := hide("e.id")
		p.filters = append(p.filters, filter{hidden: func(b *Builder) string {
			return b.Dialect.Regexp(expression, b.Arg(pattern.Regexp()))
		}})
	}
}

// entityPath is an access path through the records of the kind that fulfil a
// condition, by an index of their table.
func (p *Plan) entityPath(index string, where ...Condition) *accessPath {
	return &accessPath{table: "entity e" + p.dialect.ByIndex(index), id: "e.id", where: append([]Condition{equals("e.kind", string(p.query.Kind))}, where...)}
}

// columnPath is the access path through the records with a value of a column.
func (p *Plan) columnPath(column string, where ...Condition) *accessPath {
	path := p.entityPath("entity_by_"+column, append([]Condition{plain("e." + column + " <> ''")}, where...)...)
	path.prefixed = sqldb.Prefixed(column)
	return path
}

// column adds the filter that a column of the records has a value.
func (p *Plan) column(name, value string) {
	p.filters = append(p.filters, filter{
		hidden: equals(hide("e."+name), value),
		path:   p.columnPath(name, equals("e."+name, value)),
	})
}

// flag adds the filter that a column is true or false. Most are true: only those that are
// false have an index.
func (p *Plan) flag(name string, wanted bool) {
	if wanted {
		p.filters = append(p.filters, filter{hidden: plain("e." + name)})
		return
	}
	p.filters = append(p.filters, filter{
		hidden: plain("CASE WHEN e." + name + " THEN 0 ELSE 1 END = 1"),
		path:   p.entityPath("entity_un"+name, plain("NOT e."+name)),
	})
}

// since adds the filter that the time in a column is not earlier. There is no index.
func (p *Plan) since(name string, at time.Time) {
	p.filters = append(p.filters, filter{hidden: func(b *Builder) string { return "e." + name + " >= " + b.Arg(at.UnixMicro()) }})
}

// outdated is the condition that a deployment was made from an earlier revision of
// its template than the current one, or, if wanted is false, that it was not.
func outdated(wanted bool) Condition {
	exists := "EXISTS"
	if !wanted {
		exists = "NOT EXISTS"
	}
	return plain(exists + " (SELECT 1 FROM entity t WHERE t.kind = 'template' AND t.id = " + hide("e.template") +
		" AND CASE WHEN e.base = 0 THEN t.updated > e.created ELSE t.revision > e.base END)")
}

// A metadataKey is a key that the metadata of records must have.
type metadataKey struct {
	kind     tko.Kind // of its index entries: see labelsOf
	key      string
	pattern  tko.Pattern
	pairs    []int64 // matching entries; if more than maxPairs, not all of them
	sets     []int64 // shared metadata that has one of pairs
	complete bool    // pairs and sets have all of them
}

// metadata adds the filters of the records' own metadata.
func (p *Plan) metadata(ctx context.Context) error {
	var list []*metadataKey
	for _, key := range slices.Sorted(maps.Keys(p.query.Metadata)) {
		list = append(list, &metadataKey{kind: p.query.Kind, key: key, pattern: p.query.Metadata[key]})
	}
	for _, key := range slices.Sorted(maps.Keys(p.query.Labels)) {
		list = append(list, &metadataKey{kind: LabelsOf(p.query.Kind), key: key, pattern: p.query.Labels[key]})
	}
	for _, k := range list {
		var err error
		if k.pairs, err = p.findPairs(ctx, k.kind, k.key, k.pattern, maxPairs); err != nil {
			return err
		}
		if len(k.pairs) == 0 {
			p.empty = true
			return nil
		}
	}
	if err := p.findShared(ctx, list); err != nil {
		return err
	}
	for _, k := range list {
		p.filters = append(p.filters, p.metadataFilter(k))
	}
	return nil
}

// findShared finds the shared metadata that fulfils all keys, within the limits
// maxPairs and maxSets.
func (p *Plan) findShared(ctx context.Context, list []*metadataKey) error {
	if p.query.Kind != tko.KindDeployment { // see isShared
		for _, k := range list {
			k.complete = len(k.pairs) <= maxPairs
		}
		return nil
	}
	var statements []sqldb.Statement
	for _, k := range list {
		if len(k.pairs) > maxPairs {
			continue
		}
		b := &Builder{Dialect: p.dialect}
		statements = append(statements, sqldb.Statement{
			SQL:  "SELECT s.metaset FROM metaset_pair s WHERE " + among("s.pair", k.pairs)(b) + " LIMIT " + b.Arg(int64(maxSets+1)),
			Args: b.Args, Scan: sqldb.Collect(&k.sets),
		})
	}
	if err := p.run(ctx, statements...); err != nil {
		return err
	}
	counts, complete := map[int64]int{}, 0
	for _, k := range list {
		k.complete = len(k.pairs) <= maxPairs && len(k.sets) <= maxSets
		if k.complete {
			complete++
			for _, set := range k.sets {
				counts[set]++
			}
		}
	}
	for _, k := range list {
		if k.complete {
			k.sets = slices.DeleteFunc(k.sets, func(set int64) bool { return counts[set] < complete })
			slices.Sort(k.sets)
		}
	}
	return nil
}

// metadataFilter returns the filter of a key, with the access paths to records that
// have it.
func (p *Plan) metadataFilter(k *metadataKey) filter {
	own := has(k.pairs, "e.id")
	f := filter{hidden: own}
	if len(k.sets) > 0 {
		shared := among("e.metaset", k.sets)
		f.hidden = func(b *Builder) string {
			return "CASE WHEN e.metaset < 0 THEN " + shared(b) + " ELSE " + own(b) + " END"
		}
	}
	switch found := (&accessPaths{pairs: k.pairs, sets: k.sets}); {
	case k.complete && found.count() == 1:
		f.path = &accessPath{table: "entity_pair x", id: "x.id", where: []Condition{equals("x.pair", k.pairs[0])}, idsOnly: true}
	case k.complete && len(k.pairs) <= maxMerged && len(k.sets) <= maxMerged:
		f.paths = found
	default:
		f.find = func(ctx context.Context) (*accessPaths, error) { return p.findAllPaths(ctx, k) }
	}
	if len(k.pairs) > maxProbed || !k.complete {
		f.hidden = nil
		p.residual = append(p.residual, residualFilter{k.key, k.kind != p.query.Kind, matcher(k.pattern)})
	}
	return f
}

// findAllPaths returns all access paths to records that have a key, without limits.
func (p *Plan) findAllPaths(ctx context.Context, k *metadataKey) (*accessPaths, error) {
	if k.complete {
		return &accessPaths{pairs: k.pairs, sets: k.sets}, nil
	}
	pairs, err := p.findPairs(ctx, k.kind, k.key, k.pattern, -1)
	if err != nil {
		return nil, err
	}
	b := &Builder{Dialect: p.dialect}
	var sets []int64
	err = p.run(ctx, sqldb.Statement{
		SQL:  "SELECT s.metaset FROM pair p JOIN metaset_pair s ON s.pair = p.id WHERE " + b.all(entries(k.kind, k.key, k.pattern)),
		Args: b.Args, Scan: sqldb.Collect(&sets),
	})
	return &accessPaths{pairs: pairs, sets: sets}, err
}

// findPairs returns the entries of the metadata dictionary that match. With a limit
// that is not negative, it returns limit+1 entries at most.
func (p *Plan) findPairs(ctx context.Context, kind tko.Kind, key string, pattern tko.Pattern, limit int) ([]int64, error) {
	b := &Builder{Dialect: p.dialect}
	sql := "SELECT p.id FROM pair p WHERE " + b.all(entries(kind, key, pattern))
	if limit >= 0 {
		sql += " LIMIT " + b.Arg(int64(limit+1))
	}
	var ids []int64
	err := p.run(ctx, sqldb.Statement{SQL: sql, Args: b.Args, Scan: sqldb.Collect(&ids)})
	return ids, err
}
