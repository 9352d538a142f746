package notify

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
)

const (
	// slack is how much earlier than its commit the time of a condition's transition may be.
	slack = 30 * time.Second
	// maxTold is the maximum number of things of which it is remembered what was reported last.
	maxTold = 2000
)

// A selection selects what a subscription tells.
type selection struct {
	spec     *Spec
	uid      string // of the subscription
	exceptBy []tko.Pattern
	// since is the time of the newest change that was reported or passed over; zero if unknown.
	since time.Time
	told  map[string]string // what was reported last, by what it is about
	// reported has what was reported about the conditions of each entity: a new entity of the same name starts anew.
	reported map[string][]string
}

func newSelection(s *Spec, uid string, since time.Time, told map[string]string) *selection {
	exceptBy, _ := patterns(s.ExceptBy) // were checked
	reported := map[string][]string{}
	for about := range told {
		if i := strings.LastIndexByte(about, ' '); i >= 0 {
			reported[about[:i]] = append(reported[about[:i]], about)
		}
	}
	return &selection{spec: s, uid: uid, exceptBy: exceptBy, since: since, told: told, reported: reported}
}

// kinds returns the kinds of entities whose changes must be read.
func (s *selection) kinds() (kinds []tko.Kind) {
	for _, f := range s.spec.About {
		all := kindsOf[f.Of]
		if len(f.kinds) > 0 {
			all = f.kinds
		}
		if f.Of == OfAudit || f.Of == OfSources {
			all = nil
		}
		kinds = append(kinds, all...)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// isLeftOut reports whether an author's events aren't told, and counts those that messages
// of the subscription caused: a receiver names the ID of a message as the reason.
func (s *selection) isLeftOut(who, why string, t *tally) bool {
	if strings.Contains(why, s.uid) {
		t.echoes++
		return true
	}
	return slices.ContainsFunc(s.exceptBy, func(p tko.Pattern) bool { return p.Match(who) })
}

// change adds a change to a tally, if it is reported. conditions of one entity are reported once in
// a message.
func (s *selection) change(c tko.SubscribedChange, t *tally) {
	item := Item{Kind: string(c.Kind), ID: c.ID, Time: c.Time, Position: c.Position, Revision: c.Revision, Who: c.Author.Who, Why: c.Author.Why, Site: string(c.Site), Template: string(c.Template)}
	var items []Item
	if fs := s.covering(OfChanges, c); len(fs) > 0 && c.Op != tko.OpStatus {
		item.Of, item.What = OfChanges, opOf(c)
		if slices.ContainsFunc(fs, func(f *Filter) bool { return len(f.Ops) == 0 || slices.Contains(f.Ops, item.What) }) {
			items = append(items, item)
		}
	}
	entity := string(c.Kind) + "/" + c.ID
	if c.Op == tko.OpDeleted {
		s.forget(entity, t)
	}
	if fs := s.covering(OfConditions, c); len(fs) > 0 {
		for _, condition := range s.changed(fs, entity, c.Conditions, t) {
			one := item
			one.Of, one.What, one.Conditions = OfConditions, condition.Type+"="+condition.Status, []Condition{condition}
			if condition.Reason != "" && condition.Reason != condition.Type {
				one.What += ":" + condition.Reason
			}
			items = append(items, one)
		}
	}
	if fs := s.covering(OfRollouts, c); len(fs) > 0 {
		if one, ok := s.rollout(fs, c, item, t); ok {
			items = append(items, one)
		}
	}
	for _, one := range items {
		s.tell(one, c.Frozen, t)
	}
}

// forget ends what was reported about the conditions of an entity that is deleted.
func (s *selection) forget(entity string, t *tally) {
	for _, about := range s.reported[entity] {
		if _, known := s.last(about, t); known {
			t.told[about] = ""
		}
	}
	delete(s.reported, entity)
}

// covering returns the filters of a stream that cover a change. What was reported last is
// remembered once for all of them: what one of them selects is reported, and another one that
// doesn't select it forgets nothing.
func (s *selection) covering(of string, c tko.SubscribedChange) (all []*Filter) {
	for i := range s.spec.About {
		if f := &s.spec.About[i]; f.Of == of && f.covers(c) {
			all = append(all, f)
		}
	}
	return all
}

// selectedBy reports whether one of some filters selects a condition.
func selectedBy(fs []*Filter, c tko.Condition) bool {
	return slices.ContainsFunc(fs, func(f *Filter) bool { return f.selects(c) })
}

// tell adds an event, unless it is left out.
func (s *selection) tell(item Item, frozen bool, t *tally) {
	switch {
	case s.isLeftOut(item.Who, item.Why, t):
	case frozen && s.spec.SilentDuringFreeze:
		t.silenced++
	default:
		t.add(item)
	}
}

func opOf(c tko.SubscribedChange) string {
	switch {
	case c.Op == tko.OpDeleted:
		return deleted
	case c.Created:
		return created
	}
	return updated
}

// covers reports whether a change may be of the stream of a filter, and of an entity that it
// selects.
func (f *Filter) covers(c tko.SubscribedChange) bool {
	site := string(c.Site)
	if c.Kind == tko.KindSite {
		site = c.ID
	}
	return slices.Contains(kindsOf[f.Of], c.Kind) && (len(f.kinds) == 0 || slices.Contains(f.kinds, c.Kind)) && anyOf(f.ids, c.ID) && anyOf(f.sites, site) && f.matches(c.Metadata)
}

// anyOf reports whether one of the patterns matches, or there are none.
func anyOf(patterns []tko.Pattern, text string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p tko.Pattern) bool { return p.Match(text) })
}

