package decide

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A CountKey identifies a count of a cause.
type CountKey struct {
	Cause string
	Count record.Count
}

// A CountPart is what a cause changed in a part of its window, and how much of that with
// consent.
type CountPart struct{ N, Consent int64 }

// A CountGrant is the consent that was granted to a cause: Granted changes may be made with it, and Used of them were. Since is the
// microsecond of the last grant.
type CountGrant struct{ Granted, Used, Since int64 }

// A CountedSite is a site at which a cause has changed running deployments.
type CountedSite struct{ Cause, Site string }

// A CountedChange is a change that is counted.
type CountedChange struct {
	Op            tko.Op
	Before, After *record.Record // with Metadata, if the record may have been suspended
	Orphans       bool           // a deletion removed the reference of the record
	Replacing     bool           // the record was deleted because another one replaces it
}

// A countRow is a count of a cause as decided so far.
type countRow struct {
	CountGrant

	parts   map[int64]CountPart // by the microsecond at which they begin
	grants  bool                // the grant has changed
	changed map[int64]bool      // parts that have changed
}

// clone returns a copy of the row, which may be nil.
func (r *countRow) clone() *countRow {
	if r == nil {
		return &countRow{parts: map[int64]CountPart{}, changed: map[int64]bool{}}
	}
	c := *r
	c.parts, c.changed = maps.Clone(r.parts), maps.Clone(r.changed)
	return &c
}

// add adds changes to a part.
func (r *countRow) add(part, n, consent int64) {
	p := r.parts[part]
	r.parts[part] = CountPart{p.N + n, p.Consent + consent}
	r.changed[part] = true
}

// free returns the changes without consent in the window that ends at a microsecond.
func (r *countRow) free(now int64, window time.Duration) (n int64) {
	if r == nil {
		return 0
	}
	for begin, p := range r.parts {
		if isWithin(begin, now, window) {
			n += max(0, p.N-p.Consent)
		}
	}
	return n
}

// left returns the number of changes that may still be made with consent.
func (r *countRow) left(now int64, window time.Duration) int64 {
	if window > 0 && r.Since+window.Microseconds() <= now {
		return 0
	}
	return max(0, r.Granted-r.Used)
}

// The window of a cause slides by parts: the oldest part counts as a whole as long as a
// moment of it is within the window. So a limit holds in each period that is as
// long as the window, and a change stops counting at most a part after the window has ended.

// partLength returns the length of the parts of a window, in microseconds.
func partLength(window time.Duration) int64 {
	return max(1, window.Microseconds()/record.ReachParts)
}

// partOf returns the microsecond at which the part of a moment begins.
func partOf(moment int64, window time.Duration) int64 {
	if window <= 0 {
		return 0
	}
	return moment - moment%partLength(window)
}

// isWithin reports whether the part that begins at a microsecond is in the window that ends
// at another one.
func isWithin(begin, now int64, window time.Duration) bool {
	return window <= 0 || begin > now-CountSpan(window)
}

// CountSpan returns how long ago the parts of a window may have begun, in microseconds.
func CountSpan(window time.Duration) int64 { return window.Microseconds() + partLength(window) }

// Counts are the counts of causes, as the database has them and as decided so far. Stores read those of the causes of
// a transaction, let it count its changes, and write what has changed.
type Counts struct {
	// Undo, if not nil, gets functions that undo what Add decides: a store whose transactions have several calls undoes those of a call
	// that fails.
	Undo func(func())

	rows     map[CountKey]*countRow
	sites    map[CountedSite]int64 // microseconds of their last changes
	newSites map[CountedSite]bool  // to be written
}

func (c *Counts) row(key CountKey) *countRow {
	if c.rows == nil {
		c.rows = map[CountKey]*countRow{}
	}
	if c.rows[key] == nil {
		c.rows[key] = (*countRow)(nil).clone()
	}
	return c.rows[key]
}

// ReadGrant adds a grant that the database has.
func (c *Counts) ReadGrant(key CountKey, grant CountGrant) { c.row(key).CountGrant = grant }

// ReadPart adds a part that the database has, by the microsecond at which it begins.
func (c *Counts) ReadPart(key CountKey, begin int64, part CountPart) { c.row(key).parts[begin] = part }

