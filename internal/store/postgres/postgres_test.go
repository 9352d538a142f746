package postgres_test

import (
	"context"
	"io"
	"iter"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	rollouts "github.com/tko-orchestrator/tko/internal/rollout/execute" // execute is a function here
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(writerEnvironment); dsn != "" {
		os.Exit(writerMain(dsn))
	}
	os.Exit(pgtest.Main(m))
}

func TestStoreKeepsAllPromises(t *testing.T) {
	storetest.Run(t, func(t *testing.T) record.Store { return open(t, pgtest.DSN(t)) })
}

func TestPastOfALongLogEqualsAModel(t *testing.T) {
	t.Parallel()
	storetest.PastOfALongLog(t, open(t, pgtest.DSN(t)))
}

func TestTwoStoresOnOneDatabaseKeepAllPromises(t *testing.T) {
	r := new(recorder)
	p := r.proxy(asItIs)
	t.Run("promises", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) record.Store {
			dsn := pgtest.DSN(t)
			return &alternating{stores: [2]record.Store{open(t, dsn), open(t, p.Start(t, dsn))}}
		})
	})
	t.Run("grammar", r.checkGrammar)
	t.Run("plans", r.checkPlans)
}

// Transactions that lock several rows in different orders deadlock, which PostgreSQL
// detects a second later.
func TestConcurrentWorkersDoNotDeadlock(t *testing.T) {
	dsn := pgtest.DSN(t)
	storetest.Contend(t, open(t, dsn))
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
	var deadlocks int
	if err := c.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks); err != nil {
		t.Fatal(err)
	}
	if deadlocks != 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
}

func open(t *testing.T, dsn string) record.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// alternating is a store that passes calls to two stores alternately.
type alternating struct {
	stores [2]record.Store
	calls  atomic.Int64
}

func (a *alternating) next() record.Store { return a.stores[a.calls.Add(1)%2] }

func (a *alternating) Get(ctx context.Context, fields record.Fields, keys ...record.Key) ([]record.Record, error) {
	return a.next().Get(ctx, fields, keys...)
}

func (a *alternating) Revision(ctx context.Context, key record.Key, revision int64) (record.Record, error) {
	return a.next().Revision(ctx, key, revision)
}

func (a *alternating) Revisions(ctx context.Context, fields record.Fields, wanted ...record.AtRevision) ([]record.Record, error) {
	return a.next().Revisions(ctx, fields, wanted...)
}

func (a *alternating) List(ctx context.Context, query record.Query) iter.Seq2[record.Record, error] {
	return a.next().List(ctx, query)
}

func (a *alternating) Derivation(ctx context.Context, digest record.Digest) ([]byte, error) {
	return a.next().Derivation(ctx, digest)
}

func (a *alternating) Descendants(ctx context.Context, ids []string, tell func(id string)) error {
	return a.next().Descendants(ctx, ids, tell)
}

func (a *alternating) Collect(ctx context.Context, keep record.Retention) (record.Collected, error) {
	return a.next().Collect(ctx, keep)
}

func (a *alternating) Backup(ctx context.Context, w io.Writer, program string) error {
	return a.next().Backup(ctx, w, program)
}

func (a *alternating) Fence(ctx context.Context) (tko.Fence, error) { return a.next().Fence(ctx) }

func (a *alternating) Holds(ctx context.Context) ([]tko.Hold, error) { return a.next().Holds(ctx) }

func (a *alternating) ReleaseHolds(ctx context.Context, holds []tko.Hold, mode string) error {
	return a.next().ReleaseHolds(ctx, holds, mode)
}

func (a *alternating) WorkClaim(ctx context.Context, queue, key string) (claim string, until time.Time, err error) {
	return a.next().WorkClaim(ctx, queue, key)
}

func (a *alternating) AccessVersion(ctx context.Context) (int64, error) {
	return a.next().AccessVersion(ctx)
}

func (a *alternating) Access(ctx context.Context) (version int64, rules []record.AccessRule, err error) {
	return a.next().Access(ctx)
}

