package spanner_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	spannerapi "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/store/spanner"
	"github.com/tko-orchestrator/tko/internal/store/spanner/spannertest"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A saboteur lets calls to Spanner fail.
type saboteur struct {
	mutex sync.Mutex
	calls int
	fail  func(call int, method string) (code codes.Code, after bool) // nil: none fails
}

// next returns the error of the next call, and whether the call is made before it is returned.
func (s *saboteur) next(method string) (err error, after bool) {
	if !strings.HasPrefix(method, "/google.spanner.v1.Spanner/") {
		return nil, false
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.calls++
	if s.fail == nil {
		return nil, false
	}
	code, after := s.fail(s.calls, method)
	if code == codes.OK {
		return nil, false
	}
	return status.Error(code, "injected"), after
}

// begin counts calls anew, and lets some fail.
func (s *saboteur) begin(fail func(call int, method string) (code codes.Code, after bool)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.calls, s.fail = 0, fail
}

// end lets all calls succeed.
func (s *saboteur) end() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.fail = nil
}

func (s *saboteur) unary(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	injected, after := s.next(method)
	if injected != nil && !after {
		if commit, ok := request.(*spannerapi.CommitRequest); ok && status.Code(injected) == codes.Aborted {
			rollBack(ctx, conn, commit)
		}
		return injected
	}
	err := invoke(ctx, method, request, response, conn, options...)
	if injected != nil && err == nil {
		return injected
	}
	return err
}

// rollBack ends a transaction, as one that Spanner has aborted: the emulator would wait for it.
func rollBack(ctx context.Context, conn *grpc.ClientConn, commit *spannerapi.CommitRequest) {
	_, _ = spannerapi.NewSpannerClient(conn).Rollback(ctx, &spannerapi.RollbackRequest{Session: commit.GetSession(), TransactionId: commit.GetTransactionId()})
}

func (s *saboteur) stream(ctx context.Context, of *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if injected, _ := s.next(method); injected != nil {
		return nil, injected
	}
	return open(ctx, of, conn, method, options...)
}

func openSabotaged(t *testing.T, database string) (*spanner.Store, *saboteur) {
	t.Helper()
	s := new(saboteur)
	store, err := spanner.Open(t.Context(), "spanner:"+database,
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(s.unary)), option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(s.stream)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, s
}

// written returns the changes of a record.
func written(t *testing.T, s record.Store, id string) (n int) {
	t.Helper()
	changes, err := s.Changes(t.Context(), 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if c.ID == id {
			n++
		}
	}
	return n
}

