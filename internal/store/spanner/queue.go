package spanner

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// An itemKey identifies an item of work.
type itemKey struct{ queue, key string }

func (k itemKey) spanner() spanner.Key { return spanner.Key{shardOf(k.key), k.queue, k.key} }

// An item is an item of work. All times are the database's. Without a claim, claimed and leaseUntil are zero.
type item struct {
	itemKey

	generation int64 // counts requests
	seen       int64 // the generation that was claimed
	due, since time.Time
	attempt    int64
	lastError  string
	cause      string
	claim      string
	claimed    time.Time
	leaseUntil time.Time
	gathering  bool // only work that may wait was enqueued since it was claimed, or since the end of a claim that gathers
}

var itemColumns = []string{"queue", "key", "generation", "seen", "due", "since", "attempt", "last_error", "cause", "claim", "claimed", "lease_until", "gathering"}

func scanItem(row *spanner.Row, more ...any) (i item, err error) {
	err = row.Columns(append([]any{&i.queue, &i.key, &i.generation, &i.seen, &i.due, &i.since, &i.attempt, &i.lastError, &i.cause, &i.claim, &i.claimed, &i.leaseUntil, &i.gathering}, more...)...)
	return i, err
}

// bit returns 1 for true, and 0 for false.
func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// dueIndex is what the index of due times adds to the mutations of an item: an entry that is removed, and one that is added.
const dueIndex = 2 * 4

func (i *item) put(m *mutations) {
	m.put("work", append([]string{"shard"}, itemColumns...),
		shardOf(i.key), i.queue, i.key, i.generation, i.seen, i.due, i.since, i.attempt, i.lastError, i.cause, i.claim, i.claimed, i.leaseUntil, i.gathering)
	m.count += dueIndex
}

// dueAt returns when an item is due, if its queue was woken at a time.
func (i *item) dueAt(woken time.Time) time.Time {
	soon := woken.Add(record.WakeDelay)
	if i.claim == "" && !i.since.After(woken) && i.due.After(soon) {
		return soon
	}
	return i.due
}

// request enqueues an item, due at a time. One that is claimed is processed again when its claim ends. Of several causes, the
// newest one is kept.
func (i *item) request(now, due time.Time, cause string) { i.requestAs(now, due, cause, false) }

// requestAs is request. If mayWait is true, an item that gathers isn't due earlier.
func (i *item) requestAs(now, due time.Time, cause string, mayWait bool) {
	if i.generation == 0 {
		i.due, i.since, i.gathering = due, now, mayWait
	} else if !i.leaseUntil.After(now) && i.due.After(due) && (!i.gathering || !mayWait) {
		i.due, i.since = due, now
	}
	i.gathering = i.gathering && mayWait
	i.generation++
	if cause != "" {
		i.cause = cause
	}
}

// readItems reads items of work.
func readItems(ctx context.Context, from reader, keys []itemKey) (map[itemKey]*item, error) {
	found := make(map[itemKey]*item, len(keys))
	var wanted []spanner.Key
	for _, key := range keys {
		wanted = append(wanted, key.spanner())
	}
	if len(wanted) == 0 {
		return found, ctx.Err()
	}
	err := from.Read(ctx, "work", spanner.KeySetFromKeys(wanted...), itemColumns).Do(func(row *spanner.Row) error {
		i, err := scanItem(row)
		found[i.itemKey] = &i
		return err
	})
	return found, fault("read work", err)
}

// wakeSlots is the number of rows of a queue's wake-ups: commits that wake the same queue write different ones.
const wakeSlots = 16

// putWake notes that the waiting items of a queue are due soon. The items themselves aren't written: there may be very many, and
// those who claim compare them with the newest wake-up.
func putWake(m *mutations, queue string) {
	m.put("wake", []string{"queue", "slot", "woken"}, queue, mathrand.Int64N(wakeSlots), spanner.CommitTimestamp) //nolint:gosec // spreads writers
}

// readWoken returns when a queue was woken last.
func readWoken(ctx context.Context, from reader, queue string) (woken time.Time, err error) {
	err = from.Read(ctx, "wake", spanner.Key{queue}.AsPrefix(), []string{"woken"}).Do(func(row *spanner.Row) error {
		var at time.Time
		err := row.Column(0, &at)
		if at.After(woken) {
			woken = at
		}
		return err
	})
	return woken, fault("read wake-ups", err)
}

