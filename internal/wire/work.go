package wire

import (
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// NewClaimWork writes a claim.
func NewClaimWork(c tko.ClaimWork) *tkopb.ClaimWork {
	return &tkopb.ClaimWork{
		Queue:    c.Queue,
		Worker:   c.Worker,
		MaxItems: uint32(min(max(c.Max, 0), math.MaxInt32)),
		Lease:    newDuration(c.Lease),
		Wait:     newDuration(c.Wait),
	}
}

// ClaimWork reads a claim.
func ClaimWork(m *tkopb.ClaimWork) (tko.ClaimWork, error) {
	lease, err := Duration("lease", m.GetLease())
	if err != nil {
		return tko.ClaimWork{}, err
	}
	wait, err := Duration("wait", m.GetWait())
	if err != nil {
		return tko.ClaimWork{}, err
	}
	return tko.ClaimWork{
		Queue:  m.GetQueue(),
		Worker: m.GetWorker(),
		Max:    int(min(m.GetMaxItems(), math.MaxInt32)),
		Lease:  lease,
		Wait:   wait,
	}, nil
}

// NewWorkItems writes items of work.
func NewWorkItems(items []tko.WorkItem) []*tkopb.WorkItem {
	return Each(items, newWorkItem)
}

// WorkItems reads items of work.
func WorkItems(ms []*tkopb.WorkItem) []tko.WorkItem {
	return Each(ms, workItem)
}

func newWorkItem(i tko.WorkItem) *tkopb.WorkItem {
	return &tkopb.WorkItem{
		Queue:     i.Queue,
		Key:       i.Key,
		Claim:     i.Claim,
		Attempt:   uint32(min(max(i.Attempt, 0), math.MaxInt32)),
		LastError: i.LastError,
		Cause:     i.Cause,
		Keep:      i.Keep,
	}
}

func workItem(m *tkopb.WorkItem) tko.WorkItem {
	return tko.WorkItem{
		Queue:     m.GetQueue(),
		Key:       m.GetKey(),
		Claim:     m.GetClaim(),
		Attempt:   int(min(m.GetAttempt(), math.MaxInt32)),
		LastError: m.GetLastError(),
		Cause:     m.GetCause(),
		Keep:      m.GetKeep(),
	}
}

// NewRenewWork writes a renewal of leases.
func NewRenewWork(items []tko.WorkItem, lease time.Duration) *tkopb.RenewWork {
	return &tkopb.RenewWork{Items: NewWorkItems(items), Lease: newDuration(lease)}
}

// outcomes are the outcomes of work, by their numbers on the wire.
var outcomes = []tko.WorkOutcome{
	tkopb.FinishedWork_DONE:     tko.WorkDone,
	tkopb.FinishedWork_FAILED:   tko.WorkFailed,
	tkopb.FinishedWork_LATER:    tko.WorkLater,
	tkopb.FinishedWork_RELEASED: tko.WorkReleased,
}

// NewFinishWork writes the ends of claims. An unknown outcome is an ErrInvalid.
func NewFinishWork(items []tko.FinishedWork) (*tkopb.FinishWork, error) {
	m := &tkopb.FinishWork{Items: make([]*tkopb.FinishedWork, len(items))}
	for i, item := range items {
		outcome := slices.Index(outcomes, item.Outcome)
		if outcome < 0 {
			return nil, tko.Errorf(tko.ErrInvalid, "work %q %q: unknown outcome %q: use one of %q", item.Item.Queue, item.Item.Key, item.Outcome, outcomes)
		}
		m.Items[i] = &tkopb.FinishedWork{
			Item:    newWorkItem(item.Item),
			Outcome: tkopb.FinishedWork_Outcome(outcome), //nolint:gosec // an index of outcomes
			Error:   item.Error,
			Retry:   newDuration(item.Retry),
			Gather:  item.Gather,
		}
	}
	return m, nil
}

// FinishWork reads the ends of claims.
func FinishWork(m *tkopb.FinishWork) ([]tko.FinishedWork, error) {
	items := make([]tko.FinishedWork, len(m.GetItems()))
	for i, item := range m.GetItems() {
		outcome := int(item.GetOutcome())
		if outcome < 0 || outcome >= len(outcomes) {
			return nil, tko.Errorf(tko.ErrInvalid, "work %q %q: unknown outcome %d: use 0 to %d", item.GetItem().GetQueue(), item.GetItem().GetKey(), outcome, len(outcomes)-1)
		}
		retry, err := Duration("retry", item.GetRetry())
		if err != nil {
			return nil, err
		}
		items[i] = tko.FinishedWork{Item: workItem(item.GetItem()), Outcome: outcomes[outcome], Error: item.GetError(), Retry: retry, Gather: item.GetGather()}
	}
	return items, nil
}

// ops are the kinds of changes, by their numbers on the wire.
var ops = []tko.Op{
	tkopb.Change_WRITTEN: tko.OpWritten,
	tkopb.Change_DELETED: tko.OpDeleted,
	tkopb.Change_STATUS:  tko.OpStatus,
}

// NewChange writes an entry of the change log.
func NewChange(c tko.Change) *tkopb.Change {
	return &tkopb.Change{
		Position: c.Position,
		Kind:     string(c.Kind),
		Id:       c.ID,
		Op:       tkopb.Change_Op(max(slices.Index(ops, c.Op), 0)), //nolint:gosec // an index of ops
		Revision: c.Revision,
		Time:     NewTime(c.Time),
		Who:      c.Author.Who,
		Why:      c.Author.Why,
	}
}

// Change reads an entry of the change log. An unknown op of a newer server is
// OpWritten.
func Change(m *tkopb.Change) tko.Change {
	op := tko.OpWritten
	if i := int(m.GetOp()); i >= 0 && i < len(ops) {
		op = ops[i]
	}
	return tko.Change{
		Position: m.GetPosition(),
		Kind:     tko.Kind(m.GetKind()),
		ID:       m.GetId(),
		Op:       op,
		Revision: m.GetRevision(),
		Time:     Time(m.GetTime()),
		Author:   tko.Author{Who: m.GetWho(), Why: m.GetWhy()},
	}
}

// Kinds reads kinds of entities. An unknown kind is an ErrInvalid.
func Kinds(names []string) ([]tko.Kind, error) {
	known := []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin, tko.KindRollout}
	kinds := make([]tko.Kind, len(names))
	for i, name := range names {
		kinds[i] = tko.Kind(name)
		if !slices.Contains(known, kinds[i]) {
			return nil, tko.Errorf(tko.ErrInvalid, "unknown kind %q: use one of %q", name, known)
		}
	}
	return kinds, nil
}

func newDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// Duration reads a duration; nil is 0. A negative or too long one is an
// ErrInvalid that names it as what.
func Duration(what string, m *durationpb.Duration) (time.Duration, error) {
	if m == nil {
		return 0, nil
	}
	if err := m.CheckValid(); err != nil {
		return 0, tko.Errorf(tko.ErrInvalid, "%s: %w", what, err)
	}
	d := m.AsDuration()
	if d < 0 {
		return 0, tko.Errorf(tko.ErrInvalid, "%s is %s: use a positive duration", what, d)
	}
	return d, nil
}
