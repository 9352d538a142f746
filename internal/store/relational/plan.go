package relational

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
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

// A plan describes how a query is executed: the conditions on records, and the
// access paths to records that fulfil some of the conditions. An access path is an
// index that has the IDs of records in their order.
//
// The statistics of the database can't tell which access path is the shortest: they
// may be old, and describe averages. So statements force the database's planner to
// use one access path (the other conditions are hidden from it). A cursor chooses
// the path for each range of IDs, by how far each path leads.
type plan struct {
	store *Store
	query *catalog.Query
	run   runner

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
	hidden condition
	path   *accessPath
	paths  *accessPaths
	// find returns access paths that are expensive to find.
	find func(ctx context.Context) (*accessPaths, error)
}

// An accessPath is an index that has the IDs of some records in their order.
type accessPath struct {
	table    string
	id       string
	where    []condition
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

// A bound is the start or end of a range of IDs.
type bound struct {
	id        string
	inclusive bool
	set       bool
}

// A residualFilter is a metadata filter that no index supports.
type residualFilter struct {
	key   string
	label bool // the key is a label's, not metadata's
	match func(string) bool
}

// A condition writes its SQL into a statement.
type condition func(b *builder) string

// A builder collects the arguments of a statement.
type builder struct {
	dialect *Dialect
	args    []any
}

func (b *builder) arg(value any) string {
	b.args = append(b.args, value)
	return parameter(len(b.args))
}

func (b *builder) all(conditions []condition) string {
	texts := make([]string, len(conditions))
	for i, c := range conditions {
		texts[i] = c(b)
	}
	return strings.Join(texts, " AND ")
}

func plain(text string) condition { return func(*builder) string { return text } }

func equals(expression string, value any) condition {
	return func(b *builder) string { return expression + " = " + b.arg(value) }
}

// among is the condition that an entry of the metadata index is one of pairs.
func among(expression string, pairs []int64) condition {
	if len(pairs) == 1 {
		return equals(expression, pairs[0])
	}
	return func(b *builder) string { return b.dialect.In(expression, b.arg(b.dialect.Ints(pairs))) }
}

// oneOf is the condition that an expression without an index is in a list.
func oneOf(expression string, list []string) condition {
	return func(b *builder) string { return b.dialect.Among(expression, b.arg(b.dialect.List(list))) }
}

// has is the condition that the metadata index has an ID under one of pairs.
func has(pairs []int64, id string) condition {
	pair := among("y.pair", pairs)
	return func(b *builder) string {
		return "EXISTS (SELECT 1 FROM entity_pair y WHERE " + pair(b) + " AND y.id = " + hide(id) + ")"
	}
}

// hide hides a column from the database's planner, which then uses no index on it.
func hide(column string) string { return "(" + column + " || '')" }

// matches is the condition that an expression matches a pattern.
func matches(expression string, pattern tko.Pattern) []condition {
	if pattern.Exact() {
		return []condition{equals(expression, pattern.Prefix())}
	}
	conditions := startsWith(expression, pattern.Prefix())
	if !prefixOnly(pattern) {
		conditions = append(conditions, func(b *builder) string { return b.dialect.Regexp(expression, b.arg(pattern.Regexp())) })
	}
	return conditions
}

// startsWith is the condition that an expression starts with a prefix.
func startsWith(expression, prefix string) []condition {
	if prefix == "" {
		return nil
	}
	conditions := []condition{func(b *builder) string { return expression + " >= " + b.arg(prefix) }}
	if end := prefixEnd(prefix); end != "" {
		conditions = append(conditions, func(b *builder) string { return expression + " < " + b.arg(end) })
	}
	return conditions
}

// prefixOnly reports whether a pattern matches every text that starts with its
// prefix.
func prefixOnly(p tko.Pattern) bool {
	return p.Regexp() == "(?s)^"+regexp.QuoteMeta(p.Prefix())+".*$"
}

// prefixEnd returns the least text that is greater than all texts that start with a
// prefix, or "" if there is none.
func prefixEnd(prefix string) string {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		switch c := runes[i] + 1; {
		case c > utf8.MaxRune:
			continue
		case c == 0xD800: // surrogates are not valid text
			runes[i] = 0xE000
		default:
			runes[i] = c
		}
		return string(runes[:i+1])
	}
	return ""
}