// putNews notes that work became due without a change of a record, for other stores.
func putNews(m *mutations) {
	m.put("news", []string{"slot", "noted"}, mathrand.Int64N(wakeSlots), spanner.CommitTimestamp) //nolint:gosec // spreads writers
}

// dueNow is the condition that an item is due, and dueAt is when it is: those that have waited since before the queue was woken are due
// soon after that.
const (
	dueAt    = "IF(w.claim = '' AND w.since <= @woken AND w.due > @soon, @soon, w.due)"
	ofQueue  = "FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s JOIN work AS w ON w.shard = s WHERE w.queue = @queue"
	maxItems = 100_000 // that statistics count
)

// A queueView is a queue at a moment.
type queueView struct {
	now, woken time.Time
	held       bool // some of its work is held after a restore
	parameters map[string]any
}

func readQueue(ctx context.Context, from reader, queue string) (v queueView, err error) {
	statement := spanner.Statement{SQL: "SELECT CURRENT_TIMESTAMP(), EXISTS(SELECT 1 FROM hold AS h WHERE h.queue = @queue)", Params: map[string]any{"queue": queue}}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error { return row.Columns(&v.now, &v.held) })
	if err != nil {
		return v, fault("read the time", err)
	}
	v.now = v.now.UTC().Truncate(time.Microsecond)
	v.woken, err = readWoken(ctx, from, queue)
	v.parameters = map[string]any{"queue": queue, "now": v.now, "woken": v.woken, "soon": v.woken.Add(record.WakeDelay)}
	return v, err
}

// A candidate is an item that is due. Keep says that its work must remove nothing.
type candidate struct {
	item

	keep bool
}

// candidates returns items that are due and not held, oldest first, or when the next one will be; zero if there is none.
func (s *Store) candidates(ctx context.Context, queue string, most int) (items []candidate, next time.Time, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	v, err := readQueue(ctx, snapshot, queue)
	if err != nil {
		return nil, next, err
	}
	kept, released := "FALSE", ""
	if v.held {
		kept, released = keptItem, notHeld
	}
	v.parameters["most"] = int64(most)
	statement := spanner.Statement{
		SQL: "SELECT w.queue, w.key, w.generation, w.seen, w.due, w.since, w.attempt, w.last_error, w.cause, w.claim, w.claimed, w.lease_until, w.gathering, " + kept + " " + ofQueue +
			" AND " + dueAt + " <= @now" + released + " ORDER BY " + dueAt + ", w.key LIMIT @most",
		Params: v.parameters,
	}
	if most > 0 {
		err = snapshot.Query(ctx, statement).Do(func(row *spanner.Row) error {
			var c candidate
			i, err := scanItem(row, &c.keep)
			c.item = i
			items = append(items, c)
			return err
		})
	}
	if err != nil || len(items) > 0 {
		return items, next, fault("read due work", err)
	}
	if v.held { // what is due is held; a release is signalled
		return nil, v.now.Add(heldPause), nil
	}
	var first spanner.NullTime
	statement.SQL = "SELECT MIN(" + dueAt + ") " + ofQueue
	err = snapshot.Query(ctx, statement).Do(func(row *spanner.Row) error { return row.Column(0, &first) })
	return nil, first.Time.UTC(), fault("read due work", err)
}