func (f *Filter) matches(metadata map[string]string) bool {
	for key, pattern := range f.metadata {
		if value, ok := metadata[key]; !ok || !pattern.Match(value) {
			return false
		}
	}
	return true
}

// names reports whether a filter names conditions of a type.
func (f *Filter) names(typ string) bool {
	return slices.ContainsFunc(f.Conditions, func(text string) bool {
		named, _, _ := cutCondition(text)
		return named == typ
	})
}

// selects reports whether a filter selects a condition.
func (f *Filter) selects(c tko.Condition) bool {
	return len(f.Conditions) == 0 || slices.ContainsFunc(f.Conditions, func(text string) bool {
		typ, status, reason := cutCondition(text)
		return c.Type == typ && (status == "" || c.Status == status) && (reason == "" || c.Reason == reason)
	})
}

// last returns what was reported last about something, also in this message.
func (s *selection) last(about string, t *tally) (text string, known bool) {
	text, known = t.told[about]
	if known {
		return text, text != ""
	}
	text, known = s.told[about]
	return text, known
}

// changed returns the conditions of an entity that have changed, and that one of the filters
// selects. Of named conditions, it is
// remembered what was reported last, so that another reason is reported, too; of others, the time of
// the transition decides.
func (s *selection) changed(fs []*Filter, entity string, conditions []tko.Condition, t *tally) (changed []Condition) {
	for _, c := range conditions {
		remembers := slices.ContainsFunc(fs, func(f *Filter) bool { return f.names(c.Type) })
		about, is := entity+" "+c.Type, c.Status+":"+c.Reason
		last, known := s.last(about, t)
		if !selectedBy(fs, c) {
			if known && remembers {
				t.told[about] = ""
			}
			continue
		}
		isNew := s.since.IsZero() || c.LastTransition.After(s.since.Add(-slack))
		switch {
		case known && last == is:
			continue
		case !known && !isNew && (!remembers || len(s.told)+len(t.told) >= maxTold):
			continue
		}
		t.told[about] = is // in a message, it is reported once
		if !known {
			s.reported[entity] = append(s.reported[entity], about)
		}
		changed = append(changed, Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: c.LastTransition})
	}
	return changed
}

// aboutRollout begins what is remembered of a rollout.
const aboutRollout = "rollout/"

