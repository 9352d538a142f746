package faults

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tko-orchestrator/tko"
)

// An outcome is what a caller knows of a write.
type outcome string

const (
	acknowledged outcome = "acknowledged" // it must be there
	refused      outcome = "refused"      // it must not be there
	unknown      outcome = "unknown"      // it may be there, or appear later: once, and whole
)

// outcomeOf returns the outcome of a call. Errors without a promise leave it unknown.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return acknowledged
	case errors.Is(err, tko.ErrUnavailable):
		if strings.Contains(err.Error(), "nothing was changed") {
			return refused
		}
		return unknown
	case errors.Is(err, tko.ErrInvalid), errors.Is(err, tko.ErrNotFound), errors.Is(err, tko.ErrConflict), errors.Is(err, tko.ErrBusy), errors.Is(err, tko.ErrDenied):
		return refused
	}
	return unknown
}

// A write is an attempt to write or to delete an entity. Each has a tag of its own, which
// the entity then contains.
type write struct {
	tag      string
	outcome  outcome
	revision int64 // of an acknowledged write
	deletes  bool
}

// A record is what is known of an entity that one worker writes, one write after the
// other. Nothing is written after an attempt to delete it, unless that was refused.
type record struct {
	kind     tko.Kind
	id       string // "" if the outcome of the creation of a deployment is unknown
	template string // of a deployment
	writes   []write

	approved  outcome // of a deployment that must be approved: the best of all attempts; "" without any
	condition []write // writes of a condition
}

// deleted returns whether the record must be, and whether it may be, deleted.
func (r *record) deleted() (must, may bool) {
	for _, w := range r.writes {
		if w.deletes {
			must = must || w.outcome == acknowledged
			may = may || w.outcome != refused
		}
	}
	return must, may
}

// current returns the tag and the revision of the newest acknowledged write.
func (r *record) current() (tag string, revision int64) {
	for _, w := range slices.Backward(r.writes) {
		if w.outcome == acknowledged && !w.deletes {
			return w.tag, w.revision
		}
	}
	return "", 0
}

// An observation is what a read returned.
type observation struct {
	exists   bool
	tag      string
	revision int64
}

// checkRead returns what is wrong with a read that began after all of the writes ended;
// "" if nothing is.
func (r *record) checkRead(o observation) string {
	must, may := r.deleted()
	tag, revision := r.current()
	pending := func(deletes bool) bool {
		return slices.ContainsFunc(r.writes, func(w write) bool {
			return w.deletes == deletes && w.outcome == unknown && (deletes || w.tag == o.tag)
		})
	}
	switch {
	case !o.exists && (may || tag == ""):
		return ""
	case !o.exists:
		return fmt.Sprintf("%s %q is lost: %q was acknowledged", r.kind, r.id, tag)
	case must && !pending(false):
		return fmt.Sprintf("%s %q is there again: its deletion was acknowledged", r.kind, r.id)
	case o.tag == tag && o.revision < revision:
		return fmt.Sprintf("%s %q is at revision %d, although revision %d was acknowledged", r.kind, r.id, o.revision, revision)
	case o.tag == tag && tag != "" || pending(false):
		return ""
	}
	return fmt.Sprintf("%s %q has %q at revision %d; acknowledged last: %q at revision %d; all writes: %v", r.kind, r.id, o.tag, o.revision, tag, revision, r.writes)
}

// checkHistory returns what is wrong with the tags of the revisions of an entity, from
// revision 1. Controllers make revisions, too: those keep the tag.
func (r *record) checkHistory(tags []string) []string {
	var wrong []string
	report := func(format string, arguments ...any) {
		wrong = append(wrong, fmt.Sprintf("%s %q: ", r.kind, r.id)+fmt.Sprintf(format, arguments...)+fmt.Sprintf("; revisions: %v; writes: %v", tags, r.writes))
	}
	first := map[string]int{} // the revision that begins a run of a tag
	var order []string
	for i, tag := range tags {
		if i > 0 && tags[i-1] == tag {
			if r.kind != tko.KindDeployment {
				report("%q was written twice", tag)
			}
			continue
		}
		if first[tag] > 0 {
			report("%q is there again: a write was lost, or written twice", tag)
		}
		first[tag] = i + 1
		order = append(order, tag)
	}
	known := map[string]write{}
	last := 0
	for _, w := range r.writes {
		if w.deletes {
			continue
		}
		known[w.tag] = w
		at := first[w.tag]
		switch {
		case w.outcome == refused && at > 0:
			report("%q was refused, and is revision %d", w.tag, at)
		case w.outcome == acknowledged && at == 0:
			report("%q was acknowledged, and is lost", w.tag)
		case w.outcome == acknowledged && w.revision > 0 && at != int(w.revision):
			report("%q was acknowledged as revision %d, and is revision %d", w.tag, w.revision, at)
		case w.outcome == acknowledged && at < last:
			report("%q was written after later writes", w.tag)
		}
		if w.outcome == acknowledged {
			last = at
		}
	}
	for _, tag := range order {
		if _, ok := known[tag]; !ok {
			report("%q was never written", tag)
		}
	}
	return wrong
}