// ClaimWork claims items that are due and not leased.
func (s *Store) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, time.Time, error) {
	if err := decide.CheckTexts("queue", claim.Queue, "worker", claim.Worker); err != nil {
		return nil, time.Time{}, err
	}
	candidates, next, err := s.candidates(ctx, claim.Queue, claim.Max) // most calls find no item: they don't lock
	if err != nil || len(candidates) == 0 {
		return nil, next, err
	}
	keys := make([]itemKey, len(candidates))
	for i := range candidates {
		keys[i] = candidates[i].itemKey
	}
	var items []tko.WorkItem
	var now time.Time
	id := rand.Text()
	err = s.write(ctx, "claim work", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		items = nil
		var err error
		if now, err = readNow(ctx, tx); err != nil {
			return err
		}
		found, err := readItems(ctx, tx, keys)
		if err != nil {
			return err
		}
		for _, candidate := range candidates {
			i := found[candidate.itemKey]
			switch {
			case i == nil:
				continue
			case i.claim == id: // by a transaction whose outcome was unknown
			case i.claim != candidate.claim, !i.since.Equal(candidate.since) && i.due.After(now):
				continue
			default:
				i.claim, i.claimed, i.seen, i.leaseUntil, i.gathering = id, now, i.generation, now.Add(claim.Lease), true
				i.due, i.since = i.leaseUntil, now
				i.put(m)
			}
			items = append(items, tko.WorkItem{Queue: i.queue, Key: i.key, Claim: id, Attempt: int(i.attempt), LastError: i.lastError, Cause: i.cause, Keep: candidate.keep})
		}
		return nil
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	if len(items) == 0 { // other workers have claimed them
		return nil, now, nil
	}
	return items, time.Time{}, nil
}

// RenewWork extends leases.
func (s *Store) RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error) {
	items = slices.Clone(items)
	slices.SortFunc(items, decide.CompareItems)
	for _, i := range items {
		if err := decide.CheckItem(i); err != nil {
			return nil, err
		}
	}
	if len(items) == 0 {
		return items, ctx.Err()
	}
	var held []tko.WorkItem
	err := s.write(ctx, "renew leases", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		held = nil
		now, err := readNow(ctx, tx)
		if err != nil {
			return err
		}
		found, err := readItems(ctx, tx, itemKeys(items))
		if err != nil {
			return err
		}
		for _, wanted := range items {
			i := found[itemKey{wanted.Queue, wanted.Key}]
			if i == nil || i.claim != wanted.Claim || !i.leaseUntil.After(now) {
				continue
			}
			i.leaseUntil = now.Add(lease)
			i.due, i.since = i.leaseUntil, now
			i.put(m)
			held = append(held, wanted)
		}
		return nil
	})
	return held, err
}

func itemKeys(items []tko.WorkItem) []itemKey {
	keys := make([]itemKey, len(items))
	for i, item := range items {
		keys[i] = itemKey{item.Queue, item.Key}
	}
	return keys
}

// WorkClaim returns the claim of an item.
func (s *Store) WorkClaim(ctx context.Context, queue, key string) (claim string, until time.Time, err error) {
	if err := decide.CheckTexts("queue", queue, "key", key); err != nil {
		return "", time.Time{}, err
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	now, err := readNow(ctx, snapshot)
	if err != nil {
		return "", time.Time{}, err
	}
	found, err := readItems(ctx, snapshot, []itemKey{{queue, key}})
	if err != nil {
		return "", time.Time{}, err
	}
	i := found[itemKey{queue, key}]
	if i == nil || !i.leaseUntil.After(now) {
		return "", time.Time{}, tko.Errorf(tko.ErrNotFound, "%s %q is not claimed", queue, key)
	}
	// The database's clock may differ from this machine's.
	return i.claim, time.Now().Add(i.leaseUntil.Sub(now)), nil
}

// WorkOf returns the items of a queue.
func (s *Store) WorkOf(ctx context.Context, queue string) (items []record.QueuedWork, err error) {
	if err := decide.CheckTexts("queue", queue); err != nil {
		return nil, err
	}
	here := time.Now()
	statement := spanner.Statement{
		SQL:    "SELECT w.key, w.claimed, w.lease_until, CURRENT_TIMESTAMP() " + ofQueue + " ORDER BY w.key",
		Params: map[string]any{"queue": queue},
	}
	err = s.client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
		var i record.QueuedWork
		var claimed, until, now time.Time
		if err := row.Columns(&i.Key, &claimed, &until, &now); err != nil {
			return err
		}
		if until.After(now) { // the database's clock may differ from this machine's
			i.Claimed, i.LeaseUntil = here.Add(claimed.Sub(now)), here.Add(until.Sub(now))
		}
		items = append(items, i)
		return nil
	})
	return items, fault("read the work of a queue", err)
}

// FailingWork returns the items of a queue that fail.
func (s *Store) FailingWork(ctx context.Context, queue string, most int) (items []tko.FailingWork, err error) {
	if err := decide.CheckTexts("queue", queue); err != nil {
		return nil, err
	}
	here := time.Now()
	statement := spanner.Statement{
		SQL:    "SELECT w.key, w.attempt, w.last_error, w.due, CURRENT_TIMESTAMP() " + ofQueue + " AND w.attempt > 0 ORDER BY w.attempt DESC, w.key LIMIT @most",
		Params: map[string]any{"queue": queue, "most": int64(most)},
	}
	err = s.client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
		var i tko.FailingWork
		var failures int64
		var due, now time.Time
		err := row.Columns(&i.Key, &failures, &i.Error, &due, &now)
		i.Failures, i.Due = int(failures), here.Add(due.Sub(now)) // the database's clock may differ from this machine's
		items = append(items, i)
		return err
	})
	return items, fault("read the failing work of a queue", err)
}

