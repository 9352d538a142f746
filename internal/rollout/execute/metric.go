package execute

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// A Outcome is what a measurement of a metric says.
type Outcome string

// The outcomes.
const (
	Good   Outcome = "Good"
	Bad    Outcome = "Bad"
	NoData Outcome = "NoData" // there is no value, or none to compare with
)

// A Metric is what the last measurements of a metric say. The zero value is one that wasn't
// measured.
type Metric struct {
	// Ready is true if the rollout may begin, or go on after a pause: the query was seen to give
	// a value since.
	Ready   bool      `json:"ready,omitempty"`
	Asked   time.Time `json:"asked,omitzero"` // when the last measurement began
	Outcome Outcome   `json:"outcome,omitempty"`
	Since   time.Time `json:"since,omitzero"` // since when Outcome is the same, without interruption
	Text    string    `json:"text,omitempty"` // the last measurement in words
	Waived  bool      `json:"waived,omitempty"`
}

// Waive returns the rollout with a metric that doesn't count any more.
func (r Rollout) Waive(name string) (Rollout, error) {
	if _, found := r.Spec.Health.Metric(name); !found {
		return r, tko.Errorf(tko.ErrNotFound, "rollout %q has no metric %q: see spec.health.metrics", r.ID, name)
	}
	if r.State != Running && r.State != Paused {
		return r, tko.Errorf(tko.ErrConflict, "rollout %q is %s: metrics count only while it is Running or Paused", r.ID, r.State)
	}
	m := r.Metrics[name]
	m.Waived = true
	return r.withMetric(name, m), nil
}

func (r Rollout) withMetric(name string, m Metric) Rollout {
	all := make(map[string]Metric, len(r.Metrics)+1)
	maps.Copy(all, r.Metrics)
	all[name] = m
	r.Metrics = all
	return r
}

// resumeMetrics returns metrics that must be measured again before anything more is changed.
func (r Rollout) resumeMetrics() map[string]Metric {
	all := make(map[string]Metric, len(r.Metrics))
	for name, m := range r.Metrics {
		all[name] = Metric{Waived: m.Waived}
	}
	return all
}

// A Measurement is what one measurement of a metric compares.
type Measurement struct {
	Metric spec.Metric
	Wave   int // whose sites are measured
	// Changed are sites that the rollout has changed; none before the first change: then only
	// whether the query gives a value is measured.
	Changed []tko.SiteID
	// Compared are the sites for the other value: sites that aren't changed yet, or Changed
	// again as of Before. None if the metric has bounds.
	Compared []tko.SiteID
	Before   time.Time // zero: now
	Text     string    // what is special; "" if nothing is
}

// DueMetrics returns the measurements to make now. Sites are a sample that is the same each
// time, as long as the same sites are changed.
func DueMetrics(r Rollout, rows []Row, now time.Time) []Measurement {
	if r.State != Running && r.State != Paused {
		return nil
	}
	var due []Measurement
	var sites *sites
	flying := inFlight(rows)
	if r.State == Paused && !flying {
		return nil
	}
	for _, m := range r.Spec.Health.Metrics {
		known := r.Metrics[m.Name]
		if known.Waived || now.Before(known.dueAt(m, flying)) {
			continue
		}
		if sites == nil {
			sites = sitesOf(rows)
		}
		if next, ok := sites.measurement(m); ok {
			due = append(due, next)
		}
	}
	return due
}

// idleEvery is the least time between two measurements that are good while nothing is in
// flight, such as while a wave waits for an approval.
const idleEvery = 10 * time.Minute

// dueAt returns when a metric is to be measured; the zero time: at once.
func (m Metric) dueAt(of spec.Metric, flying bool) time.Time {
	every := of.Every
	if m.Outcome == Good && !flying {
		every = max(every, idleEvery)
	}
	if m.Asked.IsZero() {
		return time.Time{}
	}
	return m.Asked.Add(every)
}

// inFlight reports whether a row is changed, and not known to be healthy or not.
func inFlight(rows []Row) bool {
	return slices.ContainsFunc(rows, func(row Row) bool { return row.Progress == Applied || row.Progress == Soaking })
}

// sites are the sites of a rollout for measurements.
type sites struct {
	wave      int // that is in progress
	changed   []tko.SiteID
	unchanged []tko.SiteID
	first     time.Time // when the first of changed was changed
	begun     bool      // something was changed
	settled   bool      // nothing is in flight or waits
}