func (a *alternating) ChangeAccess(ctx context.Context, expect int64, put, remove []record.AccessRule, records ...audit.Record) (version int64, err error) {
	return a.next().ChangeAccess(ctx, expect, put, remove, records...)
}

func (a *alternating) Audit(ctx context.Context, records ...audit.Record) error {
	return a.next().Audit(ctx, records...)
}

func (a *alternating) Audited(ctx context.Context, after int64, limit int) (records []audit.Stored, head, base audit.Head, err error) {
	return a.next().Audited(ctx, after, limit)
}

func (a *alternating) AuditedSince(ctx context.Context, since time.Time) (int64, error) {
	return a.next().AuditedSince(ctx, since)
}

func (a *alternating) AuditSink(ctx context.Context, name string) (int64, error) {
	return a.next().AuditSink(ctx, name)
}

func (a *alternating) SaveAuditSink(ctx context.Context, name string, seq int64) error {
	return a.next().SaveAuditSink(ctx, name, seq)
}

func (a *alternating) HoldNotifier(ctx context.Context, holder string, lease time.Duration) (bool, error) {
	return a.next().HoldNotifier(ctx, holder, lease)
}

func (a *alternating) Subscriptions(ctx context.Context) ([]record.SubscriptionState, error) {
	return a.next().Subscriptions(ctx)
}

func (a *alternating) SaveSubscription(ctx context.Context, holder string, state record.SubscriptionState) error {
	return a.next().SaveSubscription(ctx, holder, state)
}

func (a *alternating) TrimAudit(ctx context.Context, before time.Time, limit int) (int, error) {
	return a.next().TrimAudit(ctx, before, limit)
}

func (a *alternating) Tally(ctx context.Context) (record.Tally, bool, error) {
	return a.next().Tally(ctx)
}

func (a *alternating) Epoch(ctx context.Context) (int64, error) { return a.next().Epoch(ctx) }

func (a *alternating) Commit(ctx context.Context, gated record.Gated) ([]record.Outcome, error) {
	return a.next().Commit(ctx, gated)
}

func (a *alternating) Reached(ctx context.Context, cause string, window time.Duration, limit int) ([]record.Reached, error) {
	return a.next().Reached(ctx, cause, window, limit)
}

func (a *alternating) StartModification(ctx context.Context, deployment, token string, ttl time.Duration) (record.Record, time.Time, error) {
	return a.next().StartModification(ctx, deployment, token, ttl)
}

func (a *alternating) Modification(ctx context.Context, token string) (start, current record.Record, err error) {
	return a.next().Modification(ctx, token)
}

func (a *alternating) CancelModification(ctx context.Context, token string) error {
	return a.next().CancelModification(ctx, token)
}

func (a *alternating) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	return a.next().Modifications(ctx)
}

func (a *alternating) BreakModification(ctx context.Context, deployment string) (tko.OpenModification, error) {
	return a.next().BreakModification(ctx, deployment)
}

func (a *alternating) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, time.Time, error) {
	return a.next().ClaimWork(ctx, claim)
}

func (a *alternating) RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error) {
	return a.next().RenewWork(ctx, items, lease)
}

func (a *alternating) FinishWork(ctx context.Context, items []tko.FinishedWork, backoff func(attempt int) time.Duration) error {
	return a.next().FinishWork(ctx, items, backoff)
}

func (a *alternating) Changes(ctx context.Context, after int64, limit int) ([]tko.Change, error) {
	return a.next().Changes(ctx, after, limit)
}

func (a *alternating) Head(ctx context.Context) (int64, error) { return a.next().Head(ctx) }
func (a *alternating) BeforeNewest(ctx context.Context, n int) (int64, error) {
	return a.next().BeforeNewest(ctx, n)
}
func (a *alternating) Signal() <-chan struct{}                 { return a.next().Signal() }
func (a *alternating) WorkSignal(queue string) <-chan struct{} { return a.next().WorkSignal(queue) }
func (a *alternating) MaxStep() int                            { return a.next().MaxStep() }
func (a *alternating) Backend() string                         { return a.next().Backend() }
func (a *alternating) Close() error                            { return nil }

func (a *alternating) EnqueueWork(ctx context.Context, queue string, keys []string, missing bool) error {
	return a.next().EnqueueWork(ctx, queue, keys, missing)
}