// QueueStatistics returns statistics of a queue. Counts stop at 100,000.
func (s *Store) QueueStatistics(ctx context.Context, queue string) (tko.QueueStatistics, error) {
	q := tko.QueueStatistics{Queue: queue}
	if err := decide.CheckTexts("queue", queue); err != nil {
		return q, err
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	v, err := readQueue(ctx, snapshot, queue)
	if err != nil {
		return q, err
	}
	v.parameters["most"] = int64(maxItems)
	statement := spanner.Statement{
		SQL: "SELECT MIN(i.due), COUNTIF(i.due <= @now), COUNTIF(i.due > @now AND i.lease_until > @now), " +
			"COUNTIF(i.due > @now AND i.lease_until <= @now AND i.attempt > 0), COUNTIF(i.due > @now AND i.lease_until <= @now AND i.attempt = 0) " +
			"FROM (SELECT " + dueAt + " AS due, w.lease_until, w.attempt " + ofQueue + " LIMIT @most) AS i",
		Params: v.parameters,
	}
	var first spanner.NullTime
	var ready, running, retrying, waiting int64
	err = snapshot.Query(ctx, statement).Do(func(row *spanner.Row) error {
		return row.Columns(&first, &ready, &running, &retrying, &waiting)
	})
	q.Ready, q.Running, q.Retrying, q.Waiting = int(ready), int(running), int(retrying), int(waiting)
	if first.Valid && first.Time.Before(v.now) {
		q.Oldest = v.now.Sub(first.Time)
	}
	return q, fault("read statistics of a queue", err)
}

// FinishWork ends claims.
func (s *Store) FinishWork(ctx context.Context, finished []tko.FinishedWork, backoff func(attempt int) time.Duration) error {
	finished = slices.Clone(finished)
	slices.SortFunc(finished, func(a, b tko.FinishedWork) int { return decide.CompareItems(a.Item, b.Item) })
	keys := make([]itemKey, len(finished))
	queues := map[string]bool{}
	for i, f := range finished {
		if err := decide.CheckFinished(f); err != nil {
			return err
		}
		keys[i] = itemKey{f.Item.Queue, f.Item.Key}
		queues[f.Item.Queue] = true
	}
	if len(finished) == 0 {
		return nil
	}
	due := map[string]bool{}
	err := s.write(ctx, "finish work", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		now, err := readNow(ctx, tx)
		if err != nil {
			return err
		}
		found, err := readItems(ctx, tx, keys)
		if err != nil {
			return err
		}
		woken := map[string]time.Time{}
		for queue := range queues {
			if woken[queue], err = readWoken(ctx, tx, queue); err != nil {
				return err
			}
		}
		clear(due)
		for n, f := range finished {
			i := found[keys[n]]
			if i == nil || i.claim != f.Item.Claim {
				continue
			}
			delete(found, i.itemKey)
			next := decide.Finish(f, decide.Claimed{Attempt: int(i.attempt), NewWork: i.generation != i.seen, Woken: !woken[i.queue].Before(i.claimed), Urgent: i.generation != i.seen && !i.gathering}, now, backoff)
			if next.Gone {
				m.remove("work", i.spanner())
				m.count += dueIndex
				continue
			}
			if next.Released {
				i.seen--
			}
			i.claim, i.claimed, i.leaseUntil, i.since = "", time.Time{}, time.Time{}, now
			i.due, i.attempt, i.lastError, i.gathering = next.Due, int64(next.Attempt), next.Error, next.Gather
			i.put(m)
			due[i.queue] = true
		}
		if len(due) > 0 {
			putNews(m)
		}
		return nil
	})
	if err == nil && len(due) > 0 {
		s.wake(due)
	}
	return err
}