// checkFeed returns what is wrong with all changes of the feed, compared with what was
// acknowledged.
func checkFeed(changes []tko.Change, records []*record) []string {
	var wrong []string
	type entity struct {
		kind tko.Kind
		id   string
	}
	revisions, deletions := map[entity][]int64{}, map[entity]int{}
	position := int64(0)
	for _, c := range changes {
		if c.Position <= position {
			wrong = append(wrong, fmt.Sprintf("feed: position %d after %d", c.Position, position))
		}
		position = c.Position
		e := entity{c.Kind, c.ID}
		switch c.Op {
		case tko.OpWritten:
			if n := len(revisions[e]); c.Revision != int64(n+1) {
				wrong = append(wrong, fmt.Sprintf("feed: %s %q has revision %d at position %d, after %d revisions", c.Kind, c.ID, c.Revision, position, n))
			}
			if deletions[e] > 0 {
				wrong = append(wrong, fmt.Sprintf("feed: %s %q is written at position %d after its deletion", c.Kind, c.ID, position))
			}
			revisions[e] = append(revisions[e], c.Revision)
		case tko.OpDeleted:
			deletions[e]++
		default: // of conditions
		}
	}
	for _, r := range records {
		e := entity{r.kind, r.id}
		must, may := r.deleted()
		if n := deletions[e]; must && n != 1 || !may && n != 0 || n > 1 {
			wrong = append(wrong, fmt.Sprintf("feed: %s %q was deleted %d times; writes: %v", r.kind, r.id, n, r.writes))
		}
		if r.id == "" || r.kind == tko.KindDeployment {
			continue // controllers make revisions, too
		}
		least, most := 0, 0
		for _, w := range r.writes {
			if !w.deletes && w.outcome != refused {
				most++
				if w.outcome == acknowledged {
					least++
				}
			}
		}
		if n := len(revisions[e]); n < least || n > most {
			wrong = append(wrong, fmt.Sprintf("feed: %s %q was written %d times, want %d to %d", r.kind, r.id, n, least, most))
		}
	}
	return wrong
}

// A counter is what is known of a value that many workers increment, each from the value
// that it read under a modification token.
type counter struct {
	tags map[string]outcome
}

// check returns what is wrong with the tags that are in the value.
func (c counter) check(tags []string) []string {
	var wrong []string
	seen := map[string]int{}
	for _, tag := range tags {
		seen[tag]++
		if seen[tag] > 1 {
			wrong = append(wrong, fmt.Sprintf("the increment %s was applied twice", tag))
		}
		if _, ok := c.tags[tag]; !ok {
			wrong = append(wrong, fmt.Sprintf("the increment %s was never sent", tag))
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(c.tags)) {
		switch o := c.tags[tag]; {
		case o == acknowledged && seen[tag] == 0:
			wrong = append(wrong, fmt.Sprintf("the increment %s was acknowledged, and is lost", tag))
		case o == refused && seen[tag] > 0:
			wrong = append(wrong, fmt.Sprintf("the increment %s was refused, and was applied", tag))
		}
	}
	return wrong
}

// A ledger collects the records of all workers, and what the checks found.
type ledger struct {
	mutex    sync.Mutex
	records  []*record
	counter  counter
	problems []string
	counts   map[string]map[outcome]int // by call
}

func newLedger() *ledger {
	return &ledger{counter: counter{map[string]outcome{}}, counts: map[string]map[outcome]int{}}
}

func (l *ledger) add(r *record) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.records = append(l.records, r)
}

func (l *ledger) report(problems ...string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, p := range problems {
		if p != "" {
			l.problems = append(l.problems, p)
		}
	}
}

func (l *ledger) count(call string, o outcome) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.counts[call] == nil {
		l.counts[call] = map[outcome]int{}
	}
	l.counts[call][o]++
}

// acknowledged returns the number of acknowledged calls.
func (l *ledger) acknowledged() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	total := 0
	for _, byOutcome := range l.counts {
		total += byOutcome[acknowledged]
	}
	return total
}

func (l *ledger) increment(tag string, o outcome) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.counter.tags[tag] = o
}

func (l *ledger) found() []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return slices.Clone(l.problems)
}