// Each call of a commit fails once, in each way. What is reported as written was written once, what is reported as refused wasn't, and
// the next commit works.
func TestCommitWithAFailureAtEachCall(t *testing.T) {
	t.Parallel()
	store, s := openSabotaged(t, spannertest.Database(t))
	write := func(id string) record.Write {
		w := site(id, record.Absent)
		w.Record.Kind, w.Record.Origin, w.Record.Parent = tko.KindDeployment, "origin of "+id, "parent"
		w.Audit, w.Access = &audit.Caller{Subject: "ann"}, new(int64)
		return w
	}
	counted := record.Reach{Cause: "ann", Window: time.Hour, Derived: true}
	tests := map[string]struct {
		why   string
		code  codes.Code
		after bool
	}{
		"unavailable":           {"the connection was lost before the call", codes.Unavailable, false},
		"response lost":         {"the call was made", codes.Unavailable, true},
		"aborted":               {"Spanner has ended the transaction", codes.Aborted, false},
		"stream reset":          {"a proxy has reset the stream after the call", codes.Internal, true},
		"too slow":              {"the response came too late", codes.DeadlineExceeded, true},
		"no room for the calls": {"Spanner is overloaded", codes.ResourceExhausted, false},
	}
	failures, unknown, known := 0, 0, 0
	for name, test := range tests {
		for n := 1; ; n++ {
			id := fmt.Sprintf("%s %d", name, n)
			failed := ""
			s.begin(func(call int, method string) (codes.Code, bool) {
				if call == n {
					failed = method
					return test.code, test.after
				}
				return codes.OK, false
			})
			outcomes, err := store.Commit(t.Context(), record.UngatedReach(counted, write(id)))
			s.end()
			if failed == "" {
				if err != nil {
					t.Errorf("%s: without a failure: %v", id, err)
				}
				break
			}
			failures++
			count := written(t, store, id)
			var lost *sqldb.UnknownOutcomeError
			switch {
			case err == nil && (count != 1 || outcomes[0].Revision != 1 || outcomes[0].Existed):
				t.Errorf("%s, %s at %s: it is reported as written, %+v, and there are %d changes: %s", id, test.code, failed, outcomes, count, test.why)
			case errors.As(err, &lost) && count <= 1:
				unknown++
			case err != nil && count != 0:
				t.Errorf("%s, %s at %s: it is reported as not written, %v, and there are %d changes: %s", id, test.code, failed, err, count, test.why)
			case err != nil:
				known++
			}
			if _, err := store.Commit(t.Context(), record.UngatedReach(counted, write(id+" again"))); err != nil {
				t.Fatalf("%s: the next commit: %v", id, err)
			}
		}
	}
	t.Logf("%d failures were injected: %d commits were refused, %d had an unknown outcome", failures, known, unknown)
	changes, err := store.Changes(t.Context(), 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	var logged, recorded []string
	for _, c := range changes {
		logged = append(logged, fmt.Sprint(c.Position, " ", c.ID))
	}
	for _, r := range auditRecords(t, store) {
		recorded = append(recorded, fmt.Sprint(r.Position, " ", r.ID))
	}
	if diff := cmp.Diff(logged, recorded); diff != "" {
		t.Errorf("audit records of the changes (-changes +records):\n%s", diff)
	}
	reached, err := store.Reached(t.Context(), "ann", time.Hour, 10)
	if err != nil || len(reached) != 1 || reached[0].N != len(changes) {
		t.Errorf("%d deployments were created, and %+v are counted, %v", len(changes), reached, err)
	}
	tally, ok, err := store.Tally(t.Context())
	if err != nil || !ok || len(tally.Classes) != 1 || tally.Classes[0].Count != int64(len(changes)) {
		t.Errorf("%d deployments were created, and the numbers are %+v, %t, %v", len(changes), tally, ok, err)
	}
	if failures < 4*len(tests) {
		t.Errorf("%d failures were injected, want at least four calls of a commit in each of %d ways", failures, len(tests))
	}
}

// auditRecords returns all audit records, and checks their chain.
func auditRecords(t *testing.T, s record.Store) (list []audit.Record) {
	t.Helper()
	stored, head, base, err := s.Audited(t.Context(), 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	v := audit.NewVerifier(base)
	for _, one := range stored {
		if err := v.Next(one); err != nil {
			t.Fatal(err)
		}
		r, err := one.Record()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	if err := v.End(head); err != nil {
		t.Fatal(err)
	}
	return list
}

// Each call of other transactions fails once, in each way: what they report is so, and nothing is written twice.
func TestOtherWritesWithAFailureAtEachCall(t *testing.T) {
	t.Parallel()
	store, s := openSabotaged(t, spannertest.Database(t))
	version := func() int64 {
		v, err := store.AccessVersion(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	rollouts := func() int64 {
		_, v, _, err := store.RolloutStates(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	records := func() int64 { return int64(len(auditRecords(t, store))) }
	writes := map[string]struct {
		why   string
		count func() int64 // grows by one with each write
		write func(ctx context.Context, n int64) error
	}{
		"rules of access": {"the version compares", version, func(ctx context.Context, n int64) error {
			_, err := store.ChangeAccess(ctx, n, []record.AccessRule{{Kind: "binding", ID: "b", Doc: []byte("{}")}}, nil)
			return err
		}},
		"rollouts": {"the version compares", rollouts, func(ctx context.Context, n int64) error {
			w := site(fmt.Sprint("s", n), record.Absent)
			w.Rollout = &record.RolloutWrite{
				Expect: n, Rollout: "r", Number: 1, States: []record.RolloutState{{ID: "r", Family: "r", State: execute.Running}},
				Rows: []record.RolloutRow{{Row: plan.Row{Deployment: "d", Revision: n + 1}}}, Flight: []execute.Entry{{Deployment: "d", Rollout: "r"}},
			}
			_, err := store.Commit(ctx, record.Ungated(w))
			return err
		}},
		"audit records": {"a second run would write them twice", records, func(ctx context.Context, _ int64) error { return store.Audit(ctx, audit.Record{Kind: "login"}) }},
		"sealed records": {"a lost response is found out by the end of the chain", records, func(ctx context.Context, _ int64) error {
			if err := store.Audit(context.WithoutCancel(ctx), audit.Record{Kind: "login"}); err != nil {
				return err
			}
			_, _, _, err := store.Audited(ctx, 0, 1)
			return err
		}},
	}
	failures := 0
	for name, w := range writes {
		for _, code := range []codes.Code{codes.Unavailable, codes.Aborted, codes.Internal} {
			for _, after := range []bool{false, true} {
				for n := 1; ; n++ {
					before, failed := w.count(), ""
					s.begin(func(call int, method string) (codes.Code, bool) {
						if call == n {
							failed = method
							return code, after && code != codes.Aborted
						}
						return codes.OK, false
					})
					err := w.write(t.Context(), before)
					s.end()
					var lost *sqldb.UnknownOutcomeError
					grown := w.count() - before
					if grown < 0 || grown > 1 || err == nil && grown != 1 {
						t.Errorf("%s, %s at call %d, %s: the error is %v, and the count grew by %d: %s", name, code, n, failed, err, grown, w.why)
					}
					if err != nil && !errors.As(err, &lost) && grown != 0 && name != "sealed records" { // which are two transactions
						t.Errorf("%s, %s at call %d, %s: it is reported as not written, %v, and it was: %s", name, code, n, failed, err, w.why)
					}
					if failed == "" {
						break
					}
					failures++
				}
			}
		}
	}
	t.Logf("%d failures were injected", failures)
}

// A plan is written by several transactions. If one fails, the plan is written again.
func TestPlanWithAFailureAtEachCall(t *testing.T) {
	t.Parallel()
	store, s := openSabotaged(t, spannertest.Database(t))
	for n, failed := 1, true; failed; n++ {
		failed = false
		write := func() error {
			return store.WriteRolloutPlan(t.Context(), "r", 1, []record.RolloutRow{{Row: plan.Row{Deployment: tko.DeploymentID(fmt.Sprint("d", n)), Revision: 1}}}, []byte("[]"))
		}
		s.begin(func(call int, _ string) (codes.Code, bool) {
			failed = failed || call == n
			return map[bool]codes.Code{true: codes.Internal}[call == n], n%2 == 0
		})
		err := write()
		s.end()
		if err != nil {
			err = write()
		}
		rows, readErr := store.RolloutRows(t.Context(), "r", 1, "", 100)
		if err != nil || readErr != nil || len(rows) != 1 || rows[0].Deployment != tko.DeploymentID(fmt.Sprint("d", n)) {
			t.Errorf("after a failure at call %d the rows are %+v, %v, %v; want those that were written", n, rows, err, readErr)
		}
	}
}

// A collection fails at every third of its calls. The next one continues it, and what is retained is complete.
func TestCollectionWithAFailureAtManyCalls(t *testing.T) {
	t.Parallel()
	store, s := openSabotaged(t, spannertest.Database(t))
	keep := record.Retention{Changes: time.Nanosecond, Revisions: 2}
	revision := int64(0)
	for n, failed := 1, true; failed && !t.Failed(); n += 3 {
		failed = false
		for range 3 {
			w := site("s", revision)
			w.Record.Package = fmt.Append(nil, "package ", revision)
			w.Record.Digest = sha256.Sum256(w.Record.Package)
			gone := site(fmt.Sprintf("gone %d", revision), record.Absent)
			if _, err := store.Commit(t.Context(), record.Ungated(w, gone)); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Commit(t.Context(), record.Ungated(record.Write{Op: tko.OpDeleted, Expect: record.Any, Record: record.Record{Key: gone.Record.Key}})); err != nil {
				t.Fatal(err)
			}
			revision++
		}
		s.begin(func(call int, _ string) (codes.Code, bool) {
			failed = failed || call == n
			return map[bool]codes.Code{true: codes.Internal}[call == n], n%2 == 0
		})
		_, err := store.Collect(t.Context(), keep)
		s.end()
		if err != nil {
			again, err := store.Collect(t.Context(), keep)
			if err != nil {
				t.Errorf("after a failure at call %d: %v", n, err)
			}
			if again.Elsewhere { // the last call releases the lease, which otherwise ends by itself
				if n < 30 {
					t.Errorf("after a failure at call %d the lease is held, and this is not the last call", n)
				}
				break
			}
		}
		key := record.Key{Kind: tko.KindSite, ID: "s"}
		for r := int64(1); r <= revision; r++ {
			got, err := store.Revision(t.Context(), key, r)
			if retained := r > revision-2; retained != (err == nil) || retained && string(got.Package) != fmt.Sprint("package ", r-1) {
				t.Errorf("after a failure at call %d, revision %d of %d: %q, %v", n, r, revision, got.Package, err)
			}
		}
		size, err := store.HistorySize(t.Context())
		if err != nil || size.Changes != 2 {
			t.Errorf("after a failure at call %d the history has %d changes, %v; want 2", n, size.Changes, err)
		}
		oldest, newest, err := store.Past(t.Context())
		if err != nil || oldest != newest {
			t.Errorf("after a failure at call %d the past is from %v to %v, %v", n, oldest, newest, err)
		}
	}
	t.Logf("%d revisions were written", revision)
}

// A transaction that runs again after its first commit has happened finds what it wrote itself: that is no conflict.
func TestSecondRunAfterALostCommitIsNoConflict(t *testing.T) {
	t.Parallel()
	store, s := openSabotaged(t, spannertest.Database(t))
	lost := false
	s.begin(func(_ int, method string) (codes.Code, bool) {
		switch {
		case !strings.HasSuffix(method, "/Commit"):
			return codes.OK, false
		case !lost:
			lost = true
			return codes.Unavailable, true // the client calls it again
		}
		return codes.Aborted, false // and the transaction is no longer known
	})
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := store.Commit(ctx, record.Ungated(site("s", record.Absent)))
		done <- err
	}()
	err := <-done
	s.end()
	var unknown *sqldb.UnknownOutcomeError
	if !errors.As(err, &unknown) || written(t, store, "s") != 1 {
		t.Errorf("the error is %v, and there are %d changes, want an unknown outcome and 1", err, written(t, store, "s"))
	}
}

// Two transactions with the same time and slot have the same key in the log: one runs again.
func TestCollisionsOfSlots(t *testing.T) {
	t.Parallel()
	store, s := openSabotaged(t, spannertest.Database(t))
	for collisions, works := range map[int]bool{1: true, 4: true, 5: false} {
		id := fmt.Sprintf("s%d", collisions)
		left := collisions
		if !works {
			left = 1000 // the store also commits what it seals and adds up in the background
		}
		s.begin(func(_ int, method string) (codes.Code, bool) {
			if strings.HasSuffix(method, "/Commit") && left > 0 {
				left--
				return codes.AlreadyExists, false
			}
			return codes.OK, false
		})
		_, err := store.Commit(t.Context(), record.Ungated(site(id, record.Absent)))
		s.end()
		count := written(t, store, id)
		switch {
		case works && (err != nil || count != 1):
			t.Errorf("after %d collisions: %v, %d changes", collisions, err, count)
		case !works && (!errors.Is(err, tko.ErrUnavailable) || count != 0):
			t.Errorf("after %d collisions: %v, %d changes; want ErrUnavailable and none", collisions, err, count)
		}
	}
}

// All transactions begin at the same slot: their positions differ by their times.
func TestPositionsOfOneSlotAreDistinct(t *testing.T) {
	t.Parallel()
	database := spannertest.Database(t)
	stores := []*spanner.Store{openAt(t, database), openAt(t, database)}
	const each = 20
	var wait sync.WaitGroup
	var mutex sync.Mutex
	var positions []int64
	for n, s := range stores {
		spanner.FixSlot(s, 7)
		for writer := range 4 {
			wait.Go(func() {
				for i := range each {
					outcomes, err := s.Commit(t.Context(), record.Ungated(site(fmt.Sprintf("s%d-%d-%d", n, writer, i), record.Absent)))
					if err != nil {
						t.Error(err)
						return
					}
					mutex.Lock()
					positions = append(positions, outcomes[0].Position)
					mutex.Unlock()
				}
			})
		}
	}
	wait.Wait()
	slices.Sort(positions)
	if got := len(slices.Compact(slices.Clone(positions))); got != 8*each {
		t.Errorf("%d writes have %d positions", 8*each, got)
	}
	changes, err := stores[0].Changes(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range changes {
		if i >= len(positions) || c.Position != positions[i] {
			t.Fatalf("change %d is at %d, want the position that its writer got", i, c.Position)
		}
	}
}

// Two stores write the same records at once: each revision has one writer, and each origin one record.
func TestTwoStoresCommitAtOnce(t *testing.T) {
	t.Parallel()
	database := spannertest.Database(t)
	stores := []*spanner.Store{openAt(t, database), openAt(t, database)}
	const writers, rounds = 4, 8
	won := make([][]string, rounds) // by revision
	made := 0
	var mutex sync.Mutex
	var wait sync.WaitGroup
	for n, s := range stores {
		for writer := range writers {
			wait.Go(func() {
				name := fmt.Sprintf("%d-%d", n, writer)
				for round := range int64(rounds) {
					_, err := s.Commit(t.Context(), record.Ungated(site("shared", round)))
					child := site(fmt.Sprintf("d%s-%d", name, round), record.Absent)
					child.Record.Kind, child.Record.Origin = tko.KindDeployment, fmt.Sprintf("o%d", round)
					outcomes, childErr := s.Commit(t.Context(), record.Ungated(child))
					if childErr != nil {
						t.Error(childErr)
						return
					}
					mutex.Lock()
					if err == nil {
						won[round] = append(won[round], name)
					} else if !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrNotFound) {
						t.Error(err)
					}
					if !outcomes[0].Existed {
						made++
					}
					mutex.Unlock()
				}
			})
		}
	}
	wait.Wait()
	for round, names := range won {
		if len(names) > 1 {
			t.Errorf("revision %d was written by %q, want one writer", round+1, names)
		}
	}
	if len(won[0]) != 1 {
		t.Errorf("the record was created by %q, want one writer", won[0])
	}
	children := 0
	for _, err := range stores[1].List(t.Context(), record.Query{Kind: tko.KindDeployment, Limit: -1, Scope: access.ScopeAll}) {
		if err != nil {
			t.Fatal(err)
		}
		children++
	}
	if made != rounds || children != rounds {
		t.Errorf("%d origins have %d records, and %d were reported", rounds, children, made)
	}
}
