package notify

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// The limits of messages.
const (
	maxItems  = 20
	maxCounts = 50   // of different kinds of events
	maxLine   = 300  // bytes of a text of an item
	maxTitle  = 200  // bytes
	maxBody   = 8000 // bytes of the text
)

// A Message is what a destination gets: events of one subscription, counted and, as far as
// they fit, listed.
type Message struct {
	// ID is the same each time that the message is sent.
	ID           string    `json:"id"`
	Subscription string    `json:"subscription"`
	Instance     string    `json:"instance,omitempty"`
	Number       int64     `json:"number,omitempty"`
	Time         time.Time `json:"time"` // of this attempt to send it
	Test         bool      `json:"test,omitempty"`
	Title        string    `json:"title"`
	Text         string    `json:"text"`

	After  int64   `json:"after,omitempty"` // positions of the change log: it tells later ones,
	UpTo   int64   `json:"upTo,omitempty"`  // up to this
	Total  int     `json:"total"`           // number of events
	Counts []Count `json:"counts"`
	Items  []Item  `json:"items"`          // the first of the events
	More   int     `json:"more,omitempty"` // number of further events, which aren't listed

	Gap      *Gap   `json:"gap,omitempty"`
	Silenced int    `json:"silenced,omitempty"` // events at frozen sites, which aren't told
	Echoes   int    `json:"echoes,omitempty"`   // changes that messages of the subscription caused, which aren't told
	Problem  string `json:"problem,omitempty"`  // why the template gives no text
}

// A Count is how many events of one kind there are.
type Count struct {
	Of       string `json:"of"`
	Kind     string `json:"kind"`
	What     string `json:"what"`
	Events   int    `json:"events"`
	Entities int    `json:"entities"`
}