// ReadSite adds the microsecond of the last change at a site that the database has.
func (c *Counts) ReadSite(site CountedSite, changed int64) {
	if c.sites == nil {
		c.sites = map[CountedSite]int64{}
	}
	c.sites[site] = changed
}

func (c *Counts) undo(fn func()) {
	if c.Undo != nil {
		c.Undo(fn)
	}
}

// change changes a count of a cause until the decisions of the call are undone.
func (c *Counts) change(cause string, count record.Count, change func(*countRow)) {
	key := CountKey{cause, count}
	if c.rows == nil {
		c.rows = map[CountKey]*countRow{}
	}
	before, known := c.rows[key]
	c.undo(func() {
		c.rows[key] = before
		if !known {
			delete(c.rows, key)
		}
	})
	row := before.clone()
	change(row)
	c.rows[key] = row
}

// Add counts the changes of a commit at a microsecond, and returns an error if they exceed a limit.
func (c *Counts) Add(reach *record.Reach, now int64, changes []CountedChange) error {
	if reach.Cause == "" {
		return nil
	}
	adds := map[record.Count]int{}
	for i := range changes {
		c.addChange(reach, now, &changes[i], adds)
	}
	if reach.CountsSites() {
		for _, site := range reach.Sites {
			c.addSite(reach, now, countedAt{record.Record{Key: record.Key{Kind: tko.KindSite, ID: site}}, site}, adds)
		}
	}
	for count, n := range reach.Adds {
		adds[count] += n
	}
	total := 0
	for count, n := range adds {
		if !count.IsFurther() {
			total += n
		}
	}
	consented := reach.Consent > 0
	if consented && total > reach.Consent {
		return &record.ExceededError{Limit: reach.Consent}
	}
	for _, count := range slices.Sorted(maps.Keys(adds)) {
		window, n := reach.WindowOf(count), int64(adds[count])
		c.change(reach.Cause, count, func(row *countRow) {
			with := n
			if !consented {
				with = min(n, row.left(now, reach.Window))
				row.Used, row.grants = row.Used+with, row.grants || with > 0
			}
			row.add(partOf(now, window), n, with)
		})
	}
	for _, count := range slices.Sorted(maps.Keys(reach.Grant)) {
		c.change(reach.Cause, count, func(row *countRow) {
			// What was consented to may take the whole window.
			row.CountGrant, row.grants = CountGrant{row.left(now, reach.Window) + int64(reach.Grant[count]), 0, now}, true
		})
	}
	if consented {
		return nil
	}
	return c.checkLimits(reach, now, adds)
}

func (c *Counts) checkLimits(reach *record.Reach, now int64, adds map[record.Count]int) error {
	for _, limit := range reach.Limits {
		free, added := int64(0), 0
		for _, count := range limit.Of {
			free += c.rows[CountKey{reach.Cause, count}].free(now, reach.WindowOf(count))
			added += adds[count]
		}
		if added > 0 && free > int64(limit.Most) {
			return &record.ReachError{Cause: reach.Cause, Limit: limit, Had: max(0, int(free)-added), Adds: added}
		}
	}
	return nil
}

// addChange adds what one change counts as.
func (c *Counts) addChange(reach *record.Reach, now int64, of *CountedChange, adds map[record.Count]int) {
	before, after := of.Before, of.After
	count := func(count record.Count, of record.Record) {
		of.Key = after.Key
		for _, one := range reach.Counts(count, of, "") {
			adds[one]++
		}
	}
	touched := func(after, of record.Record) {
		for _, site := range record.Touched(*before, after) {
			c.addSite(reach, now, countedAt{of, site}, adds)
		}
	}
	switch {
	case of.Op == tko.OpStatus, of.Replacing:
	case of.Op == tko.OpDeleted:
		count(record.RemovalOf(after.Kind), *before)
		if reach.RemovedSites {
			touched(record.Record{Key: after.Key}, *before)
		}
	case of.Orphans:
		count(record.OrphanOf(after.Kind), *before)
	case after.Kind == tko.KindSite && before.Revision != 0 && reach.CountsSites():
		touched(*after, *after)
	case after.Kind != tko.KindDeployment:
	case before.Revision == 0:
		if reach.Derived {
			count(record.CountCreated, *after)
		}
		if reach.RemovedSites && len(after.Replaces) > 0 && after.Site != "" {
			c.addSite(reach, now, countedAt{*after, after.Site}, adds)
		}
	case !reach.CountsSites():
	default:
		if after.Approved && !before.Approved && !reach.Derived {
			count(record.CountApproved, *after)
		}
		touched(*after, *after)
	}
}

