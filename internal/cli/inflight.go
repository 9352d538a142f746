package cli

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// maxInFlight is the number of calls that a command has in flight at a time. The server
// commits calls that arrive together in one transaction.
const maxInFlight = 16

// An ordering orders what is done to many entities: what is in one level may be done at the
// same time, once everything in the levels before it is done.
type ordering struct {
	levels [][]int // indexes, each in the order in which they were added

	kind   tko.Kind
	floor  int            // the first level that may be used
	last   map[string]int // the level of each entity
	length int
}

// add adds the next entity. Kinds are added one after the other: an entity comes after all of the
// kinds before it, after its parent, and after an earlier one with the same ID. One that must be
// alone also comes after all that were added before it, and before all that are added later.
func (o *ordering) add(m Manifest) {
	kind, ids, alone := m.Put.Kind, []string{m.Put.ID}, isAlone(m)
	if kind == tko.KindDeployment {
		ids = append(ids, string(nameID(m.Name)))
	}
	if o.last == nil || kind != o.kind || alone {
		o.floor, o.kind, o.last = len(o.levels), kind, map[string]int{}
	}
	level := o.floor
	for _, before := range append(slices.Clone(ids), string(m.Put.Parent)) {
		if at, ok := o.last[before]; ok && before != "" {
			level = max(level, at+1)
		}
	}
	if alone {
		o.floor++
	}
	for len(o.levels) <= level {
		o.levels = append(o.levels, nil)
	}
	o.levels[level] = append(o.levels[level], o.length)
	for _, id := range ids {
		o.last[id] = level
	}
	o.length++
}

// orderOf returns the order in which manifests are checked and applied.
func orderOf(manifests []Manifest) [][]int {
	var o ordering
	for _, m := range manifests {
		o.add(m)
	}
	return o.levels
}

// isAlone reports whether other entities are validated with an entity: they must not be written at
// the same time. What there are few of is written one by one, too.
func isAlone(m Manifest) bool {
	switch m.Put.Kind {
	case tko.KindSite, tko.KindDeployment, KindSource, tko.KindSubscription, KindView:
		return false
	case tko.KindTemplate:
		return m.Put.Package == nil || slices.ContainsFunc(m.Put.Package, isDefinition)
	case tko.KindPlugin, tko.KindRollout:
	}
	return true
}

// inFlight calls do for each index, level by level, with many calls at a time. After the first
// error it begins no further call, waits for those in flight, and returns the error of the least
// index, and the index.
func inFlight(levels [][]int, do func(i int) error) (failed int, err error) {
	var f flight
	slots := make(chan struct{}, maxInFlight)
	for _, level := range levels {
		var calls sync.WaitGroup
		for _, i := range level {
			slots <- struct{}{}
			if f.hasFailed() {
				break
			}
			calls.Go(func() {
				defer func() { <-slots }()
				f.end(i, do(i))
			})
		}
		calls.Wait()
		if f.err != nil {
			return f.failed, f.err
		}
	}
	return 0, nil
}

// A flight is the first error of calls that are in flight.
type flight struct {
	mutex  sync.Mutex
	failed int // the index
	err    error
}

func (f *flight) hasFailed() bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.err != nil
}

func (f *flight) end(i int, err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if err != nil && (f.err == nil || i < f.failed) {
		f.failed, f.err = i, err
	}
}

// A tally shows on a terminal how many of many entities are done, and the time that is left. It
// is safe for concurrent use.
type tally struct {
	line progressLine
	what string // what is done to them: "checked"
	all  int

	mutex sync.Mutex
	done  int
	began time.Time
	drawn time.Time
}

const (
	tallyAfter = time.Second // shorter ones are not shown
	tallyPause = 200 * time.Millisecond
)

func (s *session) tally(what string, all int) *tally {
	now := time.Now()
	return &tally{line: newProgressLine(s), what: what, all: all, began: now, drawn: now.Add(tallyAfter - tallyPause)}
}

// add counts one that is done.
func (t *tally) add() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.done++
	now := time.Now()
	if !t.line.isBar() || now.Sub(t.drawn) < tallyPause {
		return
	}
	t.drawn = now
	left := time.Duration(float64(now.Sub(t.began)) / float64(t.done) * float64(t.all-t.done))
	t.line.last = fmt.Sprintf("%s %d of %d, %s left", t.what, t.done, t.all, left.Round(time.Second))
	t.line.draw(tko.RolloutWave{Rows: t.all, Progress: map[string]int{"Healthy": t.done}}, t.line.last)
}

// end removes what is shown.
func (t *tally) end() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.line.clear()
}

// coming are the entities of manifests that are not on the server yet as they will be. It is safe
// for concurrent use; nil has none.
type coming struct {
	mutex sync.Mutex
	keys  map[string]bool // KIND ID
}

func comingOf(manifests []Manifest) *coming {
	c := &coming{keys: map[string]bool{}}
	for _, m := range manifests {
		c.keys[string(m.Put.Kind)+" "+m.Put.ID] = true
		if m.Put.Kind == tko.KindDeployment {
			c.keys["deployment "+string(nameID(m.Name))] = true
		}
	}
	return c
}

// has reports whether an entity is coming.
func (c *coming) has(kind tko.Kind, id string) bool {
	if c == nil {
		return false
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.keys[string(kind)+" "+id]
}

// isThere removes what is on the server as it will be.
func (c *coming) isThere(m Manifest) {
	if m.Put.Kind == tko.KindDeployment {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.keys, string(m.Put.Kind)+" "+m.Put.ID)
}

// planAll plans manifests. coming has the entities of all of them. The error has all that is
// wrong, in the order of the manifests; without steps, it is of the server.
func planAll(s *session, manifests []Manifest, plan func(m Manifest, coming *coming) (step, error)) (steps []step, err error) {
	c := comingOf(manifests)
	steps = make([]step, len(manifests))
	wrong := make([]error, len(manifests))
	t := s.tally("checked", len(manifests))
	defer t.end()
	_, err = inFlight(orderOf(manifests), func(i int) (err error) {
		m := manifests[i]
		steps[i], err = plan(m, c)
		switch {
		case err == nil && steps[i].verb == "":
			c.isThere(m)
		case errors.Is(err, tko.ErrInvalid), errors.Is(err, tko.ErrNotFound):
			wrong[i] = fmt.Errorf("%s: %s %q: %w", m.File, m.Put.Kind, m.Name, err)
		case err != nil:
			return err
		}
		t.add()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return steps, printable.Problems(wrong)
}

// applyAll makes the changes, in their order, and returns their number.
func applyAll(s *session, steps []step, apply func(step) error) (done int, err error) {
	steps = slices.DeleteFunc(slices.Clone(steps), func(one step) bool { return one.verb == "" })
	manifests := make([]Manifest, len(steps))
	for i, one := range steps {
		manifests[i] = one.Manifest
	}
	t := s.tally("made", len(steps))
	defer t.end()
	failed, err := inFlight(orderOf(manifests), func(i int) error {
		err := apply(steps[i])
		if err == nil {
			t.add()
		}
		return err
	})
	if err != nil {
		one := steps[failed]
		err = fmt.Errorf("%s: %s %q: %w (%s made before it: the same command continues)", one.File, one.Put.Kind, one.Name, err, count(t.done, "change was", "changes were"))
	}
	return t.done, err
}
