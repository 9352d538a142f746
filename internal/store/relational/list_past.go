package relational

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// maxMoved is the maximum number of deployments that are candidates of a list only
// because the metadata of their template or site has changed. If there are more, the
// list reads all deployments instead.
const maxMoved = 20_000

// A pastLister executes one query as of a position.
type pastLister struct {
	*pastReader

	query     record.Query // as the caller asked
	now       record.Query // selects among current records, in place of query
	bits      int64        // of departures that matter
	more      []string     // sorted IDs of further candidates
	sites     map[string]record.Record
	templates map[string]record.Record
}

// listAt lists the records that matched a query at its position.
func (s *Store) listAt(ctx context.Context, query record.Query, yield func(record.Record, error) bool) error {
	query.Fields.Scope = query.Scope
	p, err := s.newPastReader(ctx, query.AsOf)
	if err != nil {
		return err
	}
	l := &pastLister{pastReader: p, query: query}
	if err := l.prepare(ctx); err != nil {
		return err
	}
	return l.list(ctx, yield)
}

// prepare finds how candidates are found. Conditions whose loss isn't recorded are
// checked only on records as of the position.
func (l *pastLister) prepare(ctx context.Context) error {
	q := &l.query
	l.now = *q
	l.now.AsOf, l.now.Offset, l.now.Limit, l.now.Fields = 0, 0, -1, record.Fields{}
	l.now.Is, l.now.Since, l.now.Outdated, l.now.CRDs = nil, nil, nil, false
	if len(q.Sites) > 0 || len(q.SiteMetadata) > 0 {
		l.bits |= departedSite
	}
	if len(q.Templates) > 0 || len(q.TemplateMetadata) > 0 {
		l.bits |= departedTemplate
	}
	if q.Parent != "" {
		l.bits |= departedParent
	}
	if len(q.Metadata)+len(q.Labels) > 0 {
		l.bits |= departedMetadata
	}
	if !q.Scope.IsAll() {
		l.bits |= departedSite | departedTemplate | departedMetadata
	}
	more := map[string]bool{}
	var err error
	if len(q.SiteMetadata) > 0 {
		if l.sites, err = l.related(ctx, tko.KindSite, q.SiteMetadata); err != nil {
			return err
		}
		if l.now.SiteMetadata, err = l.moved(ctx, tko.KindSite, l.sites, q.SiteMetadata, more); err != nil {
			return err
		}
	}
	if len(q.TemplateMetadata) > 0 || q.Outdated != nil {
		if l.templates, err = l.related(ctx, tko.KindTemplate, q.TemplateMetadata); err != nil {
			return err
		}
	}
	if len(q.TemplateMetadata) > 0 {
		if l.now.TemplateMetadata, err = l.moved(ctx, tko.KindTemplate, l.templates, q.TemplateMetadata, more); err != nil {
			return err
		}
	}
	l.more = slices.Sorted(maps.Keys(more))
	for len(l.more) > 0 && l.more[0] <= q.After {
		l.more = l.more[1:]
	}
	return nil
}

// related returns the templates or sites that had metadata at the position, with
// their revisions only.
func (l *pastLister) related(ctx context.Context, kind tko.Kind, metadata map[string]tko.Pattern) (map[string]record.Record, error) {
	found := map[string]record.Record{}
	query := record.Query{Kind: kind, Scope: l.query.Scope, Metadata: metadata, Limit: -1, AsOf: l.position}
	for r, err := range l.store.List(ctx, query) {
		if err != nil {
			return nil, err
		}
		found[r.ID] = record.Record{Revision: r.Revision, Updated: r.Updated}
	}
	return found, nil
}

// moved adds to more the current deployments of those templates or sites that had the
// metadata at the position and may not have it now. If they are too many, all
// deployments are candidates: then it returns no metadata to select by.
func (l *pastLister) moved(ctx context.Context, kind tko.Kind, then map[string]record.Record, metadata map[string]tko.Pattern, more map[string]bool) (map[string]tko.Pattern, error) {
	var left []string
	if err := l.allDepartures(ctx, kind, departedMetadata, func(id string) {
		if _, ok := then[id]; ok {
			left = append(left, id)
		}
	}); err != nil {
		return nil, err
	}
	for ids := range slices.Chunk(left, fullChunk) {
		if err := l.store.run(ctx, l.members(string(kind), ids, maxMoved+1, more)); err != nil {
			return nil, err
		}
		if len(more) > maxMoved {
			return nil, nil //nolint:nilnil // select by nothing
		}
	}
	return metadata, nil
}

// matches reports whether a record as of the position matches the query.
func (l *pastLister) matches(r *record.Record) bool {
	if !l.query.Matches(*r) {
		return false
	}
	if l.sites != nil {
		if _, ok := l.sites[r.Site]; !ok {
			return false
		}
	}
	if l.templates == nil {
		return true
	}
	t, ok := l.templates[r.Template]
	if l.query.Outdated == nil {
		return ok
	}
	outdated := ok && r.Base < t.Revision
	if ok && r.Base == 0 {
		outdated = t.Updated.After(r.Created)
	}
	return outdated == *l.query.Outdated && (ok || len(l.query.TemplateMetadata) == 0)
}

// list merges the candidates, chunk by chunk, and yields those that match.
func (l *pastLister) list(ctx context.Context, yield func(record.Record, error) bool) error {
	next, stop := iter.Pull2(l.store.List(ctx, l.now))
	defer stop()
	most := fullChunk
	if l.query.Fields.Package {
		most = packageChunk
	}
	after := l.query.After
	skip, left := int(l.query.Offset), l.query.Limit
	var ahead []record.Record // read, and not yet listed
	for size, ended := firstChunk, false; ; size = min(4*size, most) {
		if err := ctx.Err(); err != nil {
			return err
		}
		for len(ahead) < size && !ended {
			r, err, ok := next()
			if err != nil {
				return err
			}
			ended = !ok
			if ok {
				ahead = append(ahead, r)
			}
		}
		end := ""
		if !ended {
			end = ahead[len(ahead)-1].ID
		}
		// After the current records were read, so that none is in neither.
		departed, err := l.departures(ctx, l.query.Kind, l.bits, after, end, size)
		if err != nil {
			return err
		}
		complete := len(departed) < size
		if !complete {
			end = departed[len(departed)-1]
		}
		ids, now := departed, map[string]record.Record{}
		for len(ahead) > 0 && (end == "" || ahead[0].ID <= end) {
			r := ahead[0]
			now[r.ID] = r
			if micros(r.Created) <= l.at { // an earlier record of the ID has departed
				ids = append(ids, r.ID)
			}
			ahead = ahead[1:]
		}
		for len(l.more) > 0 && (end == "" || l.more[0] <= end) {
			ids = append(ids, l.more[0])
			l.more = l.more[1:]
		}
		slices.Sort(ids)
		records, err := l.records(ctx, l.query.Scope, l.query.Kind, slices.Compact(ids), now)
		if err != nil {
			return err
		}
		records = slices.DeleteFunc(records, func(r record.Record) bool { return !l.matches(&r) })
		skipped := min(skip, len(records))
		skip -= skipped
		records = records[skipped:]
		if left >= 0 {
			records = records[:min(left, len(records))]
			left -= len(records)
		}
		if err := l.complete(ctx, l.query.Kind, l.query.Fields, records); err != nil {
			return err
		}
		if _, err := l.retained(ctx); err != nil {
			return err
		}
		for _, r := range records {
			if !yield(cloneRecord(r), nil) {
				return nil
			}
		}
		if left == 0 || ended && complete {
			return nil
		}
		after = end
	}
}
