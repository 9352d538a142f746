package decide

import (
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
)

// maxError is the maximum number of bytes of an error that are stored with an item.
const maxError = 4096

// CheckItem returns an ErrInvalid for a claim that no database can have.
func CheckItem(item tko.WorkItem) error {
	return CheckTexts("queue", item.Queue, "key", item.Key, "claim", item.Claim, "error", item.LastError)
}

// CheckFinished returns an ErrInvalid for a result that is none.
func CheckFinished(f tko.FinishedWork) error {
	if err := CheckItem(f.Item); err != nil {
		return err
	}
	switch f.Outcome {
	case tko.WorkDone, tko.WorkFailed, tko.WorkLater, tko.WorkReleased:
		return nil
	default:
		return tko.Errorf(tko.ErrInvalid, "work %s %q: unknown outcome %q", f.Item.Queue, f.Item.Key, f.Outcome)
	}
}

// ClaimLost returns the error of a claim that its worker no longer has.
func ClaimLost(item tko.WorkItem) error {
	return tko.Errorf(tko.ErrConflict, "the claim of %s %q has ended, another worker may have the item: claim it again", item.Queue, item.Key)
}

// CompareItems is the order in which transactions lock several items.
func CompareItems(a, b tko.WorkItem) int {
	return strings.Compare(a.Queue+" "+a.Key, b.Queue+" "+b.Key)
}

// TruncateText returns the part of a text that is stored with an item.
func TruncateText(text string) string {
	if len(text) > maxError {
		text = text[:maxError]
	}
	return printable.Storable(text)
}

// A Claimed is a claimed item as the database has it.
type Claimed struct {
	Attempt int  // the number of failures in a row
	NewWork bool // it was enqueued again after it was claimed
	Woken   bool // its queue was woken after it was claimed
	Urgent  bool // some of the new work doesn't wait for an item that gathers
}

// A Waiting is the state of an item whose claim has ended.
type Waiting struct {
	Gone     bool // nothing is left to do
	Due      time.Time
	Attempt  int
	Error    string
	Released bool // the request that was claimed is still to be done
	Gather   bool // work that may wait does so until Due
}

// Finish decides the state of an item after the end of its claim. now is the database's time; backoff
// returns the delay of failed items that were not enqueued again, and may be nil.
func Finish(f tko.FinishedWork, c Claimed, now time.Time, backoff func(attempt int) time.Duration) Waiting {
	next := Waiting{Due: now, Attempt: c.Attempt}
	switch f.Outcome {
	case tko.WorkDone:
		if !c.NewWork {
			return Waiting{Gone: true}
		}
		next.Attempt = 0
	case tko.WorkLater:
		next.Attempt = 0
		if f.Gather && !c.Urgent {
			next.Due, next.Gather = now.Add(f.Retry), true
		} else if !c.NewWork { // the new work may be what the item waits for
			next.Due = now.Add(f.Retry)
		}
	case tko.WorkFailed:
		next.Attempt++
		next.Error = TruncateText(f.Error)
		wait := f.Retry
		if wait == 0 && backoff != nil {
			wait = backoff(next.Attempt)
		}
		if c.NewWork { // it may succeed now, but the failed attempt may itself have enqueued it
			wait = min(wait, record.WakeDelay)
		}
		next.Due = now.Add(wait)
	case tko.WorkReleased:
		next.Error, next.Released = f.Item.LastError, true // nothing was done: the request stays
		if !c.NewWork {
			next.Due = now.Add(f.Retry)
		}
	}
	// The queue was woken while the item was claimed: it would have become due soon.
	if c.Woken && next.Due.After(now.Add(record.WakeDelay)) {
		next.Due = now.Add(record.WakeDelay)
	}
	return next
}

// An Enqueued is an item that changes cause.
type Enqueued struct {
	Queue, Key string
	Needed     bool   // otherwise it is enqueued only if the queue has the item
	Urgent     bool   // otherwise it isn't due earlier than an item that gathers
	Cause      string // the newest request that is known
}

// A Works is the work that changes cause.
type Works struct {
	items map[[2]string]Enqueued
	wakes map[string]bool
	// Everywhere reports that each site is to be reconciled.
	Everywhere bool
}

// Add adds the work that a change causes: see [record.WorkFor] and [record.QueuesToWake].
func (w *Works) Add(op tko.Op, before, after record.Record, cause string) {
	switch op {
	case tko.OpStatus:
		return // otherwise controllers would enqueue their own work by reporting conditions
	case tko.OpDeleted:
		after = record.Record{}
	default:
	}
	if w.items == nil {
		w.items, w.wakes = map[[2]string]Enqueued{}, map[string]bool{}
	}
	for _, of := range record.WorkFor(before, after) {
		name := [2]string{of.Queue, of.Key}
		item := w.items[name]
		item.Queue, item.Key, item.Needed, item.Urgent = of.Queue, of.Key, item.Needed || !of.Again, item.Urgent || !of.MayWait
		if cause != "" {
			item.Cause = cause
		}
		w.items[name] = item
	}
	queues, allSites := record.QueuesToWake(before, after)
	for _, queue := range queues {
		w.wakes[queue] = true
	}
	w.Everywhere = w.Everywhere || allSites
}

// Items returns the items in the order of [CompareItems].
func (w *Works) Items() []Enqueued {
	list := make([]Enqueued, 0, len(w.items))
	for _, item := range w.items {
		list = append(list, item)
	}
	slices.SortFunc(list, func(a, b Enqueued) int { return strings.Compare(a.Queue+" "+a.Key, b.Queue+" "+b.Key) })
	return list
}

// Woken returns the queues whose waiting items become due soon, sorted.
func (w *Works) Woken() []string {
	queues := make([]string, 0, len(w.wakes))
	for queue := range w.wakes {
		queues = append(queues, queue)
	}
	slices.Sort(queues)
	return queues
}