func matcher(pattern tko.Pattern) func(string) bool {
	if prefixOnly(pattern) {
		return func(text string) bool { return strings.HasPrefix(text, pattern.Prefix()) }
	}
	return regexp.MustCompile(pattern.Regexp()).MatchString
}

func newPlan(s *Store, query *catalog.Query, run runner) *plan {
	return &plan{store: s, query: query, run: run, low: bound{id: query.After, set: query.After != ""}}
}

// prepare finds the filters of the query.
func (p *plan) prepare(ctx context.Context) error {
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
	p.flag("prepared", q.Prepared)
	p.flag("approved", q.Approved)
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
func (p *plan) matchID(pattern tko.Pattern) {
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
		p.filters = append(p.filters, filter{hidden: func(b *builder) string {
			return b.dialect.Regexp(expression, b.arg(pattern.Regexp()))
		}})
	}
}

// greater returns the bound that is higher.
func (b bound) greater(other bound) bound {
	if !other.set || b.set && (b.id > other.id || b.id == other.id && !b.inclusive) {
		return b
	}
	return other
}

// less returns the bound that is lower.
func (b bound) less(other bound) bound {
	if !other.set || b.set && (b.id < other.id || b.id == other.id && !b.inclusive) {
		return b
	}
	return other
}

// entityPath is an access path through the records of the kind that fulfil a
// condition, by an index of their table.
func (p *plan) entityPath(index string, where ...condition) *accessPath {
	return &accessPath{table: "entity e" + p.store.dialect.indexHint(index), id: "e.id", where: append([]condition{equals("e.kind", string(p.query.Kind))}, where...)}
}

// columnPath is the access path through the records with a value of a column.
func (p *plan) columnPath(column string, where ...condition) *accessPath {
	path := p.entityPath("entity_by_"+column, append([]condition{plain("e." + column + " <> ''")}, where...)...)
	path.prefixed = prefixed(column)
	return path
}

// column adds the filter that a column of the records has a value.
func (p *plan) column(name, value string) {
	p.filters = append(p.filters, filter{
		hidden: equals(hide("e."+name), value),
		path:   p.columnPath(name, equals("e."+name, value)),
	})
}

func (p *plan) flag(name string, wanted *bool) {
	switch {
	case wanted == nil:
	case *wanted:
		p.filters = append(p.filters, filter{hidden: plain("e." + name)})
	default:
		p.filters = append(p.filters, filter{
			hidden: plain("CASE WHEN e." + name + " THEN 0 ELSE 1 END = 1"),
			path:   p.entityPath("entity_un"+name, plain("NOT e."+name)),
		})
	}
}