// sitesOf returns the sites that were changed in the wave in progress (if none was yet: in
// all waves before), and the sites at which nothing is changed yet.
func sitesOf(rows []Row) *sites {
	s := &sites{wave: -1}
	for i := range rows {
		if row := &rows[i]; !row.Progress.Ended() && (s.wave < 0 || row.Wave < s.wave) {
			s.wave = row.Wave
		}
	}
	s.settled = s.wave < 0
	waits, all, now := map[tko.SiteID]bool{}, map[tko.SiteID]time.Time{}, map[tko.SiteID]time.Time{}
	earliest := func(of map[tko.SiteID]time.Time, row *Row) {
		if since, found := of[row.Site]; !found || row.Since.Before(since) {
			of[row.Site] = row.Since
		}
	}
	for i := range rows {
		row := &rows[i]
		changed := !row.Since.IsZero()
		s.begun = s.begun || changed
		switch {
		case row.Site == "":
		case changed:
			if earliest(all, row); row.Wave == s.wave {
				earliest(now, row)
			}
		case row.Progress == Waiting:
			waits[row.Site] = true
		}
	}
	for id := range waits {
		if _, changed := all[id]; !changed {
			s.unchanged = append(s.unchanged, id)
		}
	}
	if len(now) == 0 {
		now = all
	}
	for id, since := range now {
		s.changed = append(s.changed, id)
		if s.first.IsZero() || since.Before(s.first) {
			s.first = since
		}
	}
	s.changed, s.unchanged = sample(s.changed), sample(s.unchanged)
	return s
}

// sample returns at most spec.MaxMeasured sites, in the order of IDs: those with the smallest
// hashes, so that it depends on nothing else.
func sample(all []tko.SiteID) []tko.SiteID {
	if len(all) > spec.MaxMeasured {
		hash := func(id tko.SiteID) uint64 {
			h := fnv.New64a()
			_, _ = h.Write([]byte(id))
			return h.Sum64()
		}
		slices.SortFunc(all, func(a, b tko.SiteID) int { return cmp.Or(cmp.Compare(hash(a), hash(b)), cmp.Compare(a, b)) })
		all = all[:spec.MaxMeasured]
	}
	slices.Sort(all)
	return all
}

// beforeChange is the time before the first change as of which sites are measured.
const beforeChange = time.Second

func (s *sites) measurement(m spec.Metric) (Measurement, bool) {
	next := Measurement{Metric: m, Wave: s.wave, Changed: s.changed}
	before := func() { next.Compared, next.Before = s.changed, s.first.Add(-beforeChange) }
	switch {
	case s.settled:
		return next, false
	case len(s.changed) == 0:
		next.Compared = s.unchanged
		return next, m.Compare.To != spec.ToValue || s.begun
	case m.Compare.To == spec.ToBefore:
		before()
	case m.Compare.To == spec.ToUnchanged && len(s.unchanged) == 0:
		before()
		next.Text = "no site is unchanged any more, so it is compared with the same sites before their change"
	case m.Compare.To == spec.ToUnchanged:
		next.Compared = s.unchanged
	}
	return next, true
}

// A Value is the result of a query.
type Value struct {
	Number *float64 // nil: there is none
	Reason string   // why there is none; for users
}

// Is reports whether there is a value, which is finite.
func (v Value) Is() bool {
	_, _, ok := v.number()
	return ok
}

func (v Value) number() (float64, string, bool) {
	switch {
	case v.Number == nil:
		return 0, cmp.Or(v.Reason, "the query gave no value"), false
	case math.IsNaN(*v.Number) || math.IsInf(*v.Number, 0):
		return 0, fmt.Sprintf("the value is %v: a division by zero, or no samples", *v.Number), false
	}
	return *v.Number, "", true
}

func numberText(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }

// Judge returns what a measurement says, in words, too. begins is true before the first
// change, when only compared has a value.
func Judge(c spec.Compare, begins bool, changed, compared Value) (Outcome, string) {
	if begins {
		value, reason, ok := compared.number()
		if !ok {
			return NoData, "before the first change: " + reason
		}
		return Good, "before the first change it is " + numberText(value)
	}
	value, reason, ok := changed.number()
	if !ok {
		return NoData, "at changed sites: " + reason
	}
	text := numberText(value) + " at changed sites"
	if c.To == spec.ToValue {
		return judged(text, bound{value, c.Max, c.Min, "", "it"})
	}
	other, reason, ok := compared.number()
	if !ok {
		return NoData, "at the sites to compare with: " + reason
	}
	at := map[spec.CompareTo]string{spec.ToUnchanged: "at unchanged sites", spec.ToBefore: "before the change"}[c.To]
	text += ", " + numberText(other) + " " + at
	difference := value - other
	return judged(text,
		bound{difference, c.MaxDifference, c.MinDifference, "", "the difference"},
		bound{percentOf(difference, other), c.MaxPercent, c.MinPercent, " %", "the difference"})
}

// percentOf returns a difference in percent of a value. Any difference to 0 is infinitely
// much.
func percentOf(difference, of float64) float64 {
	if difference == 0 {
		return 0
	}
	return difference / math.Abs(of) * 100
}

type bound struct {
	value    float64
	max, min *float64
	unit     string
	what     string
}

func judged(text string, bounds ...bound) (Outcome, string) {
	for _, b := range bounds {
		switch {
		case b.max != nil && b.value > *b.max:
			return Bad, fmt.Sprintf("%s: %s is more than %s%s", text, b.what, numberText(*b.max), b.unit)
		case b.min != nil && b.value < *b.min:
			return Bad, fmt.Sprintf("%s: %s is less than %s%s", text, b.what, numberText(*b.min), b.unit)
		}
	}
	return Good, text
}