// rollout returns the event of a rollout that has another state than was reported last.
func (s *selection) rollout(fs []*Filter, c tko.SubscribedChange, item Item, t *tally) (Item, bool) {
	about := aboutRollout + c.ID
	state := tko.FindCondition(c.Conditions, tko.ConditionState)
	if state == nil { // it is deleted, or the owner may not see it any more
		if _, known := s.last(about, t); known {
			t.told[about] = ""
		}
		return item, false
	}
	is := state.Reason + ":" + state.Message
	last, known := s.last(about, t)
	if !slices.ContainsFunc(fs, func(f *Filter) bool { return len(f.States) == 0 || slices.Contains(f.States, state.Reason) }) {
		if known {
			t.told[about] = ""
		}
		return item, false
	}
	if known && last == is {
		return item, false
	}
	t.told[about] = is
	item.Of, item.What, item.Message = OfRollouts, state.Reason, state.Message
	return item, true
}

// sources adds the sources whose readiness or revision is another one than was reported last.
func (s *selection) sources(all []tko.Source, now time.Time, t *tally) {
	there := map[string]bool{}
	for _, source := range all {
		there[source.Name] = true
		var fs []*Filter
		for i := range s.spec.About {
			if f := &s.spec.About[i]; f.Of == OfSources && anyOf(f.ids, source.Name) {
				fs = append(fs, f)
			}
		}
		for _, c := range source.Status.Conditions {
			s.source(fs, source.Name, c, now, t)
		}
	}
	for about := range s.told { // one of the same name that comes later is another one
		if name, ok := strings.CutPrefix(about, aboutSource); ok {
			name, _, _ = strings.Cut(name, " ")
			if !there[name] {
				t.told[about] = ""
			}
		}
	}
}

// aboutSource begins what is remembered of a source.
const aboutSource = "source/"

// source adds the condition of a source, if one of the filters selects it and it is another one
// than was reported last. Filters that name no conditions select whether it is ready.
func (s *selection) source(fs []*Filter, name string, c tko.Condition, now time.Time, t *tally) {
	about, is := aboutSource+name+" "+c.Type, c.Status+":"+c.Reason
	last, known := s.last(about, t)
	if !slices.ContainsFunc(fs, func(f *Filter) bool { return f.selects(c) && (len(f.Conditions) > 0 || c.Type == tko.ConditionReady) }) {
		if known {
			t.told[about] = ""
		}
		return
	}
	if known && last == is {
		return
	}
	t.told[about] = is
	if !known && c.Status == tko.ConditionTrue { // it is as it should be, from the beginning
		return
	}
	item := Item{
		Of: OfSources, Kind: "source", ID: name, What: c.Type + "=" + c.Status, Time: c.LastTransition, Message: c.Message,
		Conditions: []Condition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Since: c.LastTransition}},
	}
	if item.Time.IsZero() {
		item.Time = now
	}
	t.add(item)
}

// record adds an audit record to a tally, if it is reported.
func (s *selection) record(one tko.SubscribedRecord, t *tally) error {
	var r audit.Record
	if err := json.Unmarshal(one.Text, &r); err != nil {
		return err
	}
	for _, f := range s.spec.About {
		site := r.Site
		if r.Kind == string(tko.KindSite) {
			site = r.ID
		}
		if f.Of != OfAudit || !anyOf(f.ids, r.ID) || !anyOf(f.sites, site) || len(f.kinds) > 0 && !slices.Contains(f.kinds, tko.Kind(r.Kind)) ||
			len(f.Decisions) > 0 && !slices.Contains(f.Decisions, r.Decision) {
			continue
		}
		what := r.Decision
		if r.Op != "" {
			what = r.Op + ", " + r.Decision
		}
		s.tell(Item{
			Of: OfAudit, Kind: r.Kind, ID: r.ID, What: what, Time: r.Time, Position: r.Seq, Revision: r.Revision, Who: r.Subject, Why: r.Why,
			Site: r.Site, Template: r.Template, Message: r.Detail,
		}, false, t)
		return nil
	}
	return nil
}