// outdated is the condition that a deployment was made from an earlier revision of
// its template than the current one, or, if wanted is false, that it was not.
func outdated(wanted bool) condition {
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
func (p *plan) metadata(ctx context.Context) error {
	var list []*metadataKey
	for _, key := range slices.Sorted(maps.Keys(p.query.Metadata)) {
		list = append(list, &metadataKey{kind: p.query.Kind, key: key, pattern: p.query.Metadata[key]})
	}
	for _, key := range slices.Sorted(maps.Keys(p.query.Labels)) {
		list = append(list, &metadataKey{kind: labelsOf(p.query.Kind), key: key, pattern: p.query.Labels[key]})
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
func (p *plan) findShared(ctx context.Context, list []*metadataKey) error {
	if p.query.Kind != tko.KindDeployment { // see isShared
		for _, k := range list {
			k.complete = len(k.pairs) <= maxPairs
		}
		return nil
	}
	var statements []Statement
	for _, k := range list {
		if len(k.pairs) > maxPairs {
			continue
		}
		b := &builder{dialect: &p.store.dialect}
		statements = append(statements, Statement{
			SQL:  "SELECT s.metaset FROM metaset_pair s WHERE " + among("s.pair", k.pairs)(b) + " LIMIT " + b.arg(int64(maxSets+1)),
			Args: b.args, Scan: scanInts(&k.sets),
		})
	}
	if err := p.run(ctx, statements...); err != nil {
		return err
	}
	counts, complete := map[int64]int{}, 0
	for _, k := range list {
		if k.complete = len(k.pairs) <= maxPairs && len(k.sets) <= maxSets; k.complete {
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
func (p *plan) metadataFilter(k *metadataKey) filter {
	f := filter{hidden: has(k.pairs, "e.id")}
	if len(k.sets) > 0 {
		shared, pair := among("e.metaset", k.sets), among("y.pair", k.pairs)
		f.hidden = func(b *builder) string {
			// With OFFSET, the planner probes for each record, instead of reading all
			// records that have the pair first.
			return "CASE WHEN e.metaset < 0 THEN " + shared(b) +
				" ELSE EXISTS (SELECT 1 FROM entity_pair y WHERE " + pair(b) + " AND y.id = " + hide("e.id") + " LIMIT 1 OFFSET 0) END"
		}
	}
	switch found := (&accessPaths{pairs: k.pairs, sets: k.sets}); {
	case k.complete && found.count() == 1:
		f.path = &accessPath{table: "entity_pair x", id: "x.id", where: []condition{equals("x.pair", k.pairs[0])}, idsOnly: true}
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
func (p *plan) findAllPaths(ctx context.Context, k *metadataKey) (*accessPaths, error) {
	if k.complete {
		return &accessPaths{pairs: k.pairs, sets: k.sets}, nil
	}
	pairs, err := p.findPairs(ctx, k.kind, k.key, k.pattern, -1)
	if err != nil {
		return nil, err
	}
	b := &builder{dialect: &p.store.dialect}
	var sets []int64
	err = p.run(ctx, Statement{
		SQL:  "SELECT s.metaset FROM pair p JOIN metaset_pair s ON s.pair = p.id WHERE " + b.all(entries(k.kind, k.key, k.pattern)),
		Args: b.args, Scan: scanInts(&sets),
	})
	return &accessPaths{pairs: pairs, sets: sets}, err
}

func scanInts(list *[]int64) func(Row) error {
	return func(from Row) error {
		var n int64
		err := from.Scan(&n)
		*list = append(*list, n)
		return err
	}
}

// findPairs returns the entries of the metadata dictionary that match. With a limit
// that is not negative, it returns limit+1 entries at most.
func (p *plan) findPairs(ctx context.Context, kind tko.Kind, key string, pattern tko.Pattern, limit int) ([]int64, error) {
	b := &builder{dialect: &p.store.dialect}
	sql := "SELECT p.id FROM pair p WHERE " + b.all(entries(kind, key, pattern))
	if limit >= 0 {
		sql += " LIMIT " + b.arg(int64(limit+1))
	}
	var ids []int64
	err := p.run(ctx, Statement{SQL: sql, Args: b.args, Scan: func(from Row) error {
		var id int64
		err := from.Scan(&id)
		ids = append(ids, id)
		return err
	}})
	return ids, err
}

// entries returns the conditions that an entry p of the metadata dictionary has a
// key and a value that matches.
func entries(kind tko.Kind, key string, pattern tko.Pattern) []condition {
	conditions := []condition{equals("p.kind", string(kind)), equals("p.key", key)}
	if pattern.Exact() {
		hash := pairOf(kind, key, pattern.Prefix()).hash
		return append(conditions, equals("p.hash", hash[:]))
	}
	conditions = append(conditions, startsWith("p.start", startOf(pattern.Prefix()))...)
	if !prefixOnly(pattern) || len(pattern.Prefix()) > maxStart {
		conditions = append(conditions, func(b *builder) string { return b.dialect.Regexp("p.value", b.arg(pattern.Regexp())) })
	}
	return conditions
}

// A relation is the conditions on the template or site of the records.
type relation struct {
	plan     *plan
	column   string
	kind     tko.Kind
	patterns []tko.Pattern
	metadata map[string]tko.Pattern

	keys []relatedKey
}

// A relatedKey is a key that the metadata of the related record must have.
type relatedKey struct {
	key     string
	pattern tko.Pattern
	pairs   []int64 // if more than maxPairs, not all of them
	count   int     // of related records; maxCounted+1 if more
}

func (r *relation) prepare(ctx context.Context) error {
	p := r.plan
	column := "e." + r.column
	exact := false
	r.patterns = slices.DeleteFunc(slices.Clone(r.patterns), func(pattern tko.Pattern) bool {
		if pattern.Exact() {
			p.column(r.column, pattern.Prefix())
			exact = true
		}
		return pattern.Exact()
	})
	if len(r.patterns) == 0 && len(r.metadata) == 0 {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(r.metadata)) {
		pairs, err := p.findPairs(ctx, r.kind, key, r.metadata[key], maxPairs)
		if err != nil {
			return err
		}
		if len(pairs) == 0 {
			p.empty = true
			return nil
		}
		r.keys = append(r.keys, relatedKey{key: key, pattern: r.metadata[key], pairs: pairs})
	}
	hidden := []condition{plain(column + " <> ''")}
	for _, pattern := range r.patterns {
		hidden = append(hidden, matches(hide(column), pattern)...)
	}
	probed := true
	for _, k := range r.keys {
		hidden = append(hidden, has(k.pairs, column))
		probed = probed && len(k.pairs) <= maxProbed
	}
	if exact && probed { // no other access path is shorter
		p.filters = append(p.filters, filter{hidden: func(b *builder) string { return b.all(hidden) }})
		return nil
	}
	few, complete, err := r.findFew(ctx)
	if err == nil && !complete && !probed {
		few, err = r.findAll(ctx)
		complete = true
	}
	switch {
	case err != nil:
		return err
	case !complete:
		p.filters = append(p.filters, filter{
			hidden: func(b *builder) string { return b.all(hidden) },
			find: func(ctx context.Context) (*accessPaths, error) {
				list, err := r.findAll(ctx)
				return &accessPaths{column: r.column, texts: list}, err
			},
		})
	case len(few) == 0:
		p.empty = true
	case len(few) == 1:
		p.column(r.column, few[0])
	default:
		f := filter{hidden: oneOf(hide(column), few)}
		found := &accessPaths{column: r.column, texts: few}
		if f.paths = found; len(few) > maxMerged {
			f.paths, f.find = nil, func(context.Context) (*accessPaths, error) { return found, nil }
		}
		p.filters = append(p.filters, f)
	}
	return nil
}

// findFew returns the IDs of the related records that fulfil all conditions, within
// the limits. complete is false if there may be more.
func (r *relation) findFew(ctx context.Context) (list []string, complete bool, err error) {
	if len(r.keys) == 0 {
		if few, err := r.fewRecords(ctx); err != nil || !few {
			return nil, false, err
		}
		list, err = r.values(ctx, maxMerged+1)
		complete = len(list) <= maxMerged
		return r.filterByPattern(list), complete, err
	}
	if slices.ContainsFunc(r.keys, func(k relatedKey) bool { return len(k.pairs) > maxPairs }) {
		return nil, false, nil
	}
	if len(r.keys) > 1 {
		if err := r.count(ctx); err != nil {
			return nil, false, err
		}
	}
	slices.SortStableFunc(r.keys, func(a, b relatedKey) int { return a.count - b.count })
	b := &builder{dialect: &r.plan.store.dialect}
	where := []condition{among("x.pair", r.keys[0].pairs)}
	for _, k := range r.keys[1:] {
		where = append(where, has(k.pairs, "x.id"))
	}
	list, err = r.plan.texts(ctx, "SELECT x.id FROM entity_pair x WHERE "+b.all(where)+" LIMIT "+b.arg(int64(maxMerged+1)), b.args)
	complete = len(list) <= maxMerged
	return r.filterByPattern(list), complete, err
}

// count counts how many related records have each key, up to maxCounted+1.
func (r *relation) count(ctx context.Context) error {
	statements := make([]Statement, len(r.keys))
	for i := range r.keys {
		k := &r.keys[i]
		b := &builder{dialect: &r.plan.store.dialect}
		statements[i] = Statement{
			SQL: "SELECT count(*) FROM (SELECT 1 FROM entity_pair x WHERE " + among("x.pair", k.pairs)(b) +
				" LIMIT " + b.arg(int64(maxCounted+1)) + ") AS found",
			Args: b.args,
			Scan: func(from Row) error { return from.Scan(&k.count) },
		}
	}
	return r.plan.run(ctx, statements...)
}

// findAll returns the IDs of all related records that fulfil all conditions.
func (r *relation) findAll(ctx context.Context) ([]string, error) {
	if len(r.keys) == 0 {
		list, err := r.values(ctx, -1)
		return r.filterByPattern(list), err
	}
	var found map[string]bool
	for _, k := range r.keys {
		b := &builder{dialect: &r.plan.store.dialect}
		sql := "SELECT x.id FROM entity_pair x WHERE "
		where := []condition{among("x.pair", k.pairs)}
		if len(k.pairs) > maxPairs {
			sql = "SELECT x.id FROM pair p JOIN entity_pair x ON x.pair = p.id WHERE "
			where = entries(r.kind, k.key, k.pattern)
		}
		list, err := r.plan.texts(ctx, sql+b.all(where), b.args)
		if err != nil {
			return nil, err
		}
		both := map[string]bool{}
		for _, id := range list {
			if found == nil || found[id] {
				both[id] = true
			}
		}
		found = both
	}
	return r.filterByPattern(slices.Sorted(maps.Keys(found))), nil
}

// table is the table of records, read by the index on the relation's column.
func (r *relation) table() string {
	return "entity e" + r.plan.store.dialect.indexHint("entity_by_"+r.column)
}

// between returns conditions on the column: from limits it to the range that can
// match the patterns, to only to the end of that range.
func (r *relation) between() (from, to []condition) {
	column := "e." + r.column
	low, high := bound{}, bound{}
	for _, pattern := range r.patterns {
		prefix := pattern.Prefix()
		low = low.greater(bound{id: prefix, inclusive: true, set: prefix != ""})
		high = high.less(bound{id: prefixEnd(prefix), set: prefixEnd(prefix) != ""})
	}
	to = []condition{equals("e.kind", string(r.plan.query.Kind)), plain(column + " <> ''")}
	if high.set {
		to = append(to, func(b *builder) string { return column + " < " + b.arg(high.id) })
	}
	from = slices.Clip(to)
	if low.set {
		from = append(from, func(b *builder) string { return column + " >= " + b.arg(low.id) })
	}
	return from, to
}

// fewRecords reports whether at most maxCounted records can match the patterns.
func (r *relation) fewRecords(ctx context.Context) (few bool, err error) {
	b := &builder{dialect: &r.plan.store.dialect}
	from, _ := r.between()
	count := 0
	err = r.plan.run(ctx, Statement{
		SQL:  "SELECT count(*) FROM (SELECT 1 FROM " + r.table() + " WHERE " + b.all(from) + " LIMIT " + b.arg(int64(maxCounted+1)) + ") AS found",
		Args: b.args,
		Scan: func(from Row) error { return from.Scan(&count) },
	})
	return count <= maxCounted, err
}

// values returns the distinct values of the column in the range that can match the
// patterns. It skips from one value to the next.
func (r *relation) values(ctx context.Context, limit int) ([]string, error) {
	column := "e." + r.column
	b := &builder{dialect: &r.plan.store.dialect}
	first, where := r.between()
	least := func(where []condition) string {
		return "(SELECT " + column + " FROM " + r.table() + " WHERE " + b.all(where) + " ORDER BY " + column + " LIMIT 1)"
	}
	sql := "WITH RECURSIVE d (v) AS (SELECT " + least(first) + " UNION ALL SELECT " +
		least(append(slices.Clip(where), plain(column+" > d.v"))) + " FROM d WHERE d.v IS NOT NULL) SELECT d.v FROM d WHERE d.v IS NOT NULL"
	if limit >= 0 {
		sql += " LIMIT " + b.arg(int64(limit))
	}
	return r.plan.texts(ctx, sql, b.args)
}

// filterByPattern removes the texts that don't match the patterns, and sorts the rest.
func (r *relation) filterByPattern(list []string) []string {
	for _, pattern := range r.patterns {
		match := matcher(pattern)
		list = slices.DeleteFunc(list, func(text string) bool { return !match(text) })
	}
	slices.Sort(list)
	return list
}

func (p *plan) texts(ctx context.Context, sql string, args []any) ([]string, error) {
	var list []string
	err := p.run(ctx, Statement{SQL: sql, Args: args, Scan: func(from Row) error {
		var text string
		err := from.Scan(&text)
		list = append(list, text)
		return err
	}})
	return list, err
}