// An Item is one event.
type Item struct {
	Of         string      `json:"of"`
	Kind       string      `json:"kind"`
	ID         string      `json:"id"`
	What       string      `json:"what"`
	Time       time.Time   `json:"time,omitzero"`
	Position   int64       `json:"position,omitempty"` // of the change; of audit records, their number
	Revision   int64       `json:"revision,omitempty"`
	Who        string      `json:"who,omitempty"`
	Why        string      `json:"why,omitempty"`
	Site       string      `json:"site,omitempty"`
	Template   string      `json:"template,omitempty"`
	Message    string      `json:"message,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// A Condition is one that has changed.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// A Gap says what can't be reported, because it is no longer retained.
type Gap struct {
	After   int64 `json:"after,omitempty"`   // changes after this position,
	UpTo    int64 `json:"upTo,omitempty"`    // up to this
	Records int64 `json:"records,omitempty"` // number of audit records
}

// String describes the gap.
func (g Gap) String() string {
	var parts []string
	if g.UpTo > 0 {
		parts = append(parts, fmt.Sprintf("the changes after position %d up to %d (%d positions)", g.After, g.UpTo, g.UpTo-g.After))
	}
	if g.Records > 0 {
		parts = append(parts, fmt.Sprintf("%d audit records", g.Records))
	}
	return strings.Join(parts, " and ") + " were removed before they could be reported, so events are missing"
}

// The what of events.
const (
	created = "created"
	updated = "updated"
	deleted = "deleted"
)

var ops = []string{created, updated, deleted}

// A tally counts events. Its memory is bounded by the number of events of one message.
type tally struct {
	counts map[countKey]*counted
	other  counted // events of further kinds
	items  []Item
	total  int

	silenced, echoes int
	gap              Gap
	told             map[string]string // what is reported, by what it is about; "" if that is over
}

type countKey struct{ of, kind, what string }

type counted struct {
	events   int
	entities map[uint64]struct{} // hashes of IDs
}

var seed = maphash.MakeSeed()

func newTally() *tally {
	return &tally{counts: map[countKey]*counted{}, told: map[string]string{}}
}

func (t *tally) add(item Item) {
	t.total++
	key := countKey{item.Of, item.Kind, item.What}
	c := t.counts[key]
	if c == nil {
		c = &counted{}
		if len(t.counts) >= maxCounts {
			c = &t.other
		} else {
			t.counts[key] = c
		}
	}
	if c.entities == nil {
		c.entities = map[uint64]struct{}{}
	}
	c.events++
	c.entities[maphash.String(seed, item.Kind+"\x00"+item.ID)] = struct{}{}
	if len(t.items) >= maxItems {
		return
	}
	for _, text := range []*string{&item.Who, &item.Why, &item.Message} {
		*text = printable.Short(printable.Text(*text), maxLine)
	}
	for i := range item.Conditions {
		c := &item.Conditions[i]
		c.Message = printable.Short(printable.Text(c.Message), maxLine)
	}
	t.items = append(t.items, item)
}

// message returns a message with the default texts.
func (t *tally) message() Message {
	m := Message{Total: t.total, Counts: []Count{}, Items: append([]Item{}, t.items...), More: t.total - len(t.items), Silenced: t.silenced, Echoes: t.echoes}
	for key, c := range t.counts {
		m.Counts = append(m.Counts, Count{key.of, key.kind, key.what, c.events, len(c.entities)})
	}
	slices.SortFunc(m.Counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Entities, a.Entities), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.What, b.What))
	})
	if t.other.events > 0 {
		m.Counts = append(m.Counts, Count{Of: "other", Kind: "event", What: "of further kinds", Events: t.other.events, Entities: len(t.other.entities)})
	}
	if t.gap != (Gap{}) {
		m.Gap = &t.gap
	}
	m.Title, m.Text = m.title(), m.text()
	return m
}

func (m Message) title() string {
	var parts []string
	for i, c := range m.Counts {
		if i == 3 {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, c.String())
	}
	if m.Gap != nil {
		parts = append(parts, "events are missing")
	}
	return printable.Short(fmt.Sprintf("%s: %s", m.Subscription, strings.Join(parts, ", ")), maxTitle)
}

// String returns a count such as "5000 deployments updated".
func (c Count) String() string {
	plural := "s"
	if c.Entities == 1 {
		plural = ""
	}
	return fmt.Sprintf("%d %s%s %s", c.Entities, c.Kind, plural, c.What)
}

func (m Message) text() string {
	var b strings.Builder
	for _, c := range m.Counts {
		b.WriteString(c.String())
		if c.Events != c.Entities {
			fmt.Fprintf(&b, " (%d times)", c.Events)
		}
		b.WriteByte('\n')
	}
	for _, item := range m.Items {
		fmt.Fprintf(&b, "- %s\n", item)
	}
	if m.More > 0 {
		fmt.Fprintf(&b, "and %d further events\n", m.More)
	}
	if m.Gap != nil {
		fmt.Fprintf(&b, "GAP: %s\n", m.Gap)
	}
	if m.Silenced > 0 {
		fmt.Fprintf(&b, "%d events at frozen sites are not reported\n", m.Silenced)
	}
	if m.Echoes > 0 {
		fmt.Fprintf(&b, "%d changes that messages of this subscription caused are not reported\n", m.Echoes)
	}
	return printable.Short(b.String(), maxBody)
}

// String returns an event on one line.
func (i Item) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", i.Kind, i.ID, i.What)
	for _, part := range []struct{ word, text string }{{" at site ", i.Site}, {" by ", i.Who}, {": ", i.Why}, {": ", i.Message}} {
		if part.text != "" {
			b.WriteString(part.word + part.text)
		}
	}
	for _, c := range i.Conditions {
		if c.Message != "" {
			fmt.Fprintf(&b, ": %s", c.Message)
		}
	}
	return printable.Short(printable.Text(b.String()), maxLine)
}

// testMessage returns a test message of a subscription.
func testMessage(s tko.Subscription, now time.Time) Message {
	return Message{
		ID: fmt.Sprintf("%s.test.%d", s.UID, now.UnixNano()), Subscription: s.Name, Time: now.UTC(), Test: true, Counts: []Count{}, Items: []Item{},
		Title: s.Name + ": test message", Text: fmt.Sprintf("This is a test of the subscription %q: nothing has happened.\n", s.Name),
	}
}
