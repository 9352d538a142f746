package execute

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// An Entry is a deployment in flight: changed and not yet healthy. Changes by others,
// such as placements, are entries without a rollout.
type Entry struct {
	Deployment tko.DeploymentID
	Site       tko.SiteID
	Rollout    string // ID; "" if no rollout changed the deployment
	Family     string // of the rollout
	// Values are those of the site's metadata when the row was admitted, under all keys
	// that limits of active rollouts name. Values that changed since can be there, too:
	// see Now.
	Values map[string]string
	Now    map[string]string // values now; nil if they are as in Values
	Apart  []string          // limits.apart of the rollout
}

// A Flight is the set of entries, counted for checks of limits. It isn't safe for
// concurrent use. It is made anew in each transaction, from what that transaction reads.
type Flight struct {
	entries map[tko.DeploymentID]Entry
	total   map[string]int // by family
	per     map[perKey]int
	apart   map[valueKey]map[tko.SiteID]int // sites with a value, of all entries
	strict  map[valueKey]map[tko.SiteID]int // of entries whose rollout names the key in apart

	block   *Block // of the limit concurrent, which must not be changed, for so many entries
	blocked int
}

type perKey struct{ family, key, value string }

type valueKey struct{ key, value string }

// NewFlight returns a Flight of entries. Of several entries of a deployment the last one
// counts.
func NewFlight(entries []Entry) *Flight {
	f := &Flight{entries: map[tko.DeploymentID]Entry{}, total: map[string]int{}, per: map[perKey]int{}, apart: map[valueKey]map[tko.SiteID]int{}, strict: map[valueKey]map[tko.SiteID]int{}}
	for _, e := range entries {
		f.Add(e)
	}
	return f
}

// Add adds an entry; it replaces that of the same deployment.
func (f *Flight) Add(e Entry) {
	f.Remove(e.Deployment)
	f.entries[e.Deployment] = e
	f.count(e, 1)
}

// Remove removes the entry of a deployment, if there is one.
func (f *Flight) Remove(id tko.DeploymentID) {
	if e, ok := f.entries[id]; ok {
		f.count(e, -1)
		delete(f.entries, id)
	}
}

// Of reports whether the deployment is in flight for a rollout of the family.
func (f *Flight) Of(family string, id tko.DeploymentID) bool {
	e, ok := f.entries[id]
	return ok && e.Family == family
}

// Entries returns the entries in the order of IDs.
func (f *Flight) Entries() []Entry {
	out := make([]Entry, 0, len(f.entries))
	for _, id := range slices.Sorted(maps.Keys(f.entries)) {
		out = append(out, f.entries[id])
	}
	return out
}

func (f *Flight) count(e Entry, by int) {
	if e.Family != "" {
		f.total[e.Family] += by
	}
	for _, v := range e.pairs() {
		if e.Family != "" {
			f.per[perKey{e.Family, v.key, v.value}] += by
		}
		if e.Site != "" {
			add(f.apart, v, e.Site, by)
			if slices.Contains(e.Apart, v.key) {
				add(f.strict, v, e.Site, by)
			}
		}
	}
}

// pairs returns the keys and values of an entry, at its admission and now, each once.
func (e Entry) pairs() []valueKey {
	out := make([]valueKey, 0, len(e.Values)+len(e.Now))
	for key, value := range e.Values {
		out = append(out, valueKey{key, value})
	}
	for key, value := range e.Now {
		if was, ok := e.Values[key]; !ok || was != value {
			out = append(out, valueKey{key, value})
		}
	}
	return out
}

func add(m map[valueKey]map[tko.SiteID]int, v valueKey, site tko.SiteID, by int) {
	if m[v] == nil {
		m[v] = map[tko.SiteID]int{}
	}
	m[v][site] += by
	if m[v][site] == 0 {
		delete(m[v], site)
	}
}