// Measured returns the rollout after a measurement that began at a time. One that is not
// newer than the last one changes nothing. begins is true for one before the first change.
func (r Rollout) Measured(name string, v Outcome, text string, asked time.Time) (to Rollout, changes bool) {
	m, found := r.Spec.Health.Metric(name)
	known := r.Metrics[name]
	if !found || known.Waived || !asked.After(known.Asked) {
		return r, false
	}
	if known.Since.IsZero() || known.Outcome != v {
		known.Since = asked
	}
	known.Asked, known.Outcome, known.Text = asked, v, text
	known.Ready = known.Ready || v == Good || v == NoData && m.NoData == spec.NoDataIgnore
	return r.withMetric(name, known), true
}

// slack is the time, in addition to three intervals, after which a measurement is missed.
const slack = 30 * time.Second

// passedAt returns when the newest measurement began of all metrics together, if all are
// good; zero if one isn't. ok is false if there are no metrics.
func (r Rollout) passedAt() (at time.Time, ok bool) {
	for _, m := range r.Spec.Health.Metrics {
		known := r.Metrics[m.Name]
		if known.Waived {
			continue
		}
		if known.Outcome != Good && (known.Outcome != NoData || m.NoData != spec.NoDataIgnore) {
			return time.Time{}, true
		}
		if !ok || known.Asked.Before(at) {
			at = known.Asked
		}
		ok = true
	}
	return at, ok
}

// unmeasured reports whether metrics don't yet say that a row is healthy: they must be good
// in a measurement that began after the row could have soaked.
func (r Rollout) unmeasured(row Row) bool {
	at, ok := r.passedAt()
	return ok && at.Before(row.Since.Add(r.Spec.Health.Soak))
}

// metrics decides by the metrics. It returns what keeps rows from being admitted, or nil.
func (e *evaluation) metrics() *Block {
	var block *Block
	anyChanged := slices.ContainsFunc(e.out.Rows, func(row Row) bool { return !row.Since.IsZero() })
	flying := inFlight(e.out.Rows)
	for _, m := range e.out.Rollout.Spec.Health.Metrics {
		known := e.out.Rollout.Metrics[m.Name]
		if known.Waived {
			continue
		}
		due := e.in.Now.Add(Interval) // it is due now: the controller that measures reports it
		if next := known.dueAt(m, flying); next.After(e.in.Now) {
			due = next
		}
		e.wake(due)
		if b := e.metric(m, known, anyChanged, flying); b != nil && block == nil {
			block = b
		}
		if e.out.Rollout.State != Running {
			return nil
		}
	}
	return block
}

// metric decides by one metric.
func (e *evaluation) metric(m spec.Metric, known Metric, anyChanged, flying bool) *Block {
	now, block := e.in.Now, func(text string) *Block { return &Block{Code: "Metric", Key: m.Name, Text: text} }
	ignored := m.NoData == spec.NoDataIgnore
	missed := flying && !known.Asked.IsZero() && now.Sub(known.Asked) > 3*m.Every+m.Timeout+slack
	lacks := known.Outcome == NoData && !ignored
	dataUntil := known.Asked
	if lacks {
		dataUntil = known.Since
	}
	switch {
	case known.Outcome == Bad && now.Sub(known.Since) >= m.For:
		e.fail(Reason{"Metric", fmt.Sprintf("the metric %q is bad: %s", m.Name, known.Text)}, fmt.Sprintf(": undo the rollout, or waive the metric (tko rollout waive %s --metric %s), then resume", e.in.Rollout.ID, m.Name))
		return nil
	case known.Outcome == Bad:
		e.wake(known.Since.Add(m.For))
		return block(fmt.Sprintf("the metric %q is bad: %s; if it stays so for %s, the rollout fails", m.Name, known.Text, m.For))
	case (lacks || missed) && m.NoData == spec.NoDataPause && now.Sub(dataUntil) >= e.out.Rollout.Spec.Health.Within:
		e.become(Paused, Reason{"NoData", fmt.Sprintf("the metric %q has had no data for %s (%s): correct its query or its server, then resume; or waive it (tko rollout waive %s --metric %s)",
			m.Name, e.out.Rollout.Spec.Health.Within, cmp.Or(known.Text, "it was not measured"), e.in.Rollout.ID, m.Name)})
		return nil
	case lacks:
		return block(fmt.Sprintf("the metric %q has no data: %s", m.Name, known.Text))
	case missed && !ignored:
		return block(fmt.Sprintf("the metric %q was measured last at %s", m.Name, known.Asked.UTC().Format(time.RFC3339)))
	case !known.Ready && (anyChanged || m.Compare.To != spec.ToValue):
		return block(fmt.Sprintf("the metric %q was not yet measured", m.Name))
	}
	return nil
}