func (a *alternating) Source(ctx context.Context, name string) (tko.Source, error) {
	return a.next().Source(ctx, name)
}

func (a *alternating) Sources(ctx context.Context) ([]tko.Source, error) {
	return a.next().Sources(ctx)
}

func (a *alternating) SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (int64, error) {
	return a.next().SaveSource(ctx, s, claim)
}

func (a *alternating) ApproveSource(ctx context.Context, name, digest string) error {
	return a.next().ApproveSource(ctx, name, digest)
}

func (a *alternating) ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error {
	return a.next().ForgetSource(ctx, name, claim)
}

func (a *alternating) TargetState(ctx context.Context, site tko.SiteID, name string) (tko.TargetState, error) {
	return a.next().TargetState(ctx, site, name)
}

func (a *alternating) SaveTargetState(ctx context.Context, s tko.TargetState, claim tko.WorkItem) (int64, error) {
	return a.next().SaveTargetState(ctx, s, claim)
}

func (a *alternating) RolloutStates(ctx context.Context, ids ...string) ([]record.RolloutState, int64, time.Time, error) {
	return a.next().RolloutStates(ctx, ids...)
}

func (a *alternating) RolloutCommandView(ctx context.Context, id string, filter record.RowFilter) (record.RolloutView, error) {
	return a.next().RolloutCommandView(ctx, id, filter)
}

func (a *alternating) WorkOf(ctx context.Context, queue string) ([]record.QueuedWork, error) {
	return a.next().WorkOf(ctx, queue)
}

func (a *alternating) QueueStatistics(ctx context.Context, queue string) (tko.QueueStatistics, error) {
	return a.next().QueueStatistics(ctx, queue)
}

func (a *alternating) FailingWork(ctx context.Context, queue string, most int) ([]tko.FailingWork, error) {
	return a.next().FailingWork(ctx, queue, most)
}

func (a *alternating) ApartFlights(ctx context.Context) ([]rollouts.Entry, error) {
	return a.next().ApartFlights(ctx)
}

func (a *alternating) RolloutView(ctx context.Context, id string, known record.RowsAt) (record.RolloutView, error) {
	return a.next().RolloutView(ctx, id, known)
}

func (a *alternating) RolloutEvidence(ctx context.Context, id string, after int64, limit int) ([]tko.RolloutEvidence, error) {
	return a.next().RolloutEvidence(ctx, id, after, limit)
}

func (a *alternating) RolloutRows(ctx context.Context, id string, number int64, after string, limit int) ([]record.RolloutRow, error) {
	return a.next().RolloutRows(ctx, id, number, after, limit)
}

func (a *alternating) RolloutPlan(ctx context.Context, id string, number int64) ([]byte, error) {
	return a.next().RolloutPlan(ctx, id, number)
}

func (a *alternating) RolloutSummary(ctx context.Context, id string, examples int) (record.RolloutSummary, error) {
	return a.next().RolloutSummary(ctx, id, examples)
}

func (a *alternating) ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error) {
	return a.next().ReservedOrigins(ctx, parent)
}

func (a *alternating) WriteRolloutPlan(ctx context.Context, id string, number int64, rows []record.RolloutRow, groups []byte) error {
	return a.next().WriteRolloutPlan(ctx, id, number, rows, groups)
}

func (a *alternating) GetAt(ctx context.Context, position int64, fields record.Fields, keys ...record.Key) ([]record.Record, error) {
	return a.next().GetAt(ctx, position, fields, keys...)
}

func (a *alternating) Past(ctx context.Context) (oldest, newest record.Moment, err error) {
	return a.next().Past(ctx)
}

func (a *alternating) HistorySize(ctx context.Context) (record.HistorySize, error) {
	return a.next().HistorySize(ctx)
}

func (a *alternating) PositionAt(ctx context.Context, t time.Time) (int64, error) {
	return a.next().PositionAt(ctx, t)
}

func (a *alternating) History(ctx context.Context, q record.HistoryQuery) ([]tko.Change, error) {
	return a.next().History(ctx, q)
}