// Check returns what keeps a deployment from being changed, or nil if no limit does:
//
//   - concurrent and per count the deployments in flight of the rollout's family.
//   - apart compares sites, of everything that is in flight. It counts if this rollout
//     or that of the other deployment names the key. A site without the key is free.
//   - A deployment that is in flight already is changed only by a rollout that undoes
//     the one that changed it, and takes over its slot, so that no limit is nearer than
//     before; or if no rollout changed it.
func (f *Flight) Check(r Rollout, row Row) *Block {
	if b, taken := f.full(r, row); b != nil || taken {
		return b
	}
	limits := r.Spec.Limits
	for _, p := range limits.Per {
		value, ok := row.Metadata[p.Key]
		if n := f.per[perKey{r.Family, p.Key, value}]; ok && n >= p.Max {
			return &Block{Code: "Per", Key: p.Key + "=" + value, Text: fmt.Sprintf("%s at sites with %s %q changed and not yet healthy, the most that limits.per allows", count(n, "deployment is", "deployments are"), p.Key, value)}
		}
	}
	if row.Site == "" {
		return nil
	}
	for _, key := range limits.Apart {
		if value, ok := row.Metadata[key]; ok {
			if other, found := otherSite(f.apart[valueKey{key, value}], row.Site); found {
				return apartBlock(key, value, other)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(row.Metadata)) {
		value := row.Metadata[key]
		if other, found := otherSite(f.strict[valueKey{key, value}], row.Site); found {
			return apartBlock(key, value, other)
		}
	}
	return nil
}

// full is the part of Check that needs no metadata. If taken is true, the rollout takes a
// slot over, and no limit applies.
func (f *Flight) full(r Rollout, row Row) (b *Block, taken bool) {
	if own, found := f.entries[row.Deployment]; found && own.Family != "" {
		if own.Family != r.Family || own.Rollout == r.ID {
			return &Block{Code: "OtherRollout", Key: own.Rollout, Text: fmt.Sprintf("rollout %q has not finished with the deployment", own.Rollout)}, false
		}
		return nil, true
	}
	if n := f.total[r.Family]; n >= r.Spec.Limits.Concurrent {
		if f.block == nil || f.blocked != n { // the same for thousands of rows
			f.block, f.blocked = &Block{Code: "Concurrent", Text: count(n, "deployment is", "deployments are") + " changed and not yet healthy, the most that limits.concurrent allows"}, n
		}
		return f.block, false
	}
	return nil, false
}

// addOthers adds entries without a rollout, each with all values under which it was found.
// It returns false if it had all of them.
func (f *Flight) addOthers(entries []Entry) (added bool) {
	for _, e := range entries {
		if own, found := f.entries[e.Deployment]; found {
			if own.Family != "" {
				continue
			}
			values := maps.Clone(own.Values)
			maps.Copy(values, e.Values)
			if maps.Equal(values, own.Values) {
				continue
			}
			e.Values = values
		}
		f.Add(e)
		added = true
	}
	return added
}

// Hold returns why a site must not be changed by others now: the rollout of an entry keeps
// apart the sites with a value that both sites have, as it was when the entry was made or
// as it is now. A site that such an entry has itself isn't held: it is being changed
// already, and two sites that hold each other would wait for ever. "" if nothing holds it.
func Hold(entries []Entry, site tko.SiteID, metadata map[string]string) string {
	if slices.ContainsFunc(entries, func(e Entry) bool { return e.Site == site && len(e.Apart) > 0 }) {
		return ""
	}
	for _, e := range entries {
		if e.Site == "" {
			continue
		}
		for _, v := range e.pairs() {
			if value, ok := metadata[v.key]; ok && value == v.value && slices.Contains(e.Apart, v.key) {
				return fmt.Sprintf("rollout %q is changing site %q, whose %s is %q, too, and keeps such sites apart: it waits until the deployment there is healthy, undone or waived", e.Rollout, e.Site, v.key, v.value)
			}
		}
	}
	return ""
}

func apartBlock(key, value string, other tko.SiteID) *Block {
	return &Block{Code: "Apart", Key: key + "=" + value, Text: fmt.Sprintf("site %q, whose %s is %q, too, is changed and not yet healthy: it waits until the deployment there is healthy, undone or waived (tko rollout waive)", other, key, value)}
}

// otherSite returns the first of the sites that isn't the given one.
func otherSite(sites map[tko.SiteID]int, site tko.SiteID) (other tko.SiteID, found bool) {
	for s := range sites {
		if s != site && (!found || s < other) {
			other, found = s, true
		}
	}
	return other, found
}

// EntryOf returns the entry of a row that is admitted now. keys are those that limits of
// any active rollout name. A slot that is taken over keeps its values.
func (f *Flight) EntryOf(r Rollout, row Row, keys []string) Entry {
	values := map[string]string{}
	for _, key := range append(r.Spec.Limits.Keys(), keys...) {
		if v, ok := row.Metadata[key]; ok {
			values[key] = v
		}
	}
	if f.Of(r.Family, row.Deployment) {
		values = f.entries[row.Deployment].Values
	}
	return Entry{Deployment: row.Deployment, Site: row.Site, Rollout: r.ID, Family: r.Family, Values: values, Apart: r.Spec.Limits.Apart}
}