// EnqueueWork enqueues work items of a queue, due at once. If missing is true, it skips keys that have an item already.
func (s *Store) EnqueueWork(ctx context.Context, queue string, keys []string, missing bool) error {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	var wanted []itemKey
	for _, key := range slices.Compact(keys) {
		if err := decide.CheckTexts("queue", queue, "key", key); err != nil {
			return err
		}
		wanted = append(wanted, itemKey{queue, key})
	}
	if len(wanted) == 0 {
		return nil
	}
	for part := range slices.Chunk(wanted, enqueueBatch) {
		if err := s.enqueueSome(ctx, part, missing); err != nil {
			return err
		}
		s.wake(map[string]bool{queue: true})
	}
	return nil
}

// enqueueBatch is the number of items that one transaction enqueues: each needs 13 mutations and those of an index.
const enqueueBatch = 3000

func (s *Store) enqueueSome(ctx context.Context, wanted []itemKey, missing bool) error {
	cause := trail.Cause(ctx)
	return s.write(ctx, "enqueue work", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		now, err := readNow(ctx, tx)
		if err != nil {
			return err
		}
		found, err := readItems(ctx, tx, wanted)
		if err != nil {
			return err
		}
		for _, key := range wanted {
			i := found[key]
			if i != nil && missing {
				continue
			}
			if i == nil {
				i = &item{itemKey: key}
			}
			i.request(now, now, cause)
			i.put(m)
		}
		putNews(m)
		return nil
	})
}

// enqueue decides the work that the changes cause.
func (t *transaction) enqueue(ctx context.Context) error {
	var works decide.Works
	for _, c := range t.changes {
		works.Add(c.op, *orNew(c.before), *c.after, c.cause)
	}
	t.woken = works.Woken()
	items := works.Items()
	if works.Everywhere {
		sites, err := t.allSites(ctx)
		if err != nil {
			return err
		}
		for _, id := range sites {
			if !slices.ContainsFunc(items, func(i decide.Enqueued) bool { return i.Queue == tko.QueueSchedule && i.Key == id }) {
				t.later = append(t.later, itemKey{tko.QueueSchedule, id})
			}
		}
	}
	for _, key := range t.requests {
		if n := slices.IndexFunc(items, func(i decide.Enqueued) bool { return i.Queue == key.queue && i.Key == key.key }); n >= 0 {
			items[n].Needed, items[n].Urgent = true, true
			continue
		}
		items = append(items, decide.Enqueued{Queue: key.queue, Key: key.key, Needed: true, Urgent: true})
	}
	if len(items)+len(t.later) == 0 {
		return nil
	}
	now, err := t.time(ctx)
	if err != nil {
		return err
	}
	keys := slices.Clone(t.later)
	for _, i := range items {
		keys = append(keys, itemKey{i.Queue, i.Key})
	}
	found, err := readItems(ctx, t.tx, keys)
	if err != nil {
		return err
	}
	request := func(key itemKey, due time.Time, cause string, mayWait bool) {
		i := found[key]
		if i == nil {
			i = &item{itemKey: key}
		}
		i.requestAs(now, due, cause, mayWait)
		t.items = append(t.items, i)
		t.due[key.queue] = true
	}
	for _, i := range items {
		if key := (itemKey{i.Queue, i.Key}); i.Needed || found[key] != nil {
			request(key, now, i.Cause, !i.Urgent)
		}
	}
	for _, key := range t.later {
		request(key, now.Add(record.WakeDelay), "", false)
	}
	return nil
}

// allSites returns the IDs of all sites, with the changes so far.
func (t *transaction) allSites(ctx context.Context) (ids []string, err error) {
	statement := spanner.Statement{
		SQL: "SELECT e.id FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s JOIN entity AS e ON e.shard = s WHERE e.kind = @kind ORDER BY e.id LIMIT @most",
		// Each takes several mutations: more than these are refused.
		Params: map[string]any{"kind": string(tko.KindSite), "most": int64(maxMutations)},
	}
	err = t.tx.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var id string
		err := row.Column(0, &id)
		if r, known := t.state[record.Key{Kind: tko.KindSite, ID: id}]; !known || r != nil {
			ids = append(ids, id)
		}
		return err
	})
	return ids, fault("read the sites", err)
}

// loadClaims reads the claims of writes.
func (t *transaction) loadClaims(ctx context.Context, writes []record.Write) (err error) {
	var keys []itemKey
	for i := range writes {
		if c := writes[i].Claim; c != nil {
			keys = append(keys, itemKey{c.Queue, c.Key})
		}
	}
	t.claims, err = readItems(ctx, t.tx, keys)
	return err
}