// A countedAt is a record whose change has an effect at a site.
type countedAt struct {
	of   record.Record
	site string
}

// addSite counts a site that a change has an effect at. A site counts once in each
// period: a change there moves what it counts as to the present part.
func (c *Counts) addSite(reach *record.Reach, now int64, at countedAt, adds map[record.Count]int) {
	counts := reach.Counts(record.CountSites, at.of, at.site)
	key, window := CountedSite{reach.Cause, at.site}, reach.WindowOf(record.CountSites)
	changed, known := c.sites[key]
	from, to := partOf(changed, window), partOf(now, window)
	counted := known && isWithin(from, now, window)
	switch consented := reach.Consent > 0; {
	case counted && (consented || from == to):
		return
	case counted:
		for _, count := range counts {
			c.change(reach.Cause, count, func(row *countRow) {
				if p := row.parts[from]; p.N > p.Consent {
					row.add(from, -1, 0)
				}
				row.add(to, 1, 0)
			})
		}
	default:
		for _, count := range counts {
			adds[count]++
		}
		if consented {
			return
		}
	}
	was := c.newSites[key]
	c.undo(func() {
		c.sites[key], c.newSites[key] = changed, was
		if !known {
			delete(c.sites, key)
		}
	})
	if c.newSites == nil {
		c.newSites = map[CountedSite]bool{}
	}
	c.ReadSite(key, now)
	c.newSites[key] = true
}

// A ChangedCount is a count to be written.
type ChangedCount struct {
	CountKey

	Grant *CountGrant         // nil: it hasn't changed
	Parts map[int64]CountPart // that have changed
}

// Changed returns the counts to be written, and the sites whose last change is now, sorted. It returns each change once.
func (c *Counts) Changed() (counts []ChangedCount, sites []CountedSite) {
	for _, key := range slices.SortedFunc(maps.Keys(c.rows), func(a, b CountKey) int {
		return cmp.Or(cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Count, b.Count))
	}) {
		row := c.rows[key]
		if row == nil || !row.grants && len(row.changed) == 0 {
			continue
		}
		one := ChangedCount{CountKey: key, Parts: map[int64]CountPart{}}
		if row.grants {
			grant := row.CountGrant
			one.Grant = &grant
		}
		for part := range row.changed {
			one.Parts[part] = row.parts[part]
		}
		counts = append(counts, one)
		clean := row.clone()
		clean.grants, clean.changed = false, map[int64]bool{}
		c.rows[key] = clean
	}
	for _, key := range slices.SortedFunc(maps.Keys(c.newSites), func(a, b CountedSite) int {
		return cmp.Or(cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Site, b.Site))
	}) {
		if c.newSites[key] {
			sites = append(sites, key)
		}
	}
	clear(c.newSites)
	return counts, sites
}

// SumReached returns the sums of the counts of each cause, at most limit: the most recent ones of all causes, or, of one cause,
// all in the order of their names.
func SumReached(list []record.Reached, ofAll bool, limit int) (sums []record.Reached) {
	found := map[CountKey]*record.Reached{}
	for _, r := range list {
		key := CountKey{r.Cause, r.Count}
		had := found[key]
		if had == nil {
			found[key] = &r
			continue
		}
		had.N, had.Consent = had.N+r.N, had.Consent+r.Consent
		if r.Since.Before(had.Since) {
			had.Since = r.Since
		}
		if r.Updated.After(had.Updated) {
			had.Updated = r.Updated
		}
	}
	for _, r := range found {
		sums = append(sums, *r)
	}
	slices.SortFunc(sums, func(a, b record.Reached) int {
		newest := 0
		if ofAll {
			newest = b.Updated.Compare(a.Updated)
		}
		return cmp.Or(newest, cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Count, b.Count))
	})
	return sums[:min(len(sums), limit)]
}
